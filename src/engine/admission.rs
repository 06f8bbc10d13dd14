//! What may be admitted, and in which order (G9 to G12): registrations go ahead of what a boundary kept, kept messages
//! wait for their channels, and nothing is admitted twice. It holds no message and sends none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::value::RawValue;

use crate::wire::jsonrpc::{Message, member, quoted};
use crate::wire::mcpl::method;

/// Events that are remembered (G12).
const EVENTS_MAX: usize = 1_000;
/// Channel messages that are remembered (G12).
const MESSAGES_MAX: usize = 10_000;
/// A message with a longer id is not remembered.
const ID_BYTES_MAX: usize = 256;
/// A longer receipt is not remembered; a plain one stands for it.
const RECEIPT_BYTES_MAX: usize = 512;

/// The order of a flush. `items`: place, whether kept, and the message, in the order in which the server wrote (G9).
pub(super) fn order<K: Copy>(items: &[(K, bool, &Message)]) -> Vec<K> {
    if !items.iter().any(|(_, kept, _)| *kept) {
        return items.iter().map(|(place, _, _)| *place).collect();
    }
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    let mut fixed = BTreeSet::new();
    for (place, kept, message) in items {
        let named = Named::read(message);
        let free = named.removed.is_empty() && named.added.is_disjoint(&fixed);
        if !kept && !named.added.is_empty() && free {
            first.push(*place);
        } else {
            fixed.extend(named.added);
            fixed.extend(named.removed);
            rest.push(*place);
        }
    }
    first.append(&mut rest);
    first
}

/// The channels that a registration names, by value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
}

impl Named {
    fn read(message: &Message) -> Self {
        let list = |key| {
            let span = message.param(&[key]);
            span.and_then(|span| serde_json::from_str::<Vec<&RawValue>>(message.text(&span)).ok())
                .unwrap_or_default()
        };
        let ids = |key| {
            let descriptors = list(key).into_iter().map(RawValue::get);
            descriptors
                .filter_map(|descriptor| member(descriptor, "id").and_then(value))
                .collect::<BTreeSet<_>>()
        };
        match message.method() {
            method::CHANNELS_REGISTER => Self {
                added: ids("channels"),
                removed: BTreeSet::new(),
            },
            method::CHANNELS_CHANGED => Self {
                added: ids("added").into_iter().chain(ids("updated")).collect(),
                removed: list("removed")
                    .into_iter()
                    .filter_map(|id| value(id.get()))
                    .collect(),
            },
            _ => Self::default(),
        }
    }
}

