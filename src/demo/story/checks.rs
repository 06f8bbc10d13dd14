//! Whether everything held that the demo promises.

use std::time::Duration;

use super::{Calls, Edge, Story, ms, seconds};

/// How much later than it happened a connection may be noticed here.
const NOTICE: Duration = Duration::from_millis(500);
/// The metric that counts edges.
const EPISODES: &str = "tidegate_server_episodes_total{";

/// Something promised.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::demo) struct Check {
    /// Whether it held.
    pub(in crate::demo) held: bool,
    /// What it is, with the figures; or what happened instead.
    pub(in crate::demo) text: String,
}

impl Story {
    /// What was promised, now that the chat has sent so many messages and the metrics are these.
    pub(in crate::demo) fn checks(&self, sent: u64, metrics: &str) -> Vec<Check> {
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

pub(in crate::demo) fn check(
    held: bool,
    promise: String,
    instead: impl FnOnce() -> String,
) -> Check {
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
