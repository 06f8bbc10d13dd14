//! What a server tells operators and hosts: its edges, its state, its snapshot (S1, S3, S6).

use std::time::{Duration, Instant};

use super::Server;
use super::phase::{Closing, Next, Phase, Report};
use crate::engine::decision::{Class, ClearCause, Decision, DropReason, State};
use crate::engine::input::{End, Loss, Moment, Stop};
use crate::engine::output::Record;
use crate::engine::snapshot::{Backoff, Snapshot};
use crate::engine::timers::Past;
use crate::engine::traffic::Away;
use crate::ids::{Attempt, Epoch};
use crate::wire::jsonrpc::{self, Message};

/// What is told.
impl Server {
    /// S3: the failure of an attempt of that number opens an episode, and so do refused credentials (R18).
    pub(super) fn down_if_due(&mut self, attempt: Attempt, why: &str, at: Moment) {
        if attempt.0 >= self.settings.down_after_attempts || self.reconnect.is_refused() {
            self.open_episode(Some(self.epoch), attempt, why, at);
        }
    }

    /// S3, where what has been moved past no threshold but a threshold past it.
    pub(super) fn down_if_past(&mut self, at: Moment) {
        let (failed, away) = (self.reconnect.failed(), self.was_away);
        let has_failed = self.reconnect.failed_since_unwanted() > 0;
        let why = if has_failed && failed > self.settings.down_after_attempts {
            format!("{failed} attempts in a row have failed")
        } else if !away.is_zero() && away >= self.settings.down_after {
            format!("not connected for {} s", away.as_secs())
        } else {
            return;
        };
        if self.enabled {
            let last = Attempt(failed.saturating_sub(1));
            self.open_episode(self.phase.epoch(), last, &why, at);
        }
    }

    /// Nobody wants it connected any more (S4).
    pub(super) fn unwant(&mut self, now: Instant) {
        self.was_away = Duration::ZERO;
        self.reconnect.forgive();
        self.unwanted = Some(Past::ago(now, Duration::ZERO));
        self.outbox.record(Record::Unwanted);
    }

    pub(super) fn open_episode(
        &mut self,
        epoch: Option<Epoch>,
        attempt: Attempt,
        why: &str,
        at: Moment,
    ) {
        let mcpl = self.is_mcpl();
        self.episode
            .open(epoch, attempt, why, mcpl, at.now, &mut self.outbox);
    }

    pub(super) fn close_episode(&mut self, cause: ClearCause, now: Instant) {
        let (failed, mcpl) = (self.reconnect.failed(), self.is_mcpl());
        self.episode
            .close(None, cause, failed, mcpl, now, &mut self.outbox);
    }

    /// Reports a short end, now that nothing is left of its transport and no halt replaces it (R4, R10).
    pub(super) fn report_end(&mut self, closing: &Closing, at: Moment) {
        if closing.report != Report::ShortEnd {
            return;
        }
        let short_end = Decision::ShortEnd {
            attempt: closing.attempt.0,
            why: closing.why.clone(),
            failed_attempts: self.reconnect.failed(),
        };
        self.outbox.decide(Some(closing.epoch), short_end);
        self.down_if_due(closing.attempt, &closing.why, at);
    }

    /// R10: rests until an operator or another configuration starts it again.
    pub(super) fn halt(&mut self, attempt: Attempt, why: String, at: Moment) {
        self.tell_halt(attempt, &why, at);
        self.reason = Some(why);
        self.turn(Phase::Rest(State::Halted));
    }

    pub(super) fn tell_halt(&mut self, attempt: Attempt, why: &str, at: Moment) {
        let halted = Decision::Halted {
            attempt: attempt.0,
            why: why.to_owned(),
        };
        self.outbox.decide(Some(self.epoch), halted);
        self.open_episode(Some(self.epoch), attempt, why, at);
    }

    pub(super) fn tell_wait(&mut self, wait: Duration) {
        let attempt = self.reconnect.next().0;
        let waiting = Decision::Waiting { attempt, wait };
        self.outbox.decide(Some(self.epoch), waiting);
    }

    /// Ends the connection for a reason of the gateway's own.
    pub(super) fn end_own(&mut self, end: End, at: Moment) {
        let stderr = self.phase.link_mut().map(|link| link.stderr.take());
        let stderr = stderr.unwrap_or_default();
        self.end(Loss { end, stderr }, None, at);
    }

    pub(super) fn pong(&mut self, epoch: Epoch, ping: &Message) {
        if let Some(id) = ping.id() {
            let pong = jsonrpc::response(id.as_str(), "{}");
            self.outbox.send(epoch, Class::Response, pong, None);
        }
    }

