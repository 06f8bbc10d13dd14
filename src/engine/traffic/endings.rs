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
