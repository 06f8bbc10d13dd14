//! What has been seen, and what to say of each happening. Pure: times are passed in, since the start.

pub(super) mod checks;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::account::{Line, Tone};
use super::host::{Answer, Seen};
use super::peer::text;
use crate::wire::jsonrpc::code;

/// A call while the server is away is answered at once: within this, on a slow machine too.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The failed attempt after which the crash server is mended: one past the down, to show that it adds nothing.
const MEND_AFTER: u64 = 6;
/// So many of a kind of fault are told; the others are counted.
const TOLD: usize = 3;

/// A decision of the gateway, as its event stream has it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    server: String,
    kind: String,
    text: String,
    #[serde(default)]
    attempt: u64,
    #[serde(default)]
    fields: Value,
}

impl Event {
    /// Whether it is this kind of decision about this server.
    pub(super) fn is(&self, server: &str, kind: &str) -> bool {
        self.server == server && self.kind == kind
    }
}

/// Faults of one kind.
#[derive(Debug, Default)]
struct Faults {
    count: usize,
    first: Vec<String>,
}

impl Faults {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.first.len() < TOLD {
            self.first.push(what);
        }
    }

    fn none(&self) -> bool {
        self.count == 0
    }

    fn list(&self) -> String {
        let more = self.count.saturating_sub(self.first.len());
        let more = if more == 0 {
            String::new()
        } else {
            format!("; and {more} more")
        };
        self.first.join("; ") + &more
    }
}

/// Calls of the host that ended as they should, and those that did not.
#[derive(Debug, Default)]
struct Calls {
    right: u64,
    slowest: Duration,
    wrong: Faults,
}

impl Calls {
    fn right(&mut self, took: Duration) {
        self.right += 1;
        self.slowest = self.slowest.max(took);
    }
}

/// A down or a clear of the crash server.
#[derive(Debug)]
enum Edge {
    Down,
    /// With the age of the connection that it was on.
    Clear(Option<Duration>),
}

/// Everything seen so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    lasting: Duration,
    attached: usize,
    edges: Vec<Edge>,
    connected_at: Option<Duration>,
    /// The failure that is told with the wait after it.
    failed: Option<String>,
    /// Of the last failure.
    reason: Option<String>,
    mended: bool,
    steady: Calls,
    away: Calls,
    away_told: bool,
    received: u64,
    disorder: Faults,
    kills: u64,
    killed_after: Option<u64>,
    strays: Faults,
}

impl Story {
    pub(super) fn new(lasting: Duration) -> Self {
        Self {
            lasting,
            ..Self::default()
        }
    }

    /// The crash server has shown enough: it is to be mended now. Says so once.
    pub(super) fn is_time_to_mend(&mut self, event: &Event) -> bool {
        let due = event.is("crash", "waiting") && self.is_down() && event.attempt > MEND_AFTER;
        let now = due && !self.mended;
        self.mended |= now;
        now
    }

    pub(super) fn is_cleared(&self) -> bool {
        matches!(self.edges.last(), Some(Edge::Clear(_)))
    }

    fn is_down(&self) -> bool {
        matches!(self.edges.last(), Some(Edge::Down))
    }

    /// How often the chat was killed.
    pub(super) fn kills(&self) -> u64 {
        self.kills
    }

    /// The number of the latest message received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// A decision of the gateway.
    pub(super) fn decided(&mut self, at: Duration, event: &Event) -> Vec<Line> {
        match event.server.as_str() {
            "crash" => self.crash_decided(at, event),
            "chat" => self.other_decided("chat", event),
            _ => self.other_decided("steady", event),
        }
    }

    fn crash_decided(&mut self, at: Duration, event: &Event) -> Vec<Line> {
        let line = |tone, text| Line::new("crash", tone, text);
        match event.kind.as_str() {
            "adopted" => {
                self.connected_at = Some(at);
                self.connected(event).into_iter().collect()
            }
            "ended" => {
                self.connected_at = None;
                Vec::new()
            }
            "short-end" | "attempt-failed" => {
                self.failed = Some(self.failure(event));
                Vec::new()
            }
            "waiting" => {
                let wait = event.fields.get("waitSeconds").and_then(Value::as_f64);
                let next = format!("next try in {:.1} s", wait.unwrap_or_default());
                let text = self
                    .failed
                    .take()
                    .map_or(next.clone(), |failed| format!("{failed}; {next}"));
                vec![line(Tone::Plain, text)]
            }
            "down" => {
                self.edges.push(Edge::Down);
                self.away_told = false;
                let failed = self.failed.take().map(|failed| line(Tone::Plain, failed));
                let down = line(Tone::Bad, format!("DOWN: {}", event.text));
                failed.into_iter().chain([down]).collect()
            }
            "clear" => {
                let age = self.connected_at.map(|since| at.saturating_sub(since));
                self.edges.push(Edge::Clear(age));
                vec![line(Tone::Good, format!("CLEAR: {}", event.text))]
            }
            _ => self.stray("crash", event),
        }
    }

    /// The first and the last connection are worth a line; the others say all at their end.
    fn connected(&self, event: &Event) -> Option<Line> {
        let (attempt, lasting) = (event.attempt, seconds(self.lasting));
        let text = match (self.mended, attempt) {
            (true, _) => {
                format!("attempt {attempt} connected; clear once that has lasted {lasting}")
            }
            (false, 0) => "attempt 0 connected, which proves nothing yet".into(),
            (false, _) => return None,
        };
        Some(Line::new("crash", Tone::Plain, text))
    }

