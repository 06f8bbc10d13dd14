//! Messages of every form: each gets the protocol's answer, and nothing crosses (A2, G16).

use serde_json::json;

use crate::gateway::{Gateway, Place, faultd};
use crate::host::Host;

async fn two_servers() -> Gateway {
    let servers = json!({ "a": faultd("--name a"), "b": faultd("--name b") });
    let gateway = Gateway::run(&servers).await;
    let mut events = gateway.events().await;
    for server in ["a", "b"] {
        events.until_times(server, "adopted", 1).await;
    }
    gateway
}

fn call(id: &str, tool: &str, arguments: &str) -> String {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

#[tokio::test]
async fn a2_ids_of_every_form_come_back_as_written_and_never_cross() {
    let ids = [
        "0",
        "1",
        "-1",
        "1.5",
        "1e3",
        "18446744073709551616",
        "1180591620717411303424",
        r#""""#,
        r#""1""#,
        r#""\u00e9 \"x\"""#,
        r#""in-1""#,
    ];
    let gateway = two_servers().await;
    let mut hosts = Vec::new();
    for (name, server) in [("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")] {
        hosts.push((name, gateway.client(server).await));
    }
    for id in ids {
        for (name, host) in &mut hosts {
            host.send(call(
                id,
                "echo",
                &format!(r#"{{"from":"{name}","n":1.10}}"#),
            ))
            .await;
        }
        for (name, host) in &mut hosts {
            let answer = host.answer(id).await;
            let expected = format!(r#""structuredContent":{{"from":"{name}","n":1.10}}"#);
            assert!(answer.result().contains(&expected), "{id}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a2_an_id_that_is_in_flight_already_is_served_on_its_own() {
    let gateway = two_servers().await;
    let mut host = gateway.client("a").await;
    host.send(call("7", "sleep", r#"{"ms":300}"#)).await;
    host.send(call("7", "echo", "{}")).await;
    let first = host.answer("7").await;
    let second = host.answer("7").await;
    assert!(first.result().contains("structuredContent"), "{first:?}");
    assert!(second.result().contains("slept"), "{second:?}");
}

#[tokio::test]
async fn g16_megabytes_pass_both_ways_unchanged_up_to_the_bound() {
    let gateway = two_servers().await;
    let mut host = gateway.client("a").await;
    // The tool answers with its arguments twice, so this is a request of 7 MiB and an answer of 14 MiB.
    let arguments = format!(r#"{{"x":"{}"}}"#, "é".repeat(7 << 19));
    host.send(call(r#""echo""#, "echo", &arguments)).await;
    let answer = host.answer(r#""echo""#).await;
    let params = format!(r#"{{"name":"echo","arguments":{arguments}}}"#);
    let expected = format!(r#"{{"content":[],"structuredContent":{arguments},"echo":{params}}}"#);
    assert!(answer.result() == expected, "not the bytes that were sent");

    let filled = |mib: usize| format!(r#"{{"ms":0,"x":"{}"}}"#, "x".repeat((mib << 20) - 1024));
    host.send(call(r#""whole""#, "sleep", &filled(16))).await;
    assert!(host.answer(r#""whole""#).await.result().contains("slept"));
    host.send(call(r#""over""#, "sleep", &filled(17))).await;
    assert_refused(&mut host, r#""over""#, -32600).await;
    assert!(host.call("echo", json!({})).await.error.is_none());
}

/// A call whose message is nested this deep.
fn nested(id: &str, levels: usize) -> String {
    let arrays = levels - 3;
    call(
        id,
        "sleep",
        &format!(
            r#"{{"ms":0,"x":{}{}}}"#,
            "[".repeat(arrays),
            "]".repeat(arrays)
        ),
    )
}

async fn assert_refused(host: &mut Host, id: &str, code: i64) {
    let error = host.answer(id).await.error();
    assert_eq!(error["code"], code, "{error}");
}

#[tokio::test]
async fn g16_nesting_passes_to_128_levels_and_is_refused_beyond() {
    let gateway = two_servers().await;
    let mut host = gateway.client("a").await;
    host.send(nested("1", 128)).await;
    assert!(host.answer("1").await.result().contains("slept"));
    host.send(nested("2", 129)).await;
    assert_refused(&mut host, "2", -32600).await;
}

#[tokio::test]
async fn a2_what_is_no_message_gets_the_protocols_answer_and_harms_nobody() {
    let gateway = two_servers().await;
    let mut host = gateway.client("a").await;
    host.send(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#)
        .await;
    assert_refused(&mut host, "null", -32600).await;
    host.send(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#)
        .await;
    assert_refused(&mut host, "null", -32600).await;
    host.send(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#)
        .await;
    assert_refused(&mut host, "null", -32600).await;
    host.send(r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#)
        .await;
    assert_refused(&mut host, "3", -32600).await;
    host.send(r#"{"jsonrpc":"2.0","id":4,"#).await;
    assert_refused(&mut host, "null", -32700).await;
    host.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"\xff\"}")
        .await;
    assert_refused(&mut host, "null", -32700).await;
    host.send(call("6", "echo", r#"{"still":"here"}"#)).await;
    assert!(
        host.answer("6")
            .await
            .result()
            .contains(r#"{"still":"here"}"#)
    );
}

#[tokio::test]
async fn a_server_that_prints_noise_is_understood_all_the_same() {
    let gateway = Gateway::run(&json!({ "noisy": faultd("--noise") })).await;
    let mut events = gateway.events().await;
    events.until("noisy", "adopted").await;
    let mut host = gateway.client("noisy").await;
    assert!(
        host.call("echo", json!({"x": 1}))
            .await
            .result()
            .contains(r#"{"x":1}"#)
    );
    events.until_times("noisy", "noise", 1).await;
}

/// A server says so many pushes of 200 bytes.
async fn pushes(host: &mut Host, count: u64) {
    let fill = "x".repeat(110);
    let push = |n| {
        let params = json!({ "eventId": format!("e{n:03}"), "fill": fill });
        json!({ "jsonrpc": "2.0", "id": 1000 + n, "method": "push/event", "params": params })
    };
    let messages: Vec<_> = (0..count).map(push).collect();
    host.call("say", json!({ "messages": messages })).await;
}

#[tokio::test]
async fn g6_a_server_that_floods_leaves_the_others_their_share_of_all_bytes() {
    let servers = json!({ "a": faultd("--name a --mcpl"), "b": faultd("--name b --mcpl") });
    let place = Place::with(json!({ "maxQueuedBytes": 8192 }));
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    for server in ["a", "b"] {
        events.until_times(server, "settled", 1).await;
    }
    let mut a = gateway.client("a").await;
    pushes(&mut a, 100).await;
    let refused = r#"tidegate_server_messages_refused_total{code="-32000",server="a"}"#;
    let held =
        |server| format!(r#"tidegate_server_held_messages{{kind="request",server="{server}"}}"#);
    let flood = gateway.metric(&held("a")).await;
    assert!(
        (20.0..=31.0).contains(&flood),
        "three quarters of all: {flood}"
    );
    assert_eq!(gateway.metric(refused).await, 100.0 - flood);
    let mut b = gateway.client("b").await;
    pushes(&mut b, 9).await;
    assert_eq!(gateway.metric(&held("b")).await, 9.0);
    let all = gateway.metric("tidegate_queued_bytes").await;
    let most = gateway.metric("tidegate_queued_max_bytes").await;
    assert!(all > 7000.0 && all <= most, "{all} of {most}");
}
