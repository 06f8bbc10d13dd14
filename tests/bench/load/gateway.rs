//! The real binary, and the peers, as processes of one measurement; they end with it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process that is killed when it goes out of scope.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway on free ports.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) listen: String,
    pub(crate) admin: String,
    _dir: tempfile::TempDir,
}

impl Gateway {
    /// Starts the gateway with these `mcpServers`, as YAML, and waits until each has been tried. `pinned` puts it on
    /// core 0.
    pub(crate) fn start(servers: &str, pinned: bool) -> Self {
        Self::told(servers, "", "", pinned)
    }

    /// Starts one with these lines at the top of its configuration.
    pub(crate) fn started_with(top: &str, servers: &str) -> Self {
        Self::told(servers, "", top, false)
    }

    /// Starts one that traces every call.
    pub(crate) fn traced(servers: &str, receiver: &str) -> Self {
        let otlp = format!(", otlp: {{ endpoint: \"{receiver}\", sampleRatio: 1 }}");
        Self::told(servers, &otlp, "", false)
    }

    fn told(servers: &str, otlp: &str, top: &str, pinned: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (listen, admin) = (free_address(), free_address());
        let file = dir.path().join("tidegate.yaml");
        let text = format!(
            "{top}listen: {listen}\nadmin: {{ listen: \"{admin}\" }}\nstate: {{ dir: {} }}\n\
             telemetry: {{ log: {{ level: error }}{otlp} }}\nmcpServers:\n{servers}",
            dir.path().join("state").display()
        );
        fs::write(&file, text).unwrap();
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"), pinned);
        command.arg("run").arg("--config").arg(&file);
        let process = Process(command.spawn().unwrap());
        let gateway = Self {
            process,
            listen,
            admin,
            _dir: dir,
        };
        gateway.wait("/startupz");
        gateway
    }

    /// Where a host finds a server.
    pub(crate) fn url(&self, server: &str) -> String {
        format!("ws://{}/mcpl/{server}", self.listen)
    }

    /// Waits until a path of the admin port answers 200.
    pub(crate) fn wait(&self, path: &str) {
        let start = Instant::now();
        while !get(&self.admin, path).starts_with("HTTP/1.1 200") {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{path} never answered 200"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of one gauge of one server.
    pub(crate) fn gauge(&self, name: &str, server: &str) -> f64 {
        let text = get(&self.admin, "/metrics");
        let start = format!("{name}{{server=\"{server}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|value| value.parse().ok())
            .unwrap_or(f64::NAN)
    }
}

/// Asked to end, it takes what its servers launched with it.
impl Drop for Gateway {
    fn drop(&mut self) {
        if let Ok(None) = self.process.0.try_wait() {
            let pid = self.process.0.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
            let _ = self.process.0.wait();
        }
    }
}

pub(crate) fn resident_mebibytes(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// The answer to a GET, head and body; empty where nobody answers.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        );
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

/// A peer of `peers.rs`, on core 0 where `pinned`.
pub(crate) fn peer(args: &[&str], pinned: bool) -> Process {
    let program = std::env::current_exe().unwrap();
    let mut command = command(program.to_str().unwrap(), pinned);
    Process(command.args(args).spawn().unwrap())
}

/// The times that a client measured, in microseconds, sorted.
pub(crate) fn client_times(url: &str, size: usize, count: usize) -> Vec<f64> {
    let program = std::env::current_exe().unwrap();
    let mut command = command(program.to_str().unwrap(), true);
    command.args(["role:client", url, &size.to_string(), &count.to_string()]);
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let mut times: Vec<f64> = serde_json::from_slice(&output.stdout).unwrap();
    times.sort_by(f64::total_cmp);
    times
}

/// The value below which this share of sorted values lies.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted[(last as f64 * share).round() as usize]
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

/// The made-up server of the tests.
pub(crate) fn faultd() -> String {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap();
    let path = folder.join("examples/faultd");
    assert!(
        path.exists(),
        "build it first: cargo build --release --example faultd"
    );
    path.display().to_string()
}

pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(") ").next().unwrap();
    let ticks: f64 = after
        .split(' ')
        .skip(11)
        .take(2)
        .map(|n| n.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// A program, on core 0 where `pinned`.
pub(crate) fn command(program: &str, pinned: bool) -> Command {
    let mut command = if pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", program]);
        command
    } else {
        Command::new(program)
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    command
}
