//! What a server may be granted: what it advertises, less the mask, less the host's narrowing (P1, P2, P4, P9). It
//! computes; whether and when a grant takes effect is decided elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::settings::Mask;
use crate::wire::capability::{CapabilitySet, matches};
use crate::wire::jsonrpc::{member, quoted};
use crate::wire::mcpl::{CAPABILITIES, UNLESS_NAMED};

/// The feature sets that an advertisement may declare; more are ignored.
const FEATURE_SETS_MAX: usize = 1_000;

/// What the gateway offers to a server: the params of a `featureSets/update`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// What is granted once the server accepts.
    pub(super) granted: CapabilitySet,
    /// Advertised and not granted.
    pub(super) denied: CapabilitySet,
    /// Feature sets to use.
    pub(super) enabled: Vec<String>,
    /// Feature sets not to use.
    pub(super) disabled: Vec<String>,
}

/// A host's narrowing: the params of its own `featureSets/update` (P1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Narrowing {
    granted: CapabilitySet,
    enabled: Option<Vec<String>>,
    disabled: Vec<String>,
}

/// What an update makes of a narrowing that is no policy of its own (MCPL §6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reduced {
    /// The narrowing with more feature sets turned off; `None` where none is.
    pub(super) narrowing: Option<Narrowing>,
    /// It says more of a policy, or cannot be read.
    pub(super) oversteps: bool,
    /// It says nothing of a policy.
    pub(super) describes: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    enabled: Option<Vec<String>>,
    #[serde(default)]
    disabled: Vec<String>,
    #[serde(default)]
    effective_capabilities: Vec<String>,
    #[serde(default)]
    denied_capabilities: Vec<String>,
}

impl Narrowing {
    /// Reads an update; `None` where it has another shape. A path that is granted and denied at once makes the whole
    /// malformed, and then it grants nothing.
    pub(super) fn read(params: &str) -> Option<Self> {
        let update: Update = serde_json::from_str(params).ok()?;
        let granted = union(&update.effective_capabilities, CapabilitySet::named);
        let denied = union(&update.denied_capabilities, CapabilitySet::named);
        let contradicts = !granted.and(denied).is_empty();
        Some(Self {
            granted: if contradicts {
                CapabilitySet::NONE
            } else {
                granted
            },
            enabled: update.enabled,
            disabled: update.disabled,
        })
    }

    /// An update that wants no answer, on top of what holds: its `disabled` counts, and nothing else of a policy.
    pub(super) fn reduced(held: Option<&Self>, params: &str) -> Reduced {
        let read: Option<Update> = serde_json::from_str(params).ok();
        let Some(update) = read.filter(|update| update.disabled.len() <= FEATURE_SETS_MAX) else {
            return Reduced {
                narrowing: None,
                oversteps: true,
                describes: false,
            };
        };
        let has = |key: &&str| member(params, key).is_some();
        let is_policy = ["enabled", "effectiveCapabilities", "deniedCapabilities"]
            .iter()
            .any(has);
        let mut whole = held.cloned().unwrap_or_else(Self::nothing);
        let before = whole.disabled.len();
        for name in update.disabled {
            if !whole.disabled.contains(&name) {
                whole.disabled.push(name);
            }
        }
        let has_room = whole.disabled.len() <= FEATURE_SETS_MAX;
        let turns_off = whole.disabled.len() > before && has_room;
        Reduced {
            narrowing: turns_off.then_some(whole),
            oversteps: is_policy || !has_room,
            describes: !is_policy && !has(&"disabled"),
        }
    }

    /// One that takes nothing away.
    fn nothing() -> Self {
        Self {
            granted: CapabilitySet::ALL,
            enabled: None,
            disabled: Vec::new(),
        }
    }

    /// The update that reads as this narrowing, as JSON text.
    pub(super) fn params(&self) -> String {
        let names = |key, names: &[String]| list(key, names.iter().map(String::as_str));
        let mut members = vec![list("effectiveCapabilities", self.granted.paths())];
        members.extend(
            self.enabled
                .as_ref()
                .map(|enabled| names("enabled", enabled)),
        );
        members.push(names("disabled", &self.disabled));
        format!("{{{}}}", members.join(","))
    }
}

impl Terms {
    /// The terms for a server that advertises `manifest`, and MCP's own `tools` or not.
    pub(super) fn new(
        manifest: &str,
        tools: bool,
        mask: &Mask,
        narrowing: Option<&Narrowing>,
    ) -> Self {
        let mut advertised = CapabilitySet::advertised(manifest);
        if tools {
            advertised = advertised.or(CapabilitySet::named("tools"));
        }
        let narrowed = narrowing.map_or(CapabilitySet::ALL, |narrowing| narrowing.granted);
        let granted = masked(advertised, mask).and(narrowed);
        let (enabled, disabled) = feature_sets(manifest)
            .into_iter()
            .partition(|set| set.is_usable(granted) && is_selected(&set.name, mask, narrowing));
        Self {
            granted,
            denied: advertised.without(granted),
            enabled: names(enabled),
            disabled: names(disabled),
        }
    }

