//! The text of a decision: one line of the log, and of the event stream.

use std::fmt;

use super::{ClearCause, Decision, Difference};

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(state) => write!(f, "state {}", state.label()),
            Self::Dialing { attempt } => write!(f, "connecting (attempt {attempt})"),
            Self::Connected { attempt, .. } => {
                write!(f, "attempt {attempt} has a transport; the handshake begins")
            }
            Self::Adopted {
                attempt,
                revision,
                mcpl,
                ..
            } => {
                let with = if *mcpl { " with MCPL" } else { "" };
                write!(
                    f,
                    "connected by attempt {attempt}, MCP {revision}{with}; not yet lasting"
                )
            }
            Self::AttemptFailed { attempt, why, .. } => {
                write!(f, "attempt {attempt} failed: {why}")
            }
            Self::Ended {
                end, lasted, lived, ..
            } => {
                let how = if *lasted {
                    "after it had lasted"
                } else {
                    "before it lasted"
                };
                write!(
                    f,
                    "connection ended {how}, {} s old: {end}",
                    lived.as_secs()
                )
            }
            Self::ShortEnd { attempt, why, .. } => write!(f, "attempt {attempt} failed: {why}"),
            Self::Waiting { attempt, wait } => {
                write!(f, "attempt {attempt} in {:.1} s", wait.as_secs_f64())
            }
            Self::Settled {
                outcome,
                granted,
                note,
                ..
            } => {
                let gap = if note.is_empty() { "" } else { ": " };
                write!(
                    f,
                    "policy exchange {}, {granted} capabilities granted{gap}{note}",
                    outcome.label()
                )
            }
            Self::Manifest {
                capabilities,
                feature_sets,
                ..
            } => write!(
                f,
                "another manifest: capabilities {capabilities}; feature sets {feature_sets}"
            ),
            Self::SessionRenewed { attempt } => {
                write!(f, "attempt {attempt}: its session is renewed")
            }
            Self::Lasted { lived } => {
                write!(f, "the connection has lasted ({} s)", lived.as_secs())
            }
            Self::Down { attempt, why, mcpl } => {
                write!(
                    f,
                    "{} server down (attempt {attempt}): {why}",
                    family(*mcpl)
                )
            }
            Self::Clear {
                cause,
                failed_attempts,
                down_for,
                mcpl,
            } => {
                let family = family(*mcpl);
                let down = down_for.as_secs();
                match cause {
                    ClearCause::Lasted(lived) => write!(
                        f,
                        "{family} server clear: connected for {} s after {failed_attempts} failed attempts \
                         (down for {down} s)",
                        lived.as_secs()
                    ),
                    ClearCause::Removed => {
                        write!(f, "{family} server clear: removed (down for {down} s)")
                    }
                    ClearCause::Disabled => {
                        write!(f, "{family} server clear: disabled (down for {down} s)")
                    }
                    ClearCause::Ended => {
                        write!(
                            f,
                            "{family} server clear: ended as asked (down for {down} s)"
                        )
                    }
                }
            }
            Self::Halted { attempt, why } => write!(f, "halted (attempt {attempt}): {why}"),
            Self::Refused { problem } => write!(f, "configuration refused: {problem}"),
            Self::Carried { direction, class } => {
                write!(f, "{} {}", class.label(), direction.label())
            }
            Self::Dropped {
                reason,
                method,
                count,
            } => {
                let what = named(method);
                write!(f, "dropped {count} × {what}: {}", reason.label())
            }
            Self::Repeated { method, messages } => {
                let s = plural(*messages);
                write!(
                    f,
                    "answered {messages} repeated {method} message{s} as the first time"
                )
            }
            Self::UnknownChannel { method, messages } => {
                let s = plural(*messages);
                write!(
                    f,
                    "refused {messages} message{s} of {method}: nobody registered their channel"
                )
            }
            Self::RefusedMessage { code, method } => {
                write!(f, "refused {} with {code}", named(method))
            }
            Self::Kept { messages } => {
                let s = plural(*messages);
                write!(f, "{messages} message{s} kept for the next connection")
            }
            Self::Accepted { method } => write!(f, "accepted {method} for the host"),
            Self::Verdict { method, agrees } => {
                let how = if *agrees { "accepts" } else { "refuses" };
                write!(f, "the host {how} {method}, accepted for it before")
            }
            Self::Flushed { queue, messages } => {
                let s = plural(*messages);
                write!(f, "{messages} {} message{s} admitted", queue.label())
            }
            Self::HoldLifted { hold, held_for } => {
                write!(
                    f,
                    "hold {} lifted after {:.1} s",
                    hold.label(),
                    held_for.as_secs_f64()
                )
            }
            Self::Called {
                id: _,
                method,
                took,
                error,
            } => {
                let error = error.as_deref().unwrap_or("ok");
                write!(f, "{method} {error} in {:.1} ms", took.as_secs_f64() * 1e3)
            }
            Self::HostAttached => f.write_str("a host attached"),
            Self::HostServes { unasked: false } => f.write_str("the host serves"),
            Self::HostServes { unasked: true } => {
                f.write_str("the host serves; it sent no featureSets/update in time")
            }
            Self::HostDetached => f.write_str("a host went"),
            Self::Paused(true) => f.write_str("paused by the operator"),
            Self::Paused(false) => f.write_str("resumed by the operator"),
            Self::Noise { lines, sample } => {
                write!(f, "{lines} lines on stdout are no JSON-RPC, e.g. {sample}")
            }
            Self::Stderr(line) => write!(f, "stderr: {line}"),
            Self::Orphaned { method } => {
                write!(f, "an answer to {method} came too late and carries state")
            }
            Self::AnsweredLate { method } => {
                write!(
                    f,
                    "the host took {method}; the process that sent it is gone"
                )
            }
            Self::Reported(what) => f.write_str(what),
        }
    }
}

fn named(method: &str) -> &str {
    if method.is_empty() { "message" } else { method }
}

fn family(mcpl: bool) -> &'static str {
    if mcpl { "MCPL" } else { "MCP" }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("added", &self.added),
            ("not accepted", &self.pending),
            ("removed", &self.removed),
        ];
        let told: Vec<String> = lists
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what} {}", names.join(", ")))
            .collect();
        if told.is_empty() {
            return f.write_str("unchanged");
        }
        f.write_str(&told.join(", "))
    }
}
