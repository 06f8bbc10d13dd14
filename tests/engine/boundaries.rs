//! G2 to G12 where a hold or a boundary comes in the middle of something else; behaviours of an existing host's engine
//! (tests/rules/behaviours.txt) that the tests of the single rules do not show.

use serde_json::{Value, json};
use tidegate::engine::decision::{DropReason, Hold};
use tidegate::engine::input::{End, Operator};
use tidegate::engine::settings::Settings;
use tidegate::ids::{Epoch, SessionId};

use crate::world::message::{code, is_request, is_response, method, notification, push, register};
use crate::world::message::{request, result};
use crate::world::peer::{Peer, Receipt, bridge};
use crate::world::{World, secs};

fn accept() -> Value {
    json!({"accepted": true})
}

fn unsettled(settings: Settings, mcpl: Value) -> World {
    let peer = Peer {
        receipt: Receipt::Silent,
        mcpl: Some(mcpl),
        ..Peer::default()
    };
    World::started(settings, peer)
}

/// The next epoch, whose exchange has not settled.
fn relaunched(world: &mut World) {
    world.peer.receipt = Receipt::Silent;
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert!(world.snapshot().holds.contains(&Hold::Policy));
}

fn list_changes(world: &World, host: SessionId) -> usize {
    let told = world.hosts[&host].told.iter();
    told.filter(|said| method(said).ends_with("list_changed"))
        .count()
}

/// A host that answers nothing answers all that it was asked.
fn catches_up(world: &mut World, host: SessionId) {
    let asked = world.hosts[&host].told.clone();
    for said in asked.iter().filter(|said| is_request(said)) {
        world.host_says(host, &result(&said["id"], accept()));
    }
}

#[test]
fn g2_the_grant_is_gone_with_its_transport_and_before_the_next_is_told() {
    let mut world = World::bridge();
    assert!(world.grants("pushEvents"));
    world.peer.receipt = Receipt::Silent;
    world.lose_but_not_gone(End::Exit(1));
    assert!(world.snapshot().granted.is_empty());
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(5));
    assert_eq!(world.count_of("adopted"), 2);
    assert!(world.snapshot().granted.is_empty());
}

#[test]
fn g2_what_a_process_asks_right_after_initialize_waits_and_is_judged_by_the_grant_that_comes() {
    let mcpl = json!({"version": "0.5", "channels": true, "toolLifecycle": {"observe": true}});
    for named in [false, true] {
        let mut settings = Settings::default();
        settings.mask.enabled_capabilities = named.then(|| vec!["toolLifecycle.observe".into()]);
        let mut world = unsettled(settings, mcpl.clone());
        let host = world.attach_host(1);
        world.says(&request(7, "tools/observe", json!({})));
        assert!(world.answer(7).is_none(), "not refused under no grant");
        world.gives_receipt(accept());
        let answer = world.answer(7).expect("an answer under the grant");
        assert_eq!(answer.get("result").is_some(), named, "{answer}");
        assert_eq!(
            world.asked_host(host, "tools/observe").len(),
            usize::from(named)
        );
    }
}

#[test]
fn g3_a_receipt_under_another_hold_opens_the_control_plane_alone() {
    for paused in [true, false] {
        let mut world = World::bridge();
        let host = world.attach_host(1);
        relaunched(&mut world);
        if paused {
            world.operator(Operator::Pause);
        } else {
            world.detach(host);
        }
        world.says(&register(100, "room"));
        world.says(&push(Some(101), 1));
        world.gives_receipt(accept());
        assert!(world.answer(100).unwrap().get("result").is_some());
        assert!(world.answer(101).is_none(), "paused: {paused}");
        let host = if paused {
            world.operator(Operator::Resume);
            host
        } else {
            world.peer.receipt = Receipt::Accept;
            world.attach_host(2)
        };
        assert_eq!(world.numbers(host, "push/event"), [1]);
    }
}

#[test]
fn g3_a_second_change_of_the_lists_keeps_the_hold_until_they_are_read() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.peer.answers_lists = false;
    world.says(&notification("notifications/tools/list_changed", json!({})));
    world.says(&push(Some(1), 1));
    let first = world.last_asked("tools/list");
    world.says(&notification("notifications/tools/list_changed", json!({})));
    world.says(&result(&first, json!({"tools": []})));
    assert!(world.numbers(host, "push/event").is_empty());
    let second = world.last_asked("tools/list");
    assert_ne!(first, second);
    world.says(&result(&second, json!({"tools": []})));
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g4_the_10_001st_held_request_is_refused_to_the_server() {
    let mut world = World::bridge();
    for n in 1..=10_001 {
        world.says(&push(Some(n), n));
    }
    assert_eq!(world.snapshot().held.requests, 10_000);
    assert!(world.answer(10_000).is_none());
    assert_eq!(code(&world.answer(10_001).unwrap()), Some(-32000));
}

