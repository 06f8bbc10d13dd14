//! Where spans arrive, at oteltap over HTTP or at rotel over gRPC, and what they tell of epochs.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::PATIENCE;
use crate::events::Event;
use crate::gateway::free_address;
use crate::logged::Log;
use crate::processes;
use crate::receivers;

/// The receivers, and what has arrived of epochs.
pub(crate) struct Spans {
    address: SocketAddr,
    grpc: SocketAddr,
    arriving: watch::Sender<Vec<Span>>,
    arrived: watch::Receiver<Vec<Span>>,
    reading: Vec<JoinHandle<()>>,
    oteltap: Child,
    rotel: Child,
}

/// The ways there.
pub(crate) const HTTP: &str = "http/protobuf";
pub(crate) const GRPC: &str = "grpc";

/// A span, as OTLP has it in JSON.
#[derive(Clone, Debug)]
pub(crate) struct Span(Value);

/// `status.code` of a span that failed.
const ERROR: u64 = 2;

impl Span {
    /// An epoch that is over.
    fn is_root(&self) -> bool {
        self.0["name"] == "mcpl.epoch"
    }

    /// The root of the epoch that an event is about.
    fn is_root_of(&self, end: &Event) -> bool {
        let epoch = self.attribute("tidegate.epoch").as_str().map(str::parse);
        self.is_root()
            && epoch == end.epoch().map(Ok)
            && end.is(
                self.attribute("tidegate.server").as_str().unwrap(),
                end.kind(),
            )
    }

    /// It is the root of the epoch that this pending span is of.
    fn closes(&self, open: &Self) -> bool {
        self.is_root()
            && self.0["traceId"] == open.0["traceId"]
            && self.0["spanId"] == open.0["parentSpanId"]
    }

    /// A kill of the gateway ended it.
    fn is_cut_off(&self) -> bool {
        self.attribute("tidegate.epoch.end") == "gateway_died"
    }

    /// A whole number is a text.
    fn attribute(&self, key: &str) -> &Value {
        let all = self.0["attributes"].as_array().unwrap();
        let found = all.iter().find(|attribute| attribute["key"] == key);
        let value = &found.unwrap_or_else(|| panic!("no {key}: {self:?}"))["value"];
        value.as_object().unwrap().values().next().unwrap()
    }

    fn has_failed(&self) -> bool {
        self.0["status"]["code"] == ERROR
    }

    fn length(&self) -> Duration {
        let nanos = |of: &str| self.0[of].as_str().unwrap().parse::<u64>().unwrap();
        Duration::from_nanos(nanos("endTimeUnixNano") - nanos("startTimeUnixNano"))
    }

    /// Holds a root against the event of its end.
    fn assert_tells(&self, end: &Event) {
        let ended = self.attribute("tidegate.epoch.end");
        if end.kind() == "attempt-failed" {
            assert_eq!(ended, end.field("outcome"), "{self:?} {end:?}");
            assert!(self.has_failed(), "{self:?}");
            return;
        }
        let lasted = self.attribute("tidegate.epoch.lasted");
        assert_eq!(ended, end.field("cause"), "{self:?} {end:?}");
        assert_eq!(lasted, end.field("lasted"), "{self:?} {end:?}");
        assert_eq!(self.has_failed(), *lasted == false, "{self:?}");
        let lived = self.attribute("tidegate.epoch.lived_seconds").as_f64();
        let lived = Duration::from_secs_f64(lived.unwrap());
        let told = end.seconds("livedSeconds");
        assert!(
            lived.abs_diff(told) < Duration::from_millis(1),
            "{self:?} {end:?}"
        );
        assert!(self.length() >= told, "{self:?} {end:?}");
    }
}

impl Spans {
    pub(crate) async fn receive() -> Self {
        let address = free_address();
        let mut oteltap = receivers::oteltap(address).await;
        let (grpc, mut rotel) = receivers::rotel().await;
        let (arriving, arrived) = watch::channel(Vec::new());
        let (lines, logged) = (oteltap.stdout.take(), rotel.stdout.take());
        let reading = vec![
            tokio::spawn(read(lines.unwrap(), arriving.clone())),
            tokio::spawn(read_logged(logged.unwrap(), arriving.clone())),
        ];
        Self {
            address,
            grpc,
            arrived,
            reading,
            arriving,
            oteltap,
            rotel,
        }
    }

