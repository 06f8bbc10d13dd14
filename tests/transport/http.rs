//! Servers of Streamable HTTP, against a server of this file that does what each test says.

mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate::engine::input::{End, Failure, LinkEvent, Outcome, Reap};
use tidegate::transport::settings::{Credential, Http, Settings};
use tidegate::wire::jsonrpc::Unreadable;

use crate::dialed::{Dialed, is_alone, secret};
use wire::{Wire, answer, introduction};

fn settings(url: &str) -> Http {
    Http {
        url: url.into(),
        credential: Credential::None,
        headers: BTreeMap::new(),
        connect_timeout: Duration::from_secs(15),
        secrets: Vec::new(),
    }
}

fn dial(settings: Http) -> Dialed {
    Dialed::new(&Settings::Http(Arc::new(settings)))
}

/// One that serves, without a stream of its own.
async fn served() -> (Wire, Dialed) {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    tokio::join!(wire.welcome(), server.handshake());
    (wire, server)
}

async fn failure(mut server: Dialed) -> Failure {
    server.connected().await;
    let LinkEvent::Failed(failure) = server.next().await else {
        panic!("it did not fail")
    };
    assert_eq!(server.gone().await, Reap::Clean);
    failure
}

async fn ping(server: &Dialed, id: u64) {
    server
        .send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
        .await;
}

async fn end(mut server: Dialed) -> End {
    let end = server.loss().await.end;
    assert_eq!(server.gone().await, Reap::Clean);
    end
}

#[tokio::test]
async fn a_session_has_its_id_and_revision_in_every_request_and_is_ended_by_us() {
    let mut wire = Wire::listen().await;
    let mut server = dial(Http {
        credential: Credential::Fixed(secret("s3cret")),
        headers: BTreeMap::from([("x-team".into(), secret("blue"))]),
        ..settings(&format!("{}?a=b", wire.url))
    });
    let judged = async {
        let first = wire.next("POST").await;
        assert_eq!(first.target, "/mcp?a=b");
        assert_eq!(
            first.header("accept"),
            Some("application/json, text/event-stream")
        );
        assert_eq!(first.header("content-type"), Some("application/json"));
        assert_eq!(first.header("authorization"), Some("Bearer s3cret"));
        assert_eq!(first.header("mcp-session-id"), None);
        first.json_with("mcp-session-id: s-1\r\n", &introduction());
        for method in ["POST", "GET"] {
            let asked = wire.next(method).await;
            assert_eq!(asked.header("mcp-session-id"), Some("s-1"));
            assert_eq!(asked.header("mcp-protocol-version"), Some("2025-06-18"));
            assert_eq!(asked.header("x-team"), Some("blue"));
            asked.status(if method == "GET" {
                "405 Method Not Allowed"
            } else {
                "202 Accepted"
            });
        }
        wire
    };
    let (mut wire, welcome) = tokio::join!(judged, server.handshake());
    assert_eq!(welcome["result"]["serverInfo"]["name"], "wire");
    let ended = async {
        let asked = wire.next("DELETE").await;
        assert_eq!(asked.header("mcp-session-id"), Some("s-1"));
        asked.status("200 OK");
    };
    let (reap, ()) = tokio::join!(server.close_and_wait(), ended);
    assert_eq!(reap, Reap::Clean);
}

#[tokio::test]
async fn calls_are_under_way_at_once_and_their_connections_are_used_again() {
    let (mut wire, mut server) = served().await;
    for round in 0..3 {
        let mut asked = Vec::new();
        for id in 1..=4 {
            server.call(round * 10 + id, "echo", json!({})).await;
        }
        for _ in 0..4 {
            asked.push(wire.next("POST").await);
        }
        // The last one first.
        for call in asked.into_iter().rev() {
            let id = call.body["id"].as_u64().unwrap();
            call.json(&answer(id, "done"));
            assert_eq!(server.message().await["id"], id);
        }
    }
    assert!(
        wire.connections() <= 5,
        "{} connections",
        wire.connections()
    );
}

