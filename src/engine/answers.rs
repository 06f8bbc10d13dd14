//! Who is owed which answer (A1 to A5, A7): requests under way to the server and to hosts, by the gateway's own ids,
//! with their deadlines. It holds no message.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::timers::{Deadlines, Timer};
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::RequestId;

/// Calls that ended without an answer and may still get one.
const OVERDUE_MAX: usize = 4_096;

/// A request under way to the server.
#[derive(Debug)]
pub(super) struct Call {
    /// Who wants the answer.
    pub(super) asker: Asker,
    /// Its method.
    pub(super) method: Box<str>,
    /// When it was sent.
    pub(super) since: Instant,
    /// Its deadline, and how far each sign of progress moves it.
    limit: Option<(Timer, Instant, Duration)>,
}

/// Who wants an answer of the server.
#[derive(Debug)]
pub(super) enum Asker {
    /// A host's session.
    Host {
        /// Which.
        session: SessionId,
        /// The id it chose.
        id: RequestId,
        /// The progress token it chose, as JSON text.
        token: Option<Box<str>>,
    },
    /// The gateway itself.
    Own(Own),
}

/// What the gateway itself asks a server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// To accept a policy.
    Exchange,
    /// A page of a list.
    List,
    /// Its manifest (P8).
    Manifest,
    /// To take over what hosts had set up: a log level, a subscription (G15).
    Setting,
    /// To publish a post of the gateway's own, by the asker's ticket.
    Post(u64),
}

impl Call {
    /// A call that must be answered within `limit`; zero is no limit.
    pub(super) fn new(
        asker: Asker,
        method: &str,
        now: Instant,
        timer: Timer,
        limit: Duration,
    ) -> Self {
        let deadline = now.checked_add(limit).filter(|_| !limit.is_zero());
        Self {
            asker,
            method: method.into(),
            since: now,
            limit: deadline.map(|at| (timer, at, limit)),
        }
    }
}

/// The requests under way to the server's serving transport.
#[derive(Debug, Default)]
pub(super) struct Calls {
    live: BTreeMap<u64, Call>,
    deadlines: Deadlines<(Timer, u64)>,
    overdue: VecDeque<(u64, Box<str>)>,
    last: u64,
}

impl Calls {
    /// Adds a call, and tells its id: from 1 per epoch.
    pub(super) fn open(&mut self, call: Call) -> u64 {
        self.last += 1;
        if let Some((timer, at, _)) = call.limit {
            self.deadlines.set(at, (timer, self.last));
        }
        self.live.insert(self.last, call);
        self.last
    }

    /// Ends a call that is answered.
    pub(super) fn take(&mut self, id: u64) -> Option<Call> {
        let call = self.live.remove(&id)?;
        if let Some((timer, at, _)) = call.limit {
            self.deadlines.clear(at, (timer, id));
        }
        Some(call)
    }

    /// Ends a call whose answer nobody waits for any more.
    pub(super) fn abandon(&mut self, id: u64) -> Option<Call> {
        let call = self.take(id)?;
        if self.overdue.len() >= OVERDUE_MAX {
            self.overdue.pop_front();
        }
        self.overdue.push_back((id, call.method.clone()));
        Some(call)
    }

    /// Abandons the next call whose deadline has come.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(u64, Call)> {
        let (_, id) = self.deadlines.due(now)?;
        self.abandon(id).map(|call| (id, call))
    }

    /// The method of an abandoned call that is answered after all.
    pub(super) fn take_overdue(&mut self, id: u64) -> Option<Box<str>> {
        let at = self
            .overdue
            .iter()
            .position(|(overdue, _)| *overdue == id)?;
        self.overdue.remove(at).map(|(_, method)| method)
    }

    /// A live call.
    pub(super) fn get(&self, id: u64) -> Option<&Call> {
        self.live.get(&id)
    }

    /// Restarts the deadline of a call that made progress (R15).
    pub(super) fn renew(&mut self, id: u64, now: Instant) {
        let Some(call) = self.live.get_mut(&id) else {
            return;
        };
        let Some((timer, at, limit)) = call.limit else {
            return;
        };
        let later = now.checked_add(limit).unwrap_or(at);
        self.deadlines.clear(at, (timer, id));
        self.deadlines.set(later, (timer, id));
        call.limit = Some((timer, later, limit));
    }

    /// The newest call of a session under the id that it chose.
    pub(super) fn find(&self, session: SessionId, id: &str) -> Option<u64> {
        let is_it = |call: &Call| match &call.asker {
            Asker::Host {
                session: of,
                id: theirs,
                ..
            } => *of == session && theirs.as_str() == id,
            Asker::Own(_) => false,
        };
        let mut newest = self.live.iter().rev();
        newest.find(|(_, call)| is_it(call)).map(|(id, _)| *id)
    }

    /// The calls of a session.
    pub(super) fn of(&self, session: SessionId) -> Vec<u64> {
        let is_its =
            |call: &Call| matches!(call.asker, Asker::Host { session: of, .. } if of == session);
        let its = self.live.iter().filter(|(_, call)| is_its(call));
        its.map(|(id, _)| *id).collect()
    }

    /// The transport is gone: every call ends, and numbering starts afresh with the next one.
    pub(super) fn lose(&mut self) -> impl Iterator<Item = (u64, Call)> + use<> {
        let live = std::mem::take(self).live;
        live.into_iter()
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<(Instant, Timer)> {
        self.deadlines.next().map(|(at, (timer, _))| (at, timer))
    }
}

