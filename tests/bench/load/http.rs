//! Hosts and servers over Streamable HTTP: what a call costs beside a direct connection and beside nginx as a plain
//! reverse proxy, in one run, and what sessions cost that do nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Line;
use crate::gateway::{
    Gateway, Process, command, cpu_seconds, free_address, get, peer, percentile, resident_mebibytes,
};
use crate::http_peers::{Measured, listen, open};

/// How long one figure is measured.
const TIME_MS: u64 = 1_500;
/// Idle sessions.
const SESSIONS: u32 = 1_000;

/// The three ways to one server.
struct Ways {
    direct: String,
    nginx: String,
    gateway: Gateway,
    proxy: Process,
    _server: Process,
    _dir: tempfile::TempDir,
}

impl Ways {
    fn open(pinned: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (direct, nginx) = (free_address(), free_address());
        let server = peer(&["role:http-server", &direct], pinned);
        let proxy = start_nginx(dir.path(), &nginx, &direct, pinned);
        until_listening(&direct);
        until_listening(&nginx);
        let gateway = Gateway::start(
            &format!("  give: {{ url: \"http://{direct}/mcp\" }}\n"),
            pinned,
        );
        Self {
            direct,
            nginx,
            gateway,
            proxy,
            _server: server,
            _dir: dir,
        }
    }
}

fn until_listening(address: &str) {
    let start = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{address} does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start_nginx(folder: &Path, listen: &str, upstream: &str, pinned: bool) -> Process {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/bench/nginx.conf")).unwrap();
    let text = text
        .replace("LISTEN", listen)
        .replace("UPSTREAM", upstream)
        .replace("FOLDER", &folder.display().to_string());
    let file = folder.join("nginx.conf");
    fs::write(&file, text).unwrap();
    let unpacked = root.join("target/real/nginx/usr/sbin/nginx");
    let program = if unpacked.exists() {
        unpacked
    } else {
        PathBuf::from("nginx")
    };
    let mut command = command(program.to_str().unwrap(), pinned);
    command.arg("-p").arg(folder).arg("-c").arg(&file);
    Process(
        command
            .spawn()
            .expect("nginx is missing: .ci/install bench"),
    )
}

fn measure(address: &str, path: &str, bytes: usize, at_once: usize, pinned: bool) -> Measured {
    let program = std::env::current_exe().unwrap();
    let mut command = command(program.to_str().unwrap(), pinned);
    command.args(["role:http-client", address, path]);
    command.args([bytes, at_once].map(|number| number.to_string()));
    command.arg(TIME_MS.to_string());
    let output = command.stdout(Stdio::piped()).output().unwrap();
    let mut measured: Measured = serde_json::from_slice(&output.stdout).unwrap();
    measured.times.sort_by(f64::total_cmp);
    measured
}

/// The CPU seconds of a process and its children that run.
fn cpu_of_all(pid: u32) -> f64 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let children = children
        .split_whitespace()
        .map(|pid| cpu_seconds(pid.parse().unwrap()));
    cpu_seconds(pid) + children.sum::<f64>()
}

/// Both sizes at each concurrency, on one core and on all.
pub(crate) fn calls() -> Vec<Line> {
    let mut lines = Vec::new();
    for pinned in [true, false] {
        let ways = Ways::open(pinned);
        for (size, bytes, target) in [("200 B", 200, 25.0), ("64 KiB", 65_536, 150.0)] {
            for at_once in [1, 16, 64] {
                lines.extend(ways.compare(size, bytes, at_once, pinned, target));
            }
        }
    }
    lines
}

