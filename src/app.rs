//! Builds every part of the gateway, in order, and takes them down in reverse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin, Doors};
use crate::config::{self, Config, Problem, diff};
use crate::driver::Gateway;
use crate::driver::aggregate::Aggregate;
use crate::face::access::{Access, Permit};
use crate::face::listener;
use crate::face::routes::{self, Directories};
use crate::journal::{self, Journal};
use crate::notify::{self, Notifier};
use crate::observe::Observer;
use crate::observe::traces::Operation;
use crate::transport;

/// How often the loop is asked how late it is.
const PULSE: Duration = Duration::from_secs(1);
/// What is left of `shutdownTimeoutMs` for the journal after the servers.
const JOURNAL_TIME: Duration = Duration::from_millis(500);
/// How long the last spans may take of `shutdownTimeoutMs`, beside the journal: enough for a receiver that is there.
const TRACES_TIME: Duration = Duration::from_secs(1);
/// How often an epoch that stays open is told of in traces.
const CHECKPOINT: Duration = Duration::from_secs(3600);

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
    notifier: Notifier,
    access: watch::Sender<Access>,
    operators: watch::Sender<admin::Settings>,
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
    /// Binds both ports, opens the state directory and starts every server.
    ///
    /// # Errors
    /// Where a port or the state directory cannot be had. A server that cannot be started is no error.
    pub async fn start(config: Config, observer: Observer) -> Result<Self, StartError> {
        let (hosts, listen) = bind("listen", config.listen).await?;
        let (operators, admin) = bind("admin.listen", config.admin.listen).await?;
        let journal = open_journal(&config)?;
        tokio::spawn(transport::reap_orphans());
        if let Err(error) = transport::become_subreaper() {
            tracing::warn!(%error, "orphaned processes of servers cannot be adopted");
        }
        observer.reloaded(true);
        // Before the first server can go down.
        let notifier = Notifier::new(&config, journal.clone(), observer.clone());
        let gateway = Gateway::start(
            &config.servers,
            config.max_queued_bytes,
            journal.clone(),
            observer.clone(),
        );
        notifier.run(&gateway);
        let parts = Arc::new(Parts {
            access: watch::Sender::new(access(&config)),
            operators: watch::Sender::new(operator_settings(&config, admin)),
            config: Mutex::new(config),
            gateway,
            observer,
            journal,
            notifier,
        });
        let stop = CancellationToken::new();
        let router = routes(&parts);
        tokio::spawn(listener::serve(hosts, router, stop.clone()));
        tokio::spawn(listener::serve(operators, desk(&parts), stop.clone()));
        tokio::spawn(measure_lag(parts.observer.clone()));
        tokio::spawn(tell_checkpoints(
            parts.gateway.clone(),
            parts.observer.clone(),
        ));
        Ok(Self {
            parts,
            listen,
            admin,
            stop,
        })
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
        let left = self
            .parts
            .gateway
            .shutdown(within.saturating_sub(JOURNAL_TIME + TRACES_TIME))
            .await;
        self.parts.observer.tell_left_out(None);
        self.parts.journal.flush();
        self.parts
            .observer
            .stop_traces(TRACES_TIME.min(within))
            .await;
        left
    }
}

impl Parts {
    async fn reload(&self) -> Result<(), Vec<Problem>> {
        let operation = Operation::reload();
        let reloaded = operation.run(self.apply_file()).await;
        let outcome = match &reloaded {
            Ok(()) if self.observer.is_stale() => "partly",
            Ok(()) => "reloaded",
            Err(_) => "refused",
        };
        operation.ended(outcome, outcome != "reloaded");
        reloaded
    }

