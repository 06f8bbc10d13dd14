//! The counters and histograms of one server, and the one match that feeds them from decisions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::Histogram;

use super::gateway::GatewayMetrics;
use super::gauges::STDIO;
use super::maker;
use super::page::{Page, Samples};
use super::tally::Tally;
use super::traces::Counts;
use crate::engine::decision::{Class, Decision, Direction, DropReason, Exchange, Queue};
use crate::engine::input::{End, Outcome};
use crate::wire::mcp::method;

/// Of connections' lives: a second to a week.
const LIFE: [f64; 9] = [
    1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 604_800.0,
];
/// Of calls, per server: the semantic conventions' range with fewer steps, for the bound of series per server.
const CALL: [f64; 8] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
/// The codes of our own that exist as labels, and whether from the start: a peer's mistakes appear at their first use.
/// Any other code is `other`.
const CODES: [(i64, &str, bool); 7] = [
    (-32_000, "-32000", true),
    (-32_002, "-32002", true),
    (-32_600, "-32600", false),
    (-32_601, "-32601", false),
    (-32_050, "-32050", true),
    (-32_051, "-32051", true),
    (-32_052, "-32052", true),
];
/// The methods that exist as labels: tools are what is called by far most often.
const METHODS: [&str; 2] = [method::TOOLS_CALL, OTHER];
/// The label of the transport that has sessions (R11).
const HTTP: &str = "http";
/// The errors of calls that exist as labels. Their kinds are on the gateway's own histogram: here they would be 17
/// series each.
const ERRORS: [&str; 2] = ["", "error"];
/// Of a label, what it has no value of its own for.
const OTHER: &str = "other";
/// As a code: nobody registered the channel of a message inside a `channels/incoming` (G11).
const UNKNOWN_CHANNEL: &str = "unknown_channel";

/// The counters of one server.
pub(super) struct Counters {
    gateway: Arc<GatewayMetrics>,
    attempts: Tally<1>,
    ended: Tally<2>,
    exchanges: Tally<1>,
    dropped: Tally<1>,
    repeated: Tally<0>,
    refused: Tally<1>,
    flushed: Tally<1>,
    accepted: Tally<0>,
    verdicts: Tally<1>,
    episodes: Tally<1>,
    renewed: Tally<0>,
    lives: Histogram,
    /// By direction, then class.
    carried: [[AtomicU64; 3]; 2],
    /// By method, then error; all but the first are made at their first use.
    calls: [[OnceLock<Histogram>; 2]; 2],
}

impl Counters {
    /// Makes them all, at 0. Of attempts and ends, the ones that this transport can have are shown from the start.
    pub(super) fn new(transport: &str, gateway: Arc<GatewayMetrics>) -> Self {
        let counters = Self {
            gateway,
            attempts: attempts(transport),
            ended: ended(transport),
            exchanges: shown(Exchange::ALL.map(Exchange::label)),
            dropped: shown(DropReason::ALL.map(DropReason::label)),
            repeated: Tally::new([([], true)]),
            refused: refused(),
            flushed: shown(Queue::ALL.map(Queue::label)),
            accepted: Tally::new([([], false)]),
            verdicts: Tally::new([true, false].map(|accepted| ([flag(accepted)], false))),
            episodes: shown(["down", "clear"]),
            // Of the transports only HTTP has sessions (R11).
            renewed: Tally::new((transport == HTTP).then_some(([], true))),
            lives: maker::unlabelled(&LIFE),
            carried: Default::default(),
            calls: Default::default(),
        };
        counters.calls(true, false);
        counters
    }

    /// Writes the families of all servers.
    pub(super) fn write(page: &mut Page<'_>) {
        page.counters(
            "tidegate_server_attempts_total",
            "Attempts by what became of them.",
            |row, samples| row.counters().attempts.show(["outcome"], samples),
        );
        page.counters(
            "tidegate_server_connections_ended_total",
            "Connections that ended, by whether they had lasted and by what ended them.",
            |row, samples| row.counters().ended.show(["lasted", "reason"], samples),
        );
        page.counters(
            "tidegate_server_exchanges_total",
            "Policy exchanges by how they settled.",
            |row, samples| row.counters().exchanges.show(["outcome"], samples),
        );
        page.counters(
            "tidegate_server_episodes_total",
            "Episodes that opened (down) and ended (clear).",
            |row, samples| row.counters().episodes.show(["edge"], samples),
        );
        page.counters(
            "tidegate_server_sessions_renewed_total",
            "Sessions that the server ended and that were renewed at once.",
            |row, samples| row.counters().renewed.show([], samples),
        );
        page.histograms(
            "tidegate_server_epoch_duration_seconds",
            "How long connections lived, from the completed handshake on.",
            |row, samples| samples.times([], &row.counters().lives),
        );
        Self::write_traffic(page);
    }

