//! What waits: messages held on the serving transport and messages kept across a boundary, in order and within their
//! bounds (G4 to G7). It never decides whether one may pass.

mod ledger;
mod parking;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::ledger::Ledger;
use self::parking::Parking;
use super::decision::DropReason;
use super::settings::Bounds;
use super::snapshot::QueueView;
use super::timers::{Deadlines, Timer};
use crate::ids::Epoch;
use crate::wire::incoming::Receipts;
use crate::wire::jsonrpc::{Kind, Message};

/// A held request that is no world message waits this long at most (G4).
const HELD_MAX: Duration = Duration::from_secs(60);

/// World messages with a host at a time (G13).
const WINDOW: usize = 256;
/// And their bytes: the last may be over.
const WINDOW_BYTES: usize = 16 << 20;

/// A message's place in the order in which its server wrote.
pub(super) type Seq = u64;

/// Messages that open and close together; order is kept within a lane, and by [`Seq`] between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// The control plane, and what the policy hold alone delays.
    Control,
    /// The data plane, as far as it wakes nobody.
    Data,
    /// World messages and inference: a pause holds these too.
    Waking,
}

/// A message that waits, or is with a host and not yet answered.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// As received, without what the gateway has settled of it.
    pub(super) message: Message,
    /// What it has settled (G11, G12).
    pub(super) receipts: Receipts,
    /// The epoch it came on; an answer goes there or nowhere (A1).
    pub(super) epoch: Epoch,
    /// When it was read.
    pub(super) received: Instant,
    /// Where it waits.
    pub(super) lane: Lane,
    /// The call that it belongs to, by the gateway's id, where the transport knows that.
    pub(super) during: Option<u64>,
    /// It reports the world, and so outlives its process (G5).
    pub(super) world: bool,
    /// Its transport is gone.
    pub(super) kept: bool,
    /// A host had it and went without answering (G13).
    pub(super) redelivered: bool,
    /// The gateway answered it for the host (A3), so that no bound drops it.
    pub(super) accepted: bool,
    /// A host had it, or has.
    forwarded: bool,
    /// It is to be accepted as soon as it is stored.
    overdue: bool,
    place: Place,
    due: Option<(Instant, Timer)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Lane,
    Parked(Box<str>),
    Out,
}

/// What became of a message that was to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It waits there.
    Waits(Seq),
    /// There is no room for another request (G4); whose bound is reached.
    Full(DropReason),
    /// It is a notification, and there is no room at all.
    Dropped,
}

impl Item {
    /// A message just read.
    pub(super) fn new(message: Message, epoch: Epoch, received: Instant, lane: Lane) -> Self {
        Self {
            message,
            receipts: Receipts::default(),
            epoch,
            received,
            lane,
            during: None,
            world: false,
            kept: false,
            redelivered: false,
            accepted: false,
            forwarded: false,
            overdue: false,
            place: Place::Lane,
            due: None,
        }
    }

    fn is_request(&self) -> bool {
        self.message.kind() == Kind::Request
    }
}

/// Counts and bytes of one of the two queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    requests: usize,
    notifications: usize,
    bytes: usize,
}

impl Load {
    fn add(&mut self, item: &Item) {
        *self.count(item) += 1;
        self.bytes += item.message.len();
    }

    fn remove(&mut self, item: &Item) {
        *self.count(item) -= 1;
        self.bytes -= item.message.len();
    }

    fn count(&mut self, item: &Item) -> &mut usize {
        if item.is_request() {
            &mut self.requests
        } else {
            &mut self.notifications
        }
    }
}

