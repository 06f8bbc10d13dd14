//! What the state directory is told of world messages, and which of them the gateway may accept for the host once they
//! are on disk (A3, G14). Without a state directory it tells nothing and nothing is accepted.

use std::time::{Duration, Instant};

use super::{Item, Load, Place, Seq, Waiting};
use crate::engine::input::{Stored, Synced};
use crate::engine::output::{Mark, Record};
use crate::engine::settings::Bounds;
use crate::ids::Epoch;
use crate::wire::jsonrpc::Message;

/// The epoch of a message that nobody waits for an answer to: the first that is used is 1.
const NONE: Epoch = Epoch(0);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    durable: bool,
    /// A3's time; `None` is never.
    accept_after: Option<Duration>,
    synced: Synced,
    records: Vec<Record>,
}

impl Ledger {
    fn is_stored(&self, seq: Seq) -> bool {
        seq <= self.synced.through
    }

    fn tell(&mut self, item: &Item, record: impl FnOnce() -> Record) {
        if self.durable && item.world {
            self.records.push(record());
        }
    }

    /// A message came to stay.
    pub(super) fn store(&mut self, key: Seq, item: &Item) {
        let forwarded = item.forwarded;
        self.tell(item, || Record::Store {
            key,
            forwarded,
            frame: item.message.raw().clone(),
        });
    }

    /// A host gets it.
    pub(super) fn forward(&mut self, key: Seq, item: &Item) {
        if !item.forwarded {
            let mark = Mark::Forwarded;
            self.tell(item, || Record::Mark { key, mark });
        }
    }

    /// It went for good.
    pub(super) fn discard(&mut self, key: Seq, item: &Item) {
        self.tell(item, || Record::Discard { key });
    }

    /// When the gateway may accept it for the host.
    pub(super) fn accept_at(&self, item: &Item) -> Option<Instant> {
        let after = self.accept_after.filter(|_| self.durable)?;
        let at = item.received.checked_add(after)?;
        Some(at).filter(|_| item.is_request() && !item.overdue)
    }
}

/// What is stored, and what is accepted.
impl Waiting {
    /// Messages are accepted for the host after `after`, from now on; zero is never.
    pub(in crate::engine) fn accept_after(&mut self, after: Duration) {
        self.ledger.accept_after = Some(after).filter(|after| !after.is_zero());
    }

    /// There is a state directory: what comes from now on is stored.
    pub(in crate::engine) fn store_from_now_on(&mut self) {
        self.ledger.durable = true;
    }

    /// Takes over a message that outlived the gateway.
    pub(in crate::engine) fn restore(&mut self, message: Message, stored: &Stored, now: Instant) {
        let received = now.checked_sub(stored.age).unwrap_or(now);
        let mut item = Item::new(message, NONE, received, super::Lane::Waking);
        item.world = true;
        item.kept = true;
        item.forwarded = stored.forwarded;
        item.redelivered = stored.forwarded;
        item.accepted = stored.accepted && item.is_request();
        self.last = self.last.max(stored.key);
        self.ledger.synced.through = self.last;
        self.insert(stored.key, item);
    }

    /// Forgets a message that outlived the gateway and is none.
    pub(in crate::engine) fn discard_stored(&mut self, key: Seq) {
        self.last = self.last.max(key);
        self.ledger.records.push(Record::Discard { key });
    }

    /// Learns how far the state directory is; whether it began or ceased to fail.
    pub(in crate::engine) fn synced(&mut self, synced: Synced) -> bool {
        let changed = synced.failing != self.ledger.synced.failing;
        let through = synced.through.max(self.ledger.synced.through);
        self.ledger.synced = Synced { through, ..synced };
        changed
    }

    /// What the state directory is to be told.
    pub(in crate::engine) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.ledger.records)
    }

    /// The next message to accept: its time has come, it is on disk, and it will fit whatever happens (G6).
    pub(in crate::engine) fn acceptable(&self, bounds: &Bounds) -> Option<Seq> {
        let seq = self.overdue.first().copied()?;
        let item = self.items.get(&seq)?;
        let fits = |load: &Load| {
            load.requests < bounds.kept_requests
                && load.bytes + item.message.len() <= bounds.kept_bytes
        };
        let room = fits(&self.accepted) && (item.place == Place::Out || fits(&self.kept));
        (self.ledger.is_stored(seq) && room).then_some(seq)
    }

    /// Accepts a message: it is kept, and nobody waits for an answer to it any more. Returns it as it was.
    pub(in crate::engine) fn accept(&mut self, seq: Seq) -> Option<Item> {
        let was = self.lift(seq)?;
        let item = Item {
            accepted: true,
            kept: true,
            overdue: false,
            epoch: NONE,
            ..was.clone()
        };
        let mark = Mark::Accepted;
        self.ledger.tell(&item, || Record::Mark { key: seq, mark });
        self.insert(seq, item);
        Some(was)
    }

    /// Takes out the next message that is to be accepted, that no host has, and that cannot be stored now.
    pub(in crate::engine) fn take_unstorable(&mut self) -> Option<Item> {
        if !self.ledger.synced.failing {
            return None;
        }
        let waits = |seq: &Seq| {
            let item = self.items.get(seq);
            item.is_some_and(|item| item.place != Place::Out) && !self.ledger.is_stored(*seq)
        };
        let seq = self.overdue.iter().copied().find(waits)?;
        self.take(seq)
    }
}
