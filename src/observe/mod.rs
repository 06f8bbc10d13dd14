//! Decisions to telemetry: metrics, log lines, the event stream. The only module that knows their names; one match
//! over `Decision` feeds them all (S1), so no two can disagree.

use std::sync::Arc;

use crate::engine::decision::Decision;
use crate::engine::snapshot::Snapshot;
use crate::ids::{Epoch, ServerId};

/// The process's telemetry. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Observer;

/// One server's telemetry, with its metric children cached. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerObserver;

impl Observer {
    /// For a gateway of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let _ = name;
        Self
    }

    /// Makes every series of a server exist, at 0. `transport` is the label of `tidegate_server_info`.
    #[must_use]
    pub fn server(&self, id: &ServerId, transport: &'static str, protocol: &str) -> ServerObserver {
        let _ = (id, transport, protocol);
        ServerObserver
    }

    /// Takes a removed server's series away.
    pub fn forget(&self, id: &ServerId) {
        let _ = id;
    }

    /// The text of `/metrics`, after the gauges were set from these snapshots.
    #[must_use]
    pub fn metrics(&self, snapshots: &[(ServerId, Arc<Snapshot>)]) -> String {
        let _ = snapshots;
        String::new()
    }
}

impl ServerObserver {
    /// Tells one decision to every signal.
    pub fn decided(&self, epoch: Option<Epoch>, decision: &Decision) {
        let _ = (epoch, decision);
    }
}
