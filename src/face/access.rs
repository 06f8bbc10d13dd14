//! Who may connect as a host, and to which servers.

use std::time::Duration;

use axum::http::HeaderMap;
use secrecy::SecretString;

use super::head;
use crate::engine::settings::fits;

/// The default of `sessionIdleMs`.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// The rules of one face.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who may connect; empty lets everyone in without a token (loopback only, which the configuration enforces).
    pub permits: Vec<Permit>,
    /// Browser origins that are let in.
    pub origins: Vec<String>,
    /// `Host` values that are let in, without ports, beside `localhost` and addresses.
    pub names: Vec<String>,
    /// How long nobody uses a session over HTTP before it ends.
    pub session_idle: Duration,
}

/// Loopback alone, without a token.
impl Default for Access {
    fn default() -> Self {
        Self {
            permits: Vec::new(),
            origins: Vec::new(),
            names: Vec::new(),
            session_idle: SESSION_IDLE,
        }
    }
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
    /// The name of the host that asks for `server`, or for all that it may use, or `None` where no tokens are
    /// configured.
    ///
    /// # Errors
    /// Where it is not let in.
    pub fn admit(
        &self,
        headers: &HeaderMap,
        token: Option<&str>,
        server: Option<&str>,
    ) -> Result<Option<&str>, Denial> {
        self.admit_page(headers)?;
        self.identify(token, server)
    }

    /// Whether the sender is no browser page from elsewhere.
    ///
    /// # Errors
    /// Where it is one, or asks for a name that is not ours.
    pub fn admit_page(&self, headers: &HeaderMap) -> Result<(), Denial> {
        if !head::names_us(headers, &self.names) {
            return Err(Denial::Host);
        }
        if !head::is_from_known_page(headers, &self.origins) {
            return Err(Denial::Origin);
        }
        Ok(())
    }

    /// The name of the host whose token that is, where it covers `server`, if one is asked for; `None` where no tokens
    /// are configured.
    ///
    /// # Errors
    /// Where it is nobody's, or covers that server no longer.
    pub fn identify(
        &self,
        token: Option<&str>,
        server: Option<&str>,
    ) -> Result<Option<&str>, Denial> {
        if self.permits.is_empty() {
            return Ok(None);
        }
        let token = token.ok_or(Denial::Unauthorized)?;
        let permit = self.permit(token).ok_or(Denial::Unauthorized)?;
        let covers = |server| permit.servers.iter().any(|pattern| fits(pattern, server));
        server
            .is_none_or(covers)
            .then_some(Some(permit.name.as_str()))
            .ok_or(Denial::Forbidden)
    }

    /// Compares with every token, so that the time tells nothing about which one is close.
    fn permit(&self, token: &str) -> Option<&Permit> {
        self.permits.iter().fold(None, |found, permit| {
            if head::is_same(&permit.token, token) {
                Some(permit)
            } else {
                found
            }
        })
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
        let admit = |token, server| access.admit(&local, token, Some(server));
        assert_eq!(admit(Some("s3cret"), "discord"), Ok(Some("agent-1")));
        assert_eq!(admit(Some("s3cret"), "mem-2"), Ok(Some("agent-1")));
        assert_eq!(admit(Some("s3cret"), "other"), Err(Denial::Forbidden));
        assert_eq!(admit(Some("s3cre"), "discord"), Err(Denial::Unauthorized));
        assert_eq!(admit(None, "discord"), Err(Denial::Unauthorized));
        let all = |token| access.admit(&local, token, None);
        assert_eq!(all(Some("s3cret")), Ok(Some("agent-1")));
        assert_eq!(all(Some("other")), Err(Denial::Unauthorized));
        assert_eq!(all(None), Err(Denial::Unauthorized));
    }

    #[test]
    fn without_hosts_a_loopback_visitor_has_no_name() {
        let access = Access::default();
        for host in ["localhost:7464", "127.0.0.1", "[::1]:7464"] {
            assert_eq!(
                access.admit(&headers(&[("host", host)]), None, Some("x")),
                Ok(None),
                "{host}"
            );
        }
    }

    #[test]
    fn a_page_from_elsewhere_and_a_rebound_name_are_turned_away() {
        let access = Access::default();
        let page = headers(&[("host", "localhost"), ("origin", "https://evil.example")]);
        assert_eq!(access.admit(&page, None, Some("x")), Err(Denial::Origin));
        let rebound = headers(&[("host", "evil.example:7464")]);
        assert_eq!(access.admit(&rebound, None, None), Err(Denial::Host));
    }
}
