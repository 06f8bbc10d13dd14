//! What is measured. Each group is one function that gives its lines.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::gateway::{
    Gateway, client_times, cpu_seconds, faultd, free_address, get, peer, percentile,
    resident_mebibytes,
};
use crate::peers::{ask, call, session};
use crate::{Line, collector, engine, flush, http};

/// Measures some lines.
type Measure = fn() -> Vec<Line>;

/// The groups, by the name that selects them.
pub(crate) const GROUPS: [(&str, Measure); 13] = [
    ("engine inputs", engine::inputs_per_second),
    ("latency", latency),
    ("http calls", http::calls),
    ("http sessions", http::sessions),
    ("neighbours", stalled_neighbour),
    ("loss seen", loss_seen),
    ("flush", flush::flush),
    ("idle servers", idle_servers),
    ("shutdown", shutdown),
    ("demo", demo),
    ("half-open", half_open),
    ("scrape", scrape),
    ("collector", collector::collector),
];

/// What a call costs beside a direct WebSocket, everything on one core.
fn latency() -> Vec<Line> {
    let (echo, relay) = (free_address(), free_address());
    let url = format!("ws://{echo}");
    let _echo = peer(&["role:echo", &echo], true);
    let _relay = peer(&["role:relay", &relay, &url], true);
    let gateway = Gateway::start(&format!("  echo: {{ url: \"{url}\" }}\n"), true);
    let sizes = [
        ("latency added to a call of 200 B, p50", 200, 20_000, 25.0),
        (
            "latency added to a call of 64 KiB, p50",
            65_536,
            4_000,
            150.0,
        ),
    ];
    sizes
        .map(|(name, size, count, target)| {
            let p50 = |url: &str| percentile(&client_times(url, size, count), 0.5);
            let direct = p50(&url);
            let value = p50(&gateway.url("echo")) - direct;
            let floor = Some(p50(&format!("ws://{relay}")) - direct);
            Line {
                name,
                unit: "µs",
                value,
                target,
                floor,
                more: false,
            }
        })
        .into()
}

/// What a server that reads nothing adds to the calls of another.
fn stalled_neighbour() -> Vec<Line> {
    let echo = free_address();
    let _echo = peer(&["role:echo", &echo], false);
    let deaf = faultd();
    let servers = format!(
        "  echo: {{ url: \"ws://{echo}\" }}\n  deaf: {{ command: \"{deaf}\", args: [--deaf] }}\n"
    );
    let gateway = Gateway::start(&servers, false);
    let p99 = |count| percentile(&client_times(&gateway.url("echo"), 200, count), 0.99);
    let alone = p99(5_000);
    let flood = Flood::start(&gateway.url("deaf"));
    let value = (p99(5_000) - alone) / 1e3;
    drop(flood);
    let name = "p99 that a stalled server adds to another's calls";
    vec![Line {
        name,
        unit: "ms",
        value,
        target: 10.0,
        floor: None,
        more: false,
    }]
}

/// Calls of 64 KiB to a server that never answers, as many as fit.
struct Flood(
    std::sync::Arc<std::sync::atomic::AtomicBool>,
    Option<std::thread::JoinHandle<()>>,
);

impl Flood {
    fn start(url: &str) -> Self {
        use futures_util::SinkExt;
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (url, flag) = (url.to_owned(), std::sync::Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let mut socket = session(&url).await;
                for id in 1..4_000 {
                    if flag.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    let message = call(id, 65_536);
                    let sent = socket.send(tokio_tungstenite::tungstenite::Message::Text(
                        message.into(),
                    ));
                    if tokio::time::timeout(Duration::from_secs(5), sent)
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.1.take().unwrap().join();
    }
}

/// From `kill -9` of a server, while a grandchild holds its stdout, to the answer of the call in flight.
fn loss_seen() -> Vec<Line> {
    let settings = "reconnectIntervalMs: 50, reconnectMaxIntervalMs: 50";
    let faultd = faultd();
    let servers = format!("  s: {{ command: \"{faultd}\", args: [--grandchild], {settings} }}\n");
    let gateway = Gateway::start(&servers, false);
    let mut times: Vec<f64> = (0..60)
        .map(|_| runtime().block_on(one_loss(&gateway)))
        .collect();
    times.sort_by(f64::total_cmp);
    let value = percentile(&times, 0.99);
    let name = "loss of a killed server seen by its host, p99 of 60";
    vec![Line {
        name,
        unit: "ms",
        value,
        target: 10.0,
        floor: None,
        more: false,
    }]
}

async fn one_loss(gateway: &Gateway) -> f64 {
    let mut socket = session(&gateway.url("s")).await;
    let tool = |id: u32, name: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{"ms":60000}}}}}}"#
        )
    };
    let pid = loop {
        let answer = ask(&mut socket, &tool(1, "pid")).await;
        if let Some(pid) = pid_of(&answer) {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    use futures_util::{SinkExt, StreamExt};
    let sleep = tokio_tungstenite::tungstenite::Message::Text(tool(2, "sleep").into());
    socket.send(sleep).await.unwrap();
    // The call must be with the server before that is killed: its own ping comes back after it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .unwrap()
            .success()
    );
    loop {
        let text = socket.next().await.unwrap().unwrap().to_string();
        if text.contains("-32051") {
            return start.elapsed().as_secs_f64() * 1e3;
        }
    }
}

