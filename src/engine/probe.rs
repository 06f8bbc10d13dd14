//! R12 for a server without a keepalive of its own: `ping` after silence, and the verdict on one that does not answer.

use std::time::{Duration, Instant};

/// For an answer to a ping.
const ANSWER: Duration = Duration::from_secs(10);
/// Pings in a row without a sign of life, before the verdict.
const PINGS: u8 = 2;
/// A verdict that comes later than this is as likely our own fault.
const LATE: Duration = Duration::from_secs(5);
/// Probes count down from the largest integer that every JSON reader keeps whole, far from other requests' ids.
const LAST_ID: u64 = (1 << 53) - 1;

/// What a due probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a `ping` with this id.
    Ping(u64),
    /// The connection is lost.
    Lost,
}

/// The silence of one connection.
#[derive(Debug)]
pub(super) struct Probe {
    /// Of the last sign of life, or of the last ping since.
    since: Instant,
    unanswered: u8,
    sent: u64,
}

impl Probe {
    /// A connection that has just been adopted.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            unanswered: 0,
            sent: 0,
        }
    }

    /// Any message is a sign of life.
    pub(super) fn hear(&mut self, now: Instant) {
        self.since = now;
        self.unanswered = 0;
    }

    /// When the silence has lasted too long; `after` is the silence before the first ping, zero for never.
    pub(super) fn deadline(&self, after: Duration) -> Option<Instant> {
        let wait = if self.unanswered == 0 { after } else { ANSWER };
        (!after.is_zero()).then(|| self.since.checked_add(wait))?
    }

    /// What is due at `now`, past the deadline.
    pub(super) fn fire(&mut self, now: Instant) -> Due {
        let late = now.saturating_duration_since(self.since) > ANSWER + LATE;
        if self.unanswered >= PINGS && !late {
            return Due::Lost;
        }
        self.unanswered = self.unanswered.saturating_add(1).min(PINGS);
        self.since = now;
        self.sent = self.sent.saturating_add(1);
        Due::Ping(LAST_ID.saturating_sub(self.sent))
    }

    /// Whether a response with this id answers one of the pings.
    pub(super) fn is_answer(&self, id: Option<u64>) -> bool {
        let oldest = LAST_ID.saturating_sub(self.sent);
        self.sent > 0 && id.is_some_and(|id| (oldest..LAST_ID).contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn r12_two_unanswered_pings_are_a_loss() {
        let start = now();
        let mut probe = Probe::new(start);
        assert_eq!(probe.deadline(Duration::ZERO), None);
        let mut at = probe.deadline(AFTER).unwrap();
        assert_eq!(at, start + AFTER);
        assert!(matches!(probe.fire(at), Due::Ping(_)));
        at = probe.deadline(AFTER).unwrap();
        assert!(matches!(probe.fire(at), Due::Ping(_)));
        at = probe.deadline(AFTER).unwrap();
        assert_eq!(at, start + AFTER + 2 * ANSWER);
        assert_eq!(probe.fire(at), Due::Lost);
    }

    #[test]
    fn r12_any_message_is_a_sign_of_life() {
        let start = now();
        let mut probe = Probe::new(start);
        let at = probe.deadline(AFTER).unwrap();
        probe.fire(at);
        probe.hear(at);
        assert_eq!(probe.deadline(AFTER), Some(at + AFTER));
    }

    #[test]
    fn r12_a_loop_that_was_late_pings_once_more_before_the_verdict() {
        let start = now();
        let mut probe = Probe::new(start);
        probe.fire(start + AFTER);
        probe.fire(start + AFTER + ANSWER);
        let late = start + AFTER + 2 * ANSWER + LATE + Duration::from_millis(1);
        assert!(matches!(probe.fire(late), Due::Ping(_)));
        assert_eq!(probe.deadline(AFTER), Some(late + ANSWER));
        assert_eq!(probe.fire(late + ANSWER), Due::Lost);
    }

    #[test]
    fn a_probes_answer_is_known_by_an_id_that_every_json_reader_keeps() {
        let start = now();
        let mut probe = Probe::new(start);
        let Due::Ping(id) = probe.fire(start + AFTER) else {
            panic!()
        };
        assert!(id < 1 << 53);
        assert!(probe.is_answer(Some(id)));
        assert!(!probe.is_answer(Some(id - 1)) && !probe.is_answer(Some(1)));
        assert!(!probe.is_answer(None));
    }
}
