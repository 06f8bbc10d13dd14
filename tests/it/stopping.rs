//! Ends: of a server with children of its own, and of the gateway with all its servers (R10, R13).

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, faultd, with};
use crate::processes::{kill, launches, lives, terminate};

#[tokio::test]
async fn g7_a_killed_servers_grandchild_is_gone_before_the_next_launch() {
    let quick = json!({"reconnectIntervalMs": 50});
    let gateway = Gateway::run(&json!({ "bridge": with(faultd("--grandchild"), quick) })).await;
    let mut events = gateway.events().await;
    let mut client = gateway.client("bridge").await;
    events.until("bridge", "adopted").await;
    let answer = client.call("pid", json!({})).await;
    let answer: Value = serde_json::from_str(answer.result()).unwrap();
    let pid =
        |name: &str| u32::try_from(answer["structuredContent"][name].as_u64().unwrap()).unwrap();
    let (server, grandchild) = (pid("pid"), pid("grandchild"));
    assert!(lives(grandchild));

    kill(server);
    let end = events.until("bridge", "ended").await;
    assert!(
        end.field("reason").as_str().unwrap().contains("signal 9"),
        "{end:?}"
    );
    events.until("bridge", "dialing").await;
    assert!(!lives(grandchild), "it outlived the next launch");
}

#[tokio::test]
async fn r13_sigterm_ends_every_process_of_every_server_also_of_one_that_ignores_it() {
    let place = Place::new();
    let log = |n: usize| place.file(&format!("log-{n}"));
    let servers: Vec<(String, Value)> = (0..10)
        .map(|n| {
            let stubborn = if n == 0 {
                "--ignore-sigterm --grandchild"
            } else {
                ""
            };
            (
                format!("s-{n}"),
                faultd(&format!("--log {} {stubborn}", log(n).display())),
            )
        })
        .collect();
    let logs: Vec<_> = (0..10).map(log).collect();
    let mut gateway = place.run(&servers.into_iter().collect()).await;
    let mut events = gateway.events().await;
    for n in 0..10 {
        events.until_times(&format!("s-{n}"), "adopted", 1).await;
    }
    let pids: Vec<u32> = logs
        .iter()
        .flat_map(|log| launches(log))
        .map(|(_, pid)| pid)
        .collect();
    assert_eq!(pids.len(), 10);
    let mut client = gateway.client("s-0").await;
    let answer = client.call("pid", json!({})).await;
    let answer: Value = serde_json::from_str(answer.result()).unwrap();
    let grandchild = answer["structuredContent"]["grandchild"].as_u64().unwrap();

    let status = gateway.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", gateway.log());
    let grandchild = u32::try_from(grandchild).unwrap();
    let left: Vec<u32> = pids
        .into_iter()
        .chain([grandchild])
        .filter(|pid| lives(*pid))
        .collect();
    assert_eq!(left, [0_u32; 0], "{}", gateway.log());
}

#[tokio::test]
async fn a_second_signal_leaves_no_process_and_does_not_say_that_all_is_well() {
    let mut gateway = Gateway::run(&json!({ "s": faultd("--ignore-sigterm --grandchild") })).await;
    let mut events = gateway.events().await;
    events.until("s", "adopted").await;
    let mut client = gateway.client("s").await;
    let answer = client.call("pid", json!({})).await;
    let answer: Value = serde_json::from_str(answer.result()).unwrap();
    let pid =
        |name: &str| u32::try_from(answer["structuredContent"][name].as_u64().unwrap()).unwrap();
    let (server, grandchild) = (pid("pid"), pid("grandchild"));
    terminate(gateway.pid());
    // The drain has begun, and the server takes its time.
    events.until("s", "ended").await;
    let status = gateway.terminate().await;
    assert_eq!(status.code(), Some(1), "{}", gateway.log());
    assert!(!lives(server) && !lives(grandchild));
}
