//! A scripted server: what each dial comes to, how it answers, how long it lives, how it ends.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::engine::input::{End, Failure, LinkEvent, Loss, Outcome, Reap};
use tidegate::ids::Epoch;

use super::message::{error, is_request, message, method, result};

/// What a dial comes to.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It connects and answers `initialize`; lives so long, or until told otherwise.
    Serve(Option<Duration>),
    /// It cannot be dialed.
    Fail(Outcome, Option<Duration>),
    /// Nothing happens.
    Hang,
    /// It connects and never answers `initialize`.
    Mute,
    /// It answers `initialize` with an error.
    Reject,
    /// It answers `initialize` with a revision that nobody speaks.
    Version,
    /// It connects and ends before it answers.
    Drop,
}

/// How it answers `featureSets/update`.
#[derive(Clone, Debug)]
pub enum Receipt {
    Accept,
    Result(Value),
    Error(i64),
    Silent,
}

/// The script and the memory of the fake server.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The next dials' fates; then `fate` for ever.
    pub fates: VecDeque<Fate>,
    pub fate: Fate,
    /// `experimental.mcpl` of its `initialize` result.
    pub mcpl: Option<Value>,
    pub revision: &'static str,
    pub receipt: Receipt,
    pub tools: Vec<Value>,
    /// It answers requests that are neither handshake, policy nor lists.
    pub answers_calls: bool,
    /// It answers requests for its lists.
    pub answers_lists: bool,
    /// How a life of [`Fate::Serve`] ends.
    pub end: End,
    /// What it says when it is closed.
    pub end_when_closed: End,
    /// From `Close` or loss to `Gone`.
    pub gone_after: Duration,
    pub reap: Reap,
    /// Everything that was written to it.
    pub received: Vec<(Epoch, Value)>,
    /// The fate of the newest dial.
    pub current: Fate,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            fates: VecDeque::new(),
            fate: Fate::Serve(None),
            mcpl: None,
            revision: "2025-11-25",
            receipt: Receipt::Accept,
            tools: vec![json!({"name": "echo", "inputSchema": {"type": "object"}})],
            answers_calls: true,
            answers_lists: true,
            end: End::Exit(1),
            end_when_closed: End::Signal(15),
            gone_after: Duration::ZERO,
            reap: Reap::Clean,
            received: Vec::new(),
            current: Fate::Hang,
        }
    }
}

/// The answer to `initialize` of a server without MCPL.
pub fn plain_handshake(id: &Value) -> Value {
    let info = json!({"name": "fake", "version": "1"});
    let capabilities = json!({"tools": {}});
    result(
        id,
        json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}),
    )
}

/// What a chat bridge advertises.
pub fn bridge() -> Value {
    json!({
        "version": "0.5", "pushEvents": true, "channels": true, "inferenceRequest": true,
        "featureSets": {"chat": {"description": "chat", "uses": ["pushEvents"]}},
    })
}

/// Nobody listens.
pub const REFUSED: Fate = Fate::Fail(Outcome::Refused, None);

impl Peer {
    /// One that refuses every dial.
    pub fn refusing() -> Self {
        Self {
            fate: REFUSED,
            ..Self::default()
        }
    }

    /// One that ends so long after each handshake.
    pub fn living(life: Duration) -> Self {
        Self {
            fate: Fate::Serve(Some(life)),
            ..Self::default()
        }
    }

    /// One that speaks MCPL.
    pub fn bridge() -> Self {
        Self {
            mcpl: Some(bridge()),
            ..Self::default()
        }
    }

    /// What follows a dial, each after how long.
    pub fn dialed(&mut self) -> Vec<(Duration, LinkEvent)> {
        self.current = self.fates.pop_front().unwrap_or_else(|| self.fate.clone());
        let now = |event| (Duration::ZERO, event);
        match &self.current {
            Fate::Hang => vec![],
            Fate::Fail(outcome, retry_after) => {
                let failed = LinkEvent::Failed(failure(*outcome, *retry_after));
                vec![now(failed), (self.gone_after, self.gone())]
            }
            Fate::Drop => vec![
                now(LinkEvent::Connected),
                now(self.lost(self.end.clone())),
                (self.gone_after, self.gone()),
            ],
            Fate::Serve(_) | Fate::Mute | Fate::Reject | Fate::Version => {
                vec![now(LinkEvent::Connected)]
            }
        }
    }

    /// What follows a message to it.
    pub fn heard(&mut self, epoch: Epoch, said: &Value) -> Vec<(Duration, LinkEvent)> {
        self.received.push((epoch, said.clone()));
        if !is_request(said) {
            return vec![];
        }
        let mut events = vec![];
        if let Some(answer) = self.answer(said) {
            events.push((Duration::ZERO, LinkEvent::Received(message(&answer))));
        }
        if let (Fate::Serve(Some(life)), "initialize") = (&self.current, method(said)) {
            events.push((*life, self.lost(self.end.clone())));
            events.push((*life + self.gone_after, self.gone()));
        }
        events
    }

    fn answer(&self, said: &Value) -> Option<Value> {
        let id = &said["id"];
        match method(said) {
            "initialize" => self.handshake(id),
            "featureSets/update" => match &self.receipt {
                Receipt::Accept => Some(result(id, json!({"accepted": true}))),
                Receipt::Result(value) => Some(result(id, value.clone())),
                Receipt::Error(code) => Some(error(id, *code)),
                Receipt::Silent => None,
            },
            name if name.ends_with("/list") && !self.answers_lists => None,
            "tools/list" => Some(result(id, json!({"tools": self.tools}))),
            "resources/list" => Some(result(id, json!({"resources": []}))),
            "resources/templates/list" => Some(result(id, json!({"resourceTemplates": []}))),
            "prompts/list" => Some(result(id, json!({"prompts": []}))),
            "ping" => Some(result(id, json!({}))),
            other if self.answers_calls => Some(result(id, json!({"did": other}))),
            _ => None,
        }
    }

    fn handshake(&self, id: &Value) -> Option<Value> {
        let revision = match self.current {
            Fate::Serve(_) => self.revision,
            Fate::Version => "1999-12-31",
            Fate::Reject => return Some(error(id, -32603)),
            Fate::Fail(..) | Fate::Hang | Fate::Mute | Fate::Drop => return None,
        };
        let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        if let Some(mcpl) = &self.mcpl {
            capabilities["experimental"] = json!({"mcpl": mcpl});
        }
        let info = json!({"name": "fake", "version": "1"});
        Some(result(
            id,
            json!({"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info}),
        ))
    }

    /// What follows a `Close`.
    pub fn closed(&self) -> Vec<(Duration, LinkEvent)> {
        vec![
            (Duration::ZERO, self.lost(self.end_when_closed.clone())),
            (self.gone_after, self.gone()),
        ]
    }

    pub fn lost(&self, end: End) -> LinkEvent {
        LinkEvent::Lost(Loss {
            end,
            stderr: vec![],
        })
    }

    pub fn gone(&self) -> LinkEvent {
        LinkEvent::Gone(self.reap.clone())
    }
}

pub fn failure(outcome: Outcome, retry_after: Option<Duration>) -> Failure {
    Failure {
        outcome,
        detail: "no such thing".into(),
        retry_after,
        stderr: vec![],
    }
}
