//! A running gateway: the binary, its configuration in a folder of its own, and what an operator can ask it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use std::{fs, process};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::events::Events;
use crate::host::Host;

/// Nothing here takes this long; a wait that does is a failure, and says so rather than hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway's folder: configuration, state, log, and what its servers write.
pub(crate) struct Place {
    dir: TempDir,
    listen: SocketAddr,
    admin: SocketAddr,
    /// More of the configuration's top level.
    pub(crate) more: Value,
}

/// A gateway that runs.
pub(crate) struct Gateway {
    pub(crate) place: Place,
    child: Child,
}

/// The built binary.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.stdin(Stdio::null());
    command
}

/// What came of a command that ends by itself.
pub(crate) async fn ended(mut command: Command) -> Output {
    let output = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    output.expect("the command does not end").unwrap()
}

/// An entry for a `faultd` with these flags, separated by spaces.
pub(crate) fn faultd(flags: &str) -> Value {
    let examples = Path::new(env!("CARGO_BIN_EXE_tidegate")).with_file_name("examples");
    let program = examples.join("faultd");
    assert!(program.exists(), "build it: cargo build --example faultd");
    json!({ "command": program, "args": flags.split_whitespace().collect::<Vec<_>>() })
}

/// The entry with more fields.
pub(crate) fn with(mut entry: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else {
        panic!("{fields} is no object")
    };
    entry.as_object_mut().unwrap().extend(fields);
    entry
}

/// A port that nobody has, outside the range from which the system lends ports to connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(process::id() % 100).unwrap() * 100;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// An address of this machine that nobody has.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

/// Asks for a path in HTTP/1.0, so that the answer comes without chunks and ends with the connection.
async fn request(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The status and body of a path.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    answer_of(request(address, path, "").await).await
}

/// The status and body of an answer that ends with its connection.
async fn answer_of(mut stream: TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("nobody answers").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(json!({}))
    }

    /// One with more fields at the configuration's top level.
    pub(crate) fn with(more: Value) -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            listen: free_address(),
            admin: free_address(),
            more,
        }
    }

    /// A file of this place, as a server's flag can name it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the configuration with these `mcpServers`.
    pub(crate) fn configure(&self, servers: &Value) -> PathBuf {
        let config = json!({
            "name": "gw-test",
            "listen": self.listen,
            "admin": { "listen": self.admin },
            "state": { "dir": self.file("state") },
            "mcpServers": servers,
        });
        let file = self.file("tidegate.json");
        let config = with(config, self.more.clone());
        fs::write(&file, serde_json::to_string_pretty(&config).unwrap()).unwrap();
        file
    }

    /// Runs the gateway here; returns once its faces are bound.
    pub(crate) async fn run(self, servers: &Value) -> Gateway {
        let child = self.launch(servers);
        let mut gateway = Gateway { place: self, child };
        gateway.ready().await;
        gateway
    }

    fn launch(&self, servers: &Value) -> Child {
        let config = self.configure(servers);
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.file("log"))
            .unwrap();
        let mut command = binary();
        command.args(["run", "--config"]).arg(config);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().unwrap()
    }
}

impl Gateway {
    /// Runs a gateway with these `mcpServers` in a place of its own.
    pub(crate) async fn run(servers: &Value) -> Self {
        Place::new().run(servers).await
    }

