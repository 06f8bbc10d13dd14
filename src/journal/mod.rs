//! What survives a restart of the gateway: episodes and counts (S5), world messages (G14). It stores what the engine
//! records and decides nothing. A record changes a row in memory and wakes the writer; several changes of one server or
//! message before the next write are one, so nothing queues up and nobody waits for the disk. Who wants to know what is
//! on disk is told.

mod database;
mod memory;
mod messages;
mod notes;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use database::{Changed, Database, Messages, Rows};
use memory::millis;
use messages::{Marks, Message, Pending};
use notes::Notes;
use tokio::sync::watch;

use crate::engine::input::{Resumed, Synced};
use crate::engine::output::Record;
use crate::ids::{OpenEpoch, ServerId};

/// The lock of a state directory.
const LOCK: &str = "lock";
/// The file in a state directory.
const FILE: &str = "journal.sqlite";
/// A failed write is tried again after this, or at the next `flush`.
const RETRY: Duration = Duration::from_secs(1);
/// A write waits this long for more to write. What a host answers meanwhile is never written at all.
const LINGER: Duration = Duration::from_millis(5);

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
    /// Stored messages that nobody has taken over yet.
    kept: Messages,
    notes: Notes,
    /// What is not on disk yet.
    dirty: Round,
    /// Who is told of a server's messages that they are on disk.
    synced: BTreeMap<ServerId, watch::Sender<Synced>>,
    /// The writer waits for something to write.
    idle: bool,
    /// Flushes that were asked for, and those that a finished write has covered.
    asked: u64,
    answered: u64,
    failing: Option<String>,
    closed: bool,
}

/// What one transaction writes.
#[derive(Default)]
struct Round {
    rows: Changed,
    messages: Pending,
    notes: notes::Changed,
}

impl Round {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.messages.is_empty() && self.notes.is_empty()
    }
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
        let state = State {
            rows: database.read().map_err(unusable)?,
            kept: database.read_messages().map_err(unusable)?,
            notes: database.read_notes().map_err(unusable)?,
            ..State::default()
        };
        let writer = Writer::start(database, state, lock)
            .map_err(|error| unusable(format!("cannot start its writer: {error}")))?;
        let writer = Some(Arc::new(writer));
        Ok(Self { writer })
    }

    /// A store that remembers nothing (`state.dir: none`).
    #[must_use]
    pub fn none() -> Self {
        Self { writer: None }
    }

    /// What is remembered of a server, as of `now`. Its stored messages are handed over once.
    #[must_use]
    pub fn resume(&self, server: &ServerId, now: SystemTime) -> Resumed {
        let Some(writer) = &self.writer else {
            return Resumed::default();
        };
        let mut state = writer.shared.lock();
        let kept = state.kept.remove(server).unwrap_or_default().into_iter();
        let row = state.rows.get(server);
        let resumed = row.map(|row| row.resumed(now)).unwrap_or_default();
        Resumed {
            durable: true,
            kept: kept
                .map(|(key, message)| message.resumed(key, now))
                .collect(),
            ..resumed
        }
    }

    /// Tells how far a server's messages are on disk, from now on. Without a directory it tells nothing.
    #[must_use]
    pub fn synced(&self, server: &ServerId) -> watch::Receiver<Synced> {
        let Some(writer) = &self.writer else {
            return watch::channel(Synced::default()).1;
        };
        let mut state = writer.shared.lock();
        let failing = state.failing.is_some();
        let fresh = || {
            let through = 0;
            watch::channel(Synced { through, failing }).0
        };
        let told = state.synced.entry(server.clone());
        told.or_insert_with(fresh).subscribe()
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
        state.take(server, record, at);
        state.wake(&writer.shared.work);
    }

    /// Remembers a short text under a key of that area, or forgets it.
    pub fn note(&self, area: &str, key: &str, value: Option<String>) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        let place = (area.to_owned(), key.to_owned());
        match &value {
            Some(value) => state.notes.insert(place.clone(), value.clone()),
            None => state.notes.remove(&place),
        };
        state.dirty.notes.insert(place, value);
        state.wake(&writer.shared.work);
    }

    /// The texts of an area, by their keys.
    #[must_use]
    pub fn notes(&self, area: &str) -> BTreeMap<String, String> {
        let Some(writer) = &self.writer else {
            return BTreeMap::new();
        };
        let state = writer.shared.lock();
        let its = state.notes.iter().filter(|((of, _), _)| of == area);
        its.map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Remembers the trace of an epoch that opens.
    pub fn opened(&self, server: &ServerId, open: OpenEpoch) {
        self.set_open(server, Some(open));
    }

    /// The trace of the server's epoch is told to its end.
    pub fn closed(&self, server: &ServerId) {
        self.set_open(server, None);
    }

    /// The epoch that was open when the last gateway died. It is handed over once.
    #[must_use]
    pub fn take_open(&self, server: &ServerId) -> Option<OpenEpoch> {
        let writer = self.writer.as_ref()?;
        let open = writer.shared.lock().rows.get(server)?.open?;
        self.closed(server);
        Some(open)
    }

    fn set_open(&self, server: &ServerId, open: Option<OpenEpoch>) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        state.set_open(server, open);
        if std::mem::take(&mut state.idle) {
            writer.shared.work.notify_one();
        }
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
    fn start(database: Database, state: State, lock: File) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        *shared.lock() = state;
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
            let (round, ticket, last) = self.next_round();
            let result = if round.is_empty() {
                Ok(())
            } else {
                database.write(&round.rows, &round.messages, &round.notes)
            };
            self.end_round(round, ticket, result);
            if last {
                break;
            }
        }
    }

    /// Waits for work; what to write, which flush that covers, and whether it is the last.
    fn next_round(&self) -> (Round, u64, bool) {
        let mut state = self.lock();
        let pause = if state.failing.is_some() {
            RETRY
        } else {
            while state.dirty.is_empty() && !state.is_urgent() {
                state.idle = true;
                state = wait(&self.work, state);
            }
            state.idle = false;
            LINGER
        };
        let waited = self
            .work
            .wait_timeout_while(state, pause, |state| !state.is_urgent());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let round = std::mem::take(&mut state.dirty);
        (round, state.asked, state.closed)
    }

    fn end_round(&self, round: Round, ticket: u64, result: rusqlite::Result<()>) {
        let mut state = self.lock();
        state.answered = ticket;
        match result {
            Ok(()) => state.written(&round.messages),
            Err(error) => state.failed(round, error.to_string()),
        }
        self.done.notify_all();
    }
}

