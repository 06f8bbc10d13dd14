//! The stored messages that are to be written (G14): what became of each since the last write, as one change. No IO.
//! Its size is bounded by what the engines hold and by what is on disk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::memory::Millis;
use crate::engine::output::Mark;
use crate::ids::ServerId;

/// A message as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// When it was read.
    pub(super) received_at: Millis,
    pub(super) marks: Marks,
    pub(super) frame: Bytes,
}

/// What became of it; marks are never taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) forwarded: bool,
    pub(super) accepted: bool,
}

impl Marks {
    fn set(&mut self, mark: Mark) {
        match mark {
            Mark::Forwarded => self.forwarded = true,
            Mark::Accepted => self.accepted = true,
        }
    }

    fn join(&mut self, other: Self) {
        self.forwarded |= other.forwarded;
        self.accepted |= other.accepted;
    }
}

/// What a write does to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds it. `fresh` where no write of it was tried, so that the disk cannot have it.
    Add { message: Message, fresh: bool },
    /// Marks it.
    Mark(Marks),
    /// Removes it.
    Remove,
}

/// One server's changes, by key.
pub(super) type Changes = BTreeMap<u64, Change>;

/// Every server's changes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Servers whose messages all go, before the changes.
    pub(super) forgotten: BTreeSet<ServerId>,
    pub(super) changes: BTreeMap<ServerId, Changes>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.forgotten.is_empty() && self.changes.is_empty()
    }

    /// A message is to be stored.
    pub(super) fn store(&mut self, server: &ServerId, key: u64, message: Message) {
        let fresh = true;
        let change = Change::Add { message, fresh };
        self.of(server).insert(key, change);
    }

    /// Something became of a stored message.
    pub(super) fn mark(&mut self, server: &ServerId, key: u64, mark: Mark) {
        let change = self.of(server).entry(key);
        match change.or_insert_with(|| Change::Mark(Marks::default())) {
            Change::Add { message, .. } => message.marks.set(mark),
            Change::Mark(marks) => marks.set(mark),
            Change::Remove => {}
        }
    }

    /// A stored message is over. One that no write has seen is as if it had never been.
    pub(super) fn discard(&mut self, server: &ServerId, key: u64) {
        let changes = self.of(server);
        match changes.remove(&key) {
            Some(Change::Add { fresh: true, .. }) => {}
            _ => drop(changes.insert(key, Change::Remove)),
        }
        if changes.is_empty() {
            self.changes.remove(server);
        }
    }

    /// Every message of a server is over.
    pub(super) fn forget(&mut self, server: &ServerId) {
        self.changes.remove(server);
        self.forgotten.insert(server.clone());
    }

    /// Takes back what a failed write was to do. What was recorded meanwhile is newer.
    pub(super) fn take_back(&mut self, failed: Self) {
        for (server, changes) in failed.changes {
            if self.forgotten.contains(&server) {
                continue;
            }
            let newer = self.of(&server);
            for (key, change) in changes {
                let joined = join(change, newer.remove(&key));
                newer.insert(key, joined);
            }
        }
        self.forgotten.extend(failed.forgotten);
    }

    fn of(&mut self, server: &ServerId) -> &mut Changes {
        self.changes.entry(server.clone()).or_default()
    }
}

/// A failed change and what followed it, as one. A write that failed may have reached the disk all the same.
fn join(failed: Change, newer: Option<Change>) -> Change {
    match (failed, newer) {
        (Change::Add { message, .. }, None) => Change::Add {
            message,
            fresh: false,
        },
        (Change::Add { mut message, .. }, Some(Change::Mark(marks))) => {
            message.marks.join(marks);
            Change::Add {
                message,
                fresh: false,
            }
        }
        (Change::Mark(mut marks), Some(Change::Mark(more))) => {
            marks.join(more);
            Change::Mark(marks)
        }
        (failed, None) => failed,
        (_, Some(newer)) => newer,
    }
}

/// The last message that a write of these adds.
pub(super) fn last_added(changes: &Changes) -> Option<u64> {
    let added = |change: &Change| matches!(change, Change::Add { .. });
    let mut newest = changes.iter().rev();
    newest
        .find(|(_, change)| added(change))
        .map(|(key, _)| *key)
}
