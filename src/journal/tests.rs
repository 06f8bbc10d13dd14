//! The store over real files: what is resumed, what is refused.

use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::engine::input::OpenEpisode;
use crate::ids::Epoch;

fn chat() -> ServerId {
    ServerId::new("chat").unwrap()
}

fn second(n: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + n)
}

fn down() -> Record {
    Record::Down {
        attempt: 5,
        why: "connected, then closed after 0 s".into(),
    }
}

fn remember_an_outage(journal: &Journal) {
    for (at, record) in [
        (0, Record::Lasted),
        (10, Record::Launched(Epoch(41))),
        (11, Record::Count(6)),
        (11, down()),
        (12, Record::Paused(true)),
        (12, Record::Narrowing("{\"enabled\":[]}".into())),
    ] {
        journal.record(&chat(), record, second(at));
    }
}

fn the_outage_after_a_minute() -> Resumed {
    Resumed {
        epoch: Epoch(41),
        failed_attempts: 6,
        since_launch: Some(Duration::from_secs(50)),
        since_lasted: Some(Duration::from_secs(60)),
        episode: Some(OpenEpisode {
            since: Duration::from_secs(49),
            attempt: 5,
            why: "connected, then closed after 0 s".into(),
        }),
        paused: true,
        narrowing: Some("{\"enabled\":[]}".into()),
    }
}

#[test]
fn s5_what_was_recorded_is_there_when_the_directory_is_opened_again() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(
        journal.resume(&chat(), second(60)),
        the_outage_after_a_minute()
    );
    journal.record(&chat(), Record::Clear, second(61));
    journal.record(&chat(), Record::Count(0), second(61));
    drop(journal);
    let resumed = Journal::open(dir.path())
        .unwrap()
        .resume(&chat(), second(62));
    assert_eq!((resumed.episode, resumed.failed_attempts), (None, 0));
}

#[test]
fn s5_a_forgotten_server_starts_afresh() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.record(&chat(), Record::Forget, second(20));
    assert_eq!(journal.resume(&chat(), second(21)), Resumed::default());
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.resume(&chat(), second(21)), Resumed::default());
}

#[test]
fn s5_a_kill_after_a_flush_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.flush();
    // What a kill leaves is the files as they are now, with no close and no checkpoint.
    let left = TempDir::new().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
    }
    let revived = Journal::open(left.path()).unwrap();
    assert_eq!(
        revived.resume(&chat(), second(60)),
        the_outage_after_a_minute()
    );
}

#[test]
fn a_second_gateway_is_told_that_the_directory_is_in_use() {
    let dir = TempDir::new().unwrap();
    let first = Journal::open(dir.path()).unwrap();
    let second = Journal::open(dir.path()).unwrap_err();
    assert!(matches!(second, Error::InUse { .. }), "{second}");
    drop(first);
    Journal::open(dir.path()).unwrap();
}

#[test]
fn the_directory_and_its_files_are_for_their_owner_alone() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("a/b");
    let _journal = Journal::open(&dir).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<_> = std::fs::read_dir(&dir).unwrap().flatten().collect();
    assert!(files.len() >= 2);
    for file in files {
        assert_eq!(mode(&file.path()), 0o600, "{:?}", file.path());
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let error = Journal::open(Path::new("/proc/tidegate-state")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("state directory /proc/tidegate-state: "),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_journal_is_left_as_it_is() {
    let dir = TempDir::new().unwrap();
    let garbage = b"not a journal, and longer than a header of SQLite would be. ".repeat(20);
    std::fs::write(dir.path().join(FILE), &garbage).unwrap();
    let text = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("move it away to start afresh"), "{text}");
    assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), garbage);
}

#[test]
fn a_newer_schema_is_refused_with_both_numbers() {
    let dir = TempDir::new().unwrap();
    drop(Journal::open(dir.path()).unwrap());
    let file = Connection::open(dir.path().join(FILE)).unwrap();
    file.execute("UPDATE meta SET value = 9 WHERE key = 'schema'", [])
        .unwrap();
    let text = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("schema 9, this version reads 1"), "{text}");
}

#[test]
fn a_failed_write_is_reported_and_made_good_later() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let rival = Connection::open(dir.path().join(FILE)).unwrap();
    rival.execute_batch("BEGIN IMMEDIATE").unwrap();
    let memory = ServerId::new("memory").unwrap();
    journal.record(&memory, Record::Count(3), second(10));
    remember_an_outage(&journal);
    journal.flush();
    assert!(journal.is_failing());
    assert!(journal.failure().unwrap().contains("locked"));
    rival.execute_batch("ROLLBACK").unwrap();
    journal.record(&chat(), Record::Count(7), second(30));
    journal.flush();
    assert!(!journal.is_failing());
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    let resumed = journal.resume(&chat(), second(60));
    assert_eq!(resumed.failed_attempts, 7);
    assert_eq!(resumed.episode, the_outage_after_a_minute().episode);
    assert_eq!(journal.resume(&memory, second(60)).failed_attempts, 3);
}

#[test]
fn without_a_directory_nothing_is_remembered() {
    let journal = Journal::none();
    remember_an_outage(&journal);
    journal.flush();
    assert_eq!(journal.resume(&chat(), second(60)), Resumed::default());
    assert!(!journal.is_failing());
}
