//! The named deadlines of an engine, so that a loop that spins can say why.

use std::time::{Duration, Instant};

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// R15: the dial must have connected.
    Dial,
    /// R15: `initialize` must have been answered.
    Initialize,
    /// R5: the connection has lasted.
    Lasting,
    /// R2: the next attempt.
    Retry,
    /// S3: enabled and not connected for too long.
    DownAfter,
    /// R12: a stdio server was silent, or left a probe unanswered.
    Probe,
    /// R15: the policy exchange must have settled.
    Policy,
    /// P1: a host sent no `featureSets/update`.
    HostPolicy,
    /// G3: a host must have answered a registration.
    Registration,
    /// G4: a held request has waited long enough.
    Held,
    /// G6: a kept message is too old.
    Kept,
    /// R15: one of the gateway's own requests.
    OwnRequest,
    /// R15: a forwarded call.
    Call,
    /// Noise on stdout is reported at most once a minute.
    Noise,
}

/// The earlier of two deadlines.
pub(super) fn earlier(
    a: Option<(Instant, Timer)>,
    b: Option<(Instant, Timer)>,
) -> Option<(Instant, Timer)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A deadline that has come.
pub(super) fn is_due(deadline: Option<Instant>, now: Instant) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

/// An instant of the past, which may lie before this process began and so be no `Instant`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    known: Instant,
    before: Duration,
}

impl Past {
    /// So long before `now`.
    pub(super) fn ago(now: Instant, before: Duration) -> Self {
        Self { known: now, before }
    }

    /// How long ago it was at `now`.
    pub(super) fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.known)
            .saturating_add(self.before)
    }
}
