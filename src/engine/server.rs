//! One server's engine: when to dial, what an end counts for, when it is down and when that is over. It composes the
//! parts, which do not name each other, and owns every transition of the connection.

mod attempt;
mod connection;
mod due;
mod phase;
mod probe;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::phase::{Next, Phase, Report, Wait};
use super::decision::{ClearCause, Decision, State};
use super::episode::Episode;
use super::input::{End, Input, Loss, Moment, Operator, Outcome, Resumed, Stop};
use super::noise::Noise;
use super::outbox::Outbox;
use super::output::{Output, Record};
use super::reconnect::Reconnect;
use super::sessions::Sessions;
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::timers::{Past, Timer, earlier};
use super::traffic::Traffic;
use crate::ids::Epoch;

/// The engine of one server. See the module [`engine`](super) for its contract.
#[derive(Debug)]
pub struct Server {
    settings: Arc<Settings>,
    phase: Phase,
    reconnect: Reconnect,
    sessions: Sessions,
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
    /// The longest that it was, of the times that are over since a connection last lasted or nobody wanted it.
    was_away: Duration,
    /// When a connection last lasted.
    lasted: Option<Past>,
    /// When it was last disabled, or ended as asked.
    unwanted: Option<Past>,
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
            sessions: Sessions::default(),
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
            was_away: Duration::ZERO,
            lasted: None,
            unwanted: None,
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
            Input::Post(post) => self.traffic.post(&post, at, &mut self.outbox),
            Input::Stored(synced) => self.traffic.stored(synced, &mut self.outbox),
            Input::Allowance(bytes) => self.traffic.allow(bytes),
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
                earlier(
                    named(serving.probe.deadline(), Timer::Probe),
                    named(self.asking_deadline(serving), Timer::Probe),
                ),
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

    /// Bytes of all that is held, kept or with a host (G6).
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.traffic.queued_bytes()
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
    fn resume(&mut self, mut resumed: Resumed, now: Instant) {
        // In memory is the truth once there is one: enabling again keeps count and episode (R14).
        if std::mem::replace(&mut self.resumed, true) {
            return;
        }
        self.epoch = self.epoch.max(resumed.epoch);
        self.reconnect = Reconnect::resume(resumed.failed_attempts, resumed.forgiven_attempts);
        // A refusal may have opened one before.
        if !self.episode.is_open() {
            self.episode = Episode::resume(resumed.episode.take(), now);
        }
        self.lasted = resumed.since_lasted.map(|ago| Past::ago(now, ago));
        self.unwanted = resumed.since_unwanted.map(|ago| Past::ago(now, ago));
        let rest = |ago| self.settings.interval.saturating_sub(ago);
        let hold = resumed.since_launch.map(rest);
        self.hold = hold
            .filter(|_| resumed.failed_attempts > 0)
            .and_then(|rest| now.checked_add(rest));
        self.traffic.resume(resumed, now, &mut self.outbox);
    }

    fn start(&mut self, resumed: Resumed, at: Moment) {
        if self.enabled || self.is_over() {
            return;
        }
        self.resume(resumed, at.now);
        self.begin(at);
        self.down_if_past(at);
    }

    /// Connects a server at rest, or one whose last transport is not gone yet as soon as it is.
    fn begin(&mut self, at: Moment) {
        self.enabled = true;
        self.stopped = None;
        if !self.is_trying() {
            self.away = at.now;
        }
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
        (self.enabled, self.stopped) = (false, None);
        self.reason = Some(problem.clone());
        self.cease(State::Refused, at);
        let refused = Decision::Refused {
            problem: problem.clone(),
        };
        self.outbox.decide(None, refused);
        self.open_episode(None, self.reconnect.next(), &problem, at);
    }

    fn configure(&mut self, settings: Arc<Settings>, redial: bool, at: Moment) {
        if let Phase::Serving(serving) = &mut self.phase
            && settings.probe_after != self.settings.probe_after
        {
            serving.probe.retime(settings.probe_after, at.now);
        }
        // R10: any change of its configuration ends a halt, a usable one a refusal.
        let state = self.state();
        let freed =
            state == State::Refused || (state == State::Halted && *settings != *self.settings);
        self.settings = Arc::clone(&settings);
        self.traffic.configure(settings, at, &mut self.outbox);
        if freed && !self.is_over() {
            self.begin(at);
        } else if redial {
            self.restart(at);
        }
        self.down_if_past(at);
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
            Phase::Connecting(_) => self.abandon(by_us(), Next::Dial, at),
            Phase::Serving(_) => self.end(by_operator(), Some(Next::Dial), at),
        }
    }

    /// R14: the connection is judged broken.
    fn recycle(&mut self, at: Moment) {
        match &self.phase {
            Phase::Rest(_) | Phase::Waiting(_) | Phase::Closing(_) => {}
            Phase::Connecting(_) => self.fail_own(Outcome::Refused, &by_us(), at),
            Phase::Serving(_) => self.end_own(End::Recycle, at),
        }
    }

    /// R13.
    fn stop(&mut self, stop: Stop, at: Moment) {
        if self.is_over() {
            return;
        }
        self.enabled = false;
        let before = self.stopped.replace(stop);
        let served = matches!(self.phase, Phase::Serving(_));
        match stop {
            Stop::Disabled => {
                self.reason = None;
                self.cease(State::Disabled, at);
                if before != Some(stop) {
                    self.unwant(at.now);
                }
                self.close_episode(ClearCause::Disabled, at.now);
            }
            Stop::Removed => {
                self.reason = Some(REMOVED.into());
                self.cease(State::Disabled, at);
                if !served {
                    self.traffic.lose(self.epoch, true, at, &mut self.outbox);
                }
                self.traffic
                    .dismiss(GOING_AWAY, REMOVED, at, &mut self.outbox);
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
        match &mut self.phase {
            Phase::Rest(_) | Phase::Waiting(_) => self.turn(Phase::Rest(state)),
            Phase::Connecting(_) => self.abandon(by_us(), Next::Rest(state), at),
            Phase::Serving(_) => self.end(by_operator(), Some(Next::Rest(state)), at),
            Phase::Closing(closing) => {
                closing.next = Next::Rest(state);
                closing.report = Report::Told;
                self.announce();
            }
        }
    }
}

fn named(deadline: Option<Instant>, timer: Timer) -> Option<(Instant, Timer)> {
    deadline.map(|deadline| (deadline, timer))
}

/// RFC 6455 §7.4.1: what a host's session of a removed server closes with.
const GOING_AWAY: u16 = 1001;
/// What hosts of a removed server are told.
const REMOVED: &str = "the server was removed";

fn by_us() -> String {
    End::Operator.to_string()
}

/// An end that the gateway was told to make: no failure (R14).
fn by_operator() -> Loss {
    Loss {
        end: End::Operator,
        stderr: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
