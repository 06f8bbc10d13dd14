//! G6 and G16: how much a peer can make us hold.

use serde_json::json;
use tidegate::engine::decision::DropReason;
use tidegate::engine::input::{End, HostEvent, Input, LinkEvent, Operator};
use tidegate::engine::settings::Settings;
use tidegate::wire::jsonrpc::{About, RequestId, Unreadable};

use crate::world::message::{code, is_response, push, register, request};
use crate::world::peer::Peer;
use crate::world::{World, secs};

fn bounded(change: impl Fn(&mut Settings)) -> World {
    let mut settings = Settings::default();
    change(&mut settings);
    World::started(settings, Peer::bridge())
}

#[test]
fn g6_the_earliest_kept_requests_stay() {
    let mut world = bounded(|settings| settings.bounds.kept_requests = 2);
    for n in 1..=4 {
        world.says(&push(Some(n), n));
    }
    world.lose(End::Exit(1));
    assert_eq!(world.snapshot().kept.requests, 2);
    assert_eq!(world.dropped(DropReason::KeptFull), 2);
    world.run_for(secs(5));
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1, 2]);
}

#[test]
fn g6_kept_notifications_have_a_bound_of_their_own_and_the_earliest_stay() {
    let mut world = bounded(|settings| settings.bounds.kept_notifications = 2);
    for n in 1..=3 {
        world.says(&push(None, n));
    }
    world.says(&push(Some(4), 4));
    world.lose(End::Exit(1));
    let view = world.snapshot();
    assert_eq!((view.kept.requests, view.kept.notifications), (1, 2));
    world.run_for(secs(5));
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1, 2, 4]);
}

/// A bridge whose share of `maxQueuedBytes` is as many pushes with an id and one digit.
fn sharing(pushes: usize) -> World {
    let mut world = World::bridge();
    let bytes = pushes * push(Some(1), 1).to_string().len();
    world.feed(Input::Allowance(bytes));
    world
}

#[test]
fn g6_a_server_over_its_share_of_all_bytes_is_refused_and_what_it_has_stays() {
    let mut world = sharing(2);
    for n in 1..=3 {
        world.says(&push(Some(n), n));
    }
    assert_eq!(code(&world.answer(3).unwrap()), Some(-32000));
    world.says(&push(None, 4));
    assert_eq!(world.dropped(DropReason::GatewayFull), 1);
    world.lose_but_not_gone(End::Exit(1));
    world.says(&push(Some(5), 5));
    assert_eq!(world.dropped(DropReason::GatewayFull), 2);
    let gone = world.peer.gone();
    world.link(gone);
    world.feed(Input::Allowance(0));
    world.run_for(secs(5));
    assert_eq!(world.snapshot().kept.requests, 2, "nothing is taken away");
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1, 2]);
    assert_eq!(world.snapshot().queued_bytes, 0);
    world.says(&push(Some(7), 7));
    assert_eq!(
        world.answer(7).unwrap()["result"]["accepted"],
        true,
        "what passes needs no room"
    );
    world.check.conserved(0);
}

#[test]
fn g6_at_its_share_of_all_bytes_the_oldest_notification_goes_for_the_newest() {
    let mut world = World::bridge();
    world.feed(Input::Allowance(2 * push(None, 1).to_string().len()));
    for n in 1..=3 {
        world.says(&push(None, n));
    }
    assert_eq!(world.dropped(DropReason::GatewayFull), 1);
    let params = json!({"n": 4, "long": "x".repeat(1_000)});
    world.says(&crate::world::message::notification("push/event", params));
    assert_eq!(world.dropped(DropReason::GatewayFull), 2);
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [2, 3]);
}

