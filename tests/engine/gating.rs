//! G1 to G5, G7, G8 and G10: what waits, for what, and what a boundary does to it.

use serde_json::json;
use tidegate::engine::decision::{DropReason, Hold};
use tidegate::engine::input::{End, Operator, Stop};
use tidegate::engine::settings::Settings;

use crate::world::message::{code, incoming, maybe_request, notification, push, register, request};
use crate::world::peer::{Fate, Peer, REFUSED, Receipt};
use crate::world::{World, secs};

/// A bridge whose exchange has not settled.
fn unsettled() -> World {
    World::started(
        Settings::default(),
        Peer {
            receipt: Receipt::Silent,
            ..Peer::bridge()
        },
    )
}

fn accept() -> serde_json::Value {
    json!({"accepted": true})
}

#[test]
fn g1_control_passes_while_data_waits_for_a_host() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    world.says(&register(2, "room"));
    assert!(world.answer(1).is_none());
    let verdict = world.answer(2).unwrap();
    assert_eq!(
        verdict["result"]["results"][0]["accepted"], true,
        "{verdict}"
    );
}

#[test]
fn g1_a_method_that_nobody_knows_is_data() {
    let mut world = World::bridge();
    world.says(&request(1, "x/unknown", json!({"n": 1})));
    assert!(world.answer(1).is_none());
    assert_eq!(world.snapshot().held.requests, 1);
}

#[test]
fn g1_a_ping_is_answered_at_once_whatever_holds() {
    let mut world = unsettled();
    world.says(&request("p", "ping", json!({})));
    assert_eq!(world.answer("p").unwrap()["result"], json!({}));
}

#[test]
fn g1_roots_wait_for_the_policy_alone() {
    let mut world = unsettled();
    world.says(&request(5, "roots/list", json!({})));
    assert!(world.answer(5).is_none());
    world.gives_receipt(accept());
    assert!(world.answer(5).is_some(), "no host is waited for");
}

#[test]
fn g1_a_server_without_mcpl_has_no_exchange_and_no_policy_hold() {
    let mut world = World::new(Settings::default());
    world.start();
    assert!(world.asked_server("featureSets/update").is_empty());
    assert!(!world.snapshot().holds.contains(&Hold::Policy));
    world.says(&request(5, "roots/list", json!({})));
    assert!(world.answer(5).is_some());
}

#[test]
fn g2_a_registration_right_after_initialize_is_admitted_under_its_own_grant() {
    let mut world = unsettled();
    world.says(&register(100, "room"));
    assert!(world.answer(100).is_none());
    world.gives_receipt(accept());
    let verdict = world.answer(100).unwrap();
    assert_eq!(
        verdict["result"]["results"][0]["accepted"], true,
        "{verdict}"
    );
}

#[test]
fn g2_both_planes_close_at_a_boundary_until_the_new_exchange_settles() {
    let mut world = World::bridge();
    world.attach_host(1);
    world.peer.receipt = Receipt::Silent;
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert!(world.snapshot().holds.contains(&Hold::Policy));
    world.says(&register(100, "room"));
    world.says(&push(Some(101), 1));
    assert!(world.answer(100).is_none() && world.answer(101).is_none());
    world.gives_receipt(accept());
    assert!(world.answer(100).is_some() && world.answer(101).is_some());
}

#[test]
fn g2_the_planes_open_however_the_exchange_settles() {
    for receipt in [
        Receipt::Error(-32601),
        Receipt::Silent,
        Receipt::Result(json!({"accepted": false, "fallback": "mcp-only"})),
    ] {
        let mut world = World::with(
            Settings::default(),
            Peer {
                receipt: receipt.clone(),
                ..Peer::bridge()
            },
        );
        world.start();
        world.run_for(secs(15));
        assert!(
            !world.snapshot().holds.contains(&Hold::Policy),
            "{receipt:?}"
        );
        world.says(&register(100, "room"));
        assert_eq!(
            code(&world.answer(100).unwrap()),
            Some(-32002),
            "{receipt:?}"
        );
    }
}

