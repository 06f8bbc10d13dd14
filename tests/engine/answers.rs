//! A1 to A3 and A6: who is owed which answer, and what is announced.

use serde_json::{Value, json};
use tidegate::engine::decision::DropReason;
use tidegate::engine::input::{End, HostEvent, LinkEvent};
use tidegate::engine::output::Output;
use tidegate::engine::settings::Settings;
use tidegate::ids::{Epoch, SessionId};

use crate::world::message::{code, error, method, push, raw, request, result};
use crate::world::peer::{Fate, Peer, REFUSED, Receipt};
use crate::world::{World, secs};

fn plain() -> World {
    let mut world = World::new(Settings::default());
    world.start();
    world
}

/// The newest frames that were written to the server, and those to hosts, as text.
fn last_to_server(world: &World) -> String {
    let frames = world
        .trace
        .iter()
        .rev()
        .find_map(|(_, output)| match output {
            Output::Send { frame, .. } => Some(frame.clone()),
            _ => None,
        });
    String::from_utf8(frames.unwrap().to_vec()).unwrap()
}

fn last_to_host(world: &World) -> String {
    let frames = world
        .trace
        .iter()
        .rev()
        .find_map(|(_, output)| match output {
            Output::Answer { frame, .. } => Some(frame.clone()),
            _ => None,
        });
    String::from_utf8(frames.unwrap().to_vec()).unwrap()
}

#[test]
fn a1_an_answer_goes_to_the_epoch_that_asked_or_to_none() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&push(Some(1), 1));
    let asked = world.asked_host(host, "push/event")[0].clone();
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    assert_eq!(world.epoch(), Epoch(2));
    world.host_says(host, &result(&asked["id"], json!({"accepted": true})));
    assert!(world.answer_on(Epoch(1), 1).is_none() && world.answer_on(Epoch(2), 1).is_none());
}

#[test]
fn a1_the_next_process_may_use_the_same_ids() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&push(Some(100), 1));
    let first = world.asked_host(host, "push/event")[0]["id"].clone();
    world.lose(End::Exit(1));
    world.run_for(secs(5));
    world.says(&push(Some(100), 2));
    let second = world.asked_host(host, "push/event").last().unwrap()["id"].clone();
    assert_ne!(first, second);
    world.host_says(host, &error(&first, -1));
    world.host_says(host, &result(&second, json!({"accepted": true, "of": 2})));
    assert_eq!(world.answer_on(Epoch(2), 100).unwrap()["result"]["of"], 2);
}

#[test]
fn a2_ids_come_back_as_the_bytes_received() {
    let ids = [
        "0",
        "\"\"",
        "1.50",
        "-7",
        "1e3",
        "1180591620717411303424",
        "\"a\\u0062\"",
        "\"1\"",
    ];
    for id in ids {
        let mut world = World::bridge();
        world.link(LinkEvent::Received(raw(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#
        ))));
        assert!(
            last_to_server(&world).contains(&format!("\"id\":{id}")),
            "{id}"
        );
        let host = world.attach_host(1);
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#
        );
        world.host(host, HostEvent::Received(raw(&call)));
        assert!(
            last_to_host(&world).contains(&format!("\"id\":{id}")),
            "{}",
            last_to_host(&world)
        );
    }
}

#[test]
fn a2_what_is_forwarded_is_what_was_received_but_for_the_id() {
    let mut world = plain();
    let client = world.attach(1, json!({}));
    world.peer.answers_calls = false;
    let params =
        r#"{ "name":"echo" ,"x": 1.0e0, "arguments":{"\u00e9":[1,2.50,null]},"name2":"é" }"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0", "method":"tools/call","params":{params},"id":"me","ext":{{"k":[]}}}}"#
    );
    world.host(client, HostEvent::Received(raw(&call)));
    let id = world.last_asked("tools/call");
    assert_eq!(
        last_to_server(&world),
        call.replace("\"me\"", &id.to_string())
    );
    let answer = format!(
        r#"{{"result":{{ "content":[],"n":1E2,"\u0041":null }},"id":{id} ,"jsonrpc":"2.0"}}"#
    );
    world.link(LinkEvent::Received(raw(&answer)));
    assert_eq!(
        last_to_host(&world),
        answer.replace(&format!("\"id\":{id}"), "\"id\":\"me\"")
    );
}

#[test]
fn a2_an_error_of_the_server_reaches_the_host_with_its_code_and_data() {
    let mut world = plain();
    let client = world.attach(1, json!({}));
    world.peer.answers_calls = false;
    world.host_says(client, &request("c", "tools/call", json!({"name": "echo"})));
    let id = world.last_asked("tools/call");
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"é","data":{{"a":[1.0]}}}}}}"#
    );
    world.link(LinkEvent::Received(raw(&answer)));
    let wanted = answer.replace(&format!("\"id\":{id}"), "\"id\":\"c\"");
    assert_eq!(last_to_host(&world), wanted);
}

