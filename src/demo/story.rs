//! What has been seen, what to say of each happening, and whether everything held that the demo promises. Pure: times
//! are passed in, since the start.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::account::{Line, Tone};
use super::host::{Answer, Seen};
use super::peer::text;
use crate::wire::jsonrpc::code;

/// A call while the server is away is answered at once: within this, on a slow machine too.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How much later than it happened a connection may be noticed here.
const NOTICE: Duration = Duration::from_millis(500);
/// The failed attempt after which the crash server is mended: one past the down, to show that it adds nothing.
const MEND_AFTER: u64 = 6;
/// The metric that counts edges.
const EPISODES: &str = "tidegate_server_episodes_total{";
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

/// Something promised.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    /// Whether it held.
    pub(super) held: bool,
    /// What it is, with the figures; or what happened instead.
    pub(super) text: String,
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

    /// What was promised, now that the chat has sent so many messages and the metrics are these.
    pub(super) fn checks(&self, sent: u64, metrics: &str) -> Vec<Check> {
        vec![
            self.edges_held(),
            self.metrics_held(metrics),
            self.clear_held(),
            self.away_held(),
            self.steady_held(),
            self.chat_held(sent),
            check(
                self.strays.none(),
                "nothing else was reported, and the host's connections stayed".into(),
                || self.strays.list(),
            ),
        ]
    }

    fn edges_held(&self) -> Check {
        let held = matches!(self.edges.as_slice(), [Edge::Down, Edge::Clear(_)]);
        let told: Vec<&str> = self.edges.iter().map(Edge::name).collect();
        let text = "crash was reported down once and clear once, in that order";
        check(held, text.into(), || {
            format!("of crash was reported: {}", listed(&told))
        })
    }

    fn metrics_held(&self, metrics: &str) -> Check {
        let counted = ["down", "clear"].map(|edge| {
            let series = |line: &&str| {
                let labels = [r#"server="crash""#, &format!(r#"edge="{edge}""#)];
                line.starts_with(EPISODES) && labels.iter().all(|label| line.contains(label))
            };
            metrics
                .lines()
                .find(series)
                .and_then(|line| line.rsplit(' ').next())
        });
        let told = ["down", "clear"].map(|name| {
            let edges = self.edges.iter().filter(|edge| edge.name() == name);
            edges.count().to_string()
        });
        let held = counted
            .iter()
            .zip(&told)
            .all(|(counted, told)| *counted == Some(told));
        let instead = || format!("the metrics count {counted:?} edges, {told:?} were told");
        check(held, "the metrics count the same edges".into(), instead)
    }

    fn clear_held(&self) -> Check {
        let age = self.edges.iter().find_map(Edge::age);
        let held = age.is_some_and(|age| age + NOTICE >= self.lasting);
        let lasting = seconds(self.lasting);
        check(
            held,
            format!("it was clear only when a connection had lasted {lasting}"),
            || match age {
                Some(age) => format!("it was clear after a connection of {}", ms(age)),
                None => "no connection was clear".into(),
            },
        )
    }

    fn away_held(&self) -> Check {
        let Calls {
            right,
            slowest,
            wrong,
        } = &self.away;
        let slowest = ms(*slowest);
        check(
            wrong.none() && *right > 0,
            format!(
                "{right} calls to crash while it was away got -32050 at once (at most {slowest})"
            ),
            || match right {
                0 if wrong.none() => "no call to crash met it away".into(),
                _ => format!("{} calls to crash: {}", wrong.count, wrong.list()),
            },
        )
    }

    fn steady_held(&self) -> Check {
        let Calls {
            right,
            slowest,
            wrong,
        } = &self.steady;
        let slowest = ms(*slowest);
        check(
            wrong.none() && *right > 0,
            format!("all {right} calls to steady worked meanwhile (at most {slowest})"),
            || match right {
                0 if wrong.none() => "no call to steady was made".into(),
                _ => format!("{} calls to steady: {}", wrong.count, wrong.list()),
            },
        )
    }

    fn chat_held(&self, sent: u64) -> Check {
        let Self {
            received,
            kills,
            disorder,
            ..
        } = self;
        check(
            disorder.none() && *received == sent && *kills > 0 && sent > 0,
            format!("all {sent} chat messages came once and in order, across {kills} kills"),
            || match disorder.none() {
                true => format!(
                    "of {sent} chat messages the last to come is {received} ({kills} kills)"
                ),
                false => format!("of {sent} chat messages: {}", disorder.list()),
            },
        )
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

pub(super) fn check(held: bool, promise: String, instead: impl FnOnce() -> String) -> Check {
    let text = if held { promise } else { instead() };
    Check { held, text }
}

fn listed(words: &[&str]) -> String {
    if words.is_empty() {
        "nothing".into()
    } else {
        words.join(", ")
    }
}

/// As a person writes it: 0.2 s, 10 s.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LASTING: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn event(server: &str, kind: &str, attempt: u64) -> Event {
        let fields = json!({ "waitSeconds": 1.6, "queue": "kept" });
        let text = format!("{kind} of {attempt}");
        let event = json!({ "server": server, "kind": kind, "text": text, "attempt": attempt, "fields": fields });
        serde_json::from_value(event).unwrap()
    }

    /// What the metrics say of a whole episode.
    fn metrics() -> String {
        ["down", "clear"]
            .map(|edge| format!("{EPISODES}edge=\"{edge}\",server=\"crash\"}} 1\n"))
            .concat()
    }

    fn called(answer: Answer) -> Seen {
        Seen::Called {
            took: Duration::from_millis(2),
            answer,
        }
    }

    /// A whole episode that goes as it should.
    fn good() -> Story {
        let mut story = Story::new(LASTING);
        for (second, kind) in [
            (5, "ended"),
            (5, "short-end"),
            (5, "down"),
            (8, "adopted"),
            (10, "clear"),
        ] {
            story.decided(at(second), &event("crash", kind, 5));
        }
        story.saw(
            "crash",
            called(Answer::Error(code::NOT_SENT, "later".into())),
        );
        story.saw("steady", called(Answer::Right));
        story.saw("chat", Seen::Message(1));
        story.killed(1, false);
        story.saw("chat", Seen::Message(2));
        story
    }

    #[track_caller]
    fn assert_broken(story: &Story, sent: u64, words: &str) {
        let checks = story.checks(sent, &metrics());
        let broken: Vec<&Check> = checks.iter().filter(|check| !check.held).collect();
        assert!(
            matches!(broken.as_slice(), [one] if one.text.contains(words)),
            "{broken:?}"
        );
    }

    #[test]
    fn a_good_story_holds_whole() {
        let checks = good().checks(2, &metrics());
        assert!(checks.iter().all(|check| check.held), "{checks:?}");
    }

    #[test]
    fn an_empty_story_holds_nothing_but_the_peace() {
        let checks = Story::new(LASTING).checks(0, "");
        assert_eq!(checks.iter().filter(|check| check.held).count(), 1);
    }

    #[test]
    fn a_second_down_is_noticed() {
        let mut story = good();
        story.decided(at(11), &event("crash", "down", 6));
        let checks = story.checks(2, &metrics());
        assert!(checks[0].text.contains("down, clear, down") && !checks[0].held);
        assert!(!checks[1].held, "the metrics count one");
    }

    #[test]
    fn metrics_that_say_something_else_are_noticed() {
        for other in [
            metrics().replace("} 1", "} 2"),
            metrics().replace("crash", "chat"),
            String::new(),
        ] {
            let checks = good().checks(2, &other);
            let broken: Vec<bool> = checks.iter().map(|check| !check.held).collect();
            assert_eq!(
                broken,
                [false, true, false, false, false, false, false],
                "{other}"
            );
        }
    }

    #[test]
    fn an_early_clear_is_noticed() {
        let mut story = Story {
            edges: Vec::new(),
            ..good()
        };
        for (second, kind) in [(5, "down"), (8, "adopted"), (9, "clear")] {
            story.decided(at(second), &event("crash", kind, 5));
        }
        assert_broken(&story, 2, "after a connection of 1000.0 ms");
    }

    #[test]
    fn a_lost_a_repeated_and_a_disordered_message_are_noticed() {
        for (number, words) in [
            (4, "4 came where 3"),
            (2, "2 came where 3"),
            (1, "1 came where 3"),
        ] {
            let mut story = good();
            let line = story.saw("chat", Seen::Message(number)).unwrap();
            assert_eq!(line.tone, Tone::Bad);
            assert_broken(&story, number.max(2), words);
        }
        assert_broken(&good(), 3, "of 3 chat messages the last to come is 2");
    }

    #[test]
    fn a_failed_call_to_steady_is_noticed() {
        for answer in [
            Answer::Error(code::NOT_SENT, "later".into()),
            Answer::Wrong("7".into()),
        ] {
            let mut story = good();
            story.saw("steady", called(answer));
            assert_broken(&story, 2, "1 calls to steady");
        }
    }

    #[test]
    fn a_slow_or_other_answer_while_crash_is_away_is_noticed() {
        let slow = Answer::Error(code::NOT_SENT, "later".into());
        let slow = Seen::Called {
            took: at(3),
            answer: slow,
        };
        for seen in [
            slow,
            called(Answer::Error(-32603, "broken".into())),
            called(Answer::Wrong("?".into())),
        ] {
            let mut story = good();
            story.saw("crash", seen);
            assert_broken(&story, 2, "1 calls to crash");
        }
    }

    #[test]
    fn a_call_that_crash_took_with_it_is_as_it_should_be() {
        let mut story = good();
        story.saw("crash", called(Answer::Error(code::LOST, "unknown".into())));
        assert!(story.checks(2, &metrics()).iter().all(|check| check.held));
    }

    #[test]
    fn a_report_about_a_healthy_server_and_a_lost_connection_are_noticed() {
        let mut story = good();
        story.decided(at(9), &event("steady", "down", 5));
        assert_broken(&story, 2, "steady: down of 5");
        let mut story = good();
        story.saw("chat", Seen::Gone("closed".into()));
        assert_broken(&story, 2, "connection to chat ended");
    }

    #[test]
    fn crash_is_mended_once_after_a_failure_that_adds_nothing() {
        let mut story = Story::new(LASTING);
        story.decided(at(5), &event("crash", "down", 5));
        let next = |attempt| event("crash", "waiting", attempt);
        let mends: Vec<bool> = [6, 7, 8]
            .map(|attempt| story.is_time_to_mend(&next(attempt)))
            .into();
        assert_eq!(mends, [false, true, false]);
    }
}
