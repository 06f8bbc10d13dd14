//! What may be admitted, and in which order (G9 to G12): registrations go ahead of what a boundary kept, kept messages
//! wait for their channels, and nothing is admitted twice. It holds no message and sends none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::value::RawValue;

use crate::wire::incoming::{self, value};
use crate::wire::jsonrpc::{Message, member, quoted};
use crate::wire::mcpl::method;

/// Events that are remembered (G12).
const EVENTS_MAX: usize = 1_000;
/// Channel messages that are remembered (G12).
const PARTS_MAX: usize = 10_000;
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
    for (place, _, message) in items {
        let named = Named::read(message);
        let free = named.removed.is_empty() && named.added.is_disjoint(&fixed);
        if !named.added.is_empty() && free {
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

/// Whether a host's result accepts all that it judges.
pub(super) fn is_accepting(result: &str) -> bool {
    let refuses = |text: &str| member(text, "accepted") == Some("false");
    let items = member(result, "results");
    let items: Vec<&RawValue> = items
        .and_then(|items| serde_json::from_str(items).ok())
        .unwrap_or_default();
    !refuses(result) && !items.iter().any(|item| refuses(item.get()))
}

/// What identifies a world message, or a part of one, so that it is admitted once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Its `eventId`.
    Event(String),
    /// Its channel, its `messageId`, and a digest of what it says: an edit is another.
    Part(String, String, u64),
}

/// Whether a part of a world message was seen before (G12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It is new.
    New,
    /// It was admitted: this is the receipt that the first got.
    Admitted(String),
    /// A host has it, whose answer decides.
    Undecided,
}

/// What was admitted lately, with its receipts, and what is with a host (G12).
#[derive(Debug, Default)]
pub(super) struct Admitted {
    seen: BTreeMap<Key, Option<Box<str>>>,
    with_host: BTreeSet<Key>,
    events: VecDeque<Key>,
    parts: VecDeque<Key>,
}

impl Admitted {
    /// Whether each part of a message was seen before; the one of a `push/event` is itself.
    pub(super) fn novelties(&self, message: &Message) -> Vec<Novelty> {
        let keys = keys(message).into_iter();
        keys.map(|key| key.map_or(Novelty::New, |key| self.novelty(&key)))
            .collect()
    }

