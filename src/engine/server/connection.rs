//! What a transport tells, and the end of one that served (R4, R7, R20).

use bytes::Bytes;

use std::time::{Duration, Instant};

use super::Server;
use super::phase::{Closing, Life, Next, Phase, Report};
use super::report::dropped;
use crate::engine::decision::{Class, ClearCause, Decision, Direction, DropReason, State};
use crate::engine::input::{End, Failure, LinkEvent, Loss, Moment, Outcome, Reap};
use crate::engine::output::{Output, Record};
use crate::engine::reconnect;
use crate::ids::{Attempt, Epoch};
use crate::wire::jsonrpc::{Kind, Message, Unreadable};

/// A connection that serves, and its end.
impl Server {
    pub(super) fn take_link(&mut self, epoch: Epoch, event: LinkEvent, at: Moment) {
        // What is tagged with any other epoch speaks of a transport that is no more.
        if self.phase.epoch() != Some(epoch) {
            return;
        }
        match event {
            LinkEvent::Secrets(secrets) => self.outbox.hide(secrets),
            LinkEvent::Connected => self.connected(at),
            LinkEvent::Failed(failure) => self.fail(&failure, at),
            LinkEvent::Received(message) => self.receive(epoch, message, None, at),
            LinkEvent::Asked { message, during } => {
                self.receive(epoch, message, Some(during), at);
            }
            LinkEvent::Unreadable { what, sample } => self.unreadable(epoch, &what, sample, at),
            LinkEvent::Unsent { request, frame } => {
                self.traffic
                    .unsent(epoch, request, frame, at, &mut self.outbox);
            }
            LinkEvent::Stderr(line) => self.stderr(epoch, line),
            LinkEvent::Lost(loss) => self.lost(loss, at),
            LinkEvent::Gone(reap) => self.gone(&reap, at),
        }
    }

    /// A message, and the call that it belongs to where the transport knows that.
    pub(super) fn receive(
        &mut self,
        epoch: Epoch,
        message: Message,
        during: Option<u64>,
        at: Moment,
    ) {
        let class = match message.kind() {
            Kind::Request => Class::Request,
            Kind::Notification => Class::Notification,
            Kind::Response => Class::Response,
        };
        let direction = Direction::FromServer;
        self.outbox
            .decide(Some(epoch), Decision::Carried { direction, class });
        match &mut self.phase {
            Phase::Rest(_) | Phase::Waiting(_) => {}
            Phase::Connecting(_) => self.receive_early(message, at),
            // G7: a line read after the loss is never answered.
            Phase::Closing(_) => self.traffic.late(epoch, message, at, &mut self.outbox),
            Phase::Serving(serving) => {
                serving.hear(at.now);
                serving.answered |= class == Class::Response;
                let pong = class == Class::Response && serving.probe.is_ours(message.our_id());
                if !pong {
                    let out = &mut self.outbox;
                    self.traffic.receive_within(epoch, message, during, at, out);
                }
            }
        }
    }

    fn unreadable(&mut self, epoch: Epoch, what: &Unreadable, sample: String, at: Moment) {
        if let Phase::Serving(serving) = &mut self.phase {
            serving.hear(at.now);
        }
        if let Unreadable::Batch(messages) = what
            && self.traffic.has_batches()
            && matches!(self.phase, Phase::Serving(_))
        {
            self.receive_batch(epoch, messages, at);
        } else if *what == Unreadable::NotJson {
            let noise = self.noise.hear(sample, at.now);
            if let Some(noise) = noise {
                self.outbox.decide(Some(epoch), noise);
            }
        } else if matches!(self.phase, Phase::Closing(_)) {
            self.outbox
                .decide(Some(epoch), dropped(DropReason::Unreadable, ""));
        } else {
            self.traffic.unreadable(epoch, what, at, &mut self.outbox);
        }
    }

    /// Its messages one by one, where the revision has batches (A2).
    fn receive_batch(&mut self, epoch: Epoch, messages: &[Bytes], at: Moment) {
        for message in messages {
            match Message::parse(message.clone()) {
                Ok(message) => self.receive(epoch, message, None, at),
                Err(what) => self.traffic.unreadable(epoch, &what, at, &mut self.outbox),
            }
        }
    }

    fn stderr(&mut self, epoch: Epoch, line: String) {
        if let Some(link) = self.phase.link_mut() {
            link.stderr.push(&line);
        }
        self.outbox.decide(Some(epoch), Decision::Stderr(line));
    }

    fn lost(&mut self, loss: Loss, at: Moment) {
        match self.phase {
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Closing(_) => {}
            Phase::Connecting(_) => {
                let detail = format!("the connection ended before its handshake, {}", loss.end);
                let failure = Failure {
                    outcome: Outcome::Refused,
                    detail,
                    retry_after: None,
                    stderr: loss.stderr,
                };
                self.fail(&failure, at);
            }
            Phase::Serving(_) => self.end(loss, None, at),
        }
    }

