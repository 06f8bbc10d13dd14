//! One message of a host's, read off the path that everybody shares where it is long.

use bytes::Bytes;

use crate::wire::beginning::about;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{Message, Unreadable};

/// A message longer than this is parsed on another thread, so that nobody waits for it.
const INLINE_MAX: usize = 256 << 10;
/// How much of a longer one is searched for its id.
const BEGINNING: usize = 64 << 10;

/// Reads one message.
///
/// # Errors
/// What the bytes are instead.
pub(super) async fn read(line: Bytes) -> Result<Message, Unreadable> {
    if line.len() <= INLINE_MAX {
        Message::parse(line)
    } else if line.len() <= MESSAGE_MAX {
        let parsed = tokio::task::spawn_blocking(|| Message::parse(line)).await;
        parsed.unwrap_or(Err(Unreadable::NotJson))
    } else {
        Err(Unreadable::TooLong {
            limit: MESSAGE_MAX,
            about: line.get(..BEGINNING).and_then(about),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::jsonrpc::{About, RequestId};

    #[tokio::test]
    async fn a_long_message_is_read_and_a_longer_one_refused() {
        let text = |id: &str, bytes| {
            let fill = "x".repeat(bytes);
            format!(r#"{{"jsonrpc":"2.0"{id},"method":"m","params":["{fill}"]}}"#)
        };
        assert!(read(text("", INLINE_MAX).into()).await.is_ok());
        for (id, told) in [("", None), (r#","id":"a""#, Some(r#""a""#))] {
            let refused = read(text(id, MESSAGE_MAX).into()).await.unwrap_err();
            let Unreadable::TooLong { about, .. } = refused else {
                panic!("{refused:?}")
            };
            let told = told.and_then(RequestId::read).map(About::Request);
            assert_eq!(about, told);
        }
    }
}
