//! The bridge as a pure machine: what the host and the gateway said goes in; what each is to be told comes out, and
//! when to dial. It reads no clock and touches no stream. Nothing of one connection ever answers for another.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use super::calls::{Asks, Calls, IN_FLIGHT_MAX};
use super::memory::{Memory, Setting};
use crate::engine::decision::State;
use crate::engine::input::{End, Failure, LinkEvent, Loss, Moment, Outcome};
use crate::engine::reconnect::Reconnect;
use crate::engine::settings::Settings;
use crate::ids::{Attempt, Epoch};
use crate::wire::jsonrpc::{
    self, About, Error, Kind, Message, RequestId, Unreadable, code, quoted,
};
use crate::wire::mcp::method;
use crate::wire::mcpl;

/// The first wait for a gateway, which is near, and the longest.
const INTERVAL: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// A connection that ends before this is a failed attempt (R4, R16).
const LASTING: Duration = INTERVAL_MAX;
/// For the upgrade (R15).
const DIAL_MAX: Duration = Duration::from_secs(15);
/// For the answer to a repeated `initialize` (R15).
const GREETING_MAX: Duration = Duration::from_secs(30);
/// How long the host's own `initialize` waits for a gateway. Hosts wait for a minute, and give a server up whose answer
/// is an error.
const INITIALIZE_MAX: Duration = Duration::from_secs(30);
/// How long calls may still take when the host has closed our stdin.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// The close code of a session whose place another one of the same host took (4-faces).
const REPLACED: u16 = 4408;

/// Something to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Write a message to the host.
    Host(Bytes),
    /// Send a message on the connection.
    Gateway(Bytes),
    /// Dial, as this epoch. What an older one still says is ignored.
    Dial(Epoch),
    /// Close the connection, or give up its dial.
    Close,
    /// Tell the host's user, on stderr.
    Say(String),
    /// Write and send what is left, and end.
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No connection before then.
    Waiting(Instant),
    /// A dial is under way, until then at most.
    Dialing(Instant),
    /// The host's `initialize` was repeated, and is to be answered by then.
    Greeting(Instant),
    /// The host's messages pass.
    Serving,
    /// Another bridge took the place; two would take it from each other for ever.
    Ended,
}

