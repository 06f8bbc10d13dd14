//! G11: what is admitted is judged by the grant of that moment.

use serde_json::json;
use tidegate::engine::decision::DropReason;
use tidegate::engine::input::End;
use tidegate::engine::settings::Settings;

use crate::world::message::{code, incoming, push, request};
use crate::world::peer::{Peer, bridge};
use crate::world::{World, secs};

fn without(path: &str) -> Settings {
    let mut settings = Settings::default();
    settings.mask.disabled_capabilities = vec![path.into()];
    settings
}

#[test]
fn g11_a_live_request_without_its_capability_is_refused_and_named() {
    let mut world = World::started(without("pushEvents"), Peer::bridge());
    let host = world.attach_host(1);
    world.says(&push(Some(1), 1));
    let refusal = world.answer(1).unwrap();
    assert_eq!(code(&refusal), Some(-32002));
    assert_eq!(refusal["error"]["data"]["capability"], "pushEvents");
    assert!(world.numbers(host, "push/event").is_empty());
    assert_eq!(world.count_of("refused-message"), 1);
    world.check.conserved(0);
}

#[test]
fn g11_a_live_notification_without_its_capability_is_dropped() {
    let mut world = World::started(without("pushEvents"), Peer::bridge());
    world.attach_host(1);
    world.says(&push(None, 1));
    assert_eq!(world.dropped(DropReason::NotGranted), 1);
    world.check.conserved(0);
}

#[test]
fn g11_each_method_needs_its_own_capability() {
    for (method, path) in [
        ("channels/register", "channels.register"),
        ("channels/list", "channels.register"),
        ("channels/incoming", "channels.incoming"),
        ("inference/request", "inferenceRequest"),
    ] {
        let mut world = World::started(without(path), Peer::bridge());
        world.attach_host(1);
        world.says(&request(1, method, json!({"channels": [], "messages": []})));
        let answer = world
            .answer(1)
            .unwrap_or_else(|| panic!("no answer to {method}"));
        assert_eq!(code(&answer), Some(-32002), "{method}: {answer}");
        assert_eq!(answer["error"]["data"]["capability"], path);
    }
}

#[test]
fn g11_the_grant_that_counts_is_the_one_at_admission_not_at_receipt() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.says(&push(Some(1), 1));
    // The host narrows as it begins to serve: the flush that follows finds the narrowed grant.
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    world.host_says(
        host,
        &request(
            "fs",
            "featureSets/update",
            json!({"effectiveCapabilities": ["channels.register"]}),
        ),
    );
    assert!(!world.grants("pushEvents"));
    assert!(world.numbers(host, "push/event").is_empty());
    assert_eq!(code(&world.answer(1).unwrap()), Some(-32002));
}

#[test]
fn g11_what_is_kept_without_its_capability_stays_kept_until_an_epoch_grants_it() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.says(&push(Some(1), 1));
    world.lose(End::Exit(1));
    let host = world.attach_host(1);
    world.peer.mcpl = Some(json!({"version": "0.5", "channels": true}));
    world.run_for(secs(5));
    assert!(world.snapshot().connected && !world.grants("pushEvents"));
    assert!(world.numbers(host, "push/event").is_empty());
    assert_eq!(world.snapshot().kept.requests, 1);
    world.peer.mcpl = Some(bridge());
    world.lose(End::Exit(1));
    world.run_for(secs(10));
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn g11_what_is_kept_is_not_dropped_by_an_epoch_without_mcpl() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.says(&push(Some(1), 1));
    world.lose(End::Exit(1));
    world.peer.mcpl = None;
    world.attach_host(1);
    world.run_for(secs(600));
    assert_eq!(world.snapshot().kept.requests, 1);
}

#[test]
fn g11_registrations_are_judged_descriptor_by_descriptor() {
    let mut settings = Settings::default();
    settings.mask.channels = Some(vec!["chat:*".into()]);
    let mut world = World::started(settings, Peer::bridge());
    world.says(&request(
        1,
        "channels/register",
        json!({"channels": [{"id": "chat:a", "type": "chat"}, {"id": "ops:b", "type": "chat"}, {"type": "chat"}]}),
    ));
    let answer = world.answer(1).unwrap();
    let results = answer["result"]["results"]
        .as_array()
        .expect("an itemised answer");
    let accepted = |id: serde_json::Value| {
        let item = results.iter().find(|item| item["id"] == id);
        item.unwrap_or_else(|| panic!("no verdict for {id}: {answer}"))["accepted"] == true
    };
    assert_eq!(results.len(), 3);
    assert_eq!(
        [
            accepted(json!("chat:a")),
            accepted(json!("ops:b")),
            accepted(json!(null))
        ],
        [true, false, false]
    );
}

#[test]
fn g11_host_command_needs_the_operators_word() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.attach_host(1);
    world.says(&request(1, "host/command", json!({"command": "resume"})));
    assert_eq!(code(&world.answer(1).unwrap()), Some(-32002));
    let settings = Settings {
        allow_host_commands: true,
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::bridge());
    let host = world.attach_host(1);
    world.says(&request(1, "host/command", json!({"command": "resume"})));
    assert_eq!(world.asked_host(host, "host/command").len(), 1);
    assert!(world.answer(1).unwrap().get("result").is_some());
}

#[test]
fn g9_what_is_kept_for_a_channel_is_gone_once_a_connection_without_it_has_lasted() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.says(&incoming(Some(1), 1, "gone"));
    world.lose(End::Exit(1));
    world.attach_host(1);
    world.run_for(secs(250));
    assert!(world.snapshot().connected);
    assert_eq!(world.snapshot().kept.requests, 1);
    world.run_for(secs(60));
    assert_eq!(world.dropped(DropReason::ChannelGone), 1);
    assert_eq!(world.snapshot().kept.requests, 0);
}