#[test]
fn g3_the_policy_hold_of_an_epoch_is_lifted_by_its_own_receipt_alone() {
    let mut world = unsettled();
    let (first, asked) = world.asked_server("featureSets/update")[0].clone();
    world.lose_but_not_gone(End::Exit(1));
    let late = crate::world::message::result(&asked["id"], accept());
    world.says_on(first, &late);
    let gone = world.peer.gone();
    world.link_on(first, gone);
    world.run_for(secs(5));
    assert_eq!(world.epoch().0, 2);
    assert!(world.snapshot().holds.contains(&Hold::Policy));
    assert!(world.snapshot().granted.is_empty());
    world.attach_host(1);
    world.operator(Operator::Pause);
    world.operator(Operator::Resume);
    assert!(world.snapshot().holds.contains(&Hold::Policy));
}

#[test]
fn g3_data_waits_until_a_host_serves_and_then_goes_in_order() {
    let mut world = World::bridge();
    world.says(&register(9, "room"));
    for n in 1..=3 {
        world.says(&push(Some(n), n));
    }
    assert!(world.snapshot().holds.contains(&Hold::NoHost));
    let host = world.attach_host(1);
    assert!(!world.snapshot().holds.contains(&Hold::NoHost));
    assert_eq!(world.numbers(host, "push/event"), [1, 2, 3]);
    for n in 1..=3 {
        assert_eq!(world.answer(n).unwrap()["result"], accept());
    }
}

#[test]
fn g3_a_plain_client_does_not_lift_no_host() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    world.attach(1, json!({}));
    world.run_for(secs(60));
    assert!(world.snapshot().holds.contains(&Hold::NoHost));
    assert!(world.answer(1).is_none());
}

#[test]
fn g3_a_host_that_serves_is_asked_about_a_registration_for_at_most_5_seconds() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.says(&register(1, "one"));
    assert_eq!(world.asked_host(host, "channels/register").len(), 1);
    assert!(world.answer(1).is_some());
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&register(2, "two"));
    world.run_for(secs(4));
    assert!(world.answer(2).is_none());
    world.run_for(secs(1));
    let verdict = world.answer(2).unwrap();
    assert_eq!(
        verdict["result"]["results"][0]["accepted"], true,
        "{verdict}"
    );
}

#[test]
fn g3_a_pause_holds_world_messages_and_nothing_of_the_control_plane() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.operator(Operator::Pause);
    world.says(&register(1, "room"));
    world.says(&push(Some(2), 2));
    world.says(&incoming(Some(3), 3, "room"));
    assert!(world.answer(1).is_some());
    assert!(world.answer(2).is_none() && world.answer(3).is_none());
    assert!(world.snapshot().paused && world.snapshot().holds.contains(&Hold::Pause));
    world.operator(Operator::Resume);
    assert_eq!(world.numbers(host, "push/event"), [2]);
    assert_eq!(world.numbers(host, "channels/incoming"), [3]);
}

#[test]
fn g3_a_pause_survives_reconnects_reloads_restarts_and_the_gateways_own() {
    let mut world = World::bridge();
    world.operator(Operator::Pause);
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert!(world.snapshot().paused);
    world.operator(Operator::Restart);
    assert!(world.snapshot().paused);
    world.configure(Settings::default(), true);
    assert!(world.snapshot().paused);
    world.reboot();
    world.run_for(secs(5));
    assert!(world.snapshot().paused && world.snapshot().holds.contains(&Hold::Pause));
    let host = world.attach_host(1);
    world.says(&push(Some(1), 1));
    assert!(world.numbers(host, "push/event").is_empty());
}

#[test]
fn g3_world_messages_wait_while_the_lists_are_read_again() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.peer.answers_lists = false;
    world.says(&notification("notifications/tools/list_changed", json!({})));
    assert!(world.snapshot().holds.contains(&Hold::ListRefresh));
    world.says(&push(Some(1), 1));
    assert!(world.numbers(host, "push/event").is_empty());
    let id = world.last_asked("tools/list");
    world.says(&crate::world::message::result(&id, json!({"tools": []})));
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g4_held_requests_beyond_the_bound_are_refused_to_the_server() {
    let mut settings = Settings::default();
    settings.bounds.held_requests = 3;
    let mut world = World::started(settings, Peer::bridge());
    for n in 1..=4 {
        world.says(&push(Some(n), n));
    }
    assert_eq!(code(&world.answer(4).unwrap()), Some(-32000));
    assert!((1..=3).all(|n| world.answer(n).is_none()));
    assert_eq!(world.snapshot().held.requests, 3);
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1, 2, 3]);
}

