//! Where the gateway is and which token opens it: from the arguments, the environment, or the gateway's own file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use secrecy::{ExposeSecret, SecretString};

use crate::cli::client::reachable;
use crate::config::{self, Config};
use crate::engine::settings::fits;
use crate::ids::ServerId;
use crate::transport::settings::{Credential, TokenIn, WebSocket};

/// Where host faces are when nothing says otherwise (3-config).
const USUAL: &str = "ws://127.0.0.1:7464";
/// What stands for all servers.
const ALL: &str = "all";
/// Silence after which the gateway is pinged (R12).
const SILENCE: Duration = Duration::from_secs(20);

/// How to reach the gateway.
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// The gateway's host faces, e.g. ws://127.0.0.1:7464; else the configuration's `listen`.
    #[arg(long, env = "TIDEGATE_URL", value_name = "URL")]
    url: Option<String>,
    /// The gateway's configuration; else as for `tidegate run`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A host's token, where one is needed; else that of the configuration's first host that may use the server.
    #[arg(
        long,
        env = "TIDEGATE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<SecretString>,
    /// A file that holds the token, read at each connection.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

impl Reach {
    /// Works out where that server of the gateway's is. Nobody is asked yet.
    ///
    /// # Errors
    /// What is wrong with the arguments or the file.
    pub(super) fn find(&self, server: &str) -> Result<WebSocket, String> {
        if server != ALL && ServerId::new(server).is_none() {
            return Err(format!("{server:?} is no server id; name one, or `{ALL}`"));
        }
        let config = self.configured()?;
        let base = match (&self.url, &config) {
            (Some(url), _) => websocket(url)?,
            (None, Some(config)) => format!("ws://{}", reachable(config.listen)),
            (None, None) => USUAL.into(),
        };
        if let Some(config) = &config {
            known(config, server)?;
        }
        let credential = self.credential(config.as_ref(), server);
        let secrets = match &credential {
            Credential::Fixed(token) => vec![token.clone()],
            Credential::None | Credential::File(_) | Credential::Command(_) => Vec::new(),
        };
        Ok(WebSocket {
            url: format!("{base}{}", path(server)),
            credential,
            // In the address it could end up in somebody's log.
            token_in: TokenIn::Header,
            headers: BTreeMap::new(),
            keep_alive: SILENCE,
            secrets,
        })
    }

    /// The configuration, where one is named or found. An address alone needs none.
    fn configured(&self) -> Result<Option<Config>, String> {
        if self.url.is_some() && self.config.is_none() {
            return Ok(None);
        }
        let env = |name: &str| std::env::var(name).ok();
        let file = match config::find(self.config.as_deref(), &env) {
            Ok(file) => file,
            Err(_) if self.config.is_none() => return Ok(None),
            Err(error) => return Err(error),
        };
        load(&file).map(Some)
    }

    fn credential(&self, config: Option<&Config>, server: &str) -> Credential {
        if let Some(path) = &self.token_file {
            return Credential::File(path.clone());
        }
        let given = self
            .token
            .as_ref()
            .filter(|token| !token.expose_secret().is_empty());
        let of_file = config.and_then(|config| token(config, server));
        let token = given.cloned().or(of_file);
        token.map_or(Credential::None, Credential::Fixed)
    }
}

fn load(file: &Path) -> Result<Config, String> {
    let env = |name: &str| std::env::var(name).ok();
    config::load(file, &env).map_err(|problems| {
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        texts.join("\n")
    })
}

/// A mistyped name is told at once, rather than as a refusal of the gateway's for ever.
fn known(config: &Config, server: &str) -> Result<(), String> {
    let ids = config.servers.iter().map(|entry| entry.id.as_str());
    if server == ALL || ids.clone().any(|id| id == server) {
        return Ok(());
    }
    let (file, ids) = (config.file.display(), ids.collect::<Vec<_>>().join(", "));
    Err(format!("{file} has no server {server:?}; it has: {ids}"))
}

/// The token of the first host that may use the server.
fn token(config: &Config, server: &str) -> Option<SecretString> {
    let may =
        |patterns: &[String]| server == ALL || patterns.iter().any(|pattern| fits(pattern, server));
    let host = config.hosts.iter().find(|host| may(&host.servers))?;
    Some(host.token.clone())
}

/// The address of the faces as a WebSocket's, without a path.
fn websocket(url: &str) -> Result<String, String> {
    let wrong = || format!("{url:?} is no address of a gateway; write e.g. {USUAL}");
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let scheme = match scheme {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        _ => return Err(wrong()),
    };
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() || rest.contains(['?', '#', '@']) || rest.contains(char::is_whitespace) {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{rest}"))
}

/// Where a server's WebSocket is, below the address (4-faces).
fn path(server: &str) -> String {
    if server == ALL {
        "/mcp".into()
    } else {
        format!("/mcpl/{server}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_websockets_whatever_it_was_written_as() {
        for (written, meant) in [
            ("ws://127.0.0.1:7464", "ws://127.0.0.1:7464"),
            ("http://[::1]:1/", "ws://[::1]:1"),
            ("https://gw.example/sub/", "wss://gw.example/sub"),
        ] {
            assert_eq!(websocket(written).unwrap(), meant);
        }
        for wrong in [
            "127.0.0.1:7464",
            "ftp://x",
            "ws://",
            "ws://x?token=y",
            "ws://u@x",
        ] {
            assert!(
                websocket(wrong)
                    .unwrap_err()
                    .contains("ws://127.0.0.1:7464")
            );
        }
    }

    #[test]
    fn a_server_has_a_path_of_its_own_and_all_have_one_together() {
        assert_eq!(path("chat"), "/mcpl/chat");
        assert_eq!(path("all"), "/mcp");
    }
}
