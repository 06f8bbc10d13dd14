//! The text of `/metrics`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::engine::decision::{Decision, DropReason, State};
use tidegate::ids::Epoch;
use tidegate::observe::{Observer, ServerObserver};

use crate::samples::{called, clear, down, every_decision, open, seconds, server, waiting};

fn chat(observer: &Observer) -> ServerObserver {
    observer.server(&server("chat"), "stdio", "auto")
}

/// Sample lines by what stands before the value.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn of_server(text: &str, name: &str) -> usize {
    let label = format!("server=\"{name}\"");
    series(text)
        .keys()
        .filter(|key| key.contains(&label))
        .count()
}

fn scrape(observer: &Observer) -> BTreeMap<String, f64> {
    series(&observer.metrics(&[]))
}

fn wall() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs_f64()
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 5.0
}

#[test]
fn a_server_has_at_most_120_series_from_the_start_and_40_on_first_use() {
    for transport in ["stdio", "websocket", "http", "none"] {
        let observer = Observer::new("gw-1");
        let observed = observer.server(&server("chat"), transport, "auto");
        let fixed = of_server(&observer.metrics(&[]), "chat");
        assert!((100..=120).contains(&fixed), "{transport}: {fixed}");
        if transport == "stdio" {
            for decision in every_decision() {
                observed.decided(Some(Epoch(1)), &decision);
            }
            let used = of_server(&observer.metrics(&[]), "chat") - fixed;
            assert!((1..=40).contains(&used), "{used}");
        }
    }
}

#[test]
fn every_metric_of_the_contract_is_there_from_the_start() {
    let observer = Observer::new("gw-1");
    let _chat = chat(&observer);
    let _search = observer.server(&server("search"), "http", "auto");
    let text = observer.metrics(&[]);
    for name in include_str!("metric-names.txt").lines() {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
    }
    for (name, value) in series(&text) {
        let constant = ["process_", "tidegate_build_info", "tidegate_server_info"];
        let known = constant.iter().any(|start| name.starts_with(start));
        let disabled = name.contains("state=\"disabled\"");
        assert!(known || disabled || value == 0.0, "{name} {value}");
    }
}

#[test]
fn promtool_has_nothing_to_say_against_the_metrics() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    for decision in every_decision() {
        observed.decided(Some(Epoch(1)), &decision);
    }
    let text = observer.metrics(&[(server("chat"), waiting())]);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is in the Debian package `prometheus`: run `make test`");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn s1_gauges_say_what_the_snapshot_says() {
    let observer = Observer::new("gw-1");
    let _chat = chat(&observer);
    let now = wall();
    let all = series(&observer.metrics(&[(server("chat"), waiting())]));
    let of = |name: &str, labels: &str| all[&format!("tidegate_{name}{{{labels}server=\"chat\"}}")];
    let plain = |name: &str| of(name, "");
    assert_eq!(plain("server_connected"), 0.0);
    assert_eq!(plain("server_failed_attempts"), 7.0);
    assert_eq!(plain("server_failed_attempts_since_unwanted"), 3.0);
    assert_eq!(plain("server_down_after_attempts"), 5.0);
    assert_eq!(plain("server_lasting_threshold_seconds"), 300.0);
    assert_eq!(plain("server_down"), 1.0);
    assert_eq!(plain("server_backoff_seconds"), 80.0);
    assert_eq!(plain("server_kept_bytes"), 512.0);
    assert_eq!(plain("server_kept_oldest_age_seconds"), 40.0);
    assert_eq!(plain("requests_in_flight"), 4.0);
    assert_eq!(of("server_kept_messages", "kind=\"request\","), 3.0);
    assert_eq!(
        of("server_kept_messages_limit", "kind=\"notification\","),
        1000.0
    );
    assert_eq!(of("server_holds", "hold=\"no-host\","), 1.0);
    assert_eq!(of("server_holds", "hold=\"pause\","), 0.0);
    assert!(near(
        plain("server_next_attempt_timestamp_seconds"),
        now + 30.0
    ));
    assert!(near(
        plain("server_down_since_timestamp_seconds"),
        now - 100.0
    ));
    assert!(near(
        plain("server_lasted_timestamp_seconds"),
        now - 5_000.0
    ));
    assert!(near(
        plain("server_last_healthy_timestamp_seconds"),
        now - 110.0
    ));
}

#[test]
fn exactly_one_state_is_1_whatever_the_state() {
    let observer = Observer::new("gw-1");
    let _chat = chat(&observer);
    for snapshot in [None, Some(waiting()), Some(open())] {
        let state = snapshot.as_ref().map_or(State::Disabled, |s| s.state);
        let snapshots: Vec<_> = snapshot.map(|s| (server("chat"), s)).into_iter().collect();
        let all = series(&observer.metrics(&snapshots));
        let on: Vec<_> = all
            .iter()
            .filter(|(name, value)| name.starts_with("tidegate_server_state") && **value == 1.0)
            .map(|(name, _)| name.as_str())
            .collect();
        let label = state.label();
        let expected = format!("tidegate_server_state{{server=\"chat\",state=\"{label}\"}}");
        assert_eq!(on, [expected]);
    }
}

