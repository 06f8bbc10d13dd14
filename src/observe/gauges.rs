//! The gauges of the servers: each is a name, a help text and how it is read from a snapshot, when somebody scrapes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::page::Page;
use crate::engine::decision::{Decision, Hold, State};
use crate::engine::snapshot::{QueueView, Snapshot};

/// The transport of a launched server.
pub(super) const STDIO: &str = "stdio";

type Read = fn(&Snapshot) -> f64;
type ReadTime = fn(&Snapshot, f64) -> f64;
type ReadQueue = fn(&QueueView) -> f64;
type Which = fn(&Snapshot) -> QueueView;

/// Read as they are.
const PLAIN: [(&str, &str, Read); 16] = [
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
        "tidegate_server_failed_attempts_since_unwanted",
        "Those of the failed attempts that came since the server was last disabled, or ended as asked.",
        |s| count(s.failed_since_unwanted),
    ),
    (
        "tidegate_server_down_after_attempts",
        "The server is down when more attempts than this have failed.",
        |s| count(s.down_after_attempts),
    ),
    (
        "tidegate_server_away_seconds",
        "The longest that the server was wanted and not connected since a connection last lasted; 0 while nobody wants it.",
        |s| s.away_for.as_secs_f64(),
    ),
    (
        "tidegate_server_down_after_seconds",
        "The server is down when it has been away for this long.",
        |s| s.down_after.as_secs_f64(),
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
        "tidegate_server_kept_max_age_seconds",
        "What is kept for longer is dropped.",
        |s| s.kept_max_age.as_secs_f64(),
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

/// The instants of one server's decisions that alert rules look at; 0 for never.
#[derive(Default)]
pub(super) struct Instants {
    lasted_at: Seconds,
    unwanted_at: Seconds,
    stuck_at: Seconds,
    down_since: Seconds,
}

impl Instants {
    /// Notes the instant of a decision.
    pub(super) fn note(&self, decision: &Decision) {
        if matches!(decision, Decision::Lasted { .. }) {
            self.lasted_at.set(now());
        } else if matches!(decision, Decision::Down { .. }) {
            self.down_since.set(now());
        } else if let Decision::State(state) = decision {
            self.enter(*state);
        }
    }

    fn enter(&self, state: State) {
        match state {
            State::Disabled | State::Ended => self.unwanted_at.set(now()),
            State::Halted | State::Refused | State::Auth => self.stuck_at.set(now()),
            State::Connecting | State::Negotiating | State::Open | State::Waiting => {}
        }
    }

    /// The instants that an alert rule compares with themselves (S7) are set once, at their decision; what an
    /// earlier run remembered is worked out once too. Computed anew at each scrape they would seem to move.
    pub(super) fn restore(&self, snapshot: &Snapshot, now: f64) {
        if self.lasted_at.get() == 0.0 {
            self.lasted_at.set(ago(snapshot.since_lasted, now));
        }
        if self.unwanted_at.get() == 0.0 {
            self.unwanted_at.set(ago(snapshot.since_unwanted, now));
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

/// Seconds since 1970, shared.
#[derive(Default)]
struct Seconds(AtomicU64);

impl Seconds {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, seconds: f64) {
        self.0.store(seconds.to_bits(), Ordering::Relaxed);
    }
}

/// Writes the families of all servers.
pub(super) fn write(page: &mut Page<'_>, now: f64) {
    for (name, help, read) in PLAIN {
        page.gauges(name, help, |row, samples| {
            samples.gauge([], read(row.snapshot));
        });
    }
    for (name, help, read) in TIMES {
        page.gauges(name, help, |row, samples| {
            samples.gauge([], read(row.snapshot, now));
        });
    }
    for (name, help, queue, reads) in QUEUES {
        page.gauges(name, help, |row, samples| {
            for (kind, read) in ["request", "notification"].into_iter().zip(reads) {
                samples.gauge([("kind", kind)], read(&queue(row.snapshot)));
            }
        });
    }
    write_labelled(page);
    write_instants(page);
}

fn write_labelled(page: &mut Page<'_>) {
    let name = "tidegate_server_state";
    let help = "1 for the state that the server is in.";
    page.gauges(name, help, |row, samples| {
        let now = row.snapshot.state;
        let shown = |state: &State| *state == now || is_legal(*state, row.entry.transport);
        for state in State::ALL.into_iter().filter(shown) {
            samples.gauge([("state", state.label())], flag(state == now));
        }
    });
    let name = "tidegate_server_holds";
    let help = "1 for each reason why a plane is closed.";
    page.gauges(name, help, |row, samples| {
        for hold in Hold::ALL {
            let on = flag(row.snapshot.holds.contains(&hold));
            samples.gauge([("hold", hold.label())], on);
        }
    });
    let name = "tidegate_server_info";
    let help = "Static facts of a server; always 1.";
    page.gauges(name, help, |row, samples| {
        let facts = [
            ("protocol", &*row.entry.protocol),
            ("transport", row.entry.transport),
        ];
        samples.gauge(facts, 1.0);
    });
}

/// Nobody refuses the credential of a launched server (R18), and only a process can end as asked (R20).
fn is_legal(state: State, transport: &str) -> bool {
    match state {
        State::Auth => transport != STDIO,
        State::Ended => transport == STDIO,
        State::Connecting
        | State::Negotiating
        | State::Open
        | State::Waiting
        | State::Halted
        | State::Refused
        | State::Disabled => true,
    }
}

fn write_instants(page: &mut Page<'_>) {
    let name = "tidegate_server_lasted_timestamp_seconds";
    let help = "When a connection last lasted; 0 for never.";
    page.gauges(name, help, |row, samples| {
        samples.gauge([], row.instants().lasted_at.get());
    });
    let name = "tidegate_server_unwanted_timestamp_seconds";
    let help = "When the server was last disabled, or ended as asked; 0 for never.";
    page.gauges(name, help, |row, samples| {
        samples.gauge([], row.instants().unwanted_at.get());
    });
    let name = "tidegate_server_stuck_timestamp_seconds";
    let help = "When the server was last halted or refused, or its credential was; 0 for never.";
    page.gauges(name, help, |row, samples| {
        samples.gauge([], row.instants().stuck_at.get());
    });
    let name = "tidegate_server_down_since_timestamp_seconds";
    let help = "When the open episode began; 0 when the server is not down.";
    page.gauges(name, help, |row, samples| {
        samples.gauge([], row.instants().down_since.get());
    });
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

pub(super) fn size(n: usize) -> f64 {
    count(n as u64)
}