impl Ways {
    fn compare(
        &self,
        size: &str,
        bytes: usize,
        at_once: usize,
        pinned: bool,
        target: f64,
    ) -> Vec<Line> {
        let place = if pinned { "one core" } else { "all cores" };
        let what = |what: &str| -> &'static str {
            format!("HTTP, {size}, {at_once} at a time, {place}: {what}").leak()
        };
        let direct = measure(&self.direct, "/mcp", bytes, at_once, pinned);
        let (nginx, nginx_cpu) =
            self.through(&self.nginx, "/mcp", &self.proxy, bytes, at_once, pinned);
        let (own, own_cpu) = self.through(
            &self.gateway.listen,
            "/mcp/give",
            &self.gateway.process,
            bytes,
            at_once,
            pinned,
        );
        let added = |share| {
            let base = percentile(&direct.times, share);
            (
                percentile(&own.times, share) - base,
                percentile(&nginx.times, share) - base,
            )
        };
        let line = |name, unit, (value, floor), target, more| Line {
            name: what(name),
            unit,
            value,
            target,
            floor: Some(floor),
            more,
        };
        let (p50, p99) = (added(0.5), added(0.99));
        let single = at_once == 1 && pinned;
        let bound = if single { target } else { f64::INFINITY };
        let least = if at_once == 1 {
            f64::INFINITY
        } else {
            0.6 * nginx.per_second
        };
        let mut lines = vec![
            line("added p50", "µs", p50, bound, false),
            line("added p99", "µs", p99, f64::INFINITY, false),
            line(
                "calls",
                "/s",
                (own.per_second, nginx.per_second),
                least,
                true,
            ),
        ];
        if at_once == 64 && bytes == 200 {
            lines.push(line(
                "CPU of a call",
                "µs",
                (own_cpu, nginx_cpu),
                25.0,
                false,
            ));
        }
        lines
    }

    /// What was measured, and the microseconds of CPU that a call took there.
    fn through(
        &self,
        address: &str,
        path: &str,
        process: &Process,
        bytes: usize,
        at_once: usize,
        pinned: bool,
    ) -> (Measured, f64) {
        let before = cpu_of_all(process.0.id());
        let measured = measure(address, path, bytes, at_once, pinned);
        let spent = cpu_of_all(process.0.id()) - before;
        // The calls of the warm-up cost as much.
        let share = TIME_MS as f64 / (TIME_MS as f64 + 300.0);
        let cpu = spent * 1e6 * share / measured.calls as f64;
        (measured, cpu)
    }
}

/// A thousand sessions, each with a stream, that do nothing, and what is left of them when their clients are gone.
pub(crate) fn sessions() -> Vec<Line> {
    let server = free_address();
    let _server = peer(&["role:http-server", &server], false);
    until_listening(&server);
    let entry = format!("  give: {{ url: \"http://{server}/mcp\" }}\n");
    let gateway = Gateway::started_with("sessionIdleMs: 2000\n", &entry);
    let pid = gateway.process.0.id();
    let crowd = || -> Vec<std::net::TcpStream> {
        let one = |_| {
            let session = open(&gateway.listen, "/mcp/give");
            listen(&gateway.listen, "/mcp/give", &session)
        };
        (0..SESSIONS).map(one).collect()
    };
    let before = (resident_mebibytes(pid), descriptors(pid));
    let streams = crowd();
    let each = (resident_mebibytes(pid) - before.0) * 1024.0 / f64::from(SESSIONS);
    drop(streams);
    until_no_session(&gateway);
    let first = (resident_mebibytes(pid), descriptors(pid));
    drop(crowd());
    until_no_session(&gateway);
    let second = resident_mebibytes(pid);
    let line = |name, unit, value, target| Line {
        name,
        unit,
        value,
        target,
        floor: None,
        more: false,
    };
    vec![
        line(
            "an idle session over HTTP with its stream",
            "KiB",
            each,
            32.0,
        ),
        line(
            "what 1,000 abandoned sessions leave, of what they took",
            "%",
            100.0 * (first.0 - before.0) / (each * f64::from(SESSIONS) / 1024.0),
            50.0,
        ),
        line("what 1,000 more add to that", "MiB", second - first.0, 2.0),
        line(
            "descriptors that they leave",
            "",
            (first.1 - before.1) as f64,
            1.0,
        ),
    ]
}

fn descriptors(pid: u32) -> i64 {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as i64
}

fn until_no_session(gateway: &Gateway) {
    let start = Instant::now();
    while !get(&gateway.admin, "/metrics").contains("tidegate_host_sessions{face=\"http\"} 0\n") {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the sessions do not end"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    // The descriptors of what is closed go a moment later.
    std::thread::sleep(Duration::from_millis(500));
}
