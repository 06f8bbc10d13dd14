//! Registrations of channels as traffic: judged by the host that serves, by the gateway in its stead, and replayed to
//! the next host (G3, G13).

use std::collections::BTreeSet;
use std::time::Duration;

use super::Traffic;
use crate::engine::answers::{Ask, Want};
use crate::engine::channels::{Channels, Judgement, Registration};
use crate::engine::decision::{Decision, DropReason, Hold};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::queue::Item;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{self, Error, Kind, Message, Span, code};
use crate::wire::mcpl::method;

/// A host has this long to judge a registration (G3).
const VERDICT: Duration = Duration::from_secs(5);

impl Traffic {
    /// A `channels/register`, or a `channels/changed`.
    pub(super) fn register(&mut self, item: &Item, at: Moment, out: &mut Outbox) {
        let message = &item.message;
        let Some((registration, changes)) = self.screen(message) else {
            let error = Error::new(code::INVALID_PARAMS, "lists of channels are wanted");
            return self.refuse_or_drop(item, &error, out);
        };
        let host = self.hosts.serving().filter(|_| registration.asks_a_host());
        if let (Some(session), Kind::Request) = (host, message.kind()) {
            return self.put_to_host(session, item, registration, &changes, at, out);
        }
        self.tally.delivered += 1;
        let ids = registration.ids();
        self.channels.follow(&registration);
        let result = self.channels.accept(registration);
        if let Some(session) = host {
            out.answer(session, message.with("", &borrowed(&changes)));
        } else if let Some(id) = message.id_text() {
            self.answer_server(item.epoch, jsonrpc::response(id, &result), out);
        }
        self.channels_settled(&ids, at, out);
    }

    fn refuse_or_drop(&mut self, item: &Item, error: &Error, out: &mut Outbox) {
        if item.message.kind() == Kind::Request {
            self.refuse_server(item.epoch, &item.message, error, out);
        } else {
            self.drop_read(DropReason::Unreadable, item.message.method(), 1, out);
        }
    }

    /// What of a registration may go on, and the changes to its message that leave out what may not.
    fn screen(&self, message: &Message) -> Option<(Registration, Vec<(Span, String)>)> {
        let is_change = message.method() == method::CHANNELS_CHANGED;
        let lists: &[&str] = if is_change {
            &["updated", "added"]
        } else {
            &["channels"]
        };
        let mut whole = Registration {
            is_change,
            ..Registration::default()
        };
        let mut changes = Vec::new();
        for key in lists {
            let Some(span) = message.param(&[key]) else {
                continue;
            };
            let before = whole.offered.len();
            let refused = whole.refused.len();
            let (mask, bounds) = (&self.settings.mask, &self.settings.bounds);
            self.channels
                .screen(message.text(&span), &mut whole, mask, bounds)?;
            if whole.refused.len() > refused {
                changes.push((span, whole.list_from(before)));
            }
        }
        if let Some(span) = message.param(&["removed"]) {
            whole.removed = Channels::removed(message.text(&span));
        }
        (is_change || message.param(&["channels"]).is_some()).then_some((whole, changes))
    }

    fn put_to_host(
        &mut self,
        session: SessionId,
        item: &Item,
        registration: Registration,
        changes: &[(Span, String)],
        at: Moment,
        out: &mut Outbox,
    ) {
        let asks = self.may_ask();
        let ticket = asks.then(|| self.channels.suspend(registration));
        let Some(ticket) = ticket.flatten() else {
            let error = Error::new(code::BUSY, "too many registrations wait; try again later");
            return self.refuse_server(item.epoch, &item.message, &error, out);
        };
        self.tally.delivered += 1;
        let ours = self.asks.next_id(session).to_string();
        out.answer(session, item.message.with(&ours, &borrowed(changes)));
        let want = Want::Channels { ticket };
        self.await_host(session, item, want, at);
    }

