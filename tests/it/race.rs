//! The registration race: what a bridge registers right after `initialize` waits for its grant (G2, G3).

use std::fs;

use serde_json::{Value, json};

use crate::bridge::Bridge;
use crate::gateway::{Gateway, Place, faultd, with};

/// What the bridge's registration gets from the gateway.
fn itemised() -> Value {
    let item = |room: &str| json!({"id": room, "accepted": true});
    json!({
        "registered": ["chat:room-1", "chat:room-2"],
        "results": [item("chat:room-1"), item("chat:room-2")],
    })
}

/// The exchange of the bridge runs, and its registration waits, unanswered.
async fn still_waits(gateway: &Gateway, bridge: &Bridge, after: &str) {
    let server = gateway.server("chat").await;
    let holds = server["holds"].as_array().unwrap();
    assert!(
        holds.contains(&json!("policy")),
        "after {after}: {server:#}"
    );
    let seen = (
        &server["epoch"],
        &server["held"]["requests"],
        &server["channels"],
    );
    assert_eq!(
        seen,
        (&json!(1), &json!(1), &json!(0)),
        "after {after}: {server:#}"
    );
    assert_eq!(bridge.got(1, "100"), [""; 0], "after {after}");
}

#[tokio::test]
async fn g2_g3_what_is_registered_with_initialize_meets_its_grant_whatever_happens() {
    let place = Place::new();
    let go = place.file("go");
    let life = "await initialize; welcome register; await policy; sleep 2000; await file";
    let life = format!("{life} {}; grant", go.display());
    let bridge = Bridge::new(&place, "chat", &[life]);
    let quick = json!({"reconnectIntervalMs": 50});
    let servers = json!({
        "chat": bridge.entry(json!({"policyTimeoutMs": 120_000})),
        "other": with(faultd(""), quick),
    });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    events.until_times("chat", "adopted", 1).await;
    events.until_times("other", "adopted", 1).await;
    gateway
        .until_server("chat", |server| server["held"]["requests"] == 1)
        .await;
    still_waits(&gateway, &bridge, "its adoption").await;

    let mut client = gateway.client("other").await;
    client.call("echo", json!({})).await;
    client.forget();
    client.call("notify", json!({})).await;
    client
        .notification("notifications/tools/list_changed")
        .await;
    still_waits(&gateway, &bridge, "the other's list_changed").await;
    client.call("crash", json!({})).await.error();
    events.until_times("other", "adopted", 2).await;
    client.call("echo", json!({})).await.result();
    still_waits(&gateway, &bridge, "the other's reconnect").await;
    for server in ["other", "chat"] {
        assert_eq!(gateway.operate(server, "pause").await["paused"], true);
        still_waits(&gateway, &bridge, "a pause").await;
        assert_eq!(gateway.operate(server, "resume").await["paused"], false);
        still_waits(&gateway, &bridge, "a resume").await;
    }
    let mut host = gateway.connect("chat").await;
    let update = host.ask_to_serve().await;
    events.until_times("chat", "host-attached", 1).await;
    still_waits(&gateway, &bridge, "a host's coming").await;

    fs::write(go, "").unwrap();
    assert_eq!(bridge.answer(1, "100").await, itemised());
    let settled = events.until("chat", "settled").await;
    assert_eq!(settled.field("outcome"), "granted", "{settled:?}");
    assert!(settled.seconds("tookSeconds").as_secs() >= 2, "{settled:?}");
    host.answer(&update).await.result();
    let replayed = host.notification("channels/register").await;
    let channels = replayed.param("/channels");
    assert_eq!(channels.as_array().unwrap().len(), 2, "{channels}");
    // What the bridge is asked now it is asked after all that it was answered before.
    host.call("echo", json!({})).await.result();
    assert_eq!(bridge.got(1, "100"), [itemised()], "once");
    assert_eq!(events.seen("chat", "ended").len(), 0);
}
