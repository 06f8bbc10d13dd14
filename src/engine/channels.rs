//! The channels that a server has registered in this epoch, by their descriptors as written, and the registrations that
//! wait for a host's verdict (G3, G9, G16).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::settings::{Bounds, Mask};
use crate::wire::jsonrpc::{member, quoted};

/// Registrations that wait for a verdict at a time; more are decided without the host.
const PENDING_MAX: usize = 1_000;
/// Channels in one replay (G13).
const BATCH: usize = 500;

/// What is registered, and what is about to be.
#[derive(Debug, Default)]
pub(super) struct Channels {
    known: BTreeMap<String, Box<str>>,
    bytes: usize,
    pending: BTreeMap<u64, Registration>,
    last: u64,
}

/// One `channels/register` or `channels/changed`, screened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registration {
    /// `channels/changed`, whose answer has no list of what is registered.
    pub(super) is_change: bool,
    /// Descriptors that may come, by id.
    pub(super) offered: Vec<(String, Box<str>)>,
    /// Ids that go.
    pub(super) removed: Vec<String>,
    /// The gateway's own verdicts.
    pub(super) refused: Vec<Verdict>,
}

/// What became of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The channel's id, as JSON text.
    id: String,
    /// Why not, where it was refused.
    refusal: Option<String>,
}

impl Verdict {
    fn refused(id: &str, why: &str) -> Self {
        Self {
            id: id.into(),
            refusal: Some(why.into()),
        }
    }

    fn accepted(id: &str) -> Self {
        Self {
            id: quoted(id),
            refusal: None,
        }
    }

    fn text(&self) -> String {
        let id = &self.id;
        match &self.refusal {
            None => format!(r#"{{"id":{id},"accepted":true}}"#),
            Some(why) => {
                let why = quoted(why);
                format!(r#"{{"id":{id},"accepted":false,"reason":{why}}}"#)
            }
        }
    }
}

impl Registration {
    /// The descriptors of `offered`, from one on, as the text of a JSON array.
    pub(super) fn list_from(&self, first: usize) -> String {
        let all = self.offered.iter().skip(first);
        array(all.map(|(_, descriptor)| descriptor))
    }

    /// The channels that it would register.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.offered.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Whether there is anything left that a host may judge.
    pub(super) fn asks_a_host(&self) -> bool {
        !self.offered.is_empty() || !self.removed.is_empty() || self.refused.is_empty()
    }
}

impl Channels {
    /// Sorts the descriptors of a JSON array into those that may be registered and those that the gateway refuses
    /// itself; `None` where it is no array.
    pub(super) fn screen(
        &self,
        list: &str,
        into: &mut Registration,
        mask: &Mask,
        bounds: &Bounds,
    ) -> Option<()> {
        let descriptors: Vec<&RawValue> = serde_json::from_str(list).ok()?;
        let mut bytes = self.bytes;
        for descriptor in descriptors.into_iter().map(RawValue::get) {
            let Some(id) = string(member(descriptor, "id")) else {
                let missing = Verdict::refused("null", "invalid descriptor: missing id");
                into.refused.push(missing);
                continue;
            };
            bytes += id.len() + descriptor.len();
            let full = self.known.len() + into.offered.len() >= bounds.channels
                || bytes > bounds.channel_bytes;
            if !mask.allows_channel(&id) {
                let masked = Verdict::refused(&quoted(&id), "not allowed by this gateway");
                into.refused.push(masked);
            } else if full && !self.known.contains_key(&id) {
                let full = Verdict::refused(&quoted(&id), "too many channels");
                into.refused.push(full);
            } else {
                into.offered.push((id, descriptor.into()));
            }
        }
        Some(())
    }

    /// Reads the ids of a removal: strings, and other plain values by their text; objects are ignored (G9).
    pub(super) fn removed(list: &str) -> Vec<String> {
        let Ok(ids) = serde_json::from_str::<Vec<&RawValue>>(list) else {
            return Vec::new();
        };
        let ids = ids.into_iter().map(RawValue::get);
        ids.filter(|id| !id.starts_with(['{', '[']))
            .map(|id| string(Some(id)).unwrap_or_else(|| id.to_owned()))
            .collect()
    }

    /// Registers a channel, or replaces its descriptor.
    pub(super) fn add(&mut self, id: String, descriptor: Box<str>) {
        self.remove(&id);
        self.bytes += id.len() + descriptor.len();
        self.known.insert(id, descriptor);
    }

    /// Unregisters a channel; whether it was registered.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let Some(descriptor) = self.known.remove(id) else {
            return false;
        };
        self.bytes -= id.len() + descriptor.len();
        true
    }

