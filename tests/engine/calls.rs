//! A4, A5, A7 and R15's calls: what a host's call meets.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::engine::decision::DropReason;
use tidegate::engine::input::{End, LinkEvent, Operator, Outcome, Stop};
use tidegate::engine::settings::Settings;
use tidegate::ids::{Epoch, SessionId};

use crate::world::message::{code, notification, request, result};
use crate::world::peer::{Fate, Peer, REFUSED, Receipt};
use crate::world::{World, secs};

fn call(id: u64) -> Value {
    request(id, "tools/call", json!({"name": "echo", "arguments": {}}))
}

/// A plain server with a client; calls stay unanswered.
fn silent(settings: Settings) -> (World, SessionId) {
    let mut world = World::new(settings);
    world.peer.answers_calls = false;
    world.start();
    let client = world.attach(1, json!({}));
    (world, client)
}

fn text(answer: &Value) -> String {
    answer["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a4_a_call_while_the_server_is_away_is_not_sent_and_says_when_the_next_try_is() {
    let (mut world, client) = silent(Settings::default());
    world.peer.fate = REFUSED;
    world.lose(End::Exit(1));
    world.run_for(secs(2));
    world.host_says(client, &call(1));
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(code(&answer), Some(-32050));
    let data = &answer["error"]["data"];
    assert_eq!(
        (&data["sent"], &data["attempt"]),
        (&json!(false), &json!(1)),
        "{answer}"
    );
    assert_eq!(data["retryAfterMs"], 3_000, "{answer}");
    assert_eq!(data["state"], "waiting");
    assert!(text(&answer).contains("try again later"), "{answer}");
    assert!(answer.get("result").is_none(), "never an `isError` result");
}

#[test]
fn a4_a_call_whose_server_is_lost_has_an_unknown_outcome_at_once() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.lose_but_not_gone(End::Signal(9));
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(code(&answer), Some(-32051));
    assert_eq!(answer["error"]["data"]["sent"], true);
    assert!(text(&answer).contains("unknown"), "{answer}");
    let gone = world.peer.gone();
    world.link(gone);
    world.peer.answers_calls = true;
    world.run_for(secs(5));
    world.host_says(client, &call(2));
    assert!(
        world
            .answer_to_host(client, 2)
            .unwrap()
            .get("result")
            .is_some()
    );
}

#[test]
fn a4_a_call_that_nobody_answers_times_out() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.run_for(secs(599));
    assert!(world.answer_to_host(client, 1).is_none());
    world.run_for(secs(1));
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(code(&answer), Some(-32052));
    assert_eq!(answer["error"]["data"]["sent"], true);
}

#[test]
fn a4_a_server_that_is_not_coming_back_says_so_without_try_again_later() {
    let halted: fn(&mut World) = |world| {
        world.peer.fate = Fate::Version;
        world.lose(End::Exit(1));
        world.run_for(secs(5));
    };
    let auth: fn(&mut World) = |world| {
        world.peer.fate = Fate::Fail(Outcome::Auth, None);
        world.lose(End::Exit(1));
        world.run_for(secs(60));
    };
    let disabled: fn(&mut World) = |world| world.stop(Stop::Disabled);
    let cases = [
        ("halted", "halted", halted),
        ("auth", "credential", auth),
        ("disabled", "disabled", disabled),
    ];
    for (state, says, make) in cases {
        let (mut world, client) = silent(Settings::default());
        make(&mut world);
        world.host_says(client, &call(1));
        let answer = world.answer_to_host(client, 1).unwrap();
        assert_eq!(code(&answer), Some(-32050), "{state}");
        assert_eq!(answer["error"]["data"]["state"], state);
        assert!(!text(&answer).contains("try again later"), "{answer}");
        assert!(text(&answer).contains(says), "{answer}");
    }
}

#[test]
fn a4_an_ended_server_says_so() {
    let settings = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let (mut world, client) = silent(settings);
    world.lose(End::Exit(0));
    world.host_says(client, &call(1));
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(answer["error"]["data"]["state"], "ended");
    assert!(!text(&answer).contains("try again later"), "{answer}");
}

#[test]
fn a4_a_call_during_a_dial_and_before_the_exchange_settles_is_answered_one_way_or_the_other() {
    let mut world = World::started(
        Settings::default(),
        Peer {
            fate: Fate::Mute,
            ..Peer::bridge()
        },
    );
    let client = world.attach(1, json!({}));
    world.host_says(client, &call(1));
    assert_eq!(
        code(&world.answer_to_host(client, 1).unwrap()),
        Some(-32050)
    );
    world.peer.fate = Fate::Serve(None);
    world.peer.receipt = Receipt::Silent;
    world.run_for(secs(36));
    assert!(world.snapshot().connected);
    world.host_says(client, &call(2));
    world.run_for(secs(20));
    assert!(world.answer_to_host(client, 2).is_some());
}

#[test]
fn a4_a_frame_that_could_not_be_queued_was_not_sent() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    let id = world.last_asked("tools/call").as_u64();
    world.link(LinkEvent::Unsent {
        request: id,
        frame: bytes::Bytes::new(),
    });
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(code(&answer), Some(-32050));
    assert_eq!(answer["error"]["data"]["sent"], false);
}

#[test]
fn a4_a_restart_answers_what_was_in_flight_as_lost() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.operator(Operator::Restart);
    assert_eq!(
        code(&world.answer_to_host(client, 1).unwrap()),
        Some(-32051)
    );
}

