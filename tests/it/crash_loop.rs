//! Servers whose connections are short, and what it takes to be well again (R1 to R5, S2 to S4, S6).

use std::fs;

use serde_json::{Value, json};

use crate::events::Events;
use crate::gateway::{Gateway, Place, faultd, with};
use crate::processes::launches;

/// R2's waits after attempts 0, 1, 2 … in milliseconds, with an interval of 200 ms and a cap of 3.2 s.
const WAITS: [f64; 7] = [200.0, 400.0, 800.0, 1600.0, 3200.0, 3200.0, 3200.0];

/// A failed attempt of the mute server takes as long as a connection of the dying one.
fn timings() -> Value {
    json!({"reconnectIntervalMs": 200, "reconnectMaxIntervalMs": 3200, "initializeTimeoutMs": 300})
}

fn waits(events: &Events, server: &str) -> Vec<f64> {
    let waiting = events.seen(server, "waiting").into_iter();
    waiting
        .map(|event| event.seconds("waitSeconds").as_secs_f64() * 1e3)
        .collect()
}

fn assert_waits_of_r2(waits: &[f64]) {
    for (wait, base) in waits.iter().zip(WAITS) {
        assert!(
            (base * 0.749..=base * 1.251).contains(wait),
            "{waits:?} against {WAITS:?}"
        );
    }
}

fn counts(events: &Events, server: &str, kind: &str) -> Vec<u64> {
    let failures = events.seen(server, kind).into_iter();
    failures
        .map(|event| event.field("failedAttempts").as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn r4_a_server_that_dies_after_its_handshake_is_treated_as_one_that_never_connects() {
    let place = Place::new();
    let flags = format!(
        "--die-after-ms 300 --log {}",
        place.file("dies.log").display()
    );
    let servers = json!({
        "dies": with(faultd(&flags), timings()),
        "mute": with(faultd("--never-handshake"), timings()),
    });
    let gateway = place.run(&servers).await;
    let mut events = gateway.events().await;
    for (server, failure) in [("dies", "short-end"), ("mute", "attempt-failed")] {
        events.until_times(server, "waiting", WAITS.len()).await;
        assert_waits_of_r2(&waits(&events, server));
        assert_eq!(
            counts(&events, server, failure),
            [1, 2, 3, 4, 5, 6, 7],
            "{server}"
        );
        let downs = events.seen(server, "down");
        assert_eq!(downs.len(), 1, "{server}");
        assert_eq!(downs[0].attempt(), 5, "{server}");
        let text = downs[0].text();
        assert!(text.starts_with("MCP server down (attempt 5): "), "{text}");
        assert_eq!(events.seen(server, "clear").len(), 0, "{server}");
    }
    assert_launches_kept_their_waits(&gateway, &waits(&events, "dies"));
    let gauge = |name: &str| format!("tidegate_server_{name}{{server=\"dies\"}}");
    assert!(gateway.metric(&gauge("failed_attempts")).await >= 7.0);
    assert_eq!(gateway.metric(&gauge("down")).await, 1.0);
}

/// R16: the child itself saw no launch come sooner than the wait that was announced.
fn assert_launches_kept_their_waits(gateway: &Gateway, waits: &[f64]) {
    let launches = launches(&gateway.file("dies.log"));
    for (pair, wait) in launches.windows(2).zip(waits) {
        let gap = pair[1].0 - pair[0].0;
        assert!(
            gap as f64 >= wait - 1.0,
            "{gap} ms between launches, {wait} ms to wait"
        );
    }
}

#[tokio::test]
async fn r7_a_short_end_says_how_long_it_lived_and_how_it_ended() {
    let slow = json!({"reconnectIntervalMs": 600_000});
    let servers =
        json!({ "dies": with(faultd("--die-after-ms 1 --exit-code 7 --stderr-lines 2"), slow) });
    let gateway = Gateway::run(&servers).await;
    let mut events = gateway.events().await;
    let end = events.until("dies", "short-end").await;
    let reason = end.field("reason").as_str().unwrap();
    assert!(
        reason.starts_with("connected, then closed after 0 s"),
        "{reason}"
    );
    assert!(
        reason.contains("exit code 7") && reason.contains("line 2"),
        "{reason}"
    );
}

#[tokio::test]
async fn s4_a_server_is_clear_once_when_it_has_lasted_and_not_at_its_handshake() {
    let place = Place::new();
    let well = place.file("well");
    let flags = format!("--die-after-ms 20 --survive-after {}", well.display());
    let timings = json!({
        "reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 100, "lastingAfterMs": 2000,
    });
    let gateway = place
        .run(&json!({ "mends": with(faultd(&flags), timings) }))
        .await;
    let mut events = gateway.events().await;
    events.until("mends", "down").await;
    fs::write(&well, "").unwrap();
    let clear = events.until("mends", "clear").await;

    let adopted = events.seen("mends", "adopted").pop().unwrap();
    assert!(clear.at() - adopted.at() >= 2000, "{adopted:?} {clear:?}");
    assert!(
        clear.text().starts_with("MCP server clear: connected for "),
        "{clear:?}"
    );
    assert_eq!(events.seen("mends", "lasted").len(), 1);
    let gauge = |name: &str| format!("tidegate_server_{name}{{server=\"mends\"}}");
    assert_eq!(gateway.metric(&gauge("failed_attempts")).await, 0.0);
    assert_eq!(gateway.metric(&gauge("down")).await, 0.0);
    assert_eq!(gateway.metric(&gauge("connected")).await, 1.0);
    let edges =
        |edge: &str| format!("tidegate_server_episodes_total{{edge=\"{edge}\",server=\"mends\"}}");
    assert_eq!(gateway.metric(&edges("down")).await, 1.0);
    assert_eq!(gateway.metric(&edges("clear")).await, 1.0);
}