    fn write_traffic(page: &mut Page<'_>) {
        page.counters(
            "tidegate_server_messages_total",
            "Messages read from and written to the server.",
            |row, samples| row.counters().show_carried(samples),
        );
        page.counters(
            "tidegate_server_messages_dropped_total",
            "Messages dropped by reason.",
            |row, samples| row.counters().dropped.show(["reason"], samples),
        );
        page.counters(
            "tidegate_server_messages_repeated_total",
            "World messages that came again and were answered as the first time.",
            |row, samples| row.counters().repeated.show([], samples),
        );
        page.counters(
            "tidegate_server_messages_refused_total",
            "Requests answered with an error of the gateway's own, and messages refused one by one (unknown_channel).",
            |row, samples| row.counters().refused.show(["code"], samples),
        );
        page.counters(
            "tidegate_server_messages_flushed_total",
            "Messages admitted after they had waited.",
            |row, samples| row.counters().flushed.show(["queue"], samples),
        );
        page.counters(
            "tidegate_server_messages_accepted_total",
            "World requests that the gateway accepted for the host.",
            |row, samples| row.counters().accepted.show([], samples),
        );
        page.counters(
            "tidegate_server_verdicts_total",
            "Answers of hosts to what the gateway had accepted for them.",
            |row, samples| row.counters().verdicts.show(["accepted"], samples),
        );
        page.histograms(
            "mcp_client_operation_duration_seconds",
            "Time from a host's request to this server's answer.",
            |row, samples| row.counters().show_calls(samples),
        );
    }

    fn show_carried(&self, samples: &mut Samples<'_>) {
        for (direction, counts) in Direction::ALL.into_iter().zip(&self.carried) {
            for (class, count) in Class::ALL.into_iter().zip(counts) {
                let labels = [("class", class.label()), ("direction", direction.label())];
                samples.count(labels, count.load(Ordering::Relaxed));
            }
        }
    }

    fn show_calls(&self, samples: &mut Samples<'_>) {
        for (method, by_error) in METHODS.into_iter().zip(&self.calls) {
            for (error, calls) in ERRORS.into_iter().zip(by_error) {
                if let Some(calls) = calls.get() {
                    samples.times([("error_type", error), ("mcp_method_name", method)], calls);
                }
            }
        }
    }

    /// Counts one decision.
    pub(super) fn count(&self, decision: &Decision) {
        match decision {
            Decision::Carried { direction, class } => self.carry(*direction, *class),
            Decision::Called {
                id: _,
                method,
                took,
                error,
            } => self.call(method, *took, error.as_deref()),
            Decision::Adopted { took, .. } => self.adopted(*took),
            Decision::AttemptFailed { outcome, .. } => self.attempts.add([outcome.label()], 1),
            Decision::Ended {
                end, lasted, lived, ..
            } => self.end(end, *lasted, *lived),
            Decision::Settled { outcome, took, .. } => self.settle(*outcome, *took),
            Decision::SessionRenewed { .. } => self.renewed.add([], 1),
            Decision::Down { .. } => self.episodes.add(["down"], 1),
            Decision::Clear { .. } => self.episodes.add(["clear"], 1),
            Decision::Dropped { reason, count, .. } => {
                self.dropped.add([reason.label()], *count);
            }
            Decision::Repeated { messages, .. } => self.repeated.add([], *messages),
            Decision::UnknownChannel { messages, .. } => {
                self.refused.add([UNKNOWN_CHANNEL], *messages);
            }
            Decision::RefusedMessage { code, .. } => self.refused.add([code_label(*code)], 1),
            Decision::Flushed { queue, messages } => {
                self.flushed.add([queue.label()], *messages);
            }
            Decision::Accepted { .. } => self.accepted.add([], 1),
            Decision::Verdict { agrees, .. } => self.verdicts.add([flag(*agrees)], 1),
            Decision::HoldLifted { held_for, .. } => self.gateway.hold(*held_for),
            // These are gauges, or the text of the decisions above.
            Decision::State(_)
            | Decision::Dialing { .. }
            | Decision::Connected { .. }
            | Decision::ShortEnd { .. }
            | Decision::Waiting { .. }
            | Decision::Manifest { .. }
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
            | Decision::AnsweredLate { .. }
            | Decision::Reported(_) => {}
        }
    }

