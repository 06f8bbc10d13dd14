//! The servers' own series as text. Nothing of them is kept as a metric: counts are plain numbers, gauges are read from
//! snapshots, and both become families, one at a time, when somebody scrapes.

use prometheus::core::Metric as _;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Histogram, TextEncoder};

use super::Entry;
use super::counters::Counters;
use super::gauges::Instants;
use crate::engine::snapshot::Snapshot;

/// Label names with their values, without `server`.
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

/// The samples of one family.
pub(super) struct Samples<'a> {
    server: &'a str,
    metrics: Vec<Metric>,
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
        self.family(MetricType::COUNTER, name, help, of);
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        self.family(MetricType::GAUGE, name, help, of);
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        self.family(MetricType::HISTOGRAM, name, help, of);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn family(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        of: impl Fn(&Row<'_>, &mut Samples<'_>),
    ) {
        let mut metrics = Vec::new();
        for row in self.rows {
            let server = row.entry.observer.server.id.as_str();
            let mut samples = Samples { server, metrics };
            of(row, &mut samples);
            metrics = samples.metrics;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        family.set_metric(metrics);
        // A family without a sample is refused, and is no loss.
        let _ = TextEncoder::new().encode_utf8(&[family], &mut self.text);
    }
}

impl Samples<'_> {
    pub(super) fn gauge<const N: usize>(&mut self, labels: Labels<'_, N>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        self.push(labels, Metric::from_gauge(gauge));
    }

    #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
    pub(super) fn count<const N: usize>(&mut self, labels: Labels<'_, N>, value: u64) {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.push(labels, metric);
    }

    pub(super) fn times<const N: usize>(&mut self, labels: Labels<'_, N>, times: &Histogram) {
        self.push(labels, times.metric());
    }

    fn push<const N: usize>(&mut self, labels: Labels<'_, N>, mut metric: Metric) {
        let mut labels: Vec<_> = labels
            .into_iter()
            .chain([("server", self.server)])
            .collect();
        labels.sort_unstable();
        metric.set_label(labels.into_iter().map(pair).collect());
        self.metrics.push(metric);
    }
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}
