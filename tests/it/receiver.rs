//! An OTLP receiver over HTTP in the test's own process: it takes spans, or does what a receiver should not.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::{Span as Wire, span, status::StatusCode as Code};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::gateway::PATIENCE;

/// A test that gets more spans has a loop.
const SPANS_MAX: usize = 20_000;

/// What it does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Takes it.
    Takes,
    /// Never answers.
    Hangs,
    /// Answers 200 with bytes that are no answer.
    TalksGarbage,
    /// Answers 500.
    Fails,
}

/// The receiver.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    manner: watch::Sender<Manner>,
    spans: watch::Sender<Vec<Span>>,
    headers: watch::Sender<Vec<HeaderMap>>,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) kind: i32,
    /// In nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) failed: bool,
    pub(crate) status: String,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) events: Vec<String>,
    /// The spans that it is linked to.
    pub(crate) links: Vec<String>,
    /// Of the resource.
    pub(crate) service: Value,
    /// All of it, to look for what should not be there.
    pub(crate) whole: String,
}

impl Receiver {
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            manner: watch::Sender::new(manner),
            spans: watch::Sender::default(),
            headers: watch::Sender::default(),
        });
        let router = Router::new().route("/v1/traces", post(take));
        let router = router.with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared }
    }

    /// `telemetry` of a configuration that sends here.
    pub(crate) fn telemetry(&self) -> Value {
        json!({ "telemetry": { "otlp": { "endpoint": format!("http://{}", self.address) } } })
    }

    pub(crate) fn set(&self, manner: Manner) {
        self.shared.manner.send_replace(manner);
    }

    /// Everything that has come.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.shared.spans.borrow().clone()
    }

    /// The headers of the first delivery.
    pub(crate) fn headers(&self) -> HeaderMap {
        self.shared.headers.borrow()[0].clone()
    }

    /// Waits for a span that is like this; the first.
    pub(crate) async fn until(&self, what: &str, is_it: impl Fn(&Span) -> bool) -> Span {
        let mut spans = self.shared.spans.subscribe();
        let found = spans.wait_for(|spans| spans.iter().any(&is_it));
        let Ok(found) = tokio::time::timeout(PATIENCE, found).await else {
            let seen: Vec<_> = self.spans().into_iter().map(|span| span.name).collect();
            panic!("no {what} among {seen:?}");
        };
        found
            .unwrap()
            .iter()
            .find(|span| is_it(span))
            .unwrap()
            .clone()
    }

    /// Waits for a span of this name.
    pub(crate) async fn named(&self, name: &str) -> Span {
        self.until(name, |span| span.name == name).await
    }
}

impl Span {
    #[track_caller]
    pub(crate) fn attribute(&self, key: &str) -> &Value {
        let found = self.attributes.get(key);
        found.unwrap_or_else(|| panic!("no {key}: {self:?}"))
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    shared.headers.send_modify(|all| all.push(headers));
    let manner = *shared.manner.borrow();
    match manner {
        Manner::Takes => {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let new = spans(request);
            shared.spans.send_modify(|all| {
                all.extend(new);
                assert!(all.len() <= SPANS_MAX);
            });
            ([(header::CONTENT_TYPE, "application/x-protobuf")], "").into_response()
        }
        Manner::Hangs => std::future::pending().await,
        Manner::TalksGarbage => "<html>\u{1b}[2J nothing of OTLP</html>".into_response(),
        Manner::Fails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        let of = resource.resource.unwrap_or_default();
        let service = json!(attributes(&of.attributes));
        for scope in resource.scope_spans {
            spans.extend(scope.spans.iter().map(|span| read(span, &service)));
        }
    }
    spans
}

fn read(span: &Wire, service: &Value) -> Span {
    let status = span.status.clone().unwrap_or_default();
    Span {
        name: span.name.clone(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        failed: status.code() == Code::Error,
        status: status.message,
        attributes: attributes(&span.attributes),
        events: span.events.iter().map(|event| event.name.clone()).collect(),
        links: span.links.iter().map(linked).collect(),
        service: service.clone(),
        whole: format!("{span:?}"),
    }
}

fn linked(link: &span::Link) -> String {
    hex(&link.span_id)
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |attribute: &KeyValue| match attribute.value.clone().unwrap_or_default().value {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(value)) => json!(value),
        Some(Any::IntValue(value)) => json!(value),
        Some(Any::DoubleValue(value)) => json!(value),
        other => panic!("{other:?}"),
    };
    let pairs = attributes
        .iter()
        .map(|pair| (pair.key.clone(), value(pair)));
    pairs.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
