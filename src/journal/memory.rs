//! What is remembered, as wall times, and how a record changes it. No IO.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::messages::Message;
use crate::engine::input::{OpenEpisode, Resumed, Stored};
use crate::engine::output::Record;
use crate::ids::{Epoch, OpenEpoch};

/// Milliseconds since 1970 by the wall clock.
pub(super) type Millis = i64;

/// One server's row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Remembered {
    pub(super) epoch: Epoch,
    pub(super) failed_attempts: u64,
    pub(super) launched_at: Option<Millis>,
    pub(super) lasted_at: Option<Millis>,
    pub(super) unwanted_at: Option<Millis>,
    pub(super) forgiven_attempts: u64,
    pub(super) episode: Option<Episode>,
    pub(super) paused: bool,
    pub(super) narrowing: Option<String>,
    pub(super) open: Option<OpenEpoch>,
}

/// An open episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Episode {
    pub(super) since: Millis,
    pub(super) attempt: u64,
    pub(super) why: String,
}

impl Remembered {
    /// The row after a record; `None` where the server is forgotten. Messages are no part of it.
    pub(super) fn after(mut self, record: Record, at: SystemTime) -> Option<Self> {
        let at = millis(at);
        match record {
            Record::Launched(epoch) => (self.epoch, self.launched_at) = (epoch, Some(at)),
            Record::Count(count) => self.failed_attempts = count,
            Record::Lasted => (self.lasted_at, self.forgiven_attempts) = (Some(at), 0),
            Record::Unwanted => {
                (self.unwanted_at, self.forgiven_attempts) = (Some(at), self.failed_attempts);
            }
            Record::Down { attempt, why } => {
                self.episode = Some(Episode {
                    since: at,
                    attempt,
                    why,
                });
            }
            Record::Clear => self.episode = None,
            Record::Paused(paused) => self.paused = paused,
            Record::Narrowing(params) => self.narrowing = Some(params),
            Record::Forget => return None,
            Record::Store { .. } | Record::Mark { .. } | Record::Discard { .. } => {}
        }
        Some(self)
    }

    /// As durations up to `now`. A wall clock that went back since gives zero.
    pub(super) fn resumed(&self, now: SystemTime) -> Resumed {
        let since = |then: Millis| since(then, now);
        Resumed {
            epoch: self.epoch,
            failed_attempts: self.failed_attempts,
            since_launch: self.launched_at.map(since),
            since_lasted: self.lasted_at.map(since),
            since_unwanted: self.unwanted_at.map(since),
            forgiven_attempts: self.forgiven_attempts,
            episode: self.episode.as_ref().map(|episode| OpenEpisode {
                since: since(episode.since),
                attempt: episode.attempt,
                why: episode.why.clone(),
            }),
            paused: self.paused,
            narrowing: self.narrowing.clone(),
            ..Resumed::default()
        }
    }
}

impl Message {
    /// As it outlives the gateway.
    pub(super) fn resumed(self, key: u64, now: SystemTime) -> Stored {
        Stored {
            key,
            age: since(self.received_at, now),
            forwarded: self.marks.forwarded,
            accepted: self.marks.accepted,
            frame: self.frame,
        }
    }
}

/// A wall clock that went back since gives zero.
fn since(then: Millis, now: SystemTime) -> Duration {
    let since = millis(now).saturating_sub(then);
    Duration::from_millis(u64::try_from(since).unwrap_or(0))
}

/// Before 1970 is 0; past the year 292 million is the end of time.
pub(super) fn millis(at: SystemTime) -> Millis {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_a_wall_clock_that_went_back_gives_zero_and_never_a_negative_duration() {
        let noon = UNIX_EPOCH + Duration::from_secs(43_200);
        let row = Remembered::default()
            .after(Record::Launched(Epoch(7)), noon)
            .unwrap();
        let later = noon + Duration::from_secs(5);
        let earlier = noon - Duration::from_secs(5);
        assert_eq!(
            row.resumed(later).since_launch,
            Some(Duration::from_secs(5))
        );
        assert_eq!(row.resumed(earlier).since_launch, Some(Duration::ZERO));
        assert_eq!(row.resumed(later).epoch, Epoch(7));
    }
}
