//! The counters and histograms of one server, and the one match that feeds them from decisions.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::gateway::GatewayMetrics;
use super::maker::Maker;
use crate::engine::decision::{Class, Decision, Direction, DropReason, Exchange, Queue};
use crate::engine::input::{End, Outcome};
use crate::wire::mcp::method;

/// The transport of a launched server.
const STDIO: &str = "stdio";
/// Of connections' lives: a second to a week.
const LIFE: [f64; 9] = [
    1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 604_800.0,
];
/// Of calls, per server: the semantic conventions' range with fewer steps, for the bound of series per server.
const CALL: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// The codes of our own that exist as labels; any other is `other`.
const CODES: [(i64, &str); 7] = [
    (-32_000, "-32000"),
    (-32_002, "-32002"),
    (-32_600, "-32600"),
    (-32_601, "-32601"),
    (-32_050, "-32050"),
    (-32_051, "-32051"),
    (-32_052, "-32052"),
];

/// The counters of one server.
pub(super) struct Counters {
    gateway: Arc<GatewayMetrics>,
    attempts: IntCounterVec,
    ended: IntCounterVec,
    exchanges: IntCounterVec,
    dropped: IntCounterVec,
    refused: IntCounterVec,
    flushed: IntCounterVec,
    episodes: IntCounterVec,
    lives: Histogram,
    /// By direction, then class: looked up once, for every message is counted.
    carried: [[IntCounter; 3]; 2],
    calls: HistogramVec,
    /// The child of `calls` that nearly every call goes to.
    tool_calls: Histogram,
}

impl Counters {
    /// Makes them all, at 0. Of attempts and ends, the ones that this transport can have.
    pub(super) fn new(
        maker: &mut Maker<'_>,
        transport: &str,
        gateway: Arc<GatewayMetrics>,
    ) -> Self {
        let calls = maker.histograms(
            "mcp_client_operation_duration_seconds",
            "Time from a host's request to this server's answer.",
            &["mcp_method_name", "error_type"],
            &CALL,
        );
        Self {
            gateway,
            attempts: attempts(maker, transport),
            ended: ended(maker, transport),
            exchanges: maker.counters(
                "tidegate_server_exchanges_total",
                "Policy exchanges by how they settled.",
                ["outcome"],
                Exchange::ALL.map(|outcome| [outcome.label()]),
            ),
            dropped: maker.counters(
                "tidegate_server_messages_dropped_total",
                "Messages dropped by reason.",
                ["reason"],
                DropReason::ALL.map(|reason| [reason.label()]),
            ),
            refused: maker.counters(
                "tidegate_server_messages_refused_total",
                "Requests answered with an error of the gateway's own.",
                ["code"],
                CODES.map(|(_, code)| [code]),
            ),
            flushed: maker.counters(
                "tidegate_server_messages_flushed_total",
                "Messages admitted after they had waited.",
                ["queue"],
                Queue::ALL.map(|queue| [queue.label()]),
            ),
            episodes: maker.counters(
                "tidegate_server_episodes_total",
                "Episodes that opened (down) and ended (clear).",
                ["edge"],
                [["down"], ["clear"]],
            ),
            lives: maker.histogram(
                "tidegate_server_epoch_duration_seconds",
                "How long connections lived, from the completed handshake on.",
                &LIFE,
            ),
            carried: carried(maker),
            tool_calls: calls.with_label_values(&[method::TOOLS_CALL, ""]),
            calls,
        }
    }

    /// Counts one decision.
    pub(super) fn count(&self, decision: &Decision) {
        match decision {
            Decision::Carried { direction, class } => self.carry(*direction, *class),
            Decision::Called {
                method,
                took,
                error,
            } => self.call(method, *took, error.as_deref()),
            Decision::Adopted { took, .. } => self.adopted(*took),
            Decision::AttemptFailed { outcome, .. } => add(&self.attempts, [outcome.label()], 1),
            Decision::Ended {
                end, lasted, lived, ..
            } => self.end(end, *lasted, *lived),
            Decision::Settled { outcome, took, .. } => self.settle(*outcome, *took),
            Decision::Down { .. } => add(&self.episodes, ["down"], 1),
            Decision::Clear { .. } => add(&self.episodes, ["clear"], 1),
            Decision::Dropped { reason, count, .. } => {
                add(&self.dropped, [reason.label()], *count);
            }
            Decision::RefusedMessage { code, .. } => add(&self.refused, [code_label(*code)], 1),
            Decision::Flushed { queue, messages } => {
                add(&self.flushed, [queue.label()], *messages);
            }
            Decision::HoldLifted { held_for, .. } => self.gateway.hold(*held_for),
            // These are gauges, or the text of the decisions above.
            Decision::State(_)
            | Decision::Dialing { .. }
            | Decision::ShortEnd { .. }
            | Decision::Waiting { .. }
            | Decision::Lasted { .. }
            | Decision::Halted { .. }
            | Decision::Refused { .. }
            | Decision::Kept { .. }
            | Decision::HostAttached
            | Decision::HostServes { .. }
            | Decision::HostDetached
            | Decision::Paused(_)
            | Decision::Noise { .. }
            | Decision::Stderr(_)
            | Decision::Orphaned { .. }
            | Decision::Reported(_) => {}
        }
    }