    /// A `channels/list` of the server.
    pub(super) fn list_channels(&mut self, item: &Item, at: Moment, out: &mut Outbox) {
        self.tally.delivered += 1;
        let message = &item.message;
        let Some(session) = self.hosts.serving().filter(|_| self.may_ask()) else {
            if let Some(id) = message.id_text() {
                let listing = self.channels.listing();
                self.answer_server(item.epoch, jsonrpc::response(id, &listing), out);
            }
            return;
        };
        let ours = self.asks.next_id(session).to_string();
        out.answer(session, message.with_id(&ours));
        self.await_host(session, item, Want::Listing, at);
    }

    fn await_host(&mut self, session: SessionId, item: &Item, want: Want, at: Moment) {
        let ask = Ask {
            epoch: item.epoch,
            id: item.message.id(),
            method: item.message.method().into(),
            token: None,
            waiting: None,
            want,
            deadline: at.now.checked_add(VERDICT),
        };
        self.asks.open(session, ask);
    }

    /// A host judged a registration.
    pub(super) fn registered(
        &mut self,
        ask: &Ask,
        ticket: u64,
        answer: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let Some(registration) = self.channels.resume(ticket) else {
            return;
        };
        let as_it_is = registration.refused.is_empty();
        let ids = registration.ids();
        let result = answer.result().map(|verdicts| {
            let judgement = Judgement::read(verdicts);
            self.channels
                .settle(registration, |id| judgement.refusal(id))
        });
        if let Some(id) = &ask.id {
            let frame = match result {
                Some(result) if !as_it_is => jsonrpc::response(id.as_str(), &result),
                _ => answer.with_id(id.as_str()),
            };
            self.answer_server(ask.epoch, frame, out);
        }
        self.channels_settled(&ids, at, out);
    }

    /// A registration that nobody waits for any more is none.
    pub(super) fn unregister(&mut self, ticket: u64, at: Moment, out: &mut Outbox) {
        if let Some(registration) = self.channels.resume(ticket) {
            self.channels_settled(&registration.ids(), at, out);
        }
    }

    /// A host did not judge in time: the gateway does, and the host's verdict is taken when it comes (G3).
    pub(super) fn judge_for_host(
        &mut self,
        session: SessionId,
        id: u64,
        at: Moment,
        out: &mut Outbox,
    ) {
        let Some(ask) = self.asks.get_mut(session, id) else {
            return;
        };
        let epoch = ask.epoch;
        let theirs = ask.id.take();
        let mut ids = BTreeSet::new();
        let result = match std::mem::replace(&mut ask.want, Want::Replay) {
            Want::Channels { ticket } => {
                let registration = self.channels.resume(ticket);
                registration.map(|registration| {
                    ids = registration.ids();
                    self.channels.accept(registration)
                })
            }
            Want::Listing => {
                ask.want = Want::Ping;
                Some(self.channels.listing())
            }
            Want::Replay | Want::Answer | Want::Ping => None,
        };
        if let (Some(theirs), Some(result)) = (theirs, result) {
            self.answer_server(epoch, jsonrpc::response(theirs.as_str(), &result), out);
        }
        self.replays.remove(&(session, id));
        self.channels_settled(&ids, at, out);
        self.open_for_host(at, out);
    }