/// The text of a plain value; the number 5 names channel "5", an object none.
fn value(text: &str) -> Option<String> {
    if text.starts_with(['{', '[']) {
        return None;
    }
    Some(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
}

/// The messages of a `channels/incoming`, as written: the list of them, or the params themselves for a single one.
fn messages(message: &Message) -> Vec<&str> {
    let params = message.params().unwrap_or_default();
    let Some(list) = member(params, "messages") else {
        return vec![params];
    };
    let list: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    list.into_iter().map(RawValue::get).collect()
}

/// The first channel of a `channels/incoming` that is not registered: a kept one waits for it (G9).
pub(super) fn missing_channel(
    message: &Message,
    is_registered: impl Fn(&str) -> bool,
) -> Option<String> {
    if message.method() != method::CHANNELS_INCOMING {
        return None;
    }
    let channels = messages(message).into_iter();
    let mut ids = channels.filter_map(|text| member(text, "channelId").and_then(value));
    ids.find(|id| !is_registered(id))
}

/// The result with which the gateway accepts a world request for the host: itemised where the method is (A3).
pub(super) fn acceptance(message: &Message) -> String {
    if message.method() != method::CHANNELS_INCOMING {
        return r#"{"accepted":true}"#.into();
    }
    let item = |text| match member(text, "messageId") {
        Some(id) => format!(r#"{{"messageId":{id},"accepted":true}}"#),
        None => r#"{"accepted":true}"#.into(),
    };
    let items: Vec<String> = messages(message).into_iter().map(item).collect();
    format!(r#"{{"results":[{}]}}"#, items.join(","))
}

/// Whether a host's result accepts all that it judges.
pub(super) fn is_accepting(result: &str) -> bool {
    let refuses = |text: &str| member(text, "accepted") == Some("false");
    let items = member(result, "results");
    let items: Vec<&RawValue> = items
        .and_then(|items| serde_json::from_str(items).ok())
        .unwrap_or_default();
    !refuses(result) && !items.iter().any(|item| refuses(item.get()))
}

/// What identifies a world message, so that it is admitted once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Event(String),
    Message(String, String),
}

#[derive(Clone, Debug)]
struct Seen {
    digest: u64,
    receipt: Option<Box<str>>,
}

/// Whether a world message was seen before (G12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    /// Something of it is new.
    New,
    /// All of it was admitted: this is the result that the first got.
    Admitted(String),
    /// All of it was admitted or is with a host, whose answer decides.
    Undecided,
}

/// What was admitted lately, and what is with a host (G12).
#[derive(Debug, Default)]
pub(super) struct Admitted {
    seen: BTreeMap<Key, Seen>,
    with_host: BTreeMap<Key, u64>,
    events: VecDeque<Key>,
    messages: VecDeque<Key>,
}

impl Admitted {
    /// Whether a message was seen before.
    pub(super) fn novelty(&self, message: &Message) -> Novelty {
        let parts = parts(message);
        let with_host =
            |key: &Key, digest: u64| self.with_host.get(key).is_some_and(|of| *of == digest);
        let mut receipts = Vec::new();
        let mut undecided = false;
        for (key, digest) in &parts {
            match self.receipt(key, *digest) {
                Some(receipt) => receipts.push(receipt),
                None if with_host(key, *digest) => undecided = true,
                None => return Novelty::New,
            }
        }
        if undecided {
            return Novelty::Undecided;
        }
        match receipts.first() {
            None => Novelty::New,
            Some(only) if message.method() == method::PUSH_EVENT => Novelty::Admitted(only.clone()),
            Some(_) => {
                let results = receipts.join(",");
                Novelty::Admitted(format!(r#"{{"results":[{results}]}}"#))
            }
        }
    }

    /// A host has the message.
    pub(super) fn hand_out(&mut self, message: &Message) {
        self.with_host.extend(parts(message));
    }

    /// The host went without an answer.
    pub(super) fn recall(&mut self, message: &Message) {
        for (key, _) in parts(message) {
            self.with_host.remove(&key);
        }
    }

    fn receipt(&self, key: &Key, digest: u64) -> Option<String> {
        let seen = self.seen.get(key)?;
        match key {
            Key::Event(_) => Some(r#"{"accepted":false,"reason":"duplicate"}"#.into()),
            Key::Message(_, id) => (seen.digest == digest).then(|| {
                let first = seen.receipt.as_deref().map(str::to_owned);
                let id = quoted(id);
                first.unwrap_or_else(|| format!(r#"{{"messageId":{id},"accepted":true}}"#))
            }),
        }
    }

    /// Remembers a message that a host answered: `result` is its answer. An error makes nothing admitted.
    pub(super) fn remember(&mut self, message: &Message, result: Option<&str>) {
        self.recall(message);
        let Some(result) = result else {
            return;
        };
        let items: Vec<&RawValue> = member(result, "results")
            .and_then(|items| serde_json::from_str(items).ok())
            .unwrap_or_default();
        for (at, (key, digest)) in parts(message).into_iter().enumerate() {
            let receipt = match key {
                Key::Event(_) => Some(result),
                Key::Message(..) => items.get(at).map(|item| item.get()),
            };
            let refused = receipt.and_then(|text| member(text, "accepted")) == Some("false");
            if !refused {
                let receipt = receipt.filter(|text| text.len() <= RECEIPT_BYTES_MAX);
                let receipt = receipt.map(Into::into);
                self.add(key, Seen { digest, receipt });
            }
        }
    }

    fn add(&mut self, key: Key, seen: Seen) {
        let (order, max) = match key {
            Key::Event(_) => (&mut self.events, EVENTS_MAX),
            Key::Message(..) => (&mut self.messages, MESSAGES_MAX),
        };
        if self.seen.insert(key.clone(), seen).is_none() {
            order.push_back(key);
        }
        if order.len() > max
            && let Some(oldest) = order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

/// The identities in a world message, with a digest of what each says. One without an identity has none at all.
fn parts(message: &Message) -> Vec<(Key, u64)> {
    let short = |text: &str, key: &str| {
        let id = member(text, key).and_then(value)?;
        (id.len() <= ID_BYTES_MAX).then_some(id)
    };
    let keys: Option<Vec<_>> = match message.method() {
        method::PUSH_EVENT => {
            let params = message.params().unwrap_or_default();
            short(params, "eventId").map(|id| vec![(Key::Event(id), 0)])
        }
        method::CHANNELS_INCOMING => messages(message)
            .into_iter()
            .map(|text| {
                let key = Key::Message(short(text, "channelId")?, short(text, "messageId")?);
                Some((key, digest(text)))
            })
            .collect(),
        _ => None,
    };
    keys.unwrap_or_default()
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(method: &str, params: &str) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        Message::parse(Bytes::from(text)).unwrap()
    }

    fn incoming(channel: &str, id: &str, text: &str) -> Message {
        let params = format!(
            r#"{{"messages":[{{"channelId":"{channel}","messageId":"{id}","content":"{text}"}}]}}"#
        );
        message("channels/incoming", &params)
    }

    fn register(ids: &str) -> Message {
        message("channels/register", &format!(r#"{{"channels":[{ids}]}}"#))
    }

    fn ordered(items: &[(bool, Message)]) -> Vec<usize> {
        let items: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, (kept, message))| (at, *kept, message))
            .collect();
        order(&items)
    }

    #[test]
    fn g9_registrations_go_ahead_of_what_a_boundary_kept() {
        let items = [
            (true, incoming("a", "1", "x")),
            (false, message("tools/observe", "{}")),
            (false, register(r#"{"id":"a"}"#)),
            (
                false,
                message("channels/changed", r#"{"added":[{"id":"b"}]}"#),
            ),
        ];
        assert_eq!(ordered(&items), [2, 3, 0, 1]);
    }

    #[test]
    fn g9_where_nothing_was_kept_nothing_moves() {
        let items = [
            (false, incoming("a", "1", "x")),
            (false, register(r#"{"id":"a"}"#)),
        ];
        assert_eq!(ordered(&items), [0, 1]);
    }

    #[test]
    fn g9_a_channel_keeps_the_order_of_its_removal_and_registrations() {
        let removal = message("channels/changed", r#"{"removed":[5,{"id":"b"}]}"#);
        let items = [
            (true, incoming("a", "1", "x")),
            (false, removal),
            (false, register(r#"{"id":"5"},{"id":"c"}"#)),
            (false, register(r#"{"id":"c"}"#)),
            (false, register(r#"{"id":"b"}"#)),
        ];
        assert_eq!(ordered(&items), [4, 0, 1, 2, 3]);
    }

    #[test]
    fn g9_a_kept_message_waits_for_the_channel_it_names() {
        let message = incoming("a", "1", "x");
        assert_eq!(missing_channel(&message, |_| false).as_deref(), Some("a"));
        assert_eq!(missing_channel(&message, |id| id == "a"), None);
        assert_eq!(missing_channel(&register(""), |_| false), None);
    }

    #[test]
    fn g12_the_same_message_is_admitted_once_and_an_edit_again() {
        let mut admitted = Admitted::default();
        let first = incoming("a", "1", "x");
        assert_eq!(admitted.novelty(&first), Novelty::New);
        admitted.hand_out(&first);
        assert_eq!(admitted.novelty(&first), Novelty::Undecided);
        assert_eq!(admitted.novelty(&incoming("a", "1", "y")), Novelty::New);
        let receipt = r#"{"results":[{"messageId":"1","accepted":true,"n":1.0}]}"#;
        admitted.remember(&first, Some(receipt));
        assert_eq!(admitted.novelty(&first), Novelty::Admitted(receipt.into()));
        for new in [incoming("a", "1", "edited"), incoming("b", "1", "x")] {
            assert_eq!(admitted.novelty(&new), Novelty::New);
        }
    }

    #[test]
    fn g12_what_a_host_refused_was_not_admitted() {
        let mut admitted = Admitted::default();
        let event = message("push/event", r#"{"eventId":"e"}"#);
        admitted.remember(&event, None);
        admitted.remember(&event, Some(r#"{"accepted":false}"#));
        assert_eq!(admitted.novelty(&event), Novelty::New);
        admitted.remember(&event, Some(r#"{"accepted":true}"#));
        let answer = r#"{"accepted":false,"reason":"duplicate"}"#;
        assert_eq!(admitted.novelty(&event), Novelty::Admitted(answer.into()));
        let nameless = message("push/event", "{}");
        assert_eq!(admitted.novelty(&nameless), Novelty::New);
    }

    #[test]
    fn g12_only_the_last_are_remembered() {
        let mut admitted = Admitted::default();
        let event = |id: usize| message("push/event", &format!(r#"{{"eventId":"{id}"}}"#));
        for id in 0..=EVENTS_MAX {
            admitted.remember(&event(id), Some(r#"{"accepted":true}"#));
        }
        assert_eq!(admitted.novelty(&event(0)), Novelty::New);
        assert_ne!(admitted.novelty(&event(1)), Novelty::New);
        assert_eq!(admitted.seen.len(), EVENTS_MAX);
    }
}
