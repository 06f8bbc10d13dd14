//! A read-only view of one server, for metrics, status and the API.

use std::time::Duration;

use super::decision::{Hold, State};
use crate::ids::Epoch;
use crate::wire::mcp::Revision;

/// What one server is like at one instant. Ages are as of that instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Which of the nine states.
    pub state: State,
    /// The current or last epoch.
    pub epoch: Epoch,
    /// The attempt that made the connection, runs, or comes next.
    pub attempt: u64,
    /// The handshake is done and the transport serves.
    pub connected: bool,
    /// R1's count.
    pub failed_attempts: u64,
    /// Those of them that came since it was last disabled, or ended as asked.
    pub failed_since_unwanted: u64,
    /// S3's threshold.
    pub down_after_attempts: u64,
    /// The longest that it was wanted and not connected since a connection last lasted; zero while nobody wants it.
    pub away_for: Duration,
    /// S3's other threshold: down when away for this long.
    pub down_after: Duration,
    /// Of the open connection; zero when none.
    pub connection_age: Duration,
    /// R3.
    pub lasting_threshold: Duration,
    /// How long ago a connection last lasted.
    pub since_lasted: Option<Duration>,
    /// How long ago it was last disabled, or ended as asked.
    pub since_unwanted: Option<Duration>,
    /// How long ago a connection last served; zero while one does.
    pub since_healthy: Option<Duration>,
    /// The open episode.
    pub episode: Option<EpisodeView>,
    /// The wait that runs, and what is left of it.
    pub backoff: Option<Backoff>,
    /// Why the state is what it is, where there is a reason; without secrets.
    pub reason: Option<String>,
    /// The revision that both speak, while connected.
    pub revision: Option<Revision>,
    /// The server advertises MCPL.
    pub mcpl: bool,
    /// The capabilities granted now, sorted.
    pub granted: Vec<&'static str>,
    /// Held on the serving transport.
    pub held: QueueView,
    /// Kept across a boundary.
    pub kept: QueueView,
    /// Bytes of all that is held, kept or with a host (G6).
    pub queued_bytes: usize,
    /// What is kept for longer is dropped (G6).
    pub kept_max_age: Duration,
    /// The holds that are on.
    pub holds: Vec<Hold>,
    /// Channels registered in this epoch or replayed from an earlier one.
    pub channels: usize,
    /// Forwarded requests in flight, either way.
    pub in_flight: usize,
    /// Attached host and client sessions.
    pub sessions: usize,
    /// An MCPL host serves.
    pub host_serves: bool,
    /// The operator paused it.
    pub paused: bool,
}

/// An open episode.
#[derive(Clone, Debug, PartialEq)]
pub struct EpisodeView {
    /// How long it has been open.
    pub open_for: Duration,
    /// The attempt whose failure opened it.
    pub attempt: u64,
    /// Why.
    pub why: String,
}

/// A running wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Its whole length.
    pub wait: Duration,
    /// What is left.
    pub left: Duration,
}

/// What one queue holds, against its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// Requests.
    pub requests: usize,
    /// Their limit.
    pub requests_limit: usize,
    /// Notifications.
    pub notifications: usize,
    /// Their limit.
    pub notifications_limit: usize,
    /// Bytes of both.
    pub bytes: usize,
    /// How long the oldest has waited.
    pub oldest: Duration,
}
