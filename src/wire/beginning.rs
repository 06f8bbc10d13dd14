//! What the beginning of a message tells, where the message itself is too long to be read (G16).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonrpc::{About, RequestId};

/// Whose id the message bears that is this text, or begins so. `None` where the id is not told in full, or not told what
/// the message is: nothing is guessed.
#[must_use]
pub fn about(text: &[u8]) -> Option<About> {
    let mut seen = Seen::default();
    // It ends in an error where the text breaks off.
    let _ = serde_json::Deserializer::from_slice(text).deserialize_map(&mut seen);
    let id = RequestId::read(seen.id.as_deref().filter(|_| !seen.contradicts)?)?;
    if seen.is_request {
        Some(About::Request(id))
    } else {
        seen.is_answer.then_some(About::Answer(id))
    }
}

#[derive(Default)]
struct Seen {
    is_request: bool,
    is_answer: bool,
    id: Option<String>,
    /// Another id stands beside it.
    contradicts: bool,
}

impl Seen {
    fn take(&mut self, id: Option<String>) {
        if id.is_some() {
            self.contradicts |= self.id.is_some() && self.id != id;
            self.id = id;
        }
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for &mut Seen {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        // A number may go on behind the break: it is whole only once something follows it.
        let mut unfollowed = None;
        while let Some(Key(name)) = members.next_key()? {
            self.take(unfollowed.take());
            if name == "id" {
                unfollowed = Some(members.next_value::<&RawValue>()?.get().to_owned());
                continue;
            }
            self.is_answer |= matches!(&*name, "result" | "error");
            members.next_value::<IgnoredAny>()?;
            self.is_request |= name == "method";
        }
        self.take(unfollowed);
        // The whole message was seen: what has no method would be an answer.
        self.is_answer = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(beginning: &str) -> Option<String> {
        about(beginning.as_bytes()).map(|about| match about {
            About::Request(id) => id.as_str().to_owned(),
            About::Answer(id) => format!("answers {}", id.as_str()),
        })
    }

    #[test]
    fn g16_the_id_of_a_message_is_read_where_it_is_told_in_full() {
        let told_in_full = [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"yy"#,
                "7",
            ),
            (
                r#" {"id":"a\"b","params":[1,{}],"method":"m","params2":{"x":[[[["#,
                r#""a\"b""#,
            ),
            (
                r#"{"method":"m","id":1180591620717411303424,"params":["#,
                "1180591620717411303424",
            ),
            (r#"{"id":7,"result":{"x":"yyyy"#, "answers 7"),
            (r#"{"id":7,"id":7,"error":{"x":"yyyy"#, "answers 7"),
            (r#"{"result":{},"jsonrpc":"2.0","id":7}"#, "answers 7"),
            (r#"{"id":7,"jsonrpc":"2.0"}"#, "answers 7"),
        ];
        for (beginning, id) in told_in_full {
            assert_eq!(told(beginning).as_deref(), Some(id), "{beginning}");
        }
    }

    #[test]
    fn g16_what_is_not_told_in_full_is_not_guessed() {
        let beginnings = [
            r#"{"method":"m","id":12"#,
            r#"{"method":"m","id":"ab"#,
            r#"{"result":{},"id":12"#,
            r#"{"id":7,"id":8,"result":{"x":"yyyy"#,
            r#"{"id":7,"params":{"method":"m","x":"#,
            r#"{"id":null,"method":"m","params":["#,
            r#"{"id":{"a":1},"method":"m","params":["#,
            r#"[{"id":7,"method":"m","params":["#,
            "",
            "xxxx",
        ];
        for beginning in beginnings {
            assert_eq!(told(beginning), None, "{beginning}");
        }
        assert_eq!(about(b"\xff{\"id\":7,\"method\":\"m\""), None);
    }
}
