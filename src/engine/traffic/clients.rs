//! The life of a host's session: `initialize`, whose place it takes, and what its end leaves to others (P1, G13).

use super::Traffic;
use crate::engine::answers::Want;
use crate::engine::decision::Decision;
use crate::engine::host::{Claim, Client, Introduction};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::output::Output;
use crate::engine::peer::Peer;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{self, Error, Message, code};

/// The same host came again (4-faces).
const REPLACED: u16 = 4408;
/// Another host is there already (4-faces).
const SECOND_HOST: u16 = 4409;

impl Traffic {
    /// Answers `initialize` from what is known of the server.
    pub(super) fn initialize(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let held = self.hosts.get(session);
        if held.is_none_or(super::Session::is_answered) {
            return self.refuse_host(session, message, ALREADY, out);
        }
        let client = Client::read(message.params().unwrap_or("{}"));
        if client.is_mcpl() && !self.takes_place(session, at, out) {
            return;
        }
        let peer = self.peer.as_ref();
        let introduction = Introduction {
            info: peer.and_then(Peer::info),
            instructions: peer.and_then(Peer::instructions),
            manifest: peer.and_then(Peer::manifest),
            is_stateless: peer.is_some_and(Peer::is_stateless),
            tasks: peer.and_then(|peer| peer.capability("tasks")),
        };
        let result = introduction.result(&client);
        self.hosts.answer(session, client);
        self.reply(session, message, &result, out);
    }

    /// One MCPL host at a time; the same one again takes its own place (4-faces).
    fn takes_place(&mut self, session: SessionId, at: Moment, out: &mut Outbox) -> bool {
        let (gone, code, reason) = match self.hosts.claim(session, self.settings.replace_host) {
            Claim::Free => return true,
            Claim::Replaces(old) => (old, REPLACED, "replaced by a new session"),
            Claim::Refused => (session, SECOND_HOST, "another host is connected"),
        };
        self.detach(gone, at, out);
        out.push(Output::Dismiss {
            session: gone,
            code,
            reason,
        });
        gone != session
    }

    pub(super) fn initialized(&mut self, session: SessionId, at: Moment) {
        let deadline = at.now.checked_add(self.settings.policy_timeout);
        self.hosts.initialized(session, deadline);
    }

    /// A session went: its calls are cancelled, and what it had not answered waits for the next host (G13).
    pub(super) fn detach(&mut self, session: SessionId, at: Moment, out: &mut Outbox) {
        if self.hosts.detach(session).is_none() {
            return;
        }
        out.decide(None, Decision::HostDetached);
        self.replays.retain(|(of, _)| *of != session);
        self.streams.detach(session);
        self.hold_for_host(at, out);
        for id in self.calls.of(session) {
            if let Some(call) = self.calls.abandon(id) {
                self.cancel_at_server(id, "the caller went", out);
                self.end_call(session, id, &call, Some("cancelled".into()), at, out);
            }
        }
        self.take_down(at, out);
        for ask in self.asks.detach(session) {
            if let Some(seq) = ask.waiting {
                self.recall(seq, out);
            }
            if let Want::Channels { ticket } = ask.want {
                self.unregister(ticket, at, out);
            }
            if let (None, Some(id)) = (ask.waiting, ask.id) {
                let error = Error::new(
                    code::BUSY,
                    "the client went without answering; try again later",
                );
                self.answer_server(ask.epoch, jsonrpc::error_response(id.as_str(), &error), out);
            }
        }
    }

    /// Ends every session.
    pub(in crate::engine) fn dismiss(
        &mut self,
        code: u16,
        reason: &'static str,
        at: Moment,
        out: &mut Outbox,
    ) {
        for session in self.hosts.ids() {
            self.detach(session, at, out);
            out.push(Output::Dismiss {
                session,
                code,
                reason,
            });
        }
        self.finish(out);
    }
}