#[test]
fn g6_what_is_with_a_host_counts_for_the_share() {
    let mut world = sharing(2);
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    for n in 1..=2 {
        world.says(&push(Some(n), n));
    }
    world.operator(Operator::Pause);
    world.says(&push(Some(3), 3));
    assert_eq!(code(&world.answer(3).unwrap()), Some(-32000));
    world.detach(host);
    assert_eq!(world.snapshot().held.requests, 2);
    assert_eq!(world.dropped(DropReason::GatewayFull), 0);
}

#[test]
fn g6_what_is_kept_stays_kept_through_a_flush_of_the_control_plane_and_a_second_boundary() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    for _ in 0..3 {
        world.lose(End::Exit(1));
        world.run_for(secs(400));
        world.says(&register(9, "room"));
        assert!(world.answer(9).is_some());
        let view = world.snapshot();
        assert_eq!((view.held.requests, view.kept.requests), (0, 1));
    }
    world.operator(Operator::Pause);
    let host = world.attach_host(1);
    assert_eq!(world.snapshot().kept.requests, 1);
    world.operator(Operator::Resume);
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g6_a_backlog_never_refuses_the_next_process() {
    let mut world = bounded(|settings| {
        settings.bounds.held_requests = 2;
        settings.bounds.kept_requests = 10;
    });
    for round in 0..4 {
        world.says(&push(Some(1), round * 10 + 1));
        world.says(&push(Some(2), round * 10 + 2));
        world.lose(End::Exit(1));
        world.run_for(secs(400));
    }
    assert_eq!(world.snapshot().kept.requests, 8);
    world.says(&register(1, "room"));
    assert!(world.answer(1).unwrap().get("result").is_some());
    world.says(&push(Some(2), 91));
    world.says(&push(Some(3), 92));
    assert_eq!(
        (
            world.snapshot().held.requests,
            world.snapshot().kept.requests
        ),
        (2, 8)
    );
}

#[test]
fn g6_the_bound_holds_for_a_late_item_and_where_boundaries_join() {
    let mut world = bounded(|settings| settings.bounds.kept_requests = 3);
    world.says(&push(Some(1), 1));
    world.says(&push(Some(2), 2));
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    world.says(&push(Some(1), 3));
    world.lose_but_not_gone(End::Exit(1));
    world.says(&push(Some(2), 4));
    assert_eq!(world.snapshot().kept.requests, 3);
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(10));
    world.says(&push(Some(1), 5));
    world.lose(End::Exit(1));
    assert_eq!(world.snapshot().kept.requests, 3);
    assert_eq!(world.dropped(DropReason::KeptFull), 2);
    world.run_for(secs(20));
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1, 2, 3]);
}

#[test]
fn g6_bytes_bound_what_is_kept() {
    let size = push(Some(1), 1).to_string().len();
    let mut world = bounded(|settings| settings.bounds.kept_bytes = size * 2);
    for n in 1..=3 {
        world.says(&push(Some(n), n));
    }
    world.lose(End::Exit(1));
    assert_eq!(world.snapshot().kept.requests, 2);
    assert!(world.snapshot().kept.bytes <= size * 2);
    assert_eq!(world.dropped(DropReason::KeptFull), 1);
}

#[test]
fn g6_nothing_is_kept_longer_than_its_age() {
    let mut world = bounded(|_| ());
    world.says(&push(Some(1), 1));
    world.lose(End::Exit(1));
    world.run_for(secs(86_399));
    assert_eq!(world.snapshot().kept.requests, 1);
    world.run_for(secs(2));
    assert_eq!(world.snapshot().kept.requests, 0);
    assert_eq!(world.dropped(DropReason::KeptTooOld), 1);
    world.check.conserved(0);
}

