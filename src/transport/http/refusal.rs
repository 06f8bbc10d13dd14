//! A response that is none of success: what it says, read within bounds, and the answer that it makes of a call.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::timeout;

use super::connection::Connection;
use super::session::Session;
use crate::transport::upgrade;
use crate::wire::jsonrpc::{self, Message, code, member};

/// What is read of the body, in bytes, and how long.
const BODY_MAX: usize = 64 << 10;
const BODY_WAIT: Duration = Duration::from_secs(5);

/// What a server says that refuses.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The wait that it asks for with a 429 or 503.
    pub(super) retry_after: Option<Duration>,
    /// Its words, fit to be shown.
    pub(super) words: String,
    /// The body, where that is a JSON-RPC error.
    error: Option<Message>,
}

impl Refusal {
    pub(super) async fn read(
        session: &Session,
        response: Response<Incoming>,
        mut connection: Connection,
    ) -> Self {
        let (head, body) = response.into_parts();
        let reading = beginning(&mut connection, body);
        let (said, is_whole) = timeout(BODY_WAIT, reading).await.unwrap_or_default();
        if is_whole {
            session.give_back(connection);
        }
        let error = Message::parse(said.clone()).ok();
        let error = error.filter(|message| message.error().is_some());
        let message = error.as_ref().and_then(Message::error);
        let message = message.and_then(|error| member(error, "message"));
        let words = message.map_or(&said[..], str::as_bytes);
        Self {
            status: head.status,
            retry_after: retry_after(&head),
            words: if is_page(&head) {
                String::new()
            } else {
                session.link().secrets().sample(words)
            },
            error,
        }
    }

    /// R18.
    pub(super) fn is_of_credential(&self) -> bool {
        matches!(
            self.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        )
    }

    /// It is about the request, which another may mend: not of who asks, nor of when.
    pub(super) fn is_of_request(&self) -> bool {
        self.status.is_client_error()
            && !self.is_of_credential()
            && self.status != StatusCode::TOO_MANY_REQUESTS
    }

    /// It is a JSON-RPC answer to that request.
    pub(super) fn is_answer(&self, call: Option<u64>) -> bool {
        let id = self.error.as_ref().and_then(Message::our_id);
        id.is_some() && id == call
    }

    /// It says in JSON-RPC what is wrong, and not when that will be over.
    pub(super) fn is_verdict(&self) -> bool {
        self.error.is_some() && !self.is_of_credential() && self.retry_after.is_none()
    }

    /// What a call gets for it: the error as written, or else one of ours that says `text`.
    pub(super) fn answer(&self, call: u64, text: String) -> Bytes {
        let id = call.to_string();
        if let Some(error) = self.error.as_ref().and_then(Message::error) {
            return jsonrpc::error_as_written(&id, error);
        }
        let wait = self.retry_after.map(|wait| wait.as_millis());
        let wait = wait.and_then(|wait| u64::try_from(wait).ok());
        let data = json!({"httpStatus": self.status.as_u16(), "retryAfterMs": wait});
        let error = jsonrpc::Error::new(code::INTERNAL, text).with_data(data);
        jsonrpc::error_response(&id, &error)
    }
}

fn retry_after(head: &Parts) -> Option<Duration> {
    let waits = matches!(head.status.as_u16(), 429 | 503);
    waits
        .then(|| upgrade::wait_in(&head.headers, SystemTime::now()))
        .flatten()
}

/// A page for people, of which a sample says nothing.
fn is_page(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

/// The beginning of a body; whether that is all of it.
async fn beginning(connection: &mut Connection, mut body: Incoming) -> (Bytes, bool) {
    let mut joined = BytesMut::new();
    while joined.len() < BODY_MAX {
        match connection.piece(&mut body).await {
            Ok(Some(piece)) => joined.extend_from_slice(&piece),
            Ok(None) => return (joined.freeze(), true),
            Err(_) => break,
        }
    }
    (joined.freeze(), false)
}
