//! Bytes that are no message: why, whose id they bear, and the answer they get (A2, G16).

use bytes::Bytes;

use super::own::{Error, code, error_response};
use super::{NESTING_MAX, RequestId};

/// Whose id an unreadable message bears, so far as the message tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// It is this request: its sender waits for an answer.
    Request(RequestId),
    /// It would answer this request: its sender waits for nothing, and the request gets no other answer.
    Answer(RequestId),
}

/// Why bytes are no message, with the answer they get (A2, G16).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not JSON, or not UTF-8.
    #[error("not JSON")]
    NotJson,
    /// An array: a JSON-RPC batch, which only a 2025-03-26 session may send.
    #[error("a JSON-RPC batch")]
    Batch(Vec<Bytes>),
    /// Nested deeper than [`NESTING_MAX`].
    #[error("nested deeper than {NESTING_MAX} levels")]
    TooDeep {
        /// Whose id it bears, where that could be read.
        about: Option<About>,
    },
    /// Longer than the transport's bound, in bytes; skipped unread.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// The bound, in bytes.
        limit: usize,
        /// Whose id it bears, where the part that was kept tells it.
        about: Option<About>,
    },
    /// JSON that is no request, notification or response.
    #[error("not a JSON-RPC 2.0 message: {why}")]
    Invalid {
        /// What is wrong.
        why: &'static str,
        /// Whose id it bears, where it could be read and is one.
        about: Option<About>,
    },
}

impl Unreadable {
    /// Whose id it bears, where that is known.
    #[must_use]
    pub fn about(&self) -> Option<&About> {
        match self {
            Self::TooLong { about, .. } | Self::Invalid { about, .. } | Self::TooDeep { about } => {
                about.as_ref()
            }
            Self::NotJson | Self::Batch(_) => None,
        }
    }

    /// The error response that tells the sender, with `id: null` where no request's id is known.
    #[must_use]
    pub fn answer(&self) -> Bytes {
        let id = match self.about() {
            Some(About::Request(id)) => Some(id),
            Some(About::Answer(_)) | None => None,
        };
        let code = if *self == Self::NotJson {
            code::PARSE
        } else {
            code::INVALID_REQUEST
        };
        error_response(
            id.map_or("null", RequestId::as_str),
            &Error::new(code, self.to_string()),
        )
    }
}
