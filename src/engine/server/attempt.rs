//! An attempt, from its dial to its adoption or failure (R1, R10, R15).

use super::Server;
use super::phase::{Closing, Connecting, Life, Link, Next, Phase, Report, Serving};
use super::probe::Probe;
use crate::engine::decision::{Class, Decision, DropReason, State};
use crate::engine::handshake::{self, Early};
use crate::engine::input::{Failure, Moment, Outcome, StderrTail};
use crate::engine::output::{Output, Record};
use crate::engine::peer::Peer;
use crate::engine::reconnect;
use crate::ids::{Attempt, Epoch};
use crate::wire::jsonrpc::{self, Kind, Message, code};
use crate::wire::mcp::Revision;

/// An attempt, from its dial to its adoption or failure.
impl Server {
    pub(super) fn dial(&mut self, at: Moment) {
        let attempt = self.reconnect.dial();
        self.launch(attempt, None, at);
    }

    /// Renews a session: the same attempt goes on (R11).
    pub(super) fn renew(&mut self, life: Life, at: Moment) {
        self.launch(life.attempt, Some(life), at);
    }

    fn launch(&mut self, attempt: Attempt, life: Option<Life>, at: Moment) {
        self.epoch = self.epoch.next();
        let link = Link {
            epoch: self.epoch,
            attempt,
            dialed: at.now,
            stderr: StderrTail::default(),
        };
        self.turn(Phase::Connecting(Connecting {
            link,
            asked: false,
            deadline: at.now.checked_add(self.settings.connect_timeout),
            early: Early::default(),
            life,
        }));
        let dialing = Decision::Dialing { attempt: attempt.0 };
        self.outbox.decide(Some(self.epoch), dialing);
        self.outbox.record(Record::Launched(self.epoch));
        let epoch = self.epoch;
        self.outbox.push(Output::Dial { epoch, attempt });
    }

    pub(super) fn connected(&mut self, at: Moment) {
        let Phase::Connecting(connecting) = &mut self.phase else {
            return;
        };
        if std::mem::replace(&mut connecting.asked, true) {
            return;
        }
        connecting.deadline = at.now.checked_add(self.settings.initialize_timeout);
        let link = &connecting.link;
        let connected = Decision::Connected {
            attempt: link.attempt.0,
            took: at.now.saturating_duration_since(link.dialed),
        };
        self.outbox.decide(Some(link.epoch), connected);
        let initialize = handshake::request(self.settings.revision);
        let id = Some(handshake::ID);
        self.outbox.send(link.epoch, Class::Request, initialize, id);
    }

    /// A message before the answer to `initialize`.
    pub(super) fn receive_early(&mut self, message: Message, at: Moment) {
        let Phase::Connecting(connecting) = &mut self.phase else {
            return;
        };
        let epoch = connecting.link.epoch;
        if message.kind() == Kind::Response {
            if connecting.asked && handshake::is_answer(&message) {
                self.answered(&message, at);
            } else {
                // Held, it could answer a request that is not even sent yet (A2).
                self.drop_message(epoch, DropReason::Unmatched, &message);
            }
        } else if handshake::is_ping(&message) {
            self.pong(epoch, &message);
        } else if let Some(message) = connecting.early.push(message) {
            self.refuse_early(epoch, &message);
        }
    }

    /// A request gets its one answer also where it cannot be held (A3, G4).
    fn refuse_early(&mut self, epoch: Epoch, message: &Message) {
        let Some(id) = message.id() else {
            return self.drop_message(epoch, DropReason::HeldFull, message);
        };
        let error =
            jsonrpc::Error::new(code::BUSY, "too much was sent before initialize; try again");
        let frame = jsonrpc::error_response(id.as_str(), &error);
        self.outbox.send(epoch, Class::Response, frame, None);
        let method = message.method().to_owned();
        let code = code::BUSY;
        self.outbox
            .decide(Some(epoch), Decision::RefusedMessage { code, method });
    }

    fn answered(&mut self, answer: &Message, at: Moment) {
        match handshake::read(answer, self.settings.revision, self.outbox.secrets()) {
            Ok((revision, result)) => match Peer::read(revision, result) {
                Some(peer) => self.adopt(peer, revision, at),
                None => self.fail_own(Outcome::Handshake, "its initialize result is no object", at),
            },
            Err(verdict) => self.fail_own(verdict.outcome, &verdict.why, at),
        }
    }

