//! The session that the engine of a stateless server sees: each of its frames as what the server understands, each of
//! the server's messages as what a session's server would have sent.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;

use super::heading::{annotates, callable, fields};
use super::listening::{self, Listening};
use super::opening::{Found, discovery};
use super::own::Own;
use super::rounds::{Ended, Given, Rounds, asks};
use super::stamp::{Stamp, is_stamped};
use super::{Output, Outputs};
use crate::revision::mirrored::Mirrored;
use crate::revision::stateless::{VERSION, code, key, method};
use crate::wire::jsonrpc::{self, About, Error, Kind, Message, Unreadable, member, quoted};
use crate::wire::jsonrpc::{RequestId, code as standard};
use crate::wire::mcp::method as session;
use crate::wire::object::{Change, edited};

/// Ids of requests that the server did not send as such begin with this.
const INPUT: &str = "tidegate-input-";
/// Pings under way; a session has a few.
const PINGS_MAX: usize = 64;

/// What it was that will have no answer.
enum Over {
    /// A call of the engine's, by its id.
    Call(u64),
    /// A request of the gateway's own.
    Own,
    /// Something that was given up before.
    Nothing,
}

/// A stateless server that serves.
#[derive(Debug)]
pub(super) struct Session {
    stamp: Stamp,
    rounds: Rounds,
    listening: Listening,
    pings: BTreeSet<u64>,
    /// What its tools mirror into header fields.
    mirrored: Mirrored,
    over_http: bool,
}

impl Session {
    pub(super) fn new(found: Found, over_http: bool) -> Self {
        Self {
            stamp: found.stamp,
            rounds: Rounds::default(),
            listening: Listening::new(&found.capabilities),
            pings: BTreeSet::new(),
            mirrored: Mirrored::default(),
            over_http,
        }
    }

    /// A frame of the engine's.
    pub(super) fn take_of_engine(&mut self, message: &Message, now: Instant, out: &mut Outputs) {
        match message.kind() {
            Kind::Request => match message.our_id() {
                Some(id) => self.take_request(id, message, now, out),
                None => out.unsent(message.raw().clone()),
            },
            Kind::Notification => self.take_notification(message, now, out),
            Kind::Response => self.take_input(message, out),
        }
        self.listen(out);
    }

    /// A message of the server's.
    pub(super) fn take_of_server(&mut self, message: Message, now: Instant, out: &mut Outputs) {
        match message.kind() {
            Kind::Request => out.push(Output::Unreadable(refused(&message))),
            Kind::Notification => self.take_news(message, now, out),
            Kind::Response => self.take_answer(message, now, out),
        }
        self.listen(out);
    }

    /// What the server sent cannot be read, but whose id it bears.
    pub(super) fn take_unreadable(&mut self, what: Unreadable, now: Instant, out: &mut Outputs) {
        let id = match what.about() {
            Some(About::Answer(id)) => Some(id.clone()),
            Some(About::Request(_)) | None => None,
        };
        match id.as_ref().and_then(RequestId::as_ours) {
            Some(ours) => match self.over(ours, &what.to_string(), now) {
                Over::Call(id) => out.push(Output::Unreadable(about_another(what, id))),
                Over::Own => {}
                Over::Nothing => out.push(Output::Unreadable(what)),
            },
            None => out.push(Output::Unreadable(what)),
        }
        self.listen(out);
    }

    /// The request of that id could not be sent, though not for want of a server. The engine's id of the call in it.
    pub(super) fn unsent(&mut self, id: u64, now: Instant, out: &mut Outputs) -> Option<u64> {
        let over = self.over(id, "it could not be sent", now);
        self.listen(out);
        match over {
            Over::Call(id) => Some(id),
            Over::Own | Over::Nothing => None,
        }
    }

    /// The request of that id will have no answer.
    fn over(&mut self, id: u64, why: &str, now: Instant) -> Over {
        match Own::of(id) {
            Some(Own::Listen(number)) => {
                self.listening.ended(number, why, now);
                Over::Own
            }
            Some(Own::Again(number)) => match self.rounds.call_of(number) {
                Some(id) => {
                    let _ = self.rounds.end(id);
                    Over::Call(id)
                }
                None => Over::Nothing,
            },
            None => {
                let _ = self.rounds.end(id);
                self.pings.remove(&id);
                Over::Call(id)
            }
        }
    }

    /// The header fields of a frame.
    pub(super) fn heading(&self, frame: &Message) -> Vec<(String, String)> {
        fields(frame, &self.mirrored)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.listening.due()
    }

