//! What the beginning of a message tells, where the message itself is too long to be read (G16).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonrpc::RequestId;

/// The id of the request that begins so. `None` where it is not told in full, or what begins is no request: then nobody
/// waits for an answer of ours.
#[must_use]
pub fn request_id(beginning: &[u8]) -> Option<RequestId> {
    let mut seen = Seen::default();
    // It always ends in an error, for the text breaks off.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(&mut seen);
    let id = if seen.is_request { seen.id } else { None };
    id.as_deref().and_then(RequestId::read)
}

#[derive(Default)]
struct Seen {
    is_request: bool,
    id: Option<String>,
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
            self.id = unfollowed.take().or(self.id.take());
            match &*name {
                "id" => unfollowed = Some(members.next_value::<&RawValue>()?.get().to_owned()),
                "method" => {
                    members.next_value::<IgnoredAny>()?;
                    self.is_request = true;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(beginning: &str) -> Option<String> {
        request_id(beginning.as_bytes()).map(|id| id.as_str().to_owned())
    }

    #[test]
    fn g16_the_id_of_a_request_is_read_where_it_is_told_in_full() {
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
            r#"{"id":7,"result":{"x":"yyyy"#,
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
        assert_eq!(request_id(b"\xff{\"id\":7,\"method\":\"m\""), None);
    }
}
