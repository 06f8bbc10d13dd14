//! The JSON-RPC envelope. A message keeps the bytes it came in and knows where its members lie, so that what is
//! forwarded is what was received: only the spans that A2 lists are ever replaced.

mod own;
mod span;
mod unreadable;

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

pub use own::{
    Error, code, error_as_written, error_response, notification, quoted, request, response,
};
pub use span::{Span, member};
pub use unreadable::{About, Unreadable};

use self::span::{Place, Places, splice};
use super::beginning;

pub(super) use span::Key;

/// Nesting beyond this is refused (G16).
pub const NESTING_MAX: usize = 128;
/// The longest request id we carry, in bytes. Real ones are a few digits or a UUID.
pub const ID_BYTES_MAX: usize = 4096;

/// The most messages in one batch.
const BATCH_MAX: usize = 1000;

/// A request id as received: a string or a number of any form, compared by its bytes (A2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Takes JSON text that is an id: a string or a number, of a length that we carry.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        is_id(text).then(|| Self(text.into()))
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The integer that this id is, if it is written as one of ours: digits alone, no sign, no leading zero.
    #[must_use]
    pub fn as_ours(&self) -> Option<u64> {
        ours(&self.0)
    }
}

/// An id of the gateway's own numbering.
impl From<u64> for RequestId {
    fn from(id: u64) -> Self {
        Self(id.to_string().into())
    }
}

fn ours(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has a method and an id.
    Request,
    /// Has a method and no id.
    Notification,
    /// Has a result or an error, and an id.
    Response,
}

/// One JSON-RPC message: its bytes, and the spans of its members.
#[derive(Clone, Debug)]
pub struct Message {
    raw: Bytes,
    kind: Kind,
    id: Place,
    method: Place,
    params: Place,
    result: Place,
    error: Place,
    /// A method name is nearly always plain; one written with escapes is kept unescaped beside the bytes.
    unescaped: Option<Box<str>>,
}

/// A member that was there, `null` included. Serde's own `Option` would read `null` as absent.
#[derive(Default)]
struct Member<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Member<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(d).map(|raw| Self(Some(raw)))
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Member<'a>,
    #[serde(borrow, default)]
    id: Member<'a>,
    #[serde(borrow, default)]
    method: Member<'a>,
    #[serde(borrow, default)]
    params: Member<'a>,
    #[serde(borrow, default)]
    result: Member<'a>,
    #[serde(borrow, default)]
    error: Member<'a>,
}

