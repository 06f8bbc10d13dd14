//! A simulated world around one engine: a clock that jumps from deadline to deadline, a scripted server, fake hosts,
//! and checks that look at every input and output. Used by `tests/engine` and `tests/sim`.
#![allow(dead_code, reason = "each test binary uses its part of the world")]

pub mod checker;
pub mod draw;
pub mod host;
pub mod message;
pub mod model;
pub mod peer;
mod seen;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::engine::Server;
use tidegate::engine::input::{
    End, HostEvent, Input, LinkEvent, Moment, OpenEpisode, Operator, Resumed, Stop,
};
use tidegate::engine::output::{Output, Record};
use tidegate::engine::settings::Settings;
use tidegate::engine::timers::Timer;
use tidegate::ids::{Epoch, SessionId};

use checker::{Checker, Phase};
use host::Host;
use message::{message, notification, request};
use model::Model;
use peer::Peer;

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Milliseconds as whole seconds.
pub fn in_seconds(waits: &[u128]) -> Vec<u128> {
    waits.iter().map(|wait| wait / 1000).collect()
}

/// How the draws for waits are made.
#[derive(Clone, Copy, Debug)]
pub enum Jitter {
    Fixed(f64),
    Seeded(u64),
}

/// What the state directory of this world remembers, with the instants that the driver would add.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub epoch: Epoch,
    pub count: u64,
    pub launched: Option<Instant>,
    pub lasted: Option<Instant>,
    pub unwanted: Option<Instant>,
    pub forgiven: u64,
    pub episode: Option<(Instant, u64, String)>,
    pub paused: bool,
    pub narrowing: Option<String>,
    pub forgotten: bool,
}