#[tokio::test]
async fn an_answer_comes_at_the_end_of_a_stream_after_what_belongs_to_it() {
    let (mut wire, mut server) = served().await;
    server.call(1, "echo", json!({})).await;
    let call = wire.next("POST").await;
    call.stream();
    call.piece(": still here\n\nid: e-0\ndata:\n\n");
    call.event(
        "e-1",
        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}),
    );
    call.event(
        "e-2",
        &json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}),
    );
    call.event("e-3", &answer(1, "done"));
    assert_eq!(server.message().await["method"], "notifications/progress");
    let LinkEvent::Asked { message, during } = server.next().await else {
        panic!("no question was told")
    };
    assert_eq!((message.method(), during), ("roots/list", 1));
    assert_eq!(server.message().await["result"]["said"], "done");
    // Its answer to the server's question is a message of its own.
    server
        .send(json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}))
        .await;
    let posted = wire.next("POST").await;
    assert_eq!(posted.body["id"], "q");
    posted.status("202 Accepted");
    call.end();
    drop(server.close_and_wait());
}

#[tokio::test]
async fn nothing_is_sent_before_the_handshake_is_through() {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    let opening = async {
        let asked = wire.next("POST").await;
        asked.json(&introduction());
        wire.next("POST").await
    };
    let (initialized, _) = tokio::join!(opening, server.handshake());
    ping(&server, 1).await;
    initialized.status("202 Accepted");
    let mut seen = [wire.any().await, wire.any().await];
    seen.sort_by_key(|asked| asked.method.clone());
    assert_eq!((&*seen[0].method, &*seen[1].method), ("GET", "POST"));
    assert_eq!(seen[1].body["method"], "ping");
}

#[tokio::test]
async fn notifications_keep_their_order_and_delay_no_call() {
    let (mut wire, mut server) = served().await;
    for n in 1..=3 {
        server
            .send(json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n}}))
            .await;
    }
    let first = wire.next("POST").await;
    ping(&server, 7).await;
    let call = wire.next("POST").await;
    assert_eq!(call.body["id"], 7);
    call.json(&answer(7, "pong"));
    server.answer(7).await;
    assert_eq!(first.body["params"]["n"], 1);
    first.status("202 Accepted");
    for n in 2..=3 {
        let next = wire.next("POST").await;
        assert_eq!(next.body["params"]["n"], n);
        next.status("202 Accepted");
    }
}

#[tokio::test]
async fn a_server_that_nobody_runs_is_refused_with_its_address_and_without_its_password() {
    let mut wire = Wire::listen().await;
    let url = wire.url.replace("//", "//ada:hunter2@");
    wire.close().await;
    let port = url.split(':').next_back().unwrap().to_owned();
    let mut server = dial(settings(&url));
    let LinkEvent::Failed(failure) = server.next().await else {
        panic!("it did not fail")
    };
    assert_eq!(failure.outcome, Outcome::Refused);
    assert!(
        failure
            .detail
            .starts_with(&format!("http://127.0.0.1:{port}: ")),
        "{}",
        failure.detail
    );
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn r18_a_credential_that_is_refused_is_resolved_once_more_and_then_counts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "old-s3cret").unwrap();
    let mut wire = Wire::listen().await;
    let server = dial(Http {
        credential: Credential::File(file.clone()),
        ..settings(&wire.url)
    });
    server
        .send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}))
        .await;
    let judged = async {
        let first = wire.next("POST").await;
        assert_eq!(first.header("authorization"), Some("Bearer old-s3cret"));
        std::fs::write(&file, "new-s3cret").unwrap();
        first.status("401 Unauthorized");
        let second = wire.next("POST").await;
        assert_eq!(second.header("authorization"), Some("Bearer new-s3cret"));
        second.whole("403 Forbidden", "", "not you, new-s3cret");
    };
    let (failure, ()) = tokio::join!(failure(server), judged);
    assert_eq!(failure.outcome, Outcome::Auth);
    assert!(
        failure
            .detail
            .ends_with("HTTP status 403: not you, [secret]"),
        "{}",
        failure.detail
    );
}

