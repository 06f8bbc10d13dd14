//! Many servers presented to one client as one session (4-faces, `/mcp`): a pure state machine beside the engines. It
//! owns the names by which the client knows what is whose, merged lists, and ids of its own on both sides; it never
//! retries, gates or keeps anything: that is each server's engine's.
//!
//! Its contract is the engine's: [`Aggregate::handle_input`] takes a fact, [`Aggregate::handle_timeout`] the time once
//! [`Aggregate::poll_timeout`]'s instant is reached; after either, [`Aggregate::poll_output`] is drained to `None`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![deny(clippy::disallowed_types, clippy::disallowed_macros)]

mod address;
mod client;
mod cursor;
mod gather;
mod greeting;
mod ledger;
mod list;
mod marks;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::wire::jsonrpc::{self, Error, Message, Unreadable, code, quoted};
use crate::wire::mcp::method;

use address::Address;
use gather::Gather;
use greeting::{Client, Greeting};
use ledger::{Ledger, Want};

pub use address::{default_prefix, is_prefix};

/// How long `initialize` waits for what the servers' sides answer from memory.
const GREETING_WAIT: Duration = Duration::from_secs(1);
/// How long a list waits for a server before what is known of it does, and how long for that.
const LIST_WAIT: Duration = Duration::from_secs(2);
const KNOWN_WAIT: Duration = Duration::from_secs(1);
/// Lists that are put together at once.
const GATHERS_MAX: usize = 100;
/// Resources that the client may subscribe to.
const SUBSCRIPTIONS_MAX: usize = 10_000;

/// One inner session with a server, from its opening to its end. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatId(pub u64);

/// Everything that can happen to an aggregate.
#[derive(Debug)]
pub enum Input {
    /// The client sent a message.
    Client(Message),
    /// The client sent something that is no message.
    Unreadable(Unreadable),
    /// A session with a server was opened, or could not be.
    Joined {
        /// The session.
        seat: SeatId,
        /// The server's id.
        server: Box<str>,
        /// What stands before its names; [`is_prefix`] is true of it.
        prefix: Box<str>,
        /// The server takes no more sessions: it is named as missing until it has left and joined again.
        is_full: bool,
    },
    /// A session with a server ended, or the client may use the server no more.
    Left(SeatId),
    /// A server's side sent a message.
    Server {
        /// On which session.
        seat: SeatId,
        /// What.
        message: Message,
    },
    /// A frame could not be handed to a server's side: too much waits for it.
    Unsent {
        /// For which session.
        seat: SeatId,
        /// The frame.
        frame: Bytes,
    },
}

/// Everything that it can ask for, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Hand a message to a server's side; dropped where the session is gone.
    Send {
        /// On which session.
        seat: SeatId,
        /// The message.
        frame: Bytes,
    },
    /// Send a message to the client.
    Answer(Bytes),
    /// A message went nowhere.
    Dropped {
        /// Why, for people.
        why: &'static str,
        /// Its method; empty for an answer.
        method: Box<str>,
    },
}

/// One server at the table.
#[derive(Debug)]
struct Seat {
    address: Address,
    is_full: bool,
}

/// How far the client is with its `initialize`.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    New,
    Greeting(Greeting),
    Answered,
    Initialized,
}

/// The servers of one client.
#[derive(Debug, Default)]
pub struct Aggregate {
    seats: BTreeMap<SeatId, Seat>,
    stage: Stage,
    client: Option<Client>,
    /// What the client set up, for servers that join: its log level, and per server what it subscribed to.
    level: Option<Box<str>>,
    subscriptions: BTreeSet<(Box<str>, Box<str>)>,
    ledger: Ledger,
    gathers: BTreeMap<u64, Gather>,
    /// Changes that the client was told of and has not looked at: one word is enough.
    told: BTreeSet<&'static str>,
    out: VecDeque<Output>,
}