#[test]
fn g4_held_notifications_beyond_the_bound_push_out_the_oldest() {
    let mut settings = Settings::default();
    settings.bounds.held_notifications = 2;
    let mut world = World::started(settings, Peer::bridge());
    for n in 1..=4 {
        world.says(&push(None, n));
    }
    assert_eq!(world.dropped(DropReason::HeldFull), 2);
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [3, 4]);
}

#[test]
fn g4_bytes_bound_what_is_held_exactly_as_counts_do() {
    let size = push(Some(1), 1).to_string().len();
    let mut settings = Settings::default();
    settings.bounds.held_bytes = size * 2;
    let mut world = World::started(settings, Peer::bridge());
    for n in 1..=3 {
        world.says(&push(Some(n), n));
    }
    assert_eq!(code(&world.answer(3).unwrap()), Some(-32000));
    assert!(world.snapshot().held.bytes <= size * 2);
}

#[test]
fn g4_a_held_request_that_is_no_world_message_waits_for_60_seconds() {
    let mut world = World::bridge();
    world.says(&request(1, "x/ask", json!({"n": 1})));
    world.says(&push(Some(2), 2));
    world.run_for(secs(59));
    assert!(world.answer(1).is_none());
    world.run_for(secs(1));
    assert_eq!(code(&world.answer(1).unwrap()), Some(-32000));
    world.run_for(secs(3_600));
    assert!(world.answer(2).is_none());
    assert_eq!(world.snapshot().held.requests, 1);
}

#[test]
fn g4_a_cancel_from_its_server_removes_a_held_request() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    world.says(&push(Some(2), 2));
    world.says(&notification(
        "notifications/cancelled",
        json!({"requestId": 1}),
    ));
    assert_eq!(world.snapshot().held.requests, 1);
    assert_eq!(world.dropped(DropReason::Cancelled), 1);
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [2]);
}

#[test]
fn g5_a_boundary_keeps_the_world_and_drops_the_process() {
    let mut world = World::bridge();
    world.says(&register(100, "room"));
    world.says(&push(Some(1), 1));
    world.says(&request(2, "x/ask", json!({"n": 2})));
    world.says(&incoming(None, 3, "room"));
    world.says(&maybe_request(None, "x/tell", json!({"n": 4})));
    world.lose(End::Exit(1));
    let view = world.snapshot();
    assert_eq!((view.kept.requests, view.kept.notifications), (1, 1));
    assert_eq!((view.held.requests, view.held.notifications), (0, 0));
    assert_eq!(world.dropped(DropReason::Boundary), 2);
    world.run_for(secs(5));
    world.says(&register(100, "room"));
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1]);
    assert_eq!(world.numbers(host, "channels/incoming"), [3]);
    assert!(world.answer(1).is_none(), "A1: its asker is gone");
    world.check.conserved(0);
}

#[test]
fn g5_closed_for_good_drops_the_world_too() {
    let settings = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::bridge());
    world.says(&push(Some(1), 1));
    world.lose(End::Exit(1));
    assert_eq!(world.dropped(DropReason::ClosedForGood), 1);
    let mut removed = World::bridge();
    removed.says(&push(Some(1), 1));
    removed.stop(Stop::Removed);
    assert_eq!(removed.dropped(DropReason::ClosedForGood), 1);
    for world in [world, removed] {
        assert_eq!(world.waiting(), 0);
        world.check.conserved(0);
    }
}

#[test]
fn g5_a_halt_a_disable_a_restart_and_a_shutdown_keep() {
    for stop in [Stop::Disabled, Stop::Shutdown] {
        let mut world = World::bridge();
        world.says(&push(Some(1), 1));
        world.stop(stop);
        assert_eq!(world.snapshot().kept.requests, 1, "{stop:?}");
    }
    let mut restarted = World::bridge();
    restarted.says(&push(Some(1), 1));
    restarted.operator(Operator::Restart);
    assert_eq!(restarted.snapshot().kept.requests, 1);
    let mut halted = World::bridge();
    halted.says(&push(Some(1), 1));
    halted.peer.fate = Fate::Version;
    halted.lose(End::Exit(1));
    halted.run_for(secs(5));
    assert_eq!(halted.snapshot().kept.requests, 1);
}

