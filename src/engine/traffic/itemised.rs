//! A world message part by part: what of it the gateway settles itself, and how that joins what the host answers (G11,
//! G12). A message of which nothing is settled passes byte for byte.

use bytes::Bytes;

use super::Traffic;
use super::registrations::CHANNEL;
use crate::engine::admission::Novelty;
use crate::engine::decision::{Decision, DropReason};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::queue::{Item, Lane, Seq};
use crate::wire::incoming::{self, Part};
use crate::wire::jsonrpc::{self, Kind, Message, RequestId, member};
use crate::wire::mcpl::method;

/// Of a channel's id in a reason, so many characters at most.
const SHOWN_MAX: usize = 200;

/// What becomes of one part of a world message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The host judges it.
    Open,
    /// A host has the same and has not answered: its receipt decides.
    Undecided,
    /// It was admitted before: the receipt of that (G12).
    Repeated(String),
    /// Nobody registered its channel: its refusal (G11).
    Unknown(String),
}

impl Verdict {
    fn receipt(self) -> Option<Box<str>> {
        match self {
            Self::Open | Self::Undecided => None,
            Self::Repeated(receipt) | Self::Unknown(receipt) => Some(receipt.into()),
        }
    }
}

impl Traffic {
    /// What becomes of each part of a message that may go to the host.
    pub(super) fn verdicts(&self, item: &Item) -> Vec<Verdict> {
        let of = |novelty| match novelty {
            Novelty::New => Verdict::Open,
            Novelty::Undecided => Verdict::Undecided,
            Novelty::Admitted(receipt) => Verdict::Repeated(receipt),
        };
        let novelties = self.admitted.novelties(&item.message).into_iter();
        let mut verdicts: Vec<Verdict> = novelties.map(of).collect();
        for (verdict, unknown) in verdicts.iter_mut().zip(self.unknown(item)) {
            if let Some(refusal) = unknown {
                *verdict = Verdict::Unknown(refusal);
            }
        }
        verdicts
    }

