//! What the server sends, sorted as it is read: answered at once, matched with what is live, or on its way to the gate
//! (G1, G7, A1, A2, A7).

use super::Traffic;
use crate::engine::answers::{Ask, Asker, Own, Want};
use crate::engine::decision::{Class, Decision, DropReason};
use crate::engine::gate;
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::output::Regards;
use crate::engine::policy::Reply;
use crate::engine::queue::{Item, Lane};
use crate::ids::Epoch;
use crate::wire::jsonrpc::{self, Error, Kind, Message, code, member};
use crate::wire::mcp::method;
use crate::wire::mcpl::{self, Plane};
use crate::wire::methods::{self, Sender};

impl Traffic {
    /// A message of the serving epoch.
    pub(super) fn take_of_server(
        &mut self,
        epoch: Epoch,
        message: Message,
        during: Option<u64>,
        at: Moment,
        out: &mut Outbox,
    ) {
        if message.kind() == Kind::Response {
            return self.take_answer(&message, at, out);
        }
        let plane = Plane::of(message.method());
        if plane == Plane::Never {
            return self.take_at_once(epoch, &message, at, out);
        }
        let lane = lane(plane, message.method());
        let mut item = Item::new(message, epoch, at.now, lane);
        item.world = mcpl::is_world(item.message.method());
        item.during = during;
        self.admit_or_hold(item, at, out);
    }

    /// A message read after its transport's loss (G7).
    pub(super) fn take_late(
        &mut self,
        epoch: Epoch,
        message: Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        self.tally.read += 1;
        if message.kind() == Kind::Response {
            self.drop_read(DropReason::Late, "", 1, out);
            return self.tell_orphan("", &message, out);
        }
        let name = message.method();
        if !mcpl::is_world(name) {
            return self.drop_read(DropReason::Late, name, 1, out);
        }
        if self.closed_for_good {
            return self.drop_read(DropReason::ClosedForGood, name, 1, out);
        }
        let mut item = Item::new(message, epoch, at.now, Lane::Waking);
        item.world = true;
        let full = self.waiting.keep(item, &self.settings.bounds);
        self.drop_each(&full, out);
    }

    /// What no plane delays.
    fn take_at_once(&mut self, epoch: Epoch, message: &Message, at: Moment, out: &mut Outbox) {
        match message.method() {
            method::PING => {
                if let Some(id) = message.id_text() {
                    self.answer_server(epoch, jsonrpc::response(id, "{}"), out);
                }
                self.tally.delivered += 1;
            }
            method::PROGRESS => self.take_progress(message, at, out),
            method::CANCELLED => self.take_cancel(epoch, message, at, out),
            name if message.kind() == Kind::Request => {
                let method = methods::find(name);
                let why = method.and_then(|method| method.misplaced(Sender::Server));
                let text = format!("`{name}` {}", why.unwrap_or("is unknown"));
                let error = Error::new(code::METHOD_NOT_FOUND, text);
                self.refuse_server(epoch, message, &error, out);
            }
            _ => self.drop_read(DropReason::Unreadable, message.method(), 1, out),
        }
    }

    /// An answer to one of our requests, by our own integer alone (A2).
    fn take_answer(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let id = message.our_id();
        let Some((ours, call)) = id.and_then(|id| Some((id, self.calls.take(id)?))) else {
            return self.take_unmatched(id, message, out);
        };
        self.tally.delivered += 1;
        match call.asker {
            Asker::Host {
                session, ref id, ..
            } => {
                let frame = if *call.method == *mcpl::method::BEFORE_INFERENCE {
                    self.granted_answer(message, id.as_str(), out)
                } else {
                    self.masked_answer(&call.method, message, id.as_str())
                };
                out.answer_to(session, Regards::Answer(id.clone()), frame);
                self.subscribed(ours, message.error().is_some());
                self.end_call(session, ours, &call, error_of(message), at, out);
            }
            Asker::Own(Own::Exchange) => {
                let reply = match (message.result(), message.error()) {
                    (Some(result), _) => Reply::Result(result),
                    (None, error) => Reply::Error(error.unwrap_or_default()),
                };
                self.exchanged(reply, at, out);
            }
            Asker::Own(Own::List) => self.take_page(message, at, out),
            Asker::Own(Own::Manifest) => self.take_manifest(message, at, out),
            Asker::Own(Own::Setting) => {}
            Asker::Own(Own::Post(ticket)) => Self::posted(ticket, message, out),
        }
    }

