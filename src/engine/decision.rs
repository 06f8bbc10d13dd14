//! Facts worth telling an operator (S1). Metric, span, log line, event, API and journal all derive from these.

mod display;
mod labels;
mod text;

use std::time::Duration;

pub(super) use labels::labelled;

use super::input::{End, Outcome};
use crate::wire::mcp::Revision;
use crate::wire::mcpl::Domain;

/// One recorded decision. Its `Display` is the log line's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The state changed.
    State(State),
    /// An attempt begins.
    Dialing {
        /// Its number.
        attempt: u64,
    },
    /// The transport is there: launched, or the socket is open. The handshake begins.
    Connected {
        /// The attempt that made it.
        attempt: u64,
        /// From the dial on.
        took: Duration,
    },
    /// The handshake completed; the transport serves. Not "recovered" (S2).
    Adopted {
        /// The attempt that made it.
        attempt: u64,
        /// The revision that both speak.
        revision: Revision,
        /// It advertises MCPL.
        mcpl: bool,
        /// From the dial on.
        took: Duration,
    },
    /// An attempt failed before its handshake completed.
    AttemptFailed {
        /// Its number.
        attempt: u64,
        /// The closed reason; never `Adopted`.
        outcome: Outcome,
        /// For people, with the stderr tail, without secrets.
        why: String,
        /// R1's count after it.
        failed_attempts: u64,
    },
    /// A connection ended.
    Ended {
        /// The attempt that made it.
        attempt: u64,
        /// How.
        end: End,
        /// It had lived as long as the threshold.
        lasted: bool,
        /// From the completed handshake on.
        lived: Duration,
        /// R1's count after it.
        failed_attempts: u64,
    },
    /// A connection that ended before it lasted is reported as the failure of its attempt (R4).
    ShortEnd {
        /// The attempt that made it.
        attempt: u64,
        /// R7's text, with the stderr tail, without secrets.
        why: String,
        /// R1's count.
        failed_attempts: u64,
    },
    /// The next attempt waits.
    Waiting {
        /// The next attempt's number.
        attempt: u64,
        /// How long.
        wait: Duration,
    },
    /// A policy exchange settled (P).
    Settled {
        /// How.
        outcome: Exchange,
        /// How many capabilities are granted now.
        granted: usize,
        /// From the Request on.
        took: Duration,
        /// What an operator should know of it; may be empty.
        note: String,
    },
    /// A fetched manifest took the place of the last one: the receipt of its change (P8).
    Manifest {
        /// Its digest; `None` where an identifier in it allows none.
        revision: Option<String>,
        /// The domains of every announcement that this fetch answers, each once.
        domains: Vec<Domain>,
        /// What may be granted now and before.
        capabilities: Difference,
        /// Which feature sets may be enabled now and before.
        feature_sets: Difference,
    },
    /// A session of Streamable HTTP that the server ended is renewed at once: no failure (R11).
    SessionRenewed {
        /// The attempt that made it, and that goes on.
        attempt: u64,
    },
    /// A connection has lasted; the count is 0 (R5).
    Lasted {
        /// From the completed handshake on.
        lived: Duration,
    },
    /// An episode opened (S3). Its text is S6's.
    Down {
        /// The attempt whose failure opened it.
        attempt: u64,
        /// Why.
        why: String,
        /// It advertised MCPL when it last served, or is configured for it.
        mcpl: bool,
    },
    /// An episode ended (S4). Its text is S6's.
    Clear {
        /// How.
        cause: ClearCause,
        /// Failed attempts since the count last started afresh, before it did.
        failed_attempts: u64,
        /// How long it was open.
        down_for: Duration,
        /// As in `Down`.
        mcpl: bool,
    },
    /// Retries stopped (R10).
    Halted {
        /// The attempt that made the connection; 1 where that had lasted.
        attempt: u64,
        /// Why.
        why: String,
    },
    /// Its configuration cannot be used (R9).
    Refused {
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// A message was read or written.
    Carried {
        /// Which way.
        direction: Direction,
        /// What it is.
        class: Class,
    },
    /// A message was dropped.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Its method; empty for a response, and where it could not be read.
        method: String,
        /// How many messages of that kind, when several go at once.
        count: u64,
    },
    /// World messages came again and were answered as the first time, without the host (G12).
    Repeated {
        /// Their method.
        method: String,
        /// How many.
        messages: u64,
    },
    /// Messages inside a world message were refused one by one, for nobody registered their channel (G11). A
    /// notification with nothing else in it is dropped.
    UnknownChannel {
        /// The method of the message that they are in.
        method: String,
        /// How many.
        messages: u64,
    },
    /// A request was answered with an error of the gateway's own.
    RefusedMessage {
        /// The JSON-RPC code.
        code: i64,
        /// Its method; empty where it could not be read.
        method: String,
    },
    /// A boundary kept world messages (G5).
    Kept {
        /// How many are kept now.
        messages: u64,
    },
    /// The gateway accepted a world request for the host, which had not answered in time (A3).
    Accepted {
        /// Its method.
        method: String,
    },
    /// A host answered what the gateway had accepted for it: the server is not told (A3).
    Verdict {
        /// The request's method.
        method: String,
        /// The host accepts it too.
        agrees: bool,
    },
    /// A flush admitted what waited.
    Flushed {
        /// From which queue.
        queue: Queue,
        /// How many.
        messages: u64,
    },
    /// A plane's last hold was lifted.
    HoldLifted {
        /// Which.
        hold: Hold,
        /// For how long it held.
        held_for: Duration,
    },
    /// A forwarded request of a host was answered, or ended without an answer.
    Called {
        /// The gateway's own id of it; `None` where it was not sent.
        id: Option<u64>,
        /// Its method.
        method: String,
        /// From its receipt on.
        took: Duration,
        /// Its error: `tool` for `isError`, a JSON-RPC code, `lost`, `timeout`, `not_sent`; `None` where it succeeded.
        error: Option<String>,
    },
    /// A host's session opened.
    HostAttached,
    /// A host's first policy is settled, so it serves (P1).
    HostServes {
        /// It sent no `featureSets/update` in time.
        unasked: bool,
    },
    /// A host's session ended.
    HostDetached,
    /// The operator's pause began or ended (G3).
    Paused(bool),
    /// Stdout carried lines that are no JSON-RPC, at most once a minute.
    Noise {
        /// How many since the last report.
        lines: u64,
        /// The first of them, escaped, at most 200 characters.
        sample: String,
    },
    /// A line on the child's stderr.
    Stderr(String),
    /// An answer came too late for its call, and carries state (A5, G7).
    Orphaned {
        /// The call's method, where it is known.
        method: String,
    },
    /// A host answered a world message whose sender is gone: it is delivered, and the answer goes nowhere (G13).
    AnsweredLate {
        /// The message's method.
        method: String,
    },
    /// A peer broke a rule in a way that an operator should know; nothing was lost.
    Reported(String),
}

