//! The traces of hosts' requests: a span towards the host, and where the request was sent one towards the server, both
//! linked to the epoch. Arguments and results are in none of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;

use super::Sampling;
use super::span::{self, child, count, has, ids, key, link, network, text, under};
use crate::ids::{OpenEpoch, ServerId, SpanIds};
use crate::wire::jsonrpc::{Message, code};
use crate::wire::mcp::method;
use crate::wire::trace_context::Parent;

/// The traced requests of one server.
pub(super) struct Calls {
    server: ServerId,
    transport: &'static str,
    sampling: Sampling,
    /// The one that is being handled.
    received: Option<Received>,
    /// Those that were sent, by the gateway's ids. Each ends with a decision, and the engine bounds how many there are.
    live: BTreeMap<u64, Sent>,
}

/// A host's request.
struct Received {
    at: Instant,
    wall: SystemTime,
    /// The span towards the host.
    ids: SpanIds,
    /// What it is part of.
    caller: Option<Parent>,
    name: String,
    /// Of both spans.
    attributes: Vec<KeyValue>,
    /// The host's, as JSON text.
    id: String,
}

/// One that went to the server.
struct Sent {
    received: Received,
    at: Instant,
    /// The span towards the server.
    ids: SpanIds,
    epoch: Option<OpenEpoch>,
}

impl Calls {
    pub(super) fn new(server: ServerId, transport: &'static str, sampling: Sampling) -> Self {
        Self {
            server,
            transport,
            sampling,
            received: None,
            live: BTreeMap::new(),
        }
    }

    /// A host's request is handled from now on; it is remembered where it is sampled.
    pub(super) fn received(&mut self, at: Instant, request: &Message) {
        self.received = self.sampled(at, request);
    }

    fn sampled(&self, at: Instant, request: &Message) -> Option<Received> {
        if !self.sampling.can_record() {
            return None;
        }
        let caller = Parent::of(request);
        let ids = ids(caller.map(|caller| caller.trace));
        if !self.sampling.records(ids.trace, caller) {
            return None;
        }
        let (name, attributes) = self.about(request);
        Some(Received {
            at,
            wall: SystemTime::now(),
            ids,
            caller,
            name,
            attributes,
            id: request.id_text().map(text).unwrap_or_default(),
        })
    }

    /// The request's name, and what both of its spans say.
    fn about(&self, request: &Message) -> (String, Vec<KeyValue>) {
        let method = text(request.method());
        let mut attributes = Vec::with_capacity(10);
        attributes.push(has(key::SERVER, self.server.as_str().to_owned()));
        let target = match method.as_str() {
            method::TOOLS_CALL => Some(key::TOOL),
            method::PROMPTS_GET => Some(key::PROMPT),
            _ => None,
        };
        let target = target.and_then(|key| Some((key, name_of(request)?)));
        let name = match target {
            Some((key, target)) => {
                let name = format!("{method} {target}");
                attributes.push(has(key, target));
                name
            }
            None => method.clone(),
        };
        if method == method::TOOLS_CALL {
            attributes.push(has(key::OPERATION, "execute_tool"));
        }
        attributes.push(has(key::METHOD, method));
        (name, attributes)
    }

    /// It was handled: what was neither sent nor refused was answered by the gateway itself.
    pub(super) fn handled(&mut self) {
        self.received = None;
    }

    /// It is sent under this id; the frame that goes instead, which carries the trace on.
    pub(super) fn forwarded(
        &mut self,
        at: Instant,
        id: u64,
        frame: &Bytes,
        epoch: Option<OpenEpoch>,
    ) -> Option<Bytes> {
        let received = self.received.take()?;
        let ids = ids(Some(received.ids.trace));
        let ours = Parent {
            trace: ids.trace,
            span: ids.span,
            sampled: true,
        };
        let carries_on = received.caller.is_some();
        let traced = Message::parse(frame.clone()).ok();
        let traced = traced.and_then(|message| ours.put_into(&message, carries_on));
        let sent = Sent {
            received,
            at,
            ids,
            epoch,
        };
        self.live.insert(id, sent);
        traced
    }

    /// A request is over; its spans.
    pub(super) fn called(
        &mut self,
        at: Instant,
        id: Option<u64>,
        error: Option<&str>,
    ) -> [Option<SpanData>; 2] {
        let Some(id) = id else {
            let received = self.received.take();
            return [
                received.map(|received| received.span(at, error, None)),
                None,
            ];
        };
        let Some(sent) = self.live.remove(&id) else {
            return [None, None];
        };
        let client = sent.span(at, id, self.transport, error);
        let server = sent.received.span(at, error, sent.epoch);
        [Some(server), Some(client)]
    }

    /// The epoch is gone, and every request to it with it.
    pub(super) fn clear(&mut self) {
        self.live.clear();
    }
}

impl Received {
    fn wall(&self, at: Instant) -> SystemTime {
        self.wall + at.saturating_duration_since(self.at)
    }

    /// The span towards the host.
    fn span(self, at: Instant, error: Option<&str>, epoch: Option<OpenEpoch>) -> SpanData {
        let times = (self.wall, self.wall(at));
        let mut span = span::span(self.name, SpanKind::Server, self.ids, times);
        if let Some(caller) = self.caller {
            under(&mut span, caller.span);
        }
        span.attributes = self.attributes;
        let id = self.id.trim_matches('"').to_owned();
        span.attributes.extend([
            has(key::REQUEST_ID, id),
            has(key::NETWORK, "tcp"),
            has(key::PROTOCOL, "websocket"),
        ]);
        judge(&mut span, error, is_servers_fault);
        if let Some(epoch) = epoch {
            link(&mut span, epoch.span);
        }
        span
    }
}

impl Sent {
    /// The span towards the server.
    fn span(&self, at: Instant, id: u64, transport: &str, error: Option<&str>) -> SpanData {
        let received = &self.received;
        let times = (received.wall(self.at), received.wall(at));
        let name = received.name.clone();
        let mut span = child(name, SpanKind::Client, received.ids, times);
        span.span_context = span::context(self.ids);
        span.attributes.clone_from(&received.attributes);
        span.attributes.extend([
            has(key::REQUEST_ID, id.to_string()),
            has(key::NETWORK, network(transport)),
        ]);
        judge(&mut span, error, |_| true);
        if let Some(epoch) = self.epoch {
            span.attributes.push(has(key::EPOCH, count(epoch.epoch.0)));
            link(&mut span, epoch.span);
        }
        span
    }
}

/// Says what went wrong, and whether it is this side's failure.
fn judge(span: &mut SpanData, error: Option<&str>, is_failure: fn(&str) -> bool) {
    let Some(error) = error else { return };
    let kind = if error == "tool" { "tool_error" } else { error };
    span.attributes.push(has(key::ERROR, text(kind)));
    if error.parse::<i64>().is_ok() {
        span.attributes.push(has(key::STATUS_CODE, text(error)));
    }
    if is_failure(error) {
        span.status = Status::error("");
    }
}

/// The conventions: what the caller did wrong is no failure of who answers.
fn is_servers_fault(error: &str) -> bool {
    let callers = [
        code::PARSE,
        code::INVALID_REQUEST,
        code::METHOD_NOT_FOUND,
        code::INVALID_PARAMS,
        code::NOT_GRANTED,
    ];
    error
        .parse::<i64>()
        .map_or(true, |code| !callers.contains(&code))
}

/// The `name` among a request's params.
fn name_of(request: &Message) -> Option<String> {
    let span = request.param(&["name"])?;
    let name: Cow<'_, str> = serde_json::from_str(request.text(&span)).ok()?;
    Some(text(&name))
}
