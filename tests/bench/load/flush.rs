//! A flush of what was kept: how soon a host has it all, and what another server's calls meet meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::Line;
use crate::gateway::{Gateway, faultd, free_address, get, peer, percentile};
use crate::peers::{Socket, ask, call, connect, session};

/// As many as may be kept (G6).
const KEPT: usize = 10_000;
/// Each is a gateway of its own; the figures are medians.
const RUNS: usize = 5;

pub(crate) fn flush() -> Vec<Line> {
    let (mut took, mut delays): (Vec<f64>, Vec<f64>) = (0..RUNS).map(|_| run()).unzip();
    took.sort_by(f64::total_cmp);
    delays.sort_by(f64::total_cmp);
    let line = |name, values: &[f64], target| Line {
        name,
        unit: "ms",
        value: percentile(values, 0.5),
        target,
        floor: None,
        more: false,
    };
    vec![
        line("a flush of 10,000 kept messages at the host", &took, 250.0),
        line("what that adds to another's slowest call", &delays, 10.0),
    ]
}

/// From the opening of the data plane to the last message, and by how much the slowest of another's calls meanwhile is
/// slower than the slowest of as long a time before, in milliseconds.
fn run() -> (f64, f64) {
    let (echo, dir) = (free_address(), tempfile::tempdir().unwrap());
    let _echo = peer(&["role:echo", &echo], false);
    let gateway = Gateway::start(&servers(dir.path(), &echo), false);
    let kept =
        format!("tidegate_server_kept_messages{{kind=\"request\",server=\"chat\"}} {KEPT}\n");
    wait(|| get(&gateway.admin, "/metrics").contains(&kept));
    wait(|| get(&gateway.admin, "/api/v1/servers/chat").contains("\"channels\":2"));
    let stop = Arc::new(AtomicBool::new(false));
    let caller = {
        let (url, stop) = (gateway.url("echo"), Arc::clone(&stop));
        std::thread::spawn(move || runtime().block_on(calls(&url, &stop)))
    };
    std::thread::sleep(Duration::from_millis(500));
    let (start, end) = runtime().block_on(receive(&gateway.url("chat")));
    stop.store(true, Ordering::Relaxed);
    let calls = caller.join().unwrap();
    let took = end - start;
    let slowest = |from: Instant, to: Instant| {
        let meanwhile = calls
            .iter()
            .filter(|(began, took)| *began < to && *began + *took > from);
        let longest = meanwhile.map(|(_, took)| *took).max();
        longest.unwrap_or_default().as_secs_f64() * 1e3
    };
    let added = slowest(start, end) - slowest(start - took, start);
    (took.as_secs_f64() * 1e3, added)
}

/// A bridge that dies with its messages said, and then only registers its channels.
fn servers(dir: &std::path::Path, echo: &str) -> String {
    let begin = "await initialize; welcome register; await policy; grant; await got 100";
    let (script, diary) = (dir.join("script"), dir.join("diary"));
    let dies = format!(
        "{begin}; burst {KEPT}; await file {}; die",
        dir.join("script").display()
    );
    std::fs::write(&script, format!("{dies}\n{begin}\n")).unwrap();
    let args = format!(
        "[--script, {}, --diary, {}]",
        script.display(),
        diary.display()
    );
    format!(
        "  echo: {{ url: \"ws://{echo}\" }}\n  chat: {{ command: \"{}\", args: {args}, reconnectIntervalMs: 1 }}\n",
        faultd()
    )
}

fn wait(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Calls one after the other until it is told to stop: when each began, and what it took.
async fn calls(url: &str, stop: &AtomicBool) -> Vec<(Instant, Duration)> {
    let mut socket = session(url).await;
    let mut calls = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        ask(&mut socket, &call(calls.len() + 1, 200)).await;
        calls.push((began, began.elapsed()));
    }
    calls
}

/// A host that serves: it takes the channels, which opens the data plane, and then message by message.
async fn receive(url: &str) -> (Instant, Instant) {
    let mut socket = connect(url).await;
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"mcpl":{"version":"0.5"}}},"clientInfo":{"name":"b","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"featureSets/update","params":{"effectiveCapabilities":["channels.*"]}}"#,
    ] {
        socket.send(Message::Text(text.into())).await.unwrap();
    }
    let mut start = Instant::now();
    let mut received = 0;
    while received < KEPT {
        let text = socket.next().await.unwrap().unwrap();
        let Message::Text(text) = text else { continue };
        if text.contains("\"channels/register\"") {
            start = Instant::now();
        } else if text.contains("\"channels/incoming\"") {
            received += 1;
        } else {
            continue;
        }
        accept(&mut socket, &text).await;
    }
    (start, Instant::now())
}

#[derive(serde::Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: &'a serde_json::value::RawValue,
}

async fn accept(socket: &mut Socket, asked: &str) {
    let id = serde_json::from_str::<Asked<'_>>(asked).unwrap().id;
    let result = r#"{"results":[{"accepted":true}]}"#;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    socket.send(Message::Text(answer.into())).await.unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
