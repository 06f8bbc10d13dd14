//! What Alertmanager's webhook says (version 4), as edges: an alert that fires is a down, one that is resolved a clear.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ledger::{Kind, Note};
use super::text::fit;

/// The version of the body that is read.
const VERSION: &str = "4";

#[derive(Deserialize)]
struct Body {
    version: String,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Alert {
    status: Status,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// The same at each repetition, so that it names the episode.
    starts_at: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Firing,
    Resolved,
}

/// The edges of a body, each with the episode that it is about; or what is wrong with it.
pub(super) fn edges(body: &[u8]) -> Result<Vec<(String, Note)>, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if body.version != VERSION {
        return Err(format!(
            "version {:?}, where {VERSION:?} is read",
            body.version
        ));
    }
    Ok(body.alerts.iter().map(edge).collect())
}

fn edge(alert: &Alert) -> (String, Note) {
    let label = |name: &str| alert.labels.get(name).map_or("", String::as_str);
    let [name, gateway, server] = ["alertname", "gateway", "server"].map(label);
    let subject = format!("{name} {gateway} {server} {}", alert.starts_at);
    let summary = alert.annotations.get("summary");
    let summary = summary.map_or_else(|| format!("{name} {gateway} {server}"), Clone::clone);
    let (kind, status) = match alert.status {
        Status::Firing => (Kind::Down, "firing"),
        Status::Resolved => (Kind::Clear, "resolved"),
    };
    let text = fit(&format!("{status}: {summary}"));
    (subject, Note { kind, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alert_is_an_edge_of_the_episode_that_its_start_names() {
        let body = br#"{"version":"4","groupKey":"{}","status":"firing","receiver":"status","alerts":[
            {"status":"firing","labels":{"alertname":"TidegateServerDown","gateway":"gw-1","server":"chat"},
             "annotations":{"summary":"MCP server chat is down (gateway gw-1)"},
             "startsAt":"2027-01-15T12:00:00Z","endsAt":"0001-01-01T00:00:00Z","fingerprint":"a"},
            {"status":"resolved","labels":{"alertname":"TidegateDown","gateway":"gw-1"},"startsAt":"x"}]}"#;
        let edges = edges(body).unwrap();
        let told: Vec<_> = edges
            .iter()
            .map(|(of, note)| (of.as_str(), note.kind, note.text.as_str()))
            .collect();
        let down = (
            "TidegateServerDown gw-1 chat 2027-01-15T12:00:00Z",
            Kind::Down,
            "firing: MCP server chat is down (gateway gw-1)",
        );
        let clear = (
            "TidegateDown gw-1  x",
            Kind::Clear,
            "resolved: TidegateDown gw-1 ",
        );
        assert_eq!(told, [down, clear]);
    }

    #[test]
    fn what_is_no_body_of_version_4_says_what_is_wrong() {
        for (body, why) in [
            (&b"{}"[..], "missing field `version`"),
            (
                br#"{"version":"3","alerts":[]}"#,
                "version \"3\", where \"4\" is read",
            ),
            (
                br#"{"version":"4","alerts":[{"status":"odd"}]}"#,
                "unknown variant",
            ),
        ] {
            let told = edges(body).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