#[test]
fn s7_the_instants_that_alerts_compare_do_not_move_between_scrapes() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    let lasted = "tidegate_server_lasted_timestamp_seconds{server=\"chat\"}";
    let since = "tidegate_server_down_since_timestamp_seconds{server=\"chat\"}";
    let unwanted = "tidegate_server_unwanted_timestamp_seconds{server=\"chat\"}";
    let stuck = "tidegate_server_stuck_timestamp_seconds{server=\"chat\"}";
    let scrape = |late: Duration| {
        let mut snapshot = (*waiting()).clone();
        snapshot.since_lasted = snapshot.since_lasted.map(|since| since + late);
        snapshot.since_unwanted = snapshot.since_unwanted.map(|since| since + late);
        let all = series(&observer.metrics(&[(server("chat"), snapshot.into())]));
        (all[lasted], all[since], all[unwanted], all[stuck])
    };
    let first = scrape(Duration::ZERO);
    assert_eq!(scrape(seconds(30)), first);
    observed.decided(
        Some(Epoch(9)),
        &Decision::Lasted {
            lived: seconds(300),
        },
    );
    let moved = scrape(Duration::ZERO);
    assert!(near(moved.0, wall()), "{moved:?}");
    assert_eq!((moved.2, moved.3), (first.2, 0.0));
    for state in [State::Auth, State::Halted, State::Refused] {
        observed.decided(None, &Decision::State(State::Disabled));
        observed.decided(None, &Decision::State(state));
        let (_, _, unwanted, stuck) = scrape(Duration::ZERO);
        assert!(near(unwanted, wall()) && stuck >= unwanted, "{state:?}");
    }
    observed.decided(None, &Decision::State(State::Ended));
    let (_, _, unwanted, stuck) = scrape(Duration::ZERO);
    assert!(unwanted > stuck, "{unwanted} {stuck}");
}

#[test]
fn s3_s4_each_edge_is_counted_once_and_the_instant_of_down_goes_with_the_episode() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    observed.decided(Some(Epoch(5)), &down());
    observed.decided(Some(Epoch(9)), &clear());
    let all = series(&observer.metrics(&[(server("chat"), Default::default())]));
    for edge in ["down", "clear"] {
        let name = format!("tidegate_server_episodes_total{{edge=\"{edge}\",server=\"chat\"}}");
        assert_eq!(all[&name], 1.0);
    }
    assert_eq!(
        all["tidegate_server_down_since_timestamp_seconds{server=\"chat\"}"],
        0.0
    );
}

#[test]
fn calls_are_timed_by_method_and_error_without_a_label_from_a_peer() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    observed.decided(None, &called("tools/call", None));
    observed.decided(None, &called("tools/call", Some("lost")));
    observed.decided(None, &called("made/up", Some("987654")));
    let all = scrape(&observer);
    let client = |error: &str, method: &str| {
        let labels = format!("error_type=\"{error}\",mcp_method_name=\"{method}\"");
        all[&format!("mcp_client_operation_duration_seconds_sum{{{labels},server=\"chat\"}}")]
    };
    assert_eq!(client("", "tools/call"), 2.0);
    assert_eq!(client("error", "tools/call"), 2.0);
    assert_eq!(client("error", "other"), 2.0);
    let gateway = |error: &str, method: &str| {
        let labels = format!("error_type=\"{error}\",mcp_method_name=\"{method}\"");
        all[&format!("mcp_server_operation_duration_seconds_count{{{labels}}}")]
    };
    assert_eq!(gateway("lost", "tools/call"), 1.0);
    assert_eq!(gateway("_OTHER", "other"), 1.0);
}

#[test]
fn a_forgotten_server_has_no_series_and_can_come_back_from_zero() {
    let observer = Observer::new("gw-1");
    chat(&observer).decided(None, &down());
    let _other = observer.server(&server("other"), "websocket", "auto");
    observer.forget(&server("chat"));
    let text = observer.metrics(&[(server("chat"), waiting())]);
    assert_eq!(of_server(&text, "chat"), 0);
    assert!(of_server(&text, "other") > 100);
    let _back = chat(&observer);
    let all = scrape(&observer);
    assert_eq!(
        all["tidegate_server_episodes_total{edge=\"down\",server=\"chat\"}"],
        0.0
    );
}

#[test]
fn a_server_that_is_configured_again_keeps_its_counts_and_has_one_info() {
    let observer = Observer::new("gw-1");
    chat(&observer).decided(None, &down());
    let _again = observer.server(&server("chat"), "websocket", "2025-06-18");
    let all = scrape(&observer);
    assert_eq!(
        all["tidegate_server_episodes_total{edge=\"down\",server=\"chat\"}"],
        1.0
    );
    let infos: Vec<_> = all
        .keys()
        .filter(|key| key.contains("server_info"))
        .collect();
    let expected =
        "tidegate_server_info{protocol=\"2025-06-18\",server=\"chat\",transport=\"websocket\"}";
    assert_eq!(infos, [expected]);
}

