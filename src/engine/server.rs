//! One server's engine: when to dial, what an end counts for, when it is down and when that is over. It composes the
//! parts, which do not name each other, and owns every transition of the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decision::{Class, ClearCause, Decision, Direction, DropReason, State};
use super::episode::Episode;
use super::handshake::{self, Early};
use super::input::{
    End, Failure, Input, LinkEvent, Loss, Moment, Operator, Outcome, Reap, Resumed, Stop,
};
use super::noise::Noise;
use super::outbox::Outbox;
use super::output::{Output, Record};
use super::peer::Peer;
use super::phase::{Closing, Connecting, Link, Next, Phase, Report, Serving, Tail, Wait};
use super::probe::{Due, Probe};
use super::reconnect::{self, Reconnect};
use super::settings::Settings;
use super::snapshot::{Backoff, Snapshot};
use super::timers::{Past, Timer, earlier, is_due};
use super::traffic::{Away, Request, Traffic};
use crate::ids::{Attempt, Epoch};
use crate::wire::jsonrpc::{self, Kind, Message, Unreadable, code};
use crate::wire::mcp::{Revision, method};

/// More rounds of due deadlines than one instant can have. A deadline that does not move then shows as a loop that
/// spins, and delays no input.
const ROUNDS_MAX: usize = 16;

/// The engine of one server. See the module [`engine`](super) for its contract.
#[derive(Debug)]
pub struct Server {
    settings: Arc<Settings>,
    phase: Phase,
    reconnect: Reconnect,
    episode: Episode,
    traffic: Traffic,
    noise: Noise,
    outbox: Outbox,
    /// The last epoch that was used.
    epoch: Epoch,
    /// The state that was last announced.
    announced: State,
    /// What the state directory remembers was taken over.
    resumed: bool,
    /// A `Start` is in force.
    enabled: bool,
    /// The stop that is in force (R13).
    stopped: Option<Stop>,
    /// The first dial waits until then (R1).
    hold: Option<Instant>,
    /// Since when it has been enabled and not connected (S3).
    away: Instant,
    /// When a connection last lasted.
    lasted: Option<Past>,
    /// When a connection last served.
    healthy: Option<Instant>,
    /// It advertised MCPL when it last served.
    mcpl: Option<bool>,
    /// Why the state is what it is.
    reason: Option<String>,
}

/// The contract.
impl Server {
    /// A server that is `Disabled` until `Start` or `Refuse`.
    #[must_use]
    pub fn new(settings: Arc<Settings>, now: Instant) -> Self {
        Self {
            traffic: Traffic::new(Arc::clone(&settings)),
            settings,
            phase: Phase::Rest(State::Disabled),
            reconnect: Reconnect::default(),
            episode: Episode::default(),
            noise: Noise::default(),
            outbox: Outbox::default(),
            epoch: Epoch::default(),
            announced: State::Disabled,
            resumed: false,
            enabled: false,
            stopped: None,
            hold: None,
            away: now,
            lasted: None,
            healthy: None,
            mcpl: None,
            reason: None,
        }
    }

    /// Takes a fact about the past.
    pub fn handle_input(&mut self, input: Input, at: Moment) {
        // A life that reached the threshold has lasted, also where its end is handled before the timer (R5).
        self.last_if_due(at);
        match input {
            Input::Resume(resumed) => self.resume(resumed, at.now),
            Input::Start(resumed) => self.start(resumed, at),
            Input::Refuse { problem } => self.refuse(problem, at),
            Input::Configure { settings, redial } => self.configure(settings, redial, at),
            Input::Operator(command) => self.operate(command, at),
            Input::Stop(stop) => self.stop(stop, at),
            Input::Link { epoch, event } => self.take_link(epoch, event, at),
            Input::Host { session, event } => {
                self.traffic.host(session, event, at, &mut self.outbox);
            }
        }
        self.settle(at);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, at: Moment) {
        self.settle(at);
    }

    /// The next deadline, and what it is for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let own = match &self.phase {
            Phase::Rest(_) | Phase::Closing(_) => None,
            Phase::Waiting(wait) => Some((wait.until, Timer::Retry)),
            Phase::Connecting(connecting) => named(connecting.deadline, connecting.timer()),
            Phase::Serving(serving) => earlier(
                named(self.lasting_deadline(serving), Timer::Lasting),
                named(self.probe_deadline(serving), Timer::Probe),
            ),
        };
        let others = [
            named(self.down_deadline(), Timer::DownAfter),
            named(self.noise.deadline(), Timer::Noise),
            self.traffic.poll_timeout(),
        ];
        others.into_iter().fold(own, earlier)
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.pop()
    }

    /// A view of the server as of `now`.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.traffic.fill(now, &mut snapshot);
        self.fill(now, &mut snapshot);
        snapshot
    }
}

