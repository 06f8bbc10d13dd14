//! `tidegate events`: the decisions of a running gateway, the last ones or as they happen.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{Client, Error, Reach};
use crate::wire::redact::escaped;

/// How long to wait before following again.
const RETRY: Duration = Duration::from_secs(2);

/// Arguments of `tidegate events`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Go on with what happens, until interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Only these kinds, e.g. down,clear; docs/api.md lists them.
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    kind: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

/// Prints what the gateway remembers, and then what it decides.
pub(super) async fn run(options: &Options) -> Result<(), Error> {
    let client = options.reach.client()?;
    let path = path(&options.kind);
    let body = client.get(&path).await?;
    let events = body.get("events").and_then(Value::as_array);
    let events = events.map_or(&[][..], Vec::as_slice);
    for event in events {
        print(&line(event))?;
    }
    if !options.follow {
        return Ok(());
    }
    let mut last = events.last().and_then(id);
    loop {
        match follow(&client, &path, &mut last).await {
            Err(error @ Error::Output(_)) => return Err(error),
            // A gateway that restarts is back soon, and a refusal is told again and again.
            Err(error) => drop(error.report()),
            Ok(()) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn path(kinds: &[String]) -> String {
    let legal = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let kinds: Vec<String> = kinds
        .iter()
        .map(|kind| kind.chars().filter(legal).collect())
        .collect();
    match kinds.as_slice() {
        [] => "/api/v1/events".into(),
        kinds => format!("/api/v1/events?kind={}", kinds.join(",")),
    }
}

async fn follow(client: &Client, path: &str, last: &mut Option<String>) -> Result<(), Error> {
    let mut events = client.follow(path, last.as_deref()).await?;
    while let Some(event) = events.next().await? {
        *last = id(&event).or(last.take());
        print(&line(&event))?;
    }
    Ok(())
}

fn id(event: &Value) -> Option<String> {
    event.get("id").and_then(Value::as_str).map(str::to_owned)
}

fn line(event: &Value) -> String {
    let word = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or("-");
    let text = match event.get("episodes").and_then(Value::as_array) {
        Some(episodes) => snapshot(episodes),
        None => word("text").into(),
    };
    let (at, server, kind) = (word("at"), word("server"), word("kind"));
    escaped(&format!("{at}  {server}  {kind}  {text}"))
}

/// What a stream begins with.
fn snapshot(episodes: &[Value]) -> String {
    let word = |episode: &Value, field: &str| {
        episode
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or("?")
            .to_owned()
    };
    let down: Vec<_> = episodes
        .iter()
        .map(|episode| {
            format!(
                "{} down since {}",
                word(episode, "server"),
                word(episode, "since")
            )
        })
        .collect();
    if down.is_empty() {
        return "no server is down".into();
    }
    down.join("; ")
}

fn print(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_a_peer_said() {
        let event = json!({
            "id": "a-1", "at": "2027-01-15T12:00:00.250Z", "server": "chat", "kind": "down",
            "text": "MCP server down (attempt 5): exit code 1\nstderr: \u{1b}[2Jfake",
        });
        let expected = "2027-01-15T12:00:00.250Z  chat  down  \
                        MCP server down (attempt 5): exit code 1\\nstderr: \\u{1b}[2Jfake";
        assert_eq!(line(&event), expected);
    }

    #[test]
    fn a_snapshot_names_what_is_down() {
        let at = "2027-01-15T12:00:00.250Z";
        let none = json!({ "at": at, "kind": "snapshot", "episodes": [] });
        assert_eq!(line(&none), format!("{at}  -  snapshot  no server is down"));
        let one =
            json!({ "at": at, "kind": "snapshot", "episodes": [{ "server": "a", "since": "x" }] });
        assert_eq!(line(&one), format!("{at}  -  snapshot  a down since x"));
    }

    #[test]
    fn kinds_go_into_the_query_without_what_does_not_belong_there() {
        assert_eq!(path(&[]), "/api/v1/events");
        let kinds = ["down".into(), "cl&ear=".into()];
        assert_eq!(path(&kinds), "/api/v1/events?kind=down,clear");
    }
}
