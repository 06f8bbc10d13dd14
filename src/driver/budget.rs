//! What all servers together may make the gateway hold and keep, shared fairly (G6, decision 0011). Half of it is split
//! evenly, each part one server's own; the other half is lent to whoever needs more, while it lasts. So a server that
//! floods never takes what is another's own. It knows bytes and nothing of messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lent and given back in steps of this, so that not every message moves the share.
const STEP: usize = 1 << 20;

/// The whole.
#[derive(Debug)]
pub(super) struct Budget {
    total: AtomicUsize,
    servers: AtomicUsize,
    lent: AtomicUsize,
}

impl Budget {
    /// So many bytes, of nobody yet.
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total: total.into(),
            servers: 0.into(),
            lent: 0.into(),
        })
    }

    /// Another total from now on. What was lent beyond it is not lent again.
    pub(super) fn set(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// One more server has a part, until its share is dropped.
    pub(super) fn join(self: &Arc<Self>) -> Share {
        self.servers.fetch_add(1, Ordering::Relaxed);
        Share {
            budget: Arc::clone(self),
            lent: 0,
        }
    }

    fn half(&self) -> usize {
        self.total.load(Ordering::Relaxed) / 2
    }

    /// The part of each server.
    fn own(&self) -> usize {
        self.half() / self.servers.load(Ordering::Relaxed).max(1)
    }

    /// Lends up to `bytes`; how many.
    fn lend(&self, bytes: usize) -> usize {
        let half = self.half();
        let more = |lent: usize| Some(lent + bytes.min(half.saturating_sub(lent)));
        let before = self
            .lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        before.map_or(0, |lent| bytes.min(half.saturating_sub(lent)))
    }

    fn take_back(&self, bytes: usize) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One server's part, and what it borrowed.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    lent: usize,
}

impl Share {
    /// Makes it so many bytes, as far as there are any to borrow, and gives back what is beyond them. Its bytes then.
    pub(super) fn reach(&mut self, bytes: usize) -> usize {
        let own = self.budget.own();
        let wanted = bytes.saturating_sub(own).next_multiple_of(STEP);
        if wanted > self.lent {
            self.lent += self.budget.lend(wanted - self.lent);
        } else if self.lent > wanted + STEP {
            self.budget.take_back(self.lent - wanted);
            self.lent = wanted;
        }
        own + self.lent
    }

    /// Whether it has borrowed anything.
    pub(super) fn borrows(&self) -> bool {
        self.lent > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.take_back(self.lent);
        self.budget.servers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g6_a_server_that_floods_never_takes_what_is_anothers_own() {
        let budget = Budget::new(64 * STEP);
        let (mut flood, mut calm) = (budget.join(), budget.join());
        let most = (1..100).map(|step| flood.reach(step * STEP)).last();
        assert_eq!(most, Some(48 * STEP), "its own 16 and all 32 that are lent");
        assert_eq!(calm.reach(STEP), 16 * STEP);
        assert_eq!(
            calm.reach(20 * STEP),
            16 * STEP,
            "nothing is left to borrow"
        );
        assert_eq!(flood.reach(0), 16 * STEP);
        assert!(!flood.borrows());
        assert_eq!(calm.reach(20 * STEP), 20 * STEP);
    }

    #[test]
    fn g6_what_is_lent_comes_back_with_the_share_and_in_steps() {
        let budget = Budget::new(8 * STEP);
        let mut one = budget.join();
        assert_eq!(one.reach(4 * STEP + 1), 5 * STEP);
        assert_eq!(one.reach(4 * STEP), 5 * STEP, "one step is kept");
        assert_eq!(one.reach(6 * STEP), 6 * STEP);
        assert_eq!(one.reach(4 * STEP), 4 * STEP);
        one.reach(8 * STEP);
        drop(one);
        let mut other = budget.join();
        assert_eq!(other.reach(100 * STEP), 8 * STEP);
    }

    #[test]
    fn g6_another_total_or_number_of_servers_counts_from_the_next_message_on() {
        let budget = Budget::new(8 * STEP);
        let mut one = budget.join();
        assert_eq!(one.reach(usize::MAX / 2), 8 * STEP);
        let _others = [budget.join(), budget.join(), budget.join()];
        assert_eq!(one.reach(usize::MAX / 2), 5 * STEP);
        budget.set(4 * STEP);
        let mut two = budget.join();
        assert_eq!(two.reach(8 * STEP), 2 * STEP / 5, "nothing is lent twice");
        budget.set(0);
        assert_eq!(two.reach(8 * STEP), 0);
    }
}
