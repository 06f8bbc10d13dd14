//! Where members lie in a message's bytes, and the bytes with other values there.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Where a member's value lies in its message.
pub type Span = Range<usize>;

/// A span as a message keeps it; an empty one is that of a member that is not there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    start: u32,
    end: u32,
}

impl Place {
    pub(super) fn span(self) -> Option<Span> {
        let (start, end) = (usize::try_from(self.start), usize::try_from(self.end));
        let span = start.ok()?..end.ok()?;
        (!span.is_empty()).then_some(span)
    }
}

/// Copies `raw` with each span replaced by its text.
pub(super) fn splice(raw: &[u8], edits: &[(Span, &str)]) -> Bytes {
    let grown: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut out = BytesMut::with_capacity(raw.len() + grown);
    let mut done = 0;
    for (span, text) in edits {
        let Some(before) = raw.get(done..span.start) else {
            continue;
        };
        out.put_slice(before);
        out.put_slice(text.as_bytes());
        done = span.end;
    }
    out.put_slice(raw.get(done..).unwrap_or_default());
    out.freeze()
}

/// The value of one member of a JSON object, as it is written; the last of several.
#[must_use]
pub fn member<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    struct Find<'k>(&'k str);
    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Option<&'de RawValue>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(Key(name)) = map.next_key()? {
                if name == self.0 {
                    found = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(Find(key))
        .ok()
        .flatten()
        .map(RawValue::get)
}

/// A member's name, borrowed where it is written without escapes.
#[derive(Deserialize)]
pub(in crate::wire) struct Key<'a>(#[serde(borrow)] pub(in crate::wire) Cow<'a, str>);

/// Turns borrowed parts of a message into their places in it.
pub(super) struct Places {
    base: usize,
}

impl Places {
    /// In the message that these bytes are.
    pub(super) fn within(raw: &[u8]) -> Self {
        let base = raw.as_ptr().addr();
        Self { base }
    }

    /// Where this part of the message lies. Beyond 4 GiB no place can be told, and no message is so long.
    pub(super) fn of(&self, text: &str) -> Place {
        let start = text.as_ptr().addr() - self.base;
        let (start, end) = (u32::try_from(start), u32::try_from(start + text.len()));
        match (start, end) {
            (Ok(start), Ok(end)) => Place { start, end },
            _ => Place::default(),
        }
    }
}
