//! What a request's head says of its sender: the checks that keep a browser page from elsewhere out of a loopback port,
//! and the token. Every HTTP port asks these.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// Whether `Host` is an address, `localhost` or one of `names`. Another name that leads here is a DNS rebinding attack,
/// and an address cannot be one.
#[must_use]
pub fn names_us(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(name) = only(headers, header::HOST).map(without_port) else {
        return false;
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether no browser page sends it, or one of `origins`, or one whose origin is the very name it asks (which
/// [`names_us`] has judged).
#[must_use]
pub fn is_from_known_page(headers: &HeaderMap, origins: &[String]) -> bool {
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some(origin) = only(headers, header::ORIGIN) else {
        return false;
    };
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    let own = authority.is_some() && authority == only(headers, header::HOST);
    own || origins.iter().any(|known| known == origin)
}

/// The token of `Authorization: Bearer`.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = only(headers, header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a token is the one that was sent, in a time that tells nothing about how much of it is right.
#[must_use]
pub fn is_same(token: &SecretString, sent: &str) -> bool {
    token
        .expose_secret()
        .as_bytes()
        .ct_eq(sent.as_bytes())
        .into()
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(HeaderValue::to_str)?.ok()?;
    values.next().is_none().then_some(first)
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_rebound_name_is_turned_away_and_an_address_is_not() {
        let names = ["gw.example".to_owned()];
        for host in [
            "localhost:1",
            "127.0.0.1:1",
            "[::1]:1",
            "10.0.0.7",
            "GW.example:7465",
        ] {
            assert!(names_us(&headers(&[("host", host)]), &names), "{host}");
        }
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        let rebound = headers(&[("host", "evil.example:7465")]);
        for foreign in [
            headers(&[]),
            two,
            rebound,
            headers(&[("host", "localhost.evil")]),
        ] {
            assert!(!names_us(&foreign, &names), "{foreign:?}");
        }
    }

    #[test]
    fn a_page_from_elsewhere_is_turned_away_and_our_own_is_not() {
        let origins = ["https://grafana.example".to_owned()];
        let from = |origin| headers(&[("host", "localhost:7465"), ("origin", origin)]);
        assert!(is_from_known_page(
            &headers(&[("host", "localhost")]),
            &origins
        ));
        for known in ["http://localhost:7465", "https://grafana.example"] {
            assert!(is_from_known_page(&from(known), &origins), "{known}");
        }
        for foreign in [
            "http://localhost:8080",
            "https://evil.example",
            "null",
            "file://",
        ] {
            assert!(!is_from_known_page(&from(foreign), &origins), "{foreign}");
        }
    }

    #[test]
    fn a_token_is_the_whole_token() {
        let bearer = headers(&[("authorization", "bearer  a ")]);
        assert_eq!(super::bearer(&bearer), Some("a"));
        let token = "secret".into();
        assert!(is_same(&token, "secret"));
        for wrong in ["", "secre", "secret2", "Secret"] {
            assert!(!is_same(&token, wrong), "{wrong}");
        }
    }
}
