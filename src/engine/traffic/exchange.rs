//! The policy exchange as traffic: its request to the server, its receipt, and what hosts are told of it (P1 to P7).

use super::{Request, Traffic};
use crate::engine::answers::{Asker, Call, Own};
use crate::engine::decision::{Class, Decision, Exchange, Hold};
use crate::engine::grant::{Narrowing, Terms};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::output::Record;
use crate::engine::peer::Peer;
use crate::engine::policy::{Offer, Reply};
use crate::engine::timers::Timer;
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{self, Message};
use crate::wire::mcpl::{Plane, method};

/// Updates of one host that wait for a receipt; an impatient host gets the last receipt.
const UPDATES_MAX: usize = 16;

impl Traffic {
    /// The terms that hold now.
    pub(super) fn offer(&self) -> Offer {
        let Some(peer) = &self.peer else {
            return Offer::default();
        };
        let Some(manifest) = peer.manifest() else {
            return Offer::default();
        };
        let mask = &self.settings.mask;
        let terms = Terms::new(
            manifest,
            peer.offers("tools"),
            mask,
            self.narrowing.as_ref(),
        );
        Offer {
            granted: terms.granted,
            params: terms.params(),
        }
    }

    /// The mask or the narrowing may have changed.
    pub(super) fn renegotiate(&mut self, at: Moment, out: &mut Outbox) {
        let mcpl = self.peer.as_ref().is_some_and(Peer::is_mcpl);
        if mcpl && self.serving.is_some() {
            self.policy.want(self.offer());
            self.exchange(at, out);
        }
    }

    /// Starts the exchange that is due, if any.
    pub(super) fn exchange(&mut self, at: Moment, out: &mut Outbox) {
        let Some(epoch) = self.serving else {
            return;
        };
        let Some(params) = self.policy.start(epoch, at.now) else {
            return;
        };
        let limit = self.settings.policy_timeout;
        let asker = Asker::Own(Own::Exchange);
        let name = method::FEATURE_SETS_UPDATE;
        let call = Call::new(asker, name, at.now, Timer::Policy, limit);
        let id = self.calls.open(call);
        let frame = jsonrpc::request(id, name, &params);
        out.send(epoch, Class::Request, frame, Some(id));
    }

    /// The exchange of the serving epoch is answered, or is not.
    pub(super) fn exchanged(&mut self, reply: Reply<'_>, at: Moment, out: &mut Outbox) {
        let Some(epoch) = self.serving else {
            return;
        };
        let lenient = self.settings.grant_without_receipt;
        let first = !self.policy.is_settled();
        let Some(settled) = self.policy.settle(epoch, reply, lenient, at.now) else {
            return;
        };
        let decision = Decision::Settled {
            outcome: settled.outcome,
            granted: self.policy.granted().len(),
            took: settled.took,
            note: settled.note,
        };
        out.decide(Some(epoch), decision);
        if settled.ends {
            self.request = Some(Request::End);
        }
        self.exchange(at, out);
        self.answer_updates(at, out);
        if first {
            self.settle(at, out);
        } else {
            self.regrant(at, out);
        }
    }

    /// The serving epoch's policy is settled: its planes open (G2).
    pub(super) fn settle(&mut self, at: Moment, out: &mut Outbox) {
        // What waited for a capability in an earlier epoch is judged anew under this one's grant (G11).
        self.waiting.unpark(|_| true);
        self.lift(Hold::Policy, at, out);
        self.set_up(at, out);
        self.read_lists(at, out);
    }

    /// A grant may have grown: what waits for it may pass now.
    fn regrant(&mut self, at: Moment, out: &mut Outbox) {
        let granted = self.policy.granted();
        if self.waiting.unpark(|what| granted.has(what)) {
            self.flush(at, out);
        }
    }

    /// The transport of a running exchange is gone (P5).
    pub(super) fn end_exchange(&mut self, epoch: Epoch, at: Moment, out: &mut Outbox) {
        if let Some(took) = self.policy.close(at.now) {
            let decision = Decision::Settled {
                outcome: Exchange::Closed,
                granted: 0,
                took,
                note: "the connection closed before the server answered".into(),
            };
            out.decide(Some(epoch), decision);
        }
        self.answer_updates(at, out);
    }

    /// Takes a hold away, and lets pass what it alone held.
    pub(super) fn lift(&mut self, hold: Hold, at: Moment, out: &mut Outbox) {
        let before = self.openness();
        let Some(held_for) = self.gate.lift(hold, at.now) else {
            return;
        };
        if self.openness() != before {
            out.decide(self.serving, Decision::HoldLifted { hold, held_for });
            self.flush(at, out);
        }
    }

    fn openness(&self) -> [bool; 3] {
        let data = |wakes| self.gate.is_open(Plane::Data, wakes);
        [
            self.gate.is_open(Plane::Control, false),
            data(false),
            data(true),
        ]
    }

    /// An MCPL host sends its own policy (P1).
    pub(super) fn narrow(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let params = message.params().unwrap_or("{}");
        let Some(narrowing) = Narrowing::read(params) else {
            return self.refuse_host(session, message, INVALID_UPDATE, out);
        };
        if self.narrowing.as_ref() != Some(&narrowing) {
            out.record(Record::Narrowing(params.into()));
            self.narrowing = Some(narrowing);
            self.renegotiate(at, out);
        }
        let id = message.id();
        if let (Some(held), Some(id)) = (self.hosts.get_mut(session), id)
            && held.updates.len() < UPDATES_MAX
        {
            held.updates.push(id);
        }
        self.answer_updates(at, out);
    }

    /// Answers the updates that wait, once no exchange runs.
    fn answer_updates(&mut self, at: Moment, out: &mut Outbox) {
        if self.serving.is_some() && self.policy.is_busy() {
            return;
        }
        let receipt = self
            .policy
            .receipt()
            .unwrap_or(r#"{"accepted":true}"#)
            .to_owned();
        let mut answered = Vec::new();
        for (id, session) in self.hosts.each_mut() {
            for update in session.updates.drain(..) {
                out.answer(id, jsonrpc::response(update.as_str(), &receipt));
                answered.push(id);
            }
        }
        for session in answered {
            self.serve_host(session, false, at, out);
        }
    }

    /// A host's first policy is settled, or it sent none in time: it serves (P1).
    pub(super) fn serve_host(
        &mut self,
        session: SessionId,
        unasked: bool,
        at: Moment,
        out: &mut Outbox,
    ) {
        if self.hosts.serve(session) {
            out.decide(self.serving, Decision::HostServes { unasked });
            self.replay(session, at, out);
            self.open_for_host(at, out);
        }
    }

    /// The data plane of an MCPL server is closed while no host serves (G3).
    pub(super) fn hold_for_host(&mut self, at: Moment, out: &mut Outbox) {
        let mcpl = self.peer.as_ref().is_some_and(Peer::is_mcpl);
        if mcpl && self.hosts.serving().is_none() {
            self.gate.hold(Hold::NoHost, at.now);
        } else {
            self.open_for_host(at, out);
        }
    }
}

const INVALID_UPDATE: (i64, &str) = (
    jsonrpc::code::INVALID_PARAMS,
    "`featureSets/update` takes lists of names",
);
