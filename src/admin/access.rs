//! Who may come in: two tokens, and the checks that keep a browser page from elsewhere out of a loopback port.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use super::Desk;
use super::fault::Fault;
use crate::config::Config;

/// No form of a browser page can send it.
const CONTROL: &str = "x-tidegate-control";

/// Who may come in.
#[derive(Clone, Debug)]
pub struct Doors {
    /// For control, and for reading too.
    pub token: Option<SecretString>,
    /// For reading.
    pub read_token: Option<SecretString>,
    /// Only this machine can connect.
    pub loopback: bool,
    /// `Host` values that are let in, without ports, beside `localhost` and IP addresses.
    pub names: Vec<String>,
    /// Browser origins that are let in beside the page's own.
    pub origins: Vec<String>,
}

impl Doors {
    /// As the configuration says, for a listener at this address.
    #[must_use]
    pub fn new(config: &Config, listen: SocketAddr) -> Self {
        Self {
            token: config.admin.token.clone(),
            read_token: config.admin.read_token.clone(),
            loopback: listen.ip().is_loopback(),
            names: config.allowed_hosts.clone(),
            origins: config.allowed_origins.clone(),
        }
    }

    /// A name that is not ours is a DNS rebinding attack; an address cannot be one.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let name = without_port(only(headers, header::HOST).ok_or(Fault::Host)?);
        let ours = name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        ours.then_some(()).ok_or(Fault::Host)
    }

    /// After `check_host`: a page whose origin is the very name it asks is our own.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, header::ORIGIN).ok_or(Fault::Origin)?;
        let host = only(headers, header::HOST);
        let own = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            .is_some_and(|authority| Some(authority) == host);
        let known = own || self.origins.iter().any(|known| known == origin);
        known.then_some(()).ok_or(Fault::Origin)
    }

    /// Off loopback one of the tokens is needed; on it, the one for reading where it is set.
    fn check_read(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let open = self.read_token.is_none() && self.loopback;
        let known = self.has(self.read_token.as_ref(), headers)
            | self.has(self.token.as_ref(), headers)
            | open;
        known.then_some(()).ok_or(Fault::NoReadToken)
    }

    /// The token where one is set; else, on loopback, the header.
    fn check_control(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if self.token.is_some() {
            let known = self.has(self.token.as_ref(), headers);
            return known.then_some(()).ok_or(Fault::NoControlToken);
        }
        if !self.loopback {
            return Err(Fault::NoControl);
        }
        let sent = headers.contains_key(CONTROL) || bearer(headers).is_some();
        sent.then_some(()).ok_or(Fault::NoHeader)
    }

    /// Whether the request bears this token, in a time that tells nothing about how much of it is right.
    fn has(&self, token: Option<&SecretString>, headers: &HeaderMap) -> bool {
        let (Some(token), Some(sent)) = (token, bearer(headers)) else {
            return false;
        };
        let (token, sent) = (token.expose_secret().as_bytes(), sent.as_bytes());
        token.ct_eq(sent).into()
    }
}

impl Desk {
    fn check(&self, check: impl FnOnce(&Doors) -> Result<(), Fault>) -> Result<(), Fault> {
        check(&self.admin.settings.borrow().doors)
    }
}

/// For everything but health: `Host` and `Origin`.
pub(super) async fn guard(
    State(desk): State<Desk>,
    request: Request,
    next: Next,
) -> Result<Response, Fault> {
    desk.check(|doors| doors.check_host(request.headers()))?;
    desk.check(|doors| doors.check_origin(request.headers()))?;
    Ok(next.run(request).await)
}

/// For what is read.
pub(super) async fn read(
    State(desk): State<Desk>,
    request: Request,
    next: Next,
) -> Result<Response, Fault> {
    desk.check(|doors| doors.check_read(request.headers()))?;
    Ok(next.run(request).await)
}

