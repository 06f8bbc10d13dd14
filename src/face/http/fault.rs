//! Why a request is turned away, as an HTTP status with a JSON-RPC error that says what to do instead.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::face::Refusal;
use crate::face::access::Denial;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{About, Error, Unreadable, code, error_response};

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// It is not let in.
    #[error("{}", words(*.0))]
    Denied(Denial),
    /// No session opens there.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another method than the four that there are.
    #[error("this method is not served here; POST, GET and DELETE are")]
    Method,
    /// `Accept` leaves out what an answer may be.
    #[error("`Accept` must list {0}")]
    NotAcceptable(&'static str),
    /// Not JSON by its head.
    #[error("`Content-Type` must be application/json")]
    MediaType,
    /// The body did not come to its end.
    #[error("the body did not come within {0} seconds")]
    Slow(u64),
    /// The connection broke.
    #[error("the body could not be read")]
    Broken,
    /// What the body is instead of a message.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// `MCP-Protocol-Version` names none that is served.
    #[error("`MCP-Protocol-Version` is not one of {0}")]
    Revision(String),
    /// Only `initialize` goes without a session.
    #[error("`Mcp-Session-Id` is missing; `initialize` opens a session, and its answer has the id")]
    NoSession,
    /// There is no such session, or it is not the caller's, or it ended.
    #[error("there is no such session; open another one with `initialize`")]
    UnknownSession,
    /// There are too many.
    #[error("{0}; end one with DELETE, or wait until an idle one ends")]
    TooMany(&'static str),
    /// An event that no stream of the session has, or whose stream is not kept any more.
    #[error(
        "what follows that `Last-Event-ID` is not kept any more; open a stream without it and list anew"
    )]
    EventGone,
    /// As many streams as a session has.
    #[error("this session has as many streams as it takes; close one first")]
    TooManyStreams,
    /// The gateway ended the session at once.
    #[error("{0}")]
    Dismissed(&'static str),
    /// The system has no randomness.
    #[error("no session id can be made")]
    NoRandomness,
}

fn words(denial: Denial) -> String {
    match denial {
        // A token in a URL ends up in logs.
        Denial::Unauthorized => "a valid token is needed, as `Authorization: Bearer`".into(),
        Denial::Forbidden | Denial::Origin | Denial::Host => denial.to_string(),
    }
}

impl Fault {
    fn status(&self) -> StatusCode {
        match self {
            Self::Denied(Denial::Unauthorized) => StatusCode::UNAUTHORIZED,
            Self::Denied(Denial::Forbidden | Denial::Origin | Denial::Host) => {
                StatusCode::FORBIDDEN
            }
            Self::Refused(Refusal::Unknown) | Self::UnknownSession => StatusCode::NOT_FOUND,
            Self::Refused(Refusal::Full) | Self::TooMany(_) | Self::NoRandomness => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Unreadable(Unreadable::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooManyStreams | Self::Dismissed(_) => StatusCode::CONFLICT,
            Self::Broken
            | Self::Unreadable(_)
            | Self::Revision(_)
            | Self::NoSession
            | Self::EventGone => StatusCode::BAD_REQUEST,
        }
    }

    /// A header that tells a program what to do.
    fn hint(&self) -> Option<(header::HeaderName, &'static str)> {
        match self.status() {
            StatusCode::UNAUTHORIZED => {
                Some((header::WWW_AUTHENTICATE, r#"Bearer realm="tidegate""#))
            }
            StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, POST, DELETE, OPTIONS")),
            // Idle sessions are looked for that often, and one that ends makes room.
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "30")),
            _ => None,
        }
    }

    fn body(&self) -> Bytes {
        if let Self::Unreadable(what) = self {
            return what.answer();
        }
        error_response("null", &Error::new(code::INVALID_REQUEST, self.to_string()))
    }
}

impl Fault {
    /// A body that is longer than a message may be; its beginning may tell whose it is.
    pub(super) fn too_long(about: Option<About>) -> Self {
        let limit = MESSAGE_MAX;
        Self::Unreadable(Unreadable::TooLong { limit, about })
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let json = (header::CONTENT_TYPE, "application/json");
        let mut response = (self.status(), [json], self.body()).into_response();
        if let Some((name, value)) = self.hint() {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_its_status_and_the_header_that_goes_with_it() {
        let cases = [
            (
                Fault::Denied(Denial::Unauthorized),
                401,
                Some("www-authenticate"),
            ),
            (Fault::Denied(Denial::Origin), 403, None),
            (Fault::UnknownSession, 404, None),
            (Fault::Method, 405, Some("allow")),
            (Fault::NotAcceptable("text/event-stream"), 406, None),
            (Fault::MediaType, 415, None),
            (Fault::too_long(None), 413, None),
            (Fault::TooMany("x"), 503, Some("retry-after")),
            (Fault::Refused(Refusal::Full), 503, Some("retry-after")),
        ];
        for (fault, status, name) in cases {
            let response = fault.clone().into_response();
            assert_eq!(response.status(), status, "{fault}");
            if let Some(name) = name {
                assert!(response.headers().contains_key(name), "{fault}");
            }
            let body: serde_json::Value = serde_json::from_slice(&fault.body()).unwrap();
            assert_eq!(body["jsonrpc"], "2.0");
            assert_eq!(body["error"]["code"], code::INVALID_REQUEST, "{body}");
        }
    }
}
