//! The gauges of one server: each is a name, a help text and how it is read from a snapshot, when somebody scrapes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{Gauge, GaugeVec};

use super::maker::Maker;
use crate::engine::decision::{Decision, Hold, State};
use crate::engine::snapshot::{QueueView, Snapshot};

type Read = fn(&Snapshot) -> f64;
type ReadTime = fn(&Snapshot, f64) -> f64;
type ReadQueue = fn(&QueueView) -> f64;
type Which = fn(&Snapshot) -> QueueView;

/// Read as they are.
const PLAIN: [(&str, &str, Read); 12] = [
    (
        "tidegate_server_connected",
        "1 while the handshake is done and the transport serves; not \"recovered\".",
        |s| flag(s.connected),
    ),
    (
        "tidegate_server_failed_attempts",
        "Failed attempts since a connection last lasted.",
        |s| count(s.failed_attempts),
    ),
    (
        "tidegate_server_down_after_attempts",
        "The server is down when more attempts than this have failed.",
        |s| count(s.down_after_attempts),
    ),
    (
        "tidegate_server_connection_age_seconds",
        "Age of the open connection on the monotonic clock; 0 when there is none.",
        |s| s.connection_age.as_secs_f64(),
    ),
    (
        "tidegate_server_lasting_threshold_seconds",
        "A connection has lasted at this age.",
        |s| s.lasting_threshold.as_secs_f64(),
    ),
    (
        "tidegate_server_down",
        "1 while an episode is open: the server is down.",
        |s| flag(s.episode.is_some()),
    ),
    (
        "tidegate_server_backoff_seconds",
        "The wait that runs before the next attempt; 0 when none does.",
        |s| s.backoff.map_or(0.0, |backoff| backoff.wait.as_secs_f64()),
    ),
    (
        "tidegate_server_held_bytes",
        "Bytes held until their plane opens.",
        |s| size(s.held.bytes),
    ),
    (
        "tidegate_server_held_oldest_age_seconds",
        "How long the oldest held message has waited.",
        |s| s.held.oldest.as_secs_f64(),
    ),
    (
        "tidegate_server_kept_bytes",
        "Bytes kept across the loss of their connection.",
        |s| size(s.kept.bytes),
    ),
    (
        "tidegate_server_kept_oldest_age_seconds",
        "How long the oldest kept message has waited.",
        |s| s.kept.oldest.as_secs_f64(),
    ),
    (
        "tidegate_requests_in_flight",
        "Forwarded requests that are not answered yet, either way.",
        |s| size(s.in_flight),
    ),
];

/// Instants by the wall clock, from how long ago or ahead they are; 0 for never.
const TIMES: [(&str, &str, ReadTime); 2] = [
    (
        "tidegate_server_next_attempt_timestamp_seconds",
        "When the next attempt begins; 0 when none waits.",
        |s, now| {
            s.backoff
                .map_or(0.0, |backoff| now + backoff.left.as_secs_f64())
        },
    ),
    (
        "tidegate_server_last_healthy_timestamp_seconds",
        "The end of the last moment a connection served; 0 for never.",
        |s, now| ago(s.since_healthy, now),
    ),
];

/// Of requests and notifications: by `kind`, of the held and of the kept.
const QUEUES: [(&str, &str, Which, [ReadQueue; 2]); 4] = [
    (
        "tidegate_server_held_messages",
        "Messages held until their plane opens.",
        |s| s.held,
        [|q| size(q.requests), |q| size(q.notifications)],
    ),
    (
        "tidegate_server_held_messages_limit",
        "How many messages may be held.",
        |s| s.held,
        [|q| size(q.requests_limit), |q| size(q.notifications_limit)],
    ),
    (
        "tidegate_server_kept_messages",
        "Messages kept across the loss of their connection.",
        |s| s.kept,
        [|q| size(q.requests), |q| size(q.notifications)],
    ),
    (
        "tidegate_server_kept_messages_limit",
        "How many messages may be kept.",
        |s| s.kept,
        [|q| size(q.requests_limit), |q| size(q.notifications_limit)],
    ),
];

