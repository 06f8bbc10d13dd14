//! Real MCP servers from npm and PyPI behind the gateway, held against direct connections to the same programs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::gateway::{Gateway, PATIENCE, with};
use crate::host::{Host, Received};
use crate::processes::{child_running, kill, stop};

/// A file that `make test` installs.
pub(crate) fn installed(file: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/real")
        .join(file);
    assert!(
        path.exists(),
        "install it with `make install`: {}",
        path.display()
    );
    path
}

/// A script of `tests/real/scripts`, put beside the packages that it imports.
pub(crate) fn script(name: &str) -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/scripts");
    let text = std::fs::read(scripts.join(name)).unwrap();
    let place = installed("npm").join(name);
    if std::fs::read(&place).ok().as_ref() != Some(&text) {
        // Other tests may read it now.
        let new = place.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &place).unwrap();
    }
    place
}

pub(crate) fn everything() -> Value {
    let script =
        installed("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!({ "command": "node", "args": [script] })
}

fn time() -> Value {
    json!({ "command": installed("venv/bin/mcp-server-time"), "args": ["--local-timezone", "Etc/UTC"] })
}

/// A server on our own pipes.
struct Direct {
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    next_id: u64,
}

impl Direct {
    async fn launch(entry: &Value, capabilities: Value) -> Self {
        let args = entry["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|arg| arg.as_str().unwrap());
        let mut command = Command::new(entry["command"].as_str().unwrap());
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut direct = Self {
            _child: child,
            stdin,
            lines,
            next_id: 0,
        };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "it", "version": "1"},
        });
        direct.request("initialize", params).await;
        direct
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        direct
    }

    async fn send(&mut self, message: &Value) {
        self.stdin
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Received {
        self.next_id += 1;
        let id = self.next_id.to_string();
        let request =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.send(&request).await;
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no answer to {request}"));
            let line = line.unwrap().expect("the server ended");
            let received = Received::parse(&line);
            if received.is_answer_to(&id) {
                return received;
            }
            if let (Some(id), Some(_)) = (&received.id, &received.method) {
                let refusal = json!({"code": -32601, "message": "not here"});
                let id: Value = serde_json::from_str(id.get()).unwrap();
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": refusal}))
                    .await;
            }
        }
    }
}

/// Asks both for the same and compares every byte of the result or error.
async fn assert_same(through: &mut Host, direct: &mut Direct, method: &str, params: Value) {
    let seen = through.request(method, params.clone()).await;
    let expected = direct.request(method, params.clone()).await;
    let text = |answer: &Received| {
        let (result, error) = (answer.result.as_ref(), answer.error.as_ref());
        result.or(error).map(|raw| raw.get().to_owned())
    };
    assert!(expected.result.is_some() || expected.error.is_some());
    assert_eq!(text(&seen), text(&expected), "{method} {params}");
}

async fn behind_the_gateway(name: &str, entry: Value) -> (Gateway, Host, Direct) {
    let direct = Direct::launch(&entry, json!({})).await;
    let entry = with(entry, json!({"reconnectIntervalMs": 50}));
    let gateway = Gateway::run(&json!({ name: entry })).await;
    gateway.events().await.until(name, "adopted").await;
    let client = gateway.client(name).await;
    (gateway, client, direct)
}

