//! What must hold in every run, looked at with every input and output. It knows the rules and nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::engine::decision::{Decision, DropReason};
use tidegate::engine::input::{HostEvent, Input, LinkEvent, Resumed};
use tidegate::engine::output::{Output, Record};
use tidegate::engine::settings::{Settings, WAIT_MAX};
use tidegate::ids::{Epoch, SessionId};
use tidegate::wire::jsonrpc::{Kind, Message};
use tidegate::wire::mcpl;

use super::message::{is_request, method};

/// How far a transport is. The order is the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Dialing,
    Connected,
    Lost,
    Gone,
}

/// One transport as the world sees it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub phase: Phase,
    /// The engine has asked for its end.
    pub closed: bool,
}

/// A request that somebody waits on.
#[derive(Clone, Debug)]
pub struct Owed {
    pub method: String,
    pub open: u32,
    /// Its sender cancelled one: an answer is allowed and not owed.
    pub cancelled: bool,
}

/// Where gated messages of the server went.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub read: u64,
    pub delivered: u64,
    pub answered: u64,
    pub dropped: BTreeMap<DropReason, u64>,
}

/// The always-on checks.
#[derive(Debug, Default)]
pub struct Checker {
    pub links: BTreeMap<Epoch, Link>,
    last: Epoch,
    stopped: bool,
    pub down: bool,
    pub from_server: BTreeMap<(Epoch, String), Owed>,
    pub from_host: BTreeMap<(SessionId, String), Owed>,
    unreadable: BTreeMap<Epoch, u32>,
    unreadable_of_hosts: BTreeMap<SessionId, u32>,
    exchange: BTreeMap<Epoch, (u64, Instant)>,
    ids: BTreeMap<Epoch, BTreeSet<u64>>,
    delivered: BTreeSet<u64>,
    /// Requests of the server that were delivered, so that their answer is not counted as another fate.
    forwarded: BTreeSet<u64>,
    read: BTreeMap<(Epoch, String), u64>,
    /// World requests with a host that has not answered them. They wait again when it goes (G13).
    with_host: BTreeMap<(SessionId, String), u64>,
    /// Gated messages alone: world messages, registrations and unknown methods, each with its `n`.
    pub tally: Tally,
    pub edges: Vec<(Instant, bool)>,
    policy_timeout: Duration,
    pub threshold: Duration,
}

impl Checker {
    pub fn new(settings: &Settings) -> Self {
        Self {
            stopped: true,
            policy_timeout: settings.policy_timeout,
            threshold: settings.lasting_threshold(),
            ..Self::default()
        }
    }

    /// The gateway was started again on what its state directory remembers.
    pub fn resumed(&mut self, resumed: &Resumed) {
        self.last = self.last.max(resumed.epoch);
        assert_eq!(
            self.down,
            resumed.episode.is_some(),
            "S5: the episode as recorded is the episode as told"
        );
    }

    pub fn link(&self, epoch: Epoch) -> Option<Phase> {
        self.links.get(&epoch).map(|link| link.phase)
    }

    pub fn input(&mut self, input: &Input, now: Instant) {
        match input {
            Input::Start(resumed) => {
                self.stopped = false;
                self.last = self.last.max(resumed.epoch);
            }
            Input::Stop(_) => self.stopped = true,
            Input::Configure { settings, .. } => self.threshold = settings.lasting_threshold(),
            Input::Link { epoch, event } => self.link_event(*epoch, event, now),
            Input::Host { session, event } => self.host_event(*session, event),
            Input::Refuse { .. } => self.stopped = false,
            Input::Resume(_)
            | Input::Operator(_)
            | Input::Post(_)
            | Input::Stored(_)
            | Input::Allowance(_) => {}
        }
    }

    fn link_event(&mut self, epoch: Epoch, event: &LinkEvent, now: Instant) {
        let link = self.links.get_mut(&epoch).expect("a known transport");
        match event {
            LinkEvent::Connected => link.phase = Phase::Connected,
            LinkEvent::Failed(_) | LinkEvent::Lost(_) => link.phase = Phase::Lost,
            LinkEvent::Gone(_) => {
                link.phase = Phase::Gone;
                self.forget(epoch);
            }
            LinkEvent::Received(message) | LinkEvent::Asked { message, .. } => {
                self.read_from_server(epoch, message, now);
            }
            LinkEvent::Unreadable { .. } => *self.unreadable.entry(epoch).or_default() += 1,
            LinkEvent::Secrets(_) | LinkEvent::Unsent { .. } | LinkEvent::Stderr(_) => {}
        }
    }

