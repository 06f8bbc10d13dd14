//! What a host sees while its server is away, and after (A4, A6).

use std::fs;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, faultd, with};
use crate::host::Host;

fn tools(listed: &str) -> Vec<String> {
    let listed: Value = serde_json::from_str(listed).unwrap();
    let tools = listed["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn list(client: &mut Host) -> Vec<String> {
    tools(client.request("tools/list", json!({})).await.result())
}

#[tokio::test]
async fn a4_a_call_that_was_sent_and_one_that_was_not_get_different_errors_at_once() {
    let slow = json!({"reconnectIntervalMs": 600_000});
    let gateway = Gateway::run(&json!({ "a": with(faultd(""), slow) })).await;
    gateway.events().await.until("a", "adopted").await;
    let mut client = gateway.client("a").await;

    let sent = client.call("crash", json!({})).await.error();
    assert_eq!(sent["code"], -32051, "{sent}");
    assert_eq!(sent["data"]["server"], "a");
    assert_eq!(sent["data"]["sent"], true);

    let unsent = client.call("echo", json!({})).await.error();
    assert_eq!(unsent["code"], -32050, "{unsent}");
    let data = &unsent["data"];
    assert_eq!(
        (&data["server"], &data["state"]),
        (&json!("a"), &json!("waiting")),
        "{unsent}"
    );
    assert_eq!(
        (&data["sent"], &data["attempt"]),
        (&json!(false), &json!(1)),
        "{unsent}"
    );
    let wait = data["retryAfterMs"].as_u64().unwrap();
    assert!((1..=750_000).contains(&wait), "{unsent}");
    assert!(
        unsent["message"]
            .as_str()
            .unwrap()
            .contains("try again later"),
        "{unsent}"
    );
}

#[tokio::test]
async fn a6_a_host_stays_attached_through_an_outage_and_hears_of_lists_only_when_they_changed() {
    let place = Place::new();
    let more = place.file("more-tools");
    fs::write(&more, "").unwrap();
    let quick = json!({"reconnectIntervalMs": 50});
    let flags = format!("--tools-file {}", more.display());
    let gateway = place
        .run(&json!({ "a": with(faultd(&flags), quick) }))
        .await;
    let mut events = gateway.events().await;
    events.until("a", "adopted").await;
    let mut client = gateway.client("a").await;
    // A host that attaches while the lists are first read is told when they are known.
    let before = list(&mut client).await;
    client.forget();

    client.call("crash", json!({})).await.error();
    assert_eq!(
        list(&mut client).await,
        before,
        "the lists stay as they were"
    );
    events.until("a", "adopted").await;
    assert!(client.call("echo", json!({})).await.error.is_none());
    assert_eq!(list(&mut client).await, before);

    fs::write(&more, "a-new-tool\n").unwrap();
    client.call("crash", json!({})).await.error();
    events.until("a", "adopted").await;
    client
        .notification("notifications/tools/list_changed")
        .await;
    let after = list(&mut client).await;
    assert!(after.contains(&"a-new-tool".to_owned()), "{after:?}");
    assert!(
        !client.was_sent("notifications/tools/list_changed"),
        "once, for the one change"
    );
}

#[tokio::test]
async fn a6_a_host_of_a_server_that_was_never_up_gets_an_empty_inventory_and_later_a_change() {
    let place = Place::new();
    let well = place.file("well");
    let quick = json!({"reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 50});
    let flags = format!("--fail-before-handshake --survive-after {}", well.display());
    let gateway = place
        .run(&json!({ "a": with(faultd(&flags), quick) }))
        .await;
    let mut client = gateway.client("a").await;
    assert_eq!(list(&mut client).await, [""; 0]);
    fs::write(well, "").unwrap();
    client
        .notification("notifications/tools/list_changed")
        .await;
    assert!(list(&mut client).await.contains(&"echo".to_owned()));
}
