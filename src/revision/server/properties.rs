//! Whatever an engine and a stateless server send each other: each of the engine's requests gets exactly one answer,
//! its bytes are copied, and neither side sees what is the other revision's alone.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::wire::jsonrpc::Kind;

/// What one of the two does next.
#[derive(Clone, Debug)]
enum Move {
    /// The engine asks, with so much white space in it.
    Ask(usize, usize),
    /// The server answers the request of its that has waited longest, or shortest, in this way.
    Answer(bool, Reply),
    /// The engine answers an input, well or not.
    Give(bool),
    /// The engine gives a call up.
    Cancel,
    /// The server takes the newest stream on, or ends the one that serves.
    Acknowledge,
    End,
}

#[derive(Clone, Debug)]
enum Reply {
    Result,
    Error(i64),
    Asks(usize),
    Again,
    Unreadable,
}

const METHODS: [&str; 9] = [
    "tools/call",
    "tools/list",
    "prompts/get",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "ping",
    "tasks/get",
];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let reply = prop_oneof![
        4 => Just(Reply::Result),
        1 => prop::sample::select(vec![-32602, -32020, -32021, -32022]).prop_map(Reply::Error),
        2 => (0_usize..4).prop_map(Reply::Asks),
        1 => Just(Reply::Again),
        1 => Just(Reply::Unreadable),
    ];
    let one = prop_oneof![
        4 => (0..METHODS.len(), 0_usize..3).prop_map(|(method, space)| Move::Ask(method, space)),
        4 => (any::<bool>(), reply).prop_map(|(oldest, reply)| Move::Answer(oldest, reply)),
        3 => any::<bool>().prop_map(Move::Give),
        1 => Just(Move::Cancel),
        2 => Just(Move::Acknowledge),
        1 => Just(Move::End),
    ];
    prop::collection::vec(one, 0..80)
}

/// Both sides, and what each of them is owed.
struct Model {
    edge: Server,
    now: Instant,
    next: u64,
    /// The engine's requests without an answer: their params as written.
    owed: BTreeMap<u64, String>,
    cancelled: Vec<u64>,
    /// What the server has to answer, by the JSON text of the id.
    at_server: Vec<String>,
    /// Inputs that the engine has to give.
    inputs: Vec<String>,
    streams: Vec<String>,
}

