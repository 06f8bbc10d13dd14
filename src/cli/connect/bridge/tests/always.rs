//! What holds whatever happens: one answer to each call, and no answer to anybody who did not ask.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What may happen to a bridge.
#[derive(Clone, Debug)]
enum Step {
    Call(u8),
    Cancel(u8),
    Reply(u8),
    Answer(u8),
    Late(u8),
    Ask(u8),
    Connect,
    Greet,
    Lose,
    Fail,
    Wake,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8).prop_map(Step::Call),
        1 => (0..4_u8).prop_map(Step::Cancel),
        2 => (0..8_u8).prop_map(Step::Reply),
        4 => (0..4_u8).prop_map(Step::Answer),
        1 => (0..4_u8).prop_map(Step::Late),
        2 => (0..4_u8).prop_map(Step::Ask),
        2 => Just(Step::Connect),
        2 => Just(Step::Greet),
        1 => Just(Step::Lose),
        1 => Just(Step::Fail),
        1 => Just(Step::Wake),
    ]
}

/// What the host and the gateways of all epochs may expect of each other.
#[derive(Default)]
struct Ledger {
    /// Calls that wait, by id.
    waiting: BTreeMap<u64, usize>,
    /// Requests of each epoch that were not answered, by the id of that gateway.
    asked: Vec<(Epoch, u64)>,
}

impl Ledger {
    /// Every answer to the host is one that it waits for.
    fn settle(&mut self, rig: &mut Rig) {
        for frame in rig.host.drain(..) {
            if frame["method"].is_null() {
                let id = frame["id"].as_u64().unwrap();
                let left = self.waiting.get_mut(&id).filter(|left| **left > 0);
                *left.unwrap_or_else(|| panic!("nobody waits for {frame}")) -= 1;
                assert_ne!(frame["result"], "late", "{frame}");
            }
        }
        let epoch = rig.epoch;
        let (answers, others): (Vec<_>, Vec<_>) = rig
            .gateway
            .drain(..)
            .partition(|frame| frame["method"].is_null());
        rig.gateway = others;
        for frame in answers {
            let known = (epoch, frame["id"].as_u64().unwrap());
            let at = self.asked.iter().position(|asked| *asked == known);
            self.asked
                .remove(at.unwrap_or_else(|| panic!("{epoch} did not ask for {frame}")));
        }
    }
}

/// One thing happens, and the ledger notes what is expected of it.
fn take(step: &Step, rig: &mut Rig, ledger: &mut Ledger) {
    let serves = rig.bridge.stage == Stage::Serving;
    match *step {
        Step::Call(id) => {
            *ledger.waiting.entry(id.into()).or_default() += 1;
            rig.says(json!({"id": id, "method": "tools/call"}));
        }
        Step::Cancel(id) => {
            let waiting = ledger.waiting.get_mut(&u64::from(id));
            if let Some(waiting) = waiting.filter(|left| serves && **left > 0) {
                *waiting -= 1;
            }
            rig.says(json!({"method": "notifications/cancelled", "params": {"requestId": id}}));
        }
        Step::Reply(id) => rig.says(json!({"id": id, "result": {}})),
        Step::Answer(id) => rig.tells(json!({"id": id, "result": "now"})),
        Step::Late(id) => {
            let late = Message::parse(line(json!({"id": id, "result": "late"}))).unwrap();
            let old = Epoch(rig.epoch.0 - 1);
            rig.link(old, LinkEvent::Received(late));
        }
        Step::Ask(id) => {
            let ask = (rig.epoch, id.into());
            if serves && !ledger.asked.contains(&ask) {
                ledger.asked.push(ask);
                rig.tells(json!({"id": id, "method": "roots/list"}));
            }
        }
        Step::Connect => rig.connect(),
        Step::Greet => greet(rig),
        Step::Lose => rig.lose(),
        Step::Fail if matches!(rig.bridge.stage, Stage::Dialing(_)) => {
            rig.fail(Outcome::Refused);
        }
        Step::Wake if rig.bridge.due().is_some() => rig.wake(),
        Step::Fail | Step::Wake => {}
    }
}

/// The gateway answers a repeated `initialize`, where there is one.
fn greet(rig: &mut Rig) {
    let is_greeting = |frame: &&Value| frame["method"] == "initialize";
    if let Some(greeting) = rig.gateway.iter().find(is_greeting).cloned() {
        rig.tells(json!({"id": greeting["id"], "result": welcome("1")}));
    }
}

proptest! {
    #[test]
    fn every_call_gets_one_answer_and_every_answer_goes_to_the_connection_that_asked(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let mut rig = Rig::served(json!({}));
        let mut ledger = Ledger::default();
        for step in steps {
            take(&step, &mut rig, &mut ledger);
            ledger.settle(&mut rig);
        }
        let at = rig.at();
        rig.bridge.host_ended(at);
        rig.drain();
        while !rig.finished {
            rig.wake();
        }
        ledger.settle(&mut rig);
        let left = &ledger.waiting;
        prop_assert!(left.values().all(|left| *left == 0), "{left:?}");
    }
}
