//! Histories of one server, on a simulated clock, against the rules R and S.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::engine::input::{Failure, HostEvent, LinkEvent, OpenEpisode, Reap};
use crate::ids::SessionId;
use crate::wire::jsonrpc::{Message, Unreadable};

/// A server, its clock, and what it has put out and nobody has looked at.
struct Sim {
    server: Server,
    now: Instant,
    jitter: f64,
    outputs: Vec<Output>,
}

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;

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

fn exit(code: i32) -> Loss {
    Loss {
        end: End::Exit(code),
        stderr: Vec::new(),
    }
}

fn failure(outcome: Outcome) -> Failure {
    Failure {
        outcome,
        detail: format!("{} on purpose", outcome.label()),
        retry_after: None,
        stderr: Vec::new(),
    }
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
        let mut sim = Self::new(settings);
        sim.input(Input::Start(Resumed::default()));
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

    /// Runs every deadline on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((when, _)) = self.server.poll_timeout().filter(|(when, _)| *when <= end) {
            self.now = when;
            self.server.handle_timeout(self.at());
            self.drain();
        }
        self.now = end;
    }

    fn epoch(&self) -> Epoch {
        self.server.epoch
    }

    fn link(&mut self, event: LinkEvent) {
        let epoch = self.epoch();
        self.input(Input::Link { epoch, event });
    }

    fn receive(&mut self, text: &str) {
        self.link(LinkEvent::Received(message(text)));
    }

    fn connect(&mut self) {
        self.link(LinkEvent::Connected);
        self.receive(ANSWER);
    }

    fn lose(&mut self, loss: Loss) {
        self.link(LinkEvent::Lost(loss));
        self.link(LinkEvent::Gone(Reap::Clean));
    }

    fn refuse_dial(&mut self, outcome: Outcome) {
        self.link(LinkEvent::Failed(failure(outcome)));
        self.link(LinkEvent::Gone(Reap::Clean));
    }

    /// Waits for the next dial; how long that took.
    fn until_dial(&mut self) -> Duration {
        let from = self.now;
        let (when, timer) = self.server.poll_timeout().unwrap();
        assert_eq!(timer, Timer::Retry);
        self.pass(when - self.now);
        assert_eq!(self.state(), State::Connecting);
        self.now - from
    }

    fn state(&self) -> State {
        self.server.snapshot(self.now).state
    }

    fn count(&self) -> u64 {
        self.server.snapshot(self.now).failed_attempts
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The decisions of these kinds since the last look, as texts.
    fn told(&mut self, kinds: &[&str]) -> Vec<String> {
        let wanted = |output: Output| match output {
            Output::Decided { decision, .. } if kinds.contains(&decision.kind()) => {
                Some(decision.to_string())
            }
            _ => None,
        };
        self.take().into_iter().filter_map(wanted).collect()
    }
}

#[test]
fn r4_a_server_that_dies_soon_after_its_handshake_backs_off() {
    let mut sim = Sim::started(settings(|_| {}));
    let mut waits = Vec::new();
    for _ in 0..8 {
        sim.connect();
        sim.pass(millis(300));
        sim.lose(exit(0));
        waits.push(sim.until_dial().as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
}