#[tokio::test]
async fn a_refusal_of_initialize_that_is_an_error_of_the_protocol_is_its_answer() {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    server.connected().await;
    server
        .send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}))
        .await;
    let text = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"what?"}}"#;
    wire.next("POST").await.whole("400 Bad Request", "", text);
    assert_eq!(server.answer(0).await["error"]["code"], -32022);
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r18_the_wait_that_a_server_asks_for_is_told() {
    let mut wire = Wire::listen().await;
    let server = dial(settings(&wire.url));
    server
        .send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}))
        .await;
    let judged = async {
        wire.next("POST")
            .await
            .whole("429 Too Many Requests", "retry-after: 7\r\n", "<p>slow</p>");
    };
    let (failure, ()) = tokio::join!(failure(server), judged);
    assert_eq!(failure.outcome, Outcome::Refused);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn r11_a_404_to_the_sessions_id_ends_the_session_and_the_call_did_not_run() {
    let (mut wire, mut server) = served().await;
    server.call(1, "echo", json!({})).await;
    wire.next("POST").await.status("404 Not Found");
    let LinkEvent::Unsent { request, .. } = server.next().await else {
        panic!("it was not told as unsent")
    };
    assert_eq!(request, Some(1));
    assert_eq!(end(server).await, End::Session);
}

#[tokio::test]
async fn r19_a_call_that_is_refused_is_answered_and_the_session_goes_on() {
    let (mut wire, mut server) = served().await;
    ping(&server, 1).await;
    wire.next("POST").await.json(&answer(1, "pong"));
    server.answer(1).await;
    let refusals = [
        ("400 Bad Request", "no such thing", -32603),
        ("429 Too Many Requests", "", -32603),
        ("503 Service Unavailable", "", -32603),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-7,"message":"own"}}"#,
            -7,
        ),
    ];
    for (id, (status, body, code)) in (2..).zip(refusals) {
        server.call(id, "echo", json!({})).await;
        wire.next("POST")
            .await
            .whole(status, "retry-after: 2\r\n", body);
        let answer = server.answer(id).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r19_two_server_errors_in_a_row_end_it_and_an_answer_between_them_does_not() {
    let (mut wire, mut server) = served().await;
    for id in [1, 3] {
        ping(&server, id).await;
        wire.next("POST").await.status("502 Bad Gateway");
        assert_eq!(server.answer(id).await["error"]["data"]["httpStatus"], 502);
        ping(&server, id + 1).await;
        wire.next("POST").await.json(&answer(id + 1, "pong"));
        server.answer(id + 1).await;
    }
    for id in [5, 6] {
        ping(&server, id).await;
        wire.next("POST").await.status("502 Bad Gateway");
    }
    assert_eq!(end(server).await, End::Http(502));
}

#[tokio::test]
async fn r19_a_server_that_refuses_all_but_initialize_is_no_server() {
    let (mut wire, server) = served().await;
    for id in [1, 2] {
        ping(&server, id).await;
        let text =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"missing session"}}"#;
        wire.next("POST").await.whole("400 Bad Request", "", text);
    }
    assert_eq!(end(server).await, End::Http(400));
}

#[tokio::test]
async fn r19_a_connection_that_breaks_under_a_call_ends_it() {
    let (mut wire, server) = served().await;
    ping(&server, 1).await;
    wire.next("POST").await.reset();
    assert!(matches!(end(server).await, End::Reset(_)));
}

#[tokio::test]
async fn r19_a_refused_connection_ends_it() {
    let (mut wire, server) = served().await;
    wire.close().await;
    // One more than there are connections.
    for id in 1..=3 {
        ping(&server, id).await;
    }
    assert!(matches!(end(server).await, End::Reset(_)));
}

