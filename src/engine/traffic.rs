//! The traffic half of the engine: what is held, granted, forwarded and answered. A stub until it lands.
#![allow(
    dead_code,
    clippy::unused_self,
    clippy::needless_pass_by_value,
    clippy::needless_pass_by_ref_mut,
    reason = "the traffic half replaces this file"
)]

use std::sync::Arc;
use std::time::Instant;

use super::decision::State;
use super::input::{HostEvent, Moment};
use super::outbox::Outbox;
use super::peer::Peer;
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::timers::Timer;
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{Message, Unreadable};

/// What a host's call meets while no transport serves (A4).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Away {
    /// The state that it is told.
    pub(super) state: State,
    /// The attempt that runs or comes next.
    pub(super) attempt: u64,
    /// When that begins, where it is known.
    pub(super) retry_at: Option<Instant>,
    /// Why it is away, without secrets.
    pub(super) reason: Option<String>,
}

/// What traffic wants of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// End it: the server's receipt asks for that (P4).
    End,
}

/// One server's traffic.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    settled: bool,
}

impl Traffic {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let _ = settings;
        Self::default()
    }
    pub(super) fn resume(&mut self, paused: bool, narrowing: Option<String>) {
        let _ = (paused, narrowing);
    }
    pub(super) fn configure(&mut self, settings: Arc<Settings>, at: Moment, out: &mut Outbox) {
        let _ = (settings, at, out);
    }
    pub(super) fn adopt(&mut self, epoch: Epoch, peer: Peer, at: Moment, out: &mut Outbox) {
        let _ = (epoch, peer, at, out);
        self.settled = true;
    }
    pub(super) fn receive(&mut self, epoch: Epoch, message: Message, at: Moment, out: &mut Outbox) {
        let _ = (epoch, message, at, out);
    }
    pub(super) fn unreadable(
        &mut self,
        epoch: Epoch,
        what: &Unreadable,
        at: Moment,
        out: &mut Outbox,
    ) {
        let _ = (epoch, what, at, out);
    }
    pub(super) fn unsent(
        &mut self,
        epoch: Epoch,
        request: Option<u64>,
        at: Moment,
        out: &mut Outbox,
    ) {
        let _ = (epoch, request, at, out);
    }
    pub(super) fn late(&mut self, epoch: Epoch, message: Message, at: Moment, out: &mut Outbox) {
        let _ = (epoch, message, at, out);
    }
    pub(super) fn lose(&mut self, epoch: Epoch, for_good: bool, at: Moment, out: &mut Outbox) {
        let _ = (epoch, for_good, at, out);
        self.settled = false;
    }
    pub(super) fn set_away(&mut self, away: Away) {
        let _ = away;
    }
    pub(super) fn host(
        &mut self,
        session: SessionId,
        event: HostEvent,
        at: Moment,
        out: &mut Outbox,
    ) {
        let _ = (session, event, at, out);
    }
    pub(super) fn pause(&mut self, on: bool, at: Moment, out: &mut Outbox) {
        let _ = (on, at, out);
    }
    pub(super) fn handle_timeout(&mut self, at: Moment, out: &mut Outbox) {
        let _ = (at, out);
    }
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        None
    }
    pub(super) fn take_request(&mut self) -> Option<Request> {
        None
    }
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }
    pub(super) fn fill(&self, now: Instant, snapshot: &mut Snapshot) {
        let _ = (now, snapshot);
    }
}
