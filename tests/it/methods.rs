//! Every method of MCPL both ways, with its capability and without, and streams over the loss of a process
//! (docs/methods.md; G11, G15, A1).

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::wire::mcpl::CAPABILITIES;
use tidegate::wire::methods::{METHODS, Method, Needs, Sender};

use crate::events::Events;
use crate::gateway::{Gateway, PATIENCE, Place, faultd, with};
use crate::host::{Host, Received};

/// A server that advertises all of MCPL and writes down what it reads, and a host that serves.
struct Scene {
    gateway: Gateway,
    events: Events,
    host: Host,
}

fn manifest() -> Value {
    json!({
        "version": "0.5", "pushEvents": true, "modelInfo": true, "inferenceRequest": true,
        "inferenceLifecycle": true, "toolLifecycle": true, "contextHooks": true, "channels": true,
        "featureSets": {"notes": {"uses": ["tools"], "rollback": true}, "chat": {"uses": ["tools"]}},
    })
}

/// What the server answers to a hook: an injection for each position.
fn injections() -> Value {
    let at = |position: &str| json!({"namespace": "n", "position": position, "content": position});
    json!([at("system"), at("beforeUser"), at("afterUser")])
}

impl Scene {
    /// One whose operator takes these capabilities away.
    async fn without(disabled: &[&str]) -> Self {
        let place = Place::new();
        let answers = json!({
            "context/beforeInference": {"contextInjections": injections()},
            "state/rollback": {"success": true}, "push/render": {}, "channels/list": {"channels": []},
        });
        fs::write(place.file("manifest"), manifest().to_string()).unwrap();
        fs::write(place.file("answers"), answers.to_string()).unwrap();
        let files = ["manifest", "answers", "heard"];
        let files = files.map(|name| format!("--{name} {}", place.file(name).display()));
        let entry = json!({
            "enabledCapabilities": CAPABILITIES, "disabledCapabilities": disabled,
            "allowHostCommands": disabled.is_empty(), "reconnectIntervalMs": 50,
        });
        let server = with(faultd(&format!("--mcpl {}", files.join(" "))), entry);
        let gateway = place.run(&json!({ "a": server })).await;
        let mut events = gateway.events().await;
        events.until_times("a", "settled", 1).await;
        let mut host = gateway.connect("a").await;
        host.initialize(json!({"experimental": {"mcpl": {"version": "0.5"}}}))
            .await;
        let all = json!({"effectiveCapabilities": ["*", "*.*", "*.*.*", "*.*.*.*"]});
        host.request("featureSets/update", all).await;
        Self {
            gateway,
            events,
            host,
        }
    }

    /// The server sends this.
    async fn says(&mut self, message: Value) {
        let said = self.host.call("say", json!({"messages": [message]})).await;
        assert!(said.error.is_none(), "{said:?}");
    }

    /// The messages that each of the server's processes has read.
    fn heard(&self) -> Vec<Vec<Value>> {
        let text = fs::read_to_string(self.gateway.file("heard")).unwrap();
        let mut processes: Vec<Vec<Value>> = Vec::new();
        // The last line may be half written.
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in lines {
            let message: Value = serde_json::from_str(line).unwrap();
            if message["method"] == "initialize" {
                processes.push(Vec::new());
            }
            processes.last_mut().unwrap().push(message);
        }
        processes
    }

    /// What the server's last process reads that is this.
    async fn until_heard(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let read = async {
            loop {
                let heard = self.heard().pop().unwrap();
                if let Some(found) = heard.into_iter().find(&is_it) {
                    return found;
                }
                tick.tick().await;
            }
        };
        let read = tokio::time::timeout(PATIENCE, read).await;
        read.unwrap_or_else(|_| panic!("no {what} in {:#?}", self.heard().last()))
    }

    async fn until_answered(&self, id: &str) -> Value {
        self.until_heard(id, |message| {
            message["id"] == id && message["method"].is_null()
        })
        .await
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.host.send(message.to_string()).await;
    }