    fn take_unmatched(&mut self, id: Option<u64>, message: &Message, out: &mut Outbox) {
        let late = id.and_then(|id| self.calls.take_overdue(id));
        match late {
            Some(method) => {
                self.drop_read(DropReason::LateAnswer, &method, 1, out);
                self.tell_orphan(&method, message, out);
            }
            None => self.drop_read(DropReason::Unmatched, "", 1, out),
        }
    }

    /// An answer that goes nowhere is worth telling of when it carries state (A5).
    fn tell_orphan(&self, method: &str, message: &Message, out: &mut Outbox) {
        let result = message.result().unwrap_or_default();
        if member(result, "state")
            .or_else(|| member(result, "checkpoint"))
            .is_some()
        {
            let method = method.into();
            out.decide(self.serving, Decision::Orphaned { method });
        }
    }

    fn take_progress(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let token = message.param(&["progressToken"]);
        let ours = token
            .as_ref()
            .and_then(|span| message.text(span).parse().ok());
        let call = ours.and_then(|id| self.calls.get(id));
        let asker = call.map(|call| &call.asker);
        let (
            Some(ours),
            Some(span),
            Some(Asker::Host {
                session,
                id,
                token: Some(theirs),
            }),
        ) = (ours, token, asker)
        else {
            return self.drop_read(DropReason::Unmatched, message.method(), 1, out);
        };
        let regards = Regards::Meanwhile(id.clone());
        out.answer_to(*session, regards, message.with("", &[(span, theirs)]));
        self.calls.renew(ours, at.now);
        self.tally.delivered += 1;
    }

    /// The server no longer wants an answer: of what is held, or of what a host has (G4, A7).
    fn take_cancel(&mut self, epoch: Epoch, message: &Message, at: Moment, out: &mut Outbox) {
        let name = message.method();
        let Some(span) = message.param(&["requestId"]) else {
            return self.drop_read(DropReason::Unmatched, name, 1, out);
        };
        let id = message.text(&span);
        if let Some(seq) = self.waiting.find(epoch, id) {
            let item = self.waiting.take(seq);
            self.drop_items(DropReason::Cancelled, item.as_slice(), out);
            self.tally.delivered += 1;
        } else if let Some((session, ours)) = self.asks.find(epoch, id) {
            out.answer(session, message.with("", &[(span, &ours.to_string())]));
            self.tally.delivered += 1;
            if let Some(ask) = self.asks.take(session, ours) {
                self.abandon(&ask, at, out);
            }
        } else {
            self.drop_read(DropReason::Unmatched, name, 1, out);
        }
    }

    /// Nobody waits any more for what a host was asked.
    fn abandon(&mut self, ask: &Ask, at: Moment, out: &mut Outbox) {
        if let Some(seq) = ask.waiting {
            self.take_back(seq, at, out);
        }
        if let Want::Channels { ticket } = ask.want {
            self.unregister(ticket, at, out);
        }
    }

    /// Answers on the transport that the request came on, or nowhere (A1).
    pub(super) fn answer_server(&self, epoch: Epoch, frame: bytes::Bytes, out: &mut Outbox) {
        if self.serving == Some(epoch) {
            out.send(epoch, Class::Response, frame, None);
        }
    }

    pub(super) fn refuse_server(
        &mut self,
        epoch: Epoch,
        message: &Message,
        error: &Error,
        out: &mut Outbox,
    ) {
        if let Some(id) = message.id_text() {
            self.answer_server(epoch, jsonrpc::error_response(id, error), out);
        }
        self.tally.refused += 1;
        let refused = Decision::RefusedMessage {
            code: error.code,
            method: message.method().into(),
        };
        out.decide(Some(epoch), refused);
    }
}

fn lane(plane: Plane, name: &str) -> Lane {
    match plane {
        Plane::Data if gate::wakes(name) => Lane::Waking,
        Plane::Data => Lane::Data,
        Plane::Control | Plane::Outside | Plane::Never => Lane::Control,
    }
}