    pub(super) fn wake(&mut self, now: Instant, out: &mut Outputs) {
        self.listening.wake(now);
        self.listen(out);
    }

    fn take_request(&mut self, id: u64, message: &Message, now: Instant, out: &mut Outputs) {
        match message.method() {
            session::PING => self.ping(id, out),
            session::SET_LEVEL => self.set_level(id, message, out),
            session::RESOURCES_SUBSCRIBE => match uri(message) {
                Some(uri) => self.listening.subscribe(id, &uri, now),
                None => out.refuse(id, standard::INVALID_PARAMS, "`uri` must be a string"),
            },
            session::RESOURCES_UNSUBSCRIBE => match uri(message) {
                Some(uri) => self.listening.unsubscribe(id, &uri, now),
                None => out.refuse(id, standard::INVALID_PARAMS, "`uri` must be a string"),
            },
            name if is_gone(name) => {
                let text = format!("{VERSION}, which this server speaks, has no `{name}`");
                out.refuse(id, standard::METHOD_NOT_FOUND, &text);
            }
            _ if is_stamped(message) => {
                self.rounds.leave(id);
                out.send(message.raw().clone(), Some(id));
            }
            _ => self.forward(id, message, out),
        }
    }

    fn forward(&mut self, id: u64, message: &Message, out: &mut Outputs) {
        match self.stamp.put(message, &id.to_string(), "") {
            Ok(frame) => {
                self.rounds.keep(id, message);
                out.send(frame, Some(id));
            }
            Err(why) => out.refuse(id, standard::INVALID_PARAMS, why),
        }
    }

    /// Any answer is a sign of life (R19).
    fn ping(&mut self, id: u64, out: &mut Outputs) {
        if self.pings.len() >= PINGS_MAX {
            self.pings.pop_first();
        }
        self.pings.insert(id);
        out.send(discovery(id, &self.stamp), Some(id));
    }

    fn set_level(&mut self, id: u64, message: &Message, out: &mut Outputs) {
        let level = message.param(&["level"]);
        let level = level.map(|span| message.text(&span));
        match level.filter(|level| level.starts_with('"')) {
            Some(level) => {
                self.stamp.set_level(level);
                out.answer(id, "{}");
            }
            None => out.refuse(id, standard::INVALID_PARAMS, "`level` must be a string"),
        }
    }

    fn take_notification(&mut self, message: &Message, now: Instant, out: &mut Outputs) {
        match message.method() {
            session::INITIALIZED => self.listening.start(now),
            session::CANCELLED => self.cancel(message, out),
            // What it says is said with each request, or of a request that the server did not send as such.
            session::ROOTS_CHANGED | session::PROGRESS => {}
            _ => out.unsent(message.raw().clone()),
        }
    }

    /// A call is given up: by the id under which the server knows it, or by nobody's asking for its inputs any more.
    fn cancel(&mut self, message: &Message, out: &mut Outputs) {
        let span = message.param(&["requestId"]);
        let id = span
            .as_ref()
            .and_then(|span| message.text(span).parse::<u64>().ok());
        match (id.and_then(|id| self.rounds.end(id)), span) {
            (Some(ended), _) if !ended.open.is_empty() => withdraw(&ended, out),
            (
                Some(Ended {
                    again: Some(again), ..
                }),
                Some(span),
            ) => {
                let id = Own::Again(again).id().to_string();
                out.send(message.with("", &[(span, &id)]), None);
            }
            _ => out.send(message.raw().clone(), None),
        }
    }

    /// Somebody's answer to what the server wants to know.
    fn take_input(&mut self, message: &Message, out: &mut Outputs) {
        let number = message.id_text().and_then(input_of);
        let given = number.map(|number| self.rounds.give(number, message.result()));
        match given {
            Some(Given::All(id)) => self.again(id, out),
            Some(Given::Refused(id, method)) => {
                let error = unanswered(&method, message.error().unwrap_or("{}"));
                if let Some(ended) = self.rounds.end(id) {
                    withdraw(&ended, out);
                }
                out.tell(jsonrpc::error_response(&id.to_string(), &error), None);
            }
            Some(Given::More) => {}
            // Nothing answers a stateless server.
            Some(Given::Unwanted) | None => out.unsent(message.raw().clone()),
        }
    }

    fn again(&mut self, id: u64, out: &mut Outputs) {
        let Some((number, request, members)) = self.rounds.again(id) else {
            return;
        };
        let own = Own::Again(number).id();
        match self.stamp.put(request, &own.to_string(), &members) {
            Ok(frame) => out.send(frame, Some(own)),
            Err(why) => out.refuse(id, standard::INTERNAL, why),
        }
    }

