//! Text to validated settings to the difference between two of them. The same code serves `run`, `check`, reload and
//! control (3-config).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

pub mod diff;
mod file;
mod foreign;
mod interpolate;
mod jsonc;
mod limits;
mod link;
mod load;
mod numbers;
mod problem;
mod read;
mod receivers;
pub mod schema;
mod secrets;
mod server;
mod telemetry;
mod tree;
pub mod watch;

pub use file::Source;

use crate::engine::settings::Settings as EngineSettings;
use crate::ids::ServerId;
use crate::observe::traces;
use crate::revision::server::Opening;
use crate::transport::Settings as TransportSettings;

/// A whole file, validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// This gateway's name in metrics, events and webhooks.
    pub name: String,
    /// Where hosts connect.
    pub listen: SocketAddr,
    /// Where operators connect.
    pub admin: Admin,
    /// Who may connect as a host; empty is loopback only, without a token.
    pub hosts: Vec<Host>,
    /// Browser origins that are let in.
    pub allowed_origins: Vec<String>,
    /// `Host` values beside loopback names and the bound address.
    pub allowed_hosts: Vec<String>,
    /// Channels that down and clear are posted to.
    pub status_channels: Vec<StatusChannel>,
    /// URLs that down and clear are posted to.
    pub webhooks: Vec<Webhook>,
    /// Bytes held and kept, all servers together (G6).
    pub max_queued_bytes: usize,
    /// The state directory; `None` keeps everything in memory.
    pub state_dir: Option<PathBuf>,
    /// `text` or `json`.
    pub log_json: bool,
    /// A level or a filter of `tracing_subscriber::EnvFilter`.
    pub log_level: String,
    /// Where traces go; `None` where none are wanted.
    pub traces: Option<traces::Settings>,
    /// How long nobody uses a session over HTTP before it ends.
    pub session_idle: Duration,
    /// SIGTERM to exit.
    pub shutdown_timeout: Duration,
    /// In the file's order.
    pub servers: Vec<Server>,
    /// What is odd and harms nothing: fields of other hosts that mean nothing here, R16.
    pub warnings: Vec<Problem>,
}

/// The operator faces.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where.
    pub listen: SocketAddr,
    /// For control.
    pub token: Option<SecretString>,
    /// For metrics, events, status and API reads.
    pub read_token: Option<SecretString>,
}

/// Who may connect as a host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name: the same one always replaces its old session.
    pub name: String,
    /// Its token.
    pub token: SecretString,
    /// Patterns of the servers it may use.
    pub servers: Vec<String>,
}

/// A channel that edges are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChannel {
    /// The configured server that has it.
    pub server: ServerId,
    /// Its id.
    pub channel_id: String,
    /// Which edges.
    pub events: Edges,
    /// Whose.
    pub source: Source,
}

/// A URL that edges are posted to.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// It says who may post, so it is a secret.
    pub url: SecretString,
    /// Which edges.
    pub events: Edges,
}

/// Which edges are told; at least one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// An episode opened.
    pub down: bool,
    /// An episode ended.
    pub clear: bool,
}

/// One entry of `mcpServers`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its key, or the slug shown for it.
    pub id: ServerId,
    /// `enabled: false` keeps the entry and runs nothing.
    pub enabled: bool,
    /// What to run, or why it is refused (R9): this server alone.
    pub entry: Result<Entry, Vec<Problem>>,
}

/// A usable entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// For the engine.
    pub engine: Arc<EngineSettings>,
    /// What stands before the server's names where all servers are listed together.
    pub prefix: Box<str>,
    /// For the transport.
    pub transport: TransportSettings,
    /// How the server's revision is found; `None` where it begins with `initialize` for sure.
    pub opening: Option<Opening>,
    /// Everything that makes the transport (3-config, Reload), as one text to compare; secrets hashed.
    pub transport_key: String,
}

/// Something wrong in a file, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// E.g. `mcpServers.discord.reconnectIntervalMs`.
    pub path: String,
    /// What is wrong and what to write instead; no secrets.
    pub message: String,
}

/// Reads and validates a file. `env` looks a variable up.
///
/// # Errors
/// Problems with the file's own shape, and then those of its servers too, in the file's order. Where the file is
/// sound, a bad server is in its own `entry`.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Problem>> {
    let loaded = load::load(path, env);
    loaded.config.ok_or(loaded.problems)
}

/// Every problem and every warning of a file, each in the file's order. Nothing is launched.
#[must_use]
pub fn check(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> (Vec<Problem>, Vec<Problem>) {
    let loaded = load::load(path, env);
    (loaded.problems, loaded.warnings)
}

/// Where a file is looked for when none is named, after `$TIDEGATE_CONFIG` (4-faces).
const FILES: [&str; 4] = [
    "./tidegate.yaml",
    "./tidegate.json",
    "./.mcp.json",
    "./mcp.json",
];

/// The file to load: the one that was asked for, else `$TIDEGATE_CONFIG`, else the first that is there.
///
/// # Errors
/// A text for an operator, where there is none.
pub fn find(asked: Option<&Path>, env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let named = asked.map(Path::to_owned);
    let named = named.or_else(|| Some(env("TIDEGATE_CONFIG")?.into()));
    let mut usual = FILES.iter().map(PathBuf::from);
    named
        .or_else(|| usual.find(|path| path.exists()))
        .ok_or_else(|| {
            let files = FILES.join(", ");
            format!("no configuration: name a file, set TIDEGATE_CONFIG, or write one of {files}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_was_asked_for_comes_first_and_the_environment_second() {
        let env = |name: &str| (name == "TIDEGATE_CONFIG").then(|| "b.yaml".to_owned());
        let asked = find(Some(Path::new("a.yaml")), &env);
        assert_eq!(asked, Ok(PathBuf::from("a.yaml")));
        assert_eq!(find(None, &env), Ok(PathBuf::from("b.yaml")));
    }

    #[test]
    fn where_there_is_no_file_every_place_is_named() {
        // The tests run in the repository's folder, where none of them is.
        let told = find(None, &|_| None).unwrap_err();
        for place in ["TIDEGATE_CONFIG", "./tidegate.yaml", "./mcp.json"] {
            assert!(told.contains(place), "{told}");
        }
    }
}