    /// A host judged channels that the server was already told are registered.
    pub(super) fn replayed(
        &mut self,
        session: SessionId,
        id: u64,
        answer: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let verdicts = answer.result().unwrap_or(r#"{"registered":[]}"#);
        let gone = self.channels.refused_by(verdicts);
        if !gone.is_empty() {
            let text = format!("the host refuses {} registered channels", gone.len());
            out.decide(self.serving, Decision::Reported(text));
        }
        for channel in gone {
            self.channels.remove(&channel);
        }
        self.replays.remove(&(session, id));
        self.open_for_host(at, out);
    }

    /// Puts the registered channels to a host that is about to serve (G13).
    pub(super) fn replay(&mut self, session: SessionId, at: Moment, out: &mut Outbox) {
        let Some(epoch) = self.serving else {
            return;
        };
        for params in self.channels.batches() {
            let ask = Ask {
                epoch,
                id: None,
                method: method::CHANNELS_REGISTER.into(),
                token: None,
                waiting: None,
                want: Want::Replay,
                deadline: at.now.checked_add(VERDICT),
            };
            let id = self.asks.open(session, ask);
            self.replays.insert((session, id));
            out.answer(
                session,
                jsonrpc::request(id, method::CHANNELS_REGISTER, &params),
            );
        }
    }

    /// The data plane opens once a host serves and knows the channels (G13).
    pub(super) fn open_for_host(&mut self, at: Moment, out: &mut Outbox) {
        if self.replays.is_empty() && self.hosts.serving().is_some() {
            self.lift(Hold::NoHost, at, out);
        }
    }

    /// It is known of these channels whether they are registered: what waited for that is judged again (G9).
    fn channels_settled(&mut self, ids: &BTreeSet<String>, at: Moment, out: &mut Outbox) {
        let settled = |what: &str| {
            what.strip_prefix(CHANNEL)
                .is_some_and(|id| ids.contains(id))
        };
        if self.waiting.unpark(settled) {
            self.flush(at, out);
        }
        self.channels.leave(ids);
    }
}

/// What a message of a channel waits for, before the channel's id.
pub(super) const CHANNEL: &str = "channel ";

fn borrowed(changes: &[(Span, String)]) -> Vec<(Span, &str)> {
    let changes = changes.iter();
    changes
        .map(|(span, text)| (span.clone(), &**text))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, REGISTER, Rig, accepted, field, incoming, request};

    #[test]
    fn g2_a_registration_right_after_initialize_waits_for_its_grant_and_is_answered_itemised() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(REGISTER);
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
        rig.accept();
        let wanted = r#"{"jsonrpc":"2.0","id":100,"result":{"registered":["chat:1"],"results":[{"id":"chat:1","accepted":true}]}}"#;
        assert!(rig.take_sent().contains(&wanted.to_owned()));
        assert_eq!(rig.waiting(), [0; 4]);
    }

    #[test]
    fn g13_a_host_gets_the_channels_before_the_data_plane_opens() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(REGISTER);
        rig.server(&incoming(1, "chat:1"));
        rig.client(1, r#"{"experimental":{"mcpl":{}}}"#);
        rig.host(
            1,
            &request(
                1,
                "featureSets/update",
                r#"{"effectiveCapabilities":["*","channels.*"]}"#,
            ),
        );
        rig.receipt(r#"{"accepted":true}"#);
        let [_, replay] = &rig.take_answers(1)[..] else {
            panic!("a receipt and a replay are wanted");
        };
        assert_eq!(field(replay, "method"), "channels/register");
        assert_eq!(field(replay, "params.channels.0.id"), "chat:1");
        rig.host(1, &accepted(replay));
        let delivered = rig.take_answers(1);
        assert_eq!(field(&delivered[0], "method"), "channels/incoming");
        rig.host(1, &accepted(&delivered[0]));
        let sent = rig.take_sent();
        assert_eq!(
            sent.last().unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#
        );
    }

    #[test]
    fn g3_a_host_that_does_not_judge_in_time_is_judged_for_and_its_later_refusal_unregisters() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.server(REGISTER);
        let asked = rig.take_answers(1);
        assert!(rig.take_sent().is_empty());
        rig.wait(Duration::from_secs(5));
        assert_eq!(field(&rig.take_sent()[0], "result.registered.0"), "chat:1");
        assert_eq!(rig.traffic.channels.len(), 1);
        let id = field(&asked[0], "id");
        let results = r#"{"results":[{"id":"chat:1","accepted":false}]}"#;
        rig.host(
            1,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{results}}}"#),
        );
        assert_eq!(rig.traffic.channels.len(), 0);
        assert!(rig.take_sent().is_empty());
    }
}
