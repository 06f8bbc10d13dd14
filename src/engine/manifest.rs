//! The manifest of one connection (P8): when it may be fetched again, and what differs between two of them. It sends
//! nothing, and grants nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::decision::Difference;
use crate::wire::jsonrpc::{Message, member};
use crate::wire::mcpl::Domain;

/// Between two completed fetches (P8).
const FLOOR: Duration = Duration::from_secs(5);
/// Names that a list tells in full.
const NAMES_MAX: usize = 32;
/// The characters of a name that are told.
const NAME_CHARS_MAX: usize = 128;

/// What announcements named, each domain once.
pub(super) type Domains = BTreeSet<Domain>;

/// Reads the params of a `mcpl/manifestChanged`.
pub(super) fn announced(message: &Message) -> Domains {
    let domains = message.params().and_then(|text| member(text, "domains"));
    let names: Vec<Value> = domains
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let named = |domain: &Domain| names.iter().any(|name| name == domain.label());
    Domain::ALL.into_iter().filter(named).collect()
}

/// When the manifest of the serving transport may be fetched: one fetch at a time, one more that waits, and five
/// seconds between them. It ends with the transport, so that nothing announced on one is fetched on another.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    running: Option<Domains>,
    queued: Option<Domains>,
    free_at: Option<Instant>,
}

impl Refresh {
    /// The manifest changed: it is to be fetched again. Announcements that wait for the same fetch are one.
    pub(super) fn want(&mut self, domains: Domains) {
        self.queued.get_or_insert_default().extend(domains);
    }

    /// Begins the fetch that waits, if it may begin now.
    pub(super) fn start(&mut self, now: Instant) -> bool {
        let free = self.running.is_none() && self.free_at.is_none_or(|at| at <= now);
        if free && let Some(domains) = self.queued.take() {
            self.running = Some(domains);
            return true;
        }
        false
    }

    /// The fetch that runs is over. Tells what its announcements named.
    pub(super) fn finish(&mut self, now: Instant) -> Domains {
        self.free_at = now.checked_add(FLOOR);
        self.running.take().unwrap_or_default()
    }

    /// When the fetch that waits may begin.
    pub(super) fn next(&self) -> Option<Instant> {
        let waits = self.running.is_none() && self.queued.is_some();
        self.free_at.filter(|_| waits)
    }
}

/// A fetched manifest that is not in force yet.
#[derive(Debug)]
pub(super) struct Fetched {
    /// As received.
    pub(super) text: Box<str>,
    /// Its digest, where it has one.
    pub(super) revision: Option<String>,
    /// What its announcements named.
    pub(super) domains: Domains,
}

/// The domains in which two manifests differ, as JSON text. One that is absent is not one that is empty.
pub(super) fn differing(old: Option<&str>, new: &str) -> Domains {
    let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let (old, new) = (old.map_or(Value::Null, read), read(new));
    let differs = |domain: &Domain| projection(&old, *domain) != projection(&new, *domain);
    Domain::ALL.into_iter().filter(differs).collect()
}

/// What of a manifest belongs to a domain.
fn projection(manifest: &Value, domain: Domain) -> BTreeMap<&str, Value> {
    let Domain::Capabilities = domain else {
        return sets(manifest, domain);
    };
    let members = manifest.as_object().into_iter().flatten();
    members
        .filter(|(key, _)| !matches!(key.as_str(), "version" | "revision" | "featureSets"))
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect()
}

fn sets(manifest: &Value, domain: Domain) -> BTreeMap<&str, Value> {
    let Some(declared) = manifest.get("featureSets") else {
        return BTreeMap::new();
    };
    let Some(declared) = declared.as_object() else {
        return BTreeMap::from([("", declared.clone())]);
    };
    let part = |set: &Value| {
        let mut set = set.clone();
        let tags = set
            .as_object_mut()
            .and_then(|set| set.remove("tagOntology"));
        if domain == Domain::TagOntology {
            return tags;
        }
        Some(set)
    };
    let each = declared.iter();
    let parts = each.filter_map(|(name, set)| Some((name.as_str(), part(set)?)));
    // The empty name is none of a feature set: that there are feature sets at all tells absent from empty.
    parts.chain([("", Value::Null)]).collect()
}

/// What `new` adds to `old` and takes away; of what it adds, the part that is not in `effect` is pending.
pub(super) fn difference<'a>(
    old: &BTreeSet<&'a str>,
    new: &BTreeSet<&'a str>,
    effect: impl Fn(&str) -> bool,
) -> Difference {
    let added = new.difference(old).copied();
    let (added, pending): (Vec<_>, Vec<_>) = added.partition(|name| effect(name));
    Difference {
        added: told(&added),
        pending: told(&pending),
        removed: told(&old.difference(new).copied().collect::<Vec<_>>()),
    }
}

