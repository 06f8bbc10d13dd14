//! What servers' sides send: answers to the client or to what was asked for it, requests for the client under ids of
//! our own, and notifications under names of the session's.

use bytes::Bytes;

use super::client::crowded;
use super::ledger::{Ask, Part, UNDER_WAY_MAX, Want};
use super::marks::Marks;
use super::{Aggregate, Output, SeatId, Stage};
use crate::wire::jsonrpc::{self, Error, Kind, Message, code, member};
use crate::wire::mcp::method;

impl Aggregate {
    pub(super) fn take_of_server(&mut self, seat: SeatId, message: &Message) {
        if !self.seats.contains_key(&seat) {
            return self.drop_message("its session has ended", message);
        }
        match message.kind() {
            Kind::Response => self.take_answer(seat, message),
            Kind::Request => self.ask_client(seat, message),
            Kind::Notification => self.tell_client(seat, message),
        }
    }

    fn take_answer(&mut self, seat: SeatId, message: &Message) {
        let Some((ours, call)) = self.ledger.answered(seat, message.our_id()) else {
            return self.drop_message("it answers nothing that is live", message);
        };
        match call.want {
            Want::Client { id, method } => {
                let Some(seat) = self.seats.get(&seat) else {
                    return;
                };
                let marks = Marks::new(message, &seat.address).answer(&method);
                self.out
                    .push_back(Output::Answer(marks.applied(id.as_str())));
            }
            Want::Part(part) => self.take_part(seat, ours, &part, message),
            Want::Late(list) => {
                if let Some(change) = list.change() {
                    self.tell_changed(change);
                }
            }
            Want::Greeting => {
                if let (Stage::Greeting(greeting), Some(seat), Some(result)) =
                    (&mut self.stage, self.seats.get(&seat), message.result())
                {
                    greeting.add(&seat.address, result);
                }
                self.greeted(ours);
            }
            Want::Nobody => {}
        }
    }

    /// A server's part of a list. An error is no empty list: what is known does instead, or the list says so.
    fn take_part(&mut self, id: SeatId, ours: u64, part: &Part, message: &Message) {
        let (Some(seat), Some(gather)) = (self.seats.get(&id), self.gathers.get_mut(&part.gather))
        else {
            return;
        };
        let error = message.error().unwrap_or_default();
        if let Some(result) = message.result() {
            gather.add(&seat.address, part.cursor.as_deref(), result);
        } else if !lacks_method(error) {
            let list = gather.list;
            let can_fall_back = !part.known && part.cursor.is_none() && list.change().is_some();
            if can_fall_back {
                self.ask_part(id, part.gather, list, None, true);
            } else {
                let state = state_of(error);
                self.lack_seat(part.gather, id, &state);
            }
        }
        self.part_ended(part.gather, ours);
    }

    /// A server's request becomes one of ours to the client.
    fn ask_client(&mut self, id: SeatId, message: &Message) {
        let (Some(seat), Some(theirs)) = (self.seats.get(&id), message.id()) else {
            return;
        };
        if self.ledger.asks.len() >= UNDER_WAY_MAX {
            let error = Error::new(
                code::BUSY,
                "too many requests are in flight; try again later",
            );
            return self.send(id, jsonrpc::error_response(theirs.as_str(), &error));
        }
        let ours = self.ledger.next();
        let text = ours.to_string();
        let span = message.param(&["_meta", "progressToken"]);
        let token = span.as_ref().map(|span| message.text(span).into());
        let mut marks = Marks::new(message, &seat.address).told();
        if let Some(span) = span {
            marks.replace(span, text.clone());
        }
        let frame = marks.applied(&text);
        let ask = Ask {
            seat: id,
            id: theirs,
            token,
        };
        self.ledger.asks.insert(ours, ask);
        self.out.push_back(Output::Answer(frame));
    }

    fn tell_client(&mut self, id: SeatId, message: &Message) {
        match message.method() {
            method::TOOLS_CHANGED => self.tell_changed(method::TOOLS_CHANGED),
            method::PROMPTS_CHANGED => self.tell_changed(method::PROMPTS_CHANGED),
            method::RESOURCES_CHANGED => self.tell_changed(method::RESOURCES_CHANGED),
            method::CANCELLED => self.cancel_at_client(id, message),
            _ => {
                let Some(seat) = self.seats.get(&id) else {
                    return;
                };
                let frame = Marks::new(message, &seat.address).told().applied("");
                self.out.push_back(Output::Answer(frame));
            }
        }
    }

    /// A server no longer wants the client's answer (A7).
    fn cancel_at_client(&mut self, seat: SeatId, message: &Message) {
        let span = message.param(&["requestId"]);
        let ours = span
            .as_ref()
            .and_then(|span| self.ledger.of_server(seat, message.text(span)));
        let (Some(span), Some(ours)) = (span, ours) else {
            return self.drop_message("its request is not live", message);
        };
        self.ledger.asks.remove(&ours);
        let frame = message.with("", &[(span, &ours.to_string())]);
        self.out.push_back(Output::Answer(frame));
    }

    /// A frame that could not be handed on: a call of the client is told, a list is done without it.
    pub(super) fn take_unsent(&mut self, seat: SeatId, frame: Bytes) {
        let Ok(message) = Message::parse(frame) else {
            return;
        };
        let live = self.ledger.answered(seat, message.our_id());
        let Some((ours, call)) = live.filter(|_| message.kind() == Kind::Request) else {
            return self.drop_message("too much waits for its server", &message);
        };
        match call.want {
            Want::Client { id, .. } => {
                let server = self
                    .seats
                    .get(&seat)
                    .map(|seat| seat.address.server.clone());
                let server = server.unwrap_or_default();
                let error = crowded(&server, "too much waits for the server");
                self.refuse_id(&id, &error);
            }
            Want::Part(part) => {
                self.lack_seat(part.gather, seat, "slow");
                self.part_ended(part.gather, ours);
            }
            Want::Greeting => self.greeted(ours),
            Want::Late(_) | Want::Nobody => {}
        }
    }
}

/// A server that does not know the method has none of that sort.
fn lacks_method(error: &str) -> bool {
    let code = member(error, "code").and_then(|text| text.parse().ok());
    code == Some(code::METHOD_NOT_FOUND)
}

/// The state that an error of the gateway's own tells (A4).
fn state_of(error: &str) -> String {
    let state = member(error, "data").and_then(|data| member(data, "state"));
    let state = state.and_then(|text| serde_json::from_str(text).ok());
    state.unwrap_or_else(|| "failed".into())
}
