//! Where messages wait outside their lane, each for something that it lacks, and which channels they keep waiting (G9,
//! G11, G12). It holds their places, never the messages.

use std::collections::{BTreeMap, BTreeSet};

use super::Seq;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Parking {
    /// By what they wait for.
    groups: BTreeMap<Box<str>, Group>,
    /// Channels that they name, with what those wait for.
    blocked: BTreeMap<String, Box<str>>,
}

/// Messages that wait for the same.
#[derive(Debug, Default)]
struct Group {
    seqs: BTreeSet<Seq>,
    blocks: Vec<String>,
}

impl Parking {
    /// A message waits for that.
    pub(super) fn enter(&mut self, what: &str, seq: Seq) {
        let group = self.groups.entry(what.into()).or_default();
        group.seqs.insert(seq);
    }

    /// None of those channels passes the messages that wait for that.
    pub(super) fn block(&mut self, what: &str, channels: Vec<String>) {
        let Some(group) = self.groups.get_mut(what) else {
            return;
        };
        for channel in channels {
            if !self.blocked.contains_key(&channel) {
                self.blocked.insert(channel.clone(), what.into());
                group.blocks.push(channel);
            }
        }
    }

    /// What the messages wait for that a later one of this channel must not pass.
    pub(super) fn blocks(&self, channel: &str) -> Option<&str> {
        self.blocked.get(channel).map(Box::as_ref)
    }

    /// A message waits no more; with the last of its group their channels are free.
    pub(super) fn leave(&mut self, what: &str, seq: Seq) {
        let Some(group) = self.groups.get_mut(what) else {
            return;
        };
        group.seqs.remove(&seq);
        if group.seqs.is_empty() {
            let gone = self.groups.remove(what).unwrap_or_default();
            for channel in gone.blocks {
                self.blocked.remove(&channel);
            }
        }
    }

    /// The messages that wait for something like that.
    pub(super) fn like(&self, like: impl Fn(&str) -> bool) -> Vec<Seq> {
        let groups = self.groups.iter().filter(|(what, _)| like(what));
        groups
            .flat_map(|(_, group)| group.seqs.iter().copied())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_a_channel_is_blocked_until_the_last_that_waits_for_the_same_has_left() {
        let mut parking = Parking::default();
        parking.enter("b", 1);
        parking.block("b", vec!["x".into(), "y".into()]);
        parking.enter("b", 2);
        parking.enter("c", 3);
        parking.block("c", vec!["y".into(), "z".into()]);
        assert_eq!(
            ["x", "y", "z"].map(|id| parking.blocks(id)),
            [Some("b"), Some("b"), Some("c")]
        );
        parking.leave("b", 1);
        assert_eq!(parking.blocks("x"), Some("b"));
        parking.leave("b", 2);
        assert_eq!(
            ["x", "y", "z"].map(|id| parking.blocks(id)),
            [None, None, Some("c")]
        );
        assert_eq!(parking.like(|_| true), [3]);
        parking.leave("c", 3);
        assert!(parking.groups.is_empty() && parking.blocked.is_empty());
    }
}