    /// The server's process dies, and the next one has accepted its policy.
    async fn succeed(&mut self) {
        let lost = self.host.call("crash", json!({})).await;
        assert_eq!(lost.error()["code"], -32051);
        self.events.until_times("a", "settled", 2).await;
    }
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// Methods of a side that want a capability, in an order in which a channel is registered before it is used.
fn guarded(by: Sender) -> impl Iterator<Item = &'static Method> {
    let its = METHODS
        .iter()
        .filter(move |method| method.misplaced(by).is_none());
    its.filter(|method| !method.capabilities().is_empty())
}

/// Fitting params, with a number to know the message by.
fn params(method: &str, n: usize) -> Value {
    let mut params = match method {
        "channels/register" => json!({"channels": [{"id": "c"}]}),
        "channels/changed" => json!({"added": [{"id": "d"}]}),
        "channels/incoming" => json!({"messages": [{"channelId": "c", "messageId": "m"}]}),
        "push/event" => json!({"eventId": "e", "featureSet": "chat"}),
        "inference/request" => json!({"stream": true, "messages": []}),
        "context/beforeInference" => json!({"inferenceId": "i", "userMessage": "secret"}),
        _ => json!({"channelId": "c"}),
    };
    params["n"] = n.into();
    params
}

fn raw(received: &Received) -> (&str, Value) {
    let id = received.id.as_ref().expect("a request").get();
    let params = received.params.as_ref().expect("params").get();
    (id, serde_json::from_str(params).unwrap())
}

#[tokio::test]
async fn g11_every_method_of_a_server_reaches_the_host_and_its_answer_comes_back() {
    let mut scene = Scene::without(&[]).await;
    let command = METHODS.iter().filter(|method| method.needs == Needs::Leave);
    for (n, method) in guarded(Sender::Server).chain(command).enumerate() {
        let (name, id) = (method.name, format!("s-{n}"));
        scene
            .says(request(id.as_str(), name, params(name, n)))
            .await;
        let asked = scene.host.notification(name).await;
        assert_eq!(raw(&asked).1, params(name, n), "{name}");
        if name == "inference/request" {
            let ours: Value = serde_json::from_str(raw(&asked).0).unwrap();
            scene
                .notify("inference/chunk", json!({"requestId": ours, "delta": "d"}))
                .await;
        }
        let result = json!({"accepted": true, "n": n});
        scene.host.reply(&asked, result.clone()).await;
        assert_eq!(scene.until_answered(&id).await["result"], result, "{name}");
    }
    let chunk = |message: &Value| message["method"] == "inference/chunk";
    let chunk = scene.until_heard("chunk", chunk).await;
    assert_eq!(chunk["params"]["requestId"], "s-1", "{chunk}");

    let mut changed = manifest();
    changed["featureSets"]["more"] = json!({"uses": ["tools"]});
    fs::write(scene.gateway.file("manifest"), changed.to_string()).unwrap();
    let announced = json!({"jsonrpc": "2.0", "method": "mcpl/manifestChanged", "params": {"domains": ["featureSets"]}});
    scene.says(announced).await;
    let told = scene.host.notification("mcpl/manifestChanged").await;
    let params: Value = serde_json::from_str(told.params.as_ref().unwrap().get()).unwrap();
    assert_eq!(params["domains"], json!(["featureSets"]));
}

