//! Merged lists: whole, late, in part, page by page.

use super::*;
use crate::wire::jsonrpc::code;

const TOOL: &str = r#""result":{"tools":[{"name":"t"}]}"#;

#[test]
fn a_list_is_asked_of_all_and_answered_once() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.ask("\"x\"", "tools/list", "{}");
    let asked = rig.take_sent();
    let seats: Vec<u64> = asked.iter().map(|(seat, _)| *seat).collect();
    assert_eq!(seats, [1, 2]);
    rig.answer(&asked[1], TOOL);
    assert!(rig.take_answers().is_empty());
    rig.answer(&asked[0], TOOL);
    let wanted =
        r#"{"jsonrpc":"2.0","id":"x","result":{"tools":[{"name":"A__t"},{"name":"B__t"}]}}"#;
    assert_eq!(rig.take_answer(), wanted);
    rig.wait(Duration::from_secs(10));
    assert!(rig.take_answers().is_empty() && rig.take_sent().is_empty());
}

#[test]
fn a_slow_server_delays_nobody_and_what_is_known_of_it_does() {
    let mut rig = Rig::new(&["a", "slow"]);
    rig.ask("1", "tools/list", "{}");
    let asked = rig.take_sent();
    rig.answer(&asked[0], TOOL);
    rig.wait(LIST_WAIT);
    let then = rig.take_sent();
    assert_eq!(field(&then[0].1, "method"), "notifications/cancelled");
    assert_eq!(
        field(&then[0].1, "params.requestId"),
        field(&asked[1].1, "id")
    );
    assert_eq!(field(&then[1].1, "params._meta.tidegate~1known"), true);
    let known = r#""result":{"tools":[{"name":"k"}],"_meta":{"tidegate/stale":[{"server":"slow","state":"open"}]}}"#;
    rig.answer(&then[1], known);
    let wanted = r#"{"tools":[{"name":"A__t"},{"name":"SLOW__k"}],"_meta":{"tidegate/stale":[{"server":"slow","state":"open"}]}}"#;
    assert_eq!(
        field(&rig.take_answer(), "result").to_string(),
        sorted(wanted)
    );
    rig.answer(&asked[1], TOOL);
    assert_eq!((rig.take_answers().len(), rig.dropped), (0, 1));
}

