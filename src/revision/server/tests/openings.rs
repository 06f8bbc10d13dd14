//! Which revision a server speaks: every way in which it is found.

use super::*;

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
    let unknown = error(1_u64 << 49, -32601, "?");
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
        error(1_u64 << 49, -32601, "?"),
        error(1_u64 << 49, -32000, "no session"),
        result(1_u64 << 49, json!({})),
        json!({"jsonrpc": "2.0", "id": 1_u64 << 49, "error":
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
        error(1_u64 << 49, -32601, "what?"),
        result(1_u64 << 49, json!({"supportedVersions": ["2030-01-01"]})),
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
    let out = pair.server(error(1_u64 << 49, -32603, "not yet"));
    let [Out::Engine(answer)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(answer["error"]["code"], -32603, "another try may do better");
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
fn a_session_that_is_initialized_listens_to_what_the_server_tells() {
    let mut pair =
        Pair::serving(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}));
    let filter = json!({"toolsListChanged": true});
    assert_eq!(pair.engine(initialized()), [listen(1, filter.clone())]);
    assert_eq!(pair.server(acknowledged(1, filter)), []);
    let meta = json!({"io.modelcontextprotocol/subscriptionId": (1_u64 << 50) + 1, "a": 1});
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
fn a_server_that_refuses_the_revision_which_it_says_it_speaks_is_asked_once_more() {
    let refusal = json!({"jsonrpc": "2.0", "id": 1_u64 << 49, "error":
        {"code": -32022, "message": "?", "data": {"supported": ["2026-07-28"]}}});
    let mut pair = Pair::new(Opening::DiscoverFirst);
    pair.engine(initialize());
    assert_eq!(pair.server(refusal.clone()), [discover()]);
    let out = pair.server(refusal);
    let [Out::Engine(answer)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(answer["error"]["code"], -32022);
}