    /// The whole reason once, and that it is the same again.
    fn failure(&mut self, event: &Event) -> String {
        let reason = text(&event.fields, "/reason")
            .unwrap_or_default()
            .to_owned();
        let same = self
            .reason
            .replace(reason.clone())
            .is_some_and(|last| last == reason);
        match same {
            true => format!("attempt {} failed alike", event.attempt),
            false => event.text.clone(),
        }
    }

    fn other_decided(&mut self, who: &'static str, event: &Event) -> Vec<Line> {
        let text = match (event.kind.as_str(), who) {
            ("adopted", "chat") => {
                format!(
                    "attempt {} connected; what it sends waits for its grant",
                    event.attempt
                )
            }
            ("adopted", _) => "connected".into(),
            ("kept", _) => event.text.clone(),
            ("flushed", _) if text(&event.fields, "/queue") == Some("kept") => event.text.clone(),
            // An answer that is dropped with the process that it was for is no message.
            ("dropped", _) if text(&event.fields, "/reason") == Some("late_answer") => {
                return Vec::new();
            }
            _ => return self.stray(who, event),
        };
        vec![Line::new(who, Tone::Plain, text)]
    }

    /// What has no place in the story.
    fn stray(&mut self, who: &'static str, event: &Event) -> Vec<Line> {
        let is_stray = matches!(event.kind.as_str(), "down" | "clear" | "halted" | "refused");
        if is_stray {
            self.strays.add(format!("{who}: {}", event.text));
        }
        let loud = is_stray || matches!(event.kind.as_str(), "dropped" | "reported" | "noise");
        let tone = if is_stray { Tone::Bad } else { Tone::Quiet };
        loud.then(|| Line::new(who, tone, event.text.clone()))
            .into_iter()
            .collect()
    }

    /// The script killed the chat, which had sent so many messages; perhaps before it had its grant.
    pub(super) fn killed(&mut self, sent: u64, before_grant: bool) -> Line {
        self.kills += 1;
        self.killed_after = Some(sent);
        let when = if before_grant {
            "before its grant, "
        } else {
            ""
        };
        let text = format!("killed with -9, {when}having written message {sent}");
        Line::new("chat", Tone::Plain, text)
    }

    /// What the host at this server saw.
    pub(super) fn saw(&mut self, server: &'static str, seen: Seen) -> Option<Line> {
        match seen {
            Seen::Attached => {
                self.attached += 1;
                let all = self.attached == super::SERVERS.len();
                all.then(|| Line::new("host", Tone::Plain, "attached to all three servers"))
            }
            Seen::Message(number) => self.message(number),
            Seen::Called { took, answer } if server == "crash" => self.crash_called(took, answer),
            Seen::Called { took, answer } => self.called(server, took, answer),
            Seen::Gone(why) => {
                let text = format!("the host's connection to {server} ended: {why}");
                self.strays.add(text.clone());
                Some(Line::new("host", Tone::Bad, text))
            }
        }
    }

    fn message(&mut self, number: u64) -> Option<Line> {
        let due = self.received + 1;
        self.received = self.received.max(number);
        if number != due {
            let text = format!("message {number} came where {due} was due");
            self.disorder.add(text.clone());
            return Some(Line::new("host", Tone::Bad, text));
        }
        let after = self.killed_after.filter(|sent| number > *sent)?;
        self.killed_after = None;
        let text = format!("got message {after} and then {number}: the kill lost nothing");
        Some(Line::new("host", Tone::Plain, text))
    }

    fn called(&mut self, server: &'static str, took: Duration, answer: Answer) -> Option<Line> {
        let wrong = match answer {
            Answer::Right => {
                self.steady.right(took);
                return None;
            }
            Answer::Error(code, text) => format!("{server} answered {code}: {text}"),
            Answer::Wrong(text) => format!("{server} answered wrong: {text}"),
        };
        self.steady.wrong.add(wrong.clone());
        Some(Line::new("host", Tone::Bad, wrong))
    }

    fn crash_called(&mut self, took: Duration, answer: Answer) -> Option<Line> {
        let wrong = match answer {
            // While it lives it answers, and a call that it took with it is said to be lost.
            Answer::Right | Answer::Error(code::LOST, _) => return None,
            Answer::Error(code::NOT_SENT, text) if took < AT_ONCE => {
                self.away.right(took);
                let first = !std::mem::replace(&mut self.away_told, true);
                let text = format!("a call to crash: -32050 in {}, {text}", ms(took));
                return first.then(|| Line::new("host", Tone::Plain, text));
            }
            Answer::Error(code, text) => format!("got {code} after {}: {text}", ms(took)),
            Answer::Wrong(text) => format!("got {text} after {}", ms(took)),
        };
        self.away.wrong.add(wrong.clone());
        Some(Line::new(
            "host",
            Tone::Bad,
            format!("a call to crash {wrong}"),
        ))
    }

    /// A summary of what goes on quietly.
    pub(super) fn summary(&self) -> Line {
        let (worked, away, received) = (self.steady.right, self.away.right, self.received);
        let text =
            format!("so far {worked} calls worked, {away} got -32050, {received} messages came");
        Line::new("host", Tone::Quiet, text)
    }
}

impl Edge {
    fn name(&self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Clear(_) => "clear",
        }
    }

    fn age(&self) -> Option<Duration> {
        match self {
            Self::Down => None,
            Self::Clear(age) => *age,
        }
    }
}

/// As a person writes it: 0.2 s, 10 s.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
