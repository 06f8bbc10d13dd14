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
