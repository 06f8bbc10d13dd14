//! Timings that cannot be used (R9).

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, binary, ended, faultd, with};

const SECRET: &str = "hunter2-hunter2";

/// Every kind of unusable value, as a field of its own server.
pub(crate) fn unusable() -> Vec<(String, Value)> {
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
    let mut check = binary();
    check.arg("check").arg(config);
    let output = ended(check).await;
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

#[tokio::test]
async fn a4_a_refused_servers_host_is_told_which_server_and_nothing_of_the_file() {
    let bad = json!({"reconnectIntervalMs": 0});
    let gateway = Gateway::run(&json!({ "s": with(faultd(""), bad) })).await;
    let error = gateway
        .client("s")
        .await
        .call("echo", json!({}))
        .await
        .error();
    assert_eq!(error["data"]["server"], "s");
    assert_eq!(error["data"]["state"], "refused");
    assert!(
        !error["message"].as_str().unwrap().contains("tidegate.json"),
        "{error}"
    );
}

#[tokio::test]
async fn a_secret_in_a_servers_own_words_is_told_nowhere() {
    let gateway = Gateway::run(&json!({ "s": with(
        json!({ "command": "sh", "args": ["-c", SECRET_TELLER] }),
        json!({ "env": { "API_KEY": "sk-0123456789" }, "reconnectIntervalMs": 50, "downAfterAttempts": 1 }),
    )}))
    .await;
    gateway.events().await.until("s", "down").await;
    for path in ["/api/v1/servers", "/api/v1/episodes", "/metrics"] {
        assert!(
            !gateway.get(path).await.1.contains("sk-0123456789"),
            "{path}"
        );
    }
    let (_, events) = gateway.get("/api/v1/servers/s").await;
    assert!(events.contains("[secret]"), "{events}");
    assert!(
        !gateway.log().contains("sk-0123456789"),
        "{}",
        gateway.log()
    );
}

/// Refuses `initialize` with the key that it was given.
const SECRET_TELLER: &str = r#"read line; printf '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"bad key %s"}}\n' "$API_KEY"; cat >/dev/null"#;
