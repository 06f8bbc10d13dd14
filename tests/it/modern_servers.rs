//! Servers of the stateless revision, 2026-07-28, behind the gateway: made-up ones and one of the Python SDK. Their
//! clients speak a session revision and see nothing of it (decision 0015).

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::gateway::{Gateway, PATIENCE, Place, faultd, free_port, with};
use crate::host::{Host, Received};
use crate::real_servers::installed;

const CAPABLE: &str = r#"{"elicitation":{},"roots":{}}"#;

fn capable() -> Value {
    serde_json::from_str(CAPABLE).unwrap()
}

async fn client(gateway: &Gateway, server: &str, capabilities: Value) -> (Host, Value) {
    let mut host = gateway.connect(server).await;
    let answer = host.initialize(capabilities).await;
    (host, answer)
}

/// The lines of a file that a server writes.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn structured(answer: &Received) -> Value {
    let result: Value = serde_json::from_str(answer.result()).unwrap();
    result["structuredContent"].clone()
}

/// Answers what a call asks its client for: a name and the roots.
async fn give(host: &mut Host, name: &str) {
    let asked = host.notification("elicitation/create").await;
    let content = json!({"action": "accept", "content": {"name": name}});
    host.reply(&asked, content).await;
    let asked = host.notification("roots/list").await;
    host.reply(&asked, json!({"roots": [{"uri": "file:///a"}]}))
        .await;
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        tick.tick().await;
        assert!(Instant::now() < end, "not so: {what}");
    }
}

/// A program that serves HTTP at a port of this machine.
async fn served(mut command: Command, port: u16) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("it listens", async || {
        TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    })
    .await;
    child
}

/// The server of the Python SDK over HTTP, and the entry for it.
async fn python_over_http() -> (Child, Value) {
    let port = free_port();
    let mut command = Command::new(installed("venv/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/stateless.py"));
    command.arg(port.to_string());
    let child = served(command, port).await;
    (
        child,
        json!({"url": format!("http://127.0.0.1:{port}/mcp")}),
    )
}

#[tokio::test]
async fn over_http_auto_speaks_the_stateless_revision_where_it_can() {
    let (_python, entry) = python_over_http().await;
    let legacy = with(entry.clone(), json!({"protocol": "legacy"}));
    let gateway = Gateway::run(&json!({"auto": entry, "legacy": legacy})).await;
    let mut events = gateway.events().await;
    for (server, revision) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        events.until_times(server, "adopted", 1).await;
        let (mut host, _) = client(&gateway, server, capable()).await;
        let spoken = host.call("revision", json!({})).await;
        assert_eq!(structured(&spoken)["result"], revision);
        let id = host
            .ask("tools/call", json!({"name": "greet", "arguments": {}}))
            .await;
        give(&mut host, "Ada").await;
        let greeted = host.answer(&id).await;
        assert_eq!(structured(&greeted)["result"], "hello Ada of 1 roots");
    }
}

#[tokio::test]
async fn over_http_a_stateless_server_tells_of_changes_and_hears_of_cancels() {
    let (_python, entry) = python_over_http().await;
    let place = Place::new();
    let file = place.file("hang");
    let gateway = place.run(&json!({"s": entry})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    host.request("resources/subscribe", json!({"uri": "test://one"}))
        .await
        .result();
    host.call("change", json!({})).await.result();
    let updated = host.notification("notifications/resources/updated").await;
    assert_eq!(updated.param("/uri"), "test://one");
    let params = json!({"name": "walk", "arguments": {}, "_meta": {"progressToken": 7}});
    let id = host.ask("tools/call", params).await;
    for step in 1..=3 {
        let progress = host.notification("notifications/progress").await;
        assert_eq!(progress.param("/progress").as_f64(), Some(f64::from(step)));
    }
    host.answer(&id).await.result();
    let says = |text: &'static str| {
        let file = file.clone();
        async move || fs::read_to_string(&file).is_ok_and(|said| said == text)
    };
    let params = json!({"name": "hang", "arguments": {"file": file}});
    let id = host.ask("tools/call", params).await;
    until("the call has begun", says("begun")).await;
    host.send(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ))
    .await;
    until("the server knows that it is cancelled", says("cancelled")).await;
    host.call("add", json!({"a": 1, "b": 1})).await.result();
}

