//! What each request to a stateless server says of its sender, put into a session's request while every other byte
//! stays as it was (A2). It answers nothing.

use bytes::Bytes;

use crate::revision::stateless::{VERSION, key};
use crate::wire::jsonrpc::{Message, Span, member};
use crate::wire::object::{Change, edited};

/// Members of `_meta` that are a request's own, never its sender's.
const OWN: [&str; 4] = [
    key::PROTOCOL_VERSION,
    key::CLIENT_INFO,
    key::CLIENT_CAPABILITIES,
    key::LOG_LEVEL,
];

/// What can be answered to a server, of what `initialize` offers; the rest is of sessions.
const CAPABILITIES: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The members that all requests of one epoch carry.
#[derive(Debug)]
pub(super) struct Stamp {
    sender: String,
    /// JSON text.
    level: Option<String>,
}

impl Stamp {
    /// From the engine's own `initialize`.
    pub(super) fn new(initialize: &Message) -> Self {
        let params = initialize.params().unwrap_or("{}");
        let info = member(params, "clientInfo").unwrap_or(r#"{"name":"tidegate","version":"0"}"#);
        let offered = member(params, "capabilities").unwrap_or("{}");
        let offered = CAPABILITIES
            .iter()
            .filter(|name| member(offered, name).is_some());
        let offered: Vec<String> = offered.map(|name| format!(r#""{name}":{{}}"#)).collect();
        let sender = format!(
            r#""{}":"{VERSION}","{}":{info},"{}":{{{}}}"#,
            key::PROTOCOL_VERSION,
            key::CLIENT_INFO,
            key::CLIENT_CAPABILITIES,
            offered.join(",")
        );
        let level = None;
        Self { sender, level }
    }

    /// From now on requests may cause log messages from this level on, given as JSON text.
    pub(super) fn set_level(&mut self, level: &str) {
        self.level = Some(level.to_owned());
    }

    /// The members, without braces.
    pub(super) fn members(&self) -> String {
        match &self.level {
            Some(level) => format!(r#"{},"{}":{level}"#, self.sender, key::LOG_LEVEL),
            None => self.sender.clone(),
        }
    }

    /// The request under this id, with the members in its `_meta` and `more` members, without braces, in its params.
    ///
    /// # Errors
    /// Where it has params that can take no members.
    pub(super) fn put(
        &self,
        request: &Message,
        id: &str,
        more: &str,
    ) -> Result<Bytes, &'static str> {
        let meta = format!(r#""_meta":{{{}}}"#, self.members());
        let Some(params) = request.param(&[]) else {
            let end = request.raw().iter().rposition(|byte| *byte == b'}');
            let end = end.unwrap_or(request.len());
            let params = format!(r#","params":{{{}}}"#, joined(&meta, more));
            return Ok(request.with(id, &[(end..end, &params)]));
        };
        if !request.text(&params).starts_with('{') {
            return Err("`params` must be an object");
        }
        let Some(span) = request.param(&["_meta"]) else {
            let (place, text) = grown(request, &params, &joined(&meta, more));
            return Ok(request.with(id, &[(place, &text)]));
        };
        let (place, meta) = self.grown_meta(request, span)?;
        let mut changes = vec![(place, meta.as_str())];
        let (at, text) = grown(request, &params, more);
        if !more.is_empty() {
            changes.push((at, &text));
        }
        Ok(request.with(id, &changes))
    }

    fn grown_meta(&self, request: &Message, span: Span) -> Result<(Span, String), &'static str> {
        let text = request.text(&span);
        if !text.starts_with('{') {
            return Err("`_meta` must be an object");
        }
        if memchr::memmem::find(text.as_bytes(), key::PREFIX.as_bytes()).is_none() {
            return Ok(grown(request, &span, &self.members()));
        }
        let others = edited(text, |name, _| match name {
            name if OWN.contains(&name) => Change::Remove,
            _ => Change::Keep,
        });
        let others = others.ok_or("`_meta` must be an object")?;
        let inner = others.trim_matches(['{', '}'].as_slice());
        let inner = others.get(1..others.len() - 1).unwrap_or(inner);
        Ok((span, format!("{{{}}}", joined(&self.members(), inner))))
    }
}

/// Whether a request comes from a stateless client, whose own members it carries (decision 0015).
pub(super) fn is_stamped(request: &Message) -> bool {
    request
        .param(&["_meta", key::CLIENT_CAPABILITIES])
        .is_some()
}

fn joined(one: &str, other: &str) -> String {
    match (one, other) {
        (one, "") => one.to_owned(),
        ("", other) => other.to_owned(),
        (one, other) => format!("{one},{other}"),
    }
}

/// The place at the beginning of an object for members, and these with the comma that they need there.
fn grown(request: &Message, object: &Span, members: &str) -> (Span, String) {
    let inner = request.text(object).get(1..).unwrap_or_default();
    let is_empty = inner.trim_ascii_start().starts_with('}');
    let at = object.start + 1;
    let comma = if is_empty { "" } else { "," };
    (at..at, format!("{members}{comma}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn stamp() -> Stamp {
        Stamp::new(&message(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"t","version":"1"},
               "capabilities":{"roots":{"listChanged":true},"sampling":{},"experimental":{"mcpl":{}}}}}"#,
        ))
    }

    fn put(stamp: &Stamp, params: &str, more: &str) -> String {
        let request = message(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"m"{params}}}"#
        ));
        let bytes = stamp.put(&request, "\"x\"", more).unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    const SENDER: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"roots":{}}"#;

    #[test]
    fn a2_members_are_put_in_and_every_other_byte_is_copied() {
        let stamp = stamp();
        let begin = r#"{"jsonrpc":"2.0","id":"x","method":"m""#;
        for (params, more, want) in [
            ("", "", format!(r#","params":{{"_meta":{{{SENDER}}}}}}}"#)),
            (
                "",
                r#""a":1"#,
                format!(r#","params":{{"_meta":{{{SENDER}}},"a":1}}}}"#),
            ),
            (
                r#","params":{ }"#,
                "",
                format!(r#","params":{{"_meta":{{{SENDER}}} }}}}"#),
            ),
            (
                r#", "params" : {"n": 1.0, "big":1e400 }"#,
                "",
                format!(r#", "params" : {{"_meta":{{{SENDER}}},"n": 1.0, "big":1e400 }}}}"#),
            ),
            (
                r#","params":{"n": 1.0,"_meta":{ "progressToken" : 3}}"#,
                r#""s":"t""#,
                format!(
                    r#","params":{{"s":"t","n": 1.0,"_meta":{{{SENDER}, "progressToken" : 3}}}}}}"#
                ),
            ),
            (
                r#","params":{"_meta":{}}"#,
                "",
                format!(r#","params":{{"_meta":{{{SENDER}}}}}}}"#),
            ),
        ] {
            assert_eq!(put(&stamp, params, more), format!("{begin}{want}"));
        }
    }

    #[test]
    fn what_a_session_says_of_its_sender_is_replaced() {
        let forged = r#","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1","a":{},"io.modelcontextprotocol/logLevel":"x"}}"#;
        let text = put(&stamp(), forged, "");
        assert!(text.ends_with(&format!(r#""params":{{"_meta":{{{SENDER},"a":{{}}}}}}}}"#)));
        let alone = r#","params":{"_meta":{"io.modelcontextprotocol/logLevel":"x"}}"#;
        let text = put(&stamp(), alone, "");
        assert!(text.ends_with(&format!(r#""params":{{"_meta":{{{SENDER}}}}}}}"#)));
    }

    #[test]
    fn a_level_is_carried_once_it_is_set() {
        let mut stamp = stamp();
        assert!(!put(&stamp, "", "").contains("logLevel"));
        stamp.set_level("\"info\"");
        let text: Value = serde_json::from_str(&put(&stamp, "", "")).unwrap();
        assert_eq!(text["params"]["_meta"][key::LOG_LEVEL], "info");
    }

    #[test]
    fn params_that_can_take_no_members_are_refused() {
        for params in ["[]", r#"{"_meta":3}"#, r#"{"_meta":null}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#);
            assert!(stamp().put(&message(&text), "7", "").is_err(), "{params}");
        }
    }

    #[test]
    fn a_stateless_clients_request_is_known_by_its_capabilities() {
        let of = |meta: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"_meta":{meta}}}}}"#);
            is_stamped(&message(&text))
        };
        assert!(of(r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#));
        assert!(!of(r#"{"progressToken":1}"#) && !of("3"));
    }
}
