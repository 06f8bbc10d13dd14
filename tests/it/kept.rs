//! What the gateway accepts for a host, and what outlives the gateway (A3, G14).

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{Gateway, PATIENCE, Place, faultd, with};
use crate::host::{Host, Received};

/// A bridge that registers its channel and, where it is told to, sends numbered messages.
fn bridge(place: &Place, more: &str, accept_after: u64) -> Value {
    let (counter, acks) = (place.file("counter"), place.file("acks"));
    let files = format!("--counter {} --acks {}", counter.display(), acks.display());
    let entry = faultd(&format!("--mcpl --register {files} {more}"));
    json!({ "a": with(entry, json!({ "acceptAfterMs": accept_after })) })
}

/// The results that the bridge got for its messages, by their numbers.
fn acknowledged(gateway: &Gateway) -> BTreeMap<u64, Value> {
    let text = fs::read_to_string(gateway.file("acks")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (id, result) = line.split_once(' ')?;
        let number = id.strip_prefix("\"in-")?.strip_suffix('"')?;
        Some((
            number.parse().unwrap(),
            serde_json::from_str(result).unwrap(),
        ))
    });
    lines.collect()
}

/// Waits until the bridge has read that many results.
async fn until_acknowledged(gateway: &Gateway, count: usize) {
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let read = async {
        while acknowledged(gateway).len() < count {
            tick.tick().await;
        }
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    read.unwrap_or_else(|_| panic!("no results:\n{}", gateway.log()));
}

/// The next message of the bridge: its number, and whether it is marked.
fn number(message: &Received) -> (u64, bool) {
    let params: Value = serde_json::from_str(message.params.as_ref().unwrap().get()).unwrap();
    let id = params["messages"][0]["messageId"].as_str().unwrap();
    let marked = params["_meta"]["tidegate/redelivered"] == true;
    (id.strip_prefix("m-").unwrap().parse().unwrap(), marked)
}

/// A host that serves and has taken the bridge's channel.
async fn serving(gateway: &Gateway) -> Host {
    let mut host = gateway.connect("a").await;
    host.initialize(json!({"experimental": {"mcpl": {"version": "0.5"}}}))
        .await;
    let all = json!({"effectiveCapabilities": ["channels.register", "channels.incoming"]});
    host.request("featureSets/update", all).await;
    let register = host.notification("channels/register").await;
    host.reply(&register, json!({})).await;
    host
}

/// Reads messages up to this number.
async fn read(host: &mut Host, last: u64, accept: bool) -> Vec<(u64, bool)> {
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|(number, _)| *number < last) {
        let message = host.notification("channels/incoming").await;
        if accept {
            host.reply(&message, json!({"results": [{"accepted": true}]}))
                .await;
        }
        numbers.push(number(&message));
    }
    numbers
}

#[tokio::test]
async fn a3_g14_what_was_accepted_for_the_host_outlives_a_kill_and_is_delivered_once_in_order() {
    let place = Place::new();
    let talks = bridge(&place, "--publish-every-ms 20", 200);
    let silent = bridge(&place, "", 200);
    let mut gateway = place.run(&talks).await;
    until_acknowledged(&gateway, 5).await;
    gateway.replace_killed(&silent).await;
    let accepted = acknowledged(&gateway);
    for (number, result) in &accepted {
        let item = json!({"messageId": format!("m-{number}"), "accepted": true});
        assert_eq!(*result, json!({ "results": [item] }));
    }
    let last = *accepted.keys().last().unwrap();

    let mut host = serving(&gateway).await;
    let first = read(&mut host, last, false).await;
    let numbers: Vec<u64> = first.iter().map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(accepted.keys().all(|number| numbers.contains(number)));
    assert!(first.iter().all(|(_, marked)| !marked), "no host had them");
    drop(host);

    // The next gateway cannot know what the host made of them.
    gateway.replace(&silent).await;
    let mut host = serving(&gateway).await;
    let again = read(&mut host, last, true).await;
    let marked: Vec<_> = numbers.iter().map(|number| (*number, true)).collect();
    assert_eq!(again, marked);

    // An answer that comes back shows that what was sent before it was read. Some were read by the first gateway, and
    // not accepted any more.
    host.call("echo", json!({})).await;
    while host.was_sent("channels/incoming") {
        let message = host.notification("channels/incoming").await;
        host.reply(&message, json!({})).await;
    }
    host.call("echo", json!({})).await;
    gateway.replace(&silent).await;
    let mut host = serving(&gateway).await;
    host.call("echo", json!({})).await;
    assert!(!host.was_sent("channels/incoming"), "each once");
}

#[tokio::test]
async fn a3_without_a_state_directory_the_host_alone_accepts() {
    let place = Place::with(json!({ "state": { "dir": "none" } }));
    let talks = bridge(&place, "--publish-every-ms 20", 1);
    let gateway = place.run(&talks).await;
    let mut host = serving(&gateway).await;
    for wanted in 1..=5 {
        let message = host.notification("channels/incoming").await;
        assert_eq!(number(&message), (wanted, false));
        host.reply(&message, json!({"by": "the host"})).await;
    }
    // What it says next is read after its answers.
    host.request("ping", json!({})).await;
    host.call("echo", json!({})).await;
    let acknowledged = acknowledged(&gateway);
    assert!(!acknowledged.is_empty());
    assert!(
        acknowledged
            .values()
            .all(|result| *result == json!({"by": "the host"}))
    );
}
