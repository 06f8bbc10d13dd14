//! What the beginning of a message tells, where the message itself is too long to be read (G16).

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonrpc::{About, Key, RequestId};

/// Whose id the message bears that is this text, or begins so. `None` where the id is not told in full, or not told
/// what the message is: nothing is guessed.
#[must_use]
pub fn about(text: &[u8]) -> Option<About> {
    about_ends(text, &[])
}

/// The same of a message that begins and ends so: many a server writes the id of an answer last.
#[must_use]
pub fn about_ends(beginning: &[u8], end: &[u8]) -> Option<About> {
    let mut seen = Seen::default();
    // It ends in an error where the text breaks off.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(&mut seen);
    if seen.is_answer && !seen.is_request && seen.id.is_none() {
        return last_id(end).map(About::Answer);
    }
    let id = RequestId::read(seen.id.as_deref().filter(|_| !seen.contradicts)?)?;
    if seen.is_request {
        Some(About::Request(id))
    } else {
        seen.is_answer.then_some(About::Answer(id))
    }
}

/// The number that is the last member, `id`, of an object that ends so. The last brace closes the message itself, and a
/// quote behind a comma begins a name there, for inside a string it would be escaped.
fn last_id(end: &[u8]) -> Option<RequestId> {
    let members = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let digits = members
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit());
    let (before, id) = members.split_at_checked(members.len() - digits.count())?;
    let name = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let rest = name.strip_suffix(b"\"id\"")?.trim_ascii_end();
    let id = std::str::from_utf8(id)
        .ok()
        .filter(|_| rest.ends_with(b","))?;
    RequestId::read(id)
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
    fn g16_the_id_of_an_answer_is_read_at_its_end_too() {
        let answer = br#"{"result":{"x":"yyyy"#;
        let request = br#"{"method":"m","params":{"x":"yyyy"#;
        let seven = Some(About::Answer(RequestId::from(7)));
        for end in [r#"yy"},"jsonrpc":"2.0","id":7}"#, r#"yy"} , "id" : 7 } "#] {
            assert_eq!(about_ends(answer, end.as_bytes()), seven, "{end}");
            assert_eq!(about_ends(request, end.as_bytes()), None, "{end}");
        }
        for end in [
            r#"yy"},"id":"7"}"#,
            r#"yy"},"id":-7}"#,
            r#"yy","x\"id":7}"#,
            r#"yy"},"id":7},"x":1}"#,
            r#"yy"},"id":7"#,
            r#"yy"},"id":}"#,
            "",
        ] {
            assert_eq!(about_ends(answer, end.as_bytes()), None, "{end}");
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
