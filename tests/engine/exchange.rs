//! P1 and P4 to P7: the policy exchange and what comes of it.

use serde_json::{Value, json};
use tidegate::engine::decision::{Decision, Exchange, Hold, State};
use tidegate::engine::input::End;
use tidegate::engine::output::{Output, Record};
use tidegate::engine::settings::Settings;
use tidegate::ids::Epoch;

use crate::world::message::{code, notification, request, result};
use crate::world::peer::{Fate, Peer, REFUSED, Receipt, bridge};
use crate::world::{World, secs};

fn bridge_with(receipt: Receipt) -> World {
    World::started(
        Settings::default(),
        Peer {
            receipt,
            ..Peer::bridge()
        },
    )
}

fn settled(world: &World) -> Vec<Exchange> {
    world
        .decisions()
        .filter_map(|(_, decision)| match decision {
            Decision::Settled { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect()
}

fn host_of(world: &mut World) -> tidegate::ids::SessionId {
    world.attach(1, json!({"experimental": {"mcpl": bridge()}}))
}

fn narrow(to: &[&str]) -> Value {
    request(
        "fs",
        "featureSets/update",
        json!({"effectiveCapabilities": to}),
    )
}

#[test]
fn p1_the_exchange_starts_at_adoption_and_waits_for_no_host() {
    let world = World::bridge();
    let asked = world.asked_server("featureSets/update");
    assert_eq!(asked.len(), 1);
    assert!(asked[0].1.get("id").is_some(), "it is a Request");
    let effective = asked[0].1["params"]["effectiveCapabilities"]
        .as_array()
        .unwrap();
    for path in [
        "pushEvents",
        "channels.register",
        "channels.incoming",
        "inferenceRequest",
        "tools",
    ] {
        assert!(effective.contains(&json!(path)), "{path} in {effective:?}");
    }
    assert!(
        !effective.contains(&json!("modelInfo")),
        "it is not advertised"
    );
    let mut sorted = effective.clone();
    sorted.sort_by_key(|path| path.as_str().unwrap().to_owned());
    assert_eq!(&sorted, effective);
    assert!(world.grants("pushEvents") && world.snapshot().state == State::Open);
}

#[test]
fn p1_the_exchange_is_a_request_also_when_it_grants_nothing() {
    let mut settings = Settings::default();
    settings.mask.enabled_capabilities = Some(vec![]);
    let world = World::started(settings, Peer::bridge());
    let asked = world.asked_server("featureSets/update");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1["params"]["effectiveCapabilities"], json!([]));
    assert!(world.snapshot().granted.is_empty());
    assert_eq!(world.snapshot().state, State::Open);
}

#[test]
fn p1_the_mask_and_the_host_narrow_what_the_server_advertises() {
    let mut settings = Settings::default();
    settings.mask.disabled_capabilities = vec!["inferenceRequest".into()];
    let mut world = World::started(settings, Peer::bridge());
    assert!(world.grants("pushEvents") && !world.grants("inferenceRequest"));
    let host = host_of(&mut world);
    world.host_says(
        host,
        &narrow(&["channels.register", "inferenceRequest", "modelInfo"]),
    );
    assert_eq!(world.snapshot().granted, ["channels.register"]);
    assert!(
        world
            .answer_to_host(host, "fs")
            .unwrap()
            .get("result")
            .is_some()
    );
}

#[test]
fn p1_a_narrowing_stays_until_a_host_replaces_it() {
    let mut world = World::bridge();
    let host = host_of(&mut world);
    world.host_says(host, &narrow(&["pushEvents"]));
    let recorded = world.trace.iter().any(|(_, output)| {
        matches!(output, Output::Record(Record::Narrowing(params)) if params.contains("pushEvents"))
    });
    assert!(recorded);
    world.detach(host);
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert_eq!(world.snapshot().granted, ["pushEvents"]);
    world.reboot();
    world.run_for(secs(5));
    assert_eq!(world.snapshot().granted, ["pushEvents"]);
    world.attach_host(2);
    assert!(world.grants("channels.register"));
}

#[test]
fn p1_an_update_that_changes_nothing_is_answered_from_the_last_receipt() {
    let receipt = json!({"accepted": true, "notes": "as you wish"});
    let mut world = bridge_with(Receipt::Result(receipt.clone()));
    let host = world.attach_host(1);
    assert_eq!(world.asked_server("featureSets/update").len(), 1);
    assert_eq!(world.answer_to_host(host, "fs").unwrap()["result"], receipt);
}

#[test]
fn p1_an_update_that_changes_the_grant_is_negotiated_once_and_answered_with_the_receipt() {
    let mut world = World::bridge();
    let receipt = json!({"accepted": true, "notes": "less it is"});
    world.peer.receipt = Receipt::Result(receipt.clone());
    let host = host_of(&mut world);
    world.host_says(host, &narrow(&["pushEvents"]));
    assert_eq!(world.asked_server("featureSets/update").len(), 2);
    assert_eq!(world.answer_to_host(host, "fs").unwrap()["result"], receipt);
}

#[test]
fn p1_a_host_that_sends_no_update_serves_after_the_policy_timeout_and_narrows_nothing() {
    let mut world = World::bridge();
    let before = world.snapshot().granted;
    host_of(&mut world);
    world.run_for(secs(14));
    assert!(!world.snapshot().host_serves);
    world.run_for(secs(1));
    assert!(world.snapshot().host_serves);
    assert_eq!(world.snapshot().granted, before);
    let unasked = world
        .decisions()
        .any(|(_, decision)| matches!(decision, Decision::HostServes { unasked: true }));
    assert!(unasked);
}

#[test]
fn p1_a_plain_client_sets_no_policy() {
    let mut world = World::bridge();
    let client = world.attach(1, json!({}));
    let before = world.snapshot().granted;
    world.host_says(client, &narrow(&["modelInfo"]));
    let params = json!({"disabled": ["chat"]});
    world.host_says(client, &notification("featureSets/update", params));
    assert_eq!(
        code(&world.answer_to_host(client, "fs").unwrap()),
        Some(-32601)
    );
    assert_eq!(
        world.asked_server("featureSets/update").len(),
        1,
        "the gateway's own"
    );
    assert_eq!(world.snapshot().granted, before);
}

#[test]
fn p4_a_refusal_leaves_the_connection_without_mcpl() {
    let mut world = bridge_with(Receipt::Result(
        json!({"accepted": false, "fallback": "mcp-only"}),
    ));
    assert!(world.snapshot().granted.is_empty() && world.snapshot().connected);
    assert_eq!(settled(&world), [Exchange::Refused]);
    let host = world.attach_host(1);
    world.host_says(host, &request(1, "tools/call", json!({"name": "echo"})));
    assert!(
        world
            .answer_to_host(host, 1)
            .unwrap()
            .get("result")
            .is_some()
    );
}

#[test]
fn p4_a_refusal_with_close_ends_the_connection() {
    let world = bridge_with(Receipt::Result(
        json!({"accepted": false, "fallback": "close"}),
    ));
    assert!(!world.snapshot().connected);
    let closed = world
        .trace
        .iter()
        .any(|(_, output)| matches!(output, Output::Close { epoch } if *epoch == Epoch(1)));
    assert!(closed);
    assert_eq!(settled(&world), [Exchange::Refused]);
}

#[test]
fn p4_a_refusal_without_a_fallback_is_read_as_mcp_only_and_reported() {
    let world = bridge_with(Receipt::Result(json!({"accepted": false})));
    assert!(world.snapshot().connected && world.snapshot().granted.is_empty());
    assert_eq!(settled(&world), [Exchange::Refused]);
    let noted = world.decisions().any(
        |(_, decision)| matches!(decision, Decision::Settled { note, .. } if !note.is_empty()),
    );
    assert!(noted || world.count_of("reported") > 0);
}

#[test]
fn p4_only_accepted_true_accepts() {
    for receipt in [
        json!({}),
        json!(null),
        json!("yes"),
        json!([]),
        json!({"accepted": "true"}),
        json!({"accepted": 1}),
        json!({"ok": true}),
    ] {
        let world = bridge_with(Receipt::Result(receipt.clone()));
        assert!(world.snapshot().granted.is_empty(), "{receipt}");
        assert!(world.snapshot().connected);
        assert_eq!(settled(&world), [Exchange::Error], "{receipt}");
    }
}

#[test]
fn p4_a_receipt_never_widens_a_grant() {
    let mut world = bridge_with(Receipt::Result(
        json!({"accepted": true, "effectiveCapabilities": ["modelInfo"], "capabilities": {"modelInfo": true}}),
    ));
    assert!(!world.grants("modelInfo"));
    world.attach_host(1);
    assert!(!world.grants("modelInfo"));
}

#[test]
fn p4_a_degraded_receipt_is_told_as_degraded() {
    let world = bridge_with(Receipt::Result(
        json!({"accepted": true, "mode": "degraded",
        "unavailableFeatures": [{"featureSet": "chat", "missingCapabilities": ["modelInfo"], "effect": "no names"}]}),
    ));
    assert_eq!(settled(&world), [Exchange::Degraded]);
    assert!(world.grants("pushEvents"));
}

#[test]
fn p4_what_writes_into_the_system_prompt_or_sees_tool_calls_is_denied_unless_named_in_full() {
    let advertised =
        json!({"version": "0.5", "contextHooks": true, "toolLifecycle": true, "pushEvents": true});
    let system = "contextHooks.beforeInference.inject.system";
    let observe = "toolLifecycle.observe";
    let grants = |enabled: Option<Vec<String>>| {
        let mut settings = Settings::default();
        settings.mask.enabled_capabilities = enabled;
        let peer = Peer {
            mcpl: Some(advertised.clone()),
            ..Peer::default()
        };
        let mut world = World::with(settings, peer);
        world.start();
        (
            world.grants(system),
            world.grants(observe),
            world.grants("contextHooks.beforeInference.inject.beforeUser"),
        )
    };
    assert_eq!(grants(None), (false, false, true));
    assert_eq!(
        grants(Some(vec!["contextHooks".into(), "toolLifecycle".into()])),
        (false, false, true)
    );
    assert_eq!(
        grants(Some(vec![system.into(), observe.into()])),
        (true, true, false)
    );
}

#[test]
fn p5_a_receipt_that_arrives_after_its_transport_closed_grants_nothing() {
    let mut world = bridge_with(Receipt::Silent);
    let asked = world.last_asked("featureSets/update");
    world.lose_but_not_gone(End::Exit(1));
    world.says(&result(&asked, json!({"accepted": true})));
    assert!(world.snapshot().granted.is_empty());
    assert_eq!(settled(&world), [Exchange::Closed]);
    let gone = world.peer.gone();
    world.link(gone);
    world.run_for(secs(6));
    assert!(world.snapshot().connected && world.snapshot().granted.is_empty());
    assert_eq!(settled(&world), [Exchange::Closed]);
}

#[test]
fn p6_two_updates_while_one_runs_become_one_and_the_last_wins() {
    let mut world = bridge_with(Receipt::Silent);
    let host = host_of(&mut world);
    for path in ["pushEvents", "channels.register", "inferenceRequest"] {
        let update = request(
            path,
            "featureSets/update",
            json!({"effectiveCapabilities": [path]}),
        );
        world.host_says(host, &update);
    }
    assert_eq!(world.asked_server("featureSets/update").len(), 1);
    world.peer.receipt = Receipt::Accept;
    world.gives_receipt(json!({"accepted": true}));
    let asked = world.asked_server("featureSets/update");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(
        asked[1].1["params"]["effectiveCapabilities"],
        json!(["inferenceRequest"])
    );
    assert_eq!(world.snapshot().granted, ["inferenceRequest"]);
    for id in ["pushEvents", "channels.register", "inferenceRequest"] {
        assert!(
            world.answer_to_host(host, id).is_some(),
            "A3: {id} is owed an answer"
        );
    }
}

#[test]
fn p6_an_exchange_runs_only_on_the_transport_that_it_was_started_for() {
    let mut world = bridge_with(Receipt::Silent);
    let host = host_of(&mut world);
    world.host_says(host, &narrow(&["pushEvents"]));
    world.lose(End::Exit(1));
    world.peer.receipt = Receipt::Accept;
    world.run_for(secs(5));
    let asked = world.asked_server("featureSets/update");
    let epochs: Vec<_> = asked.iter().map(|(epoch, _)| epoch.0).collect();
    assert_eq!(epochs, [1, 2]);
    assert_eq!(world.snapshot().granted, ["pushEvents"]);
}

#[test]
fn p7_a_server_that_does_not_know_the_exchange_is_used_without_mcpl_and_that_is_told() {
    for (receipt, outcome, waits) in [
        (Receipt::Error(-32601), Exchange::Error, 0),
        (Receipt::Silent, Exchange::Timeout, 15),
    ] {
        let mut world = bridge_with(receipt);
        world.run_for(secs(waits));
        assert_eq!(settled(&world), [outcome]);
        assert!(world.snapshot().granted.is_empty());
        assert_eq!(world.snapshot().state, State::Open);
        let noted = world.decisions().any(
            |(_, decision)| matches!(decision, Decision::Settled { note, .. } if !note.is_empty()),
        );
        assert!(noted, "the operator is told which");
        let client = world.attach(1, json!({}));
        world.host_says(client, &request(1, "tools/call", json!({"name": "echo"})));
        assert!(
            world
                .answer_to_host(client, 1)
                .unwrap()
                .get("result")
                .is_some()
        );
    }
}

#[test]
fn p7_an_operator_can_grant_without_a_receipt() {
    for receipt in [Receipt::Error(-32601), Receipt::Silent] {
        let settings = Settings {
            grant_without_receipt: true,
            ..Settings::default()
        };
        let peer = Peer {
            receipt: receipt.clone(),
            ..Peer::bridge()
        };
        let mut world = World::with(settings, peer);
        world.start();
        world.run_for(secs(15));
        assert!(world.grants("pushEvents"), "{receipt:?}");
    }
}

#[test]
fn p7_a_refusal_is_not_overruled_by_granting_without_a_receipt() {
    let settings = Settings {
        grant_without_receipt: true,
        ..Settings::default()
    };
    let peer = Peer {
        receipt: Receipt::Result(json!({"accepted": false, "fallback": "mcp-only"})),
        ..Peer::bridge()
    };
    let world = World::started(settings, peer);
    assert!(world.snapshot().granted.is_empty());
}

#[test]
fn p1_p6_a_host_that_attaches_while_the_server_is_away_serves_under_the_next_epoch() {
    let mut world = World::started(
        Settings::default(),
        Peer {
            fate: REFUSED,
            ..Peer::bridge()
        },
    );
    let host = world.attach_host(1);
    world.peer.fate = Fate::Serve(None);
    world.run_for(secs(30));
    assert!(world.snapshot().connected && world.snapshot().host_serves);
    assert!(!world.snapshot().holds.contains(&Hold::NoHost));
    let receipt = world
        .answer_to_host(host, "fs")
        .expect("A4: every request of a host is answered");
    assert_ne!(code(&receipt), Some(-32603));
}