    fn adopt(&mut self, peer: Peer, revision: Revision, at: Moment) {
        let resting = Phase::Rest(State::Connecting);
        let Phase::Connecting(connecting) = std::mem::replace(&mut self.phase, resting) else {
            return;
        };
        let Connecting {
            link,
            mut early,
            life,
            ..
        } = connecting;
        let (epoch, attempt) = (link.epoch, link.attempt.0);
        let took = at.now.saturating_duration_since(link.dialed);
        let mcpl = peer.is_mcpl();
        self.mcpl = Some(mcpl);
        self.reason = None;
        self.was_away = self.away_for(at.now);
        self.reconnect.adopt();
        let initialized = handshake::initialized();
        self.outbox
            .send(epoch, Class::Notification, initialized, None);
        let adopted = Decision::Adopted {
            attempt,
            revision,
            mcpl,
            took,
        };
        self.outbox.decide(Some(epoch), adopted);
        self.phase = Phase::Serving(Serving {
            link,
            adopted: life.map_or(at.now, |life| life.adopted),
            began: at.now,
            lasted: life.is_some_and(|life| life.lasted),
            answered: false,
            heard: at.now,
            asked: false,
            probe: Probe::new(self.settings.probe_after, at.now),
        });
        self.traffic.adopt(epoch, peer, at, &mut self.outbox);
        self.announce();
        for message in early.take() {
            self.traffic.receive(epoch, message, at, &mut self.outbox);
        }
    }

    /// An attempt that the gateway itself gives up.
    pub(super) fn fail_own(&mut self, outcome: Outcome, detail: &str, at: Moment) {
        let stderr = self.phase.link_mut().map(|link| link.stderr.take());
        let failure = Failure {
            outcome,
            detail: detail.to_owned(),
            retry_after: None,
            stderr: stderr.unwrap_or_default(),
        };
        self.fail(&failure, at);
    }

    /// The failure of the attempt that runs (R1).
    pub(super) fn fail(&mut self, failure: &Failure, at: Moment) {
        let Phase::Connecting(Connecting { link, .. }) = &self.phase else {
            return;
        };
        let attempt = link.attempt;
        let why = reconnect::with_stderr(failure.detail.clone(), &failure.stderr);
        let failed_attempts = self.reconnect.fail(attempt, failure.outcome);
        self.outbox.record(Record::Count(failed_attempts));
        let failed = Decision::AttemptFailed {
            attempt: attempt.0,
            outcome: failure.outcome,
            why: why.clone(),
            failed_attempts,
        };
        self.outbox.decide(Some(self.epoch), failed);
        self.down_if_due(attempt, &why, at);
        self.reason = Some(why.clone());
        let next = if self.is_permanent(failure.outcome) {
            self.tell_halt(attempt, &why, at);
            Next::Rest(State::Halted)
        } else {
            let wait = self
                .reconnect
                .wait_after(failure, &self.settings, at.jitter);
            self.tell_wait(wait);
            Next::retry_in(wait, at.now)
        };
        self.abandon(why, next, at);
    }

    /// Nothing but a person's hand would change the outcome of another try (R10), or none is wanted (R20).
    fn is_permanent(&self, outcome: Outcome) -> bool {
        !self.settings.reconnect || (outcome == Outcome::Version && self.settings.launched)
    }

    /// Closes the transport of an attempt that will not be adopted. What it sent gets G5.
    pub(super) fn abandon(&mut self, why: String, next: Next, at: Moment) {
        let Phase::Connecting(connecting) = &mut self.phase else {
            return;
        };
        let (epoch, attempt) = (connecting.link.epoch, connecting.link.attempt);
        let early = connecting.early.take();
        self.turn(Phase::Closing(Closing {
            epoch,
            attempt,
            why,
            report: Report::Told,
            next,
        }));
        for message in early {
            self.traffic.late(epoch, message, at, &mut self.outbox);
        }
        self.outbox.push(Output::Close { epoch });
    }
}
