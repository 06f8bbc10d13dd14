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
        let own = match silent {
            0 => Duration::ZERO,
            _ => PAUSE
                .saturating_mul(1 << (silent - 1).min(16))
                .min(PAUSE_MAX),
        };
        self.retry
            .map_or(own, |asked| asked.min(RETRY_MAX).max(own))
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
