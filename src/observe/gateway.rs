//! The metrics of the gateway itself: what belongs to no single server.

use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::Notice;
use super::gauges::{now, size};
use super::maker::Maker;
use super::traces::Drops;
use crate::wire::mcp::method;

/// The semantic conventions' steps for operations.
const OPERATION: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// Of waits for a peer.
const WAIT: [f64; 11] = [
    0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0,
];
/// Of the loop's lag.
const LAG: [f64; 7] = [0.000_1, 0.001, 0.01, 0.05, 0.25, 1.0, 5.0];
/// The errors that exist as labels; any other is `_OTHER`, as the semantic conventions have it.
const ERRORS: [&str; 9] = [
    "tool", "lost", "timeout", "not_sent", "-32700", "-32600", "-32601", "-32602", "-32603",
];
/// What can be dropped of telemetry, and why.
const DROPPED: [[&str; 2]; 8] = [
    ["log", "full"],
    ["events", "lagged"],
    ["status_channel", "refused"],
    ["webhook", "refused"],
    ["traces", "full"],
    ["traces", "failed"],
    ["traces", "timeout"],
    ["traces", "stopped"],
];
/// The faces whose sessions are counted.
const FACES: [&str; 3] = ["aggregate", "http", "websocket"];
/// Where down and clear are told.
const OUTLETS: [&str; 2] = ["status_channel", "webhook"];

/// The gateway's own metrics.
pub(super) struct GatewayMetrics {
    dials: Histogram,
    exchanges: Histogram,
    holds: Histogram,
    lag: Histogram,
    operations: HistogramVec,
    /// The child of `operations` that nearly every call goes to.
    tool_calls: Histogram,
    sessions: GaugeVec,
    sessions_opened: IntCounterVec,
    reload_successful: Gauge,
    reload_success_at: Gauge,
    reloads: IntCounterVec,
    journal_failing: Gauge,
    /// Bytes, and their bound.
    queued: [Gauge; 2],
    dropped: IntCounterVec,
    notices: IntCounterVec,
}

impl GatewayMetrics {
    /// Makes them all, at 0.
    pub(super) fn new(registry: &Registry, name: &str) -> Self {
        // A registry of our own takes it once.
        let _ = registry.register(Box::new(ProcessCollector::for_self()));
        let maker = &Maker(registry);
        build_info(maker, name);
        let operations = maker.histograms(
            "mcp_server_operation_duration_seconds",
            "Time from a host's request to its answer.",
            &["mcp_method_name", "error_type"],
            &OPERATION,
        );
        Self {
            dials: maker.histogram(
                "tidegate_dial_duration_seconds",
                "Time from a dial to the completed handshake.",
                &WAIT,
            ),
            exchanges: maker.histogram(
                "tidegate_exchange_duration_seconds",
                "Time from a policy Request to its settling.",
                &WAIT,
            ),
            holds: maker.histogram(
                "tidegate_hold_duration_seconds",
                "How long a plane's hold was on.",
                &WAIT,
            ),
            lag: maker.histogram(
                "tidegate_loop_lag_seconds",
                "How late the gateway's own loop woke.",
                &LAG,
            ),
            tool_calls: operations.with_label_values(&[method::TOOLS_CALL, ""]),
            operations,
            sessions: sessions(maker),
            sessions_opened: maker.counters(
                "tidegate_host_sessions_opened_total",
                "Sessions that hosts and clients opened.",
                ["face"],
                FACES.map(|face| [face]),
            ),
            reload_successful: maker.gauge(
                "tidegate_config_last_reload_successful",
                "1 if the configuration was usable when it was last loaded.",
            ),
            reload_success_at: maker.gauge(
                "tidegate_config_last_reload_success_timestamp_seconds",
                "When a usable configuration was last loaded.",
            ),
            reloads: maker.counters(
                "tidegate_config_reloads_total",
                "Loads of the configuration by what became of them.",
                ["outcome"],
                [["success"], ["failure"]],
            ),
            journal_failing: maker.gauge(
                "tidegate_journal_failing",
                "1 while the state directory cannot be written.",
            ),
            queued: queued(maker),
            dropped: dropped(maker),
            notices: notices(maker),
        }
    }

    pub(super) fn queued(&self, bytes: usize) {
        let [queued, _] = &self.queued;
        queued.set(size(bytes));
    }

    pub(super) fn queue_limit(&self, bytes: usize) {
        let [_, limit] = &self.queued;
        limit.set(size(bytes));
    }

    pub(super) fn dial(&self, took: Duration) {
        self.dials.observe(took.as_secs_f64());
    }

    pub(super) fn exchange(&self, took: Duration) {
        self.exchanges.observe(took.as_secs_f64());
    }

