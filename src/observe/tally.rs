//! Counts of one family, by the label values that it can have. One addition costs one atomic operation.

use std::sync::atomic::{AtomicU64, Ordering};

use super::page::Samples;

/// Every combination of label values, and how often it was counted.
pub(super) struct Tally<const N: usize>(Box<[Count<N>]>);

struct Count<const N: usize> {
    values: [&'static str; N],
    /// It is shown at 0 too.
    shown: bool,
    count: AtomicU64,
}

impl<const N: usize> Tally<N> {
    /// All at 0; those that are `shown` exist from the start, the others from their first use.
    pub(super) fn new(values: impl IntoIterator<Item = ([&'static str; N], bool)>) -> Self {
        let counts = values.into_iter().map(|(values, shown)| Count {
            values,
            shown,
            count: AtomicU64::new(0),
        });
        Self(counts.collect())
    }

    /// Counts `more`; values that the family cannot have are nothing.
    pub(super) fn add(&self, values: [&str; N], more: u64) {
        if let Some(count) = self.0.iter().find(|count| count.values == values) {
            count.count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How often these values were counted.
    pub(super) fn count(&self, values: [&str; N]) -> u64 {
        let counted = self.0.iter().find(|count| count.values == values);
        counted.map_or(0, |count| count.count.load(Ordering::Relaxed))
    }

    /// The sum over all values.
    pub(super) fn total(&self) -> u64 {
        let counts = self.0.iter();
        counts
            .map(|count| count.count.load(Ordering::Relaxed))
            .sum()
    }

    /// What is shown, under these label names.
    pub(super) fn show(&self, names: [&'static str; N], samples: &mut Samples<'_>) {
        for count in &self.0 {
            let value = count.count.load(Ordering::Relaxed);
            if count.shown || value > 0 {
                let mut labels = names.map(|name| (name, ""));
                for (label, value) in labels.iter_mut().zip(count.values) {
                    label.1 = value;
                }
                samples.count(labels, value);
            }
        }
    }
}
