//! What the client sends: answered here, put together from all servers, or handed to the one whose it is.

use std::time::Instant;

use serde_json::json;

use super::address::{self, Address, Sort};
use super::cursor::{self, Marks as Cursors};
use super::gather::Gather;
use super::greeting::{Client, Greeting};
use super::ledger::{Call, Part, UNDER_WAY_MAX, Want};
use super::list::List;
use super::marks::Marks;
use super::{
    Aggregate, GATHERS_MAX, GREETING_WAIT, KNOWN_WAIT, LIST_WAIT, Output, SUBSCRIPTIONS_MAX,
    SeatId, Stage,
};
use crate::wire::jsonrpc::{self, Error, Kind, Message, Span, Unreadable, code, quoted};
use crate::wire::mcp::{self, method};

impl Aggregate {
    pub(super) fn take_of_client(&mut self, message: &Message, now: Instant) {
        match message.kind() {
            Kind::Request => self.take_request(message, now),
            Kind::Notification => self.take_notification(message),
            Kind::Response => self.take_answer_of_client(message),
        }
    }

    /// A batch is its messages one by one, where the revision has batches (A2).
    pub(super) fn take_unreadable(&mut self, what: &Unreadable, now: Instant) {
        let client = self.client.as_ref().filter(|_| self.is_answered());
        let has_batches = client.is_some_and(|client| client.revision.has_batches());
        let messages = match what {
            Unreadable::Batch(messages) if has_batches => messages.as_slice(),
            Unreadable::Batch(_)
            | Unreadable::NotJson
            | Unreadable::TooDeep { .. }
            | Unreadable::TooLong { .. }
            | Unreadable::Invalid { .. } => {
                return self.out.push_back(Output::Answer(what.answer()));
            }
        };
        for message in messages {
            match Message::parse(message.clone()) {
                Ok(message) => self.take_of_client(&message, now),
                Err(what) => self.out.push_back(Output::Answer(what.answer())),
            }
        }
    }

    fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered | Stage::Initialized)
    }

    fn take_request(&mut self, message: &Message, now: Instant) {
        match message.method() {
            method::PING => self.reply(message, "{}"),
            method::INITIALIZE => self.initialize(message, now),
            _ if !self.is_answered() => {
                self.refuse(message, code::INVALID_REQUEST, "`initialize` comes first");
            }
            method::SET_LEVEL => self.set_level(message),
            name => match List::of(name) {
                Some(list) => self.gather(list, message, now),
                None => self.route(message),
            },
        }
    }

    fn reply(&mut self, message: &Message, result: &str) {
        if let Some(id) = message.id_text() {
            let frame = jsonrpc::response(id, result);
            self.out.push_back(Output::Answer(frame));
        }
    }

    fn refuse(&mut self, message: &Message, code: i64, text: &str) {
        if let Some(id) = message.id() {
            self.refuse_id(&id, &Error::new(code, text));
        }
    }

    /// Tells every server's side, and waits a little for what they know (4-faces).
    fn initialize(&mut self, message: &Message, now: Instant) {
        let (Stage::New, Some(id)) = (&self.stage, message.id()) else {
            let text = "`initialize` was sent before";
            return self.refuse(message, code::INVALID_REQUEST, text);
        };
        self.client = Some(Client::read(message));
        self.stage = Stage::Greeting(Greeting::new(id, now + GREETING_WAIT));
        let seats = self.open_seats();
        for seat in &seats {
            self.introduce(*seat);
        }
        if seats.is_empty() {
            self.greet();
        }
    }

    /// Every server's side keeps the level of its session, so each is told; the answer needs none of them.
    fn set_level(&mut self, message: &Message) {
        let level = text_at(message, &["level"]).map(|(_, level)| level);
        let Some(level) = level.filter(|level| mcp::LEVELS.contains(&level.as_str())) else {
            return self.refuse(message, code::INVALID_PARAMS, "no such log level");
        };
        self.reply(message, "{}");
        let params = format!(r#"{{"level":{}}}"#, quoted(&level));
        self.level = Some(level.into());
        if matches!(self.stage, Stage::Initialized) {
            for seat in self.open_seats() {
                self.order(seat, method::SET_LEVEL, &params);
            }
        }
    }

    /// Hands a request to the server whose thing it names.
    fn route(&mut self, message: &Message) {
        let Some(id) = message.id() else { return };
        let Some((path, sort)) = names(message) else {
            let text = format!(
                "`{}` goes to one server: use that server's own path",
                message.method()
            );
            return self.refuse(message, code::METHOD_NOT_FOUND, &text);
        };
        let named = text_at(message, path);
        let found = named.and_then(|(span, said)| {
            let (seat, own) = self.owner(sort, &said)?;
            Some((seat, span, own.to_owned()))
        });
        let Some((seat, span, own)) = found else {
            return self.refuse(message, code::INVALID_PARAMS, nobodys(sort));
        };
        let Some(address) = self.seats.get(&seat).map(|seat| seat.address.clone()) else {
            return;
        };
        if let Some(error) = self.lack_of_room(seat, &address) {
            return self.refuse_id(&id, &error);
        }
        self.remember(message.method(), &address, &own);
        let method = message.method().into();
        let ours = self.ledger.call(seat, Want::Client { id, method });
        let mut marks = Marks::new(message, &address).shortened();
        marks.replace(span, quoted(&own));
        let frame = marks.applied(&ours.to_string());
        self.send(seat, frame);
    }

    /// The seat of the server whose thing that is, and what the server calls it.
    fn owner<'a>(&self, sort: Sort, said: &'a str) -> Option<(SeatId, &'a str)> {
        address::split(sort, said)?;
        let mut seats = self.seats.iter();
        seats.find_map(|(id, seat)| Some((*id, seat.address.own(sort, said)?)))
    }

    fn lack_of_room(&self, seat: SeatId, address: &Address) -> Option<Error> {
        let is_full = self.seats.get(&seat).is_some_and(|seat| seat.is_full);
        if is_full {
            return Some(crowded(&address.server, "it takes no more sessions"));
        }
        let many = self.ledger.calls.len() >= UNDER_WAY_MAX;
        many.then(|| crowded(&address.server, "too many calls are in flight"))
    }

    /// What the client subscribed to is told again to a server's side that joins anew.
    fn remember(&mut self, name: &str, address: &Address, uri: &str) {
        let of = (address.server.clone(), uri.into());
        match name {
            method::RESOURCES_SUBSCRIBE if self.subscriptions.len() < SUBSCRIPTIONS_MAX => {
                self.subscriptions.insert(of);
            }
            method::RESOURCES_UNSUBSCRIBE => {
                self.subscriptions.remove(&of);
            }
            _ => {}
        }
    }

    /// Asks every server for its part of a list, or those that a cursor names.
    fn gather(&mut self, list: List, message: &Message, now: Instant) {
        let (Some(id), Ok(from)) = (message.id(), start(list, message)) else {
            return self.refuse(message, code::INVALID_PARAMS, NO_CURSOR);
        };
        if self.gathers.len() >= GATHERS_MAX {
            let text = "too many lists are in flight; try again later";
            return self.refuse(message, code::BUSY, text);
        }
        if let Some(change) = list.change() {
            self.told.remove(change);
        }
        let number = self.ledger.next();
        let gather = Gather::new(id, list, now + LIST_WAIT);
        self.gathers.insert(number, gather);
        let seats: Vec<(SeatId, bool, Box<str>)> = self
            .seats
            .iter()
            .map(|(id, seat)| (*id, seat.is_full, seat.address.server.clone()))
            .collect();
        for (seat, is_full, server) in seats {
            let cursor = match &from {
                None => None,
                Some(marks) => match marks.get(&server) {
                    None => continue,
                    Some(cursor) => cursor.clone(),
                },
            };
            if is_full {
                self.lack(number, &server, "full");
            } else {
                self.ask_part(seat, number, list, cursor, false);
            }
        }
        self.finish(number);
    }

    pub(super) fn ask_part(
        &mut self,
        seat: SeatId,
        gather: u64,
        list: List,
        cursor: Option<Box<str>>,
        known: bool,
    ) {
        let params = match &cursor {
            Some(cursor) => format!(r#"{{"cursor":{}}}"#, quoted(cursor)),
            None if known => format!(r#"{{"_meta":{{"{}":true}}}}"#, mcp::KNOWN),
            None => "{}".into(),
        };
        let part = Part {
            gather,
            cursor,
            known,
        };
        let ours = self.ledger.call(seat, Want::Part(part));
        if let Some(gather) = self.gathers.get_mut(&gather) {
            gather.waiting.insert(ours);
        }
        self.send(seat, jsonrpc::request(ours, list.method(), &params));
    }

    pub(super) fn lack(&mut self, number: u64, server: &str, state: &str) {
        if let Some(gather) = self.gathers.get_mut(&number) {
            gather.lack(server, state);
        }
    }

    /// A part of a list came, or will not come.
    pub(super) fn part_ended(&mut self, number: u64, ours: u64) {
        if let Some(gather) = self.gathers.get_mut(&number) {
            gather.waiting.remove(&ours);
        }
        self.finish(number);
    }

    /// Answers with a list that nothing is missing of that could still come.
    fn finish(&mut self, number: u64) {
        let is_whole = |gather: &Gather| gather.waiting.is_empty();
        if self.gathers.get(&number).is_some_and(is_whole)
            && let Some(gather) = self.gathers.remove(&number)
        {
            let frame = jsonrpc::response(gather.id.as_str(), &gather.result());
            self.out.push_back(Output::Answer(frame));
        }
    }

    /// A list has waited long enough: for servers that have not answered what is known of them does, and if not even
    /// that comes, the list says so.
    pub(super) fn hurry(&mut self, number: u64, now: Instant) {
        let Some(gather) = self.gathers.get_mut(&number) else {
            return;
        };
        let list = gather.list;
        let gives_up = std::mem::replace(&mut gather.is_late, true);
        gather.due = now + KNOWN_WAIT;
        for ours in std::mem::take(&mut gather.waiting) {
            if gives_up {
                self.give_up(number, list, ours);
            } else {
                self.fall_back(number, list, ours);
            }
        }
        self.finish(number);
    }

    fn fall_back(&mut self, number: u64, list: List, ours: u64) {
        let Some(Call { seat, want }) = self.ledger.calls.remove(&ours) else {
            return;
        };
        self.cancel_at(seat, ours, "it takes too long");
        let is_first = matches!(want, Want::Part(part) if part.cursor.is_none());
        if is_first && list.change().is_some() {
            self.ask_part(seat, number, list, None, true);
        } else {
            self.lack_seat(number, seat, "slow");
        }
    }

    fn give_up(&mut self, number: u64, list: List, ours: u64) {
        let Some(call) = self.ledger.calls.get_mut(&ours) else {
            return;
        };
        call.want = Want::Late(list);
        let seat = call.seat;
        self.lack_seat(number, seat, "slow");
    }

    pub(super) fn lack_seat(&mut self, number: u64, seat: SeatId, state: &str) {
        let server = self
            .seats
            .get(&seat)
            .map(|seat| seat.address.server.clone());
        if let Some(server) = server {
            self.lack(number, &server, state);
        }
    }

    /// Nobody waits for an answer any more.
    fn cancel_at(&mut self, seat: SeatId, ours: u64, reason: &str) {
        let params = format!(r#"{{"requestId":{ours},"reason":{}}}"#, quoted(reason));
        self.send(
            seat,
            jsonrpc::notification(method::CANCELLED, Some(&params)),
        );
    }

    fn take_notification(&mut self, message: &Message) {
        match message.method() {
            method::INITIALIZED if matches!(self.stage, Stage::Answered) => {
                self.stage = Stage::Initialized;
                for seat in self.open_seats() {
                    self.set_up(seat);
                }
            }
            method::CANCELLED => self.cancel(message),
            method::PROGRESS => self.pass_progress(message),
            method::ROOTS_CHANGED if matches!(self.stage, Stage::Initialized) => {
                for seat in self.open_seats() {
                    self.send(seat, message.raw().clone());
                }
            }
            _ => self.drop_message("it goes to no server", message),
        }
    }

    /// The client no longer wants an answer (A7).
    fn cancel(&mut self, message: &Message) {
        let Some(span) = message.param(&["requestId"]) else {
            return self.drop_message("it names no request", message);
        };
        let id = message.text(&span).to_owned();
        if let Some(ours) = self.ledger.of_client(&id)
            && let Some(call) = self.ledger.calls.remove(&ours)
        {
            let frame = message.with("", &[(span, &ours.to_string())]);
            return self.send(call.seat, frame);
        }
        let mut gathers = self.gathers.iter().rev();
        let number = gathers.find(|(_, gather)| gather.id.as_str() == id);
        let Some(gather) = number
            .map(|(number, _)| *number)
            .and_then(|number| self.gathers.remove(&number))
        else {
            return self.drop_message("its request is not live", message);
        };
        for ours in gather.waiting {
            if let Some(call) = self.ledger.calls.remove(&ours) {
                self.cancel_at(call.seat, ours, "the caller wants it no more");
            }
        }
    }

    /// Progress of a server's request that the client has.
    fn pass_progress(&mut self, message: &Message) {
        let span = message.param(&["progressToken"]);
        let ours = span
            .as_ref()
            .and_then(|span| message.text(span).parse().ok());
        let ask = ours.and_then(|ours: u64| self.ledger.asks.get(&ours));
        let theirs = ask.and_then(|ask| Some((ask.seat, ask.token.clone()?)));
        let (Some(span), Some((seat, token))) = (span, theirs) else {
            return self.drop_message("its request is not live", message);
        };
        self.send(seat, message.with("", &[(span, &token)]));
    }

    /// The client answers a server.
    fn take_answer_of_client(&mut self, message: &Message) {
        let ours = message.our_id();
        let Some(ask) = ours.and_then(|ours| self.ledger.asks.remove(&ours)) else {
            return self.drop_message("it answers nothing that is live", message);
        };
        let Some(seat) = self.seats.get(&ask.seat) else {
            return;
        };
        let marks = Marks::new(message, &seat.address).shortened();
        let frame = marks.applied(ask.id.as_str());
        self.send(ask.seat, frame);
    }
}

const NO_CURSOR: &str = "the cursor is none of this list; list again without one";

/// Where a list is to go on; `None` is at its beginning.
fn start(list: List, message: &Message) -> Result<Option<Cursors>, ()> {
    let Some(span) = message.param(&["cursor"]) else {
        return Ok(None);
    };
    if message.text(&span) == "null" {
        return Ok(None);
    }
    let text = serde_json::from_str::<String>(message.text(&span)).map_err(drop)?;
    cursor::read(list, &text).map(Some).ok_or(())
}

/// Where a request names a thing of one server, and what sort of thing.
fn names(message: &Message) -> Option<(&'static [&'static str], Sort)> {
    Some(match message.method() {
        method::TOOLS_CALL | method::PROMPTS_GET => (&["name"], Sort::Name),
        method::RESOURCES_READ | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE => {
            (&["uri"], Sort::Uri)
        }
        method::COMPLETE if message.param(&["ref", "uri"]).is_some() => {
            (&["ref", "uri"], Sort::Uri)
        }
        method::COMPLETE => (&["ref", "name"], Sort::Name),
        method::TASKS_GET | method::TASKS_RESULT | method::TASKS_CANCEL => (&["taskId"], Sort::Id),
        _ => return None,
    })
}

fn nobodys(sort: Sort) -> &'static str {
    match sort {
        Sort::Name => "unknown name: it begins with the prefix of none of the servers here",
        Sort::Uri => "unknown resource: its URI is of none of the servers here",
        Sort::Id => "unknown task: it is of none of the servers here",
    }
}

/// A string among the params, and where it lies.
fn text_at(message: &Message, path: &[&str]) -> Option<(Span, String)> {
    let span = message.param(path)?;
    let text = serde_json::from_str(message.text(&span)).ok()?;
    Some((span, text))
}

/// What a call meets for which there is no room.
pub(super) fn crowded(server: &str, why: &str) -> Error {
    let text = format!("not sent: {why}; try again later");
    let data = json!({ "server": server, "state": "full", "sent": false });
    Error::new(code::NOT_SENT, text).with_data(data)
}
