//! The lists of tools, resources and prompts as traffic: read after each exchange, kept for hosts while the server is
//! away, and masked (4-faces; A6).

use bytes::Bytes;

use super::Traffic;
use super::setups::string_param;
use crate::engine::answers::{Asker, Call, Own};
use crate::engine::decision::{Class, Decision, Hold};
use crate::engine::input::Moment;
use crate::engine::inventory::{self, List, Read};
use crate::engine::outbox::Outbox;
use crate::engine::peer::Peer;
use crate::engine::timers::Timer;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{self, Message, code, member, quoted};
use crate::wire::mcp::{self, method};

impl Traffic {
    /// The serving transport's exchange has settled: its lists may differ from those of the last one.
    pub(super) fn read_lists(&mut self, at: Moment, out: &mut Outbox) {
        for list in List::ALL {
            if self.has_list(list) {
                self.inventory.want(list, true);
            } else if self.inventory.clear(list) {
                self.tell_change(list.change(), out);
            }
        }
        self.read_next_list(at, out);
    }

    /// Whether the server told that it has that list.
    fn has_list(&self, list: List) -> bool {
        let peer = self.peer.as_ref();
        peer.is_some_and(|peer| peer.offers(list.capability()))
    }

    /// The server said that some of its lists changed: hosts are told by its own message.
    pub(super) fn reread_lists(&mut self, name: &str, at: Moment, out: &mut Outbox) {
        for list in inventory::changed_lists(name) {
            if self.has_list(list) {
                self.inventory.want(list, false);
            }
        }
        let wakes_wait = self.peer.as_ref().is_some_and(Peer::is_mcpl);
        if wakes_wait && self.inventory.is_reading(List::Tools) && name == method::TOOLS_CHANGED {
            self.gate.hold(Hold::ListRefresh, at.now);
        }
        self.read_next_list(at, out);
    }

    fn read_next_list(&mut self, at: Moment, out: &mut Outbox) {
        if let Some((name, params)) = self.inventory.start() {
            self.ask_server(Own::List, name, params, at, out);
        }
        if !self.inventory.is_reading(List::Tools) {
            self.lift(Hold::ListRefresh, at, out);
        }
    }

    /// Sends a request of our own; `None` where no transport serves.
    pub(super) fn ask_server(
        &mut self,
        own: Own,
        name: &str,
        params: &str,
        at: Moment,
        out: &mut Outbox,
    ) -> Option<u64> {
        let epoch = self.serving?;
        let limit = match own {
            Own::Manifest | Own::Exchange => self.settings.policy_timeout,
            Own::List | Own::Setting | Own::Post(_) => self.settings.request_timeout,
        };
        let call = Call::new(Asker::Own(own), name, at.now, Timer::OwnRequest, limit);
        let id = self.calls.open(call);
        let frame = jsonrpc::request(id, name, params);
        out.send(epoch, Class::Request, frame, Some(id));
        Some(id)
    }

    /// A page of a list came.
    pub(super) fn take_page(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let (read, cursor) = match message.result() {
            Some(result) => self.inventory.read(result),
            // Many servers with resources have no templates, and say so in this way.
            None if is_unknown_method(message) => (self.inventory.lack(), String::new()),
            None => return self.fail_page("a list: the server answered with an error", at, out),
        };
        match read {
            Read::More => {
                if let Some((name, params)) = self.inventory.next_page(&cursor) {
                    self.ask_server(Own::List, name, &params, at, out);
                }
                return;
            }
            Read::Changed(name) => self.tell_change(name, out),
            Read::Done => {}
            Read::Failed(why) => return self.fail_page(why, at, out),
        }
        self.read_next_list(at, out);
    }

    /// A list could not be read: what was known stays.
    pub(super) fn fail_page(&mut self, why: &str, at: Moment, out: &mut Outbox) {
        self.inventory.fail();
        let text = format!("could not read {why}");
        out.decide(self.serving, Decision::Reported(text));
        self.read_next_list(at, out);
    }

    /// Tells every session that a list changed.
    fn tell_change(&self, name: &str, out: &mut Outbox) {
        let frame = jsonrpc::notification(name, None);
        for (session, _) in self.hosts.initialized_ones() {
            out.answer(session, frame.clone());
        }
    }

    /// The mask over tools changed: what hosts saw of them is not what they see now.
    pub(super) fn remask(&self, out: &mut Outbox) {
        self.tell_change(List::Tools.change(), out);
    }

    /// Answers a host's request for a list from what is known, where the server cannot or the host does not wait for
    /// it; `false` where the server is asked.
    pub(super) fn answer_list(
        &mut self,
        list: List,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) -> bool {
        let from_server = self.serving.is_some() && self.has_list(list);
        let waits = !asks_for_known(message);
        if from_server && waits {
            return false;
        }
        if string_param(message, "cursor").is_some() {
            self.refuse_host(session, message, NO_SUCH_CURSOR, out);
            return true;
        }
        let page = self.known_page(list);
        self.reply(session, message, &page, out);
        if from_server {
            // Whoever does not wait is told once the list is found to be another.
            self.inventory.want(list, true);
            self.read_next_list(at, out);
        }
        true
    }