/// Calls of each tool whose result is the same every time.
fn repeatable_calls_of_everything() -> Vec<(&'static str, Value)> {
    vec![
        ("echo", json!({"message": "Grüße, \u{1f44b}\n\"quoted\""})),
        ("echo", json!({})),
        (
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
        ),
        ("get-annotated-message", json!({"messageType": "success"})),
        ("get-annotated-message", json!({"messageType": "debug"})),
        (
            "get-annotated-message",
            json!({"messageType": "no such type"}),
        ),
        ("get-resource-links", json!({"count": 10})),
        ("get-structured-content", json!({"location": "New York"})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-structured-content", json!({"location": "Nowhere"})),
        ("get-sum", json!({"a": 0.1, "b": 0.2})),
        ("get-sum", json!({"a": 1e300, "b": "x"})),
        ("get-tiny-image", json!({})),
        (
            "gzip-file-as-resource",
            json!({"name": "a.gz", "data": "data:text/plain,hello"}),
        ),
        (
            "trigger-long-running-operation",
            json!({"duration": 0.1, "steps": 2}),
        ),
        ("no-such-tool", json!({})),
    ]
}

/// Tools whose results tell of the environment, the session or the time, or that ask the client for something.
const OTHER_TOOLS_OF_EVERYTHING: [&str; 6] = [
    "get-env",
    "get-resource-reference",
    "get-roots-list",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
];

#[tokio::test]
async fn every_repeatable_call_of_the_npm_server_gives_the_bytes_of_a_direct_connection() {
    let (_gateway, mut client, mut direct) = behind_the_gateway("everything", everything()).await;
    let calls = repeatable_calls_of_everything();
    let listed = client.request("tools/list", json!({})).await;
    let listed: Value = serde_json::from_str(listed.result()).unwrap();
    for tool in listed["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let is_known = calls.iter().any(|(call, _)| *call == name)
            || OTHER_TOOLS_OF_EVERYTHING.contains(&name)
            || name.starts_with("trigger-");
        assert!(is_known, "a new tool, `{name}`");
    }
    for (tool, arguments) in calls {
        let params = json!({"name": tool, "arguments": arguments});
        assert_same(&mut client, &mut direct, "tools/call", params).await;
    }
    for method in ["resources/list", "resources/templates/list", "prompts/list"] {
        assert_same(&mut client, &mut direct, method, json!({})).await;
    }
    let prompt = json!({"name": "args-prompt", "arguments": {"city": "Oslo", "state": "x"}});
    assert_same(&mut client, &mut direct, "prompts/get", prompt).await;
}

#[tokio::test]
async fn every_repeatable_call_of_the_pypi_server_gives_the_bytes_of_a_direct_connection() {
    let (_gateway, mut client, mut direct) = behind_the_gateway("time", time()).await;
    assert_same(&mut client, &mut direct, "tools/list", json!({})).await;
    let convert = |time: &str, from: &str, to: &str| {
        let arguments = json!({"time": time, "source_timezone": from, "target_timezone": to});
        json!({"name": "convert_time", "arguments": arguments})
    };
    for call in [
        convert("12:30", "Etc/UTC", "Asia/Kathmandu"),
        convert("00:00", "America/New_York", "Europe/Oslo"),
        convert("25:00", "Etc/UTC", "Etc/UTC"),
        convert("12:00", "Mars/Olympus", "Etc/UTC"),
        json!({"name": "get_current_time", "arguments": {"timezone": "Mars/Olympus"}}),
        json!({"name": "get_current_time", "arguments": {}}),
        json!({"name": "no_such_tool", "arguments": {}}),
    ] {
        assert_same(&mut client, &mut direct, "tools/call", call).await;
    }
    let now = json!({"timezone": "Asia/Tokyo"});
    assert!(
        client
            .call("get_current_time", now)
            .await
            .result()
            .contains("Asia/Tokyo")
    );
}

#[tokio::test]
async fn a4_the_npm_server_killed_in_mid_call_gives_outcome_unknown_and_serves_again() {
    let (gateway, mut client, _direct) = behind_the_gateway("everything", everything()).await;
    let mut events = gateway.events().await;
    events.until("everything", "adopted").await;
    let params = json!({
        "name": "trigger-long-running-operation",
        "arguments": {"duration": 600, "steps": 6000},
        "_meta": {"progressToken": "p"},
    });
    let call = client.ask("tools/call", params).await;
    client.notification("notifications/progress").await;
    kill(child_running(gateway.pid(), "server-everything"));
    let error = client.answer(&call).await.error();
    assert_eq!(
        (&error["code"], &error["data"]["sent"]),
        (&json!(-32051), &json!(true)),
        "{error}"
    );

    events.until("everything", "adopted").await;
    let answer = client.call("echo", json!({"message": "again"})).await;
    assert!(answer.result().contains("again"), "{answer:?}");
}

#[tokio::test]
async fn a4_the_pypi_server_killed_in_mid_call_gives_outcome_unknown_and_serves_again() {
    let (gateway, mut client, _direct) = behind_the_gateway("time", time()).await;
    let mut events = gateway.events().await;
    events.until("time", "adopted").await;
    let server = child_running(gateway.pid(), "mcp-server-time");
    stop(server);
    let now = json!({"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}});
    let call = client.ask("tools/call", now.clone()).await;
    // The gateway answers this itself, so the call before it was sent.
    client.request("ping", json!({})).await.result();
    kill(server);
    let error = client.answer(&call).await.error();
    assert_eq!(
        (&error["code"], &error["data"]["sent"]),
        (&json!(-32051), &json!(true)),
        "{error}"
    );

    events.until("time", "adopted").await;
    let answer = client.request("tools/call", now).await;
    assert!(answer.result().contains("Asia/Tokyo"), "{answer:?}");
}