fn told(names: &[&str]) -> Vec<String> {
    let short = |name: &&str| name.chars().take(NAME_CHARS_MAX).collect();
    let mut told: Vec<String> = names.iter().take(NAMES_MAX).map(short).collect();
    if let Some(more) = names.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test has to begin some time")]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn domains<const N: usize>(domains: [Domain; N]) -> Domains {
        domains.into()
    }

    #[test]
    fn p8_announcements_cause_one_fetch_in_flight_and_one_that_waits_five_seconds() {
        let now = Instant::now();
        let mut refresh = Refresh::default();
        assert!(!refresh.start(now) && refresh.next().is_none());
        refresh.want(domains([Domain::Capabilities]));
        assert!(refresh.start(now));
        for domain in [
            Domain::TagOntology,
            Domain::FeatureSets,
            Domain::TagOntology,
        ] {
            refresh.want(domains([domain]));
            assert!(!refresh.start(now + 60 * SECOND));
        }
        assert_eq!(refresh.next(), None);
        assert_eq!(
            refresh.finish(now + SECOND),
            domains([Domain::Capabilities])
        );
        assert_eq!(refresh.next(), Some(now + 6 * SECOND));
        assert!(!refresh.start(now + 5 * SECOND) && refresh.start(now + 6 * SECOND));
        let both = domains([Domain::FeatureSets, Domain::TagOntology]);
        assert_eq!(refresh.finish(now + 7 * SECOND), both);
        assert_eq!(refresh.next(), None);
    }

    #[test]
    fn p8_the_domains_in_which_manifests_differ_tell_absent_from_empty() {
        use Domain::{Capabilities, FeatureSets, TagOntology};
        let set = |body: &str| format!(r#"{{"featureSets":{{"f":{body}}}}}"#);
        for (old, new, differ) in [
            (
                r#"{"a":1}"#,
                r#"{"a":1,"version":"9","revision":"x"}"#,
                vec![],
            ),
            (r#"{"a":1}"#, r#"{"a":2}"#, vec![Capabilities]),
            (
                r#"{"version":"0.5"}"#,
                r#"{"version":"0.5","featureSets":{}}"#,
                vec![FeatureSets, TagOntology],
            ),
            (&set("{}"), &set(r#"{"uses":[]}"#), vec![FeatureSets]),
            (&set("{}"), &set(r#"{"tagOntology":{}}"#), vec![TagOntology]),
            (
                r#"{"featureSets":[]}"#,
                r#"{"featureSets":[1]}"#,
                vec![FeatureSets, TagOntology],
            ),
        ] {
            assert_eq!(
                differing(Some(old), new),
                differ.into_iter().collect(),
                "{new}"
            );
        }
        assert_eq!(differing(None, r#"{"a":1}"#), domains([Capabilities]));
        assert_eq!(differing(Some("true"), "{}"), domains([]));
    }

    #[test]
    fn p8_a_change_tells_what_is_new_in_effect_or_not_and_gone_within_a_bound() {
        let (old, new) = (BTreeSet::from(["a", "b"]), BTreeSet::from(["b", "c", "d"]));
        let wanted = Difference {
            added: vec!["c".into()],
            pending: vec!["d".into()],
            removed: vec!["a".into()],
        };
        assert_eq!(difference(&old, &new, |name| name == "c"), wanted);
        assert_eq!(wanted.to_string(), "added c, not accepted d, removed a");
        assert_eq!(Difference::default().to_string(), "unchanged");
        let many: Vec<String> = (0..100)
            .map(|at| format!("{at}{}", "x".repeat(200)))
            .collect();
        let many = many.iter().map(String::as_str).collect();
        let told = difference(&BTreeSet::new(), &many, |_| true).added;
        assert_eq!(told.len(), 33);
        assert_eq!(told.last().map(String::as_str), Some("and 68 more"));
        assert!(told.iter().all(|name| name.len() <= 128));
    }

    #[test]
    fn p8_an_announcement_is_read_as_far_as_it_goes() {
        let announcement = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","method":"mcpl/manifestChanged","params":{params}}}"#);
            announced(&Message::parse(text.into()).unwrap())
        };
        let told =
            announcement(r#"{"revision":"x","domains":["tagOntology","x",3,"tagOntology"]}"#);
        assert_eq!(told, domains([Domain::TagOntology]));
        for odd in ["[]", "{}", r#"{"domains":"capabilities"}"#] {
            assert_eq!(announcement(odd), domains([]), "{odd}");
        }
    }
}
