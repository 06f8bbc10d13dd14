//! Lines on a server's stdout that are no JSON-RPC: counted, reported at most once a minute, never fatal.

use std::time::{Duration, Instant};

use super::decision::Decision;

/// Between two reports.
const QUIET: Duration = Duration::from_secs(60);

/// What was not reported yet, and when it may be.
#[derive(Debug, Default)]
pub(super) struct Noise {
    lines: u64,
    sample: String,
    until: Option<Instant>,
}

impl Noise {
    /// Counts a line; the first after a quiet minute is reported at once.
    pub(super) fn hear(&mut self, sample: String, now: Instant) -> Option<Decision> {
        if self.lines == 0 {
            self.sample = sample;
        }
        self.lines = self.lines.saturating_add(1);
        if self.until.is_some() {
            return None;
        }
        self.report(now)
    }

    /// When what was counted is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Reports what was counted since the last report, once the minute is over.
    pub(super) fn fire(&mut self, now: Instant) -> Option<Decision> {
        self.until = None;
        if self.lines == 0 {
            return None;
        }
        self.report(now)
    }

    fn report(&mut self, now: Instant) -> Option<Decision> {
        self.until = now.checked_add(QUIET);
        Some(Decision::Noise {
            lines: std::mem::take(&mut self.lines),
            sample: std::mem::take(&mut self.sample),
        })
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
    fn noise_is_told_at_once_and_then_at_most_once_a_minute() {
        let (mut noise, now) = (Noise::default(), Instant::now());
        let told = |lines, sample: &str| {
            Some(Decision::Noise {
                lines,
                sample: sample.into(),
            })
        };
        assert_eq!(noise.hear("banner".into(), now), told(1, "banner"));
        assert_eq!(noise.hear("a".into(), now), None);
        assert_eq!(noise.hear("b".into(), now), None);
        let minute = noise.deadline().unwrap();
        assert_eq!(minute, now + QUIET);
        assert_eq!(noise.fire(minute), told(2, "a"));
        assert_eq!(noise.fire(noise.deadline().unwrap()), None);
        assert_eq!(noise.deadline(), None);
    }
}
