//! The shell around the engine: one task owns each server's engine, carries out what it asks for, and tells it what
//! happened and when. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::input::Operator;
use crate::engine::snapshot::Snapshot;
use crate::ids::ServerId;

/// A running gateway. Cheap to clone; for admin, faces and the demo.
#[derive(Clone, Debug)]
pub struct Gateway;

/// What does not change while a server's entry stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its id.
    pub id: ServerId,
    /// `stdio` or `websocket`; `none` for a refused entry.
    pub transport: &'static str,
    /// The `protocol` field of its entry.
    pub protocol: String,
}

/// No server of that name is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no server `{0}` is configured")]
pub struct UnknownServer(pub String);

impl Gateway {
    /// The configured servers, in the file's order.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerInfo> {
        Vec::new()
    }

    /// A view of one server, as of now.
    pub async fn snapshot(&self, server: &str) -> Result<Arc<Snapshot>, UnknownServer> {
        Err(UnknownServer(server.into()))
    }

    /// A view of every server, as of now, in the file's order.
    pub async fn snapshots(&self) -> Vec<(ServerInfo, Arc<Snapshot>)> {
        Vec::new()
    }

    /// Asks one server's engine for something. Returns once it was handled.
    pub async fn operate(&self, server: &str, command: Operator) -> Result<(), UnknownServer> {
        let _ = command;
        Err(UnknownServer(server.into()))
    }

    /// Whether every server's first attempt has come to something (`/startupz`).
    #[must_use]
    pub fn has_started(&self) -> bool {
        false
    }

    /// Stops every server, bounded by `within`; says which processes are left.
    pub async fn shutdown(&self, within: Duration) -> Vec<u32> {
        let _ = within;
        Vec::new()
    }
}
