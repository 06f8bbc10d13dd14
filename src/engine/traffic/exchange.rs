//! The policy exchange as traffic: its request to the server, its receipt, and what hosts are told of it (P1 to P7).

use super::authority::has_come;
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
        let fetched = self.fetched.as_ref().map(|fetched| &*fetched.text);
        self.terms(fetched.or(self.manifest()))
    }

    /// The terms that would hold now under that manifest.
    pub(super) fn terms(&self, manifest: Option<&str>) -> Offer {
        let (Some(peer), Some(manifest)) = (&self.peer, manifest) else {
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
            feature_sets: terms.feature_sets(),
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
            // Its planes stay closed: what waits is for the next connection.
            self.request = Some(Request::End);
            return;
        }
        self.exchange(at, out);
        self.put_in_force(out);
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
        self.tell_manifest(out);
        self.set_up(at, out);
        self.read_lists(at, out);
    }

    /// A grant may have grown: what waits for it may pass now.
    fn regrant(&mut self, at: Moment, out: &mut Outbox) {
        let policy = &self.policy;
        if self.waiting.unpark(|what| has_come(policy, what)) {
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
        } else if self.hosts.serving() == Some(session) && self.policy.is_unanswered() {
            // It was told that its server gave no receipt, and asks again (P3).
            self.renegotiate(at, out);
        }
        let held = self.hosts.get_mut(session);
        match (
            held.filter(|held| held.updates.len() < UPDATES_MAX),
            message.id(),
        ) {
            (Some(held), Some(id)) => held.updates.push(id),
            _ => self.reply(session, message, self.last_receipt(), out),
        }
        self.answer_updates(at, out);
    }

    /// An update that wants no answer is no policy: it can turn feature sets off, and describe them to the server
    /// (MCPL §6.7).
    pub(super) fn reduce(
        &mut self,
        session: SessionId,
        message: &Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        let reduced = Narrowing::reduced(self.narrowing.as_ref(), message.params().unwrap_or("{}"));
        if reduced.oversteps {
            out.decide(self.serving, Decision::Reported(NO_POLICY.into()));
        }
        if reduced.describes {
            return self.pass(session, message, at, out);
        }
        if let Some(narrowing) = reduced.narrowing {
            out.record(Record::Narrowing(narrowing.params()));
            self.narrowing = Some(narrowing);
            self.renegotiate(at, out);
        }
    }

    fn last_receipt(&self) -> &str {
        self.policy.receipt().unwrap_or(r#"{"accepted":true}"#)
    }

    /// Answers the updates that wait, once no exchange runs.
    fn answer_updates(&mut self, at: Moment, out: &mut Outbox) {
        if self.serving.is_some() && self.policy.is_busy() {
            return;
        }
        let receipt = self.last_receipt().to_owned();
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

const NO_POLICY: &str = "a host's `featureSets/update` without an id turns feature sets off and nothing else; a policy is a request";
const INVALID_UPDATE: (i64, &str) = (
    jsonrpc::code::INVALID_PARAMS,
    "`featureSets/update` takes lists of names",
);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::rig::{CHAT, Rig, field, request};
    use super::*;
    use crate::engine::input::Resumed;
    use crate::engine::settings::{Mask, Settings};

    const MCPL: &str = r#"{"experimental":{"mcpl":{}}}"#;

    fn granted(rig: &Rig) -> Vec<&'static str> {
        rig.traffic.policy.granted().paths().collect()
    }

    fn settled(rig: &Rig) -> Vec<Exchange> {
        let outcome = |decision: &Decision| {
            let Decision::Settled { outcome, .. } = decision else {
                return None;
            };
            Some(*outcome)
        };
        rig.decisions.iter().filter_map(outcome).collect()
    }

    fn update(rig: &mut Rig, id: u64, paths: &str) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"featureSets/update","params":{{"effectiveCapabilities":{paths}}}}}"#
        );
        rig.host(1, &line);
    }

    #[test]
    fn p1_the_exchange_starts_at_adoption_without_a_host_and_is_a_request() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        let sent = rig.take_sent();
        assert_eq!(field(&sent[0], "method"), "featureSets/update");
        assert_eq!(field(&sent[0], "id"), 1);
        assert_eq!(
            field(&sent[0], "params.effectiveCapabilities.0"),
            "channels.acknowledge"
        );
        assert!(granted(&rig).is_empty() && !rig.traffic.is_settled());
    }

    #[test]
    fn p4_only_an_accepting_receipt_grants() {
        for (receipt, outcome, grants, ends) in [
            (r#"{"accepted":true}"#, Exchange::Granted, true, false),
            (
                r#"{"accepted":true,"mode":"degraded"}"#,
                Exchange::Degraded,
                true,
                false,
            ),
            (
                r#"{"accepted":false,"fallback":"mcp-only"}"#,
                Exchange::Refused,
                false,
                false,
            ),
            (r#"{"accepted":false}"#, Exchange::Refused, false, false),
            (
                r#"{"accepted":false,"fallback":"close"}"#,
                Exchange::Refused,
                false,
                true,
            ),
            ("{}", Exchange::Error, false, false),
            ("null", Exchange::Error, false, false),
            (r#"{"accepted":"true"}"#, Exchange::Error, false, false),
            (r#"{"accepted":1}"#, Exchange::Error, false, false),
        ] {
            let mut rig = Rig::new();
            rig.adopt(CHAT);
            rig.receipt(receipt);
            assert_eq!(settled(&rig), [outcome], "{receipt}");
            assert_eq!(!granted(&rig).is_empty(), grants, "{receipt}");
            assert_eq!(rig.traffic.take_request(), ends.then_some(Request::End));
            assert!(rig.traffic.is_settled());
        }
    }

    #[test]
    fn p4_the_planes_of_a_connection_that_its_server_ends_stay_closed() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"method":"push/event"}"#);
        rig.receipt(r#"{"accepted":false,"fallback":"close"}"#);
        assert!(rig.take_sent().is_empty());
        rig.lose();
        assert_eq!(rig.traffic.waiting.kept(), 1);
    }

    #[test]
    fn p5_a_receipt_after_the_close_grants_nothing_and_the_close_is_blamed() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        rig.lose();
        rig.late(1, r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
        assert_eq!(settled(&rig), [Exchange::Closed]);
        rig.adopt(CHAT);
        rig.take_sent();
        rig.server_of(1, r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
        assert!(granted(&rig).is_empty() && !rig.traffic.is_settled());
    }

    #[test]
    fn p7_a_server_that_does_not_answer_is_used_without_mcpl() {
        let is_told_as = |rig: &Rig, ending: &str| {
            let mut told = rig.decisions.iter().map(ToString::to_string);
            told.any(|text| text.ends_with(ending))
        };
        for (lenient, grants) in [(false, false), (true, true)] {
            let ending = if lenient {
                "exchange; `grantWithoutReceipt` grants without one"
            } else {
                "exchange; it is used without MCPL"
            };
            let settings = Settings {
                grant_without_receipt: lenient,
                ..Settings::default()
            };
            let mut rig = Rig::with(settings.clone());
            rig.adopt(CHAT);
            rig.wait(Duration::from_secs(15));
            assert_eq!(settled(&rig), [Exchange::Timeout]);
            assert_eq!(!granted(&rig).is_empty(), grants);
            assert!(is_told_as(&rig, ending), "{:?}", rig.decisions);
            let mut rig = Rig::with(settings);
            rig.adopt(CHAT);
            rig.server(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#);
            assert_eq!(settled(&rig), [Exchange::Error]);
            assert_eq!(!granted(&rig).is_empty(), grants);
        }
    }

    #[test]
    fn p3_a_reduction_takes_effect_first_and_an_expansion_at_the_receipt() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        rig.take_sent();
        update(&mut rig, 1, r#"["pushEvents"]"#);
        assert_eq!(granted(&rig), ["pushEvents"]);
        assert!(rig.take_answers(1).is_empty());
        rig.receipt(r#"{"accepted":true,"notes":"n"}"#);
        assert_eq!(field(&rig.take_answers(1)[0], "result.notes"), "n");
        update(&mut rig, 2, r#"["pushEvents","tools"]"#);
        assert_eq!(granted(&rig), ["pushEvents"]);
        rig.accept();
        assert_eq!(granted(&rig), ["pushEvents", "tools"]);
    }

    #[test]
    fn p3_an_expansion_that_is_not_answered_does_not_take_effect() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["pushEvents"]"#);
        rig.accept();
        rig.take_sent();
        update(&mut rig, 2, r#"["pushEvents","tools"]"#);
        rig.wait(Duration::from_secs(15));
        assert_eq!(granted(&rig), ["pushEvents"]);
    }

    #[test]
    fn p3_an_expansion_that_was_not_answered_is_negotiated_again_when_it_is_sent_again() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["pushEvents"]"#);
        rig.accept();
        rig.take_answers(1);
        let wider = r#"["pushEvents","inferenceRequest"]"#;
        let without =
            [r#"{"code":-32000}"#, r#"{"code":-32601}"#].map(|error| format!(r#""error":{error}"#));
        for outcome in [r#""result":{}"#]
            .into_iter()
            .chain(without.iter().map(|it| &**it))
        {
            update(&mut rig, 2, wider);
            let asked = exchanges(&mut rig);
            assert_eq!(asked.len(), 1, "before {outcome}");
            assert!(rig.take_answers(1).is_empty());
            let id = field(&asked[0], "id");
            rig.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#));
            assert_eq!(field(&rig.take_answers(1)[0], "result.accepted"), false);
            assert!(exchanges(&mut rig).is_empty(), "nobody asked again");
        }
        update(&mut rig, 3, wider);
        rig.accept();
        assert_eq!(granted(&rig), ["inferenceRequest", "pushEvents"]);
        rig.take_answers(1);
        update(&mut rig, 4, wider);
        assert_eq!(rig.take_answers(1).len(), 1, "from the last receipt");
        assert!(exchanges(&mut rig).is_empty());
    }

    #[test]
    fn p1_a_host_that_comes_with_what_was_not_answered_does_not_ask_the_server_again() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["pushEvents"]"#);
        rig.take_sent();
        rig.wait(Duration::from_secs(15));
        rig.event(1, crate::engine::input::HostEvent::Detached);
        rig.take_sent();
        rig.client(2, MCPL);
        rig.host(
            2,
            &request(
                7,
                "featureSets/update",
                r#"{"effectiveCapabilities":["pushEvents"]}"#,
            ),
        );
        assert_eq!(field(&rig.take_answers(2)[0], "id"), 7);
        assert!(exchanges(&mut rig).is_empty());
    }

    fn exchanges(rig: &mut Rig) -> Vec<String> {
        let sent = rig.take_sent().into_iter();
        sent.filter(|line| line.contains("featureSets/update"))
            .collect()
    }

    #[test]
    fn p1_an_update_that_changes_nothing_is_answered_from_the_last_receipt() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.receipt(r#"{"accepted":true,"notes":"first"}"#);
        rig.client(1, MCPL);
        rig.take_sent();
        update(&mut rig, 1, r#"["*","*.*"]"#);
        assert_eq!(field(&rig.take_answers(1)[0], "result.notes"), "first");
        assert!(rig.take_sent().is_empty());
        let serves = Decision::HostServes { unasked: false };
        assert!(rig.decisions.contains(&serves));
    }

    fn notice(rig: &mut Rig, params: &str) {
        let name = "featureSets/update";
        rig.host(
            1,
            &format!(r#"{{"jsonrpc":"2.0","method":"{name}","params":{params}}}"#),
        );
    }

    #[test]
    fn p9_an_update_without_an_id_turns_feature_sets_off_and_nothing_else() {
        let mut rig = Rig::without(&[]);
        notice(
            &mut rig,
            r#"{"disabled":["chat"],"enabled":["x"],"effectiveCapabilities":["tools"]}"#,
        );
        assert_eq!(rig.traffic.policy.feature_set("chat"), Some(false));
        let sent = rig.take_sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(field(&sent[0], "params.disabled.0"), "chat");
        assert_eq!(field(&sent[0], "params.enabled.0"), "notes");
        assert!(granted(&rig).contains(&"channels.publish"));
        assert!(
            rig.decisions
                .contains(&Decision::Reported(NO_POLICY.into()))
        );
        let records = rig.take_records();
        let [Record::Narrowing(params)] = &records[..] else {
            panic!("one record is wanted: {records:?}");
        };
        assert_eq!(Narrowing::read(params), rig.traffic.narrowing);
        notice(&mut rig, r#"{"disabled":["chat"]}"#);
        assert!(rig.take_sent().is_empty() && rig.take_records().is_empty());
    }

    #[test]
    fn p1_an_update_without_an_id_makes_no_host_serve_and_widens_nothing() {
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["tools"]"#);
        rig.accept();
        rig.take_sent();
        for params in [
            r#"{"effectiveCapabilities":["*","*.*"]}"#,
            "[]",
            r#"{"disabled":1}"#,
        ] {
            notice(&mut rig, params);
            assert_eq!(granted(&rig), ["tools"]);
        }
        assert!(rig.take_sent().is_empty());
        let mut rig = Rig::new();
        rig.settled();
        rig.client(1, MCPL);
        notice(&mut rig, r#"{"disabled":["x"]}"#);
        assert!(rig.traffic.hosts.serving().is_none());
    }

    #[test]
    fn an_update_without_an_id_that_only_describes_goes_to_the_server() {
        let mut rig = Rig::without(&[]);
        let params = r#"{"descriptions":{"chat":"d"}}"#;
        notice(&mut rig, params);
        let sent = rig.take_sent();
        assert!(
            sent.len() == 1 && sent[0].ends_with(&format!("{params}}}")),
            "{sent:?}"
        );
    }

    #[test]
    fn g16_feature_sets_that_a_host_turns_off_one_by_one_are_bounded() {
        let mut rig = Rig::without(&[]);
        let names = |from: usize| {
            let names: Vec<String> = (from..from + 600).map(|n| format!("\"{n}\"")).collect();
            format!(r#"{{"disabled":[{}]}}"#, names.join(","))
        };
        notice(&mut rig, &names(0));
        let first = rig.traffic.narrowing.clone();
        notice(&mut rig, &names(600));
        assert_eq!(rig.traffic.narrowing, first);
    }

    #[test]
    fn p6_exchanges_never_overlap_and_the_last_wins() {
        let mut rig = Rig::new();
        rig.client(1, MCPL);
        rig.adopt(CHAT);
        let sent = rig.take_sent();
        update(&mut rig, 1, r#"["pushEvents"]"#);
        update(&mut rig, 2, r#"["tools"]"#);
        assert!(rig.take_sent().is_empty());
        let id = field(&sent[0], "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#
        ));
        // What was reduced meanwhile is not granted by the receipt for more.
        assert_eq!(granted(&rig), ["tools"]);
        let sent = rig.take_sent();
        let updates: Vec<_> = sent
            .iter()
            .filter(|line| line.contains("featureSets"))
            .collect();
        assert_eq!(updates.len(), 1);
        assert_eq!(
            field(updates[0], "params.effectiveCapabilities"),
            serde_json::json!(["tools"])
        );
        assert!(
            rig.take_answers(1)
                .iter()
                .all(|line| !line.contains("accepted"))
        );
    }

    #[test]
    fn p1_the_narrowing_stays_when_the_host_goes_and_holds_in_the_next_epoch() {
        let mut rig = Rig::new();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["tools"]"#);
        assert_eq!(field(&rig.take_answers(1)[0], "result.accepted"), true);
        rig.event(1, crate::engine::input::HostEvent::Detached);
        rig.adopt(CHAT);
        let sent = rig.take_sent();
        assert_eq!(
            field(&sent[0], "params.effectiveCapabilities"),
            serde_json::json!(["tools"])
        );
        let mut traffic = Traffic::default();
        let resumed = Resumed {
            paused: true,
            narrowing: Some(r#"{"effectiveCapabilities":["tools"]}"#.into()),
            ..Resumed::default()
        };
        traffic.resume(resumed, Instant::now(), &mut Outbox::default());
        assert!(traffic.narrowing.is_some() && traffic.gate.is_held(Hold::Pause));
    }

    #[test]
    fn p3_a_mask_that_changes_is_negotiated_on_the_connection_that_serves() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        let settings = Settings {
            mask: Mask {
                disabled_capabilities: vec!["channels".into()],
                ..Mask::default()
            },
            ..Settings::default()
        };
        rig.run(|traffic, at, out| traffic.configure(settings.into(), at, out));
        assert!(!granted(&rig).contains(&"channels.register"));
        assert_eq!(field(&rig.take_sent()[0], "method"), "featureSets/update");
    }

    #[test]
    fn g11_a_kept_message_passes_once_a_host_lets_its_capability_in() {
        let mut rig = Rig::new();
        rig.client(1, MCPL);
        update(&mut rig, 1, r#"["tools"]"#);
        rig.adopt(CHAT);
        rig.server(r#"{"jsonrpc":"2.0","id":1,"method":"push/event"}"#);
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.take_answers(1);
        update(&mut rig, 2, r#"["tools","pushEvents"]"#);
        assert!(rig.take_answers(1).is_empty());
        rig.accept();
        let lines = rig.take_answers(1);
        assert!(
            lines
                .iter()
                .any(|line| field(line, "method") == "push/event")
        );
    }

    #[test]
    fn a_connection_that_negotiates_refuses_no_call() {
        let mut rig = Rig::new();
        rig.client(2, "{}");
        rig.adopt(CHAT);
        rig.take_sent();
        rig.host(2, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        assert_eq!(field(&rig.take_sent()[0], "method"), "tools/call");
    }
}