/// What went wrong, as `Called` names it.
fn error_of(message: &Message) -> Option<String> {
    if let Some(error) = message.error() {
        return Some(member(error, "code").unwrap_or("error").to_owned());
    }
    let result = message.result()?;
    memchr::memmem::find(result.as_bytes(), b"isError")?;
    (member(result, "isError") == Some("true")).then(|| "tool".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::rig::{CHAT, PLAIN, REGISTER, Rig, accepted, field, push, request};
    use super::*;

    #[test]
    fn g1_a_ping_is_answered_while_all_else_is_held() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        rig.server(&push(5));
        rig.server(&request(7, "ping", "{}"));
        assert_eq!(rig.take_sent(), [r#"{"jsonrpc":"2.0","id":7,"result":{}}"#]);
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
    }

    #[test]
    fn g1_a_server_without_mcpl_has_no_policy_hold() {
        let mut rig = Rig::new();
        rig.client(1, r#"{"roots":{}}"#);
        rig.adopt(PLAIN);
        assert!(rig.traffic.is_settled());
        rig.server(&request(1, "roots/list", "{}"));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "roots/list");
        rig.server(&push(2));
        assert_eq!(
            field(&rig.take_sent()[0], "error.data.capability"),
            "pushEvents"
        );
    }

    #[test]
    fn g4_a_cancel_removes_the_held_request() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(&push(1));
        rig.server(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        assert_eq!(rig.waiting(), [0; 4]);
        assert_eq!(rig.dropped("cancelled"), 1);
    }

    #[test]
    fn g7_a_late_line_is_never_answered_and_a_late_world_message_is_kept() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        rig.lose();
        rig.late(1, &request(1, "ping", "{}"));
        rig.late(1, &request(2, "x/unknown", "{}"));
        rig.late(1, REGISTER);
        rig.late(1, &push(3));
        rig.late(1, r#"{"jsonrpc":"2.0","id":2,"result":{"state":1}}"#);
        assert!(rig.take_sent().is_empty());
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        assert_eq!(rig.dropped("late"), 4);
        assert!(
            rig.decisions
                .iter()
                .any(|decision| decision.kind() == "orphaned")
        );
        rig.lose_with(true);
        rig.late(1, &push(4));
        assert_eq!(rig.dropped("closed_for_good"), 2);
    }

    #[test]
    fn a1_two_epochs_that_use_the_same_id_never_cross() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(100, "inference/request", r#"{"n":1}"#));
        let first = rig.take_answers(1);
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.server(&request(100, "inference/request", r#"{"n":2}"#));
        rig.take_sent();
        rig.host(1, &accepted(&first[0]));
        assert!(rig.take_sent().is_empty());
        let second = rig.take_answers(1);
        rig.host(1, &accepted(second.last().unwrap()));
        assert_eq!(
            rig.take_sent(),
            [r#"{"jsonrpc":"2.0","id":100,"result":{"accepted":true}}"#]
        );
    }

    #[test]
    fn a2_an_answer_that_matches_no_call_is_dropped() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig.host(1, &request(1, "tools/call", "{}"));
        for id in ["2", "\"1\"", "1.0", "01e0"] {
            if let Ok(message) = crate::wire::jsonrpc::Message::parse(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into(),
            ) {
                rig.run(|traffic, at, out| traffic.receive(Epoch(1), message, at, out));
            }
        }
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(rig.dropped("unmatched"), 3);
    }

    #[test]
    fn a7_a_cancel_of_a_request_that_is_with_a_host_reaches_it_under_our_id() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(9, "inference/request", "{}"));
        let ours = field(&rig.take_answers(1)[0], "id");
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,"reason":"r"}}"#;
        rig.server(cancel);
        let line = &rig.take_answers(1)[0];
        assert_eq!(
            (
                field(line, "params.requestId"),
                field(line, "params.reason")
            ),
            (ours, "r".into())
        );
        rig.server(cancel);
        assert_eq!(rig.dropped("unmatched"), 1);
    }

    #[test]
    fn removed_methods_are_refused_and_their_notifications_dropped() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        rig.server(&request(1, "scope/elevate", "{}"));
        rig.server(r#"{"jsonrpc":"2.0","method":"featureSets/changed"}"#);
        assert_eq!(
            field(&rig.take_sent()[0], "error.code"),
            code::METHOD_NOT_FOUND
        );
        assert_eq!(rig.dropped("unreadable"), 1);
    }
}
