//! Hosts over Streamable HTTP, in the revisions with sessions: what a POST is answered with, what a GET is told, and
//! whose a session is (4-faces).

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::gateway::{Gateway, Place, faultd, with};
use crate::streamable::{Client, Feed, body, header, sent};

const ALL: &str = "application/json, text/event-stream";

fn changed() -> Value {
    json!("notifications/tools/list_changed")
}

async fn running(servers: Value) -> Gateway {
    let gateway = Gateway::run(&servers).await;
    let mut events = gateway.events().await;
    for server in servers.as_object().unwrap().keys() {
        events.until(server, "adopted").await;
    }
    gateway
}

async fn sessions(gateway: &Gateway) -> f64 {
    gateway
        .metric(r#"tidegate_host_sessions{face="http"}"#)
        .await
}

async fn until_sessions(gateway: &Gateway, wanted: f64) {
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    for _ in 0..1_500 {
        tick.tick().await;
        if sessions(gateway).await == wanted {
            return;
        }
    }
    panic!("{} sessions:\n{}", sessions(gateway).await, gateway.log());
}

#[tokio::test]
async fn a_session_opens_with_initialize_and_a_plain_call_is_answered_with_json() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::new(&gateway.http_url("a"));
    let answer = client.initialize(json!({})).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    let id = client.session.clone().unwrap();
    assert!(id.len() >= 22 && id.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(sessions(&gateway).await, 1.0);

    let answer = client.call("echo", json!({"n": 1})).await;
    assert_eq!(answer["id"], 2);
    assert_eq!(answer["result"]["structuredContent"], json!({"n": 1}));
    let list = client.ask("tools/list", &json!({}));
    let list = body(client.post(&list).await).await;
    assert!(list["result"]["tools"].is_array(), "{list}");

    assert_eq!(client.delete().await, 204);
    let list = client.ask("tools/list", &json!({}));
    assert_eq!(client.post(&list).await.status(), 404);
    until_sessions(&gateway, 0.0).await;
}

/// Opens a session that speaks a revision.
async fn speaking(gateway: &Gateway, revision: &'static str) -> Client {
    let mut client = Client::new(&gateway.http_url("a"));
    client.revision = revision;
    let answer = client.initialize(json!({"roots": {}})).await;
    assert_eq!(answer["result"]["protocolVersion"], revision);
    client
}

#[tokio::test]
async fn progress_makes_a_post_a_stream_that_begins_with_an_id_and_ends_with_the_answer() {
    let gateway = running(json!({ "a": faultd("") })).await;
    for (revision, primes) in [("2025-11-25", true), ("2025-06-18", false)] {
        let mut client = speaking(&gateway, revision).await;
        let params = json!({"name": "progress", "arguments": {"count": 2},
            "_meta": {"progressToken": "mine"}});
        let call = client.ask("tools/call", &params);
        let response = client.post(&call).await;
        assert_eq!(header(&response, "x-accel-buffering"), "no");
        let mut feed = Feed::new(response);
        let first = feed.next().await.unwrap();
        assert_eq!(
            (first.id.is_some(), first.retry.is_some()),
            (primes, primes)
        );
        assert_eq!(first.data.as_deref(), primes.then_some(""));
        for n in 1..=2 {
            let message = feed.message().await.unwrap().message();
            assert_eq!(
                message["params"],
                json!({"progressToken": "mine", "progress": n})
            );
        }
        let answer = feed.message().await.unwrap();
        assert_eq!(answer.message()["id"], 2);
        assert!(answer.id.is_some());
        assert_eq!(feed.next().await, None);
    }
}

#[tokio::test]
async fn a_request_of_the_server_comes_on_the_call_that_it_is_for_and_is_answered_by_a_post() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = speaking(&gateway, "2025-11-25").await;
    let ask = r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#;
    let message: Value = serde_json::from_str(ask).unwrap();
    let params = json!({"name": "say", "arguments": {"messages": [message]}});
    let call = client.ask("tools/call", &params);
    let mut feed = Feed::new(client.post(&call).await);
    let asked = feed.message().await.unwrap().message();
    assert_eq!(asked["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    let accepted = client.post(&answer.to_string()).await;
    assert_eq!(accepted.status(), 202);
    assert_eq!(feed.message().await.unwrap().message()["id"], 2);
}

/// A message of the server's own.
fn saying(n: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n}})
}

/// The next such message, whatever comes between.
async fn said(feed: &mut Feed) -> (u64, String) {
    loop {
        let event = feed.message().await.expect("the stream ended");
        if let Some(n) = event.message()["params"]["n"].as_u64() {
            return (n, event.id.unwrap());
        }
    }
}

