//! What a host was told by a bridge that dies all the time, held against what that bridge wrote in its diary.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::bridge::Line;
use crate::host::Received;

/// The messages that hosts received, by their numbers.
#[derive(Default)]
pub(crate) struct Account {
    /// Whether a host that did not break off has answered it.
    received: BTreeMap<u64, bool>,
    /// The last first arrival, by room.
    last: BTreeMap<String, u64>,
    /// The last of this session, by room.
    of_session: BTreeMap<String, u64>,
    pub(crate) redelivered: usize,
}

/// What a bridge's processes wrote down.
#[derive(Default)]
pub(crate) struct Diary {
    /// The life that said a number.
    said: BTreeMap<u64, usize>,
    /// What may have been refused: its life lacked the capability, or its channel was not registered when it was said.
    refusable: BTreeSet<u64>,
    /// The life of a process.
    pids: BTreeMap<u64, usize>,
    registrations: usize,
    /// By life and id.
    answers: BTreeMap<(usize, String), Vec<Value>>,
}

impl Account {
    pub(crate) fn new_session(&mut self) {
        self.of_session.clear();
    }

    /// A host received a message: in order, and a second time only where the first may not have been answered.
    pub(crate) fn receive(&mut self, message: &Received) -> u64 {
        let id = message.param("/messages/0/messageId");
        let number = id
            .as_str()
            .unwrap()
            .strip_prefix("m-")
            .unwrap()
            .parse()
            .unwrap();
        let room = message.param("/messages/0/channelId").to_string();
        let marked = message.param("/_meta/tidegate~1redelivered") == true;
        let before = self.of_session.insert(room.clone(), number);
        assert!(before < Some(number), "{number} in {room} after {before:?}");
        match self.received.get(&number) {
            None => {
                let before = self.last.insert(room.clone(), number);
                assert!(before < Some(number), "{number} in {room} after {before:?}");
                self.received.insert(number, false);
            }
            Some(answered) => {
                assert!(marked, "{number} comes twice and is not marked");
                assert!(!answered, "{number} was answered and comes again");
            }
        }
        self.redelivered += usize::from(marked);
        number
    }

    /// The host answered it, and the gateway reads that.
    pub(crate) fn answered(&mut self, number: u64) {
        self.received.insert(number, true);
    }

    /// The host broke off: nobody knows which of its answers were read.
    pub(crate) fn broke_off(&mut self) {
        self.received
            .values_mut()
            .for_each(|answered| *answered = false);
    }

    pub(crate) fn len(&self) -> usize {
        self.received.len()
    }
}

impl Diary {
    /// Reads it. `lives` are the scripts.
    pub(crate) fn read(lines: &[Line], lives: &[String]) -> Self {
        let mut diary = Self::default();
        let mut rooms = BTreeSet::new();
        for (life, what) in lines {
            let words: Vec<&str> = what.splitn(3, ' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "born" => {
                    diary.pids.insert(number(1), *life);
                    rooms.clear();
                }
                "says" => diary.say(number(1)..=number(1), *life, &rooms),
                "bursts" => diary.say(number(1)..=number(2), *life, &rooms),
                "registers" if lives[life - 1].contains("without") => diary.registrations += 1,
                "registers" => {
                    diary.registrations += 1;
                    rooms.extend(words[1..].iter().map(|room| room.parse::<u64>().unwrap()));
                }
                "got" => {
                    let verdict = serde_json::from_str(words[2]).unwrap();
                    let key = (*life, words[1].to_owned());
                    diary.answers.entry(key).or_default().push(verdict);
                }
                _ => {}
            }
        }
        diary
    }

    fn say(&mut self, numbers: RangeInclusive<u64>, life: usize, rooms: &BTreeSet<u64>) {
        for number in numbers {
            self.said.insert(number, life);
            if !rooms.contains(&(2 - number % 2)) {
                self.refusable.insert(number);
            }
        }
    }

    /// The numbers that were refused for a missing capability or channel, as their life was told.
    pub(crate) fn refused(&self) -> BTreeSet<u64> {
        let refuses = |verdict: &Value| {
            let item = &verdict["results"][0];
            verdict["code"] == -32002 || item["accepted"] == false
        };
        let refused = self
            .answers
            .iter()
            .filter(|(_, verdicts)| refuses(&verdicts[0]));
        let refused: BTreeSet<u64> = refused.filter_map(|((_, id), _)| number_of(id)).collect();
        assert!(
            refused.is_subset(&self.refusable),
            "refused without a reason"
        );
        refused
    }

    /// How many refusals reached the lives that they were for, those of registrations among them.
    pub(crate) fn refusals(&self) -> usize {
        let registrations = self
            .answers
            .iter()
            .filter(|((_, id), verdicts)| number_of(id).is_none() && verdicts[0]["code"] == -32002);
        self.refused().len() + registrations.count()
    }

    /// Each request got at most one answer, in the life that asked, and it is the answer to that request.
    pub(crate) fn check_answers(&self) {
        for ((life, id), verdicts) in &self.answers {
            assert_eq!(verdicts.len(), 1, "life {life} got {id}: {verdicts:?}");
            let verdict = &verdicts[0];
            if let Some(number) = number_of(id) {
                assert_eq!(
                    self.said.get(&number),
                    Some(life),
                    "{id} was asked by another life"
                );
                let item = &verdict["results"][0]["messageId"];
                let is_its = *item == format!("m-{number}") || verdict["code"] == -32002;
                assert!(is_its, "life {life} got {id}: {verdict}");
            } else if let Some(pid) = verdict["pid"].as_u64() {
                let of = self.pids.get(&pid);
                assert_eq!(
                    of,
                    Some(life),
                    "life {life} got the host's verdict on another"
                );
            }
        }
    }

    /// How many requests were written, or were about to be.
    pub(crate) fn requests(&self) -> usize {
        self.said.len() + self.registrations
    }

    /// What was said and is accounted for neither by the host nor by a refusal. What cannot have been refused was said
    /// last in its life.
    pub(crate) fn missing(&self, account: &Account) -> usize {
        let refused = self.refused();
        let mut missing = BTreeSet::new();
        for number in self.said.keys() {
            let received = account.received.contains_key(number);
            assert!(
                !(received && refused.contains(number)),
                "{number} was refused and delivered"
            );
            if !received && !refused.contains(number) {
                missing.insert(*number);
            }
        }
        missing
            .iter()
            .for_each(|number| self.check_last(*number, &missing));
        missing.len()
    }

    fn check_last(&self, number: u64, missing: &BTreeSet<u64>) {
        if self.refusable.contains(&number) {
            return;
        }
        let its = |(_, life): &(&u64, &usize)| **life == self.said[&number];
        let later = self.said.range(number + 1..).take_while(its);
        let later: Vec<u64> = later.map(|(later, _)| *later).collect();
        let arrived = later
            .iter()
            .filter(|later| !missing.contains(later))
            .count();
        assert_eq!(
            arrived, 0,
            "{number} is missing, and what was said after it is not"
        );
    }
}

/// The number of the message whose id this is.
fn number_of(id: &str) -> Option<u64> {
    id.strip_prefix("\"in-")?.strip_suffix('"')?.parse().ok()
}