    fn take_news(&mut self, message: Message, now: Instant, out: &mut Outputs) {
        match message.method() {
            method::ACKNOWLEDGED => {
                let stream = subscription(&message);
                let filter = message.param(&["notifications"]);
                let filter = filter.map_or("{}", |span| message.text(&span));
                if let Some(stream) = stream {
                    self.listening.acknowledged(stream, filter, now);
                }
            }
            session::CANCELLED => {
                let id = message.param(&["requestId"]);
                let stream = id.and_then(|span| stream_of(message.text(&span)));
                match stream {
                    Some(stream) => self.listening.ended(stream, "the server ended it", now),
                    None => out.receive(message),
                }
            }
            _ => out.tell(without_subscription(&message), None),
        }
    }

    fn take_answer(&mut self, message: Message, now: Instant, out: &mut Outputs) {
        match message.our_id().and_then(Own::of) {
            Some(Own::Listen(number)) => {
                let why = message.error().map_or_else(
                    || "the server ended it".into(),
                    |error| format!("the server refused it: {}", said(error)),
                );
                self.listening.ended(number, &why, now);
            }
            Some(Own::Again(number)) => match self.rounds.call_of(number) {
                Some(id) => self.answer(id, message, out),
                // It was given up meanwhile.
                None => out.receive(message),
            },
            None => match message.our_id() {
                Some(id) if self.pings.remove(&id) => out.answer(id, "{}"),
                Some(id) => self.answer(id, message, out),
                None => out.receive(message),
            },
        }
    }

    /// The server's answer to a call: the end of it, or what it wants to know.
    fn answer(&mut self, id: u64, message: Message, out: &mut Outputs) {
        let message = match message.result().filter(|result| annotates(result)) {
            Some(result) => {
                self.mirrored.learn(result);
                self.callable(&message)
            }
            None => message,
        };
        if self.rounds.take_untouched(id) {
            return out.receive(message);
        }
        match message.result().filter(|result| asks(result)) {
            Some(result) => match self.rounds.ask(id, result) {
                Ok(inputs) if inputs.is_empty() => self.again(id, out),
                Ok(inputs) => {
                    for input in inputs {
                        let own = input_id(input.number);
                        out.tell(asking(&own, &input.method, input.params), Some(id));
                    }
                }
                Err(why) => {
                    let _ = self.rounds.end(id);
                    out.refuse(id, standard::INTERNAL, &why);
                }
            },
            None => {
                let _ = self.rounds.end(id);
                out.tell(as_of_a_session(&message, id), None);
            }
        }
    }

    /// A list of tools without those that cannot be called over HTTP, where that is the way.
    fn callable(&self, message: &Message) -> Message {
        let list = message.result().filter(|_| self.over_http);
        let changed = list.and_then(callable).and_then(|list| {
            let span = message.in_result(&[])?;
            let id = message.id_text().unwrap_or_default();
            Message::parse(message.with(id, &[(span, &list)])).ok()
        });
        changed.unwrap_or_else(|| message.clone())
    }