#[tokio::test]
async fn p1_every_method_of_a_host_reaches_the_server_and_its_answer_comes_back() {
    let mut scene = Scene::without(&[]).await;
    for (n, method) in guarded(Sender::Host).enumerate() {
        let name = method.name;
        if name == "inference/chunk" {
            continue;
        }
        scene.notify(name, params(name, n)).await;
        let is_it = |message: &Value| message["method"] == name && message["id"].is_null();
        assert_eq!(
            scene.until_heard(name, is_it).await["params"],
            params(name, n)
        );
        let answer = scene.host.request(name, params(name, n)).await;
        let is_it = |message: &Value| message["method"] == name && message["id"].is_u64();
        assert_eq!(
            scene.until_heard(name, is_it).await["params"],
            params(name, n)
        );
        // The made-up server answers nothing to what is a notification.
        assert!(
            answer.error.is_none() || answer.error()["code"] == -32601,
            "{answer:?}"
        );
    }
    let rollback = json!({"featureSet": "notes", "checkpoint": "c"});
    let answer = scene.host.request("state/rollback", rollback).await;
    assert_eq!(answer.result(), r#"{"success":true}"#);
    let answer = scene.host.request("mcpl/manifest", json!({})).await;
    assert_eq!(
        serde_json::from_str::<Value>(answer.result()).unwrap(),
        manifest()
    );
    scene
        .notify("featureSets/update", json!({"disabled": ["chat"]}))
        .await;
    let is_it = |message: &Value| message["params"]["disabled"] == json!(["chat"]);
    let update = scene.until_heard("update", is_it).await;
    assert!(
        update["id"].is_u64() && update["method"] == "featureSets/update",
        "{update}"
    );
}

#[tokio::test]
async fn g11_without_its_capability_no_method_passes_either_way_and_each_says_what_it_lacks() {
    let mut scene = Scene::without(&CAPABILITIES).await;
    for method in guarded(Sender::Server) {
        let name = method.name;
        scene.says(request(name, name, params(name, 0))).await;
        let error = scene.until_answered(name).await["error"].take();
        assert_eq!(error["code"], -32002, "{name}: {error}");
        assert_eq!(error["data"]["capability"], method.capabilities()[0]);
        assert!(!scene.host.was_sent(name), "{name}");
    }
    for method in guarded(Sender::Host) {
        let name = method.name;
        scene.notify(name, params(name, 0)).await;
        let error = scene.host.request(name, params(name, 0)).await.error();
        assert_eq!(error["code"], -32002, "{name}: {error}");
        assert_eq!(error["data"]["capability"], method.capabilities()[0]);
    }
    scene
        .says(request("command", "host/command", json!({})))
        .await;
    let error = scene.until_answered("command").await["error"].take();
    assert_eq!(
        error,
        json!({"code": -32002, "message": error["message"], "data": {}})
    );
    let rollback = json!({"featureSet": "notes", "checkpoint": "c"});
    let error = scene.host.request("state/rollback", rollback).await.error();
    assert_eq!(error["code"], -32001, "{error}");
    let heard = scene.heard().pop().unwrap();
    let of_hosts =
        |message: &&Value| guarded(Sender::Host).any(|method| message["method"] == method.name);
    assert_eq!(heard.iter().filter(of_hosts).count(), 0, "{heard:#?}");
}

#[tokio::test]
async fn a_method_that_was_removed_or_goes_the_other_way_is_refused_to_both() {
    let mut scene = Scene::without(&[]).await;
    for method in &METHODS {
        let name = method.name;
        if method.misplaced(Sender::Server).is_some() {
            scene.says(request(name, name, json!({}))).await;
            let answer = scene.until_answered(name).await;
            assert_eq!(answer["error"]["code"], -32601, "{name}: {answer}");
            assert!(!scene.host.was_sent(name), "{name}");
        }
        if method.misplaced(Sender::Host).is_some() {
            let error = scene.host.request(name, json!({})).await.error();
            assert_eq!(error["code"], -32601, "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn g11_a_hook_shows_what_may_be_observed_and_injects_where_it_may() {
    let denied = [
        "contextHooks.beforeInference.observe",
        "*.*.inject.beforeUser",
    ];
    let mut scene = Scene::without(&denied).await;
    let name = "context/beforeInference";
    let answer = scene.host.request(name, params(name, 7)).await;
    let result: Value = serde_json::from_str(answer.result()).unwrap();
    let mut granted = injections();
    granted.as_array_mut().unwrap().remove(1);
    assert_eq!(result, json!({"contextInjections": granted}));
    let call = scene
        .until_heard(name, |message| message["method"] == name)
        .await;
    let shown = json!({"inferenceId": "i", "userMessage": null, "n": 7});
    assert_eq!(call["params"], shown);
}

#[tokio::test]
async fn a1_a7_two_processes_that_both_use_id_100_get_their_own_chunks_and_answers_alone() {
    let mut scene = Scene::without(&[]).await;
    let ask = |n: usize| request(100, "inference/request", params("inference/request", n));
    let chunk = |id: &Value, delta: &str| json!({"requestId": id, "index": 0, "delta": delta});
    let id_of = |asked: &Received| serde_json::from_str::<Value>(raw(asked).0).unwrap();
    scene.says(ask(1)).await;
    let first = scene.host.notification("inference/request").await;
    scene
        .notify("inference/chunk", chunk(&id_of(&first), "first"))
        .await;
    scene
        .until_heard("chunk", |message| message["params"]["delta"] == "first")
        .await;

    scene.succeed().await;
    let cancelled = scene.host.notification("notifications/cancelled").await;
    let cancelled: Value = serde_json::from_str(cancelled.params.unwrap().get()).unwrap();
    assert_eq!(cancelled["requestId"], id_of(&first));
    scene.says(ask(2)).await;
    let second = scene.host.notification("inference/request").await;
    assert_eq!(raw(&second).1["n"], 2);
    scene
        .notify("inference/chunk", chunk(&id_of(&first), "late"))
        .await;
    scene.host.reply(&first, json!({"content": "first"})).await;
    scene
        .notify("inference/chunk", chunk(&id_of(&second), "second"))
        .await;
    scene
        .host
        .reply(&second, json!({"content": "second"}))
        .await;
    scene
        .until_heard("answer", |message| message["id"] == 100)
        .await;

    let heard = scene.heard();
    let of_100 = |message: &&Value| {
        message["params"]["requestId"] == 100
            || (message["id"] == 100 && message["method"].is_null())
    };
    let told: Vec<Vec<&Value>> = heard
        .iter()
        .map(|process| process.iter().filter(of_100).collect())
        .collect();
    let [one, two] = &told[..] else {
        panic!("two processes are wanted: {told:#?}");
    };
    assert!(
        one.len() == 1 && one[0]["params"]["delta"] == "first",
        "{one:#?}"
    );
    assert!(
        two.len() == 2 && two[0]["params"]["delta"] == "second",
        "{two:#?}"
    );
    assert_eq!(two[1]["result"]["content"], "second");
}

#[tokio::test]
async fn g15_a_stream_whose_process_dies_in_its_middle_never_reaches_the_next_one() {
    let mut scene = Scene::without(&[]).await;
    let name = "channels/outgoing/chunk";
    let piece = |inference: &str, index: u64| json!({"inferenceId": inference, "channelId": "c", "index": index, "delta": "d"});
    scene.notify(name, piece("one", 0)).await;
    scene
        .until_heard(name, |message| message["method"] == name)
        .await;

    scene.succeed().await;
    scene.notify(name, piece("one", 1)).await;
    let text = json!({"channelId": "c", "content": [{"type": "text", "text": "whole"}]});
    let error = scene
        .host
        .request("channels/publish", text.clone())
        .await
        .error();
    assert_eq!(error["code"], -32051, "{error}");
    assert_eq!(error["data"]["sent"], true);
    scene
        .notify("channels/outgoing/complete", piece("one", 2))
        .await;
    // Its host was told and sends it again, and streams on.
    let again = scene.host.request("channels/publish", text).await;
    assert!(again.error.is_none(), "{again:?}");
    scene.notify(name, piece("two", 0)).await;
    scene
        .until_heard(name, |message| message["method"] == name)
        .await;

    let heard = scene.heard();
    let of_channels = |message: &Value| {
        let method = message["method"].as_str().unwrap_or_default();
        let inference = message["params"]["inferenceId"]
            .as_str()
            .unwrap_or_default();
        let is_it = method.starts_with("channels/");
        is_it.then(|| format!("{method} {inference}").trim().to_owned())
    };
    let told: Vec<Vec<String>> = heard
        .iter()
        .map(|process| process.iter().filter_map(of_channels).collect())
        .collect();
    assert_eq!(
        told,
        [
            vec!["channels/outgoing/chunk one"],
            vec!["channels/publish", "channels/outgoing/chunk two"]
        ]
    );
    let dropped = "tidegate_server_messages_dropped_total{reason=\"unmatched\",server=\"a\"}";
    assert_eq!(scene.gateway.metric(dropped).await, 2.0);
}