    /// The boundary. A session that is renewed is no failure (R11). Any other end is counted before anything else can
    /// see it (R4). `asked` is what follows where the gateway was told to end the connection, which is no failure.
    pub(super) fn end(&mut self, loss: Loss, asked: Option<Next>, at: Moment) {
        let Phase::Serving(serving) = &self.phase else {
            return;
        };
        let (epoch, attempt, lasted) = (serving.link.epoch, serving.link.attempt, serving.lasted);
        let lived = at.now.saturating_duration_since(serving.adopted);
        let number = if lasted { Attempt(1) } else { attempt };
        let life = Life {
            attempt: number,
            adopted: serving.adopted,
            lasted,
        };
        let renewed = asked.is_none() && loss.end == End::Session && self.renews(at.now);
        let asked = if renewed {
            Some(Next::Renew(life))
        } else {
            asked
        };
        let short = !lasted && asked.is_none() && !self.is_as_asked(&loss.end);
        if short {
            self.reconnect.end_short(attempt);
        }
        self.decide_end(&loss.end, lived, short);
        if renewed {
            let attempt = number.0;
            self.outbox
                .decide(Some(epoch), Decision::SessionRenewed { attempt });
        }
        let why = reconnect::closed_after(lived, &loss.end);
        let next = asked.unwrap_or_else(|| self.next_after(&loss.end, at));
        if matches!(next, Next::Rest(State::Ended)) {
            self.unwant(at.now);
        }
        let closing = Closing {
            epoch,
            attempt: number,
            why: reconnect::with_stderr(why, &loss.stderr),
            report: match asked {
                _ if short => Report::ShortEnd,
                Some(_) => Report::Told,
                None => Report::HaltAlone,
            },
            next,
        };
        if asked.is_none() {
            self.reason = Some(closing.why.clone());
        }
        let for_good = self.is_removed() || (asked.is_none() && !self.settings.reconnect);
        self.leave(closing, for_good, at);
    }

    /// Whether the session that serves, and that its server ended, is renewed (R11).
    fn renews(&mut self, now: Instant) -> bool {
        let Phase::Serving(serving) = &self.phase else {
            return false;
        };
        let lived = now.saturating_duration_since(serving.began);
        self.sessions
            .end(lived, serving.answered, &self.settings, now)
    }

    fn leave(&mut self, closing: Closing, for_good: bool, at: Moment) {
        let epoch = closing.epoch;
        self.healthy = Some(at.now);
        self.away = at.now;
        self.turn(Phase::Closing(closing));
        self.traffic.lose(epoch, for_good, at, &mut self.outbox);
        self.outbox.push(Output::Close { epoch });
    }

    fn decide_end(&mut self, end: &End, lived: Duration, short: bool) {
        let Phase::Serving(serving) = &self.phase else {
            return;
        };
        let failed_attempts = self.reconnect.failed();
        let ended = Decision::Ended {
            attempt: serving.link.attempt.0,
            end: end.clone(),
            lasted: serving.lasted,
            lived,
            failed_attempts,
        };
        self.outbox.decide(Some(serving.link.epoch), ended);
        if short {
            self.outbox.record(Record::Count(failed_attempts));
        }
    }

    /// Somebody asked the process to end, and nobody wants it back (R20).
    fn is_as_asked(&self, end: &End) -> bool {
        !self.settings.reconnect && reconnect::is_as_asked(end)
    }

    fn next_after(&self, end: &End, at: Moment) -> Next {
        if self.settings.reconnect {
            let wait = self.reconnect.wait(&self.settings, at.jitter);
            Next::retry_in(wait, at.now)
        } else if self.is_as_asked(end) {
            Next::Rest(State::Ended)
        } else {
            Next::Rest(State::Halted)
        }
    }

    /// Nothing of the last transport is left, or what is left cannot be ended.
    fn gone(&mut self, reap: &Reap, at: Moment) {
        // A transport that never told its loss tells it now; while it closes this changes nothing.
        let end = End::Reset("the transport is gone".into());
        let stderr = Vec::new();
        self.lost(Loss { end, stderr }, at);
        let resting = Phase::Rest(self.state());
        let Phase::Closing(closing) = std::mem::replace(&mut self.phase, resting) else {
            return;
        };
        match (closing.next, reap) {
            (Next::Rest(state), reap) if closing.report == Report::Told => {
                self.tell_what_is_left(&closing, reap);
                self.turn(Phase::Rest(state));
            }
            (_, Reap::Unreapable { pids }) => {
                let why = unreapable(&closing.why, pids);
                self.halt(closing.attempt, why, at);
            }
            (Next::Rest(State::Halted), Reap::Clean) => {
                let why = format!("{}; reconnect is off", closing.why);
                self.halt(closing.attempt, why, at);
            }
            (Next::Rest(state), Reap::Clean) => {
                self.turn(Phase::Rest(state));
                if state == State::Ended {
                    self.close_episode(ClearCause::Ended, at.now);
                }
            }
            (Next::Retry(wait), Reap::Clean) => {
                self.report_end(&closing, at);
                if closing.report != Report::Told {
                    self.tell_wait(wait.wait);
                }
                self.turn(Phase::Waiting(wait));
            }
            (Next::Renew(life), Reap::Clean) => self.renew(life, at),
            (Next::Dial, Reap::Clean) => {
                self.report_end(&closing, at);
                self.dial(at);
            }
        }
    }

    /// Nothing follows, so no halt says that processes outlive the connection (R10).
    fn tell_what_is_left(&mut self, closing: &Closing, reap: &Reap) {
        if let Reap::Unreapable { pids } = reap {
            let text = unreapable(&closing.why, pids);
            let epoch = Some(closing.epoch);
            self.outbox.decide(epoch, Decision::Reported(text));
        }
    }
}

fn unreapable(why: &str, pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    format!("{why}; processes {pids} outlive SIGTERM and SIGKILL")
}