    async fn apply_file(&self) -> Result<(), Vec<Problem>> {
        let mut current = self.config.lock().await;
        let loaded = config::load(&current.file, &|name| std::env::var(name).ok());
        let new = loaded.inspect_err(|problems| {
            self.observer.reloaded(false);
            report(problems);
        })?;
        let refused: Vec<_> = new
            .servers
            .iter()
            .filter_map(|server| server.entry.as_ref().err())
            .collect();
        refused.iter().for_each(|problems| report(problems));
        self.observer.reloaded(refused.is_empty());
        let difference = diff::diff(&current, &new);
        for setting in &difference.restart {
            tracing::warn!("a change of {setting} takes effect when the gateway is restarted");
        }
        self.gateway.limit_queues(new.max_queued_bytes);
        self.gateway.apply(&new.servers, &difference).await;
        self.notifier.configure(&new);
        self.access.send_replace(access(&new));
        self.operators
            .send_replace(operator_settings(&new, new.admin.listen));
        *current = diff::running(&current, new);
        Ok(())
    }
}

fn report(problems: &[Problem]) {
    for problem in problems {
        tracing::error!("not reloaded: {problem}");
    }
}

/// The routes for hosts.
fn routes(parts: &Parts) -> axum::Router {
    let (access, gateway) = (parts.access.subscribe(), &parts.gateway);
    let one = Directories {
        socket: gateway.for_face("websocket"),
        http: gateway.for_face("http"),
    };
    let all = Directories {
        socket: Aggregate::new(one.socket.clone(), access.clone()),
        http: Aggregate::new(one.http.clone(), access.clone()),
    };
    routes::router(one, all, &access)
}

/// The routes for operators.
fn desk(parts: &Arc<Parts>) -> axum::Router {
    let (reloading, notifier) = (Arc::clone(parts), parts.notifier.clone());
    admin::router(Admin {
        gateway: parts.gateway.clone(),
        observer: parts.observer.clone(),
        journal: parts.journal.clone(),
        settings: parts.operators.subscribe(),
        reload: Arc::new(move || {
            let parts = Arc::clone(&reloading);
            Box::pin(async move { parts.reload().await.map_err(|problems| texts(&problems)) })
        }),
        alerts: Arc::new(move |body| notifier.alerts(body).map_err(not_heard)),
    })
}

fn not_heard(refused: notify::AlertsRefused) -> admin::AlertsRefused {
    match refused {
        notify::AlertsRefused::Unreadable(why) => admin::AlertsRefused::Unreadable(why),
        notify::AlertsRefused::NoChannel => admin::AlertsRefused::NoChannel,
    }
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Binds a port, and says which one it is where the system chose.
async fn bind(
    setting: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Bind {
        setting,
        address,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn open_journal(config: &Config) -> Result<Journal, StartError> {
    let Some(dir) = &config.state_dir else {
        tracing::warn!("state.dir is none: episodes and counts do not survive a restart");
        return Ok(Journal::none());
    };
    Ok(Journal::open(dir)?)
}

fn access(config: &Config) -> Access {
    let permits = config.hosts.iter().map(|host| Permit {
        name: host.name.clone(),
        token: host.token.clone(),
        servers: host.servers.clone(),
    });
    Access {
        permits: permits.collect(),
        origins: config.allowed_origins.clone(),
        names: config.allowed_hosts.clone(),
        session_idle: config.session_idle,
    }
}

fn operator_settings(config: &Config, listen: SocketAddr) -> admin::Settings {
    admin::Settings {
        doors: Doors::new(config, listen),
        shown: admin::shown(config),
    }
}

/// Asks the loop every second how late it is, and has telemetry say what it left out.
async fn measure_lag(observer: Observer) {
    let mut pulse = tokio::time::interval(PULSE);
    loop {
        let due = pulse.tick().await;
        observer.loop_lag(due.elapsed());
        observer.tell_left_out(Some(tokio::time::Instant::now().into_std()));
    }
}

/// Tells in traces, every hour, of the epochs that stay open.
async fn tell_checkpoints(gateway: Gateway, observer: Observer) {
    let mut pulse = tokio::time::interval(CHECKPOINT);
    pulse.tick().await;
    loop {
        pulse.tick().await;
        let snapshots = gateway.snapshots().await.into_iter();
        let snapshots: Vec<_> = snapshots.map(|(info, view)| (info.id, view)).collect();
        observer.checkpoint(&snapshots);
    }
}
