use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// One translation between an engine and a server, both of this test.
struct Pair {
    edge: Server,
    now: Instant,
}

/// What came out of one input.
#[derive(Debug, PartialEq)]
enum Out {
    Server(Value),
    Engine(Value),
    Unreadable(String),
    Unsent(String),
    Deaf(String),
}

impl Pair {
    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn new(opening: Opening) -> Self {
        Self {
            edge: Server::new(opening),
            now: Instant::now(),
        }
    }

    fn outputs(&mut self) -> Vec<Out> {
        std::iter::from_fn(|| self.edge.poll_output())
            .map(|output| match output {
                Output::Send { frame, .. } => Out::Server(serde_json::from_slice(&frame).unwrap()),
                Output::Receive { message, .. } => {
                    Out::Engine(serde_json::from_slice(message.raw()).unwrap())
                }
                Output::Unreadable(what) => Out::Unreadable(what.to_string()),
                Output::Unsent(frame) => Out::Unsent(String::from_utf8(frame.to_vec()).unwrap()),
                Output::Deaf(why) => Out::Deaf(why),
            })
            .collect()
    }

    fn engine(&mut self, message: Value) -> Vec<Out> {
        let id = message["id"].as_u64();
        self.edge
            .take_of_engine(message.to_string().into(), id, self.now);
        self.outputs()
    }

    fn server(&mut self, message: Value) -> Vec<Out> {
        let message = Message::parse(message.to_string().into()).unwrap();
        self.edge.take_of_server(message, self.now);
        self.outputs()
    }

    /// One that serves, with these capabilities.
    fn serving(capabilities: Value) -> Self {
        let mut pair = Self::new(Opening::Stateless);
        pair.engine(initialize());
        let out = pair.server(discovered(capabilities));
        assert!(matches!(out.as_slice(), [Out::Engine(_)]), "{out:?}");
        pair
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}, "roots": {"listChanged": true}, "experimental": {"mcpl": {}}},
        "clientInfo": {"name": "tidegate", "version": "1"},
    }})
}

fn discovered(capabilities: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "tidegate-discover", "result": {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}},
        "instructions": "be kind", "ttlMs": 0, "cacheScope": "public",
    }})
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "tidegate", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "roots": {}},
    })
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn result(id: impl Into<Value>, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "result": result})
}

fn error(id: impl Into<Value>, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "error": {"code": code, "message": message}})
}

fn discover() -> Out {
    Out::Server(request(
        "tidegate-discover",
        "server/discover",
        json!({"_meta": meta()}),
    ))
}

fn listen(number: u64, filter: Value) -> Out {
    let params = json!({"_meta": meta(), "notifications": filter});
    Out::Server(request(
        format!("tidegate-listen-{number}"),
        "subscriptions/listen",
        params,
    ))
}

fn acknowledged(number: u64, filter: Value) -> Value {
    let meta =
        json!({"io.modelcontextprotocol/subscriptionId": format!("tidegate-listen-{number}")});
    notification(
        "notifications/subscriptions/acknowledged",
        json!({"_meta": meta, "notifications": filter}),
    )
}

fn closed(number: u64) -> Out {
    let id = format!("tidegate-listen-{number}");
    Out::Server(notification(
        "notifications/cancelled",
        json!({"requestId": id}),
    ))
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

#[test]
fn a_server_that_answers_initialize_is_never_asked_anything_else() {
    let mut pair = Pair::new(Opening::InitializeFirst);
    assert_eq!(pair.engine(initialize()), [Out::Server(initialize())]);
    let ping = request("s1", "ping", json!({}));
    assert_eq!(pair.server(ping.clone()), [Out::Engine(ping)]);
    let answer = result(
        0,
        json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
    );
    assert_eq!(pair.server(answer.clone()), [Out::Engine(answer)]);
    assert!(pair.edge.is_needless());
    let call = request(1, "tools/call", json!({"name": "x"}));
    assert_eq!(pair.engine(call.clone()), [Out::Server(call)]);
}

#[test]
fn a_server_that_refuses_initialize_is_asked_what_it_is() {
    for refusal in [
        error(0, -32022, "no"),
        error(0, -32601, "?"),
        error(Value::Null, -32600, "?"),
    ] {
        let mut pair = Pair::new(Opening::InitializeFirst);
        pair.engine(initialize());
        assert_eq!(pair.server(refusal), [discover()]);
        let out = pair.server(discovered(json!({"tools": {}})));
        let [Out::Engine(answer)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(
            *answer,
            result(
                0,
                json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "experimental": {"tidegate/stateless": {}}},
                    "serverInfo": {"name": "s", "version": "2"}, "instructions": "be kind",
                })
            )
        );
        assert!(!pair.edge.is_needless());
    }
}

