//! What an operator sees of traces, at a receiver in the test's own process (design 5, Traces).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{Gateway, PATIENCE, Place, faultd, with};
use crate::receiver::{Manner, Receiver, Span};

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn servers(flags: &str) -> Value {
    let timings = json!({
        "reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 50, "lastingAfterMs": 300, "downAfterAttempts": 2,
    });
    json!({ "a": with(faultd(flags), timings) })
}

async fn traced(flags: &str) -> (Receiver, Gateway) {
    let receiver = Receiver::start(Manner::Takes).await;
    let gateway = Place::with(receiver.telemetry()).run(&servers(flags)).await;
    (receiver, gateway)
}

fn length(span: &Span) -> Duration {
    Duration::from_nanos(span.end - span.start)
}

/// The spans of one trace beside its root.
fn children(receiver: &Receiver, root: &Span) -> Vec<Span> {
    let its = |span: &Span| span.trace == root.trace && span.id != root.id;
    receiver.spans().into_iter().filter(its).collect()
}

#[tokio::test]
async fn an_epoch_is_one_trace_as_long_as_the_epoch_and_its_children_come_while_it_is_open() {
    let (receiver, gateway) = traced("--mcpl --die-after-ms 1200 --exit-code 3").await;
    let pending = receiver.named("mcpl.epoch (open)").await;
    let first = |span: &Span| span.name == "mcpl.epoch" && span.trace == pending.trace;
    assert!(!receiver.spans().iter().any(first), "it is still open");
    assert_eq!(pending.attribute("tidegate.span.state"), "open");
    let root = receiver.until("ended epoch", first).await;

    assert_eq!((&pending.parent, root.parent.as_str()), (&root.id, ""));
    assert!(length(&root) >= Duration::from_millis(1200), "{root:?}");
    let mut events = gateway.events().await;
    let ended = events.until("a", "ended").await;
    let lived = root
        .attribute("tidegate.epoch.lived_seconds")
        .as_f64()
        .unwrap();
    let told = ended.seconds("livedSeconds").as_secs_f64();
    assert!((lived - told).abs() < 0.001, "{lived} and {told}");
    assert_eq!(root.attribute("tidegate.server"), "a");
    assert_eq!(root.attribute("tidegate.epoch.end"), "exit");
    assert_eq!(root.attribute("tidegate.epoch.lasted"), true);
    assert_eq!(root.attribute("network.transport"), "pipe");
    assert!(!root.failed, "it had lasted");

    let children = children(&receiver, &root);
    for name in ["dial", "initialize", "policy exchange", "lasted"] {
        let child = children.iter().find(|child| child.name == name);
        let child = child.unwrap_or_else(|| panic!("{name}: {children:?}"));
        assert_eq!(child.parent, root.id, "{name}");
        assert!(root.start <= child.start && child.end <= root.end, "{name}");
    }
    assert_eq!(root.service["service.name"], "tidegate");
    assert_eq!(root.service["service.instance.id"], "gw-test");
}

#[tokio::test]
async fn an_epoch_that_another_follows_at_once_has_its_root_span_too() {
    let (receiver, gateway) = traced("--mcpl").await;
    let mut events = gateway.events().await;
    events.until("a", "settled").await;
    gateway.operate("a", "restart").await;
    events.until("a", "settled").await;
    let root = receiver.named("mcpl.epoch").await;
    assert_eq!(root.attribute("tidegate.epoch"), 1);
    assert_eq!(root.attribute("tidegate.epoch.end"), "operator");
}

#[tokio::test]
async fn an_outage_is_failed_epochs_and_one_of_them_has_the_one_down() {
    let (receiver, gateway) = traced("--fail-before-handshake").await;
    gateway.events().await.until("a", "down").await;
    let down = |span: &Span| span.events.iter().any(|event| event == "down");
    let root = receiver.until("down", down).await;
    assert_eq!(root.name, "mcpl.epoch");
    assert!(
        root.failed && root.status.contains("exit code 1"),
        "{root:?}"
    );
    let attempt = root.attribute("tidegate.attempt").as_u64().unwrap();
    receiver
        .until("later attempt", |span| {
            span.name == "mcpl.epoch" && span.attributes["tidegate.attempt"] == attempt + 2
        })
        .await;
    assert_eq!(receiver.spans().iter().filter(|span| down(span)).count(), 1);
    let failed = children(&receiver, &root);
    assert!(failed.iter().all(|span| span.name != "mcpl.epoch (open)"));
}

