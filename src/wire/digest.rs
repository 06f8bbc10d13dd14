//! A manifest in its canonical form (RFC 8785), and the revision that is the digest of it (P8, MCPL §17.2). It judges
//! nothing but the identifiers: what a manifest says is read elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The characters of a refused identifier that are told.
const SHOWN_MAX: usize = 64;

/// Why there is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not the text of a JSON object, or one that RFC 8785 has no form for.
    #[error("it is no JSON object")]
    NotObject,
    /// An identifier is empty or has a character outside `[A-Za-z0-9._:*-]`; its beginning.
    #[error("{0:?} is no identifier")]
    Identifier(String),
}

/// A manifest without its revision, with the lists that are sets sorted and deduplicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical(Value);

impl Canonical {
    /// Reads an `experimental.mcpl` object, as JSON text.
    ///
    /// # Errors
    /// Where there is no digest of it.
    pub fn read(manifest: &str) -> Result<Self, Refusal> {
        let Ok(Value::Object(mut root)) = serde_json::from_str(manifest) else {
            return Err(Refusal::NotObject);
        };
        root.remove("revision");
        for (key, value) in &mut root {
            match (key.as_str(), value) {
                ("version", _) => {}
                ("featureSets", Value::Object(sets)) => feature_sets(sets)?,
                // Another form is no feature sets at all, and is hashed as written.
                ("featureSets", _) => {}
                (_, value) => {
                    identifier(key)?;
                    paths(value)?;
                }
            }
        }
        Ok(Self(Value::Object(root)))
    }

    /// The RFC 8785 text.
    ///
    /// # Errors
    /// Where RFC 8785 has none.
    pub fn text(&self) -> Result<String, Refusal> {
        serde_json_canonicalizer::to_string(&self.0).map_err(|_| Refusal::NotObject)
    }

    /// `sha256:` and the digest, base64url without padding.
    ///
    /// # Errors
    /// As `text`.
    pub fn revision(&self) -> Result<String, Refusal> {
        let digest = Sha256::digest(self.text()?);
        Ok(format!("sha256:{}", URL_SAFE_NO_PAD.encode(digest)))
    }

    /// Its members.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        let members = self.0.as_object().into_iter().flatten();
        members.map(|(key, value)| (key.as_str(), value))
    }
}

