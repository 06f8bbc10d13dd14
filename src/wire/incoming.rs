//! A `channels/incoming` part by part: the messages in it, what is left of it without some, and both sides' itemised
//! results as one (MCPL §14.5). Text in, text out; it judges nothing.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::jsonrpc::{Message, member, quoted};
use super::mcpl::method;

/// One message of a `channels/incoming`, as written.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(&'a str);

impl<'a> Part<'a> {
    /// Its JSON text.
    #[must_use]
    pub fn text(self) -> &'a str {
        self.0
    }

    /// The channel that it names, by value.
    #[must_use]
    pub fn channel(self) -> Option<String> {
        member(self.0, "channelId").and_then(value)
    }

    /// Its `messageId`, by value.
    #[must_use]
    pub fn id(self) -> Option<String> {
        member(self.0, "messageId").and_then(value)
    }

    /// The receipt that accepts it, or that refuses it for a reason.
    #[must_use]
    pub fn receipt(self, refusal: Option<&str>) -> String {
        let id = member(self.0, "messageId");
        let id = id.map_or_else(String::new, |id| format!(r#""messageId":{id},"#));
        match refusal.map(quoted) {
            None => format!(r#"{{{id}"accepted":true}}"#),
            Some(why) => format!(r#"{{{id}"accepted":false,"reason":{why}}}"#),
        }
    }
}

/// The text of a plain value; the number 5 names channel "5", an object none.
#[must_use]
pub fn value(text: &str) -> Option<String> {
    if text.starts_with(['{', '[']) {
        return None;
    }
    Some(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
}

/// The parts of a `channels/incoming`: those of its list, or its params themselves as a single one. None of others.
#[must_use]
pub fn parts(message: &Message) -> Vec<Part<'_>> {
    if message.method() != method::CHANNELS_INCOMING {
        return Vec::new();
    }
    let params = message.params().unwrap_or_default();
    match member(params, "messages") {
        Some(list) => texts(list).into_iter().map(Part).collect(),
        None => vec![Part(params)],
    }
}

/// The message with some parts of its list alone, every other byte as received. `None` where it has no list.
#[must_use]
pub fn only(message: &Message, stays: &[bool]) -> Option<Message> {
    let span = message.param(&["messages"])?;
    let left = parts(message).into_iter().zip(stays);
    let left: Vec<&str> = left
        .filter(|(_, stays)| **stays)
        .map(|(part, _)| part.text())
        .collect();
    let list = format!("[{}]", left.join(","));
    let id = message.id_text().unwrap_or_default();
    Message::parse(message.with(id, &[(span, &list)])).ok()
}

/// What a host's result says of each part: the receipt that names it, the one in its place where that names none, or
/// what the result says of all. A list of receipts that leaves a part out has not taken it.
#[must_use]
pub fn receipts(message: &Message, result: &str) -> Vec<String> {
    let parts = parts(message).into_iter();
    let Some(list) = member(result, "results") else {
        let refusal = (member(result, "accepted") == Some("false")).then(|| {
            let why = member(result, "reason").and_then(value);
            why.unwrap_or_else(|| "refused by the host".into())
        });
        return parts.map(|part| part.receipt(refusal.as_deref())).collect();
    };
    let given = texts(list);
    let named = |text: &str| Part(text).id();
    let by_id = LazyCell::new(|| {
        let named = given.iter().filter_map(|text| Some((named(text)?, *text)));
        named.collect::<BTreeMap<String, &str>>()
    });
    let of = |(at, part): (usize, Part<'_>)| {
        let id = part.id();
        let here = given.get(at).copied();
        let here = here.filter(|text| named(text).is_none_or(|name| Some(name) == id));
        let found = here.or_else(|| by_id.get(&id?).copied());
        found.map_or_else(|| part.receipt(Some(NO_RECEIPT)), str::to_owned)
    };
    parts.enumerate().map(of).collect()
}

const NO_RECEIPT: &str = "the host gave no receipt for it";

/// Each part refused for one reason.
#[must_use]
pub fn refusals(message: &Message, why: &str) -> Vec<String> {
    let parts = parts(message).into_iter();
    parts.map(|part| part.receipt(Some(why))).collect()
}

fn texts(list: &str) -> Vec<&str> {
    let list: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    list.into_iter().map(RawValue::get).collect()
}

/// The receipts of the parts that are settled, in the server's own order; the others are in the message that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipts(Vec<Option<Box<str>>>);

impl Receipts {
    /// Whether nothing was settled, so that the message is as the server wrote it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Settles some of the parts that are left, in their order.
    pub fn settle(&mut self, some: Vec<Option<Box<str>>>) {
        if self.0.is_empty() {
            self.0 = some;
            return;
        }
        let left = self.0.iter_mut().filter(|receipt| receipt.is_none());
        left.zip(some).for_each(|(left, receipt)| *left = receipt);
    }

    /// The itemised result over all parts; `rest` has the receipts of those that are left.
    #[must_use]
    pub fn result(&self, rest: &[String]) -> String {
        let mut left = rest.iter().map(String::as_str);
        let all: Vec<&str> = if self.0.is_empty() {
            left.collect()
        } else {
            let each = self.0.iter();
            each.filter_map(|settled| settled.as_deref().or_else(|| left.next()))
                .collect()
        };
        format!(r#"{{"results":[{}]}}"#, all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn incoming(params: &str) -> Message {
        let text = format!(
            r#"{{ "jsonrpc":"2.0","id":"x" ,"method":"channels/incoming","params":{params}}}"#
        );
        Message::parse(Bytes::from(text)).unwrap()
    }

    fn three() -> Message {
        let part = |id| format!(r#"{{"channelId":"c","messageId":{id},"n":1.0}}"#);
        let list = format!("{} , {}, {}", part("\"a\""), part("2"), part("\"c\""));
        incoming(&format!(r#"{{"messages":[ {list} ],"z":[]}}"#))
    }

    #[test]
    fn the_rest_of_a_message_has_its_other_bytes_as_received() {
        let left = only(&three(), &[false, true, false]).unwrap();
        let wanted = r#"{ "jsonrpc":"2.0","id":"x" ,"method":"channels/incoming","params":{"messages":[{"channelId":"c","messageId":2,"n":1.0}],"z":[]}}"#;
        assert_eq!(left.raw(), wanted);
        assert!(only(&incoming(r#"{"channelId":"c"}"#), &[true]).is_none());
    }

    #[test]
    fn a_hosts_receipts_are_found_by_name_then_by_place() {
        let ids = |result| {
            let each = receipts(&three(), result).into_iter();
            each.map(|text| member(&text, "r").unwrap_or("-").to_owned())
                .collect::<Vec<_>>()
        };
        let named = r#"{"results":[{"messageId":"c","r":3},{"messageId":"a","r":1},{"messageId":2,"r":2}]}"#;
        assert_eq!(ids(named), ["1", "2", "3"]);
        let by_place = r#"{"results":[{"r":1},{"r":2},{"r":3},{"r":4}]}"#;
        assert_eq!(ids(by_place), ["1", "2", "3"]);
        let short = r#"{"results":[{"messageId":"c","r":3}]}"#;
        assert_eq!(ids(short), ["-", "-", "3"]);
    }

    #[test]
    fn a_result_without_receipts_speaks_for_all_and_a_short_list_takes_only_what_it_names() {
        let verdicts = |result| {
            let each = receipts(&three(), result).into_iter();
            each.map(|text| member(&text, "accepted") == Some("true"))
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(r#"{"accepted":true}"#), [true; 3]);
        assert_eq!(verdicts("{}"), [true; 3]);
        assert_eq!(verdicts(r#"{"accepted":false}"#), [false; 3]);
        let short = r#"{"results":[{"messageId":"a","accepted":true}]}"#;
        assert_eq!(verdicts(short), [true, false, false]);
    }

    #[test]
    fn what_is_settled_step_by_step_joins_in_the_servers_order() {
        let mut all = Receipts::default();
        assert_eq!(all.result(&["1".into()]), r#"{"results":[1]}"#);
        all.settle(vec![None, Some("2".into()), None, None]);
        all.settle(vec![None, Some("3".into()), None]);
        let rest = ["1".to_owned(), "4".into(), "more".into()];
        assert_eq!(all.result(&rest), r#"{"results":[1,2,3,4]}"#);
        assert_eq!(all.result(&rest[..1]), r#"{"results":[1,2,3]}"#);
    }
}
