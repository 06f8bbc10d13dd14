//! What a guard keeps apart that seldom meets: epochs whose servers use the same ids, sessions that went in the middle,
//! channels that are judged twice. Test code only; `make mutants` found each of these guards unwatched.

use std::time::Duration;

use bytes::Bytes;

use super::rig::{ALL, CHAT, REGISTER, Rig, accepted, field, incoming, push, register, request};
use crate::engine::answers::{Asker, Call, Calls, Own};
use crate::engine::decision::{Decision, Hold};
use crate::engine::input::HostEvent;
use crate::engine::settings::{Bounds, Mask, Settings};
use crate::engine::timers::Timer;
use crate::ids::Epoch;
use crate::wire::jsonrpc::code;

const PLAIN: &str = r#"{"capabilities":{"resources":{"subscribe":true}}}"#;
const LOGS: &str =
    r#"{"capabilities":{"logging":{},"experimental":{"mcpl":{"version":"0.5","tools":true}}}}"#;
const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;

fn served() -> Rig {
    let mut rig = Rig::new();
    rig.mcpl_host(1);
    rig.settled();
    rig.take_sent();
    rig
}

fn pause(rig: &mut Rig, on: bool) {
    rig.run(|traffic, at, out| traffic.pause(on, at, out));
}

fn methods(lines: &[String]) -> Vec<String> {
    let name = |line: &String| {
        field(line, "method")
            .as_str()
            .unwrap_or("answer")
            .to_owned()
    };
    lines.iter().map(name).collect()
}

#[test]
fn a1_a_kept_message_that_is_a_repetition_is_answered_on_no_other_transport() {
    let mut rig = served();
    rig.server(&push(7));
    let asked = rig.take_answers(1);
    rig.host(1, &accepted(&asked[0]));
    pause(&mut rig, true);
    rig.server(&push(7));
    rig.take_sent();
    rig.lose();
    rig.settled();
    rig.take_sent();
    pause(&mut rig, false);
    assert!(rig.take_sent().is_empty() && rig.take_answers(1).is_empty());
    assert_eq!(rig.waiting(), [0; 4]);
}

#[test]
fn a1_a2_progress_of_a_host_goes_under_the_servers_token_to_the_epoch_that_chose_it() {
    let mut rig = served();
    rig.server(&request(
        5,
        "push/event",
        r#"{"_meta":{"progressToken":"t"}}"#,
    ));
    let asked = rig.take_answers(1);
    let ours = field(&asked[0], "id");
    assert_eq!(field(&asked[0], "params._meta.progressToken"), ours);
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{ours},"progress":1}}}}"#
    );
    rig.host(1, &progress);
    assert_eq!(field(&rig.take_sent()[0], "params.progressToken"), "t");
    rig.lose();
    rig.settled();
    rig.take_sent();
    rig.host(1, &progress);
    assert!(rig.take_sent().is_empty());
    assert_eq!(rig.dropped("unmatched"), 1);
}

#[test]
fn a1_a_cancel_of_the_next_process_is_not_of_what_the_last_one_asked() {
    let mut rig = served();
    rig.server(&push(5));
    rig.take_answers(1);
    rig.lose();
    rig.settled();
    rig.server(CANCEL);
    assert!(rig.take_answers(1).is_empty());
    assert_eq!(rig.dropped("unmatched"), 1);
}

#[test]
fn g5_a_host_is_told_that_nobody_waits_for_what_a_lost_process_asked() {
    let mut rig = served();
    rig.server(&push(4));
    rig.server(&request(5, "inference/request", "{}"));
    let asked = rig.take_answers(1);
    rig.lose();
    let told = rig.take_answers(1);
    assert_eq!(methods(&told), ["notifications/cancelled"]);
    assert_eq!(field(&told[0], "params.requestId"), field(&asked[1], "id"));
    rig.host(1, &accepted(&asked[1]));
    assert_eq!(rig.dropped("unmatched"), 1);
}

fn call(id: u64) -> String {
    request(id, "tools/call", "{}")
}

