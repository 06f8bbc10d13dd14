//! What survives a restart of the gateway: episodes and counts (S5), later kept messages (G14). It stores what the
//! engine records and decides nothing.

use std::path::Path;
use std::time::SystemTime;

use crate::engine::input::Resumed;
use crate::engine::output::Record;
use crate::ids::ServerId;

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made, read or written.
    #[error("state directory {dir}: {why}")]
    Unusable {
        /// The directory.
        dir: String,
        /// What the system says.
        why: String,
    },
    /// Another gateway uses it.
    #[error("state directory {dir} is in use by another gateway")]
    InUse {
        /// The directory.
        dir: String,
    },
}

/// The store. Cheap to clone; its writes go to a thread of its own and never block the caller.
#[derive(Clone, Debug)]
pub struct Journal;

impl Journal {
    /// Opens the state directory, making it (mode 0700) where it is missing.
    ///
    /// # Errors
    /// Where it cannot be used, or is in use by another gateway.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let _ = dir;
        Ok(Self)
    }

    /// A store that remembers nothing (`state.dir: none`).
    #[must_use]
    pub fn none() -> Self {
        Self
    }

    /// What is remembered of a server, as of `now`.
    #[must_use]
    pub fn resume(&self, server: &ServerId, now: SystemTime) -> Resumed {
        let _ = (server, now);
        Resumed::default()
    }

    /// Remembers a change.
    pub fn record(&self, server: &ServerId, record: Record, at: SystemTime) {
        let _ = (server, record, at);
    }

    /// Whether the last write failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        false
    }

    /// Waits until everything recorded so far is on disk. Blocks; for the shutdown.
    pub fn flush(&self) {}
}
