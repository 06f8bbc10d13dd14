//! Histories of one server on a simulated clock, held against the rules.

mod boundary;
mod guards;
mod handshake;
mod histories;
mod probes;
mod reconnect;
mod sessions;
mod signals;
mod stops;
mod thresholds;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::engine::input::{Failure, LinkEvent, OpenEpisode, Reap};
use crate::engine::settings::WAIT_MAX;
use crate::ids::Attempt;
use crate::wire::jsonrpc::{Message, Unreadable};
use crate::wire::redact::Secrets;

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
const DAY: Duration = Duration::from_secs(86_400);
/// What is told about failures and edges, as far as the count goes.
const REPORTS: [&str; 8] = [
    "attempt-failed",
    "short-end",
    "waiting",
    "lasted",
    "down",
    "clear",
    "halted",
    "refused",
];

/// A server, its clock, and what it has put out that nobody has looked at.
struct Sim {
    server: Server,
    now: Instant,
    jitter: f64,
    outputs: Vec<Output>,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn settings(change: impl FnOnce(&mut Settings)) -> Arc<Settings> {
    let mut settings = Settings::default();
    change(&mut settings);
    Arc::new(settings)
}

fn defaults() -> Arc<Settings> {
    settings(|_| {})
}

fn loss(end: End) -> Loss {
    Loss {
        end,
        stderr: Vec::new(),
    }
}

fn exit(code: i32) -> Loss {
    loss(End::Exit(code))
}

fn failure(outcome: Outcome) -> Failure {
    Failure {
        outcome,
        detail: format!("{} on purpose", outcome.label()),
        retry_after: None,
        stderr: Vec::new(),
    }
}

fn unreapable() -> Reap {
    Reap::Unreapable { pids: vec![7, 12] }
}

impl Sim {
    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn new(settings: Arc<Settings>) -> Self {
        let now = Instant::now();
        Self {
            server: Server::new(settings, now),
            now,
            jitter: 0.0,
            outputs: Vec::new(),
        }
    }

    fn started(settings: Arc<Settings>) -> Self {
        Self::resumed(settings, Resumed::default())
    }

    fn resumed(settings: Arc<Settings>, resumed: Resumed) -> Self {
        let mut sim = Self::new(settings);
        sim.input(Input::Start(resumed));
        sim
    }

    /// Started and connected.
    fn connected(settings: Arc<Settings>) -> Self {
        let mut sim = Self::started(settings);
        sim.connect();
        sim
    }

    fn at(&self) -> Moment {
        Moment {
            now: self.now,
            jitter: self.jitter,
        }
    }

    fn input(&mut self, input: Input) {
        self.server.handle_input(input, self.at());
        self.drain();
    }

    /// The contract: drained to `None`, and then the next deadline is later than now.
    fn drain(&mut self) {
        self.outputs
            .extend(std::iter::from_fn(|| self.server.poll_output()));
        let due = self.server.poll_timeout();
        assert!(due.is_none_or(|(when, _)| when > self.now), "{due:?}");
    }

    /// Lets time pass, with every deadline on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((when, _)) = self.server.poll_timeout().filter(|(when, _)| *when <= end) {
            self.now = when;
            self.server.handle_timeout(self.at());
            self.drain();
        }
        self.now = end;
    }

    fn link(&mut self, event: LinkEvent) {
        let epoch = self.server.epoch;
        self.input(Input::Link { epoch, event });
    }

    fn receive(&mut self, text: &str) {
        self.link(LinkEvent::Received(message(text)));
    }

    fn connect(&mut self) {
        self.link(LinkEvent::Connected);
        self.receive(ANSWER);
        assert!(self.view().connected);
    }

    fn lose(&mut self, loss: Loss) {
        self.link(LinkEvent::Lost(loss));
        self.link(LinkEvent::Gone(Reap::Clean));
    }

    fn fail(&mut self, outcome: Outcome) {
        self.link(LinkEvent::Failed(failure(outcome)));
        self.link(LinkEvent::Gone(Reap::Clean));
    }

    fn operate(&mut self, command: Operator) {
        self.input(Input::Operator(command));
    }

    fn configure(&mut self, settings: Arc<Settings>, redial: bool) {
        self.input(Input::Configure { settings, redial });
    }

    /// Lets time pass until the next dial; says how much.
    fn until_dial(&mut self) -> Duration {
        let from = self.now;
        while self.state() != State::Connecting {
            let (when, _) = self.server.poll_timeout().expect("it would wait for ever");
            self.pass(when.saturating_duration_since(self.now));
        }
        self.now - from
    }

    fn view(&self) -> Snapshot {
        self.server.snapshot(self.now)
    }

    fn state(&self) -> State {
        self.view().state
    }

    fn count(&self) -> u64 {
        self.view().failed_attempts
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The decisions since the last look.
    fn decisions(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for output in self.take() {
            if let Output::Decided { decision, .. } = output {
                decisions.push(decision);
            }
        }
        decisions
    }

    /// The kinds of the decisions since the last look, of those that are asked for.
    fn kinds(&mut self, wanted: &[&str]) -> Vec<&'static str> {
        let kinds = self.decisions().into_iter().map(|decision| decision.kind());
        kinds.filter(|kind| wanted.contains(kind)).collect()
    }

    /// The texts of the decisions since the last look, of the kinds that are asked for.
    fn told(&mut self, wanted: &[&str]) -> Vec<String> {
        let decisions = self.decisions().into_iter();
        let wanted = decisions.filter(|decision| wanted.contains(&decision.kind()));
        wanted.map(|decision| decision.to_string()).collect()
    }

    /// The attempts that were dialed since the last look.
    fn dials(&mut self) -> Vec<u64> {
        let mut dials = Vec::new();
        for output in self.take() {
            if let Output::Dial { attempt, .. } = output {
                dials.push(attempt.0);
            }
        }
        dials
    }

    /// What was recorded since the last look.
    fn records(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        for output in self.take() {
            if let Output::Record(record) = output {
                records.push(record);
            }
        }
        records
    }

    /// The frames written to the server since the last look.
    fn sent(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        for output in self.take() {
            if let Output::Send { frame, .. } = output {
                frames.push(String::from_utf8(frame.to_vec()).unwrap());
            }
        }
        frames
    }
}
