//! The process table as `/proc` shows it: who descends from whom, and which launch a process belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The environment variable that marks every process of a launch. An orphan that came to us is known by it.
pub(super) const MARK: &str = "TIDEGATE_EPOCH";

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// Exited, and not yet waited for.
    pub(super) dead: bool,
    /// When it started, in clock ticks since boot: with the pid, which process it is.
    pub(super) started: u64,
}

impl Row {
    /// Pids come round again; with the start they do not.
    fn identity(&self) -> (u32, u64) {
        (self.pid, self.started)
    }

    /// The row of one process, or `None` where there is none.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse(pid, &stat)
    }
}

/// Reads `/proc/<pid>/stat` (proc(5)). The name in parentheses may hold anything, so fields count from the last one.
fn parse(pid: u32, stat: &str) -> Option<Row> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    let dead = matches!(state, "Z" | "X");
    Some(Row {
        pid,
        parent,
        group,
        session,
        dead,
        started,
    })
}

/// All processes that can be seen. Takes a few microseconds for each: not for an async thread.
pub(super) fn table() -> Vec<Row> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Row::of).collect()
}

/// The processes that descend from this one and live.
pub(super) fn descendants(of: u32, table: &[Row]) -> Vec<u32> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let children = table
            .iter()
            .filter(|row| row.parent == parent && row.pid != of);
        found.extend(children.map(|row| row.pid));
    }
    let lives = |pid: &u32| table.iter().any(|row| row.pid == *pid && !row.dead);
    found.into_iter().skip(1).filter(lives).collect()
}

/// A launch, as its processes are recognised.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// The direct child, which leads a session and a group.
    pub(super) leader: u32,
    /// The value of [`MARK`].
    pub(super) mark: String,
}

impl Launch {
    /// The processes of this launch beside its leader: the leader's descendants and, of the orphans that came to us,
    /// those of its session, group or mark and those that are `known`, with their descendants. `owned` are our direct
    /// children, which are nobody's orphans.
    pub(super) fn others(
        &self,
        us: u32,
        owned: &BTreeSet<u32>,
        known: &[Row],
        table: &[Row],
    ) -> Vec<Row> {
        let known: BTreeSet<(u32, u64)> = known.iter().map(Row::identity).collect();
        let orphan =
            |row: &&Row| row.parent == us && row.pid != self.leader && !owned.contains(&row.pid);
        let orphans = table.iter().filter(orphan);
        let orphans = orphans.filter(|row| known.contains(&row.identity()) || self.claims(row));
        let mut roots: Vec<&Row> = orphans.collect();
        let mut children: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
        for row in table {
            children.entry(row.parent).or_default().push(row);
        }
        roots.extend(children.get(&self.leader).into_iter().flatten());
        let mut found: BTreeMap<u32, Row> = BTreeMap::new();
        while let Some(row) = roots.pop() {
            if found.insert(row.pid, row.clone()).is_none() {
                roots.extend(children.get(&row.pid).into_iter().flatten());
            }
        }
        found.into_values().collect()
    }

    fn claims(&self, row: &Row) -> bool {
        row.session == self.leader || row.group == self.leader || self.is_marked(row.pid)
    }

    fn is_marked(&self, pid: u32) -> bool {
        let wanted = format!("{MARK}={}", self.mark);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row {
        fn started_at(self, started: u64) -> Self {
            Self { started, ..self }
        }
    }

    fn row(pid: u32, parent: u32, session: u32) -> Row {
        Row {
            pid,
            parent,
            group: session,
            session,
            dead: false,
            started: 0,
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_over() {
        let stat = "7 (a) b (c) S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2";
        let expected = Row {
            pid: 7,
            parent: 1,
            group: 2,
            session: 3,
            dead: false,
            started: 9876,
        };
        assert_eq!(parse(7, stat), Some(expected));
        assert_eq!(parse(7, "7 (a"), None);
    }

    #[test]
    fn we_see_ourselves() {
        let pid = std::process::id();
        assert!(table().iter().any(|row| row.pid == pid && !row.dead));
    }

    #[test]
    fn descendants_are_found_over_any_number_of_steps() {
        let table = [
            row(1, 0, 1),
            row(10, 1, 10),
            row(11, 10, 11),
            row(12, 11, 12),
            row(20, 2, 20),
        ];
        assert_eq!(descendants(1, &table), [10, 11, 12]);
        assert_eq!(descendants(12, &table), [0; 0]);
    }

    #[test]
    fn descendants_and_claimed_orphans_are_found_and_no_others() {
        // We are 1, servers 10 and 20; 11 descends from 10, 12 is an orphan of 10's session and 13 its child; 30 was
        // 10's child; the 22 that was is another's pid by now.
        let table = [
            row(1, 0, 1),
            row(10, 1, 10),
            row(11, 10, 11),
            row(12, 1, 10),
            row(13, 12, 13),
            row(20, 1, 20),
            row(21, 20, 20),
            row(22, 1, 22),
            row(30, 1, 30),
            row(31, 30, 30),
        ];
        let known = [row(30, 10, 30), row(22, 10, 22).started_at(7)];
        let launch = Launch {
            leader: 10,
            mark: "none".into(),
        };
        let found = launch.others(1, &BTreeSet::from([10, 20]), &known, &table);
        assert_eq!(
            found.iter().map(|row| row.pid).collect::<Vec<_>>(),
            [11, 12, 13, 30, 31]
        );
    }
}
