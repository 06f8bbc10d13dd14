//! Servers over Streamable HTTP behind the real binary: what they answer, sessions that end, and what goes down.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, with};
use crate::host::Host;
use crate::sockets::listen;

/// Waits short enough for a test, and a probe often enough that the loss of a session is seen.
fn quick(url: &str) -> Value {
    let timings = json!({
        "reconnectIntervalMs": 200, "reconnectMaxIntervalMs": 400, "keepAliveMs": 50, "lastingAfterMs": 60_000,
    });
    with(json!({ "url": url }), timings)
}

/// What goes wrong with the requests of a `faultd` from now on.
fn tell(verbs: &Path, lines: &str) {
    let next = verbs.with_extension("next");
    fs::write(&next, lines).unwrap();
    fs::rename(next, verbs).unwrap();
}

/// A host of the server, once that serves.
async fn client(gateway: &Gateway) -> Host {
    gateway
        .until_server("far", |server| server["state"] == "open")
        .await;
    gateway.client("far").await
}

async fn renewed(gateway: &Gateway) -> f64 {
    let counter = "tidegate_server_sessions_renewed_total{server=\"far\"}";
    gateway.metric(counter).await
}

#[tokio::test]
async fn a_server_over_http_answers_with_bodies_or_streams_and_its_own_stream_is_heard() {
    for flags in ["", "--sse", "--stream", "--sse --stream"] {
        let (_server, url) = listen(&format!("--http 127.0.0.1:0 {flags}")).await;
        let gateway = Gateway::run(&json!({ "far": {"type": "http", "httpUrl": url} })).await;
        let mut client = client(&gateway).await;
        let answer = client.call("echo", json!({"n": [1, 2.50]})).await;
        assert!(
            answer.result().contains(r#"{"n":[1,2.5]}"#),
            "{flags}: {}",
            answer.result()
        );
        let slow = json!({"name": "sleep", "arguments": {"ms": 300}});
        let slow = client.ask("tools/call", slow).await;
        client.call("echo", json!({})).await.result();
        client.answer(&slow).await.result();
        if flags.contains("--stream") {
            client.call("notify", json!({})).await.result();
            client
                .notification("notifications/tools/list_changed")
                .await;
        }
        assert_eq!(gateway.server("far").await["transport"], "http");
    }
}

/// BR-001, BR-005
#[tokio::test]
async fn r11_a_forgotten_session_is_renewed_and_the_call_that_met_it_did_not_run() {
    let place = Place::new();
    let verbs = place.file("verbs");
    let (_server, url) = listen(&format!("--http 127.0.0.1:0 --verbs {}", verbs.display())).await;
    let (_other, other) = listen("--http 127.0.0.1:0").await;
    let slow = json!({"reconnectIntervalMs": 1});
    let servers = json!({ "far": with(json!({ "url": url }), slow), "other": {"url": other} });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until("far", "adopted").await;
    let mut client = client(&gateway).await;
    client.call("echo", json!({})).await.result();
    for round in 1..=2 {
        tell(&verbs, "tools/call forget\n");
        let error = client.call("echo", json!({})).await.error();
        assert_eq!(error["code"], -32050, "{error}");
        tell(&verbs, "");
        events.until_times("far", "adopted", 1 + round).await;
        client.call("echo", json!({})).await.result();
    }
    assert_eq!(renewed(&gateway).await, 2.0);
    let count = "tidegate_server_failed_attempts{server=\"far\"}";
    assert_eq!(gateway.metric(count).await, 0.0);
    let attempts: Vec<_> = events
        .seen("far", "adopted")
        .iter()
        .map(|event| event.attempt())
        .collect();
    assert_eq!(attempts, [0, 0, 0]);
    assert_eq!(events.seen("far", "short-end").len(), 0);
    assert_eq!(events.seen("other", "adopted").len(), 1);
}

#[tokio::test]
async fn r11_s3_a_server_that_restarts_behind_404s_in_a_loop_goes_down() {
    let (_server, url) = listen("--http 127.0.0.1:0 --session-ms 20").await;
    let gateway = Gateway::run(&json!({ "far": quick(&url) })).await;
    let mut events = gateway.events().await;
    let down = events.until("far", "down").await;
    assert_eq!(down.attempt(), 5);
    assert!(
        down.text()
            .starts_with("MCP server down (attempt 5): connected, then closed after 0 s"),
        "{down:?}"
    );
    assert!(renewed(&gateway).await <= 2.0);
    let ended = "tidegate_server_connections_ended_total{lasted=\"false\",reason=\"session\",server=\"far\"}";
    assert!(gateway.metric(ended).await >= 5.0);
}

#[tokio::test]
async fn r4_r19_s3_a_server_over_http_whose_connections_break_goes_down_like_any_other() {
    let place = Place::new();
    for (name, verb) in [
        ("reset", "ping reset"),
        ("status", "ping status 502"),
        ("mute", "ping status 400"),
    ] {
        let verbs = place.file(name);
        tell(
            &verbs,
            &format!("{verb}\ntools/list {}\n", verb.trim_start_matches("ping ")),
        );
        let (_server, url) =
            listen(&format!("--http 127.0.0.1:0 --verbs {}", verbs.display())).await;
        let gateway = Gateway::run(&json!({ "far": quick(&url) })).await;
        let mut events = gateway.events().await;
        let down = events.until("far", "down").await;
        assert_eq!(down.attempt(), 5, "{name}");
        assert_eq!(events.seen("far", "short-end").len(), 6, "{name}");
    }
}

/// BR-014
#[tokio::test]
async fn r18_a_server_over_http_that_refuses_the_credential_is_in_auth_and_a_rotated_one_heals_it()
{
    let place = Place::new();
    let verbs = place.file("verbs");
    tell(&verbs, "* status 401\n");
    let (_server, url) = listen(&format!("--http 127.0.0.1:0 --verbs {}", verbs.display())).await;
    let gateway = place.run(&json!({ "far": quick(&url) })).await;
    let mut events = gateway.events().await;
    events.until("far", "down").await;
    let failed = events.seen("far", "attempt-failed");
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|event| event.field("outcome") == "auth"));
    gateway
        .until_server("far", |server| server["state"] == "auth")
        .await;
    tell(&verbs, "");
    gateway.operate("far", "restart").await;
    events.until("far", "adopted").await;
}

