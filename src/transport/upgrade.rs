//! Opens a WebSocket: the upgrade request with its credential, TLS, and what a refusal means.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use rustls::crypto::ring;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, RETRY_AFTER};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

use super::settings::{TokenIn, WebSocket};
use crate::engine::input::{Failure, Outcome};
use crate::wire::framing::{FRAME_MAX, MESSAGE_MAX};
use crate::wire::redact::{Secrets, percent_encoded};

/// What an idle socket holds to read into, in bytes. Each read zeroes it, and a long frame is read in such parts.
const READ_ROOM: usize = 16 << 10;
/// A message that we forward may be a little longer than one that we read, by its rewritten members. In bytes.
const WRITE_MAX: usize = MESSAGE_MAX + (1 << 20);

/// An open connection.
pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Dials once.
///
/// # Errors
/// Why there is no connection; [`failure`] makes a report of it.
pub(super) async fn connect(
    settings: &WebSocket,
    token: Option<&SecretString>,
) -> Result<Socket, Error> {
    let request = request(settings, token)?;
    let is_secure = request.uri().scheme_str() == Some("wss");
    let connector = if is_secure {
        Connector::Rustls(tls()?)
    } else {
        Connector::Plain
    };
    let limits = WebSocketConfig::default()
        .read_buffer_size(READ_ROOM)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_MAX)
        .max_message_size(Some(FRAME_MAX))
        .max_frame_size(Some(FRAME_MAX));
    let dialing = tokio_tungstenite::connect_async_tls_with_config(
        request,
        Some(limits),
        true,
        Some(connector),
    );
    let (socket, _) = dialing.await?;
    Ok(socket)
}

fn request(settings: &WebSocket, token: Option<&SecretString>) -> tungstenite::Result<Request> {
    let token = token.map(ExposeSecret::expose_secret);
    let in_query = token.filter(|_| settings.token_in != TokenIn::Header);
    let in_header = token.filter(|_| settings.token_in != TokenIn::Query);
    let url = settings.url.split('#').next().unwrap_or_default();
    let url = in_query.map_or(url.into(), |token| with_token(url, token));
    let mut request = with_path(&url).into_client_request()?;
    if let Some(token) = in_header {
        request
            .headers_mut()
            .insert(AUTHORIZATION, sensitive(&format!("Bearer {token}"))?);
    }
    for (name, value) in &settings.headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        request
            .headers_mut()
            .insert(name, sensitive(value.expose_secret())?);
    }
    Ok(request)
}

pub(super) fn sensitive(text: &str) -> tungstenite::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The URL with `token` in its query, in place of one that is there; every other byte of the query stays.
fn with_token(url: &str, token: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some("token");
    let mut pairs: Vec<&str> = query.split('&').filter(is_other).collect();
    let token = format!("token={}", percent_encoded(token));
    pairs.push(&token);
    format!("{place}?{}", pairs.join("&"))
}

/// The URL with a path: a request line that begins with `?` is none.
fn with_path(url: &str) -> String {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(authority..).and_then(|rest| rest.find(['/', '?']));
    match end.map(|end| url.split_at(authority + end)) {
        Some((place, query)) if query.starts_with('?') => format!("{place}/{query}"),
        _ => url.into(),
    }
}

/// The URL as it may be shown: without user, password, query and fragment.
pub(super) fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/{path}")
}

/// One for all connections: the roots take a moment to read and some memory to hold.
pub(super) fn tls() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(io::Error::other("this machine has no root certificates"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}

/// Whether the credential was refused (R18).
pub(super) fn refuses_credential(error: &Error) -> bool {
    status(error).is_some_and(|s| s == StatusCode::UNAUTHORIZED || s == StatusCode::FORBIDDEN)
}

/// The report of a dial that failed.
pub(super) fn failure(error: &Error, settings: &WebSocket, secrets: &Secrets) -> Failure {
    let outcome = if refuses_credential(error) {
        Outcome::Auth
    } else if matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut) {
        Outcome::Timeout
    } else {
        Outcome::Refused
    };
    let mut failure = refused(&why(error), settings, secrets);
    failure.outcome = outcome;
    failure.retry_after = retry_after(error);
    failure
}

/// The report of a dial that came to nothing, with its reason in words.
pub(super) fn refused(why: &str, settings: &WebSocket, secrets: &Secrets) -> Failure {
    Failure {
        outcome: Outcome::Refused,
        detail: secrets.clean(&format!("{}: {why}", shown(&settings.url))),
        retry_after: None,
        stderr: Vec::new(),
    }
}

/// In words that hold no URL: the library's own may.
fn why(error: &Error) -> String {
    match error {
        Error::Http(response) => format!("HTTP status {}", response.status().as_u16()),
        Error::Io(error) => error.to_string(),
        Error::Tls(error) => format!("TLS: {error}"),
        Error::Protocol(error) => format!("no WebSocket: {error}"),
        Error::HttpFormat(_) => "the URL or a header cannot be sent".into(),
        Error::Url(_) => "the URL cannot be dialed".into(),
        Error::Capacity(error) => error.to_string(),
        Error::Utf8(_)
        | Error::AttackAttempt
        | Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::WriteBufferFull(_) => "the upgrade failed".into(),
    }
}

fn status(error: &Error) -> Option<StatusCode> {
    if let Error::Http(response) = error {
        return Some(response.status());
    }
    None
}

/// `Retry-After` of a 429 or 503: seconds or a date (RFC 9110 §10.2.3).
fn retry_after(error: &Error) -> Option<Duration> {
    let Error::Http(response) = error else {
        return None;
    };
    let waits = matches!(response.status().as_u16(), 429 | 503);
    waits
        .then(|| wait_in(response.headers(), SystemTime::now()))
        .flatten()
}

pub(super) fn wait_in(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    date.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_joins_the_query_and_leaves_the_rest_as_it_is() {
        for (url, with) in [
            ("ws://h/p", "ws://h/p?token=a%2Fb%20c"),
            ("ws://h/p?", "ws://h/p?token=a%2Fb%20c"),
            ("ws://h/p?x=%41&y", "ws://h/p?x=%41&y&token=a%2Fb%20c"),
            ("ws://h/p?token=old&x=1", "ws://h/p?x=1&token=a%2Fb%20c"),
            ("ws://h/p?tokens=1", "ws://h/p?tokens=1&token=a%2Fb%20c"),
        ] {
            assert_eq!(with_token(url, "a/b c"), with);
        }
    }

    #[test]
    fn a_url_without_a_path_gets_one() {
        for (url, with) in [
            ("ws://h:1?x=/", "ws://h:1/?x=/"),
            ("ws://h?x", "ws://h/?x"),
            ("ws://h", "ws://h"),
            ("ws://h/p?x", "ws://h/p?x"),
        ] {
            assert_eq!(with_path(url), with);
        }
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        for (url, is_shown) in [
            ("ws://h:1/p?token=x", "ws://h:1/p"),
            ("wss://user:pass@h/p/q#f", "wss://h/p/q"),
            ("ws://h", "ws://h/"),
            ("ws://h?key=x/y@z", "ws://h/"),
        ] {
            assert_eq!(shown(url), is_shown);
        }
    }

    #[test]
    fn r18_retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, wait) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("1000000000000", Some(1_000_000_000_000)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("-1", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(
                wait_in(&headers, now),
                wait.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}
