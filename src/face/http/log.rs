//! The events of one stream that are kept: those that no connection has taken yet, and those that one may ask for
//! again. It bounds nothing; `streams` forgets the oldest of all streams.

use std::collections::VecDeque;

use bytes::Bytes;

/// A message as an event of a stream.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its place among all events of the session.
    pub(super) at: u64,
    /// The message.
    pub(super) frame: Bytes,
    /// The server waits for an answer to it.
    pub(super) asks: bool,
}

/// The events of a stream, numbered from 1 as they are pushed.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The newest ones.
    events: VecDeque<Event>,
    /// The number of the newest, kept or not; 0 before the first.
    newest: u64,
    /// The number of the newest that the connection took.
    taken: u64,
}

impl Log {
    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
        self.newest += 1;
    }

    /// How many events were forgotten that the connection has yet to take; it is told of them once.
    pub(super) fn skip_lost(&mut self) -> u64 {
        let lost = self.forgotten().saturating_sub(self.taken);
        self.taken += lost;
        lost
    }

    /// The next event that the connection has not taken, with its number.
    pub(super) fn take(&mut self) -> Option<(u64, Bytes)> {
        let next = self.taken.max(self.forgotten()) + 1;
        let event = self.events.get(self.index(next)?)?;
        self.taken = next;
        Some((next, event.frame.clone()))
    }

    /// Has the events after that number be taken again; whether there was such an event.
    pub(super) fn rewind(&mut self, after: u64) -> bool {
        let is_known = after <= self.newest;
        if is_known {
            self.taken = after;
        }
        is_known
    }

    /// The oldest event that is kept, and whether it was taken.
    pub(super) fn oldest(&self) -> Option<(&Event, bool)> {
        let event = self.events.front()?;
        Some((event, self.taken > self.forgotten()))
    }

    /// Forgets the oldest event.
    pub(super) fn forget(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gives away the events that were not taken, and the duty to tell of those that were lost.
    pub(super) fn give(&mut self) -> (u64, VecDeque<Event>) {
        let first = self.index(self.taken + 1).unwrap_or_default();
        let lost = self.forgotten().saturating_sub(self.taken);
        let given = self.events.split_off(first.min(self.events.len()));
        // No connection saw the numbers of either.
        self.newest = self.taken;
        (lost, given)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of the newest event that is not kept any more.
    fn forgotten(&self) -> u64 {
        self.newest - self.events.len() as u64
    }

    fn index(&self, number: u64) -> Option<usize> {
        let before = number.checked_sub(self.forgotten() + 1)?;
        usize::try_from(before).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(at: u64) -> Event {
        let frame = Bytes::from(at.to_string());
        let asks = false;
        Event { at, frame, asks }
    }

    fn taken(log: &mut Log) -> Vec<(u64, String)> {
        std::iter::from_fn(|| log.take())
            .map(|(number, frame)| (number, String::from_utf8(frame.to_vec()).unwrap()))
            .collect()
    }

    #[test]
    fn what_nobody_took_is_given_away_and_what_was_taken_stays() {
        let mut log = Log::default();
        (1..=4).for_each(|at| log.push(event(at)));
        log.take();
        log.take();
        let given: Vec<u64> = log.give().1.iter().map(|event| event.at).collect();
        assert_eq!(given, [3, 4]);
        assert!(log.take().is_none() && log.give().1.is_empty());
        log.push(event(5));
        assert_eq!(taken(&mut log), [(3, "5".to_owned())]);
        assert!(log.rewind(0) && log.skip_lost() == 0);
        assert_eq!(taken(&mut log).len(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Steps: 0 to 3 push, 4 takes, 5 forgets the oldest, 6 resumes after some number that was seen.
        #[test]
        fn what_is_resumed_is_exactly_the_suffix_that_is_kept(
            steps in proptest::collection::vec((0_u8..7, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut log = Log::default();
            let (mut pushed, mut forgotten, mut cursor) = (0_u64, 0_u64, 0_u64);
            for (step, index) in steps {
                match step {
                    0..=3 => {
                        pushed += 1;
                        log.push(event(pushed));
                    }
                    4 => {
                        let next = cursor.max(forgotten) + 1;
                        let wanted = (next <= pushed).then_some(next);
                        let taken = log.take();
                        prop_assert_eq!(taken.as_ref().map(|(number, _)| *number), wanted);
                        if let Some((number, frame)) = taken {
                            prop_assert_eq!(frame, Bytes::from(number.to_string()));
                            cursor = number;
                        }
                    }
                    5 => {
                        let wanted = (forgotten < pushed).then_some(forgotten + 1);
                        let was_taken = log.oldest().map(|(_, taken)| taken);
                        prop_assert_eq!(was_taken, wanted.map(|number| number <= cursor));
                        prop_assert_eq!(log.forget().map(|event| event.at), wanted);
                        forgotten = wanted.unwrap_or(forgotten);
                    }
                    _ => {
                        let after = index.index(usize::try_from(pushed).unwrap() + 1) as u64;
                        prop_assert!(log.rewind(after) && !log.rewind(pushed + 1));
                        prop_assert_eq!(log.skip_lost(), forgotten.saturating_sub(after));
                        cursor = after.max(forgotten);
                    }
                }
                prop_assert_eq!(log.is_empty(), forgotten == pushed);
            }
            let rest: Vec<u64> = taken(&mut log).into_iter().map(|(number, _)| number).collect();
            let wanted: Vec<u64> = (cursor.max(forgotten) + 1..=pushed).collect();
            prop_assert_eq!(rest, wanted);
        }
    }
}