/// The label of `tidegate_server_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Dialing, or waiting for `initialize` to be answered.
    Connecting,
    /// Adopted; its policy exchange runs.
    Negotiating,
    /// Adopted and settled.
    Open,
    /// Between attempts.
    Waiting,
    /// Its credential is refused; retried slowly.
    Auth,
    /// Stopped for good by a permanent failure.
    Halted,
    /// Its configuration is unusable.
    Refused,
    /// `enabled: false`, or not started yet.
    #[default]
    Disabled,
    /// Ended as asked, with reconnect off.
    Ended,
}

labelled! { State:
    Connecting => "connecting",
    Negotiating => "negotiating",
    Open => "open",
    Waiting => "waiting",
    Auth => "auth",
    Halted => "halted",
    Refused => "refused",
    Disabled => "disabled",
    Ended => "ended",
}

/// How a policy exchange settled. The label of `tidegate_server_exchanges_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exchange {
    /// Accepted whole.
    Granted,
    /// Accepted, with features unavailable.
    Degraded,
    /// Refused by the server.
    Refused,
    /// An error answer, or a malformed receipt.
    Error,
    /// No answer in time.
    Timeout,
    /// Its transport closed first.
    Closed,
}

labelled! { Exchange:
    Granted => "granted",
    Degraded => "degraded",
    Refused => "refused",
    Error => "error",
    Timeout => "timeout",
    Closed => "closed",
}

/// What a manifest adds and takes away, by name; each list is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New, and in effect.
    pub added: Vec<String>,
    /// New, and not in effect: the server did not accept them.
    pub pending: Vec<String>,
    /// No longer there.
    pub removed: Vec<String>,
}

/// How an episode ended (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearCause {
    /// A connection lasted: it lived this long.
    Lasted(Duration),
    /// The server was removed.
    Removed,
    /// The server was disabled.
    Disabled,
    /// It ended as asked, with reconnect off (R20): nobody wants it back.
    Ended,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the server to us.
    FromServer,
    /// From us to the server.
    ToServer,
}

labelled! { Direction:
    FromServer => "from_server",
    ToServer => "to_server",
}

/// What a message is, as a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Wants an answer.
    Request,
    /// Wants none.
    Notification,
    /// Is one.
    Response,
}

