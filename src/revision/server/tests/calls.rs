//! Calls to a stateless server, what it wants to know for them, and what neither side may send.

use super::*;

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
            (1_u64 << 51) + 3,
            "tools/call",
            params
        ))]
    );
    let done = json!({"resultType": "complete", "content": []});
    let out = pair.server(result((1_u64 << 51) + 3, done.clone()));
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
    pair.server(result((1_u64 << 51) + 1, second));
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
    let known = json!({"requestId": (1_u64 << 51) + 1, "reason": "r"});
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
    let id = crate::wire::jsonrpc::RequestId::read("2251799813685249");
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

#[test]
fn over_http_a_tool_that_no_header_can_carry_is_not_listed_and_others_are_mirrored() {
    let good = json!({"name": "good", "inputSchema": {"properties": {"r": {"type": "string", "x-mcp-header": "R"}}}});
    let bad = json!({"name": "bad", "inputSchema": {"x-mcp-header": "R"}});
    for over_http in [true, false] {
        let mut pair = Pair::serving(json!({"tools": {}}));
        pair.edge = Server::new(Opening::Stateless, over_http);
        pair.engine(initialize());
        pair.server(discovered(json!({"tools": {}})));
        pair.engine(request(1, "tools/list", json!({})));
        let out = pair.server(result(1, json!({"tools": [good, bad]})));
        let [Out::Engine(list)] = out.as_slice() else {
            panic!("{out:?}")
        };
        let listed = list["result"]["tools"].as_array().unwrap().len();
        assert_eq!(listed, if over_http { 1 } else { 2 });
        let call = request(
            2,
            "tools/call",
            json!({"name": "good", "arguments": {"r": "x"}}),
        );
        pair.edge
            .take_of_engine(call.to_string().into(), Some(2), pair.now);
        let Some(Output::Send { frame, .. }) = pair.edge.poll_output() else {
            panic!()
        };
        let fields = pair.edge.heading(&frame);
        assert!(
            fields.contains(&("mcp-param-r".into(), "x".into())),
            "{fields:?}"
        );
    }
}

#[test]
fn g16_what_one_result_may_ask_for_and_the_calls_that_are_kept_for_it_are_bounded() {
    let asks = |count: usize| {
        let inputs = (0..count).map(|n| (n.to_string(), json!({"method": "roots/list"})));
        let inputs: serde_json::Map<String, Value> = inputs.collect();
        json!({"resultType": "input_required", "inputRequests": inputs})
    };
    let mut pair = Pair::serving(json!({}));
    for id in 1..=10_001 {
        pair.engine(request(id, "tools/call", json!({"name": "t"})));
    }
    assert_eq!(pair.server(result(1, asks(64))).len(), 64);
    for (id, count) in [(2, 65), (10_001, 1)] {
        let out = pair.server(result(id, asks(count)));
        let [Out::Engine(failed)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(
            (&failed["id"], &failed["error"]["code"]),
            (&json!(id), &json!(-32603))
        );
    }
    assert_eq!(pair.server(result(10_000, asks(1))).len(), 1);
}
