//! The store over real files: what is resumed, what is refused.

use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::engine::input::{OpenEpisode, Stored};
use crate::engine::output::Mark;
use crate::ids::{Attempt, Epoch, SpanIds};

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
        durable: true,
        ..Resumed::default()
    }
}

#[test]
fn s5_what_had_failed_when_a_server_was_not_wanted_is_remembered_until_a_connection_lasts() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let records = [Record::Count(6), Record::Unwanted, Record::Count(7)];
    for record in records {
        journal.record(&chat(), record, second(20));
    }
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    let resumed = journal.resume(&chat(), second(60));
    let ago = Some(Duration::from_secs(40));
    assert_eq!(
        (resumed.since_unwanted, resumed.forgiven_attempts),
        (ago, 6)
    );
    journal.record(&chat(), Record::Lasted, second(60));
    let resumed = journal.resume(&chat(), second(60));
    assert_eq!(
        (resumed.since_unwanted, resumed.forgiven_attempts),
        (ago, 0)
    );
}

fn nothing() -> Resumed {
    Resumed {
        durable: true,
        ..Resumed::default()
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
    assert_eq!(journal.resume(&chat(), second(21)), nothing());
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.resume(&chat(), second(21)), nothing());
}

#[test]
fn s5_a_kill_after_a_flush_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.flush();
    let left = left_by_a_kill(&dir);
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
    assert!(text.contains("schema 9, this version reads 5"), "{text}");
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

/// What a kill leaves is the files as they are now, with no close and no checkpoint.
fn left_by_a_kill(dir: &TempDir) -> TempDir {
    let left = TempDir::new().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
    }
    left
}

fn store(journal: &Journal, key: u64, at: u64) {
    let frame = format!("message {key}").into();
    let forwarded = false;
    let record = Record::Store {
        key,
        forwarded,
        frame,
    };
    journal.record(&chat(), record, second(at));
}

fn mark(journal: &Journal, key: u64, mark: Mark) {
    journal.record(&chat(), Record::Mark { key, mark }, second(9));
}

fn discard(journal: &Journal, key: u64) {
    journal.record(&chat(), Record::Discard { key }, second(9));
}

fn stored(key: u64, age: u64) -> Stored {
    Stored {
        key,
        age: Duration::from_secs(age),
        forwarded: false,
        accepted: false,
        frame: format!("message {key}").into(),
    }
}

fn is_told(synced: &watch::Receiver<Synced>) -> (u64, bool) {
    let Synced { through, failing } = *synced.borrow();
    (through, failing)
}

#[test]
fn g14_what_is_told_to_be_stored_outlives_a_kill_with_its_marks_and_is_handed_over_once() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let synced = journal.synced(&chat());
    (1..=4).for_each(|key| store(&journal, key, key));
    mark(&journal, 2, Mark::Forwarded);
    journal.flush();
    assert_eq!(is_told(&synced), (4, false));
    mark(&journal, 3, Mark::Accepted);
    discard(&journal, 1);
    store(&journal, 300, 5);
    journal.flush();
    store(&journal, 301, 6);
    discard(&journal, 301);
    journal.flush();
    assert_eq!(is_told(&synced), (300, false));
    let left = left_by_a_kill(&dir);
    let revived = Journal::open(left.path()).unwrap();
    let resumed = revived.resume(&chat(), second(60));
    let forwarded = Stored {
        forwarded: true,
        ..stored(2, 58)
    };
    let accepted = Stored {
        accepted: true,
        ..stored(3, 57)
    };
    let wanted = [forwarded, accepted, stored(4, 56), stored(300, 55)];
    assert_eq!(resumed.kept, wanted);
    assert!(resumed.durable);
    assert!(revived.resume(&chat(), second(60)).kept.is_empty());
}

#[test]
fn g14_a_forgotten_servers_messages_are_gone_and_nothing_is_told_of_them() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    (1..=3).for_each(|key| store(&journal, key, key));
    journal.flush();
    store(&journal, 4, 4);
    journal.record(&chat(), Record::Forget, second(5));
    let synced = journal.synced(&chat());
    store(&journal, 1, 6);
    journal.flush();
    assert_eq!(is_told(&synced), (1, false));
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.resume(&chat(), second(7)).kept, [stored(1, 1)]);
}

#[test]
fn g14_while_writes_fail_nothing_is_told_to_be_stored_and_all_is_made_good() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let synced = journal.synced(&chat());
    (1..=3).for_each(|key| store(&journal, key, 1));
    journal.flush();
    let rival = Connection::open(dir.path().join(FILE)).unwrap();
    rival.execute_batch("BEGIN IMMEDIATE").unwrap();
    (4..=6).for_each(|key| store(&journal, key, 2));
    mark(&journal, 2, Mark::Forwarded);
    discard(&journal, 3);
    journal.flush();
    assert_eq!(is_told(&synced), (3, true));
    assert_eq!(is_told(&journal.synced(&chat())), (3, true));
    mark(&journal, 4, Mark::Accepted);
    mark(&journal, 2, Mark::Accepted);
    discard(&journal, 5);
    discard(&journal, 1);
    rival.execute_batch("ROLLBACK").unwrap();
    journal.flush();
    assert_eq!(is_told(&synced), (6, false));
    drop(journal);
    let kept = Journal::open(dir.path())
        .unwrap()
        .resume(&chat(), second(3))
        .kept;
    let both = Stored {
        forwarded: true,
        accepted: true,
        ..stored(2, 2)
    };
    let accepted = Stored {
        accepted: true,
        ..stored(4, 1)
    };
    assert_eq!(kept, [both, accepted, stored(6, 1)]);
}

