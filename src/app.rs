//! Builds every part of the gateway, in order, and takes them down in reverse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::config::{self, Config, Problem};
use crate::driver::Gateway;
use crate::face::access::{Access, Permit};
use crate::face::{listener, websocket};
use crate::journal::{self, Journal};
use crate::observe::Observer;
use crate::transport;

/// A running gateway with its faces.
pub struct App {
    parts: Arc<Parts>,
    listen: SocketAddr,
    admin: SocketAddr,
    stop: CancellationToken,
}

/// What a reload needs.
struct Parts {
    gateway: Gateway,
    observer: Observer,
    journal: Journal,
    access: watch::Sender<Access>,
    /// As it was last applied; held while one is being applied.
    config: Mutex<Config>,
}

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be had.
    #[error("cannot listen on {address} ({setting}): {source}")]
    Bind {
        /// Which setting names it.
        setting: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] journal::Error),
}

impl App {
    /// Opens the state directory, binds both ports and starts every server.
    ///
    /// # Errors
    /// Where a port or the state directory cannot be had. A server that cannot be started is no error.
    pub async fn start(config: Config, observer: Observer) -> Result<Self, StartError> {
        transport::become_subreaper();
        let face = bind("listen", config.listen).await?;
        let operators = bind("admin.listen", config.admin.listen).await?;
        let journal = open_journal(&config)?;
        observer.config_loaded(true);
        let gateway = Gateway::start(&config.servers, journal.clone(), observer.clone());
        let (listen, admin) = (address(&face, config.listen), address(&operators, config.admin.listen));
        let (access, permits) = watch::channel(access(&config, listen));
        let config = Mutex::new(config);
        let parts = Arc::new(Parts { gateway, observer, journal, access, config });
        let stop = CancellationToken::new();
        let hosts = websocket::router(parts.gateway.clone(), permits);
        tokio::spawn(listener::serve(face, hosts, stop.clone()));
        serve_operators(operators, &parts, stop.clone()).await;
        Ok(Self { parts, listen, admin, stop })
    }

    /// Where hosts connect.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where operators connect.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The servers.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.parts.gateway
    }

    /// The telemetry.
    #[must_use]
    pub fn observer(&self) -> &Observer {
        &self.parts.observer
    }

    /// Reads the configuration again and applies the difference.
    ///
    /// # Errors
    /// Where the file does not load: nothing changes then.
    pub async fn reload(&self) -> Result<(), Vec<Problem>> {
        self.parts.reload().await
    }

    /// SIGTERM's drain: stops accepting, ends every server, then the journal. Says which processes are left.
    pub async fn stop(self) -> Vec<u32> {
        self.stop.cancel();
        let within = self.parts.config.lock().await.shutdown_timeout;
        let left = self.parts.gateway.shutdown(within.saturating_sub(Duration::from_millis(500))).await;
        self.parts.journal.flush();
        left
    }
}

impl Parts {
    async fn reload(&self) -> Result<(), Vec<Problem>> {
        let mut current = self.config.lock().await;
        let loaded = config::load(&current.file, &|name| std::env::var(name).ok());
        self.observer.config_loaded(loaded.is_ok());
        let new = loaded.inspect_err(|problems| report(problems))?;
        for problem in new.servers.iter().filter_map(|server| server.entry.as_ref().err()) {
            report(problem);
        }
        self.gateway.apply(&new.servers).await;
        self.access.send_replace(access(&new, new.listen));
        *current = new;
        Ok(())
    }
}

fn report(problems: &[Problem]) {
    for problem in problems {
        tracing::error!("the configuration was not reloaded: {problem}");
    }
}

async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| StartError::Bind { setting, address, source })
}

/// Where a listener really is, when the port was left to the system.
fn address(listener: &TcpListener, wanted: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(wanted)
}

fn open_journal(config: &Config) -> Result<Journal, StartError> {
    let Some(dir) = &config.state_dir else {
        tracing::warn!("state.dir is none: episodes and counts do not survive a restart");
        return Ok(Journal::none());
    };
    Ok(Journal::open(dir)?)
}

fn access(config: &Config, listen: SocketAddr) -> Access {
    let permits = config.hosts.iter().map(|host| Permit {
        name: host.name.clone(),
        token: host.token.clone(),
        servers: host.servers.clone(),
    });
    let names = config.allowed_hosts.iter().cloned().chain([listen.ip().to_string()]);
    Access {
        permits: permits.collect(),
        origins: config.allowed_origins.clone(),
        names: names.collect(),
    }
}
