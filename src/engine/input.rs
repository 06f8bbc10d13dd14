//! Everything that can happen to a server's engine. Inputs are facts about the past; each carries the epoch or the
//! session that it is about.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::decision::labelled;
use super::settings::Settings;
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{Message, Unreadable};
use crate::wire::redact::Secrets;

/// When an input was handled, and the draw for a wait that it may start.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On the monotonic clock (R6); never goes back.
    pub now: Instant,
    /// Uniform in -1.0 ..= 1.0: where in its ±25 % a wait falls (R2). Other values are clamped.
    pub jitter: f64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// What is remembered of a server that is not started now: refused or disabled. Comes first, and once; `Start`
    /// carries the same for one that is.
    Resume(Resumed),
    /// The configuration is usable and the server enabled: connect it. What it carries counts at the first time only.
    Start(Resumed),
    /// The configuration cannot be used: do not launch (R9).
    Refuse {
        /// What is wrong and what to write instead, without secrets.
        problem: String,
    },
    /// The configuration of a running server changed.
    Configure {
        /// What holds from now on.
        settings: Arc<Settings>,
        /// A field that makes the transport changed, so this one is replaced by an ordinary boundary (R14).
        redial: bool,
    },
    /// An operator or a host asks for something.
    Operator(Operator),
    /// Nothing is to be dialed, reported or retried any more (R13).
    Stop(Stop),
    /// Something happened to a transport.
    Link {
        /// The epoch whose transport it is.
        epoch: Epoch,
        /// What happened.
        event: LinkEvent,
    },
    /// Something happened to a host's session.
    Host {
        /// Which session.
        session: SessionId,
        /// What happened.
        event: HostEvent,
    },
    /// The gateway itself wants a text in a channel of this server. Answered by `Posted`.
    Post(Post),
    /// How far the state directory is with the messages that it was told to store (G14).
    Stored(Synced),
    /// How many bytes it may hold and keep: its share of what all servers may together (G6). Without a word, any.
    Allowance(usize),
}

/// A text for a channel, of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Comes back in `Posted`.
    pub ticket: u64,
    /// The channel's id.
    pub channel: String,
    /// For people.
    pub text: String,
}

/// What is on disk of the messages that a server's engine recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Every message recorded under this key or an earlier one is on disk, or was discarded.
    pub through: u64,
    /// The last write failed: what was recorded since is on no disk yet.
    pub failing: bool,
}

/// What the state directory remembers of a server (S5).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resumed {
    /// The last epoch that was used; the first one of this run is the next.
    pub epoch: Epoch,
    /// R1's count.
    pub failed_attempts: u64,
    /// How long ago the last launch was (R1).
    pub since_launch: Option<Duration>,
    /// How long ago a connection last lasted.
    pub since_lasted: Option<Duration>,
    /// How long ago it was last disabled, or ended as asked.
    pub since_unwanted: Option<Duration>,
    /// How many of the failed attempts came before that.
    pub forgiven_attempts: u64,
    /// The episode that was open.
    pub episode: Option<OpenEpisode>,
    /// An operator's pause, which belongs to the server's id (G3).
    pub paused: bool,
    /// The last host's narrowing, as the params of its `featureSets/update` (P1).
    pub narrowing: Option<String>,
    /// There is a state directory, so that messages can be stored and accepted for a host (A3, G14).
    pub durable: bool,
    /// The messages that were stored and not discarded, by their keys (G14).
    pub kept: Vec<Stored>,
}

/// A world message that outlived the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key under which it was recorded.
    pub key: u64,
    /// How long ago it was read.
    pub age: Duration,
    /// A host may have had it (G13).
    pub forwarded: bool,
    /// The gateway accepted it for the host (A3).
    pub accepted: bool,
    /// As received.
    pub frame: Bytes,
}

/// An episode that was open when the gateway stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenEpisode {
    /// How long ago it opened.
    pub since: Duration,
    /// The attempt whose failure opened it.
    pub attempt: u64,
    /// Why.
    pub why: String,
}

/// What an operator, or a host on its own server, can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Close and dial at once; no failure (R14). Ends a halt.
    Restart,
    /// The connection is judged broken: close it; a failure where it has not lasted (R14).
    Recycle,
    /// Hold world messages (G3).
    Pause,
    /// Lift the pause.
    Resume,
}

/// Why a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its entry says `enabled: false`. Clears an open episode; kept messages stay.
    Disabled,
    /// Its entry is gone: closed for good (G5). Clears an open episode.
    Removed,
    /// The gateway stops. The episode stays open (S5).
    Shutdown,
}

/// What happens to a transport, in this order: `Connected` or `Failed`; then messages; then `Lost` once; then late
/// messages (G7); then `Gone` once. `Failed` is followed by `Gone` too. Over HTTP, where it is `initialize` that
/// is refused, `Failed` may come after `Connected`, in the place of the answer.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// What must never be shown of it: taken out of every text that operators and hosts are told. Comes before
    /// anything that the server could say.
    Secrets(Arc<Secrets>),
    /// Launched, or the socket is open. No handshake yet.
    Connected,
    /// It could not be launched or dialed.
    Failed(Failure),
    /// It sent a message.
    Received(Message),
    /// It sent a request that belongs to a call, and so is for that call's client.
    Asked {
        /// The request.
        message: Message,
        /// The gateway's id of the call.
        during: u64,
    },
    /// It sent something that is no message.
    Unreadable {
        /// What it is.
        what: Unreadable,
        /// The beginning of it, escaped, at most 200 characters.
        sample: String,
    },
    /// A frame could not be queued for it: its outbound queue is full.
    Unsent {
        /// The gateway's id of the request in that frame.
        request: Option<u64>,
        /// The frame.
        frame: Bytes,
    },
    /// A line on the child's stderr, escaped and without secrets.
    Stderr(String),
    /// The connection is over.
    Lost(Loss),
    /// Nothing of it is left, or what is left cannot be ended.
    Gone(Reap),
}

