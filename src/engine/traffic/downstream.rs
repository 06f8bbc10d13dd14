//! What hosts send: answered at once, forwarded under the gateway's own ids, or refused (A2, A4, A5, A7).

use super::Traffic;
use super::upstream::token_of;
use crate::engine::answers::{Asker, Call, Own, Want};
use crate::engine::decision::{Class, Decision, DropReason};
use crate::engine::input::Moment;
use crate::engine::inventory::List;
use crate::engine::outbox::Outbox;
use crate::engine::policy::Reply;
use crate::engine::timers::Timer;
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{self, Error, Kind, Message, code};
use crate::wire::mcp::method;
use crate::wire::mcpl;

impl Traffic {
    pub(super) fn take_of_host(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        if self.hosts.get(session).is_none() {
            return;
        }
        match message.kind() {
            Kind::Request => self.take_request_of(session, message, at, out),
            Kind::Notification => self.take_notification_of(session, message, at, out),
            Kind::Response => self.take_answer_of(session, message, at, out),
        }
    }

    fn take_request_of(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let held = self.hosts.get(session);
        let answered = held.is_some_and(super::Session::is_answered);
        let mcpl = held.is_some_and(super::Session::is_mcpl);
        match message.method() {
            method::PING => self.reply(session, message, "{}", out),
            method::INITIALIZE => self.initialize(session, message, at, out),
            _ if !answered => self.refuse_host(session, message, NOT_INITIALIZED, out),
            mcpl::method::FEATURE_SETS_UPDATE if mcpl => self.narrow(session, message, at, out),
            method::SET_LEVEL => self.set_level(session, message, at, out),
            method::RESOURCES_SUBSCRIBE => self.subscribe(session, message, at, out),
            name => {
                if !self.answer_here(name, session, message, out) {
                    let _ = self.forward(session, message, at, out);
                }
            }
        }
    }

    /// Answers what needs no server, or none now; `false` where the request goes on.
    fn answer_here(
        &mut self,
        name: &str,
        session: SessionId,
        message: &Message,
        out: &mut Outbox,
    ) -> bool {
        match name {
            method::TOOLS_CALL => self.refuse_hidden(session, message, out),
            method::RESOURCES_UNSUBSCRIBE => self.unsubscribe(session, message, out),
            _ => List::of_request(name)
                .is_some_and(|list| self.answer_list(list, session, message, out)),
        }
    }

    /// Answers a host's request with a result of our own.
    pub(super) fn reply(
        &self,
        session: SessionId,
        message: &Message,
        result: &str,
        out: &mut Outbox,
    ) {
        if let Some(id) = message.id_text() {
            out.answer(session, jsonrpc::response(id, result));
        }
    }

    /// Answers a host's request with an error of our own.
    pub(super) fn refuse_host(
        &self,
        session: SessionId,
        message: &Message,
        (code, text): (i64, &str),
        out: &mut Outbox,
    ) {
        if let Some(id) = message.id_text() {
            let error = Error::new(code, text);
            out.answer(session, jsonrpc::error_response(id, &error));
        }
    }

    /// Sends a host's call on under our own id, or says at once that it was not sent (A4).
    pub(super) fn forward(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) -> Option<u64> {
        let Some(epoch) = self.serving else {
            let error = self.not_sent(at.now);
            self.refuse_call(session, message, &error, out);
            return None;
        };
        if self.calls.len() >= self.settings.bounds.in_flight {
            let error = self.crowded_out("too many calls are in flight", at.now);
            self.refuse_call(session, message, &error, out);
            return None;
        }
        let token = token_of(message);
        let asker = Asker::Host {
            session,
            id: message.id()?,
            token: token.as_ref().map(|span| message.text(span).into()),
        };
        let limit = self.settings.call_timeout;
        let call = Call::new(asker, message.method(), at.now, Timer::Call, limit);
        let ours = self.calls.open(call);
        if let Some(held) = self.hosts.get_mut(session) {
            held.calls += 1;
        }
        let text = ours.to_string();
        let frame = match token {
            Some(span) => message.with(&text, &[(span, &text)]),
            None => message.with_id(&text),
        };
        out.send(epoch, Class::Request, frame, Some(ours));
        Some(ours)
    }

    fn refuse_call(&self, session: SessionId, message: &Message, error: &Error, out: &mut Outbox) {
        if let Some(id) = message.id_text() {
            out.answer(session, jsonrpc::error_response(id, error));
        }
        let called = Decision::Called {
            method: message.method().into(),
            took: std::time::Duration::ZERO,
            error: Some("not_sent".into()),
        };
        out.decide(self.serving, called);
    }

    fn take_notification_of(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let answered = self
            .hosts
            .get(session)
            .is_some_and(super::Session::is_answered);
        match message.method() {
            method::INITIALIZED => self.initialized(session, at),
            name if !answered => self.say_dropped(DropReason::NoReceiver, name, 1, out),
            method::CANCELLED => self.cancel_call(session, message, at, out),
            method::PROGRESS => self.pass_mapped(session, message, "progressToken", out),
            mcpl::method::INFERENCE_CHUNK => self.pass_mapped(session, message, "requestId", out),
            name => match self.serving {
                Some(epoch) => {
                    out.send(epoch, Class::Notification, message.raw().clone(), None);
                }
                None => self.say_dropped(DropReason::ServerAway, name, 1, out),
            },
        }
    }

