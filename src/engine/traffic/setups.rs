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

/// The text of a string among a message's params.
pub(super) fn string_param(message: &Message, key: &str) -> Option<String> {
    let span = message.param(&[key])?;
    serde_json::from_str(message.text(&span)).ok()
}

const UNKNOWN_LEVEL: (i64, &str) = (code::INVALID_PARAMS, "unknown log level");
const TOO_MANY: (i64, &str) = (code::BUSY, "too many subscriptions");

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, field};
    use super::*;
    use crate::engine::input::HostEvent;

    const SERVER: &str = r#"{"capabilities":{"logging":{},"resources":{"subscribe":true}}}"#;

    fn ask(rig: &mut Rig, session: u64, name: &str, key: &str, value: &str) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":{{"{key}":"{value}"}}}}"#
        );
        rig.host(session, &line);
    }

    fn told(rig: &mut Rig) -> Vec<String> {
        let sent = rig
            .take_sent()
            .into_iter()
            .filter(|line| !line.contains("/list\""));
        sent.map(|line| {
            let value = ["level", "uri"].map(|key| field(&line, &format!("params.{key}")));
            let value = value.iter().find_map(|value| value.as_str());
            format!(
                "{} {}",
                field(&line, "method").as_str().unwrap(),
                value.unwrap_or("?")
            )
        })
        .collect()
    }

    fn two_clients() -> Rig {
        let mut rig = Rig::new();
        rig.adopt(SERVER);
        rig.client(1, "{}");
        rig.client(2, "{}");
        rig.take_sent();
        rig
    }

    #[test]
    fn g15_the_most_verbose_level_is_told_and_only_where_it_changes() {
        let mut rig = two_clients();
        ask(&mut rig, 1, "logging/setLevel", "level", "error");
        ask(&mut rig, 2, "logging/setLevel", "level", "info");
        ask(&mut rig, 1, "logging/setLevel", "level", "warning");
        assert_eq!(
            told(&mut rig),
            ["logging/setLevel error", "logging/setLevel info"]
        );
        assert_eq!(rig.take_answers(1).len(), 2);
        rig.event(2, HostEvent::Detached);
        assert_eq!(told(&mut rig), ["logging/setLevel warning"]);
        ask(&mut rig, 1, "logging/setLevel", "level", "loud");
        assert_eq!(
            field(&rig.take_answers(1)[0], "error.code"),
            code::INVALID_PARAMS
        );
    }

    #[test]
    fn g15_a_resource_is_subscribed_once_and_until_its_last_subscriber_goes() {
        let mut rig = two_clients();
        for session in [1, 2] {
            ask(&mut rig, session, "resources/subscribe", "uri", "a");
        }
        assert_eq!(told(&mut rig), ["resources/subscribe a"]);
        assert_eq!(rig.take_answers(2).len(), 1);
        ask(&mut rig, 1, "resources/unsubscribe", "uri", "a");
        assert!(told(&mut rig).is_empty());
        rig.event(2, HostEvent::Detached);
        assert_eq!(told(&mut rig), ["resources/unsubscribe a"]);
    }

    #[test]
    fn g15_what_hosts_set_up_is_set_up_again_on_the_next_transport() {
        let mut rig = two_clients();
        ask(&mut rig, 1, "logging/setLevel", "level", "error");
        ask(&mut rig, 1, "resources/subscribe", "uri", "a");
        rig.take_sent();
        rig.lose();
        ask(&mut rig, 2, "resources/subscribe", "uri", "b");
        assert_eq!(
            field(rig.take_answers(2).last().unwrap(), "result"),
            serde_json::json!({})
        );
        rig.adopt(SERVER);
        let wanted = [
            "logging/setLevel error",
            "resources/subscribe a",
            "resources/subscribe b",
        ];
        assert_eq!(told(&mut rig), wanted);
    }

    #[test]
    fn a_subscription_that_the_server_refuses_can_be_asked_for_again() {
        let mut rig = two_clients();
        for _ in 0..2 {
            ask(&mut rig, 1, "resources/subscribe", "uri", "a");
            let sent = rig.take_sent();
            let id = field(&sent[0], "id");
            rig.server(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32002,"message":"m"}}}}"#
            ));
            assert_eq!(field(&rig.take_answers(1)[0], "error.code"), -32002);
        }
    }
}