#[test]
fn g4_after_a_flush_the_whole_bound_is_free_again() {
    let mut settings = Settings::default();
    settings.bounds.held_requests = 3;
    settings.bounds.held_notifications = 2;
    let mut world = World::started(settings, Peer::bridge());
    for round in 0..3 {
        let first = 10 * round;
        for n in first..first + 4 {
            world.says(&push(Some(n), n));
        }
        for n in first + 4..first + 7 {
            world.says(&push(None, n));
        }
        let refused = |n| world.answer(n).as_ref().and_then(code);
        assert_eq!(
            (refused(first + 2), refused(first + 3)),
            (None, Some(-32000))
        );
        assert_eq!(world.dropped(DropReason::HeldFull), round + 1);
        let host = world.attach_host(round);
        assert_eq!(world.numbers(host, "push/event").len(), 5);
        world.detach(host);
    }
}

#[test]
fn g7_a_late_request_of_any_method_is_answered_nowhere_and_counted() {
    let methods = [
        "scope/elevate",
        "featureSets/changed",
        "x/unknown",
        "inference/request",
        "channels/list",
        "tools/observe",
        "host/command",
        "roots/list",
        "sampling/createMessage",
    ];
    let mut world = World::bridge();
    world.attach_host(1);
    world.lose_but_not_gone(End::Exit(1));
    let before = world.heard_on(Epoch(1)).len();
    for (id, name) in methods.iter().enumerate() {
        world.says(&request(id, name, json!({})));
    }
    assert_eq!(world.dropped(DropReason::Late), methods.len() as u64);
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(100));
    assert_eq!(world.heard_on(Epoch(1)).len(), before);
    let answers = world.heard_on(Epoch(2));
    assert!(!answers.into_iter().any(is_response));
}

#[test]
fn g7_a_late_world_message_is_admitted_under_the_next_grant() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    relaunched(&mut world);
    world.lose_but_not_gone(End::Exit(1));
    world.says(&push(Some(1), 1));
    assert_eq!(world.snapshot().kept.requests, 1);
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(10));
    assert_eq!(world.epoch(), Epoch(3));
    assert!(world.numbers(host, "push/event").is_empty());
    world.gives_receipt(accept());
    assert_eq!(world.numbers(host, "push/event"), [1]);
    assert!(
        world.answer_on(Epoch(3), 1).is_none(),
        "A1: its asker is gone"
    );
}

#[test]
fn g10_a_boundary_in_the_middle_of_a_flush_leaves_the_rest_kept_and_in_order() {
    let mut world = World::bridge();
    for n in 1..=300 {
        world.says(&push(Some(n), n));
    }
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.run_for(world.settings.policy_timeout);
    let first: Vec<u64> = (1..=256).collect();
    assert_eq!(world.numbers(host, "push/event"), first);
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert_eq!(world.epoch(), Epoch(2));
    assert_eq!(
        world.numbers(host, "push/event"),
        first,
        "the host has enough"
    );
    catches_up(&mut world, host);
    let all: Vec<u64> = (1..=300).collect();
    assert_eq!(world.numbers(host, "push/event"), all);
    assert!((1..=300).all(|n| world.answer(n).is_none()), "A1");
}

#[test]
fn a1_an_answer_for_a_transport_that_is_gone_is_counted_and_written_nowhere() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&request(1, "inference/request", json!({})));
    let asked = world.asked_host(host, "inference/request")[0]["id"].clone();
    world.lose_but_not_gone(End::Exit(1));
    world.host_says(host, &result(&asked, json!({"text": "hi"})));
    let told = |world: &World| {
        world.count_of("answered-late") as u64 + world.dropped(DropReason::Unmatched)
    };
    assert_eq!(told(&world), 1);
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(5));
    world.host_says(host, &result(&asked, json!({"text": "hi"})));
    assert_eq!(told(&world), 2);
    assert!(world.answer_on(Epoch(1), 1).is_none() && world.answer_on(Epoch(2), 1).is_none());
}

#[test]
fn a6_a_reconnect_is_announced_once_however_its_exchange_settles() {
    for receipt in [
        Receipt::Accept,
        Receipt::Result(json!({"accepted": false, "fallback": "mcp-only"})),
        Receipt::Result(json!("odd")),
        Receipt::Error(-32601),
        Receipt::Silent,
    ] {
        let mut world = World::bridge();
        let host = world.attach_host(1);
        let before = list_changes(&world, host);
        world.peer.tools = vec![json!({"name": "other", "inputSchema": {"type": "object"}})];
        world.peer.receipt = receipt.clone();
        world.lose(End::Exit(1));
        world.run_for(secs(60));
        assert_eq!(list_changes(&world, host), before + 1, "{receipt:?}");
    }
}

#[test]
fn a6_a_connection_that_its_receipt_closes_is_not_asked_for_its_lists() {
    let close = json!({"accepted": false, "fallback": "close"});
    let mut world = World::with(Settings::default(), Peer::bridge());
    world.peer.receipt = Receipt::Result(close);
    world.start();
    let host = world.attach_host(1);
    world.run_for(secs(60));
    assert!(world.count_of("settled") > 2);
    assert!(world.asked_server("tools/list").is_empty());
    assert_eq!(list_changes(&world, host), 0);
}
