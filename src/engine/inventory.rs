//! The lists of a server as last known: tools, resources, templates and prompts, item by item as written. It reads them
//! page by page, and says what changed; it sends nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::wire::jsonrpc::{member, quoted};
use crate::wire::mcp::method;

/// Pages of one list.
const PAGES_MAX: usize = 100;
/// Bytes of one list's items.
const BYTES_MAX: usize = 16 << 20;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    /// `tools/list`
    Tools,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
    /// `prompts/list`
    Prompts,
}

impl List {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Tools, Self::Resources, Self::Templates, Self::Prompts];

    /// The list that a request asks for.
    pub(super) fn of_request(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.method() == name)
    }

    /// The method that asks for it.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_LIST,
            Self::Resources => method::RESOURCES_LIST,
            Self::Templates => method::TEMPLATES_LIST,
            Self::Prompts => method::PROMPTS_LIST,
        }
    }

    /// The notification that it changed.
    pub(super) fn change(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_CHANGED,
            Self::Resources | Self::Templates => method::RESOURCES_CHANGED,
            Self::Prompts => method::PROMPTS_CHANGED,
        }
    }

    /// The capability of a server that has it.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// The member of the result that holds the items.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

/// The lists as last known, and the reading of them that runs. One page is under way at a time.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    known: BTreeMap<List, Vec<Box<str>>>,
    /// Lists to read, and whether a change is news to hosts.
    due: BTreeMap<List, bool>,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    list: List,
    news: bool,
    items: Vec<Box<str>>,
    bytes: usize,
    pages: usize,
}

/// What a page led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Another page is wanted.
    More,
    /// The list is read; it differs from what was known, and hosts have not been told.
    Changed(&'static str),
    /// The list is read, and there is nothing to tell.
    Done,
    /// It could not be read; what was known stays.
    Failed(&'static str),
}

impl Inventory {
    /// Wants a list read. `news`: hosts are to be told if it changed.
    pub(super) fn want(&mut self, list: List, news: bool) {
        *self.due.entry(list).or_default() |= news;
    }

    /// The next request, if a list is due and no page is under way: its method and params.
    pub(super) fn start(&mut self) -> Option<(&'static str, &'static str)> {
        if self.reading.is_some() {
            return None;
        }
        let (list, news) = self.due.pop_first()?;
        self.reading = Some(Reading {
            list,
            news,
            items: Vec::new(),
            bytes: 0,
            pages: 0,
        });
        Some((list.method(), "{}"))
    }

    /// The request for the page after the one just read.
    pub(super) fn next_page(&self, cursor: &str) -> Option<(&'static str, String)> {
        let reading = self.reading.as_ref()?;
        let params = format!(r#"{{"cursor":{}}}"#, quoted(cursor));
        Some((reading.list.method(), params))
    }

    /// Takes a page; the cursor of the next comes with [`Read::More`].
    pub(super) fn read(&mut self, result: &str) -> (Read, String) {
        let Some(mut reading) = self.reading.take() else {
            return (Read::Done, String::new());
        };
        let read = reading.add(result);
        let cursor = match read {
            Ok(cursor) => cursor,
            Err(why) => return (Read::Failed(why), String::new()),
        };
        if let Some(cursor) = cursor {
            self.reading = Some(reading);
            return (Read::More, cursor);
        }
        (self.finish(reading), String::new())
    }

    fn finish(&mut self, reading: Reading) -> Read {
        let Reading {
            list, news, items, ..
        } = reading;
        let known = self.known.entry(list).or_default();
        let changed = *known != items;
        *known = items;
        if changed && news {
            Read::Changed(list.change())
        } else {
            Read::Done
        }
    }

    /// The list under way is none that the server has: it is known to be empty.
    pub(super) fn lack(&mut self) -> Read {
        let reading = self.reading.take();
        reading.map_or(Read::Done, |reading| {
            let items = Vec::new();
            self.finish(Reading { items, ..reading })
        })
    }

    /// The page under way will not come.
    pub(super) fn fail(&mut self) {
        self.reading = None;
    }

    /// The transport is gone; what is known stays.
    pub(super) fn lose(&mut self) {
        self.reading = None;
        self.due.clear();
    }

    /// Whether that list is read, or is to be.
    pub(super) fn is_reading(&self, list: List) -> bool {
        let now = self
            .reading
            .as_ref()
            .is_some_and(|reading| reading.list == list);
        now || self.due.contains_key(&list)
    }

    /// A list that the server does not have is empty.
    pub(super) fn clear(&mut self, list: List) -> bool {
        self.known
            .remove(&list)
            .is_some_and(|items| !items.is_empty())
    }

    /// Whether the list was ever read.
    pub(super) fn knows(&self, list: List) -> bool {
        self.known.contains_key(&list)
    }

    /// The items of a list that `shows` lets through by name, as a JSON array.
    pub(super) fn items(&self, list: List, shows: impl Fn(&str) -> bool) -> String {
        let items = self.known.get(&list).map_or(&[][..], Vec::as_slice);
        let shown = items
            .iter()
            .map(Box::as_ref)
            .filter(|item| passes(item, &shows));
        format!("[{}]", joined(shown))
    }
}

impl Reading {
    /// Adds a page's items; the cursor of the next, if there is one.
    fn add(&mut self, result: &str) -> Result<Option<String>, &'static str> {
        let items = member(result, self.list.key()).ok_or("a list without its items")?;
        let items: Vec<&RawValue> =
            serde_json::from_str(items).map_err(|_| "a list that is no list")?;
        self.bytes += items.iter().map(|item| item.get().len()).sum::<usize>();
        self.pages += 1;
        if self.bytes > BYTES_MAX {
            return Err("a list that is too long");
        }
        self.items
            .extend(items.into_iter().map(|item| item.get().into()));
        let Some(cursor) = member(result, "nextCursor").filter(|cursor| *cursor != "null") else {
            return Ok(None);
        };
        let cursor = serde_json::from_str(cursor).map_err(|_| "a cursor that is no string")?;
        if self.pages >= PAGES_MAX {
            return Err("a list with too many pages");
        }
        Ok(Some(cursor))
    }
}

/// The text of a JSON array's items that `shows` lets through by their `name`; `None` where it is no array.
pub(super) fn filtered(items: &str, shows: impl Fn(&str) -> bool) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(items).ok()?;
    let shown = items.into_iter().map(RawValue::get);
    Some(format!(
        "[{}]",
        joined(shown.filter(|item| passes(item, &shows)))
    ))
}