    /// Nothing can be owed on a transport that is gone.
    fn forget(&mut self, epoch: Epoch) {
        self.links.retain(|of, _| *of >= epoch);
        self.from_server.retain(|(of, _), _| *of > epoch);
        self.read.retain(|(of, _), _| *of > epoch);
        self.unreadable.remove(&epoch);
        self.exchange.remove(&epoch);
        self.ids.remove(&epoch);
    }

    fn read_from_server(&mut self, epoch: Epoch, message: &Message, _now: Instant) {
        if is_gated(message) {
            self.tally.read += 1;
        }
        let serves = self.link(epoch) == Some(Phase::Connected);
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) if serves => {
                let key = (epoch, id.as_str().to_owned());
                if let Some(n) = number(message) {
                    self.read.insert(key.clone(), n);
                }
                owe(&mut self.from_server, key, message.method());
            }
            (Kind::Response, Some(id)) => self.exchange_answered(epoch, id.as_ours()),
            (Kind::Notification, _) if message.method() == "notifications/cancelled" => {
                cancel(&mut self.from_server, message, |id| (epoch, id));
            }
            _ => {}
        }
    }

    fn exchange_answered(&mut self, epoch: Epoch, id: Option<u64>) {
        if self.exchange.get(&epoch).map(|(id, _)| *id) == id {
            self.exchange.remove(&epoch);
        }
    }

    fn host_event(&mut self, session: SessionId, event: &HostEvent) {
        let message = match event {
            HostEvent::Received(message) => message,
            HostEvent::Unreadable(_) => {
                *self.unreadable_of_hosts.entry(session).or_default() += 1;
                return;
            }
            HostEvent::Detached => {
                self.from_host.retain(|(of, _), _| *of != session);
                self.take_back(session);
                return;
            }
            HostEvent::Attached { .. } | HostEvent::Missed(_) => return,
        };
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => {
                let key = (session, id.as_str().to_owned());
                owe(&mut self.from_host, key, message.method());
            }
            (Kind::Response, Some(id)) => {
                self.with_host.remove(&(session, id.as_str().to_owned()));
            }
            (Kind::Notification, _) if message.method() == "notifications/cancelled" => {
                cancel(&mut self.from_host, message, |id| (session, id));
            }
            _ => {}
        }
    }

    fn take_back(&mut self, session: SessionId) {
        let gone = self.with_host.extract_if(.., |(of, _), _| *of == session);
        for (_, n) in gone {
            self.forwarded.remove(&n);
            self.tally.delivered -= 1;
        }
    }

    pub fn output(&mut self, output: &Output, now: Instant, may: &dyn Fn(&str) -> bool) {
        match output {
            Output::Dial { epoch, .. } => self.dial(*epoch),
            Output::Close { epoch } => self.close(*epoch),
            Output::Send {
                epoch,
                frame,
                request,
                forwarded: _,
            } => self.sent(*epoch, &parse(frame), *request, now),
            Output::Answer { session, frame, .. } => self.answered(*session, &parse(frame), may),
            Output::Record(record) => self.record(record),
            Output::Decided { decision, .. } => self.decided(decision, now),
            Output::Posted { .. } | Output::Dismiss { .. } => {}
        }
    }

    fn dial(&mut self, epoch: Epoch) {
        assert!(!self.stopped, "R13: {epoch} is dialed after a stop");
        assert_eq!(epoch, self.last.next(), "epochs rise by one");
        let alive = self
            .links
            .iter()
            .find(|(_, link)| link.phase != Phase::Gone);
        assert!(
            alive.is_none(),
            "{epoch} is dialed while {alive:?} is not gone"
        );
        self.last = epoch;
        let link = Link {
            phase: Phase::Dialing,
            closed: false,
        };
        self.links.insert(epoch, link);
    }

    fn close(&mut self, epoch: Epoch) {
        let link = self.links.get_mut(&epoch).expect("closes what it dialed");
        assert!(
            link.phase != Phase::Gone,
            "{epoch} is closed after it is gone"
        );
        link.closed = true;
    }

    fn sent(&mut self, epoch: Epoch, message: &Message, request: Option<u64>, now: Instant) {
        let link = self.links.get(&epoch).expect("sends on what it dialed");
        assert_eq!(
            link.phase,
            Phase::Connected,
            "A1: sent on {epoch}: {message:?}"
        );
        assert!(!link.closed, "sent on {epoch} after its close: {message:?}");
        match message.kind() {
            Kind::Request => self.asked_server(epoch, message, request, now),
            Kind::Response => self.answered_server(epoch, message),
            Kind::Notification => assert_eq!(request, None, "a notification has no id"),
        }
    }

    fn asked_server(&mut self, epoch: Epoch, message: &Message, id: Option<u64>, now: Instant) {
        assert_eq!(
            message.our_id(),
            id,
            "A2: the id on the wire is the gateway's own"
        );
        let id = id.expect("A2: our ids are integers");
        assert!(
            self.ids.entry(epoch).or_default().insert(id),
            "A2: id {id} is used twice on {epoch}"
        );
        if message.method() == "featureSets/update" {
            let running = self.exchange.insert(epoch, (id, now));
            let over = running.is_none_or(|(_, since)| now - since >= self.policy_timeout);
            assert!(
                over,
                "P6: two exchanges at a time on {epoch}, the last {running:?}, now {now:?}"
            );
        }
    }

    fn answered_server(&mut self, epoch: Epoch, message: &Message) {
        let Some(id) = message.id() else {
            let owed = self.unreadable.entry(epoch).or_default();
            assert!(*owed > 0, "A3: an answer to nothing on {epoch}");
            *owed -= 1;
            return;
        };
        let key = (epoch, id.as_str().to_owned());
        match self.from_server.get_mut(&key).filter(|owed| owed.open > 0) {
            Some(owed) => owed.open -= 1,
            None => {
                let owed = self.unreadable.entry(epoch).or_default();
                assert!(
                    *owed > 0,
                    "A1, A3: {message:?} answers no open request of {epoch}"
                );
                *owed -= 1;
            }
        }
        if let Some(n) = self.read.get(&key)
            && !self.forwarded.contains(n)
        {
            self.tally.answered += 1;
        }
    }

    fn answered(&mut self, session: SessionId, message: &Message, may: &dyn Fn(&str) -> bool) {
        if message.kind() == Kind::Response {
            return self.answered_host(session, message);
        }
        let Some(n) = number(message) else { return };
        if is_gated(message) && self.forwarded.insert(n) {
            self.tally.delivered += 1;
        }
        if mcpl::is_world(message.method()) {
            if let Some(id) = message.id() {
                self.with_host.insert((session, id.as_str().to_owned()), n);
            }
            let again = message.param(&["_meta", "tidegate/redelivered"]).is_some();
            assert!(
                self.delivered.insert(n) || again,
                "message {n} is delivered twice without its mark"
            );
            let needs = mcpl::capability_of(message.method()).expect("a world message needs one");
            assert!(
                may(needs),
                "G11: message {n} is delivered without {needs} in the grant"
            );
        }
    }

    fn answered_host(&mut self, session: SessionId, message: &Message) {
        let id = message.id().map(|id| id.as_str().to_owned());
        let owed = id.and_then(|id| self.from_host.get_mut(&(session, id)));
        if let Some(owed) = owed.filter(|owed| owed.open > 0) {
            owed.open -= 1;
            return;
        }
        let unreadable = self.unreadable_of_hosts.entry(session).or_default();
        assert!(
            *unreadable > 0,
            "A4: {message:?} answers no open call of {session}"
        );
        *unreadable -= 1;
    }

    fn record(&mut self, record: &Record) {
        if let Record::Launched(epoch) = record {
            assert!(
                *epoch <= self.last.next(),
                "a launch of an epoch to come is recorded"
            );
        }
    }

    fn decided(&mut self, decision: &Decision, now: Instant) {
        match decision {
            Decision::Down { .. } => {
                assert!(!self.down, "S4: down twice");
                assert!(!self.stopped, "R13: down after a stop");
                self.down = true;
                self.edges.push((now, true));
            }
            Decision::Clear { .. } => {
                assert!(self.down, "S4: clear without a down");
                self.down = false;
                self.edges.push((now, false));
            }
            Decision::Waiting { wait, .. } => {
                assert!(*wait <= WAIT_MAX, "R2: a wait of {wait:?}");
                assert!(!self.stopped, "R13: a retry after a stop");
            }
            Decision::Lasted { lived } => {
                assert!(*lived >= self.threshold, "R5: {lived:?} is not lasting");
            }
            Decision::AttemptFailed { .. }
            | Decision::ShortEnd { .. }
            | Decision::Halted { .. } => {
                assert!(!self.stopped, "R13: {decision} after a stop");
            }
            Decision::Dropped {
                reason,
                method,
                count,
            } if is_gated_method(method) && is_fate_of_a_message(*reason) => {
                *self.tally.dropped.entry(*reason).or_default() += count;
            }
            _ => {}
        }
    }

    /// The gateway was killed; what it held in memory went with it.
    pub fn forget_transports(&mut self) {
        self.links.clear();
        self.from_server.clear();
        self.from_host.clear();
        self.with_host.clear();
        let tally = &mut self.tally;
        tally.read = tally.delivered + tally.answered + tally.dropped.values().sum::<u64>();
        self.exchange.clear();
        self.stopped = true;
    }

    /// The calls of attached hosts that nobody answered.
    pub fn unanswered_calls(&self) -> Vec<&(SessionId, String)> {
        unanswered(&self.from_host)
    }

    /// The requests of this epoch's server that nobody answered.
    pub fn unanswered_requests(&self, epoch: Epoch) -> Vec<(&String, &Owed)> {
        self.from_server
            .iter()
            .filter(|((of, _), owed)| *of == epoch && owed.open > 0 && !owed.cancelled)
            .map(|((_, id), owed)| (id, owed))
            .collect()
    }

    /// Conservation: what was read is delivered, answered, waiting or dropped with a reason.
    pub fn conserved(&self, waiting: u64) {
        let tally = &self.tally;
        let dropped: u64 = tally.dropped.values().sum();
        assert_eq!(
            tally.read,
            tally.delivered + tally.answered + waiting + dropped,
            "conservation: {tally:?}, {waiting} waiting"
        );
    }
}

