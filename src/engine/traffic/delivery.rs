//! To whom a message of the server's goes once it is admitted: to the host that serves, to a client that can answer, to
//! all that want it, or back with a refusal (4-faces, "Who gets what"; G13).

use super::Traffic;
use super::setups::string_param;
use crate::engine::answers::{Ask, Asker, Want};
use crate::engine::decision::DropReason;
use crate::engine::host::{self, Skill};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::output::Regards;
use crate::engine::queue::{Item, Seq};
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{self, Error, Kind, Message, RequestId, code};
use crate::wire::mcp::method;
use crate::wire::mcpl::{self, Plane};

/// What a host is asked.
struct Asking<'a> {
    epoch: Epoch,
    message: &'a Message,
    /// The call of a host that it came within, where its server's transport tells.
    during: Option<u64>,
    /// Where it stays until it is answered (G13).
    waiting: Option<Seq>,
    redelivered: bool,
}

impl Traffic {
    /// Hands a world message to the host that serves; it stays ours until that host has answered (G13).
    pub(super) fn deliver(
        &mut self,
        session: SessionId,
        seq: Option<Seq>,
        item: Item,
        out: &mut Outbox,
    ) {
        let message = item.message.clone();
        let epoch = item.epoch;
        let marked = item.redelivered;
        let seq = match seq {
            Some(seq) => {
                self.waiting.hand_out(seq);
                seq
            }
            None => self.waiting.add_out(item),
        };
        self.admitted.hand_out(&message);
        let asking = Asking {
            epoch,
            message: &message,
            during: None,
            waiting: Some(seq),
            redelivered: marked,
        };
        self.ask(session, &asking, out);
    }

    /// Forwards a request to a host under our own id; a world notification is followed by a ping (G13).
    fn ask(&mut self, session: SessionId, asking: &Asking<'_>, out: &mut Outbox) {
        let Asking { epoch, message, .. } = *asking;
        let ours = self.asks.next_id(session).to_string();
        let token = token_of(message);
        let mut changes: Vec<_> = token
            .iter()
            .map(|span| (span.clone(), ours.clone()))
            .collect();
        if asking.redelivered {
            changes.extend(mark(message));
        }
        let changes: Vec<_> = changes
            .iter()
            .map(|(span, text)| (span.clone(), &**text))
            .collect();
        let call = asking.during.and_then(|call| self.caller(call));
        let call = call.filter(|(of, _)| *of == session);
        let regards = call.map(|(_, id)| Regards::Meanwhile(id));
        out.tell(session, regards, message.with(&ours, &changes));
        let is_request = message.kind() == Kind::Request;
        let ask = Ask {
            epoch,
            // Nobody waits for an answer to what was accepted, or outlived the gateway.
            id: message.id().filter(|_| epoch != Epoch::default()),
            method: message.method().into(),
            token: token.map(|span| message.text(&span).into()),
            waiting: asking.waiting,
            want: if is_request { Want::Answer } else { Want::Ping },
            deadline: None,
        };
        let id = self.asks.open(session, ask);
        if !is_request {
            out.answer(session, jsonrpc::request(id, method::PING, "{}"));
        }
    }

    pub(super) fn dispatch(&mut self, item: &Item, at: Moment, out: &mut Outbox) {
        let message = &item.message;
        let name = message.method();
        match name {
            method::TOOLS_CHANGED | method::RESOURCES_CHANGED | method::PROMPTS_CHANGED => {
                self.tell_all(message, out);
                self.reread_lists(name, at, out);
            }
            mcpl::method::CHANNELS_REGISTER | mcpl::method::CHANNELS_CHANGED => {
                self.register(item, at, out);
            }
            mcpl::method::CHANNELS_LIST => self.list_channels(item, at, out),
            mcpl::method::MANIFEST_CHANGED if self.manifest().is_some() => {
                self.refresh(message, at, out);
            }
            method::LOG => self.tell_log(message, out),
            method::RESOURCES_UPDATED => self.tell_subscribers(message, out),
            method::SAMPLING => self.ask_client(item, Skill::Sampling, out),
            method::ELICITATION => self.ask_client(item, Skill::Elicitation, out),
            method::ROOTS_LIST => self.ask_client(item, Skill::Roots, out),
            mcpl::method::HOST_COMMAND if !self.settings.allow_host_commands => {
                let error = Error::new(code::NOT_GRANTED, "host commands are not allowed");
                let error = error.with_data(serde_json::json!({}));
                self.refuse_server(item.epoch, message, &error, out);
            }
            _ => self.give_host(item, out),
        }
    }