const ALREADY: (i64, &str) = (code::INVALID_REQUEST, "`initialize` was answered before");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, Rig, field};
    use super::*;
    use crate::engine::input::HostEvent;
    use crate::engine::settings::Settings;

    const MCPL: &str = r#"{"experimental":{"mcpl":{"version":"0.5"}}}"#;

    fn attach(rig: &mut Rig, session: u64, name: Option<&str>) {
        let name = name.map(str::to_owned);
        rig.event(session, HostEvent::Attached { name });
    }

    fn initialize(rig: &mut Rig, session: u64, version: &str, capabilities: &str) -> String {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities}}}}}"#
        );
        rig.host(session, &line);
        rig.take_answers(session).pop().unwrap_or_default()
    }

    #[test]
    fn initialize_is_answered_at_once_from_what_is_known() {
        let mut rig = Rig::new();
        attach(&mut rig, 1, None);
        let answer = initialize(&mut rig, 1, "1999-01-01", "{}");
        assert_eq!(field(&answer, "result.protocolVersion"), "2025-11-25");
        assert_eq!(field(&answer, "result.serverInfo.name"), "tidegate");
        assert_eq!(
            field(&answer, "result.capabilities.resources.subscribe"),
            true
        );
        assert_eq!(
            field(&answer, "result.capabilities.experimental"),
            serde_json::Value::Null
        );
        rig.adopt(&CHAT.replace(
            r#"{"capabilities""#,
            r#"{"serverInfo":{"name":"chat"},"instructions":"i","capabilities""#,
        ));
        rig.take_sent();
        rig.lose();
        attach(&mut rig, 2, None);
        let answer = initialize(&mut rig, 2, "2024-11-05", MCPL);
        assert_eq!(field(&answer, "result.protocolVersion"), "2024-11-05");
        assert_eq!(field(&answer, "result.serverInfo.name"), "chat");
        assert_eq!(field(&answer, "result.instructions"), "i");
        assert_eq!(
            field(&answer, "result.capabilities.experimental.mcpl.pushEvents"),
            true
        );
        let again = initialize(&mut rig, 2, "2024-11-05", MCPL);
        assert_eq!(field(&again, "error.code"), code::INVALID_REQUEST);
    }

    #[test]
    fn a_stateless_client_alone_is_told_that_its_server_is_stateless() {
        let mark = r#"{"experimental":{"tidegate/stateless":{}}}"#;
        let told = |server: &str, client| {
            let mut rig = Rig::new();
            rig.adopt(server);
            attach(&mut rig, 1, None);
            let answer = initialize(&mut rig, 1, "2025-11-25", client);
            field(&answer, "result.capabilities.experimental")
        };
        let stateless = format!(r#"{{"capabilities":{mark}}}"#);
        let wanted = serde_json::json!({"tidegate/stateless": {}});
        assert_eq!(told(&stateless, mark), wanted);
        let nothing = serde_json::Value::Null;
        assert_eq!(told(&stateless, "{}"), nothing);
        assert_eq!(told(r#"{"capabilities":{}}"#, mark), nothing);
    }

    #[test]
    fn tasks_are_offered_where_the_server_has_them_and_the_revision_too() {
        let mut rig = Rig::new();
        rig.adopt(r#"{"capabilities":{"tasks":{"list":{}}}}"#);
        for (session, revision, offered) in [(1, "2025-11-25", true), (2, "2025-06-18", false)] {
            attach(&mut rig, session, None);
            let answer = initialize(&mut rig, session, revision, "{}");
            let tasks = field(&answer, "result.capabilities.tasks");
            assert_eq!(
                tasks == serde_json::json!({"list": {}}),
                offered,
                "{answer}"
            );
        }
    }

    #[test]
    fn the_same_host_takes_its_own_place_and_another_is_refused() {
        let mut rig = Rig::new();
        attach(&mut rig, 1, Some("agent"));
        initialize(&mut rig, 1, "2025-06-18", MCPL);
        attach(&mut rig, 2, Some("other"));
        assert_eq!(initialize(&mut rig, 2, "2025-06-18", MCPL), "");
        assert_eq!(rig.take_dismissed(), [(2, SECOND_HOST)]);
        attach(&mut rig, 3, Some("agent"));
        assert_ne!(initialize(&mut rig, 3, "2025-06-18", MCPL), "");
        assert_eq!(rig.take_dismissed(), [(1, REPLACED)]);
        attach(&mut rig, 4, Some("other"));
        assert_ne!(initialize(&mut rig, 4, "2025-06-18", "{}"), "");
        assert!(rig.take_dismissed().is_empty());
    }

    #[test]
    fn two_hosts_without_names_are_not_the_same_unless_the_operator_lets_one_replace_the_other() {
        for replace_host in [false, true] {
            let mut rig = Rig::with(Settings {
                replace_host,
                ..Settings::default()
            });
            for session in 1..=2 {
                attach(&mut rig, session, None);
                initialize(&mut rig, session, "2025-06-18", MCPL);
            }
            let wanted = if replace_host {
                (1, REPLACED)
            } else {
                (2, SECOND_HOST)
            };
            assert_eq!(rig.take_dismissed(), [wanted]);
        }
    }

    #[test]
    fn p1_a_host_that_sends_no_policy_serves_after_the_timeout_and_that_is_reported() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        rig.wait(Duration::from_millis(14_999));
        assert!(rig.traffic.hosts.serving().is_none());
        rig.wait(Duration::from_millis(1));
        assert!(
            rig.decisions
                .contains(&Decision::HostServes { unasked: true })
        );
    }

    #[test]
    fn a_session_that_goes_has_its_calls_cancelled_and_leaves_others_alone() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.client(1, "{}");
        rig.client(2, "{}");
        for session in [1, 2] {
            rig.host(session, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        }
        let sent = rig.take_sent();
        let first = field(&sent[sent.len() - 2], "id");
        rig.event(1, HostEvent::Detached);
        let cancel = rig.take_sent();
        assert_eq!(field(&cancel[0], "params.requestId"), first);
        assert_eq!(cancel.len(), 1);
    }

    #[test]
    fn g13_a_request_that_is_no_world_message_is_answered_when_its_host_goes() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.server(r#"{"jsonrpc":"2.0","id":"r","method":"inference/request","params":{}}"#);
        rig.event(1, HostEvent::Detached);
        let answer = &rig.take_sent()[0];
        assert_eq!(
            (field(answer, "id"), field(answer, "error.code")),
            ("r".into(), code::BUSY.into())
        );
    }
}
