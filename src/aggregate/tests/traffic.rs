//! `initialize`, calls either way, and servers that come and go.

use super::*;
use crate::wire::jsonrpc::{Unreadable, code};

#[test]
fn initialize_is_answered_once_all_sides_have_or_after_a_second() {
    for silent in [false, true] {
        let mut rig = Rig::fresh(&["a", "b"]);
        rig.ask("0", "tools/list", "{}");
        assert_eq!(
            field(&rig.take_answer(), "error.code"),
            code::INVALID_REQUEST
        );
        rig.client(INITIALIZE);
        for (_, line) in &rig.sent {
            let told = field(line, "params.capabilities").to_string();
            assert_eq!(told, r#"{"sampling":{}}"#, "MCPL is not for many servers");
        }
        if silent {
            rig.take_sent();
            rig.wait(GREETING_WAIT);
        } else {
            rig.greet_all();
        }
        let answer = rig.take_answer();
        assert_eq!(field(&answer, "id"), "i");
        assert_eq!(field(&answer, "result.protocolVersion"), "2025-11-25");
        assert_eq!(field(&answer, "result.serverInfo.name"), "tidegate");
        let text = field(&answer, "result.instructions").to_string();
        assert!(
            text.contains("a: A__*") && text.contains("b: B__*"),
            "{text}"
        );
        rig.client(INITIALIZE);
        assert_eq!(
            field(&rig.take_answer(), "error.code"),
            code::INVALID_REQUEST
        );
        rig.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(rig.take_sent().len(), 2);
    }
}

#[test]
fn without_servers_initialize_is_answered_at_once() {
    let mut rig = Rig::fresh(&[]);
    rig.client(INITIALIZE);
    assert_eq!(field(&rig.take_answer(), "id"), "i");
}

#[test]
fn a2_a_call_reaches_its_server_under_the_servers_own_name_and_its_answer_the_clients_id() {
    let mut rig = Rig::new(&["a", "b"]);
    let call = r#"{"x":1.0,"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"B__x__y","arguments":{"n":1.50},"_meta":{"progressToken":"p"}}}"#;
    rig.client(call);
    let sent = rig.take_sent();
    let id = field(&sent[0].1, "id");
    let wanted = call
        .replace("\"B__x__y\"", "\"x__y\"")
        .replace("\"q\"", &id.to_string());
    assert_eq!(sent, [(2, wanted)]);
    let progress = notice(
        "notifications/progress",
        r#"{"progressToken":"p","progress":1}"#,
    );
    rig.server(2, &progress);
    assert_eq!(rig.take_answer(), progress);
    // Nobody answers for another.
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"resource_link","uri":"f:x"}}]}}}}"#
    );
    rig.server(1, &answer);
    assert!(rig.take_answers().is_empty());
    rig.server(2, &answer);
    let wanted = answer
        .replace(&format!("\"id\":{id}"), "\"id\":\"q\"")
        .replace("f:x", "tidegate:b/f:x");
    assert_eq!(rig.take_answer(), wanted);
    rig.server(2, &answer);
    assert_eq!((rig.take_answers().len(), rig.dropped), (0, 2));
}