impl Message {
    /// Reads one message from the bytes of one line or frame.
    ///
    /// # Errors
    /// [`Unreadable`] says what the bytes are instead, and [`Unreadable::answer`] what to reply.
    pub fn parse(raw: Bytes) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(&raw).map_err(|_| Unreadable::NotJson)?;
        let text = text.trim_ascii();
        if too_deep(text.as_bytes()) {
            let about = beginning::about(text.as_bytes());
            return Err(Unreadable::TooDeep { about });
        }
        // Serde would read an array as the envelope's members in order.
        if text.starts_with('[') {
            return Err(array(&raw, text));
        }
        let envelope: Envelope<'_> = match serde_json::from_str(text) {
            Ok(envelope) => envelope,
            Err(error) if error.is_data() => return Err(no_envelope(text)),
            Err(_) => return Err(Unreadable::NotJson),
        };
        let judged = judge(&envelope, &Places::within(&raw))?;
        Ok(Self { raw, ..judged })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The method's name, unescaped; empty for a response.
    #[must_use]
    pub fn method(&self) -> &str {
        match &self.unescaped {
            Some(name) => name,
            None => self.at(self.method).unwrap_or_default(),
        }
    }

    /// The id as received, for a request or a response.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        self.id_text().map(|id| RequestId(id.into()))
    }

    /// The JSON text of the id; `None` where there is none.
    #[must_use]
    pub fn id_text(&self) -> Option<&str> {
        self.at(self.id)
    }

    /// The integer that the id is, if it is one of the gateway's own (A2).
    #[must_use]
    pub fn our_id(&self) -> Option<u64> {
        self.id_text().and_then(ours)
    }

    /// The JSON text of `params`.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.at(self.params)
    }

    /// The JSON text of `result`.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        self.at(self.result)
    }

    /// The JSON text of `error`.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.at(self.error)
    }

    /// `params` read as `T`; an absent one reads as `{}`.
    ///
    /// # Errors
    /// Where the params do not have the shape of `T`.
    pub fn params_as<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.params().unwrap_or("{}"))
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Never: a message has at least its envelope. Here because `len` is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The bytes as received.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Where the value at `path` below `params` lies, e.g. `["_meta", "progressToken"]`.
    #[must_use]
    pub fn param(&self, path: &[&str]) -> Option<Span> {
        self.below(self.params.span()?, path)
    }

    /// Where the value at `path` below `result` lies.
    #[must_use]
    pub fn in_result(&self, path: &[&str]) -> Option<Span> {
        self.below(self.result.span()?, path)
    }

    fn below(&self, mut span: Span, path: &[&str]) -> Option<Span> {
        for key in path {
            let text = self.text(&span);
            memchr::memmem::find(text.as_bytes(), key.as_bytes())?;
            let found = member(text, key)?;
            let at = found.as_ptr().addr() - self.raw.as_ptr().addr();
            span = at..at + found.len();
        }
        Some(span)
    }

    fn at(&self, place: Place) -> Option<&str> {
        place.span().map(|span| self.text(&span))
    }

    /// The text at a span of this message.
    #[must_use]
    pub fn text(&self, span: &Span) -> &str {
        self.raw
            .get(span.clone())
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }

    /// The message with another id, every other byte as received.
    #[must_use]
    pub fn with_id(&self, id: &str) -> Bytes {
        self.with(id, &[])
    }

    /// The message with another id and other values at `changes`; spans outside the message or overlapping ones
    /// are left as they were.
    #[must_use]
    pub fn with(&self, id: &str, changes: &[(Span, &str)]) -> Bytes {
        let mut edits: Vec<(Span, &str)> = changes.to_vec();
        edits.extend(self.id.span().map(|span| (span, id)));
        edits.sort_by_key(|(span, _)| span.start);
        splice(&self.raw, &edits)
    }
}

/// The message that an envelope makes, still without its bytes.
fn judge(envelope: &Envelope<'_>, places: &Places) -> Result<Message, Unreadable> {
    let id = envelope.id.0.map(RawValue::get);
    let known = id.and_then(RequestId::read);
    let is_request = envelope.method.0.is_some();
    let invalid = |why| {
        let about = known.clone().map(if is_request {
            About::Request
        } else {
            About::Answer
        });
        Err(Unreadable::Invalid { why, about })
    };
    if envelope.jsonrpc.0.map(RawValue::get) != Some("\"2.0\"") {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return invalid("`id` is longer than 4096 bytes");
    }
    let answers =
        usize::from(envelope.result.0.is_some()) + usize::from(envelope.error.0.is_some());
    let kind = match (is_request, id, answers) {
        (true, None, 0) => Kind::Notification,
        (true, Some(_), 0) if known.is_some() => Kind::Request,
        (true, Some(_), 0) => return invalid("`id` must be a string or a number"),
        (true, _, _) => return invalid("`method` stands beside `result` or `error`"),
        // An error about a request that could not be read has no id (JSON-RPC 2.0 §5).
        (false, Some("null") | None, 1) if envelope.error.0.is_some() => Kind::Response,
        (false, Some(_), 1) if known.is_some() => Kind::Response,
        (false, _, 1) => return invalid("a response needs the `id` of its request"),
        (false, _, 2) => return invalid("`result` stands beside `error`"),
        (false, _, _) => return invalid("`method`, `result` and `error` are all missing"),
    };
    if envelope
        .params
        .0
        .is_some_and(|p| !p.get().starts_with(['{', '[']))
    {
        return invalid("`params` must be an object or an array");
    }
    let Some((method, unescaped)) = read_method(envelope, places) else {
        return invalid("`method` must be a string");
    };
    let place = |member: &Member<'_>| {
        member
            .0
            .map_or(Place::default(), |raw| places.of(raw.get()))
    };
    Ok(Message {
        raw: Bytes::new(),
        kind,
        id: known.map_or(Place::default(), |_| place(&envelope.id)),
        method,
        unescaped,
        params: place(&envelope.params),
        result: place(&envelope.result),
        error: place(&envelope.error),
    })
}

