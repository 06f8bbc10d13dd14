//! A bridge whose lives follow a script: line N of `--script FILE` is what its N-th process does, step by step, and a
//! process past the last line does what that says. `--diary FILE` is told `<life> <what>` before each thing is done or
//! as it is heard, so that it outlives a SIGKILL: `born PID`, `says N` (`bursts FIRST LAST`), `registers ROOMS`,
//! `got <id> <result or error>`, `heard <method> <params>`. Numbers of messages go on across lives.
//!
//! Steps are separated by `;`. After the last one the bridge lives on and answers what it is asked.
//! - `await initialize`, `await initialized`, `await policy`, `await got ID`, `await file PATH`, `sleep MS`
//! - `welcome [register] [with PATH] [without PATH]`: answers `initialize`, and registers in the same write; `PATH` is
//!   a capability that is advertised too, or is not
//! - `register [ROOM]`: `channels/register` under the id 100, of one room or of both
//! - `grant`: accepts the policy that was awaited; later ones are accepted at once
//! - `say N [ROOM]`: numbered messages, one by one, in that room or in both by turns; `burst N [ROOM]`: in one write
//! - `ask ID METHOD`: a request
//! - `doom MICROSECONDS`: it dies that much later, whatever it does then; `die`: now. Both by SIGKILL.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{fs, process, thread};

use serde_json::{Value, json};

use crate::{Flags, Members, Session, answer_text, append, incoming, park, register};

/// What the script of this life waits for.
#[derive(Default)]
struct Heard {
    /// The id of `initialize` and of the policy's request, with the message.
    initialize: Option<(String, Members)>,
    policy: Option<(String, Members)>,
    initialized: bool,
    got: Vec<String>,
    /// The script has answered a policy.
    granted: bool,
}

/// The script of one life.
pub(crate) struct Script {
    steps: Vec<String>,
    diary: String,
    life: usize,
    said: Mutex<u64>,
    heard: Mutex<Heard>,
    news: Condvar,
}

impl Script {
    /// The script of this launch, where there is one.
    pub(crate) fn of(flags: &Flags) -> Option<Arc<Self>> {
        let scripts = fs::read_to_string(flags.text("script")?).unwrap();
        let diary = flags.text("diary").unwrap().to_owned();
        let before = fs::read_to_string(&diary).unwrap_or_default();
        let life = 1 + before.matches(" born ").count();
        let line = scripts.lines().nth(life - 1).or(scripts.lines().last());
        let steps = line.unwrap().split(';').map(str::trim);
        let script = Self {
            steps: steps.map(str::to_owned).collect(),
            diary,
            life,
            said: Mutex::new(last_said(&before)),
            heard: Mutex::default(),
            news: Condvar::new(),
        };
        script.note(&format!("born {}", process::id()));
        Some(Arc::new(script))
    }

    fn note(&self, what: &str) {
        append(&self.diary, &format!("{} {what}", self.life));
    }

