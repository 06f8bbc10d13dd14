//! The whole of what an operator is given, at thirty times its pace: the real gateway on servers with a history each,
//! a real Prometheus and Alertmanager on the shipped rules and settings, a sink for what they announce, and real OTLP
//! receivers, over HTTP and over gRPC. The gateway, Prometheus and Alertmanager are killed while servers are down and
//! while they are well. What is announced is one down per episode and one clear per end of one, as the engine decided
//! it, every panel of the dashboards has something to show, and each epoch is a trace that tells what its events tell.
//!
//! `TIDEGATE_RENDER=1` leaves the dashboards as pictures in target/observability.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails loudly, and says what it measured"
)]

#[path = "../../it/events.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
mod events;
#[path = "../../it/gateway.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
mod gateway;
#[path = "../../it/host.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
mod host;
#[path = "../../it/processes.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
mod processes;

mod logged;
mod pace;
mod panels;
mod receivers;
mod run;
mod scripted;
mod sink;
mod spans;
mod stack;
mod trouble;

use std::time::Duration;

use crate::events::Events;
use crate::run::Run;
use crate::scripted::MENDED_LASTS_MS;

/// No wait of this run takes this long; one that does is a failure, and says what it saw.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What is announced of each server over the whole run.
const ANNOUNCED: [(&str, &[&str]); 7] = [
    ("steady", &[]),
    ("dropped", &[]),
    ("looping", &["firing"]),
    ("absent", &["firing"]),
    ("hanging", &["firing"]),
    ("flapping", &["firing"]),
    ("mended", &["firing", "resolved"]),
];

/// How often everything is killed while it is well.
fn rounds() -> u32 {
    let is_long = std::env::var_os("TIDEGATE_FULL").is_some();
    if is_long { 5 } else { 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_s4_s7_every_episode_is_announced_once_and_its_end_once_whoever_is_killed_meanwhile() {
    let mut run = Run::start().await;
    // A loop of early ends, no connection at all, a dial that hangs.
    for server in ["looping", "absent", "hanging", "mended"] {
        run.sink.until(server, "firing").await;
    }
    run.reached("four servers are announced as down");
    run.kill_gateway().await;
    run.kill_prometheus().await;

    let mut events = run.gateway.events().await;
    one_nearly_lasts(&mut run, &mut events).await;
    one_lasts(&mut run, &mut events).await;
    others_had_their_histories(&mut run, &events).await;
    for _ in 0..rounds() {
        run.kill_gateway().await;
        run.kill_prometheus().await;
        run.kill_alertmanager().await;
    }
    // The connections last again, which is no news.
    run.gateway.events().await.until("mended", "lasted").await;
    run.stack.until_evaluated(4).await;

    nothing_else_was_announced(&run).await;
    operators_see_all_of_it(&run).await;
    run.traces_agree().await;
}

/// A connection that nearly lasts is no recovery; and meanwhile Alertmanager is killed.
async fn one_nearly_lasts(run: &mut Run, events: &mut Events) {
    scripted::dawn_falsely(&run.lives);
    run.kill_alertmanager().await;
    let dawn = loop {
        let end = events.until("mended", "ended").await;
        if end.seconds("livedSeconds") > Duration::from_secs(1) {
            break end;
        }
    };
    assert_eq!(dawn.field("lasted"), false, "{dawn:?}");
    assert_eq!(run.sink.of("mended").len(), 1);
    run.reached("the false dawn is over");
}

/// One that lasts is a recovery, and not before it has lasted.
async fn one_lasts(run: &mut Run, events: &mut Events) {
    scripted::mend(&run.lives, "mended");
    scripted::mend(&run.lives, "dropped");
    events.until("mended", "clear").await;
    let adopted = events.seen("mended", "adopted").pop().unwrap().at();
    let resolved = run.sink.until("mended", "resolved").await;
    let lasted = adopted + u128::from(MENDED_LASTS_MS);
    assert!(resolved >= lasted, "{lasted} {resolved}");
    run.reached("a server is announced as clear");
}

/// Meanwhile one that ended just before its threshold each time went down, and one that had lasted dropped once.
async fn others_had_their_histories(run: &mut Run, events: &Events) {
    run.sink.until("flapping", "firing").await;
    let drops = events.seen("dropped", "ended");
    let had_lasted = drops.iter().any(|end| end.field("lasted") == true);
    assert!(had_lasted, "{drops:?}");
    assert!(events.seen("dropped", "adopted").len() > drops.len());
}

async fn nothing_else_was_announced(run: &Run) {
    let mut latest = 0;
    for (server, statuses) in ANNOUNCED {
        latest = latest.max(run.announced(server, statuses).await);
    }
    let about_servers: usize = ANNOUNCED.iter().map(|(_, statuses)| statuses.len()).sum();
    assert_eq!(
        run.sink.told().len(),
        about_servers,
        "{:#?}",
        run.sink.told()
    );
    run.reached(&format!(
        "every edge came to the sink, at most {latest} ms after the engine's"
    ));
}

/// Every panel has something to show, and the page that all this was read from is clean.
async fn operators_see_all_of_it(run: &Run) {
    let (from, to) = (run.began as f64 / 1e3, sink::now() as f64 / 1e3);
    let (empty, asked) = panels::without_data(&run.stack, from, to).await;
    assert!(empty.is_empty(), "{empty:#?}");
    let (_, metrics) = run.gateway.get("/metrics").await;
    assert_eq!(panels::said_of_metrics(&metrics), "");
    run.reached(&format!("{asked} queries of the dashboards have data"));
    if std::env::var_os("TIDEGATE_RENDER").is_some() {
        let prometheus = run.stack.prometheus.address;
        let pictures = panels::render(prometheus, from, to, "mended").await;
        run.reached(&format!("the dashboards are in {}", pictures.display()));
    }
}
