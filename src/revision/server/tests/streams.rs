//! The stream on which a stateless server tells of changes, and the subscriptions that go with it.

use super::*;

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
    let out = pair.server(error((1_u64 << 50) + 2, -32603, "limit reached"));
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
    let end = result((1_u64 << 50) + 2, json!({"resultType": "complete"}));
    assert_eq!(pair.server(end), [listen(3, filter.clone())]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let updated = notification("notifications/resources/updated", json!({"uri": "a:1"}));
    assert_eq!(
        pair.server(acknowledged(3, filter.clone())),
        [Out::Engine(changed), Out::Engine(updated)]
    );
    let at_once = result((1_u64 << 50) + 3, json!({}));
    assert_eq!(pair.server(at_once), [], "not twice within moments");
    let due = pair.edge.poll_timeout().unwrap();
    pair.edge.handle_timeout(due);
    assert_eq!(pair.outputs(), [listen(4, filter)]);
    let out = pair.server(error((1_u64 << 50) + 4, -32603, "no more"));
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
        json!({"requestId": (1_u64 << 50) + 1}),
    );
    assert_eq!(pair.server(cancel), [listen(2, filter)]);
}

#[test]
fn g16_at_most_a_thousand_resources_are_subscribed_to() {
    let mut pair = Pair::serving(json!({"resources": {"subscribe": true}}));
    pair.engine(initialized());
    let subscribe = |id: u64| request(id, "resources/subscribe", json!({"uri": format!("u:{id}")}));
    for id in 1..=1_000 {
        let out = pair.engine(subscribe(id));
        assert!(
            !matches!(out.as_slice(), [Out::Engine(_)]),
            "{id} is refused"
        );
    }
    let out = pair.engine(subscribe(1_001));
    let [Out::Engine(refused)] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(1_001), &json!(-32602))
    );
}