#[test]
fn a_refusal_of_initialize_is_told_in_the_servers_own_words_where_nothing_better_comes() {
    let refusal = error(0, -32000, "no token");
    let begin = || {
        let mut pair = Pair::new(Opening::InitializeFirst);
        pair.engine(initialize());
        assert_eq!(pair.server(refusal.clone()), [discover()]);
        pair
    };
    let mut pair = begin();
    let unknown = error("tidegate-discover", -32601, "?");
    assert_eq!(pair.server(unknown), [Out::Engine(refusal.clone())]);
    let mut lost = begin();
    lost.edge.take_loss();
    assert_eq!(lost.outputs(), [Out::Engine(refusal.clone())]);
    let mut silent = begin();
    let due = silent.edge.poll_timeout().unwrap();
    silent.edge.handle_timeout(due - Duration::from_millis(1));
    assert_eq!(silent.outputs(), []);
    silent.edge.handle_timeout(due);
    assert_eq!(silent.outputs(), [Out::Engine(refusal)]);
    assert!(silent.edge.poll_timeout().is_none());
}

#[test]
fn where_requests_stand_alone_discovery_comes_first_and_initialize_follows() {
    for not in [
        error("tidegate-discover", -32601, "?"),
        error("tidegate-discover", -32000, "no session"),
        result("tidegate-discover", json!({})),
        json!({"jsonrpc": "2.0", "id": "tidegate-discover", "error":
            {"code": -32022, "message": "?", "data": {"supported": ["2025-06-18"]}}}),
    ] {
        let mut pair = Pair::new(Opening::DiscoverFirst);
        assert_eq!(pair.engine(initialize()), [discover()]);
        assert_eq!(pair.server(not), [Out::Server(initialize())]);
        let refusal = error(0, -32603, "out of order");
        assert_eq!(pair.server(refusal.clone()), [Out::Engine(refusal)]);
        assert!(pair.edge.is_needless());
    }
}

#[test]
fn r10_a_server_without_2026_07_28_gets_the_verdict_where_nothing_else_is_wanted() {
    for not in [
        error("tidegate-discover", -32601, "what?"),
        result(
            "tidegate-discover",
            json!({"supportedVersions": ["2030-01-01"]}),
        ),
    ] {
        let mut pair = Pair::new(Opening::Stateless);
        assert_eq!(pair.engine(initialize()), [discover()]);
        let out = pair.server(not);
        let [Out::Engine(answer)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(0), &json!(-32022))
        );
    }
    let mut pair = Pair::new(Opening::Stateless);
    pair.engine(initialize());
    let out = pair.server(error("tidegate-discover", -32603, "not yet"));
    let [Out::Engine(answer)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(answer["error"]["code"], -32603, "another try may do better");
}

#[test]
fn each_request_carries_its_sender_and_the_answer_comes_back_as_it_is() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    let out = pair.engine(request(5, "tools/list", json!({"cursor": "c"})));
    let params = json!({"_meta": meta(), "cursor": "c"});
    assert_eq!(out, [Out::Server(request(5, "tools/list", params))]);
    let answer = result(
        5,
        json!({"tools": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "public"}),
    );
    assert_eq!(pair.server(answer.clone()), [Out::Engine(answer)]);
}