/// A request under way to a host.
#[derive(Debug)]
pub(super) struct Ask {
    /// The epoch that it came on.
    pub(super) epoch: Epoch,
    /// The id that the server chose; `None` where the server waits for no answer.
    pub(super) id: Option<RequestId>,
    /// Its method.
    pub(super) method: Box<str>,
    /// The progress token that the server chose, as JSON text.
    pub(super) token: Option<Box<str>>,
    /// The place in the queue of a world message that is not delivered until this is answered (G13).
    pub(super) waiting: Option<u64>,
    /// What its answer means.
    pub(super) want: Want,
    /// When the gateway stops waiting (G3).
    pub(super) deadline: Option<Instant>,
}

impl Ask {
    /// It asks for inference, which may be answered in chunks.
    pub(super) fn is_inference(&self) -> bool {
        *self.method == *crate::wire::mcpl::method::INFERENCE_REQUEST
    }
}

/// What a host's answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// It goes to the server as it is.
    Answer,
    /// It says which channels of a registration that was put aside the host takes.
    Channels {
        /// Under which number it was put aside.
        ticket: u64,
    },
    /// It lists channels; the gateway can do so too.
    Listing,
    /// As `Channels`, of channels that the gateway itself had accepted: the server was answered.
    Replay,
    /// Nothing: its arrival shows that what was sent before it was read (G13).
    Ping,
}

/// The requests under way to hosts.
#[derive(Debug, Default)]
pub(super) struct Asks {
    live: BTreeMap<(SessionId, u64), Ask>,
    last: BTreeMap<SessionId, u64>,
    /// When each session was last asked, as a number that grows.
    turns: BTreeMap<SessionId, u64>,
    turn: u64,
    deadlines: Deadlines<(SessionId, u64)>,
}

impl Asks {
    /// The id that the next request to `session` gets. From 1 per session.
    pub(super) fn next_id(&self, session: SessionId) -> u64 {
        self.last.get(&session).map_or(1, |last| last + 1)
    }

    /// Adds a request under [`Asks::next_id`].
    pub(super) fn open(&mut self, session: SessionId, ask: Ask) -> u64 {
        let id = self.next_id(session);
        self.last.insert(session, id);
        self.turn += 1;
        self.turns.insert(session, self.turn);
        if let Some(at) = ask.deadline {
            self.deadlines.set(at, (session, id));
        }
        self.live.insert((session, id), ask);
        id
    }

    /// When that session was last asked, where it owes an answer; the later, the more.
    pub(super) fn owes(&self, session: SessionId) -> Option<u64> {
        let mut live = self.live.range((session, 0)..=(session, u64::MAX));
        live.next().and(self.turns.get(&session)).copied()
    }

    /// Ends a request.
    pub(super) fn take(&mut self, session: SessionId, id: u64) -> Option<Ask> {
        let ask = self.live.remove(&(session, id))?;
        if let Some(at) = ask.deadline {
            self.deadlines.clear(at, (session, id));
        }
        Some(ask)
    }

    /// The next request whose deadline has come. It stays under way, without a deadline.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(SessionId, u64)> {
        let (at, (session, id)) = self.deadlines.next().filter(|(at, _)| *at <= now)?;
        self.deadlines.clear(at, (session, id));
        if let Some(ask) = self.live.get_mut(&(session, id)) {
            ask.deadline = None;
        }
        Some((session, id))
    }

    /// A request under way.
    pub(super) fn get(&self, session: SessionId, id: u64) -> Option<&Ask> {
        self.live.get(&(session, id))
    }

    /// The server is answered: what a host answers to the message at that place goes nowhere (A3).
    pub(super) fn close(&mut self, waiting: u64) {
        let mut live = self.live.values_mut();
        if let Some(ask) = live.find(|ask| ask.waiting == Some(waiting)) {
            ask.id = None;
            ask.token = None;
        }
    }

    /// As [`Asks::get`], to change what its answer means.
    pub(super) fn get_mut(&mut self, session: SessionId, id: u64) -> Option<&mut Ask> {
        self.live.get_mut(&(session, id))
    }

    /// The newest request of `epoch` under the id that the server chose.
    pub(super) fn find(&self, epoch: Epoch, id: &str) -> Option<(SessionId, u64)> {
        let is_it =
            |ask: &Ask| ask.epoch == epoch && ask.id.as_ref().is_some_and(|of| of.as_str() == id);
        let mut newest = self.live.iter().rev();
        newest.find(|(_, ask)| is_it(ask)).map(|(key, _)| *key)
    }

    /// Ends every request to a session that went.
    pub(super) fn detach(&mut self, session: SessionId) -> Vec<Ask> {
        self.last.remove(&session);
        self.turns.remove(&session);
        let its = (session, 0)..=(session, u64::MAX);
        let ids: Vec<u64> = self.live.range(its).map(|((_, id), _)| *id).collect();
        ids.into_iter()
            .filter_map(|id| self.take(session, id))
            .collect()
    }

    /// Ends the requests of a lost epoch that report nothing about the world (G5), and names their sessions and ids.
    pub(super) fn lose(&mut self) -> Vec<(SessionId, u64)> {
        let process = self.live.iter().filter(|(_, ask)| ask.waiting.is_none());
        let keys: Vec<_> = process.map(|(key, _)| *key).collect();
        for (session, id) in &keys {
            self.take(*session, *id);
        }
        keys
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadlines.next().map(|(at, _)| at)
    }
}