/// The host's first request, while it waits for a gateway.
#[derive(Debug)]
struct Held {
    request: Message,
    until: Instant,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Bridge {
    server: String,
    /// The ids of our own requests begin so, and no host's do.
    own: String,
    owned: u64,
    stage: Stage,
    epoch: Epoch,
    count: Reconnect,
    settings: Settings,
    attempt: Attempt,
    since: Option<Instant>,
    why: Option<String>,
    refused: bool,
    calls: Calls,
    asks: Asks,
    memory: Memory,
    held: Option<Held>,
    ending: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl Bridge {
    /// A bridge to that server, which dials at once. `nonce` tells its own requests from those of any host.
    pub(super) fn new(server: &str, nonce: u64, at: Moment) -> Self {
        let settings = Settings {
            interval: INTERVAL,
            max_interval: INTERVAL_MAX,
            ..Settings::default()
        };
        let mut bridge = Self {
            server: server.into(),
            own: format!("tidegate-connect-{nonce:016x}-"),
            owned: 0,
            stage: Stage::Waiting(at.now),
            epoch: Epoch::default(),
            count: Reconnect::default(),
            settings,
            attempt: Attempt::default(),
            since: None,
            why: None,
            refused: false,
            calls: Calls::default(),
            asks: Asks::default(),
            memory: Memory::default(),
            held: None,
            ending: None,
            outputs: VecDeque::new(),
        };
        bridge.dial(at);
        bridge
    }

    /// What is to be done next.
    pub(super) fn next(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::wake`] wants to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        let stage = match self.stage {
            Stage::Waiting(at) | Stage::Dialing(at) | Stage::Greeting(at) => Some(at),
            Stage::Serving | Stage::Ended => None,
        };
        let held = self.held.as_ref().map(|held| held.until);
        [stage, held, self.ending].into_iter().flatten().min()
    }

    /// The time has come.
    pub(super) fn wake(&mut self, at: Moment) {
        let is_due = |until: Instant| until <= at.now;
        if self.ending.is_some_and(is_due) {
            return self.finish(at);
        }
        if self.held.as_ref().is_some_and(|held| is_due(held.until)) {
            self.refuse_held(at);
        }
        match self.stage {
            Stage::Waiting(until) if is_due(until) => self.dial(at),
            Stage::Dialing(until) if is_due(until) => {
                self.fail(Outcome::Timeout, "it does not answer".into(), at);
            }
            Stage::Greeting(until) if is_due(until) => {
                self.end("it does not answer `initialize`".into(), at);
            }
            Stage::Waiting(_)
            | Stage::Dialing(_)
            | Stage::Greeting(_)
            | Stage::Serving
            | Stage::Ended => {}
        }
    }

    /// The host closed our stdin: what is in flight may end, and then we do.
    pub(super) fn host_ended(&mut self, at: Moment) {
        self.ending = Some(at.now + DRAIN_MAX);
        self.finish_if_idle(at);
    }

    fn finish_if_idle(&mut self, at: Moment) {
        let is_idle = self.calls.len() == 0 && self.held.is_none();
        if self.ending.is_some() && is_idle {
            self.finish(at);
        }
    }

    fn finish(&mut self, at: Moment) {
        self.ending = None;
        self.refuse_held(at);
        self.end_calls(at);
        self.stage = Stage::Ended;
        self.outputs.push_back(Output::Finish);
    }

    // From the host.

    /// Whether the host's next line can be taken. What follows an `initialize` that waits stays unread.
    pub(super) fn takes_lines(&self) -> bool {
        self.held.is_none()
    }

    /// The host wrote a line.
    pub(super) fn host_said(&mut self, line: Result<Message, Unreadable>, at: Moment) {
        match line {
            Ok(message) => match message.kind() {
                Kind::Request => self.take_call(message, at),
                Kind::Notification => self.take_notification(&message),
                Kind::Response => self.take_reply(&message),
            },
            Err(Unreadable::Batch(messages)) if self.memory.has_batches() => {
                for message in messages {
                    self.host_said(Message::parse(message), at);
                }
            }
            Err(what) => self.take_unreadable(&what),
        }
    }

    fn take_call(&mut self, message: Message, at: Moment) {
        let Some(id) = message.id() else { return };
        if self.stage != Stage::Serving {
            let is_first = message.method() == method::INITIALIZE;
            if is_first && self.memory.greeting("0").is_none() && self.held.is_none() {
                return self.hold(message, at.now + INITIALIZE_MAX, at);
            }
            return self.answer(&id, &self.not_sent(at.now));
        }
        if self.calls.len() >= IN_FLIGHT_MAX {
            let error = self.error(code::NOT_SENT, CROWDED.into(), false, at.now);
            return self.answer(&id, &error);
        }
        self.forward(id, message);
    }

    fn forward(&mut self, id: RequestId, message: Message) {
        self.calls.open(id, Setting::of(&message));
        self.outputs
            .push_back(Output::Gateway(message.raw().clone()));
    }

    fn hold(&mut self, request: Message, until: Instant, at: Moment) {
        self.held = Some(Held { request, until });
        if self.refused || self.stage == Stage::Ended {
            self.refuse_held(at);
        }
    }

    fn refuse_held(&mut self, at: Moment) {
        let held = self.held.take();
        if let Some(id) = held.and_then(|held| held.request.id()) {
            self.answer(&id, &self.not_sent(at.now));
        }
    }

    fn take_notification(&mut self, message: &Message) {
        let name = message.method();
        match name {
            method::INITIALIZED => self.memory.initialized(),
            mcpl::method::FEATURE_SETS_UPDATE => self.memory.reduce(message),
            _ => {}
        }
        if self.stage != Stage::Serving {
            return;
        }
        let frame = match name {
            // Nobody waits for an answer to a call that was cancelled; one that is not under way is nothing (A7).
            method::CANCELLED => {
                let id = message.param(&["requestId"]);
                let id = id.and_then(|span| RequestId::read(message.text(&span)));
                let known = id.and_then(|id| self.calls.close(&id));
                known.map(|_| message.raw().clone())
            }
            method::PROGRESS => self.mapped(message, "progressToken", Asks::token),
            mcpl::method::INFERENCE_CHUNK => self.mapped(message, "requestId", Asks::id),
            _ => Some(message.raw().clone()),
        };
        self.outputs.extend(frame.map(Output::Gateway));
    }

    /// A message about a request of the gateway's, with its own word for it; `None` where that is over (A7).
    fn mapped(
        &self,
        message: &Message,
        member: &str,
        theirs: impl Fn(&Asks, u64) -> Option<&str>,
    ) -> Option<Bytes> {
        let span = message.param(&[member])?;
        let ours = RequestId::read(message.text(&span))?.as_ours()?;
        let word = theirs(&self.asks, ours)?;
        Some(message.with("", &[(span, word)]))
    }

    fn take_reply(&mut self, message: &Message) {
        let theirs = message.our_id().and_then(|ours| self.asks.close(ours));
        if let Some(id) = theirs {
            self.outputs
                .push_back(Output::Gateway(message.with_id(id.as_str())));
        }
    }

    fn take_unreadable(&mut self, what: &Unreadable) {
        let Some(About::Answer(id)) = what.about() else {
            return self.outputs.push_back(Output::Host(what.answer()));
        };
        // The gateway waits for this one, and gets no other.
        if let Some(theirs) = id.as_ours().and_then(|ours| self.asks.close(ours)) {
            let error = Error::new(code::INVALID_REQUEST, format!("the host's answer: {what}"));
            let frame = jsonrpc::error_response(theirs.as_str(), &error);
            self.outputs.push_back(Output::Gateway(frame));
        }
    }

    // From the gateway.

    /// Something happened to a connection; that of another epoch than ours is nothing.
    pub(super) fn link(&mut self, epoch: Epoch, event: LinkEvent, at: Moment) {
        if epoch != self.epoch {
            return;
        }
        match event {
            LinkEvent::Connected => self.connected(at),
            LinkEvent::Failed(failure) => self.refuse(&failure, at),
            LinkEvent::Lost(loss) => self.lost(&loss, at),
            LinkEvent::Received(message) | LinkEvent::Asked { message, .. } => {
                self.gateway_said(&message, at);
            }
            LinkEvent::Unreadable { what, sample } => self.gateway_unread(&what, &sample, at),
            LinkEvent::Secrets(_)
            | LinkEvent::Unsent { .. }
            | LinkEvent::Stderr(_)
            | LinkEvent::Gone(_) => {}
        }
        self.finish_if_idle(at);
    }

    fn dial(&mut self, at: Moment) {
        self.attempt = self.count.dial();
        self.epoch = self.epoch.next();
        self.stage = Stage::Dialing(at.now + DIAL_MAX);
        self.outputs.push_back(Output::Dial(self.epoch));
    }

    fn connected(&mut self, at: Moment) {
        if !matches!(self.stage, Stage::Dialing(_)) {
            return;
        }
        self.since = Some(at.now);
        let id = self.own_id();
        if let Some(frame) = self.memory.greeting(&id) {
            self.stage = Stage::Greeting(at.now + GREETING_MAX);
            self.outputs.push_back(Output::Gateway(frame));
        } else {
            self.serve();
        }
    }

    /// The host's messages pass from now on.
    fn serve(&mut self) {
        self.stage = Stage::Serving;
        self.why = None;
        self.refused = false;
        self.say("connected");
        if let Some(held) = self.held.take()
            && let Some(id) = held.request.id()
        {
            self.forward(id, held.request);
            if self.memory.is_initialized() {
                let frame = jsonrpc::notification(method::INITIALIZED, None);
                self.outputs.push_back(Output::Gateway(frame));
            }
        }
    }

    /// The id of a request of our own, as JSON text.
    fn own_id(&mut self) -> String {
        self.owned += 1;
        quoted(&format!("{}{}", self.own, self.owned))
    }

    fn is_own(&self, id: &RequestId) -> bool {
        let text = id.as_str().strip_prefix('"');
        text.is_some_and(|text| text.starts_with(&self.own))
    }

    fn gateway_said(&mut self, message: &Message, at: Moment) {
        if !matches!(self.stage, Stage::Greeting(_) | Stage::Serving) {
            return;
        }
        match message.kind() {
            Kind::Request => self.ask(message),
            Kind::Notification => {
                let frame = if message.method() == method::CANCELLED {
                    self.recalled(message)
                } else {
                    Some(message.raw().clone())
                };
                self.outputs.extend(frame.map(Output::Host));
            }
            Kind::Response => self.take_answer(message, at),
        }
    }

    fn ask(&mut self, message: &Message) {
        if self.asks.len() < IN_FLIGHT_MAX {
            let frame = self.asks.open(message);
            return self.outputs.extend(frame.map(Output::Host));
        }
        let error = Error::new(code::BUSY, "the host has too many requests in flight");
        let id = message.id_text().unwrap_or("null");
        let frame = jsonrpc::error_response(id, &error);
        self.outputs.push_back(Output::Gateway(frame));
    }

    fn recalled(&mut self, message: &Message) -> Option<Bytes> {
        let span = message.param(&["requestId"])?;
        let ours = self.asks.recall(message.text(&span))?.to_string();
        Some(message.with("", &[(span, &ours)]))
    }

    fn take_answer(&mut self, message: &Message, at: Moment) {
        let Some(id) = message.id() else { return };
        if self.is_own(&id) {
            return self.take_own(message, at);
        }
        let Some(setting) = self.calls.close(&id) else {
            return;
        };
        if message.result().is_some() {
            self.memory.take(setting, message);
        }
        self.outputs.push_back(Output::Host(message.raw().clone()));
    }

    /// The answer to what we repeated for the host, who was told once.
    fn take_own(&mut self, message: &Message, at: Moment) {
        if matches!(self.stage, Stage::Greeting(_)) {
            return self.greeted(message, at);
        }
        if let Some(error) = message.error() {
            let error: String = error.chars().take(200).collect();
            self.say(&format!("something could not be set up again: {error}"));
        }
    }

    fn greeted(&mut self, answer: &Message, at: Moment) {
        if let Err(unlike) = self.memory.compare(answer) {
            return self.end(unlike.to_string(), at);
        }
        let (own, mut owned) = (self.own.clone(), self.owned);
        let frames = self.memory.replay(|| {
            owned += 1;
            quoted(&format!("{own}{owned}"))
        });
        self.owned = owned;
        self.outputs.extend(frames.into_iter().map(Output::Gateway));
        self.serve();
        let news = self.memory.news(answer);
        self.outputs.extend(news.into_iter().map(Output::Host));
    }

    fn gateway_unread(&mut self, what: &Unreadable, sample: &str, at: Moment) {
        match what.about() {
            Some(About::Request(_)) => self.outputs.push_back(Output::Gateway(what.answer())),
            Some(About::Answer(id)) if self.calls.close(id).is_some() => {
                let text = format!("sent, and the answer could not be read ({what}): {UNKNOWN}");
                let error = self.error(code::LOST, text, true, at.now);
                self.answer(id, &error);
            }
            Some(About::Answer(_)) | None => {
                self.say(&format!(
                    "the gateway sent what is no message ({what}): {sample}"
                ));
            }
        }
    }

    // Ends.

    fn refuse(&mut self, failure: &Failure, at: Moment) {
        self.fail(failure.outcome, failure.detail.clone(), at);
    }

    /// The dial came to nothing.
    fn fail(&mut self, outcome: Outcome, why: String, at: Moment) {
        self.count.fail(self.attempt, outcome);
        self.refused = outcome == Outcome::Auth;
        self.wait(why, at);
        if self.refused {
            self.refuse_held(at);
        }
    }

    fn lost(&mut self, loss: &Loss, at: Moment) {
        match (self.stage, &loss.end) {
            (Stage::Waiting(_) | Stage::Ended, _) => {}
            (_, End::Close { code: REPLACED, .. }) => {
                self.end_calls(at);
                self.stage = Stage::Ended;
                self.why = Some("another connection of the same host took this one's place".into());
                self.say("another connection of the same host took this one's place; this one stays away");
                self.refuse_held(at);
            }
            _ => self.end(loss.end.to_string(), at),
        }
    }

    /// The connection is over: what waits for it is told so, and nothing of it counts any more.
    fn end(&mut self, why: String, at: Moment) {
        let lived = self.since.take();
        let lived = lived.map(|since| at.now.saturating_duration_since(since));
        if lived.is_some_and(|lived| lived >= LASTING) {
            self.count.last();
        } else {
            self.count.end_short(self.attempt);
        }
        self.wait(why, at);
    }

    fn wait(&mut self, why: String, at: Moment) {
        let wait = self.count.wait(&self.settings, at.jitter);
        self.since = None;
        self.stage = Stage::Waiting(at.now + wait);
        self.outputs.push_back(Output::Close);
        // An outage is told once, and again where its reason changes.
        if self.why.as_ref() != Some(&why) {
            self.say(&format!("not connected: {why}; trying again"));
        }
        self.why = Some(why);
        self.end_calls(at);
    }

    /// The calls that were sent end; `initialize`, which runs nothing, is tried again. The gateway's requests are taken
    /// back.
    fn end_calls(&mut self, at: Moment) {
        let text = format!("sent, and then the connection to the gateway was lost: {UNKNOWN}");
        for (id, setting) in self.calls.take() {
            if let Setting::Initialize(request) = setting
                && matches!(self.stage, Stage::Waiting(_))
            {
                self.hold(request, at.now + INITIALIZE_MAX, at);
                continue;
            }
            let error = self.error(code::LOST, text.clone(), true, at.now);
            self.answer(&id, &error);
        }
        for ours in self.asks.take() {
            let reason = "the connection to the gateway was lost";
            let params = json!({ "requestId": ours, "reason": reason }).to_string();
            let frame = jsonrpc::notification(method::CANCELLED, Some(&params));
            self.outputs.push_back(Output::Host(frame));
        }
    }

    // Words.

    fn answer(&mut self, id: &RequestId, error: &Error) {
        let frame = jsonrpc::error_response(id.as_str(), error);
        self.outputs.push_back(Output::Host(frame));
    }

    fn say(&mut self, text: &str) {
        self.outputs.push_back(Output::Say(text.into()));
    }

    fn not_sent(&self, now: Instant) -> Error {
        let attempt = self.count.next();
        let why = self.why.as_deref();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let text = match self.stage {
            Stage::Ended => format!("not sent: this bridge has ended{why}"),
            _ if self.refused => format!("not sent: the gateway refuses the token{why}"),
            Stage::Waiting(_) | Stage::Dialing(_) | Stage::Greeting(_) | Stage::Serving => format!(
                "not sent: connecting to the gateway (attempt {attempt}{}){why}; try again later",
                self.retry_after(now)
                    .map_or_else(String::new, |wait| format!(
                        ", next try in {:.1} s",
                        wait.as_secs_f64()
                    ))
            ),
        };
        self.error(code::NOT_SENT, text, false, now)
    }

    fn retry_after(&self, now: Instant) -> Option<Duration> {
        match self.stage {
            Stage::Waiting(at) => Some(at.saturating_duration_since(now)),
            Stage::Dialing(_) | Stage::Greeting(_) | Stage::Serving | Stage::Ended => None,
        }
    }

    /// An error of A4's shape.
    fn error(&self, code: i64, text: String, sent: bool, now: Instant) -> Error {
        let state = match self.stage {
            Stage::Ended => State::Ended,
            Stage::Waiting(_) | Stage::Dialing(_) if self.refused => State::Auth,
            Stage::Waiting(_) => State::Waiting,
            Stage::Dialing(_) => State::Connecting,
            Stage::Greeting(_) => State::Negotiating,
            Stage::Serving => State::Open,
        };
        let wait = self.retry_after(now).filter(|_| !self.refused);
        Error::new(code, text).with_data(json!({
            "server": self.server,
            "state": state.label(),
            "sent": sent,
            "attempt": self.count.next().0,
            "retryAfterMs": wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        }))
    }
}

const UNKNOWN: &str = "the outcome is unknown, and a blind retry can run it twice";
const CROWDED: &str = "not sent: too many calls are in flight; try again later";

#[cfg(test)]
mod tests;
