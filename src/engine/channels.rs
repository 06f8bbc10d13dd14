//! The channels that a server has registered in this epoch, by their descriptors as written, and the registrations that
//! wait for a host's verdict (G3, G9, G16).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::settings::{Bounds, Mask};
use crate::wire::jsonrpc::{member, quoted};

/// What the registrations name that wait for a host's verdict, in bytes: two of the longest messages.
const PENDING_BYTES_MAX: usize = 32 << 20;
/// Channels in one replay (G13).
const BATCH: usize = 500;

/// What is registered, and what is about to be.
#[derive(Debug, Default)]
pub(super) struct Channels {
    known: BTreeMap<String, Box<str>>,
    bytes: usize,
    pending: BTreeMap<u64, Registration>,
    /// The channels that `pending` offers, with how many registrations offer each.
    claimed: BTreeMap<String, usize>,
    pending_bytes: usize,
    /// Of `claimed`, those that the server removed since: they go when they have been judged.
    leaving: BTreeSet<String>,
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
    /// How many of `offered` were neither registered nor about to be.
    pub(super) fresh: usize,
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

    /// What it names, in bytes.
    fn bytes(&self) -> usize {
        let offered = self.offered.iter().map(|(id, text)| id.len() + text.len());
        let removed = self.removed.iter().map(String::len);
        let refused = self.refused.iter().map(|verdict| verdict.id.len());
        offered.chain(removed).chain(refused).sum()
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
        let channels = self.coming(bounds.channels.saturating_sub(descriptors.len()));
        let mut bytes = self.bytes + self.pending_bytes + into.bytes();
        for descriptor in descriptors.into_iter().map(RawValue::get) {
            let Some(id) = string(member(descriptor, "id")) else {
                let missing = Verdict::refused("null", "invalid descriptor: missing id");
                into.refused.push(missing);
                continue;
            };
            let replaced = self.known.get(&id).map(|old| id.len() + old.len());
            let fresh = replaced.is_none() && !self.claimed.contains_key(&id);
            let after = bytes + id.len() + descriptor.len() - replaced.unwrap_or(0).min(bytes);
            let refusal = if !mask.allows_channel(&id) {
                "not allowed by this gateway"
            } else if fresh && channels + into.fresh >= bounds.channels {
                "too many channels"
            } else if after > bounds.channel_bytes {
                "too many bytes of channel descriptors"
            } else {
                bytes = after;
                into.fresh += usize::from(fresh);
                into.offered.push((id, descriptor.into()));
                continue;
            };
            into.refused.push(Verdict::refused(&quoted(&id), refusal));
        }
        Some(())
    }

    /// How many channels there are, or will be when hosts have judged what is put to them. Above `least` exactly; below
    /// it, what is registered again may count twice.
    fn coming(&self, least: usize) -> usize {
        let most = self.known.len() + self.claimed.len();
        if most <= least {
            return most;
        }
        let again = self
            .claimed
            .keys()
            .filter(|id| self.known.contains_key(*id));
        most - again.count()
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
        self.claimed.contains_key(id)
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
            fresh: _,
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
        let bytes = self.pending_bytes + registration.bytes();
        if bytes > PENDING_BYTES_MAX {
            return None;
        }
        self.pending_bytes = bytes;
        for (id, _) in &registration.offered {
            *self.claimed.entry(id.clone()).or_default() += 1;
            self.leaving.remove(id);
        }
        self.last += 1;
        self.pending.insert(self.last, registration);
        Some(self.last)
    }

    /// Takes back a registration that was put aside.
    pub(super) fn resume(&mut self, ticket: u64) -> Option<Registration> {
        let registration = self.pending.remove(&ticket)?;
        self.pending_bytes -= registration.bytes();
        for (id, _) in &registration.offered {
            if let Entry::Occupied(mut claims) = self.claimed.entry(id.clone()) {
                *claims.get_mut() -= 1;
                if *claims.get() == 0 {
                    claims.remove();
                }
            }
        }
        Some(registration)
    }

    /// A registration that no host judges does not overtake those that one is judging: per channel, the order in which
    /// the server wrote holds (G9).
    pub(super) fn follow(&mut self, registration: &Registration) {
        let removed = registration.removed.iter();
        let judged = removed.filter(|id| self.claimed.contains_key(*id));
        self.leaving.extend(judged.cloned());
        for (id, _) in &registration.offered {
            self.leaving.remove(id);
        }
    }

