//! The traffic of one server: what it and the hosts send each other, held, granted, forwarded and answered (G, P, A).
//! It composes the parts that do each; when a transport is dialed, lost or judged is decided elsewhere.

mod authority;
mod away;
mod clients;
mod delivery;
mod downstream;
mod endings;
mod exchange;
#[cfg(test)]
mod guards;
mod hooks;
mod itemised;
mod keeping;
#[cfg(test)]
mod limits;
mod lists;
mod manifest;
mod permits;
mod posts;
mod registrations;
#[cfg(test)]
mod rig;
mod setups;
mod upstream;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

pub(super) use self::away::Away;
use super::admission::Admitted;
use super::answers::{Asks, Calls};
use super::channels::Channels;
use super::decision::{Decision, DropReason, Hold};
use super::gate::Gate;
use super::grant::Narrowing;
use super::host::{Hosts, Session};
use super::input::{HostEvent, Moment, Resumed};
use super::inventory::Inventory;
use super::manifest::{Domains, Fetched, Refresh};
use super::outbox::Outbox;
use super::output::Record;
use super::peer::Peer;
use super::policy::Policy;
use super::queue::{Item, Waiting};
use super::settings::Settings;
use super::setup::Setup;
use super::snapshot::Snapshot;
use super::streams::Streams;
use super::timers::{Timer, earlier};
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{About, Message, Unreadable, code};
use crate::wire::mcp::Revision;

/// Something that only the owner of the connection can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// End it: its server refused the policy and asked for that (P4).
    End,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    settings: Arc<Settings>,
    serving: Option<Epoch>,
    closed_for_good: bool,
    peer: Option<Peer>,
    away: Away,
    gate: Gate,
    waiting: Waiting,
    admitted: Admitted,
    policy: Policy,
    narrowing: Option<Narrowing>,
    calls: Calls,
    asks: Asks,
    hosts: Hosts,
    inventory: Inventory,
    refresh: Refresh,
    fetched: Option<Fetched>,
    /// Where the manifest in force differs from the one that hosts know.
    news: Domains,
    setup: Setup,
    streams: Streams,
    channels: Channels,
    /// Replays of channels that the host has not judged yet (G13).
    replays: BTreeSet<(SessionId, u64)>,
    request: Option<Request>,
    tally: Tally,
}

/// What became of every message that was read from the server (Conservation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    read: u64,
    delivered: u64,
    refused: u64,
    duplicate: u64,
    dropped: u64,
}