    fn give_host(&mut self, item: &Item, out: &mut Outbox) {
        let message = &item.message;
        match (self.hosts.serving(), message.kind()) {
            (Some(session), Kind::Request) => self.ask_if_room(session, item, out),
            (Some(session), _) => {
                self.tally.delivered += 1;
                out.answer(session, message.raw().clone());
            }
            (None, Kind::Request) => self.refuse_nobody(item, out),
            (None, _) if message.method().starts_with("notifications/") => {
                self.tell_all(message, out);
            }
            (None, _) => self.drop_read(DropReason::NoReceiver, message.method(), 1, out),
        }
    }

    /// Whether hosts have not too many of the server's requests (G16).
    pub(super) fn may_ask(&self) -> bool {
        self.asks.len() < self.settings.bounds.in_flight
    }

    fn ask_if_room(&mut self, session: SessionId, item: &Item, out: &mut Outbox) {
        if self.may_ask() {
            self.tally.delivered += 1;
            let asking = Asking {
                epoch: item.epoch,
                message: &item.message,
                during: item.during,
                waiting: None,
                redelivered: false,
            };
            self.ask(session, &asking, out);
        } else {
            const CROWDED: &str = "too many requests are in flight; try again later";
            let error = Error::new(code::BUSY, CROWDED);
            self.refuse_server(item.epoch, &item.message, &error, out);
        }
    }

    fn refuse_nobody(&mut self, item: &Item, out: &mut Outbox) {
        // A host may come for what only a host serves; nobody else will for the rest.
        let error = if Plane::of(item.message.method()) == Plane::Control {
            Error::new(code::BUSY, "no host is connected; try again later")
        } else {
            Error::new(code::METHOD_NOT_FOUND, "no client here serves this")
        };
        self.refuse_server(item.epoch, &item.message, &error, out);
    }