impl State {
    /// Wakes the writer where it waits.
    fn wake(&mut self, work: &Condvar) {
        if std::mem::take(&mut self.idle) {
            work.notify_one();
        }
    }

    /// A flush waits, or the end has come.
    fn is_urgent(&self) -> bool {
        self.closed || self.asked > self.answered
    }

    fn take(&mut self, server: &ServerId, record: Record, at: SystemTime) {
        let messages = &mut self.dirty.messages;
        match record {
            Record::Store {
                key,
                forwarded,
                frame,
            } => {
                let message = Message {
                    received_at: millis(at),
                    marks: Marks {
                        forwarded,
                        accepted: false,
                    },
                    frame,
                };
                messages.store(server, key, message);
            }
            Record::Mark { key, mark } => messages.mark(server, key, mark),
            Record::Discard { key } => messages.discard(server, key),
            Record::Launched(_)
            | Record::Count(_)
            | Record::Lasted
            | Record::Unwanted
            | Record::Down { .. }
            | Record::Clear
            | Record::Paused(_)
            | Record::Narrowing(_)
            | Record::Forget => self.change(server, record, at),
        }
    }

    fn change(&mut self, server: &ServerId, record: Record, at: SystemTime) {
        let row = self.rows.remove(server).unwrap_or_default();
        let row = row.after(record, at);
        if let Some(row) = &row {
            self.rows.insert(server.clone(), row.clone());
        } else {
            self.kept.remove(server);
            self.synced.remove(server);
            self.dirty.messages.forget(server);
        }
        self.dirty.rows.insert(server.clone(), row);
    }

    /// A server that was forgotten meanwhile stays so.
    fn set_open(&mut self, server: &ServerId, open: Option<OpenEpoch>) {
        let row = self.rows.get_mut(server);
        let Some(row) = row.filter(|row| row.open != open) else {
            return;
        };
        row.open = open;
        self.dirty.rows.insert(server.clone(), Some(row.clone()));
    }

    fn written(&mut self, messages: &Pending) {
        self.tell_failing(None);
        for (server, changes) in &messages.changes {
            // What is told of a server's keys must not outlive the server.
            let forgotten = self.dirty.messages.forgotten.contains(server);
            let told = self.synced.get(server).filter(|_| !forgotten);
            if let (Some(told), Some(through)) = (told, messages::last_added(changes)) {
                told.send_modify(|synced| synced.through = synced.through.max(through));
            }
        }
    }

    /// What was recorded meanwhile is newer than what was not written.
    fn failed(&mut self, round: Round, why: String) {
        self.tell_failing(Some(why));
        for (server, row) in round.rows {
            self.dirty.rows.entry(server).or_insert(row);
        }
        for (place, note) in round.notes {
            self.dirty.notes.entry(place).or_insert(note);
        }
        self.dirty.messages.take_back(round.messages);
    }

    fn tell_failing(&mut self, why: Option<String>) {
        let failing = why.is_some();
        let changed = failing != self.failing.is_some();
        self.failing = why;
        for told in self.synced.values().filter(|_| changed) {
            told.send_modify(|synced| synced.failing = failing);
        }
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
