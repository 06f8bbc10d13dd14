//! One server's history, drawn from a seed.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::engine::input::{End, HostEvent, Input, LinkEvent, Operator, Outcome, Reap, Stop};
use tidegate::engine::settings::Settings;
use tidegate::ids::SessionId;
use tidegate::wire::jsonrpc::Unreadable;

use crate::world::checker::Phase;
use crate::world::draw::Draw;
use crate::world::message::{incoming, maybe_request, notification, push, raw, register, request};
use crate::world::model::Model;
use crate::world::peer::{Fate, Peer, Receipt, bridge};
use crate::world::{Jitter, World, all, secs};

/// What can happen. A seed takes a subset of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    WaitShort,
    WaitLong,
    Lose,
    LoseAndTalk,
    ServerSays,
    ServerSaysNonsense,
    HostComesOrGoes,
    HostCalls,
    HostNarrows,
    Operator,
    Reload,
    StopAndStart,
    Reboot,
    Fate,
    Receipt,
    Peer,
}

const ACTIONS: [Action; 16] = [
    Action::WaitShort,
    Action::WaitLong,
    Action::Lose,
    Action::LoseAndTalk,
    Action::ServerSays,
    Action::ServerSaysNonsense,
    Action::HostComesOrGoes,
    Action::HostCalls,
    Action::HostNarrows,
    Action::Operator,
    Action::Reload,
    Action::StopAndStart,
    Action::Reboot,
    Action::Fate,
    Action::Receipt,
    Action::Peer,
];

/// A world, what drives it, and the next free numbers.
struct History {
    world: World,
    draw: Draw,
    next: u64,
    hosts: Vec<SessionId>,
}

/// Runs the history of a seed through so many epochs; its outputs are not kept.
pub fn run(seed: u64, epochs: u64) -> World {
    let mut history = History::new(seed);
    history.world.keeps_trace = false;
    history.play(epochs)
}

/// The same with its outputs.
pub fn run_traced(seed: u64, epochs: u64) -> World {
    History::new(seed).play(epochs)
}