#[test]
fn g7_late_lines_are_kept_or_dropped_and_never_answered() {
    let mut world = World::bridge();
    world.says(&register(50, "room"));
    world.lose_but_not_gone(End::Exit(1));
    let before = world.heard_on(world.epoch()).len();
    world.says(&request("p", "ping", json!({})));
    world.says(&register(51, "other"));
    world.says(&request(52, "scope/elevate", json!({})));
    world.says(&push(Some(53), 1));
    world.says(&incoming(None, 2, "room"));
    assert_eq!(world.heard_on(world.epoch()).len(), before);
    assert_eq!(world.dropped(DropReason::Late), 3);
    let view = world.snapshot();
    assert_eq!((view.kept.requests, view.kept.notifications), (1, 1));
}

#[test]
fn g7_a_late_response_is_matched_against_nothing() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.peer.answers_calls = false;
    world.host_says(host, &request("c", "tools/call", json!({"name": "echo"})));
    let id = world.last_asked("tools/call");
    world.lose_but_not_gone(End::Exit(1));
    assert_eq!(
        code(&world.answer_to_host(host, "c").unwrap()),
        Some(-32051)
    );
    world.says(&crate::world::message::result(&id, json!({"content": []})));
    assert_eq!(world.count_of("orphaned"), 0);
    world.says(&crate::world::message::result(
        &id,
        json!({"state": {"s": 1}}),
    ));
    assert_eq!(world.count_of("orphaned"), 1);
}

#[test]
fn g7_a_late_world_message_of_a_connection_closed_for_good_is_dropped() {
    let settings = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::bridge());
    world.lose_but_not_gone(End::Exit(1));
    world.says(&push(Some(1), 1));
    assert_eq!(world.waiting(), 0);
    world.check.conserved(0);
}

#[test]
fn g8_between_epochs_nothing_kept_is_admitted() {
    let mut world = World::bridge();
    world.operator(Operator::Pause);
    world.says(&push(Some(1), 1));
    world.peer.fate = REFUSED;
    world.lose(End::Exit(1));
    let host = world.attach_host(1);
    world.operator(Operator::Resume);
    world.run_for(secs(4));
    assert!(world.numbers(host, "push/event").is_empty());
    assert_eq!(world.snapshot().kept.requests, 1);
    world.peer.fate = Fate::Serve(None);
    world.run_for(secs(30));
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g8_what_is_kept_waits_for_the_grant_of_the_next_epoch_not_for_its_handshake() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    world.lose(End::Exit(1));
    let host = world.attach_host(1);
    world.peer.receipt = Receipt::Silent;
    world.run_for(secs(6));
    assert!(world.snapshot().connected);
    assert!(world.numbers(host, "push/event").is_empty());
    world.gives_receipt(accept());
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g10_what_a_flush_leaves_stays_as_it_was_and_in_order() {
    let mut world = unsettled();
    world.says(&push(Some(1), 1));
    world.says(&register(2, "room"));
    world.says(&push(Some(3), 2));
    world.says(&incoming(Some(4), 3, "room"));
    world.gives_receipt(accept());
    assert!(
        world.answer(2).is_some(),
        "the control plane has no hold left"
    );
    assert_eq!(world.snapshot().held.requests, 3);
    world.operator(Operator::Pause);
    let host = world.attach_host(1);
    assert_eq!(world.snapshot().held.requests, 3);
    world.operator(Operator::Resume);
    let told = world.hosts[&host]
        .told
        .iter()
        .filter_map(|said| said["params"]["n"].as_u64());
    assert_eq!(told.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn g10_a_receipt_that_closes_the_connection_admits_nothing() {
    let mut world = unsettled();
    let host = world.attach_host(1);
    world.says(&push(Some(1), 1));
    world.says(&register(2, "room"));
    world.gives_receipt(json!({"accepted": false, "fallback": "close"}));
    assert!(world.numbers(host, "push/event").is_empty());
    assert!(world.answer_on(tidegate::ids::Epoch(1), 2).is_none());
    assert_eq!(world.snapshot().kept.requests, 1);
}
