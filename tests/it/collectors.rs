//! Traces at real OTLP receivers from PyPI: oteltap over HTTP, and rotel over gRPC.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::gateway::{PATIENCE, Place, faultd, free_port, with};
use crate::real_servers::installed;

/// A receiver that runs.
struct Collector {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Collector {
    /// Runs a program that listens there.
    async fn run(program: PathBuf, args: &[String], address: SocketAddr) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                tick.tick().await;
            }
        };
        let listens = tokio::time::timeout(PATIENCE, listens).await;
        listens.unwrap_or_else(|_| panic!("nobody listens at {address}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            _child: child,
            lines,
        }
    }

    /// Reads spans until one has this name; all of them.
    async fn until(&mut self, name: &str) -> Vec<Value> {
        let mut spans: Vec<Value> = Vec::new();
        while spans.last().is_none_or(|span| span["name"] != name) {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {name} among {spans:#?}"));
            let line = line.unwrap().expect("the receiver ended");
            spans.extend(serde_json::from_str(&line));
        }
        spans
    }
}

impl Collector {
    /// Reads the spans that rotel logs, a field a line, until one has this value in this field.
    async fn logged(&mut self, field: &str, value: &str) -> BTreeMap<String, String> {
        let mut span = BTreeMap::new();
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no span with {field} {value}"));
            let line = line.unwrap().expect("the receiver ended");
            match line.split_once(':') {
                None => span.clear(),
                Some(("Attributes", _)) if span.get(field).is_some_and(|is| is == value) => {
                    return span;
                }
                Some((name, is)) => {
                    span.insert(name.trim().to_owned(), is.trim().to_owned());
                }
            }
        }
    }
}

fn here() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

fn living(ms: u64) -> Value {
    let server = faultd(&format!("--die-after-ms {ms}"));
    json!({ "a": with(server, json!({ "lastingAfterMs": 300 })) })
}

fn servers() -> Value {
    living(900)
}

/// An oteltap, and a configuration that sends there.
async fn oteltap() -> (Collector, Value) {
    let address = here();
    let args = ["--port".to_owned(), address.port().to_string()];
    let program = installed("venv/bin/oteltap");
    let collector = Collector::run(program, &args, address).await;
    (collector, otlp(address, "http/protobuf"))
}

/// Of the spans, those of this trace that have this span as their parent.
fn children<'a>(spans: &'a [Value], trace: &'a Value, parent: &'a Value) -> Vec<&'a str> {
    let its = |span: &&Value| span["traceId"] == *trace && span["parentSpanId"] == *parent;
    let its = spans.iter().filter(its);
    its.map(|span| span["name"].as_str().unwrap()).collect()
}

fn otlp(address: SocketAddr, protocol: &str) -> Value {
    let endpoint = format!("http://{address}");
    json!({ "telemetry": { "otlp": { "endpoint": endpoint, "protocol": protocol } } })
}

fn nanos(span: &Value, of: &str) -> u64 {
    span[of].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_epoch_reaches_oteltap_over_http_with_its_true_length() {
    let (mut collector, telemetry) = oteltap().await;
    let gateway = Place::with(telemetry).run(&servers()).await;
    let spans = collector.until("mcpl.epoch").await;
    let root = spans.last().unwrap();
    let length = nanos(root, "endTimeUnixNano") - nanos(root, "startTimeUnixNano");
    assert!(length >= 900_000_000, "{root}");
    for name in ["dial", "initialize", "lasted", "mcpl.epoch (open)"] {
        let its = |span: &&Value| span["name"] == name && span["traceId"] == root["traceId"];
        let child = spans.iter().find(its);
        let child = child.unwrap_or_else(|| panic!("{name}: {spans:#?}"));
        assert_eq!(child["parentSpanId"], root["spanId"], "{name}");
    }
    drop(gateway);
}

#[tokio::test]
async fn an_epoch_reaches_rotel_over_grpc_and_is_closed_after_a_kill() {
    let (address, http) = (here(), here());
    let args = format!(
        "start --otlp-grpc-endpoint {address} --otlp-http-endpoint {http} --exporter blackhole \
         --debug-log traces --debug-log-verbosity detailed"
    );
    let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    let program = installed("venv/lib/python3.11/site-packages/rotel/rotel-agent");
    let mut collector = Collector::run(program, &args, address).await;
    let mut gateway = Place::with(otlp(address, "grpc")).run(&servers()).await;
    let pending = collector.logged("Name", "mcpl.epoch (open)").await;
    gateway.replace_killed(&servers()).await;
    let root = collector.logged("ID", &pending["Parent ID"]).await;
    assert_eq!(root["Trace ID"], pending["Trace ID"]);
    assert_eq!(root["Status message"], "gateway died");
    let next = collector.logged("Name", "mcpl.epoch").await;
    let time = |of: &str| next[of].parse::<u64>().unwrap();
    assert!(
        time("End time") - time("Start time") >= 900_000_000,
        "{next:?}"
    );
}

#[tokio::test]
async fn an_epoch_of_8_s_is_exported_as_8_s_and_one_that_a_kill_cuts_off_with_its_children() {
    let (mut collector, telemetry) = oteltap().await;
    let mut gateway = Place::with(telemetry).run(&living(8_000)).await;
    let mut events = gateway.events().await;
    let ended = events.until("a", "ended").await;
    let again = events.until("a", "dialing").await;
    let lived = ended.seconds("livedSeconds");
    assert!(lived >= Duration::from_secs(8), "{ended:?}");

    // Its root begins with its dial, and ends after its loss and before the next dial, as the events have it.
    let root = collector.until("mcpl.epoch").await.pop().unwrap();
    let dialed = events.seen("a", "dialing")[0].at();
    let length =
        Duration::from_nanos(nanos(&root, "endTimeUnixNano") - nanos(&root, "startTimeUnixNano"));
    let between = Duration::from_millis(u64::try_from(again.at() - dialed).unwrap() + 2);
    assert!(
        length >= lived && length <= between,
        "{root} {ended:?} {again:?}"
    );

    // The next epoch is seen while it is open.
    let mut spans = collector.until("lasted").await;
    gateway.kill().await;
    let pending = spans
        .iter()
        .find(|span| span["name"] == "mcpl.epoch (open)");
    let pending = pending.unwrap_or_else(|| panic!("{spans:#?}")).clone();
    let (trace, id) = (&pending["traceId"], &pending["parentSpanId"]);
    let names = children(&spans, trace, id);
    for name in ["dial", "initialize", "mcpl.epoch (open)", "lasted"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(spans.iter().all(|span| span["spanId"] != *id), "{spans:#?}");

    gateway.start(&living(8_000)).await;
    spans = collector.until("mcpl.epoch").await;
    let root = spans.last().unwrap();
    assert_eq!((&root["traceId"], &root["spanId"]), (trace, id));
    assert_eq!(root["status"]["message"], "gateway died");
}
