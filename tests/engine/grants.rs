//! P2, P3 and P9: which paths a pattern covers, and in which order a change takes effect.

use serde_json::{Value, json};
use tidegate::engine::settings::{Mask, Settings};

use crate::world::World;
use crate::world::message::request;
use crate::world::peer::{Peer, Receipt, bridge};

fn granted(mcpl: Value, mask: Mask) -> Vec<&'static str> {
    let settings = Settings {
        mask,
        ..Settings::default()
    };
    let peer = Peer {
        mcpl: Some(mcpl),
        ..Peer::default()
    };
    let world = World::started(settings, peer);
    world.snapshot().granted
}

fn disabled(pattern: &str) -> Mask {
    Mask {
        disabled_capabilities: vec![pattern.into()],
        ..Mask::default()
    }
}

fn enabled(patterns: &[&str]) -> Mask {
    Mask {
        enabled_capabilities: Some(patterns.iter().map(|&pattern| pattern.into()).collect()),
        ..Mask::default()
    }
}

/// A host narrows the grant to these paths.
fn update(id: &str, to: &[&str]) -> Value {
    let paths = json!({"effectiveCapabilities": to});
    request(id, "featureSets/update", paths)
}

#[test]
fn p2_true_in_an_advertisement_is_every_leaf_below_it() {
    let all = granted(json!({"version": "0.5", "channels": true}), Mask::default());
    let channels: Vec<_> = all
        .iter()
        .filter(|path| path.starts_with("channels."))
        .collect();
    assert_eq!(channels.len(), 7);
    let both = granted(
        json!({"version": "0.5", "inferenceRequest": true}),
        Mask::default(),
    );
    assert!(both.contains(&"inferenceRequest") && both.contains(&"inferenceRequest.streaming"));
}

#[test]
fn p2_an_object_advertises_what_it_names_and_nothing_else() {
    let some = granted(
        json!({"version": "0.5", "channels": {"register": true, "incoming": false, "typing": "yes", "teleport": true},
            "pushEvents": 1}),
        Mask::default(),
    );
    assert_eq!(some, ["channels.register", "tools"]);
}

#[test]
fn p2_a_star_is_exactly_one_segment() {
    let advertised =
        json!({"version": "0.5", "channels": true, "contextHooks": true, "pushEvents": true});
    let star = granted(advertised.clone(), enabled(&["channels.*"]));
    assert_eq!(star.len(), 7);
    let deep = granted(advertised.clone(), enabled(&["contextHooks.*.inject.*"]));
    assert_eq!(
        deep,
        [
            "contextHooks.beforeInference.inject.afterUser",
            "contextHooks.beforeInference.inject.beforeUser",
            "contextHooks.beforeInference.inject.system"
        ]
    );
    let masked = granted(advertised, disabled("*.register"));
    assert!(!masked.contains(&"channels.register") && masked.contains(&"channels.incoming"));
}

#[test]
fn p2_a_disabled_parent_covers_what_is_below_it_and_wins() {
    let advertised =
        json!({"version": "0.5", "channels": true, "contextHooks": true, "pushEvents": true});
    let masked = granted(advertised.clone(), disabled("contextHooks.*"));
    assert!(!masked.iter().any(|path| path.starts_with("contextHooks")));
    let mut both = enabled(&["channels.register", "pushEvents"]);
    both.disabled_capabilities = vec!["channels".into()];
    assert_eq!(granted(advertised, both), ["pushEvents"]);
}

#[test]
fn p2_in_a_hosts_narrowing_a_parent_grants_no_leaf() {
    let mut world = World::bridge();
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    let update = json!({"effectiveCapabilities": ["channels", "pushEvents", "inferenceRequest"]});
    world.host_says(host, &request("fs", "featureSets/update", update));
    assert_eq!(world.snapshot().granted, ["inferenceRequest", "pushEvents"]);
}

#[test]
fn p2_tools_come_from_the_outer_capability_alone() {
    let all = granted(
        json!({"version": "0.5", "tools": true, "pushEvents": true}),
        Mask::default(),
    );
    assert_eq!(all, ["pushEvents", "tools"]);
}

#[test]
fn p3_a_reduction_takes_effect_before_the_server_is_told() {
    let mut world = World::bridge();
    world.peer.receipt = Receipt::Silent;
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    let less = json!({"effectiveCapabilities": ["channels.register"]});
    world.host_says(host, &request("fs", "featureSets/update", less));
    assert_eq!(world.snapshot().granted, ["channels.register"]);
    assert_eq!(world.asked_server("featureSets/update").len(), 2);
    assert!(
        world.answer_to_host(host, "fs").is_none(),
        "the receipt is not here yet"
    );
}

#[test]
fn p3_an_expansion_takes_effect_at_its_receipt_and_unanswered_it_does_not() {
    let mut world = World::bridge();
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    world.host_says(host, &update("less", &["channels.register"]));
    world.peer.receipt = Receipt::Silent;
    world.host_says(host, &update("more", &["channels.register", "pushEvents"]));
    assert_eq!(world.snapshot().granted, ["channels.register"]);
    world.run_for(world.settings.policy_timeout);
    assert_eq!(world.snapshot().granted, ["channels.register"]);
    assert!(world.answer_to_host(host, "more").is_some());
    world.peer.receipt = Receipt::Accept;
    let wider = ["channels.register", "inferenceRequest", "pushEvents"];
    world.host_says(host, &update("other", &wider));
    assert_eq!(world.snapshot().granted, wider);
}

#[test]
fn p3_a_change_that_reduces_and_expands_reduces_first() {
    let mut world = World::bridge();
    let host = world.attach(1, json!({"experimental": {"mcpl": bridge()}}));
    world.host_says(
        host,
        &update("one", &["channels.register", "channels.incoming"]),
    );
    world.peer.receipt = Receipt::Silent;
    world.host_says(host, &update("two", &["channels.incoming", "pushEvents"]));
    assert_eq!(world.snapshot().granted, ["channels.incoming"]);
    world.gives_receipt(json!({"accepted": true}));
    assert_eq!(
        world.snapshot().granted,
        ["channels.incoming", "pushEvents"]
    );
}
