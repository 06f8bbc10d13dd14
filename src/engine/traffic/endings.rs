//! How calls end, with the answer or without it, and how those who wait are told (A4, A5).

use std::time::Duration;

use bytes::Bytes;

use super::Traffic;
use crate::engine::answers::{Asker, Call, Own};
use crate::engine::decision::{Class, Decision, DropReason};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::policy::Reply;
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{self, Error, Message, Unreadable, code};
use crate::wire::mcp::method;

impl Traffic {
    /// A host's call is not sent on, and its host is told why.
    pub(super) fn refuse_call(
        &self,
        session: SessionId,
        message: &Message,
        error: &Error,
        out: &mut Outbox,
    ) {
        if let Some(id) = message.id_text() {
            out.answer(session, jsonrpc::error_response(id, error));
        }
        let called = Decision::Called {
            id: None,
            method: message.method().into(),
            took: Duration::ZERO,
            error: Some(told_as(error.code)),
        };
        out.decide(self.serving, called);
    }

    /// A call's deadline has come: its asker is told, and the server that nobody waits (A5).
    pub(super) fn time_out(&mut self, ours: u64, call: Call, at: Moment, out: &mut Outbox) {
        self.cancel_at_server(ours, "timed out", out);
        match &call.asker {
            Asker::Host { .. } => {
                let error = self.timed_out(at.now);
                self.fail_call(ours, &call, &error, at, out);
            }
            Asker::Own(Own::Exchange) => self.exchanged(Reply::Silence, at, out),
            Asker::Own(Own::List) => self.fail_page("a list in time", at, out),
            Asker::Own(Own::Manifest) => self.fail_manifest("no answer in time", at, out),
            Asker::Own(Own::Setting) => {}
            Asker::Own(Own::Post(ticket)) => {
                Self::post_unknown(*ticket, "no answer in time", out);
            }
        }
    }

    /// The server answered, and its answer cannot be read: no other will come (A4).
    pub(super) fn end_unreadable(
        &mut self,
        id: Option<u64>,
        what: &Unreadable,
        at: Moment,
        out: &mut Outbox,
    ) {
        let Some((ours, call)) = id.and_then(|id| Some((id, self.calls.take(id)?))) else {
            return;
        };
        match &call.asker {
            Asker::Host { .. } => {
                let error = self.unread(what, at.now);
                self.subscribed(ours, true);
                self.fail_call(ours, &call, &error, at, out);
            }
            // No JSON text: a malformed receipt.
            Asker::Own(Own::Exchange) => self.exchanged(Reply::Result(""), at, out),
            Asker::Own(Own::List) => self.fail_page("a list that can be read", at, out),
            Asker::Own(Own::Manifest) => self.fail_manifest("it cannot be read", at, out),
            Asker::Own(Own::Setting) => {}
            Asker::Own(Own::Post(ticket)) => {
                Self::post_unknown(*ticket, "its answer cannot be read", out);
            }
        }
    }

    /// The server's outbound queue was full.
    pub(super) fn unsend(
        &mut self,
        epoch: Epoch,
        request: Option<u64>,
        frame: Bytes,
        at: Moment,
        out: &mut Outbox,
    ) {
        let call = request
            .filter(|_| self.serving == Some(epoch))
            .and_then(|id| Some((id, self.calls.take(id)?)));
        let Some((ours, call)) = call else {
            let message = Message::parse(frame);
            let name = message.as_ref().map_or("", Message::method);
            return self.say_dropped(DropReason::Unsent, name, 1, out);
        };
        match &call.asker {
            Asker::Host { .. } => {
                let error = self.crowded_out("the server does not read what it is sent", at.now);
                self.fail_call(ours, &call, &error, at, out);
            }
            Asker::Own(Own::Exchange) => self.exchanged(Reply::Silence, at, out),
            Asker::Own(Own::List) => self.fail_page("a list of a crowded server", at, out),
            Asker::Own(Own::Manifest) => self.fail_manifest("the server is crowded", at, out),
            Asker::Own(Own::Setting) => {
                self.say_dropped(DropReason::Unsent, &call.method, 1, out);
            }
            Asker::Own(Own::Post(ticket)) => Self::post_unsent(*ticket, out),
        }
    }

