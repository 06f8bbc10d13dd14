//! The bridge as its host and its gateways see it, with the time passed in.

mod always;

use serde_json::{Value, json};

use super::*;
use crate::engine::input::Reap;

/// A bridge, and what came out of it since the last look.
struct Rig {
    bridge: Bridge,
    now: Instant,
    host: Vec<Value>,
    gateway: Vec<Value>,
    said: Vec<String>,
    epoch: Epoch,
    dials: usize,
    finished: bool,
}

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        let mut rig = Self {
            bridge: Bridge::new("chat", 7, Moment { now, jitter: 0.0 }),
            now,
            host: Vec::new(),
            gateway: Vec::new(),
            said: Vec::new(),
            epoch: Epoch::default(),
            dials: 0,
            finished: false,
        };
        rig.drain();
        rig
    }

    /// One whose host is initialized on its first connection.
    fn served(capabilities: Value) -> Self {
        let mut rig = Self::new();
        rig.connect();
        rig.says(json!({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": capabilities}}));
        rig.tells(json!({"id": 0, "result": welcome("1")}));
        rig.says(json!({"method": "notifications/initialized"}));
        rig.forget();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.bridge.next() {
            match output {
                Output::Host(frame) => self.host.push(serde_json::from_slice(&frame).unwrap()),
                Output::Gateway(frame) => {
                    self.gateway.push(serde_json::from_slice(&frame).unwrap());
                }
                Output::Dial(epoch) => {
                    assert!(epoch > self.epoch);
                    (self.epoch, self.dials) = (epoch, self.dials + 1);
                }
                Output::Close => self.gateway.clear(),
                Output::Say(text) => self.said.push(text),
                Output::Finish => self.finished = true,
            }
        }
    }

    fn at(&self) -> Moment {
        Moment {
            now: self.now,
            jitter: 0.0,
        }
    }

    /// The host writes a message.
    fn says(&mut self, message: Value) {
        let at = self.at();
        self.bridge.host_said(Message::parse(line(message)), at);
        self.drain();
    }

    /// Something happens to the connection of that epoch.
    fn link(&mut self, epoch: Epoch, event: LinkEvent) {
        let at = self.at();
        self.bridge.link(epoch, event, at);
        self.drain();
    }

    /// The gateway sends a message on the connection that is.
    fn tells(&mut self, message: Value) {
        let message = Message::parse(line(message)).unwrap();
        self.link(self.epoch, LinkEvent::Received(message));
    }

    fn connect(&mut self) {
        self.link(self.epoch, LinkEvent::Connected);
    }

    fn lose(&mut self) {
        self.link(self.epoch, lost(1006));
    }

    fn fail(&mut self, outcome: Outcome) {
        let failure = Failure {
            outcome,
            detail: "ws://gw: no".into(),
            retry_after: None,
            stderr: Vec::new(),
        };
        self.link(self.epoch, LinkEvent::Failed(failure));
    }

    /// Time passes until something is due.
    fn wake(&mut self) {
        self.now = self.bridge.due().expect("nothing is due").max(self.now);
        let at = self.at();
        self.bridge.wake(at);
        self.drain();
    }

    /// The gateway is back, and answers what is asked first.
    fn reconnect(&mut self, manifest: &str) {
        self.wake();
        self.connect();
        let greeting = self.gateway.pop().expect("a greeting");
        self.tells(json!({"id": greeting["id"], "result": welcome(manifest)}));
    }

    fn forget(&mut self) {
        self.host.clear();
        self.gateway.clear();
        self.said.clear();
    }

    fn methods(frames: &[Value]) -> Vec<&str> {
        frames
            .iter()
            .map(|frame| frame["method"].as_str().unwrap_or(""))
            .collect()
    }
}

fn line(mut message: Value) -> Bytes {
    message["jsonrpc"] = "2.0".into();
    message.to_string().into()
}

fn welcome(manifest: &str) -> Value {
    let offers =
        json!({"tools": {}, "prompts": {}, "experimental": {"mcpl": {"revision": manifest}}});
    json!({"protocolVersion": "2025-11-25", "capabilities": offers})
}

fn lost(code: u16) -> LinkEvent {
    let end = End::Close {
        code,
        reason: String::new(),
    };
    LinkEvent::Lost(Loss {
        end,
        stderr: Vec::new(),
    })
}

#[test]
fn initialize_waits_for_the_gateway_and_other_calls_are_answered_at_once() {
    let mut rig = Rig::new();
    rig.says(json!({"id": "early", "method": "tools/list"}));
    assert_eq!(rig.host[0]["error"]["code"], code::NOT_SENT);
    assert_eq!(rig.host[0]["error"]["data"]["state"], "connecting");
    rig.says(json!({"id": 0, "method": "initialize", "params": {}}));
    assert!(!rig.bridge.takes_lines(), "what follows stays unread");
    rig.fail(Outcome::Refused);
    assert_eq!(rig.host.len(), 1);
    rig.wake();
    rig.connect();
    assert_eq!(Rig::methods(&rig.gateway), ["initialize"]);
    assert!(rig.bridge.takes_lines());
}

#[test]
fn an_initialize_that_waits_too_long_gets_an_error_and_may_come_again() {
    let mut rig = Rig::new();
    rig.says(json!({"id": 0, "method": "initialize", "params": {}}));
    let start = rig.now;
    while rig.host.is_empty() {
        if rig.dials > 0 {
            rig.fail(Outcome::Refused);
        }
        rig.wake();
    }
    assert_eq!(rig.now - start, INITIALIZE_MAX);
    let error = &rig.host[0]["error"];
    assert_eq!(
        (&error["code"], &rig.host[0]["id"]),
        (&json!(code::NOT_SENT), &json!(0))
    );
    assert!(
        error["message"].as_str().unwrap().contains("ws://gw: no"),
        "{error}"
    );
    rig.says(json!({"id": 1, "method": "initialize", "params": {}}));
    assert!(!rig.bridge.takes_lines());
}

#[test]
fn a_refused_token_is_told_at_once_and_without_try_again_later() {
    let mut rig = Rig::new();
    rig.says(json!({"id": 0, "method": "initialize", "params": {}}));
    rig.fail(Outcome::Auth);
    let error = &rig.host[0]["error"];
    assert_eq!(error["data"]["state"], "auth");
    assert_eq!(error["data"]["retryAfterMs"], Value::Null);
    assert!(
        !error["message"].as_str().unwrap().contains("try again"),
        "{error}"
    );
    rig.wake();
    assert_eq!(rig.dials, 2, "a token in a file may be another one by now");
}

#[test]
fn a4_a_call_that_was_sent_and_one_that_was_not_get_different_errors() {
    let mut rig = Rig::served(json!({}));
    rig.says(json!({"id": "a", "method": "tools/call"}));
    rig.lose();
    rig.says(json!({"id": "b", "method": "tools/call"}));
    let told: Vec<_> = rig
        .host
        .iter()
        .map(|answer| {
            let error = &answer["error"];
            (
                answer["id"].as_str().unwrap(),
                error["code"].as_i64().unwrap(),
                error["data"].clone(),
            )
        })
        .collect();
    let data = |sent: bool| json!({"server": "chat", "state": "waiting", "sent": sent, "attempt": 1, "retryAfterMs": 250});
    assert_eq!(
        told,
        [
            ("a", code::LOST, data(true)),
            ("b", code::NOT_SENT, data(false))
        ]
    );
}

#[test]
fn a1_no_answer_of_an_old_connection_reaches_a_call_of_the_new_one() {
    let mut rig = Rig::served(json!({}));
    rig.says(json!({"id": 5, "method": "tools/call"}));
    let old = rig.epoch;
    rig.lose();
    rig.reconnect("1");
    rig.says(json!({"id": 5, "method": "tools/call"}));
    rig.forget();
    let late = Message::parse(line(json!({"id": 5, "result": "old"}))).unwrap();
    rig.link(old, LinkEvent::Received(late));
    assert!(rig.host.is_empty(), "{:?}", rig.host);
    rig.tells(json!({"id": 5, "result": "new"}));
    rig.tells(json!({"id": 5, "result": "twice"}));
    assert_eq!(rig.host.len(), 1);
    assert_eq!(rig.host[0]["result"], "new");
}

#[test]
fn a1_a_host_answers_the_connection_that_asked_or_none() {
    let mut rig = Rig::served(json!({}));
    let ask = json!({"id": 1, "method": "sampling/createMessage", "params": {"_meta": {"progressToken": 1}}});
    rig.tells(ask.clone());
    let first = rig.host[0].clone();
    assert_eq!(first["id"], first["params"]["_meta"]["progressToken"]);
    rig.lose();
    let cancelled = rig
        .host
        .iter()
        .find(|frame| frame["method"] == "notifications/cancelled");
    assert_eq!(cancelled.unwrap()["params"]["requestId"], first["id"]);
    rig.reconnect("1");
    rig.forget();
    rig.tells(ask);
    let second = rig.host[0].clone();
    assert_ne!(
        second["id"], first["id"],
        "the new gateway counts from the start"
    );
    rig.says(json!({"method": "notifications/progress", "params": {"progressToken": first["id"], "progress": 1}}));
    rig.says(json!({"id": first["id"], "result": "late"}));
    assert!(rig.gateway.is_empty(), "{:?}", rig.gateway);
    rig.says(json!({"method": "notifications/progress", "params": {"progressToken": second["id"], "progress": 1}}));
    rig.says(json!({"id": second["id"], "result": "right"}));
    assert_eq!(rig.gateway[0]["params"]["progressToken"], 1);
    assert_eq!(
        rig.gateway[1],
        json!({"jsonrpc": "2.0", "id": 1, "result": "right"})
    );
}

#[test]
fn a_cancel_of_the_gateways_reaches_the_host_under_the_id_it_knows() {
    let mut rig = Rig::served(json!({}));
    for id in [41, 42] {
        rig.tells(json!({"id": id, "method": "elicitation/create"}));
    }
    let known = rig.host[1]["id"].clone();
    rig.forget();
    rig.tells(json!({"method": "notifications/cancelled", "params": {"requestId": 42}}));
    rig.tells(json!({"method": "notifications/cancelled", "params": {"requestId": 43}}));
    assert_eq!(rig.host.len(), 1);
    assert_eq!(rig.host[0]["params"]["requestId"], known);
    rig.says(json!({"id": known, "result": {}}));
    assert!(rig.gateway.is_empty());
}

#[test]
fn g15_what_the_host_set_up_is_set_up_again_and_the_host_is_told_what_may_have_changed() {
    let mut rig = Rig::served(json!({"experimental": {"mcpl": {}}}));
    let calls = [
        ("logging/setLevel", json!({"level": "info"})),
        ("logging/setLevel", json!({"level": "error"})),
        ("resources/subscribe", json!({"uri": "a"})),
        ("resources/subscribe", json!({"uri": "b"})),
        ("resources/unsubscribe", json!({"uri": "a"})),
        ("featureSets/update", json!({"enabled": ["x"]})),
    ];
    for (at, (method, params)) in calls.iter().enumerate() {
        rig.says(json!({"id": at, "method": method, "params": params}));
        rig.tells(json!({"id": at, "result": {}}));
    }
    rig.says(json!({"id": "no", "method": "logging/setLevel", "params": {"level": "loud"}}));
    rig.tells(json!({"id": "no", "error": {"code": -32602, "message": "unknown"}}));
    rig.says(json!({"method": "featureSets/update", "params": {"disabled": ["y"]}}));
    rig.lose();
    rig.forget();
    rig.reconnect("2");
    let told: Vec<_> = rig
        .gateway
        .iter()
        .map(|frame| json!([frame["method"], frame["params"]]))
        .collect();
    let expected = json!([
        ["notifications/initialized", null],
        ["featureSets/update", {"enabled": ["x"]}],
        ["featureSets/update", {"disabled": ["y"]}],
        ["logging/setLevel", {"level": "error"}],
        ["resources/subscribe", {"uri": "b"}],
    ]);
    assert_eq!(json!(told), expected);
    let news = [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "mcpl/manifestChanged",
    ];
    assert_eq!(Rig::methods(&rig.host), news);
    let ids: Vec<_> = rig
        .gateway
        .iter()
        .filter(|frame| !frame["id"].is_null())
        .cloned()
        .collect();
    rig.forget();
    for own in ids {
        rig.tells(json!({"id": own["id"], "result": {}}));
    }
    assert!(
        rig.host.is_empty(),
        "the host did not ask again: {:?}",
        rig.host
    );
    rig.lose();
    rig.forget();
    rig.reconnect("2");
    assert_eq!(
        Rig::methods(&rig.host),
        news[..2],
        "the manifest is the one it knows"
    );
}

#[test]
fn a_gateway_that_will_not_have_the_session_is_a_failed_attempt() {
    for answer in [
        json!({"error": {"code": -32600, "message": "no"}}),
        json!({"result": {"protocolVersion": "2024-11-05"}}),
    ] {
        let mut rig = Rig::served(json!({}));
        rig.lose();
        for attempt in 1..=3 {
            rig.wake();
            rig.connect();
            let mut answer = answer.clone();
            answer["id"] = rig.gateway[0]["id"].clone();
            rig.tells(answer);
            rig.says(json!({"id": attempt, "method": "tools/list"}));
            let told = rig.host.pop().unwrap();
            assert_eq!(told["error"]["data"]["attempt"], attempt + 1);
        }
    }
}

#[test]
fn r2_r4_the_wait_doubles_to_ten_seconds_until_a_connection_has_lasted() {
    let mut rig = Rig::served(json!({}));
    let mut waits = Vec::new();
    for life in [0, 1, 1, 1, 1, 1, 1, 1, 10, 10] {
        rig.now += Duration::from_secs(life);
        rig.lose();
        let lost = rig.now;
        rig.reconnect("1");
        waits.push((rig.now - lost).as_millis());
    }
    assert_eq!(
        waits,
        [
            250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 250, 250
        ]
    );
}

#[test]
fn an_outage_is_told_once_and_again_when_its_reason_changes() {
    let mut rig = Rig::served(json!({}));
    rig.lose();
    for _ in 0..5 {
        rig.wake();
        rig.fail(Outcome::Refused);
    }
    rig.reconnect("1");
    let expected = [
        "not connected: close code 1006; trying again",
        "not connected: ws://gw: no; trying again",
        "connected",
    ];
    assert_eq!(rig.said, expected);
}

#[test]
fn a_bridge_whose_place_was_taken_stays_away_and_does_not_end() {
    let mut rig = Rig::served(json!({"experimental": {"mcpl": {}}}));
    rig.says(json!({"id": 1, "method": "tools/call"}));
    rig.link(rig.epoch, lost(REPLACED));
    rig.says(json!({"id": 2, "method": "tools/call"}));
    let told: Vec<_> = rig
        .host
        .iter()
        .map(|answer| answer["error"]["code"].as_i64().unwrap())
        .collect();
    assert_eq!(told, [code::LOST, code::NOT_SENT]);
    assert_eq!(rig.host[1]["error"]["data"]["state"], "ended");
    assert_eq!((rig.bridge.due(), rig.finished), (None, false));
}

#[test]
fn the_end_of_stdin_lets_calls_end_and_no_longer_than_five_seconds() {
    let mut rig = Rig::served(json!({}));
    rig.says(json!({"id": 1, "method": "tools/call"}));
    rig.says(json!({"id": 2, "method": "tools/call"}));
    let at = rig.at();
    rig.bridge.host_ended(at);
    rig.tells(json!({"id": 1, "result": {}}));
    assert!(!rig.finished);
    let start = rig.now;
    rig.wake();
    assert_eq!((rig.now - start, rig.finished), (DRAIN_MAX, true));
    let ids: Vec<_> = rig.host.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [1, 2]);
    let mut idle = Rig::served(json!({}));
    let at = idle.at();
    idle.bridge.host_ended(at);
    idle.drain();
    assert!(idle.finished);
}

#[test]
fn a_call_that_its_host_cancelled_keeps_nobody_and_gets_no_error() {
    let mut rig = Rig::served(json!({}));
    rig.says(json!({"id": 1, "method": "tools/call"}));
    for id in [1, 1, 7] {
        rig.says(json!({"method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    assert_eq!(
        Rig::methods(&rig.gateway),
        ["tools/call", "notifications/cancelled"]
    );
    rig.lose();
    assert!(rig.host.is_empty(), "{:?}", rig.host);
}

#[test]
fn what_is_no_message_is_answered_as_such() {
    let mut rig = Rig::served(json!({}));
    let at = rig.at();
    for text in [
        "listening",
        r#"{"id":1,"method":7,"jsonrpc":"2.0"}"#,
        "[{}]",
    ] {
        rig.bridge.host_said(Message::parse(text.into()), at);
    }
    rig.drain();
    let told: Vec<_> = rig
        .host
        .iter()
        .map(|answer| {
            (
                answer["id"].clone(),
                answer["error"]["code"].as_i64().unwrap(),
            )
        })
        .collect();
    let none = Value::Null;
    assert_eq!(
        told,
        [(none.clone(), -32700), (json!(1), -32600), (none, -32600)]
    );
}

#[test]
fn g16_an_answer_that_cannot_be_read_is_told_to_whoever_waits_for_it() {
    let mut rig = Rig::served(json!({}));
    rig.says(json!({"id": 1, "method": "tools/call"}));
    rig.tells(json!({"id": 9, "method": "roots/list"}));
    let ours = rig.host[0]["id"].as_u64().unwrap();
    rig.forget();
    let too_long = |id: u64| Unreadable::TooLong {
        limit: 1,
        about: Some(About::Answer(RequestId::from(id))),
    };
    let event = LinkEvent::Unreadable {
        what: too_long(1),
        sample: String::new(),
    };
    rig.link(rig.epoch, event);
    assert_eq!(rig.host[0]["error"]["code"], code::LOST);
    let at = rig.at();
    rig.bridge.host_said(Err(too_long(ours)), at);
    rig.drain();
    assert_eq!(
        (&rig.gateway[0]["id"], &rig.gateway[0]["error"]["code"]),
        (&json!(9), &json!(-32600))
    );
}

#[test]
fn a2_only_a_session_with_batches_may_send_them() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#;
    for (revision, sent) in [("2025-03-26", 2), ("2025-06-18", 0)] {
        let mut rig = Rig::new();
        rig.connect();
        rig.says(json!({"id": 0, "method": "initialize", "params": {}}));
        rig.tells(json!({"id": 0, "result": {"protocolVersion": revision}}));
        rig.forget();
        let at = rig.at();
        rig.bridge.host_said(Message::parse(batch.into()), at);
        rig.drain();
        assert_eq!(
            (rig.gateway.len(), rig.host.len()),
            (sent, usize::from(sent == 0))
        );
    }
}

#[test]
fn g16_no_more_calls_are_in_flight_than_there_is_room_for() {
    let mut rig = Rig::served(json!({}));
    for id in 0..=IN_FLIGHT_MAX {
        rig.says(json!({"id": id, "method": "tools/call"}));
    }
    assert_eq!((rig.gateway.len(), rig.host.len()), (IN_FLIGHT_MAX, 1));
    assert_eq!(rig.host[0]["error"]["code"], code::NOT_SENT);
}

#[test]
fn an_initialize_that_was_lost_on_its_way_is_tried_again() {
    let mut rig = Rig::new();
    rig.connect();
    rig.says(json!({"id": 0, "method": "initialize", "params": {}}));
    rig.says(json!({"method": "notifications/initialized"}));
    rig.lose();
    assert!(rig.host.is_empty());
    rig.wake();
    rig.connect();
    assert_eq!(
        Rig::methods(&rig.gateway),
        ["initialize", "notifications/initialized"]
    );
}

#[test]
fn what_comes_of_an_epoch_that_is_gone_is_nothing() {
    let mut rig = Rig::served(json!({}));
    let old = rig.epoch;
    rig.lose();
    rig.reconnect("1");
    rig.forget();
    for event in [
        LinkEvent::Connected,
        lost(1006),
        lost(REPLACED),
        LinkEvent::Gone(Reap::Clean),
    ] {
        rig.link(old, event);
    }
    rig.says(json!({"id": 1, "method": "tools/call"}));
    assert_eq!(rig.gateway.len(), 1);
}
