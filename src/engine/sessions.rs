//! Which ends of sessions of Streamable HTTP are renewals, and which are failures like any other (R11). It knows no
//! count, no wait and no epoch.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::settings::Settings;

/// This many ends within the lasting threshold are no renewals any more.
const ENDS_MAX: usize = 6;

/// The sessions that a server ended.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// When, the oldest first; as many as can matter.
    ends: VecDeque<Instant>,
    /// The last one lived under the base interval.
    was_brief: bool,
}

impl Sessions {
    /// A session ended that lived so long, and answered something after `initialize` or nothing: whether it is to be
    /// renewed.
    pub(super) fn end(
        &mut self,
        lived: Duration,
        answered: bool,
        settings: &Settings,
        now: Instant,
    ) -> bool {
        let threshold = settings.lasting_threshold();
        let is_recent = |end: &Instant| now.saturating_duration_since(*end) < threshold;
        self.ends.retain(is_recent);
        self.ends.push_back(now);
        let is_often = self.ends.len() >= ENDS_MAX;
        if is_often {
            self.ends.pop_front();
        }
        let is_brief = lived < settings.interval;
        let is_brief_again = std::mem::replace(&mut self.was_brief, is_brief) && is_brief;
        answered && !is_brief_again && !is_often
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "a test needs some instant to start from"
    )]

    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Whether each session is renewed that ends so long after the one before, having lived as long.
    fn renewed(lives: &[u32]) -> Vec<bool> {
        let settings = Settings::default();
        let (mut sessions, mut now) = (Sessions::default(), Instant::now());
        let end = |life: &u32| {
            now += S * *life;
            sessions.end(S * *life, true, &settings, now)
        };
        lives.iter().map(end).collect()
    }

    #[test]
    fn r11_a_session_that_answered_nothing_is_a_failure() {
        let (now, settings) = (Instant::now(), Settings::default());
        let mut sessions = Sessions::default();
        assert!(!sessions.end(S * 100, false, &settings, now));
        assert!(sessions.end(S * 100, true, &settings, now));
    }

    #[test]
    fn r11_the_second_life_in_a_row_under_the_interval_is_a_failure() {
        assert_eq!(renewed(&[4, 4, 4]), [true, false, false]);
        assert_eq!(renewed(&[4, 5, 4, 5]), [true; 4]);
    }

    #[test]
    fn r11_the_sixth_end_within_the_threshold_is_a_failure() {
        let sixth = [true, true, true, true, true, false];
        assert_eq!(renewed(&[59; 6]), sixth);
        assert_eq!(renewed(&[60; 12]), [true; 12]);
        // Each further one is too, while it stays so often.
        assert_eq!(renewed(&[20; 9])[5..], [false; 4]);
    }

    #[test]
    fn r11_what_is_remembered_of_ends_is_bounded() {
        let (now, settings) = (Instant::now(), Settings::default());
        let mut sessions = Sessions::default();
        for _ in 0..1_000 {
            sessions.end(S, true, &settings, now);
        }
        assert!(sessions.ends.len() < ENDS_MAX);
    }
}
