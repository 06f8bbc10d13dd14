//! Snapshots as the API's JSON. Its field names are a contract: docs/api.md lists them.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::driver::ServerInfo;
use crate::engine::decision::Hold;
use crate::engine::snapshot::{QueueView, Snapshot};

/// One server, as of `now`, with the trace of its open epoch.
#[must_use]
pub fn server(
    info: &ServerInfo,
    snapshot: &Snapshot,
    trace_id: Option<&str>,
    now: SystemTime,
) -> Value {
    let backoff = snapshot.backoff;
    json!({
        "id": info.id.as_str(),
        "transport": info.transport,
        "protocol": info.protocol,
        "state": snapshot.state.label(),
        "reason": snapshot.reason,
        "epoch": snapshot.epoch.0,
        "traceId": trace_id,
        "attempt": snapshot.attempt,
        "connected": snapshot.connected,
        "connectionAgeSeconds": seconds(snapshot.connection_age),
        "failedAttempts": snapshot.failed_attempts,
        "downAfterAttempts": snapshot.down_after_attempts,
        "lastingThresholdSeconds": seconds(snapshot.lasting_threshold),
        "lastedAt": snapshot.since_lasted.map(|since| before(now, since)),
        "lastHealthyAt": snapshot.since_healthy.map(|since| before(now, since)),
        "down": down(snapshot, now),
        "nextAttemptAt": backoff.map(|backoff| time(now.checked_add(backoff.left))),
        "backoffSeconds": backoff.map_or(0.0, |backoff| seconds(backoff.wait)),
        "revision": snapshot.revision.map(|revision| revision.as_str()),
        "mcpl": snapshot.mcpl,
        "grant": snapshot.granted,
        "held": queue(&snapshot.held),
        "kept": queue(&snapshot.kept),
        "holds": snapshot.holds.iter().map(|hold| Hold::label(*hold)).collect::<Vec<_>>(),
        "channels": snapshot.channels,
        "inFlight": snapshot.in_flight,
        "sessions": snapshot.sessions,
        "hostServes": snapshot.host_serves,
        "paused": snapshot.paused,
    })
}

/// The open episodes, as of `now`.
#[must_use]
pub fn episodes<'a>(
    servers: impl IntoIterator<Item = (&'a ServerInfo, &'a Snapshot)>,
    now: SystemTime,
) -> Vec<Value> {
    let open = servers.into_iter().filter_map(|(info, snapshot)| {
        let mut episode = down(snapshot, now)?;
        let fields = episode.as_object_mut()?;
        fields.insert("server".into(), info.id.as_str().into());
        fields.insert("mcpl".into(), snapshot.mcpl.into());
        Some(episode)
    });
    open.collect()
}

fn down(snapshot: &Snapshot, now: SystemTime) -> Option<Value> {
    let episode = snapshot.episode.as_ref()?;
    Some(json!({
        "since": before(now, episode.open_for),
        "seconds": seconds(episode.open_for),
        "attempt": episode.attempt,
        "reason": episode.why,
    }))
}

fn queue(queue: &QueueView) -> Value {
    json!({
        "requests": queue.requests,
        "requestsLimit": queue.requests_limit,
        "notifications": queue.notifications,
        "notificationsLimit": queue.notifications_limit,
        "bytes": queue.bytes,
        "oldestSeconds": seconds(queue.oldest),
    })
}

fn before(now: SystemTime, since: Duration) -> Option<String> {
    time(now.checked_sub(since))
}

/// RFC 3339 with milliseconds, in UTC; `None` outside the years 1970 to 9999.
pub(super) fn time(at: Option<SystemTime>) -> Option<String> {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let at = at.filter(|at| (SystemTime::UNIX_EPOCH..=last).contains(at))?;
    Some(humantime::format_rfc3339_millis(at).to_string())
}

/// To the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::snapshot::{Backoff, EpisodeView};
    use crate::ids::ServerId;

    fn info() -> ServerInfo {
        ServerInfo {
            id: ServerId::new("chat").unwrap(),
            transport: "stdio",
            protocol: "auto".into(),
        }
    }

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_014_400)
    }

    #[test]
    fn instants_are_worked_out_from_durations() {
        let snapshot = Snapshot {
            since_lasted: Some(Duration::from_secs(3600)),
            episode: Some(EpisodeView {
                open_for: Duration::from_millis(60_500),
                attempt: 5,
                why: "exit code 1".into(),
            }),
            backoff: Some(Backoff {
                wait: Duration::from_secs(80),
                left: Duration::from_secs(30),
            }),
            ..Snapshot::default()
        };
        let view = server(&info(), &snapshot, None, noon());
        assert_eq!(view["lastedAt"], "2027-01-15T11:00:00.000Z");
        assert_eq!(view["nextAttemptAt"], "2027-01-15T12:00:30.000Z");
        assert_eq!(view["backoffSeconds"], 80.0);
        let down = json!({
            "since": "2027-01-15T11:58:59.500Z", "seconds": 60.5, "attempt": 5, "reason": "exit code 1",
        });
        assert_eq!(view["down"], down);
        let open = episodes([(&info(), &snapshot)], noon());
        assert_eq!(
            (&open[0]["server"], &open[0]["attempt"]),
            (&json!("chat"), &json!(5))
        );
    }

    #[test]
    fn every_field_of_a_server_is_in_the_documentation() {
        let documented = include_str!("../../docs/api.md");
        let view = server(&info(), &Snapshot::default(), None, noon());
        for field in view.as_object().unwrap().keys() {
            assert!(documented.contains(&format!("`{field}`")), "{field}");
        }
    }

    #[test]
    fn what_is_not_there_is_null_and_a_wait_without_end_has_no_instant() {
        let view = server(&info(), &Snapshot::default(), None, noon());
        for field in [
            "reason",
            "down",
            "nextAttemptAt",
            "lastedAt",
            "lastHealthyAt",
            "revision",
        ] {
            assert_eq!(view[field], Value::Null, "{field}");
        }
        assert!(episodes([(&info(), &Snapshot::default())], noon()).is_empty());
        let forever = Backoff {
            wait: Duration::MAX,
            left: Duration::MAX,
        };
        let snapshot = Snapshot {
            backoff: Some(forever),
            ..Snapshot::default()
        };
        assert_eq!(
            server(&info(), &snapshot, None, noon())["nextAttemptAt"],
            Value::Null
        );
    }
}