    /// Takes away those of judged channels that the server removed meanwhile.
    pub(super) fn leave(&mut self, judged: &BTreeSet<String>) {
        for id in judged {
            if !self.is_pending(id) && self.leaving.remove(id) {
                self.remove(id);
            }
        }
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

/// What a host's answer says of each channel of a registration: by its item, or by its absence from what is
/// registered. An answer that names neither accepts all.
pub(super) struct Judgement {
    /// By id: why not, where it is refused.
    items: BTreeMap<String, Option<String>>,
    registered: Option<BTreeSet<String>>,
}

impl Judgement {
    pub(super) fn read(result: &str) -> Self {
        let items: Vec<&RawValue> = member(result, "results")
            .and_then(|results| serde_json::from_str(results).ok())
            .unwrap_or_default();
        let item = |item: &RawValue| {
            let id = string(member(item.get(), "id"))?;
            let refused = member(item.get(), "accepted") != Some("true");
            let why = || string(member(item.get(), "reason"));
            Some((id, refused.then(|| why().unwrap_or_else(unreasoned))))
        };
        let registered = member(result, "registered");
        Self {
            // Of two items about one channel the first counts.
            items: items.into_iter().rev().filter_map(item).collect(),
            registered: registered.and_then(|ids| serde_json::from_str(ids).ok()),
        }
    }

    /// Why a channel is refused, where it is.
    pub(super) fn refusal(&self, id: &str) -> Option<String> {
        if let Some(verdict) = self.items.get(id) {
            return verdict.clone();
        }
        let absent = self
            .registered
            .as_ref()
            .is_some_and(|ids| !ids.contains(id));
        absent.then(unreasoned)
    }
}

fn unreasoned() -> String {
    "refused by the host".into()
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
        let refusal = |result, id| Judgement::read(result).refusal(id);
        let by_item = r#"{"results":[{"id":"a","accepted":false,"reason":"no"},{"id":"a","accepted":true},{"id":"b","accepted":true}]}"#;
        assert_eq!(refusal(by_item, "a").as_deref(), Some("no"));
        assert_eq!(refusal(by_item, "b"), None);
        let by_absence = r#"{"registered":["a"]}"#;
        assert_eq!(refusal(by_absence, "a"), None);
        assert!(refusal(by_absence, "b").is_some());
        assert_eq!(refusal("{}", "a"), None);
    }

    /// The same, put to a host that has not answered.
    fn suspended(channels: &mut Channels, list: &str, bounds: &Bounds) -> u64 {
        let registration = screened(channels, list, &Mask::default(), bounds);
        channels.suspend(registration).unwrap()
    }

    #[test]
    fn g16_what_a_host_is_judging_counts_for_the_bounds() {
        let mut channels = Channels::default();
        let bounds = Bounds {
            channels: 2,
            channel_bytes: 60,
            ..Bounds::default()
        };
        let judged = |channels: &Channels, list: &str| {
            let registration = screened(channels, list, &Mask::default(), &bounds);
            let refused = registration.refused.into_iter();
            refused.filter_map(|one| one.refusal).collect::<Vec<_>>()
        };
        let first = suspended(&mut channels, r#"[{"id":"a"},{"id":"b"}]"#, &bounds);
        assert_eq!(judged(&channels, r#"[{"id":"c"}]"#), ["too many channels"]);
        let again = suspended(&mut channels, r#"[{"id":"b"}]"#, &bounds);
        let long = r#"[{"id":"b","label":"0123456789012345"}]"#;
        let heavy = ["too many bytes of channel descriptors"];
        assert_eq!(judged(&channels, long), heavy);
        let whole = channels.resume(first).unwrap();
        channels.accept(whole);
        assert!(channels.is_pending("b") && !channels.is_pending("a"));
        channels.resume(again);
        assert!(!channels.is_pending("b"));
        assert_eq!((channels.pending_bytes, channels.claimed.len()), (0, 0));
        assert_eq!(
            judged(&channels, long),
            [""; 0],
            "it replaces what there is"
        );
        let longer = r#"[{"id":"b","label":"01234567890123456789012345678901234567"}]"#;
        assert_eq!(judged(&channels, longer), heavy);
    }

    #[test]
    fn g16_channels_that_are_registered_again_leave_room_for_others() {
        let mut channels = Channels::default();
        let bounds = Bounds {
            channels: 3,
            ..Bounds::default()
        };
        let two = r#"[{"id":"a"},{"id":"b"}]"#;
        let registration = screened(&channels, two, &Mask::default(), &bounds);
        channels.accept(registration);
        suspended(&mut channels, two, &bounds);
        let three = r#"[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}]"#;
        let registration = screened(&channels, three, &Mask::default(), &bounds);
        assert_eq!(registration.offered.len(), 3);
    }

    #[test]
    fn g16_what_waits_for_a_hosts_verdict_is_bounded_in_bytes() {
        let mut channels = Channels::default();
        let large = |bytes| Registration {
            removed: vec!["x".repeat(bytes)],
            ..Registration::default()
        };
        let first = channels.suspend(large(PENDING_BYTES_MAX)).unwrap();
        assert_eq!(channels.suspend(large(1)), None);
        channels.resume(first);
        assert!(channels.suspend(large(1)).is_some());
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
