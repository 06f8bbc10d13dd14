//! The named deadlines of an engine, so that a loop that spins can say why.

use std::collections::BTreeSet;
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
    /// P8: the next fetch of a manifest may begin.
    Manifest,
    /// G3: a host must have answered a registration.
    Registration,
    /// G4: a held request has waited long enough.
    Held,
    /// A3: the gateway may accept a message for the host.
    Accept,
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

/// Deadlines of many things, the earliest always at hand.
#[derive(Debug)]
pub(super) struct Deadlines<K>(BTreeSet<(Instant, K)>);

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// Wakes `key` at `at`.
    pub(super) fn set(&mut self, at: Instant, key: K) {
        self.0.insert((at, key));
    }

    /// Takes back a deadline that was set.
    pub(super) fn clear(&mut self, at: Instant, key: K) {
        self.0.remove(&(at, key));
    }

    /// The earliest.
    pub(super) fn next(&self) -> Option<(Instant, K)> {
        self.0.first().copied()
    }

    /// The earliest, if it is not later than `now`. It stays set.
    pub(super) fn due(&self, now: Instant) -> Option<K> {
        self.next().filter(|(at, _)| *at <= now).map(|(_, key)| key)
    }
}