#[test]
fn mcpl_and_tasks_are_not_offered_by_a_stateless_server() {
    let mut pair = Pair::new(Opening::Stateless);
    pair.engine(initialize());
    let out = pair.server(discovered(json!({
        "tasks": {"list": {}}, "tools": {},
        "experimental": {"mcpl": {"version": "0.5"}, "other": {"n": 1}},
    })));
    let [Out::Engine(answer)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        answer["result"]["capabilities"],
        json!({"tools": {}, "experimental": {"other": {"n": 1}, "tidegate/stateless": {}}})
    );
}

#[test]
fn what_the_revision_does_not_have_is_refused_by_its_name() {
    let mut pair = Pair::serving(json!({}));
    for method in ["tasks/get", "tasks/list", "initialize"] {
        let out = pair.engine(request(9, method, json!({})));
        let [Out::Engine(answer)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(9), &json!(-32601))
        );
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("2026-07-28")
        );
    }
}

#[test]
fn r19_a_ping_asks_for_a_sign_of_life_and_any_answer_is_one() {
    for answer in [
        result(8, json!({"supportedVersions": []})),
        error(8, -32603, "?"),
    ] {
        let mut pair = Pair::serving(json!({}));
        let asked = Out::Server(request(8, "server/discover", json!({"_meta": meta()})));
        assert_eq!(pair.engine(request(8, "ping", json!({}))), [asked]);
        assert_eq!(pair.server(answer), [Out::Engine(result(8, json!({})))]);
    }
}

#[test]
fn a_log_level_goes_with_each_request_that_follows() {
    let mut pair = Pair::serving(json!({"logging": {}}));
    let out = pair.engine(request(1, "logging/setLevel", json!({"level": "info"})));
    assert_eq!(out, [Out::Engine(result(1, json!({})))]);
    let out = pair.engine(request(2, "tools/list", json!({})));
    let [Out::Server(sent)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        sent["params"]["_meta"]["io.modelcontextprotocol/logLevel"],
        "info"
    );
}

#[test]
fn what_a_server_wants_to_know_is_asked_for_and_the_call_is_sent_again_with_it() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    let params = json!({"name": "t", "arguments": {"a": 1}, "_meta": {"progressToken": 4}});
    pair.engine(request(4, "tools/call", params));
    let out = pair.server(result(4, json!({
        "resultType": "input_required", "requestState": "opaque \"state\"",
        "inputRequests": {
            "who": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}},
            "roots": {"method": "roots/list"},
        },
    })));
    let roots = json!({"jsonrpc": "2.0", "id": "tidegate-input-1", "method": "roots/list"});
    let who = request(
        "tidegate-input-2",
        "elicitation/create",
        json!({"message": "?", "requestedSchema": {}}),
    );
    assert_eq!(out, [Out::Engine(roots), Out::Engine(who)]);
    let action = json!({"action": "accept", "content": {"name": "x"}});
    assert_eq!(pair.engine(result("tidegate-input-2", action.clone())), []);
    let out = pair.engine(result("tidegate-input-1", json!({"roots": []})));
    let mut sent_meta = meta();
    sent_meta["progressToken"] = json!(4);
    let params = json!({
        "name": "t", "arguments": {"a": 1}, "_meta": sent_meta,
        "inputResponses": {"who": action, "roots": {"roots": []}},
        "requestState": "opaque \"state\"",
    });
    assert_eq!(
        out,
        [Out::Server(request(
            "tidegate-again-3",
            "tools/call",
            params
        ))]
    );
    let done = json!({"resultType": "complete", "content": []});
    let out = pair.server(result("tidegate-again-3", done.clone()));
    assert_eq!(out, [Out::Engine(result(4, done))]);
}

#[test]
fn a_call_that_only_has_to_be_sent_again_is_sent_at_once_and_not_for_ever() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    let again = json!({"resultType": "input_required", "requestState": "s"});
    let mut id = json!(4);
    let mut rounds = 0;
    let last = loop {
        let out = pair.server(result(id.clone(), again.clone()));
        match out.as_slice() {
            [Out::Server(sent)] => {
                assert_ne!(sent["id"], id, "each time under an id of its own");
                assert_eq!(sent["params"]["requestState"], "s");
                assert_eq!(sent["params"].get("inputResponses"), None);
                id = sent["id"].clone();
            }
            [Out::Engine(last)] => break last.clone(),
            _ => panic!("{out:?}"),
        }
        rounds += 1;
        assert!(rounds < 100);
    };
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(4), &json!(-32603))
    );
}