    pub(super) fn hold(&self, held_for: Duration) {
        self.holds.observe(held_for.as_secs_f64());
    }

    pub(super) fn lag(&self, late: Duration) {
        self.lag.observe(late.as_secs_f64());
    }

    /// `name` is a label already.
    pub(super) fn call(&self, name: &'static str, error: Option<&str>, seconds: f64) {
        if name == method::TOOLS_CALL && error.is_none() {
            return self.tool_calls.observe(seconds);
        }
        let error = error.map_or("", error_label);
        let child = self.operations.with_label_values(&[name, error]);
        child.observe(seconds);
    }

    pub(super) fn session_opened(&self, face: &'static str) {
        self.sessions.with_label_values(&[face]).inc();
        self.sessions_opened.with_label_values(&[face]).inc();
    }

    pub(super) fn session_closed(&self, face: &'static str) {
        self.sessions.with_label_values(&[face]).dec();
    }

    pub(super) fn reloaded(&self, usable: bool) {
        let outcome = if usable { "success" } else { "failure" };
        self.reloads.with_label_values(&[outcome]).inc();
        self.reload_successful.set(f64::from(u8::from(usable)));
        if usable {
            self.reload_success_at.set(now());
        }
    }

    pub(super) fn journal_failing(&self, failing: bool) {
        self.journal_failing.set(f64::from(u8::from(failing)));
    }

    /// An edge that is dropped is telemetry that is lost.
    pub(super) fn noticed(&self, outlet: &'static str, notice: Notice) {
        let labels = [outlet, notice.label()];
        self.notices.with_label_values(&labels).inc();
        if notice == Notice::Dropped {
            self.dropped.with_label_values(&[outlet, "refused"]).inc();
        }
    }

    /// A load failed after the last one that succeeded.
    pub(super) fn is_stale(&self) -> bool {
        let failures = self.reloads.with_label_values(&["failure"]).get();
        failures > 0 && self.reload_successful.get() == 0.0
    }

    /// Log lines that found their channel full.
    pub(super) fn lost_lines(&self, lines: u64) {
        let dropped = self.dropped.with_label_values(&["log", "full"]);
        dropped.inc_by(lines);
    }

    /// Spans that were dropped.
    pub(super) fn lost_spans(&self) -> Drops {
        let of = |reason| self.dropped.with_label_values(&["traces", reason]);
        Drops {
            full: of("full"),
            failed: of("failed"),
            timeout: of("timeout"),
            stopped: of("stopped"),
        }
    }

    /// Event streams whose reader fell out of the ring.
    pub(super) fn lagged_streams(&self) -> IntCounter {
        self.dropped.with_label_values(&["events", "lagged"])
    }
}

fn build_info(maker: &Maker<'_>, name: &str) {
    let labels = ["version", "revision", "rustc", "name"];
    let info = maker.gauges("tidegate_build_info", "What runs; always 1.", &labels);
    let unknown = "unknown";
    info.with_label_values(&[
        env!("CARGO_PKG_VERSION"),
        option_env!("TIDEGATE_REVISION").unwrap_or(unknown),
        option_env!("TIDEGATE_RUSTC").unwrap_or(unknown),
        name,
    ])
    .set(1.0);
}

fn dropped(maker: &Maker<'_>) -> IntCounterVec {
    maker.counters(
        "tidegate_telemetry_dropped_total",
        "Log lines, edges and spans that were dropped, and event streams that lost their place.",
        ["signal", "reason"],
        DROPPED,
    )
}

fn notices(maker: &Maker<'_>) -> IntCounterVec {
    let outcomes = |outlet| Notice::ALL.map(|notice| [outlet, notice.label()]);
    maker.counters(
        "tidegate_notices_total",
        "Edges told to status channels and webhooks, by what became of them.",
        ["outlet", "outcome"],
        OUTLETS.into_iter().flat_map(outcomes),
    )
}

fn queued(maker: &Maker<'_>) -> [Gauge; 2] {
    let bytes = maker.gauge(
        "tidegate_queued_bytes",
        "Bytes of messages that are held, kept or with a host, all servers together.",
    );
    let bound = maker.gauge(
        "tidegate_queued_max_bytes",
        "The bound of what is held and kept, all servers together: `maxQueuedBytes`.",
    );
    [bytes, bound]
}

fn sessions(maker: &Maker<'_>) -> GaugeVec {
    let help = "Open sessions of hosts and clients.";
    let sessions = maker.gauges("tidegate_host_sessions", help, &["face"]);
    for face in FACES {
        sessions.with_label_values(&[face]);
    }
    sessions
}

fn error_label(error: &str) -> &'static str {
    let known = ERRORS.into_iter().find(|known| *known == error);
    known.unwrap_or("_OTHER")
}
