//! What no history of a session may do: answer a request twice or not at all, say anything to a client that was
//! answered, or tell one client what another's request was answered with.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::ask::tests::META;
use super::*;
use crate::wire::jsonrpc::Message;

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;

/// What happens next; the numbers choose among what is possible.
#[derive(Clone, Debug)]
enum Step {
    Serve,
    Answer,
    Late(u64),
    Ask(u8),
    Progress,
    Log,
    Cancelled,
    Rest,
    GiveUp,
    Resume(bool),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Serve),
        4 => Just(Step::Answer),
        1 => (0..40_u64).prop_map(Step::Late),
        3 => (0..4_u8).prop_map(Step::Ask),
        1 => Just(Step::Progress),
        1 => Just(Step::Log),
        1 => Just(Step::Cancelled),
        3 => Just(Step::Rest),
        1 => Just(Step::GiveUp),
        3 => any::<bool>().prop_map(Step::Resume),
        1 => Just(Step::Close),
    ]
}

/// A session, its engine and its clients.
struct World {
    inner: Inner,
    /// The requests that the engine has and not answered, the newest last.
    forwarded: Vec<u64>,
    /// The server's requests that have no answer.
    asked: Vec<u64>,
    next: u64,
    /// The number of the client's request that is served or waits, and whether it is owed an answer.
    client: u64,
    owed: bool,
    /// What was asked of the client, in the words of the last answer.
    inputs: Vec<String>,
    closed: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            inner: Inner::open(Skills::default()),
            forwarded: Vec::new(),
            asked: Vec::new(),
            next: 1_000,
            client: 0,
            owed: false,
            inputs: Vec::new(),
            closed: false,
        };
        world.drain();
        world.tell(r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{}}}"#);
        world
    }

    fn tell(&mut self, line: &str) {
        self.inner
            .receive(&Message::parse(line.to_owned().into()).unwrap());
        self.drain();
    }

    fn request(&mut self, extra: &str) -> Ask {
        self.client += 1;
        let params = format!(
            r#""name":"echo","arguments":{{"n":1}}{extra},{}"#,
            META.replace(
                "{\"io.",
                &format!("{{\"progressToken\":{},\"io.", self.client)
            )
        );
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{{params}}}}}"#,
            self.client
        );
        let head = fields::tests::Fields(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ]);
        Ask::read(&head, Message::parse(text.into()).unwrap()).unwrap()
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Serve if self.inner.standing() == Standing::Free => {
                let request = self.request("");
                self.owed = true;
                self.inner.serve(request);
                self.drain();
            }
            Step::Answer => {
                if let Some(id) = self.forwarded.pop() {
                    self.tell(&format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"of":{id}}}}}"#
                    ));
                }
            }
            Step::Late(id) => {
                if !self.forwarded.contains(id) {
                    self.tell(&format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"of":"nobody"}}}}"#
                    ));
                }
            }
            Step::Ask(kind) => {
                self.next += 1;
                let name = [
                    "elicitation/create",
                    "elicitation/create",
                    "roots/list",
                    "x/y",
                ];
                let id = self.next;
                self.asked.push(id);
                let name = name[usize::from(*kind)];
                self.tell(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"{name}","params":{{"n":{id}}}}}"#
                ));
            }
            Step::Progress => self.tell(PROGRESS),
            Step::Log => self.tell(LOG),
            Step::Cancelled => {
                if let Some(id) = self.asked.pop() {
                    self.tell(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
                }
            }
            Step::Rest => {
                self.inner.rest("state");
                self.drain();
            }
            Step::Resume(all) if self.inner.standing() == Standing::Waiting => {
                let answers = self.inputs.iter().map(|key| format!(r#""{key}":{{}}"#));
                let count = if *all { usize::MAX } else { 1 };
                let answers: Vec<String> = answers.take(count).collect();
                let extra = format!(r#","inputResponses":{{{}}}"#, answers.join(","));
                let request = self.request(&extra);
                self.owed = true;
                self.inner.resume(request);
                self.drain();
            }
            Step::GiveUp => {
                self.inner.give_up(full());
                self.drain();
            }
            Step::Close => {
                self.inner.close();
                self.closed = true;
                self.drain();
            }
            Step::Serve | Step::Resume(_) => {}
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.inner.poll() {
            match output {
                Output::Send(frame) => self.sent(&frame),
                Output::Notify(frame) => {
                    assert!(self.owed, "told after its answer: {frame:?}");
                    let told: Value = serde_json::from_slice(&frame).unwrap();
                    let token = &told["params"]["progressToken"];
                    assert!(token.is_null() || *token == self.client, "{told}");
                }
                Output::Answer { frame, .. } => self.answered(&frame),
                Output::Learned(_) | Output::Stale => {}
            }
        }
    }

    fn sent(&mut self, frame: &[u8]) {
        let sent: Value = serde_json::from_slice(frame).unwrap();
        let id = sent["id"].as_u64().unwrap_or_default();
        match sent["method"].as_str() {
            Some("tools/call") => self.forwarded.push(id),
            Some("notifications/cancelled") => {
                let of = sent["params"]["requestId"].as_u64();
                self.forwarded.retain(|id| Some(*id) != of);
            }
            Some(_) => {}
            None => {
                let before = self.asked.len();
                self.asked.retain(|of| *of != id);
                assert_eq!(
                    self.asked.len() + 1,
                    before,
                    "answered twice, or unasked: {sent}"
                );
            }
        }
    }

    fn answered(&mut self, frame: &[u8]) {
        assert!(self.owed, "a second answer: {frame:?}");
        self.owed = false;
        let answer: Value = serde_json::from_slice(frame).unwrap();
        assert_eq!(answer["id"], self.client);
        assert_ne!(answer["result"]["of"], "nobody", "another's answer");
        let inputs = answer["result"]["inputRequests"].as_object();
        self.inputs = inputs
            .into_iter()
            .flat_map(|map| map.keys().cloned())
            .collect();
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn each_request_has_one_answer_and_no_client_hears_of_another(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            let is_busy = world.inner.standing() == Standing::Busy;
            prop_assert_eq!(world.owed, is_busy, "{:?}", step);
        }
        // What is still under way ends with its server's answer, or with the session.
        world.take(&Step::Answer);
        world.take(&Step::Close);
        prop_assert!(!world.owed);
    }
}
