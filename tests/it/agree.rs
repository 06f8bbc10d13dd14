//! One run, looked at from every side: log lines, events, counters, gauges, spans and the API tell the same of it (S1),
//! and none of them tells a secret.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::gateway::{Gateway, PATIENCE, Place, faultd, with};
use crate::receiver::{Manner, Receiver, Span};
use crate::told::Hook;

/// The kind of a span towards a server.
const CLIENT: i32 = 3;

/// Numbers by what they count.
type Numbers = BTreeMap<String, f64>;

fn quick(entry: Value) -> Value {
    let quick = json!({
        "reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 100,
        "downAfterAttempts": 1, "lastingAfterMs": 500,
    });
    with(entry, quick)
}

/// Every event that the ring holds.
async fn events(gateway: &Gateway) -> Vec<Value> {
    let accept = "Accept: application/json\r\n";
    let mut stream = gateway.request("/api/v1/events", accept).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    body["events"].as_array().unwrap().clone()
}

/// How many lines or events there are of each server and kind.
fn by_kind<'a>(told: impl IntoIterator<Item = &'a Value>) -> Numbers {
    let mut numbers = Numbers::new();
    for told in told {
        if let (Some(server), Some(kind)) = (told["server"].as_str(), told["kind"].as_str()) {
            *numbers.entry(format!("{server} {kind}")).or_default() += 1.0;
        }
    }
    numbers
}