    /// The refusal of each part whose channel nobody registered, unless its process is gone: then it waits (G9).
    fn unknown(&self, item: &Item) -> Vec<Option<String>> {
        let refusal = |part: Part<'_>| {
            let id = part.channel().filter(|id| !self.channels.has(id))?;
            let id: String = id.chars().take(SHOWN_MAX).collect();
            let id = jsonrpc::quoted(&id);
            let why = format!("unknown channel {id}: register it with channels/register first");
            Some(part.receipt(Some(&why)))
        };
        let parts = incoming::parts(&item.message).into_iter();
        parts.filter(|_| !item.kept).map(refusal).collect()
    }

    /// Settles what needs no host, and returns the message that is left, if any is.
    pub(super) fn settle_parts(
        &mut self,
        seq: Option<Seq>,
        mut item: Item,
        verdicts: Vec<Verdict>,
        out: &mut Outbox,
    ) -> Option<Item> {
        let open: Vec<bool> = verdicts.iter().map(|one| *one == Verdict::Open).collect();
        if !open.contains(&false) {
            return Some(item);
        }
        let refused = self.tell_settled(&item, &verdicts, out);
        let receipts = verdicts.into_iter().map(Verdict::receipt).collect();
        item.receipts.settle(receipts);
        if !open.contains(&true) {
            self.end_settled(seq, &item, refused, out);
            return None;
        }
        if let Some(rest) = incoming::only(&item.message, &open) {
            item.message = rest;
        }
        if let Some(seq) = seq {
            let (rest, receipts) = (item.message.clone(), item.receipts.clone());
            self.waiting.settle(seq, rest, receipts);
        }
        Some(item)
    }

    /// Tells of settled parts; whether any was refused.
    fn tell_settled(&self, item: &Item, verdicts: &[Verdict], out: &mut Outbox) -> bool {
        let count = |of: fn(&Verdict) -> bool| {
            let count = verdicts.iter().filter(|one| of(one)).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let repeated = count(|one| matches!(one, Verdict::Repeated(_)));
        let unknown = count(|one| matches!(one, Verdict::Unknown(_)));
        let method = || item.message.method().to_owned();
        if repeated > 0 {
            let (method, messages) = (method(), repeated);
            out.decide(self.serving, Decision::Repeated { method, messages });
        }
        if unknown > 0 {
            let (method, messages) = (method(), unknown);
            out.decide(self.serving, Decision::UnknownChannel { method, messages });
        }
        unknown > 0
    }

    /// Nothing is left of a message: its server is answered.
    fn end_settled(&mut self, seq: Option<Seq>, item: &Item, refused: bool, out: &mut Outbox) {
        if let Some(seq) = seq {
            self.waiting.take(seq);
        }
        if let Some(id) = item.message.id_text() {
            let result = settled_result(item);
            self.answer_server(item.epoch, jsonrpc::response(id, &result), out);
        }
        if !refused {
            self.tally.duplicate += 1;
        } else if item.message.kind() == Kind::Request {
            self.tally.refused += 1;
        } else {
            self.drop_read(DropReason::ChannelGone, item.message.method(), 1, out);
        }
    }

    /// What the gateway would accept for the host may name a channel that nobody registered: that is settled first.
    /// Whether anything is left to accept.
    pub(super) fn settle_unknown(&mut self, seq: Seq, out: &mut Outbox) -> bool {
        // What waits ahead of it may register the channel.
        let known = self.passes(Lane::Control) && self.waiting.front(Lane::Control).is_none();
        let Some(item) = self.waiting.waits(seq).filter(|_| known).cloned() else {
            return true;
        };
        if self.awaited_channel(&item).is_some() {
            return true;
        }
        let unknown = self.unknown(&item).into_iter();
        let verdicts = unknown.map(|refusal| refusal.map_or(Verdict::Open, Verdict::Unknown));
        let verdicts = verdicts.collect();
        self.settle_parts(Some(seq), item, verdicts, out).is_some()
    }

    /// The channel that a message waits for (G9): a kept one for each to be registered, a live one while a host judges
    /// it, and any behind an earlier one of the same channel.
    pub(super) fn awaited_channel(&self, item: &Item) -> Option<String> {
        let channels = incoming::parts(&item.message).into_iter();
        let mut channels = channels.filter_map(Part::channel);
        channels.find_map(|id| {
            let known = self.channels.has(&id);
            let waits = !known && (item.kept || self.channels.is_pending(&id));
            let blocked = || self.waiting.blocks(&id).filter(|_| known || waits);
            blocked()
                .map(str::to_owned)
                .or_else(|| waits.then(|| format!("{CHANNEL}{id}")))
        })
    }

    /// The serving epoch has lasted: what was kept for a channel that it never registered has nowhere to go (G9).
    pub(super) fn drop_gone(&mut self, at: Moment, out: &mut Outbox) {
        // A registration may wait for its grant.
        if !self.is_settled() {
            return;
        }
        for seq in self.waiting.parked(|what| what.starts_with(CHANNEL)) {
            let Some(item) = self.waiting.get(seq).filter(|item| item.kept) else {
                continue;
            };
            let goes = |part: Part<'_>| {
                let there = |id: String| self.channels.has(&id) || self.channels.is_pending(&id);
                part.channel().is_none_or(there)
            };
            let parts = incoming::parts(&item.message).into_iter();
            let open: Vec<bool> = parts.map(goes).collect();
            if !open.contains(&true) {
                let gone = self.waiting.take(seq);
                self.drop_items(DropReason::ChannelGone, gone.as_slice(), out);
            } else if let Some(rest) = incoming::only(&item.message, &open) {
                self.drop_parts(seq, rest, &open, out);
            }
        }
        if self.waiting.unpark(|what| what.starts_with(CHANNEL)) {
            self.flush(at, out);
        }
    }

    fn drop_parts(&mut self, seq: Seq, rest: Message, open: &[bool], out: &mut Outbox) {
        let count = open.iter().filter(|open| !**open).count();
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if count > 0 {
            self.say_dropped(DropReason::ChannelGone, rest.method(), count, out);
            self.waiting
                .settle(seq, rest, incoming::Receipts::default());
        }
    }
}