    async fn ready(&mut self) {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let end = Instant::now() + PATIENCE;
        loop {
            tick.tick().await;
            assert!(Instant::now() < end, "not ready:\n{}", self.log());
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the gateway ended at its start, {status}:\n{}", self.log());
            }
            if TcpStream::connect(self.place.admin).await.is_ok()
                && self.get("/readyz").await.0 == 200
            {
                return;
            }
        }
    }

    /// What it has written so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.place.file("log")).unwrap()
    }

    /// Waits until it has written that; all that it has written then. A thread of its own writes the lines.
    pub(crate) async fn logged(&self, text: &str) -> String {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let end = Instant::now() + PATIENCE;
        loop {
            tick.tick().await;
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(Instant::now() < end, "no {text:?} in\n{log}");
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.file(name)
    }

    /// Writes its configuration anew; where that is.
    pub(crate) fn configure(&self, servers: &Value) -> PathBuf {
        self.place.configure(servers)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// The status and body of a path of the operator's face.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.admin(), path).await
    }

    /// Asks the operator's face for a path in HTTP/1.0.
    pub(crate) async fn request(&self, path: &str, headers: &str) -> TcpStream {
        request(self.admin(), path, headers).await
    }

    /// Where the operator's face is.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.place.admin
    }

    /// Asks for a change, and returns the status and body of the answer.
    pub(crate) async fn post(&self, path: &str) -> (u16, Value) {
        self.send(path, "").await
    }

    /// The same with a body.
    pub(crate) async fn send(&self, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.place.admin).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {}\r\nX-Tidegate-Control: 1\r\nContent-Length: {}\r\n\r\n{body}",
            self.place.admin,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let (status, body) = answer_of(stream).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Has an operator's verb done to a server; the server as it is then.
    pub(crate) async fn operate(&self, server: &str, verb: &str) -> Value {
        let (status, body) = self.post(&format!("/api/v1/servers/{server}/{verb}")).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// A server, as the API tells it.
    pub(crate) async fn server(&self, server: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1/servers/{server}")).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until this is true of a server, and returns it.
    pub(crate) async fn until_server(&self, server: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let end = Instant::now() + PATIENCE;
        loop {
            tick.tick().await;
            let told = self.server(server).await;
            if is_so(&told) {
                return told;
            }
            assert!(Instant::now() < end, "{told:#}\n{}", self.log());
        }
    }

    /// Runs a subcommand against it; what it printed.
    pub(crate) async fn command(&self, arguments: &[&str]) -> String {
        let mut command = binary();
        command
            .args(arguments)
            .arg("--config")
            .arg(self.file("tidegate.json"));
        let output = ended(command).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{}", text(output.stderr));
        text(output.stdout)
    }

    /// Changes more of the configuration's top level; what has it applied is `reload`.
    pub(crate) fn change(&mut self, more: Value) {
        self.place.more = more;
    }

    /// Writes another configuration and has it applied.
    pub(crate) async fn reload(&self, servers: &Value) {
        self.place.configure(servers);
        let (status, body) = self.post("/api/v1/reload").await;
        assert_eq!(status, 200, "{body}");
    }

    /// The same with other fields at the configuration's top level.
    pub(crate) async fn reload_with(&mut self, more: Value, servers: &Value) {
        self.place.more = more;
        self.reload(servers).await;
    }

    /// The value of one series, as `name{label="value"}` is written in `/metrics`.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{series} ")));
        let line = line.unwrap_or_else(|| panic!("no series {series} in\n{text}"));
        line[series.len()..].trim().parse().unwrap()
    }

    /// Every decision from the gateway's start on.
    pub(crate) async fn events(&self) -> Events {
        Events::open(self).await
    }

    /// A connection to `/mcpl/{server}` that has said nothing yet.
    pub(crate) async fn connect(&self, server: &str) -> Host {
        Host::connect(&self.url(server)).await
    }

    /// The HTTP status that refuses such a connection.
    pub(crate) async fn refusal(&self, server: &str) -> u16 {
        Host::refusal(&self.url(server)).await
    }

    /// Where hosts connect.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.place.listen
    }

    /// A server's endpoint for Streamable HTTP.
    pub(crate) fn http_url(&self, server: &str) -> String {
        format!("http://{}/mcp/{server}", self.place.listen)
    }

    /// The endpoint of all servers for Streamable HTTP.
    pub(crate) fn http_of_all(&self) -> String {
        format!("http://{}/mcp", self.place.listen)
    }

    fn url(&self, server: &str) -> String {
        format!("ws://{}/mcpl/{server}", self.place.listen)
    }

    /// A connection to all servers that has said nothing yet, with that query.
    pub(crate) async fn connect_all(&self, query: &str) -> Host {
        Host::connect(&format!("ws://{}/mcp{query}", self.place.listen)).await
    }

    /// A client of all servers.
    pub(crate) async fn client_of_all(&self) -> Host {
        let mut host = self.connect_all("").await;
        host.initialize(json!({"sampling": {}})).await;
        host
    }

    /// A plain MCP client of this server.
    pub(crate) async fn client(&self, server: &str) -> Host {
        let mut host = self.connect(server).await;
        host.initialize(json!({})).await;
        host
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        crate::processes::terminate(self.child.id().unwrap());
        let end = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        end.unwrap_or_else(|_| panic!("the gateway does not end:\n{}", self.log()))
            .unwrap()
    }

    /// As [`Gateway::replace`], but it is killed and has no time for anything.
    pub(crate) async fn replace_killed(&mut self, servers: &Value) {
        self.kill().await;
        self.start(servers).await;
    }

    /// Kills it, which leaves it no time for anything.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Runs another one where it was.
    pub(crate) async fn start(&mut self, servers: &Value) {
        self.child = self.place.launch(servers);
        self.ready().await;
    }

    /// Ends it, and runs another one in the same place, with the same state.
    pub(crate) async fn replace(&mut self, servers: &Value) {
        let status = self.terminate().await;
        assert!(status.success(), "{status}:\n{}", self.log());
        self.child = self.place.launch(servers);
        self.ready().await;
    }
}

/// Where hosts of that gateway connect, as its configuration says.
pub(crate) fn host_url(gateway: &Gateway) -> String {
    let config = fs::read_to_string(gateway.file("tidegate.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    format!("ws://{}", config["listen"].as_str().unwrap())
}

impl Drop for Gateway {
    /// Ends it as an operator would, so that none of its servers is left when a test fails.
    fn drop(&mut self) {
        let Some(pid) = self.child.id() else { return };
        crate::processes::terminate(pid);
        for _ in 0..1_000 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        crate::processes::kill(pid);
    }
}