    /// A request of MCP's own goes to a client that can serve it: to the one whose call it belongs to, where that is
    /// known (4-faces, "Who gets what").
    fn ask_client(&mut self, item: &Item, skill: Skill, out: &mut Outbox) {
        let message = &item.message;
        let session = match item.during {
            Some(call) => {
                let caller = self.caller(call).map(|(session, _)| session);
                caller.filter(|of| self.hosts.can(*of, skill))
            }
            None => self.hosts.for_request(skill, |id| self.asks.owes(id)),
        };
        match session {
            Some(session) if message.kind() == Kind::Request => {
                self.ask_if_room(session, item, out);
            }
            None if skill == Skill::Elicitation && message.kind() == Kind::Request => {
                let id = message.id_text().unwrap_or("null");
                let answer = jsonrpc::response(id, r#"{"action":"decline"}"#);
                self.answer_server(item.epoch, answer, out);
                self.tally.delivered += 1;
            }
            None if message.kind() == Kind::Request => self.refuse_nobody(item, out),
            _ => self.drop_read(DropReason::NoReceiver, message.method(), 1, out),
        }
    }

    /// Whose call that is, and under which id, where it is still under way.
    fn caller(&self, call: u64) -> Option<(SessionId, RequestId)> {
        match &self.calls.get(call)?.asker {
            Asker::Host { session, id, .. } => Some((*session, id.clone())),
            Asker::Own(_) => None,
        }
    }

    fn tell_all(&mut self, message: &Message, out: &mut Outbox) {
        let all: Vec<SessionId> = self.hosts.initialized_ones().map(|(id, _)| id).collect();
        self.tell(message, &all, out);
    }

    fn tell_log(&mut self, message: &Message, out: &mut Outbox) {
        let level = string_param(message, "level").and_then(|level| host::severity(&level));
        let wants = self
            .hosts
            .initialized_ones()
            .filter(|(_, session)| session.wants_log(level));
        let sessions: Vec<SessionId> = wants.map(|(id, _)| id).collect();
        self.tell(message, &sessions, out);
    }

    fn tell_subscribers(&mut self, message: &Message, out: &mut Outbox) {
        let uri = string_param(message, "uri").unwrap_or_default();
        let sessions = self.hosts.subscribers(&uri);
        self.tell(message, &sessions, out);
    }

    /// Copies a notification to sessions.
    fn tell(&mut self, message: &Message, sessions: &[SessionId], out: &mut Outbox) {
        if sessions.is_empty() {
            return self.drop_read(DropReason::NoReceiver, message.method(), 1, out);
        }
        self.tally.delivered += 1;
        for session in sessions {
            out.answer(*session, message.raw().clone());
        }
    }
}

/// Where a request names a token for its progress.
pub(super) fn token_of(message: &Message) -> Option<jsonrpc::Span> {
    let params = message.params()?;
    memchr::memmem::find(params.as_bytes(), b"progressToken")?;
    message.param(&["_meta", "progressToken"])
}

/// The change that marks a message as forwarded a second time (G13).
fn mark(message: &Message) -> Option<(jsonrpc::Span, String)> {
    const MARK: &str = r#""tidegate/redelivered":true"#;
    let meta = message.param(&["_meta"]);
    let nested = meta.is_some();
    let span = meta.or_else(|| message.param(&[]))?;
    let text = message.text(&span);
    let inside = text.strip_prefix('{')?;
    let comma = if inside.trim_ascii_start().starts_with('}') {
        ""
    } else {
        ","
    };
    let mark = if nested {
        MARK.into()
    } else {
        format!(r#""_meta":{{{MARK}}}"#)
    };
    let at = span.start + 1;
    Some((at..at, mark + comma))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{PLAIN, Rig, field, message, push, request};
    use super::*;
    use crate::engine::settings::Settings;

    #[test]
    fn g11_a_host_command_needs_the_operators_leave() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.server(&request(1, "host/command", "{}"));
        assert_eq!(field(&rig.take_sent()[0], "error.code"), code::NOT_GRANTED);
        let mut rig = Rig::with(Settings {
            allow_host_commands: true,
            ..Settings::default()
        });
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(1, "host/command", "{}"));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "host/command");
    }

    #[test]
    fn g13_what_a_host_had_not_answered_goes_first_to_the_next_and_is_marked() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&push(1));
        rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{"_meta":{"k":1}}}"#);
        rig.event(1, crate::engine::input::HostEvent::Detached);
        rig.server(&push(3));
        assert_eq!(rig.waiting(), [2, 1, 0, 0]);
        rig.client(2, r#"{"experimental":{"mcpl":{}}}"#);
        rig.wait(Duration::from_secs(15));
        let lines = rig.take_answers(2);
        assert_eq!(field(&lines[0], "params.eventId"), "e1");
        let mark = "tidegate~1redelivered";
        for line in &lines[..2] {
            assert_eq!(field(line, &format!("params._meta.{mark}")), true, "{line}");
        }
        assert_eq!(field(&lines[1], "params._meta.k"), 1);
        assert_eq!(field(&lines[2], "method"), "ping");
        assert_eq!(field(&lines[3], "params._meta"), serde_json::Value::Null);
    }

    #[test]
    fn a_request_of_mcps_own_goes_to_the_client_whose_call_is_in_flight() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.client(1, r#"{"sampling":{}}"#);
        rig.client(2, r#"{"sampling":{}}"#);
        rig.host(2, &request(1, "tools/call", "{}"));
        rig.server(&request(1, "sampling/createMessage", "{}"));
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(
            field(&rig.take_answers(2)[0], "method"),
            "sampling/createMessage"
        );
        rig.take_sent();
        rig.server(&request(2, "elicitation/create", "{}"));
        rig.server(&request(3, "roots/list", "{}"));
        let sent = rig.take_sent();
        assert_eq!(field(&sent[0], "result.action"), "decline");
        assert_eq!(field(&sent[1], "error.code"), code::METHOD_NOT_FOUND);
    }

    #[test]
    fn a_request_that_belongs_to_a_call_goes_to_its_client_or_to_nobody() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        for session in 1..=3 {
            rig.client(
                session,
                if session == 3 {
                    "{}"
                } else {
                    r#"{"sampling":{}}"#
                },
            );
        }
        rig.take_sent();
        for session in 1..=3 {
            rig.host(session, &request(1, "tools/call", "{}"));
        }
        let sent = rig.take_sent();
        let calls: Vec<u64> = sent
            .iter()
            .map(|line| message(line).our_id().unwrap())
            .collect();
        rig.server_during(calls[1], &request(1, "sampling/createMessage", "{}"));
        assert!(rig.take_answers(1).is_empty() && !rig.take_answers(2).is_empty());
        // Its client cannot, though others could; and a call that is over has no client.
        rig.server_during(calls[2], &request(2, "sampling/createMessage", "{}"));
        rig.server_during(u64::MAX, &request(3, "sampling/createMessage", "{}"));
        assert!(rig.take_answers(1).is_empty() && rig.take_answers(2).is_empty());
        let refused = rig.take_sent();
        assert_eq!(refused.len(), 2);
        assert!(
            refused
                .iter()
                .all(|line| field(line, "error.code") == code::METHOD_NOT_FOUND)
        );
    }

    #[test]
    fn a_client_whose_call_waits_for_its_answer_is_not_asked_for_another_call() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        for session in [1, 2] {
            rig.client(session, r#"{"elicitation":{},"roots":{}}"#);
        }
        rig.host(1, &request(1, "tools/call", "{}"));
        rig.server(&request(1, "elicitation/create", "{}"));
        rig.server(&request(2, "roots/list", "{}"));
        assert_eq!(rig.take_answers(1).len(), 2);
        rig.host(2, &request(1, "tools/call", "{}"));
        rig.server(&request(3, "elicitation/create", "{}"));
        // What a server asks for beside it goes to the same.
        rig.server(&request(4, "roots/list", "{}"));
        assert_eq!(
            (rig.take_answers(1).len(), rig.take_answers(2).len()),
            (0, 2)
        );
    }

    #[test]
    fn a_stateless_client_is_asked_only_while_its_own_call_is_under_way() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        let mark = r#""experimental":{"tidegate/stateless":{}}"#;
        rig.client(1, &format!(r#"{{"elicitation":{{}},{mark}}}"#));
        rig.take_sent();
        rig.server(&request(1, "elicitation/create", "{}"));
        assert_eq!(field(&rig.take_sent()[0], "result.action"), "decline");
        rig.host(1, &request(1, "tools/call", "{}"));
        rig.server(&request(2, "elicitation/create", "{}"));
        let asked = field(&rig.take_answers(1)[0], "method");
        assert_eq!(asked, "elicitation/create");
        // Alone with its call it hears of what it cannot do, too, though another that waits could do it.
        rig.client(3, &format!(r#"{{{mark}}}"#));
        rig.host(3, &request(1, "tools/call", "{}"));
        rig.server(&request(3, "elicitation/create", "{}"));
        assert_eq!(rig.take_answers(3).len(), 1);
        for session in [2, 4] {
            rig.client(session, "{}");
            rig.host(session, &request(1, "tools/call", "{}"));
        }
        rig.take_sent();
        rig.server(&request(4, "sampling/createMessage", "{}"));
        assert_eq!(
            field(&rig.take_sent()[0], "error.code"),
            code::METHOD_NOT_FOUND
        );
    }

    #[test]
    fn logs_go_by_level_and_updates_by_subscription() {
        let mut rig = Rig::new();
        rig.adopt(r#"{"capabilities":{"logging":{},"resources":{"subscribe":true}}}"#);
        rig.client(1, "{}");
        rig.client(2, "{}");
        rig.host(1, &request(1, "logging/setLevel", r#"{"level":"error"}"#));
        rig.host(2, &request(1, "logging/setLevel", r#"{"level":"debug"}"#));
        rig.host(2, &request(2, "resources/subscribe", r#"{"uri":"a"}"#));
        rig.take_answers(1);
        rig.take_answers(2);
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}"#,
        ] {
            rig.server(line);
            assert!(rig.take_answers(1).is_empty());
            assert_eq!(rig.take_answers(2), [line]);
        }
    }
}
