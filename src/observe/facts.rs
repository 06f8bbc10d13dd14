//! What a decision says beside its text: how loud it is in the log, which attempt it is about, its fields as JSON. The
//! words of the fields are a contract: docs/api.md lists them.

use std::time::Duration;

use serde_json::{Value, json};
use tracing::Level;

use crate::engine::decision::{ClearCause, Decision, Difference, DropReason};

/// A decision, taken apart.
pub(super) struct Facts {
    /// Of its log line.
    pub(super) level: Level,
    /// Where it is about one.
    pub(super) attempt: Option<u64>,
    /// A JSON object.
    pub(super) fields: Value,
}

/// Takes a decision apart. Durations are seconds.
pub(super) fn facts(decision: &Decision) -> Facts {
    match decision {
        Decision::State(state) => quiet(json!({ "state": state.label() })),
        Decision::Dialing { attempt } => of(Level::INFO, *attempt, json!({})),
        Decision::Connected { attempt, took } => of(
            Level::DEBUG,
            *attempt,
            json!({ "tookSeconds": seconds(*took) }),
        ),
        Decision::Adopted {
            attempt,
            revision,
            mcpl,
            took,
        } => of(
            Level::INFO,
            *attempt,
            json!({ "revision": revision.as_str(), "mcpl": mcpl, "tookSeconds": seconds(*took) }),
        ),
        Decision::AttemptFailed {
            attempt,
            outcome,
            why,
            failed_attempts,
        } => of(
            Level::WARN,
            *attempt,
            json!({ "outcome": outcome.label(), "reason": why, "failedAttempts": failed_attempts }),
        ),
        Decision::Ended {
            attempt,
            end,
            lasted,
            lived,
            failed_attempts,
        } => of(
            Level::INFO,
            *attempt,
            json!({
                "reason": end.to_string(), "cause": end.label(), "lasted": lasted,
                "livedSeconds": seconds(*lived), "failedAttempts": failed_attempts,
            }),
        ),
        Decision::ShortEnd {
            attempt,
            why,
            failed_attempts,
        } => of(
            Level::WARN,
            *attempt,
            json!({ "reason": why, "failedAttempts": failed_attempts }),
        ),
        Decision::Waiting { attempt, wait } => of(
            Level::INFO,
            *attempt,
            json!({ "waitSeconds": seconds(*wait) }),
        ),
        Decision::Settled {
            outcome,
            granted,
            took,
            note,
        } => plain(json!({
            "outcome": outcome.label(), "granted": granted, "tookSeconds": seconds(*took), "note": note,
        })),
        Decision::Manifest {
            revision,
            domains,
            capabilities,
            feature_sets,
        } => plain(json!({
            "revision": revision,
            "domains": domains.iter().map(|domain| domain.label()).collect::<Vec<_>>(),
            "capabilities": difference(capabilities), "featureSets": difference(feature_sets),
        })),
        Decision::SessionRenewed { attempt } => of(Level::INFO, *attempt, json!({})),
        Decision::Lasted { lived } => plain(json!({ "livedSeconds": seconds(*lived) })),
        Decision::Down { attempt, why, mcpl } => of(
            Level::ERROR,
            *attempt,
            json!({ "reason": why, "mcpl": mcpl }),
        ),
        Decision::Clear {
            cause,
            failed_attempts,
            down_for,
            mcpl,
        } => plain(json!({
            "cause": cause_label(*cause), "failedAttempts": failed_attempts,
            "downSeconds": seconds(*down_for), "mcpl": mcpl,
        })),
        Decision::Halted { attempt, why } => of(Level::ERROR, *attempt, json!({ "reason": why })),
        Decision::Refused { problem } => loud(Level::ERROR, json!({ "reason": problem })),
        Decision::Carried { direction, class } => {
            quiet(json!({ "direction": direction.label(), "class": class.label() }))
        }
        Decision::Dropped {
            reason,
            method,
            count,
        } => {
            // A server that does not read is told of in the answers of its hosts' calls, and in the counter: each
            // frame that it misses is no line of its own.
            let level = if *reason == DropReason::Unsent {
                Level::DEBUG
            } else {
                Level::WARN
            };
            let fields = json!({ "reason": reason.label(), "method": method, "count": count });
            loud(level, fields)
        }
        Decision::Repeated { method, messages } => {
            plain(json!({ "method": method, "messages": messages }))
        }
        Decision::UnknownChannel { method, messages } => loud(
            Level::WARN,
            json!({ "method": method, "messages": messages }),
        ),
        Decision::RefusedMessage { code, method } => {
            loud(Level::WARN, json!({ "code": code, "method": method }))
        }
        Decision::Kept { messages } => plain(json!({ "messages": messages })),
        Decision::Accepted { method } => quiet(json!({ "method": method })),
        Decision::Verdict { method, agrees } => {
            let level = if *agrees { Level::DEBUG } else { Level::WARN };
            loud(level, json!({ "method": method, "agrees": agrees }))
        }
        Decision::Flushed { queue, messages } => {
            plain(json!({ "queue": queue.label(), "messages": messages }))
        }
        Decision::HoldLifted { hold, held_for } => {
            quiet(json!({ "hold": hold.label(), "heldSeconds": seconds(*held_for) }))
        }
        Decision::Called {
            id: _,
            method,
            took,
            error,
        } => quiet(json!({ "method": method, "tookSeconds": seconds(*took), "error": error })),
        Decision::HostAttached | Decision::HostDetached => plain(json!({})),
        Decision::HostServes { unasked } => plain(json!({ "unasked": unasked })),
        Decision::Paused(paused) => plain(json!({ "paused": paused })),
        Decision::Noise { lines, sample } => {
            loud(Level::WARN, json!({ "lines": lines, "sample": sample }))
        }
        Decision::Stderr(line) => plain(json!({ "line": line })),
        Decision::Orphaned { method } => loud(Level::WARN, json!({ "method": method })),
        Decision::AnsweredLate { method } => quiet(json!({ "method": method })),
        Decision::Reported(_) => loud(Level::WARN, json!({})),
    }
}

fn of(level: Level, attempt: u64, fields: Value) -> Facts {
    Facts {
        level,
        attempt: Some(attempt),
        fields,
    }
}

fn loud(level: Level, fields: Value) -> Facts {
    Facts {
        level,
        attempt: None,
        fields,
    }
}

fn plain(fields: Value) -> Facts {
    loud(Level::INFO, fields)
}

fn quiet(fields: Value) -> Facts {
    loud(Level::DEBUG, fields)
}

fn difference(of: &Difference) -> Value {
    json!({ "added": of.added, "pending": of.pending, "removed": of.removed })
}

fn cause_label(cause: ClearCause) -> &'static str {
    match cause {
        ClearCause::Lasted(_) => "lasted",
        ClearCause::Removed => "removed",
        ClearCause::Disabled => "disabled",
        ClearCause::Ended => "ended",
    }
}

/// To the millisecond: nobody reads more, and a float's tail is noise.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}