    fn hear(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.heard.lock().unwrap());
        self.news.notify_all();
    }

    /// Waits until that has been heard.
    fn until<T>(&self, wanted: impl Fn(&mut Heard) -> Option<T>) -> T {
        let mut heard = self.heard.lock().unwrap();
        loop {
            if let Some(it) = wanted(&mut heard) {
                return it;
            }
            heard = self.news.wait(heard).unwrap();
        }
    }

    pub(crate) fn initialized(&self) {
        self.hear(|heard| heard.initialized = true);
    }

    pub(crate) fn notified(&self, method: &str, params: &str) {
        self.note(&format!("heard {method} {params}"));
    }

    pub(crate) fn got(&self, id: &str, verdict: &str) {
        self.note(&format!("got {id} {verdict}"));
        self.hear(|heard| heard.got.push(id.to_owned()));
    }

    pub(crate) fn initialize(&self, id: &str, message: &Members) {
        let asked = (id.to_owned(), message.clone());
        self.hear(|heard| heard.initialize = Some(asked));
    }

    /// Whether the script will answer that request of the policy.
    pub(crate) fn policy(&self, id: &str, message: &Members) -> bool {
        let asked = (id.to_owned(), message.clone());
        let mut waits = false;
        self.hear(|heard| {
            waits = !heard.granted;
            heard.policy = Some(asked);
        });
        waits
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, session: &Session) {
        for step in &self.steps {
            let words: Vec<&str> = step.split_whitespace().collect();
            self.step(&words, session);
        }
    }

    fn step(&self, words: &[&str], session: &Session) {
        let number = |at: usize| -> u64 { words[at].parse().unwrap() };
        let room = |at: usize| words.get(at).map(|room| room.parse().unwrap());
        match words {
            [] => {}
            ["await", what @ ..] => self.wait_for(what),
            ["sleep", _] => thread::sleep(Duration::from_millis(number(1))),
            ["welcome", how @ ..] => self.welcome(how, session),
            ["register", ..] => {
                self.note(words.get(1).map_or("registers 1 2", |_| "registers 1"));
                session.send(&register(room(1)));
            }
            ["grant"] => self.grant(session),
            ["say", ..] => (0..number(1)).for_each(|_| self.say(room(2), session)),
            ["burst", ..] => self.burst(number(1), room(2), session),
            ["ask", id, method] => {
                let id: Value = serde_json::from_str(id).unwrap();
                session.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}));
            }
            ["doom", _] => {
                let left = Duration::from_micros(number(1));
                thread::spawn(move || {
                    thread::sleep(left);
                    die();
                });
            }
            ["die"] => die(),
            other => panic!("what is {other:?}?"),
        }
    }

    fn wait_for(&self, what: &[&str]) {
        match what {
            ["initialize"] => self.until(|heard| heard.initialize.is_some().then_some(())),
            ["initialized"] => self.until(|heard| heard.initialized.then_some(())),
            ["policy"] => self.until(|heard| heard.policy.is_some().then_some(())),
            ["got", id] => self.until(|heard| heard.got.iter().any(|got| got == id).then_some(())),
            ["file", path] => {
                while !fs::exists(path).unwrap() {
                    thread::sleep(Duration::from_millis(2));
                }
            }
            other => panic!("await what? {other:?}"),
        }
    }

    fn welcome(&self, how: &[&str], session: &Session) {
        let mut offered = session.manifest();
        for pair in how.windows(2) {
            match pair {
                ["with", path] => *member(&mut offered, path) = json!(true),
                ["without", path] => *member(&mut offered, path) = json!(false),
                _ => {}
            }
        }
        let (id, message) = self.until(|heard| heard.initialize.take());
        let params = message.get("params").map_or("{}", |raw| raw.get());
        let result = session.introduction(params, Some(offered)).to_string();
        let text = answer_text(&id, "result", &result, &message);
        if how.contains(&"register") {
            self.note("registers 1 2");
            let register = register(None).to_string();
            return (session.out)(&[text.as_bytes(), register.as_bytes()]);
        }
        (session.out)(&[text.as_bytes()]);
    }

    fn grant(&self, session: &Session) {
        let (id, message) = self.until(|heard| {
            heard.granted |= heard.policy.is_some();
            heard.policy.take()
        });
        let text = answer_text(&id, "result", r#"{"accepted":true}"#, &message);
        (session.out)(&[text.as_bytes()]);
    }

    fn next(&self) -> u64 {
        let mut said = self.said.lock().unwrap();
        *said += 1;
        *said
    }

    fn say(&self, room: Option<u64>, session: &Session) {
        let n = self.next();
        self.note(&format!("says {n}"));
        session.send(&incoming(n, room.unwrap_or(2 - n % 2)));
    }

    fn burst(&self, count: u64, room: Option<u64>, session: &Session) {
        let numbers: Vec<u64> = (0..count).map(|_| self.next()).collect();
        let texts = numbers
            .iter()
            .map(|n| incoming(*n, room.unwrap_or(2 - n % 2)).to_string());
        let texts: Vec<String> = texts.collect();
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        self.note(&format!("bursts {first} {last}"));
        let messages: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        (session.out)(&messages);
    }
}

/// The last number in the diary of earlier lives.
fn last_said(diary: &str) -> u64 {
    let last = diary.lines().rev().find_map(|line| {
        let (_, what) = line.split_once(' ')?;
        let told = what
            .strip_prefix("says ")
            .or(what.strip_prefix("bursts "))?;
        told.rsplit(' ').next()?.parse().ok()
    });
    last.unwrap_or(0)
}

/// The member at a dotted path; what is missing on the way is made.
fn member<'a>(object: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(object, |at, key| {
        if !at.is_object() {
            *at = json!({});
        }
        &mut at[key]
    })
}

fn die() -> ! {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    park();
}
