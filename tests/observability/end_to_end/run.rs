//! Everything that runs, how each part of it is killed, and what was decided and announced meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

use crate::events::Event;
use crate::gateway::{Gateway, Place};
use crate::scripted::Scripted;
use crate::sink::{self, Sink};
use crate::spans::{GRPC, HTTP, Spans};
use crate::stack::Stack;

/// Everything that runs, and what the engine decided.
pub(crate) struct Run {
    pub(crate) lives: PathBuf,
    scripted: Scripted,
    pub(crate) gateway: Gateway,
    pub(crate) sink: Sink,
    pub(crate) stack: Stack,
    spans: Spans,
    /// How often the gateway was killed.
    kills: usize,
    host: JoinHandle<()>,
    /// The down and clear edges of the gateways that were killed.
    edges: Vec<Event>,
    /// The ends of epochs, of these too.
    ends: Vec<Event>,
    pub(crate) began: u128,
}

const EDGES: &str = "down,clear";
/// Each ends an epoch.
const ENDS: &str = "ended,attempt-failed";

impl Run {
    pub(crate) async fn start() -> Self {
        let began = sink::now();
        let spans = Spans::receive().await;
        let place = Place::with(spans.telemetry(HTTP));
        let lives = place.file("lives");
        fs::create_dir(&lives).unwrap();
        let scripted = Scripted::new(&lives);
        let gateway = place.run(&scripted.servers).await;
        let sink = Sink::open().await;
        let stack = Stack::start(gateway.admin(), sink.address).await;
        let host = attach(&gateway).await;
        Self {
            lives,
            scripted,
            gateway,
            sink,
            stack,
            spans,
            kills: 0,
            host,
            edges: Vec::new(),
            ends: Vec::new(),
            began,
        }
    }

    /// Says how far the run is, for whoever reads of its failure.
    pub(crate) fn reached(&self, what: &str) {
        let seconds = (sink::now() - self.began) as f64 / 1e3;
        eprintln!("{seconds:5.1} s: {what}");
    }

    /// Kills the gateway, and starts it again in the same place, with the other way for its spans.
    pub(crate) async fn kill_gateway(&mut self) {
        self.host.abort();
        let (edges, started) = (decided(&self.gateway, EDGES).await, self.started().await);
        self.edges.extend(edges);
        self.ends_are_told().await;
        let open = self.gateway.server("steady").await["traceId"].take();
        self.kills += 1;
        let way = [HTTP, GRPC][self.kills % 2];
        self.gateway.place.more = self.spans.telemetry(way);
        self.gateway.replace_killed(&self.scripted.servers).await;
        self.host = attach(&self.gateway).await;
        self.spans.until_died(&open).await;
        let again = format!("process_start_time_seconds{{job=\"tidegate\"}} > {started}");
        self.stack.until(&again).await;
        self.stack.until_evaluated(4).await;
        self.reached(&format!(
            "the gateway was killed, and tells spans over {way}"
        ));
    }

    /// Waits until the root of each epoch that this gateway has ended is with the receiver.
    async fn ends_are_told(&mut self) {
        let ends = decided(&self.gateway, ENDS).await;
        self.spans.until_told(&ends).await;
        self.ends.extend(ends);
    }

    /// Ends the gateway, and holds the trace of each epoch of the run against its events.
    pub(crate) async fn traces_agree(&mut self) {
        self.ends_are_told().await;
        self.host.abort();
        let status = self.gateway.terminate().await;
        assert!(status.success(), "{status}");
        self.spans.until_closed().await;
        let roots = self.spans.assert_tell(&self.ends);
        self.reached(&format!("{roots} epochs are traces"));
    }

    /// Kills Prometheus, and starts it again.
    pub(crate) async fn kill_prometheus(&mut self) {
        self.stack.kill_prometheus().await;
        self.reached("Prometheus was killed");
    }

    /// When Prometheus says that the gateway was started.
    async fn started(&self) -> f64 {
        let query = "process_start_time_seconds{job=\"tidegate\"}";
        self.stack.until(query).await;
        self.stack.values(query).await[0].samples[0].1
    }

    /// Kills Alertmanager; Prometheus tells it again what is firing when it sends everything again.
    pub(crate) async fn kill_alertmanager(&mut self) {
        let told = self.sink.told().last().unwrap().at;
        self.stack.kill_alertmanager(told).await;
        self.sink.until_watched(sink::now()).await;
        self.reached("Alertmanager was killed");
    }

    /// Holds what was announced of a server against what the engine decided, and returns how much later it came.
    pub(crate) async fn announced(&self, server: &str, statuses: &[&str]) -> u128 {
        let told = self.sink.of(server);
        let said: Vec<_> = told.iter().map(|notice| notice.status.as_str()).collect();
        assert_eq!(said, statuses, "{server}: {told:#?}");
        let last = decided(&self.gateway, EDGES).await;
        let is_of_it = |edge: &&Event| edge.is(server, "down") || edge.is(server, "clear");
        let edges: Vec<_> = self.edges.iter().chain(&last).filter(is_of_it).collect();
        let named = statuses.iter().map(|status| match *status {
            "firing" => "down",
            _ => "clear",
        });
        let kinds = edges.iter().map(|edge| edge.kind());
        assert!(kinds.eq(named), "{server}: {edges:#?}");
        let pairs = told.iter().zip(edges);
        let later = pairs.map(|(notice, edge)| notice.at.saturating_sub(edge.at()));
        later.max().unwrap_or_default()
    }
}

impl Drop for Run {
    /// Hosts go before their gateway.
    fn drop(&mut self) {
        self.host.abort();
    }
}

/// What a gateway has decided since its start, of these kinds.
async fn decided(gateway: &Gateway, kinds: &str) -> Vec<Event> {
    let path = format!("/api/v1/events?kind={kinds}");
    let asked = gateway.request(&path, "Accept: application/json\r\n");
    let mut answer = String::new();
    asked.await.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let events = body["events"].as_array().unwrap().iter();
    events.cloned().map(Event::from).collect()
}

/// Clients that call what is there and what is not, over and over.
async fn attach(gateway: &Gateway) -> JoinHandle<()> {
    let mut clients = Vec::new();
    for server in ["steady", "absent", "mended"] {
        clients.push(gateway.client(server).await);
    }
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        loop {
            tick.tick().await;
            for client in &mut clients {
                client.call("echo", json!({"text": "hello"})).await;
            }
        }
    })
}
