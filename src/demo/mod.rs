//! `tidegate demo`: a gateway with three servers of its own and a host, and an account of what happens to them. It uses
//! the gateway as anybody would, through its configuration, its host face and its event stream.

mod account;
mod host;
mod peer;
mod plan;
mod script;
mod servers;
mod stage;
mod story;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub use servers::{ServerOptions, serve};

/// The demo's servers, as the configuration names them.
const SERVERS: [&str; 3] = ["steady", "crash", "chat"];

/// Arguments of `tidegate demo`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Go through it in 20 s rather than a minute
    #[arg(long)]
    fast: bool,
    /// Stay for at least this long, to look around
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    stay: Option<Duration>,
    /// Let the chat lose this message, to see that it is noticed
    #[arg(long, hide = true, value_name = "NUMBER")]
    lose: Option<u64>,
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// Runs the demo to its end: 0 only if everything held that it shows.
pub async fn run(options: Options) -> ExitCode {
    script::run(&options).await
}
