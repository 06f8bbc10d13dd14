//! A stream of server-sent events over a connection, and where to take it up again when it breaks.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;

use super::connection::Connection;
use crate::wire::sse::{Decoder, Event};

/// The longest wait that a server can ask for before its stream is opened again.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The first wait where it asks for none, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// A message.
    Message(Bytes),
    /// The beginning of a message past the bound.
    TooLong(Bytes),
    /// The server ended the stream.
    End,
    /// The connection broke.
    Broken(hyper::Error),
}

/// One stream, over as many connections as it takes.
#[derive(Debug)]
pub(super) struct Stream {
    body: Incoming,
    connection: Connection,
    decoder: Decoder,
    events: VecDeque<Event>,
    after: Option<Box<str>>,
    retry: Option<Duration>,
}

impl Stream {
    pub(super) fn new(body: Incoming, connection: Connection) -> Self {
        Self {
            body,
            connection,
            decoder: Decoder::default(),
            events: VecDeque::new(),
            after: None,
            retry: None,
        }
    }

    /// Goes on over another connection.
    pub(super) fn resume(&mut self, body: Incoming, connection: Connection) {
        self.after = self.last_id();
        self.decoder = Decoder::default();
        self.body = body;
        self.connection = connection;
    }

    /// The id of the last event.
    pub(super) fn last_id(&self) -> Option<Box<str>> {
        self.decoder
            .last_id()
            .map(Into::into)
            .or_else(|| self.after.clone())
    }

    /// How long to wait before it is taken up again, after so many times without a word: what the server asks for; or
    /// nothing at first, and then ever longer.
    pub(super) fn pause(&self, silent: u32) -> Duration {
        pause(silent, self.retry)
    }

    /// The connection of a stream that ended.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }

    pub(super) async fn next(&mut self) -> Next {
        loop {
            while let Some(event) = self.events.pop_front() {
                match event {
                    Event::Data { kind: None, data } => return Next::Message(data),
                    // Of a type that says no message.
                    Event::Data { kind: Some(_), .. } => {}
                    Event::TooLong(beginning) => return Next::TooLong(beginning),
                    Event::Retry(wait) => self.retry = Some(wait),
                }
            }
            match self.connection.piece(&mut self.body).await {
                Ok(Some(piece)) => {
                    let mut events = Vec::new();
                    self.decoder.read(&piece, &mut events);
                    self.events.extend(events);
                }
                Ok(None) => return Next::End,
                Err(error) => return Next::Broken(error),
            }
        }
    }
}

fn pause(silent: u32, retry: Option<Duration>) -> Duration {
    let own = match silent {
        0 => Duration::ZERO,
        _ => PAUSE
            .saturating_mul(1 << (silent - 1).min(16))
            .min(PAUSE_MAX),
    };
    retry.map_or(own, |asked| asked.min(RETRY_MAX).max(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-025, BR-031
    #[test]
    fn a_stream_that_ends_without_a_word_is_opened_ever_more_slowly() {
        let own: Vec<_> = (0..9).map(|silent| pause(silent, None).as_secs()).collect();
        assert_eq!(own, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX, None), PAUSE_MAX);
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause(0, asked(3)).as_secs(), 3);
        assert_eq!(pause(4, asked(3)).as_secs(), 8);
        assert_eq!(pause(0, asked(86_400)), RETRY_MAX);
    }
}
