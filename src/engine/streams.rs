//! The streams that hosts send to a server for a channel, each bound to the epoch of its first piece (G15). It holds no
//! piece of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::ids::{Epoch, SessionId};

/// Streams that are remembered; past that the one that was silent for longest is forgotten.
const STREAMS_MAX: usize = 1_024;

/// The streams that have not ended, the longest silent first.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    session: SessionId,
    name: Name,
    /// Where its pieces go; `None` where the first had nowhere to go.
    epoch: Option<Epoch>,
    /// Its host knows that it broke off.
    told: bool,
}

/// What tells the streams of a session from one another: digests, so that long ids cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    inference: u64,
    channel: u64,
}

impl Name {
    /// The stream of an inference for a channel, by the JSON text of both.
    pub(super) fn new(inference: &str, channel: &str) -> Self {
        Self {
            inference: digest(inference),
            channel: digest(channel),
        }
    }
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Streams {
    /// A piece of a stream: where the stream is bound to. A new one is bound to `epoch`.
    pub(super) fn piece(
        &mut self,
        session: SessionId,
        name: Name,
        epoch: Option<Epoch>,
    ) -> Option<Epoch> {
        let stream = self.take(session, name).unwrap_or(Stream {
            session,
            name,
            epoch,
            told: false,
        });
        let bound = stream.epoch;
        if self.open.len() >= STREAMS_MAX {
            self.open.remove(0);
        }
        self.open.push(stream);
        bound
    }

    /// The end of a stream: where it was bound to, as `epoch` where no piece of it had come.
    pub(super) fn end(
        &mut self,
        session: SessionId,
        name: Name,
        epoch: Option<Epoch>,
    ) -> Option<Epoch> {
        self.take(session, name)
            .map_or(epoch, |stream| stream.epoch)
    }

    /// Whether a stream for that channel broke off with its epoch, and its host was not told so; now it is.
    pub(super) fn take_broken(
        &mut self,
        session: SessionId,
        channel: &str,
        serving: Option<Epoch>,
    ) -> bool {
        let channel = digest(channel);
        let broken = self.open.iter_mut().find(|stream| {
            let is_lost = stream.epoch.is_some() && stream.epoch != serving;
            stream.session == session && stream.name.channel == channel && is_lost && !stream.told
        });
        broken.map(|stream| stream.told = true).is_some()
    }

    /// A session went, and its streams with it.
    pub(super) fn detach(&mut self, session: SessionId) {
        self.open.retain(|stream| stream.session != session);
    }

    fn take(&mut self, session: SessionId, name: Name) -> Option<Stream> {
        let is_it = |stream: &Stream| stream.session == session && stream.name == name;
        let at = self.open.iter().position(is_it)?;
        Some(self.open.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: SessionId = SessionId(1);
    const FIRST: Option<Epoch> = Some(Epoch(1));
    const SECOND: Option<Epoch> = Some(Epoch(2));

    fn name(inference: u64) -> Name {
        Name::new(&inference.to_string(), "\"c\"")
    }

    #[test]
    fn g15_a_stream_stays_with_the_epoch_of_its_first_piece_until_it_ends() {
        let mut streams = Streams::default();
        assert_eq!(streams.piece(HOST, name(1), FIRST), FIRST);
        assert_eq!(streams.piece(HOST, name(1), SECOND), FIRST);
        assert_eq!(streams.piece(SessionId(2), name(1), SECOND), SECOND);
        assert_eq!(streams.end(HOST, name(1), SECOND), FIRST);
        assert_eq!(streams.end(HOST, name(1), SECOND), SECOND);
        assert_eq!(streams.piece(HOST, name(1), SECOND), SECOND);
    }

    #[test]
    fn g15_that_a_stream_broke_off_is_told_once() {
        let mut streams = Streams::default();
        streams.piece(HOST, name(1), FIRST);
        streams.piece(HOST, Name::new("1", "\"d\""), None);
        assert!(!streams.take_broken(HOST, "\"c\"", FIRST));
        assert!(!streams.take_broken(HOST, "\"d\"", SECOND));
        assert!(!streams.take_broken(SessionId(2), "\"c\"", SECOND));
        assert!(streams.take_broken(HOST, "\"c\"", SECOND));
        assert!(!streams.take_broken(HOST, "\"c\"", SECOND));
        assert_eq!(streams.piece(HOST, name(1), SECOND), FIRST);
    }

    #[test]
    fn g16_the_stream_that_was_silent_for_longest_is_forgotten_past_the_bound() {
        let mut streams = Streams::default();
        for inference in 0..=1_024 {
            streams.piece(HOST, name(0), FIRST);
            streams.piece(HOST, name(inference), FIRST);
        }
        assert_eq!(streams.open.len(), STREAMS_MAX);
        assert_eq!(streams.piece(HOST, name(0), SECOND), FIRST);
        assert_eq!(streams.piece(HOST, name(1), SECOND), SECOND);
        streams.detach(HOST);
        assert!(streams.open.is_empty());
    }
}