    pub(super) fn drop_message(&mut self, epoch: Epoch, reason: DropReason, message: &Message) {
        self.outbox
            .decide(Some(epoch), dropped(reason, message.method()));
    }

    pub(super) fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        self.announce();
    }

    /// Tells the state, once where it changed, and what a host's call meets in it (A4).
    pub(super) fn announce(&mut self) {
        let state = self.state();
        if std::mem::replace(&mut self.announced, state) != state {
            self.outbox
                .decide(self.phase.epoch(), Decision::State(state));
        }
        self.traffic.set_away(Away {
            state,
            attempt: self.attempt().0,
            retry_at: self.phase.wait().map(|wait| wait.until),
            reason: self.reason.clone(),
        });
    }
}

/// What it is like now.
impl Server {
    pub(super) fn state(&self) -> State {
        let between = if self.reconnect.is_refused() {
            State::Auth
        } else {
            State::Waiting
        };
        match &self.phase {
            Phase::Rest(state) => *state,
            Phase::Waiting(_) => between,
            Phase::Connecting(_) => State::Connecting,
            Phase::Serving(_) if self.traffic.is_settled() => State::Open,
            Phase::Serving(_) => State::Negotiating,
            Phase::Closing(closing) => match closing.next {
                Next::Retry(_) => between,
                Next::Dial | Next::Renew(_) => State::Connecting,
                Next::Rest(state) => state,
            },
        }
    }

    /// Not connected, and about to be.
    pub(super) fn is_trying(&self) -> bool {
        match self.state() {
            State::Connecting | State::Waiting | State::Auth => true,
            State::Negotiating
            | State::Open
            | State::Halted
            | State::Refused
            | State::Disabled
            | State::Ended => false,
        }
    }

    /// The longest that it was away; what runs is part of it (S3).
    pub(super) fn away_for(&self, now: Instant) -> Duration {
        let runs = self.is_trying() && self.enabled;
        let away = now.saturating_duration_since(self.away);
        self.was_away.max(if runs { away } else { Duration::ZERO })
    }

    /// The attempt that made the connection, runs, or comes next.
    pub(super) fn attempt(&self) -> Attempt {
        self.phase
            .attempt()
            .unwrap_or_else(|| self.reconnect.next())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stopped, Some(Stop::Removed | Stop::Shutdown))
    }

    pub(super) fn is_removed(&self) -> bool {
        self.stopped == Some(Stop::Removed)
    }

    /// As it told when it last served; before that, as it is configured: for the texts of S6.
    pub(super) fn is_mcpl(&self) -> bool {
        let mask = &self.settings.mask;
        let configured = mask.channels.is_some() || mask.enabled_feature_sets.is_some();
        let is_socket = !self.settings.launched && !self.settings.lasts_alive;
        self.mcpl.unwrap_or(configured || is_socket)
    }

    /// Fills in what traffic does not know.
    pub(super) fn fill(&self, now: Instant, snapshot: &mut Snapshot) {
        snapshot.state = self.state();
        snapshot.epoch = self.epoch;
        snapshot.attempt = self.attempt().0;
        snapshot.failed_attempts = self.reconnect.failed();
        snapshot.failed_since_unwanted = self.reconnect.failed_since_unwanted();
        snapshot.down_after_attempts = self.settings.down_after_attempts;
        snapshot.down_after = self.settings.down_after;
        snapshot.lasting_threshold = self.settings.lasting_threshold();
        snapshot.since_lasted = self.lasted.map(|lasted| lasted.age(now));
        snapshot.since_unwanted = self.unwanted.map(|unwanted| unwanted.age(now));
        let ago = |then| now.saturating_duration_since(then);
        snapshot.since_healthy = self.healthy.map(ago);
        snapshot.episode = self.episode.view(now);
        snapshot.backoff = self.phase.wait().map(|wait| Backoff {
            wait: wait.wait,
            left: wait.until.saturating_duration_since(now),
        });
        snapshot.reason.clone_from(&self.reason);
        snapshot.away_for = self.away_for(now);
        if let Phase::Serving(serving) = &self.phase {
            snapshot.connected = true;
            snapshot.connection_age = ago(serving.adopted);
            snapshot.since_healthy = Some(Duration::ZERO);
        }
    }
}

pub(super) fn dropped(reason: DropReason, method: &str) -> Decision {
    Decision::Dropped {
        reason,
        method: method.to_owned(),
        count: 1,
    }
}
