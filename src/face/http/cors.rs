//! What a browser page from an origin that is let in may send and read.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::revision::stateless::header::PARAM_PREFIX;

const METHODS: &str = "GET, POST, DELETE";
const SENT: &str = "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, \
    mcp-protocol-version, mcp-session-id";
const READ: &str = "mcp-session-id, retry-after, www-authenticate";
/// How long a browser may go by the answer, in seconds.
const AGE: &str = "7200";

/// The answer to a browser that asks before it sends.
pub(super) fn preflight(asked: &HeaderMap) -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, &sent(asked)),
        (header::ACCESS_CONTROL_MAX_AGE, AGE),
        (header::ALLOW, "GET, POST, DELETE, OPTIONS"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// What a page may send: beside what is always there, the parameters that it mirrors.
fn sent(asked: &HeaderMap) -> String {
    let asked = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let asked = asked.and_then(|names| names.to_str().ok()).unwrap_or("");
    let names = asked.split(',').map(str::trim);
    let mirrored = names.filter(|name| name.to_ascii_lowercase().starts_with(PARAM_PREFIX));
    mirrored.fold(SENT.to_owned(), |all, name| format!("{all}, {name}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_send_the_parameters_that_it_mirrors_and_nothing_else_that_it_names() {
        let mut asked = HeaderMap::new();
        let names = HeaderValue::from_static("mcp-method, Mcp-Param-Region,x-other");
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names);
        assert_eq!(sent(&asked), format!("{SENT}, Mcp-Param-Region"));
        assert_eq!(sent(&HeaderMap::new()), SENT);
    }
}