fn lines(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The counters that decisions feed, as the events tell them.
fn counted(events: &[Value]) -> Numbers {
    let mut numbers = Numbers::new();
    for event in events {
        let fields = &event["fields"];
        let label = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
        let (family, labels, more) = match event["kind"].as_str().unwrap() {
            "adopted" => ("attempts_total", "outcome=\"adopted\"".to_owned(), 1.0),
            "attempt-failed" => {
                let labels = format!("outcome=\"{}\"", label("outcome"));
                ("attempts_total", labels, 1.0)
            }
            "ended" => {
                let labels = format!(
                    "lasted=\"{}\",reason=\"{}\"",
                    fields["lasted"],
                    label("cause")
                );
                ("connections_ended_total", labels, 1.0)
            }
            "settled" => {
                let labels = format!("outcome=\"{}\"", label("outcome"));
                ("exchanges_total", labels, 1.0)
            }
            edge @ ("down" | "clear") => ("episodes_total", format!("edge=\"{edge}\""), 1.0),
            "dropped" => {
                let labels = format!("reason=\"{}\"", label("reason"));
                (
                    "messages_dropped_total",
                    labels,
                    fields["count"].as_f64().unwrap(),
                )
            }
            "left-out" if label("of") == "dropped" => {
                let labels = format!("reason=\"{}\"", label("what"));
                (
                    "messages_dropped_total",
                    labels,
                    fields["messages"].as_f64().unwrap(),
                )
            }
            "refused-message" => {
                let labels = format!("code=\"{}\"", fields["code"]);
                ("messages_refused_total", labels, 1.0)
            }
            "flushed" => {
                let labels = format!("queue=\"{}\"", label("queue"));
                (
                    "messages_flushed_total",
                    labels,
                    fields["messages"].as_f64().unwrap(),
                )
            }
            _ => continue,
        };
        let server = event["server"].as_str().unwrap();
        // As Prometheus sorts labels.
        let mut labels: Vec<_> = labels.split(',').map(str::to_owned).collect();
        labels.push(format!("server=\"{server}\""));
        labels.sort();
        let name = format!("tidegate_server_{family}{{{}}}", labels.join(","));
        *numbers.entry(name).or_default() += more;
    }
    numbers
}

/// The samples of the page of metrics.
fn samples(page: &str) -> Numbers {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The samples of the families that decisions feed, without what nobody counted.
fn fed(samples: &Numbers) -> Numbers {
    let families = [
        "attempts",
        "connections_ended",
        "exchanges",
        "episodes",
        "messages_dropped",
        "messages_refused",
        "messages_flushed",
    ];
    let is_fed = |name: &str| {
        let name = name.strip_prefix("tidegate_server_");
        name.is_some_and(|name| {
            families
                .iter()
                .any(|family| name.starts_with(&format!("{family}_total{{")))
        })
    };
    let fed = samples
        .iter()
        .filter(|(name, value)| is_fed(name) && **value > 0.0);
    fed.map(|(name, value)| (name.clone(), *value)).collect()
}

/// What the gauges say of a server, beside what the API and the last events say of it.
fn assert_state(server: &Value, samples: &Numbers, events: &[Value]) {
    let id = server["id"].as_str().unwrap();
    let gauge = |name: &str, labels: &str| {
        let name = format!("tidegate_{name}{{server=\"{id}\"{labels}}}");
        *samples.get(&name).unwrap_or_else(|| panic!("no {name}"))
    };
    let state = server["state"].as_str().unwrap();
    assert_eq!(
        gauge("server_state", &format!(",state=\"{state}\"")),
        1.0,
        "{id}"
    );
    let its = || events.iter().filter(|event| event["server"] == id);
    let last_state = its().rfind(|event| event["kind"] == "state");
    assert_eq!(last_state.unwrap()["fields"]["state"], state, "{id}");
    let number = |name: &str| server[name].as_f64().unwrap();
    assert_eq!(
        gauge("server_failed_attempts", ""),
        number("failedAttempts"),
        "{id}"
    );
    let flag = |on: bool| f64::from(u8::from(on));
    let connected = server["connected"].as_bool().unwrap();
    assert_eq!(gauge("server_connected", ""), flag(connected), "{id}");
    let down = !server["down"].is_null();
    assert_eq!(gauge("server_down", ""), flag(down), "{id}");
    let edges = its().filter(|event| ["down", "clear"].contains(&event["kind"].as_str().unwrap()));
    let last_edge = edges.map(|event| event["kind"].clone()).next_back();
    assert_eq!(down, last_edge == Some(json!("down")), "{id}");
}

/// What there is of each server in spans, as lines of the log would tell it. A root is an end or a failed attempt.
fn traced(spans: &[Span]) -> Numbers {
    let mut numbers = Numbers::new();
    for span in spans {
        let Some(server) = span.attributes.get("tidegate.server") else {
            continue;
        };
        let of_it = match span.name.as_str() {
            "mcpl.epoch" => Some("over"),
            "initialize" => Some("adopted"),
            "policy exchange" => Some("settled"),
            "flush" => Some("flushed"),
            "lasted" => Some("lasted"),
            _ => None,
        };
        let alone = span.name == "mcpl.decision";
        let alone = span.attributes.get("tidegate.decision").filter(|_| alone);
        let told = span.events.iter().map(String::as_str);
        let told = told.chain(alone.and_then(Value::as_str));
        let told = told.filter(|kind| ["down", "clear", "halted"].contains(kind));
        for kind in of_it.into_iter().chain(told) {
            let server = server.as_str().unwrap();
            *numbers.entry(format!("{server} {kind}")).or_default() += 1.0;
        }
    }
    numbers
}

/// The same as the lines of the log tell it.
fn to_be_traced(lines: &[Value]) -> Numbers {
    let mut numbers = Numbers::new();
    for (name, count) in by_kind(lines) {
        let (server, kind) = name.split_once(' ').unwrap();
        let kind = match kind {
            "ended" | "attempt-failed" => "over",
            "adopted" | "settled" | "flushed" | "lasted" | "down" | "clear" | "halted" => kind,
            _ => continue,
        };
        *numbers.entry(format!("{server} {kind}")).or_default() += count;
    }
    numbers
}

/// A server that does what a client tells it, one that dies and heals, one that is not there, one that is refused.
fn servers(place: &Place) -> Value {
    let well = place.file("well");
    let dies = format!("--die-after-ms 20 --survive-after {}", well.display());
    json!({
        "steady": faultd("--mcpl --register"),
        "dies": quick(faultd(&dies)),
        "gone": with(json!({ "command": "/no/such/program" }), json!({ "reconnect": false })),
        "wrong": with(faultd(""), json!({ "reconnectIntervalMs": 0 })),
    })
}

/// Waits until there are as many lines as events of each kind, and all the drops that are told; the events.
async fn until_log_and_events_agree(gateway: &Gateway) -> Vec<Value> {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let agree = async {
        loop {
            tick.tick().await;
            let told = events(gateway).await;
            let dropped = told.iter().filter(|event| event["kind"] == "dropped");
            if dropped.count() == 100 && by_kind(&told) == by_kind(&lines(&gateway.log())) {
                return told;
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, agree).await;
    told.unwrap_or_else(|_| panic!("log and events differ:\n{}", gateway.log()))
}

#[tokio::test]
async fn s1_log_events_counters_gauges_spans_and_the_api_tell_the_same_numbers_of_one_run() {
    let log = json!({ "format": "json", "level": "info,tidegate=debug" });
    let receiver = Receiver::start(Manner::Takes).await;
    let mut more = receiver.telemetry();
    more["telemetry"]["log"] = log;
    let place = Place::with(more);
    let servers = servers(&place);
    let mut gateway = place.run(&servers).await;
    let mut stream = gateway.events().await;
    stream.until("steady", "settled").await;
    let mut client = gateway.client("steady").await;
    for n in 0..5 {
        let answer = client.call("echo", json!({ "n": n })).await;
        assert!(answer.error.is_none(), "{answer:?}");
    }
    // Cancels of nothing: each is dropped, and more than are told one by one.
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4711 }
    });
    let messages = vec![cancel; 150];
    client.call("say", json!({ "messages": messages })).await;
    stream.until_times("dies", "short-end", 4).await;
    fs::write(gateway.file("well"), "").unwrap();
    stream.until("dies", "clear").await;
    drop(stream);

    let told = until_log_and_events_agree(&gateway).await;
    let samples = samples(&gateway.get("/metrics").await.1);
    let api: Value = serde_json::from_str(&gateway.get("/api/v1/servers").await.1).unwrap();
    let api = api["servers"].as_array().unwrap().clone();
    assert_eq!(api.len(), 4);
    for server in &api {
        assert_state(server, &samples, &told);
    }
    let calls = "mcp_client_operation_duration_seconds_count{error_type=\"\",mcp_method_name=\"tools/call\",server=\"steady\"}";
    assert_eq!(samples[calls], 6.0);

    // What was left out is told at the end, and then nothing is missing.
    gateway.terminate().await;
    let mut lines = lines(&gateway.log());
    let spans = receiver.spans();
    assert_eq!(traced(&spans), to_be_traced(&lines), "{}", gateway.log());
    let is_call = |span: &&Span| span.kind == CLIENT && span.name.starts_with("tools/call ");
    assert_eq!(spans.iter().filter(is_call).count(), 6);
    lines.retain(|line| line["kind"] == "left-out");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let text = lines[0]["message"].as_str().unwrap();
    assert!(text.starts_with("50 more of dropped unmatched"), "{text}");
    let mut told = told;
    told.push(json!({
        "server": "steady", "kind": "left-out",
        "fields": { "of": "dropped", "what": "unmatched", "messages": 50 },
    }));
    assert_eq!(counted(&told), fed(&samples));
}

/// Waits until it is so; a wait that is too long says what was told.
async fn until(gateway: &Gateway, said: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let so = async {
        while !is_so() {
            tick.tick().await;
        }
    };
    let so = tokio::time::timeout(PATIENCE, so).await;
    so.unwrap_or_else(|_| panic!("{}\n{}", said(), gateway.log()));
}

#[tokio::test]
async fn secrets_of_configuration_environment_urls_stderr_and_errors_are_in_no_output() {
    let receiver = Receiver::start(Manner::Takes).await;
    let hook = Hook::open(&["204 Taken"]).await;
    let refuses = "http://user:planted-hook@127.0.0.1:1/planted-path?key=planted-query";
    let channel = |source| json!({ "server": "bridge", "channelId": source, "source": source });
    let more = json!({
        "statusChannels": [channel("engine"), channel("alertmanager")],
        "webhooks": [{ "url": refuses }, { "url": hook.url }],
        "hosts": [{ "name": "agent", "token": "planted-host" }],
    });
    let place = Place::with(with(more, receiver.telemetry()));
    let heard = place.file("heard");
    let bridge = faultd(&format!("--mcpl --heard {}", heard.display()));
    let leaks = quick(faultd(
        "--stderr-env API_TOKEN --stderr-lines 1 --die-after-ms 20 --api-key planted-arg",
    ));
    let url = "ws://user:planted-user@127.0.0.1:1/mcpl?key=planted-url";
    let servers = json!({
        "bridge": quick(bridge),
        "leaks": with(leaks, json!({ "env": { "API_TOKEN": "planted-env" } })),
        "dials": quick(json!({ "url": url, "token": "planted-token", "headers": { "X-Auth": "planted-header" } })),
        "lost": quick(json!({ "command": "/no/such/planted", "args": ["--password=planted-password"] })),
    });
    let mut gateway = place.run(&servers).await;
    let posts = || fs::read_to_string(&heard).unwrap_or_default();
    let said = || posts() + &hook.contents().join("\n");
    let told = |text: &str| {
        let of = |server: &str| text.contains(&format!("] {server}: "));
        ["leaks", "dials", "lost"].into_iter().all(of)
    };
    until(&gateway, said, || {
        told(&posts()) && told(&hook.contents().join("\n"))
    })
    .await;
    // An operator's template tells what a server said.
    let tells = |server: &Value| server["reason"].is_string();
    let reason = gateway.until_server("leaks", tells).await["reason"].take();
    let alert = json!({
        "status": "firing", "labels": { "alertname": "Leaks" }, "startsAt": "2027-01-15T12:00:00Z",
        "annotations": { "summary": reason },
    });
    let alerts = json!({ "version": "4", "alerts": [alert] }).to_string();
    let path = "/api/v1/webhooks/alertmanager";
    assert_eq!(gateway.send(path, &alerts).await.0, 200);
    until(&gateway, said, || posts().contains("firing: ")).await;
    let mut shown = gateway.log() + &said();
    for path in [
        "/metrics",
        "/api/v1/servers",
        "/api/v1/episodes",
        "/api/v1/config",
        "/",
    ] {
        shown += &gateway.get(path).await.1;
    }
    shown += &json!(events(&gateway).await).to_string();
    gateway.terminate().await;
    let spans = receiver.spans();
    assert!(spans.len() > 3, "{spans:?}");
    shown.extend(spans.iter().map(|span| span.whole.as_str()));
    assert!(shown.contains("[secret]"), "something was there to hide");
    // The webhook that takes them has words of its own in its URL.
    let found = ["planted-", "hush-", "hook-secret"].map(|secret| {
        let all = shown.match_indices(secret);
        all.map(|(at, _)| shown.get(at.saturating_sub(80)..at + 40))
            .collect::<Vec<_>>()
    });
    let found = found.concat();
    assert!(found.is_empty(), "{found:#?}");
}