/// Where the method's name lies, or what it is where it is written with escapes.
fn read_method(envelope: &Envelope<'_>, places: &Places) -> Option<(Place, Option<Box<str>>)> {
    let Some(raw) = envelope.method.0 else {
        return Some((Place::default(), None));
    };
    let Key(name) = serde_json::from_str(raw.get()).ok()?;
    Some(match name {
        Cow::Borrowed(name) => (places.of(name), None),
        Cow::Owned(name) => (Place::default(), Some(name.into())),
    })
}

/// A string or a number, of a length that we carry.
fn is_id(text: &str) -> bool {
    text.len() <= ID_BYTES_MAX
        && text.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

fn no_envelope(text: &str) -> Unreadable {
    Unreadable::Invalid {
        why: "an object with each member once is wanted",
        about: beginning::about(text.as_bytes()),
    }
}

fn array(raw: &Bytes, text: &str) -> Unreadable {
    let Ok(messages) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return Unreadable::NotJson;
    };
    if !(1..=BATCH_MAX).contains(&messages.len()) {
        let why = "a batch is 1 to 1000 messages";
        return Unreadable::Invalid { why, about: None };
    }
    let bytes = |message: &&RawValue| raw.slice_ref(message.get().as_bytes());
    Unreadable::Batch(messages.iter().map(bytes).collect())
}

/// Whether brackets nest deeper than [`NESTING_MAX`]. Text with fewer brackets than that cannot, so the careful
/// scan is rare.
fn too_deep(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'{', b'[', text)
        .nth(NESTING_MAX)
        .is_some()
        && deepest(text) > NESTING_MAX
}