#[test]
fn a_state_that_is_not_given_again_is_not_sent_again() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    let first = json!({"resultType": "input_required", "requestState": "s"});
    pair.server(result(4, first));
    let second =
        json!({"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}});
    pair.server(result("tidegate-again-1", second));
    let out = pair.engine(result("tidegate-input-2", json!({"roots": []})));
    let [Out::Server(sent)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(sent["params"].get("requestState"), None);
    assert_eq!(
        sent["params"]["inputResponses"],
        json!({"r": {"roots": []}})
    );
}

#[test]
fn what_nobody_can_answer_ends_the_call_and_withdraws_what_else_was_asked() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    let asked = json!({"resultType": "input_required", "inputRequests": {
        "a": {"method": "sampling/createMessage", "params": {}}, "b": {"method": "roots/list"},
    }});
    assert_eq!(pair.server(result(4, asked)).len(), 2);
    let out = pair.engine(error("tidegate-input-1", -32601, "no client can"));
    let [Out::Engine(withdrawn), Out::Engine(failed)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(withdrawn["params"]["requestId"], "tidegate-input-2");
    assert_eq!(
        (&failed["id"], &failed["error"]["code"]),
        (&json!(4), &json!(-32601))
    );
    let text = failed["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("sampling/createMessage") && text.contains("no client can"),
        "{text}"
    );
    let late = pair.engine(result("tidegate-input-2", json!({"roots": []})));
    assert!(matches!(late.as_slice(), [Out::Unsent(_)]), "{late:?}");
}

#[test]
fn input_requests_that_cannot_be_asked_end_the_call() {
    for odd in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": []}),
        json!({"resultType": "input_required", "inputRequests": {"a": {"method": "tools/call"}}}),
        json!({"resultType": "input_required", "inputRequests": {"a": {"params": {}}}}),
    ] {
        let mut pair = Pair::serving(json!({}));
        pair.engine(request(4, "prompts/get", json!({"name": "t"})));
        let out = pair.server(result(4, odd.clone()));
        let [Out::Engine(failed)] = out.as_slice() else {
            panic!("{odd}: {out:?}")
        };
        assert_eq!(
            (&failed["id"], &failed["error"]["code"]),
            (&json!(4), &json!(-32603))
        );
    }
    let mut pair = Pair::serving(json!({}));
    pair.engine(request(4, "tools/list", json!({})));
    let out = pair.server(result(
        4,
        json!({"resultType": "input_required", "requestState": "s"}),
    ));
    let [Out::Engine(failed)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        failed["error"]["code"], -32603,
        "a list may not ask for anything"
    );
}

#[test]
fn a_cancel_names_the_call_as_the_server_knows_it() {
    let cancel = |id: u64| {
        notification(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "r"}),
        )
    };
    let mut pair = Pair::serving(json!({}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    assert_eq!(pair.engine(cancel(4)), [Out::Server(cancel(4))]);
    pair.engine(request(5, "tools/call", json!({"name": "t"})));
    pair.server(result(
        5,
        json!({"resultType": "input_required", "requestState": "s"}),
    ));
    let known = json!({"requestId": "tidegate-again-1", "reason": "r"});
    assert_eq!(
        pair.engine(cancel(5)),
        [Out::Server(notification("notifications/cancelled", known))]
    );
    pair.engine(request(6, "tools/call", json!({"name": "t"})));
    let asked =
        json!({"resultType": "input_required", "inputRequests": {"b": {"method": "roots/list"}}});
    pair.server(result(6, asked));
    let withdrawn = json!({"requestId": "tidegate-input-2"});
    assert_eq!(
        pair.engine(cancel(6)),
        [Out::Engine(notification(
            "notifications/cancelled",
            withdrawn
        ))]
    );
}

#[test]
fn a_stateless_clients_call_and_its_answer_pass_untouched() {
    let mut pair = Pair::serving(json!({"tools": {}}));
    let own =
        json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}}, "x": 1});
    let call = request(
        4,
        "tools/call",
        json!({"name": "t", "_meta": own, "requestState": "s"}),
    );
    assert_eq!(pair.engine(call.clone()), [Out::Server(call)]);
    let asked = result(
        4,
        json!({"resultType": "input_required", "inputRequests": {"a": {"method": "x"}}}),
    );
    assert_eq!(pair.server(asked.clone()), [Out::Engine(asked)]);
}