/// Every message that waits, and every world message that a host has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    items: BTreeMap<Seq, Item>,
    lanes: BTreeMap<Lane, BTreeSet<Seq>>,
    parking: Parking,
    held_notifications: BTreeSet<Seq>,
    kept_ones: BTreeSet<Seq>,
    deadlines: Deadlines<(Timer, Seq)>,
    held: Load,
    kept: Load,
    /// Those that the gateway accepted, wherever they are.
    accepted: Load,
    overdue: BTreeSet<Seq>,
    ledger: Ledger,
    /// Those that are with a host.
    out: Load,
    /// What all of these may have together, in bytes (G6); `None` where nobody set it.
    allowance: Option<usize>,
    last: Seq,
    kept_max_age: Duration,
}

impl Waiting {
    /// Kept messages are due after `kept_max_age`, from now on.
    pub(super) fn limit_age(&mut self, kept_max_age: Duration) {
        self.kept_max_age = kept_max_age;
    }

    /// The place of the next message.
    fn next_seq(&mut self) -> Seq {
        self.last += 1;
        self.last
    }

    /// It may hold and keep so many bytes, from now on (G6). What it has stays.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.allowance = Some(bytes);
    }

    /// Bytes of all that waits or is with a host.
    pub(super) fn bytes(&self) -> usize {
        self.held.bytes + self.kept.bytes + self.out.bytes
    }

    /// Whose bound leaves no room for so many bytes more, if any does.
    fn crowded(&self, more: usize, load: usize, bound: usize) -> Option<DropReason> {
        if load + more > bound {
            Some(DropReason::HeldFull)
        } else {
            let allowed = |all| self.bytes() + more <= all;
            (!self.allowance.is_none_or(allowed)).then_some(DropReason::GatewayFull)
        }
    }

    /// Holds a message of the serving transport; returns the notifications that had to go, each with the bound that it
    /// went for (G4, G6).
    pub(super) fn hold(&mut self, item: Item, bounds: &Bounds) -> (Held, Vec<(DropReason, Item)>) {
        let mut dropped = Vec::new();
        let size = item.message.len();
        if item.is_request() {
            let many = self.held.requests >= bounds.held_requests;
            let many = many.then_some(DropReason::HeldFull);
            let full = many.or_else(|| self.crowded(size, self.held.bytes, bounds.held_bytes));
            if let Some(reason) = full {
                return (Held::Full(reason), dropped);
            }
        } else if let Some(reason) = self.never_fits(size, bounds) {
            return (Held::Dropped, vec![(reason, item)]);
        } else {
            while let Some(reason) = self.overflows(size, bounds) {
                let Some(oldest) = self.held_notifications.first().copied() else {
                    break;
                };
                dropped.extend(self.take(oldest).map(|item| (reason, item)));
            }
        }
        (Held::Waits(self.add(item)), dropped)
    }

    /// Whose bound a notification is over even when all others go. Held requests never go for one.
    fn never_fits(&self, size: usize, bounds: &Bounds) -> Option<DropReason> {
        let notifications = self.held_notifications.iter();
        let notifications = notifications.filter_map(|seq| self.items.get(seq));
        let may_go: usize = notifications.map(|item| item.message.len()).sum();
        let over = |load: usize, bound: usize| load - may_go + size > bound;
        if over(self.held.bytes, bounds.held_bytes) {
            Some(DropReason::HeldFull)
        } else {
            let over = self.allowance.is_some_and(|all| over(self.bytes(), all));
            over.then_some(DropReason::GatewayFull)
        }
    }

    /// Whose bound one more notification is over.
    fn overflows(&self, size: usize, bounds: &Bounds) -> Option<DropReason> {
        let many = self.held.notifications >= bounds.held_notifications;
        let many = many.then_some(DropReason::HeldFull);
        many.or_else(|| self.crowded(size, self.held.bytes, bounds.held_bytes))
    }

    /// Keeps a world message whose transport is gone; returns those that had to go, the newest first (G6).
    pub(super) fn keep(&mut self, item: Item, bounds: &Bounds) -> Vec<(DropReason, Item)> {
        let room = |all| self.bytes() + item.message.len() <= all;
        if !self.allowance.is_none_or(room) {
            return vec![(DropReason::GatewayFull, item)];
        }
        self.add(Item { kept: true, ..item });
        let full = self.trim(bounds).into_iter();
        full.map(|item| (DropReason::KeptFull, item)).collect()
    }

    /// A message that waits here from now on, or is with a host.
    fn add(&mut self, item: Item) -> Seq {
        let seq = self.next_seq();
        self.ledger.store(seq, &item);
        self.insert(seq, item);
        seq
    }

    fn put_kept(&mut self, seq: Seq, item: Item) {
        self.insert(seq, Item { kept: true, ..item });
    }

    /// The earliest stay (G6), and what the gateway accepted: it accepts no more than fits.
    pub(super) fn trim(&mut self, bounds: &Bounds) -> Vec<Item> {
        let mut dropped = Vec::new();
        while let Some(is_request) = self.overfull(bounds) {
            let mut newest = self.kept_ones.iter().rev();
            let fits = |seq: &&Seq| {
                let item = self.items.get(seq).filter(|item| !item.accepted);
                item.is_some_and(|item| is_request.is_none_or(|wanted| item.is_request() == wanted))
            };
            let Some(seq) = newest.find(fits).copied() else {
                break;
            };
            dropped.extend(self.take(seq));
        }
        dropped
    }

    /// Which kind of kept message is too many: requests, notifications, or either (by bytes).
    fn overfull(&self, bounds: &Bounds) -> Option<Option<bool>> {
        if self.kept.requests > bounds.kept_requests {
            Some(Some(true))
        } else if self.kept.notifications > bounds.kept_notifications {
            Some(Some(false))
        } else if self.kept.bytes > bounds.kept_bytes {
            Some(None)
        } else {
            None
        }
    }

    /// A boundary: what is held is kept where it reports the world, and is returned where not (G5). `for_good` returns
    /// the world messages too, kept ones among them.
    pub(super) fn cross(&mut self, for_good: bool, bounds: &Bounds) -> Crossed {
        let mut crossed = Crossed::default();
        let seqs: Vec<Seq> = self.items.keys().copied().collect();
        for seq in seqs {
            let Some(item) = self.items.get(&seq) else {
                continue;
            };
            let out = item.place == Place::Out;
            if item.world && for_good && !out {
                crossed.closed.extend(self.take(seq));
            } else if item.world && !item.kept {
                let item = self.lift(seq);
                item.into_iter().for_each(|item| self.put_kept(seq, item));
            } else if !item.world && !out {
                crossed.process.extend(self.take(seq));
            }
        }
        crossed.full = self.trim(bounds);
        crossed
    }

    /// Takes a message out for good.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Item> {
        let item = self.lift(seq)?;
        self.ledger.discard(seq, &item);
        Some(item)
    }

    /// Takes a message out to put it back changed.
    fn lift(&mut self, seq: Seq) -> Option<Item> {
        let item = self.items.remove(&seq)?;
        self.unplace(seq, &item);
        Some(item)
    }

    /// Waits for `what` outside its lane, so that others pass it (G9, G11), but none of `channels`: what is said there
    /// later waits for the same.
    pub(super) fn park(&mut self, seq: Seq, what: &str, channels: Vec<String>) {
        let Some(item) = self.lift(seq) else {
            return;
        };
        let place = Place::Parked(what.into());
        self.insert(seq, Item { place, ..item });
        self.parking.block(what, channels);
    }

    /// What is settled of a message goes out of it.
    pub(super) fn settle(&mut self, seq: Seq, message: Message, receipts: Receipts) {
        if let Some(item) = self.lift(seq) {
            self.insert(
                seq,
                Item {
                    message,
                    receipts,
                    ..item
                },
            );
        }
    }

    /// What an earlier message of that channel waits for.
    pub(super) fn blocks(&self, channel: &str) -> Option<&str> {
        self.parking.blocks(channel)
    }

    /// Puts back into their lanes those that wait for something that `came`; whether there were any.
    pub(super) fn unpark(&mut self, came: impl Fn(&str) -> bool) -> bool {
        let seqs = self.parking.like(came);
        for seq in &seqs {
            self.put_back(*seq);
        }
        !seqs.is_empty()
    }

    /// Those that wait for something like that.
    pub(super) fn parked(&self, like: impl Fn(&str) -> bool) -> Vec<Seq> {
        self.parking.like(like)
    }

    fn put_back(&mut self, seq: Seq) {
        if let Some(item) = self.lift(seq) {
            let place = Place::Lane;
            self.insert(seq, Item { place, ..item });
        }
    }

    /// A host has it; it is delivered once that host has answered (G13).
    pub(super) fn hand_out(&mut self, seq: Seq) {
        if let Some(item) = self.lift(seq) {
            self.ledger.forward(seq, &item);
            let place = Place::Out;
            let forwarded = true;
            self.insert(
                seq,
                Item {
                    place,
                    forwarded,
                    ..item
                },
            );
        }
    }

    /// Adds a message that goes to a host without having waited.
    pub(super) fn add_out(&mut self, item: Item) -> Seq {
        let place = Place::Out;
        let forwarded = true;
        self.add(Item {
            place,
            forwarded,
            ..item
        })
    }

    /// A host went without answering: it waits again, where it was (G13). `serving` is the epoch that serves.
    pub(super) fn recall(
        &mut self,
        seq: Seq,
        serving: Option<Epoch>,
        bounds: &Bounds,
    ) -> Vec<Item> {
        let Some(mut item) = self.lift(seq) else {
            return Vec::new();
        };
        item.redelivered = true;
        item.place = Place::Lane;
        item.kept |= serving != Some(item.epoch);
        self.insert(seq, item);
        self.trim(bounds)
    }

    fn insert(&mut self, seq: Seq, mut item: Item) {
        item.due = self.deadline(&item);
        match &item.place {
            Place::Lane => {
                self.lanes.entry(item.lane).or_default().insert(seq);
            }
            Place::Parked(what) => {
                self.parking.enter(what, seq);
            }
            Place::Out => self.out.add(&item),
        }
        if let Some((at, timer)) = item.due {
            self.deadlines.set(at, (timer, seq));
        }
        if item.accepted {
            self.accepted.add(&item);
        } else if item.overdue && !item.kept {
            self.overdue.insert(seq);
        }
        if item.place != Place::Out {
            self.count_in(seq, &item);
        }
        self.items.insert(seq, item);
    }

    fn count_in(&mut self, seq: Seq, item: &Item) {
        if item.kept {
            self.kept.add(item);
            self.kept_ones.insert(seq);
        } else {
            self.held.add(item);
            if !item.is_request() {
                self.held_notifications.insert(seq);
            }
        }
    }

    fn unplace(&mut self, seq: Seq, item: &Item) {
        if let Some((at, timer)) = item.due {
            self.deadlines.clear(at, (timer, seq));
        }
        if item.accepted {
            self.accepted.remove(item);
        }
        self.overdue.remove(&seq);
        match &item.place {
            Place::Lane => {
                self.lanes.entry(item.lane).or_default().remove(&seq);
            }
            Place::Parked(what) => self.parking.leave(what, seq),
            Place::Out => return self.out.remove(item),
        }
        if item.kept {
            self.kept.remove(item);
            self.kept_ones.remove(&seq);
        } else {
            self.held.remove(item);
            self.held_notifications.remove(&seq);
        }
    }

    fn deadline(&self, item: &Item) -> Option<(Instant, Timer)> {
        if item.kept {
            let at = item.received.checked_add(self.kept_max_age)?;
            Some((at, Timer::Kept)).filter(|_| item.place != Place::Out)
        } else if item.world {
            let at = self.ledger.accept_at(item)?;
            Some((at, Timer::Accept))
        } else if item.is_request() {
            let at = item.received.checked_add(HELD_MAX)?;
            Some((at, Timer::Held))
        } else {
            None
        }
    }

    /// Takes out the next message that has waited too long (G4, G6). One that is to be accepted stays (A3).
    pub(super) fn expire(&mut self, now: Instant) -> Option<Item> {
        while let Some((timer, seq)) = self.deadlines.due(now) {
            if timer != Timer::Accept {
                return self.take(seq);
            }
            if let Some(item) = self.lift(seq) {
                let overdue = true;
                self.insert(seq, Item { overdue, ..item });
            }
        }
        None
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<(Instant, Timer)> {
        self.deadlines.next().map(|(at, (timer, _))| (at, timer))
    }

    /// The held request of `epoch` under the id that the server chose (G4).
    pub(super) fn find(&self, epoch: Epoch, id: &str) -> Option<Seq> {
        let is_it = |item: &Item| {
            item.epoch == epoch && item.place != Place::Out && item.message.id_text() == Some(id)
        };
        let mut newest = self.items.iter().rev();
        newest.find(|(_, item)| is_it(item)).map(|(seq, _)| *seq)
    }

    /// A message.
    pub(super) fn get(&self, seq: Seq) -> Option<&Item> {
        self.items.get(&seq)
    }

    /// A message that waits in a lane.
    pub(super) fn in_lane(&self, seq: Seq) -> Option<&Item> {
        self.get(seq).filter(|item| item.place == Place::Lane)
    }

    /// A message that no host has.
    pub(super) fn waits(&self, seq: Seq) -> Option<&Item> {
        self.get(seq).filter(|item| item.place != Place::Out)
    }

    /// The first message of a lane.
    pub(super) fn front(&self, lane: Lane) -> Option<Seq> {
        self.lanes.get(&lane)?.first().copied()
    }

    /// Everything that waits in a lane, in order.
    pub(super) fn in_order(&self) -> Vec<(Seq, &Item)> {
        let waits = |item: &Item| item.place == Place::Lane;
        let items = self.items.iter().filter(|(_, item)| waits(item));
        items.map(|(seq, item)| (*seq, item)).collect()
    }

    /// How many wait or are with a host.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether a host may have another.
    pub(super) fn has_window(&self) -> bool {
        let out = &self.out;
        out.requests + out.notifications < WINDOW && out.bytes < WINDOW_BYTES
    }

    /// How many are kept.
    pub(super) fn kept(&self) -> usize {
        self.kept_ones.len()
    }

    /// Held and kept, for a snapshot.
    pub(super) fn views(&self, now: Instant, bounds: &Bounds) -> (QueueView, QueueView) {
        let waits = |kept| {
            let mut items = self.items.values();
            let first = items.find(|item| item.place != Place::Out && item.kept == kept);
            first.map_or(Duration::ZERO, |item| {
                now.saturating_duration_since(item.received)
            })
        };
        let held = view(self.held, bounds.held_requests, bounds.held_notifications);
        let kept = view(self.kept, bounds.kept_requests, bounds.kept_notifications);
        (
            QueueView {
                oldest: waits(false),
                ..held
            },
            QueueView {
                oldest: waits(true),
                ..kept
            },
        )
    }
}

/// What a boundary took out of the queue.
#[derive(Debug, Default)]
pub(super) struct Crossed {
    /// Spoke for the process that is gone.
    pub(super) process: Vec<Item>,
    /// World messages of a connection that is closed for good.
    pub(super) closed: Vec<Item>,
    /// World messages for which there was no room.
    pub(super) full: Vec<Item>,
}

fn view(load: Load, requests_limit: usize, notifications_limit: usize) -> QueueView {
    QueueView {
        requests: load.requests,
        requests_limit,
        notifications: load.notifications,
        notifications_limit,
        bytes: load.bytes,
        oldest: Duration::ZERO,
    }
}
