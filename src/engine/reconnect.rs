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
pub(super) struct Reconnect {
    failed: u64,
    dialed: bool,
    /// Authorization refusals in a row (R18).
    refusals: u32,
}

impl Reconnect {
    /// Goes on from a count on record.
    pub(super) fn resume(failed: u64) -> Self {
        Self {
            failed,
            ..Self::default()
        }
    }

    /// R1's count.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// The number of the attempt that runs after the one before it: 0 for the first connect alone (R1).
    pub(super) fn next(&self) -> Attempt {
        Attempt(self.failed.max(u64::from(self.dialed)))
    }

    /// Begins that attempt.
    pub(super) fn dial(&mut self) -> Attempt {
        let attempt = self.next();
        self.dialed = true;
        attempt
    }

    /// An attempt's handshake completed. That earns nothing but an accepted credential (R5, R18).
    pub(super) fn adopt(&mut self) {
        self.refusals = 0;
    }

    /// An attempt failed before its handshake completed.
    pub(super) fn fail(&mut self, attempt: Attempt, outcome: Outcome) -> u64 {
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
    pub(super) fn end_short(&mut self, attempt: Attempt) -> u64 {
        self.failed = attempt.next().0;
        self.failed
    }

    /// A connection has lasted (R5).
    pub(super) fn last(&mut self) {
        self.failed = 0;
    }

    /// The credential was refused again and again (R18).
    pub(super) fn is_refused(&self) -> bool {
        self.refusals >= REFUSALS_MAX
    }

    /// R2's wait before the next attempt.
    pub(super) fn wait(&self, settings: &Settings, jitter: f64) -> Duration {
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
