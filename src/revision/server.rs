//! A server shown to its engine as one of the session revisions, whichever it speaks (decision 0015). One of these
//! lives as long as a transport. It decides nothing about reconnecting, gating or who may do what.

mod heading;
mod listening;
mod opening;
mod own;
mod rounds;
mod session;
mod stamp;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use self::opening::{Finding, Step};
use self::session::Session;
use crate::revision::mirrored::Mirrored;
use crate::wire::jsonrpc::{self, Error, Message, Unreadable};

pub use self::opening::Opening;

/// What is to be done, in order.
#[derive(Debug)]
pub enum Output {
    /// A frame for the server.
    Send {
        /// The message.
        frame: Bytes,
        /// The id, where it is a request.
        request: Option<u64>,
    },
    /// A message for the engine, as if the server had sent it.
    Receive {
        /// The message.
        message: Message,
        /// The engine's id of the call that the server asks something for.
        during: Option<u64>,
    },
    /// For the engine: the server sent what is no message of a session's.
    Unreadable(Unreadable),
    /// For the engine: this frame of its own has no meaning to the server.
    Unsent(Bytes),
    /// For the engine: the server tells of no changes any more, and cannot be made to.
    Deaf(String),
}

/// One transport's translation.
#[derive(Debug)]
pub struct Server {
    over_http: bool,
    era: Era,
    outputs: Outputs,
}

#[derive(Debug)]
enum Era {
    Finding(Box<Finding>),
    Session,
    Stateless(Box<Session>),
}

impl Server {
    /// For a transport that has carried nothing yet. Over HTTP tools can be called only where a header can carry what
    /// they mirror.
    #[must_use]
    pub fn new(opening: Opening, over_http: bool) -> Self {
        Self {
            over_http,
            era: Era::Finding(Box::new(Finding::new(opening))),
            outputs: Outputs::default(),
        }
    }

    /// Nothing is translated any more: once the outputs are drained, this can go.
    #[must_use]
    pub fn is_needless(&self) -> bool {
        matches!(self.era, Era::Session)
    }

    /// A frame that the engine wants to be sent.
    pub fn take_of_engine(&mut self, frame: Bytes, request: Option<u64>, now: Instant) {
        let Ok(message) = Message::parse(frame.clone()) else {
            return self.outputs.send(frame, request);
        };
        match &mut self.era {
            Era::Session => self.outputs.send(frame, request),
            Era::Finding(finding) => {
                let step = finding.take_of_engine(&message);
                self.carry_out(step);
            }
            Era::Stateless(session) => session.take_of_engine(&message, now, &mut self.outputs),
        }
    }

    /// A message that the server sent.
    pub fn take_of_server(&mut self, message: Message, now: Instant) {
        match &mut self.era {
            Era::Session => self.outputs.receive(message),
            Era::Finding(finding) => {
                let step = finding.take_of_server(message, now);
                self.carry_out(step);
            }
            Era::Stateless(session) => session.take_of_server(message, now, &mut self.outputs),
        }
    }

    /// The server sent something that is no message.
    pub fn take_unreadable(&mut self, what: Unreadable, now: Instant) {
        match &mut self.era {
            Era::Session | Era::Finding(_) => self.outputs.push(Output::Unreadable(what)),
            Era::Stateless(session) => session.take_unreadable(what, now, &mut self.outputs),
        }
    }

    /// The transport is lost. What comes of it comes before the loss.
    pub fn take_loss(&mut self) {
        if let Era::Finding(finding) = &mut self.era
            && let Some(refusal) = finding.take_loss()
        {
            self.outputs.receive(refusal);
        }
    }

    /// The request of that id could not be sent. What is returned is the engine's id of it, of which the engine is to
    /// be told.
    pub fn unsent(&mut self, request: u64, now: Instant) -> Option<u64> {
        match &mut self.era {
            Era::Session | Era::Finding(_) => Some(request),
            Era::Stateless(session) => session.unsent(request, now, &mut self.outputs),
        }
    }

    /// When it wants to be woken.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.era {
            Era::Stateless(session) => session.due(),
            Era::Finding(finding) => finding.due(),
            Era::Session => None,
        }
    }

    /// That time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.era {
            Era::Session => {}
            Era::Finding(finding) => {
                if let Some(step) = finding.wake(now) {
                    self.carry_out(step);
                }
            }
            Era::Stateless(session) => session.wake(now, &mut self.outputs),
        }
    }

    /// The header fields that repeat what a frame says, by their names in lower case; none where it is no stateless
    /// request.
    #[must_use]
    pub fn heading(&self, frame: &Bytes) -> Vec<(String, String)> {
        let Ok(message) = Message::parse(frame.clone()) else {
            return Vec::new();
        };
        match &self.era {
            Era::Session => Vec::new(),
            Era::Finding(_) => heading::fields(&message, &Mirrored::default()),
            Era::Stateless(session) => session.heading(&message),
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.0.pop_front()
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Send(frame, request) => self.outputs.send(frame, request),
            Step::Tell(bytes) => self.outputs.tell(bytes, None),
            Step::Session(bytes) => {
                self.outputs.tell(bytes, None);
                self.era = Era::Session;
            }
            Step::Stateless(found) => {
                self.outputs.tell(found.answer.clone(), None);
                self.era = Era::Stateless(Box::new(Session::new(*found, self.over_http)));
            }
        }
    }
}

/// What is to be done, in order.
#[derive(Debug, Default)]
struct Outputs(VecDeque<Output>);

impl Outputs {
    fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    fn send(&mut self, frame: Bytes, request: Option<u64>) {
        self.push(Output::Send { frame, request });
    }

    fn unsent(&mut self, frame: Bytes) {
        self.push(Output::Unsent(frame));
    }

    fn receive(&mut self, message: Message) {
        let during = None;
        self.push(Output::Receive { message, during });
    }

    /// A message for the engine that was made or changed here.
    fn tell(&mut self, bytes: Bytes, during: Option<u64>) {
        match Message::parse(bytes) {
            Ok(message) => self.push(Output::Receive { message, during }),
            Err(what) => self.push(Output::Unreadable(what)),
        }
    }

    /// The engine's request is answered here.
    fn answer(&mut self, id: u64, result: &str) {
        self.tell(jsonrpc::response(&id.to_string(), result), None);
    }

    /// The engine's request is refused here.
    fn refuse(&mut self, id: u64, code: i64, text: &str) {
        let error = Error::new(code, text);
        self.tell(jsonrpc::error_response(&id.to_string(), &error), None);
    }
}
