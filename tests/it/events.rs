//! The gateway's event stream, read as a status channel would.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::gateway::{Gateway, PATIENCE};

/// One decision, as `/api/v1/events` tells it.
#[derive(Clone, Debug)]
pub(crate) struct Event(Value);

/// The stream, and what was read from it.
pub(crate) struct Events {
    lines: Lines<BufReader<TcpStream>>,
    seen: Vec<Event>,
}

impl From<Value> for Event {
    fn from(data: Value) -> Self {
        Self(data)
    }
}

impl Event {
    pub(crate) fn kind(&self) -> &str {
        self.0["kind"].as_str().unwrap()
    }

    pub(crate) fn is(&self, server: &str, kind: &str) -> bool {
        self.0["server"] == server && self.kind() == kind
    }

    pub(crate) fn text(&self) -> &str {
        self.0["text"].as_str().unwrap()
    }

    /// The process of the server that it is about, where it is about one.
    pub(crate) fn epoch(&self) -> Option<usize> {
        let epoch = self.0["epoch"].as_u64()?;
        Some(usize::try_from(epoch).unwrap())
    }

    pub(crate) fn attempt(&self) -> u64 {
        self.0["attempt"].as_u64().unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> &Value {
        &self.0["fields"][name]
    }

    /// When it was decided, in milliseconds since 1970.
    pub(crate) fn at(&self) -> u128 {
        let at = humantime::parse_rfc3339(self.0["at"].as_str().unwrap()).unwrap();
        at.duration_since(UNIX_EPOCH).unwrap().as_millis()
    }

    /// A field that is a time in seconds.
    pub(crate) fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.field(name).as_f64().unwrap())
    }
}

impl Events {
    /// Opens the stream at the first decision since the gateway's start.
    pub(crate) async fn open(gateway: &Gateway) -> Self {
        let boot = Self::from(gateway, "").await.boot().await;
        Self::from(gateway, &format!("Last-Event-ID: {boot}-0\r\n")).await
    }

    async fn from(gateway: &Gateway, headers: &str) -> Self {
        let stream = gateway.request("/api/v1/events", headers).await;
        let mut lines = BufReader::new(stream).lines();
        let head = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let head = head.expect("no answer").unwrap().unwrap();
        assert!(head.contains(" 200 "), "{head}");
        Self {
            lines,
            seen: Vec::new(),
        }
    }

    /// The boot id, which the ids of all events of a gateway's life begin with.
    async fn boot(&mut self) -> String {
        // Comments keep the stream alive, so it is not each line that is waited for.
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.line(end).await;
            if let Some(id) = line.strip_prefix("id:") {
                return id.trim().split_once('-').unwrap().0.to_owned();
            }
        }
    }

    async fn line(&mut self, end: Instant) -> String {
        let next = tokio::time::timeout_at(end, self.lines.next_line()).await;
        let next = next.unwrap_or_else(|_| panic!("nothing more than {:#?}", self.seen));
        next.unwrap().expect("the event stream ended")
    }

    /// The next one. Nothing is lost where this is not waited for to the end.
    pub(crate) async fn next(&mut self) -> Event {
        // Comments keep the stream alive, so it is not each line that is waited for.
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.line(end).await;
            let data = line
                .strip_prefix("data:")
                .and_then(|data| serde_json::from_str(data).ok());
            if let Some(data @ Value::Object(_)) = data
                && data["kind"].is_string()
            {
                let event = Event(data);
                self.seen.push(event.clone());
                return event;
            }
        }
    }

    /// Reads on until this happened to that server.
    pub(crate) async fn until(&mut self, server: &str, kind: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.is(server, kind) {
                return event;
            }
        }
    }

    /// Reads on until this has happened so often to that server since the gateway's start.
    pub(crate) async fn until_times(&mut self, server: &str, kind: &str, times: usize) {
        while self.seen(server, kind).len() < times {
            self.next().await;
        }
    }

    /// What was read so far of one server.
    pub(crate) fn seen(&self, server: &str, kind: &str) -> Vec<&Event> {
        self.seen
            .iter()
            .filter(|event| event.is(server, kind))
            .collect()
    }
}
