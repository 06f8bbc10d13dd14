//! The file: its schema and how older ones are brought up to it, its rows, one transaction per write. Stored messages
//! (G14) are a table of their own beside `servers`, in the same transactions.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, Row, params};

use super::memory::{Episode, Millis, Remembered};
use super::messages::{Change, Changes, Marks, Message, Pending};
use super::notes::{self, Notes};
use crate::ids::{Attempt, Epoch, OpenEpoch, ServerId, SpanIds};

/// The schema that this build writes. A file with a higher number is left alone.
const SCHEMA: i64 = 5;
/// Nobody else has the file (see the lock), but a person may look into it.
const BUSY: Duration = Duration::from_millis(200);

/// How each schema becomes the next, from none on.
const STEPS: [&str; 5] = [SERVERS, MESSAGES, notes::TABLE, EPOCHS, UNWANTED];
const SERVERS: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE servers (
        id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        failed_attempts INTEGER NOT NULL,
        launched_at INTEGER,
        lasted_at INTEGER,
        down_at INTEGER,
        down_attempt INTEGER NOT NULL,
        down_why TEXT NOT NULL,
        paused INTEGER NOT NULL,
        narrowing TEXT
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('schema', 1), ('boot', 0);
";
/// Rows are large, so they are a plain table with an index.
const MESSAGES: &str = "
    CREATE TABLE messages (
        server TEXT NOT NULL,
        key INTEGER NOT NULL,
        received_at INTEGER NOT NULL,
        forwarded INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        frame BLOB NOT NULL,
        PRIMARY KEY (server, key)
    ) STRICT;
    UPDATE meta SET value = 2 WHERE key = 'schema';
";
/// The root span of the epoch that is open: 24 bytes of its ids, and its dial in microseconds since 1970.
const EPOCHS: &str = "
    ALTER TABLE servers ADD COLUMN open_epoch INTEGER;
    ALTER TABLE servers ADD COLUMN open_attempt INTEGER;
    ALTER TABLE servers ADD COLUMN open_span BLOB;
    ALTER TABLE servers ADD COLUMN open_began INTEGER;
    UPDATE meta SET value = 4 WHERE key = 'schema';
";
/// When a server was last disabled or ended as asked, and the count that it had then.
const UNWANTED: &str = "
    ALTER TABLE servers ADD COLUMN unwanted_at INTEGER;
    ALTER TABLE servers ADD COLUMN forgiven_attempts INTEGER NOT NULL DEFAULT 0;
    UPDATE meta SET value = 5 WHERE key = 'schema';
";
const READ: &str = "SELECT id, epoch, failed_attempts, launched_at, lasted_at, down_at, down_attempt, down_why, paused, \
                    narrowing, open_epoch, open_attempt, open_span, open_began, unwanted_at, \
                    forgiven_attempts FROM servers";
const WRITE: &str = "INSERT OR REPLACE INTO servers VALUES \
                     (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
const READ_MESSAGES: &str = "SELECT server, key, received_at, forwarded, accepted, frame FROM messages ORDER BY server, key";
const ADD: &str = "INSERT OR REPLACE INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const MARK: &str = "UPDATE messages SET forwarded = forwarded OR ?3, accepted = accepted OR ?4 \
                    WHERE server = ?1 AND key = ?2";
const REMOVE: &str = "DELETE FROM messages WHERE server = ?1 AND key = ?2";

/// What the file remembers of each server.
pub(super) type Rows = BTreeMap<ServerId, Remembered>;
/// The stored messages of each server, in the order of their keys.
pub(super) type Messages = BTreeMap<ServerId, Vec<(u64, Message)>>;
/// What becomes of each server's row; `None` forgets it.
pub(super) type Changed = BTreeMap<ServerId, Option<Remembered>>;

/// An open file.
pub(super) struct Database {
    connection: Connection,
}

impl Database {
    /// Opens the file, making it (mode 0600) where it is missing, and counts this boot.
    ///
    /// # Errors
    /// A text that says what is wrong with the file and what to do.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| error.to_string())?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut database = Connection::open_with_flags(path, flags)
            .map(|connection| Self { connection })
            .map_err(|error| advice(&error))?;
        database.prepare()?;
        Ok(database)
    }

    fn prepare(&mut self) -> Result<(), String> {
        self.tune().map_err(|error| advice(&error))?;
        let found = self.schema().map_err(|error| advice(&error))?;
        if found > SCHEMA {
            return Err(format!(
                "its journal has schema {found}, this version reads {SCHEMA}: run the newer version, or move the \
                 journal away"
            ));
        }
        self.begin_boot(found).map_err(|error| advice(&error))
    }

    fn tune(&self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(BUSY)?;
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")
    }

    fn schema(&self) -> rusqlite::Result<i64> {
        if !self.connection.table_exists(None, "meta")? {
            return Ok(0);
        }
        let read = "SELECT value FROM meta WHERE key = 'schema'";
        self.connection.query_row(read, [], |row| row.get(0))
    }

    fn begin_boot(&mut self, found: i64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(step)?;
        }
        transaction.execute("UPDATE meta SET value = value + 1 WHERE key = 'boot'", [])?;
        transaction.commit()
    }

    /// Every server's row. A row whose id or numbers no build can have written is left out.
    pub(super) fn read(&self) -> Result<Rows, String> {
        let read = || {
            let mut statement = self.connection.prepare(READ)?;
            let rows = statement.query_map([], remembered)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows: Vec<_> = read().map_err(|error: rusqlite::Error| advice(&error))?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Every stored message. One that no build can have written is left out.
    pub(super) fn read_messages(&self) -> Result<Messages, String> {
        let read = || {
            let mut statement = self.connection.prepare(READ_MESSAGES)?;
            let rows = statement.query_map([], message)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = read().map_err(|error: rusqlite::Error| advice(&error))?;
        let mut messages = Messages::new();
        for (server, key, message) in rows.into_iter().flatten() {
            messages.entry(server).or_default().push((key, message));
        }
        Ok(messages)
    }

    /// Every note.
    pub(super) fn read_notes(&self) -> Result<Notes, String> {
        notes::read(&self.connection).map_err(|error| advice(&error))
    }

    /// Writes what changed in one transaction, on disk when it returns.
    pub(super) fn write(
        &mut self,
        rows: &Changed,
        messages: &Pending,
        notes: &notes::Changed,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        notes::write(&transaction, notes)?;
        for (server, row) in rows {
            match row {
                Some(row) => put(&transaction, server, row)?,
                None => forget(&transaction, server)?,
            }
        }
        for server in &messages.forgotten {
            transaction.execute("DELETE FROM messages WHERE server = ?1", [server.as_str()])?;
        }
        for (server, changes) in &messages.changes {
            change(&transaction, server, changes)?;
        }
        transaction.commit()
    }
}

fn change(connection: &Connection, server: &ServerId, changes: &Changes) -> rusqlite::Result<()> {
    let server = server.as_str();
    let mut add = connection.prepare(ADD)?;
    let mut mark = connection.prepare(MARK)?;
    let mut remove = connection.prepare(REMOVE)?;
    for (key, change) in changes {
        let key = stored(*key);
        match change {
            Change::Add { message, .. } => {
                let Marks {
                    forwarded,
                    accepted,
                } = message.marks;
                let frame: &[u8] = &message.frame;
                let values = params![server, key, message.received_at, forwarded, accepted, frame];
                add.execute(values)?;
            }
            Change::Mark(marks) => {
                let values = params![server, key, marks.forwarded, marks.accepted];
                mark.execute(values)?;
            }
            Change::Remove => {
                remove.execute(params![server, key])?;
            }
        }
    }
    Ok(())
}

fn message(row: &Row<'_>) -> rusqlite::Result<Option<(ServerId, u64, Message)>> {
    let marks = Marks {
        forwarded: row.get("forwarded")?,
        accepted: row.get("accepted")?,
    };
    let received_at: Millis = row.get("received_at")?;
    let frame = row.get::<_, Vec<u8>>("frame")?.into();
    let key = loaded(row.get("key")?);
    let server = ServerId::new(&row.get::<_, String>("server")?);
    let message = Message {
        received_at,
        marks,
        frame,
    };
    Ok(server.map(|server| (server, key, message)))
}

fn put(connection: &Connection, server: &ServerId, row: &Remembered) -> rusqlite::Result<()> {
    let (episode, open) = (row.episode.as_ref(), row.open.as_ref());
    connection.prepare(WRITE)?.execute(params![
        server.as_str(),
        stored(row.epoch.0),
        stored(row.failed_attempts),
        row.launched_at,
        row.lasted_at,
        episode.map(|episode| episode.since),
        episode.map_or(0, |episode| stored(episode.attempt)),
        episode.map_or("", |episode| &episode.why),
        row.paused,
        row.narrowing,
        open.map(|open| stored(open.epoch.0)),
        open.map(|open| stored(open.attempt.0)),
        open.map(|open| span(open.span)),
        open.map(|open| micros(open.began)),
        row.unwanted_at,
        stored(row.forgiven_attempts),
    ])?;
    Ok(())
}

fn forget(connection: &Connection, server: &ServerId) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM servers WHERE id = ?1", [server.as_str()])?;
    Ok(())
}

fn remembered(row: &Row<'_>) -> rusqlite::Result<Option<(ServerId, Remembered)>> {
    let since: Option<i64> = row.get("down_at")?;
    let episode = Episode {
        since: since.unwrap_or_default(),
        attempt: loaded(row.get("down_attempt")?),
        why: row.get("down_why")?,
    };
    let remembered = Remembered {
        epoch: Epoch(loaded(row.get("epoch")?)),
        failed_attempts: loaded(row.get("failed_attempts")?),
        launched_at: row.get("launched_at")?,
        lasted_at: row.get("lasted_at")?,
        unwanted_at: row.get("unwanted_at")?,
        forgiven_attempts: loaded(row.get("forgiven_attempts")?),
        episode: since.map(|_| episode),
        paused: row.get("paused")?,
        narrowing: row.get("narrowing")?,
        open: open(row)?,
    };
    let server = ServerId::new(&row.get::<_, String>("id")?);
    Ok(server.map(|server| (server, remembered)))
}

/// The epoch that was open; one whose span no build can have written is left out.
fn open(row: &Row<'_>) -> rusqlite::Result<Option<OpenEpoch>> {
    let (epoch, attempt): (Option<i64>, Option<i64>) =
        (row.get("open_epoch")?, row.get("open_attempt")?);
    let (span, began): (Option<Vec<u8>>, Option<i64>) =
        (row.get("open_span")?, row.get("open_began")?);
    Ok(epoch
        .zip(attempt)
        .zip(span.zip(began))
        .and_then(|((epoch, attempt), (span, began))| {
            Some(OpenEpoch {
                epoch: Epoch(loaded(epoch)),
                attempt: Attempt(loaded(attempt)),
                span: ids(&span)?,
                began: UNIX_EPOCH.checked_add(Duration::from_micros(loaded(began)))?,
            })
        }))
}

fn span(ids: SpanIds) -> Vec<u8> {
    [&ids.trace.to_be_bytes()[..], &ids.span.to_be_bytes()].concat()
}

fn ids(bytes: &[u8]) -> Option<SpanIds> {
    let (trace, span) = bytes.split_first_chunk()?;
    let (trace, span) = (u128::from_be_bytes(*trace), span.try_into().ok()?);
    let span = u64::from_be_bytes(span);
    (trace != 0 && span != 0).then_some(SpanIds { trace, span })
}

fn micros(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// SQLite's integers are signed.
fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn loaded(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// What to do about an error of SQLite.
fn advice(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            format!("its journal is damaged or no journal ({error}): move it away to start afresh")
        }
        _ => error.to_string(),
    }
}
