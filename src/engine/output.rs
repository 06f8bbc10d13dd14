//! Everything that a server's engine can ask for. Outputs are commands; each carries the epoch or session it is for.

use bytes::Bytes;

use super::decision::Decision;
use crate::ids::{Attempt, Epoch, SessionId};
use crate::wire::jsonrpc::RequestId;

/// Something to do. The driver does them in order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Launch or dial a transport. Answered by `Connected` or `Failed`.
    Dial {
        /// The epoch that this begins.
        epoch: Epoch,
        /// Which try it is.
        attempt: Attempt,
    },
    /// End a transport: stdin closed, SIGTERM, SIGKILL; or a close frame. Answered by `Gone`, and by `Lost` before it
    /// where that has not been said.
    Close {
        /// Whose.
        epoch: Epoch,
    },
    /// Write one message to a server.
    Send {
        /// On which transport; dropped where it is gone.
        epoch: Epoch,
        /// The message, without a line end.
        frame: Bytes,
        /// The gateway's id, where the message is a request; comes back in `Unsent`.
        request: Option<u64>,
        /// It is the host's request that is being handled, so a trace of that goes on in it.
        forwarded: bool,
    },
    /// Write one message to a host.
    Answer {
        /// To which session; dropped where it is gone.
        session: SessionId,
        /// The message, without a line end.
        frame: Bytes,
        /// What it has to do with a request of the session's, where that is known without reading it.
        regards: Option<Regards>,
    },
    /// End a host's session.
    Dismiss {
        /// Which.
        session: SessionId,
        /// The WebSocket close code (4-faces).
        code: u16,
        /// Why, for people.
        reason: &'static str,
    },
    /// What became of a [`Post`](super::input::Post).
    Posted {
        /// The asker's own.
        ticket: u64,
        /// What.
        posted: Posted,
    },
    /// Remember this across a restart of the gateway.
    Record(Record),
    /// A fact worth telling an operator (S1).
    Decided {
        /// The epoch it is about, where it is about one.
        epoch: Option<Epoch>,
        /// The fact.
        decision: Decision,
    },
}

/// What a message to a host has to do with a request of that host's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regards {
    /// It answers that request.
    Answer(RequestId),
    /// It is for that request, which is under way.
    Meanwhile(RequestId),
}

/// What became of a text for a channel; the reasons are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The server took it.
    Delivered,
    /// The server serves not, or may not be asked: it was not sent.
    NotSent(String),
    /// The server said no.
    Refused(String),
    /// It was sent, and what became of it is not known.
    Unknown(String),
}

/// What can become of a stored message while it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A host had it, so that the next one is told (G13).
    Forwarded,
    /// The gateway accepted it for the host, so that no bound drops it (A3).
    Accepted,
}

/// A change of what the state directory remembers (S5). The driver adds the wall time.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A launch or dial of this epoch began now.
    Launched(Epoch),
    /// The count is now this (R1).
    Count(u64),
    /// A connection lasted now (R5).
    Lasted,
    /// It was disabled, or ended as asked, now; the failed attempts so far make it down no more (S4).
    Unwanted,
    /// An episode opened now.
    Down {
        /// The attempt whose failure opened it.
        attempt: u64,
        /// Why.
        why: String,
    },
    /// The episode ended.
    Clear,
    /// The operator's pause (G3).
    Paused(bool),
    /// The last host's narrowing: the params of its `featureSets/update` (P1).
    Narrowing(String),
    /// A world message was read: keep it until it is discarded (G14). Keys rise, also over restarts of the gateway.
    Store {
        /// Its own among the messages of this server.
        key: u64,
        /// A host has it already.
        forwarded: bool,
        /// As received.
        frame: Bytes,
    },
    /// Something became of a stored message.
    Mark {
        /// Whose.
        key: u64,
        /// What.
        mark: Mark,
    },
    /// A stored message is delivered, answered or dropped: forget it.
    Discard {
        /// Whose.
        key: u64,
    },
    /// The server is removed: forget it.
    Forget,
}
