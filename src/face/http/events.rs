//! A stream as Server-Sent Events: ids to go on after, a comment where nothing is said for long.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;
use tokio::time::{Instant, Sleep};

use super::streams::{Reader, Step};
use crate::wire::jsonrpc::notification;
use crate::wire::mcp::method;

/// Silence after which a comment is sent: below the limit that any intermediary is known to have.
pub(super) const SILENCE: Duration = Duration::from_secs(15);
/// How long a client should wait before it connects again, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// What is written where there is nothing to say.
pub(super) const COMMENT: &[u8] = b":\n\n";
/// What the head of a stream says.
pub(super) const HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "text/event-stream"),
    (header::CACHE_CONTROL, "no-cache, no-transform"),
    // A proxy that buffers would deliver nothing.
    (HeaderName::from_static("x-accel-buffering"), "no"),
];
/// What is written at once, in bytes; a single event may be longer.
const AT_ONCE: usize = 16 << 10;

/// The events of one stream.
pub(super) struct Feed {
    reader: Reader,
    /// What an id begins with: the session's tag and the stream's number.
    prefix: String,
    /// What is written before the first event.
    first: Option<Bytes>,
    silence: Pin<Box<Sleep>>,
}

impl Feed {
    /// What a reader is given. `primes` begins with an event without data, so that the client has an id to go on after
    /// (SEP-1699); a client of an older revision would take it for a broken message.
    pub(super) fn new(reader: Reader, tag: &str, after: Option<u64>, primes: bool) -> Self {
        let prefix = format!("{tag}-{}-", reader.stream());
        let first = if primes {
            let number = after.unwrap_or(0);
            format!("id: {prefix}{number}\nretry: {RETRY_MS}\ndata: \n\n")
        } else {
            ":\n\n".to_owned()
        };
        Self {
            reader,
            prefix,
            first: Some(first.into()),
            silence: Box::pin(tokio::time::sleep(SILENCE)),
        }
    }

    fn write(&self, step: Step, out: &mut BytesMut) {
        match step {
            Step::Event(number, frame) => {
                out.put_slice(format!("id: {}{number}\n", self.prefix).as_bytes());
                put_data(&frame, out);
            }
            // What was missed cannot be told, so the client reads again all that may have changed.
            Step::Gap(events) => missing(events)
                .iter()
                .for_each(|frame| put_data(frame, out)),
        }
    }
}

/// An id of the session with this tag: the stream and the number of the event.
pub(super) fn read_id(tag: &str, id: &str) -> Option<(u64, u64)> {
    let (stream, number) = id.strip_prefix(tag)?.strip_prefix('-')?.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

/// A message as the data of an event. A line end in it is white space between its members.
pub(super) fn put_data(frame: &[u8], out: &mut BytesMut) {
    out.reserve(frame.len() + 16);
    for line in frame.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if !line.is_empty() {
            out.put_slice(b"data: ");
            out.put_slice(line);
            out.put_u8(b'\n');
        }
    }
    out.put_u8(b'\n');
}

fn missing(events: u64) -> Vec<Bytes> {
    let text = format!(
        r#"{{"level":"warning","logger":"tidegate","data":"{events} messages for this client were not kept; list anew"}}"#
    );
    let mut all = vec![notification(method::LOG, Some(&text))];
    let lists = [
        method::TOOLS_CHANGED,
        method::RESOURCES_CHANGED,
        method::PROMPTS_CHANGED,
    ];
    all.extend(lists.map(|name| notification(name, None)));
    all
}

impl Stream for Feed {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let mut out = BytesMut::new();
        let mut is_over = false;
        while out.len() < AT_ONCE {
            match self.reader.poll_step(cx) {
                Poll::Ready(Some(step)) => self.write(step, &mut out),
                Poll::Ready(None) => {
                    is_over = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        if out.is_empty() && is_over {
            return Poll::Ready(None);
        }
        if out.is_empty() {
            std::task::ready!(self.silence.as_mut().poll(cx));
            out.put_slice(COMMENT);
        }
        let due = Instant::now() + SILENCE;
        self.silence.as_mut().reset(due);
        Poll::Ready(Some(Ok(out.freeze())))
    }
}

impl IntoResponse for Feed {
    fn into_response(self) -> Response {
        (HEADERS, Body::from_stream(self)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::face::http::streams::Streams;

    async fn next(feed: &mut Feed) -> String {
        let part = feed.next().await.unwrap().unwrap();
        String::from_utf8(part.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_silent_is_kept_alive_with_comments() {
        let streams = Streams::new();
        let mut feed = Feed::new(streams.listen().unwrap(), "t", None, false);
        assert_eq!(next(&mut feed).await, ":\n\n");
        let begun = Instant::now();
        for _ in 0..4 {
            assert_eq!(next(&mut feed).await, ":\n\n");
        }
        assert_eq!(begun.elapsed(), 4 * SILENCE);
    }

    #[tokio::test]
    async fn an_event_has_an_id_that_reads_back_and_a_message_on_several_lines_stays_whole() {
        let streams = Streams::new();
        let mut feed = Feed::new(streams.listen().unwrap(), "t", Some(7), true);
        assert_eq!(next(&mut feed).await, "id: t-1-7\nretry: 1000\ndata: \n\n");
        let frame = "{\"jsonrpc\":\"2.0\",\r\n\n\"method\":\"m\"}";
        streams.place(None, frame.into()).unwrap();
        let text = next(&mut feed).await;
        assert_eq!(
            text,
            "id: t-1-1\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"m\"}\n\n"
        );
        assert_eq!(read_id("t", "t-1-1"), Some((1, 1)));
        for wrong in ["", "t", "t-", "t-1", "u-1-1", "t-1-x", "t-1-1-1"] {
            assert_eq!(read_id("t", wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_told_as_messages_that_have_the_client_list_anew() {
        let told: Vec<_> = missing(3)
            .iter()
            .map(|frame| {
                crate::wire::jsonrpc::Message::parse(frame.clone())
                    .unwrap()
                    .method()
                    .to_owned()
            })
            .collect();
        assert_eq!(told[0], method::LOG);
        assert_eq!(
            told[1..],
            [
                method::TOOLS_CHANGED,
                method::RESOURCES_CHANGED,
                method::PROMPTS_CHANGED
            ]
        );
    }
}