    /// The declared feature sets by name, and whether each is to be used.
    pub(super) fn feature_sets(&self) -> BTreeMap<String, bool> {
        let enabled = self.enabled.iter().map(|name| (name.clone(), true));
        let disabled = self.disabled.iter().map(|name| (name.clone(), false));
        // Declared twice, the disabled one counts.
        enabled.chain(disabled).collect()
    }

    /// The update's params, as JSON text.
    pub(super) fn params(&self) -> String {
        let mut members = Vec::new();
        let lists = [("enabled", &self.enabled), ("disabled", &self.disabled)];
        for (key, names) in lists {
            if !names.is_empty() {
                members.push(list(key, names.iter().map(String::as_str)));
            }
        }
        members.push(list("effectiveCapabilities", self.granted.paths()));
        if !self.denied.is_empty() {
            members.push(list("deniedCapabilities", self.denied.paths()));
        }
        format!("{{{}}}", members.join(","))
    }
}

fn list<'a>(key: &str, items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.map(quoted).collect();
    format!("\"{key}\":[{}]", items.join(","))
}

fn union(patterns: &[String], of: impl Fn(&str) -> CapabilitySet) -> CapabilitySet {
    let each = patterns.iter().map(|pattern| of(pattern));
    each.fold(CapabilitySet::NONE, CapabilitySet::or)
}

fn masked(advertised: CapabilitySet, mask: &Mask) -> CapabilitySet {
    let enabled = mask.enabled_capabilities.as_deref();
    let allowed = enabled.map_or(CapabilitySet::ALL, |patterns| {
        union(patterns, CapabilitySet::covered)
    });
    let named = union(enabled.unwrap_or_default(), CapabilitySet::named);
    let sensitive = union(&UNLESS_NAMED.map(String::from), CapabilitySet::named);
    advertised
        .and(allowed)
        .without(sensitive.without(named))
        .without(union(&mask.disabled_capabilities, CapabilitySet::covered))
}

struct FeatureSet {
    name: String,
    uses: Vec<String>,
    rollback: bool,
}

impl FeatureSet {
    fn read(name: String, body: &str) -> Self {
        let uses = member(body, "uses").and_then(|uses| serde_json::from_str(uses).ok());
        Self {
            name,
            uses: uses.unwrap_or_default(),
            rollback: member(body, "rollback") == Some("true"),
        }
    }

    /// Absent, empty and unknown `uses` are invalid; a valid one must be covered by the grant (P9).
    fn is_usable(&self, granted: CapabilitySet) -> bool {
        let covered = |path: &String| CAPABILITIES.contains(&path.as_str()) && granted.has(path);
        !self.uses.is_empty() && self.uses.iter().all(covered)
    }
}

/// Whether a manifest declares that feature set as one that can be rolled back (MCPL §8.1).
pub(super) fn declares_rollback(manifest: &str, name: &str) -> bool {
    let declared = feature_sets(manifest);
    let named: Vec<_> = declared.iter().filter(|set| set.name == name).collect();
    !named.is_empty() && named.iter().all(|set| set.rollback)
}

/// The declared feature sets, from the object form or the older array form (P9).
fn feature_sets(manifest: &str) -> Vec<FeatureSet> {
    let Some(declared) = member(manifest, "featureSets") else {
        return Vec::new();
    };
    let object: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(declared).ok();
    let array: Option<Vec<&RawValue>> = serde_json::from_str(declared).ok();
    let named = array.into_iter().flatten().filter_map(|body| {
        let name = serde_json::from_str(member(body.get(), "name")?).ok()?;
        Some(FeatureSet::read(name, body.get()))
    });
    let keyed = object.into_iter().flatten();
    keyed
        .map(|(name, body)| FeatureSet::read(name, body.get()))
        .chain(named)
        .take(FEATURE_SETS_MAX)
        .collect()
}

fn is_selected(name: &str, mask: &Mask, narrowing: Option<&Narrowing>) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
    let allowed = |list: Option<&Vec<String>>| list.is_none_or(|patterns| any(patterns));
    let by_host =
        narrowing.is_none_or(|host| allowed(host.enabled.as_ref()) && !any(&host.disabled));
    by_host && allowed(mask.enabled_feature_sets.as_ref()) && !any(&mask.disabled_feature_sets)
}

