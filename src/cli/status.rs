//! `tidegate status`: a table of the servers of a running gateway.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::Value;

use super::client::{Client, Error, Reach};
use crate::wire::redact::escaped;

const SERVERS: &str = "/api/v1/servers";
/// How often `--watch` looks again.
const PERIOD: Duration = Duration::from_secs(1);
/// Cursor home, and clear what is below: without a flicker.
const HOME: &str = "\x1b[H\x1b[J";
const HEADS: [&str; 8] = [
    "SERVER",
    "STATE",
    "ATTEMPT",
    "NEXT TRY",
    "AGE",
    "HELD",
    "KEPT",
    "DOWN SINCE",
];

/// Arguments of `tidegate status`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Look again every second, until interrupted.
    #[arg(long)]
    watch: bool,
    /// Print the API's JSON rather than a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Prints the table, once or for ever.
pub(super) async fn run(options: &Options) -> Result<(), Error> {
    let client = options.reach.client()?;
    if !options.watch {
        return print(&text(&client, options).await?);
    }
    let clear = if std::io::stdout().is_terminal() {
        HOME
    } else {
        ""
    };
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        // A gateway that restarts is back soon.
        let text = text(&client, options)
            .await
            .unwrap_or_else(|error| format!("{error}\n"));
        print(&format!("{clear}{text}"))?;
    }
}

async fn text(client: &Client, options: &Options) -> Result<String, Error> {
    let body = client.get(SERVERS).await?;
    if options.json {
        return Ok(format!("{body}\n"));
    }
    let servers = body.get("servers").and_then(Value::as_array);
    Ok(table(servers.map_or(&[], Vec::as_slice), SystemTime::now()))
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn table(servers: &[Value], now: SystemTime) -> String {
    let heads = HEADS.map(str::to_owned);
    let mut rows = vec![heads];
    rows.extend(servers.iter().map(|server| row(server, now)));
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(server: &Value, now: SystemTime) -> [String; 8] {
    let word = |field: &str| server.get(field).and_then(Value::as_str).unwrap_or("?");
    let number = |field: &str| server.get(field).and_then(Value::as_u64).unwrap_or(0);
    let is = |field: &str| server.get(field).and_then(Value::as_bool).unwrap_or(false);
    let paused = if is("paused") { " (paused)" } else { "" };
    let age = server.get("connectionAgeSeconds").and_then(Value::as_f64);
    let age = age.filter(|_| is("connected"));
    let next = server.get("nextAttemptAt").and_then(Value::as_str);
    let next = next.and_then(|at| humantime::parse_rfc3339(at).ok());
    let next = next.map(|at| at.duration_since(now).unwrap_or_default());
    [
        escaped(word("id")),
        format!("{}{paused}", escaped(word("state"))),
        format!(
            "{} ({} failed)",
            number("attempt"),
            number("failedAttempts")
        ),
        next.map_or("-".into(), |left| format!("in {}", span(left))),
        age.map_or("-".into(), |age| {
            span(Duration::try_from_secs_f64(age).unwrap_or_default())
        }),
        waiting(server.get("held")),
        waiting(server.get("kept")),
        down(server.get("down")),
    ]
}

fn waiting(queue: Option<&Value>) -> String {
    let count = |kind: &str| {
        queue
            .and_then(|queue| queue.get(kind))
            .and_then(Value::as_u64)
    };
    let both = count("requests").unwrap_or(0) + count("notifications").unwrap_or(0);
    both.to_string()
}

fn down(episode: Option<&Value>) -> String {
    let field = |name: &str| episode.and_then(|episode| episode.get(name));
    let Some(since) = field("since").and_then(Value::as_str) else {
        return "-".into();
    };
    let reason = field("reason").and_then(Value::as_str).unwrap_or_default();
    let reason = reason.lines().next().unwrap_or_default();
    format!("{} {}", escaped(since), escaped(reason))
}

/// Two units, the larger first.
fn span(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_a_line_per_server_and_says_what_is_down() {
        let now = humantime::parse_rfc3339("2027-01-15T12:00:00.000Z").unwrap();
        let queue = |requests| json!({ "requests": requests, "notifications": 1 });
        let waiting = json!({
            "id": "chat", "state": "waiting", "attempt": 7, "failedAttempts": 7, "connected": false,
            "connectionAgeSeconds": 0.0, "nextAttemptAt": "2027-01-15T12:01:05.000Z", "paused": true,
            "held": queue(0), "kept": queue(12),
            "down": { "since": "2027-01-15T11:00:00.000Z", "reason": "exit code 1\nstderr: \u{1b}[2J" },
        });
        let open = json!({
            "id": "memory", "state": "open", "attempt": 0, "failedAttempts": 0, "connected": true,
            "connectionAgeSeconds": 93_784.5, "nextAttemptAt": null, "paused": false,
            "held": queue(0), "kept": queue(0), "down": null,
        });
        let text = table(&[waiting, open], now);
        let expected = [
            "SERVER  STATE             ATTEMPT       NEXT TRY  AGE    HELD  KEPT  DOWN SINCE",
            "chat    waiting (paused)  7 (7 failed)  in 1m05s  -      1     13    \
             2027-01-15T11:00:00.000Z exit code 1",
            "memory  open              0 (0 failed)  -         1d02h  1     1     -",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_span_has_two_units_at_most() {
        let spans = [0, 59, 60, 3599, 3600, 86_399, 86_400].map(|s| span(Duration::from_secs(s)));
        assert_eq!(
            spans,
            ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h"]
        );
    }
}
