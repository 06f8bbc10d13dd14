//! Who may come in: two tokens, and the checks that keep a browser page from elsewhere out of a loopback port.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use secrecy::SecretString;

use super::Desk;
use super::fault::Fault;
use crate::config::Config;
use crate::face::head;

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
        let sent = headers.contains_key(CONTROL) || head::bearer(headers).is_some();
        sent.then_some(()).ok_or(Fault::NoHeader)
    }

    fn has(&self, token: Option<&SecretString>, headers: &HeaderMap) -> bool {
        let (token, sent) = (token, head::bearer(headers));
        token
            .zip(sent)
            .is_some_and(|(token, sent)| head::is_same(token, sent))
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
    let headers = request.headers();
    let ours = |doors: &Doors| head::names_us(headers, &doors.names);
    desk.check(|doors| ours(doors).then_some(()).ok_or(Fault::Host))?;
    let known = |doors: &Doors| head::is_from_known_page(headers, &doors.origins);
    desk.check(|doors| known(doors).then_some(()).ok_or(Fault::Origin))?;
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

#[cfg(test)]
mod tests {
    use axum::http::header;

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
