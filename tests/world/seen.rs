//! What is to be seen of a world: its trace, what was said to whom, and the view of the engine.

use std::time::Duration;

use serde_json::Value;
use tidegate::engine::decision::{Decision, DropReason};
use tidegate::engine::output::Output;
use tidegate::engine::snapshot::{QueueView, Snapshot};
use tidegate::ids::{Epoch, SessionId};

use super::World;
use super::message::{self, is_response};

impl World {
    pub fn snapshot(&self) -> Snapshot {
        self.server.snapshot(self.now)
    }

    /// The newest epoch of this run of the gateway; 0 before its first dial.
    pub fn epoch(&self) -> Epoch {
        let newest = self.check.links.last_key_value();
        newest.map(|(epoch, _)| *epoch).unwrap_or_default()
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// When each dial came, in whole milliseconds, and its attempt.
    pub fn dials(&self) -> Vec<(u128, u64)> {
        self.trace
            .iter()
            .filter_map(|(at, output)| match output {
                Output::Dial { attempt, .. } => Some((at.as_millis(), attempt.0)),
                _ => None,
            })
            .collect()
    }

    pub fn decisions(&self) -> impl Iterator<Item = (Duration, &Decision)> {
        self.trace.iter().filter_map(|(at, output)| match output {
            Output::Decided { decision, .. } => Some((*at, decision)),
            _ => None,
        })
    }

    /// The decisions of these kinds, as their texts.
    pub fn told(&self, kinds: &[&str]) -> Vec<String> {
        self.decisions()
            .filter(|(_, decision)| kinds.contains(&decision.kind()))
            .map(|(_, decision)| decision.to_string())
            .collect()
    }

    pub fn count_of(&self, kind: &str) -> usize {
        self.told(&[kind]).len()
    }

    /// The waits that were announced, in milliseconds.
    pub fn waits(&self) -> Vec<u128> {
        self.decisions()
            .filter_map(|(_, decision)| match decision {
                Decision::Waiting { wait, .. } => Some(wait.as_millis()),
                _ => None,
            })
            .collect()
    }

    /// What was written to the server on an epoch.
    pub fn heard_on(&self, epoch: Epoch) -> Vec<&Value> {
        self.peer
            .received
            .iter()
            .filter(|(of, _)| *of == epoch)
            .map(|(_, value)| value)
            .collect()
    }

    /// The answer to a request of the server.
    pub fn answer_on(&self, epoch: Epoch, id: impl Into<Value>) -> Option<Value> {
        let id = id.into();
        self.heard_on(epoch)
            .into_iter()
            .find(|value| is_response(value) && value["id"] == id)
            .cloned()
    }

    pub fn answer(&self, id: impl Into<Value>) -> Option<Value> {
        self.answer_on(self.epoch(), id)
    }

    /// The requests and notifications of a method that the server was sent, on any epoch.
    pub fn asked_server(&self, name: &str) -> Vec<(Epoch, Value)> {
        let named = |(_, value): &&(Epoch, Value)| message::method(value) == name;
        self.peer.received.iter().filter(named).cloned().collect()
    }

    /// The requests and notifications of a method that a host was sent.
    pub fn asked_host(&self, session: SessionId, name: &str) -> Vec<Value> {
        let told = self.hosts[&session].told.iter();
        told.filter(|value| message::method(value) == name)
            .cloned()
            .collect()
    }

    /// The `n`s of the messages of a method that a host was sent.
    pub fn numbers(&self, session: SessionId, name: &str) -> Vec<u64> {
        let asked = self.asked_host(session, name);
        asked
            .iter()
            .filter_map(|value| value["params"]["n"].as_u64())
            .collect()
    }

    /// The answer to a call of a host.
    pub fn answer_to_host(&self, session: SessionId, id: impl Into<Value>) -> Option<Value> {
        let id = id.into();
        let told = &self.hosts[&session].told;
        told.iter()
            .find(|value| is_response(value) && value["id"] == id)
            .cloned()
    }

    /// The server answers the policy exchange that it was asked last.
    pub fn gives_receipt(&mut self, receipt: Value) {
        let (epoch, asked) = self
            .asked_server("featureSets/update")
            .pop()
            .expect("an exchange");
        self.says_on(epoch, &message::result(&asked["id"], receipt));
    }

    /// The id under which the server was asked this last.
    pub fn last_asked(&self, name: &str) -> Value {
        self.asked_server(name).pop().expect("it was asked").1["id"].clone()
    }

    /// How often a message was dropped for this reason.
    pub fn dropped(&self, why: DropReason) -> u64 {
        let of = |decision: &Decision| match decision {
            Decision::Dropped { reason, count, .. } if *reason == why => *count,
            _ => 0,
        };
        self.decisions().map(|(_, decision)| of(decision)).sum()
    }

    /// Whether a capability is granted now.
    pub fn grants(&self, path: &str) -> bool {
        self.snapshot().granted.contains(&path)
    }

    /// How many gated messages wait.
    pub fn waiting(&self) -> u64 {
        let view = self.snapshot();
        let of = |queue: QueueView| queue.requests + queue.notifications;
        (of(view.held) + of(view.kept)) as u64
    }
}
