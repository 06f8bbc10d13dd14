//! A configuration that is written anew: what it adds, what it takes away, and what is wrong in it (R9, R13).

use std::fs;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, binary, ended, faultd, with};
use crate::processes::{launches, lives};
use crate::refused::unusable;

/// Writes the configuration anew and has it loaded; returns once it is applied.
async fn reload(gateway: &Gateway, servers: &Value) {
    let mut reload = binary();
    reload.args(["reload", "--config"]);
    reload.arg(gateway.configure(servers));
    let reloaded = ended(reload).await;
    assert!(reloaded.status.success(), "{reloaded:?}");
}

#[tokio::test]
async fn r9_a_reload_with_an_unusable_timing_leaves_the_server_as_it_runs() {
    let place = Place::new();
    let log = place.file("launched");
    let entry = || faultd(&format!("--log {}", log.display()));
    let gateway = place.run(&json!({ "s": entry() })).await;
    gateway.events().await.until("s", "adopted").await;
    let mut host = gateway.client("s").await;
    let launched = fs::read_to_string(&log).unwrap();
    for (_, field) in unusable() {
        reload(&gateway, &json!({ "s": with(entry(), field.clone()) })).await;
        let answer = host.call("echo", json!({})).await;
        assert!(answer.error.is_none(), "{field}");
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), launched);
    let serves = "tidegate_server_state{server=\"s\",state=\"open\"}";
    assert_eq!(gateway.metric(serves).await, 1.0);
}

/// BR-058, BR-136
#[tokio::test]
async fn r13_a_reload_ends_what_it_removes_and_starts_what_it_adds() {
    let place = Place::new();
    let log = place.file("launched");
    let flags = format!("--ignore-sigterm --log {}", log.display());
    let gateway = place.run(&json!({ "old": faultd(&flags) })).await;
    let mut events = gateway.events().await;
    events.until("old", "adopted").await;
    let mut host = gateway.client("old").await;
    let pending = host
        .ask(
            "tools/call",
            json!({"name": "sleep", "arguments": {"ms": 600_000}}),
        )
        .await;
    // Answered after it, so that the call above was sent.
    host.call("echo", json!({})).await.result();

    reload(&gateway, &json!({ "new": faultd("") })).await;
    assert_eq!(host.answer(&pending).await.error()["code"], -32051);
    let (_, pid) = launches(&log)[0];
    assert!(!lives(pid), "a removed server's process runs on");
    assert_eq!(gateway.refusal("old").await, 404);
    events.until("new", "adopted").await;
    let mut host = gateway.client("new").await;
    assert!(host.call("echo", json!({})).await.error.is_none());
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(!metrics.contains("server=\"old\""));
}

/// BR-059, BR-139
#[tokio::test]
async fn r13_a_server_that_is_removed_in_its_handshake_stays_removed() {
    let place = Place::new();
    let log = place.file("launched");
    let flags = format!("--never-handshake --log {}", log.display());
    let gateway = place
        .run(&json!({ "slow": faultd(&flags), "good": faultd("") }))
        .await;
    let mut events = gateway.events().await;
    events.until("slow", "dialing").await;
    events.until("good", "adopted").await;
    reload(&gateway, &json!({ "good": faultd("") })).await;
    let (_, servers) = gateway.get("/api/v1/servers").await;
    assert!(!servers.contains("slow"), "{servers}");
    for (_, pid) in launches(&log) {
        assert!(!lives(pid), "{pid} outlives the removal of its server");
    }
    let mut host = gateway.client("good").await;
    assert!(host.call("echo", json!({})).await.error.is_none());
}
