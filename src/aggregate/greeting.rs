//! `initialize` of the whole session: what the client told, what each server is told of it, and the one answer. It
//! sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::address::Address;
use crate::wire::jsonrpc::{Message, RequestId, member, quoted};
use crate::wire::mcp::{Revision, STATELESS_MARK};
use crate::wire::object::{self, Change};

/// Instructions of one server that are passed on, in bytes.
const ONE_MAX: usize = 8 << 10;
/// Instructions of all servers together.
const ALL_MAX: usize = 64 << 10;

/// What the client told at `initialize`.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// The revision that the session speaks.
    pub(super) revision: Revision,
    capabilities: String,
    info: Option<Box<str>>,
}

impl Client {
    /// Reads the params of `initialize`.
    pub(super) fn read(message: &Message) -> Self {
        let params = message.params().unwrap_or("{}");
        let revision = member(params, "protocolVersion")
            .and_then(|text| serde_json::from_str::<String>(text).ok())
            .and_then(|name| Revision::parse(&name));
        let told = member(params, "capabilities").unwrap_or("{}");
        // MCPL is between one host and one server: here it is not heard.
        // That a client is stateless is said on: a server asks it only while a call of its own is under way.
        let mark = format!(r#"{{"{STATELESS_MARK}":{{}}}}"#);
        let capabilities = object::edited(told, |name, value| match name {
            "experimental" if member(value, STATELESS_MARK).is_some() => {
                Change::Replace(mark.clone())
            }
            "experimental" => Change::Remove,
            _ => Change::Keep,
        });
        Self {
            revision: revision.unwrap_or(Revision::LATEST),
            capabilities: capabilities.unwrap_or_else(|| "{}".into()),
            info: member(params, "clientInfo").map(Into::into),
        }
    }

    /// The params of the `initialize` that a server's side is told.
    pub(super) fn params(&self) -> String {
        let Self {
            revision,
            capabilities,
            info,
        } = self;
        let info = info.as_ref();
        let info = info.map_or_else(String::new, |info| format!(r#","clientInfo":{info}"#));
        format!(r#"{{"protocolVersion":"{revision}","capabilities":{capabilities}{info}}}"#)
    }
}

/// The answer as it comes together.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The client's id of its `initialize`.
    pub(super) id: RequestId,
    /// Our ids of what servers' sides are asked.
    pub(super) waiting: BTreeSet<u64>,
    /// When it is answered in any case.
    pub(super) due: Instant,
    instructions: BTreeMap<Box<str>, String>,
    has_tasks: bool,
}

impl Greeting {
    pub(super) fn new(id: RequestId, due: Instant) -> Self {
        Self {
            id,
            waiting: BTreeSet::new(),
            due,
            instructions: BTreeMap::new(),
            has_tasks: false,
        }
    }

    /// Takes over what a server's side answered.
    pub(super) fn add(&mut self, address: &Address, result: &str) {
        let capabilities = member(result, "capabilities").unwrap_or_default();
        self.has_tasks |= member(capabilities, "tasks").is_some_and(|text| text.starts_with('{'));
        let told = member(result, "instructions");
        let told = told.and_then(|text| serde_json::from_str::<String>(text).ok());
        let told = told.filter(|text| !text.trim().is_empty());
        let room = ALL_MAX.saturating_sub(self.instructions.values().map(String::len).sum());
        if let Some(mut told) = told {
            told.truncate(told.floor_char_boundary(room.min(ONE_MAX)));
            self.instructions.insert(address.server.clone(), told);
        }
    }

    /// The result of `initialize`.
    pub(super) fn result<'a>(
        &self,
        client: &Client,
        seats: impl Iterator<Item = &'a Address>,
    ) -> String {
        let changes = r#"{"listChanged":true}"#;
        let tasks = if self.has_tasks && client.revision.has_tasks() {
            r#","tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
        } else {
            ""
        };
        let capabilities = format!(
            r#"{{"tools":{changes},"prompts":{changes},"resources":{{"subscribe":true,"listChanged":true}},"logging":{{}},"completions":{{}}{tasks}}}"#
        );
        let revision = client.revision;
        let version = quoted(env!("CARGO_PKG_VERSION"));
        let instructions = quoted(&self.text(seats));
        format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{{"name":"tidegate","version":{version}}},"instructions":{instructions}}}"#
        )
    }

    fn text<'a>(&self, seats: impl Iterator<Item = &'a Address>) -> String {
        let mut servers: Vec<&Address> = seats.collect();
        servers.sort_by(|one, other| one.server.cmp(&other.server));
        let mut text = String::from(
            "Several servers stand behind this one. The names of a server's tools and prompts begin with its prefix, the URIs of its resources with tidegate: and its id.",
        );
        for Address { server, prefix } in &servers {
            text += &format!("\n- {server}: {prefix}__*");
        }
        for (server, told) in &self.instructions {
            text += &format!("\n\nInstructions of {server}:\n{told}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(params: &str) -> Client {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        Client::read(&Message::parse(text.into()).unwrap())
    }

    #[test]
    fn servers_are_told_what_the_client_told_without_what_is_for_one_server() {
        let told = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{ "x":1.0},"experimental":{"mcpl":{}}},"clientInfo":{"name":"c"}}"#;
        let wanted = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{ "x":1.0}},"clientInfo":{"name":"c"}}"#;
        assert_eq!(client(told).params(), wanted);
        let mark = r#"{"experimental":{"mcpl":{},"tidegate/stateless":{}}}"#;
        let stateless = client(&format!(r#"{{"capabilities":{mark}}}"#));
        assert!(
            stateless
                .params()
                .contains(r#""experimental":{"tidegate/stateless":{}}"#)
        );
        let odd = client(r#"{"protocolVersion":7,"capabilities":[]}"#);
        let wanted = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
        assert_eq!(odd.params(), wanted);
    }

    #[test]
    fn the_answer_names_the_servers_and_passes_their_instructions_on() {
        #[expect(clippy::disallowed_methods, reason = "a test has to begin some time")]
        let mut greeting = Greeting::new(RequestId::read("1").unwrap(), Instant::now());
        let addresses = ["b", "a"].map(|server| Address {
            server: server.into(),
            prefix: server.to_uppercase().into(),
        });
        greeting.add(&addresses[0], r#"{"instructions":"say \"hi\""}"#);
        greeting.add(&addresses[1], r#"{"capabilities":{"tasks":{}}}"#);
        let long = "é".repeat(ONE_MAX);
        let other = Address {
            server: "c".into(),
            prefix: "c".into(),
        };
        greeting.add(&other, &format!(r#"{{"instructions":"{long}"}}"#));
        for (revision, tasks) in [("2025-11-25", true), ("2025-06-18", false)] {
            let client = client(&format!(r#"{{"protocolVersion":"{revision}"}}"#));
            let result: serde_json::Value =
                serde_json::from_str(&greeting.result(&client, addresses.iter())).unwrap();
            assert_eq!(result["protocolVersion"], revision);
            assert_eq!(result["capabilities"]["tasks"].is_object(), tasks);
            let text = result["instructions"].as_str().unwrap();
            let named = "\n- a: A__*\n- b: B__*\n\nInstructions of b:\nsay \"hi\"\n";
            assert!(text.contains(named), "{text}");
            assert!(text.len() < ONE_MAX + 1000 && text.ends_with('é'));
        }
    }
}
