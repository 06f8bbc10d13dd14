//! What hosts send: answered at once, forwarded under the gateway's own ids, or refused (A2, A4, A5, A7).

use super::delivery::token_of;
use super::itemised;
use super::{Session, Traffic};
use crate::engine::answers::{Asker, Call, Want};
use crate::engine::decision::{Class, Decision, DropReason};
use crate::engine::input::Moment;
use crate::engine::inventory::List;
use crate::engine::outbox::Outbox;
use crate::engine::timers::Timer;
use crate::ids::SessionId;
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

    /// Whether a session's `initialize` was answered, and whether it speaks MCPL.
    fn standing(&self, session: SessionId) -> (bool, bool) {
        let held = self.hosts.get(session);
        let is = |what: fn(&Session) -> bool| held.is_some_and(what);
        (is(Session::is_answered), is(Session::is_mcpl))
    }

    fn take_request_of(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let (answered, mcpl) = self.standing(session);
        match message.method() {
            method::PING => self.reply(session, message, "{}", out),
            method::INITIALIZE => self.initialize(session, message, at, out),
            _ if !answered => self.refuse_host(session, message, NOT_INITIALIZED, out),
            mcpl::method::FEATURE_SETS_UPDATE if mcpl => self.narrow(session, message, at, out),
            method::SET_LEVEL => self.set_level(session, message, at, out),
            method::RESOURCES_SUBSCRIBE => self.subscribe(session, message, at, out),
            name => match self.permit(session, message, at.now) {
                Err(refusal) => self.refuse_call(session, message, &refusal.error, out),
                Ok(message) => {
                    if !self.answer_here(name, session, &message, at, out) {
                        let _ = self.forward(session, &message, at, out);
                    }
                }
            },
        }
    }

    /// Answers what needs no server, or none now; `false` where the request goes on.
    fn answer_here(
        &mut self,
        name: &str,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) -> bool {
        match name {
            method::TOOLS_CALL => self.refuse_hidden(session, message, out),
            method::RESOURCES_UNSUBSCRIBE => self.unsubscribe(session, message, out),
            mcpl::method::MANIFEST => self.answer_manifest(session, message, out),
            _ => List::of_request(name)
                .is_some_and(|list| self.answer_list(list, session, message, at, out)),
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
        out.forward(epoch, frame, ours);
        Some(ours)
    }

    fn take_notification_of(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let (answered, mcpl) = self.standing(session);
        match message.method() {
            method::INITIALIZED => self.initialized(session, at),
            name if !answered => self.say_dropped(DropReason::NoReceiver, name, 1, out),
            method::CANCELLED => self.cancel_call(session, message, at, out),
            method::PROGRESS => self.pass_mapped(session, message, "progressToken", out),
            mcpl::method::FEATURE_SETS_UPDATE if mcpl => {
                self.reduce(session, message, at, out);
            }
            _ => self.pass(session, message, at, out),
        }
    }

    /// A notification of a host's goes to its server, where it may.
    pub(super) fn pass(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let name = message.method();
        match (self.permit(session, message, at.now), self.serving) {
            (Err(refusal), _) => self.say_dropped(refusal.reason, name, 1, out),
            (Ok(message), _) if name == mcpl::method::INFERENCE_CHUNK => {
                self.pass_mapped(session, &message, "requestId", out);
            }
            (Ok(message), Some(epoch)) => {
                out.send(epoch, Class::Notification, message.raw().clone(), None);
            }
            (Ok(_), None) => self.say_dropped(DropReason::ServerAway, name, 1, out),
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
            self.end_call(session, ours, &call, Some("cancelled".into()), at, out);
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
        // Chunks are of an inference alone (MCPL §11.4).
        let ask = ask.filter(|ask| key == "progressToken" || ask.is_inference());
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
        let item = ask
            .waiting
            .and_then(|seq| self.delivered(seq, message.result(), out));
        match (&ask.want, &ask.id) {
            (Want::Answer | Want::Listing, Some(id)) if self.serving == Some(ask.epoch) => {
                let frame = itemised::answer(item.as_ref(), message, id);
                self.answer_server(ask.epoch, frame, out);
            }
            // The gateway accepted it, and has told of the host's verdict (A3).
            (Want::Answer, None) => {}
            (Want::Answer | Want::Listing, _) => {
                let method = ask.method.into();
                out.decide(self.serving, Decision::AnsweredLate { method });
            }
            (Want::Channels { ticket }, _) => {
                self.registered(&ask, *ticket, message, at, out);
            }
            (Want::Replay, _) => self.replayed(session, ours, message, at, out),
            (Want::Ping, _) => {}
        }
        self.refill(at, out);
    }
}

const NOT_INITIALIZED: (i64, &str) = (code::INVALID_REQUEST, "`initialize` comes first");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::super::Away;
    use super::super::rig::{PLAIN, Rig, call, field};
    use super::*;
    use crate::engine::decision::State;
    use crate::engine::input::HostEvent;
    use crate::engine::settings::Settings;
    use crate::wire::jsonrpc::Unreadable;

    #[test]
    fn a2_all_but_the_id_is_forwarded_byte_for_byte() {
        let mut rig = Rig::plain();
        let odd = r#" {"method":"tools\/call", "x":[1.0,1e400],"params":{"a":1.50,"_meta":{"k":"progressToken"}},"id":"q","jsonrpc":"2.0"}"#;
        rig.host(1, odd);
        assert_eq!(rig.take_sent(), [odd.replace("\"q\"", "1")]);
        let answer = r#"{"result" : {"a":1.50,"a":2}, "jsonrpc":"2.0","id":1 , "x":null}"#;
        rig.server(answer);
        assert_eq!(
            rig.take_answers(1),
            [answer.replace("\"id\":1 ", "\"id\":\"q\" ")]
        );
        assert_eq!(rig.call_errors(), [None]);
    }

    #[test]
    fn a2_progress_comes_back_under_the_token_that_the_host_chose_and_restarts_the_deadline() {
        let mut rig = Rig::plain();
        rig.host(1, &call(5, r#"{"_meta":{"progressToken":"p","k":1}}"#));
        let sent = rig.take_sent();
        assert_eq!(field(&sent[0], "params._meta.progressToken"), 1);
        rig.wait(Duration::from_secs(599));
        rig.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#);
        let wanted = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.5}}"#;
        assert_eq!(rig.take_answers(1), [wanted]);
        rig.wait(Duration::from_secs(599));
        assert!(rig.take_answers(1).is_empty());
        rig.wait(Duration::from_secs(1));
        assert_eq!(
            field(&rig.take_answers(1)[0], "error.code"),
            code::TIMED_OUT
        );
    }

    #[test]
    fn a4_a_call_while_the_server_is_away_is_refused_at_once_and_says_when_to_try_again() {
        let mut rig = Rig::with(Settings {
            server: "chat".into(),
            ..Settings::default()
        });
        rig.client(1, "{}");
        rig.away(Away {
            state: State::Waiting,
            attempt: 3,
            retry_at: Some(rig.now + Duration::from_secs(20)),
            reason: None,
        });
        rig.wait(Duration::from_secs(5));
        rig.host(1, &call(1, "{}"));
        let answer = &rig.take_answers(1)[0];
        assert_eq!(field(answer, "error.code"), code::NOT_SENT);
        let data =
            r#"{"server":"chat","state":"waiting","sent":false,"attempt":3,"retryAfterMs":15000}"#;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(field(answer, "error.data"), data);
        assert!(
            field(answer, "error.message")
                .as_str()
                .unwrap()
                .ends_with("try again later")
        );
        assert_eq!(rig.call_errors(), [Some("not_sent".into())]);
    }

    #[test]
    fn a4_a_server_that_will_not_come_back_by_itself_says_so() {
        for (state, word) in [
            (State::Auth, "credential"),
            (State::Halted, "halted"),
            (State::Refused, "refused"),
            (State::Disabled, "disabled"),
            (State::Ended, "ended"),
        ] {
            let mut rig = Rig::new();
            rig.client(1, "{}");
            rig.away(Away {
                state,
                retry_at: Some(rig.now + Duration::from_secs(1)),
                ..Away::default()
            });
            rig.host(1, &call(1, "{}"));
            let answer = &rig.take_answers(1)[0];
            let text = field(answer, "error.message").to_string();
            assert!(text.contains(word) && !text.contains("try again"), "{text}");
            assert_eq!(
                field(answer, "error.data.retryAfterMs"),
                serde_json::Value::Null
            );
        }
    }

    #[test]
    fn a7_a_hosts_cancel_reaches_the_server_under_our_id_and_no_other_call() {
        let mut rig = Rig::plain();
        rig.client(2, "{}");
        rig.host(2, &call(7, "{}"));
        rig.host(1, &call(7, "{}"));
        rig.take_sent();
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"r"}}"#;
        rig.host(1, cancel);
        assert_eq!(rig.take_sent(), [cancel.replace('7', "2")]);
        rig.host(1, cancel);
        assert_eq!(rig.dropped("unmatched"), 1);
        rig.server(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(rig.dropped("late_answer"), 1);
    }

    #[test]
    fn a7_chunks_of_a_host_go_to_the_request_of_the_serving_epoch_alone() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(r#"{"jsonrpc":"2.0","id":"inf","method":"inference/request","params":{}}"#);
        let id = field(&rig.take_answers(1)[0], "id");
        rig.take_sent();
        let chunk = format!(
            r#"{{"jsonrpc":"2.0","method":"inference/chunk","params":{{"requestId":{id},"text":"a"}}}}"#
        );
        rig.host(1, &chunk);
        assert_eq!(field(&rig.take_sent()[0], "params.requestId"), "inf");
        rig.lose();
        rig.settled();
        rig.take_sent();
        rig.host(1, &chunk);
        assert!(rig.take_sent().is_empty());
        assert_eq!(rig.dropped("unmatched"), 1);
    }

    #[test]
    fn a7_chunks_are_of_an_inference_alone() {
        let mut rig = Rig::without(&[]);
        rig.server(r#"{"jsonrpc":"2.0","id":"m","method":"model/info","params":{}}"#);
        let id = field(&rig.take_answers(1)[0], "id");
        let params = format!(r#"{{"requestId":{id},"delta":"a"}}"#);
        rig.host(
            1,
            &format!(r#"{{"jsonrpc":"2.0","method":"inference/chunk","params":{params}}}"#),
        );
        assert!(rig.take_sent().is_empty());
        assert_eq!(rig.dropped("unmatched"), 1);
    }

    #[test]
    fn g13_a_world_message_that_a_host_answers_after_its_process_is_gone_is_not_told_as_dropped() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(r#"{"jsonrpc":"2.0","id":"e","method":"push/event","params":{"eventId":"1"}}"#);
        let asked = rig.take_answers(1).pop().unwrap();
        rig.lose();
        let id = field(&asked, "id");
        rig.host(
            1,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
        );
        assert_eq!(rig.dropped("late_answer"), 0);
        let method = "push/event".into();
        assert!(rig.decisions.contains(&Decision::AnsweredLate { method }));
    }

    #[test]
    fn g15_a_hosts_notification_while_the_server_is_away_is_dropped() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        let typing = r#"{"jsonrpc":"2.0","method":"channels/typing","params":{"channelId":"c"}}"#;
        rig.host(1, typing);
        assert_eq!(rig.dropped("server_away"), 1);
        rig.settled();
        rig.take_sent();
        rig.host(1, typing);
        assert_eq!(rig.take_sent(), [typing]);
    }

    #[test]
    fn before_initialize_only_a_ping_is_answered() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.event(1, HostEvent::Attached { name: None });
        rig.host(1, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        rig.host(1, &call(2, "{}"));
        let answers = rig.take_answers(1);
        assert_eq!(field(&answers[0], "result"), serde_json::json!({}));
        assert_eq!(field(&answers[1], "error.code"), code::INVALID_REQUEST);
        assert!(rig.take_sent().is_empty());
    }

    #[test]
    fn a2_a_batch_is_its_messages_on_a_2025_03_26_session_and_refused_on_any_other() {
        let batch = || {
            let ping =
                |id: u8| Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
            Unreadable::Batch(vec![ping(1), "7".into(), ping(2)])
        };
        for (revision, codes) in [
            ("2025-03-26", [0, code::INVALID_REQUEST, 0].as_slice()),
            ("2025-06-18", &[code::INVALID_REQUEST]),
        ] {
            let mut rig = Rig::new();
            rig.adopt(PLAIN);
            rig.event(1, HostEvent::Attached { name: None });
            rig.host(1, &format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}}}}}}"#));
            rig.take_answers(1);
            rig.event(1, HostEvent::Unreadable(batch()));
            let answers = rig.take_answers(1);
            let seen: Vec<i64> = answers
                .iter()
                .map(|answer| field(answer, "error.code").as_i64().unwrap_or_default())
                .collect();
            assert_eq!(seen, codes, "{revision}");
        }
    }
}