#[test]
fn a2_a_reused_id_in_flight_is_served_on_its_own() {
    let mut world = plain();
    let client = world.attach(1, json!({}));
    world.peer.answers_calls = false;
    for name in ["first", "second"] {
        world.host_says(
            client,
            &request("same", "tools/call", json!({"name": name})),
        );
    }
    let asked = world.asked_server("tools/call");
    assert_eq!(asked.len(), 2);
    for (_, call) in asked.iter().rev() {
        world.says(&result(&call["id"], json!({"to": call["params"]["name"]})));
    }
    let answers: Vec<_> = world.hosts[&client]
        .told
        .iter()
        .filter(|said| said["id"] == "same")
        .map(|said| said["result"]["to"].clone())
        .collect();
    assert_eq!(answers, ["second", "first"]);
}

#[test]
fn a2_an_answer_matches_our_own_integer_by_type_and_digits_alone() {
    let mut world = plain();
    let client = world.attach(1, json!({}));
    world.peer.answers_calls = false;
    world.host_says(client, &request("c", "tools/call", json!({"name": "echo"})));
    let id = world.last_asked("tools/call");
    let before = world.dropped(DropReason::Unmatched);
    for wrong in [
        format!("\"{id}\""),
        format!("{id}.0"),
        format!("-{id}"),
        format!("{id}e0"),
        "99999".into(),
    ] {
        world.link(LinkEvent::Received(raw(&format!(
            r#"{{"jsonrpc":"2.0","id":{wrong},"result":{{}}}}"#
        ))));
        assert!(world.answer_to_host(client, "c").is_none(), "{wrong}");
    }
    assert_eq!(world.dropped(DropReason::Unmatched), before + 5);
    world.says(&result(&id, json!({})));
    assert!(world.answer_to_host(client, "c").is_some());
    world.says(&result(&id, json!({})));
    assert_eq!(
        world.dropped(DropReason::Unmatched),
        before + 6,
        "an answer is used once"
    );
}

#[test]
fn a2_two_hosts_with_the_same_ids_do_not_cross() {
    let mut world = plain();
    let (one, two) = (world.attach(1, json!({})), world.attach(2, json!({})));
    world.peer.answers_calls = false;
    world.host_says(one, &request(1, "tools/call", json!({"name": "one"})));
    world.host_says(two, &request(1, "tools/call", json!({"name": "two"})));
    for (_, call) in world.asked_server("tools/call") {
        world.says(&result(&call["id"], json!({"to": call["params"]["name"]})));
    }
    let to = |session: SessionId| world.answer_to_host(session, 1).unwrap()["result"]["to"].clone();
    assert_eq!([to(one), to(two)], ["one", "two"]);
}

#[test]
fn a3_a_world_request_is_answered_with_the_hosts_own_answer() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&push(Some(1), 1));
    let id = world.asked_host(host, "push/event")[0]["id"].clone();
    let verdict = json!({"accepted": true, "inferenceId": "i-1", "extra": [1]});
    world.host_says(host, &result(&id, verdict.clone()));
    assert_eq!(world.answer(1).unwrap()["result"], verdict);
    world.says(&push(Some(2), 2));
    let id = world.asked_host(host, "push/event")[1]["id"].clone();
    world.host_says(host, &error(&id, -32003));
    assert_eq!(code(&world.answer(2).unwrap()), Some(-32003));
}

#[test]
fn a3_the_gateway_accepts_nothing_for_the_host_that_it_has_not_recorded() {
    let mut world = World::bridge();
    world.says(&push(Some(1), 1));
    world.run_for(secs(3_600));
    assert!(world.answer(1).is_none());
    let host = world.attach_host(1);
    assert!(world.answer(1).is_some());
    assert_eq!(world.numbers(host, "push/event"), [1]);
}

#[test]
fn a3_every_kind_of_request_gets_exactly_one_answer() {
    let mut world = World::bridge();
    world.attach_host(1);
    let methods = [
        "ping",
        "scope/elevate",
        "featureSets/changed",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "channels/register",
        "channels/changed",
        "channels/list",
        "tools/observe",
        "host/command",
        "push/event",
        "channels/incoming",
        "inference/request",
        "model/info",
        "x/unknown",
        "tools/list",
        "initialize",
        "notifications/initialized",
        "featureSets/update",
        "mcpl/manifest",
    ];
    for (id, name) in methods.iter().enumerate() {
        world.says(&request(id, name, json!({})));
    }
    world.run_for(secs(700));
    let owed = world.check.unanswered_requests(world.epoch());
    assert!(owed.is_empty(), "{owed:?}");
    for (id, name) in methods
        .iter()
        .enumerate()
        .filter(|(_, name)| ["scope/elevate", "featureSets/changed"].contains(name))
    {
        assert_eq!(code(&world.answer(id).unwrap()), Some(-32601), "{name}");
    }
}

