//! Servers and hosts over WebSocket: a server that is dialed again, and who may connect as a host (4-faces).

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::gateway::{Gateway, PATIENCE, Place, binary, ended, faultd, with};

async fn listening(address: &str) -> (Child, String) {
    listen(&format!("--ws {address}")).await
}

/// A `faultd` with flags that have it listen; returns once it does, with its URL.
pub(crate) async fn listen(flags: &str) -> (Child, String) {
    let entry = faultd(flags);
    let args = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap());
    let mut command = Command::new(entry["command"].as_str().unwrap());
    command.args(args).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let read = tokio::time::timeout(PATIENCE, stdout.read_line(&mut line)).await;
    read.expect("it does not listen").unwrap();
    (
        server,
        line.trim().trim_start_matches("listening ").to_owned(),
    )
}

#[tokio::test]
async fn a_websocket_server_that_died_is_dialed_again_and_its_host_goes_on() {
    let (mut server, url) = listening("127.0.0.1:0").await;
    let quick = json!({"reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 50});
    let gateway = Gateway::run(&json!({ "far": with(json!({ "url": url }), quick) })).await;
    let mut events = gateway.events().await;
    events.until("far", "adopted").await;
    let mut client = gateway.client("far").await;
    assert!(
        client
            .call("echo", json!({"n": 1}))
            .await
            .result()
            .contains(r#"{"n":1}"#)
    );

    let call = client
        .ask(
            "tools/call",
            json!({"name": "sleep", "arguments": {"ms": 600_000}}),
        )
        .await;
    client.call("echo", json!({})).await.result();
    server.kill().await.unwrap();
    assert_eq!(client.answer(&call).await.error()["code"], -32051);
    events.until("far", "attempt-failed").await;
    assert_eq!(client.call("echo", json!({})).await.error()["code"], -32050);

    let (_server, _) = listening(url.trim_start_matches("ws://")).await;
    events.until("far", "adopted").await;
    assert!(
        client
            .call("echo", json!({"n": 2}))
            .await
            .result()
            .contains(r#"{"n":2}"#)
    );
}

fn mcpl() -> Value {
    json!({"experimental": {"mcpl": {"version": "0.5", "channels": true}}})
}

#[tokio::test]
async fn a_host_needs_its_token_and_only_its_own_name_takes_its_place() {
    let hosts = json!([
        {"name": "one", "token": "token-one", "servers": ["*"]},
        {"name": "two", "token": "token-two", "servers": ["a"]},
    ]);
    let place = Place::with(json!({ "hosts": hosts }));
    let gateway = place
        .run(&json!({ "a": faultd("--mcpl"), "b": faultd("") }))
        .await;
    for refused in ["a", "a?token=wrong", "b?token=token-two"] {
        assert!(
            [401, 403].contains(&gateway.refusal(refused).await),
            "{refused}"
        );
    }

    let mut first = gateway.connect("a?token=token-one").await;
    first.initialize(mcpl()).await;
    let mut other = gateway.connect("a?token=token-two").await;
    other.ask_to_initialize(mcpl()).await;
    assert_eq!(other.closed().await, 4409);
    let mut client = gateway.connect("a?token=token-two").await;
    client.initialize(json!({})).await;
    let mut again = gateway.connect("a?token=token-one").await;
    again.initialize(mcpl()).await;
    assert_eq!(first.closed().await, 4408);
    assert!(!gateway.log().contains("token-one"), "{}", gateway.log());
}

#[tokio::test]
async fn a_text_frame_that_is_no_utf8_closes_with_1007_and_one_beyond_32_mib_with_1009() {
    let gateway = Gateway::run(&json!({ "s": faultd("") })).await;
    let mut host = gateway.client("s").await;
    // Fin and text, masked with zeros, two bytes.
    host.send_raw(b"\x81\x82\0\0\0\0\xc3\x28").await;
    assert_eq!(host.closed().await, 1007);
    let mut host = gateway.client("s").await;
    // The head of a frame of 32 MiB and one byte.
    host.send_raw(b"\x81\xff\0\0\0\0\x02\0\0\x01\0\0\0\0").await;
    assert_eq!(host.closed().await, 1009);
}

/// BR-046
#[tokio::test]
async fn a_host_that_vanishes_in_mid_answer_ends_its_own_session_alone() {
    let gateway = Gateway::run(&json!({ "s": faultd("") })).await;
    gateway.events().await.until("s", "adopted").await;
    let mut other = gateway.client("s").await;
    for _ in 0..5 {
        let mut host = gateway.client("s").await;
        let big = json!({"name": "big", "arguments": {"bytes": 8 << 20}});
        host.ask("tools/call", big).await;
        // Answered after it; what is not read when the socket goes resets the connection.
        other.call("echo", json!({})).await.result();
        drop(host);
    }
    assert!(other.call("echo", json!({})).await.error.is_none());
    assert_eq!(gateway.get("/healthz").await.0, 200);
}

/// BR-152
#[tokio::test]
async fn a_second_gateway_at_one_address_ends_with_3_and_leaves_the_first_alone() {
    let servers = json!({ "s": faultd("") });
    let gateway = Gateway::run(&servers).await;
    gateway.events().await.until("s", "adopted").await;
    let config = std::fs::read_to_string(gateway.configure(&servers)).unwrap();
    let second = gateway.file("second.json");
    std::fs::write(&second, config.replace("/state\"", "/state-2\"")).unwrap();
    let mut run = binary();
    run.args(["run", "--config"]).arg(second);
    let output = ended(run).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(told.contains("listen"), "{told}");
    let mut host = gateway.client("s").await;
    assert!(host.call("echo", json!({})).await.error.is_none());
}

/// BR-104
#[tokio::test]
async fn g16_a_host_that_does_not_read_is_closed_with_4410_and_no_other() {
    let gateway = Gateway::run(&json!({ "s": faultd("--mcpl") })).await;
    let mut events = gateway.events().await;
    events.until("s", "adopted").await;
    let mut other = gateway.client("s").await;
    let mut host = gateway.connect("s").await;
    host.initialize(mcpl()).await;
    events.until("s", "host-attached").await;
    for _ in 0..4 {
        let big = json!({"name": "big", "arguments": {"bytes": 7 << 20}});
        host.ask("tools/call", big).await;
    }
    events.until("s", "host-detached").await;
    assert_eq!(host.closed().await, 4410);
    assert!(other.call("echo", json!({})).await.error.is_none());
}
