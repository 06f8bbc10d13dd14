//! What is under way: requests to servers under ids of our own, and requests of servers with the client. It sends
//! nothing.

use std::collections::BTreeMap;

use super::SeatId;
use super::list::List;
use crate::wire::jsonrpc::RequestId;

/// Requests under way, to servers or with the client.
pub(super) const UNDER_WAY_MAX: usize = 10_000;

/// A request to a server.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) seat: SeatId,
    pub(super) want: Want,
}

/// What its answer is for.
#[derive(Debug)]
pub(super) enum Want {
    /// The client, which asked under this id by this method.
    Client {
        /// Its own.
        id: RequestId,
        /// The method.
        method: Box<str>,
    },
    /// A list.
    Part(Part),
    /// A list that was answered without it.
    Late(List),
    /// The answer to the client's `initialize`.
    Greeting,
    /// Nobody.
    Nobody,
}

/// A server's part in a list.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Which list, by the number of its gather.
    pub(super) gather: u64,
    /// The server's own cursor that it was asked with.
    pub(super) cursor: Option<Box<str>>,
    /// It was asked for what is known.
    pub(super) known: bool,
}

/// A request of a server that the client has.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) seat: SeatId,
    /// The server's side's id of it.
    pub(super) id: RequestId,
    /// The token for its progress, as JSON text.
    pub(super) token: Option<Box<str>>,
}

/// All that is under way.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    last: u64,
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) asks: BTreeMap<u64, Ask>,
}

impl Ledger {
    /// A number that was never used in this session.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Opens a call; our id of it.
    pub(super) fn call(&mut self, seat: SeatId, want: Want) -> u64 {
        let ours = self.next();
        self.calls.insert(ours, Call { seat, want });
        ours
    }

    /// The call that a server's answer is for. A server answers its own calls alone.
    pub(super) fn answered(&mut self, seat: SeatId, ours: Option<u64>) -> Option<(u64, Call)> {
        let ours = ours?;
        let is_its = self.calls.get(&ours).is_some_and(|call| call.seat == seat);
        is_its
            .then(|| self.calls.remove(&ours))
            .flatten()
            .map(|call| (ours, call))
    }

    /// The client's latest request of that id.
    pub(super) fn of_client(&self, id: &str) -> Option<u64> {
        let is_it = |call: &Call| match &call.want {
            Want::Client { id: theirs, .. } => theirs.as_str() == id,
            Want::Part(_) | Want::Late(_) | Want::Greeting | Want::Nobody => false,
        };
        let mut calls = self.calls.iter().rev();
        let found = calls.find(|(_, call)| is_it(call));
        found.map(|(ours, _)| *ours)
    }

    /// The request of a server's that has that id on its side.
    pub(super) fn of_server(&self, seat: SeatId, id: &str) -> Option<u64> {
        let mut asks = self.asks.iter();
        let found = asks.find(|(_, ask)| ask.seat == seat && ask.id.as_str() == id);
        found.map(|(ours, _)| *ours)
    }

    /// Takes out all that is under way with a server that is gone.
    pub(super) fn leave(&mut self, seat: SeatId) -> (Vec<(u64, Call)>, Vec<u64>) {
        let calls = self.calls.extract_if(.., |_, call| call.seat == seat);
        let calls = calls.collect();
        let asks = self.asks.extract_if(.., |_, ask| ask.seat == seat);
        (calls, asks.map(|(ours, _)| ours).collect())
    }
}
