//! How often one server's decisions that a peer can cause at will are told: the first of each kind in a minute are, and
//! the rest is counted and told as one number when the minute is over. So a peer that floods fills neither a disk nor
//! the event stream. What is counted elsewhere, and what others hear, is every one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counters::code_label;
use crate::engine::decision::Decision;

/// How many of one sort are told in a window.
pub(super) const TOLD_MAX: u64 = 100;
/// How long a window is, from the first of its sort on.
pub(super) const WINDOW: Duration = Duration::from_mins(1);

/// A kind of decision, and what of it: both of closed sets, so that their number is bounded.
type Sort = (&'static str, &'static str);

/// What was not told of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) sort: Sort,
    /// How many decisions.
    pub(super) decisions: u64,
    /// How many messages or lines they were about.
    pub(super) messages: u64,
}

/// The windows of one server.
#[derive(Debug, Default)]
pub(super) struct Flood(Mutex<BTreeMap<Sort, Window>>);

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    told: u64,
    decisions: u64,
    messages: u64,
}

impl Flood {
    /// Whether a decision is told; where not, it is counted.
    pub(super) fn admits(&self, decision: &Decision, now: Instant) -> bool {
        let Some((what, messages)) = sort(decision) else {
            return true;
        };
        let mut windows = self.windows();
        let window = windows.entry((decision.kind(), what)).or_insert(Window {
            since: now,
            told: 0,
            decisions: 0,
            messages: 0,
        });
        if window.told < TOLD_MAX {
            window.told += 1;
            return true;
        }
        window.decisions += 1;
        window.messages += messages;
        false
    }

    /// Ends the windows whose time is over, or all of them; what was not told in them.
    pub(super) fn end_windows(&self, now: Option<Instant>) -> Vec<LeftOut> {
        let is_over = |window: &Window| {
            now.is_none_or(|now| now.saturating_duration_since(window.since) >= WINDOW)
        };
        let mut windows = self.windows();
        let over = windows.extract_if(.., |_, window| is_over(window));
        let left_out = over.map(|(sort, window)| LeftOut {
            sort,
            decisions: window.decisions,
            messages: window.messages,
        });
        left_out.filter(|left| left.decisions > 0).collect()
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<Sort, Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What sort a decision is of, where a peer can cause it as often as it likes, and how many messages it is about.
fn sort(decision: &Decision) -> Option<(&'static str, u64)> {
    match decision {
        Decision::Dropped { reason, count, .. } => Some((reason.label(), *count)),
        Decision::Repeated { messages, .. } | Decision::UnknownChannel { messages, .. } => {
            Some(("", *messages))
        }
        Decision::RefusedMessage { code, .. } => Some((code_label(*code), 1)),
        Decision::Flushed { queue, messages } => Some((queue.label(), *messages)),
        Decision::HoldLifted { hold, .. } => Some((hold.label(), 1)),
        Decision::Settled { outcome, .. } => Some((outcome.label(), 1)),
        Decision::Accepted { .. }
        | Decision::Verdict { .. }
        | Decision::HostAttached
        | Decision::HostServes { .. }
        | Decision::HostDetached
        | Decision::Stderr(_)
        | Decision::Orphaned { .. }
        | Decision::AnsweredLate { .. }
        | Decision::Reported(_) => Some(("", 1)),
        // Traffic is told nowhere; the rest comes as often as its server's connections, or an operator.
        Decision::Carried { .. }
        | Decision::Called { .. }
        | Decision::State(_)
        | Decision::Dialing { .. }
        | Decision::Connected { .. }
        | Decision::Adopted { .. }
        | Decision::AttemptFailed { .. }
        | Decision::Ended { .. }
        | Decision::ShortEnd { .. }
        | Decision::Waiting { .. }
        | Decision::Manifest { .. }
        | Decision::SessionRenewed { .. }
        | Decision::Lasted { .. }
        | Decision::Down { .. }
        | Decision::Clear { .. }
        | Decision::Halted { .. }
        | Decision::Refused { .. }
        | Decision::Kept { .. }
        | Decision::Paused(_)
        | Decision::Noise { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::decision::DropReason;

    fn dropped(reason: DropReason) -> Decision {
        Decision::Dropped {
            reason,
            method: String::new(),
            count: 3,
        }
    }

    #[test]
    fn the_first_of_each_sort_are_told_and_the_rest_is_counted() {
        let (flood, now) = (Flood::default(), Instant::now());
        let told = |decision: &Decision| {
            (0..TOLD_MAX + 7)
                .filter(|_| flood.admits(decision, now))
                .count() as u64
        };
        assert_eq!(told(&dropped(DropReason::Unmatched)), TOLD_MAX);
        assert_eq!(told(&dropped(DropReason::HeldFull)), TOLD_MAX);
        assert_eq!(told(&Decision::Stderr("line".into())), TOLD_MAX);
        let almost = now + WINDOW - Duration::from_millis(1);
        assert!(flood.end_windows(Some(almost)).is_empty());
        let left = flood.end_windows(Some(now + WINDOW));
        let of = |kind, what, messages| LeftOut {
            sort: (kind, what),
            decisions: 7,
            messages,
        };
        let expected = [
            of("dropped", "held_full", 21),
            of("dropped", "unmatched", 21),
            of("stderr", "", 7),
        ];
        assert_eq!(left, expected);
        assert!(flood.admits(&dropped(DropReason::Unmatched), now));
        assert!(flood.end_windows(None).is_empty());
    }

    #[test]
    fn what_a_peer_cannot_repeat_at_will_is_always_told() {
        let (flood, now) = (Flood::default(), Instant::now());
        let down = Decision::Dialing { attempt: 1 };
        assert!((0..TOLD_MAX * 2).all(|_| flood.admits(&down, now)));
    }
}
