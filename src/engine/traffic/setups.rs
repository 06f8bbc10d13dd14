//! Log levels and subscriptions of hosts as traffic: told to the server where they change what it must do, and again on
//! each new transport (G15).

use super::Traffic;
use crate::engine::answers::Own;
use crate::engine::host;
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::peer::Peer;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{Message, code, quoted};
use crate::wire::mcp::method;

impl Traffic {
    /// A host sets the level of its log messages.
    pub(super) fn set_level(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let level = string_param(message, "level");
        let held = self.hosts.get_mut(session);
        let set = held.is_some_and(|held| held.set_level(&level.unwrap_or_default()));
        if !set {
            return self.refuse_host(session, message, UNKNOWN_LEVEL, out);
        }
        self.reply(session, message, "{}", out);
        self.tell_level(at, out);
    }

    /// Tells the server the most verbose level that anybody wants, where it does not know.
    fn tell_level(&mut self, at: Moment, out: &mut Outbox) {
        let wanted = self.hosts.level();
        let logs = self
            .peer
            .as_ref()
            .is_some_and(|peer| peer.offers("logging"));
        if !logs || !self.can_set_up() || !self.setup.take_level(wanted) {
            return;
        }
        let level = quoted(host::level_name(wanted.unwrap_or_default()));
        let params = format!(r#"{{"level":{level}}}"#);
        self.ask_server(Own::Setting, method::SET_LEVEL, &params, at, out);
    }

    /// What hosts set up waits for the exchange, and is then sent as a whole.
    fn can_set_up(&self) -> bool {
        self.serving.is_some() && self.policy.is_settled()
    }

    /// A host wants updates of a resource.
    pub(super) fn subscribe(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let uri = string_param(message, "uri").unwrap_or_default();
        let held = self.hosts.get_mut(session);
        if !held.is_some_and(|held| held.subscribe(&uri)) {
            return self.refuse_host(session, message, TOO_MANY, out);
        }
        if !self.can_set_up() || !self.setup.take_subscription(&uri) {
            return self.reply(session, message, "{}", out);
        }
        match self.forward(session, message, at, out) {
            Some(id) => self.setup.ask(id, session, &uri),
            None => {
                self.setup.end_subscription(&uri);
            }
        }
    }

    /// A host wants them no more. `false`: its request goes on to the server.
    pub(super) fn unsubscribe(
        &mut self,
        session: SessionId,
        message: &Message,
        out: &mut Outbox,
    ) -> bool {
        let Some(uri) = string_param(message, "uri") else {
            return false;
        };
        if let Some(held) = self.hosts.get_mut(session) {
            held.unsubscribe(&uri);
        }
        let wanted = !self.hosts.subscribers(&uri).is_empty();
        if self.can_set_up() && !wanted && self.setup.end_subscription(&uri) {
            return false;
        }
        self.reply(session, message, "{}", out);
        true
    }

    /// A request for a subscription is over.
    pub(super) fn subscribed(&mut self, id: u64, failed: bool) {
        if let Some((session, uri)) = self.setup.answered(id, failed)
            && let Some(held) = self.hosts.get_mut(session)
        {
            held.unsubscribe(&uri);
        }
    }

    /// A new transport's exchange has settled: what hosts had set up is set up again (G15).
    pub(super) fn set_up(&mut self, at: Moment, out: &mut Outbox) {
        self.setup.forget();
        self.tell_level(at, out);
        if !self.peer.as_ref().is_some_and(Peer::takes_subscriptions) {
            return;
        }
        for uri in self.hosts.subscriptions() {
            if self.setup.take_subscription(&uri) {
                self.tell_subscription(method::RESOURCES_SUBSCRIBE, &uri, at, out);
            }
        }
    }

    /// A session went: what it alone had set up is taken back.
    pub(super) fn take_down(&mut self, at: Moment, out: &mut Outbox) {
        self.tell_level(at, out);
        for uri in self.setup.unwanted(&self.hosts.subscriptions()) {
            self.setup.end_subscription(&uri);
            self.tell_subscription(method::RESOURCES_UNSUBSCRIBE, &uri, at, out);
        }
    }

    fn tell_subscription(&mut self, name: &str, uri: &str, at: Moment, out: &mut Outbox) {
        let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
        self.ask_server(Own::Setting, name, &params, at, out);
    }
}

fn string_param(message: &Message, key: &str) -> Option<String> {
    let span = message.param(&[key])?;
    serde_json::from_str(message.text(&span)).ok()
}

const UNKNOWN_LEVEL: (i64, &str) = (code::INVALID_PARAMS, "unknown log level");
const TOO_MANY: (i64, &str) = (code::BUSY, "too many subscriptions");
