//! The operator faces over a real socket.

use std::sync::atomic::Ordering;

use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tidegate::admin::STREAMS_MAX;
use tidegate::ids::Epoch;

use crate::desk::{Desk, doors, with_tokens};
use crate::samples::{clear, down, every_decision};

async fn fault(request: RequestBuilder) -> (StatusCode, String) {
    let answer = request.send().await.unwrap();
    let status = answer.status();
    let body: Value = answer.json().await.unwrap();
    assert!(body["help"].is_string(), "{body}");
    (status, body["error"].as_str().unwrap().into())
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

/// Reads the data of the next events of a stream.
struct Stream {
    answer: reqwest::Response,
    rest: String,
}

impl Stream {
    async fn open(request: RequestBuilder) -> Self {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let rest = String::new();
        Self { answer, rest }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((block, rest)) = self.rest.split_once("\n\n") {
                let data = block.lines().find_map(|line| line.strip_prefix("data: "));
                let event = serde_json::from_str(data.unwrap()).unwrap();
                self.rest = rest.into();
                return event;
            }
            let chunk = self.answer.chunk().await.unwrap().unwrap();
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn health_is_one_word_for_anybody() {
    let desk = Desk::open(with_tokens()).await;
    for path in ["/healthz", "/readyz", "/startupz"] {
        let answer = desk.get(path).header("host", "probe.example").send().await;
        let word = answer.unwrap().text().await.unwrap();
        assert_eq!(word.split_whitespace().count(), 1, "{path}: {word}");
    }
    desk.observer.reloaded(true);
    desk.observer.reloaded(false);
    let stale = desk.get("/readyz").send().await.unwrap();
    assert_eq!(stale.status(), StatusCode::OK);
    assert_eq!(stale.text().await.unwrap(), "stale\n");
}

#[tokio::test]
async fn what_is_read_needs_the_token_and_the_page_alone_does_not() {
    let desk = Desk::open(with_tokens()).await;
    for path in [
        "/metrics",
        "/api/v1/servers",
        "/api/v1/servers/x",
        "/api/v1/config",
        "/api/v1/events",
    ] {
        assert_eq!(
            fault(desk.get(path)).await.0,
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
        let wrong = desk.get(path).bearer_auth("rea");
        assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(
        status(desk.get("/metrics").bearer_auth("read")).await,
        StatusCode::OK
    );
    let page = desk.get("/").send().await.unwrap();
    assert!(
        page.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    let page = page.text().await.unwrap();
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "it has no external assets"
    );
}

#[tokio::test]
async fn metrics_are_served_as_prometheus_reads_them() {
    let desk = Desk::open(doors()).await;
    desk.chat().decided(None, &down());
    let answer = desk.get("/metrics").send().await.unwrap();
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = answer.text().await.unwrap();
    assert!(text.contains("tidegate_server_episodes_total{edge=\"down\",server=\"chat\"} 1\n"));
}

#[tokio::test]
async fn a_rebound_name_and_a_foreign_page_reach_nothing() {
    let desk = Desk::open(doors()).await;
    for path in ["/", "/metrics", "/api/v1/servers", "/nowhere"] {
        let rebound = desk.get(path).header("host", "evil.example");
        let (status, text) = fault(rebound).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        assert_eq!(text, "this name is not ours");
        let foreign = desk.get(path).header("origin", "https://evil.example");
        assert_eq!(fault(foreign).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    let own = format!("http://{}", desk.address);
    assert_eq!(
        status(desk.get("/metrics").header("origin", own)).await,
        StatusCode::OK
    );
}

#[tokio::test]
async fn control_takes_posts_that_no_form_can_send() {
    let desk = Desk::open(doors()).await;
    let path = "/api/v1/reload";
    assert_eq!(
        fault(desk.get(path)).await.0,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let form = desk
        .post(path)
        .header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(fault(form).await.0, StatusCode::FORBIDDEN);
    let sent = desk.post(path).header("x-tidegate-control", "1");
    assert_eq!(status(sent).await, StatusCode::OK);
}

#[tokio::test]
async fn control_needs_the_control_token_where_one_is_set() {
    let desk = Desk::open(with_tokens()).await;
    let path = "/api/v1/reload";
    for request in [
        desk.post(path).header("x-tidegate-control", "1"),
        desk.post(path).bearer_auth("read"),
    ] {
        assert_eq!(fault(request).await.0, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(
        status(desk.post(path).bearer_auth("control")).await,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_reload_that_fails_says_which_problems() {
    let desk = Desk::open(doors()).await;
    desk.usable.store(false, Ordering::SeqCst);
    let request = desk
        .post("/api/v1/reload")
        .header("x-tidegate-control", "1");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(
        body["problems"],
        json!(["tidegate.yaml:3:5: listen: no address"])
    );
}

#[tokio::test]
async fn alertmanagers_webhook_needs_the_control_token_and_says_what_is_wrong_with_a_body() {
    let path = "/api/v1/webhooks/alertmanager";
    let open = Desk::open(doors()).await;
    assert_eq!(fault(open.post(path)).await.0, StatusCode::FORBIDDEN);
    let desk = Desk::open(with_tokens()).await;
    let reader = desk.post(path).bearer_auth("read");
    assert_eq!(fault(reader).await.0, StatusCode::UNAUTHORIZED);
    let send = |body| desk.post(path).bearer_auth("control").body(body);
    let taken: Value = send("{\"version\":\"4\"}")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(taken, json!({ "alerts": 2 }));
    let unreadable = fault(send("{}")).await;
    assert_eq!(unreadable.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(unreadable.1.contains("missing field"), "{unreadable:?}");
    assert_eq!(fault(send("none")).await.0, StatusCode::NOT_FOUND);
    let long = desk
        .post(path)
        .bearer_auth("control")
        .body(vec![b' '; 1 << 21]);
    assert_eq!(status(long).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let desk = Desk::open(doors()).await;
    assert_eq!(
        fault(desk.get("/api/v1/servers/ghost")).await,
        (
            StatusCode::NOT_FOUND,
            "no server `ghost` is configured".into()
        )
    );
    let control = |path| desk.post(path).header("x-tidegate-control", "1");
    let ghost = control("/api/v1/servers/ghost/restart");
    assert_eq!(fault(ghost).await.1, "no server `ghost` is configured");
    let verb = control("/api/v1/servers/ghost/explode");
    assert_eq!(fault(verb).await.1, "no such control: explode");
    assert_eq!(fault(desk.get("/api/v2")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stream_begins_with_the_open_episodes_and_goes_on_live() {
    let desk = Desk::open(doors()).await;
    let chat = desk.chat();
    chat.decided(Some(Epoch(1)), &down());
    let mut stream = Stream::open(desk.get("/api/v1/events")).await;
    let snapshot = stream.next().await;
    assert_eq!(snapshot["kind"], "snapshot");
    assert_eq!(snapshot["episodes"][0]["server"], "broken");
    chat.decided(Some(Epoch(2)), &clear());
    let event = stream.next().await;
    assert_eq!(
        (&event["kind"], &event["epoch"]),
        (&json!("clear"), &json!(2))
    );
    let text = "MCPL server clear: connected for 300 s after 6 failed attempts (down for 900 s)";
    assert_eq!(event["text"], text);
}

#[tokio::test]
async fn a_stream_resumes_behind_the_last_event_and_filters_kinds() {
    let desk = Desk::open(doors()).await;
    let chat = desk.chat();
    chat.decided(Some(Epoch(1)), &down());
    let first = desk.observer.events().recent().last().unwrap().id.clone();
    for decision in every_decision() {
        chat.decided(Some(Epoch(2)), &decision);
    }
    let request = desk.get("/api/v1/events?kind=down,clear");
    let mut stream = Stream::open(request.header("last-event-id", first)).await;
    assert_eq!(stream.next().await["kind"], "down");
    assert_eq!(stream.next().await["kind"], "clear");
    chat.decided(Some(Epoch(3)), &down());
    assert_eq!(stream.next().await["epoch"], 3);
}

#[tokio::test]
async fn a_client_that_asks_for_json_gets_the_last_events_at_once() {
    let desk = Desk::open(doors()).await;
    for decision in every_decision() {
        desk.chat().decided(Some(Epoch(2)), &decision);
    }
    let request = desk
        .get("/api/v1/events?kind=down")
        .header("accept", "application/json");
    let body: Value = request.send().await.unwrap().json().await.unwrap();
    let events = body["events"].as_array().unwrap();
    let servers: Vec<_> = events.iter().map(|event| &event["server"]).collect();
    assert_eq!(servers, ["broken", "chat"]);
    let reason = &events[1]["fields"]["reason"];
    assert_eq!(reason, "connected, then closed after 0 s");
}

#[tokio::test]
async fn streams_are_bounded_and_one_that_closes_makes_room() {
    let desk = Desk::open(doors()).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(Stream::open(desk.get("/api/v1/events")).await);
    }
    let refused = status(desk.get("/api/v1/events")).await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    drop(open.pop());
    // The server sees the close when it next looks at that socket; an event makes it look.
    while status(desk.get("/api/v1/events")).await != StatusCode::OK {
        desk.chat().decided(None, &down());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_configuration_is_shown_as_it_was_made() {
    let desk = Desk::open(doors()).await;
    let body: Value = desk
        .get("/api/v1/config")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(body, json!({ "name": "gw-1" }));
}

#[tokio::test]
async fn s1_every_face_says_the_same_of_a_refused_server() {
    let desk = Desk::open(doors()).await;
    let json = |path| {
        let request = desk.get(path).header("accept", "application/json");
        async { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let all = json("/api/v1/servers").await;
    let one = json("/api/v1/servers/broken").await;
    assert_eq!(all["servers"][0]["state"], one["state"]);
    assert_eq!(
        (&one["id"], &one["state"]),
        (&json!("broken"), &json!("refused"))
    );
    let reason = one["down"]["reason"].as_str().unwrap();
    assert!(reason.contains("reconnectIntervalMs is 0"), "{reason}");
    let episodes = json("/api/v1/episodes").await;
    assert_eq!(episodes["episodes"][0]["reason"], reason);
    let downs = json("/api/v1/events?kind=down").await;
    assert_eq!(downs["events"][0]["fields"]["reason"], reason);
    let metrics = desk
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for line in [
        "tidegate_server_down{server=\"broken\"} 1",
        "tidegate_server_state{server=\"broken\",state=\"refused\"} 1",
        "tidegate_server_episodes_total{edge=\"down\",server=\"broken\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}");
    }
}

#[tokio::test]
async fn control_reaches_the_engine_and_answers_with_the_server() {
    let desk = Desk::open(doors()).await;
    for (verb, paused) in [("pause", true), ("resume", false)] {
        let path = format!("/api/v1/servers/broken/{verb}");
        let request = desk.post(&path).header("x-tidegate-control", "1");
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["paused"]),
            (&json!("broken"), &json!(paused))
        );
    }
}
