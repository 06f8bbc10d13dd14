//! JSON objects and lists with some of their members changed, the others as they were written. It keeps nothing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonrpc::{Key, quoted};

/// What becomes of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays.
    Keep,
    /// It goes, and its name with it.
    Remove,
    /// This JSON text takes the place of its value.
    Replace(String),
}

/// The members of an object in the order in which they were written, one that is written twice both times.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        json.deserialize_map(Read)
    }
}

/// An object with its members changed as `change` says of each name and value, one that is written twice both times;
/// `None` where `text` is no object.
pub fn edited(text: &str, mut change: impl FnMut(&str, &str) -> Change) -> Option<String> {
    let Members(members) = serde_json::from_str(text).ok()?;
    let kept = members.iter().filter_map(|(name, value)| {
        let value = value.get();
        match change(name, value) {
            Change::Keep => Some(format!("{}:{value}", quoted(name))),
            Change::Remove => None,
            Change::Replace(value) => Some(format!("{}:{value}", quoted(name))),
        }
    });
    Some(format!("{{{}}}", kept.collect::<Vec<_>>().join(",")))
}

/// A list with those of its items that pass, and how many did not; `None` where `text` is no list.
pub fn sifted(text: &str, passes: impl Fn(&str) -> bool) -> Option<(String, u64)> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let kept: Vec<&str> = items
        .iter()
        .map(|item| item.get())
        .filter(|item| passes(item))
        .collect();
    let gone = u64::try_from(items.len() - kept.len()).unwrap_or(u64::MAX);
    Some((format!("[{}]", kept.join(",")), gone))
}

/// The only value of a member, where it is written once; `None` where it is not there, or there twice.
#[must_use]
pub fn only<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let Members(members) = serde_json::from_str(text).ok()?;
    let mut values = members.iter().filter(|(of, _)| of == name);
    let (_, value) = values.next()?;
    values.next().is_none().then(|| value.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_copied_and_what_is_written_twice_is_changed_twice() {
        let text = r#"{"a" : 1.0,"\u0062":[ 1e400 ],"b":2, "c":{"b":3}}"#;
        let without = edited(text, |name, _| match name {
            "b" => Change::Remove,
            _ => Change::Keep,
        });
        assert_eq!(without.unwrap(), r#"{"a":1.0,"c":{"b":3}}"#);
        let replaced = edited(text, |name, value| match (name, value) {
            ("b", "2") => Change::Replace("null".into()),
            _ => Change::Keep,
        });
        assert_eq!(
            replaced.unwrap(),
            r#"{"a":1.0,"b":[ 1e400 ],"b":null,"c":{"b":3}}"#
        );
        for other in ["[]", "null", "{", ""] {
            assert_eq!(edited(other, |_, _| Change::Keep), None);
        }
    }

    #[test]
    fn a_list_keeps_what_passes() {
        let (kept, gone) = sifted("[1, 2.0 ,3]", |item| item != "2.0").unwrap();
        assert_eq!((kept.as_str(), gone), ("[1,3]", 1));
        assert_eq!(sifted("{}", |_| true), None);
    }

    #[test]
    fn a_member_that_is_written_twice_has_no_only_value() {
        assert_eq!(only(r#"{"a":1}"#, "a"), Some("1"));
        assert_eq!(only(r#"{"a":1,"\u0061":1}"#, "a"), None);
        assert_eq!(only("[]", "a"), None);
    }
}
