//! The gateway's own short operations as `tracing` spans, which `tracing-opentelemetry` hands to the exporter of all
//! other spans. Nothing else that is logged comes this way, and none of these spans is in the log.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SdkTracerProvider, Span as Begun, SpanData, SpanProcessor,
};
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, Span, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use super::exporter::Exporter;
use super::span;

/// The target of these spans and of nothing else.
const TARGET: &str = "tidegate::trace";

/// What takes these spans out of the process's subscriber.
pub(in crate::observe) type Operations = Box<dyn Layer<Registry> + Send + Sync>;

/// One operation that is awaited in one go. Its span ends with its work, also where that is given up.
#[derive(Debug)]
#[must_use]
pub struct Operation(Span);

impl Operation {
    /// The configuration is read again and applied.
    pub fn reload() -> Self {
        Self(info_span!(
            target: TARGET, "config reload", tidegate.outcome = Empty, otel.status_code = Empty
        ))
    }

    /// An operator's control: `restart`, `recycle`, `pause`, `resume`.
    pub fn control(verb: &str) -> Self {
        Self(info_span!(
            target: TARGET, "control",
            tidegate.control = verb, tidegate.server = Empty, tidegate.outcome = Empty,
            otel.status_code = Empty
        ))
    }

    /// One try to tell an edge to a `status_channel` or `webhook`.
    pub fn notice(outlet: &str) -> Self {
        Self(info_span!(
            target: TARGET, "notice",
            tidegate.outlet = outlet, tidegate.server = Empty, tidegate.outcome = Empty,
            otel.status_code = Empty, otel.kind = "client"
        ))
    }

    /// Which configured server it is about.
    pub fn server(&self, server: &str) {
        self.0.record(span::key::SERVER, server);
    }

    /// Does its work.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        work.instrument(self.0.clone()).await
    }

    /// What came of it.
    pub fn ended(self, outcome: &str, failed: bool) {
        self.0.record(span::key::OUTCOME, outcome);
        if failed {
            self.0.record("otel.status_code", "error");
        }
    }
}

/// Everything but these spans, for the log.
pub(in crate::observe) fn others() -> Targets {
    let all = Targets::new().with_default(LevelFilter::TRACE);
    all.with_target(TARGET, LevelFilter::OFF)
}

/// The layer for these spans alone. All are sampled: they are few, and nobody's request.
pub(super) fn layer(exporter: Arc<Exporter>) -> Operations {
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(Resource::builder_empty().build())
        .with_span_processor(Processor(exporter))
        .build();
    let scope = InstrumentationScope::builder("tidegate").with_version(env!("CARGO_PKG_VERSION"));
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope.build()))
        .with_context_activation(false)
        .with_tracked_inactivity(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO))
        .boxed()
}

/// Puts a span that ended among all others. The exporter is stopped by its owner.
#[derive(Debug)]
struct Processor(Arc<Exporter>);

impl SpanProcessor for Processor {
    fn on_start(&self, _span: &mut Begun, _context: &opentelemetry::Context) {}

    fn on_end(&self, mut span: SpanData) {
        // Both are the wall clock's, which may have been set meanwhile.
        span.end_time = span.end_time.max(span.start_time);
        self.0.export(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _within: Duration) -> OTelSdkResult {
        Ok(())
    }
}
