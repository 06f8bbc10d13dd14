//! One post to a URL. The URL is a secret: it is in no error, log line or answer.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};

use super::ledger::Told;

/// From the beginning of a post to its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of a post, and why it was not taken.
pub(super) type Result = (Told, String);

/// A client that goes where it is sent and nowhere else.
pub(super) fn client() -> reqwest::Result<Client> {
    // The first that asks for one sets it; it is the same for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Posts a text as `{"content": …}`, the body that chat services and connectome-style hosts take.
pub(super) async fn post(client: &Client, url: &SecretString, text: &str) -> Result {
    let body = serde_json::json!({ "content": text });
    let sent = client.post(url.expose_secret()).json(&body).send().await;
    match sent {
        Ok(answer) => judged(answer.status(), answer.headers()),
        Err(error) => failed(error.without_url()),
    }
}

fn judged(status: StatusCode, headers: &HeaderMap) -> Result {
    let why = format!("HTTP status {}", status.as_u16());
    let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    if status.is_success() {
        (Told::Yes, why)
    } else if busy || status.is_server_error() {
        (Told::No(retry_after(headers)), why)
    } else if status.is_redirection() {
        (Told::Never, why + ": redirects are not followed")
    } else {
        (Told::Never, why)
    }
}

fn failed(error: reqwest::Error) -> Result {
    let told = if error.is_connect() || error.is_builder() {
        Told::No(None)
    } else {
        Told::Unknown
    };
    let why = if error.is_timeout() {
        "no answer in time".to_owned()
    } else {
        error.to_string()
    };
    (told, why)
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let date = || {
        let at = httpdate::parse_http_date(value).ok()?;
        at.duration_since(SystemTime::now()).ok()
    };
    value.parse().ok().map(Duration::from_secs).or_else(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_it_is_worth_trying_again() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        let later = Told::No(Some(Duration::from_secs(7)));
        for (status, told) in [
            (204, Told::Yes),
            (429, later),
            (503, later),
            (408, later),
            (302, Told::Never),
            (307, Told::Never),
            (404, Told::Never),
            (401, Told::Never),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judged(status, &headers).0, told, "{status}");
        }
    }
}