    /// A boundary: what hosts had asked for is lost (A4).
    pub(super) fn end_calls(&mut self, at: Moment, out: &mut Outbox) {
        let error = self.lost(at.now);
        for (ours, call) in self.calls.lose() {
            match &call.asker {
                Asker::Host { .. } => self.fail_call(ours, &call, &error, at, out),
                Asker::Own(Own::Post(ticket)) => {
                    Self::post_unknown(*ticket, "the connection was lost", out);
                }
                // They begin anew with the next connection.
                Asker::Own(Own::Exchange | Own::List | Own::Manifest | Own::Setting) => {}
            }
        }
    }

    /// A boundary: what hosts were asked for by the process that is gone is cancelled (G5).
    pub(super) fn end_asks(&mut self, out: &mut Outbox) {
        for (session, id) in self.asks.lose() {
            out.answer(session, cancel(id, "the server's connection was lost"));
        }
    }

    /// Tells the server that nobody waits for an answer any more.
    pub(super) fn cancel_at_server(&self, id: u64, reason: &str, out: &mut Outbox) {
        if let Some(epoch) = self.serving {
            out.send(epoch, Class::Notification, cancel(id, reason), None);
        }
    }

    /// A host's call ends in an error of the gateway's own.
    fn fail_call(&mut self, ours: u64, call: &Call, error: &Error, at: Moment, out: &mut Outbox) {
        if let Asker::Host { session, id, .. } = &call.asker {
            out.answer(*session, jsonrpc::error_response(id.as_str(), error));
            self.end_call(*session, ours, call, Some(told_as(error.code)), at, out);
        }
    }

    /// A call of a host is over.
    pub(super) fn end_call(
        &mut self,
        session: SessionId,
        ours: u64,
        call: &Call,
        error: Option<String>,
        at: Moment,
        out: &mut Outbox,
    ) {
        if let Some(session) = self.hosts.get_mut(session) {
            session.calls = session.calls.saturating_sub(1);
        }
        let called = Decision::Called {
            id: Some(ours),
            method: call.method.to_string(),
            took: at.now.saturating_duration_since(call.since),
            error,
        };
        out.decide(self.serving, called);
    }
}

/// The error of a call as decisions tell it.
fn told_as(code: i64) -> String {
    match code {
        code::NOT_SENT => "not_sent".into(),
        code::LOST => "lost".into(),
        code::TIMED_OUT => "timeout".into(),
        code => code.to_string(),
    }
}