    /// How far the counts are that an epoch's trace tells.
    pub(super) fn counts(&self) -> Counts {
        let sum = |counts: &[AtomicU64; 3]| counts.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        let [from_server, to_server] = &self.carried;
        Counts {
            from_server: sum(from_server),
            to_server: sum(to_server),
            held: self.flushed.count([Queue::Held.label()]),
            dropped: self.dropped.total(),
        }
    }

    fn carry(&self, direction: Direction, class: Class) {
        let [requests, notifications, responses] = match (direction, &self.carried) {
            (Direction::FromServer, [from, _]) => from,
            (Direction::ToServer, [_, to]) => to,
        };
        let count = match class {
            Class::Request => requests,
            Class::Notification => notifications,
            Class::Response => responses,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn call(&self, name: &str, took: Duration, error: Option<&str>) {
        let seconds = took.as_secs_f64();
        let tools = name == method::TOOLS_CALL;
        self.calls(tools, error.is_some()).observe(seconds);
        let name = if tools { method::TOOLS_CALL } else { OTHER };
        self.gateway.call(name, error, seconds);
    }

    fn calls(&self, tools: bool, failed: bool) -> &Histogram {
        let [of_tools, others] = &self.calls;
        let [answered, in_error] = if tools { of_tools } else { others };
        let calls = if failed { in_error } else { answered };
        calls.get_or_init(|| maker::unlabelled(&CALL))
    }

    fn adopted(&self, took: Duration) {
        self.attempts.add([Outcome::Adopted.label()], 1);
        self.gateway.dial(took);
    }

    fn end(&self, end: &End, lasted: bool, lived: Duration) {
        self.ended.add([flag(lasted), end.label()], 1);
        self.lives.observe(lived.as_secs_f64());
    }

    fn settle(&self, outcome: Exchange, took: Duration) {
        self.exchanges.add([outcome.label()], 1);
        self.gateway.exchange(took);
    }
}

fn attempts(transport: &str) -> Tally<1> {
    Tally::new(Outcome::ALL.map(|outcome| {
        let legal = match outcome {
            Outcome::Spawn => transport == STDIO,
            Outcome::Auth => transport != STDIO,
            Outcome::Adopted
            | Outcome::Refused
            | Outcome::Timeout
            | Outcome::Handshake
            | Outcome::Version => true,
        };
        ([outcome.label()], legal)
    }))
}

fn ended(transport: &str) -> Tally<2> {
    Tally::new(End::LABELS.into_iter().flat_map(|reason| {
        let legal = match reason {
            "exit" | "signal" => transport == STDIO,
            // A launched server is probed only where that is configured (R12).
            "liveness" => transport != STDIO,
            "ws_close" => transport == "websocket",
            // Shown from their first use, for the bound of series per server.
            "http" | "session" => false,
            _ => true,
        };
        [true, false].map(|lasted| ([flag(lasted), reason], legal))
    }))
}

fn refused() -> Tally<1> {
    let known = CODES.map(|(_, code, shown)| ([code], shown));
    let rare = [OTHER, UNKNOWN_CHANNEL].map(|code| ([code], false));
    Tally::new(known.into_iter().chain(rare))
}

fn shown<const M: usize>(values: [&'static str; M]) -> Tally<1> {
    Tally::new(values.map(|value| ([value], true)))
}

fn flag(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

/// A code as it is counted.
pub(super) fn code_label(code: i64) -> &'static str {
    let known = CODES.into_iter().find(|(known, ..)| *known == code);
    known.map_or(OTHER, |(_, label, _)| label)
}
