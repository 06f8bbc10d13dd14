//! The servers' own series as text. Nothing of them is kept as a metric: counts are plain numbers, gauges are read from
//! snapshots, and both are written, family by family, when somebody scrapes.

use std::fmt::{Display, Write as _};

use prometheus::Histogram;
use prometheus::core::Metric as _;

use super::Entry;
use super::counters::Counters;
use super::gauges::Instants;
use crate::engine::snapshot::Snapshot;

/// Label names with their values, in the order of the names and without `server`.
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// What is known of one server at a scrape.
pub(super) struct Row<'a> {
    pub(super) entry: &'a Entry,
    pub(super) snapshot: &'a Snapshot,
}

impl Row<'_> {
    pub(super) fn counters(&self) -> &Counters {
        &self.entry.observer.server.counters
    }

    pub(super) fn instants(&self) -> &Instants {
        &self.entry.observer.server.instants
    }
}

/// The text so far, and the servers that each family is made of.
pub(super) struct Page<'a> {
    rows: &'a [Row<'a>],
    text: String,
}

/// Where the samples of one server in one family go.
pub(super) struct Samples<'a> {
    family: &'a str,
    server: &'a str,
    text: &'a mut String,
}

impl<'a> Page<'a> {
    /// Begins with `text`.
    pub(super) fn new(text: String, rows: &'a [Row<'a>]) -> Self {
        Self { rows, text }
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        self.family("counter", name, help, of);
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        self.family("gauge", name, help, of);
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        self.family("histogram", name, help, of);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// A family of which no server has a sample is left out whole.
    fn family(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        let before = self.text.len();
        // Writing to a string never fails.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let head = self.text.len();
        for row in self.rows {
            let server = row.entry.observer.server.id.as_str();
            let text = &mut self.text;
            let mut samples = Samples {
                family: name,
                server,
                text,
            };
            of(row, &mut samples);
        }
        if self.text.len() == head {
            self.text.truncate(before);
        }
    }
}

impl Samples<'_> {
    pub(super) fn gauge<const N: usize>(&mut self, labels: Labels<'_, N>, value: f64) {
        self.sample("", labels, None, value);
    }

    pub(super) fn count<const N: usize>(&mut self, labels: Labels<'_, N>, value: u64) {
        self.sample("", labels, None, value);
    }

    pub(super) fn times<const N: usize>(&mut self, labels: Labels<'_, N>, times: &Histogram) {
        let metric = times.metric();
        let histogram = metric.get_histogram();
        let count = histogram.get_sample_count();
        for bucket in histogram.get_bucket() {
            let bound = bucket.upper_bound().to_string();
            self.sample("_bucket", labels, Some(&bound), bucket.cumulative_count());
        }
        self.sample("_bucket", labels, Some("+Inf"), count);
        self.sample("_sum", labels, None, histogram.get_sample_sum());
        self.sample("_count", labels, None, count);
    }

    /// One line, its labels in order and `le` last. Names and values are of closed sets or ids, so nothing is escaped.
    fn sample<const N: usize>(
        &mut self,
        suffix: &str,
        labels: Labels<'_, N>,
        bound: Option<&str>,
        value: impl Display,
    ) {
        let text = &mut *self.text;
        extend(text, [self.family, suffix, "{"]);
        let own = [(SERVER, self.server)];
        let first = labels.iter().filter(|(name, _)| *name < SERVER);
        let last = labels.iter().filter(|(name, _)| *name > SERVER);
        let mut gap = "";
        for (name, value) in first.chain(&own).chain(last) {
            extend(text, [gap, name, "=\"", value, "\""]);
            gap = ",";
        }
        if let Some(bound) = bound {
            extend(text, [",le=\"", bound, "\""]);
        }
        // Writing to a string never fails.
        let _ = writeln!(text, "}} {value}");
    }
}

const SERVER: &str = "server";

fn extend<const N: usize>(text: &mut String, parts: [&str; N]) {
    parts.iter().for_each(|part| text.push_str(part));
}
