//! The whole session, with its client and its servers' sides played by the test.

mod histories;
mod lists;
mod traffic;

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::wire::jsonrpc::Message;

/// A client and servers' sides. What a server was told of `initialize` and the like is not kept.
struct Rig {
    all: Aggregate,
    now: Instant,
    sent: Vec<(u64, String)>,
    answers: Vec<String>,
    dropped: usize,
}

impl Rig {
    /// A client that is initialized, with these servers on the seats from 1 on.
    fn new(servers: &[&str]) -> Self {
        let mut rig = Self::fresh(servers);
        rig.client(INITIALIZE);
        rig.greet_all();
        rig.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        rig.sent.clear();
        rig.answers.clear();
        rig
    }

    /// A client that has said nothing yet.
    fn fresh(servers: &[&str]) -> Self {
        let mut rig = Self {
            all: Aggregate::default(),
            now: Instant::now(),
            sent: Vec::new(),
            answers: Vec::new(),
            dropped: 0,
        };
        for (server, seat) in servers.iter().zip(1..) {
            rig.join(seat, server, false);
        }
        rig
    }

    fn join(&mut self, seat: u64, server: &str, is_full: bool) {
        let (server, prefix) = (server.into(), server.to_uppercase().into());
        self.input(Input::Joined {
            seat: SeatId(seat),
            server,
            prefix,
            is_full,
        });
    }

    /// Every side answers the `initialize` that it was sent.
    fn greet_all(&mut self) {
        for (seat, line) in std::mem::take(&mut self.sent) {
            if field(&line, "method") == "initialize" {
                let id = field(&line, "id");
                self.server(
                    seat,
                    &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                );
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.all.handle_input(input, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.all.poll_output() {
            match output {
                Output::Send { seat, frame } => self.sent.push((seat.0, text(&frame))),
                Output::Answer(frame) => self.answers.push(text(&frame)),
                Output::Dropped { .. } => self.dropped += 1,
            }
        }
        assert!(self.all.poll_timeout().is_none_or(|due| due > self.now));
    }

    fn client(&mut self, line: &str) {
        self.input(Input::Client(message(line)));
    }

    fn ask(&mut self, id: &str, method: &str, params: &str) {
        self.client(&request(id, method, params));
    }

    fn server(&mut self, seat: u64, line: &str) {
        let (seat, message) = (SeatId(seat), message(line));
        self.input(Input::Server { seat, message });
    }

    /// A side answers the request in that line, with `"result":…` or `"error":…`.
    fn answer(&mut self, (seat, line): &(u64, String), body: &str) {
        let id = field(line, "id");
        self.server(*seat, &format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#));
    }

    fn leave(&mut self, seat: u64) {
        self.input(Input::Left(SeatId(seat)));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.all.poll_timeout().filter(|due| *due <= end) {
            self.now = due;
            self.all.handle_timeout(due);
            self.drain();
        }
        self.now = end;
    }

    fn take_sent(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.sent)
    }

    fn take_answers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.answers)
    }

    fn take_answer(&mut self) -> String {
        let answers = self.take_answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers[0].clone()
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"experimental":{"mcpl":{"version":"0.5"}}},"clientInfo":{"name":"c","version":"1"}}}"#;

fn message(line: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(line.as_bytes())).unwrap()
}

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn notice(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

fn text(frame: &Bytes) -> String {
    String::from_utf8(frame.to_vec()).unwrap()
}

/// A member of a line by its path, with dots between names.
fn field(line: &str, path: &str) -> Value {
    let whole: Value = serde_json::from_str(line).unwrap();
    let path = format!("/{}", path.replace('.', "/"));
    whole.pointer(&path).cloned().unwrap_or_default()
}