/// The gauges of one server.
pub(super) struct Gauges {
    plain: Vec<Gauge>,
    times: Vec<Gauge>,
    queues: Vec<[Gauge; 2]>,
    states: GaugeVec,
    holds: GaugeVec,
    lasted_at: Gauge,
    down_since: Gauge,
}

impl Gauges {
    /// Makes them all, at 0.
    pub(super) fn new(maker: &mut Maker<'_>) -> Self {
        let plain = PLAIN.map(|(name, help, _)| maker.gauge(name, help));
        let times = TIMES.map(|(name, help, _)| maker.gauge(name, help));
        let queues = QUEUES.map(|(name, help, ..)| {
            let both = maker.gauges(name, help, &["kind"]);
            ["request", "notification"].map(|kind| both.with_label_values(&[kind]))
        });
        let gauges = Self {
            plain: plain.into(),
            times: times.into(),
            queues: queues.into(),
            states: maker.gauges(
                "tidegate_server_state",
                "1 for the state that the server is in.",
                &["state"],
            ),
            holds: maker.gauges(
                "tidegate_server_holds",
                "1 for each reason why a plane is closed.",
                &["hold"],
            ),
            lasted_at: maker.gauge(
                "tidegate_server_lasted_timestamp_seconds",
                "When a connection last lasted; 0 for never.",
            ),
            down_since: maker.gauge(
                "tidegate_server_down_since_timestamp_seconds",
                "When the open episode began; 0 when the server is not down.",
            ),
        };
        gauges.set(&Snapshot::default());
        gauges
    }

    /// Notes the instant of a decision that alert rules look at.
    pub(super) fn note(&self, decision: &Decision) {
        if matches!(decision, Decision::Lasted { .. }) {
            self.lasted_at.set(now());
        } else if matches!(decision, Decision::Down { .. }) {
            self.down_since.set(now());
        }
    }

    /// Sets them all from a snapshot.
    pub(super) fn set(&self, snapshot: &Snapshot) {
        for (gauge, (_, _, read)) in self.plain.iter().zip(PLAIN) {
            gauge.set(read(snapshot));
        }
        let now = now();
        for (gauge, (_, _, read)) in self.times.iter().zip(TIMES) {
            gauge.set(read(snapshot, now));
        }
        for (gauges, (_, _, queue, reads)) in self.queues.iter().zip(QUEUES) {
            for (gauge, read) in gauges.iter().zip(reads) {
                gauge.set(read(&queue(snapshot)));
            }
        }
        self.set_labelled(snapshot);
        self.restore(snapshot, now);
    }

    fn set_labelled(&self, snapshot: &Snapshot) {
        for state in State::ALL {
            let gauge = self.states.with_label_values(&[state.label()]);
            gauge.set(flag(state == snapshot.state));
        }
        for hold in Hold::ALL {
            let gauge = self.holds.with_label_values(&[hold.label()]);
            gauge.set(flag(snapshot.holds.contains(&hold)));
        }
    }

    /// The two instants that an alert rule compares with themselves (S7) are set once, at their decision; what an
    /// earlier run remembered is worked out once too. Computed anew at each scrape they would seem to move.
    fn restore(&self, snapshot: &Snapshot, now: f64) {
        if self.lasted_at.get() == 0.0 {
            self.lasted_at.set(ago(snapshot.since_lasted, now));
        }
        match &snapshot.episode {
            None => self.down_since.set(0.0),
            Some(episode) if self.down_since.get() == 0.0 => {
                self.down_since.set(ago(Some(episode.open_for), now));
            }
            Some(_) => {}
        }
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn ago(since: Option<Duration>, now: f64) -> f64 {
    since.map_or(0.0, |since| now - since.as_secs_f64())
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn count(n: u64) -> f64 {
    n as f64
}

fn size(n: usize) -> f64 {
    count(n as u64)
}
