//! What survives a restart of the gateway (S5).

use std::fs;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, faultd, with};

fn servers(flags: &str, interval: u64) -> Value {
    let timings = json!({
        "reconnectIntervalMs": interval, "reconnectMaxIntervalMs": interval, "lastingAfterMs": 200,
    });
    json!({ "a": with(faultd(flags), timings) })
}

#[tokio::test]
async fn s5_the_count_and_the_open_episode_survive_a_restart_of_the_gateway() {
    let gauge = |name: &str| format!("tidegate_server_{name}{{server=\"a\"}}");
    let place = Place::new();
    let well = place.file("well");
    let flags = format!("--fail-before-handshake --survive-after {}", well.display());

    let mut gateway = place.run(&servers(&flags, 50)).await;
    let mut events = gateway.events().await;
    let down = events.until("a", "down").await;
    let since = gateway.metric(&gauge("down_since_timestamp_seconds")).await;

    // With a long interval nothing is dialed, so that what was remembered can be read in peace.
    gateway.replace(&servers(&flags, 600_000)).await;
    let count = gateway.metric(&gauge("failed_attempts")).await;
    assert!(count > down.attempt() as f64, "{count}");
    assert_eq!(gateway.metric(&gauge("down")).await, 1.0);
    let resumed = gateway.metric(&gauge("down_since_timestamp_seconds")).await;
    assert!(
        (resumed - since).abs() < 1.0,
        "down since {since}, then since {resumed}"
    );

    gateway.replace(&servers(&flags, 50)).await;
    let mut events = gateway.events().await;
    let first = events.until("a", "dialing").await;
    assert_eq!(
        first.attempt() as f64,
        count,
        "R1: the first dial is attempt N"
    );
    fs::write(&well, "").unwrap();
    let clear = events.until("a", "clear").await;
    assert!(
        clear.field("failedAttempts").as_f64().unwrap() >= count,
        "{clear:?}"
    );
    assert_eq!(
        events.seen("a", "down").len(),
        0,
        "the episode was open already"
    );
    assert_eq!(events.seen("a", "clear").len(), 1);
}

#[tokio::test]
async fn s4_s5_a_server_that_was_removed_while_the_gateway_was_stopped_is_cleared_at_its_start() {
    let mut gateway = Gateway::run(&servers("--fail-before-handshake", 50)).await;
    gateway.events().await.until("a", "down").await;
    gateway.replace(&json!({ "b": faultd("") })).await;
    let mut events = gateway.events().await;
    let clear = events.until("a", "clear").await;
    assert_eq!(clear.field("cause"), "removed", "{clear:?}");
    gateway.replace(&servers("", 50)).await;
    let mut events = gateway.events().await;
    let first = events.until("a", "dialing").await;
    assert_eq!((first.attempt(), events.seen("a", "clear").len()), (0, 0));
}