impl Aggregate {
    /// Takes a fact.
    pub fn handle_input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Client(message) => self.take_of_client(&message, now),
            Input::Unreadable(what) => self.take_unreadable(&what, now),
            Input::Joined {
                seat,
                server,
                prefix,
                is_full,
            } => {
                let address = Address { server, prefix };
                self.join(seat, Seat { address, is_full });
            }
            Input::Left(seat) => self.leave(seat),
            Input::Server { seat, message } => self.take_of_server(seat, &message),
            Input::Unsent { seat, frame } => self.take_unsent(seat, frame),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(&self.stage, Stage::Greeting(greeting) if greeting.due <= now) {
            self.greet();
        }
        let due = self.gathers.iter().filter(|(_, gather)| gather.due <= now);
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            self.hurry(number, now);
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let greeting = match &self.stage {
            Stage::Greeting(greeting) => Some(greeting.due),
            Stage::New | Stage::Answered | Stage::Initialized => None,
        };
        let gathers = self.gathers.values().map(|gather| gather.due);
        gathers.chain(greeting).min()
    }

    /// The next command.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// A server came, or another session with it.
    fn join(&mut self, id: SeatId, seat: Seat) {
        let same = self
            .seats
            .iter()
            .find(|(_, other)| other.address.server == seat.address.server);
        if let Some((old, _)) = same {
            self.leave(*old);
        }
        let is_full = seat.is_full;
        self.seats.insert(id, seat);
        if is_full {
            return;
        }
        self.introduce(id);
        self.tell_all_changed();
    }

    /// Tells a server's side of the client, as far as the client has told of itself.
    fn introduce(&mut self, id: SeatId) {
        let Some(client) = &self.client else { return };
        let ours = self.ledger.call(id, Want::Greeting);
        let params = client.params();
        self.send(id, jsonrpc::request(ours, method::INITIALIZE, &params));
        if let Stage::Greeting(greeting) = &mut self.stage {
            greeting.waiting.insert(ours);
        }
        if matches!(self.stage, Stage::Initialized) {
            self.set_up(id);
        }
    }

    /// The client is initialized: a server's side is told so, and what was set up before it joined.
    fn set_up(&mut self, id: SeatId) {
        self.send(id, jsonrpc::notification(method::INITIALIZED, None));
        let Some(seat) = self.seats.get(&id) else {
            return;
        };
        let of_it = |(server, _): &&(Box<str>, Box<str>)| *server == seat.address.server;
        let uris = self.subscriptions.iter().filter(of_it);
        let uris: Vec<String> = uris.map(|(_, uri)| quoted(uri)).collect();
        let level = self.level.as_deref().map(quoted);
        if let Some(level) = level {
            self.order(id, method::SET_LEVEL, &format!(r#"{{"level":{level}}}"#));
        }
        for uri in uris {
            self.order(
                id,
                method::RESOURCES_SUBSCRIBE,
                &format!(r#"{{"uri":{uri}}}"#),
            );
        }
    }

    /// A request of our own whose answer nobody waits for.
    fn order(&mut self, seat: SeatId, name: &str, params: &str) {
        let ours = self.ledger.call(seat, Want::Nobody);
        self.send(seat, jsonrpc::request(ours, name, params));
    }

    /// A server is gone from the table: nobody waits for it, and it waits for nobody.
    fn leave(&mut self, id: SeatId) {
        let Some(seat) = self.seats.remove(&id) else {
            return;
        };
        let (calls, asks) = self.ledger.leave(id);
        for (ours, call) in calls {
            match call.want {
                Want::Client { id, .. } => {
                    self.refuse_id(&id, &gone(&seat.address.server));
                }
                Want::Part(part) => self.part_ended(part.gather, ours),
                Want::Greeting => self.greeted(ours),
                Want::Late(_) | Want::Nobody => {}
            }
        }
        for ours in asks {
            let params = format!(r#"{{"requestId":{ours},"reason":"the server is gone"}}"#);
            let frame = jsonrpc::notification(method::CANCELLED, Some(&params));
            self.out.push_back(Output::Answer(frame));
        }
        if !seat.is_full {
            self.tell_all_changed();
        }
    }

    /// A server's side is no longer waited for by the answer to `initialize`.
    fn greeted(&mut self, ours: u64) {
        if let Stage::Greeting(greeting) = &mut self.stage {
            greeting.waiting.remove(&ours);
            if greeting.waiting.is_empty() {
                self.greet();
            }
        }
    }

    /// Answers `initialize`.
    fn greet(&mut self) {
        let Stage::Greeting(greeting) = std::mem::replace(&mut self.stage, Stage::Answered) else {
            return;
        };
        let Some(client) = &self.client else { return };
        let addresses = self.seats.values().map(|seat| &seat.address);
        let result = greeting.result(client, addresses);
        self.out.push_back(Output::Answer(jsonrpc::response(
            greeting.id.as_str(),
            &result,
        )));
    }

    /// The servers of the session are others: so are all lists.
    fn tell_all_changed(&mut self) {
        for name in [
            method::TOOLS_CHANGED,
            method::PROMPTS_CHANGED,
            method::RESOURCES_CHANGED,
        ] {
            self.tell_changed(name);
        }
    }

    /// Tells the client that a list changed, unless it was told and has not looked since.
    fn tell_changed(&mut self, name: &'static str) {
        if matches!(self.stage, Stage::Initialized) && self.told.insert(name) {
            let frame = jsonrpc::notification(name, None);
            self.out.push_back(Output::Answer(frame));
        }
    }

    fn send(&mut self, seat: SeatId, frame: Bytes) {
        self.out.push_back(Output::Send { seat, frame });
    }

    fn refuse_id(&mut self, id: &jsonrpc::RequestId, error: &Error) {
        let frame = jsonrpc::error_response(id.as_str(), error);
        self.out.push_back(Output::Answer(frame));
    }

    fn drop_message(&mut self, why: &'static str, message: &Message) {
        let method = message.method().into();
        self.out.push_back(Output::Dropped { why, method });
    }

    /// The open seats.
    fn open_seats(&self) -> Vec<SeatId> {
        let open = self.seats.iter().filter(|(_, seat)| !seat.is_full);
        open.map(|(id, _)| *id).collect()
    }
}

/// What a call meets whose server left.
fn gone(server: &str) -> Error {
    let text = format!(
        "sent, and then this session with {server} ended: the outcome is unknown, and a blind retry can run it twice"
    );
    let data = json!({ "server": server, "state": "removed", "sent": true });
    Error::new(code::LOST, text).with_data(data)
}

#[cfg(test)]
mod tests;