#[tokio::test]
async fn an_epoch_that_a_kill_cut_off_is_seen_and_the_next_gateway_closes_it() {
    let (receiver, mut gateway) = traced("").await;
    let pending = receiver.named("mcpl.epoch (open)").await;
    let (_, view) = gateway.get("/api/v1/servers/a").await;
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(view["traceId"], pending.trace);
    gateway.replace_killed(&servers("")).await;

    let its = |span: &Span| span.trace == pending.trace && span.id == pending.parent;
    let root = receiver.until("closed epoch", its).await;
    assert_eq!(
        (root.name.as_str(), root.status.as_str()),
        ("mcpl.epoch", "gateway died")
    );
    assert!(root.failed);
    assert_eq!(root.attribute("tidegate.epoch"), 1);
    let names: Vec<_> = children(&receiver, &root)
        .into_iter()
        .map(|span| span.name)
        .collect();
    for name in ["dial", "initialize"] {
        assert!(names.iter().any(|child| child == name), "{names:?}");
    }
    let second = |span: &Span| span.name == "mcpl.epoch (open)" && span.trace != pending.trace;
    let second = receiver.until("next epoch", second).await;
    assert_eq!(second.attribute("tidegate.epoch"), 2);

    gateway.replace(&servers("")).await;
    let root = receiver
        .until("stopped epoch", |span| span.id == second.parent)
        .await;
    assert_eq!(root.attribute("tidegate.epoch.end"), "operator");
    let died = receiver
        .spans()
        .into_iter()
        .filter(|span| span.status == "gateway died");
    assert_eq!(died.count(), 1);
}

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