#[tokio::test]
async fn what_a_client_misses_while_its_stream_is_away_comes_once_and_in_order_when_it_resumes() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let mut feed = client.listen(None).await;
    let primed = feed.next().await.unwrap();
    assert!(
        primed.id.is_some() && primed.data.as_deref() == Some(""),
        "{primed:?}"
    );
    client.call("say", json!({"messages": [saying(100)]})).await;
    let (seen, id) = said(&mut feed).await;
    assert_eq!(seen, 100);
    drop(feed);

    let messages: Vec<Value> = (0..20).map(saying).collect();
    client.call("say", json!({"messages": messages})).await;
    let mut feed = client.listen(Some(&id)).await;
    for n in 0..20 {
        assert_eq!(said(&mut feed).await.0, n);
    }
    // From an id before that, what was seen comes again.
    let mut again = client.listen(primed.id.as_deref()).await;
    for n in [100, 0, 1] {
        assert_eq!(said(&mut again).await.0, n);
    }
    // The older connection of the stream ends.
    while feed.next().await.is_some() {}
}

#[tokio::test]
async fn what_a_client_that_never_listens_is_told_is_bounded_and_the_rest_is_counted() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let messages: Vec<Value> = (0..1_100).map(saying).collect();
    let mut events = gateway.events().await;
    client.call("say", json!({"messages": messages})).await;
    let dropped = events.until("a", "dropped").await;
    assert_eq!(dropped.field("reason"), "no_receiver");

    let mut feed = client.listen(None).await;
    let marks: Vec<Value> = [feed.message().await, feed.message().await]
        .map(|event| event.unwrap().message()["method"].clone())
        .into();
    assert_eq!(marks, [json!("notifications/message"), changed()]);
    while said(&mut feed).await.0 != 1_099 {}
    let answer = client.call("echo", json!({"n": 1})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"n": 1}));
}

#[tokio::test]
async fn a_client_that_leaves_cancels_nothing_and_finds_the_answer_on_its_stream() {
    let place = Place::new();
    let heard = place.file("heard");
    let server = faultd(&format!("--heard {}", heard.display()));
    let gateway = place.run(&json!({ "a": server })).await;
    gateway.events().await.until("a", "adopted").await;
    let mut client = speaking(&gateway, "2025-11-25").await;
    // The call waits for the answer to a request, which makes it a stream.
    let params = json!({"name": "ask", "arguments": {}});
    let call = client.ask("tools/call", &params);
    let mut feed = Feed::new(client.post(&call).await);
    let asked = feed.message().await.unwrap();
    drop(feed);
    let id = asked.message()["id"].clone();
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    client.post(&answer.to_string()).await;
    let mut feed = client.listen(asked.id.as_deref()).await;
    let answer = feed.message().await.unwrap().message();
    assert_eq!((&answer["id"], feed.next().await), (&json!(2), None));
    let heard = std::fs::read_to_string(heard).unwrap();
    assert!(!heard.contains("notifications/cancelled"), "{heard}");
}

