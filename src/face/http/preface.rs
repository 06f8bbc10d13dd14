//! What the head of a request says of its body, its session and its revision. It looks nothing up.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::fault::Fault;
use crate::wire::mcp::Revision;

/// The session's id.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The revision that the client speaks.
pub(super) const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The last event that the client saw.
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A POST brings JSON, and takes JSON or a stream.
pub(super) fn check_post(headers: &HeaderMap) -> Result<(), Fault> {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::to_str);
    let kind = kind.and_then(Result::ok).unwrap_or_default();
    if !essence(kind).eq_ignore_ascii_case(JSON) {
        return Err(Fault::MediaType);
    }
    if !accepts(headers, JSON) || !accepts(headers, EVENTS) {
        return Err(Fault::NotAcceptable(
            "application/json and text/event-stream",
        ));
    }
    Ok(())
}

/// A GET takes a stream.
pub(super) fn check_get(headers: &HeaderMap) -> Result<(), Fault> {
    let fits = accepts(headers, EVENTS);
    fits.then_some(()).ok_or(Fault::NotAcceptable(EVENTS))
}

/// The session that a request names.
///
/// # Errors
/// Where what it names cannot be one.
pub(super) fn session(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = headers.get(SESSION) else {
        return Ok(None);
    };
    value.to_str().map(Some).map_err(|_| Fault::UnknownSession)
}

/// The revision may be left out, and must be one with sessions where it is named.
pub(super) fn check_revision(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(value) = headers.get(REVISION) else {
        return Ok(());
    };
    let named = value.to_str().ok().and_then(Revision::parse);
    named
        .map(drop)
        .ok_or_else(|| Fault::Revision(Revision::ALL.map(Revision::as_str).join(", ")))
}

/// Whether `Accept` lets in a media type; one that is left out lets in all.
fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut ranges = texts.flat_map(|text| text.split(','));
    ranges.any(|range| covers(range, wanted))
}

fn covers(range: &str, wanted: &str) -> bool {
    let named = essence(range);
    let fits = named == "*/*"
        || named.eq_ignore_ascii_case(wanted)
        || named.strip_suffix("/*").is_some_and(|kind| {
            wanted
                .split('/')
                .next()
                .is_some_and(|own| own.eq_ignore_ascii_case(kind))
        });
    let mut parameters = range.split(';').skip(1).map(str::trim);
    // A weight of 0 means never.
    let is_never = |text: &str| {
        let weight = text.strip_prefix("q=").map(str::parse::<f32>);
        matches!(weight, Some(Ok(0.0)))
    };
    fits && !parameters.any(is_never)
}

/// A media type without its parameters.
fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_post_brings_json_and_takes_both_kinds_of_answer() {
        let post = |kind, accept| {
            let checked = check_post(&head(&[("content-type", kind), ("accept", accept)]));
            checked.map_err(|fault| if fault == Fault::MediaType { 415 } else { 406 })
        };
        let both = "application/json, text/event-stream";
        assert_eq!(post("application/json", both), Ok(()));
        assert_eq!(post("Application/JSON; charset=utf-8", "*/*"), Ok(()));
        assert_eq!(
            post("application/json", "text/*;q=0.5, application/*"),
            Ok(())
        );
        assert_eq!(post("text/plain", both), Err(415));
        assert_eq!(post("application/json", "application/json"), Err(406));
        assert_eq!(post("application/json", "text/event-stream"), Err(406));
        assert_eq!(
            post(
                "application/json",
                "application/json, text/event-stream;q=0"
            ),
            Err(406)
        );
        assert_eq!(
            check_post(&head(&[("content-type", "application/json")])),
            Ok(())
        );
        assert_eq!(
            check_get(&head(&[("accept", "text/html")])),
            Err(Fault::NotAcceptable(EVENTS))
        );
    }

    #[test]
    fn a_revision_that_is_not_served_is_refused_and_none_is_not() {
        for good in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(
                check_revision(&head(&[("mcp-protocol-version", good)])),
                Ok(())
            );
        }
        assert_eq!(check_revision(&head(&[])), Ok(()));
        for bad in ["1999-01-01", "", "latest"] {
            let refused = check_revision(&head(&[("mcp-protocol-version", bad)])).unwrap_err();
            assert!(refused.to_string().contains("2025-11-25"), "{refused}");
        }
    }
}