/// The result for a message of which nothing is left: itemised where its method is.
fn settled_result(item: &Item) -> String {
    let result = item.receipts.result(&[]);
    if item.message.method() == method::CHANNELS_INCOMING {
        return result;
    }
    let only = member(&result, "results").and_then(|list| list.get(1..list.len() - 1));
    only.unwrap_or(r#"{"accepted":true}"#).to_owned()
}

/// The result with which the gateway accepts what is left of a world request for the host (A3).
pub(super) fn acceptance(item: &Item) -> String {
    if item.message.method() != method::CHANNELS_INCOMING {
        return r#"{"accepted":true}"#.into();
    }
    let parts = incoming::parts(&item.message).into_iter();
    let accepted: Vec<String> = parts.map(|part| part.receipt(None)).collect();
    item.receipts.result(&accepted)
}

/// A host's answer as the server gets it: as it is, or joined with what the gateway had settled.
pub(super) fn answer(item: Option<&Item>, answer: &Message, id: &RequestId) -> Bytes {
    let Some(item) = item.filter(|item| !item.receipts.is_empty()) else {
        return answer.with_id(id.as_str());
    };
    let rest = match answer.result() {
        Some(result) => incoming::receipts(&item.message, result),
        None => incoming::refusals(&item.message, &reason(answer)),
    };
    jsonrpc::response(id.as_str(), &item.receipts.result(&rest))
}

/// Why a host took nothing, from its error.
fn reason(answer: &Message) -> String {
    let text = member(answer.error().unwrap_or_default(), "message");
    let text = text.and_then(incoming::value);
    text.unwrap_or_else(|| "the host answered with an error".into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, Rig, accepted, field, register};
    use super::*;
    use crate::engine::input::HostEvent;
    use crate::wire::jsonrpc::code;

    fn part(channel: &str, id: &str) -> String {
        format!(r#"{{"channelId":"{channel}","messageId":"{id}"}}"#)
    }

    /// A `channels/incoming` of these parts, each `channel/id`.
    fn several(id: u64, parts: &[&str]) -> String {
        let parts = parts.iter().map(|one| one.split_once('/').unwrap());
        let list: Vec<String> = parts.map(|(channel, id)| part(channel, id)).collect();
        let list = list.join(",");
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"channels/incoming","params":{{"messages":[{list}]}}}}"#
        )
    }

    fn note(parts: &[&str]) -> String {
        several(0, parts).replace(r#""id":0,"#, "")
    }

    /// A host serves, a chat bridge too, and its channels `a` and `b` are registered.
    fn chatting() -> Rig {
        let mut rig = Rig::new();
        rig.settled();
        registered(&mut rig);
        serve(&mut rig, 1);
        rig
    }

    /// A host comes, and says nothing of the channels that it is told of.
    fn serve(rig: &mut Rig, session: u64) {
        rig.mcpl_host(session);
        rig.wait(Duration::from_secs(5));
    }

    fn registered(rig: &mut Rig) {
        rig.server(&register("a"));
        rig.server(&register("b"));
        rig.take_sent();
    }

    /// What a host was asked with, as `channel/id`s.
    fn told(line: &str) -> Vec<String> {
        let parts = field(line, "params.messages");
        let parts = parts.as_array().unwrap().iter();
        let text = |part: &serde_json::Value, key| part[key].as_str().unwrap().to_owned();
        parts
            .map(|part| text(part, "channelId") + "/" + &text(part, "messageId"))
            .collect()
    }

    fn told_all(rig: &mut Rig, session: u64) -> Vec<String> {
        let lines = rig.take_answers(session);
        let lines = lines
            .iter()
            .filter(|line| line.contains("channels/incoming"));
        lines.flat_map(|line| told(line)).collect()
    }

    /// The verdicts of an answer to the server, as `id+` and `id-`.
    fn verdicts(line: &str) -> Vec<String> {
        let results = field(line, "result.results");
        let results = results.as_array().unwrap().iter();
        let sign = |one: &serde_json::Value| if one["accepted"] == true { "+" } else { "-" };
        results
            .map(|one| one["messageId"].as_str().unwrap().to_owned() + sign(one))
            .collect()
    }

    fn answer(rig: &mut Rig, session: u64, line: &str, outcome: &str) {
        let id = field(line, "id");
        rig.host(
            session,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#),
        );
    }

    fn counted(rig: &Rig) -> (u64, u64) {
        let count = |decision: &Decision| {
            if let Decision::Repeated { messages, .. } = decision {
                (*messages, 0)
            } else if let Decision::UnknownChannel { messages, .. } = decision {
                (0, *messages)
            } else {
                (0, 0)
            }
        };
        let each = rig.decisions.iter().map(count);
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    #[test]
    fn g11_a_live_message_for_a_channel_that_nobody_registered_is_refused_and_goes_to_no_host() {
        let mut rig = chatting();
        rig.server(&several(1, &["x/1"]));
        let wanted = r#"{"jsonrpc":"2.0","id":1,"result":{"results":[{"messageId":"1","accepted":false,"reason":"unknown channel \"x\": register it with channels/register first"}]}}"#;
        assert_eq!(rig.take_sent(), [wanted]);
        let single = several(2, &[]).replace(r#""messages":[]"#, r#""channelId":"x""#);
        rig.server(&single);
        assert_eq!(
            field(&rig.take_sent()[0], "result.results.0.accepted"),
            false
        );
        assert!(told_all(&mut rig, 1).is_empty());
        assert_eq!(counted(&rig), (0, 2));
        rig.server(&note(&["x/1"]));
        assert_eq!(counted(&rig), (0, 3));
        assert!(rig.take_sent().is_empty());
        assert_eq!(rig.waiting(), [0; 4]);
    }

    #[test]
    fn g11_the_other_messages_go_to_the_host_with_all_other_bytes_as_received() {
        let mut rig = chatting();
        let line = several(7, &["x/1", "a/2", "y/3", "b/4"]).replace("}]}", r#"}] , "z":1.0}"#);
        rig.server(&line);
        let asked = rig.take_answers(1);
        let left = format!(r#"[{},{}]"#, part("a", "2"), part("b", "4"));
        let wanted = format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"channels/incoming","params":{{"messages":{left} , "z":1.0}}}}"#
        );
        assert_eq!(asked, [wanted]);
        let receipts = r#""result":{"results":[{"messageId":"2","accepted":true,"by":"h"},{"messageId":"4","accepted":false}]}"#;
        answer(&mut rig, 1, &asked[0], receipts);
        let sent = rig.take_sent();
        assert_eq!(verdicts(&sent[0]), ["1-", "2+", "3-", "4-"]);
        assert_eq!(field(&sent[0], "result.results.1.by"), "h");
        assert_eq!(field(&sent[0], "id"), 7);
    }

    #[test]
    fn g12_new_messages_beside_repeated_ones_go_alone_and_all_are_answered_in_order() {
        let mut rig = chatting();
        rig.server(&several(1, &["a/1", "a/2"]));
        let asked = rig.take_answers(1);
        let receipts = r#""result":{"results":[{"messageId":"1","accepted":true,"n":1.0},{"messageId":"2","accepted":false}]}"#;
        answer(&mut rig, 1, &asked[0], receipts);
        rig.take_sent();
        rig.server(&several(2, &["a/2", "a/1", "a/3", "x/4"]));
        let asked = rig.take_answers(1);
        assert_eq!(told(&asked[0]), ["a/2", "a/3"], "a refused one is new");
        rig.host(1, &accepted(&asked[0]));
        let sent = rig.take_sent();
        assert_eq!(verdicts(&sent[0]), ["2+", "1+", "3+", "4-"]);
        assert_eq!(field(&sent[0], "result.results.1.n"), 1.0);
        rig.server(&several(3, &["a/3", "a/1"]));
        assert_eq!(verdicts(&rig.take_sent()[0]), ["3+", "1+"]);
        rig.server(&several(4, &["a/3", "x/1"]));
        assert_eq!(verdicts(&rig.take_sent()[0]), ["3+", "1-"]);
        assert!(told_all(&mut rig, 1).is_empty());
        assert_eq!(counted(&rig), (4, 2));
    }

    #[test]
    fn g12_a_host_that_errs_or_answers_short_or_too_much_is_joined_all_the_same() {
        let mut rig = chatting();
        let cases = [
            (
                r#""error":{"code":-32000,"message":"full"}"#,
                ["1-", "x-", "2-"],
            ),
            (r#""error":{"code":-32000}"#, ["1-", "x-", "2-"]),
            (r#""result":{"results":[]}"#, ["1-", "x-", "2-"]),
            (r#""result":{"results":7}"#, ["1-", "x-", "2-"]),
            (
                r#""result":{"results":[{"messageId":"2","accepted":true}]}"#,
                ["1-", "x-", "2+"],
            ),
            (
                r#""result":{"accepted":false,"reason":"r"}"#,
                ["1-", "x-", "2-"],
            ),
            (
                r#""result":{"results":[{"messageId":"1","accepted":true},{"messageId":"2","accepted":false},{"messageId":"3","accepted":true}]}"#,
                ["1+", "x-", "2-"],
            ),
        ];
        for (at, (outcome, wanted)) in (0..).zip(cases) {
            let mut rig = chatting();
            rig.server(&several(at, &["a/1", "c/x", "a/2"]));
            let asked = rig.take_answers(1);
            answer(&mut rig, 1, &asked[0], outcome);
            let sent = rig.take_sent();
            assert_eq!(verdicts(&sent[0]), wanted, "{outcome}");
        }
        rig.server(&several(9, &["a/1", "c/x"]));
        let asked = rig.take_answers(1);
        answer(&mut rig, 1, &asked[0], cases[0].0);
        let reason = field(&rig.take_sent()[0], "result.results.0.reason");
        assert_eq!(reason, "full");
        rig.server(&several(10, &["a/1"]));
        let asked = rig.take_answers(1);
        assert_eq!(told(&asked[0]), ["a/1"], "an error took nothing");
        answer(&mut rig, 1, &asked[0], cases[0].0);
        let whole = &rig.take_sent()[0];
        assert_eq!(
            field(whole, "error.code"),
            code::BUSY,
            "untouched is as it is"
        );
    }

    #[test]
    fn g11_a_message_waits_behind_the_registration_that_a_host_judges() {
        for (verdict, goes) in [("true", true), ("false", false)] {
            let mut rig = Rig::new();
            rig.mcpl_host(1);
            rig.settled();
            rig.server(&register("a"));
            let asked = rig.take_answers(1);
            rig.server(&several(1, &["a/1"]));
            rig.server(&several(2, &["x/2", "a/2"]));
            assert!(told_all(&mut rig, 1).is_empty());
            let outcome = format!(r#""result":{{"results":[{{"id":"a","accepted":{verdict}}}]}}"#);
            rig.take_sent();
            answer(&mut rig, 1, &asked[0], &outcome);
            let wanted: &[&str] = if goes { &["a/1", "a/2"] } else { &[] };
            assert_eq!(told_all(&mut rig, 1), wanted);
            assert_eq!(rig.waiting(), [0; 4]);
            let refused = rig.take_sent().len() - 1;
            assert_eq!(refused, if goes { 0 } else { 2 });
        }
    }

    #[test]
    fn g11_a_registration_that_ends_without_a_verdict_lets_go_what_waits_behind_it() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&register("a"));
        rig.server(&several(1, &["a/1"]));
        rig.take_sent();
        rig.server(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":100}}"#,
        );
        assert_eq!(verdicts(&rig.take_sent()[0]), ["1-"]);
        rig.server(&register("b"));
        rig.server(&several(2, &["b/2"]));
        rig.event(1, HostEvent::Detached);
        rig.take_sent();
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
        rig.mcpl_host(2);
        assert_eq!(verdicts(&rig.take_sent()[0]), ["2-"]);
    }

    #[test]
    fn g9_no_later_message_of_a_channel_passes_one_that_waits_for_another_channel() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.lose();
        rig.late(1, &several(1, &["a/1", "b/1"]));
        rig.settled();
        let notice = register("a").replace(r#""id":100,"#, "");
        rig.server(&notice);
        rig.server(&several(2, &["a/2"]));
        rig.server(&several(3, &["c/3"]));
        assert!(told_all(&mut rig, 1).is_empty());
        rig.server(&notice.replace("\"a\"", "\"b\""));
        assert_eq!(told_all(&mut rig, 1), ["a/1", "b/1", "a/2"]);
        assert_eq!(rig.waiting(), [0; 4]);
    }

    #[test]
    fn g12_a_message_that_a_host_has_delays_what_comes_with_it_and_after_it_in_that_channel() {
        let mut rig = chatting();
        rig.server(&several(1, &["a/1"]));
        let first = rig.take_answers(1);
        rig.server(&several(2, &["a/1", "b/2"]));
        rig.server(&several(3, &["a/3"]));
        assert_eq!(told_all(&mut rig, 1), ["a/3"]);
        rig.server(&several(4, &["b/4"]));
        assert!(told_all(&mut rig, 1).is_empty());
        rig.host(1, &accepted(&first[0]));
        assert_eq!(told_all(&mut rig, 1), ["b/2", "b/4"]);
    }

    #[test]
    fn a7_what_waits_for_the_receipt_of_a_message_that_is_taken_back_goes_at_once() {
        let mut rig = chatting();
        rig.server(&several(1, &["a/1"]));
        rig.server(&several(2, &["a/1"]));
        rig.take_answers(1);
        rig.server(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        assert_eq!(told_all(&mut rig, 1), ["a/1"]);
    }

    #[test]
    fn g13_what_was_settled_stays_settled_when_the_host_goes_and_another_answers() {
        let mut rig = chatting();
        rig.server(&several(1, &["a/1", "x/2"]));
        rig.event(1, HostEvent::Detached);
        serve(&mut rig, 2);
        let asked = rig.take_answers(2);
        let asked = asked.last().unwrap();
        assert_eq!(told(asked), ["a/1"]);
        assert_eq!(field(asked, "params._meta.tidegate~1redelivered"), true);
        rig.host(2, &accepted(asked));
        assert_eq!(verdicts(&rig.take_sent()[0]), ["1+", "2-"]);
    }

    #[test]
    fn a3_what_the_gateway_accepts_leaves_out_what_it_refuses() {
        let mut rig = Rig::new();
        rig.resume(Vec::new());
        rig.settled();
        registered(&mut rig);
        rig.server(&several(1, &["x/1", "a/2"]));
        rig.server(&several(2, &["x/3"]));
        rig.stored(2, false);
        rig.wait(Duration::from_secs(10));
        let sent = rig.take_sent();
        assert_eq!(verdicts(&sent[0]), ["1-", "2+"]);
        assert_eq!(verdicts(&sent[1]), ["3-"]);
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        rig.lose();
        rig.settled();
        registered(&mut rig);
        serve(&mut rig, 1);
        assert_eq!(told_all(&mut rig, 1), ["a/2"]);
    }

    #[test]
    fn a3_a_message_behind_a_held_registration_is_accepted_and_not_refused() {
        let mut rig = Rig::new();
        rig.resume(Vec::new());
        rig.adopt(CHAT);
        rig.server(&register("a"));
        rig.server(&several(1, &["a/1"]));
        rig.stored(2, false);
        rig.take_sent();
        rig.wait(Duration::from_secs(10));
        assert_eq!(verdicts(&rig.take_sent()[0]), ["1+"]);
    }

    #[test]
    fn g9_of_a_kept_message_only_what_is_said_in_a_channel_that_is_gone_is_dropped() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&several(1, &["a/1", "x/2"]));
        rig.take_sent();
        rig.lose();
        rig.settled();
        let notice = register("a").replace(r#""id":100,"#, "");
        rig.server(&notice);
        assert!(told_all(&mut rig, 1).is_empty());
        rig.run(Traffic::last);
        assert_eq!(told_all(&mut rig, 1), ["a/1"]);
        assert_eq!((rig.dropped("channel_gone"), rig.waiting()), (1, [0; 4]));
    }
}