impl History {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let settings = settings(&mut draw);
        let peer = if draw.one_in(4) {
            Peer::default()
        } else {
            Peer::bridge()
        };
        let mut world = World::with(settings.clone(), peer);
        world.jitter = Jitter::Seeded(seed);
        world.model = Some(Model::new(settings, world.now));
        Self {
            world,
            draw,
            next: 1,
            hosts: vec![],
        }
    }

    fn play(mut self, epochs: u64) -> World {
        let actions = self.subset();
        self.world.start();
        let limit = epochs * 200;
        for _ in 0..limit {
            if self.world.epoch().0 >= epochs {
                break;
            }
            let action = self.draw.pick(&actions);
            self.act(action);
            self.forget();
        }
        self.end();
        self.world
    }

    /// At least time and losses; of the rest each with one chance in two.
    fn subset(&mut self) -> Vec<Action> {
        let base = [Action::WaitShort, Action::Lose];
        let picked = |draw: &mut Draw, action| base.contains(&action) || draw.one_in(2);
        ACTIONS
            .into_iter()
            .filter(|action| picked(&mut self.draw, *action))
            .collect()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::WaitShort => self.wait(secs(10)),
            Action::WaitLong => self.wait(secs(7_200)),
            Action::Lose => self.lose(),
            Action::LoseAndTalk => self.lose_and_talk(),
            Action::ServerSays => self.server_says(),
            Action::ServerSaysNonsense => self.server_says_nonsense(),
            Action::HostComesOrGoes => self.host_comes_or_goes(),
            Action::HostCalls => self.host_calls(),
            Action::HostNarrows => self.host_narrows(),
            Action::Operator => self.operate(),
            Action::Reload => {
                let mut settings = Settings::clone(&self.world.settings);
                settings.down_after_attempts = 1 + self.draw.below(7);
                self.world.configure(settings, true);
            }
            Action::StopAndStart => self.stop_and_start(),
            Action::Reboot => self.reboot(),
            Action::Fate => self.fates(),
            Action::Receipt => self.receipt(),
            Action::Peer => self.peer(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// An odd number of milliseconds, so that it is the deadline of nothing that lasts round seconds.
    fn wait(&mut self, most: Duration) {
        let time = self.draw.between(Duration::ZERO, most);
        self.world.run_for(time * 2 + Duration::from_millis(1));
    }

    fn is_open(&self) -> bool {
        self.world.check.link(self.world.epoch()) == Some(Phase::Connected)
    }

    fn ending(&mut self) -> End {
        match self.draw.below(4) {
            0 => End::Exit(0),
            1 => End::Exit(7),
            2 => End::Signal(9),
            _ => End::Reset("reset".into()),
        }
    }

    fn lose(&mut self) {
        if self.world.snapshot().connected {
            let end = self.ending();
            self.world.lose(end);
        }
    }

    /// Late lines come between the loss and the end of the reader (G7).
    fn lose_and_talk(&mut self) {
        if !self.world.snapshot().connected {
            return;
        }
        let end = self.ending();
        let epoch = self.world.epoch();
        self.world.lose_but_not_gone(end);
        for _ in 0..self.draw.below(4) {
            if self.world.check.link(epoch) == Some(Phase::Lost) {
                let said = self.server_message();
                self.world.says_on(epoch, &said);
            }
        }
        if self.world.check.link(epoch) == Some(Phase::Lost) {
            let gone = self.world.peer.gone();
            self.world.link_on(epoch, gone);
        }
    }

    fn server_message(&mut self) -> Value {
        let n = self.number();
        let id = (!self.draw.one_in(3)).then_some(n);
        match self.draw.below(8) {
            0..=2 => push(id, n),
            3..=4 => incoming(id, n, self.draw.pick(&["one", "two"])),
            5 => register(n, self.draw.pick(&["one", "two"])),
            6 => maybe_request(id, "x/thing", json!({"n": n})),
            _ => request(
                n,
                self.draw.pick(&["ping", "roots/list", "scope/elevate"]),
                json!({}),
            ),
        }
    }

    fn server_says(&mut self) {
        for _ in 0..=self.draw.below(4) {
            if self.is_open() {
                let said = self.server_message();
                let epoch = self.world.epoch();
                self.world.says_on(epoch, &said);
            }
        }
    }

    fn server_says_nonsense(&mut self) {
        if !self.is_open() {
            return;
        }
        let epoch = self.world.epoch();
        let id = self.draw.below(self.next);
        let event = match self.draw.below(7) {
            0 => LinkEvent::Unreadable {
                what: Unreadable::Batch(Vec::new()),
                sample: "[".into(),
            },
            1 => LinkEvent::Unreadable {
                what: Unreadable::NotJson,
                sample: "hello".into(),
            },
            2 => LinkEvent::Received(raw(&format!(
                r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#
            ))),
            3 => LinkEvent::Received(raw(&format!(
                r#"{{"jsonrpc":"2.0","id":9{id}77,"error":{{}}}}"#
            ))),
            4 => LinkEvent::Received(raw(&notification(
                "notifications/cancelled",
                json!({"requestId": id}),
            )
            .to_string())),
            5 => LinkEvent::Received(raw(&notification(
                "notifications/tools/list_changed",
                json!({}),
            )
            .to_string())),
            _ => LinkEvent::Stderr("warning".into()),
        };
        self.world.link_on(epoch, event);
    }

    fn host_comes_or_goes(&mut self) {
        if self.hosts.is_empty() || self.draw.one_in(3) {
            let session = self.number();
            let id = match self.draw.below(4) {
                0 => self.world.attach(session, json!({})),
                1 => self
                    .world
                    .attach(session, json!({"experimental": {"mcpl": bridge()}})),
                _ => self.world.attach_host(session),
            };
            self.world.hosts.get_mut(&id).unwrap().answers = !self.draw.one_in(4);
            self.hosts.push(id);
        } else {
            let id = self
                .hosts
                .swap_remove(self.draw.below(self.hosts.len() as u64) as usize);
            self.detach(id);
        }
    }

    fn detach(&mut self, id: SessionId) {
        if self.world.hosts.get(&id).is_some_and(|host| host.attached) {
            self.world.detach(id);
        }
    }

    fn a_host(&mut self) -> Option<SessionId> {
        if self.hosts.is_empty() {
            return None;
        }
        let id = self.draw.pick(&self.hosts);
        self.world
            .hosts
            .get(&id)
            .is_some_and(|host| host.attached)
            .then_some(id)
    }

    fn host_calls(&mut self) {
        let Some(host) = self.a_host() else { return };
        let n = self.number();
        let said = match self.draw.below(6) {
            0..=2 => request(n, "tools/call", json!({"name": "echo"})),
            3 => request(1, "tools/call", json!({"name": "same id"})),
            4 => request(
                n,
                self.draw
                    .pick(&["ping", "tools/list", "x/ask", "resources/read"]),
                json!({}),
            ),
            _ => notification(
                "notifications/cancelled",
                json!({"requestId": self.draw.below(n)}),
            ),
        };
        self.world.host_says(host, &said);
    }

    fn host_narrows(&mut self) {
        let Some(host) = self.a_host() else { return };
        let n = self.number();
        let paths: Vec<_> = all().into_iter().filter(|_| !self.draw.one_in(3)).collect();
        let update = request(
            n,
            "featureSets/update",
            json!({"effectiveCapabilities": paths}),
        );
        self.world.host_says(host, &update);
    }

    fn operate(&mut self) {
        let operator = match self.draw.below(4) {
            0 => Operator::Restart,
            1 if self.world.snapshot().connected => Operator::Recycle,
            2 => Operator::Pause,
            _ => Operator::Resume,
        };
        self.world.operator(operator);
    }

    fn stop_and_start(&mut self) {
        self.world.stop(Stop::Disabled);
        self.wait(secs(3_600));
        let resumed = self.world.resumed();
        self.world.feed(Input::Start(resumed));
        self.world.settle();
    }

    /// What is kept in memory goes with the gateway, until there is a journal for it.
    fn reboot(&mut self) {
        self.hosts.clear();
        self.world.reboot();
    }

    fn fates(&mut self) {
        let life = self.draw.between(Duration::ZERO, secs(700)) + Duration::from_millis(1);
        let outcomes = [
            Outcome::Refused,
            Outcome::Timeout,
            Outcome::Auth,
            Outcome::Spawn,
        ];
        let fate = match self.draw.below(10) {
            0..=4 => Fate::Serve(Some(life)),
            5 => Fate::Fail(
                self.draw.pick(&outcomes),
                self.draw.one_in(3).then_some(life),
            ),
            6 => Fate::Hang,
            7 => Fate::Mute,
            8 => Fate::Reject,
            _ => Fate::Drop,
        };
        self.world.peer.fates.push_back(fate);
    }

    fn receipt(&mut self) {
        self.world.peer.receipt = match self.draw.below(6) {
            0 => Receipt::Silent,
            1 => Receipt::Error(-32601),
            2 => Receipt::Result(json!({"accepted": false, "fallback": "mcp-only"})),
            3 => Receipt::Result(json!({})),
            _ => Receipt::Accept,
        };
    }

    fn peer(&mut self) {
        let peer = &mut self.world.peer;
        match self.draw.below(5) {
            0 => peer.mcpl = None,
            1 => peer.mcpl = Some(bridge()),
            2 => peer.answers_calls = !peer.answers_calls,
            3 => peer.answers_lists = !peer.answers_lists,
            _ => peer.gone_after = self.draw.between(Duration::ZERO, secs(3)),
        }
    }

    /// Long runs keep nothing that they do not look at again.
    fn forget(&mut self) {
        if !self.world.keeps_trace {
            self.world.peer.received.clear();
            self.world
                .hosts
                .values_mut()
                .for_each(|host| host.told.clear());
            self.world.hosts.retain(|_, host| host.attached);
        }
    }

    /// Everything heals; then everybody must have got an answer, and every message must have gone somewhere.
    fn end(&mut self) {
        let peer = &mut self.world.peer;
        peer.fates.clear();
        peer.fate = Fate::Serve(None);
        peer.receipt = Receipt::Accept;
        peer.reap = Reap::Clean;
        (peer.answers_calls, peer.answers_lists) = (true, true);
        for host in std::mem::take(&mut self.hosts) {
            self.detach(host);
        }
        self.world.operator(Operator::Restart);
        self.world.operator(Operator::Resume);
        self.world.run_for(secs(60));
        let last = self.number();
        let host = self.world.attach_host(last);
        self.world.run_for(secs(7_201));
        let view = self.world.snapshot();
        assert!(
            view.connected && view.episode.is_none(),
            "a healthy server is clear"
        );
        let owed = self.world.check.unanswered_requests(self.world.epoch());
        assert!(owed.is_empty(), "A3: {owed:?}");
        let calls = self.world.check.unanswered_calls();
        assert!(calls.is_empty(), "A4: {calls:?}");
        assert_eq!(
            view.held.requests + view.held.notifications,
            0,
            "nothing is held"
        );
        self.world.check.conserved(self.world.waiting());
        self.world.host(host, HostEvent::Detached);
    }
}

fn settings(draw: &mut Draw) -> Settings {
    let mut settings = Settings {
        interval: draw.between(Duration::from_millis(1), secs(10)) + Duration::from_millis(1),
        max_interval: draw.pick(&[secs(30), secs(300), secs(7_200), Duration::MAX]),
        launched: draw.one_in(2),
        down_after_attempts: 1 + draw.below(7),
        grant_without_receipt: draw.one_in(4),
        ..Settings::default()
    };
    if draw.one_in(2) {
        let few = 1 + draw.below(6) as usize;
        settings.bounds.held_requests = few;
        settings.bounds.held_notifications = few;
        settings.bounds.kept_requests = few;
        settings.bounds.kept_notifications = few;
    }
    if draw.one_in(4) {
        settings.bounds.held_bytes = 2_000;
        settings.bounds.kept_bytes = 2_000;
    }
    settings
}
