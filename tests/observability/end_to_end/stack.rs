//! A real Prometheus and a real Alertmanager on the shipped rules and settings, at our pace.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

use crate::PATIENCE;
use crate::gateway::{free_address, get};
use crate::pace;

/// How long Prometheus takes an old sample for the newest, unless it is told otherwise.
const LOOKBACK: Duration = Duration::from_secs(300);
/// How often the shipped configuration scrapes and evaluates.
const EVALUATION: Duration = Duration::from_secs(15);

/// The receiver of tickets, filled in.
const TICKETS: &str = "- name: tickets
  webhook_configs:
  - url: http://127.0.0.1:9095/tickets
    send_resolved: true
";

/// A program that is killed and started again with the same files.
pub(crate) struct Program {
    name: &'static str,
    arguments: Vec<String>,
    log: PathBuf,
    pub(crate) address: SocketAddr,
    child: Option<Child>,
}

pub(crate) struct Stack {
    dir: TempDir,
    pub(crate) prometheus: Program,
    pub(crate) alertmanager: Program,
}

/// One series of an answer: its samples' seconds and values.
pub(crate) struct Series {
    pub(crate) samples: Vec<(f64, f64)>,
}

impl Stack {
    /// Starts both, scraping the gateway's operator face and notifying the sink.
    pub(crate) async fn start(gateway: SocketAddr, sink: SocketAddr) -> Self {
        let dir = TempDir::new().unwrap();
        let (prometheus, alertmanager) = (free_address(), free_address());
        let shipped = |file: &str| fs::read_to_string(at("alerts").join(file)).unwrap();
        let here = |text: &str| {
            let addresses = [
                ("127.0.0.1:7465", gateway),
                ("127.0.0.1:9090", prometheus),
                ("127.0.0.1:9093", alertmanager),
                ("127.0.0.1:9095", sink),
            ];
            let paced = pace::text(text).replace("- name: tickets\n", TICKETS);
            addresses.iter().fold(paced, |text, (from, to)| {
                text.replace(from, &to.to_string())
            })
        };
        for file in ["tidegate.rules.yml", "prometheus.yml", "alertmanager.yml"] {
            fs::write(dir.path().join(file), here(&shipped(file))).unwrap();
        }
        let flags = |file: &str| pace::flags(&shipped(file));
        let mut stack = Self {
            prometheus: Program::new(
                "prometheus",
                prometheus,
                dir.path(),
                flags("prometheus.yml"),
            ),
            alertmanager: Program::new(
                "prometheus-alertmanager",
                alertmanager,
                dir.path(),
                flags("alertmanager.yml"),
            ),
            dir,
        };
        stack.alertmanager.arguments.extend([
            "--config.file=alertmanager.yml".into(),
            "--storage.path=alerts".into(),
        ]);
        stack.prometheus.arguments.extend([
            "--config.file=prometheus.yml".into(),
            "--storage.tsdb.path=metrics".into(),
            format!(
                "--query.lookback-delta={}",
                pace::written(pace::paced(LOOKBACK))
            ),
        ]);
        stack.alertmanager.start(stack.dir.path()).await;
        stack.prometheus.start(stack.dir.path()).await;
        stack
    }

    /// Kills Prometheus, and starts it again.
    pub(crate) async fn kill_prometheus(&mut self) {
        self.prometheus.kill().await;
        self.prometheus.start(self.dir.path()).await;
        self.until_evaluated(4).await;
    }

    /// Kills Alertmanager once what it has notified is on disk, and starts it again.
    pub(crate) async fn kill_alertmanager(&mut self, notified: u128) {
        let file = self.dir.path().join("alerts/nflog");
        let written = || {
            let at = fs::metadata(&file).and_then(|file| file.modified()).ok()?;
            let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            (since.as_millis() > notified).then_some(())
        };
        until(
            "Alertmanager's record of what it has notified",
            async || written(),
        )
        .await;
        self.alertmanager.kill().await;
        self.alertmanager.start(self.dir.path()).await;
    }

    /// The newest value of each series.
    pub(crate) async fn values(&self, query: &str) -> Vec<Series> {
        self.ask(&format!("/api/v1/query?query={}", encoded(query)))
            .await
    }

    /// The samples of each series between two instants in seconds since 1970, at most as far apart as a step.
    pub(crate) async fn range(
        &self,
        query: &str,
        from: f64,
        to: f64,
        step: Duration,
    ) -> Vec<Series> {
        let query = encoded(query);
        let step = step.as_secs_f64();
        self.ask(&format!(
            "/api/v1/query_range?query={query}&start={from}&end={to}&step={step}"
        ))
        .await
    }

    async fn ask(&self, path: &str) -> Vec<Series> {
        let (status, body) = get(self.prometheus.address, path).await;
        assert_eq!(status, 200, "{path}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"]["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(series)
            .collect()
    }

    /// Waits until a query gives something.
    pub(crate) async fn until(&self, query: &str) {
        until(query, async || {
            (!self.values(query).await.is_empty()).then_some(())
        })
        .await;
    }

    /// Waits until the rules were evaluated so often from now on.
    pub(crate) async fn until_evaluated(&self, times: u32) {
        let last = async || {
            let latches = self
                .values("max(timestamp(tidegate_server:down:latch))")
                .await;
            latches.first().map_or(0.0, |series| series.samples[0].1)
        };
        let end = crate::sink::now() as f64 / 1e3 + (pace::paced(EVALUATION) * times).as_secs_f64();
        until("an evaluation of the rules", async || {
            (last().await >= end).then_some(())
        })
        .await;
    }
}

impl Program {
    fn new(
        name: &'static str,
        address: SocketAddr,
        dir: &Path,
        mut arguments: Vec<String>,
    ) -> Self {
        arguments.extend([
            format!("--web.listen-address={address}"),
            "--log.level=warn".into(),
        ]);
        Self {
            name,
            arguments,
            log: dir.join(name).with_extension("log"),
            address,
            child: None,
        }
    }

    async fn start(&mut self, dir: &Path) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(&self.log)
            .unwrap();
        let mut command = Command::new(self.name);
        command
            .args(&self.arguments)
            .current_dir(dir)
            .kill_on_drop(true);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}: `make test` puts it on the PATH", self.name)
        });
        self.child = Some(child);
        self.ready().await;
    }

    async fn ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        let mut tick = interval(Duration::from_millis(20));
        loop {
            tick.tick().await;
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            let log = || fs::read_to_string(&self.log).unwrap();
            assert!(
                ended.is_none(),
                "{} ended at its start:\n{}",
                self.name,
                log()
            );
            assert!(
                Instant::now() < end,
                "{} does not get ready:\n{}",
                self.name,
                log()
            );
            let is_bound = tokio::net::TcpStream::connect(self.address).await.is_ok();
            if is_bound && get(self.address, "/-/ready").await.0 == 200 {
                return;
            }
        }
    }

    async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        let mut tick = interval(Duration::from_millis(50));
        loop {
            tick.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    timeout(PATIENCE, asked)
        .await
        .unwrap_or_else(|_| panic!("there is never: {what}"))
}

/// A path from the root of the tree.
pub(crate) fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn series(of: &Value) -> Series {
    let sample = |pair: &Value| {
        (
            pair[0].as_f64().unwrap(),
            pair[1].as_str().unwrap().parse().unwrap(),
        )
    };
    let many = of["values"].as_array();
    let samples = many.map_or_else(
        || vec![sample(&of["value"])],
        |many| many.iter().map(sample).collect(),
    );
    Series { samples }
}

fn encoded(query: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    query.bytes().map(byte).collect()
}