fn echo(id: u64, meta: &str) -> String {
    let params = format!(r#"{{"name":"echo","arguments":{{"text":"hush-hush"}},"_meta":{meta}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

#[tokio::test]
async fn a_hosts_call_goes_on_in_the_callers_trace_with_a_span_towards_each_side() {
    let (receiver, gateway) = traced("").await;
    let pending = receiver.named("mcpl.epoch (open)").await;
    let mut host = gateway.client("a").await;
    let meta = format!(r#"{{"k":1.50,"traceparent":"{CALLER}-01","tracestate":"x=1"}}"#);
    host.send(echo(7, &meta)).await;
    let answer = host.answer("7").await;

    let client = receiver
        .until("client", |span| {
            span.kind == CLIENT && span.name == "tools/call echo"
        })
        .await;
    let server = receiver.until("server", |span| span.kind == SERVER).await;
    assert_eq!(server.name, "tools/call echo");
    assert!(
        CALLER.contains(&server.trace) && CALLER.contains(&server.parent),
        "{server:?}"
    );
    assert_eq!((&client.trace, &client.parent), (&server.trace, &server.id));
    for span in [&client, &server] {
        assert_eq!(
            span.links,
            std::slice::from_ref(&pending.parent),
            "{span:?}"
        );
        assert_eq!(span.attribute("mcp.method.name"), "tools/call");
        assert_eq!(span.attribute("gen_ai.tool.name"), "echo");
        assert_eq!(span.attribute("gen_ai.operation.name"), "execute_tool");
        assert!(
            !span.failed && !span.whole.contains("hush-hush"),
            "{span:?}"
        );
    }
    assert_eq!(server.attribute("jsonrpc.request.id"), "7");
    let ours = format!("00-{}-{}-01", client.trace, client.id);
    let sent = meta.replace(&format!("{CALLER}-01"), &ours);
    assert!(
        answer.result().contains(&sent),
        "{sent}: {}",
        answer.result()
    );
}

#[tokio::test]
async fn a_call_that_its_caller_left_out_is_neither_traced_nor_changed() {
    let (receiver, gateway) = traced("").await;
    receiver.named("mcpl.epoch (open)").await;
    let mut host = gateway.client("a").await;
    let meta = format!(r#"{{"traceparent":"{CALLER}-00"}}"#);
    host.send(echo(1, &meta)).await;
    assert!(host.answer("1").await.result().contains(&meta));
    host.send(echo(2, r#"{"k":1}"#)).await;
    let traced = host.answer("2").await;
    assert!(
        traced.result().contains(r#""_meta":{"traceparent":"00-"#),
        "{traced:?}"
    );
    receiver.until("server", |span| span.kind == SERVER).await;
    let spans = receiver
        .spans()
        .into_iter()
        .filter(|span| span.kind == SERVER);
    assert_eq!(spans.count(), 1);
}

#[tokio::test]
async fn a_call_that_fails_says_so_on_both_sides_as_the_conventions_have_it() {
    let (receiver, gateway) = traced("").await;
    receiver.named("mcpl.epoch (open)").await;
    let mut host = gateway.client("a").await;
    host.send(r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#)
        .await;
    host.answer("1").await.error();
    let client = receiver
        .until("client", |span| {
            span.kind == CLIENT && span.name == "no/such"
        })
        .await;
    let server = receiver
        .until("server", |span| {
            span.kind == SERVER && span.name == "no/such"
        })
        .await;
    assert_eq!(client.attribute("error.type"), "-32601");
    assert_eq!(server.attribute("rpc.response.status_code"), "-32601");
    assert_eq!((client.failed, server.failed), (true, false));
    host.call("crash", json!({})).await.error();
    let lost = |kind| move |span: &Span| span.kind == kind && span.name == "tools/call crash";
    for kind in [CLIENT, SERVER] {
        let span = receiver.until("lost call", lost(kind)).await;
        assert!(
            span.failed && span.attribute("error.type") == "lost",
            "{span:?}"
        );
    }
}

#[tokio::test]
async fn a_receiver_that_is_no_use_costs_spans_that_are_counted_and_no_call() {
    let receiver = Receiver::start(Manner::TalksGarbage).await;
    let gateway = Place::with(receiver.telemetry()).run(&servers("")).await;
    // Also what was answered with a 200 counts as lost.
    let failed = r#"tidegate_telemetry_dropped_total{reason="failed",signal="traces"}"#;
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let end = Instant::now() + PATIENCE;
    while gateway.metric(failed).await == 0.0 {
        assert!(Instant::now() < end, "nothing counted:\n{}", gateway.log());
        tick.tick().await;
    }
    let told = "the receiver of traces does not take them";
    gateway.logged(told).await;
    let mut host = gateway.client("a").await;
    for manner in [Manner::Fails, Manner::TalksGarbage, Manner::Hangs] {
        receiver.set(manner);
        for _ in 0..20 {
            assert!(host.call("echo", json!({})).await.error.is_none());
        }
    }
}

#[tokio::test]
async fn a_stop_of_the_gateway_does_not_wait_for_a_receiver_that_hangs() {
    let receiver = Receiver::start(Manner::Hangs).await;
    let mut gateway = Place::with(receiver.telemetry()).run(&servers("")).await;
    gateway.events().await.until("a", "adopted").await;
    let status = gateway.terminate().await;
    assert!(status.success(), "{status}:\n{}", gateway.log());
    let log = gateway.log();
    assert!(
        log.contains("the receiver of traces did not take the last"),
        "{log}"
    );
}

#[tokio::test]
async fn no_secret_is_in_a_span_or_said_of_a_receiver() {
    let receiver = Receiver::start(Manner::Takes).await;
    let mut more = receiver.telemetry();
    more["telemetry"]["otlp"]["headers"] = json!({ "x-key": "planted-header" });
    more["telemetry"]["log"] = json!({ "format": "json" });
    let flags = "--fail-before-handshake --stderr-env PLANTED_TOKEN";
    let mut servers = servers(flags);
    servers["a"]["env"] = json!({ "PLANTED_TOKEN": "planted-secret" });
    let gateway = Place::with(more).run(&servers).await;
    let root = receiver.named("mcpl.epoch").await;
    assert!(root.status.contains("[secret]"), "{root:?}");
    assert_eq!(receiver.headers()["x-key"], "planted-header");
    for span in receiver.spans() {
        assert!(!span.whole.contains("planted-"), "{span:?}");
    }
    let log = gateway.logged(&root.trace).await;
    assert!(!log.contains("planted-"), "{log}");
    let (_, shown) = gateway.get("/api/v1/config").await;
    assert!(!shown.contains("planted-"), "{shown}");
    let line = log.lines().find(|line| line.contains(&root.trace));
    let line: Value = serde_json::from_str(line.expect("a line with the trace's id")).unwrap();
    assert_eq!(line["trace_id"], root.trace);
}

#[tokio::test]
async fn what_the_gateway_does_itself_is_traced_with_its_outcome_and_no_line_of_the_log_changes() {
    let receiver = Receiver::start(Manner::Takes).await;
    let hook = format!("http://hush-1@{}/hush-2", receiver.address);
    let more = with(
        receiver.telemetry(),
        json!({ "webhooks": [{ "url": hook }] }),
    );
    let servers = servers("--fail-before-handshake");
    let gateway = Place::with(more).run(&servers).await;
    let of = |name: &'static str, key: &'static str, value: &'static str| {
        move |span: &Span| span.name == name && span.attributes.get(key) == Some(&json!(value))
    };
    let outcome = "tidegate.outcome";

    gateway.operate("a", "pause").await;
    let (status, _) = gateway.post("/api/v1/servers/hush-3/restart").await;
    assert_eq!(status, 404);
    let paused = receiver
        .until("pause", of("control", "tidegate.control", "pause"))
        .await;
    assert_eq!(paused.attribute("tidegate.server"), "a");
    assert_eq!(
        (paused.attribute(outcome), paused.failed),
        (&json!("done"), false)
    );
    let unknown = receiver
        .until("restart", of("control", outcome, "unknown_server"))
        .await;
    assert!(unknown.failed && !unknown.attributes.contains_key("tidegate.server"));

    gateway.reload(&servers).await;
    let reloaded = receiver
        .until("reload", of("config reload", outcome, "reloaded"))
        .await;
    assert!(!reloaded.failed && reloaded.start < reloaded.end);
    assert_eq!(
        (reloaded.parent.as_str(), &reloaded.service),
        ("", &paused.service)
    );
    std::fs::write(gateway.file("tidegate.json"), "{").unwrap();
    assert_eq!(gateway.post("/api/v1/reload").await.0, 422);
    let refused = receiver
        .until("refused reload", of("config reload", outcome, "refused"))
        .await;
    assert!(refused.failed && refused.events.is_empty(), "{refused:?}");

    let notice = receiver
        .until("notice", of("notice", "tidegate.outlet", "webhook"))
        .await;
    assert_eq!(
        (notice.attribute(outcome), notice.failed),
        (&json!("dropped"), true)
    );
    for span in receiver.spans() {
        assert!(!span.whole.contains("hush-"), "{span:?}");
    }
    let log = gateway.logged("ERROR not reloaded: ").await;
    assert!(!log.contains("config reload"), "{log}");
}