    /// A list as last known, as one page that says so, or that it never was.
    fn known_page(&self, list: List) -> String {
        let mask = &self.settings.mask;
        let shows = |name: &str| list != List::Tools || mask.shows_tool(name);
        let items = self.inventory.items(list, shows);
        let key = list.key();
        if self.peer.is_some() && !self.has_list(list) {
            return format!(r#"{{"{key}":{items}}}"#);
        }
        let mark = if self.inventory.knows(list) {
            mcp::STALE
        } else {
            mcp::MISSING
        };
        let server = quoted(&self.settings.server);
        let state = self.state().label();
        format!(
            r#"{{"{key}":{items},"_meta":{{"{mark}":[{{"server":{server},"state":"{state}"}}]}}}}"#
        )
    }

    /// Refuses a call of a tool that the mask hides; `false` where it may go on.
    pub(super) fn refuse_hidden(
        &self,
        session: SessionId,
        message: &Message,
        out: &mut Outbox,
    ) -> bool {
        let mask = &self.settings.mask;
        if !mask.hides_tools() {
            return false;
        }
        let hidden = string_param(message, "name").is_none_or(|name| !mask.shows_tool(&name));
        if hidden {
            self.refuse_host(
                session,
                message,
                (code::INVALID_PARAMS, "unknown tool"),
                out,
            );
        }
        hidden
    }

    /// The server's answer to a host's request, with the tools that the mask hides taken out of a list of them.
    pub(super) fn masked_answer(&self, name: &str, message: &Message, id: &str) -> Bytes {
        let mask = &self.settings.mask;
        if name != method::TOOLS_LIST || !mask.hides_tools() {
            return message.with_id(id);
        }
        let span = message.in_result(&[List::Tools.key()]);
        let shown = span.and_then(|span| {
            let shown = inventory::filtered(message.text(&span), |name| mask.shows_tool(name))?;
            Some((span, shown))
        });
        match shown {
            Some((span, shown)) => message.with(id, &[(span, &shown)]),
            None if message.result().is_some() => jsonrpc::response(id, r#"{"tools":[]}"#),
            None => message.with_id(id),
        }
    }
}

const NO_SUCH_CURSOR: (i64, &str) = (
    code::INVALID_PARAMS,
    "the server that gave this cursor is away; list again without one",
);

/// A host that takes a list as last known rather than wait for the server.
fn asks_for_known(message: &Message) -> bool {
    let asked = message.param(&["_meta", mcp::KNOWN]);
    asked.is_some_and(|span| message.text(&span) == "true")
}

fn is_unknown_method(message: &Message) -> bool {
    let code = message.error().and_then(|error| member(error, "code"));
    code.is_some_and(|text| text.parse() == Ok(code::METHOD_NOT_FOUND))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, PLAIN, Rig, field, request};
    use super::*;
    use crate::engine::settings::{Mask, Settings};

    const TOOLS: &str = r#"{"capabilities":{"tools":{"listChanged":true}}}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;

    /// The answer to [`LIST`] of a server that is away; the rig does not say how.
    fn away(tools: &str, mark: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":{tools},"_meta":{{"tidegate/{mark}":[{{"server":"","state":"disabled"}}]}}}}}}"#
        )
    }

    fn masked() -> Rig {
        Rig::with(Settings {
            mask: Mask {
                disabled_tools: vec!["rm*".into()],
                ..Mask::default()
            },
            ..Settings::default()
        })
    }

