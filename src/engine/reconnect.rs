//! The count of failed attempts, and the wait after each (R1, R2, R4, R5, R7, R18). It knows no transport, no timer
//! and no episode.

use std::time::Duration;

use super::input::{End, Failure, Outcome};
use super::settings::{AUTH_WAIT_MIN, Settings, VERSION_WAIT_MIN, WAIT_MAX};
use crate::ids::Attempt;

/// R2: the doubling stops here, long after any cap.
const DOUBLINGS_MAX: u64 = 30;
/// R2: a wait is drawn within this share of its length, either way.
const JITTER: f64 = 0.25;
/// R18: from this many refusals in a row on, the credential is what is wrong.
const REFUSALS_MAX: u32 = 2;

/// R1's count, and what else the next attempt depends on.
#[derive(Debug, Default)]
pub struct Reconnect {
    failed: u64,
    /// How many of them came before the server was last unwanted: the count goes on from there, an episode does not
    /// (R14, S4).
    forgiven: u64,
    dialed: bool,
    /// Authorization refusals in a row (R18).
    refusals: u32,
}

impl Reconnect {
    /// Goes on from a count on record.
    pub(super) fn resume(failed: u64, forgiven: u64) -> Self {
        Self {
            failed,
            forgiven,
            ..Self::default()
        }
    }

    /// R1's count.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Those of them that came since the server was last unwanted.
    pub(super) fn failed_since_unwanted(&self) -> u64 {
        self.failed.saturating_sub(self.forgiven)
    }

    /// Nobody wants the server connected: what has failed so far makes it down no more.
    pub(super) fn forgive(&mut self) {
        self.forgiven = self.failed;
    }

    /// The number of the attempt that runs after the one before it: 0 for the first connect alone (R1).
    pub fn next(&self) -> Attempt {
        Attempt(self.failed.max(u64::from(self.dialed)))
    }

    /// Begins that attempt.
    pub fn dial(&mut self) -> Attempt {
        let attempt = self.next();
        self.dialed = true;
        attempt
    }

    /// An attempt's handshake completed. That earns nothing but an accepted credential (R5, R18).
    pub(super) fn adopt(&mut self) {
        self.refusals = 0;
    }

    /// An attempt failed before its handshake completed.
    pub fn fail(&mut self, attempt: Attempt, outcome: Outcome) -> u64 {
        self.refusals = match outcome {
            Outcome::Auth => self.refusals.saturating_add(1),
            Outcome::Adopted
            | Outcome::Refused
            | Outcome::Timeout
            | Outcome::Handshake
            | Outcome::Version
            | Outcome::Spawn => 0,
        };
        self.end_short(attempt)
    }

    /// The connection that an attempt made ended before it lasted: that attempt failed (R4).
    pub fn end_short(&mut self, attempt: Attempt) -> u64 {
        self.failed = attempt.next().0;
        self.failed
    }

    /// A connection has lasted (R5).
    pub fn last(&mut self) {
        (self.failed, self.forgiven) = (0, 0);
    }

    /// The credential was refused again and again (R18).
    pub(super) fn is_refused(&self) -> bool {
        self.refusals >= REFUSALS_MAX
    }

    /// R2's wait before the next attempt.
    pub fn wait(&self, settings: &Settings, jitter: f64) -> Duration {
        let exponent = self.failed.saturating_sub(1).min(DOUBLINGS_MAX);
        let doubled = settings.interval.saturating_mul(1 << exponent);
        // Twice the limit is past the limit whatever the jitter, and still a number to reckon with.
        let capped = doubled.min(settings.max_interval).min(WAIT_MAX * 2);
        let jitter = if jitter.is_nan() { 0.0 } else { jitter };
        let factor = JITTER.mul_add(jitter.clamp(-1.0, 1.0), 1.0);
        capped.mul_f64(factor).min(WAIT_MAX)
    }

    /// The wait after a failed attempt: R2's, R18's or R10's, and never shorter than the server asked for.
    pub(super) fn wait_after(
        &self,
        failure: &Failure,
        settings: &Settings,
        jitter: f64,
    ) -> Duration {
        let wait = match failure.outcome {
            Outcome::Version => slow(settings, VERSION_WAIT_MIN),
            Outcome::Auth if self.is_refused() => slow(settings, AUTH_WAIT_MIN),
            Outcome::Auth
            | Outcome::Adopted
            | Outcome::Refused
            | Outcome::Timeout
            | Outcome::Handshake
            | Outcome::Spawn => self.wait(settings, jitter),
        };
        let asked = failure.retry_after.unwrap_or_default();
        wait.max(asked.min(slow(settings, AUTH_WAIT_MIN)))
    }
}

/// The wait of what only time or a person heals. It has no jitter, which could take it below its minimum.
fn slow(settings: &Settings, min: Duration) -> Duration {
    settings.max_interval.max(min).min(WAIT_MAX)
}

/// Whether an end is one that somebody asked the process for (R20).
pub(super) fn is_as_asked(end: &End) -> bool {
    const HUP: i32 = 1;
    const INT: i32 = 2;
    const TERM: i32 = 15;
    matches!(
        end,
        End::Exit(0 | 129 | 130 | 143) | End::Signal(HUP | INT | TERM)
    )
}

/// What a short end says (R7): whole seconds, rounded down.
pub(super) fn closed_after(lived: Duration, end: &End) -> String {
    format!("connected, then closed after {} s, {end}", lived.as_secs())
}