#[tokio::test]
async fn an_https_server_is_believed_by_the_roots_of_the_machine() {
    let roots = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transport/tls/cert.pem");
    let name = "http::an_https_server_is_believed_by_the_roots_of_the_machine";
    if !is_alone(name, &[("SSL_CERT_FILE", roots)]) {
        return;
    }
    let mut wire = Wire::secured().await;
    let mut server = dial(settings(&wire.url));
    tokio::join!(wire.welcome(), server.handshake());
    // The same certificate for another name.
    let mut other = dial(settings(&wire.url.replace("localhost", "127.0.0.1")));
    let LinkEvent::Failed(failure) = other.next().await else {
        panic!("it did not fail")
    };
    assert_eq!(failure.outcome, Outcome::Refused);
    assert!(failure.detail.contains("certificate"), "{}", failure.detail);
}

/// BR-002
#[tokio::test]
async fn the_address_that_answered_first_is_the_epochs() {
    let mut one = Wire::listen().await;
    let port = one
        .url
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end_matches("/mcp")
        .to_owned();
    let mut two = Wire::at(&format!("[::1]:{port}")).await;
    let mut server = dial(settings(&format!("http://localhost:{port}/mcp")));
    let welcomed = async {
        tokio::select! {
            () = one.welcome() => 1,
            () = two.welcome() => 2,
        }
    };
    let (first, _) = tokio::join!(welcomed, server.handshake());
    let first = if first == 1 { &mut one } else { &mut two };
    first.close().await;
    for id in 1..=3 {
        ping(&server, id).await;
    }
    assert!(matches!(end(server).await, End::Reset(_)));
}

#[tokio::test]
async fn a_notification_that_is_not_answered_holds_up_the_next_for_some_time_alone() {
    let (mut wire, server) = served().await;
    for n in [1, 2] {
        server
            .send(json!({"jsonrpc": "2.0", "method": "n", "params": {"n": n}}))
            .await;
    }
    let unanswered = wire.next("POST").await;
    crate::dialed::soon(unanswered.closed()).await;
    let second = wire.next("POST").await;
    assert_eq!(second.body["params"]["n"], 2);
    second.status("202 Accepted");
}

