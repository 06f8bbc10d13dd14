//! Who may connect: tokens, and the checks that keep a browser page from reaching a loopback port.

use axum::http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// The rules of one face.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Who may connect; empty lets everyone in without a token (loopback only, which the configuration enforces).
    pub permits: Vec<Permit>,
    /// Browser origins that are let in.
    pub origins: Vec<String>,
    /// `Host` values that are let in, without ports, beside loopback names.
    pub names: Vec<String>,
}

/// One `hosts` entry.
#[derive(Clone, Debug)]
pub struct Permit {
    /// Its name.
    pub name: String,
    /// Its token.
    pub token: SecretString,
    /// Patterns of the servers that it may use, with `*` for any run.
    pub servers: Vec<String>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No token, or one that nobody has.
    #[error("a valid token is needed, as `?token=` or `Authorization: Bearer`")]
    Unauthorized,
    /// The token does not cover the server.
    #[error("this token may not use that server; see `hosts[].servers`")]
    Forbidden,
    /// A browser page from elsewhere.
    #[error("this browser origin is not let in; see `allowedOrigins`")]
    Origin,
    /// A name that is not ours, as in a DNS rebinding attack.
    #[error("this Host value is not let in; see `allowedHosts`")]
    Host,
}

impl Access {
    /// The name of the host that asks for `server`, or `None` where no tokens are configured.
    ///
    /// # Errors
    /// Where it is not let in.
    pub fn admit(
        &self,
        headers: &HeaderMap,
        token: Option<&str>,
        server: &str,
    ) -> Result<Option<&str>, Denial> {
        self.check_origin(headers)?;
        self.check_host(headers)?;
        if self.permits.is_empty() {
            return Ok(None);
        }
        let token = token.ok_or(Denial::Unauthorized)?;
        let permit = self.permit(token).ok_or(Denial::Unauthorized)?;
        let covered = permit
            .servers
            .iter()
            .any(|pattern| matches(pattern, server));
        covered
            .then_some(Some(permit.name.as_str()))
            .ok_or(Denial::Forbidden)
    }

    /// Compares with every token, so that the time tells nothing about which one is close.
    fn permit(&self, token: &str) -> Option<&Permit> {
        self.permits.iter().fold(None, |found, permit| {
            let same = permit
                .token
                .expose_secret()
                .as_bytes()
                .ct_eq(token.as_bytes());
            if bool::from(same) {
                Some(permit)
            } else {
                found
            }
        })
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let allowed = |origin: &axum::http::HeaderValue| {
            origin
                .to_str()
                .is_ok_and(|origin| self.origins.iter().any(|own| own == origin))
        };
        let all = headers.get_all(header::ORIGIN).iter().all(allowed);
        all.then_some(()).ok_or(Denial::Origin)
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let mut values = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (values.next(), values.next()) else {
            return Err(Denial::Host);
        };
        let name = without_port(host.to_str().map_err(|_| Denial::Host)?);
        let known =
            is_loopback(name) || self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        known.then_some(()).ok_or(Denial::Host)
    }
}

/// The token of a request: `Authorization: Bearer`, else `?token=`.
#[must_use]
pub fn token<'a>(headers: &'a HeaderMap, query: Option<&'a str>) -> Option<&'a str> {
    let header = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    header
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(str::trim)
        .or(query)
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or(host),
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    address || name.eq_ignore_ascii_case("localhost")
}

/// Whether a name fits a pattern in which `*` stands for any run.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| rest.get(at..).is_some_and(|tail| matches(after, tail)))
        }),
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

    fn with_one_host() -> Access {
        let permit = Permit {
            name: "agent-1".into(),
            token: "s3cret".into(),
            servers: vec!["discord".into(), "mem-*".into()],
        };
        Access {
            permits: vec![permit],
            ..Access::default()
        }
    }

    #[test]
    fn a_token_opens_the_servers_it_names_and_no_other() {
        let access = with_one_host();
        let local = headers(&[("host", "127.0.0.1:7464")]);
        let admit = |token, server| access.admit(&local, token, server);
        assert_eq!(admit(Some("s3cret"), "discord"), Ok(Some("agent-1")));
        assert_eq!(admit(Some("s3cret"), "mem-2"), Ok(Some("agent-1")));
        assert_eq!(admit(Some("s3cret"), "other"), Err(Denial::Forbidden));
        assert_eq!(admit(Some("s3cre"), "discord"), Err(Denial::Unauthorized));
        assert_eq!(admit(None, "discord"), Err(Denial::Unauthorized));
    }

    #[test]
    fn without_hosts_a_loopback_visitor_has_no_name() {
        let access = Access::default();
        for host in ["localhost:7464", "127.0.0.1", "[::1]:7464"] {
            assert_eq!(
                access.admit(&headers(&[("host", host)]), None, "x"),
                Ok(None),
                "{host}"
            );
        }
    }

    #[test]
    fn a_page_from_elsewhere_and_a_rebound_name_are_turned_away() {
        let mut access = Access::default();
        let page = headers(&[("host", "localhost"), ("origin", "https://evil.example")]);
        assert_eq!(access.admit(&page, None, "x"), Err(Denial::Origin));
        access.origins.push("https://evil.example".into());
        assert_eq!(access.admit(&page, None, "x"), Ok(None));
        let rebound = headers(&[("host", "evil.example:7464")]);
        assert_eq!(access.admit(&rebound, None, "x"), Err(Denial::Host));
        assert_eq!(access.admit(&headers(&[]), None, "x"), Err(Denial::Host));
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert_eq!(access.admit(&two, None, "x"), Err(Denial::Host));
    }

    #[test]
    fn the_bearer_header_comes_before_the_query() {
        let bearer = headers(&[("authorization", "Bearer a")]);
        assert_eq!(token(&bearer, Some("b")), Some("a"));
        assert_eq!(token(&headers(&[]), Some("b")), Some("b"));
    }

    #[test]
    fn a_star_stands_for_any_run() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("mem-*", "mem-", true),
            ("*-x", "a-b-x", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("mem", "memo", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