/// What the gateway's owner asks.
impl Server {
    fn resume(&mut self, resumed: Resumed, now: Instant) {
        // In memory is the truth once there is one: enabling again keeps count and episode (R14).
        if std::mem::replace(&mut self.resumed, true) {
            return;
        }
        self.epoch = resumed.epoch;
        self.reconnect = Reconnect::resume(resumed.failed_attempts);
        self.episode = Episode::resume(resumed.episode, now);
        self.lasted = resumed.since_lasted.map(|ago| Past::ago(now, ago));
        let rest = |ago| self.settings.interval.saturating_sub(ago);
        let hold = resumed.since_launch.map(rest);
        self.hold = hold
            .filter(|_| resumed.failed_attempts > 0)
            .and_then(|rest| now.checked_add(rest));
        self.traffic.resume(resumed.paused, resumed.narrowing);
    }

    fn start(&mut self, resumed: Resumed, at: Moment) {
        if self.enabled || self.is_over() {
            return;
        }
        self.resume(resumed, at.now);
        self.begin(at);
    }

    /// Connects a server at rest, or one whose last transport is not gone yet as soon as it is.
    fn begin(&mut self, at: Moment) {
        self.enabled = true;
        self.stopped = None;
        self.away = at.now;
        let hold = self.hold.take().filter(|until| *until > at.now);
        if let Phase::Closing(closing) = &mut self.phase {
            closing.next = Next::Dial;
            self.announce();
        } else if let Some(until) = hold {
            let wait = until.saturating_duration_since(at.now);
            self.tell_wait(wait);
            self.turn(Phase::Waiting(Wait { until, wait }));
        } else {
            self.dial(at);
        }
    }

    fn refuse(&mut self, problem: String, at: Moment) {
        if self.is_over() {
            return;
        }
        self.enabled = false;
        self.reason = Some(problem.clone());
        self.cease(State::Refused, at);
        let refused = Decision::Refused {
            problem: problem.clone(),
        };
        self.outbox.decide(None, refused);
        self.open_episode(None, self.reconnect.next(), &problem, at);
    }

    fn configure(&mut self, settings: Arc<Settings>, redial: bool, at: Moment) {
        self.settings = Arc::clone(&settings);
        self.traffic.configure(settings, at, &mut self.outbox);
        if self.state() == State::Refused {
            self.begin(at);
        } else if redial {
            self.restart(at);
        }
    }

    fn operate(&mut self, command: Operator, at: Moment) {
        match command {
            Operator::Restart => self.restart(at),
            Operator::Recycle => self.recycle(at),
            Operator::Pause => self.traffic.pause(true, at, &mut self.outbox),
            Operator::Resume => self.traffic.pause(false, at, &mut self.outbox),
        }
    }

    /// R14: dials at once, or as soon as the last transport is gone. No failure.
    fn restart(&mut self, at: Moment) {
        if !self.enabled {
            return;
        }
        match self.phase {
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Closing(_) => self.begin(at),
            Phase::Connecting(_) => self.abandon(by_operator().end.to_string(), Next::Dial, at),
            Phase::Serving(_) => self.end(by_operator(), Some(Next::Dial), at),
        }
    }

    /// R14: the connection is judged broken.
    fn recycle(&mut self, at: Moment) {
        match &self.phase {
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Closing(_) => {}
            Phase::Connecting(_) => {
                self.fail_own(
                    Outcome::Refused,
                    "recycled before its handshake completed",
                    at,
                );
            }
            Phase::Serving(_) => self.end_own(End::Recycle, at),
        }
    }

    /// R13.
    fn stop(&mut self, stop: Stop, at: Moment) {
        if self.is_over() {
            return;
        }
        self.enabled = false;
        self.stopped = Some(stop);
        let served = matches!(self.phase, Phase::Serving(_));
        match stop {
            Stop::Disabled => {
                self.reason = None;
                self.cease(State::Disabled, at);
                self.close_episode(ClearCause::Disabled, at.now);
            }
            Stop::Removed => {
                self.reason = None;
                self.cease(State::Disabled, at);
                if !served {
                    self.traffic.lose(self.epoch, true, at, &mut self.outbox);
                }
                self.close_episode(ClearCause::Removed, at.now);
                self.outbox.record(Record::Forget);
            }
            Stop::Shutdown => self.cease(self.state_at_shutdown(), at),
        }
    }