    /// Whether it is registered.
    pub(super) fn has(&self, id: &str) -> bool {
        self.known.contains_key(id)
    }

    /// Whether a host is judging its registration.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        let mut offered = self.pending.values().flat_map(|one| &one.offered);
        offered.any(|(offered, _)| offered == id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Accepts a registration as the host's delegate; the result for the server (G3).
    pub(super) fn accept(&mut self, registration: Registration) -> String {
        self.settle(registration, |_| None)
    }

    /// Settles a registration by verdicts: `refusal` tells why a channel is not taken. The result for the server.
    pub(super) fn settle(
        &mut self,
        registration: Registration,
        refusal: impl Fn(&str) -> Option<String>,
    ) -> String {
        let Registration {
            is_change,
            offered,
            removed,
            refused,
        } = registration;
        let mut verdicts = refused;
        for id in removed {
            let known = self.remove(&id);
            verdicts.push(Verdict {
                id: quoted(&id),
                refusal: (!known).then(|| "not registered".into()),
            });
        }
        let mut registered = Vec::new();
        for (id, descriptor) in offered {
            if let Some(why) = refusal(&id) {
                self.remove(&id);
                verdicts.push(Verdict::refused(&quoted(&id), &why));
                continue;
            }
            verdicts.push(Verdict::accepted(&id));
            registered.push(quoted(&id));
            self.add(id, descriptor);
        }
        let results = array(verdicts.iter().map(Verdict::text));
        if is_change {
            format!(r#"{{"results":{results}}}"#)
        } else {
            let registered = array(registered);
            format!(r#"{{"registered":{registered},"results":{results}}}"#)
        }
    }

    /// Puts a registration aside until a host has judged it; `None` where too many wait.
    pub(super) fn suspend(&mut self, registration: Registration) -> Option<u64> {
        if self.pending.len() >= PENDING_MAX {
            return None;
        }
        self.last += 1;
        self.pending.insert(self.last, registration);
        Some(self.last)
    }

    /// Takes back a registration that was put aside.
    pub(super) fn resume(&mut self, ticket: u64) -> Option<Registration> {
        self.pending.remove(&ticket)
    }

    /// Every channel, as the result of `channels/list`.
    pub(super) fn listing(&self) -> String {
        let all = array(self.known.values());
        format!(r#"{{"channels":{all}}}"#)
    }

    /// Every channel, as params of `channels/register`, some at a time (G13).
    pub(super) fn batches(&self) -> Vec<String> {
        let all: Vec<&Box<str>> = self.known.values().collect();
        let batches = all.chunks(BATCH);
        batches
            .map(|batch| format!(r#"{{"channels":{}}}"#, array(batch)))
            .collect()
    }

    /// The channels that a host's answer to a replay names as refused.
    pub(super) fn refused_by(&self, result: &str) -> Vec<String> {
        let items: Vec<&RawValue> = member(result, "results")
            .and_then(|results| serde_json::from_str(results).ok())
            .unwrap_or_default();
        let items = items.into_iter().map(RawValue::get);
        items
            .filter(|item| member(item, "accepted") == Some("false"))
            .filter_map(|item| string(member(item, "id")))
            .filter(|id| self.has(id))
            .collect()
    }

    /// They were the process's that is gone.
    pub(super) fn forget(&mut self) {
        *self = Self {
            last: self.last,
            ..Self::default()
        };
    }
}

/// Why a host's answer to a registration refuses a channel: by its item, or by its absence from what is registered. An
/// answer that names neither accepts all.
pub(super) fn refusal(result: &str, id: &str) -> Option<String> {
    let items: Vec<&RawValue> = member(result, "results")
        .and_then(|results| serde_json::from_str(results).ok())
        .unwrap_or_default();
    let mut items = items.into_iter().map(RawValue::get);
    if let Some(item) = items.find(|item| string(member(item, "id")).as_deref() == Some(id)) {
        let refused = member(item, "accepted") != Some("true");
        let why = string(member(item, "reason"));
        return refused.then(|| why.unwrap_or_else(|| "refused by the host".into()));
    }
    let registered: Option<Vec<String>> =
        member(result, "registered").and_then(|ids| serde_json::from_str(ids).ok());
    let absent = registered.is_some_and(|ids| !ids.iter().any(|known| known == id));
    absent.then(|| "refused by the host".into())
}

fn string(text: Option<&str>) -> Option<String> {
    serde_json::from_str(text?).ok()
}

fn array<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let mut text = String::from("[");
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text += item.as_ref();
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screened(channels: &Channels, list: &str, mask: &Mask, bounds: &Bounds) -> Registration {
        let mut registration = Registration::default();
        channels
            .screen(list, &mut registration, mask, bounds)
            .unwrap();
        registration
    }

    #[test]
    fn g16_descriptors_are_judged_one_by_one() {
        let mut channels = Channels::default();
        let mask = Mask {
            channels: Some(vec!["chat:*".into()]),
            ..Mask::default()
        };
        let bounds = Bounds {
            channels: 2,
            ..Bounds::default()
        };
        let list =
            r#"[{"id":"chat:1","n":1.0},{"id":"x"},{"id":3},{"id":"chat:2"},{"id":"chat:3"}]"#;
        let registration = screened(&channels, list, &mask, &bounds);
        assert_eq!(
            registration.list_from(0),
            r#"[{"id":"chat:1","n":1.0},{"id":"chat:2"}]"#
        );
        let result = channels.accept(registration);
        assert_eq!(
            result,
            r#"{"registered":["chat:1","chat:2"],"results":[{"id":"x","accepted":false,"reason":"not allowed by this gateway"},{"id":null,"accepted":false,"reason":"invalid descriptor: missing id"},{"id":"chat:3","accepted":false,"reason":"too many channels"},{"id":"chat:1","accepted":true},{"id":"chat:2","accepted":true}]}"#
        );
        assert_eq!(
            channels.listing(),
            r#"{"channels":[{"id":"chat:1","n":1.0},{"id":"chat:2"}]}"#
        );
        let again = screened(&channels, r#"[{"id":"chat:2","m":1}]"#, &mask, &bounds);
        assert_eq!(again.offered.len(), 1);
    }

    #[test]
    fn g16_descriptors_have_a_bound_in_bytes() {
        let mut channels = Channels::default();
        let bounds = Bounds {
            channel_bytes: 40,
            ..Bounds::default()
        };
        let list = r#"[{"id":"a","label":"aaaa"},{"id":"b","label":"bbbb"}]"#;
        let registration = screened(&channels, list, &Mask::default(), &bounds);
        assert_eq!(
            (registration.offered.len(), registration.refused.len()),
            (1, 1)
        );
        channels.accept(registration);
        channels.remove("a");
        assert_eq!((channels.bytes, channels.len()), (0, 0));
    }

    #[test]
    fn g9_removals_compare_by_value_and_ignore_objects() {
        let removed = Channels::removed(r#"["a",5,{"id":"b"},["c"],true]"#);
        assert_eq!(removed, ["a", "5", "true"]);
        assert!(Channels::removed("{}").is_empty());
    }

    #[test]
    fn a_hosts_answer_refuses_by_item_or_by_absence() {
        let by_item =
            r#"{"results":[{"id":"a","accepted":false,"reason":"no"},{"id":"b","accepted":true}]}"#;
        assert_eq!(refusal(by_item, "a").as_deref(), Some("no"));
        assert_eq!(refusal(by_item, "b"), None);
        let by_absence = r#"{"registered":["a"]}"#;
        assert_eq!(refusal(by_absence, "a"), None);
        assert!(refusal(by_absence, "b").is_some());
        assert_eq!(refusal("{}", "a"), None);
    }

    #[test]
    fn g13_channels_are_replayed_some_at_a_time() {
        let mut channels = Channels::default();
        for id in 0..1_001 {
            channels.add(format!("c{id}"), format!(r#"{{"id":"c{id}"}}"#).into());
        }
        assert_eq!(channels.batches().len(), 3);
        channels.forget();
        assert!(channels.batches().is_empty() && !channels.has("c1"));
    }
}