    /// The part of a gateway's configuration that sends here in one of the ways.
    pub(crate) fn telemetry(&self, protocol: &str) -> Value {
        let address = if protocol == GRPC {
            self.grpc
        } else {
            self.address
        };
        let endpoint = format!("http://{address}");
        json!({ "telemetry": { "otlp": { "endpoint": endpoint, "protocol": protocol } } })
    }

    /// Kills oteltap; where it was.
    pub(crate) async fn end(&mut self) -> SocketAddr {
        self.oteltap.kill().await.unwrap();
        self.address
    }

    /// Runs another one where it was.
    pub(crate) async fn begin_again(&mut self) {
        self.oteltap = receivers::oteltap(self.address).await;
        let lines = self.oteltap.stdout.take().unwrap();
        let reading = tokio::spawn(read(lines, self.arriving.clone()));
        self.reading.push(reading);
    }

    /// Waits until more spans have arrived than by now.
    pub(crate) async fn until_more(&mut self) {
        let before = self.arrived.borrow().len();
        self.until("another span", |spans| spans.len() > before)
            .await;
    }

    /// Waits until each of these ends has its root.
    pub(crate) async fn until_told(&mut self, ends: &[Event]) {
        let has_root = |spans: &[Span], end: &Event| spans.iter().any(|span| span.is_root_of(end));
        let all = |spans: &[Span]| ends.iter().all(|end| has_root(spans, end));
        self.until("the root of each end", all).await;
    }

    /// Waits until the epoch with this trace is told as cut off.
    pub(crate) async fn until_died(&mut self, trace: &Value) {
        let died = |span: &Span| {
            span.is_root() && span.0["traceId"] == *trace && span.has_failed() && span.is_cut_off()
        };
        let any = |spans: &[Span]| spans.iter().any(died);
        self.until(&format!("failed root of {trace}"), any).await;
    }

    /// Waits until no epoch that was seen as open lacks its root. Nothing more is to come: what rotel logs last shows
    /// to be whole when it ends.
    pub(crate) async fn until_closed(&mut self) {
        processes::terminate(self.rotel.id().unwrap());
        let closed = |spans: &[Span]| {
            let mut pending = spans.iter().filter(|span| !span.is_root());
            pending.all(|open| spans.iter().any(|root| root.closes(open)))
        };
        self.until("the root of each epoch that was open", closed)
            .await;
    }

    /// Holds the roots against the events of the same epochs; how many roots there are. None is there twice, but for
    /// one that was delivered in the moment of a kill.
    pub(crate) fn assert_tell(&self, ends: &[Event]) -> usize {
        let spans = self.arrived.borrow();
        for end in ends {
            let its = spans.iter().filter(|span| span.is_root_of(end));
            let mut its = its.filter(|root| !root.is_cut_off());
            its.next().unwrap().assert_tells(end);
            let more: Vec<_> = its.collect();
            assert!(more.is_empty(), "{end:?} has more roots: {more:?}");
        }
        spans.iter().filter(|span| span.is_root()).count()
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&[Span]) -> bool) {
        let so = self.arrived.wait_for(|spans| is_so(spans));
        let so = tokio::time::timeout(PATIENCE, so).await;
        let is_so = so.is_ok_and(|so| so.is_ok());
        assert!(
            is_so,
            "there is never {what} among {:#?}",
            self.arrived.borrow()
        );
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        self.reading.iter().for_each(JoinHandle::abort);
    }
}

/// Keeps what oteltap writes of epochs.
async fn read(lines: impl AsyncRead + Unpin, arriving: watch::Sender<Vec<Span>>) {
    let mut lines = BufReader::new(lines).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        keep(serde_json::from_str(&line).ok(), &arriving);
    }
}

/// Keeps what rotel logs of epochs.
async fn read_logged(lines: impl AsyncRead + Unpin, arriving: watch::Sender<Vec<Span>>) {
    let mut lines = BufReader::new(lines).lines();
    let mut log = Log::default();
    while let Some(line) = lines.next_line().await.unwrap() {
        keep(log.take(&line), &arriving);
    }
    keep(log.end(), &arriving);
}

fn keep(span: Option<Value>, arriving: &watch::Sender<Vec<Span>>) {
    let name = |span: &Value| span["name"].as_str().unwrap_or_default().to_owned();
    if let Some(span) = span.filter(|span| name(span).starts_with("mcpl.epoch")) {
        arriving.send_modify(|all| all.push(Span(span)));
    }
}
