//! What a host's call meets when it gets no answer of the server (A4).

use std::time::{Duration, Instant};

use serde_json::json;

use super::Traffic;
use crate::engine::decision::State;
use crate::wire::jsonrpc::{Error, Unreadable, code};

/// Why no transport serves, and what comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Away {
    /// The server's state.
    pub(in crate::engine) state: State,
    /// The attempt that runs or comes next.
    pub(in crate::engine) attempt: u64,
    /// When it comes; `None` while it runs, or where none will.
    pub(in crate::engine) retry_at: Option<Instant>,
    /// Why, where there is a reason; without secrets.
    pub(in crate::engine) reason: Option<String>,
}

impl Away {
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.retry_at
            .map(|at| at.saturating_duration_since(now))
            .filter(|_| self.is_retried())
    }

    fn is_retried(&self) -> bool {
        matches!(
            self.state,
            State::Connecting | State::Negotiating | State::Open | State::Waiting
        )
    }

    /// What is the matter, and whether to try again.
    fn text(&self, now: Instant) -> String {
        let attempt = self.attempt;
        let reason = self.reason.as_deref();
        let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        match (self.state, self.wait(now)) {
            (State::Waiting | State::Connecting | State::Negotiating | State::Open, Some(wait)) => {
                let wait = wait.as_secs_f64();
                format!(
                    "this gateway is reconnecting (attempt {attempt}, next try in {wait:.1} s); try again later"
                )
            }
            (State::Waiting | State::Connecting | State::Negotiating | State::Open, None) => {
                format!("this gateway is connecting (attempt {attempt}); try again later")
            }
            (State::Auth, _) => format!("the server refuses its credential{why}"),
            (State::Halted, _) => format!("the server is halted{why}"),
            // The reason quotes the operator's file.
            (State::Refused, _) => "the server's configuration is refused".into(),
            (State::Disabled, _) => format!("the server is disabled{why}"),
            (State::Ended, _) => format!("the server has ended{why}"),
        }
    }
}

impl Traffic {
    /// A call that did not go out: nothing ran.
    pub(super) fn not_sent(&self, now: Instant) -> Error {
        let text = format!("not sent: {}", self.away.text(now));
        self.with_away(Error::new(code::NOT_SENT, text), false, now)
    }

    /// A call for which there was no room towards a server that serves.
    pub(super) fn crowded_out(&self, why: &str, now: Instant) -> Error {
        let text = format!("not sent: {why}; try again later");
        self.with_away(Error::new(code::NOT_SENT, text), false, now)
    }

    /// A call that a boundary ended.
    pub(super) fn lost(&self, now: Instant) -> Error {
        let how = match &self.away {
            Away {
                state: State::Disabled,
                reason: Some(reason),
                ..
            } => reason,
            _ => "the connection was lost",
        };
        let text = format!(
            "sent, and then {how}: the outcome is unknown, and a blind retry can run it twice"
        );
        self.with_away(Error::new(code::LOST, text), true, now)
    }

    /// The end of a stream that lost its epoch before: a part of it reached a process that is gone (G15).
    pub(super) fn broke_off(&self, now: Instant) -> Error {
        let text = "the beginning of this stream was sent, and then its connection was lost: the outcome is unknown, and sending all of it again can show a part twice";
        self.with_away(Error::new(code::LOST, text), true, now)
    }

    /// A call whose answer cannot be read.
    pub(super) fn unread(&self, what: &Unreadable, now: Instant) -> Error {
        let text = format!(
            "sent, and the server's answer could not be read ({what}): the outcome is unknown, and a blind retry can run it twice"
        );
        self.with_away(Error::new(code::LOST, text), true, now)
    }

    /// A call that the server did not answer in time.
    pub(super) fn timed_out(&self, now: Instant) -> Error {
        let limit = self.settings.call_timeout;
        let text = format!(
            "sent, and not answered within {limit:?} (callTimeoutMs): the outcome is unknown, and its cancellation was asked for"
        );
        self.with_away(Error::new(code::TIMED_OUT, text), true, now)
    }

    /// Where the server stands, as hosts are told.
    pub(super) fn state(&self) -> State {
        match self.serving {
            Some(_) if self.policy.is_settled() => State::Open,
            Some(_) => State::Negotiating,
            None => self.away.state,
        }
    }

    fn with_away(&self, error: Error, sent: bool, now: Instant) -> Error {
        let away = &self.away;
        let state = self.state();
        let retry_after = away.wait(now);
        let server = Some(&self.settings.server).filter(|name| !name.is_empty());
        let data = json!({
            "server": server,
            "state": state.label(),
            "sent": sent,
            "attempt": away.attempt,
            "retryAfterMs": retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        });
        error.with_data(data)
    }
}