    /// `Disabled` would read as a reset where an episode stays open (S5), so only what ran is shown as waiting.
    fn state_at_shutdown(&self) -> State {
        match self.state() {
            State::Connecting | State::Negotiating | State::Open => State::Waiting,
            state @ (State::Waiting
            | State::Auth
            | State::Halted
            | State::Refused
            | State::Disabled
            | State::Ended) => state,
        }
    }

    /// Ends whatever runs, without a failure, a report or a retry.
    fn cease(&mut self, state: State, at: Moment) {
        let removed = self.is_removed();
        match &mut self.phase {
            Phase::Rest(_) | Phase::Waiting(_) => self.turn(Phase::Rest(state)),
            Phase::Connecting(_) => {
                self.abandon(by_operator().end.to_string(), Next::Rest(state), at)
            }
            Phase::Serving(_) => self.end(by_operator(), Some(Next::Rest(state)), at),
            Phase::Closing(closing) => {
                closing.next = Next::Rest(state);
                closing.report = Report::Told;
                closing.for_good |= removed;
                self.announce();
            }
        }
    }
}

/// An attempt, from its dial to its adoption or failure.
impl Server {
    fn dial(&mut self, at: Moment) {
        self.epoch = self.epoch.next();
        let attempt = self.reconnect.dial();
        let link = Link {
            epoch: self.epoch,
            attempt,
            dialed: at.now,
            stderr: Tail::default(),
        };
        self.turn(Phase::Connecting(Connecting {
            link,
            asked: false,
            deadline: at.now.checked_add(self.settings.connect_timeout),
            early: Early::default(),
        }));
        let dialing = Decision::Dialing { attempt: attempt.0 };
        self.outbox.decide(Some(self.epoch), dialing);
        self.outbox.record(Record::Launched(self.epoch));
        let epoch = self.epoch;
        self.outbox.push(Output::Dial { epoch, attempt });
    }

    fn connected(&mut self, at: Moment) {
        let Phase::Connecting(connecting) = &mut self.phase else {
            return;
        };
        if std::mem::replace(&mut connecting.asked, true) {
            return;
        }
        connecting.deadline = at.now.checked_add(self.settings.initialize_timeout);
        let initialize = handshake::request(self.settings.revision);
        let id = Some(handshake::ID);
        self.outbox
            .send(connecting.link.epoch, Class::Request, initialize, id);
    }

    /// A message before the answer to `initialize`.
    fn receive_early(&mut self, message: Message, at: Moment) {
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
        match handshake::read(answer, self.settings.revision) {
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
            link, mut early, ..
        } = connecting;
        let (epoch, attempt) = (link.epoch, link.attempt.0);
        let took = at.now.saturating_duration_since(link.dialed);
        let mcpl = peer.is_mcpl();
        self.mcpl = Some(mcpl);
        self.reason = None;
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
            adopted: at.now,
            revision,
            lasted: false,
            probe: Probe::new(at.now),
        });
        self.traffic.adopt(epoch, peer, at, &mut self.outbox);
        self.announce();
        for message in early.take() {
            self.traffic.receive(epoch, message, at, &mut self.outbox);
        }
    }

    /// An attempt that the gateway itself gives up.
    fn fail_own(&mut self, outcome: Outcome, detail: &str, at: Moment) {
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
    fn fail(&mut self, failure: &Failure, at: Moment) {
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
            retry_in(wait, at.now)
        };
        self.abandon(why, next, at);
    }

    /// Nothing but a person's hand would change the outcome of another try (R10), or none is wanted (R20).
    fn is_permanent(&self, outcome: Outcome) -> bool {
        !self.settings.reconnect || (outcome == Outcome::Version && self.settings.launched)
    }

    /// Closes the transport of an attempt that will not be adopted. What it sent gets G5.
    fn abandon(&mut self, why: String, next: Next, at: Moment) {
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
            for_good: self.is_removed(),
        }));
        for message in early {
            self.receive_late(epoch, message, at);
        }
        self.outbox.push(Output::Close { epoch });
    }
}