#[test]
fn each_method_names_its_servers_thing_in_its_own_way() {
    let mut rig = Rig::new(&["a", "b"]);
    for (method, params, wanted) in [
        ("prompts/get", r#"{"name":"A__p"}"#, r#"{"name":"p"}"#),
        (
            "resources/read",
            r#"{"uri":"tidegate:a/f:\/\/x"}"#,
            r#"{"uri":"f://x"}"#,
        ),
        (
            "resources/subscribe",
            r#"{"uri":"tidegate:a/u"}"#,
            r#"{"uri":"u"}"#,
        ),
        (
            "resources/unsubscribe",
            r#"{"uri":"tidegate:a/u"}"#,
            r#"{"uri":"u"}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"A__p"},"argument":{"name":"A__x"}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"A__x"}}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"tidegate:a/f:{x}"}}"#,
            r#"{"ref":{"type":"ref/resource","uri":"f:{x}"}}"#,
        ),
        ("tasks/get", r#"{"taskId":"a/1/2"}"#, r#"{"taskId":"1/2"}"#),
        ("tasks/result", r#"{"taskId":"a/"}"#, r#"{"taskId":""}"#),
        ("tasks/cancel", r#"{"taskId":"a/1"}"#, r#"{"taskId":"1"}"#),
    ] {
        rig.ask("1", method, params);
        let sent = rig.take_sent();
        assert_eq!(sent.len(), 1, "{method}");
        assert_eq!(sent[0].0, 1);
        let id = field(&sent[0].1, "id").to_string();
        assert_eq!(sent[0].1, request(&id, method, wanted));
    }
}

#[test]
fn what_is_nobodys_is_refused() {
    let mut rig = Rig::new(&["a"]);
    for (method, params, wanted) in [
        ("tools/call", r#"{"name":"t"}"#, code::INVALID_PARAMS),
        ("tools/call", r#"{"name":"B__t"}"#, code::INVALID_PARAMS),
        ("tools/call", r#"{"name":"a__t"}"#, code::INVALID_PARAMS),
        ("tools/call", r#"{"name":7}"#, code::INVALID_PARAMS),
        ("tools/call", "{}", code::INVALID_PARAMS),
        (
            "resources/read",
            r#"{"uri":"file:///x"}"#,
            code::INVALID_PARAMS,
        ),
        (
            "resources/read",
            r#"{"uri":"tidegate:b/x"}"#,
            code::INVALID_PARAMS,
        ),
        ("tasks/get", r#"{"taskId":"1"}"#, code::INVALID_PARAMS),
        ("x/unknown", "{}", code::METHOD_NOT_FOUND),
        ("channels/publish", "{}", code::METHOD_NOT_FOUND),
    ] {
        rig.ask("1", method, params);
        let refused = rig.take_answer();
        assert_eq!(field(&refused, "error.code"), wanted, "{method} {params}");
        assert!(rig.take_sent().is_empty());
    }
}

#[test]
fn a1_servers_that_use_the_same_id_each_get_their_own_answer() {
    let mut rig = Rig::new(&["a", "b"]);
    let asked = request(
        "1",
        "sampling/createMessage",
        r#"{"_meta":{"progressToken":1}}"#,
    );
    rig.server(1, &asked);
    rig.server(2, &asked);
    let asks = rig.take_answers();
    let ids: Vec<Value> = asks.iter().map(|ask| field(ask, "id")).collect();
    assert_ne!(ids[0], ids[1]);
    for (ask, id) in asks.iter().zip(&ids) {
        assert_eq!(field(ask, "params._meta.progressToken"), *id);
    }
    for (seat, id) in [(2, &ids[1]), (1, &ids[0])] {
        let progress = notice(
            "notifications/progress",
            &format!(r#"{{"progressToken":{id}}}"#),
        );
        rig.client(&progress);
        rig.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":{id}}}}}"#
        ));
        let wanted = [
            (
                seat,
                notice("notifications/progress", r#"{"progressToken":1}"#),
            ),
            (
                seat,
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"for":{id}}}}}"#),
            ),
        ];
        assert_eq!(rig.take_sent(), wanted);
        rig.client(&progress);
        rig.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        assert!(rig.take_sent().is_empty());
    }
}

#[test]
fn a7_a_cancel_reaches_the_one_request_that_it_means_either_way() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.ask("7", "tools/call", r#"{"name":"B__t"}"#);
    let id = field(&rig.take_sent()[0].1, "id");
    let cancel = notice("notifications/cancelled", r#"{"requestId":7,"reason":"r"}"#);
    rig.client(&cancel);
    assert_eq!(rig.take_sent(), [(2, cancel.replace('7', &id.to_string()))]);
    rig.client(&cancel);
    assert_eq!((rig.take_sent().len(), rig.dropped), (0, 1));
    rig.ask("7", "tools/list", "{}");
    let asked = rig.take_sent();
    rig.client(&cancel);
    let cancelled: Vec<Value> = rig
        .take_sent()
        .iter()
        .map(|(_, line)| field(line, "params.requestId"))
        .collect();
    let ids: Vec<Value> = asked.iter().map(|(_, line)| field(line, "id")).collect();
    assert_eq!(cancelled, ids);
    rig.wait(Duration::from_secs(10));
    assert!(rig.take_answers().is_empty());
    rig.server(1, &request("\"e\"", "elicitation/create", "{}"));
    let ours = field(&rig.take_answer(), "id");
    let theirs = notice("notifications/cancelled", r#"{"requestId":"e"}"#);
    rig.server(2, &theirs);
    assert!(rig.take_answers().is_empty(), "another's request");
    rig.server(1, &theirs);
    assert_eq!(
        rig.take_answer(),
        theirs.replace("\"e\"", &ours.to_string())
    );
}

#[test]
fn what_was_under_way_with_a_server_that_left_is_ended() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.ask("1", "tools/call", r#"{"name":"A__t"}"#);
    rig.ask("2", "tools/call", r#"{"name":"B__t"}"#);
    rig.server(1, &request("5", "roots/list", "{}"));
    let ours = field(&rig.take_answer(), "id");
    let late = rig.take_sent();
    rig.leave(1);
    let answers = rig.take_answers();
    assert_eq!(field(&answers[0], "error.code"), code::LOST);
    assert_eq!(field(&answers[0], "error.data.server"), "a");
    assert_eq!(field(&answers[1], "params.requestId"), ours);
    assert_eq!(answers.len(), 5, "and three lists changed: {answers:?}");
    rig.answer(&late[0], r#""result":{}"#);
    rig.client(&format!(r#"{{"jsonrpc":"2.0","id":{ours},"result":{{}}}}"#));
    assert_eq!((rig.take_answers().len(), rig.take_sent().len()), (0, 0));
    rig.answer(&late[1], r#""result":{}"#);
    assert_eq!(field(&rig.take_answer(), "id"), 2);
}

#[test]
fn a_server_that_joins_is_told_of_the_client_and_what_it_set_up() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("1", "logging/setLevel", r#"{"level":"error"}"#);
    rig.ask("2", "resources/subscribe", r#"{"uri":"tidegate:a/u"}"#);
    rig.ask("3", "resources/subscribe", r#"{"uri":"tidegate:a/v"}"#);
    rig.ask("4", "resources/unsubscribe", r#"{"uri":"tidegate:a/v"}"#);
    rig.take_sent();
    rig.leave(1);
    rig.take_answers();
    for (seat, server, wanted) in [(2, "a", 4), (3, "b", 3)] {
        rig.join(seat, server, false);
        let sent = rig.take_sent();
        let methods: Vec<Value> = sent.iter().map(|(_, line)| field(line, "method")).collect();
        let all = [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
        ];
        assert_eq!(methods, all[..wanted]);
        if let Some((_, subscribe)) = sent.get(3) {
            assert_eq!(field(subscribe, "params.uri"), "u");
        }
        // What it answers is for nobody.
        for line in &sent {
            if field(&line.1, "id") != Value::Null {
                rig.answer(line, r#""result":{}"#);
            }
        }
    }
    assert!(
        rig.take_answers().is_empty(),
        "the client was told and has not looked"
    );
}

#[test]
fn a_server_is_at_the_table_once() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("1", "tools/call", r#"{"name":"A__t"}"#);
    rig.join(2, "a", false);
    assert_eq!(field(&rig.take_answers()[0], "error.code"), code::LOST);
    rig.take_sent();
    rig.ask("2", "tools/call", r#"{"name":"A__t"}"#);
    assert_eq!(rig.take_sent()[0].0, 2);
}

#[test]
fn a_level_that_is_none_is_refused_and_one_that_is_goes_to_all() {
    let mut rig = Rig::new(&["a", "b"]);
    for bad in [r#"{"level":"loud"}"#, "{}"] {
        rig.ask("1", "logging/setLevel", bad);
        assert_eq!(
            field(&rig.take_answer(), "error.code"),
            code::INVALID_PARAMS
        );
    }
    rig.ask("2", "logging/setLevel", r#"{"level":"debug"}"#);
    assert_eq!(rig.take_answer(), r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert_eq!(rig.take_sent().len(), 2);
}

#[test]
fn what_servers_tell_is_told_under_their_names() {
    let mut rig = Rig::new(&["a"]);
    rig.server(
        1,
        &notice(
            "notifications/message",
            r#"{"level":"info","logger":"db","data":1}"#,
        ),
    );
    assert_eq!(field(&rig.take_answer(), "params.logger"), "a/db");
    rig.server(
        1,
        &notice("notifications/resources/updated", r#"{"uri":"u"}"#),
    );
    assert_eq!(field(&rig.take_answer(), "params.uri"), "tidegate:a/u");
    let other = notice("notifications/x", r#"{"uri":"u"}"#);
    rig.server(1, &other);
    assert_eq!(rig.take_answer(), other);
}

#[test]
fn roots_that_changed_are_told_to_all_and_what_is_for_nobody_is_dropped() {
    let mut rig = Rig::new(&["a", "b"]);
    let roots = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    rig.client(roots);
    assert_eq!(rig.take_sent(), [(1, roots.into()), (2, roots.into())]);
    for odd in [
        notice("notifications/x", "{}"),
        notice("notifications/cancelled", "{}"),
        notice("notifications/progress", r#"{"progressToken":"x"}"#),
    ] {
        rig.client(&odd);
        assert!(rig.take_sent().is_empty());
    }
    assert_eq!(rig.dropped, 3);
}

#[test]
fn a_call_that_cannot_be_handed_on_was_not_sent() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("1", "tools/call", r#"{"name":"A__t"}"#);
    rig.ask("2", "tools/list", "{}");
    for (seat, line) in rig.take_sent() {
        let (seat, frame) = (SeatId(seat), line.into());
        rig.input(Input::Unsent { seat, frame });
    }
    let answers = rig.take_answers();
    assert_eq!(field(&answers[0], "error.code"), code::NOT_SENT);
    assert_eq!(field(&answers[0], "error.data.server"), "a");
    let missing = field(&answers[1], "result._meta.tidegate~1missing");
    assert_eq!(missing.to_string(), r#"[{"server":"a","state":"slow"}]"#);
}

#[test]
fn a2_a_batch_is_its_messages_where_the_revision_has_batches() {
    for (revision, wanted) in [("2025-03-26", 2), ("2025-11-25", 1)] {
        let mut rig = Rig::fresh(&[]);
        rig.client(&INITIALIZE.replace("2025-11-25", revision));
        rig.take_answers();
        let ping = || Bytes::from(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        rig.input(Input::Unreadable(Unreadable::Batch(vec![ping(), ping()])));
        assert_eq!(rig.take_answers().len(), wanted, "{revision}");
    }
}

#[test]
fn g16_a_server_that_asks_too_much_is_told_to_wait() {
    let mut rig = Rig::new(&["a"]);
    for id in 0..ledger::UNDER_WAY_MAX {
        rig.server(1, &request(&id.to_string(), "roots/list", "{}"));
    }
    assert!(rig.take_sent().is_empty());
    rig.server(1, &request("\"more\"", "roots/list", "{}"));
    let refused = &rig.take_sent()[0].1;
    assert_eq!(field(refused, "error.code"), code::BUSY);
}
