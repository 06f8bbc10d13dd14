//! Probes of a server that has no keepalive of its own: R12's `ping`, as a request with an id that no other has.

use std::time::{Duration, Instant};

use crate::engine::liveness::{Keepalive, Verdict};

/// Probes count down from the largest integer that every JSON reader keeps whole, far from other requests' ids.
const LAST_ID: u64 = (1 << 53) - 1;

/// What a due probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Wait,
    /// Send a `ping` with this id.
    Ping(u64),
    /// The connection is lost.
    Lost,
}

/// The silence of one connection, and the pings in it.
#[derive(Debug)]
pub(super) struct Probe {
    keepalive: Keepalive,
    sent: u64,
}

impl Probe {
    /// Pings after this much silence; zero is never.
    pub(super) fn new(silence: Duration, now: Instant) -> Self {
        Self {
            keepalive: Keepalive::new(silence, now),
            sent: 0,
        }
    }

    /// Another silence holds from now on.
    pub(super) fn retime(&mut self, silence: Duration, now: Instant) {
        self.keepalive = Keepalive::new(silence, now);
    }

    /// Any message is a sign of life.
    pub(super) fn hear(&mut self, now: Instant) {
        self.keepalive.heard(now);
    }

    /// Asks for a sign of life now, where that is not asked for already.
    pub(super) fn ask(&mut self, now: Instant) {
        self.keepalive.ask(now);
    }

    /// When the silence has lasted too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.keepalive.due()
    }

    /// What is due at `now`.
    pub(super) fn fire(&mut self, now: Instant) -> Due {
        match self.keepalive.wake(now) {
            Verdict::Wait => Due::Wait,
            Verdict::Lost => Due::Lost,
            Verdict::Ping => {
                self.sent = self.sent.saturating_add(1);
                Due::Ping(LAST_ID.saturating_sub(self.sent))
            }
        }
    }

    /// Whether this is the id of one of the pings.
    pub(super) fn is_ours(&self, id: Option<u64>) -> bool {
        let oldest = LAST_ID.saturating_sub(self.sent);
        id.is_some_and(|id| (oldest..LAST_ID).contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn a_probe_is_known_by_an_id_that_every_json_reader_keeps() {
        let (now, silence) = (Instant::now(), Duration::from_secs(30));
        let mut probe = Probe::new(silence, now);
        assert!(!probe.is_ours(Some(LAST_ID - 1)));
        let Due::Ping(id) = probe.fire(now + silence) else {
            panic!()
        };
        assert!(id < 1 << 53 && probe.is_ours(Some(id)));
        assert!(!probe.is_ours(Some(id - 1)) && !probe.is_ours(Some(1)) && !probe.is_ours(None));
    }
}
