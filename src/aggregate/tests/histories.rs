//! Whatever the order in which clients, servers and time do things, every request has one answer.

use std::collections::BTreeMap;

use super::*;

/// A small generator of numbers, so that a history can be told again by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }

    fn at(&mut self, count: usize) -> usize {
        usize::try_from(self.roll(count as u64)).unwrap()
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.at(all.len())]
    }
}

const ASKED: [(&str, &str); 12] = [
    ("tools/list", "{}"),
    ("resources/list", "{}"),
    ("tasks/list", "{}"),
    ("tools/call", r#"{"name":"A__t"}"#),
    ("tools/call", r#"{"name":"B__t"}"#),
    ("tools/call", r#"{"name":"nobodys"}"#),
    ("resources/read", r#"{"uri":"tidegate:c/x"}"#),
    ("resources/subscribe", r#"{"uri":"tidegate:a/x"}"#),
    ("ping", "{}"),
    ("logging/setLevel", r#"{"level":"info"}"#),
    ("tasks/get", r#"{"taskId":"b/1"}"#),
    ("x/unknown", "{}"),
];
const BODIES: [&str; 6] = [
    r#""result":{}"#,
    r#""result":{"tools":[{"name":"t"}],"resources":[{"uri":"u"}],"tasks":[],"nextCursor":"n"}"#,
    r#""result":{"content":[{"type":"resource_link","uri":"u"}]}"#,
    r#""error":{"code":-32601,"message":"m"}"#,
    r#""error":{"code":-32050,"message":"m","data":{"state":"waiting"}}"#,
    r#""result":7"#,
];
const SERVERS: [&str; 3] = ["a", "b", "c"];

/// What is owed to whom.
#[derive(Default)]
struct Owed {
    /// The client's requests by id: answers so far, and whether it cancelled.
    client: BTreeMap<u64, (usize, bool)>,
    /// What servers' sides were asked and have not answered.
    servers: Vec<(u64, String)>,
    /// What the client was asked and has not answered.
    asks: Vec<String>,
    /// Requests of servers' sides by seat and id: answers so far.
    of_servers: BTreeMap<(u64, u64), usize>,
}

impl Owed {
    fn sort(&mut self, rig: &mut Rig) {
        for (seat, line) in rig.take_sent() {
            let id = field(&line, "id").as_u64();
            match (field(&line, "method").is_string(), id) {
                (true, Some(_)) => self.servers.push((seat, line)),
                (false, Some(id)) => {
                    let answers = self.of_servers.get_mut(&(seat, id));
                    *answers.expect("an answer to no request") += 1;
                }
                _ => {}
            }
        }
        for line in rig.take_answers() {
            let id = field(&line, "id").as_u64();
            match (field(&line, "method").is_string(), id) {
                (true, Some(_)) => self.asks.push(line),
                (false, Some(id)) => {
                    let (answers, _) = self.client.get_mut(&id).expect("an answer to no request");
                    *answers += 1;
                }
                _ => {}
            }
        }
    }
}

/// A session's history as it goes.
struct Told {
    dice: Dice,
    rig: Rig,
    owed: Owed,
    /// Who is at the table, and the last seat.
    seats: Vec<(u64, &'static str)>,
    last: u64,
}

impl Told {
    fn step(&mut self, step: u64) {
        match self.dice.roll(16) {
            0..=4 => {
                let (method, params) = ASKED[self.dice.at(ASKED.len())];
                self.owed.client.insert(step, (0, false));
                self.rig.ask(&step.to_string(), method, params);
            }
            5..=9 if !self.owed.servers.is_empty() => self.answer_one(),
            10 => self.cancel_one(step),
            11 if !self.seats.is_empty() => {
                let (seat, _) = self.seats[self.dice.at(self.seats.len())];
                self.owed.of_servers.insert((seat, step), 0);
                let asked = request(&step.to_string(), "roots/list", "{}");
                self.rig.server(seat, &asked);
            }
            12 if !self.owed.asks.is_empty() => self.reply_to_one(),
            13 if !self.seats.is_empty() => self.leave_and_join(),
            _ => self.rig.wait(Duration::from_millis(self.dice.roll(1_500))),
        }
        self.owed.sort(&mut self.rig);
    }

    fn answer_one(&mut self) {
        let at = self.dice.at(self.owed.servers.len());
        let asked = self.owed.servers.swap_remove(at);
        self.rig.answer(&asked, self.dice.pick(&BODIES));
        self.owed.sort(&mut self.rig);
    }

    fn reply_to_one(&mut self) {
        let at = self.dice.at(self.owed.asks.len());
        let id = field(&self.owed.asks.swap_remove(at), "id");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        self.rig.client(&answer);
        self.owed.sort(&mut self.rig);
    }

    fn cancel_one(&mut self, step: u64) {
        let id = self.dice.roll(step + 1);
        if let Some((0, cancelled)) = self.owed.client.get_mut(&id) {
            *cancelled = true;
        }
        let params = format!(r#"{{"requestId":{id}}}"#);
        self.rig.client(&notice("notifications/cancelled", &params));
    }

    fn leave_and_join(&mut self) {
        let (seat, server) = self.seats.swap_remove(self.dice.at(self.seats.len()));
        self.rig.leave(seat);
        if self.dice.roll(2) == 0 {
            self.last += 1;
            self.seats.push((self.last, server));
            self.rig.join(self.last, server, self.dice.roll(4) == 0);
        }
    }

    /// Whoever waits still is answered.
    fn settle(&mut self) {
        while !self.owed.servers.is_empty() {
            self.answer_one();
        }
        while !self.owed.asks.is_empty() {
            self.reply_to_one();
        }
    }
}

fn history(seed: u64) {
    let mut told = Told {
        dice: Dice(seed),
        rig: Rig::new(&SERVERS),
        owed: Owed::default(),
        seats: (1..).zip(SERVERS).collect(),
        last: 100,
    };
    (0..300).for_each(|step| told.step(step));
    told.settle();
    let Told {
        rig, owed, seats, ..
    } = told;
    for (id, (answers, cancelled)) in &owed.client {
        let wanted = if *cancelled { 0..=1 } else { 1..=1 };
        assert!(
            wanted.contains(answers),
            "seed {seed}, request {id}: {answers} answers"
        );
    }
    for ((seat, id), answers) in &owed.of_servers {
        let stays = seats.iter().any(|(of, _)| of == seat);
        let wanted = usize::from(stays)..=1;
        assert!(
            wanted.contains(answers),
            "seed {seed}, {id} of seat {seat}: {answers} answers"
        );
    }
    assert!(rig.all.gathers.is_empty() && rig.all.ledger.asks.is_empty());
    let waits = |call: &ledger::Call| matches!(call.want, ledger::Want::Client { .. });
    assert!(!rig.all.ledger.calls.values().any(waits), "seed {seed}");
}

#[test]
fn every_request_has_one_answer_in_random_histories() {
    (0..200).for_each(history);
}
