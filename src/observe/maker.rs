//! Makes the gateway's metrics and registers them. Every name is a literal of this module's neighbours, so a failure
//! here is a mistake in the source, which their tests meet.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry,
};

/// Makes metrics for one registry.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

impl Maker<'_> {
    pub(super) fn gauge(&self, name: &str, help: &str) -> Gauge {
        let gauge = sound(Gauge::with_opts(Opts::new(name, help)));
        self.keep(gauge)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        let gauges = sound(GaugeVec::new(Opts::new(name, help), labels));
        self.keep(gauges)
    }

    /// Counters of which these label values exist from the start, at 0.
    pub(super) fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        legal: impl IntoIterator<Item = [&'static str; N]>,
    ) -> IntCounterVec {
        let counters = sound(IntCounterVec::new(Opts::new(name, help), &labels));
        for values in legal {
            counters.with_label_values(&values);
        }
        self.keep(counters)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = histogram_opts(name, help, buckets);
        let histogram = sound(Histogram::with_opts(opts));
        self.keep(histogram)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let opts = histogram_opts(name, help, buckets);
        let histograms = sound(HistogramVec::new(opts, labels));
        self.keep(histograms)
    }

    fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> C {
        sound(self.0.register(Box::new(collector.clone())));
        collector
    }
}

/// A histogram that is in no registry: its name and labels come with the page.
pub(super) fn unlabelled(buckets: &[f64]) -> Histogram {
    sound(Histogram::with_opts(histogram_opts(
        "unnamed", "None.", buckets,
    )))
}

fn histogram_opts(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(buckets.to_vec())
}

#[expect(
    clippy::expect_used,
    reason = "names, labels and buckets are literals, and each is registered once"
)]
fn sound<T>(result: prometheus::Result<T>) -> T {
    result.expect("a metric is declared soundly")
}