fn owe<K: Ord>(owed: &mut BTreeMap<K, Owed>, key: K, method: &str) {
    let entry = owed.entry(key).or_insert(Owed {
        method: method.to_owned(),
        open: 0,
        cancelled: false,
    });
    entry.open += 1;
}

fn cancel<K: Ord>(owed: &mut BTreeMap<K, Owed>, message: &Message, key: impl Fn(String) -> K) {
    if let Some(span) = message.param(&["requestId"])
        && let Some(owed) = owed.get_mut(&key(message.text(&span).to_owned()))
    {
        owed.cancelled = true;
    }
}

fn unanswered<K: Ord>(owed: &BTreeMap<K, Owed>) -> Vec<&K> {
    let open = |owed: &Owed| owed.open > 0 && !owed.cancelled;
    owed.iter()
        .filter(|(_, owed)| open(owed))
        .map(|(key, _)| key)
        .collect()
}

fn parse(frame: &bytes::Bytes) -> Message {
    assert!(!frame.contains(&b'\n'), "a frame is one line");
    Message::parse(frame.clone()).expect("what the gateway writes is a message")
}

/// The `n` of a message that a test numbered.
fn number(message: &Message) -> Option<u64> {
    let span = message.param(&["n"])?;
    message.text(&span).parse().ok()
}

fn is_gated(message: &Message) -> bool {
    message.kind() != Kind::Response && is_gated_method(message.method())
}

/// A drop of an answer names the method that it answers, and is no fate of a message of the server.
fn is_fate_of_a_message(reason: DropReason) -> bool {
    !matches!(reason, DropReason::LateAnswer | DropReason::Unmatched)
}

/// The methods whose messages a run counts one by one.
fn is_gated_method(name: &str) -> bool {
    mcpl::is_world(name) || name.starts_with("x/")
}

/// Whether a value is a request of this method.
pub fn asks(value: &Value, name: &str) -> bool {
    is_request(value) && method(value) == name
}