#[tokio::test]
async fn a_cancelled_call_is_given_up_some_time_after() {
    let (mut wire, mut server) = served().await;
    server.call(1, "echo", json!({})).await;
    let call = wire.next("POST").await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    server.send(cancel).await;
    wire.next("POST").await.status("202 Accepted");
    // The answer may come for some seconds; then its connection is closed.
    crate::dialed::soon(call.closed()).await;
    ping(&server, 2).await;
    wire.next("POST").await.json(&answer(2, "pong"));
    assert_eq!(server.message().await["id"], 2);
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_again_after_its_last_event() {
    let (mut wire, mut server) = served().await;
    server.call(1, "echo", json!({})).await;
    let call = wire.next("POST").await;
    call.stream();
    call.piece("retry: 20\nid: e-1\ndata:\n\n");
    call.end();
    let again = wire.next("GET").await;
    assert_eq!(again.header("last-event-id"), Some("e-1"));
    assert_eq!(again.header("accept"), Some("text/event-stream"));
    again.stream();
    again.event(
        "e-2",
        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
    );
    assert_eq!(server.message().await["method"], "notifications/progress");
    again.reset();
    let third = wire.next("GET").await;
    assert_eq!(third.header("last-event-id"), Some("e-2"));
    third.stream();
    third.event("e-3", &answer(1, "done"));
    third.end();
    assert_eq!(server.answer(1).await["result"]["said"], "done");
}

#[tokio::test]
async fn a_stream_that_ends_without_its_answer_and_without_ids_is_an_answer_that_says_so() {
    let (mut wire, mut server) = served().await;
    server.call(1, "echo", json!({})).await;
    let call = wire.next("POST").await;
    call.stream();
    call.end();
    let answer = server.answer(1).await;
    assert_eq!(answer["error"]["code"], -32051, "{answer}");
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_is_not_asked_again() {
    let (mut wire, mut server) = served().await;
    ping(&server, 1).await;
    let asked = wire.any().await;
    assert_eq!(asked.method, "POST");
    asked.json(&answer(1, "pong"));
    server.answer(1).await;
}

#[tokio::test]
async fn the_servers_own_stream_is_opened_again_after_its_last_event() {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    tokio::join!(wire.begin("s-1"), server.handshake());
    let stream = wire.next("GET").await;
    stream.stream();
    stream.event(
        "n-1",
        &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
    );
    assert_eq!(
        server.message().await["method"],
        "notifications/tools/list_changed"
    );
    stream.end();
    let again = wire.next("GET").await;
    assert_eq!(again.header("last-event-id"), Some("n-1"));
    again.stream();
    again.event("n-2", &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert_eq!(server.message().await["method"], "ping");
    // R19: once it is not had again at once, that is the end.
    wire.close().await;
    again.reset();
    assert!(matches!(end(server).await, End::Reset(_)));
}

#[tokio::test]
async fn r11_a_404_to_the_stream_that_was_open_ends_the_session() {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    tokio::join!(wire.begin("s-1"), server.handshake());
    let stream = wire.next("GET").await;
    stream.stream();
    stream.end();
    wire.next("GET").await.status("404 Not Found");
    assert_eq!(end(server).await, End::Session);
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_and_refused_beyond() {
    let mut wire = Wire::listen().await;
    let mut server = dial(settings(&wire.url));
    let judged = async {
        wire.next("POST")
            .await
            .whole("307 Temporary Redirect", "location: /mcp/\r\n", "");
        let again = wire.next("POST").await;
        assert_eq!(
            (&*again.target, &again.body["method"]),
            ("/mcp/", &json!("initialize"))
        );
        again.json(&introduction());
        let next = wire.next("POST").await;
        assert_eq!(next.target, "/mcp/");
        next.status("202 Accepted");
    };
    tokio::join!(judged, server.handshake());
    let server = dial(Http {
        credential: Credential::Fixed(secret("s3cret")),
        ..settings(&wire.url)
    });
    server
        .send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}))
        .await;
    let judged = async {
        let asked = loop {
            let asked = wire.any().await;
            if asked.method == "POST" {
                break asked;
            }
        };
        asked.whole(
            "308 Permanent Redirect",
            "location: http://127.0.0.2:1/mcp?x=1\r\n",
            "",
        );
    };
    let (failure, ()) = tokio::join!(failure(server), judged);
    let told = "it redirects to http://127.0.0.2:1/mcp, which is another origin; write that address instead";
    assert!(failure.detail.ends_with(told), "{}", failure.detail);
}

#[tokio::test]
async fn a_message_that_is_laid_out_in_lines_becomes_one_line() {
    let (mut wire, mut server) = served().await;
    ping(&server, 1).await;
    let text = "{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}\n";
    let asked = wire.next("POST").await;
    asked.whole(
        "200 OK",
        "content-type: application/json; charset=utf-8\r\n",
        text,
    );
    let LinkEvent::Received(message) = server.next().await else {
        panic!("no message was told")
    };
    assert!(!message.raw().contains(&b'\n') && message.our_id() == Some(1));
}

#[tokio::test]
async fn a_batch_in_an_answer_is_told_as_one() {
    let (mut wire, mut server) = served().await;
    ping(&server, 1).await;
    let batch = json!([{"jsonrpc": "2.0", "method": "notifications/x"}, answer(1, "pong")]);
    wire.next("POST").await.json(&batch);
    let LinkEvent::Unreadable {
        what: Unreadable::Batch(parts),
        ..
    } = server.next().await
    else {
        panic!("no batch was told")
    };
    assert_eq!(parts.len(), 2);
    ping(&server, 2).await;
    wire.next("POST").await.json(&answer(2, "pong"));
    // The call in the batch got no second answer.
    assert_eq!(server.message().await["id"], 2);
}
