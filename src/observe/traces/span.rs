//! How a span is made, and the names in it: a contract with whoever reads traces (docs/tracing.md). The attributes of
//! MCP are those of the semantic conventions, which no crate has as constants that hold.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::ids::SpanIds;

/// The longest text in a span, in bytes; the rest is cut off.
const TEXT_MAX: usize = 1_024;

/// Names of attributes.
pub(super) mod key {
    pub(in crate::observe::traces) const SERVER: &str = "tidegate.server";
    pub(in crate::observe::traces) const EPOCH: &str = "tidegate.epoch";
    pub(in crate::observe::traces) const ATTEMPT: &str = "tidegate.attempt";
    pub(in crate::observe::traces) const DECISION: &str = "tidegate.decision";
    pub(in crate::observe::traces) const REASON: &str = "tidegate.reason";
    pub(in crate::observe::traces) const STATE: &str = "tidegate.span.state";
    pub(in crate::observe::traces) const END: &str = "tidegate.epoch.end";
    pub(in crate::observe::traces) const LASTED: &str = "tidegate.epoch.lasted";
    pub(in crate::observe::traces) const LIVED: &str = "tidegate.epoch.lived_seconds";
    pub(in crate::observe::traces) const FAILED_ATTEMPTS: &str = "tidegate.failed_attempts";
    pub(in crate::observe::traces) const DOWN_SECONDS: &str = "tidegate.down_seconds";
    pub(in crate::observe::traces) const OUTCOME: &str = "tidegate.outcome";
    pub(in crate::observe::traces) const GRANTED: &str = "tidegate.granted";
    pub(in crate::observe::traces) const MCPL: &str = "tidegate.mcpl";
    pub(in crate::observe::traces) const QUEUE: &str = "tidegate.queue";
    pub(in crate::observe::traces) const MESSAGES: &str = "tidegate.messages";
    pub(in crate::observe::traces) const WAITING_HELD: &str = "tidegate.waiting.held";
    pub(in crate::observe) const WAITING_KEPT: &str = "tidegate.waiting.kept";
    pub(in crate::observe) const FROM_SERVER: &str = "tidegate.messages.from_server";
    pub(in crate::observe::traces) const TO_SERVER: &str = "tidegate.messages.to_server";
    pub(in crate::observe::traces) const HELD: &str = "tidegate.messages.held";
    pub(in crate::observe::traces) const KEPT: &str = "tidegate.messages.kept";
    pub(in crate::observe::traces) const DROPPED: &str = "tidegate.messages.dropped";
    pub(in crate::observe::traces) const METHOD: &str = "mcp.method.name";
    pub(in crate::observe::traces) const REVISION: &str = "mcp.protocol.version";
    pub(in crate::observe::traces) const TOOL: &str = "gen_ai.tool.name";
    pub(in crate::observe::traces) const PROMPT: &str = "gen_ai.prompt.name";
    pub(in crate::observe::traces) const OPERATION: &str = "gen_ai.operation.name";
    pub(in crate::observe::traces) const REQUEST_ID: &str = "jsonrpc.request.id";
    pub(in crate::observe::traces) const STATUS_CODE: &str = "rpc.response.status_code";
    pub(in crate::observe::traces) const ERROR: &str = "error.type";
    pub(in crate::observe::traces) const NETWORK: &str = "network.transport";
    pub(in crate::observe::traces) const PROTOCOL: &str = "network.protocol.name";
    pub(in crate::observe::traces) const LINK: &str = "tidegate.link";
}

/// An attribute.
pub(super) fn has(key: &'static str, value: impl Into<Value>) -> KeyValue {
    KeyValue::new(Key::from_static_str(key), value)
}

/// A count as an attribute's value.
pub(super) fn count(value: u64) -> Value {
    Value::I64(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A text that others chose, cut to its bound.
pub(super) fn text(text: &str) -> String {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// `network.transport` of a server's transport label.
pub(super) fn network(transport: &str) -> &'static str {
    if transport == "stdio" { "pipe" } else { "tcp" }
}

/// New ids; in this trace, or in one of their own.
pub(super) fn ids(trace: Option<u128>) -> SpanIds {
    SpanIds {
        trace: trace.unwrap_or_else(|| fastrand::u128(1..)),
        span: fastrand::u64(1..),
    }
}

/// A span without attributes, from `start` to `end`.
pub(super) fn span(
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    ids: SpanIds,
    (start, end): (SystemTime, SystemTime),
) -> SpanData {
    SpanData {
        span_context: context(ids),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: kind,
        name: name.into(),
        start_time: start,
        end_time: end.max(start),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("tidegate")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// A new span in the trace of `parent`.
pub(super) fn child(
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    parent: SpanIds,
    times: (SystemTime, SystemTime),
) -> SpanData {
    let mut child = span(name, kind, ids(Some(parent.trace)), times);
    child.parent_span_id = SpanId::from(parent.span);
    child
}

/// Makes a span part of what a peer does.
pub(super) fn under(span: &mut SpanData, remote: u64) {
    span.parent_span_id = SpanId::from(remote);
    span.parent_span_is_remote = true;
}

/// Links a span to an epoch's root.
pub(super) fn link(span: &mut SpanData, epoch: SpanIds) {
    let attributes = vec![has(key::LINK, "epoch")];
    let mut links = SpanLinks::default();
    links.links = vec![Link::new(context(epoch), attributes, 0)];
    span.links = links;
}

/// An event in a span.
pub(super) fn event(name: &'static str, at: SystemTime, attributes: Vec<KeyValue>) -> Event {
    Event::new(name, at, attributes, 0)
}

/// The span failed, of this.
pub(super) fn fail(span: &mut SpanData, why: &str) {
    span.status = Status::error(text(why));
}

/// A span as others name it.
pub(super) fn context(ids: SpanIds) -> SpanContext {
    SpanContext::new(
        TraceId::from(ids.trace),
        SpanId::from(ids.span),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = format!("x{}", "é".repeat(TEXT_MAX));
        let cut = text(&long);
        assert!(long.starts_with(&cut));
        assert_eq!(cut.len(), TEXT_MAX - 1);
        assert_eq!(text("short"), "short");
    }

    #[test]
    fn no_span_ends_before_it_starts() {
        let (early, late) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        let told = span("x", SpanKind::Internal, ids(None), (late, early));
        assert_eq!((told.start_time, told.end_time), (late, late));
    }
}