    /// A host no longer wants an answer (A7).
    fn cancel_call(&mut self, session: SessionId, message: &Message, at: Moment, out: &mut Outbox) {
        let span = message.param(&["requestId"]);
        let ours = span
            .as_ref()
            .and_then(|span| self.calls.find(session, message.text(span)));
        let (Some(epoch), Some(span), Some(ours)) = (self.serving, span, ours) else {
            return self.say_dropped(DropReason::Unmatched, message.method(), 1, out);
        };
        let frame = message.with("", &[(span, &ours.to_string())]);
        out.send(epoch, Class::Notification, frame, None);
        if let Some(call) = self.calls.abandon(ours) {
            self.end_call(session, &call, Some("cancelled".into()), at, out);
        }
    }

    /// Progress and chunks of a live request of the server go to its own transport, under its own id (A1, A7).
    fn pass_mapped(&self, session: SessionId, message: &Message, key: &str, out: &mut Outbox) {
        let span = message.param(&[key]);
        let ours = span
            .as_ref()
            .and_then(|span| message.text(span).parse().ok());
        let ask = ours.and_then(|id| self.asks.get(session, id));
        let ask = ask.filter(|ask| self.serving == Some(ask.epoch));
        let theirs = ask.and_then(|ask| match key {
            "progressToken" => ask.token.as_deref(),
            _ => ask.id.as_ref().map(jsonrpc::RequestId::as_str),
        });
        let (Some(epoch), Some(span), Some(theirs)) = (self.serving, span, theirs) else {
            return self.say_dropped(DropReason::Unmatched, message.method(), 1, out);
        };
        let frame = message.with("", &[(span, theirs)]);
        out.send(epoch, Class::Notification, frame, None);
    }

    /// A host answers a request of the server, or one of ours.
    fn take_answer_of(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let ours = message.our_id();
        let Some((ours, ask)) = ours.and_then(|id| Some((id, self.asks.take(session, id)?))) else {
            return self.say_dropped(DropReason::Unmatched, "", 1, out);
        };
        if let Some(seq) = ask.waiting {
            self.delivered(seq, message.result());
        }
        match (&ask.want, &ask.id) {
            (Want::Answer | Want::Listing, Some(id)) if self.serving == Some(ask.epoch) => {
                self.answer_server(ask.epoch, message.with_id(id.as_str()), out);
            }
            (Want::Answer | Want::Listing, _) => {
                self.say_dropped(DropReason::LateAnswer, &ask.method, 1, out);
            }
            (Want::Channels { ticket }, _) => {
                self.registered(&ask, *ticket, message, at, out);
            }
            (Want::Replay, _) => self.replayed(session, ours, message, at, out),
            (Want::Ping, _) => {}
        }
        self.refill(at, out);
    }

    /// A call's deadline has come: its asker is told, and the server that nobody waits (A5).
    pub(super) fn time_out(&mut self, id: u64, call: Call, at: Moment, out: &mut Outbox) {
        let cancel = format!(r#"{{"requestId":{id},"reason":"timed out"}}"#);
        let cancel = jsonrpc::notification(method::CANCELLED, Some(&cancel));
        match &call.asker {
            Asker::Host { session, id, .. } => {
                let error = self.timed_out(at.now);
                out.answer(*session, jsonrpc::error_response(id.as_str(), &error));
                self.end_call(*session, &call, Some("timeout".into()), at, out);
            }
            Asker::Own(Own::Exchange) => return self.exchanged(Reply::Silence, at, out),
            Asker::Own(Own::List) => self.fail_page("a list in time", at, out),
            Asker::Own(Own::Setting) => {}
        }
        if let Some(epoch) = self.serving {
            out.send(epoch, Class::Notification, cancel, None);
        }
    }

    /// The server's outbound queue was full.
    pub(super) fn unsend(
        &mut self,
        epoch: Epoch,
        request: Option<u64>,
        at: Moment,
        out: &mut Outbox,
    ) {
        let call = request
            .filter(|_| self.serving == Some(epoch))
            .and_then(|id| self.calls.take(id));
        let Some(call) = call else {
            return self.say_dropped(DropReason::Unsent, "", 1, out);
        };
        match &call.asker {
            Asker::Host { session, id, .. } => {
                let error = self.crowded_out("the server does not read what it is sent", at.now);
                out.answer(*session, jsonrpc::error_response(id.as_str(), &error));
                self.end_call(*session, &call, Some("not_sent".into()), at, out);
            }
            Asker::Own(Own::Exchange) => self.exchanged(Reply::Silence, at, out),
            Asker::Own(Own::List) => self.fail_page("a list of a crowded server", at, out),
            Asker::Own(Own::Setting) => {
                self.say_dropped(DropReason::Unsent, &call.method, 1, out);
            }
        }
    }

    /// A boundary: what hosts had asked for is lost (A4).
    pub(super) fn end_calls(&mut self, at: Moment, out: &mut Outbox) {
        let error = self.lost(at.now);
        for call in self.calls.lose() {
            if let Asker::Host { session, id, .. } = &call.asker {
                out.answer(*session, jsonrpc::error_response(id.as_str(), &error));
                self.end_call(*session, &call, Some("lost".into()), at, out);
            }
        }
    }

    /// A boundary: what hosts were asked for by the process that is gone is cancelled (G5).
    pub(super) fn end_asks(&mut self, out: &mut Outbox) {
        for (session, id) in self.asks.lose() {
            let params =
                format!(r#"{{"requestId":{id},"reason":"the server's connection was lost"}}"#);
            out.answer(
                session,
                jsonrpc::notification(method::CANCELLED, Some(&params)),
            );
        }
    }
}

const NOT_INITIALIZED: (i64, &str) = (code::INVALID_REQUEST, "`initialize` comes first");