#[test]
fn g6_an_item_stays_marked_kept_however_often_it_is_held_again() {
    let mut world = bounded(|_| ());
    world.says(&push(Some(1), 1));
    for _ in 0..3 {
        world.lose(End::Exit(1));
        world.run_for(secs(301));
        assert!(world.snapshot().connected);
        assert_eq!(
            (
                world.snapshot().held.requests,
                world.snapshot().kept.requests
            ),
            (0, 1)
        );
    }
    let host = world.attach_host(1);
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g16_what_is_no_message_is_answered_as_the_protocol_says() {
    let about = Some(About::Request(RequestId::from(7)));
    let cases = [
        (Unreadable::Batch(Vec::new()), json!(null)),
        (Unreadable::TooDeep { about: None }, json!(null)),
        (Unreadable::TooLong { limit: 16, about }, json!(7)),
        (
            Unreadable::Invalid {
                why: "`id` must be a string or a number",
                about: None,
            },
            json!(null),
        ),
    ];
    for (what, id) in cases {
        let mut world = World::bridge();
        let host = world.attach_host(1);
        let before = world.heard_on(world.epoch()).len();
        world.link(LinkEvent::Unreadable {
            what: what.clone(),
            sample: "[".into(),
        });
        let heard = world.heard_on(world.epoch());
        assert_eq!(heard.len(), before + 1, "{what:?}");
        assert_eq!(
            (code(heard[before]), &heard[before]["id"]),
            (Some(-32600), &id)
        );
        world.host(host, HostEvent::Unreadable(what.clone()));
        let told = world.hosts[&host].told.last().unwrap();
        assert_eq!((code(told), &told["id"]), (Some(-32600), &id), "{what:?}");
        assert!(world.snapshot().connected);
    }
}

#[test]
fn g16_noise_on_stdout_is_counted_and_told_once_a_minute_and_never_answered() {
    let mut world = World::new(Settings::default());
    world.start();
    let before = world.heard_on(world.epoch()).len();
    for _ in 0..90 {
        world.link(LinkEvent::Unreadable {
            what: Unreadable::NotJson,
            sample: "Picked up JAVA".into(),
        });
        world.run_for(secs(1));
    }
    world.run_for(secs(120));
    let noise = world.count_of("noise");
    assert!((1..=4).contains(&noise), "{noise} reports");
    assert!(world.heard_on(world.epoch()).len() <= before + 1);
    assert!(world.snapshot().connected);
}

#[test]
fn g16_channels_beyond_the_bound_are_not_accepted() {
    let mut world = bounded(|settings| settings.bounds.channels = 2);
    for (id, channel) in [(1, "one"), (2, "two"), (3, "three")] {
        world.says(&register(id, channel));
    }
    let accepted = |id| world.answer(id).unwrap()["result"]["results"][0]["accepted"].clone();
    assert_eq!(
        [accepted(1), accepted(2), accepted(3)],
        [json!(true), json!(true), json!(false)]
    );
    assert_eq!(world.snapshot().channels, 2);
}

#[test]
fn g16_descriptors_beyond_the_bound_of_bytes_are_not_accepted() {
    let mut world = bounded(|settings| settings.bounds.channel_bytes = 300);
    let large = "x".repeat(200);
    for (id, channel) in [(1, "one"), (2, "two")] {
        world.says(&request(
            id,
            "channels/register",
            json!({"channels": [{"id": channel, "type": "chat", "label": large, "direction": "bidirectional"}]}),
        ));
    }
    let accepted = |id| world.answer(id).unwrap()["result"]["results"][0]["accepted"].clone();
    assert_eq!([accepted(1), accepted(2)], [json!(true), json!(false)]);
}

#[test]
fn g16_calls_in_flight_are_bounded() {
    let mut world = bounded(|settings| settings.bounds.in_flight = 2);
    let host = world.attach_host(1);
    world.peer.answers_calls = false;
    for id in 1..=3 {
        world.host_says(host, &request(id, "tools/call", json!({"name": "echo"})));
    }
    assert!(world.answer_to_host(host, 1).is_none());
    let refused = world.answer_to_host(host, 3).unwrap();
    assert!(
        is_response(&refused) && code(&refused).is_some(),
        "{refused}"
    );
    assert_eq!(world.snapshot().in_flight, 2);
}