    /// The server answers the last request for its tools.
    fn answer(rig: &mut Rig, tools: &str) {
        let sent = rig.take_sent();
        let request = sent
            .iter()
            .rev()
            .find(|line| line.contains("tools/list"))
            .unwrap();
        let id = field(request, "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#
        ));
    }

    #[test]
    fn a_host_gets_the_lists_as_they_last_were_while_the_server_is_away() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        rig.host(1, LIST);
        assert_eq!(rig.take_answers(1), [away("[]", "missing")]);
        rig.adopt(TOOLS);
        answer(&mut rig, r#"[{"name":"a"}]"#);
        let told = rig.take_answers(1);
        assert_eq!(
            field(&told[0], "method"),
            "notifications/tools/list_changed"
        );
        rig.lose();
        rig.host(1, LIST);
        let wanted = away(r#"[{"name":"a"}]"#, "stale");
        assert_eq!(rig.take_answers(1), [wanted]);
    }

    #[test]
    fn a_page_of_a_server_that_is_away_cannot_be_had() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        rig.adopt(TOOLS);
        answer(&mut rig, r#"[{"name":"a"}]"#);
        rig.lose();
        rig.take_answers(1);
        rig.host(1, &request(1, "tools/list", r#"{"cursor":"2"}"#));
        let refused = &rig.take_answers(1)[0];
        assert_eq!(field(refused, "error.code"), code::INVALID_PARAMS);
    }

    #[test]
    fn a_host_that_does_not_wait_gets_what_is_known_and_is_told_of_what_is_not() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        rig.adopt(TOOLS);
        let known = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list","params":{"_meta":{"tidegate/known":true}}}"#;
        rig.host(1, known);
        let answered = rig.take_answers(1);
        assert_eq!(
            answered,
            [away("[]", "missing").replace("disabled", "open")]
        );
        answer(&mut rig, r#"[{"name":"a"}]"#);
        assert_eq!(rig.take_answers(1).len(), 1);
        // It is read again, for it may have changed without a word.
        for (tools, told) in [("a", 0), ("b", 1)] {
            answer(&mut rig, &format!(r#"[{{"name":"{tools}"}}]"#));
            assert_eq!(rig.take_answers(1).len(), told);
            rig.host(1, known);
            let wanted = away(&format!(r#"[{{"name":"{tools}"}}]"#), "stale");
            assert_eq!(rig.take_answers(1), [wanted.replace("disabled", "open")]);
        }
    }

    #[test]
    fn a_list_that_the_server_is_known_to_lack_is_not_missing_while_it_is_away() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        rig.adopt(r#"{"capabilities":{"resources":{}}}"#);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"result":{"resources":[]}}"#);
        rig.server(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"m"}}"#);
        rig.lose();
        for (list, mark) in [
            ("tools/list", false),
            ("resources/list", true),
            ("resources/templates/list", true),
        ] {
            rig.host(1, &request(1, list, "{}"));
            let answer = &rig.take_answers(1)[0];
            assert_eq!(answer.contains("tidegate/stale"), mark, "{answer}");
            assert!(!answer.contains("tidegate/missing"), "{answer}");
        }
    }

    #[test]
    fn a6_hosts_are_told_after_a_reconnect_only_what_changed() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        for (tools, told) in [("[1]", 1), ("[1]", 0), ("[2]", 1)] {
            rig.adopt(TOOLS);
            answer(&mut rig, tools);
            assert_eq!(rig.take_answers(1).len(), told, "{tools}");
            rig.lose();
        }
        rig.adopt(PLAIN);
        assert_eq!(rig.take_answers(1).len(), 1);
    }

    #[test]
    fn a_servers_own_change_is_forwarded_and_read_again_and_told_once() {
        let mut rig = Rig::new();
        rig.client(1, "{}");
        rig.adopt(TOOLS);
        answer(&mut rig, "[]");
        rig.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        assert_eq!(rig.take_answers(1).len(), 1);
        answer(&mut rig, r#"[{"name":"b"}]"#);
        assert!(rig.take_answers(1).is_empty());
    }

    #[test]
    fn g3_world_messages_wait_while_an_mcpl_servers_tools_are_read_again() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.accept();
        answer(&mut rig, "[]");
        rig.take_answers(1);
        rig.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"method":"push/event"}"#);
        assert_eq!(rig.take_answers(1).len(), 1);
        answer(&mut rig, "[]");
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "push/event");
        rig.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        rig.server(r#"{"jsonrpc":"2.0","id":2,"method":"push/event"}"#);
        rig.wait(Duration::from_secs(60));
        assert!(
            rig.take_answers(1)
                .iter()
                .any(|line| line.contains("push/event"))
        );
    }

    #[test]
    fn a_hidden_tool_is_in_no_list_and_cannot_be_called() {
        let mut rig = masked();
        rig.client(1, "{}");
        rig.adopt(TOOLS);
        answer(&mut rig, r#"[{"name":"rm"},{"name":"a"}]"#);
        rig.take_answers(1);
        rig.host(1, LIST);
        let id = field(&rig.take_sent()[0], "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"rm"}},{{"name":"a","n":1.0}}],"nextCursor":"c"}}}}"#
        ));
        let wanted = r#"{"jsonrpc":"2.0","id":"l","result":{"tools":[{"name":"a","n":1.0}],"nextCursor":"c"}}"#;
        assert_eq!(rig.take_answers(1), [wanted]);
        rig.host(
            1,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}"#,
        );
        assert_eq!(
            field(&rig.take_answers(1)[0], "error.code"),
            code::INVALID_PARAMS
        );
        rig.host(
            1,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#,
        );
        assert_eq!(rig.take_sent().len(), 1);
        rig.lose();
        rig.take_answers(1);
        rig.host(1, LIST);
        assert_eq!(rig.take_answers(1), [away(r#"[{"name":"a"}]"#, "stale")]);
    }

    #[test]
    fn a_list_that_the_server_does_not_have_is_empty() {
        let mut rig = Rig::new();
        rig.adopt(TOOLS);
        rig.client(1, "{}");
        rig.take_sent();
        rig.host(1, r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#);
        assert_eq!(
            field(&rig.take_answers(1)[0], "result.prompts"),
            serde_json::json!([])
        );
        assert!(rig.take_sent().is_empty());
    }
}