#[test]
fn s5_g14_a_journal_of_the_first_schema_is_brought_up_and_keeps_what_it_says() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    drop(journal);
    let file = Connection::open(dir.path().join(FILE)).unwrap();
    file.execute_batch(WITHOUT_EPOCHS).unwrap();
    file.execute_batch(
        "DROP TABLE messages; DROP TABLE notes; UPDATE meta SET value = 1 WHERE key = 'schema'",
    )
    .unwrap();
    drop(file);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(
        journal.resume(&chat(), second(60)),
        the_outage_after_a_minute()
    );
    store(&journal, 1, 1);
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.resume(&chat(), second(1)).kept, [stored(1, 0)]);
}

/// Takes the fourth schema back, and the fifth.
const WITHOUT_EPOCHS: &str = "
    ALTER TABLE servers DROP COLUMN unwanted_at;
    ALTER TABLE servers DROP COLUMN forgiven_attempts;
    ALTER TABLE servers DROP COLUMN open_epoch;
    ALTER TABLE servers DROP COLUMN open_attempt;
    ALTER TABLE servers DROP COLUMN open_span;
    ALTER TABLE servers DROP COLUMN open_began;
    UPDATE meta SET value = 3 WHERE key = 'schema';
";

fn open_epoch() -> OpenEpoch {
    OpenEpoch {
        epoch: Epoch(41),
        attempt: Attempt(6),
        span: SpanIds {
            trace: u128::MAX - 1,
            span: u64::MAX - 1,
        },
        began: second(10) + Duration::from_micros(123_456),
    }
}

#[test]
fn an_epoch_that_was_open_at_a_kill_is_handed_over_once() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.opened(&chat(), open_epoch());
    journal.flush();
    let left = left_by_a_kill(&dir);
    let revived = Journal::open(left.path()).unwrap();
    assert_eq!(revived.take_open(&chat()), Some(open_epoch()));
    assert_eq!(revived.take_open(&chat()), None);
    drop(revived);
    let again = Journal::open(left.path()).unwrap();
    assert_eq!(again.take_open(&chat()), None);
    assert_eq!(
        again.resume(&chat(), second(60)),
        the_outage_after_a_minute()
    );
}

#[test]
fn an_epoch_that_ended_is_not_handed_over_and_a_forgotten_server_stays_forgotten() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.opened(&chat(), open_epoch());
    journal.closed(&chat());
    assert_eq!(journal.take_open(&chat()), None);
    journal.opened(&chat(), open_epoch());
    journal.record(&chat(), Record::Forget, second(20));
    journal.closed(&chat());
    assert_eq!(journal.servers(), []);
    drop(journal);
    assert_eq!(Journal::open(dir.path()).unwrap().servers(), []);
}

#[test]
fn a_journal_of_the_third_schema_is_brought_up_and_keeps_what_it_says() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    store(&journal, 1, 1);
    drop(journal);
    let file = Connection::open(dir.path().join(FILE)).unwrap();
    file.execute_batch(WITHOUT_EPOCHS).unwrap();
    drop(file);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.take_open(&chat()), None);
    let resumed = journal.resume(&chat(), second(60));
    assert_eq!(resumed.kept, [stored(1, 59)]);
    let without = Resumed {
        kept: Vec::new(),
        ..resumed
    };
    assert_eq!(without, the_outage_after_a_minute());
    journal.opened(&chat(), open_epoch());
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.take_open(&chat()), Some(open_epoch()));
}

#[test]
fn a_span_that_no_build_has_written_is_left_out() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    remember_an_outage(&journal);
    journal.opened(&chat(), open_epoch());
    drop(journal);
    let file = Connection::open(dir.path().join(FILE)).unwrap();
    file.execute("UPDATE servers SET open_span = x'0102'", [])
        .unwrap();
    drop(file);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.take_open(&chat()), None);
    assert_eq!(
        journal.resume(&chat(), second(60)),
        the_outage_after_a_minute()
    );
}

#[test]
fn g14_a_row_that_no_build_has_written_is_left_out() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    store(&journal, 1, 1);
    drop(journal);
    let file = Connection::open(dir.path().join(FILE)).unwrap();
    file.execute_batch("INSERT INTO messages VALUES ('no such name!', 1, 1, 0, 0, x'00')")
        .unwrap();
    drop(file);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.resume(&chat(), second(1)).kept, [stored(1, 0)]);
}

#[test]
fn a_note_is_found_again_in_its_area_until_it_is_taken_away() {
    let dir = TempDir::new().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let note = |area, key, value: Option<&str>| {
        journal.note(area, key, value.map(str::to_owned));
    };
    note("a", "1", Some("one"));
    note("a", "2", Some("two"));
    note("b", "1", Some("other"));
    note("a", "1", Some("new"));
    journal.flush();
    note("a", "2", None);
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    let found: Vec<_> = journal.notes("a").into_iter().collect();
    assert_eq!(found, [("1".to_owned(), "new".to_owned())]);
    assert!(Journal::none().notes("a").is_empty());
}
