//! One list of all servers as it comes together: a page of each, their cursors, and who is missing. It sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::value::RawValue;

use super::address::Address;
use super::cursor::{self, Marks};
use super::list::List;
use crate::wire::jsonrpc::{RequestId, member, quoted};
use crate::wire::mcp;

/// Bytes of items in one answer. What would go beyond is asked for again by the next cursor.
const BYTES_MAX: usize = 8 << 20;

/// A list that is being put together for the client.
#[derive(Debug)]
pub(super) struct Gather {
    /// The client's id of its request.
    pub(super) id: RequestId,
    pub(super) list: List,
    /// Our ids of what is asked of servers.
    pub(super) waiting: BTreeSet<u64>,
    /// When servers that have not answered are done without.
    pub(super) due: Instant,
    /// They have been asked for what is known of them, and that is due now.
    pub(super) is_late: bool,
    pages: BTreeMap<Box<str>, String>,
    bytes: usize,
    next: Marks,
    stale: Vec<Box<str>>,
    missing: Vec<Box<str>>,
}

impl Gather {
    pub(super) fn new(id: RequestId, list: List, due: Instant) -> Self {
        Self {
            id,
            list,
            waiting: BTreeSet::new(),
            due,
            is_late: false,
            pages: BTreeMap::new(),
            bytes: 0,
            next: Marks::new(),
            stale: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds what a server answered to the request with that cursor.
    pub(super) fn add(&mut self, address: &Address, asked: Option<&str>, result: &str) {
        let Some(page) = self.page(address, result) else {
            return self.lack(&address.server, "failed");
        };
        if self.bytes > 0 && self.bytes + page.len() > BYTES_MAX {
            let again = asked.map(Into::into);
            self.next.insert(address.server.clone(), again);
            return;
        }
        self.bytes += page.len();
        self.pages.insert(address.server.clone(), page);
        self.note(result);
        self.go_on(address, result);
    }

    /// The items of a page, each under the client's name for it.
    fn page(&self, address: &Address, result: &str) -> Option<String> {
        let items = member(result, self.list.key())?;
        let items: Vec<&RawValue> = serde_json::from_str(items).ok()?;
        let (key, sort) = self.list.address();
        let lead = address.lead(sort);
        let items = items.iter().map(|item| renamed(item.get(), key, &lead));
        Some(items.collect::<Vec<_>>().join(","))
    }

    /// Takes over what the page says of itself: as last known, or missing.
    fn note(&mut self, result: &str) {
        let Some(meta) = member(result, "_meta") else {
            return;
        };
        for (key, to) in [
            (mcp::STALE, &mut self.stale),
            (mcp::MISSING, &mut self.missing),
        ] {
            let told = member(meta, key).and_then(|text| serde_json::from_str(text).ok());
            let told: Vec<&RawValue> = told.unwrap_or_default();
            to.extend(told.iter().map(|one| one.get().into()));
        }
    }

    /// Remembers where the server goes on.
    fn go_on(&mut self, address: &Address, result: &str) {
        let Some(text) = member(result, "nextCursor").filter(|text| *text != "null") else {
            return;
        };
        match serde_json::from_str::<String>(text) {
            Ok(cursor) if cursor.len() <= cursor::PART_MAX => {
                let server = address.server.clone();
                self.next.insert(server, Some(cursor.into()));
            }
            _ => self.lack(&address.server, "failed"),
        }
    }

    /// A server has no part in this answer, though it may have items; `state` says why.
    pub(super) fn lack(&mut self, server: &str, state: &str) {
        let (server, state) = (quoted(server), quoted(state));
        let one = format!(r#"{{"server":{server},"state":{state}}}"#);
        self.missing.push(one.into());
    }

    /// The result for the client: the items in the order of their servers' ids.
    pub(super) fn result(&self) -> String {
        let pages = self.pages.values().filter(|page| !page.is_empty());
        let items = pages.map(String::as_str).collect::<Vec<_>>().join(",");
        let mut result = format!(r#"{{"{}":[{items}]"#, self.list.key());
        if !self.next.is_empty() {
            result += &format!(
                r#","nextCursor":{}"#,
                cursor::written(self.list, &self.next)
            );
        }
        let notes = [(mcp::STALE, &self.stale), (mcp::MISSING, &self.missing)];
        let notes = notes.iter().filter(|(_, told)| !told.is_empty());
        let notes: Vec<String> = notes
            .map(|(key, told)| format!(r#""{key}":[{}]"#, told.join(",")))
            .collect();
        if !notes.is_empty() {
            result += &format!(r#","_meta":{{{}}}"#, notes.join(","));
        }
        result + "}"
    }
}

/// An item with its own text at `key` lengthened by `lead`. One that does not say what it is stays as it is.
fn renamed(item: &str, key: &str, lead: &str) -> String {
    let text = member(item, key).filter(|text| text.starts_with('"'));
    let Some(text) = text else {
        return item.to_owned();
    };
    let at = text.as_ptr().addr() - item.as_ptr().addr() + 1;
    match item.split_at_checked(at) {
        Some((before, after)) => [before, lead, after].concat(),
        None => item.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(server: &str) -> Address {
        Address {
            server: server.into(),
            prefix: server.into(),
        }
    }

    fn gather(list: List) -> Gather {
        let id = RequestId::read("1").unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test has to begin some time")]
        Gather::new(id, list, Instant::now())
    }

    #[test]
    fn a2_an_item_is_renamed_and_its_other_bytes_are_copied() {
        let mut all = gather(List::Tools);
        let page =
            r#"{"tools":[{"x":1.50,"name" : "t\u00e4", "name2":{"name":"n"}},{"name":3},7]}"#;
        all.add(&address("b"), None, page);
        all.add(&address("a"), None, r#"{"tools":[{"name":"t"}]}"#);
        all.add(&address("c"), None, r#"{"tools":[]}"#);
        let wanted = r#"{"tools":[{"name":"a__t"},{"x":1.50,"name" : "b__t\u00e4", "name2":{"name":"n"}},{"name":3},7]}"#;
        assert_eq!(all.result(), wanted);
    }

    #[test]
    fn each_list_names_its_items_in_its_own_way() {
        for (list, item, wanted) in [
            (
                List::Prompts,
                r#"{"name":"p","uri":"u"}"#,
                r#"{"name":"a__p","uri":"u"}"#,
            ),
            (
                List::Resources,
                r#"{"name":"p","uri":"file:///x"}"#,
                r#"{"name":"p","uri":"tidegate:a/file:///x"}"#,
            ),
            (
                List::Templates,
                r#"{"uriTemplate":"{+x}"}"#,
                r#"{"uriTemplate":"tidegate:a/{+x}"}"#,
            ),
            (List::Tasks, r#"{"taskId":"1"}"#, r#"{"taskId":"a/1"}"#),
        ] {
            let mut all = gather(list);
            let key = list.key();
            all.add(&address("a"), None, &format!(r#"{{"{key}":[{item}]}}"#));
            assert_eq!(all.result(), format!(r#"{{"{key}":[{wanted}]}}"#));
        }
    }

    #[test]
    fn what_a_server_says_of_its_page_is_said_of_the_whole() {
        let mut all = gather(List::Tools);
        for (server, mark) in [("a", "stale"), ("b", "missing")] {
            let page = format!(
                r#"{{"tools":[],"_meta":{{"tidegate/{mark}":[{{"server":"{server}","state":"waiting"}}]}}}}"#
            );
            all.add(&address(server), None, &page);
        }
        all.lack("c", "slow");
        all.add(&address("d"), None, r#"{"tools":7}"#);
        let wanted = r#"{"tools":[],"_meta":{"tidegate/stale":[{"server":"a","state":"waiting"}],"tidegate/missing":[{"server":"b","state":"waiting"},{"server":"c","state":"slow"},{"server":"d","state":"failed"}]}}"#;
        assert_eq!(all.result(), wanted);
    }

    #[test]
    fn g16_a_page_past_the_bound_is_asked_for_again_by_the_cursor() {
        let mut all = gather(List::Tools);
        let large = format!(
            r#"{{"tools":["{}"],"nextCursor":"2"}}"#,
            "x".repeat(BYTES_MAX)
        );
        all.add(&address("a"), None, &large);
        all.add(&address("b"), Some("c"), r#"{"tools":[1]}"#);
        let result = all.result();
        let text: String = serde_json::from_str(member(&result, "nextCursor").unwrap()).unwrap();
        let next = cursor::read(List::Tools, &text).unwrap();
        let next: Vec<_> = next.iter().map(|(of, at)| (&**of, at.as_deref())).collect();
        assert_eq!(next, [("a", Some("2")), ("b", Some("c"))]);
    }
}