fn passes(item: &str, shows: impl Fn(&str) -> bool) -> bool {
    let name = member(item, "name").and_then(|name| serde_json::from_str::<String>(name).ok());
    name.is_none_or(|name| shows(&name))
}

fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// The lists that a change notification is about.
pub(super) fn changed_lists(name: &str) -> BTreeSet<List> {
    let lists = List::ALL.into_iter();
    lists.filter(|list| list.change() == name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(inventory: &mut Inventory, result: &str) -> Read {
        inventory.read(result).0
    }

    #[test]
    fn a_list_is_read_page_by_page_and_kept_as_written() {
        let mut inventory = Inventory::default();
        inventory.want(List::Tools, true);
        assert_eq!(inventory.start(), Some(("tools/list", "{}")));
        assert_eq!(inventory.start(), None);
        let (more, cursor) =
            inventory.read(r#"{"tools":[{"name":"a", "n":1.0}],"nextCursor":"p\"2"}"#);
        assert_eq!((more, &*cursor), (Read::More, "p\"2"));
        let next = inventory.next_page(&cursor);
        assert_eq!(next, Some(("tools/list", r#"{"cursor":"p\"2"}"#.into())));
        let done = read(&mut inventory, r#"{"tools":[{"name":"b"}]}"#);
        assert_eq!(done, Read::Changed("notifications/tools/list_changed"));
        let page = inventory.items(List::Tools, |_| true);
        assert_eq!(page, r#"[{"name":"a", "n":1.0},{"name":"b"}]"#);
        let page = inventory.items(List::Tools, |name| name == "b");
        assert_eq!(page, r#"[{"name":"b"}]"#);
    }

    #[test]
    fn only_a_difference_is_news_and_only_where_hosts_were_not_told() {
        let mut inventory = Inventory::default();
        for (news, list, wanted) in [
            (true, r#"{"prompts":[1]}"#, true),
            (true, r#"{"prompts":[1]}"#, false),
            (false, r#"{"prompts":[2]}"#, false),
            (true, r#"{"prompts":[]}"#, true),
        ] {
            inventory.want(List::Prompts, news);
            inventory.start();
            let told = matches!(read(&mut inventory, list), Read::Changed(_));
            assert_eq!(told, wanted, "{list}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_leaves_what_was_known() {
        let mut inventory = Inventory::default();
        inventory.want(List::Tools, true);
        inventory.start();
        read(&mut inventory, r#"{"tools":[{"name":"a"}]}"#);
        for bad in [
            "{}",
            "[]",
            r#"{"tools":3}"#,
            r#"{"tools":[],"nextCursor":3}"#,
        ] {
            inventory.want(List::Tools, true);
            inventory.start();
            assert!(
                matches!(read(&mut inventory, bad), Read::Failed(_)),
                "{bad}"
            );
        }
        let page = inventory.items(List::Tools, |_| true);
        assert_eq!(page, r#"[{"name":"a"}]"#);
        assert!(inventory.knows(List::Tools) && !inventory.knows(List::Prompts));
    }

    #[test]
    fn a_list_that_the_server_lacks_is_known_to_be_empty() {
        let mut inventory = Inventory::default();
        inventory.want(List::Templates, true);
        inventory.start();
        assert_eq!(inventory.lack(), Read::Done);
        assert!(inventory.knows(List::Templates));
    }

    #[test]
    fn an_empty_cursor_asks_for_another_page() {
        let mut inventory = Inventory::default();
        inventory.want(List::Tools, true);
        inventory.start();
        let (more, cursor) = inventory.read(r#"{"tools":[1],"nextCursor":""}"#);
        assert_eq!((more, &*cursor), (Read::More, ""));
        let next = inventory.next_page(&cursor);
        assert_eq!(next, Some(("tools/list", r#"{"cursor":""}"#.into())));
        read(&mut inventory, r#"{"tools":[2]}"#);
        assert_eq!(inventory.items(List::Tools, |_| true), "[1,2]");
    }

    #[test]
    fn a_server_that_pages_for_ever_is_given_up() {
        let mut inventory = Inventory::default();
        inventory.want(List::Resources, true);
        inventory.start();
        let page = r#"{"resources":[],"nextCursor":""}"#;
        for _ in 1..PAGES_MAX {
            assert_eq!(read(&mut inventory, page), Read::More);
        }
        assert!(matches!(read(&mut inventory, page), Read::Failed(_)));
        assert!(!inventory.is_reading(List::Resources));
    }
}
