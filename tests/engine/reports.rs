//! What public reports against gateways of this kind found (tests/rules/field-reports.txt), where no other test
//! shows it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::engine::decision::{Decision, DropReason, State};
use tidegate::engine::input::{End, Input, LinkEvent, Outcome, Stop};
use tidegate::engine::settings::Settings;
use tidegate::ids::SessionId;

use crate::world::message::{code, error, raw, request, result};
use crate::world::peer::{Fate, Peer};
use crate::world::{World, secs};

/// A plain server with a client; calls stay unanswered.
fn silent(settings: Settings) -> (World, SessionId) {
    let mut world = World::new(settings);
    world.peer.answers_calls = false;
    world.start();
    let client = world.attach(1, json!({}));
    (world, client)
}

fn call(id: impl Into<Value>) -> Value {
    request(id, "tools/call", json!({"name": "echo"}))
}

/// BR-014
#[test]
fn r18_a_refused_credential_is_tried_at_most_every_300_s_all_day() {
    let peer = Peer {
        fate: Fate::Fail(Outcome::Auth, None),
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(86_400));
    assert_eq!(world.snapshot().state, State::Auth);
    assert!(world.dials().len() <= 2 + 86_400 / 300);
    assert_eq!(world.count_of("down"), 1);
}

/// BR-016
#[test]
fn s5_a_halt_ends_with_the_gateway_that_decided_it() {
    let peer = Peer {
        fate: Fate::Version,
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(3_600));
    assert_eq!(
        (world.snapshot().state, world.dials().len()),
        (State::Halted, 1)
    );
    world.peer.fate = Fate::Serve(None);
    world.reboot();
    assert_eq!(
        (world.snapshot().state, world.dials().len()),
        (State::Open, 2)
    );
}

/// BR-026
#[test]
fn r4_five_days_of_dying_at_once_are_one_down_and_few_lines() {
    let peer = Peer::living(Duration::from_millis(300));
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(5 * 86_400));
    let dials = world.dials().len();
    assert!(dials <= 8 + 5 * 86_400 / 300, "{dials} launches");
    let is_told = |decision: &Decision| !matches!(decision, Decision::Carried { .. });
    let told = world
        .decisions()
        .filter(|(_, decision)| is_told(decision))
        .count();
    assert!(told <= 10 * dials, "{told} decisions of {dials} launches");
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 0));
}

/// BR-034
#[test]
fn r4_a_server_that_accepts_and_resets_is_dialed_a_handful_of_times() {
    for (interval, most) in [(5_000, 1), (1, 12)] {
        let settings = Settings {
            interval: Duration::from_millis(interval),
            ..Settings::default()
        };
        let peer = Peer {
            fate: Fate::Drop,
            ..Peer::default()
        };
        let mut world = World::started(settings, peer);
        world.run_for(secs(3));
        assert!(world.dials().len() <= most, "{:?}", world.dials());
    }
}

/// BR-083
#[test]
fn s1_every_state_that_there_is_is_reached_and_told() {
    let peer = |fate| Peer {
        fate,
        ..Peer::bridge()
    };
    let once = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let mut worlds = vec![
        World::started(Settings::default(), peer(Fate::Serve(Some(secs(1))))),
        World::started(Settings::default(), peer(Fate::Version)),
        World::started(Settings::default(), peer(Fate::Fail(Outcome::Auth, None))),
        World::started(once, peer(Fate::Serve(None))),
        World::new(Settings::default()),
    ];
    worlds[3].lose(End::Exit(0));
    let problem = "no".into();
    worlds[4].feed(Input::Refuse { problem });
    for world in &mut worlds {
        world.run_for(secs(60));
        world.stop(Stop::Disabled);
    }
    let told = worlds.iter().flat_map(World::decisions);
    let states: BTreeSet<&str> = told
        .filter_map(|(_, decision)| match decision {
            Decision::State(state) => Some(state.label()),
            _ => None,
        })
        .collect();
    assert_eq!(states, State::ALL.map(State::label).into_iter().collect());
}