    fn novelty(&self, key: &Key) -> Novelty {
        match (self.seen.get(key), key) {
            (None, _) if self.with_host.contains(key) => Novelty::Undecided,
            (None, _) => Novelty::New,
            (Some(_), Key::Event(_)) => {
                Novelty::Admitted(r#"{"accepted":false,"reason":"duplicate"}"#.into())
            }
            (Some(Some(first)), Key::Part(..)) => Novelty::Admitted(first.as_ref().into()),
            (Some(None), Key::Part(_, id, _)) => {
                let id = quoted(id);
                Novelty::Admitted(format!(r#"{{"messageId":{id},"accepted":true}}"#))
            }
        }
    }

    /// A host has the message.
    pub(super) fn hand_out(&mut self, message: &Message) {
        self.with_host.extend(keys(message).into_iter().flatten());
    }

    /// The host went without an answer.
    pub(super) fn recall(&mut self, message: &Message) {
        for key in keys(message).into_iter().flatten() {
            self.with_host.remove(&key);
        }
    }

    /// Remembers what a host took of a message: `result` is its answer. An error takes nothing.
    pub(super) fn remember(&mut self, message: &Message, result: Option<&str>) {
        let receipts = match result {
            None => Vec::new(),
            Some(result) if message.method() == method::PUSH_EVENT => vec![result.to_owned()],
            Some(result) => incoming::receipts(message, result),
        };
        let mut receipts = receipts.into_iter();
        for key in keys(message) {
            let took = receipts
                .next()
                .filter(|receipt| member(receipt, "accepted") != Some("false"));
            let Some(key) = key else { continue };
            self.with_host.remove(&key);
            if let Some(receipt) = took {
                self.add(key, receipt);
            }
        }
    }

    fn add(&mut self, key: Key, receipt: String) {
        let (order, max) = match key {
            Key::Event(_) => (&mut self.events, EVENTS_MAX),
            Key::Part(..) => (&mut self.parts, PARTS_MAX),
        };
        // An event's receipt is never asked for again.
        let keeps = matches!(key, Key::Part(..)) && receipt.len() <= RECEIPT_BYTES_MAX;
        let receipt = keeps.then(|| receipt.into());
        if self.seen.insert(key.clone(), receipt).is_none() {
            order.push_back(key);
        }
        if order.len() > max
            && let Some(oldest) = order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

/// What identifies each part of a world message; one without an identity has none.
fn keys(message: &Message) -> Vec<Option<Key>> {
    let short = |id: Option<String>| id.filter(|id| id.len() <= ID_BYTES_MAX);
    if message.method() == method::PUSH_EVENT {
        let id = member(message.params().unwrap_or_default(), "eventId").and_then(value);
        return vec![short(id).map(Key::Event)];
    }
    let parts = incoming::parts(message).into_iter();
    parts
        .map(|part| {
            let digest = digest(part.text());
            Some(Key::Part(short(part.channel())?, short(part.id())?, digest))
        })
        .collect()
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
    fn g9_an_update_goes_ahead_and_a_change_that_removes_does_not() {
        let changed = |lists: &str| message("channels/changed", lists);
        let items = [
            (true, incoming("a", "1", "x")),
            (false, changed(r#"{"removed":["c"],"added":[{"id":"d"}]}"#)),
            (false, register(r#"{"id":{}}"#)),
            (false, changed(r#"{"updated":[{"id":"b"}]}"#)),
        ];
        assert_eq!(ordered(&items), [3, 0, 1, 2]);
    }

    fn novelty(admitted: &Admitted, message: &Message) -> Novelty {
        let [only] = &admitted.novelties(message)[..] else {
            panic!("one part is wanted: {message:?}");
        };
        only.clone()
    }

    #[test]
    fn g12_the_same_message_is_admitted_once_and_an_edit_again() {
        let mut admitted = Admitted::default();
        let first = incoming("a", "1", "x");
        let edit = incoming("a", "1", "y");
        assert_eq!(novelty(&admitted, &first), Novelty::New);
        admitted.hand_out(&first);
        assert_eq!(novelty(&admitted, &first), Novelty::Undecided);
        assert_eq!(novelty(&admitted, &edit), Novelty::New);
        let receipt = r#"{"messageId":"1","accepted":true,"n":1.0}"#;
        let result = format!(r#"{{"results":[{receipt}]}}"#);
        admitted.remember(&first, Some(&result));
        assert_eq!(
            novelty(&admitted, &first),
            Novelty::Admitted(receipt.into())
        );
        admitted.remember(&edit, Some("{}"));
        for again in [&first, &edit] {
            assert!(matches!(novelty(&admitted, again), Novelty::Admitted(_)));
        }
        for new in [incoming("a", "1", "z"), incoming("b", "1", "x")] {
            assert_eq!(novelty(&admitted, &new), Novelty::New);
        }
    }

    #[test]
    fn g12_an_edit_that_is_with_a_host_hides_no_repeat_of_what_it_changes() {
        let mut admitted = Admitted::default();
        let (first, edit) = (incoming("a", "1", "x"), incoming("a", "1", "y"));
        admitted.hand_out(&first);
        admitted.hand_out(&edit);
        admitted.remember(&first, Some("{}"));
        assert_eq!(novelty(&admitted, &edit), Novelty::Undecided);
        admitted.recall(&edit);
        assert_eq!(novelty(&admitted, &edit), Novelty::New);
    }

    #[test]
    fn g12_a_host_takes_a_message_part_by_part() {
        let mut admitted = Admitted::default();
        let part = |id| format!(r#"{{"channelId":"a","messageId":{id}}}"#);
        let parts = ["1", "2", "{}"].map(part).join(",");
        let three = message("channels/incoming", &format!(r#"{{"messages":[{parts}]}}"#));
        let receipts =
            r#"{"results":[{"messageId":1,"accepted":false},{"messageId":2,"accepted":true}]}"#;
        admitted.remember(&three, Some(receipts));
        let second = r#"{"messageId":2,"accepted":true}"#;
        let wanted = [Novelty::New, Novelty::Admitted(second.into()), Novelty::New];
        assert_eq!(admitted.novelties(&three), wanted);
    }

    #[test]
    fn g12_what_a_host_refused_was_not_admitted() {
        let mut admitted = Admitted::default();
        let event = message("push/event", r#"{"eventId":"e"}"#);
        admitted.remember(&event, None);
        admitted.remember(&event, Some(r#"{"accepted":false}"#));
        assert_eq!(novelty(&admitted, &event), Novelty::New);
        admitted.remember(&event, Some(r#"{"accepted":true}"#));
        let answer = r#"{"accepted":false,"reason":"duplicate"}"#;
        assert_eq!(novelty(&admitted, &event), Novelty::Admitted(answer.into()));
        let nameless = message("push/event", "{}");
        assert_eq!(novelty(&admitted, &nameless), Novelty::New);
    }

    #[test]
    fn g12_only_the_last_are_remembered_and_no_long_id_or_receipt() {
        let mut admitted = Admitted::default();
        let event = |id: usize| message("push/event", &format!(r#"{{"eventId":"{id}"}}"#));
        for id in 0..=EVENTS_MAX {
            admitted.remember(&event(id), Some(r#"{"accepted":true}"#));
        }
        assert_eq!(novelty(&admitted, &event(0)), Novelty::New);
        assert_ne!(novelty(&admitted, &event(1)), Novelty::New);
        assert_eq!(admitted.seen.len(), EVENTS_MAX);
        for id in 0..=PARTS_MAX {
            admitted.remember(&incoming("a", &id.to_string(), "x"), Some("{}"));
        }
        assert_eq!(novelty(&admitted, &incoming("a", "0", "x")), Novelty::New);
        assert_eq!(admitted.seen.len(), EVENTS_MAX + PARTS_MAX);
        let long = "x".repeat(ID_BYTES_MAX + 1);
        admitted.remember(&incoming("a", &long, "x"), Some("{}"));
        assert_eq!(novelty(&admitted, &incoming("a", &long, "x")), Novelty::New);
        let fill = "x".repeat(RECEIPT_BYTES_MAX);
        let result =
            format!(r#"{{"results":[{{"messageId":"b","accepted":true,"fill":"{fill}"}}]}}"#);
        admitted.remember(&incoming("a", "b", "x"), Some(&result));
        let plain = r#"{"messageId":"b","accepted":true}"#;
        assert_eq!(
            novelty(&admitted, &incoming("a", "b", "x")),
            Novelty::Admitted(plain.into())
        );
    }
}
