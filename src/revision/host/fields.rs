//! The header fields that mirror a request's body, and whether they agree with it (Streamable HTTP 2026-07-28,
//! "Server Validation"). It reads no body.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What stands around a value that no header can carry as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The integers that a header may carry: those that a double holds.
const SAFE: f64 = 9_007_199_254_740_991.0;

/// The head of a request.
pub trait Head {
    /// A field by its name in lower case.
    fn field(&self, name: &str) -> Field<'_>;
}

/// One field of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// It is not there.
    Absent,
    /// Its value, once, of visible ASCII, spaces and tabs.
    Text(&'a str),
    /// It is there twice, or with other characters.
    Unreadable,
}

/// How a field and the body disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A field that stands for `body`, as it is.
pub(super) fn agree(head: &impl Head, name: &str, body: &str) -> Result<(), Mismatch> {
    let value = text(head, name)?.ok_or_else(|| missing(name, body))?;
    if value == body {
        return Ok(());
    }
    Err(differs(name, value, body))
}

/// A field that stands for `body`, and may be encoded.
pub(super) fn agree_encoded(head: &impl Head, name: &str, body: &str) -> Result<(), Mismatch> {
    let value = decoded(head, name)?.ok_or_else(|| missing(name, body))?;
    if value == body {
        return Ok(());
    }
    Err(differs(name, &value, body))
}

/// A field that stands for a value of a call's arguments, JSON text. Only strings, booleans and integers have one.
pub(super) fn mirrors(head: &impl Head, name: &str, value: Option<&str>) -> Result<(), Mismatch> {
    let value = value.unwrap_or("null");
    match value.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(value).unwrap_or_default();
            agree_encoded(head, name, &text)
        }
        Some(b't' | b'f') => agree_encoded(head, name, value),
        Some(b'n' | b'{' | b'[') => absent(head, name),
        _ => agree_as_number(head, name, value),
    }
}

/// Numbers are compared as numbers: 42.0 is 42.
fn agree_as_number(head: &impl Head, name: &str, body: &str) -> Result<(), Mismatch> {
    let value = decoded(head, name)?.ok_or_else(|| missing(name, body))?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.abs() <= SAFE);
    match (number(&value), number(body)) {
        (Some(value), Some(body)) if value.total_cmp(&body).is_eq() => Ok(()),
        _ => Err(differs(name, &value, body)),
    }
}

/// A field that must not be there, for the body has nothing that it could stand for.
pub(super) fn absent(head: &impl Head, name: &str) -> Result<(), Mismatch> {
    match head.field(name) {
        Field::Absent => Ok(()),
        Field::Text(_) | Field::Unreadable => Err(Mismatch(format!(
            "`{name}` is there, and the body has no such value"
        ))),
    }
}

/// What a field says, decoded where it is encoded; `None` where it is not there.
fn decoded<'a>(head: &'a impl Head, name: &str) -> Result<Option<Cow<'a, str>>, Mismatch> {
    let Some(value) = text(head, name)? else {
        return Ok(None);
    };
    let (begin, end) = ENCODED;
    let inner = value.strip_prefix(begin).and_then(|v| v.strip_suffix(end));
    let Some(inner) = inner else {
        return Ok(Some(value.into()));
    };
    let bytes = STANDARD.decode(inner).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(|text| Some(text.into()))
        .ok_or_else(|| Mismatch(format!("`{name}` is no Base64 of UTF-8")))
}

fn text<'a>(head: &'a impl Head, name: &str) -> Result<Option<&'a str>, Mismatch> {
    match head.field(name) {
        Field::Absent => Ok(None),
        Field::Text(value) => Ok(Some(value.trim_matches([' ', '\t']))),
        Field::Unreadable => Err(Mismatch(format!("`{name}` cannot be read"))),
    }
}

fn missing(name: &str, body: &str) -> Mismatch {
    Mismatch(format!(
        "`{name}` is missing; the body says `{}`",
        shown(body)
    ))
}

fn differs(name: &str, value: &str, body: &str) -> Mismatch {
    let (value, body) = (shown(value), shown(body));
    Mismatch(format!(
        "`{name}` says `{value}`, and the body says `{body}`"
    ))
}

/// The beginning of a text, for people.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::revision::stateless::header::{METHOD, NAME};

    /// A head for tests.
    pub(in crate::revision::host) struct Fields<'a>(
        pub(in crate::revision::host) &'a [(&'a str, &'a str)],
    );

    impl Head for Fields<'_> {
        fn field(&self, name: &str) -> Field<'_> {
            let mut values = self.0.iter().filter(|(of, _)| *of == name);
            match (values.next(), values.next()) {
                (None, _) => Field::Absent,
                (Some((_, value)), None) if value.is_ascii() => Field::Text(value),
                _ => Field::Unreadable,
            }
        }
    }

    #[test]
    fn a_name_is_compared_as_it_was_before_it_was_encoded() {
        for (value, body, agrees) in [
            ("echo", "echo", true),
            ("\t echo  ", "echo", true),
            ("echo", "Echo", false),
            ("=?base64?SGVsbG8=?=", "Hello", true),
            ("=?base64?SGVsbG8?=", "Hello", false),
            ("=?base64?SGVs!!!bG8=?=", "Hello", false),
            ("=?base64?/w==?=", "\u{fffd}", false),
            ("SGVsbG8=", "SGVsbG8=", true),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8=", true),
            ("SGVsbG8=?=", "Hello", false),
            ("=?BASE64?SGVsbG8=?=", "Hello", false),
            (
                "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
                "=?base64?literal?=",
                true,
            ),
            ("=?base64??=", "", true),
        ] {
            let fields = Fields(&[(NAME, value)]);
            assert_eq!(
                agree_encoded(&fields, NAME, body).is_ok(),
                agrees,
                "{value}"
            );
        }
    }

    #[test]
    fn a_field_that_is_missing_twice_or_unreadable_agrees_with_nothing() {
        let of = |fields: &[(&str, &str)]| agree(&Fields(fields), METHOD, "a").is_ok();
        assert!(of(&[(METHOD, "a")]));
        assert!(!of(&[]) && !of(&[(METHOD, "ä")]) && !of(&[(METHOD, "a"), (METHOD, "a")]));
        assert!(absent(&Fields(&[]), NAME).is_ok());
        assert!(absent(&Fields(&[(NAME, "")]), NAME).is_err());
    }

    #[test]
    fn each_mirrored_parameter_must_stand_in_the_head_as_in_the_body() {
        let of = |fields: &[(&str, &str)], value| mirrors(&Fields(fields), "p", value).is_ok();
        let says = |value| [("p", value)];
        assert!(of(&says("us-west1"), Some(r#""us-west1""#)));
        assert!(!of(&says("us-west1"), Some(r#""eu""#)));
        assert!(!of(&[], Some(r#""us-west1""#)));
        assert!(!of(&says("a"), None) && !of(&says("a"), Some("null")));
        assert!(of(&[], None) && of(&[], Some("null")) && of(&[], Some("[1]")));
        assert!(of(&says("42"), Some("42.0")) && of(&says("true"), Some("true")));
        assert!(!of(&says("43"), Some("42")) && !of(&says("true"), Some("false")));
        assert!(!of(&says("9007199254740993"), Some("9007199254740993")));
        assert!(!of(&says("x"), Some("1")) && !of(&[], Some("1")));
    }
}