#[test]
fn a1_what_another_epoch_could_not_be_sent_ends_no_call() {
    let mut rig = served();
    rig.client(2, "{}");
    rig.host(2, &call(1));
    let sent = rig.take_sent();
    let ours = field(&sent[0], "id").as_u64();
    rig.run(|traffic, at, out| traffic.unsent(Epoch(9), ours, Bytes::new(), at, out));
    assert!(rig.take_answers(2).is_empty());
    assert_eq!(rig.dropped("unsent"), 1);
}

#[test]
fn a2_of_two_requests_under_one_id_the_newer_is_cancelled() {
    let mut rig = served();
    rig.client(2, "{}");
    for _ in 0..2 {
        rig.host(2, &call(5));
        rig.server(&request(5, "inference/request", "{}"));
    }
    let (calls, asked) = (rig.take_sent(), rig.take_answers(1));
    rig.host(2, CANCEL);
    let sent = rig.take_sent();
    assert_eq!(field(&sent[0], "params.requestId"), field(&calls[1], "id"));
    let cancelled = |decision: &Decision| matches!(decision, Decision::Called { error: Some(why), .. } if why == "cancelled");
    assert!(rig.decisions.iter().any(cancelled));
    rig.server(CANCEL);
    let told = rig.take_answers(1);
    assert_eq!(field(&told[0], "params.requestId"), field(&asked[1], "id"));
}

#[test]
fn a5_of_calls_that_timed_out_the_last_four_thousand_are_remembered() {
    let mut calls = Calls::default();
    let now = Rig::new().now;
    for _ in 0..=4_096 {
        let asker = Asker::Own(Own::List);
        let id = calls.open(Call::new(
            asker,
            "x",
            now,
            Timer::OwnRequest,
            Duration::ZERO,
        ));
        calls.abandon(id);
    }
    assert_eq!(calls.take_overdue(1), None);
    assert!(calls.take_overdue(2).is_some());
}

