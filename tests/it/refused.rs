//! Timings that cannot be used (R9).

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Place, binary, faultd, with};

const SECRET: &str = "hunter2-hunter2";

/// Every kind of unusable value, as a field of its own server.
fn unusable() -> Vec<(String, Value)> {
    let values = [
        json!(true),
        json!(0),
        json!(-1),
        json!(""),
        json!("0"),
        json!("-5"),
        json!("5s"),
        json!("0x10"),
        json!("NaN"),
        json!(SECRET),
        json!([1]),
        json!({"ms": 1}),
    ];
    let fields = ["reconnectIntervalMs", "reconnectMaxIntervalMs"];
    let all = fields
        .iter()
        .flat_map(|field| values.iter().map(move |value| (*field, value.clone())));
    let mut all: Vec<_> = all.collect();
    all.push(("reconnectIntervalMs", json!("Infinity")));
    all.push(("lastingAfterMs", json!(-1)));
    all.push(("downAfterAttempts", json!(0)));
    let named = all.into_iter().enumerate();
    named
        .map(|(n, (field, value))| (format!("bad-{n}"), json!({ field: value })))
        .collect()
}

fn servers(log: &Path) -> Value {
    let entry = || faultd(&format!("--log {}", log.display()));
    let mut servers = json!({ "good": faultd("") });
    for (name, field) in unusable() {
        servers[name] = with(entry(), field);
    }
    servers
}

#[tokio::test]
async fn r9_an_unusable_timing_refuses_that_server_alone_and_launches_nothing() {
    let place = Place::new();
    let log = place.file("launched");
    let gateway = place.run(&servers(&log)).await;
    let mut events = gateway.events().await;
    events.until("good", "adopted").await;

    let state = |server: &str, state: &str| {
        format!("tidegate_server_state{{server=\"{server}\",state=\"{state}\"}}")
    };
    for (name, field) in unusable() {
        assert_eq!(
            gateway.metric(&state(&name, "refused")).await,
            1.0,
            "{name}: {field}"
        );
        let down = format!("tidegate_server_down{{server=\"{name}\"}}");
        assert_eq!(gateway.metric(&down).await, 1.0, "{name}: {field}");
    }
    assert!(!log.exists(), "a refused server was launched");
    assert!(
        gateway
            .client("good")
            .await
            .call("echo", json!({}))
            .await
            .error
            .is_none()
    );

    let (_, metrics) = gateway.get("/metrics").await;
    let (_, api) = gateway.get("/api/v1/servers").await;
    let (_, episodes) = gateway.get("/api/v1/episodes").await;
    for told in [metrics, api, episodes, gateway.log()] {
        assert!(!told.contains(SECRET), "{told}");
    }
}

#[tokio::test]
async fn r9_check_names_every_unusable_timing_and_fails_without_echoing_a_secret() {
    let place = Place::new();
    let config = place.configure(&servers(&place.file("launched")));
    let output = binary().arg("check").arg(config).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    for (name, field) in unusable() {
        let field = field.as_object().unwrap().keys().next().unwrap();
        assert!(
            told.contains(&format!("mcpServers.{name}.{field}")),
            "{name}.{field}:\n{told}"
        );
    }
    assert!(!told.contains(SECRET), "{told}");
    assert!(!place.file("launched").exists());
}