#[tokio::test]
async fn an_event_of_another_session_is_refused_and_so_is_one_that_is_not_there() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let one = Client::open(&gateway.http_url("a")).await;
    let two = Client::open(&gateway.http_url("a")).await;
    let id = one.listen(None).await.next().await.unwrap().id.unwrap();
    for wrong in [id.as_str(), "", "1-1", "x"] {
        let refused = two.get(Some(wrong)).await;
        assert_eq!(refused.status(), 400, "{wrong}");
        let error = body(refused).await["error"].clone();
        assert!(
            error["message"].as_str().unwrap().contains("list anew"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_session_is_of_its_server_and_its_token_and_ends_when_that_goes() {
    let hosts = |token: &str| {
        json!({"hosts": [
            {"name": "one", "token": token, "servers": ["*"]},
            {"name": "two", "token": "token-two", "servers": ["a"]},
        ]})
    };
    let servers = json!({ "a": faultd(""), "b": faultd("") });
    let place = Place::with(hosts("token-one"));
    let mut gateway = place.run(&servers).await;
    let mut client = Client::new(&gateway.http_url("a"));
    let refused = client.post("{}").await;
    assert_eq!(refused.status(), 401);
    assert!(header(&refused, "www-authenticate").starts_with("Bearer"));
    client.token = Some("token-one".into());
    client.initialize(json!({})).await;
    let mut feed = client.listen(None).await;
    feed.next().await.unwrap();

    let list = client.ask("tools/list", &json!({}));
    let mut thief = Client::new(&gateway.http_url("a"));
    thief.session.clone_from(&client.session);
    thief.token = Some("token-two".into());
    assert_eq!(thief.post(&list).await.status(), 404);
    assert_eq!(thief.get(None).await.status(), 404);
    assert_eq!(thief.delete().await, 404);
    let mut elsewhere = Client::new(&gateway.http_url("b"));
    elsewhere.session.clone_from(&client.session);
    elsewhere.token = Some("token-one".into());
    assert_eq!(elsewhere.post(&list).await.status(), 404);
    elsewhere.token = Some("token-two".into());
    assert_eq!(elsewhere.post(&list).await.status(), 403);

    gateway.reload_with(hosts("token-new"), &servers).await;
    // Its server may have come up meanwhile.
    while feed.next().await.is_some() {}
    assert_eq!(client.post(&list).await.status(), 401);
    client.token = Some("token-new".into());
    assert_eq!(client.post(&list).await.status(), 404);
    until_sessions(&gateway, 0.0).await;
}

#[tokio::test]
async fn a_request_that_does_not_fit_the_protocol_is_refused_with_its_status_and_a_json_rpc_error()
{
    let gateway = running(json!({ "a": faultd("") })).await;
    let url = gateway.http_url("a");
    let mut client = Client::open(&url).await;
    let list = client.ask("tools/list", &json!({}));
    let post = |kind, accept| {
        let request = client.request(Method::POST).header("accept", accept);
        request.header("content-type", kind)
    };
    let json = "application/json";
    let with = |name, value| {
        let request = post(json, ALL).body(list.clone());
        request.header(name, value)
    };
    let cases = [
        (415, post("text/plain", ALL).body(list.clone())),
        (406, post(json, json).body(list.clone())),
        (406, client.request(Method::GET).header("accept", json)),
        (405, client.request(Method::PUT).body(list.clone())),
        (400, post(json, ALL).body("{")),
        (400, post(json, ALL).body(format!("[{list}]"))),
        (403, with("origin", "https://evil.example")),
        (403, with("host", "evil.example")),
    ];
    for (status, request) in cases {
        let refused = sent(request).await;
        assert_eq!(refused.status(), status);
        let error = body(refused).await["error"].clone();
        assert!(
            error["code"].is_i64() && error["message"].is_string(),
            "{error}"
        );
    }
    let mut other = Client::new(&url);
    assert_eq!(other.post(&list).await.status(), 400);
    assert_eq!(other.delete().await, 400);
    other.session = Some("no-such-session".into());
    assert_eq!(other.post(&list).await.status(), 404);
    let nowhere = Client::new(&gateway.http_url("nowhere"));
    let message = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    assert_eq!(nowhere.post(message).await.status(), 404);
    client.revision = "1999-01-01";
    let refused = client.post(&list).await;
    assert_eq!(refused.status(), 400);
    let error = body(refused).await;
    assert!(error.to_string().contains("2025-11-25"), "{error}");
}

#[tokio::test]
async fn g16_a_body_that_is_too_long_is_refused_and_the_session_goes_on() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let long = client.ask("tools/call", &json!({"text": "x".repeat(17 << 20)}));
    let sent = client.request(Method::POST);
    let sent = sent
        .header("content-type", "application/json")
        .header("accept", ALL)
        .body(long)
        .send()
        .await;
    // The refusal may overtake the body, and then the connection ends before it is read.
    if let Ok(refused) = sent {
        assert_eq!(refused.status(), 413);
        assert_eq!(body(refused).await["error"]["code"], -32600);
    }
    let answer = client.call("echo", json!({"n": 1})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"n": 1}));
}

#[tokio::test]
async fn a4_a_server_that_is_away_is_an_error_in_an_answer_and_the_session_outlives_it() {
    let slow = json!({"reconnectIntervalMs": 600_000});
    let gateway = running(json!({ "a": with(faultd(""), slow) })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let mut feed = client.listen(None).await;
    let lost = client.call("crash", json!({})).await;
    assert_eq!(lost["error"]["code"], -32051, "{lost}");
    let unsent = client.call("echo", json!({})).await;
    assert_eq!(unsent["error"]["code"], -32050, "{unsent}");
    assert_eq!(unsent["error"]["data"]["server"], "a");
    let list = client.ask("tools/list", &json!({}));
    let list = body(client.post(&list).await).await;
    assert!(list["result"]["tools"].is_array(), "{list}");

    let mut events = gateway.events().await;
    gateway.operate("a", "restart").await;
    events.until_times("a", "adopted", 2).await;
    let answer = client.call("echo", json!({"n": 1})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"n": 1}));
    client.call("notify", json!({})).await;
    assert_eq!(feed.message().await.unwrap().message()["method"], changed());
}

#[tokio::test]
async fn a2_two_calls_of_one_id_get_each_its_own_answer() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let client = Client::open(&gateway.http_url("a")).await;
    let call = |tool: &str, arguments: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}})
        .to_string()
    };
    let slow = call("sleep", json!({"ms": 300}));
    let quick = call("echo", json!({"n": 1}));
    let (slow, quick) = tokio::join!(client.post(&slow), client.post(&quick));
    let (slow, quick) = (body(slow).await, body(quick).await);
    assert_eq!((&slow["id"], &quick["id"]), (&json!(1), &json!(1)));
    assert_eq!(slow["result"]["content"][0]["text"], "slept", "{slow}");
    assert_eq!(quick["result"]["structuredContent"], json!({"n": 1}));
}