fn names(sets: Vec<FeatureSet>) -> Vec<String> {
    sets.into_iter().map(|set| set.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = r#"{"pushEvents":true,"channels":{"register":true,"incoming":true},
        "contextHooks":{"beforeInference":true},"toolLifecycle":true,
        "featureSets":{"chat":{"uses":["pushEvents"]},"chat.deep":{"uses":["channels.incoming"]},
        "idle":{"uses":[]},"odd":{"uses":["nonsense"]},"none":{}}}"#;

    fn names(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(ToString::to_string).collect()
    }

    fn paths(terms: &Terms) -> Vec<&'static str> {
        terms.granted.paths().collect()
    }

    #[test]
    fn p4_system_injection_and_tool_lifecycle_are_denied_unless_named_in_full() {
        let plain = Terms::new(CHAT, false, &Mask::default(), None);
        assert!(!plain.granted.has(UNLESS_NAMED[0]) && plain.denied.has(UNLESS_NAMED[0]));
        let parent = Mask {
            enabled_capabilities: Some(names(&["contextHooks", "toolLifecycle.*"])),
            ..Mask::default()
        };
        let granted = paths(&Terms::new(CHAT, false, &parent, None));
        assert!(!granted.contains(&UNLESS_NAMED[0]));
        assert!(granted.contains(&"toolLifecycle.observe"));
    }

    #[test]
    fn p1_the_grant_is_what_is_advertised_masked_and_narrowed() {
        let mask = Mask {
            disabled_capabilities: names(&["contextHooks.*"]),
            ..Mask::default()
        };
        let terms = Terms::new(CHAT, true, &mask, None);
        let all = [
            "channels.incoming",
            "channels.register",
            "pushEvents",
            "tools",
        ];
        assert_eq!(paths(&terms), all);
        let host = Narrowing::read(r#"{"effectiveCapabilities":["channels.*","modelInfo"]}"#);
        let terms = Terms::new(CHAT, true, &mask, host.as_ref());
        assert_eq!(paths(&terms), ["channels.incoming", "channels.register"]);
        let nothing = Narrowing::read("{}");
        assert!(
            Terms::new(CHAT, true, &mask, nothing.as_ref())
                .granted
                .is_empty()
        );
        assert_eq!(Narrowing::read(r#"{"effectiveCapabilities":true}"#), None);
    }

    #[test]
    fn p2_a_path_that_is_granted_and_denied_at_once_grants_nothing() {
        let host = Narrowing::read(
            r#"{"effectiveCapabilities":["pushEvents","tools"],"deniedCapabilities":["tools"]}"#,
        );
        assert!(host.unwrap().granted.is_empty());
    }

    #[test]
    fn p9_unusable_feature_sets_are_disabled_and_deny_wins() {
        let terms = Terms::new(CHAT, false, &Mask::default(), None);
        assert_eq!(terms.enabled, ["chat", "chat.deep"]);
        assert_eq!(terms.disabled, ["idle", "none", "odd"]);
        let mask = Mask {
            enabled_feature_sets: Some(names(&["chat", "*.deep"])),
            disabled_feature_sets: names(&["chat"]),
            ..Mask::default()
        };
        assert_eq!(Terms::new(CHAT, false, &mask, None).enabled, ["chat.deep"]);
        let host = Narrowing::read(r#"{"effectiveCapabilities":["pushEvents"],"enabled":[]}"#);
        let terms = Terms::new(CHAT, false, &Mask::default(), host.as_ref());
        assert!(terms.enabled.is_empty());
    }

    #[test]
    fn p9_the_masks_list_is_an_allowlist_and_of_a_set_declared_twice_the_disabled_one_counts() {
        let mask = Mask {
            enabled_feature_sets: Some(names(&["chat"])),
            ..Mask::default()
        };
        assert_eq!(Terms::new(CHAT, false, &mask, None).enabled, ["chat"]);
        let twice = r#"{"pushEvents":true,"featureSets":[{"name":"a","uses":["pushEvents"]},{"name":"a"}]}"#;
        let terms = Terms::new(twice, false, &Mask::default(), None);
        assert_eq!(terms.feature_sets().get("a"), Some(&false));
        let many: Vec<String> = (0..2_000).map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
        let many = format!(r#"{{"featureSets":[{}]}}"#, many.join(","));
        let terms = Terms::new(&many, false, &Mask::default(), None);
        assert_eq!(terms.feature_sets().len(), FEATURE_SETS_MAX);
    }

    #[test]
    fn p9_the_older_array_form_is_read() {
        let older = r#"{"pushEvents":true,"featureSets":[{"name":"a","uses":["pushEvents"]},{"uses":["x"]},3]}"#;
        let terms = Terms::new(older, false, &Mask::default(), None);
        assert_eq!(terms.enabled, ["a"]);
    }

    #[test]
    fn a_feature_set_that_is_declared_twice_rolls_back_only_where_both_say_so() {
        let twice = r#"{"featureSets":[{"name":"a","rollback":true},{"name":"a"},{"name":"b","rollback":true}]}"#;
        assert!(declares_rollback(twice, "b"));
        assert!(!declares_rollback(twice, "a") && !declares_rollback(twice, "c"));
    }

    #[test]
    fn p1_the_update_names_lists_only_where_they_say_something() {
        let terms = Terms::new(r#"{"pushEvents":true}"#, true, &Mask::default(), None);
        let text = r#"{"effectiveCapabilities":["pushEvents","tools"]}"#;
        assert_eq!(terms.params(), text);
        let empty = r#"{"effectiveCapabilities":[]}"#;
        assert_eq!(Terms::default().params(), empty);
        let mask = Mask {
            enabled_capabilities: Some(Vec::new()),
            ..Mask::default()
        };
        let denied = r#"{"effectiveCapabilities":[],"deniedCapabilities":["pushEvents"]}"#;
        let terms = Terms::new(r#"{"pushEvents":true}"#, false, &mask, None);
        assert_eq!(terms.params(), denied);
    }
}