/// The names below a capability are segments of its path, at every depth.
fn paths(value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Object(members) => members.iter().try_for_each(|(key, value)| {
            identifier(key)?;
            paths(value)
        }),
        Value::Array(items) => items.iter().try_for_each(paths),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn feature_sets(sets: &mut Map<String, Value>) -> Result<(), Refusal> {
    for (name, set) in sets {
        identifier(name)?;
        if let Some(uses) = set.get_mut("uses") {
            sort(uses)?;
        }
        if let Some(Value::Object(ontology)) = set.get_mut("tagOntology") {
            tag_ontology(ontology)?;
        }
    }
    Ok(())
}

fn tag_ontology(ontology: &mut Map<String, Value>) -> Result<(), Refusal> {
    if let Some(core) = ontology.get_mut("coreTags") {
        sort(core)?;
    }
    if let Some(Value::Object(tags)) = ontology.get_mut("tags") {
        for (name, tag) in tags {
            identifier(name)?;
            if let Some(implies) = tag.get_mut("implies") {
                sort(implies)?;
            }
            identifiers(tag.get("facet"))?;
        }
    }
    if let Some(Value::Object(keyed)) = ontology.get("keyed") {
        for (name, key) in keyed {
            identifier(name)?;
            identifiers(key.get("values"))?;
        }
    }
    match ontology.get("suggestedTreatment") {
        Some(Value::Array(rules)) => rules.iter().try_for_each(matchers),
        Some(Value::Object(rules)) => rules.values().try_for_each(matchers),
        _ => Ok(()),
    }
}

/// What a rule matches are lists, though they read like sets: their order is theirs.
fn matchers(rule: &Value) -> Result<(), Refusal> {
    ["tagsAny", "tagsAll", "tagsNone"]
        .iter()
        .try_for_each(|key| identifiers(rule.get(*key)))
}

/// Sorts a set by its UTF-8 bytes; what is no list of strings is hashed as written, and not refused.
fn sort(set: &mut Value) -> Result<(), Refusal> {
    let Value::Array(items) = set else {
        return Ok(());
    };
    let Some(mut strings) = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    strings.iter().try_for_each(|text| identifier(text))?;
    strings.sort_unstable();
    strings.dedup();
    *items = strings.into_iter().map(Value::from).collect();
    Ok(())
}

/// A string, or the strings of a list.
fn identifiers(value: Option<&Value>) -> Result<(), Refusal> {
    match value {
        Some(Value::String(text)) => identifier(text),
        Some(Value::Array(items)) => {
            let mut strings = items.iter().filter_map(Value::as_str);
            strings.try_for_each(identifier)
        }
        _ => Ok(()),
    }
}

fn identifier(text: &str) -> Result<(), Refusal> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:*-".contains(&byte);
    if !text.is_empty() && text.bytes().all(fits) {
        return Ok(());
    }
    Err(Refusal::Identifier(text.chars().take(SHOWN_MAX).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(manifest: &str) -> Result<String, Refusal> {
        Canonical::read(manifest)?.text()
    }

    #[test]
    fn p8_a_manifest_that_is_no_object_has_no_digest() {
        for odd in ["", "true", "[]", "null", "{", r#"{"a":1e999}"#] {
            assert_eq!(text(odd), Err(Refusal::NotObject), "{odd}");
        }
    }

    #[test]
    fn p8_every_identifier_position_is_checked_and_free_text_is_not() {
        let ontology =
            |inner: &str| format!(r#"{{"featureSets":{{"f":{{"tagOntology":{{{inner}}}}}}}}}"#);
        for inner in [
            r#"{"é":1}"#,
            r#"{"a":{"é":1}}"#,
            r#"{"a":[{"é":1}]}"#,
            r#"{"featureSets":{"é":1}}"#,
            r#"{"featureSets":{"f":{"uses":["é"]}}}"#,
            &ontology(r#""coreTags":["é"]"#),
            &ontology(r#""tags":{"é":1}"#),
            &ontology(r#""tags":{"t":{"implies":["é"]}}"#),
            &ontology(r#""tags":{"t":{"facet":"é"}}"#),
            &ontology(r#""keyed":{"é":1}"#),
            &ontology(r#""keyed":{"k":{"values":["é"]}}"#),
            &ontology(r#""suggestedTreatment":[{"tagsAny":["é"]}]"#),
            &ontology(r#""suggestedTreatment":[{"tagsAll":["é"]}]"#),
            &ontology(r#""suggestedTreatment":[{"tagsNone":["é"]}]"#),
        ] {
            assert_eq!(text(inner), Err(Refusal::Identifier("é".into())), "{inner}");
        }
        for free in [
            r#"{"version":"é"}"#,
            r#"{"a":"é"}"#,
            r#"{"featureSets":{"f":{"description":"é","é":1}}}"#,
            r#"{"featureSets":[{"name":"é"}]}"#,
        ] {
            assert!(text(free).is_ok(), "{free}");
        }
        assert!(text(&ontology(r#""tags":{"t":{"desc":"é","é":1}}"#)).is_ok());
    }

    #[test]
    fn p8_what_is_told_of_a_bad_identifier_is_bounded() {
        let manifest = format!(r#"{{"{}":1}}"#, "é".repeat(1_000));
        let Err(Refusal::Identifier(shown)) = text(&manifest) else {
            panic!("an identifier is refused");
        };
        assert_eq!(shown.chars().count(), SHOWN_MAX);
    }
}