impl Traffic {
    /// No transport serves yet, and nothing is known of the server.
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let mut traffic = Self::default();
        traffic.waiting.limit_age(settings.kept_max_age);
        traffic.waiting.accept_after(settings.accept_after);
        traffic.settings = settings;
        traffic
    }

    /// Takes over what the state directory remembers. Before the first transport.
    pub(super) fn resume(&mut self, resumed: Resumed, now: Instant, out: &mut Outbox) {
        if resumed.paused {
            self.gate.resume(Hold::Pause);
        }
        let narrowing = resumed.narrowing;
        self.narrowing = narrowing.and_then(|params| Narrowing::read(&params));
        if resumed.durable {
            self.waiting.store_from_now_on();
        }
        self.restore(&resumed.kept, now, out);
        self.finish(out);
    }

    /// Other settings hold from now on; a changed mask is negotiated (P3).
    pub(super) fn configure(&mut self, settings: Arc<Settings>, at: Moment, out: &mut Outbox) {
        let old = std::mem::replace(&mut self.settings, settings);
        self.waiting.limit_age(self.settings.kept_max_age);
        self.waiting.accept_after(self.settings.accept_after);
        if old.mask != self.settings.mask {
            self.remask(out);
            self.renegotiate(at, out);
        }
        self.finish(out);
    }

    /// The handshake of `epoch` is done and `notifications/initialized` sent: its transport serves.
    pub(super) fn adopt(&mut self, epoch: Epoch, peer: Peer, at: Moment, out: &mut Outbox) {
        self.serving = Some(epoch);
        self.closed_for_good = false;
        let mcpl = peer.is_mcpl();
        self.compare_manifest(peer.manifest());
        self.peer = Some(peer);
        if mcpl {
            self.gate.hold(Hold::Policy, at.now);
            self.policy.open(self.offer());
            self.hold_for_host(at, out);
            self.exchange(at, out);
        } else {
            self.policy.open_without();
            self.gate.lift(Hold::NoHost, at.now);
            self.settle(at, out);
        }
        self.finish(out);
    }

    /// A message of `epoch`.
    pub(super) fn receive(&mut self, epoch: Epoch, message: Message, at: Moment, out: &mut Outbox) {
        self.receive_within(epoch, message, None, at, out);
    }

    /// The same of one that belongs to a call, by the gateway's id.
    pub(super) fn receive_within(
        &mut self,
        epoch: Epoch,
        message: Message,
        during: Option<u64>,
        at: Moment,
        out: &mut Outbox,
    ) {
        if self.serving == Some(epoch) {
            self.tally.read += 1;
            self.take_of_server(epoch, message, during, at, out);
        } else {
            self.take_late(epoch, message, at, out);
        }
        self.finish(out);
    }

    /// Something of `epoch` that is no message: a request is refused, an answer ends its call, and other things drop.
    pub(super) fn unreadable(
        &mut self,
        epoch: Epoch,
        what: &Unreadable,
        at: Moment,
        out: &mut Outbox,
    ) {
        self.tally.read += 1;
        match (what, what.about()) {
            (_, Some(About::Answer(id))) => {
                self.drop_read(DropReason::Unreadable, "", 1, out);
                let ours = id.as_ours().filter(|_| self.serving == Some(epoch));
                self.end_unreadable(ours, what, at, out);
            }
            (Unreadable::NotJson | Unreadable::TooLong { .. }, None) => {
                self.drop_read(DropReason::Unreadable, "", 1, out);
            }
            _ => {
                self.answer_server(epoch, what.answer(), out);
                self.tally.refused += 1;
                let (code, method) = (code::INVALID_REQUEST, String::new());
                out.decide(self.serving, Decision::RefusedMessage { code, method });
            }
        }
        self.finish(out);
    }

    /// A frame for `epoch` was not written: its outbound queue was full. `request` is our id of the request in it.
    pub(super) fn unsent(
        &mut self,
        epoch: Epoch,
        request: Option<u64>,
        frame: Bytes,
        at: Moment,
        out: &mut Outbox,
    ) {
        self.unsend(epoch, request, frame, at, out);
        self.finish(out);
    }

    /// A message of `epoch`, read after its transport's loss (G7).
    pub(super) fn late(&mut self, epoch: Epoch, message: Message, at: Moment, out: &mut Outbox) {
        self.take_late(epoch, message, at, out);
        self.finish(out);
    }

    /// The transport of `epoch` is gone; `for_good` when no other will follow (G5).
    pub(super) fn lose(&mut self, epoch: Epoch, for_good: bool, at: Moment, out: &mut Outbox) {
        if self.serving == Some(epoch) {
            self.serving = None;
            self.gate.hold(Hold::Policy, at.now);
            self.end_exchange(epoch, at, out);
            self.end_calls(at, out);
            self.end_asks(out);
            self.inventory.lose();
            self.refresh = Refresh::default();
            self.fetched = None;
            self.setup.forget();
            self.channels.forget();
            self.replays.clear();
            self.gate.lift(Hold::ListRefresh, at.now);
        } else if self.serving.is_some() {
            return;
        }
        self.closed_for_good = for_good;
        self.cross(for_good, out);
        self.finish(out);
    }

    /// The serving epoch has lasted (R5): its server has registered what it registers (G9).
    pub(super) fn last(&mut self, at: Moment, out: &mut Outbox) {
        self.drop_gone(at, out);
        self.finish(out);
    }

    /// What a host is told while no transport serves (A4).
    pub(super) fn set_away(&mut self, away: Away) {
        self.away = away;
    }

    /// Something happened to a host's session.
    pub(super) fn host(
        &mut self,
        session: SessionId,
        event: HostEvent,
        at: Moment,
        out: &mut Outbox,
    ) {
        match event {
            HostEvent::Attached { name } => {
                // A session that is told to come twice begins anew.
                self.detach(session, at, out);
                self.hosts.attach(session, name);
                out.decide(None, Decision::HostAttached);
            }
            HostEvent::Received(message) => self.take_of_host(session, &message, at, out),
            HostEvent::Unreadable(what) => self.take_unreadable_of_host(session, &what, at, out),
            HostEvent::Missed(count) => self.say_dropped(DropReason::NoReceiver, "", count, out),
            HostEvent::Detached => self.detach(session, at, out),
        }
        self.finish(out);
    }

    /// A batch is as good as its messages one by one, each answered by itself, where the revision has batches (A2).
    fn take_unreadable_of_host(
        &mut self,
        session: SessionId,
        what: &Unreadable,
        at: Moment,
        out: &mut Outbox,
    ) {
        let has_batches = self.hosts.get(session).is_some_and(Session::has_batches);
        let messages = match what {
            Unreadable::Batch(messages) if has_batches => messages.as_slice(),
            Unreadable::Batch(_)
            | Unreadable::NotJson
            | Unreadable::TooDeep { .. }
            | Unreadable::TooLong { .. }
            | Unreadable::Invalid { .. } => return out.answer(session, what.answer()),
        };
        for message in messages {
            match Message::parse(message.clone()) {
                Ok(message) => self.take_of_host(session, &message, at, out),
                Err(what) => out.answer(session, what.answer()),
            }
        }
    }

    /// Whether what the server sends may be batches.
    pub(super) fn has_batches(&self) -> bool {
        let revision = self.peer.as_ref().map(Peer::revision);
        self.serving.is_some() && revision.is_some_and(Revision::has_batches)
    }

    /// The operator's pause begins or ends (G3). Decides and records it.
    pub(super) fn pause(&mut self, on: bool, at: Moment, out: &mut Outbox) {
        if self.gate.is_held(Hold::Pause) == on {
            return;
        }
        out.decide(self.serving, Decision::Paused(on));
        out.record(Record::Paused(on));
        if on {
            self.gate.hold(Hold::Pause, at.now);
        } else {
            self.lift(Hold::Pause, at, out);
        }
        self.finish(out);
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, at: Moment, out: &mut Outbox) {
        while let Some((id, call)) = self.calls.expire(at.now) {
            self.time_out(id, call, at, out);
        }
        while let Some(item) = self.waiting.expire(at.now) {
            self.expire_item(&item, out);
        }
        while let Some((session, id)) = self.asks.expire(at.now) {
            self.judge_for_host(session, id, at, out);
        }
        self.fetch_manifest(at, out);
        while let Some(session) = self.hosts.expire(at.now) {
            self.serve_host(session, true, at, out);
        }
        self.finish(out);
    }

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let host = self.hosts.next().map(|at| (at, Timer::HostPolicy));
        let ask = self.asks.next().map(|at| (at, Timer::Registration));
        let waiting = earlier(self.waiting.next(), self.calls.next());
        let manifest = self.refresh.next().map(|at| (at, Timer::Manifest));
        earlier(waiting, earlier(host, earlier(ask, manifest)))
    }

    /// What only the owner can do, once.
    pub(super) fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// Whether the serving epoch's first exchange has settled, or it needs none.
    pub(super) fn is_settled(&self) -> bool {
        self.serving.is_some() && self.policy.is_settled()
    }

    /// Fills in what this part knows.
    pub(super) fn fill(&self, now: Instant, snapshot: &mut Snapshot) {
        let (held, kept) = self.waiting.views(now, &self.settings.bounds);
        let peer = self.peer.as_ref();
        snapshot.revision = peer.filter(|_| self.serving.is_some()).map(Peer::revision);
        snapshot.mcpl = peer.is_some_and(Peer::is_mcpl);
        snapshot.granted = self.policy.granted().paths().collect();
        snapshot.held = held;
        snapshot.kept = kept;
        snapshot.queued_bytes = self.queued_bytes();
        snapshot.kept_max_age = self.settings.kept_max_age;
        snapshot.holds = self.gate.holds();
        snapshot.channels = self.channels.len();
        snapshot.in_flight = self.calls.len() + self.asks.len();
        snapshot.sessions = self.hosts.len();
        snapshot.host_serves = self.hosts.serving().is_some();
        snapshot.paused = self.gate.is_held(Hold::Pause);
    }

    /// Read = delivered + held + kept + refused + answered as duplicate + dropped; what is with a host counts as held.
    pub(super) fn conserved(&self) -> bool {
        let tally = &self.tally;
        let ended = tally.delivered + tally.refused + tally.duplicate + tally.dropped;
        u64::try_from(self.waiting.len()).is_ok_and(|waiting| tally.read == ended + waiting)
    }

    /// Ends the handling of an input: accepts what is to be accepted, and has the state directory told.
    fn finish(&mut self, out: &mut Outbox) {
        self.accept_overdue(out);
        for record in self.waiting.take_records() {
            out.record(record);
        }
        debug_assert!(self.conserved(), "{:?} {}", self.tally, self.waiting.len());
    }

    /// It may hold and keep so many bytes, from now on (G6).
    pub(super) fn allow(&mut self, bytes: usize) {
        self.waiting.allow(bytes);
    }

    /// Bytes of all that is held, kept or with a host.
    pub(super) fn queued_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// Drops messages that were read from the server.
    fn drop_read(&mut self, reason: DropReason, method: &str, count: u64, out: &mut Outbox) {
        self.tally.dropped += count;
        self.say_dropped(reason, method, count, out);
    }

    /// As `drop_items`, each for a reason of its own.
    fn drop_each(&mut self, items: &[(DropReason, Item)], out: &mut Outbox) {
        for (reason, item) in items {
            self.drop_read(*reason, item.message.method(), 1, out);
        }
    }

    fn drop_items(&mut self, reason: DropReason, items: &[Item], out: &mut Outbox) {
        for item in items {
            self.drop_read(reason, item.message.method(), 1, out);
        }
    }

    /// Tells of messages that were dropped; those of hosts are in no tally.
    fn say_dropped(&self, reason: DropReason, method: &str, count: u64, out: &mut Outbox) {
        let method = method.into();
        let dropped = Decision::Dropped {
            reason,
            method,
            count,
        };
        out.decide(self.serving, dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rig::{CHAT, PLAIN, Rig, field};
    use super::*;
    use crate::engine::settings::Bounds;

    #[test]
    fn a2_ids_of_any_form_come_back_as_received_to_two_sessions_that_use_the_same() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig.client(2, "{}");
        for id in ["\"\"", "0", "1.5", "1180591620717411303424"] {
            for session in [1, 2] {
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"s{session}"}}}}"#
                );
                rig.host(session, &call);
            }
            let sent = rig.take_sent();
            let ours: Vec<u64> = sent
                .iter()
                .map(|line| field(line, "id").as_u64().unwrap())
                .collect();
            assert_ne!(ours[0], ours[1]);
            for id in ours.iter().rev() {
                rig.server(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":{id}}}}}"#
                ));
            }
            for (session, ours) in [1, 2].into_iter().zip(ours) {
                let wanted = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":{ours}}}}}"#);
                assert_eq!(rig.take_answers(session), [wanted]);
            }
        }
    }

    /// A small generator of numbers, so that a history can be told again by its seed.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % sides
        }

        fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
            all[usize::try_from(self.roll(all.len() as u64)).unwrap()]
        }
    }

    const METHODS: [&str; 16] = [
        "push/event",
        "channels/incoming",
        "channels/register",
        "channels/changed",
        "channels/list",
        "inference/request",
        "x/unknown",
        "ping",
        "roots/list",
        "sampling/createMessage",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/message",
        "notifications/tools/list_changed",
        "host/command",
        "scope/elevate",
    ];
    const ASKED: [&str; 9] = [
        "tools/call",
        "tools/list",
        "featureSets/update",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "notifications/cancelled",
        "notifications/progress",
        "channels/publish",
    ];
    const PARAMS: [&str; 10] = [
        "{}",
        "[]",
        r#"{"eventId":"1"}"#,
        r#"{"messages":[{"channelId":"a","messageId":"1"}]}"#,
        r#"{"channels":[{"id":"a"},{"id":"b"},{}],"added":[{"id":"c"}],"removed":["a",5]}"#,
        r#"{"requestId":1,"progressToken":1,"_meta":{"progressToken":"p"}}"#,
        r#"{"requestId":2,"progressToken":2,"level":"info","uri":"u"}"#,
        r#"{"level":"debug","uri":"v","name":"t"}"#,
        r#"{"effectiveCapabilities":["pushEvents"]}"#,
        r#"{"effectiveCapabilities":["*","channels.*"]}"#,
    ];
    const RESULTS: [&str; 6] = [
        r#""result":{}"#,
        r#""result":{"accepted":true}"#,
        r#""result":{"accepted":false,"fallback":"mcp-only"}"#,
        r#""result":{"tools":[{"name":"a"}],"nextCursor":"c"}"#,
        r#""result":{"tools":[],"resources":[],"registered":["a"],"state":1}"#,
        r#""error":{"code":-32601,"message":"m"}"#,
    ];

    /// Something that a peer may write: a request, a notification or a response, fitting or not.
    fn line(dice: &mut Dice, methods: &[&str]) -> String {
        let id = dice.roll(8);
        match dice.roll(4) {
            0 => format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, dice.pick(&RESULTS)),
            kind => {
                let (method, params) = (dice.pick(methods), dice.pick(&PARAMS));
                let id = if kind == 1 {
                    String::new()
                } else {
                    format!(r#""id":{id},"#)
                };
                format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#)
            }
        }
    }

    fn history(seed: u64) {
        let mut dice = Dice(seed);
        let mut rig = Rig::with(Settings {
            bounds: Bounds {
                held_requests: 5,
                held_notifications: 3,
                kept_requests: 4,
                kept_notifications: 2,
                channels: 3,
                in_flight: 6,
                ..Bounds::default()
            },
            replace_host: seed.is_multiple_of(2),
            accept_after: Duration::from_secs(5),
            ..Settings::default()
        });
        if seed.is_multiple_of(3) {
            rig.resume(Vec::new());
        }
        for _ in 0..400 {
            let serving = rig.traffic.serving.is_some();
            let session = 1 + dice.roll(3);
            match dice.roll(15) {
                0 if !serving => rig.adopt(dice.pick(&[PLAIN, CHAT])),
                0 => rig.lose_with(dice.roll(8) == 0),
                1 => rig.late(1, &line(&mut dice, &METHODS)),
                2 => rig.client(
                    session,
                    dice.pick(&["{}", r#"{"experimental":{"mcpl":{}}}"#]),
                ),
                3 => rig.event(session, HostEvent::Detached),
                4 => rig.wait(Duration::from_secs(dice.roll(20))),
                5 => rig.run(|traffic, at, out| traffic.pause(session == 1, at, out)),
                6 => rig.run(Traffic::last),
                7 => rig.stored(dice.roll(100), dice.roll(4) == 0),
                8..=10 => rig.host(session, &line(&mut dice, &ASKED)),
                _ if serving => rig.server(&line(&mut dice, &METHODS)),
                _ => {}
            }
            let bounds = rig.traffic.settings.bounds;
            let (held, kept) = rig.traffic.waiting.views(rig.now, &bounds);
            assert!(held.requests <= 5 + 256 && held.notifications <= 3 + 256);
            assert!(kept.requests <= 4 && kept.notifications <= 2);
            assert!(rig.traffic.serving.is_some() || rig.traffic.policy.granted().is_empty());
        }
    }

    #[test]
    fn conservation_holds_at_every_step_of_random_histories() {
        (0..200).for_each(history);
    }
}
