//! The answers with which the gateway itself refuses a stateless client's request: their HTTP status, code and words.

use bytes::Bytes;
use serde_json::json;

use super::answered::LOST;
use super::ask::SUPPORTED;
use super::fields::Mismatch;
use crate::revision::stateless;
use crate::wire::jsonrpc::{self, Error, Message, code};

/// An answer that refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP status.
    pub status: u16,
    /// The JSON-RPC response.
    pub frame: Bytes,
}

/// Why a request is refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    status: u16,
    error: Error,
}

impl Refusal {
    fn new(status: u16, code: i64, message: impl Into<String>) -> Self {
        let error = Error::new(code, message);
        Self { status, error }
    }

    pub(super) fn of(self, message: &Message) -> Refused {
        let id = message.id_text().unwrap_or("null");
        let frame = jsonrpc::error_response(id, &self.error);
        Refused {
            status: self.status,
            frame,
        }
    }
}

pub(super) fn no_request() -> Refusal {
    let text = "a POST of this revision carries one request; it has no responses";
    Refusal::new(400, code::INVALID_REQUEST, text)
}

pub(super) fn malformed(why: &str) -> Refusal {
    Refusal::new(400, code::INVALID_PARAMS, why)
}

pub(super) fn mismatch(odd: &Mismatch) -> Refusal {
    Refusal::new(
        400,
        stateless::code::HEADER_MISMATCH,
        format!("header mismatch: {odd}"),
    )
}

pub(super) fn version(requested: &str) -> Refusal {
    let mut refusal = Refusal::new(
        400,
        stateless::code::UNSUPPORTED_VERSION,
        "unsupported protocol version",
    );
    let data = json!({"supported": SUPPORTED, "requested": requested});
    refusal.error = refusal.error.with_data(data);
    refusal
}

pub(super) fn unknown(method: &str) -> Refusal {
    let text = format!("`{method}` is no method of this revision");
    Refusal::new(404, code::METHOD_NOT_FOUND, text)
}

/// A `requestState` that nothing waits under.
#[must_use]
pub fn state() -> Refusal {
    let text =
        "`requestState` is unknown, of another request, or expired; make the request without it";
    Refusal::new(200, code::INVALID_PARAMS, text)
}

/// The gateway has as many calls or waiting requests as it takes.
#[must_use]
pub fn full() -> Refusal {
    let text = "the gateway has as many calls for this server as it takes; try again later";
    Refusal::new(503, code::BUSY, text)
}

/// The session behind the call is gone.
#[must_use]
pub fn lost() -> Refusal {
    let text = "the gateway ended this call; it may have been carried out";
    Refusal::new(200, LOST, text)
}