    /// Carries out what the streams need.
    fn listen(&mut self, out: &mut Outputs) {
        for step in self.listening.steps() {
            match step {
                listening::Step::Open(number, filter) => {
                    let id = Own::Listen(number).id();
                    out.send(self.listening_request(id, &filter), Some(id));
                }
                listening::Step::Close(number) => {
                    let id = Own::Listen(number).id();
                    let params = format!(r#"{{"requestId":{id}}}"#);
                    out.send(
                        jsonrpc::notification(session::CANCELLED, Some(&params)),
                        None,
                    );
                }
                listening::Step::Answer(id, Ok(())) => out.answer(id, "{}"),
                listening::Step::Answer(id, Err(why)) => {
                    out.refuse(id, standard::INVALID_PARAMS, &why);
                }
                listening::Step::Missed(name, params) => {
                    out.tell(jsonrpc::notification(name, params.as_deref()), None);
                }
                listening::Step::Deaf(why) => out.push(Output::Deaf(why)),
            }
        }
    }

    fn listening_request(&self, id: u64, filter: &str) -> Bytes {
        let meta = self.stamp.members();
        let params = format!(r#"{{"_meta":{{{meta}}},"notifications":{filter}}}"#);
        let name = method::LISTEN;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{name}","params":{params}}}"#).into()
    }
}

/// The id of a request that the server did not send as such, as JSON text.
fn input_id(number: u64) -> String {
    format!("\"{INPUT}{number}\"")
}

fn input_of(id: &str) -> Option<u64> {
    let id = id.strip_prefix('"')?.strip_suffix('"')?;
    id.strip_prefix(INPUT)?.parse().ok()
}

/// The number of the stream of that id, given as JSON text.
fn stream_of(id: &str) -> Option<u64> {
    match Own::read(id)? {
        Own::Listen(number) => Some(number),
        Own::Again(_) => None,
    }
}

/// Tells those who were asked that nobody waits for it any more.
fn withdraw(ended: &Ended, out: &mut Outputs) {
    for number in &ended.open {
        let params = format!(r#"{{"requestId":{}}}"#, input_id(*number));
        out.tell(
            jsonrpc::notification(session::CANCELLED, Some(&params)),
            None,
        );
    }
}

fn asking(id: &str, name: &str, params: Option<String>) -> Bytes {
    let params = params.map_or_else(String::new, |params| format!(r#","params":{params}"#));
    let name = quoted(name);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name}{params}}}"#).into()
}

/// What the session revisions have, and this one does not.
fn is_gone(name: &str) -> bool {
    name == session::INITIALIZE || name.starts_with("tasks/")
}

fn uri(message: &Message) -> Option<String> {
    let span = message.param(&["uri"])?;
    serde_json::from_str(message.text(&span)).ok()
}

/// The number of the stream that a notification came on.
fn subscription(message: &Message) -> Option<u64> {
    let span = message.param(&["_meta", key::SUBSCRIPTION_ID])?;
    stream_of(message.text(&span))
}

/// A notification without the id of the gateway's own stream.
fn without_subscription(message: &Message) -> Bytes {
    let meta = message
        .param(&["_meta", key::SUBSCRIPTION_ID])
        .and_then(|_| message.param(&["_meta"]));
    let others = meta.as_ref().and_then(|span| {
        edited(message.text(span), |name, _| match name {
            key::SUBSCRIPTION_ID => Change::Remove,
            _ => Change::Keep,
        })
    });
    match (meta, others) {
        (Some(span), Some(others)) => message.with("", &[(span, &others)]),
        _ => message.raw().clone(),
    }
}

/// An answer under the engine's id, with an error that a session can know.
fn as_of_a_session(message: &Message, id: u64) -> Bytes {
    let id = id.to_string();
    let error = message.error().unwrap_or_default();
    let number = member(error, "code").and_then(|code| code.parse::<i64>().ok());
    let error = match number {
        Some(code::MISSING_CAPABILITY) => lacking(error),
        Some(number @ (code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION)) => {
            let text = format!(
                "between the gateway and this server, not of this request ({number}): {}",
                said(error)
            );
            Error::new(standard::INTERNAL, text)
        }
        _ => return message.with_id(&id),
    };
    jsonrpc::error_response(&id, &error)
}

/// The server needs of its client what the gateway does not declare, for no session can give it in its stead.
fn lacking(error: &str) -> Error {
    let needed = member(error, "data").and_then(|data| member(data, "requiredCapabilities"));
    let text = format!(
        "this server needs a client with more capabilities than this gateway declares ({}): {}",
        needed.unwrap_or("it does not say which"),
        said(error)
    );
    let needed = needed.and_then(|needed| serde_json::from_str(needed).ok());
    let data =
        serde_json::json!({ "requiredCapabilities": needed.unwrap_or(serde_json::Value::Null) });
    Error::new(code::MISSING_CAPABILITY, text).with_data(data)
}

/// Nobody could answer what the server wants to know.
fn unanswered(method: &str, error: &str) -> Error {
    let number = member(error, "code").and_then(|code| code.parse().ok());
    let text = format!(
        "to go on, the server needs an answer to `{method}`: {}",
        said(error)
    );
    Error::new(number.unwrap_or(standard::INTERNAL), text)
}

fn said(error: &str) -> Cow<'_, str> {
    let message = member(error, "message");
    let said = message.and_then(|text| serde_json::from_str::<String>(text).ok());
    said.map_or("it does not say why".into(), Into::into)
}

/// A stateless server sends no requests.
fn refused(message: &Message) -> Unreadable {
    Unreadable::Invalid {
        why: "a server of 2026-07-28 sends no requests",
        about: message.id().map(About::Request),
    }
}

fn about_another(what: Unreadable, id: u64) -> Unreadable {
    let about = Some(About::Answer(RequestId::from(id)));
    match what {
        Unreadable::TooDeep { .. } => Unreadable::TooDeep { about },
        Unreadable::TooLong { limit, .. } => Unreadable::TooLong { limit, about },
        Unreadable::Invalid { why, .. } => Unreadable::Invalid { why, about },
        Unreadable::NotJson | Unreadable::Batch(_) => what,
    }
}
