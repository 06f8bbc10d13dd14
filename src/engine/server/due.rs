//! The deadlines of a server, and what happens when they come (R2, R5, R12, R15, S3).

use std::time::{Duration, Instant};

use super::Server;
use super::phase::{Phase, Serving};
use super::probe::Due;
use crate::engine::decision::{Class, ClearCause, Decision};
use crate::engine::input::{End, Moment, Outcome};
use crate::engine::output::Record;
use crate::engine::timers::{Past, is_due};
use crate::engine::traffic::Request;
use crate::wire::jsonrpc;
use crate::wire::mcp::method;

/// More rounds of due deadlines than one instant can have. A deadline that does not move then shows as a loop that
/// spins, and delays no input.
const ROUNDS_MAX: usize = 16;

/// What is due, and what is told.
impl Server {
    /// Does what is due and what traffic asks for, so that the next deadline is later than `now`.
    pub(super) fn settle(&mut self, at: Moment) {
        for _ in 0..ROUNDS_MAX {
            self.obey_traffic(at);
            if !is_due(self.poll_timeout().map(|(when, _)| when), at.now) {
                break;
            }
            self.fire(at);
        }
        if self.state() != self.announced {
            self.announce();
        }
    }

    fn obey_traffic(&mut self, at: Moment) {
        while let Some(request) = self.traffic.take_request() {
            match request {
                Request::End => self.end_own(End::Recycle, at),
            }
        }
    }

    fn fire(&mut self, at: Moment) {
        match &self.phase {
            Phase::Waiting(wait) if wait.until <= at.now => self.dial(at),
            Phase::Connecting(connecting) if is_due(connecting.deadline, at.now) => {
                self.time_out(at);
            }
            Phase::Serving(_) => {
                self.last_if_due(at);
                self.probe_if_due(at);
            }
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Connecting(_) | Phase::Closing(_) => {}
        }
        self.down_if_away(at);
        if is_due(self.noise.deadline(), at.now) {
            let noise = self.noise.fire(at.now);
            if let Some(noise) = noise {
                self.outbox.decide(None, noise);
            }
        }
        if is_due(self.traffic.poll_timeout().map(|(when, _)| when), at.now) {
            self.traffic.handle_timeout(at, &mut self.outbox);
        }
    }

    /// R15.
    fn time_out(&mut self, at: Moment) {
        let asked = matches!(&self.phase, Phase::Connecting(connecting) if connecting.asked);
        let detail = if asked {
            let within = self.settings.initialize_timeout.as_secs_f64();
            format!("initialize was not answered within {within} s")
        } else {
            let within = self.settings.connect_timeout.as_secs_f64();
            format!("not connected within {within} s")
        };
        self.fail_own(Outcome::Timeout, &detail, at);
    }

    /// R5.
    pub(super) fn last_if_due(&mut self, at: Moment) {
        let Phase::Serving(serving) = &self.phase else {
            return;
        };
        if !is_due(self.lasting_deadline(serving), at.now) {
            return;
        }
        let lived = at.now.saturating_duration_since(serving.adopted);
        let epoch = Some(serving.link.epoch);
        let failed_attempts = self.reconnect.failed();
        if let Phase::Serving(serving) = &mut self.phase {
            serving.lasted = true;
        }
        self.reconnect.last();
        self.was_away = Duration::ZERO;
        self.lasted = Some(Past::ago(at.now, Duration::ZERO));
        self.outbox.decide(epoch, Decision::Lasted { lived });
        self.outbox.record(Record::Lasted);
        self.outbox.record(Record::Count(0));
        self.traffic.last(at, &mut self.outbox);
        let mcpl = self.is_mcpl();
        let cause = ClearCause::Lasted(lived);
        self.episode.close(
            epoch,
            cause,
            failed_attempts,
            mcpl,
            at.now,
            &mut self.outbox,
        );
    }

    /// R5, R19: where it takes a sign of life, not before there is one.
    pub(super) fn lasting_deadline(&self, serving: &Serving) -> Option<Instant> {
        let threshold = self.settings.lasting_threshold();
        let due = serving.adopted.checked_add(threshold);
        due.filter(|_| !serving.lasted && self.is_alive(serving, threshold))
    }

    /// R19: in the middle of the last third, where there was no sign of life in it yet.
    pub(super) fn asking_deadline(&self, serving: &Serving) -> Option<Instant> {
        let threshold = self.settings.lasting_threshold();
        let due = serving.adopted.checked_add(threshold / 6 * 5);
        due.filter(|_| !serving.lasted && !serving.asked && !self.is_alive(serving, threshold))
    }

    /// There was a sign of life in the last third, or none is needed (R19).
    fn is_alive(&self, serving: &Serving, threshold: Duration) -> bool {
        let last_third = serving.adopted.checked_add(threshold / 3 * 2);
        !self.settings.lasts_alive || last_third.is_some_and(|begun| serving.heard >= begun)
    }

    /// R12, R19.
    fn probe_if_due(&mut self, at: Moment) {
        let asks = match &self.phase {
            Phase::Serving(serving) => is_due(self.asking_deadline(serving), at.now),
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Connecting(_) | Phase::Closing(_) => return,
        };
        let Phase::Serving(serving) = &mut self.phase else {
            return;
        };
        if asks {
            serving.asked = true;
            serving.probe.ask(at.now);
        }
        match serving.probe.fire(at.now) {
            Due::Wait => {}
            Due::Ping(id) => {
                let ping = jsonrpc::request(id, method::PING, "{}");
                self.outbox
                    .send(serving.link.epoch, Class::Request, ping, Some(id));
            }
            Due::Lost => self.end_own(End::Liveness, at),
        }
    }

    /// S3: enabled and not connected for too long, whatever the attempts do.
    fn down_if_away(&mut self, at: Moment) {
        if !is_due(self.down_deadline(), at.now) {
            return;
        }
        let away = at.now.saturating_duration_since(self.away).as_secs();
        let why = format!("not connected for {away} s");
        self.open_episode(self.phase.epoch(), self.attempt(), &why, at);
    }

    pub(super) fn down_deadline(&self) -> Option<Instant> {
        let due = self.away.checked_add(self.settings.down_after);
        due.filter(|_| self.is_trying() && self.enabled && !self.episode.is_open())
    }
}