labelled! { Class:
    Request => "request",
    Notification => "notification",
    Response => "response",
}

/// Which queue was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Held on the serving transport.
    Held,
    /// Kept across a boundary.
    Kept,
}

labelled! { Queue:
    Held => "held",
    Kept => "kept",
}

/// A named reason for a plane to be closed (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// This epoch's exchange has not settled.
    Policy,
    /// No host serves.
    NoHost,
    /// The lists are being read again.
    ListRefresh,
    /// The operator paused the server.
    Pause,
}

labelled! { Hold:
    Policy => "policy",
    NoHost => "no-host",
    ListRefresh => "list-refresh",
    Pause => "pause",
}

/// Why a message was dropped: the closed set of `tidegate_server_messages_dropped_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It spoke for a process that is gone (G5).
    Boundary,
    /// It was read after its transport's loss and speaks for a process that is gone (G7).
    Late,
    /// Its connection was closed for good, so no grant will come (G5).
    ClosedForGood,
    /// Past the bound of held notifications (G4).
    HeldFull,
    /// Past the bound of kept messages (G6).
    KeptFull,
    /// Past its share of what all servers together may make the gateway hold and keep (G6).
    GatewayFull,
    /// Kept longer than `keptMaxAgeMs` (G6).
    KeptTooOld,
    /// Its channel was never registered again (G9), or a notification's never was (G11).
    ChannelGone,
    /// A notification without its capability (G11).
    NotGranted,
    /// A cancel, progress, chunk or response whose request is not live (A2, A7).
    Unmatched,
    /// An answer that came after its call had timed out or been cancelled (A5).
    LateAnswer,
    /// Cancelled by its sender while it was held (G4).
    Cancelled,
    /// A host's notification while the server was away (G15).
    ServerAway,
    /// Not a message of the protocol, or a removed method's notification.
    Unreadable,
    /// Nobody who is attached wants it.
    NoReceiver,
    /// The server's outbound queue was full.
    Unsent,
}

labelled! { DropReason:
    Boundary => "boundary",
    Late => "late",
    ClosedForGood => "closed_for_good",
    HeldFull => "held_full",
    KeptFull => "kept_full",
    GatewayFull => "gateway_full",
    KeptTooOld => "kept_too_old",
    ChannelGone => "channel_gone",
    NotGranted => "not_granted",
    Unmatched => "unmatched",
    LateAnswer => "late_answer",
    Cancelled => "cancelled",
    ServerAway => "server_away",
    Unreadable => "unreadable",
    NoReceiver => "no_receiver",
    Unsent => "unsent",
}

impl Decision {
    /// A short name in kebab case, the `kind` of the event stream and the log line.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::State(_) => "state",
            Self::Dialing { .. } => "dialing",
            Self::Connected { .. } => "connected",
            Self::Adopted { .. } => "adopted",
            Self::AttemptFailed { .. } => "attempt-failed",
            Self::Ended { .. } => "ended",
            Self::ShortEnd { .. } => "short-end",
            Self::Waiting { .. } => "waiting",
            Self::Settled { .. } => "settled",
            Self::Manifest { .. } => "manifest",
            Self::SessionRenewed { .. } => "session-renewed",
            Self::Lasted { .. } => "lasted",
            Self::Down { .. } => "down",
            Self::Clear { .. } => "clear",
            Self::Halted { .. } => "halted",
            Self::Refused { .. } => "refused",
            Self::Carried { .. } => "carried",
            Self::Dropped { .. } => "dropped",
            Self::Repeated { .. } => "repeated",
            Self::UnknownChannel { .. } => "unknown-channel",
            Self::RefusedMessage { .. } => "refused-message",
            Self::Kept { .. } => "kept",
            Self::Accepted { .. } => "accepted",
            Self::Verdict { .. } => "verdict",
            Self::Flushed { .. } => "flushed",
            Self::HoldLifted { .. } => "hold-lifted",
            Self::Called { .. } => "called",
            Self::HostAttached => "host-attached",
            Self::HostServes { .. } => "host-serves",
            Self::HostDetached => "host-detached",
            Self::Paused(_) => "paused",
            Self::Noise { .. } => "noise",
            Self::Stderr(_) => "stderr",
            Self::Orphaned { .. } => "orphaned",
            Self::AnsweredLate { .. } => "answered-late",
            Self::Reported(_) => "reported",
        }
    }

    /// Whether it is one of the two per-message facts, which are counted and never logged.
    #[must_use]
    pub fn is_traffic(&self) -> bool {
        matches!(self, Self::Carried { .. } | Self::Called { .. })
    }
}
