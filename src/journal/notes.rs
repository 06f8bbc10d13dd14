//! Notes: short texts that another part wants to find again after a restart, each under that part's own area and key.
//! What they say is that part's alone.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

/// The table's making, as a step of the schema.
pub(super) const TABLE: &str = "
    CREATE TABLE notes (
        area TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (area, key)
    ) STRICT, WITHOUT ROWID;
    UPDATE meta SET value = 3 WHERE key = 'schema';
";
const READ: &str = "SELECT area, key, value FROM notes";
const WRITE: &str = "INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)";
const REMOVE: &str = "DELETE FROM notes WHERE area = ?1 AND key = ?2";

/// An area and a key in it.
pub(super) type Place = (String, String);
/// Every note.
pub(super) type Notes = BTreeMap<Place, String>;
/// What becomes of notes; `None` takes one away.
pub(super) type Changed = BTreeMap<Place, Option<String>>;

/// Every note of the file.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Notes> {
    let mut statement = connection.prepare(READ)?;
    let notes = statement.query_map([], |row| {
        Ok(((row.get("area")?, row.get("key")?), row.get("value")?))
    })?;
    notes.collect()
}

/// Writes what changed.
pub(super) fn write(connection: &Connection, changed: &Changed) -> rusqlite::Result<()> {
    let mut write = connection.prepare(WRITE)?;
    let mut remove = connection.prepare(REMOVE)?;
    for ((area, key), value) in changed {
        match value {
            Some(value) => write.execute(params![area, key, value])?,
            None => remove.execute(params![area, key])?,
        };
    }
    Ok(())
}
