//! The W3C trace context that a request carries in `params._meta` (SEP-414): read from it, and put into it with every
//! other byte as it was. It makes no ids.

use std::fmt;

use super::jsonrpc::{Message, Span};

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// A `traceparent`: whose work a request is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace's id; not 0.
    pub trace: u128,
    /// The id of the span that asks; not 0.
    pub span: u64,
    /// Its trace is recorded.
    pub sampled: bool,
}

impl Parent {
    /// Takes a `traceparent` of any version, so far as version 00 goes; `None` where it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = parts.next()?;
        let (trace, span) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let flags = hex(parts.next()?, 2)?;
        let known = hex(version, 2).is_some() && version != "ff";
        let alone = version != "00" || parts.next().is_none();
        let span = u64::try_from(span).ok()?;
        (known && alone && trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }

    /// The one that a request carries, where it carries one that can be read.
    #[must_use]
    pub fn of(request: &Message) -> Option<Self> {
        // Most requests carry none, and then nothing of them is parsed.
        memchr::memmem::find(request.raw(), PARENT.as_bytes())?;
        let span = request.param(&["_meta", PARENT])?;
        let text = request.text(&span).strip_prefix('"')?.strip_suffix('"')?;
        Self::parse(text)
    }

    /// The request with this as its `traceparent`. Its `tracestate` stays where it `keeps_state`, and is emptied where
    /// it speaks of another trace. `None` where its params leave no place for it.
    #[must_use]
    pub fn put_into(&self, request: &Message, keeps_state: bool) -> Option<bytes::Bytes> {
        let id = request.id_text()?;
        let Some(params) = request.param(&[]) else {
            let id = format!(r#"{id},"params":{{"_meta":{{"{PARENT}":"{self}"}}}}"#);
            return Some(request.with_id(&id));
        };
        let (parent, state) = (format!("\"{self}\""), "\"\"");
        let Some(meta) = request.param(&["_meta"]) else {
            let (at, comma) = inside(request, params)?;
            let text = format!(r#""_meta":{{"{PARENT}":{parent}}}{comma}"#);
            return Some(request.with(id, &[(at, &text)]));
        };
        let stale = request.param(&["_meta", STATE]).filter(|_| !keeps_state);
        let stale = stale.map(|span| (span, state));
        let (span, parent) = match request.param(&["_meta", PARENT]) {
            Some(span) => (span, parent),
            None => {
                let (at, comma) = inside(request, meta)?;
                (at, format!("\"{PARENT}\":{parent}{comma}"))
            }
        };
        let changes: Vec<(Span, &str)> =
            [(span, parent.as_str())].into_iter().chain(stale).collect();
        Some(request.with(id, &changes))
    }
}

/// As version 00.
impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, .. } = self;
        let flags = u8::from(self.sampled);
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

/// The empty span behind an object's brace, and the comma that a first member needs.
fn inside(message: &Message, object: Span) -> Option<(Span, &'static str)> {
    let members = message.text(&object).strip_prefix('{')?;
    let is_empty = members.trim_ascii_start().starts_with('}');
    let at = object.start + 1;
    Some((at..at, if is_empty { "" } else { "," }))
}

/// Lower-case digits of exactly this length.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = text.len() == digits
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    fits.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn ours() -> Parent {
        Parent {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 1,
            sampled: true,
        }
    }

    fn traced(request: &str, keeps_state: bool) -> Option<String> {
        let message = Message::parse(request.to_owned().into()).unwrap();
        let frame = ours().put_into(&message, keeps_state)?;
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let again = Message::parse(frame).unwrap();
        assert_eq!(Parent::of(&again), Some(ours()), "{text}");
        Some(text.replace(&ours().to_string(), "NEW"))
    }

    #[test]
    fn a_traceparent_reads_as_it_is_written() {
        let parent = Parent::parse(WRITTEN).unwrap();
        assert_eq!(
            (parent.to_string().as_str(), parent.sampled),
            (WRITTEN, true)
        );
        let unsampled = WRITTEN.replace("-01", "-00");
        assert!(!Parent::parse(&unsampled).unwrap().sampled);
        let later = format!("01{}-more", &WRITTEN[2..]);
        assert_eq!(Parent::parse(&later), Some(parent));
    }

    #[test]
    fn what_is_no_traceparent_is_not_taken_for_one() {
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_the_traceparent_is_replaced_and_every_other_byte_stays() {
        let request = format!(
            r#" {{"id":7 ,"method":"tools/call","params":{{"a":1.50, "_meta":{{"k":1,"traceparent":"{WRITTEN}" ,"tracestate":"x=1"}}}},"jsonrpc":"2.0"}}"#
        );
        assert_eq!(
            traced(&request, true),
            Some(request.replace(WRITTEN, "NEW"))
        );
    }

    #[test]
    fn a_request_without_one_gets_one_wherever_there_is_room() {
        for (request, then) in [
            (
                r#""params":{"_meta":{"k":1}}"#,
                r#""params":{"_meta":{"traceparent":"NEW","k":1}}"#,
            ),
            (
                r#""params":{"_meta":{ }}"#,
                r#""params":{"_meta":{"traceparent":"NEW" }}"#,
            ),
            (
                r#""params":{"a":1}"#,
                r#""params":{"_meta":{"traceparent":"NEW"},"a":1}"#,
            ),
            (
                r#""params":{}"#,
                r#""params":{"_meta":{"traceparent":"NEW"}}"#,
            ),
        ] {
            let whole = |tail: &str| format!(r#"{{"jsonrpc":"2.0","id":"a","method":"m",{tail}}}"#);
            assert_eq!(traced(&whole(request), true), Some(whole(then)));
        }
        let bare = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        let then =
            r#"{"jsonrpc":"2.0","id":1,"params":{"_meta":{"traceparent":"NEW"}},"method":"m"}"#;
        assert_eq!(traced(bare, true).as_deref(), Some(then));
    }

    #[test]
    fn a_request_that_leaves_no_room_is_not_touched() {
        for params in ["[1]", r#"{"_meta":3}"#] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            assert_eq!(traced(&request, true), None, "{params}");
        }
    }

    #[test]
    fn the_state_of_another_trace_goes_no_further() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"tracestate":"x=1","traceparent":"bad"}}}"#;
        let then = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"tracestate":"","traceparent":"NEW"}}}"#;
        assert_eq!(traced(request, false).as_deref(), Some(then));
    }
}
