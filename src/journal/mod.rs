//! What survives a restart of the gateway: episodes and counts (S5), later kept messages (G14). It stores what the
//! engine records and decides nothing. A record changes a row in memory and wakes the writer; several changes of one
//! server before the next write are one row, so nothing queues up and nobody waits for the disk.

mod database;
mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use database::{Database, Rows};
use memory::Remembered;

use crate::engine::input::Resumed;
use crate::engine::output::Record;
use crate::ids::ServerId;

/// The lock of a state directory.
const LOCK: &str = "lock";
/// The file in a state directory.
const FILE: &str = "journal.sqlite";
/// A failed write is tried again after this, or at the next `flush`.
const RETRY: Duration = Duration::from_secs(1);

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

/// The store. Cheap to clone; its writes go to a thread of its own and never block the caller. The last clone to go
/// writes what is left and frees the directory.
#[derive(Clone, Debug)]
pub struct Journal {
    /// `None` remembers nothing.
    writer: Option<Arc<Writer>>,
}

struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Held open: closing it frees the directory.
    _lock: File,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be written, a flush waits, or the end has come.
    work: Condvar,
    /// A write has ended, well or badly.
    done: Condvar,
}

#[derive(Default)]
struct State {
    rows: Rows,
    /// What is not on disk yet, at most one row per server; `None` forgets one.
    dirty: BTreeMap<ServerId, Option<Remembered>>,
    /// Flushes that were asked for, and those that a finished write has covered.
    asked: u64,
    answered: u64,
    failing: Option<String>,
    closed: bool,
}

impl Journal {
    /// Opens the state directory, making it (mode 0700) where it is missing.
    ///
    /// # Errors
    /// Where it cannot be used, or is in use by another gateway.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let unusable = |why| Error::Unusable {
            dir: dir.display().to_string(),
            why,
        };
        let lock = lock(dir)?;
        let database = Database::open(&dir.join(FILE)).map_err(unusable)?;
        let rows = database.read().map_err(unusable)?;
        let writer = Writer::start(database, rows, lock)
            .map_err(|error| unusable(format!("cannot start its writer: {error}")))?;
        let writer = Some(Arc::new(writer));
        Ok(Self { writer })
    }

    /// A store that remembers nothing (`state.dir: none`).
    #[must_use]
    pub fn none() -> Self {
        Self { writer: None }
    }

    /// What is remembered of a server, as of `now`.
    #[must_use]
    pub fn resume(&self, server: &ServerId, now: SystemTime) -> Resumed {
        let Some(writer) = &self.writer else {
            return Resumed::default();
        };
        let state = writer.shared.lock();
        let row = state.rows.get(server);
        row.map(|row| row.resumed(now)).unwrap_or_default()
    }

    /// The servers that something is remembered of.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerId> {
        let rows = |writer: &Arc<Writer>| writer.shared.lock().rows.keys().cloned().collect();
        self.writer.as_ref().map(rows).unwrap_or_default()
    }

    /// Remembers a change. It is on disk soon after; `flush` waits for that.
    pub fn record(&self, server: &ServerId, record: Record, at: SystemTime) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        let row = state.rows.remove(server).unwrap_or_default();
        let row = row.after(record, at);
        if let Some(row) = &row {
            state.rows.insert(server.clone(), row.clone());
        }
        state.dirty.insert(server.clone(), row);
        writer.shared.work.notify_one();
    }

    /// Whether the last write failed. Failed writes are tried again until they succeed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failure().is_some()
    }

    /// What the last write failed of.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let writer = self.writer.as_ref()?;
        writer.shared.lock().failing.clone()
    }

    /// Waits until everything recorded so far is on disk, or a write of it has failed. Blocks; for the shutdown.
    pub fn flush(&self) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        state.asked += 1;
        let ticket = state.asked;
        writer.shared.work.notify_one();
        while state.answered < ticket && !state.closed {
            state = wait(&writer.shared.done, state);
        }
    }
}

impl Writer {
    fn start(database: Database, rows: Rows, lock: File) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().rows = rows;
        let thread = std::thread::Builder::new().name("journal".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.write_all(database)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            _lock: lock,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer thread: one transaction per round, until the store is closed.
    fn write_all(&self, mut database: Database) {
        loop {
            let (rows, ticket, last) = self.next_round();
            let result = if rows.is_empty() {
                Ok(())
            } else {
                database.write(&rows)
            };
            self.end_round(rows, ticket, result);
            if last {
                break;
            }
        }
    }

    /// Waits for work; what to write, which flush that covers, and whether it is the last.
    fn next_round(&self) -> (BTreeMap<ServerId, Option<Remembered>>, u64, bool) {
        let mut state = self.lock();
        loop {
            let retrying = state.failing.is_some();
            let due = state.closed || state.asked > state.answered;
            if due || (!state.dirty.is_empty() && !retrying) {
                break;
            }
            if retrying {
                let (woken, waited) = self
                    .work
                    .wait_timeout(state, RETRY)
                    .unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if waited.timed_out() {
                    break;
                }
            } else {
                state = wait(&self.work, state);
            }
        }
        let rows = std::mem::take(&mut state.dirty);
        (rows, state.asked, state.closed)
    }

    fn end_round(
        &self,
        rows: BTreeMap<ServerId, Option<Remembered>>,
        ticket: u64,
        result: rusqlite::Result<()>,
    ) {
        let mut state = self.lock();
        state.answered = ticket;
        state.failing = result.err().map(|error| error.to_string());
        if state.failing.is_some() {
            // What was recorded meanwhile is newer.
            for (server, row) in rows {
                state.dirty.entry(server).or_insert(row);
            }
        }
        self.done.notify_all();
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Makes the directory and takes its lock, which lasts as long as the file is open.
fn lock(dir: &Path) -> Result<File, Error> {
    let shown = || dir.display().to_string();
    let unusable = |error: std::io::Error| Error::Unusable {
        dir: shown(),
        why: error.to_string(),
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(unusable)?;
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let file = options.open(dir.join(LOCK)).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { dir: shown() }),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

#[cfg(test)]
mod tests;