/// The same text with the last lines of the server's stderr, if there are any.
pub(super) fn with_stderr(mut text: String, stderr: &[String]) -> String {
    if !stderr.is_empty() {
        text.push_str(" | stderr: ");
        text.push_str(&stderr.join(" / "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failure(outcome: Outcome, retry_after: Option<u64>) -> Failure {
        Failure {
            outcome,
            detail: String::new(),
            retry_after: retry_after.map(secs),
            stderr: Vec::new(),
        }
    }

    fn capped(max_interval: Duration) -> Settings {
        Settings {
            max_interval,
            ..Settings::default()
        }
    }

    #[test]
    fn r1_the_first_connect_is_attempt_0_and_every_other_at_least_1() {
        let mut count = Reconnect::default();
        assert_eq!(count.dial(), Attempt(0));
        assert_eq!(count.dial(), Attempt(1));
        assert_eq!(count.fail(Attempt(1), Outcome::Refused), 2);
        assert_eq!(count.dial(), Attempt(2));
        count.last();
        assert_eq!((count.failed(), count.next()), (0, Attempt(1)));
        assert_eq!(Reconnect::resume(7, 0).dial(), Attempt(7));
    }

    #[test]
    fn r2_the_wait_doubles_up_to_the_cap() {
        let waits: Vec<u64> = (0..10)
            .map(|failed| {
                Reconnect::resume(failed, 0)
                    .wait(&Settings::default(), 0.0)
                    .as_secs()
            })
            .collect();
        assert_eq!(waits, [5, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn r2_the_jitter_is_a_quarter_either_way_of_the_capped_wait() {
        let count = Reconnect::resume(9, 0);
        let wait = |jitter| count.wait(&Settings::default(), jitter).as_secs();
        assert_eq!([wait(-1.0), wait(0.0), wait(1.0)], [225, 300, 375]);
        assert_eq!(
            [wait(-9.0), wait(f64::NAN), wait(f64::INFINITY)],
            [225, 300, 375]
        );
    }

    #[test]
    fn r2_no_wait_passes_the_limit_of_a_timer() {
        for failed in [1, 20, 29, 30, 31, 1_000, u64::MAX] {
            for jitter in [-1.0, 0.0, 1.0] {
                let wait = Reconnect::resume(failed, 0).wait(&capped(Duration::MAX), jitter);
                assert!(wait <= WAIT_MAX, "{failed} {jitter}: {wait:?}");
            }
        }
        let wait = Reconnect::resume(31, 0).wait(&capped(Duration::MAX), -1.0);
        assert_eq!(wait, WAIT_MAX);
        let endless = Settings {
            interval: Duration::MAX,
            ..capped(Duration::MAX)
        };
        assert_eq!(Reconnect::default().wait(&endless, 1.0), WAIT_MAX);
    }

    #[test]
    fn r10_a_remote_version_verdict_is_retried_each_quarter_of_an_hour_or_cap() {
        let count = Reconnect::resume(1, 0);
        let verdict = failure(Outcome::Version, None);
        assert_eq!(
            count.wait_after(&verdict, &Settings::default(), -1.0),
            VERSION_WAIT_MIN
        );
        assert_eq!(
            count.wait_after(&verdict, &capped(secs(7200)), -1.0),
            secs(7200)
        );
    }

    #[test]
    fn r18_the_second_refusal_in_a_row_is_about_the_credential() {
        let mut count = Reconnect::default();
        let refusal = failure(Outcome::Auth, None);
        count.fail(Attempt(0), Outcome::Auth);
        assert!(!count.is_refused());
        assert_eq!(
            count.wait_after(&refusal, &Settings::default(), 0.0),
            secs(5)
        );
        count.fail(Attempt(1), Outcome::Auth);
        assert!(count.is_refused());
        assert_eq!(
            count.wait_after(&refusal, &Settings::default(), -1.0),
            AUTH_WAIT_MIN
        );
        count.fail(Attempt(2), Outcome::Timeout);
        assert!(!count.is_refused());
        count.fail(Attempt(3), Outcome::Auth);
        count.adopt();
        count.fail(Attempt(4), Outcome::Auth);
        assert!(!count.is_refused(), "a handshake lies between");
    }

    #[test]
    fn r18_retry_after_raises_a_wait_within_bounds_and_never_lowers_it() {
        let wait = |asked| {
            let failure = failure(Outcome::Refused, Some(asked));
            Reconnect::resume(4, 0)
                .wait_after(&failure, &Settings::default(), 0.0)
                .as_secs()
        };
        assert_eq!(
            [wait(0), wait(39), wait(41), wait(1_000_000_000_000)],
            [40, 40, 41, 300]
        );
    }

    #[test]
    fn r20_ends_as_asked_are_exit_codes_and_signals_of_a_stop() {
        for end in [
            End::Exit(0),
            End::Exit(143),
            End::Signal(15),
            End::Signal(1),
        ] {
            assert!(is_as_asked(&end), "{end}");
        }
        for end in [
            End::Exit(1),
            End::Exit(137),
            End::Signal(9),
            End::Recycle,
            End::Liveness,
        ] {
            assert!(!is_as_asked(&end), "{end}");
        }
    }

    #[test]
    fn r7_a_short_end_tells_whole_seconds_and_how() {
        let lived = Duration::from_millis(299_700);
        let close = End::Close {
            code: 1011,
            reason: "oops".into(),
        };
        let cases = [
            (End::Exit(1), "exit code 1"),
            (End::Signal(9), "signal 9"),
            (close, "close code 1011, oops"),
            (End::Http(502), "HTTP status 502"),
            (End::Recycle, "closed by this gateway"),
        ];
        for (end, how) in cases {
            let text = format!("connected, then closed after 299 s, {how}");
            assert_eq!(closed_after(lived, &end), text);
        }
        let stderr = ["no token".to_owned(), "bye".to_owned()];
        assert_eq!(
            with_stderr("x".into(), &stderr),
            "x | stderr: no token / bye"
        );
        assert_eq!(with_stderr("x".into(), &[]), "x");
    }
}