#[test]
fn a_server_that_says_nothing_at_all_is_named_as_missing_and_told_of_once_it_speaks() {
    let mut rig = Rig::new(&["a", "mute"]);
    rig.ask("1", "tools/list", "{}");
    let asked = rig.take_sent();
    rig.answer(&asked[0], TOOL);
    rig.wait(LIST_WAIT + KNOWN_WAIT);
    let answer = rig.take_answer();
    assert_eq!(field(&answer, "result.tools.0.name"), "A__t");
    let missing = field(&answer, "result._meta.tidegate~1missing");
    assert_eq!(missing.to_string(), r#"[{"server":"mute","state":"slow"}]"#);
    let known = rig.take_sent().pop().unwrap();
    rig.answer(&known, TOOL);
    let told = rig.take_answer();
    assert_eq!(field(&told, "method"), "notifications/tools/list_changed");
}

#[test]
fn an_error_is_no_empty_list_but_a_method_that_is_not_there_is() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.ask("1", "prompts/list", "{}");
    let asked = rig.take_sent();
    rig.answer(&asked[0], r#""error":{"code":-32601,"message":"m"}"#);
    rig.answer(&asked[1], r#""error":{"code":-32603,"message":"m"}"#);
    let known = rig.take_sent();
    assert_eq!(known.len(), 1);
    let away = r#""error":{"code":-32050,"message":"m","data":{"state":"waiting"}}"#;
    rig.answer(&known[0], away);
    let wanted =
        r#"{"prompts":[],"_meta":{"tidegate/missing":[{"server":"b","state":"waiting"}]}}"#;
    assert_eq!(
        field(&rig.take_answer(), "result").to_string(),
        sorted(wanted)
    );
}

#[test]
fn what_a_server_that_is_away_says_of_its_list_is_said() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("1", "tools/list", "{}");
    let asked = rig.take_sent();
    let away = r#"{"tools":[],"_meta":{"tidegate/missing":[{"server":"a","state":"waiting"}]}}"#;
    rig.answer(&asked[0], &format!(r#""result":{away}"#));
    assert_eq!(
        field(&rig.take_answer(), "result").to_string(),
        sorted(away)
    );
}

#[test]
fn a_cursor_asks_those_that_have_more_and_no_other() {
    let mut rig = Rig::new(&["a", "b", "c"]);
    rig.ask("1", "resources/list", "{}");
    let asked = rig.take_sent();
    rig.answer(
        &asked[0],
        r#""result":{"resources":[{"uri":"x"}],"nextCursor":"p\"2"}"#,
    );
    rig.answer(&asked[1], r#""result":{"resources":[]}"#);
    rig.answer(&asked[2], r#""result":{"resources":[],"nextCursor":""}"#);
    let cursor = field(&rig.take_answer(), "result.nextCursor");
    rig.leave(3);
    rig.take_answers();
    rig.ask("2", "resources/list", &format!(r#"{{"cursor":{cursor}}}"#));
    let asked = rig.take_sent();
    assert_eq!(asked.len(), 1);
    assert_eq!(field(&asked[0].1, "params.cursor"), "p\"2");
    rig.answer(&asked[0], r#""result":{"resources":[{"uri":"y"}]}"#);
    let wanted = r#"{"resources":[{"uri":"tidegate:a/y"}]}"#;
    assert_eq!(field(&rig.take_answer(), "result").to_string(), wanted);
    // Nobody is asked what only another list's cursor says.
    for cursor in [cursor.to_string(), "\"2\"".into(), "7".into()] {
        rig.ask("3", "tools/list", &format!(r#"{{"cursor":{cursor}}}"#));
        let refused = rig.take_answer();
        assert_eq!(field(&refused, "error.code"), code::INVALID_PARAMS);
        assert!(rig.take_sent().is_empty());
    }
}

#[test]
fn a_page_that_does_not_come_is_missing_for_it_cannot_be_known() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("1", "tools/list", "{}");
    let asked = rig.take_sent();
    rig.answer(&asked[0], r#""result":{"tools":[],"nextCursor":"2"}"#);
    let cursor = field(&rig.take_answer(), "result.nextCursor");
    rig.ask("2", "tools/list", &format!(r#"{{"cursor":{cursor}}}"#));
    rig.wait(LIST_WAIT);
    let missing = field(&rig.take_answer(), "result._meta.tidegate~1missing");
    assert_eq!(missing.to_string(), r#"[{"server":"a","state":"slow"}]"#);
}

#[test]
fn a_change_is_told_once_until_the_client_looks() {
    let mut rig = Rig::new(&["a", "b"]);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    rig.server(1, changed);
    rig.server(2, changed);
    assert_eq!(rig.take_answer(), changed);
    rig.ask("1", "prompts/list", "{}");
    rig.server(1, changed);
    assert!(rig.take_answers().is_empty());
    rig.ask("2", "tools/list", "{}");
    rig.server(1, changed);
    assert_eq!(rig.take_answer(), changed);
}

#[test]
fn a_list_waits_for_no_server_that_has_left_or_takes_nobody() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.join(9, "c", true);
    rig.ask("1", "tools/list", "{}");
    let asked = rig.take_sent();
    assert_eq!(asked.len(), 2);
    rig.answer(&asked[0], TOOL);
    rig.leave(2);
    let answers = rig.take_answers();
    let missing = field(&answers[0], "result._meta.tidegate~1missing");
    assert_eq!(missing.to_string(), r#"[{"server":"c","state":"full"}]"#);
    assert_eq!(answers.len(), 4, "three lists changed");
    rig.ask("2", "tools/call", r#"{"name":"C__t"}"#);
    assert_eq!(field(&rig.take_answer(), "error.code"), code::NOT_SENT);
}

/// BR-134: fifty servers, one of them hung, three lists at once.
#[test]
fn one_hung_server_of_fifty_keeps_no_list_from_its_answer() {
    let servers: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = servers.iter().map(String::as_str).collect();
    let mut rig = Rig::new(&names);
    let lists = ["tools/list", "prompts/list", "resources/list"];
    for (id, list) in lists.iter().enumerate() {
        rig.ask(&id.to_string(), list, "{}");
    }
    let asked = rig.take_sent();
    assert_eq!(asked.len(), 150);
    for call in asked.iter().filter(|(seat, _)| *seat != 7) {
        rig.answer(call, r#""result":{"tools":[],"prompts":[],"resources":[]}"#);
    }
    rig.wait(LIST_WAIT + KNOWN_WAIT);
    let answers = rig.take_answers();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let missing = field(&answer, "result._meta.tidegate~1missing");
        assert_eq!(missing.to_string(), r#"[{"server":"s6","state":"slow"}]"#);
    }
    // What comes too late goes nowhere.
    for late in asked.iter().filter(|(seat, _)| *seat == 7) {
        rig.answer(late, r#""result":{"tools":[]}"#);
    }
    assert!(rig.take_answers().is_empty());
    assert_eq!(rig.dropped, 3);
}

#[test]
fn without_servers_lists_are_empty() {
    let mut rig = Rig::new(&[]);
    rig.ask("1", "tools/list", "{}");
    assert_eq!(
        rig.take_answer(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#
    );
}

#[test]
fn more_lists_than_can_be_put_together_at_once_are_refused() {
    let mut rig = Rig::new(&["a"]);
    for _ in 0..GATHERS_MAX {
        rig.ask("1", "tools/list", "{}");
    }
    assert!(rig.take_answers().is_empty());
    rig.ask("1", "tools/list", "{}");
    assert_eq!(field(&rig.take_answer(), "error.code"), code::BUSY);
}

/// As serde_json writes a value.
fn sorted(text: &str) -> String {
    serde_json::from_str::<Value>(text).unwrap().to_string()
}