/// The server's process id, from the answer of faultd's tool `pid`.
fn pid_of(answer: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(answer).ok()?;
    let found = |value: &serde_json::Value| value.get("pid").and_then(serde_json::Value::as_u64);
    let result = value.get("result")?;
    let text = result
        .pointer("/content/0/text")
        .and_then(|text| text.as_str())
        .unwrap_or("{}");
    let inner = serde_json::from_str::<serde_json::Value>(text).ok();
    let pid = found(result)
        .or_else(|| result.get("structuredContent").and_then(found))
        .or_else(|| inner.as_ref().and_then(found));
    pid.map(|pid| pid.to_string())
}

/// A hundred stdio servers that do nothing.
fn idle_servers() -> Vec<Line> {
    let faultd = faultd();
    let servers: String = (0..100)
        .map(|n| format!("  s{n}: {{ command: \"{faultd}\" }}\n"))
        .collect();
    let gateway = Gateway::start(&servers, false);
    std::thread::sleep(Duration::from_secs(5));
    let pid = gateway.process.0.id();
    let before = cpu_seconds(pid);
    std::thread::sleep(Duration::from_secs(10));
    let cpu = (cpu_seconds(pid) - before) / 10.0 * 100.0;
    let rss = resident_mebibytes(pid);
    vec![
        Line {
            name: "memory with 100 idle stdio servers",
            unit: "MiB",
            value: rss,
            target: 24.0,
            floor: None,
            more: false,
        },
        Line {
            name: "CPU with 100 idle stdio servers",
            unit: "%",
            value: cpu,
            target: 1.0,
            floor: None,
            more: false,
        },
    ]
}

/// SIGTERM with ten servers, one of which ignores SIGTERM.
fn shutdown() -> Vec<Line> {
    let faultd = faultd();
    let servers: String = (0..10)
        .map(|n| {
            let args = if n == 0 { "[--ignore-sigterm]" } else { "[]" };
            format!("  s{n}: {{ command: \"{faultd}\", args: {args} }}\n")
        })
        .collect();
    let mut gateway = Gateway::start(&servers, false);
    let start = Instant::now();
    let pid = gateway.process.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let status = gateway.process.0.wait().unwrap();
    let value = start.elapsed().as_secs_f64();
    assert!(status.success(), "{status}");
    let name = "SIGTERM to exit, ten servers, one ignoring SIGTERM";
    vec![Line {
        name,
        unit: "s",
        value,
        target: 10.0,
        floor: None,
        more: false,
    }]
}

/// The demo, compressed.
fn demo() -> Vec<Line> {
    let start = Instant::now();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = demo.args(["demo", "--fast"]).output().unwrap();
    let value = start.elapsed().as_secs_f64();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    vec![Line {
        name: "demo --fast, whole",
        unit: "s",
        value,
        target: 60.0,
        floor: None,
        more: false,
    }]
}

/// From the last sign of life of a WebSocket server, whose process is stopped, to the loss.
fn half_open() -> Vec<Line> {
    let echo = free_address();
    let peer = peer(&["role:echo", &echo], false);
    let gateway = Gateway::start(&format!("  echo: {{ url: \"ws://{echo}\" }}\n"), false);
    assert_eq!(gateway.gauge("tidegate_server_connected", "echo"), 1.0);
    let pid = peer.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-STOP", &pid])
            .status()
            .unwrap()
            .success()
    );
    let start = Instant::now();
    while gateway.gauge("tidegate_server_connected", "echo") == 1.0 {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "the loss was never seen"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let value = start.elapsed().as_secs_f64();
    let name = "a half-open WebSocket seen";
    vec![Line {
        name,
        unit: "s",
        value,
        target: 45.0,
        floor: None,
        more: false,
    }]
}

/// What the page of metrics of 500 servers costs, and what its making adds to calls meanwhile. They are disabled: their
/// series are as many as those of servers that run.
fn scrape() -> Vec<Line> {
    let echo = free_address();
    let _echo = peer(&["role:echo", &echo], false);
    let mut servers = format!("  echo: {{ url: \"ws://{echo}\" }}\n");
    for n in 0..500 {
        servers += &format!("  server-{n}: {{ command: none, enabled: false }}\n");
    }
    let gateway = Gateway::start(&servers, false);
    let page = || {
        let start = Instant::now();
        let page = get(&gateway.admin, "/metrics");
        assert!(
            page.contains("server=\"server-499\""),
            "the page is not whole"
        );
        start.elapsed().as_secs_f64() * 1e3
    };
    let mut pages: Vec<f64> = (0..50).map(|_| page()).collect();
    pages.sort_by(f64::total_cmp);
    let p99 = || percentile(&client_times(&gateway.url("echo"), 200, 5_000), 0.99);
    let alone = p99();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scraped = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ten times a second, where Prometheus comes four times a minute.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                page();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let scraped = p99();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        scraped
    });
    let line = |name, value, target| Line {
        name,
        unit: "ms",
        value,
        target,
        floor: None,
        more: false,
    };
    vec![
        line(
            "a scrape of 500 servers, p50",
            percentile(&pages, 0.5),
            20.0,
        ),
        line(
            "p99 that ten such scrapes a second add to calls",
            (scraped - alone) / 1e3,
            2.0,
        ),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
