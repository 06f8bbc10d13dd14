//! The operator's pause: it belongs to the server's id, and what comes meanwhile is kept (G3).

use std::fs;

use serde_json::{Value, json};

use crate::bridge::Bridge;
use crate::gateway::{Gateway, Place, faultd};
use crate::host::Host;

/// A host that serves and has taken the bridge's channels.
async fn host(gateway: &Gateway) -> Host {
    let mut host = gateway.connect("chat").await;
    let update = host.ask_to_serve().await;
    host.answer(&update).await.result();
    register(&mut host).await;
    host
}

/// Takes the channels that a process registers.
async fn register(host: &mut Host) {
    let register = host.notification("channels/register").await;
    host.reply(&register, json!({})).await;
}

/// Reads and answers so many messages: their numbers, and whether one is marked.
async fn read(host: &mut Host, count: usize) -> (Vec<u64>, bool) {
    let mut numbers = Vec::new();
    let mut marked = false;
    while numbers.len() < count {
        let message = host.notification("channels/incoming").await;
        let id = message.param("/messages/0/messageId");
        numbers.push(id.as_str().unwrap()[2..].parse().unwrap());
        marked |= message.param("/_meta/tidegate~1redelivered") == true;
        host.reply(
            &message,
            json!({"results": [{"messageId": id, "accepted": true}]}),
        )
        .await;
    }
    (numbers, marked)
}

/// Waits until the process of this number serves and so much waits; it is still paused then.
async fn paused(gateway: &Gateway, host: &mut Host, epoch: u64, held: u64, kept: u64) {
    let waiting = |server: &Value, queue: &str| server[queue]["requests"].as_u64().unwrap();
    let server = gateway
        .until_server("chat", |server| {
            let waits = (waiting(server, "held"), waiting(server, "kept"));
            server["epoch"] == epoch && server["channels"] == 2 && waits == (held, kept)
        })
        .await;
    assert_eq!(server["paused"], true, "{server:#}");
    assert_eq!(server["holds"], json!(["pause"]), "{server:#}");
    // An answer that comes back shows that what was sent before it was read.
    host.call("echo", json!({})).await.result();
    assert!(!host.was_sent("channels/incoming"), "it is paused");
}

#[tokio::test]
async fn g3_a_pause_outlives_reconnects_reloads_and_restarts_and_loses_nothing() {
    let place = Place::new();
    let go = place.file("go");
    let begin = "await initialize; welcome register; await policy; grant; await got 100";
    let lives = [
        format!("{begin}; say 2; await file {}; say 3; die", go.display()),
        format!("{begin}; say 3"),
    ];
    let bridge = Bridge::new(&place, "chat", &lives);
    let servers = |more: Value| json!({ "chat": bridge.entry(more) });
    let mut gateway = place.run(&servers(json!({}))).await;
    let mut first = host(&gateway).await;
    assert_eq!(read(&mut first, 2).await, (vec![1, 2], false));

    assert_eq!(
        gateway.command(&["pause", "chat"]).await,
        "chat: open, paused\n"
    );
    fs::write(go, "").unwrap();
    register(&mut first).await;
    paused(&gateway, &mut first, 2, 3, 3).await;
    // Another entry, which concerns it not, and then another one of its own, which has it launched again.
    let mut changed = servers(json!({}));
    changed["other"] = faultd("");
    gateway.reload(&changed).await;
    paused(&gateway, &mut first, 2, 3, 3).await;
    gateway
        .reload(&servers(json!({"env": {"CHANGED": "1"}})))
        .await;
    register(&mut first).await;
    paused(&gateway, &mut first, 3, 3, 6).await;
    gateway.operate("chat", "restart").await;
    register(&mut first).await;
    paused(&gateway, &mut first, 4, 3, 9).await;

    gateway.replace(&servers(json!({}))).await;
    let mut second = host(&gateway).await;
    let epoch = gateway.server("chat").await["epoch"].as_u64().unwrap();
    paused(&gateway, &mut second, epoch, 3, 12).await;
    assert_eq!(gateway.command(&["resume", "chat"]).await, "chat: open\n");
    assert_eq!(read(&mut second, 15).await, ((3..=17).collect(), false));
    let quiet = gateway
        .until_server("chat", |server| server["inFlight"] == 0)
        .await;
    assert_eq!(
        (&quiet["paused"], &quiet["kept"]["requests"]),
        (&json!(false), &json!(0))
    );

    assert_eq!(gateway.operate("chat", "pause").await["paused"], true);
    assert_eq!(gateway.operate("chat", "resume").await["paused"], false);
    second.call("echo", json!({})).await.result();
    assert!(!second.was_sent("channels/incoming"), "each once");
}