/// BR-092
#[test]
fn s1_a_tools_own_error_is_told_apart_from_those_of_the_protocol_and_of_the_connection() {
    let (mut world, client) = silent(Settings::default());
    let answer = |world: &mut World, id: u64, what: &dyn Fn(&Value) -> Value| {
        world.host_says(client, &call(id));
        let asked = world.last_asked("tools/call");
        world.says(&what(&asked));
    };
    answer(&mut world, 1, &|id| {
        result(id, json!({"content": [], "isError": true}))
    });
    answer(&mut world, 2, &|id| {
        result(id, json!({"content": [], "isError": false}))
    });
    answer(&mut world, 3, &|id| error(id, -32602));
    world.host_says(client, &call(4));
    world.lose(End::Exit(1));
    world.host_says(client, &call(5));
    let outcomes: Vec<_> = world
        .decisions()
        .filter_map(|(_, decision)| match decision {
            Decision::Called { error, .. } => Some(error.clone()),
            _ => None,
        })
        .collect();
    let wanted = ["tool", "", "-32602", "lost", "not_sent"];
    let wanted = wanted.map(|error| (!error.is_empty()).then(|| error.to_owned()));
    assert_eq!(outcomes, wanted);
}

/// BR-103
#[test]
fn a6_a_list_of_the_last_epoch_that_comes_late_changes_nothing() {
    let mut world = World::new(Settings::default());
    world.peer.answers_lists = false;
    world.start();
    let client = world.attach(1, json!({}));
    let first = world.epoch();
    let asked = world.last_asked("tools/list");
    let stale = result(&asked, json!({"tools": [{"name": "stale"}]}));
    world.lose_but_not_gone(End::Exit(1));
    world.says(&stale);
    world.peer.answers_lists = true;
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(5));
    world.says_on(first, &stale);
    world.peer.answers_lists = false;
    world.lose(End::Exit(1));
    world.host_says(client, &request(1, "tools/list", json!({})));
    let answer = world.answer_to_host(client, 1).unwrap();
    assert_eq!(answer["result"]["tools"][0]["name"], "echo", "{answer}");
}

/// BR-110
#[test]
fn r15_a_call_has_the_limit_of_its_server_and_its_error_names_it() {
    let (mut world, client) = silent(Settings {
        call_timeout: secs(45),
        ..Settings::default()
    });
    world.host_says(client, &call(1));
    world.run_for(secs(44));
    assert!(world.answer_to_host(client, 1).is_none());
    world.run_for(secs(1));
    let answer = world.answer_to_host(client, 1).unwrap();
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("callTimeoutMs") && text.contains("45s"),
        "{text}"
    );
}

/// BR-112
#[test]
fn a5_an_initialize_that_times_out_is_not_cancelled() {
    let peer = Peer {
        fate: Fate::Mute,
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(31));
    assert_eq!(world.count_of("attempt-failed"), 1);
    assert!(world.asked_server("notifications/cancelled").is_empty());
}

/// BR-113
#[test]
fn a4_a_call_that_may_have_run_is_never_sent_again() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.lose(End::Exit(1));
    world.host_says(client, &call(2));
    world.peer.answers_calls = true;
    world.run_for(secs(3_600));
    assert_eq!(
        code(&world.answer_to_host(client, 1).unwrap()),
        Some(-32051)
    );
    assert_eq!(
        code(&world.answer_to_host(client, 2).unwrap()),
        Some(-32050)
    );
    assert_eq!(world.asked_server("tools/call").len(), 1);
}

/// BR-119
#[test]
fn a2_the_number_1_and_the_text_1_are_two_ids() {
    let (mut world, client) = silent(Settings::default());
    world.host_says(client, &call(1));
    world.host_says(client, &call("1"));
    let asked = world.asked_server("tools/call");
    assert_eq!(asked.len(), 2);
    for ((_, call), to) in asked.iter().zip(["number", "text"]) {
        world.says(&result(&call["id"], json!({"to": to})));
    }
    let to = |id: Value| world.answer_to_host(client, id).unwrap()["result"]["to"].clone();
    assert_eq!([to(json!(1)), to(json!("1"))], ["number", "text"]);
}

/// BR-127
#[test]
fn a2_an_error_without_an_id_is_counted_and_guessed_to_answer_nothing() {
    let (mut world, client) = silent(Settings::default());
    let nameless = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"which?"}}"#;
    for calls in 1..=2 {
        world.host_says(client, &call(calls));
        world.link(LinkEvent::Received(raw(nameless)));
        assert_eq!(world.dropped(DropReason::Unmatched), calls);
        assert!(world.answer_to_host(client, calls).is_none());
    }
    world.run_for(world.settings.call_timeout);
    for calls in 1..=2 {
        assert_eq!(
            code(&world.answer_to_host(client, calls).unwrap()),
            Some(-32052)
        );
    }
}
