//! What each kind of transport needs to know, already validated and interpolated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

/// One server's transport. Two that compare equal need no new connection at a reload.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A child process.
    Stdio(Arc<Stdio>),
    /// A WebSocket.
    WebSocket(Arc<WebSocket>),
    /// Streamable HTTP.
    Http(Arc<Http>),
}

impl Settings {
    /// The label of `tidegate_server_info` and the `transport` field of 3-config.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::WebSocket(_) => "websocket",
            Self::Http(_) => "http",
        }
    }

    /// R12: silence after which the transport probes by itself, where it does.
    #[must_use]
    pub fn keep_alive(&self) -> Option<Duration> {
        match self {
            // The engine probes these.
            Self::Stdio(_) | Self::Http(_) => None,
            Self::WebSocket(socket) => Some(socket.keep_alive),
        }
    }
}

/// A child process.
#[derive(Clone, Debug)]
pub struct Stdio {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory; `None` is the gateway's.
    pub cwd: Option<PathBuf>,
    /// On top of the allowlist.
    pub env: BTreeMap<String, SecretString>,
    /// The whole environment rather than the allowlist.
    pub inherit_env: bool,
    /// What must never be shown: replaced in stderr, errors and samples.
    pub secrets: Vec<SecretString>,
}

/// A WebSocket.
#[derive(Clone, Debug)]
pub struct WebSocket {
    /// `ws://` or `wss://`, without the token.
    pub url: String,
    /// Resolved at every dial.
    pub credential: Credential,
    /// Where the credential goes.
    pub token_in: TokenIn,
    /// Sent with the upgrade request.
    pub headers: BTreeMap<String, SecretString>,
    /// R12: silence after which a ping is sent; zero is never.
    pub keep_alive: Duration,
    /// What must never be shown.
    pub secrets: Vec<SecretString>,
}

/// A server of Streamable HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// `http://` or `https://`, without the token.
    pub url: String,
    /// Resolved at every dial, and again where it is refused; sent as a bearer.
    pub credential: Credential,
    /// Sent with each request.
    pub headers: BTreeMap<String, SecretString>,
    /// R15: how long each connect call may take.
    pub connect_timeout: Duration,
    /// What must never be shown.
    pub secrets: Vec<SecretString>,
}

/// Where a credential comes from.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// None is sent.
    #[default]
    None,
    /// Written in the configuration or its environment.
    Fixed(SecretString),
    /// Read from a file, without the line end.
    File(PathBuf),
    /// The standard output of a command, without the line end.
    Command(Vec<String>),
}

/// Where a WebSocket's credential goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenIn {
    /// `?token=`.
    Query,
    /// `Authorization: Bearer`.
    Header,
    /// Both.
    #[default]
    Both,
}
