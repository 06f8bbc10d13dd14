//! `tidegate run`: the gateway until SIGTERM or SIGINT; SIGHUP and a change of the file reload.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{block_on, fail};
use crate::app::{App, StartError};
use crate::config::watch::Watch;
use crate::config::{self, Config};
use crate::observe::{Observer, log, traces};
use crate::transport;

/// Arguments of `tidegate run`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The configuration; else $TIDEGATE_CONFIG, ./tidegate.yaml, ./tidegate.json, ./.mcp.json, ./mcp.json.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the gateway to its end.
pub(super) fn run(options: &Options) -> ExitCode {
    let config = match load(options) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let observer = match observer(&config) {
        Ok(observer) => observer,
        Err(error) => return fail(2, &error),
    };
    let _log = match log::init(config.log_json, &config.log_level, &observer) {
        Ok(guard) => guard,
        Err(error) => return fail(2, &error),
    };
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    block_on(serve(config, observer)).unwrap_or_else(|code| code)
}

fn observer(config: &Config) -> Result<Observer, traces::Error> {
    match &config.traces {
        Some(settings) => Observer::tracing(&config.name, settings),
        None => Ok(Observer::new(&config.name)),
    }
}

fn load(options: &Options) -> Result<Config, ExitCode> {
    let env = |name: &str| std::env::var(name).ok();
    let file = config::find(options.config.as_deref(), &env).map_err(|error| fail(2, &error))?;
    config::load(&file, &env).map_err(|problems| {
        for problem in &problems {
            fail(2, problem);
        }
        ExitCode::from(2)
    })
}

async fn serve(config: Config, observer: Observer) -> ExitCode {
    let file = config.file.clone();
    let (mut term, mut interrupt, mut hangup) = match signals() {
        Ok(signals) => signals,
        Err(error) => return fail(3, &error),
    };
    let app = match App::start(config, observer).await {
        Ok(app) => app,
        Err(error @ StartError::Bind { .. }) => return fail(3, &error),
        Err(error @ StartError::State(_)) => return fail(4, &error),
    };
    tracing::info!("hosts connect to ws://{}/mcpl/{{server}}", app.listen());
    tracing::info!("status page, metrics and API at http://{}/", app.admin());
    let mut watch = Watch::new(&file)
        .inspect_err(
            |error| tracing::warn!(%error, "the file is not watched; send SIGHUP to reload"),
        )
        .ok();
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => reload(&app).await,
            () = changed(&mut watch) => reload(&app).await,
        }
    }
    tracing::info!("stopping");
    ended(tokio::select! {
        left = app.stop() => left,
        _ = term.recv() => return stopped_at_once(),
        _ = interrupt.recv() => return stopped_at_once(),
    })
}

fn signals() -> std::io::Result<(Signal, Signal, Signal)> {
    let term = signal(SignalKind::terminate())?;
    Ok((
        term,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ))
}

async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

async fn reload(app: &App) {
    if app.reload().await.is_ok() {
        tracing::info!("the configuration was reloaded");
    }
}

/// A second signal wants out now: nothing is drained, and nothing is left.
fn stopped_at_once() -> ExitCode {
    transport::kill_descendants();
    fail(
        1,
        &"stopped at once: servers were killed rather than closed",
    )
}

fn ended(left: Vec<u32>) -> ExitCode {
    if left.is_empty() {
        return ExitCode::SUCCESS;
    }
    fail(1, &format!("these processes could not be ended: {left:?}"))
}