#[test]
fn g15_what_hosts_set_up_waits_for_the_exchange_and_is_told_once() {
    let mut rig = Rig::new();
    rig.client(2, "{}");
    rig.adopt(LOGS);
    rig.host(2, &request(1, "logging/setLevel", r#"{"level":"info"}"#));
    let sent = rig.take_sent();
    assert_eq!(methods(&sent), ["featureSets/update"]);
    let id = field(&sent[0], "id");
    rig.server(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#
    ));
    assert_eq!(methods(&rig.take_sent()), ["logging/setLevel"]);
}

#[test]
fn g15_a_subscription_is_not_taken_back_by_an_answer_of_another_epoch() {
    let mut rig = Rig::new();
    rig.adopt(PLAIN);
    rig.client(2, "{}");
    rig.host(2, &call(1));
    rig.host(2, &request(2, "resources/subscribe", r#"{"uri":"a"}"#));
    let stale = field(rig.take_sent().last().unwrap(), "id");
    rig.lose();
    rig.adopt(PLAIN);
    rig.host(2, &call(3));
    let fails = field(rig.take_sent().last().unwrap(), "id");
    assert_eq!(fails, stale);
    rig.server(&format!(
        r#"{{"jsonrpc":"2.0","id":{fails},"error":{{"code":-1,"message":"m"}}}}"#
    ));
    rig.lose();
    rig.adopt(PLAIN);
    assert!(methods(&rig.take_sent()).contains(&"resources/subscribe".to_owned()));
}

#[test]
fn g13_what_a_host_went_with_is_dropped_where_its_connection_is_closed_for_good() {
    let mut rig = served();
    rig.server(&push(1));
    rig.lose_with(true);
    rig.event(1, HostEvent::Detached);
    assert_eq!(rig.waiting(), [0; 4]);
    assert_eq!(rig.dropped("closed_for_good"), 1);
}

/// A channel is registered and a host serves that has not judged its replay.
fn replayed() -> Rig {
    let mut rig = Rig::new();
    rig.settled();
    rig.server(REGISTER);
    rig.mcpl_host(1);
    rig.take_sent();
    rig
}

#[test]
fn g13_the_replay_to_a_host_that_went_is_not_waited_for() {
    let mut rig = replayed();
    rig.server(&push(1));
    rig.event(1, HostEvent::Detached);
    rig.mcpl_host(2);
    assert!(rig.take_answers(2).is_empty());
    rig.host(2, r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
    assert_eq!(methods(&rig.take_answers(2)), ["push/event"]);
}

#[test]
fn g13_the_replay_of_a_lost_epoch_is_not_waited_for() {
    let mut rig = replayed();
    rig.lose();
    rig.settled();
    rig.take_answers(1);
    rig.server(&push(1));
    assert_eq!(methods(&rig.take_answers(1)), ["push/event"]);
}

#[test]
fn g3_a_registration_of_which_nothing_is_left_is_put_to_no_host() {
    let mask = Mask {
        channels: Some(vec!["other*".into()]),
        ..Mask::default()
    };
    let mut rig = Rig::with(Settings {
        mask,
        ..Settings::default()
    });
    rig.mcpl_host(1);
    rig.settled();
    rig.take_sent();
    rig.server(REGISTER);
    assert!(rig.take_answers(1).is_empty());
    let answer = rig.take_sent();
    assert_eq!(field(&answer[0], "result.results.0.accepted"), false);
}

#[test]
fn g3_a_registration_that_the_gateway_judged_is_not_answered_again_when_its_host_goes() {
    let mut rig = served();
    rig.server(REGISTER);
    rig.wait(Duration::from_secs(5));
    assert_eq!(rig.take_sent().len(), 1);
    rig.event(1, HostEvent::Detached);
    assert!(rig.take_sent().is_empty());
}

#[test]
fn g3_a_channel_that_a_host_no_longer_takes_is_none() {
    let mut rig = served();
    for verdict in ["true", "false"] {
        rig.server(REGISTER);
        let asked = rig.take_answers(1);
        let id = field(&asked[0], "id");
        rig.host(
            1,
            &format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"results":[{{"id":"chat:1","accepted":{verdict}}}]}}}}"#
            ),
        );
    }
    assert_eq!(rig.traffic.channels.len(), 0);
}

