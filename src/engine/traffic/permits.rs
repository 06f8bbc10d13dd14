//! What a host may send to its server: MCPL's methods under the grant of this moment, and a stream where it began
//! (MCPL §5.4; P9, G15). It sends nothing.

use std::borrow::Cow;
use std::time::Instant;

use super::Traffic;
use super::authority::{Lack, feature_set_in};
use crate::engine::decision::DropReason;
use crate::engine::grant;
use crate::engine::streams::Name;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{Error, Kind, Message, code};
use crate::wire::mcpl::method;
use crate::wire::methods::{self, Method, Needs, Sender};

/// Why a host's message does not go to its server: what its request is answered, or why its notification is dropped.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) reason: DropReason,
}

impl Refusal {
    pub(super) fn new(code: i64, text: String, reason: DropReason) -> Self {
        let error = Error::new(code, text);
        Self { error, reason }
    }
}

impl Traffic {
    /// The message as it may go to the server: as it is, or without what the server may not see.
    pub(super) fn permit<'a>(
        &mut self,
        session: SessionId,
        message: &'a Message,
        now: Instant,
    ) -> Result<Cow<'a, Message>, Refusal> {
        let Some(method) = methods::find(message.method()) else {
            return Ok(Cow::Borrowed(message));
        };
        self.know_sender(session, method)?;
        let lack = self.lack_of_host(method, message, now);
        self.follow_stream(session, message, lack.is_none(), now)?;
        match lack {
            Some(error) => Err(Refusal {
                error,
                reason: DropReason::NotGranted,
            }),
            None => self.withhold(message),
        }
    }

    /// MCPL is spoken by a session that advertised it, and each method in its own direction.
    fn know_sender(&self, session: SessionId, method: &Method) -> Result<(), Refusal> {
        let name = method.name;
        if !self.hosts.get(session).is_some_and(super::Session::is_mcpl) {
            let text = format!("only a session that advertised MCPL sends `{name}`");
            let reason = DropReason::NoReceiver;
            return Err(Refusal::new(code::METHOD_NOT_FOUND, text, reason));
        }
        method.misplaced(Sender::Host).map_or(Ok(()), |why| {
            let text = format!("`{name}` {why}");
            let reason = DropReason::Unreadable;
            Err(Refusal::new(code::METHOD_NOT_FOUND, text, reason))
        })
    }

    /// What the server lacks for a host's message, where it serves.
    fn lack_of_host(&self, method: &Method, message: &Message, now: Instant) -> Option<Error> {
        if self.serving.is_none() || method.needs == Needs::Nothing {
            return None;
        }
        // The grant is empty until this epoch's exchange has settled: that is no denial.
        if !self.policy.is_settled() {
            return Some(self.crowded_out("the server's policy is not settled yet", now));
        }
        match method.needs {
            Needs::Granted(paths) | Needs::GrantedUnder(paths) => {
                let granted = self.policy.granted();
                let any = paths.iter().any(|path| granted.has(path));
                let named = paths.first().filter(|_| !any)?;
                Some(Lack::Capability(named).error())
            }
            Needs::Rollback => self.lack_of_rollback(message),
            Needs::Nothing | Needs::Leave => None,
        }
    }

    /// A rollback is of a feature set that is enabled and declares it (MCPL §8.1).
    fn lack_of_rollback(&self, message: &Message) -> Option<Error> {
        let Some(name) = feature_set_in(message) else {
            let text = "`featureSet` is wanted: the one to roll back";
            return Some(Error::new(code::INVALID_PARAMS, text));
        };
        let manifest = self.manifest().unwrap_or("{}");
        match self.policy.feature_set(&name) {
            Some(true) if grant::declares_rollback(manifest, &name) => None,
            Some(true) => {
                let error = Error::new(code::METHOD_NOT_FOUND, "the feature set has no rollback");
                Some(error.with_data(serde_json::json!({ "featureSet": name })))
            }
            Some(false) => Some(Lack::Enabled(name).error()),
            None => Some(Lack::Declared(name).error()),
        }
    }

    /// Pieces of a stream go where the first went, or nowhere; its host is told at the request that ends it (G15).
    fn follow_stream(
        &mut self,
        session: SessionId,
        message: &Message,
        permitted: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let text = |key: &str| {
            let span = message.param(&[key]);
            span.map(|span| message.text(&span)).unwrap_or_default()
        };
        let channel = text("channelId");
        let name = Name::new(text("inferenceId"), channel);
        let serving = self.serving;
        let to = serving.filter(|_| permitted);
        let broke_off = match message.method() {
            method::OUTGOING_CHUNK => self.streams.piece(session, name, to) != to,
            method::OUTGOING_COMPLETE => self.streams.end(session, name, to) != to,
            method::CHANNELS_PUBLISH if message.kind() == Kind::Request => {
                self.streams.take_broken(session, channel, serving)
            }
            _ => false,
        };
        if broke_off && (permitted || message.method() == method::CHANNELS_PUBLISH) {
            let (error, reason) = (self.broke_off(now), DropReason::Unmatched);
            return Err(Refusal { error, reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{PLAIN, Rig, field, request};
    use super::*;
    use crate::engine::input::HostEvent;
    use crate::wire::methods::METHODS;

    fn notice(name: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"{name}","params":{params}}}"#)
    }

    /// What hosts send that needs a capability.
    fn guarded() -> impl Iterator<Item = &'static Method> {
        let of_hosts = METHODS
            .iter()
            .filter(|method| method.misplaced(Sender::Host).is_none());
        of_hosts.filter(|method| !method.capabilities().is_empty())
    }

    #[test]
    fn p1_what_a_host_sends_goes_on_with_its_capability_and_is_refused_by_its_name_without() {
        for method in guarded() {
            let name = method.name;
            let mut rig = Rig::without(&[]);
            rig.host(1, &request(1, name, r#"{"requestId":1}"#));
            assert_eq!(field(&rig.take_sent()[0], "method"), name);
            let mut rig = Rig::without(method.capabilities());
            rig.host(1, &request(1, name, "{}"));
            rig.host(1, &notice(name, "{}"));
            assert!(rig.take_sent().is_empty(), "{name}");
            let answer = &rig.take_answers(1)[0];
            assert_eq!(field(answer, "error.code"), code::NOT_GRANTED, "{name}");
            let wanted = method.capabilities()[0];
            assert_eq!(field(answer, "error.data.capability"), wanted, "{name}");
            assert_eq!(rig.dropped("not_granted"), 1, "{name}");
        }
    }

    #[test]
    fn p1_one_of_the_capabilities_that_a_method_can_do_with_is_enough() {
        for method in guarded() {
            for kept in method.capabilities() {
                let others: Vec<&str> = method
                    .capabilities()
                    .iter()
                    .filter(|path| *path != kept)
                    .copied()
                    .collect();
                let mut rig = Rig::without(&others);
                rig.host(1, &request(1, method.name, "{}"));
                assert_eq!(field(&rig.take_sent()[0], "method"), method.name);
            }
        }
    }

    #[test]
    fn p3_what_is_taken_away_is_refused_at_once_and_what_comes_back_at_the_receipt() {
        let mut rig = Rig::without(&[]);
        let passes = |rig: &mut Rig| {
            rig.host(1, &request(1, "channels/publish", "{}"));
            let publishes = |line: &String| line.contains("channels/publish");
            rig.take_sent().iter().any(publishes)
        };
        assert!(passes(&mut rig));
        rig.mask(&["channels.publish"]);
        rig.accept();
        assert!(!passes(&mut rig));
        rig.mask(&[]);
        let update = rig.take_sent().pop().unwrap();
        assert!(!passes(&mut rig));
        let id = field(&update, "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#
        ));
        assert!(passes(&mut rig));
    }

    #[test]
    fn g2_before_the_exchange_has_settled_a_host_is_told_to_try_again() {
        let mut rig = Rig::without(&[]);
        rig.lose();
        rig.adopt(super::super::rig::ALL);
        rig.host(1, &request(1, "channels/publish", "{}"));
        rig.host(1, &notice("channels/typing", "{}"));
        rig.host(1, &request(2, "mcpl/manifest", "{}"));
        let answer = &rig.take_answers(1)[0];
        assert_eq!(field(answer, "error.code"), code::NOT_SENT);
        assert_eq!(field(answer, "error.data.state"), "negotiating");
        assert_eq!(rig.dropped("not_granted"), 1);
        let sent = rig.take_sent();
        assert!(sent.iter().any(|line| line.contains("mcpl/manifest")));
        rig.server(r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
        rig.host(1, &request(1, "channels/publish", "{}"));
        let sent = rig.take_sent();
        assert!(sent.iter().any(|line| line.contains("channels/publish")));
    }

    #[test]
    fn p7_a_server_without_mcpl_gets_nothing_of_it_and_a_client_without_it_sends_nothing() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(PLAIN);
        rig.host(1, &request(1, "channels/publish", "{}"));
        assert_eq!(
            field(&rig.take_answers(1)[0], "error.code"),
            code::NOT_GRANTED
        );
        let mut rig = Rig::without(&[]);
        rig.client(2, "{}");
        for method in &METHODS {
            rig.host(2, &request(1, method.name, "{}"));
            let answer = &rig.take_answers(2)[0];
            assert_eq!(field(answer, "error.code"), code::METHOD_NOT_FOUND);
            rig.host(2, &notice(method.name, "{}"));
        }
        assert!(rig.take_sent().is_empty());
        let count = u64::try_from(METHODS.len()).unwrap();
        assert_eq!(rig.dropped("no_receiver"), count);
    }

    #[test]
    fn a_method_that_goes_the_other_way_or_was_removed_is_refused_to_either_side() {
        let mut rig = Rig::without(&[]);
        for method in &METHODS {
            let name = method.name;
            if method.misplaced(Sender::Host).is_some() {
                rig.host(1, &request(1, name, "{}"));
                rig.host(1, &notice(name, "{}"));
                let answer = &rig.take_answers(1)[0];
                assert_eq!(
                    field(answer, "error.code"),
                    code::METHOD_NOT_FOUND,
                    "{name}"
                );
                assert!(rig.take_sent().is_empty(), "{name}");
            }
            if method.misplaced(Sender::Server).is_some() {
                rig.server(&request(1, name, "{}"));
                rig.server(&notice(name, "{}"));
                let answer = &rig.take_sent()[0];
                assert_eq!(
                    field(answer, "error.code"),
                    code::METHOD_NOT_FOUND,
                    "{name}"
                );
                assert!(rig.take_answers(1).is_empty(), "{name}");
            }
        }
        assert_eq!(rig.dropped("unreadable"), 30);
    }

    #[test]
    fn p9_a_rollback_is_of_an_enabled_feature_set_that_declares_it() {
        for (params, wanted) in [
            (r#"{"featureSet":"notes","checkpoint":"c"}"#, 0),
            (r#"{"featureSet":"chat"}"#, code::METHOD_NOT_FOUND),
            (r#"{"featureSet":"other"}"#, code::UNKNOWN_FEATURE_SET),
            ("{}", code::INVALID_PARAMS),
        ] {
            let mut rig = Rig::without(&[]);
            rig.host(1, &request(1, "state/rollback", params));
            let sent = rig.take_sent().len();
            assert_eq!(sent, usize::from(wanted == 0), "{params}");
            for answer in rig.take_answers(1) {
                assert_eq!(field(&answer, "error.code"), wanted, "{params}");
            }
        }
        let mut rig = Rig::without(&["tools"]);
        rig.host(
            1,
            &request(1, "state/rollback", r#"{"featureSet":"notes"}"#),
        );
        let answer = &rig.take_answers(1)[0];
        assert_eq!(field(answer, "error.code"), code::NOT_ENABLED);
        assert_eq!(field(answer, "error.data.featureSet"), "notes");
    }

    /// A piece of the stream of inference `i` for channel `c`.
    fn piece(index: u64) -> String {
        let params =
            format!(r#"{{"inferenceId":"i","channelId":"c","index":{index},"delta":"d"}}"#);
        notice("channels/outgoing/chunk", &params)
    }

    fn complete() -> String {
        notice(
            "channels/outgoing/complete",
            r#"{"inferenceId":"i","channelId":"c","content":[]}"#,
        )
    }

    fn publish(id: u64, channel: &str) -> String {
        request(
            id,
            "channels/publish",
            &format!(r#"{{"channelId":"{channel}"}}"#),
        )
    }

    /// The next process of the same server has accepted its policy.
    fn succeed(rig: &mut Rig) {
        rig.adopt(super::super::rig::ALL);
        rig.accept();
        rig.take_sent();
        rig.take_answers(1);
    }

    #[test]
    fn g15_a_stream_reaches_one_epoch_whole_and_the_next_stream_the_next() {
        let mut rig = Rig::without(&[]);
        for line in [piece(0), piece(1), publish(1, "c"), complete()] {
            rig.host(1, &line);
        }
        assert_eq!(rig.take_sent().len(), 4);
        rig.lose();
        succeed(&mut rig);
        rig.host(1, &piece(0));
        rig.host(1, &publish(2, "c"));
        assert_eq!(rig.take_sent().len(), 2);
    }

    #[test]
    fn g15_no_piece_crosses_to_the_successor_and_the_request_that_ends_the_stream_is_lost() {
        let mut rig = Rig::without(&[]);
        rig.host(1, &piece(0));
        rig.take_sent();
        rig.lose();
        rig.host(1, &piece(1));
        succeed(&mut rig);
        rig.host(1, &piece(2));
        rig.host(1, &publish(1, "other"));
        assert_eq!(rig.take_sent().len(), 1);
        // A publish that asks for no answer ends no stream, and is whole.
        rig.host(1, &notice("channels/publish", r#"{"channelId":"c"}"#));
        assert_eq!(rig.take_sent().len(), 1);
        rig.host(1, &publish(2, "c"));
        rig.host(1, &piece(3));
        rig.host(1, &complete());
        assert!(rig.take_sent().is_empty());
        let answer = &rig.take_answers(1)[0];
        assert_eq!(field(answer, "error.code"), code::LOST);
        assert_eq!(field(answer, "error.data.sent"), true);
        assert_eq!(rig.dropped("unmatched"), 4);
        // It has ended, and its host was told: what follows is new.
        for line in [publish(3, "c"), piece(0)] {
            rig.host(1, &line);
            assert_eq!(rig.take_sent().len(), 1, "{line}");
        }
    }

    #[test]
    fn g15_the_end_of_a_stream_that_asks_for_an_answer_is_lost_too() {
        let mut rig = Rig::without(&[]);
        rig.host(1, &piece(0));
        rig.take_sent();
        rig.lose();
        succeed(&mut rig);
        let end = r#"{"inferenceId":"i","channelId":"c"}"#;
        rig.host(1, &request(1, "channels/outgoing/complete", end));
        assert_eq!(field(&rig.take_answers(1)[0], "error.code"), code::LOST);
        rig.host(1, &publish(2, "c"));
        assert_eq!(rig.take_sent().len(), 1);
    }

    #[test]
    fn g15_a_stream_that_began_while_the_server_was_away_begins_nowhere() {
        let mut rig = Rig::without(&[]);
        rig.lose();
        rig.host(1, &piece(0));
        succeed(&mut rig);
        rig.host(1, &piece(1));
        assert!(rig.take_sent().is_empty());
        assert_eq!(
            (rig.dropped("server_away"), rig.dropped("unmatched")),
            (1, 1)
        );
        rig.host(1, &publish(1, "c"));
        assert_eq!(rig.take_sent().len(), 1);
    }

    #[test]
    fn g15_a_stream_that_began_without_its_capability_does_not_begin_in_its_middle() {
        let mut rig = Rig::without(&["channels.streaming"]);
        rig.host(1, &piece(0));
        assert_eq!(rig.dropped("not_granted"), 1);
        rig.mask(&[]);
        rig.accept();
        rig.host(1, &piece(1));
        assert!(rig.take_sent().is_empty());
        assert_eq!(rig.dropped("unmatched"), 1);
    }

    #[test]
    fn p3_a_stream_loses_the_pieces_for_which_it_has_no_capability_and_no_more() {
        let mut rig = Rig::without(&[]);
        rig.host(1, &piece(0));
        rig.mask(&["channels.streaming"]);
        rig.host(1, &piece(1));
        assert_eq!(rig.dropped("not_granted"), 1);
        rig.accept();
        rig.mask(&[]);
        rig.accept();
        rig.host(1, &piece(2));
        assert_eq!(rig.take_sent(), [piece(2)]);
    }

    #[test]
    fn g15_the_streams_of_a_session_that_went_are_no_others() {
        let mut rig = Rig::without(&[]);
        rig.host(1, &piece(0));
        rig.take_sent();
        rig.lose();
        rig.event(1, HostEvent::Detached);
        rig.mcpl_host(1);
        succeed(&mut rig);
        rig.host(1, &publish(1, "c"));
        rig.host(1, &piece(0));
        assert_eq!(rig.take_sent().len(), 2);
    }
}
