//! Where one server's connection stands: at rest, waiting, connecting, serving, closing. Data alone; the transitions
//! are the server's.

use std::time::{Duration, Instant};

use super::probe::Probe;
use crate::engine::decision::State;
use crate::engine::handshake::Early;
use crate::engine::input::StderrTail;
use crate::engine::timers::Timer;
use crate::ids::{Attempt, Epoch};

/// Where the connection stands. At most one transport exists at a time, and the phase names it.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing runs and nothing is due.
    Rest(State),
    /// Between attempts.
    Waiting(Wait),
    /// From the dial to the answered `initialize`.
    Connecting(Connecting),
    /// Adopted.
    Serving(Serving),
    /// Failed or lost, and not gone yet: nothing else is dialed before it is.
    Closing(Closing),
}

/// A wait for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// When it ends.
    pub(super) until: Instant,
    /// Its whole length.
    pub(super) wait: Duration,
}

/// A transport, from its dial on.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) epoch: Epoch,
    /// The attempt that made it.
    pub(super) attempt: Attempt,
    pub(super) dialed: Instant,
    pub(super) stderr: StderrTail,
}

/// An attempt that runs.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) link: Link,
    /// `initialize` was sent.
    pub(super) asked: bool,
    /// R15's bound for this step; `None` where it lies beyond the clock.
    pub(super) deadline: Option<Instant>,
    pub(super) early: Early,
    /// What goes on where it renews a session (R11).
    pub(super) life: Option<Life>,
}

/// What a renewed session goes on with (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// The number of the attempt that made the first of its sessions, or 1 where that has lasted.
    pub(super) attempt: Attempt,
    /// When that one's handshake completed.
    pub(super) adopted: Instant,
    /// It has lasted.
    pub(super) lasted: bool,
}

/// A connection that serves.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) link: Link,
    /// When the handshake completed: lives are measured from here (R6), a renewed session's from the first's (R11).
    pub(super) adopted: Instant,
    /// When its own did.
    pub(super) began: Instant,
    /// It answered something after `initialize`.
    pub(super) answered: bool,
    /// The last sign of life.
    pub(super) heard: Instant,
    /// It was asked for one (R19).
    pub(super) asked: bool,
    /// It has lived as long as the threshold (R5).
    pub(super) lasted: bool,
    pub(super) probe: Probe,
}

/// A transport that is over, until nothing of it is left.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) epoch: Epoch,
    /// The number that a report about it carries: its attempt's, or 1 where it had lasted (R10).
    pub(super) attempt: Attempt,
    /// What became of it, for a report.
    pub(super) why: String,
    pub(super) report: Report,
    pub(super) next: Next,
}

/// What is still to be told of a transport that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Nothing, unless it cannot be reaped.
    Told,
    /// A short end, unless a halt replaces it (R4, R10).
    ShortEnd,
    /// It had lasted, so only a halt would be told.
    HaltAlone,
}

/// What follows once a transport is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next attempt, after this wait.
    Retry(Wait),
    /// The next attempt, at once (R14).
    Dial,
    /// The same attempt, at once: its session is renewed (R11).
    Renew(Life),
    /// Rest, in this state.
    Rest(State),
}

impl Next {
    /// The next attempt, after a wait that begins now; it is at most 24.8 days (R2), which every clock can say.
    pub(super) fn retry_in(wait: Duration, now: Instant) -> Self {
        let until = now.checked_add(wait).unwrap_or(now);
        Self::Retry(Wait { until, wait })
    }
}

impl Phase {
    /// The epoch of the transport that exists.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Rest(_) | Self::Waiting(_) => None,
            Self::Connecting(connecting) => Some(connecting.link.epoch),
            Self::Serving(serving) => Some(serving.link.epoch),
            Self::Closing(closing) => Some(closing.epoch),
        }
    }

    /// The attempt that runs, or that made the connection which serves.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::Connecting(connecting) => Some(connecting.link.attempt),
            Self::Serving(serving) => Some(serving.link.attempt),
            Self::Rest(_) | Self::Waiting(_) | Self::Closing(_) => None,
        }
    }

    /// The wait that runs, also beside the end of the last transport.
    pub(super) fn wait(&self) -> Option<Wait> {
        match self {
            Self::Waiting(wait) => Some(*wait),
            Self::Closing(closing) => match closing.next {
                Next::Retry(wait) => Some(wait),
                Next::Dial | Next::Renew(_) | Next::Rest(_) => None,
            },
            Self::Rest(_) | Self::Connecting(_) | Self::Serving(_) => None,
        }
    }

    /// The transport that exists, with its stderr.
    pub(super) fn link_mut(&mut self) -> Option<&mut Link> {
        match self {
            Self::Connecting(connecting) => Some(&mut connecting.link),
            Self::Serving(serving) => Some(&mut serving.link),
            Self::Rest(_) | Self::Waiting(_) | Self::Closing(_) => None,
        }
    }
}

impl Serving {
    /// Anything that the server sends is a sign of life.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.probe.hear(now);
    }
}

impl Connecting {
    /// Which of R15's bounds runs.
    pub(super) fn timer(&self) -> Timer {
        if self.asked {
            Timer::Initialize
        } else {
            Timer::Dial
        }
    }
}
