//! The bounds of what waits, at their real size (G4, G6).

use serde_json::{Value, json};

use crate::bridge::Bridge;
use crate::events::Events;
use crate::gateway::{Gateway, Place};

/// The bound of kept and of held requests.
const BOUND: u64 = 10_000;

/// Waits until so many requests are held and kept in this epoch.
async fn waiting(gateway: &Gateway, epoch: u64, held: u64, kept: u64) -> Value {
    let waits = |server: &Value, queue: &str| server[queue]["requests"].as_u64().unwrap();
    let is_so = |server: &Value| {
        server["epoch"] == epoch && (waits(server, "held"), waits(server, "kept")) == (held, kept)
    };
    gateway.until_server("chat", is_so).await
}

async fn kept_full(gateway: &Gateway) -> f64 {
    let series = r#"tidegate_server_messages_dropped_total{reason="kept_full",server="chat"}"#;
    gateway.metric(series).await
}

/// Reads on until the bridge's process is gone.
async fn death(events: &mut Events, times: usize) {
    events.until_times("chat", "ended", times).await;
}

#[tokio::test]
async fn g4_g6_a_full_backlog_refuses_no_registration_and_what_is_past_a_bound_is_named() {
    let place = Place::new();
    let go: Vec<_> = (1..=2).map(|n| place.file(&format!("go-{n}"))).collect();
    let begin = "await initialize; welcome register; await policy; grant; await got 100";
    let lives = [
        format!(
            "{begin}; burst {BOUND}; await file {}; die",
            go[0].display()
        ),
        format!("{begin}; say 1; await file {}; die", go[1].display()),
        format!("{begin}; burst {}", BOUND + 1),
    ];
    let bridge = Bridge::new(&place, "chat", &lives);
    let gateway = place
        .run(&json!({ "chat": bridge.entry(json!({"acceptAfterMs": 0})) }))
        .await;
    let mut events = gateway.events().await;

    waiting(&gateway, 1, BOUND, 0).await;
    std::fs::write(&go[0], "").unwrap();
    death(&mut events, 1).await;
    let registered = json!(["chat:room-1", "chat:room-2"]);
    assert_eq!(bridge.answer(2, "100").await["registered"], registered);
    let server = waiting(&gateway, 2, 1, BOUND).await;
    assert_eq!(server["kept"]["requestsLimit"], BOUND, "{server:#}");
    assert_eq!(kept_full(&gateway).await, 0.0);

    std::fs::write(&go[1], "").unwrap();
    let dropped = events.until("chat", "dropped").await;
    let what = ["reason", "method", "count"].map(|name| dropped.field(name).clone());
    assert_eq!(
        what,
        [json!("kept_full"), json!("channels/incoming"), json!(1)]
    );
    assert_eq!(kept_full(&gateway).await, 1.0);
    gateway
        .logged("dropped 1 × channels/incoming: kept_full")
        .await;

    // The third process fills what is held, and its last request is one too many.
    let last = 2 * BOUND + 2;
    let refused = bridge.answer(3, &format!("\"in-{last}\"")).await;
    assert_eq!(refused["code"], -32000, "{refused}");
    assert_eq!(bridge.answer(3, "100").await["registered"], registered);
    waiting(&gateway, 3, BOUND, BOUND).await;

    let mut host = gateway.connect("chat").await;
    host.ask_to_serve().await;
    let register = host.notification("channels/register").await;
    host.reply(&register, json!({})).await;
    // The earliest stay, and nothing else is missing.
    let left = (1..=BOUND).chain(BOUND + 2..last);
    for number in left {
        let message = host.notification("channels/incoming").await;
        assert_eq!(
            message.param("/messages/0/messageId"),
            format!("m-{number}")
        );
        host.reply(&message, json!({"results": [{"accepted": true}]}))
            .await;
    }
    waiting(&gateway, 3, 0, 0).await;
    assert_eq!(kept_full(&gateway).await, 1.0);
}
