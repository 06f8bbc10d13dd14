//! R12's keepalive of one socket, as a pure machine: when to ping, and when silence is a loss.

use std::time::{Duration, Instant};

/// How long after a ping the next step comes.
const PATIENCE: Duration = Duration::from_secs(10);
/// A loop that wakes this late proves nothing about its peer.
const LATE: Duration = Duration::from_secs(5);

/// What silence asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet anything.
    Wait,
    /// Send a ping.
    Ping,
    /// The connection is lost.
    Lost,
}

/// One socket's keepalive: a ping after the silence, a second one 10 s later, and 10 s later loss (R12).
#[derive(Clone, Debug)]
pub struct Keepalive {
    silence: Duration,
    pings: u8,
    due: Option<Instant>,
}

impl Keepalive {
    /// For a socket that may be silent for `silence`; zero never pings.
    #[must_use]
    pub fn new(silence: Duration, now: Instant) -> Self {
        let due = (!silence.is_zero()).then(|| now + silence);
        Self {
            silence,
            pings: 0,
            due,
        }
    }

    /// A frame came, whatever it was.
    pub fn heard(&mut self, now: Instant) {
        if self.due.is_some() {
            *self = Self::new(self.silence, now);
        }
    }

    /// A ping is due now, unless one waits for its answer; from there it goes on as after a silence.
    pub fn ask(&mut self, now: Instant) {
        if self.pings == 0 {
            self.due = Some(now);
        }
    }

    /// When [`Self::wake`] wants to be called.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The time has come. A loop that was late by over 5 s sends one fresh ping before any verdict.
    pub fn wake(&mut self, now: Instant) -> Verdict {
        let Some(due) = self.due.filter(|due| *due <= now) else {
            return Verdict::Wait;
        };
        if self.pings < 2 {
            self.pings += 1;
        } else if now.saturating_duration_since(due) <= LATE {
            self.due = None;
            return Verdict::Lost;
        }
        self.due = Some(now + PATIENCE);
        Verdict::Ping
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "a test needs some instant to start from"
    )]

    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn r12_two_unanswered_pings_are_a_loss_forty_seconds_into_the_silence() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Duration::from_secs(20), start);
        assert_eq!(keepalive.wake(after(start, 19)), Verdict::Wait);
        assert_eq!(keepalive.wake(after(start, 20)), Verdict::Ping);
        assert_eq!(keepalive.wake(after(start, 29)), Verdict::Wait);
        assert_eq!(keepalive.wake(after(start, 30)), Verdict::Ping);
        assert_eq!(keepalive.wake(after(start, 40)), Verdict::Lost);
        assert_eq!(keepalive.due(), None);
    }

    #[test]
    fn r12_any_frame_starts_the_silence_anew() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Duration::from_secs(20), start);
        assert_eq!(keepalive.wake(after(start, 20)), Verdict::Ping);
        keepalive.heard(after(start, 25));
        assert_eq!(keepalive.wake(after(start, 44)), Verdict::Wait);
        assert_eq!(keepalive.wake(after(start, 45)), Verdict::Ping);
    }

    #[test]
    fn r12_a_loop_that_was_late_pings_once_more_before_its_verdict() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Duration::from_secs(20), start);
        keepalive.wake(after(start, 20));
        keepalive.wake(after(start, 30));
        assert_eq!(keepalive.wake(after(start, 100)), Verdict::Ping);
        assert_eq!(keepalive.wake(after(start, 110)), Verdict::Lost);
    }

    #[test]
    fn r12_zero_silence_never_pings() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Duration::ZERO, start);
        keepalive.heard(after(start, 1));
        assert_eq!(keepalive.due(), None);
        assert_eq!(keepalive.wake(after(start, 1000)), Verdict::Wait);
    }
}
