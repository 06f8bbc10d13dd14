//! What is late, and what an operator does by mistake, costs nothing that was kept (G9, G11, P5).

use std::fs;

use serde_json::{Value, json};

use crate::bridge::Bridge;
use crate::gateway::{Gateway, Place};
use crate::host::Host;

/// The messages of the first process.
fn five_kept(server: &Value) -> bool {
    server["kept"]["requests"] == 5
}

/// They are still kept, and the host was told nothing.
async fn all_kept(gateway: &Gateway, host: &mut Host) {
    gateway.until_server("chat", five_kept).await;
    host.call("echo", json!({})).await.result();
    assert!(!host.was_sent("channels/incoming"), "they wait");
}

/// Waits until the bridge may say something in its channels, or may not.
async fn granted(gateway: &Gateway, wanted: bool) {
    let incoming = json!("channels.incoming");
    let is_so = |server: &Value| server["grant"].as_array().unwrap().contains(&incoming) == wanted;
    gateway.until_server("chat", is_so).await;
}

#[tokio::test]
async fn g9_g11_p5_a_late_receipt_a_late_channel_and_a_mistaken_reload_lose_nothing_kept() {
    let place = Place::new();
    let [late, next, speak] = ["late", "next", "speak"].map(|name| place.file(name));
    let lives = [
        "await initialize; welcome register; await policy; grant; await got 100; say 5; die".into(),
        format!(
            "await initialize; welcome; await policy; await file {}; grant; await file {}; die",
            late.display(),
            next.display(),
        ),
        format!(
            "await initialize; welcome; await policy; grant; sleep 5000; register; await file {}; say 2",
            speak.display(),
        ),
    ];
    let bridge = Bridge::new(&place, "chat", &lives);
    let entry = |more: Value| json!({ "chat": bridge.entry(more) });
    let usual = entry(json!({"policyTimeoutMs": 1000}));
    let mistaken =
        entry(json!({"policyTimeoutMs": 1000, "disabledCapabilities": ["channels.incoming"]}));
    let gateway = place.run(&usual).await;
    let mut events = gateway.events().await;
    events.until_times("chat", "adopted", 2).await;

    let settled = events.until("chat", "settled").await;
    assert_eq!(settled.field("outcome"), "timeout", "{settled:?}");
    fs::write(late, "").unwrap();
    let dropped = events.until("chat", "dropped").await;
    assert_eq!(dropped.field("reason"), "late_answer", "{dropped:?}");
    let server = gateway.until_server("chat", five_kept).await;
    assert_eq!(
        (&server["epoch"], &server["grant"]),
        (&json!(2), &json!([])),
        "{server:#}"
    );

    fs::write(next, "").unwrap();
    events.until_times("chat", "adopted", 3).await;
    granted(&gateway, true).await;
    let mut host = gateway.connect("chat").await;
    let update = host.ask_to_serve().await;
    host.answer(&update).await.result();
    all_kept(&gateway, &mut host).await;
    gateway.reload(&mistaken).await;
    granted(&gateway, false).await;
    let register = host.notification("channels/register").await;
    host.reply(&register, json!({})).await;
    bridge.answer(3, "100").await;
    all_kept(&gateway, &mut host).await;
    gateway.reload(&usual).await;
    granted(&gateway, true).await;
    fs::write(speak, "").unwrap();
    for number in 1..=7 {
        let message = host.notification("channels/incoming").await;
        assert_eq!(
            message.param("/messages/0/messageId"),
            format!("m-{number}")
        );
        host.reply(&message, json!({"results": [{"accepted": true}]}))
            .await;
    }
    let quiet = |server: &Value| server["inFlight"] == 0 && server["kept"]["requests"] == 0;
    gateway.until_server("chat", quiet).await;
}