fn cancel(id: u64, reason: &str) -> Bytes {
    let reason = jsonrpc::quoted(reason);
    let params = format!(r#"{{"requestId":{id},"reason":{reason}}}"#);
    jsonrpc::notification(method::CANCELLED, Some(&params))
}

#[cfg(test)]
mod tests {
    use super::super::rig::{CHAT, PLAIN, Rig, call, field};
    use super::*;
    use crate::engine::input::HostEvent;
    use crate::engine::settings::{Bounds, Settings};
    use crate::wire::jsonrpc::{About, RequestId};

    fn too_long(about: Option<About>) -> Unreadable {
        Unreadable::TooLong { limit: 1, about }
    }

    #[test]
    fn a4_a_call_in_flight_at_a_boundary_is_lost_and_its_late_answer_reaches_nobody() {
        let mut rig = Rig::plain();
        rig.host(1, &call(1, "{}"));
        rig.take_sent();
        rig.lose();
        let answer = &rig.take_answers(1)[0];
        assert_eq!(field(answer, "error.code"), code::LOST);
        assert_eq!(field(answer, "error.data.sent"), true);
        rig.late(1, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        rig.adopt(PLAIN);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(rig.take_answers(1).is_empty());
        assert_eq!((rig.dropped("late"), rig.dropped("unmatched")), (1, 1));
    }

    #[test]
    fn a4_a_call_that_found_no_room_was_not_sent() {
        let mut rig = Rig::plain();
        rig.host(1, &call(1, "{}"));
        rig.run(|traffic, at, out| traffic.unsent(Epoch(1), Some(1), Bytes::new(), at, out));
        assert_eq!(field(&rig.take_answers(1)[0], "error.code"), code::NOT_SENT);
        let cancel = Bytes::from(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
        rig.run(|traffic, at, out| traffic.unsent(Epoch(1), None, cancel, at, out));
        assert_eq!(rig.dropped("unsent"), 1);
        let told = |decision: &Decision| matches!(decision, Decision::Dropped { method, .. } if method == "notifications/cancelled");
        assert!(rig.decisions.iter().any(told));
        let mut rig = Rig::with(Settings {
            bounds: Bounds {
                in_flight: 0,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig.host(1, &call(1, "{}"));
        assert_eq!(field(&rig.take_answers(1)[0], "error.code"), code::NOT_SENT);
    }

    #[test]
    fn a5_on_a_timeout_the_server_is_told_and_a_late_answer_with_state_is_an_orphan() {
        let mut rig = Rig::plain();
        for id in 1..=2 {
            rig.host(1, &call(id, "{}"));
        }
        rig.take_sent();
        rig.wait(Duration::from_secs(600));
        let cancels = rig.take_sent();
        assert_eq!(field(&cancels[0], "method"), "notifications/cancelled");
        assert_eq!(field(&cancels[0], "params.requestId"), 1);
        assert_eq!(rig.take_answers(1).len(), 2);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"result":{"checkpoint":"c"}}"#);
        rig.server(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(rig.dropped("late_answer"), 2);
        let orphans = rig
            .decisions
            .iter()
            .filter(|decision| decision.kind() == "orphaned");
        assert_eq!(orphans.count(), 1);
    }

    #[test]
    fn a5_no_limit_is_no_deadline() {
        let mut rig = Rig::with(Settings {
            call_timeout: Duration::ZERO,
            ..Settings::default()
        });
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig.host(1, &call(1, "{}"));
        rig.wait(Duration::from_secs(86_400));
        assert!(rig.take_answers(1).is_empty());
    }

    #[test]
    fn what_is_no_message_is_answered_where_it_can_be_a_request() {
        let mut rig = Rig::plain();
        rig.event(1, HostEvent::Unreadable(Unreadable::Batch(Vec::new())));
        assert_eq!(
            field(&rig.take_answers(1)[0], "error.code"),
            code::INVALID_REQUEST
        );
        let request = Some(About::Request(RequestId::from(1)));
        for (what, answers) in [
            (Unreadable::Batch(Vec::new()), 1),
            (Unreadable::TooDeep { about: None }, 1),
            (Unreadable::TooDeep { about: request }, 1),
            (Unreadable::NotJson, 0),
            (too_long(None), 0),
        ] {
            rig.run(|traffic, at, out| traffic.unreadable(Epoch(1), &what, at, out));
            assert_eq!(rig.take_sent().len(), answers, "{what:?}");
        }
        let refused = Decision::RefusedMessage {
            code: code::INVALID_REQUEST,
            method: String::new(),
        };
        let refused = rig.decisions.iter().filter(|told| **told == refused);
        assert_eq!((refused.count(), rig.dropped("unreadable")), (3, 2));
    }

    #[test]
    fn a4_an_answer_that_cannot_be_read_ends_its_call_at_once_and_no_other() {
        let answers = |id: u64| Some(About::Answer(RequestId::from(id)));
        let why = "`result` stands beside `error`";
        for (ours, what) in [
            (1, too_long(answers(1))),
            (2, Unreadable::TooDeep { about: answers(2) }),
            (
                3,
                Unreadable::Invalid {
                    why,
                    about: answers(3),
                },
            ),
        ] {
            let mut rig = Rig::plain();
            for id in 11..=13 {
                rig.host(1, &call(id, "{}"));
            }
            rig.take_sent();
            rig.run(|traffic, at, out| traffic.unreadable(Epoch(2), &what, at, out));
            assert!(rig.take_answers(1).is_empty(), "of another epoch");
            rig.run(|traffic, at, out| traffic.unreadable(Epoch(1), &what, at, out));
            let told = rig.take_answers(1);
            assert_eq!((told.len(), rig.take_sent().len()), (1, 0));
            assert_eq!(field(&told[0], "id"), 10 + ours);
            assert_eq!(field(&told[0], "error.code"), code::LOST);
            assert_eq!(field(&told[0], "error.data.sent"), true);
            let text = field(&told[0], "error.message").to_string();
            assert!(text.contains(&what.to_string()), "{text}");
            assert_eq!(rig.call_errors(), [Some("lost".into())]);
            assert_eq!(rig.dropped("unreadable"), 2);
        }
    }

    #[test]
    fn p4_a_receipt_that_cannot_be_read_settles_the_exchange_at_once_and_grants_nothing() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        let what = too_long(Some(About::Answer(RequestId::from(1))));
        rig.run(|traffic, at, out| traffic.unreadable(Epoch(1), &what, at, out));
        assert!(rig.traffic.is_settled() && rig.traffic.policy.granted().is_empty());
    }
}
