//! What one receiver of edges knows and what it is to be told next: a pure state machine. Down and clear alternate
//! towards the receiver too, so an edge that undoes one that was not told yet cancels it, and is not told either. It
//! sends nothing and reads no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Subjects of which something is to be remembered; what comes past them is refused.
const SUBJECTS_MAX: usize = 4_096;
/// Ended episodes that are remembered, where a source may tell of one twice.
const ENDED_MAX: usize = 1_024;
/// The first wait after a failure, which doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_mins(5);

/// One end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// It opened.
    Down,
    /// It ended.
    Clear,
}

/// An edge as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) kind: Kind,
    /// For people.
    pub(super) text: String,
}

/// What became of an edge that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits to be told.
    Waits,
    /// It undoes one that was not told: neither is told.
    Cancels,
    /// The receiver knows, or does not want to.
    Known,
    /// There is no room.
    Full,
}

/// What became of an edge that was being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The receiver has it.
    Yes,
    /// It has it not: again, after this wait or the ledger's own.
    No(Option<Duration>),
    /// It may have it: again, unless what came meanwhile says more.
    Unknown,
    /// It will never take it.
    Never,
}

/// How a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// What it wants to know.
    pub(super) kinds: BTreeSet<Kind>,
    /// The least time between two downs of one subject. A clear never waits for it.
    pub(super) apart: Duration,
    /// A subject is one episode, of which its source may tell again after its end.
    pub(super) once: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger {
    manner: Manner,
    subjects: BTreeMap<String, Standing>,
    /// When a subject's last down was told.
    downs: BTreeMap<String, Instant>,
    ended: VecDeque<String>,
    /// What is being told: whose, and what.
    sending: Option<(String, Note)>,
    order: u64,
    failures: u32,
    /// Nothing is told before.
    rest_until: Option<Instant>,
    /// The receiver came while something was being told.
    woken: bool,
    /// Subjects whose record is not written yet.
    changed: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Standing {
    /// The receiver knows that it is down.
    told: bool,
    /// What it is to be told next, and in which order.
    next: Option<(u64, Note)>,
}

/// A subject's standing as it is stored; two notes are one that was being told, and what came meanwhile.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    told: bool,
    #[serde(default)]
    ended: bool,
    notes: VecDeque<Note>,
}

impl Ledger {
    /// An empty one.
    pub(super) fn new(manner: Manner) -> Self {
        Self {
            manner,
            subjects: BTreeMap::new(),
            downs: BTreeMap::new(),
            ended: VecDeque::new(),
            sending: None,
            order: 0,
            failures: 0,
            rest_until: None,
            woken: false,
            changed: BTreeSet::new(),
        }
    }

    /// Takes over what was stored of a subject; what no build has written is nothing.
    pub(super) fn resume(&mut self, subject: &str, stored: &str) {
        let Ok(Stored {
            mut told,
            ended,
            mut notes,
        }) = serde_json::from_str(stored)
        else {
            return;
        };
        if ended {
            self.ended.push_back(subject.to_owned());
            return;
        }
        // The first was being told when the gateway died: it may have arrived.
        if notes.len() > 1
            && let Some(first) = notes.pop_front()
        {
            told = first.kind == Kind::Down;
        }
        let order = self.next_order();
        let next = notes.pop_front().map(|note| (order, note));
        let standing = Standing { told, next };
        self.subjects.insert(subject.to_owned(), standing);
    }

    /// What is to be stored since this was last asked: `None` takes a record away.
    pub(super) fn take_changes(&mut self) -> Vec<(String, Option<String>)> {
        let changed = std::mem::take(&mut self.changed);
        let stored = |subject: String| {
            let record = self.stored(&subject);
            let text = record.and_then(|record| serde_json::to_string(&record).ok());
            (subject, text)
        };
        changed.into_iter().map(stored).collect()
    }