#[test]
fn the_gateway_counts_its_own_affairs() {
    let observer = Observer::new("gw-1");
    observer.session_opened("websocket");
    observer.session_opened("websocket");
    observer.session_closed("websocket");
    observer.reloaded(true);
    assert!(!observer.is_stale());
    observer.reloaded(false);
    assert!(observer.is_stale());
    observer.loop_lag(Duration::from_millis(3));
    observer.journal_failing(true);
    let all = scrape(&observer);
    assert_eq!(all["tidegate_host_sessions{face=\"websocket\"}"], 1.0);
    assert_eq!(
        all["tidegate_host_sessions_opened_total{face=\"websocket\"}"],
        2.0
    );
    assert_eq!(all["tidegate_config_last_reload_successful"], 0.0);
    assert!(near(
        all["tidegate_config_last_reload_success_timestamp_seconds"],
        wall()
    ));
    assert_eq!(
        all["tidegate_config_reloads_total{outcome=\"failure\"}"],
        1.0
    );
    assert_eq!(all["tidegate_loop_lag_seconds_count"], 1.0);
    assert_eq!(all["tidegate_journal_failing"], 1.0);
}

#[test]
fn what_runs_is_told_with_its_commit_and_its_compiler() {
    let all = scrape(&Observer::new("gw-1"));
    let mut infos = all.keys().filter(|key| key.contains("build_info"));
    let info = infos.next().unwrap();
    let label = |name: &str| {
        let (_, rest) = info.split_once(&format!("{name}=\"")).unwrap();
        rest.split_once('"').unwrap().0
    };
    assert!(label("rustc").starts_with("1."), "{info}");
    // A source archive has no commit to tell.
    let revision = label("revision");
    let is_commit = revision.len() >= 12 && revision.chars().all(|c| c.is_ascii_hexdigit());
    let is_checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists();
    assert!(is_commit || !is_checkout, "{info}");
}

#[test]
fn s1_traffic_is_counted_and_never_streamed() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    for decision in every_decision() {
        observed.decided(Some(Epoch(1)), &decision);
    }
    let events = observer.events().recent();
    assert!(
        events
            .iter()
            .all(|event| !["carried", "called"].contains(&event.kind))
    );
    let streamed = every_decision().iter().filter(|d| !d.is_traffic()).count();
    assert_eq!(events.len(), streamed);
    let all = scrape(&observer);
    let name =
        "tidegate_server_messages_total{class=\"request\",direction=\"to_server\",server=\"chat\"}";
    assert_eq!(all[name], 1.0);
}

#[test]
fn s1_a_flood_is_counted_whole_and_told_in_part_with_how_much_was_left_out() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    let dropped = Decision::Dropped {
        reason: DropReason::Unmatched,
        method: "notifications/cancelled".into(),
        count: 2,
    };
    for _ in 0..1_000 {
        observed.decided(Some(Epoch(1)), &dropped);
    }
    observed.decided(Some(Epoch(1)), &down());
    let told = |kind: &str| {
        let events = observer.events().recent();
        events.iter().filter(|event| event.kind == kind).count()
    };
    assert_eq!(
        (told("dropped"), told("down"), told("left-out")),
        (100, 1, 0)
    );
    observer.tell_left_out(Some(Instant::now()));
    assert_eq!(told("left-out"), 0, "the minute is not over");
    observer.tell_left_out(None);
    observer.tell_left_out(None);
    assert_eq!(told("left-out"), 1);
    let last = observer.events().recent().pop().unwrap();
    let left: serde_json::Value = serde_json::from_str(&last.json).unwrap();
    let fields = serde_json::json!(
        { "of": "dropped", "what": "unmatched", "decisions": 900, "messages": 1800 }
    );
    assert_eq!(
        (&left["fields"], &left["server"]),
        (&fields, &"chat".into())
    );
    let documented = include_str!("../../docs/api.md");
    for name in ["left-out", "of", "what", "decisions", "messages"] {
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
    let series = "tidegate_server_messages_dropped_total{reason=\"unmatched\",server=\"chat\"}";
    assert_eq!(scrape(&observer)[series], 2_000.0);
}

#[test]
fn every_kind_of_event_and_its_fields_are_in_the_documentation() {
    let observer = Observer::new("gw-1");
    let observed = chat(&observer);
    for decision in every_decision() {
        observed.decided(Some(Epoch(1)), &decision);
    }
    let documented = include_str!("../../docs/api.md");
    let (_, documented) = documented.split_once("| kind |").unwrap();
    let rows: Vec<_> = documented
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for event in observer.events().recent() {
        let name = format!("`{}`", event.kind);
        let row = rows
            .iter()
            .find(|row| row.split('|').nth(1).unwrap().contains(&name));
        let row = row.unwrap_or_else(|| panic!("{name}"));
        let json: serde_json::Value = serde_json::from_str(&event.json).unwrap();
        for field in json["fields"].as_object().unwrap().keys() {
            assert!(row.contains(&format!("`{field}`")), "{name} {field}");
        }
    }
}
