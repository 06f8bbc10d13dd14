//! What a browser page from an origin that is let in may send and read.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const METHODS: &str = "GET, POST, DELETE";
const SENT: &str =
    "accept, authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id";
const READ: &str = "mcp-session-id, retry-after, www-authenticate";
/// How long a browser may go by the answer, in seconds.
const AGE: &str = "7200";

/// The answer to a browser that asks before it sends.
pub(super) fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, SENT),
        (header::ACCESS_CONTROL_MAX_AGE, AGE),
        (header::ALLOW, "GET, POST, DELETE, OPTIONS"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Lets the page that sent a request read its answer; its origin was let in.
pub(super) fn expose(origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    let Some(origin) = origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(READ),
    );
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