#[tokio::test]
async fn an_answer_whose_stream_is_cut_is_fetched_after_its_last_event() {
    let place = Place::new();
    let verbs = place.file("verbs");
    tell(&verbs, "tools/call cut\n");
    let (_server, url) = listen(&format!("--http 127.0.0.1:0 --verbs {}", verbs.display())).await;
    let gateway = place.run(&json!({ "far": {"url": url} })).await;
    let mut client = client(&gateway).await;
    let answer = client.call("echo", json!({"n": 7})).await;
    assert!(answer.result().contains(r#"{"n":7}"#));
}

#[tokio::test]
async fn r19_an_http_server_that_dies_in_a_call_loses_it_and_is_dialed_again() {
    let (mut server, url) = listen("--http 127.0.0.1:0").await;
    let gateway = Gateway::run(&json!({ "far": quick(&url) })).await;
    let mut events = gateway.events().await;
    let mut client = client(&gateway).await;
    let call = json!({"name": "sleep", "arguments": {"ms": 600_000}});
    let call = client.ask("tools/call", call).await;
    client.call("echo", json!({})).await.result();
    server.kill().await.unwrap();
    assert_eq!(client.answer(&call).await.error()["code"], -32051);
    events.until("far", "attempt-failed").await;
    assert_eq!(client.call("echo", json!({})).await.error()["code"], -32050);
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let (_server, _) = listen(&format!("--http {address}")).await;
    events.until_times("far", "adopted", 2).await;
    client.call("echo", json!({})).await.result();
}