#[test]
fn g3_a_removal_of_what_is_not_registered_is_refused() {
    let mut rig = Rig::new();
    rig.settled();
    rig.take_sent();
    rig.server(&request(1, "channels/changed", r#"{"removed":["x"]}"#));
    let answer = rig.take_sent();
    assert_eq!(field(&answer[0], "result.results.0.accepted"), false);
}

/// Registered, used and removed while a host judges the registration; then what else the server says.
fn removed_while_judged(more: &[&str]) -> Rig {
    let mut rig = served();
    rig.server(REGISTER);
    rig.server(&incoming(1, "chat:1"));
    rig.server(
        r#"{"jsonrpc":"2.0","method":"channels/changed","params":{"removed":["chat:1","chat:2"]}}"#,
    );
    more.iter().for_each(|line| rig.server(line));
    rig
}

/// The host accepts each registration that it was asked about; what it was told then.
fn accept_registrations(rig: &mut Rig) -> Vec<String> {
    let mut told = rig.take_answers(1);
    told.retain(|line| line.contains("channels/register"));
    for registration in told {
        rig.host(1, &accepted(&registration));
    }
    methods(&rig.take_answers(1))
}

#[test]
fn g9_a_removal_does_not_overtake_the_registration_that_a_host_judges() {
    let mut rig = removed_while_judged(&[]);
    assert_eq!(accept_registrations(&mut rig), ["channels/incoming"]);
    assert_eq!(rig.traffic.channels.len(), 0);
}

#[test]
fn g9_a_channel_that_is_registered_again_after_its_removal_stays() {
    let added =
        r#"{"jsonrpc":"2.0","method":"channels/changed","params":{"added":[{"id":"chat:1"}]}}"#;
    for again in [REGISTER, added] {
        let mut rig = removed_while_judged(&[again]);
        accept_registrations(&mut rig);
        assert_eq!(rig.traffic.channels.len(), 1, "{again}");
    }
}

#[test]
fn g16_what_a_host_is_asked_about_channels_is_bounded() {
    let mut settings = Settings::default();
    settings.bounds.in_flight = 2_000;
    let mut rig = Rig::with(settings);
    rig.mcpl_host(1);
    rig.settled();
    rig.take_sent();
    (0..2_000).for_each(|n| rig.server(&register(&format!("c{n}"))));
    assert!(rig.take_sent().is_empty(), "the host judges them");
    rig.server(REGISTER);
    rig.server(&request(1, "channels/list", "{}"));
    let answers = rig.take_sent();
    assert_eq!(field(&answers[0], "error.code"), code::BUSY);
    let none = serde_json::json!([]);
    assert_eq!(
        field(&answers[1], "result.channels"),
        none,
        "by the gateway"
    );
    let asked = methods(&rig.take_answers(1));
    let asked = asked.iter().filter(|one| *one == "channels/register");
    assert_eq!(asked.count(), 2_000);
}

#[test]
fn g9_the_registration_of_the_new_epoch_goes_ahead_of_a_kept_event() {
    let mut rig = Rig::new();
    rig.mcpl_host(1);
    rig.adopt(CHAT);
    rig.server(&push(1));
    rig.take_sent();
    rig.lose();
    rig.adopt(CHAT);
    rig.server(REGISTER);
    rig.accept();
    let told = methods(&rig.take_answers(1));
    assert_eq!(told, ["channels/register", "push/event"]);
}

#[test]
fn g13_a_session_that_another_replaces_leaves_it_what_it_had_not_answered() {
    let mut rig = Rig::new();
    rig.settled();
    for session in [1, 2] {
        let name = Some("agent".into());
        rig.event(session, HostEvent::Attached { name });
        let params =
            r#"{"protocolVersion":"2025-06-18","capabilities":{"experimental":{"mcpl":{}}}}"#;
        rig.host(session, &request(0, "initialize", params));
        rig.host(
            session,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        rig.wait(Duration::from_secs(15));
        rig.server(&push(1));
        let told = rig.take_answers(session);
        assert!(
            methods(&told).contains(&"push/event".to_owned()),
            "{told:?}"
        );
        rig.take_sent();
    }
    assert_eq!(rig.take_dismissed(), [(1, 4408)]);
    assert_eq!(rig.traffic.hosts.len(), 1);
}

fn update(rig: &mut Rig, id: u64, params: &str) {
    rig.host(1, &request(id, "featureSets/update", params));
}

fn told(rig: &Rig, decision: &Decision) -> usize {
    rig.decisions.iter().filter(|one| *one == decision).count()
}

#[test]
fn p1_the_same_update_again_is_neither_recorded_nor_told_again() {
    let mut rig = served();
    rig.take_records();
    for id in [1, 2] {
        update(&mut rig, id, r#"{"effectiveCapabilities":["pushEvents"]}"#);
        if id == 1 {
            rig.accept();
        }
    }
    assert_eq!(rig.take_answers(1).len(), 2);
    assert_eq!(rig.take_records().len(), 1);
    let serves = |decision: &&Decision| matches!(decision, Decision::HostServes { .. });
    assert_eq!(rig.decisions.iter().filter(serves).count(), 1);
}

#[test]
fn p1_an_update_is_answered_when_its_transport_goes_and_past_the_bound_at_once() {
    let mut rig = served();
    for id in 0..17 {
        let paths = if id % 2 == 0 { "pushEvents" } else { "tools" };
        let params = format!(r#"{{"effectiveCapabilities":["{paths}"]}}"#);
        update(&mut rig, id, &params);
    }
    assert_eq!(field(&rig.take_answers(1)[0], "id"), 16);
    rig.lose();
    assert_eq!(rig.take_answers(1).len(), 16);
}

#[test]
fn p1_a_call_that_is_over_gives_its_caller_no_requests_of_the_server() {
    let mut rig = Rig::new();
    rig.settled();
    rig.client(2, r#"{"sampling":{}}"#);
    rig.client(3, r#"{"sampling":{}}"#);
    rig.take_sent();
    rig.host(3, &call(1));
    let id = field(&rig.take_sent()[0], "id");
    rig.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    rig.take_answers(3);
    rig.server(&request(1, "sampling/createMessage", "{}"));
    assert_eq!(rig.take_answers(2).len(), 1);
}

#[test]
fn g16_requests_in_flight_to_hosts_are_bounded() {
    let mut rig = Rig::with(Settings {
        bounds: Bounds {
            in_flight: 1,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    rig.mcpl_host(1);
    rig.adopt(CHAT);
    rig.accept();
    for id in [1, 2] {
        rig.server(&request(id, "inference/request", "{}"));
    }
    assert_eq!(rig.take_answers(1).len(), 1);
    let refused = rig.take_sent().pop().unwrap();
    assert_eq!(field(&refused, "id"), 2);
}

#[test]
fn p3_a_receipt_does_not_enable_what_was_disabled_meanwhile() {
    let mut rig = Rig::new();
    rig.mcpl_host(1);
    rig.adopt(ALL);
    let first = field(&rig.take_sent()[0], "id");
    let params = r#"{"effectiveCapabilities":["pushEvents"],"disabled":["chat"]}"#;
    update(&mut rig, 1, params);
    rig.server(&format!(
        r#"{{"jsonrpc":"2.0","id":{first},"result":{{"accepted":true}}}}"#
    ));
    assert_eq!(rig.traffic.policy.feature_set("chat"), Some(false));
}

#[test]
fn p4_a_later_refusal_takes_away_what_was_granted() {
    let mut rig = served();
    update(&mut rig, 1, r#"{"effectiveCapabilities":["pushEvents"]}"#);
    rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
    assert!(rig.traffic.policy.granted().is_empty());
}

#[test]
fn p7_an_error_that_is_not_of_an_unknown_method_grants_nothing_whatever_the_operator_says() {
    let mut rig = Rig::with(Settings {
        grant_without_receipt: true,
        ..Settings::default()
    });
    rig.adopt(CHAT);
    let id = field(&rig.take_sent()[0], "id");
    rig.server(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"m"}}}}"#
    ));
    assert!(rig.traffic.policy.granted().is_empty());
}

/// The server announces a change, and answers the fetch with that.
fn change(rig: &mut Rig, domain: &str, answer: &str) {
    rig.wait(Duration::from_secs(5));
    rig.take_sent();
    let params = format!(r#"{{"domains":["{domain}"]}}"#);
    rig.server(&request(9, "mcpl/manifestChanged", &params));
    let sent = rig.take_sent();
    assert_eq!(field(&sent[0], "result"), serde_json::json!({}));
    assert_eq!(methods(&sent), ["answer", "mcpl/manifest"]);
    let id = field(&sent[1], "id");
    rig.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#));
}

const MORE: &str =
    r#""result":{"version":"0.5","pushEvents":true,"modelInfo":true,"channels":true}"#;

#[test]
fn p8_a_manifest_that_overtakes_another_names_the_domains_of_both() {
    let mut rig = served();
    change(&mut rig, "capabilities", MORE);
    change(
        &mut rig,
        "tagOntology",
        r#""result":{"version":"0.5","modelInfo":true}"#,
    );
    rig.wait(Duration::from_secs(60));
    let named = rig.decisions.iter().find_map(|decision| {
        let Decision::Manifest { domains, .. } = decision else {
            return None;
        };
        Some(domains.len())
    });
    assert_eq!(named, Some(2));
}

#[test]
fn p8_a_manifest_that_waits_for_its_receipt_ends_with_its_transport() {
    let mut rig = served();
    change(&mut rig, "capabilities", MORE);
    rig.take_sent();
    rig.lose();
    rig.adopt(CHAT);
    assert!(!rig.take_sent()[0].contains("modelInfo"));
}

#[test]
fn p8_after_a_fetch_that_failed_the_next_announcement_is_fetched() {
    let mut rig = served();
    let fails = r#""error":{"code":-1,"message":"m"}"#;
    change(&mut rig, "capabilities", fails);
    change(&mut rig, "capabilities", fails);
}

#[test]
fn a6_hosts_are_told_that_the_mask_over_tools_changed() {
    let mut rig = Rig::without(&[]);
    rig.take_answers(1);
    rig.mask(&["pushEvents"]);
    let told = methods(&rig.take_answers(1));
    assert!(
        told.contains(&"notifications/tools/list_changed".to_owned()),
        "{told:?}"
    );
}

#[test]
fn g2_g3_a_loss_closes_the_planes_and_ends_a_refresh_of_the_lists() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let mut rig = served();
    rig.server(changed);
    assert!(rig.traffic.gate.is_held(Hold::ListRefresh));
    rig.lose();
    assert_eq!(rig.traffic.gate.holds(), [Hold::Policy]);
}

#[test]
fn g3_a_server_without_mcpl_is_held_for_nothing() {
    let mut rig = Rig::new();
    rig.settled();
    assert!(rig.traffic.gate.is_held(Hold::NoHost));
    rig.take_sent();
    rig.lose();
    rig.adopt(r#"{"capabilities":{"tools":{}}}"#);
    rig.client(2, "{}");
    rig.event(2, HostEvent::Detached);
    rig.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert!(rig.traffic.gate.holds().is_empty());
}

#[test]
fn g3_a_pause_is_told_once_and_its_end_not_as_an_opening_where_no_host_serves() {
    let mut rig = Rig::new();
    rig.settled();
    pause(&mut rig, true);
    pause(&mut rig, true);
    pause(&mut rig, false);
    assert_eq!(told(&rig, &Decision::Paused(true)), 1);
    let lifted = |decision: &Decision| {
        let Decision::HoldLifted { hold, .. } = decision else {
            return false;
        };
        *hold == Hold::Pause
    };
    assert!(!rig.decisions.iter().any(lifted));
}

#[test]
fn g5_channels_end_with_the_process_that_registered_them() {
    let mut rig = Rig::new();
    rig.settled();
    rig.server(REGISTER);
    rig.mcpl_host(1);
    rig.take_sent();
    rig.lose();
    rig.settled();
    rig.take_answers(1);
    rig.server(&incoming(1, "chat:1"));
    assert!(rig.take_answers(1).is_empty());
}

#[test]
fn g6_a_changed_age_holds_for_what_is_kept_from_then_on() {
    let mut rig = Rig::new();
    let settings = Settings {
        kept_max_age: Duration::from_secs(10),
        ..Settings::default()
    };
    rig.run(|traffic, at, out| traffic.configure(settings.into(), at, out));
    rig.adopt(CHAT);
    rig.server(&push(1));
    rig.take_sent();
    rig.lose();
    rig.wait(Duration::from_secs(10));
    assert_eq!(rig.dropped("kept_too_old"), 1);
}

#[test]
fn g7_a_connection_that_came_back_is_not_closed_for_good() {
    let mut rig = Rig::new();
    rig.adopt(CHAT);
    rig.take_sent();
    rig.lose_with(true);
    rig.mcpl_host(1);
    rig.settled();
    rig.server(&push(1));
    rig.event(1, HostEvent::Detached);
    assert_eq!(rig.waiting(), [1, 0, 0, 0]);
}

#[test]
fn a7_a_chunk_is_of_an_inference_alone() {
    let mut rig = served();
    rig.server(&request(5, "x/ask", "{}"));
    let id = field(&rig.take_answers(1)[0], "id");
    let chunk =
        format!(r#"{{"jsonrpc":"2.0","method":"inference/chunk","params":{{"requestId":{id}}}}}"#);
    rig.host(1, &chunk);
    assert!(rig.take_sent().is_empty());
    assert_eq!(rig.dropped("unmatched"), 1);
}
