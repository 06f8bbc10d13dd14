//! A receiver of traces that is no use: its operators are told once, and once that it is over.

use std::net::SocketAddr;

use axum::Router;
use serde_json::json;
use tokio::net::TcpListener;

use crate::gateway::{Gateway, Place, faultd, with};
use crate::processes;
use crate::sink::Sink;
use crate::spans::{HTTP, Spans};
use crate::stack::{Stack, until};

const DROPPING: &str = "TidegateTelemetryDropping";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_of_traces_that_is_gone_slow_or_talks_garbage_is_one_alert_that_ends_once() {
    let mut spans = Spans::receive().await;
    let timings = json!({"reconnectIntervalMs": 100, "reconnectMaxIntervalMs": 1_000});
    let looping = with(faultd("--die-after-ms 100"), timings);
    let place = Place::with(spans.telemetry(HTTP));
    let gateway = place.run(&json!({ "looping": looping })).await;
    let mut sink = Sink::open().await;
    let stack = Stack::start(gateway.admin(), sink.address).await;
    spans.until_more().await;
    stack.until_evaluated(4).await;

    let address = spans.end().await;
    sink.until_ticket(DROPPING, "firing").await;
    let slow = hangs(address).await;
    until_more_dropped(&gateway).await;
    drop(slow);
    let garbage = talks_garbage(address).await;
    until_more_dropped(&gateway).await;
    garbage.abort();
    let _ = garbage.await;

    spans.begin_again().await;
    spans.until_more().await;
    sink.until_ticket(DROPPING, "resolved").await;
    stack.until_evaluated(4).await;
    let tickets = sink.tickets(DROPPING);
    let said: Vec<_> = tickets
        .iter()
        .map(|ticket| ticket.status.as_str())
        .collect();
    assert_eq!(said, ["firing", "resolved"], "{tickets:#?}");
}

/// One that takes connections and does nothing more.
async fn hangs(address: SocketAddr) -> tokio::process::Child {
    let child = crate::receivers::oteltap(address).await;
    processes::stop(child.id().unwrap());
    child
}

/// What a proxy says whose receiver is not there.
async fn talks_garbage(address: SocketAddr) -> tokio::task::JoinHandle<()> {
    let bind = async || TcpListener::bind(address).await.ok();
    let listener = until("room for another receiver", bind).await;
    let page = Router::new().fallback(|| async { axum::response::Html("<html>no OTLP</html>") });
    tokio::spawn(async move { axum::serve(listener, page).await.unwrap() })
}

/// Waits until deliveries have failed twice more: the first may have begun before.
async fn until_more_dropped(gateway: &Gateway) {
    let series = "tidegate_telemetry_dropped_total{reason=\"failed\",signal=\"traces\"}";
    for _ in 0..2 {
        let before = gateway.metric(series).await;
        let more = async || (gateway.metric(series).await > before).then_some(());
        until("more spans dropped", more).await;
    }
}
