//! Down and clear where people meet them: posts into a channel of a chat bridge, and a webhook (S3, S4, S6).

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::gateway::{Gateway, PATIENCE, Place, faultd, with};

/// Down with the second failure, clear after less than a second.
fn quick(entry: Value) -> Value {
    let quick = json!({
        "reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 100,
        "downAfterAttempts": 1, "lastingAfterMs": 600,
    });
    with(entry, quick)
}

/// A bridge with the status channel `ops`.
fn bridge(place: &Place, more: &str) -> Value {
    let heard = place.file("heard");
    quick(faultd(&format!(
        "--mcpl --heard {} {more}",
        heard.display()
    )))
}

/// A server that dies soon after its handshake, until the file `well` is there.
fn dying(place: &Place) -> Value {
    let well = place.file("well");
    quick(faultd(&format!(
        "--die-after-ms 20 --survive-after {}",
        well.display()
    )))
}

fn channel() -> Value {
    json!({ "statusChannels": [{ "server": "bridge", "channelId": "ops" }] })
}

/// What the bridge was asked to post so far: channel and text.
fn posts(gateway: &Gateway) -> Vec<String> {
    let heard = fs::read_to_string(gateway.file("heard")).unwrap_or_default();
    let messages = heard
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let posts = messages.filter(|message: &Value| message["method"] == "channels/publish");
    posts
        .map(|post| {
            assert_eq!(post["params"]["channelId"], "ops");
            post["params"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

async fn until(gateway: &Gateway, what: &str, mut is_so: impl FnMut() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let waiting = async {
        while !is_so() {
            tick.tick().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{what}: {:#?}\n{}", posts(gateway), gateway.log()));
}

async fn until_posts(gateway: &Gateway, count: usize) -> Vec<String> {
    let what = format!("there are no {count} posts");
    until(gateway, &what, || posts(gateway).len() >= count).await;
    posts(gateway)
}

/// Waits until so many edges came to this outcome.
async fn until_noticed(gateway: &Gateway, outlet: &str, outcome: &str, count: f64) {
    let series = format!("tidegate_notices_total{{outcome=\"{outcome}\",outlet=\"{outlet}\"}}");
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let counted = async {
        while gateway.metric(&series).await < count {
            tick.tick().await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counted).await;
    counted.unwrap_or_else(|_| panic!("{series} is not {count}:\n{}", gateway.log()));
}

#[tokio::test]
async fn s3_s4_down_and_clear_are_posted_into_a_status_channel_once_each() {
    let place = Place::with(channel());
    let servers = json!({ "bridge": bridge(&place, ""), "chat": dying(&place) });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until_times("chat", "short-end", 6).await;
    fs::write(gateway.file("well"), "").unwrap();
    events.until("chat", "clear").await;
    let posts = until_posts(&gateway, 2).await;
    assert!(
        posts[0].starts_with("[gw-test] chat: MCP server down (attempt "),
        "{posts:#?}"
    );
    assert!(
        posts[1].starts_with("[gw-test] chat: MCP server clear: connected for "),
        "{posts:#?}"
    );
    until_noticed(&gateway, "status_channel", "delivered", 2.0).await;
    assert_eq!(posts.len(), 2);
}

#[tokio::test]
async fn s3_s4_a_bridge_that_was_down_tells_of_that_once_it_serves_and_of_nothing_that_is_over() {
    let place = Place::with(channel());
    let back = place.file("back");
    let silent = format!("--never-handshake --survive-after {}", back.display());
    let bridge = with(bridge(&place, &silent), json!({"initializeTimeoutMs": 50}));
    let servers = json!({ "bridge": bridge, "chat": dying(&place) });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until("bridge", "down").await;
    events.until_times("chat", "down", 1).await;
    fs::write(gateway.file("well"), "").unwrap();
    events.until_times("chat", "clear", 1).await;
    until_noticed(&gateway, "status_channel", "cancelled", 1.0).await;
    assert!(posts(&gateway).is_empty());
    fs::write(back, "").unwrap();
    let posts = until_posts(&gateway, 2).await;
    assert!(
        posts[0].contains("] bridge: MCP server down (attempt "),
        "{posts:#?}"
    );
    assert!(
        posts[1].contains("] bridge: MCPL server clear: "),
        "{posts:#?}"
    );
    assert_eq!(posts.len(), 2);
}

#[tokio::test]
async fn s5_a_post_that_waits_outlives_a_kill_and_one_that_was_told_a_restart() {
    let place = Place::with(channel());
    let back = place.file("back");
    let silent = format!("--never-handshake --survive-after {}", back.display());
    let bridge = with(bridge(&place, &silent), json!({"downAfterAttempts": 1000}));
    let servers = json!({ "bridge": bridge, "chat": dying(&place) });
    let mut gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until("chat", "down").await;
    events.until_times("chat", "short-end", 6).await;
    drop(events);
    fs::write(&back, "").unwrap();
    gateway.replace_killed(&servers).await;
    let posted = until_posts(&gateway, 1).await;
    assert!(posted[0].contains("] chat: MCP server down"), "{posted:#?}");
    until_noticed(&gateway, "status_channel", "delivered", 1.0).await;
    // Not killed: what was delivered within the last milliseconds may come again then (decision 0010).
    gateway.replace(&servers).await;
    let mut events = gateway.events().await;
    events.until_times("chat", "short-end", 3).await;
    fs::write(gateway.file("well"), "").unwrap();
    let posted = until_posts(&gateway, 2).await;
    assert!(
        posted[1].contains("] chat: MCP server clear"),
        "{posted:#?}"
    );
    assert_eq!(posted.len(), 2);
}

#[tokio::test]
async fn p1_a_bridge_that_is_not_granted_to_publish_is_not_asked_and_that_is_said() {
    let place = Place::with(channel());
    let denied = json!({"disabledCapabilities": ["channels.publish"]});
    let bridge = with(bridge(&place, ""), denied);
    let servers = json!({ "bridge": bridge, "chat": dying(&place) });
    let gateway = place.run(&servers).await;
    until_noticed(&gateway, "status_channel", "failed", 2.0).await;
    assert!(posts(&gateway).is_empty());
    let said = "status channel ops of bridge does not take an edge, which waits: channels.publish is not granted";
    let log = gateway.logged(said).await;
    assert_eq!(log.matches(said).count(), 1, "{log}");
}

#[tokio::test]
async fn alertmanagers_webhook_reaches_the_channels_that_take_it_once_per_episode() {
    let source = json!({ "server": "bridge", "channelId": "ops", "source": "alertmanager" });
    let place = Place::with(json!({ "statusChannels": [source] }));
    let servers = json!({ "bridge": bridge(&place, ""), "chat": dying(&place) });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until("chat", "down").await;
    let body = |status: &str| {
        let alert = json!({
            "status": status, "startsAt": "2027-01-15T12:00:00Z", "endsAt": "2027-01-15T12:00:00Z",
            "labels": {"alertname": "TidegateServerDown", "gateway": "gw-1", "server": "chat"},
            "annotations": {"summary": "MCP server chat is down (gateway gw-1)"},
        });
        json!({"version": "4", "status": status, "alerts": [alert]}).to_string()
    };
    let path = "/api/v1/webhooks/alertmanager";
    for status in ["firing", "firing", "resolved", "resolved", "firing"] {
        let answer = gateway.send(path, &body(status)).await;
        assert_eq!(answer, (200, json!({ "alerts": 1 })));
        let delivered = if status == "firing" { 1.0 } else { 2.0 };
        until_noticed(&gateway, "status_channel", "delivered", delivered).await;
    }
    let expected = [
        "firing: MCP server chat is down (gateway gw-1)",
        "resolved: MCP server chat is down (gateway gw-1)",
    ];
    assert_eq!(
        posts(&gateway),
        expected,
        "the engine's own edges are not for it"
    );
    assert_eq!(gateway.send(path, "{}").await.0, 422);
}

/// A URL's other end: answers with these statuses, the last one for ever.
pub(crate) struct Hook {
    pub(crate) url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    pub(crate) async fn open(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://user:hush-1@{}/hook-secret?token=hush-2",
            listener.local_addr().unwrap()
        );
        let bodies = Arc::<Mutex<Vec<Value>>>::default();
        let (got, mut answers) = (Arc::clone(&bodies), answers.to_vec());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = if answers.len() > 1 {
                    answers.remove(0)
                } else {
                    answers[0]
                };
                let body = take(stream, answer).await;
                got.lock().unwrap().push(body);
            }
        });
        Self { url, bodies }
    }

    pub(crate) fn contents(&self) -> Vec<String> {
        let bodies = self.bodies.lock().unwrap();
        bodies
            .iter()
            .map(|body| body["content"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Reads one request and answers it; its body.
async fn take(mut stream: TcpStream, answer: &str) -> Value {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let (_, length) = head.split_once("content-length: ").unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                let answer =
                    format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                return serde_json::from_str(body).unwrap();
            }
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.unwrap();
        assert!(count > 0, "a request broke off: {text}");
        read.extend_from_slice(&chunk[..count]);
    }
}

#[tokio::test]
async fn s3_s4_down_and_clear_are_posted_to_a_webhook_until_it_takes_them() {
    let hook = Hook::open(&["503 Busy", "204 Taken"]).await;
    let place = Place::with(json!({ "webhooks": [{ "url": hook.url }] }));
    let servers = json!({ "chat": dying(&place) });
    let gateway = place.run(&servers).await;
    until_noticed(&gateway, "webhook", "delivered", 1.0).await;
    let contents = hook.contents();
    assert_eq!(contents.len(), 2);
    assert_eq!(contents[0], contents[1]);
    assert!(
        contents[0].starts_with("[gw-test] chat: MCP server down (attempt "),
        "{contents:#?}"
    );
}

#[tokio::test]
async fn a_webhook_that_redirects_or_refuses_is_not_followed_and_its_url_is_shown_nowhere() {
    for (answer, why) in [
        (
            "307 Elsewhere\r\nLocation: http://127.0.0.1:9/leak",
            "307: redirects are not followed",
        ),
        ("404 Gone", "404"),
    ] {
        let hook = Hook::open(&[answer]).await;
        let place = Place::with(json!({ "webhooks": [{ "url": hook.url }] }));
        let servers = json!({ "chat": dying(&place) });
        let gateway = place.run(&servers).await;
        until_noticed(&gateway, "webhook", "dropped", 1.0).await;
        assert_eq!(hook.contents().len(), 1);
        let said =
            format!("webhooks[0] does not take an edge, which is dropped: HTTP status {why}");
        let mut shown = gateway.logged(&said).await;
        for path in [
            "/metrics",
            "/api/v1/config",
            "/api/v1/servers",
            "/api/v1/episodes",
        ] {
            shown += &gateway.get(path).await.1;
        }
        for secret in ["hush-1", "hush-2", "hook-secret"] {
            assert!(!shown.contains(secret), "{secret}");
        }
    }
}