impl Model {
    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn serving() -> Self {
        let mut model = Self {
            edge: Server::new(Opening::Stateless, false),
            now: Instant::now(),
            next: 1,
            owed: BTreeMap::from([(0, String::new())]),
            cancelled: Vec::new(),
            at_server: Vec::new(),
            inputs: Vec::new(),
            streams: Vec::new(),
        };
        model.engine(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"roots":{}},"clientInfo":{"name":"t","version":"1"}}}"#);
        let capabilities =
            r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}"#;
        model.at_server.clear();
        model.server(&format!(r#"{{"jsonrpc":"2.0","id":562949953421312,"result":{{"supportedVersions":["2026-07-28"],"capabilities":{capabilities}}}}}"#));
        model.engine(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        model
    }

    fn engine(&mut self, text: &str) {
        let message = Message::parse(text.to_owned().into()).unwrap();
        let request = message.our_id().filter(|_| message.kind() == Kind::Request);
        self.edge
            .take_of_engine(message.raw().clone(), request, self.now);
        self.settle();
    }

    fn server(&mut self, text: &str) {
        let message = Message::parse(text.to_owned().into()).unwrap();
        self.edge.take_of_server(message, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.edge.poll_output() {
            match output {
                Output::Send { frame, .. } => self.at_the_server(Message::parse(frame).unwrap()),
                Output::Receive { message, .. } => self.at_the_engine(&message),
                Output::Unreadable(what) => self.unreadable(&what),
                Output::Unsent(_) | Output::Deaf(_) => {}
            }
        }
    }

    fn at_the_server(&mut self, message: Message) {
        let name = message.method().to_owned();
        assert_ne!(message.kind(), Kind::Response, "a client sends no answers");
        for gone in [
            "initialize",
            "notifications/initialized",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "tasks/get",
        ] {
            assert_ne!(name, gone, "the revision has no such method");
        }
        let Some(id) = message.id_text().map(str::to_owned) else {
            return assert_eq!(name, "notifications/cancelled");
        };
        let params: Value = message.params_as().unwrap();
        let meta = &params["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        assert!(!self.at_server.contains(&id), "{id} is under way already");
        if name == "subscriptions/listen" {
            self.streams.push(id);
            return;
        }
        if let Some(asked) = message.our_id().and_then(|id| self.owed.get(&id))
            && name != "server/discover"
        {
            self.assert_copied(&message, asked);
        }
        self.at_server.push(id);
    }

    /// Every member of the params as it was written, and nothing but `_meta` beside them.
    fn assert_copied(&self, sent: &Message, asked: &str) {
        let text = sent.params().unwrap();
        let inner = asked.trim_start_matches('{');
        assert!(text.ends_with(inner), "{text} does not end with {inner}");
        assert!(
            text.starts_with(r#"{"_meta":{"io.modelcontextprotocol/"#),
            "{text}"
        );
    }

    fn at_the_engine(&mut self, message: &Message) {
        let text = String::from_utf8(message.raw().to_vec()).unwrap();
        // An answer to what was given up under another id is nobody's, and the engine says so.
        if message.our_id().is_some_and(|id| id >= 1 << 49) {
            return;
        }
        assert!(
            !text.contains("subscriptionId") && !text.contains("input_required"),
            "{text}"
        );
        assert!(
            !text.contains("-32020") || text.contains("-32603"),
            "{text}"
        );
        match message.kind() {
            Kind::Response => message
                .our_id()
                .into_iter()
                .for_each(|id| self.answered(id)),
            Kind::Request => {
                let known = ["sampling/createMessage", "elicitation/create", "roots/list"];
                assert!(known.contains(&message.method()), "{text}");
                self.inputs.push(message.id_text().unwrap().to_owned());
            }
            Kind::Notification => {
                if message.method() == "notifications/cancelled" {
                    let span = message.param(&["requestId"]).unwrap();
                    let id = message.text(&span);
                    let known = self.inputs.iter().position(|input| input == id);
                    self.inputs
                        .remove(known.expect("only what was asked is withdrawn"));
                } else {
                    assert!(
                        message.method().ends_with("list_changed")
                            || message.method().ends_with("updated")
                    );
                }
            }
        }
    }

    fn unreadable(&mut self, what: &Unreadable) {
        if let Some(crate::wire::jsonrpc::About::Answer(id)) = what.about() {
            // One to what was given up under another id is nobody's.
            let known = id.as_ours().filter(|id| *id < 1 << 49);
            known.into_iter().for_each(|id| self.answered(id));
        }
    }

    fn answered(&mut self, id: u64) {
        let owed = self.owed.remove(&id).is_some();
        let given_up = self.cancelled.iter().position(|cancelled| *cancelled == id);
        if let Some(at) = given_up {
            self.cancelled.remove(at);
        }
        assert!(owed || given_up.is_some(), "{id} is answered twice");
    }

    fn ask(&mut self, method: usize, space: usize) {
        let id = self.next;
        self.next += 1;
        let space = " ".repeat(space);
        let params = match METHODS[method] {
            "resources/subscribe" | "resources/unsubscribe" => {
                format!(r#"{{"uri":"u:{}"}}"#, id % 5)
            }
            "logging/setLevel" => r#"{"level":"info"}"#.to_owned(),
            _ => format!(r#"{{{space}"name"{space}:"t","n":1.0{space}}}"#),
        };
        self.owed.insert(id, params.clone());
        let name = METHODS[method];
        self.engine(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{name}","params":{params}}}"#
        ));
    }

    fn answer(&mut self, oldest: bool, reply: &Reply) {
        let id = match (oldest, self.at_server.is_empty()) {
            (_, true) => return,
            (true, false) => self.at_server.remove(0),
            (false, false) => self.at_server.pop().unwrap(),
        };
        let body = match reply {
            Reply::Result => r#""result":{"resultType":"complete","ttlMs":1}"#.to_owned(),
            Reply::Error(code) => format!(r#""error":{{"code":{code},"message":"m"}}"#),
            Reply::Again => {
                r#""result":{"resultType":"input_required","requestState":"s"}"#.to_owned()
            }
            Reply::Asks(n) => {
                let asks: Vec<String> = (0..*n)
                    .map(|n| format!(r#""k{n}":{{"method":"roots/list"}}"#))
                    .collect();
                format!(
                    r#""result":{{"resultType":"input_required","inputRequests":{{{}}}}}"#,
                    asks.join(",")
                )
            }
            Reply::Unreadable => {
                let id = crate::wire::jsonrpc::RequestId::read(&id);
                let about = id.map(crate::wire::jsonrpc::About::Answer);
                self.edge
                    .take_unreadable(Unreadable::TooDeep { about }, self.now);
                return self.settle();
            }
        };
        self.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#));
    }

    fn step(&mut self, one: &Move) {
        match one {
            Move::Ask(method, space) => self.ask(*method, *space),
            Move::Answer(oldest, reply) => self.answer(*oldest, reply),
            Move::Give(well) if !self.inputs.is_empty() => {
                let id = self.inputs.remove(0);
                let body = if *well {
                    r#""result":{}"#
                } else {
                    r#""error":{"code":-1,"message":"no"}"#
                };
                self.engine(&format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#));
            }
            Move::Cancel => {
                if let Some((id, _)) = self.owed.pop_first() {
                    self.cancelled.push(id);
                    self.engine(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
                }
            }
            Move::Acknowledge if !self.streams.is_empty() => {
                let id = self.streams.last().unwrap().clone();
                self.server(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{{"resourceSubscriptions":["u:0","u:1","u:2","u:3"]}}}}}}"#));
                self.server(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#));
            }
            Move::End if !self.streams.is_empty() => {
                let id = self.streams.pop().unwrap();
                self.now += std::time::Duration::from_secs(7);
                self.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
            }
            Move::Give(_) | Move::Acknowledge | Move::End => {}
        }
    }

    /// Both sides do what they owe until nothing is owed.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if let Some(due) = self.edge.poll_timeout() {
                self.now = self.now.max(due);
                self.edge.handle_timeout(self.now);
                self.settle();
            }
            let before = (self.owed.len(), self.at_server.len(), self.inputs.len());
            self.answer(true, &Reply::Result);
            self.step(&Move::Give(true));
            self.step(&Move::Acknowledge);
            if before == (0, 0, 0) {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a3_each_request_gets_one_answer_and_no_side_sees_the_others_revision(moves in moves()) {
        let mut model = Model::serving();
        for one in &moves {
            model.step(one);
        }
        model.finish();
        prop_assert_eq!(model.owed, BTreeMap::new());
    }

    #[test]
    fn a2_whatever_params_are_sent_they_mean_the_same_but_for_the_sender(
        name in "[a-z_\"\\\\/ ]{0,8}", number in any::<f64>(), space in "[ \t]{0,3}", with_meta in any::<bool>(),
    ) {
        let number = if number.is_finite() { number } else { 0.0 };
        let name = serde_json::to_string(&name).unwrap();
        let meta = if with_meta { r#","_meta":{"progressToken":7, "x":[1.0]}"# } else { "" };
        let params = format!(r#"{{{space}"k":{name},{space}"n":{number:e}{meta}{space}}}"#);
        let mut model = Model::serving();
        model.edge.take_of_engine(
            format!(r#"{{"jsonrpc":"2.0","id":9,"method":"x/y","params":{params}}}"#).into(), Some(9), model.now,
        );
        let Some(Output::Send { frame, .. }) = model.edge.poll_output() else { panic!() };
        let mut sent: Value = serde_json::from_slice(&frame).unwrap();
        let mut asked: Value = serde_json::from_str(&params).unwrap();
        let mut sent_meta = sent["params"].as_object_mut().unwrap().remove("_meta").unwrap();
        sent_meta.as_object_mut().unwrap().retain(|key, _| !key.starts_with("io.modelcontextprotocol/"));
        let asked_meta = asked.as_object_mut().unwrap().remove("_meta");
        prop_assert_eq!(&sent["params"], &asked);
        prop_assert_eq!(sent_meta, asked_meta.unwrap_or_else(|| serde_json::json!({})));
    }
}