/// For what changes something.
pub(super) async fn control(
    State(desk): State<Desk>,
    request: Request,
    next: Next,
) -> Result<Response, Fault> {
    desk.check(|doors| doors.check_control(request.headers()))?;
    Ok(next.run(request).await)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = only(headers, header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
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

    fn doors(token: Option<&str>, read_token: Option<&str>, loopback: bool) -> Doors {
        Doors {
            token: token.map(Into::into),
            read_token: read_token.map(Into::into),
            loopback,
            names: vec!["gw.example".into()],
            origins: vec!["https://grafana.example".into()],
        }
    }

    fn with(token: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        let value = format!("Bearer {token}");
        map.insert(header::AUTHORIZATION, value.parse().unwrap());
        map
    }

    #[test]
    fn a_rebound_name_is_turned_away_and_an_address_is_not() {
        let doors = doors(None, None, true);
        for host in [
            "localhost:1",
            "127.0.0.1:1",
            "[::1]:1",
            "10.0.0.7",
            "GW.example:7465",
        ] {
            let host = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            assert_eq!(doors.check_host(&host), Ok(()), "{host:?}");
        }
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        let rebound = headers(&[("host", "evil.example:7465")]);
        for foreign in [
            headers(&[]),
            two,
            rebound,
            headers(&[("host", "localhost.evil")]),
        ] {
            assert_eq!(doors.check_host(&foreign), Err(Fault::Host), "{foreign:?}");
        }
    }

    #[test]
    fn a_page_from_elsewhere_is_turned_away_and_our_own_is_not() {
        let doors = doors(None, None, true);
        let origin = |origin| headers(&[("host", "localhost:7465"), ("origin", origin)]);
        assert_eq!(
            doors.check_origin(&headers(&[("host", "localhost")])),
            Ok(())
        );
        assert_eq!(doors.check_origin(&origin("http://localhost:7465")), Ok(()));
        assert_eq!(
            doors.check_origin(&origin("https://grafana.example")),
            Ok(())
        );
        for foreign in [
            "http://localhost:8080",
            "https://evil.example",
            "null",
            "file://",
        ] {
            let verdict = doors.check_origin(&origin(foreign));
            assert_eq!(verdict, Err(Fault::Origin), "{foreign}");
        }
    }

    #[test]
    fn reading_needs_a_token_where_one_is_set_for_it_or_the_port_is_off_loopback() {
        let none = headers(&[]);
        let refused = Err(Fault::NoReadToken);
        assert_eq!(doors(None, None, true).check_read(&none), Ok(()));
        assert_eq!(doors(Some("c"), None, true).check_read(&none), Ok(()));
        assert_eq!(doors(Some("c"), None, false).check_read(&none), refused);
        assert_eq!(doors(None, None, false).check_read(&none), refused);
        let both = doors(Some("c"), Some("r"), true);
        assert_eq!(both.check_read(&none), refused);
        assert_eq!(both.check_read(&with("r")), Ok(()));
        assert_eq!(both.check_read(&with("c")), Ok(()));
        for wrong in ["", "x", "rr", "R"] {
            assert_eq!(both.check_read(&with(wrong)), refused, "{wrong}");
        }
    }

    #[test]
    fn control_needs_its_own_token_or_on_loopback_what_no_form_can_send() {
        let none = headers(&[]);
        let header = headers(&[(CONTROL, "1")]);
        let local = doors(None, None, true);
        assert_eq!(local.check_control(&none), Err(Fault::NoHeader));
        assert_eq!(local.check_control(&header), Ok(()));
        let away = doors(None, Some("r"), false);
        assert_eq!(away.check_control(&header), Err(Fault::NoControl));
        assert_eq!(away.check_control(&with("r")), Err(Fault::NoControl));
        let both = doors(Some("c"), Some("r"), true);
        for wrong in [header, with("r"), none] {
            assert_eq!(both.check_control(&wrong), Err(Fault::NoControlToken));
        }
        assert_eq!(both.check_control(&with("c")), Ok(()));
    }
}