#[tokio::test]
async fn a7_a_cancelled_call_ends_its_post_without_an_answer_and_a_strange_cancel_is_no_error() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let sleep = json!({"name": "sleep", "arguments": {"ms": 600_000}});
    let call = client.ask("tools/call", &sleep);
    let cancel = |id: u64| {
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            .to_string()
    };
    let cancelling = async {
        gateway
            .until_server("a", |server| server["inFlight"] == 1)
            .await;
        for id in [99, 2, 2] {
            assert_eq!(client.post(&cancel(id)).await.status(), 202);
        }
    };
    let (answer, ()) = tokio::join!(client.post(&call), cancelling);
    assert_eq!(answer.status(), 200);
    assert_eq!(Feed::new(answer).next().await, None);
}

#[tokio::test]
async fn a2_a_batch_is_answered_as_one_on_a_2025_03_26_session() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let client = speaking(&gateway, "2025-03-26").await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": "x", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": "y", "method": "tools/list"},
    ]);
    let answers = body(client.post(&batch.to_string()).await).await;
    let mut ids: Vec<&str> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["x", "y"]);
    let silent = r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#;
    assert_eq!(client.post(silent).await.status(), 202);
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends_and_one_with_a_stream_does_not() {
    let place = Place::with(json!({"sessionIdleMs": 300}));
    let gateway = place.run(&json!({ "a": faultd("") })).await;
    let url = gateway.http_url("a");
    let mut listening = Client::open(&url).await;
    let feed = listening.listen(None).await;
    for _ in 0..20 {
        Client::open(&url).await;
    }
    until_sessions(&gateway, 1.0).await;
    let answer = listening.call("echo", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
    drop(feed);
    until_sessions(&gateway, 0.0).await;
}

#[tokio::test]
async fn the_gateways_stop_ends_streams_and_answers_the_call_that_waits() {
    let mut gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let mut feed = client.listen(None).await;
    feed.next().await.unwrap();
    let sleep = json!({"name": "sleep", "arguments": {"ms": 600_000}});
    let call = client.ask("tools/call", &sleep);
    let url = gateway.admin();
    let stopping = async {
        gateway
            .until_server("a", |server| server["inFlight"] == 1)
            .await;
        gateway.terminate().await
    };
    let (answer, status) = tokio::join!(client.post(&call), stopping);
    assert!(status.success(), "{status} {url}");
    let answer = body(answer).await;
    assert_eq!(answer["error"]["code"], -32051, "{answer}");
    while feed.next().await.is_some() {}
}

#[tokio::test]
async fn a_page_from_an_allowed_origin_may_ask_and_read_its_session() {
    let place = Place::with(json!({"allowedOrigins": ["https://app.example"]}));
    let gateway = place.run(&json!({ "a": faultd("") })).await;
    let client = Client::new(&gateway.http_url("a"));
    let preflight = client
        .request(Method::OPTIONS)
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST");
    let allowed = sent(preflight).await;
    assert_eq!(allowed.status(), 204);
    assert_eq!(
        header(&allowed, "access-control-allow-origin"),
        "https://app.example"
    );
    assert!(header(&allowed, "access-control-allow-headers").contains("mcp-session-id"));
    let message = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let post = client
        .request(Method::POST)
        .header("origin", "https://app.example")
        .header("content-type", "application/json")
        .header("accept", ALL)
        .body(message);
    let opened = sent(post).await;
    assert_eq!(opened.status(), 200);
    assert!(header(&opened, "access-control-expose-headers").contains("mcp-session-id"));
    let foreign = client
        .request(Method::OPTIONS)
        .header("origin", "https://evil.example");
    let refused = sent(foreign).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(header(&refused, "access-control-allow-origin"), "");
}

#[tokio::test]
async fn a_client_that_vanishes_in_mid_answer_ends_nothing_but_its_connection() {
    let gateway = running(json!({ "a": faultd("") })).await;
    let mut client = Client::open(&gateway.http_url("a")).await;
    let session = client.session.clone().unwrap();
    let big = json!({"name": "big", "arguments": {"bytes": 8 << 20}});
    let call = client.ask("tools/call", &big);
    let mut stream = tokio::net::TcpStream::connect(gateway.listen())
        .await
        .unwrap();
    let head = format!(
        "POST /mcp/a HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n\
         Mcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n{call}",
        call.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.readable().await.unwrap();
    // What is not read when the socket goes resets the connection.
    drop(stream);
    let answer = client.call("echo", json!({"n": 1})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"n": 1}));
}