/// One engine and all that is around it.
pub struct World {
    pub server: Server,
    pub settings: Arc<Settings>,
    pub now: Instant,
    pub start: Instant,
    pub jitter: Jitter,
    pub peer: Peer,
    pub hosts: BTreeMap<SessionId, Host>,
    /// Every output, with when it came.
    pub trace: Vec<(Duration, Output)>,
    pub check: Checker,
    pub disk: Disk,
    /// Compared after every instant where it is there.
    pub model: Option<Model>,
    pub inputs: u64,
    agenda: BTreeMap<(Instant, u64), Input>,
    scheduled: u64,
    /// The whole trace is kept, and not only its end.
    pub keeps_trace: bool,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, Peer::default())
    }

    pub fn with(settings: Settings, peer: Peer) -> Self {
        let start = Instant::now();
        let settings = Arc::new(settings);
        Self {
            server: Server::new(settings.clone(), start),
            check: Checker::new(&settings),
            settings,
            now: start,
            start,
            jitter: Jitter::Fixed(0.0),
            peer,
            hosts: BTreeMap::new(),
            trace: vec![],
            disk: Disk::default(),
            model: None,
            inputs: 0,
            agenda: BTreeMap::new(),
            scheduled: 0,
            keeps_trace: true,
        }
    }

    /// One whose server is being connected.
    pub fn started(settings: Settings, peer: Peer) -> Self {
        let mut world = Self::with(settings, peer);
        world.start();
        world
    }

    /// A started bridge with its first epoch adopted and settled.
    pub fn bridge() -> Self {
        Self::started(Settings::default(), Peer::bridge())
    }

    // What can happen.

    pub fn start(&mut self) {
        self.feed(Input::Start(Resumed::default()));
        self.settle();
    }

    pub fn start_with(&mut self, resumed: Resumed) {
        self.check.down = resumed.episode.is_some();
        self.disk.count = resumed.failed_attempts;
        self.disk.episode = resumed
            .episode
            .as_ref()
            .map(|open| (self.now, open.attempt, open.why.clone()));
        self.feed(Input::Start(resumed));
        self.settle();
    }

    /// The gateway ends without a word and is started again on its state directory.
    pub fn reboot(&mut self) {
        self.server = Server::new(self.settings.clone(), self.now);
        self.agenda.clear();
        self.check.forget_transports();
        self.hosts.clear();
        let resumed = self.resumed();
        self.check.resumed(&resumed);
        if let Some(model) = &mut self.model {
            model.rebooted(&resumed, self.now);
        }
        self.feed(Input::Start(resumed));
        self.settle();
    }

    /// What the state directory says.
    pub fn resumed(&self) -> Resumed {
        let ago = |at: Instant| self.now - at;
        Resumed {
            epoch: self.disk.epoch,
            failed_attempts: self.disk.count,
            since_launch: self.disk.launched.map(ago),
            since_lasted: self.disk.lasted.map(ago),
            since_unwanted: self.disk.unwanted.map(ago),
            forgiven_attempts: self.disk.forgiven,
            episode: self
                .disk
                .episode
                .as_ref()
                .map(|(at, attempt, why)| OpenEpisode {
                    since: ago(*at),
                    attempt: *attempt,
                    why: why.clone(),
                }),
            paused: self.disk.paused,
            narrowing: self.disk.narrowing.clone(),
            ..Resumed::default()
        }
    }

    pub fn operator(&mut self, operator: Operator) {
        self.feed(Input::Operator(operator));
        self.settle();
    }

    pub fn stop(&mut self, stop: Stop) {
        self.feed(Input::Stop(stop));
        self.settle();
    }

    pub fn configure(&mut self, settings: Settings, redial: bool) {
        self.settings = Arc::new(settings);
        let settings = self.settings.clone();
        self.feed(Input::Configure { settings, redial });
        self.settle();
    }

    pub fn link(&mut self, event: LinkEvent) {
        self.link_on(self.epoch(), event);
    }

    pub fn link_on(&mut self, epoch: Epoch, event: LinkEvent) {
        self.feed(Input::Link { epoch, event });
        self.settle();
    }

    /// The server says something.
    pub fn says(&mut self, value: &Value) {
        self.says_on(self.epoch(), value);
    }

    pub fn says_on(&mut self, epoch: Epoch, value: &Value) {
        self.link_on(epoch, LinkEvent::Received(message(value)));
    }

    /// The connection ends, and nothing of it is left.
    pub fn lose(&mut self, end: End) {
        let epoch = self.epoch();
        let (lost, gone) = (self.peer.lost(end), self.peer.gone());
        self.link_on(epoch, lost);
        if self.check.link(epoch) == Some(Phase::Lost) {
            self.link_on(epoch, gone);
        }
    }

    /// The connection ends; its reader lives on, so that late lines can follow.
    pub fn lose_but_not_gone(&mut self, end: End) {
        let before = std::mem::replace(&mut self.peer.gone_after, secs(86_400));
        let lost = self.peer.lost(end);
        self.link(lost);
        self.peer.gone_after = before;
    }

    /// A host that speaks MCPL attaches and goes all the way to serving.
    pub fn attach_host(&mut self, session: u64) -> SessionId {
        let id = self.attach(session, json!({"experimental": {"mcpl": peer::bridge()}}));
        let update = json!({"effectiveCapabilities": all(), "enabled": ["chat"]});
        self.host_says(id, &request("fs", "featureSets/update", update));
        id
    }

    /// A session up to `notifications/initialized`.
    pub fn attach(&mut self, session: u64, capabilities: Value) -> SessionId {
        let id = SessionId(session);
        self.hosts.insert(id, Host::new());
        let name = Some("agent".to_owned());
        self.host(id, HostEvent::Attached { name });
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "host", "version": "1"}});
        self.host_says(id, &request("init", "initialize", params));
        self.host_says(id, &notification("notifications/initialized", json!({})));
        id
    }

    pub fn host(&mut self, session: SessionId, event: HostEvent) {
        self.feed(Input::Host { session, event });
        self.settle();
    }

    pub fn host_says(&mut self, session: SessionId, value: &Value) {
        self.host(session, HostEvent::Received(message(value)));
    }

    pub fn detach(&mut self, session: SessionId) {
        self.hosts.get_mut(&session).unwrap().attached = false;
        self.host(session, HostEvent::Detached);
    }

    // Time.

    /// Everything that is due now.
    pub fn settle(&mut self) {
        self.run_until(self.now);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let scheduled = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.server.poll_timeout().map(|(at, _)| at);
            let Some(next) = scheduled.into_iter().chain(deadline).min() else {
                break;
            };
            if next > end {
                break;
            }
            if next > self.now {
                self.compare();
                self.advance_to(next);
            }
            if scheduled == Some(next) {
                let (_, input) = self.agenda.pop_first().unwrap();
                self.feed_if_possible(input);
            } else {
                self.time_out();
            }
        }
        self.compare();
        self.advance_to(end);
        self.compare();
    }

    fn advance_to(&mut self, to: Instant) {
        self.now = to;
        if let Some(model) = &mut self.model {
            model.advance(to);
        }
    }

    /// The next deadline, as a time from now.
    pub fn next_deadline(&self) -> Option<(Duration, Timer)> {
        self.server
            .poll_timeout()
            .map(|(at, timer)| (at.saturating_duration_since(self.now), timer))
    }

    /// Lets something happen later.
    pub fn later(&mut self, after: Duration, input: Input) {
        self.scheduled += 1;
        self.agenda
            .insert((self.now + after, self.scheduled), input);
    }

    // The engine.

    pub fn moment(&self) -> Moment {
        let jitter = match self.jitter {
            Jitter::Fixed(jitter) => jitter,
            Jitter::Seeded(seed) => draw::jitter_at(seed, self.now - self.start),
        };
        Moment {
            now: self.now,
            jitter,
        }
    }

    /// What a scheduled event says may no longer be so.
    fn feed_if_possible(&mut self, input: Input) {
        if let Input::Link { epoch, event } = &input {
            let phase = self.check.link(*epoch);
            let possible = match event {
                LinkEvent::Connected => phase == Some(Phase::Dialing),
                LinkEvent::Failed(_) => phase == Some(Phase::Dialing),
                LinkEvent::Lost(_) => matches!(phase, Some(Phase::Dialing | Phase::Connected)),
                LinkEvent::Gone(_) => phase == Some(Phase::Lost),
                _ => matches!(phase, Some(Phase::Connected | Phase::Lost)),
            };
            if !possible {
                return;
            }
        }
        self.feed(input);
    }

    /// One input, and what follows at once. The checks run; the scheduled events do not.
    pub fn feed(&mut self, input: Input) {
        self.inputs += 1;
        self.check.input(&input, self.now);
        let before = self.server.snapshot(self.now).granted;
        let moment = self.moment();
        if let Some(model) = &mut self.model {
            model.input(&input, moment);
        }
        self.server.handle_input(input, moment);
        self.drain(&before);
    }

    fn time_out(&mut self) {
        let before = self.server.snapshot(self.now).granted;
        let moment = self.moment();
        if let Some(model) = &mut self.model {
            model.timed_out(moment);
        }
        self.server.handle_timeout(moment);
        self.drain(&before);
    }

    fn drain(&mut self, before: &[&str]) {
        while let Some(output) = self.server.poll_output() {
            let after = self.server.snapshot(self.now).granted;
            let may = |path: &str| before.contains(&path) || after.contains(&path);
            self.trace.push((self.now - self.start, output.clone()));
            self.check.output(&output, self.now, &may);
            self.remember(&output);
            self.react(&output);
            if !self.keeps_trace && self.trace.len() > 1_000 {
                self.trace.drain(..500);
            }
        }
        if let Some((at, timer)) = self.server.poll_timeout() {
            assert!(
                at > self.now,
                "{timer:?} is due {:?} ago after a drain",
                self.now - at
            );
        }
        self.agrees_with_its_records();
    }

    /// What is recorded, what is told and what is shown are one truth (S1, S5).
    fn agrees_with_its_records(&self) {
        let view = self.server.snapshot(self.now);
        assert_eq!(
            view.episode.is_some(),
            self.check.down,
            "S1: shown and told episode"
        );
        if !self.disk.forgotten {
            assert_eq!(
                self.disk.episode.is_some(),
                self.check.down,
                "S5: recorded and told episode"
            );
            assert_eq!(
                self.disk.count, view.failed_attempts,
                "R1, S5: recorded and shown count"
            );
            assert_eq!(
                self.disk.count.saturating_sub(self.disk.forgiven),
                view.failed_since_unwanted,
                "S5: recorded and shown count since it was unwanted"
            );
        }
    }

    fn remember(&mut self, output: &Output) {
        let Output::Record(record) = output else {
            return;
        };
        match record {
            Record::Launched(epoch) => {
                self.disk.epoch = *epoch;
                self.disk.launched = Some(self.now);
            }
            Record::Count(count) => self.disk.count = *count,
            Record::Lasted => (self.disk.lasted, self.disk.forgiven) = (Some(self.now), 0),
            Record::Unwanted => {
                (self.disk.unwanted, self.disk.forgiven) = (Some(self.now), self.disk.count);
            }
            Record::Down { attempt, why } => {
                self.disk.episode = Some((self.now, *attempt, why.clone()));
            }
            Record::Clear => self.disk.episode = None,
            Record::Paused(paused) => self.disk.paused = *paused,
            Record::Narrowing(params) => self.disk.narrowing = Some(params.clone()),
            Record::Store { .. } | Record::Mark { .. } | Record::Discard { .. } => {
                panic!("there is no room for messages here: {record:?}")
            }
            Record::Forget => {
                self.disk = Disk {
                    epoch: self.disk.epoch,
                    forgotten: true,
                    ..Disk::default()
                };
            }
        }
    }

    fn react(&mut self, output: &Output) {
        match output {
            Output::Dial { epoch, attempt } => {
                if let Some(model) = &mut self.model {
                    model.dialed(attempt.0, self.now);
                }
                let events = self.peer.dialed();
                self.follow(*epoch, events);
            }
            Output::Close { epoch } => {
                let events = self.peer.closed();
                self.follow(*epoch, events);
            }
            Output::Send { epoch, frame, .. } => {
                let said = serde_json::from_slice(frame).unwrap();
                if let Some(model) = self
                    .model
                    .as_mut()
                    .filter(|_| checker::asks(&said, "initialize"))
                {
                    model.initialize = said["id"].clone();
                }
                let events = self.peer.heard(*epoch, &said);
                self.follow(*epoch, events);
            }
            Output::Answer { session, frame, .. } => self.tell(*session, frame),
            Output::Decided { decision, .. } => {
                if let Some(model) = &mut self.model {
                    model.decided(decision, self.now);
                }
            }
            Output::Dismiss { session, .. } => {
                let event = HostEvent::Detached;
                let session = *session;
                self.hosts.get_mut(&session).unwrap().attached = false;
                self.later(Duration::ZERO, Input::Host { session, event });
            }
            Output::Posted { .. } | Output::Record(_) => {}
        }
    }

    fn follow(&mut self, epoch: Epoch, events: Vec<(Duration, LinkEvent)>) {
        for (after, event) in events {
            self.later(after, Input::Link { epoch, event });
        }
    }

    fn tell(&mut self, session: SessionId, frame: &[u8]) {
        let said: Value = serde_json::from_slice(frame).unwrap();
        let host = self.hosts.get_mut(&session).expect("a known session");
        if !host.attached {
            return;
        }
        if let Some(answer) = host.heard(said) {
            let event = HostEvent::Received(message(&answer));
            self.later(Duration::ZERO, Input::Host { session, event });
        }
    }

    fn compare(&mut self) {
        if let Some(model) = &mut self.model {
            model.compare(&self.server.snapshot(self.now), self.now - self.start);
        }
    }
}

/// A run that fails says how it came to that.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.trace.len().saturating_sub(40);
            for (at, output) in &self.trace[last..] {
                let text = format!("{at:?} {output:?}");
                eprintln!("{}", text.chars().take(300).collect::<String>());
            }
        }
    }
}

/// Everything that can be granted.
pub fn all() -> Vec<&'static str> {
    tidegate::wire::mcpl::CAPABILITIES.to_vec()
}