#[test]
fn errors_of_the_revision_are_told_as_what_is_missing() {
    let mut pair = Pair::serving(json!({}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    let lacking = json!({"jsonrpc": "2.0", "id": 4, "error": {"code": -32021, "message": "m",
        "data": {"requiredCapabilities": {"elicitation": {"url": {}}}}}});
    let out = pair.server(lacking);
    let [Out::Engine(told)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert!(
        told["error"]["message"]
            .as_str()
            .unwrap()
            .contains("elicitation")
    );
    for code in [-32020, -32022] {
        pair.engine(request(5, "tools/call", json!({"name": "t"})));
        let out = pair.server(error(5, code, "header mismatch"));
        let [Out::Engine(told)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(told["error"]["code"], -32603);
    }
}

#[test]
fn a_session_that_is_initialized_listens_to_what_the_server_tells() {
    let mut pair =
        Pair::serving(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}));
    let filter = json!({"toolsListChanged": true});
    assert_eq!(pair.engine(initialized()), [listen(1, filter.clone())]);
    assert_eq!(pair.server(acknowledged(1, filter)), []);
    let meta = json!({"io.modelcontextprotocol/subscriptionId": "tidegate-listen-1", "a": 1});
    let changed = notification("notifications/tools/list_changed", json!({"_meta": meta}));
    let told = notification(
        "notifications/tools/list_changed",
        json!({"_meta": {"a": 1}}),
    );
    assert_eq!(pair.server(changed), [Out::Engine(told)]);
    let mut quiet = Pair::serving(json!({"tools": {}}));
    assert_eq!(
        quiet.engine(initialized()),
        [],
        "there is nothing to listen to"
    );
}

#[test]
fn a_subscription_is_answered_once_a_stream_has_it_and_the_stream_before_goes_then() {
    let mut pair =
        Pair::serving(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}));
    pair.engine(initialized());
    let lists = json!({"toolsListChanged": true});
    pair.server(acknowledged(1, lists));
    let subscribe = |id: u64, uri: &str| request(id, "resources/subscribe", json!({"uri": uri}));
    let one = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:1"]});
    assert_eq!(pair.engine(subscribe(3, "a:1")), [listen(2, one.clone())]);
    assert_eq!(pair.engine(subscribe(4, "b:2")), [], "one stream at a time");
    let two = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:1", "b:2"]});
    assert_eq!(
        pair.server(acknowledged(2, one)),
        [
            Out::Engine(result(3, json!({}))),
            closed(1),
            listen(3, two.clone())
        ]
    );
    assert_eq!(
        pair.server(acknowledged(3, two)),
        [Out::Engine(result(4, json!({}))), closed(2)]
    );
    assert_eq!(
        pair.engine(subscribe(5, "b:2")),
        [Out::Engine(result(5, json!({})))]
    );
    let unsubscribe = request(6, "resources/unsubscribe", json!({"uri": "a:1"}));
    let left = json!({"toolsListChanged": true, "resourceSubscriptions": ["b:2"]});
    assert_eq!(
        pair.engine(unsubscribe),
        [Out::Engine(result(6, json!({}))), listen(4, left)]
    );
}

#[test]
fn a_subscription_that_the_server_does_not_take_on_is_refused() {
    let mut pair = Pair::serving(json!({"resources": {"subscribe": true}}));
    pair.engine(initialized());
    let subscribe = request(3, "resources/subscribe", json!({"uri": "a:1"}));
    let filter = json!({"resourceSubscriptions": ["a:1"]});
    assert_eq!(pair.engine(subscribe.clone()), [listen(1, filter.clone())]);
    let out = pair.server(acknowledged(1, json!({})));
    let [Out::Engine(refused), Out::Server(_)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(3), &json!(-32602))
    );
    assert_eq!(out[1], closed(1));
    assert_eq!(pair.engine(subscribe), [listen(2, filter)]);
    let out = pair.server(error("tidegate-listen-2", -32603, "limit reached"));
    let [Out::Engine(refused)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("limit reached")
    );
    let mut without = Pair::serving(json!({"resources": {}}));
    let out = without.engine(request(3, "resources/subscribe", json!({"uri": "a:1"})));
    assert!(matches!(out.as_slice(), [Out::Engine(refused)] if refused["error"]["code"] == -32602));
}