    fn carry(&self, direction: Direction, class: Class) {
        let [requests, notifications, responses] = match (direction, &self.carried) {
            (Direction::FromServer, [from, _]) => from,
            (Direction::ToServer, [_, to]) => to,
        };
        match class {
            Class::Request => requests.inc(),
            Class::Notification => notifications.inc(),
            Class::Response => responses.inc(),
        }
    }

    fn call(&self, name: &str, took: Duration, error: Option<&str>) {
        let seconds = took.as_secs_f64();
        let name = method_label(name);
        if name == method::TOOLS_CALL && error.is_none() {
            self.tool_calls.observe(seconds);
        } else {
            // The kinds of errors are on the gateway's own histogram: here they would be 17 series each.
            let error = error.map_or("", |_| "error");
            let child = self.calls.with_label_values(&[name, error]);
            child.observe(seconds);
        }
        self.gateway.call(name, error, seconds);
    }

    fn adopted(&self, took: Duration) {
        add(&self.attempts, [Outcome::Adopted.label()], 1);
        self.gateway.dial(took);
    }

    fn end(&self, end: &End, lasted: bool, lived: Duration) {
        add(&self.ended, [flag(lasted), end.label()], 1);
        self.lives.observe(lived.as_secs_f64());
    }

    fn settle(&self, outcome: Exchange, took: Duration) {
        add(&self.exchanges, [outcome.label()], 1);
        self.gateway.exchange(took);
    }
}

fn attempts(maker: &mut Maker<'_>, transport: &str) -> IntCounterVec {
    let legal = Outcome::ALL.into_iter().filter(|outcome| match outcome {
        Outcome::Spawn => transport == STDIO,
        Outcome::Auth => transport != STDIO,
        Outcome::Adopted
        | Outcome::Refused
        | Outcome::Timeout
        | Outcome::Handshake
        | Outcome::Version => true,
    });
    maker.counters(
        "tidegate_server_attempts_total",
        "Attempts by what became of them.",
        ["outcome"],
        legal.map(|outcome| [outcome.label()]),
    )
}

fn ended(maker: &mut Maker<'_>, transport: &str) -> IntCounterVec {
    let legal = End::LABELS.into_iter().filter(|label| match *label {
        "exit" | "signal" => transport == STDIO,
        "ws_close" => transport == "websocket",
        "http" => transport == "http",
        _ => true,
    });
    maker.counters(
        "tidegate_server_connections_ended_total",
        "Connections that ended, by whether they had lasted and by what ended them.",
        ["lasted", "reason"],
        legal.flat_map(|reason| [true, false].map(|lasted| [flag(lasted), reason])),
    )
}

fn carried(maker: &mut Maker<'_>) -> [[IntCounter; 3]; 2] {
    let counters = maker.counters(
        "tidegate_server_messages_total",
        "Messages read from and written to the server.",
        ["direction", "class"],
        [],
    );
    Direction::ALL.map(|direction| {
        Class::ALL.map(|class| counters.with_label_values(&[direction.label(), class.label()]))
    })
}

fn add<const N: usize>(counters: &IntCounterVec, labels: [&str; N], count: u64) {
    counters.with_label_values(&labels).inc_by(count);
}

fn flag(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

fn code_label(code: i64) -> &'static str {
    let known = CODES.into_iter().find(|(known, _)| *known == code);
    known.map_or("other", |(_, label)| label)
}

/// Tools are what is called by far most often; every other method is one label.
fn method_label(name: &str) -> &'static str {
    if name == method::TOOLS_CALL {
        method::TOOLS_CALL
    } else {
        "other"
    }
}