    fn stored(&self, subject: &str) -> Option<Stored> {
        if self.ended.iter().any(|ended| ended == subject) {
            return Some(Stored {
                ended: true,
                ..Stored::default()
            });
        }
        let sending = self.sending.as_ref().filter(|(of, _)| of == subject);
        let sending = sending.map(|(_, note)| note.clone());
        let standing = self.subjects.get(subject);
        let next = standing.and_then(|standing| standing.next.as_ref());
        let notes: VecDeque<Note> = sending
            .into_iter()
            .chain(next.map(|(_, note)| note.clone()))
            .collect();
        let told = standing.is_some_and(|standing| standing.told);
        let ended = false;
        (told || !notes.is_empty()).then_some(Stored { told, ended, notes })
    }

    /// An edge of a subject came.
    pub(super) fn take(&mut self, subject: &str, note: Note) -> Taken {
        let room = self.subjects.len() < SUBJECTS_MAX || self.subjects.contains_key(subject);
        if self.ended.iter().any(|ended| ended == subject) {
            return Taken::Known;
        } else if !room {
            return Taken::Full;
        }
        let down = note.kind == Kind::Down;
        let order = self.next_order();
        let wanted = self.manner.kinds.contains(&note.kind);
        let sending = self.sending.as_ref().filter(|(of, _)| of == subject);
        let sending = sending.map(|(_, note)| note.kind == Kind::Down);
        let standing = self.subjects.entry(subject.to_owned()).or_default();
        let taken = if down == sending.unwrap_or(standing.told) {
            let undone = standing.next.take();
            undone.map_or(Taken::Known, |_| Taken::Cancels)
        } else if !wanted {
            *standing = Standing {
                told: down,
                next: None,
            };
            Taken::Known
        } else if standing.next.is_some() {
            Taken::Known
        } else {
            standing.next = Some((order, note));
            Taken::Waits
        };
        self.tidy(subject, !down);
        taken
    }