#[test]
fn r19_a_stream_that_ends_is_opened_again_and_what_may_have_been_missed_is_told() {
    let mut pair =
        Pair::serving(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}));
    let lists = json!({"toolsListChanged": true});
    pair.engine(initialized());
    pair.server(acknowledged(1, lists));
    pair.now += Duration::from_secs(60);
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:1"]});
    pair.engine(request(3, "resources/subscribe", json!({"uri": "a:1"})));
    pair.server(acknowledged(2, filter.clone()));
    pair.now += Duration::from_secs(60);
    let end = result("tidegate-listen-2", json!({"resultType": "complete"}));
    assert_eq!(pair.server(end), [listen(3, filter.clone())]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let updated = notification("notifications/resources/updated", json!({"uri": "a:1"}));
    assert_eq!(
        pair.server(acknowledged(3, filter.clone())),
        [Out::Engine(changed), Out::Engine(updated)]
    );
    let at_once = result("tidegate-listen-3", json!({}));
    assert_eq!(pair.server(at_once), [], "not twice within moments");
    let due = pair.edge.poll_timeout().unwrap();
    pair.edge.handle_timeout(due);
    assert_eq!(pair.outputs(), [listen(4, filter)]);
    let out = pair.server(error("tidegate-listen-4", -32603, "no more"));
    assert!(
        matches!(out.as_slice(), [Out::Deaf(why)] if why.contains("no more")),
        "{out:?}"
    );
}

#[test]
fn a_server_may_end_a_stream_with_a_cancel() {
    let mut pair = Pair::serving(json!({"tools": {"listChanged": true}}));
    let filter = json!({"toolsListChanged": true});
    pair.engine(initialized());
    pair.server(acknowledged(1, filter.clone()));
    pair.now += Duration::from_secs(60);
    let cancel = notification(
        "notifications/cancelled",
        json!({"requestId": "tidegate-listen-1"}),
    );
    assert_eq!(pair.server(cancel), [listen(2, filter)]);
}

#[test]
fn what_neither_side_may_send_goes_nowhere_and_is_told() {
    let mut pair = Pair::serving(json!({}));
    let out = pair.server(request("s", "sampling/createMessage", json!({})));
    assert!(matches!(out.as_slice(), [Out::Unreadable(_)]), "{out:?}");
    let out = pair.engine(result("s", json!({})));
    assert!(matches!(out.as_slice(), [Out::Unsent(_)]), "{out:?}");
    let out = pair.engine(notification("notifications/own", json!({})));
    assert!(matches!(out.as_slice(), [Out::Unsent(_)]), "{out:?}");
    assert_eq!(
        pair.engine(notification("notifications/roots/list_changed", json!({}))),
        []
    );
}

#[test]
fn an_answer_that_cannot_be_read_ends_the_call_that_was_sent_again() {
    let mut pair = Pair::serving(json!({}));
    pair.engine(request(4, "tools/call", json!({"name": "t"})));
    pair.server(result(
        4,
        json!({"resultType": "input_required", "requestState": "s"}),
    ));
    let id = crate::wire::jsonrpc::RequestId::read("\"tidegate-again-1\"");
    let about = id.map(crate::wire::jsonrpc::About::Answer);
    let what = Unreadable::TooLong { limit: 7, about };
    pair.edge.take_unreadable(what, pair.now);
    let Some(Output::Unreadable(what)) = pair.edge.poll_output() else {
        panic!()
    };
    let about = crate::wire::jsonrpc::RequestId::from(4);
    assert_eq!(
        what.about(),
        Some(&crate::wire::jsonrpc::About::Answer(about))
    );
}