#[tokio::test]
async fn over_http_auto_falls_back_to_a_session_with_an_old_server() {
    let port = free_port();
    let script =
        installed("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let mut command = Command::new("node");
    command
        .arg(script)
        .arg("streamableHttp")
        .env("PORT", port.to_string());
    let _everything = served(command, port).await;
    let entry = json!({"url": format!("http://127.0.0.1:{port}/mcp")});
    let modern = with(entry.clone(), json!({"protocol": "modern"}));
    let gateway = Gateway::run(&json!({"auto": entry, "modern": modern})).await;
    let mut events = gateway.events().await;
    events.until_times("auto", "adopted", 1).await;
    let (mut host, _) = client(&gateway, "auto", json!({})).await;
    let echoed = host.call("echo", json!({"message": "hello"})).await;
    assert!(echoed.result().contains("hello"));
    events.until_times("modern", "attempt-failed", 1).await;
    let failed = events.seen("modern", "attempt-failed")[0].text();
    assert!(
        failed.contains("HTTP status") || failed.contains("server/discover"),
        "{failed}"
    );
}

#[tokio::test]
async fn auto_finds_a_stateless_server_at_its_first_launch() {
    let place = Place::new();
    let (log, heard) = (place.file("launches"), place.file("heard"));
    let flags = format!(
        "--stateless --log {} --heard {}",
        log.display(),
        heard.display()
    );
    let gateway = place.run(&json!({"s": faultd(&flags)})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, introduced) = client(&gateway, "s", json!({})).await;
    assert_eq!(introduced["protocolVersion"], "2025-11-25");
    let echoed = host.call("echo", json!({"n": 1.0})).await;
    let seen = structured(&echoed);
    assert_eq!(
        (&seen["name"], &seen["arguments"]),
        (&json!("echo"), &json!({"n": 1.0}))
    );
    assert_eq!(
        seen["_meta"]["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    assert_eq!(lines(&log).len(), 1, "one launch");
    let method = |line: &String| Received::parse(line).method;
    let methods: Vec<_> = lines(&heard).iter().filter_map(method).collect();
    assert_eq!(
        methods[..3],
        ["initialize", "server/discover", "subscriptions/listen"]
    );
    assert!(
        !methods
            .iter()
            .any(|method| method == "notifications/initialized")
    );
}

#[tokio::test]
async fn modern_asks_for_nothing_else_and_a_server_without_it_gets_the_verdict() {
    let place = Place::new();
    let heard = place.file("heard");
    let modern = json!({"protocol": "modern"});
    let flags = format!("--stateless --heard {}", heard.display());
    let gateway = place
        .run(&json!({
            "new": with(faultd(&flags), modern.clone()),
            "old": with(faultd(""), modern),
        }))
        .await;
    let mut events = gateway.events().await;
    events.until_times("new", "adopted", 1).await;
    assert!(lines(&heard)[0].contains("server/discover"));
    events.until_times("old", "halted", 1).await;
    let halt = events.seen("old", "halted")[0].text();
    assert!(halt.contains("server/discover"), "{halt}");
}

#[tokio::test]
async fn what_a_stateless_server_wants_to_know_is_asked_of_the_client_whose_call_it_is() {
    let gateway = Gateway::run(&json!({"s": faultd("--stateless")})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", capable()).await;
    let id = host
        .ask("tools/call", json!({"name": "ask", "arguments": {}}))
        .await;
    give(&mut host, "Ada").await;
    let answer = host.answer(&id).await;
    let seen = structured(&answer);
    assert_eq!(seen["state"], "kept \"by\" the client");
    assert_eq!(seen["given"]["name"]["content"]["name"], "Ada");
    assert_eq!(seen["given"]["roots"]["roots"][0]["uri"], "file:///a");
}

#[tokio::test]
async fn of_two_clients_with_calls_under_way_each_is_asked_for_its_own() {
    let gateway = Gateway::run(&json!({"s": faultd("--stateless")})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut one, _) = client(&gateway, "s", capable()).await;
    let (mut other, _) = client(&gateway, "s", capable()).await;
    let ask = json!({"name": "ask", "arguments": {}});
    let first = one.ask("tools/call", ask.clone()).await;
    let second = other.ask("tools/call", ask).await;
    give(&mut other, "Grace").await;
    give(&mut one, "Ada").await;
    for (host, id, name) in [(&mut one, first, "Ada"), (&mut other, second, "Grace")] {
        let seen = structured(&host.answer(&id).await);
        assert_eq!(seen["given"]["name"]["content"]["name"], name);
    }
}

#[tokio::test]
async fn a_call_whose_client_cannot_give_what_it_needs_says_what_is_missing() {
    let gateway = Gateway::run(&json!({"s": faultd("--stateless")})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    let error = host.call("ask", json!({})).await.error();
    assert!(
        error["message"].as_str().unwrap().contains("roots/list"),
        "{error}"
    );
}

#[tokio::test]
async fn changes_updates_and_logs_of_a_stateless_server_reach_its_clients() {
    let gateway = Gateway::run(&json!({"s": faultd("--stateless")})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    host.call("log", json!({})).await.result();
    host.request("resources/subscribe", json!({"uri": "test:one"}))
        .await
        .result();
    host.request("logging/setLevel", json!({"level": "warning"}))
        .await
        .result();
    host.call("change", json!({})).await.result();
    let updated = host.notification("notifications/resources/updated").await;
    assert_eq!(updated.param("/uri"), "test:one");
    assert_eq!(
        updated.param("/_meta/io.modelcontextprotocol~1subscriptionId"),
        Value::Null
    );
    assert!(
        !host.was_sent("notifications/message"),
        "nobody had asked for logs"
    );
    host.call("log", json!({})).await.result();
    let logged = host.notification("notifications/message").await;
    assert_eq!(logged.param("/data"), "hello");
    assert_eq!(logged.param("/level"), "warning");
}

#[tokio::test]
async fn a_stream_that_a_stateless_server_ends_is_opened_again() {
    let gateway = Gateway::run(&json!({"s": faultd("--stateless")})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    host.request("resources/subscribe", json!({"uri": "test:one"}))
        .await
        .result();
    host.call("end-stream", json!({})).await.result();
    // It may have changed meanwhile, which is told once there is a stream again.
    let updated = host.notification("notifications/resources/updated").await;
    assert_eq!(updated.param("/uri"), "test:one");
    host.call("change", json!({})).await.result();
    host.notification("notifications/resources/updated").await;
}

#[tokio::test]
async fn a_stateless_server_that_dies_is_found_again() {
    let entry = with(faultd("--stateless"), json!({"reconnectIntervalMs": 50}));
    let gateway = Gateway::run(&json!({"s": entry})).await;
    let mut events = gateway.events().await;
    events.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    let error = host.call("exit", json!({"code": 3})).await.error();
    assert_eq!(error["code"], -32051);
    events.until_times("s", "adopted", 2).await;
    host.call("echo", json!({})).await.result();
}

#[tokio::test]
async fn a_server_of_the_python_sdk_works_in_both_of_its_revisions() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/stateless.py");
    let python = json!({"command": installed("venv/bin/python"), "args": [script]});
    let gateway = Gateway::run(&json!({
        "modern": with(python.clone(), json!({"protocol": "modern"})),
        "auto": python,
    }))
    .await;
    let mut events = gateway.events().await;
    for server in ["modern", "auto"] {
        events.until_times(server, "adopted", 1).await;
        let (mut host, _) = client(&gateway, server, capable()).await;
        let sum = host.call("add", json!({"a": 2, "b": 3})).await;
        assert_eq!(structured(&sum)["result"], 5);
        let params = json!({"name": "walk", "arguments": {}, "_meta": {"progressToken": "t"}});
        let id = host.ask("tools/call", params).await;
        for step in 1..=3 {
            let progress = host.notification("notifications/progress").await;
            assert_eq!(progress.param("/progressToken"), "t");
            assert_eq!(progress.param("/progress").as_f64(), Some(f64::from(step)));
        }
        host.answer(&id).await.result();
        let id = host
            .ask("tools/call", json!({"name": "greet", "arguments": {}}))
            .await;
        give(&mut host, "Ada").await;
        let greeted = host.answer(&id).await;
        assert_eq!(structured(&greeted)["result"], "hello Ada of 1 roots");
    }
}

#[tokio::test]
async fn a_server_of_the_python_sdk_tells_of_its_changes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/stateless.py");
    let entry = json!({
        "command": installed("venv/bin/python"), "args": [script], "protocol": "2026-07-28",
    });
    let gateway = Gateway::run(&json!({"s": entry})).await;
    gateway.events().await.until("s", "adopted").await;
    let (mut host, _) = client(&gateway, "s", json!({})).await;
    host.request("resources/subscribe", json!({"uri": "test://one"}))
        .await
        .result();
    host.call("change", json!({})).await.result();
    let updated = host.notification("notifications/resources/updated").await;
    assert_eq!(updated.param("/uri"), "test://one");
    let read = host
        .request("resources/read", json!({"uri": "test://one"}))
        .await;
    assert!(read.result().contains("one"));
}
