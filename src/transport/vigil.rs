//! Whether the other end of a WebSocket still lives (R12): silence, a ping, another, and then it is judged dead.

use std::time::Duration;

use tokio::time::Instant;

/// Past this the silence may be our own: one fresh ping comes before any verdict.
const LATE: Duration = Duration::from_secs(5);

/// What to do when a vigil is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a ping.
    Ping,
    /// It is dead.
    Verdict,
}

/// Watches one connection.
#[derive(Debug)]
pub(super) struct Vigil {
    silence: Duration,
    due: Instant,
    pings: u32,
}

impl Vigil {
    /// A ping after `silence`, another after half of it, a verdict after half of it again. Zero watches nothing.
    pub(super) fn new(silence: Duration, now: Instant) -> Option<Self> {
        (!silence.is_zero()).then(|| Self {
            silence,
            due: after(now, silence),
            pings: 0,
        })
    }

    /// A frame arrived.
    pub(super) fn heard(&mut self, now: Instant) {
        self.pings = 0;
        self.due = after(now, self.silence);
    }

    /// When [`Self::wake`] is to be called, unless something is heard before.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// What the silence until now asks for.
    pub(super) fn wake(&mut self, now: Instant) -> Due {
        let late = now.saturating_duration_since(self.due) > LATE;
        self.due = after(now, self.silence / 2);
        if self.pings >= 2 && !late {
            return Due::Verdict;
        }
        self.pings += 1;
        Due::Ping
    }
}

/// A silence beyond what the clock can hold never ends.
fn after(now: Instant, wait: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(86_400 * 365);
    now + wait.min(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn r12_silence_is_pinged_after_20_s_and_30_s_and_judged_after_40_s() {
        let start = Instant::now();
        let mut vigil = Vigil::new(20 * S, start).unwrap();
        for (at, due) in [(20, Due::Ping), (30, Due::Ping), (40, Due::Verdict)] {
            assert_eq!(vigil.due(), start + at * S);
            assert_eq!(vigil.wake(start + at * S), due);
        }
    }

    #[test]
    fn r12_any_frame_starts_it_afresh() {
        let start = Instant::now();
        let mut vigil = Vigil::new(20 * S, start).unwrap();
        vigil.wake(start + 20 * S);
        vigil.wake(start + 30 * S);
        vigil.heard(start + 39 * S);
        assert_eq!(vigil.due(), start + 59 * S);
        assert_eq!(vigil.wake(start + 59 * S), Due::Ping);
    }

    #[test]
    fn r12_a_late_wake_is_followed_by_a_fresh_ping_before_a_verdict() {
        let start = Instant::now();
        let mut vigil = Vigil::new(20 * S, start).unwrap();
        vigil.wake(start + 20 * S);
        vigil.wake(start + 30 * S);
        assert_eq!(vigil.wake(start + 46 * S), Due::Ping);
        assert_eq!(vigil.due(), start + 56 * S);
        assert_eq!(vigil.wake(start + 56 * S), Due::Verdict);
    }

    #[test]
    fn r12_zero_watches_nothing() {
        assert!(Vigil::new(Duration::ZERO, Instant::now()).is_none());
        assert!(Vigil::new(Duration::MAX, Instant::now()).is_some());
    }
}