/// A connection that serves, and its end.
impl Server {
    fn take_link(&mut self, epoch: Epoch, event: LinkEvent, at: Moment) {
        // What is tagged with any other epoch speaks of a transport that is no more.
        if self.phase.epoch() != Some(epoch) {
            return;
        }
        match event {
            LinkEvent::Connected => self.connected(at),
            LinkEvent::Failed(failure) => self.fail(&failure, at),
            LinkEvent::Received(message) => self.receive(epoch, message, at),
            LinkEvent::Unreadable { what, sample } => self.unreadable(epoch, &what, sample, at),
            LinkEvent::Unsent { request } => {
                if self.is_for_traffic(request) {
                    self.traffic.unsent(epoch, request, at, &mut self.outbox);
                }
            }
            LinkEvent::Stderr(line) => self.stderr(epoch, line),
            LinkEvent::Lost(loss) => self.lost(loss, at),
            LinkEvent::Gone(reap) => self.gone(&reap, at),
        }
    }

    fn receive(&mut self, epoch: Epoch, message: Message, at: Moment) {
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
            Phase::Closing(_) => self.receive_late(epoch, message, at),
            Phase::Serving(serving) => {
                serving.probe.hear(at.now);
                let pong = class == Class::Response && serving.probe.is_answer(message.our_id());
                if !pong {
                    self.traffic.receive(epoch, message, at, &mut self.outbox);
                }
            }
        }
    }

    /// G7: a line read from a transport after its loss is never answered.
    fn receive_late(&mut self, epoch: Epoch, message: Message, at: Moment) {
        let Phase::Closing(closing) = &self.phase else {
            return;
        };
        if closing.for_good {
            self.drop_message(epoch, DropReason::ClosedForGood, &message);
        } else {
            self.traffic.late(epoch, message, at, &mut self.outbox);
        }
    }

    fn unreadable(&mut self, epoch: Epoch, what: &Unreadable, sample: String, at: Moment) {
        if let Phase::Serving(serving) = &mut self.phase {
            serving.probe.hear(at.now);
        }
        if *what == Unreadable::NotJson {
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

    fn stderr(&mut self, epoch: Epoch, line: String) {
        if let Some(link) = self.phase.link_mut() {
            link.stderr.push(line.clone());
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

    /// The boundary. The end is counted before anything else can see it (R4). `asked` is what follows where the gateway
    /// was told to end the connection, which is no failure.
    fn end(&mut self, loss: Loss, asked: Option<Next>, at: Moment) {
        let Phase::Serving(serving) = &self.phase else {
            return;
        };
        let (epoch, attempt, lasted) = (serving.link.epoch, serving.link.attempt, serving.lasted);
        let lived = at.now.saturating_duration_since(serving.adopted);
        let as_asked = asked.is_some() || self.is_as_asked(&loss.end);
        let short = !lasted && !as_asked;
        if short {
            self.reconnect.end_short(attempt);
        }
        self.decide_end(&loss.end, lived, short);
        let why = reconnect::closed_after(lived, &loss.end);
        let why = reconnect::with_stderr(why, &loss.stderr);
        self.reason = asked.is_none().then(|| why.clone());
        self.healthy = Some(at.now);
        self.away = at.now;
        let for_good = self.is_removed() || (asked.is_none() && !self.settings.reconnect);
        let report = match (as_asked, short) {
            (_, true) => Report::ShortEnd,
            (true, false) if asked.is_some() => Report::Told,
            (_, false) => Report::HaltAlone,
        };
        let next = asked.unwrap_or_else(|| self.next_after(&loss.end, at));
        self.turn(Phase::Closing(Closing {
            epoch,
            attempt: if lasted { Attempt(1) } else { attempt },
            why,
            report,
            next,
            for_good,
        }));
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
            retry_in(wait, at.now)
        } else if self.is_as_asked(end) {
            Next::Rest(State::Ended)
        } else {
            Next::Rest(State::Halted)
        }
    }

    /// Nothing of the last transport is left, or what is left cannot be ended.
    fn gone(&mut self, reap: &Reap, at: Moment) {
        if !matches!(self.phase, Phase::Closing(_)) {
            let end = End::Reset("the transport is gone".into());
            self.lost(
                Loss {
                    end,
                    stderr: Vec::new(),
                },
                at,
            );
        }
        let resting = Phase::Rest(self.state());
        let Phase::Closing(closing) = std::mem::replace(&mut self.phase, resting) else {
            return;
        };
        match (closing.next, reap) {
            (Next::Rest(state), _) if closing.report == Report::Told => {
                self.turn(Phase::Rest(state));
            }
            (_, Reap::Unreapable { pids }) => {
                let why = format!(
                    "{}; {} outlive SIGTERM and SIGKILL",
                    closing.why,
                    list(pids)
                );
                self.halt(closing.attempt, why, at);
            }
            (Next::Rest(State::Halted), Reap::Clean) => {
                let why = format!("{}; reconnect is off", closing.why);
                self.halt(closing.attempt, why, at);
            }
            (Next::Rest(state), Reap::Clean) => self.turn(Phase::Rest(state)),
            (Next::Retry(wait), Reap::Clean) => {
                self.report_end(&closing, at);
                if closing.report != Report::Told {
                    self.tell_wait(wait.wait);
                }
                self.turn(Phase::Waiting(wait));
            }
            (Next::Dial, Reap::Clean) => {
                self.report_end(&closing, at);
                self.dial(at);
            }
        }
    }
}

/// What is due, and what is told.
impl Server {
    /// Does what is due and what traffic asks for, so that the next deadline is later than `now`.
    fn settle(&mut self, at: Moment) {
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
    fn last_if_due(&mut self, at: Moment) {
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
        self.lasted = Some(Past::ago(at.now, Duration::ZERO));
        self.outbox.decide(epoch, Decision::Lasted { lived });
        self.outbox.record(Record::Lasted);
        self.outbox.record(Record::Count(0));
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

    fn lasting_deadline(&self, serving: &Serving) -> Option<Instant> {
        let threshold = self.settings.lasting_threshold();
        serving
            .adopted
            .checked_add(threshold)
            .filter(|_| !serving.lasted)
    }

    /// R12.
    fn probe_if_due(&mut self, at: Moment) {
        let Phase::Serving(serving) = &mut self.phase else {
            return;
        };
        if !is_due(serving.probe.deadline(self.settings.probe_after), at.now) {
            return;
        }
        match serving.probe.fire(at.now) {
            Due::Ping(id) => {
                let ping = jsonrpc::request(id, method::PING, "{}");
                self.outbox
                    .send(serving.link.epoch, Class::Request, ping, Some(id));
            }
            Due::Lost => self.end_own(End::Liveness, at),
        }
    }

    fn probe_deadline(&self, serving: &Serving) -> Option<Instant> {
        serving.probe.deadline(self.settings.probe_after)
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

    fn down_deadline(&self) -> Option<Instant> {
        let away = match self.state() {
            State::Connecting | State::Waiting | State::Auth => self.enabled,
            State::Negotiating
            | State::Open
            | State::Halted
            | State::Refused
            | State::Disabled
            | State::Ended => false,
        };
        let due = self.away.checked_add(self.settings.down_after);
        due.filter(|_| away && !self.episode.is_open())
    }

    /// S3: the failure of an attempt of that number opens an episode, and so do refused credentials (R18).
    fn down_if_due(&mut self, attempt: Attempt, why: &str, at: Moment) {
        if attempt.0 >= self.settings.down_after_attempts || self.reconnect.is_refused() {
            self.open_episode(Some(self.epoch), attempt, why, at);
        }
    }

    fn open_episode(&mut self, epoch: Option<Epoch>, attempt: Attempt, why: &str, at: Moment) {
        let mcpl = self.is_mcpl();
        self.episode
            .open(epoch, attempt, why, mcpl, at.now, &mut self.outbox);
    }

    fn close_episode(&mut self, cause: ClearCause, now: Instant) {
        let (failed, mcpl) = (self.reconnect.failed(), self.is_mcpl());
        self.episode
            .close(None, cause, failed, mcpl, now, &mut self.outbox);
    }

    /// Reports a short end, now that nothing is left of its transport and no halt replaces it (R4, R10).
    fn report_end(&mut self, closing: &Closing, at: Moment) {
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
    fn halt(&mut self, attempt: Attempt, why: String, at: Moment) {
        self.tell_halt(attempt, &why, at);
        self.reason = Some(why);
        self.turn(Phase::Rest(State::Halted));
    }

    fn tell_halt(&mut self, attempt: Attempt, why: &str, at: Moment) {
        let halted = Decision::Halted {
            attempt: attempt.0,
            why: why.to_owned(),
        };
        self.outbox.decide(Some(self.epoch), halted);
        self.open_episode(Some(self.epoch), attempt, why, at);
    }

    fn tell_wait(&mut self, wait: Duration) {
        let attempt = self.reconnect.next().0;
        let waiting = Decision::Waiting { attempt, wait };
        self.outbox.decide(Some(self.epoch), waiting);
    }

    /// Ends the connection for a reason of the gateway's own.
    fn end_own(&mut self, end: End, at: Moment) {
        let stderr = self.phase.link_mut().map(|link| link.stderr.take());
        let stderr = stderr.unwrap_or_default();
        self.end(Loss { end, stderr }, None, at);
    }

    fn pong(&mut self, epoch: Epoch, ping: &Message) {
        if let Some(id) = ping.id() {
            let pong = jsonrpc::response(id.as_str(), "{}");
            self.outbox.send(epoch, Class::Response, pong, None);
        }
    }

    fn drop_message(&mut self, epoch: Epoch, reason: DropReason, message: &Message) {
        self.outbox
            .decide(Some(epoch), dropped(reason, message.method()));
    }

    fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        self.announce();
    }

    /// Tells the state, once where it changed, and what a host's call meets in it (A4).
    fn announce(&mut self) {
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
    fn state(&self) -> State {
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
                Next::Dial => State::Connecting,
                Next::Rest(state) => state,
            },
        }
    }

    /// The attempt that made the connection, runs, or comes next.
    fn attempt(&self) -> Attempt {
        self.phase
            .attempt()
            .unwrap_or_else(|| self.reconnect.next())
    }

    fn is_over(&self) -> bool {
        matches!(self.stopped, Some(Stop::Removed | Stop::Shutdown))
    }

    fn is_removed(&self) -> bool {
        self.stopped == Some(Stop::Removed)
    }

    /// Whether a request that could not be sent is traffic's, rather than `initialize` or a probe.
    fn is_for_traffic(&self, request: Option<u64>) -> bool {
        matches!(&self.phase, Phase::Serving(serving) if !serving.probe.is_answer(request))
    }

    /// As it told when it last served; before that, as it is configured: for the texts of S6.
    fn is_mcpl(&self) -> bool {
        let mask = &self.settings.mask;
        let configured = mask.channels.is_some() || mask.enabled_feature_sets.is_some();
        self.mcpl.unwrap_or(configured || !self.settings.launched)
    }

    fn revision(&self) -> Option<Revision> {
        match &self.phase {
            Phase::Serving(serving) => Some(serving.revision),
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Connecting(_) | Phase::Closing(_) => None,
        }
    }

    fn fill(&self, now: Instant, snapshot: &mut Snapshot) {
        snapshot.state = self.state();
        snapshot.epoch = self.epoch;
        snapshot.attempt = self.attempt().0;
        snapshot.failed_attempts = self.reconnect.failed();
        snapshot.down_after_attempts = self.settings.down_after_attempts;
        snapshot.lasting_threshold = self.settings.lasting_threshold();
        snapshot.since_lasted = self.lasted.map(|lasted| lasted.age(now));
        let ago = |then| now.saturating_duration_since(then);
        snapshot.since_healthy = self.healthy.map(ago);
        snapshot.episode = self.episode.view(now);
        snapshot.backoff = self.phase.wait().map(|wait| Backoff {
            wait: wait.wait,
            left: wait.until.saturating_duration_since(now),
        });
        snapshot.reason.clone_from(&self.reason);
        snapshot.revision = self.revision();
        snapshot.mcpl = self.mcpl.unwrap_or_default();
        if let Phase::Serving(serving) = &self.phase {
            snapshot.connected = true;
            snapshot.connection_age = ago(serving.adopted);
            snapshot.since_healthy = Some(Duration::ZERO);
        }
    }
}

fn named(deadline: Option<Instant>, timer: Timer) -> Option<(Instant, Timer)> {
    deadline.map(|deadline| (deadline, timer))
}

/// An end that the gateway was told to make: no failure (R14).
fn by_operator() -> Loss {
    Loss {
        end: End::Operator,
        stderr: Vec::new(),
    }
}

/// A wait that begins now. It is at most 24.8 days (R2), which every clock can say.
fn retry_in(wait: Duration, now: Instant) -> Next {
    let until = now.checked_add(wait).unwrap_or(now);
    Next::Retry(Wait { until, wait })
}

fn dropped(reason: DropReason, method: &str) -> Decision {
    Decision::Dropped {
        reason,
        method: method.to_owned(),
        count: 1,
    }
}

fn list(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    format!("processes {}", pids.join(", "))
}
