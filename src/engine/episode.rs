//! The open episode of one server and its two edges, down and clear, which alternate (S3, S4). When they are due is
//! for others to say.

use std::time::{Duration, Instant};

use super::decision::{ClearCause, Decision};
use super::input::OpenEpisode;
use super::outbox::Outbox;
use super::output::Record;
use super::snapshot::EpisodeView;
use super::timers::Past;
use crate::ids::{Attempt, Epoch};

/// Whether a server is down, as announced.
#[derive(Debug, Default)]
pub(super) struct Episode {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since: Past,
    attempt: Attempt,
    why: String,
}

impl Episode {
    /// Goes on with an episode on record, of which nobody is told again (S5).
    pub(super) fn resume(episode: Option<OpenEpisode>, now: Instant) -> Self {
        let open = episode.map(|episode| Open {
            since: Past::ago(now, episode.since),
            attempt: Attempt(episode.attempt),
            why: episode.why,
        });
        Self { open }
    }

    /// Whether one is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens one, unless one is open: further failures add nothing to it (S3).
    pub(super) fn open(
        &mut self,
        epoch: Option<Epoch>,
        attempt: Attempt,
        why: &str,
        mcpl: bool,
        now: Instant,
        out: &mut Outbox,
    ) {
        if self.is_open() {
            return;
        }
        self.open = Some(Open {
            since: Past::ago(now, Duration::ZERO),
            attempt,
            why: why.to_owned(),
        });
        let (attempt, why) = (attempt.0, why.to_owned());
        out.decide(
            epoch,
            Decision::Down {
                attempt,
                why: why.clone(),
                mcpl,
            },
        );
        out.record(Record::Down { attempt, why });
    }

    /// Ends the open one, if there is one (S4).
    pub(super) fn close(
        &mut self,
        epoch: Option<Epoch>,
        cause: ClearCause,
        failed_attempts: u64,
        mcpl: bool,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(open) = self.open.take() else {
            return;
        };
        let down_for = open.since.age(now);
        out.decide(
            epoch,
            Decision::Clear {
                cause,
                failed_attempts,
                down_for,
                mcpl,
            },
        );
        out.record(Record::Clear);
    }

    /// The open one, as of `now`.
    pub(super) fn view(&self, now: Instant) -> Option<EpisodeView> {
        self.open.as_ref().map(|open| EpisodeView {
            open_for: open.since.age(now),
            attempt: open.attempt.0,
            why: open.why.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::output::Output;

    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn now() -> Instant {
        Instant::now()
    }

    fn edges(out: &mut Outbox) -> Vec<String> {
        let mut edges = Vec::new();
        while let Some(output) = out.pop() {
            if let Output::Decided { decision, .. } = output {
                edges.push(decision.to_string());
            } else if let Output::Record(record) = output {
                edges.push(format!("{record:?}"));
            }
        }
        edges
    }

    #[test]
    fn s3_an_episode_opens_once_and_says_which_attempt_and_why() {
        let (mut episode, mut out, now) = (Episode::default(), Outbox::default(), now());
        episode.open(None, Attempt(5), "exit code 1", true, now, &mut out);
        episode.open(None, Attempt(6), "exit code 1", true, now, &mut out);
        assert_eq!(
            edges(&mut out),
            [
                "MCPL server down (attempt 5): exit code 1",
                r#"Down { attempt: 5, why: "exit code 1" }"#
            ]
        );
        let later = now + Duration::from_secs(9);
        let view = episode.view(later).unwrap();
        assert_eq!((view.attempt, view.open_for.as_secs()), (5, 9));
    }

    #[test]
    fn s4_only_an_open_episode_ends() {
        let (mut episode, mut out, now) = (Episode::default(), Outbox::default(), now());
        episode.close(None, ClearCause::Removed, 0, false, now, &mut out);
        assert!(edges(&mut out).is_empty());
        episode.open(None, Attempt(1), "why", false, now, &mut out);
        let lasted = ClearCause::Lasted(Duration::from_secs(300));
        let later = now + Duration::from_secs(700);
        episode.close(None, lasted, 7, false, later, &mut out);
        assert_eq!(
            edges(&mut out)[2..],
            [
                "MCP server clear: connected for 300 s after 7 failed attempts (down for 700 s)",
                "Clear"
            ]
        );
        assert!(!episode.is_open());
    }

    #[test]
    fn s5_an_episode_on_record_goes_on_silently() {
        let now = now();
        let open = OpenEpisode {
            since: Duration::from_secs(1_000_000_000),
            attempt: 6,
            why: "why".into(),
        };
        let mut episode = Episode::resume(Some(open), now);
        let mut out = Outbox::default();
        episode.open(None, Attempt(7), "other", true, now, &mut out);
        assert!(edges(&mut out).is_empty());
        assert_eq!(episode.view(now).unwrap().open_for.as_secs(), 1_000_000_000);
    }
}
