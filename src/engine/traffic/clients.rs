//! The life of a host's session: `initialize`, whose place it takes, and what its end leaves to others (P1, G13).

use super::Traffic;
use crate::engine::answers::Want;
use crate::engine::decision::{Class, Decision};
use crate::engine::host::{Claim, Client, Introduction};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::output::Output;
use crate::engine::peer::Peer;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{self, Error, Message, code};
use crate::wire::mcp::method;

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
        self.hold_for_host(at, out);
        for id in self.calls.of(session) {
            self.withdraw(id, out);
        }
        self.take_down(at, out);
        for ask in self.asks.detach(session) {
            if let Some(seq) = ask.waiting {
                self.recall(seq, out);
            }
            if let Want::Channels { ticket } = ask.want {
                self.channels.resume(ticket);
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

    /// Tells the server that nobody waits for an answer any more.
    fn withdraw(&mut self, id: u64, out: &mut Outbox) {
        if self.calls.abandon(id).is_none() {
            return;
        }
        let params = format!(r#"{{"requestId":{id},"reason":"the caller went"}}"#);
        let cancel = jsonrpc::notification(method::CANCELLED, Some(&params));
        if let Some(epoch) = self.serving {
            out.send(epoch, Class::Notification, cancel, None);
        }
    }
}

const ALREADY: (i64, &str) = (code::INVALID_REQUEST, "`initialize` was answered before");