#[test]
fn a5_a_timeout_cancels_at_the_server_and_drops_the_late_answer() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    let id = world.last_asked("tools/call");
    world.run_for(secs(600));
    let cancels = world.asked_server("notifications/cancelled");
    assert_eq!(cancels.len(), 1);
    assert_eq!(cancels[0].1["params"]["requestId"], id);
    world.says(&result(&id, json!({"content": []})));
    assert_eq!(world.dropped(DropReason::LateAnswer), 1);
    assert_eq!(world.count_of("orphaned"), 0);
}

#[test]
fn a5_a_late_answer_that_carries_state_is_recorded_as_orphaned() {
    for body in [json!({"state": {}}), json!({"checkpoint": "c"})] {
        let (mut world, client) = silent(Settings::default());
        world.host_says(client, &call(1));
        let id = world.last_asked("tools/call");
        world.run_for(secs(600));
        world.says(&result(&id, body));
        assert_eq!(world.count_of("orphaned"), 1);
    }
}

#[test]
fn a5_a_hosts_cancel_reaches_the_server_under_our_id_and_the_late_answer_reaches_nobody() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    let id = world.last_asked("tools/call");
    world.host_says(
        client,
        &notification(
            "notifications/cancelled",
            json!({"requestId": 1, "reason": "bored"}),
        ),
    );
    let cancels = world.asked_server("notifications/cancelled");
    assert_eq!(cancels.len(), 1);
    assert_eq!(
        cancels[0].1["params"],
        json!({"requestId": id, "reason": "bored"})
    );
    world.says(&result(&id, json!({"content": []})));
    assert!(world.answer_to_host(client, 1).is_none());
}

#[test]
fn r15_each_progress_restarts_a_calls_bound() {
    let (mut world, client) = silent(Settings::default());
    let progressing = request(
        1,
        "tools/call",
        json!({"name": "echo", "_meta": {"progressToken": "mine"}}),
    );
    world.host_says(client, &progressing);
    let token = world.asked_server("tools/call")[0].1["params"]["_meta"]["progressToken"].clone();
    for step in 1..=5 {
        world.run_for(secs(500));
        world.says(&notification(
            "notifications/progress",
            json!({"progressToken": token, "progress": step}),
        ));
    }
    assert!(world.answer_to_host(client, 1).is_none());
    let told = world.asked_host(client, "notifications/progress");
    assert_eq!(told.len(), 5);
    assert!(
        told.iter()
            .all(|said| said["params"]["progressToken"] == "mine")
    );
    world.run_for(secs(600));
    assert_eq!(
        code(&world.answer_to_host(client, 1).unwrap()),
        Some(-32052)
    );
}

#[test]
fn r15_a_call_timeout_of_zero_is_none() {
    let settings = Settings {
        call_timeout: Duration::ZERO,
        ..Settings::default()
    };
    let (mut world, client) = silent(settings);
    world.host_says(client, &call(1));
    world.run_for(secs(86_400));
    assert!(world.answer_to_host(client, 1).is_none());
    assert_eq!(world.snapshot().in_flight, 1);
}

#[test]
fn a7_progress_for_nothing_that_is_live_is_dropped() {
    let (mut world, client) = silent(Settings::default());
    world.says(&notification(
        "notifications/progress",
        json!({"progressToken": 77, "progress": 1}),
    ));
    world.says(&notification(
        "notifications/progress",
        json!({"progress": 1}),
    ));
    assert_eq!(world.dropped(DropReason::Unmatched), 2);
    assert!(
        world
            .asked_host(client, "notifications/progress")
            .is_empty()
    );
}

#[test]
fn a7_a_cancel_of_what_is_not_live_is_dropped_either_way() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.says(&notification(
        "notifications/cancelled",
        json!({"requestId": 55}),
    ));
    assert!(world.asked_host(host, "notifications/cancelled").is_empty());
    world.host_says(
        host,
        &notification("notifications/cancelled", json!({"requestId": "none"})),
    );
    assert!(world.asked_server("notifications/cancelled").is_empty());
    assert_eq!(world.dropped(DropReason::Unmatched), 2);
}

#[test]
fn a7_a_cancel_never_reaches_another_epoch() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert_eq!(world.epoch(), Epoch(2));
    world.host_says(
        client,
        &notification("notifications/cancelled", json!({"requestId": 1})),
    );
    assert!(world.asked_server("notifications/cancelled").is_empty());
}

#[test]
fn a7_a_servers_cancel_of_a_forwarded_request_reaches_the_host_under_our_id() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&request(9, "inference/request", json!({"n": 1})));
    let id = world.asked_host(host, "inference/request")[0]["id"].clone();
    world.says(&notification(
        "notifications/cancelled",
        json!({"requestId": 9}),
    ));
    let told = world.asked_host(host, "notifications/cancelled");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["params"]["requestId"], id);
}

#[test]
fn a7_a_late_chunk_of_an_inference_reaches_no_other_epoch() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&request(
        9,
        "inference/request",
        json!({"n": 1, "stream": true}),
    ));
    let id = world.asked_host(host, "inference/request")[0]["id"].clone();
    let chunk = notification(
        "inference/chunk",
        json!({"requestId": id, "index": 0, "delta": "hi"}),
    );
    world.host_says(host, &chunk);
    let chunks = world.asked_server("inference/chunk");
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].1["params"]["requestId"], 9);
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    world.host_says(host, &chunk);
    assert_eq!(world.asked_server("inference/chunk").len(), 1);
}
