//! Makes metrics and registers them. Every name is a literal of this module's neighbours, so a failure here is a
//! mistake in the source, which their tests meet.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry,
};

/// Makes metrics for one owner: the gateway, or one server as a constant label.
pub(super) struct Maker<'a> {
    registry: &'a Registry,
    server: Option<&'a str>,
    made: Vec<Box<dyn Collector>>,
}

impl<'a> Maker<'a> {
    pub(super) fn for_gateway(registry: &'a Registry) -> Self {
        Self {
            registry,
            server: None,
            made: Vec::new(),
        }
    }

    pub(super) fn for_server(registry: &'a Registry, server: &'a str) -> Self {
        Self {
            registry,
            server: Some(server),
            made: Vec::new(),
        }
    }

    /// What was made, to unregister when its owner goes.
    pub(super) fn finish(self) -> Vec<Box<dyn Collector>> {
        self.made
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        let gauge = sound(Gauge::with_opts(self.opts(name, help)));
        self.keep(gauge)
    }

    pub(super) fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        let gauges = sound(GaugeVec::new(self.opts(name, help), labels));
        self.keep(gauges)
    }

    /// Counters of which these label values exist from the start, at 0.
    pub(super) fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        legal: impl IntoIterator<Item = [&'static str; N]>,
    ) -> IntCounterVec {
        let counters = sound(IntCounterVec::new(self.opts(name, help), &labels));
        for values in legal {
            counters.with_label_values(&values);
        }
        self.keep(counters)
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = self.histogram_opts(name, help, buckets);
        let histogram = sound(Histogram::with_opts(opts));
        self.keep(histogram)
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let opts = self.histogram_opts(name, help, buckets);
        let histograms = sound(HistogramVec::new(opts, labels));
        self.keep(histograms)
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(name, help);
        match self.server {
            Some(server) => opts.const_label("server", server),
            None => opts,
        }
    }

    fn histogram_opts(&self, name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
        HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec())
    }

    fn keep<C: Collector + Clone + 'static>(&mut self, collector: C) -> C {
        sound(self.registry.register(Box::new(collector.clone())));
        self.made.push(Box::new(collector.clone()));
        collector
    }
}

#[expect(
    clippy::expect_used,
    reason = "names, labels and buckets are literals, and one server registers once"
)]
fn sound<T>(result: prometheus::Result<T>) -> T {
    result.expect("a metric is declared soundly")
}
