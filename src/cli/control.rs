//! `tidegate restart|recycle|pause|resume SERVER` and `tidegate reload`.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::client::{Error, Reach};
use crate::ids::ServerId;
use crate::wire::redact::escaped;

/// Arguments of the commands for one server.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server's id, as in `tidegate status`.
    server: String,
    #[command(flatten)]
    reach: Reach,
}

/// Arguments of `tidegate reload`.
#[derive(Debug, Args)]
pub(super) struct Reload {
    #[command(flatten)]
    reach: Reach,
}

/// Asks for `verb`, one of the API's, and prints what state the server is in then.
pub(super) async fn operate(verb: &str, options: &Options) -> Result<(), Error> {
    let id = ServerId::new(&options.server);
    let id =
        id.ok_or_else(|| Error::Configuration(format!("{:?} is no server id", options.server)))?;
    let client = options.reach.client()?;
    let server = client.post(&format!("/api/v1/servers/{id}/{verb}")).await?;
    let state = server.get("state").and_then(Value::as_str).unwrap_or("?");
    let paused = server.get("paused").and_then(Value::as_bool) == Some(true);
    let paused = if paused { ", paused" } else { "" };
    print(&format!("{id}: {}{paused}", escaped(state)))
}

/// Asks for a reload.
pub(super) async fn reload(options: &Reload) -> Result<(), Error> {
    let client = options.reach.client()?;
    client.post("/api/v1/reload").await?;
    print("the configuration was reloaded")
}

fn print(line: &str) -> Result<(), Error> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
