//! Which requests of hosts are traced.

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};

use crate::wire::trace_context::Parent;

/// Which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of requests that no caller has decided about, from 0 to 1.
    pub ratio: f64,
    /// What a caller decided holds.
    pub parent_based: bool,
}

/// OpenTelemetry's default: every request that a caller does not leave out.
impl Default for Sampling {
    fn default() -> Self {
        Self {
            ratio: 1.0,
            parent_based: true,
        }
    }
}

impl Sampling {
    /// Whether any request can be recorded.
    pub(super) fn can_record(self) -> bool {
        self.parent_based || self.ratio > 0.0
    }

    /// Whether a request of this trace is recorded. Other services that go by a ratio decide the same of it.
    pub(super) fn records(self, trace: u128, parent: Option<Parent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.parent_based) {
            return parent.sampled;
        }
        let sampler = Sampler::TraceIdRatioBased(self.ratio);
        let trace = TraceId::from(trace);
        let result = sampler.should_sample(None, trace, "", &SpanKind::Server, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(sampled: bool) -> Option<Parent> {
        let (trace, span) = (1, 1);
        Some(Parent {
            trace,
            span,
            sampled,
        })
    }

    #[test]
    fn what_the_caller_decided_holds_where_callers_are_asked() {
        let none = Sampling {
            ratio: 0.0,
            parent_based: true,
        };
        assert!(none.records(1, parent(true)));
        assert!(!none.records(1, None));
        assert!(!Sampling::default().records(1, parent(false)));
        assert!(Sampling::default().records(u128::MAX, None));
        let always = Sampling {
            ratio: 1.0,
            parent_based: false,
        };
        assert!(always.records(1, parent(false)));
    }

    #[test]
    fn a_ratio_takes_about_its_share_and_decides_by_the_trace_alone() {
        let tenth = Sampling {
            ratio: 0.1,
            parent_based: false,
        };
        let mut random = fastrand::Rng::with_seed(1);
        let traces: Vec<u128> = std::iter::repeat_with(|| random.u128(..))
            .take(2000)
            .collect();
        let taken = |trace: &&u128| tenth.records(**trace, None);
        let first = traces.iter().filter(taken).count();
        assert!((120..280).contains(&first), "{first}");
        assert_eq!(traces.iter().filter(taken).count(), first);
    }
}
