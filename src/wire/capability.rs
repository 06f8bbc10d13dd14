//! Sets of MCPL capabilities (P2): read from an advertisement, matched by pattern, and compared. It grants nothing.

use std::fmt;

use serde_json::Value;

use super::mcpl::CAPABILITIES;

/// A set of the paths in [`CAPABILITIES`]. One bit each, so that a grant is checked without a lookup.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CapabilitySet(u32);

impl CapabilitySet {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything there is.
    pub const ALL: Self = Self((1 << CAPABILITIES.len()) - 1);

    /// The leaves that an `experimental.mcpl` object advertises: `true` stands for every leaf below it, and an object
    /// at a path that is itself a capability for that one. `tools` comes from MCP's own capabilities alone.
    #[must_use]
    pub fn advertised(manifest: &str) -> Self {
        let Ok(manifest) = serde_json::from_str::<Value>(manifest) else {
            return Self::NONE;
        };
        Self::those(|path| path != "tools" && advertises(&manifest, path))
    }

    /// The paths that `pattern` names, with `*` for exactly one segment and no path below them (P2).
    #[must_use]
    pub fn named(pattern: &str) -> Self {
        Self::those(|path| matches(pattern, path))
    }

    /// The paths that `pattern` names, and those below a path that it names. For masks, where more is safer.
    #[must_use]
    pub fn covered(pattern: &str) -> Self {
        let segments = pattern.split('.').count();
        Self::those(|path| {
            let ancestor = path.split('.').take(segments);
            path.split('.').count() >= segments && pattern.split('.').zip(ancestor).all(fits)
        })
    }

    fn those(fits: impl Fn(&str) -> bool) -> Self {
        let bits = CAPABILITIES.iter().enumerate();
        let set = bits.filter(|(_, path)| fits(path));
        Self(set.fold(0, |all, (bit, _)| all | 1 << bit))
    }

    /// Whether `path` is in it.
    #[must_use]
    pub fn has(self, path: &str) -> bool {
        CAPABILITIES
            .binary_search(&path)
            .is_ok_and(|bit| self.0 & (1 << bit) != 0)
    }

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this one alone.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many paths are in it.
    #[must_use]
    pub fn len(self) -> usize {
        usize::try_from(self.0.count_ones()).unwrap_or_default()
    }

    /// Its paths, sorted.
    pub fn paths(self) -> impl Iterator<Item = &'static str> {
        let bits = CAPABILITIES.iter().enumerate();
        bits.filter(move |(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, path)| *path)
    }
}

impl fmt::Debug for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths()).finish()
    }
}

/// Whether a dotted pattern names a dotted path: as many segments, each equal or `*` (P2, P9).
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    pattern.split('.').count() == path.split('.').count()
        && pattern.split('.').zip(path.split('.')).all(fits)
}

fn fits((pattern, segment): (&str, &str)) -> bool {
    pattern == "*" || pattern == segment
}

fn advertises(manifest: &Value, path: &str) -> bool {
    let mut at = manifest;
    for segment in path.split('.') {
        if *at == Value::Bool(true) {
            return true;
        }
        match at.get(segment) {
            Some(next) => at = next,
            None => return false,
        }
    }
    // `inferenceRequest` alone is a capability with another below it.
    *at == Value::Bool(true) || (at.is_object() && path == "inferenceRequest")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(set: CapabilitySet) -> Vec<&'static str> {
        set.paths().collect()
    }

    #[test]
    fn p2_true_is_shorthand_for_every_leaf_in_an_advertisement() {
        let set = CapabilitySet::advertised(
            r#"{"pushEvents":true,"channels":{"register":true,"incoming":false,"odd":true},
               "inferenceRequest":true,"contextHooks":{"beforeInference":{"inject":true}},"tools":true,"new":true}"#,
        );
        assert_eq!(
            paths(set),
            [
                "channels.register",
                "contextHooks.beforeInference.inject.afterUser",
                "contextHooks.beforeInference.inject.beforeUser",
                "contextHooks.beforeInference.inject.system",
                "inferenceRequest",
                "inferenceRequest.streaming",
                "pushEvents",
            ]
        );
        assert_eq!(
            paths(CapabilitySet::advertised(r#"{"inferenceRequest":{}}"#)),
            ["inferenceRequest"]
        );
        for nothing in [
            "true",
            "[]",
            "{",
            r#"{"channels":1}"#,
            r#"{"pushEvents":{}}"#,
        ] {
            let set = CapabilitySet::advertised(nothing);
            assert!(set.is_empty() || nothing == "true", "{nothing}");
        }
    }

    #[test]
    fn p2_a_star_is_one_segment_and_a_parent_grants_no_leaf() {
        assert_eq!(CapabilitySet::named("channels.*").len(), 7);
        assert!(CapabilitySet::named("channels").is_empty());
        assert!(CapabilitySet::named("contextHooks.*").is_empty());
        assert_eq!(
            paths(CapabilitySet::named("inferenceRequest")),
            ["inferenceRequest"]
        );
    }

    #[test]
    fn p2_a_mask_that_names_a_parent_covers_what_is_below_it() {
        assert_eq!(CapabilitySet::covered("contextHooks.*").len(), 4);
        assert_eq!(CapabilitySet::covered("channels").len(), 7);
        assert_eq!(CapabilitySet::covered("inferenceRequest").len(), 2);
        assert_eq!(
            CapabilitySet::covered("inferenceRequest.streaming").len(),
            1
        );
    }

    #[test]
    fn sets_compare_as_sets() {
        let one = CapabilitySet::named("pushEvents");
        assert!(one.has("pushEvents") && !one.has("tools") && !one.has("nonsense"));
        assert_eq!(CapabilitySet::ALL.without(one).or(one), CapabilitySet::ALL);
        assert!(CapabilitySet::ALL.without(one).and(one).is_empty());
    }
}