fn deepest(text: &[u8]) -> usize {
    let (mut depth, mut max) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        max = max.max(depth);
    }
    max
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Message, Unreadable> {
        Message::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn members_keep_their_bytes() {
        let text = r#" {"x":1, "id" : 18446744073709551616,"jsonrpc":"2.0","method":"tools\/call","params":{"a": 1.0}} "#;
        let message = parse(text).unwrap();
        assert_eq!(message.kind(), Kind::Request);
        assert_eq!(message.method(), "tools/call");
        assert_eq!(message.id().unwrap().as_str(), "18446744073709551616");
        assert_eq!(message.our_id(), None);
        assert_eq!(message.params(), Some(r#"{"a": 1.0}"#));
        assert_eq!(
            &message.with_id("7")[..],
            text.replace("18446744073709551616", "7").as_bytes()
        );
    }

    #[test]
    fn ids_of_any_json_form_are_ids() {
        for id in [
            "0",
            "\"\"",
            "1.50",
            "-3",
            "1180591620717411303424",
            "\"\\u00e4\"",
            "1e3",
        ] {
            let message = parse(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).unwrap();
            assert_eq!(message.id().unwrap().as_str(), id);
        }
        for id in ["null", "true", "{}", "[1]"] {
            let refused = parse(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
            assert!(
                matches!(refused, Err(Unreadable::Invalid { about: None, .. })),
                "{id}"
            );
        }
    }

    #[test]
    fn only_our_own_digits_match_one_of_our_ids() {
        for (text, ours) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("07", None),
            ("+7", None),
            ("7.0", None),
            ("\"7\"", None),
        ] {
            let message = parse(&format!(r#"{{"jsonrpc":"2.0","id":{text},"result":null}}"#));
            assert_eq!(message.ok().and_then(|m| m.our_id()), ours, "{text}");
        }
    }

    #[test]
    fn what_is_no_message_says_why() {
        let cases = [
            ("", Unreadable::NotJson),
            ("listening on 3000", Unreadable::NotJson),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
        let invalid = [
            "[]",
            "null",
            "7",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":3}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
            r#"{"jsonrpc":"2.0","result":1}"#,
        ];
        for text in invalid {
            assert!(
                matches!(parse(text), Err(Unreadable::Invalid { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn a_batch_keeps_its_messages_and_is_bounded() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let batch =
            |count: usize| parse(&format!("[{}]", vec![ping; count].join(", "))).unwrap_err();
        assert_eq!(batch(2), Unreadable::Batch(vec![ping.into(), ping.into()]));
        assert!(matches!(batch(BATCH_MAX), Unreadable::Batch(_)));
        assert!(matches!(batch(BATCH_MAX + 1), Unreadable::Invalid { .. }));
    }

    #[test]
    fn an_unreadable_request_is_answered_with_its_id_where_it_has_one() {
        let refused = parse(r#"{"jsonrpc":"1.0","id":"a","method":"m"}"#).unwrap_err();
        assert!(
            refused
                .answer()
                .starts_with(br#"{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"#)
        );
        assert!(
            Unreadable::NotJson
                .answer()
                .starts_with(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"#)
        );
    }

    #[test]
    fn g16_whose_id_an_unreadable_message_bears_is_told() {
        let deep = format!("{}{}", "[".repeat(NESTING_MAX), "]".repeat(NESTING_MAX));
        for (text, answers) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep}}}"#),
                true,
            ),
            (
                format!(r#"{{"result":{deep},"jsonrpc":"2.0","id":7}}"#),
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#.into(),
                true,
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#.into(), true),
            (r#"{"jsonrpc":"2.0","id":7,"id":7,"result":1}"#.into(), true),
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{deep}}}"#),
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","result":1}"#.into(),
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}"#.into(),
                false,
            ),
        ] {
            let refused = parse(&text).unwrap_err();
            let id = RequestId::from(7);
            let wanted = if answers {
                About::Answer(id)
            } else {
                About::Request(id)
            };
            assert_eq!(refused.about(), Some(&wanted), "{text}");
            let told = if answers { "null" } else { "7" };
            let start = format!(r#"{{"jsonrpc":"2.0","id":{told},"error""#);
            assert!(refused.answer().starts_with(start.as_bytes()), "{text}");
        }
        let twice = parse(r#"{"jsonrpc":"2.0","id":7,"id":8,"result":1}"#).unwrap_err();
        assert_eq!(twice.about(), None);
    }

    #[test]
    fn g16_an_id_that_is_too_long_is_refused_in_words_that_say_so() {
        let id = "x".repeat(ID_BYTES_MAX);
        let text = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"m"}}"#);
        let why = format!("`id` is longer than {ID_BYTES_MAX} bytes");
        assert!(parse(&text).unwrap_err().to_string().ends_with(&why));
    }

    #[test]
    fn nesting_is_counted_outside_strings() {
        let nested = |n: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#,
                "[".repeat(n),
                "]".repeat(n)
            )
        };
        assert!(parse(&nested(NESTING_MAX - 1)).is_ok());
        assert_eq!(
            parse(&nested(NESTING_MAX)).unwrap_err(),
            Unreadable::TooDeep { about: None }
        );
        let quoted = format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":["{}\"["]}}"#,
            "[".repeat(500)
        );
        assert!(parse(&quoted).is_ok());
    }

    #[test]
    fn nested_params_are_found_and_replaced_in_place() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"b":"progressToken","_meta":{"progressToken":"t","k":1}}}"#;
        let message = parse(text).unwrap();
        let token = message.param(&["_meta", "progressToken"]).unwrap();
        assert_eq!(message.text(&token), "\"t\"");
        assert_eq!(
            &message.with("2", &[(token, "99")])[..],
            text.replace("\"id\":1", "\"id\":2")
                .replace("\"t\"", "99")
                .as_bytes()
        );
        assert_eq!(message.param(&["_meta", "absent"]), None);
        assert_eq!(message.param(&["b", "progressToken"]), None);
    }
}