#[test]
fn a3_params_of_a_wrong_shape_are_answered_and_never_a_panic() {
    let mut world = World::bridge();
    world.attach_host(1);
    let shapes = [
        json!({}),
        json!([]),
        json!({"channels": 7}),
        json!({"messages": [7, null, {}]}),
        json!({"added": {}}),
    ];
    let methods = [
        "channels/register",
        "channels/changed",
        "channels/incoming",
        "push/event",
        "tools/observe",
        "roots/list",
    ];
    let mut id = 0;
    for name in methods {
        for shape in &shapes {
            id += 1;
            world.says(&request(id, name, shape.clone()));
            world.says(&crate::world::message::notification(name, shape.clone()));
        }
    }
    world.run_for(secs(100));
    assert!(world.check.unanswered_requests(world.epoch()).is_empty());
}

#[test]
fn a3_what_a_host_went_away_with_is_answered_or_still_waits() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.hosts.get_mut(&host).unwrap().answers = false;
    world.says(&request(1, "inference/request", json!({"n": 1})));
    assert_eq!(world.asked_host(host, "inference/request").len(), 1);
    world.detach(host);
    assert!(code(&world.answer(1).unwrap()).is_some());
}

fn list_changes(world: &World, session: SessionId) -> usize {
    let told = &world.hosts[&session].told;
    told.iter()
        .filter(|said| method(said).ends_with("list_changed"))
        .count()
}

#[test]
fn a6_a_server_that_never_connected_is_never_announced() {
    let mut world = World::started(
        Settings::default(),
        Peer {
            fate: REFUSED,
            ..Peer::bridge()
        },
    );
    let host = world.attach_host(1);
    world.host_says(host, &request(1, "tools/list", json!({})));
    assert_eq!(
        world.answer_to_host(host, 1).unwrap()["result"]["tools"],
        json!([])
    );
    world.run_for(secs(3_600));
    assert_eq!(list_changes(&world, host), 0);
}

#[test]
fn a6_lists_are_announced_once_their_server_serves_and_only_if_they_changed() {
    let mut world = World::started(
        Settings::default(),
        Peer {
            fate: REFUSED,
            ..Peer::bridge()
        },
    );
    let host = world.attach_host(1);
    world.host_says(host, &request(1, "tools/list", json!({})));
    world.peer.fate = Fate::Serve(None);
    world.run_for(secs(5));
    assert_eq!(
        world
            .asked_host(host, "notifications/tools/list_changed")
            .len(),
        1
    );
    world.host_says(host, &request(2, "tools/list", json!({})));
    assert_eq!(
        world.answer_to_host(host, 2).unwrap()["result"]["tools"][0]["name"],
        "echo"
    );
    world.lose(End::Exit(1));
    world.run_for(secs(30));
    assert_eq!(
        world
            .asked_host(host, "notifications/tools/list_changed")
            .len(),
        1,
        "nothing changed"
    );
    world.peer.tools = vec![json!({"name": "other", "inputSchema": {"type": "object"}})];
    world.lose(End::Exit(1));
    world.run_for(secs(60));
    assert_eq!(
        world
            .asked_host(host, "notifications/tools/list_changed")
            .len(),
        2
    );
}

#[test]
fn a6_a_transport_that_ends_before_its_exchange_settles_announces_nothing() {
    let mut world = World::started(
        Settings::default(),
        Peer {
            receipt: Receipt::Silent,
            ..Peer::bridge()
        },
    );
    let host = world.attach_host(1);
    world.run_for(secs(1));
    world.lose(End::Exit(1));
    assert_eq!(list_changes(&world, host), 0);
    world.peer.receipt = Receipt::Accept;
    world.run_for(secs(5));
    assert_eq!(
        world
            .asked_host(host, "notifications/tools/list_changed")
            .len(),
        1
    );
}

#[test]
fn a6_lists_stay_as_they_were_while_the_server_is_away() {
    let mut world = World::bridge();
    let host = world.attach_host(1);
    world.host_says(host, &request(1, "tools/list", json!({})));
    let before: Value = world.answer_to_host(host, 1).unwrap()["result"]["tools"].clone();
    assert_eq!(before[0]["name"], "echo");
    world.peer.fate = REFUSED;
    world.lose(End::Exit(1));
    world.host_says(host, &request(2, "tools/list", json!({})));
    assert_eq!(
        world.answer_to_host(host, 2).unwrap()["result"]["tools"],
        before
    );
    assert_eq!(list_changes(&world, host), 0);
}