    /// When something is to be told next; `None` while something is, and when there is nothing.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.first(now).map(|(at, _)| at)
    }

    /// What is to be told now, if anything; [`Self::end`] must follow.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Note> {
        let (_, subject) = self.first(now).filter(|(at, _)| *at <= now)?;
        let (_, note) = self.subjects.get_mut(&subject)?.next.take()?;
        self.sending = Some((subject, note.clone()));
        Some(note)
    }

    /// The first of what waits, and when its time comes; of those whose time has come, the oldest.
    fn first(&self, now: Instant) -> Option<(Instant, String)> {
        if self.sending.is_some() {
            return None;
        }
        let rest = self.rest_until.unwrap_or(now);
        let waiting = self.subjects.iter().filter_map(|(subject, standing)| {
            let (order, note) = standing.next.as_ref()?;
            let at = self.not_before(subject, note.kind).unwrap_or(now);
            Some((at.max(rest).max(now), *order, subject))
        });
        let (at, _, subject) = waiting.min()?;
        Some((at, subject.clone()))
    }

    /// The throttle: downs of one subject are apart.
    fn not_before(&self, subject: &str, kind: Kind) -> Option<Instant> {
        let last = self.downs.get(subject).filter(|_| kind == Kind::Down)?;
        last.checked_add(self.manner.apart)
    }

    /// What became of what was being told.
    pub(super) fn end(&mut self, told: Told, now: Instant) {
        let Some((subject, note)) = self.sending.take() else {
            return;
        };
        let down = note.kind == Kind::Down;
        self.woken &= !matches!(told, Told::Yes | Told::Never);
        let standing = self.subjects.entry(subject.clone()).or_default();
        let undone = standing.next.is_some();
        match told {
            // Who is not told of the end need not be remembered to know of the beginning.
            Told::Yes => standing.told = down && self.manner.kinds.contains(&Kind::Clear),
            Told::Never => {
                standing.told = false;
                standing.next.take_if(|(_, next)| next.kind == Kind::Clear);
            }
            // It may have arrived, so what came meanwhile is told.
            Told::Unknown if undone => standing.told = down,
            // What came meanwhile undoes it, and neither is told.
            Told::No(_) if undone => standing.next = None,
            Told::No(_) | Told::Unknown => standing.next = Some((0, note)),
        }
        match told {
            Told::Yes | Told::Never => (self.failures, self.rest_until) = (0, None),
            Told::No(after) => self.rest(after, now),
            Told::Unknown => self.rest(None, now),
        }
        if told == Told::Yes && down {
            self.note_down(&subject, now);
        }
        self.tidy(&subject, true);
    }

    /// The receiver may be there again: nothing rests any more, and no failure that is under way says otherwise.
    pub(super) fn wake(&mut self) {
        self.rest_until = None;
        self.woken = self.sending.is_some();
    }

    /// Tells in another manner from now on.
    pub(super) fn set_manner(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// How often telling has failed in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    fn rest(&mut self, after: Option<Duration>, now: Instant) {
        let doubled = RETRY_FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        if std::mem::take(&mut self.woken) {
            return;
        }
        let wait = doubled.max(after.unwrap_or_default()).min(RETRY_LAST);
        self.rest_until = now.checked_add(wait);
    }

    fn note_down(&mut self, subject: &str, now: Instant) {
        let apart = self.manner.apart;
        self.downs
            .retain(|_, at| now.saturating_duration_since(*at) < apart);
        if !apart.is_zero() {
            self.downs.insert(subject.to_owned(), now);
        }
    }

    /// Marks a subject as changed, and lets go of it where nothing of it is to be remembered. `ends`: that is its end.
    fn tidy(&mut self, subject: &str, ends: bool) {
        self.changed.insert(subject.to_owned());
        let sending = self.sending.as_ref().is_some_and(|(of, _)| of == subject);
        let standing = self.subjects.get(subject);
        let idle = standing.is_none_or(|standing| !standing.told && standing.next.is_none());
        if sending || !idle {
            return;
        }
        self.subjects.remove(subject);
        if !self.manner.once || !ends {
            return;
        }
        self.ended.push_back(subject.to_owned());
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.changed.insert(oldest);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Receiver {
        ledger: Ledger,
        now: Instant,
        has: Vec<String>,
    }

    fn manner() -> Manner {
        Manner {
            kinds: BTreeSet::from([Kind::Down, Kind::Clear]),
            apart: Duration::ZERO,
            once: false,
        }
    }

    fn receiver(manner: Manner) -> Receiver {
        Receiver {
            ledger: Ledger::new(manner),
            now: Instant::now(),
            has: Vec::new(),
        }
    }

    fn note(kind: Kind, text: &str) -> Note {
        let text = text.to_owned();
        Note { kind, text }
    }

    impl Receiver {
        fn down(&mut self, of: &str) -> Taken {
            self.ledger
                .take(of, note(Kind::Down, &format!("{of} down")))
        }

        fn clear(&mut self, of: &str) -> Taken {
            self.ledger
                .take(of, note(Kind::Clear, &format!("{of} clear")))
        }

        /// Tells everything that is due, with this result.
        fn tell(&mut self, told: Told) -> Vec<String> {
            let mut texts = Vec::new();
            while let Some(note) = self.ledger.begin(self.now) {
                texts.push(note.text);
                self.ledger.end(told, self.now);
            }
            if told == Told::Yes {
                self.has.extend(texts.clone());
            }
            texts
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
        }

        /// The same after a restart of the gateway.
        fn restarted(&mut self, stored: &mut BTreeMap<String, String>) -> Self {
            for (subject, record) in self.ledger.take_changes() {
                match record {
                    Some(record) => stored.insert(subject, record),
                    None => stored.remove(&subject),
                };
            }
            let mut next = receiver(self.ledger.manner.clone());
            for (subject, record) in &*stored {
                next.ledger.resume(subject, record);
            }
            next
        }
    }

    const NO: Told = Told::No(None);

    #[test]
    fn down_and_clear_are_told_once_each_and_in_the_order_in_which_they_came() {
        let mut receiver = receiver(manner());
        assert_eq!(receiver.down("b"), Taken::Waits);
        assert_eq!(receiver.down("a"), Taken::Waits);
        assert_eq!(receiver.tell(Told::Yes), ["b down", "a down"]);
        assert_eq!(receiver.down("a"), Taken::Known);
        assert_eq!(receiver.clear("a"), Taken::Waits);
        assert_eq!(receiver.tell(Told::Yes), ["a clear"]);
        assert_eq!(receiver.clear("a"), Taken::Known);
        assert!(receiver.tell(Told::Yes).is_empty());
    }

    #[test]
    fn a_clear_that_overtakes_its_unsent_down_cancels_both() {
        let mut receiver = receiver(manner());
        receiver.down("a");
        receiver.tell(NO);
        assert_eq!(receiver.clear("a"), Taken::Cancels);
        receiver.wait(RETRY_LAST);
        assert!(receiver.tell(Told::Yes).is_empty());
        receiver.down("a");
        assert_eq!(receiver.tell(Told::Yes), ["a down"]);
    }

    #[test]
    fn a_down_that_overtakes_an_unsent_clear_leaves_the_receiver_as_it_is() {
        let mut receiver = receiver(manner());
        receiver.down("a");
        receiver.tell(Told::Yes);
        receiver.clear("a");
        receiver.tell(NO);
        for _ in 0..5 {
            assert_eq!(receiver.down("a"), Taken::Cancels);
            assert_eq!(receiver.clear("a"), Taken::Waits);
        }
        receiver.wait(RETRY_LAST);
        assert_eq!(receiver.tell(Told::Yes), ["a clear"]);
    }

    #[test]
    fn what_fails_is_told_again_after_waits_that_double_up_to_five_minutes() {
        let mut receiver = receiver(manner());
        receiver.down("a");
        let mut waits = Vec::new();
        for _ in 0..10 {
            receiver.tell(NO);
            let due = receiver.ledger.due(receiver.now).unwrap();
            waits.push((due - receiver.now).as_secs());
            receiver.now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        receiver.tell(Told::No(Some(Duration::from_secs(9_000))));
        receiver.ledger.wake();
        assert_eq!(receiver.tell(Told::Yes), ["a down"]);
        assert_eq!(receiver.ledger.failures(), 0);
    }

    #[test]
    fn a_receiver_that_comes_back_is_told_at_once_also_where_the_failure_is_heard_of_later() {
        let mut receiver = receiver(manner());
        receiver.down("a");
        receiver.tell(NO);
        receiver.ledger.wake();
        receiver.ledger.begin(receiver.now).unwrap();
        receiver.ledger.wake();
        receiver.ledger.end(NO, receiver.now);
        assert_eq!(receiver.ledger.due(receiver.now), Some(receiver.now));
    }

    #[test]
    fn an_edge_that_comes_while_its_opposite_is_told_waits_for_the_outcome() {
        for (outcome, then) in [
            (Told::Yes, &["a clear"][..]),
            (Told::Unknown, &["a clear"]),
            (NO, &[]),
            (Told::Never, &[]),
        ] {
            let mut receiver = receiver(manner());
            receiver.down("a");
            receiver.ledger.begin(receiver.now).unwrap();
            assert_eq!(receiver.clear("a"), Taken::Waits);
            receiver.ledger.end(outcome, receiver.now);
            receiver.wait(RETRY_LAST);
            assert_eq!(receiver.tell(Told::Yes), then, "{outcome:?}");
        }
    }

    #[test]
    fn what_may_have_arrived_is_told_again_rather_than_not_at_all() {
        let mut receiver = receiver(manner());
        receiver.down("a");
        receiver.tell(Told::Unknown);
        receiver.wait(RETRY_LAST);
        assert_eq!(receiver.tell(Told::Yes), ["a down"]);
    }

    #[test]
    fn downs_of_one_subject_are_apart_and_a_clear_never_waits_for_that() {
        let apart = Duration::from_secs(900);
        let mut receiver = receiver(Manner { apart, ..manner() });
        receiver.down("a");
        receiver.tell(Told::Yes);
        receiver.clear("a");
        assert_eq!(receiver.tell(Told::Yes), ["a clear"]);
        receiver.down("a");
        receiver.down("b");
        assert_eq!(receiver.tell(Told::Yes), ["b down"]);
        receiver.wait(Duration::from_secs(899));
        assert!(receiver.tell(Told::Yes).is_empty());
        receiver.wait(Duration::from_secs(1));
        assert_eq!(receiver.tell(Told::Yes), ["a down"]);
        receiver.clear("a");
        assert_eq!(receiver.tell(Told::Yes), ["a clear"]);
        receiver.down("a");
        assert_eq!(receiver.clear("a"), Taken::Cancels);
    }

    #[test]
    fn a_receiver_is_told_what_it_asked_for_and_nothing_else() {
        for (kind, told) in [(Kind::Down, "a down"), (Kind::Clear, "a clear")] {
            let kinds = BTreeSet::from([kind]);
            let mut receiver = receiver(Manner { kinds, ..manner() });
            for _ in 0..3 {
                receiver.down("a");
                receiver.tell(Told::Yes);
                receiver.clear("a");
                receiver.tell(Told::Yes);
            }
            assert_eq!(receiver.has, [told; 3]);
        }
    }

    #[test]
    fn what_was_told_and_what_waits_outlives_the_gateway() {
        let mut stored = BTreeMap::new();
        let mut receiver = receiver(manner());
        receiver.down("told");
        receiver.tell(Told::Yes);
        receiver.down("waits");
        receiver.down("gone");
        receiver.clear("gone");
        let mut receiver = receiver.restarted(&mut stored);
        assert_eq!(receiver.clear("gone"), Taken::Known);
        receiver.clear("told");
        assert_eq!(receiver.tell(Told::Yes), ["waits down", "told clear"]);
        receiver.clear("waits");
        receiver.tell(Told::Yes);
        receiver.restarted(&mut stored);
        assert!(stored.is_empty(), "{stored:?}");
    }

    #[test]
    fn what_was_being_told_when_the_gateway_died_is_told_again_or_counts_where_its_opposite_waits()
    {
        for (meanwhile, then) in [(false, "a down"), (true, "a clear")] {
            let mut receiver = receiver(manner());
            receiver.down("a");
            receiver.ledger.begin(receiver.now).unwrap();
            if meanwhile {
                receiver.clear("a");
            }
            let mut receiver = receiver.restarted(&mut BTreeMap::new());
            assert_eq!(receiver.tell(Told::Yes), [then]);
        }
    }

    #[test]
    fn an_episode_that_is_its_own_subject_is_told_once_whatever_is_repeated_and_in_whichever_order()
    {
        let once = true;
        let mut receiver = receiver(Manner { once, ..manner() });
        receiver.down("a@1");
        receiver.tell(Told::Yes);
        receiver.clear("a@1");
        receiver.tell(Told::Yes);
        assert_eq!(receiver.clear("a@2"), Taken::Known);
        let mut receiver = receiver.restarted(&mut BTreeMap::new());
        for of in ["a@1", "a@2"] {
            assert_eq!(receiver.down(of), Taken::Known);
            assert_eq!(receiver.clear(of), Taken::Known);
        }
        receiver.down("a@3");
        assert_eq!(receiver.tell(Told::Yes), ["a@3 down"]);
    }

    #[test]
    fn subjects_and_ended_episodes_are_bounded() {
        let once = true;
        let mut receiver = receiver(Manner { once, ..manner() });
        for n in 0..SUBJECTS_MAX {
            assert_eq!(receiver.down(&n.to_string()), Taken::Waits);
        }
        assert_eq!(receiver.down("more"), Taken::Full);
        for n in 0..SUBJECTS_MAX {
            assert_eq!(receiver.clear(&n.to_string()), Taken::Cancels);
        }
        assert_eq!(receiver.ledger.ended.len(), ENDED_MAX);
        let stored = receiver.ledger.take_changes();
        let kept = stored.iter().filter(|(_, record)| record.is_some());
        assert_eq!(kept.count(), ENDED_MAX);
    }

    #[test]
    fn what_no_build_has_stored_is_nothing() {
        let mut receiver = receiver(manner());
        for record in ["", "[]", "{", r#"{"told":1}"#] {
            receiver.ledger.resume("a", record);
        }
        assert!(receiver.tell(Told::Yes).is_empty());
    }
}
