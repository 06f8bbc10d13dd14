//! The body of a POST: bounded in bytes and time, and read as one message or as a batch.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::fault::Fault;
use crate::face::reading;
use crate::wire::beginning::about;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{Message, Unreadable};

/// How long a body may take.
const BODY_MAX: Duration = Duration::from_secs(30);
/// How much of a body that is too long is searched for its id.
const BEGINNING: usize = 64 << 10;

/// What a POST brings.
#[derive(Debug)]
pub(super) enum Posted {
    One(Message),
    /// Each as the sender wrote it (2025-03-26).
    Batch(Vec<Bytes>),
}

/// Reads a body.
pub(super) async fn read(body: Body) -> Result<Posted, Fault> {
    let whole = tokio::time::timeout(BODY_MAX, collect(body)).await;
    let whole = whole.map_err(|_| Fault::Slow(BODY_MAX.as_secs()))??;
    match reading::read(on_one_line(whole)).await {
        Ok(message) => Ok(Posted::One(message)),
        Err(Unreadable::Batch(parts)) => Ok(Posted::Batch(parts)),
        Err(what) => Err(what.into()),
    }
}

/// Other connections have one message on a line, so a line end between its members becomes a blank; inside a string
/// there is none.
fn on_one_line(body: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &body).is_none() {
        return body;
    }
    let blank = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    };
    body.iter().map(blank).collect()
}

async fn collect(body: Body) -> Result<Bytes, Fault> {
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > MESSAGE_MAX {
        return Err(Fault::too_long(None));
    }
    let mut parts = body.into_data_stream();
    let mut next = async || parts.next().await.transpose().map_err(|_| Fault::Broken);
    let first = next().await?.unwrap_or_default();
    let Some(second) = next().await? else {
        return Ok(first);
    };
    // What the head tells is not believed beyond what came.
    let mut whole = BytesMut::with_capacity(told.min(4 * (first.len() + second.len())));
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while whole.len() <= MESSAGE_MAX {
        match next().await? {
            Some(part) => whole.extend_from_slice(&part),
            None => return Ok(whole.freeze()),
        }
    }
    Err(Fault::too_long(whole.get(..BEGINNING).and_then(about)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::wire::jsonrpc::{About, RequestId};

    fn in_parts(text: &str, size: usize) -> Body {
        let parts: Vec<Result<Bytes, Infallible>> = text
            .as_bytes()
            .chunks(size)
            .map(|part| Ok(Bytes::copy_from_slice(part)))
            .collect();
        Body::from_stream(futures_util::stream::iter(parts))
    }

    #[tokio::test]
    async fn a_body_is_read_however_it_is_cut() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for size in [1, 7, text.len()] {
            let posted = read(in_parts(text, size)).await.unwrap();
            assert!(matches!(posted, Posted::One(message) if message.method() == "ping"));
        }
        let batch = read(in_parts("[1,2]", 2)).await.unwrap();
        assert!(matches!(batch, Posted::Batch(parts) if parts.len() == 2));
        let refused = read(in_parts("{", 1)).await.unwrap_err();
        assert_eq!(refused, Fault::Unreadable(Unreadable::NotJson));
    }

    #[tokio::test]
    async fn a_message_on_several_lines_becomes_one_line() {
        let text = "{\r\n \"jsonrpc\": \"2.0\",\n \"method\": \"a\\nb\"}\n";
        let Ok(Posted::One(message)) = read(Body::from(text)).await else {
            panic!("it is a message")
        };
        assert_eq!(message.method(), "a\nb");
        assert_eq!(message.raw(), &text.replace(['\n', '\r'], " "));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_cut_off_at_the_bound_and_its_id_found() {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"a","method":"m","params":["{}"]}}"#,
            "x".repeat(MESSAGE_MAX)
        );
        let refused = read(in_parts(&text, 1 << 20)).await.unwrap_err();
        let id = RequestId::read(r#""a""#).map(About::Request);
        assert_eq!(refused, Fault::too_long(id));
        let told = read(Body::from(text)).await.unwrap_err();
        assert_eq!(told, Fault::too_long(None));
    }
}