/// Why a dial failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The closed reason, which is also the metric's label.
    pub outcome: Outcome,
    /// For people, without secrets; names the program or URL.
    pub detail: String,
    /// The server's `Retry-After`, a floor for the wait (R18).
    pub retry_after: Option<Duration>,
    /// The last lines of the child's stderr ([`StderrTail`]), without secrets.
    pub stderr: Vec<String>,
}

/// What became of an attempt. The label of `tidegate_server_attempts_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The handshake completed.
    Adopted,
    /// Nobody listens, or the connection ended or was reset before the handshake completed.
    Refused,
    /// A bound of R15 passed.
    Timeout,
    /// The answer to `initialize` was an error, or none of the protocol's.
    Handshake,
    /// It speaks no revision that we do (R10).
    Version,
    /// Its credential was refused (R18).
    Auth,
    /// The program could not be started.
    Spawn,
}

labelled! { Outcome:
    Adopted => "adopted",
    Refused => "refused",
    Timeout => "timeout",
    Handshake => "handshake",
    Version => "version",
    Auth => "auth",
    Spawn => "spawn",
}

/// The last lines of a child's stderr, within a number of lines and of bytes.
#[derive(Clone, Debug, Default)]
pub struct StderrTail(VecDeque<String>);

impl StderrTail {
    const LINES_MAX: usize = 20;
    const BYTES_MAX: usize = 4 << 10;
    /// One line takes at most so many characters of it, which is all of its bytes at four bytes each.
    const LINE_MAX: usize = 1 << 10;

    /// Adds a line; the oldest go past the bounds.
    pub fn push(&mut self, line: &str) {
        self.0
            .push_back(line.chars().take(Self::LINE_MAX).collect());
        while self.0.len() > Self::LINES_MAX || self.bytes() > Self::BYTES_MAX {
            self.0.pop_front();
        }
    }

    /// Takes the lines out, oldest first.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0).into()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(String::len).sum()
    }
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// The reason.
    pub end: End,
    /// The last lines of the child's stderr ([`StderrTail`]), without secrets.
    pub stderr: Vec<String>,
}

/// The reason of an end. Its `Display` is R7's detail, e.g. `exit code 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The child exited with this code.
    Exit(i32),
    /// The child was ended by this signal.
    Signal(i32),
    /// The WebSocket closed with this code (1006 where there was none) and reason.
    Close {
        /// The close code.
        code: u16,
        /// The peer's text, escaped; may be empty.
        reason: String,
    },
    /// The stream broke, or the child closed its stdout and lives.
    Reset(String),
    /// Silence past R12's bound.
    Liveness,
    /// An HTTP status ended it.
    Http(u16),
    /// The server ended the session of Streamable HTTP: it answered 404 to its id (R11).
    Session,
    /// A host or operator judged it broken (R14).
    Recycle,
    /// An operator, a reload, or the gateway's own stop.
    Operator,
}

impl End {
    /// The label of `tidegate_server_connections_ended_total`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Exit(_) => "exit",
            Self::Signal(_) => "signal",
            Self::Close { .. } => "ws_close",
            Self::Reset(_) => "reset",
            Self::Liveness => "liveness",
            Self::Http(_) => "http",
            Self::Session => "session",
            Self::Recycle => "recycle",
            Self::Operator => "operator",
        }
    }

    /// Every label, for metrics that exist from the start.
    pub const LABELS: [&'static str; 9] = [
        "exit", "signal", "ws_close", "reset", "liveness", "http", "session", "recycle", "operator",
    ];
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::Close { code, reason } if reason.is_empty() => write!(f, "close code {code}"),
            Self::Close { code, reason } => write!(f, "close code {code}, {reason}"),
            Self::Reset(why) => f.write_str(why),
            Self::Liveness => f.write_str("no sign of life"),
            Self::Http(status) => write!(f, "HTTP status {status}"),
            Self::Session => f.write_str("the server ended the session"),
            Self::Recycle | Self::Operator => f.write_str("closed by this gateway"),
        }
    }
}

/// Whether a transport could be ended whole (R10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reap {
    /// Every process of it has exited, every socket is closed.
    Clean,
    /// These processes outlive SIGTERM and SIGKILL.
    Unreapable {
        /// Their process ids.
        pids: Vec<u32>,
    },
}

/// What happens to a host's session.
#[derive(Clone, Debug)]
pub enum HostEvent {
    /// It connected; its `initialize` follows.
    Attached {
        /// `hosts[].name`, or `None` on a loopback face without tokens.
        name: Option<String>,
    },
    /// It sent a message.
    Received(Message),
    /// It sent something that is no message.
    Unreadable(Unreadable),
    /// So many messages for it were let go of, for it reads none.
    Missed(u64),
    /// It went, or was told to.
    Detached,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stderr_tail_keeps_the_last_lines_within_its_bounds() {
        let mut tail = StderrTail::default();
        for line in 0..30 {
            tail.push(&line.to_string());
        }
        let lines = tail.take();
        assert_eq!(
            (lines.len(), lines[0].as_str()),
            (StderrTail::LINES_MAX, "10")
        );
        assert!(tail.take().is_empty());
        for _ in 0..9 {
            tail.push(&"x".repeat(StderrTail::BYTES_MAX));
        }
        let most = StderrTail::BYTES_MAX / StderrTail::LINE_MAX;
        assert_eq!(tail.take().len(), most);
    }
}
