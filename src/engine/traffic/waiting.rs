//! What waits on its way from the server to a host, and what lets it pass: held, admitted under the grant, parked for
//! what it lacks, kept over a boundary, too old (G4–G12).

use super::Traffic;
use super::authority::Lack;
use super::itemised::Verdict;
use crate::engine::admission;
use crate::engine::decision::{Decision, DropReason, Queue};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::queue::{Held, Item, Lane, Seq};
use crate::wire::incoming::{self, Part};
use crate::wire::jsonrpc::{Error, code};
use crate::wire::mcpl::Plane;

/// What a repeated message waits for while a host has the first.
const RECEIPT: &str = "a receipt";

impl Traffic {
    /// Lets a message of the serving epoch pass, or has it wait behind what waits in its lane.
    pub(super) fn admit_or_hold(&mut self, item: Item, at: Moment, out: &mut Outbox) {
        if self.passes(item.lane) && self.waiting.front(item.lane).is_none() {
            self.admit(None, item, at, out);
        } else {
            self.hold(item, out);
        }
    }

    fn hold(&mut self, item: Item, out: &mut Outbox) -> Option<Seq> {
        let message = item.message.clone();
        let epoch = item.epoch;
        let (held, dropped) = self.waiting.hold(item, &self.settings.bounds);
        self.drop_each(&dropped, out);
        match held {
            Held::Waits(seq) => Some(seq),
            Held::Dropped => None,
            Held::Full(reason) => {
                let text = if reason == DropReason::GatewayFull {
                    "the gateway holds too much for its servers; try again later"
                } else {
                    "too many requests are held; try again later"
                };
                let error = Error::new(code::BUSY, text);
                self.refuse_server(epoch, &message, &error, out);
                None
            }
        }
    }

    /// Whether the next message of a lane may pass now.
    pub(super) fn passes(&self, lane: Lane) -> bool {
        let open = match lane {
            Lane::Control => self.gate.is_open(Plane::Control, false),
            Lane::Data => self.gate.is_open(Plane::Data, false),
            Lane::Waking => self.gate.is_open(Plane::Data, true) && self.waiting.has_window(),
        };
        open && self.serving.is_some()
    }

    /// Lets pass what may, one by one, each plane looked at before each (G10).
    pub(super) fn flush(&mut self, at: Moment, out: &mut Outbox) {
        let waiting = self.waiting.in_order();
        let waiting: Vec<_> = waiting
            .iter()
            .map(|(seq, item)| (*seq, item.kept, &item.message))
            .collect();
        let order = admission::order(&waiting);
        let mut flushed = [0, 0];
        for seq in order {
            self.admit_waiting(seq, &mut flushed, at, out);
        }
        self.tell_flushed(flushed, out);
    }

    /// A host took something: the window has room for more.
    pub(super) fn refill(&mut self, at: Moment, out: &mut Outbox) {
        let mut flushed = [0, 0];
        while self.passes(Lane::Waking)
            && let Some(seq) = self.waiting.front(Lane::Waking)
        {
            self.admit_waiting(seq, &mut flushed, at, out);
            if self.waiting.front(Lane::Waking) == Some(seq) {
                break;
            }
        }
        self.tell_flushed(flushed, out);
    }

    fn admit_waiting(&mut self, seq: Seq, flushed: &mut [u64; 2], at: Moment, out: &mut Outbox) {
        let item = self.waiting.in_lane(seq);
        let Some(item) = item.filter(|item| self.passes(item.lane)).cloned() else {
            return;
        };
        let [held, kept] = flushed;
        let count = if item.kept { kept } else { held };
        if self.admit(Some(seq), item, at, out) {
            *count += 1;
        }
    }

    fn tell_flushed(&self, [held, kept]: [u64; 2], out: &mut Outbox) {
        for (queue, messages) in [(Queue::Kept, kept), (Queue::Held, held)] {
            if messages > 0 {
                out.decide(self.serving, Decision::Flushed { queue, messages });
            }
        }
    }

    /// Admits a message under the grant of this moment (G11); `false` where it waits on.
    fn admit(&mut self, seq: Option<Seq>, item: Item, at: Moment, out: &mut Outbox) -> bool {
        let lack = self.lack(&item.message);
        if item.world && (item.kept || lack.is_none()) {
            return self.admit_world(seq, item, lack.as_ref(), out);
        }
        if let Some(seq) = seq {
            self.waiting.take(seq);
        }
        match lack {
            Some(lack) => self.deny(&item, &lack, out),
            None => self.dispatch(&item, at, out),
        }
        true
    }

    /// A world message goes to the host, or waits for what it lacks: a capability, its channel, a first receipt.
    fn admit_world(
        &mut self,
        seq: Option<Seq>,
        item: Item,
        lack: Option<&Lack>,
        out: &mut Outbox,
    ) -> bool {
        if let Some(lack) = lack {
            return self.park(seq, item, &lack.awaited(), &[], out);
        }
        if let Some(what) = self.awaited_channel(&item) {
            return self.park(seq, item, &what, &[], out);
        }
        let Some(session) = self.hosts.serving() else {
            if seq.is_none() {
                self.hold(item, out);
            }
            return false;
        };
        let verdicts = self.verdicts(&item);
        if verdicts.contains(&Verdict::Undecided) {
            return self.park(seq, item, RECEIPT, &verdicts, out);
        }
        if let Some(item) = self.settle_parts(seq, item, verdicts, out) {
            self.deliver(session, seq, item, out);
        }
        true
    }

    /// Parks a message: nothing that is said later in a channel of it passes it, but for those of its parts that need
    /// no host.
    fn park(
        &mut self,
        seq: Option<Seq>,
        item: Item,
        what: &str,
        verdicts: &[Verdict],
        out: &mut Outbox,
    ) -> bool {
        let settled = |at: usize| verdicts.get(at).is_some_and(|one| *one != Verdict::Open);
        let parts = incoming::parts(&item.message).into_iter().enumerate();
        let channels = parts
            .filter(|(at, _)| !settled(*at))
            .filter_map(|(_, part)| Part::channel(part))
            .collect();
        if let Some(seq) = seq.or_else(|| self.hold(item, out)) {
            self.waiting.park(seq, what, channels);
        }
        false
    }

    /// A host answered a world message: it is delivered, and what repeats it gets the same receipt (G12). Returns it.
    pub(super) fn delivered(
        &mut self,
        seq: Seq,
        result: Option<&str>,
        out: &mut Outbox,
    ) -> Option<Item> {
        let item = self.waiting.take(seq)?;
        self.tally.delivered += 1;
        if item.accepted {
            self.tell_verdict(&item, result, out);
        }
        self.admitted.remember(&item.message, result);
        self.waiting.unpark(|what| what == RECEIPT);
        Some(item)
    }

    /// A host went without answering a world message (G13).
    pub(super) fn recall(&mut self, seq: Seq, out: &mut Outbox) {
        if let Some(item) = self.waiting.get(seq) {
            self.admitted.recall(&item.message);
        }
        if self.closed_for_good {
            let item = self.waiting.take(seq);
            return self.drop_items(DropReason::ClosedForGood, item.as_slice(), out);
        }
        let full = self
            .waiting
            .recall(seq, self.serving, &self.settings.bounds);
        self.drop_items(DropReason::KeptFull, &full, out);
        self.waiting.unpark(|what| what == RECEIPT);
    }

    /// A server no longer wants an answer from the host that has its world message (A7).
    pub(super) fn take_back(&mut self, seq: Seq, at: Moment, out: &mut Outbox) {
        if let Some(item) = self.waiting.take(seq) {
            self.admitted.recall(&item.message);
            self.waiting.unpark(|what| what == RECEIPT);
            self.drop_items(DropReason::Cancelled, &[item], out);
            self.refill(at, out);
        }
    }

    /// A boundary for what waits (G5).
    pub(super) fn cross(&mut self, for_good: bool, out: &mut Outbox) {
        let before = self.waiting.kept();
        let crossed = self.waiting.cross(for_good, &self.settings.bounds);
        self.drop_items(DropReason::Boundary, &crossed.process, out);
        self.drop_items(DropReason::ClosedForGood, &crossed.closed, out);
        self.drop_items(DropReason::KeptFull, &crossed.full, out);
        let messages = self.waiting.kept();
        if messages > before {
            let messages = u64::try_from(messages).unwrap_or(u64::MAX);
            out.decide(None, Decision::Kept { messages });
        }
    }

    /// A message waited too long (G4, G6).
    pub(super) fn expire_item(&mut self, item: &Item, out: &mut Outbox) {
        if item.kept {
            return self.drop_read(DropReason::KeptTooOld, item.message.method(), 1, out);
        }
        let error = Error::new(code::BUSY, "held too long; try again later");
        self.refuse_server(item.epoch, &item.message, &error, out);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, REGISTER, Rig, accepted, field, incoming, push, request};
    use super::*;
    use crate::engine::settings::{Bounds, Settings};

    fn bounded(bounds: Bounds) -> Rig {
        Rig::with(Settings {
            bounds,
            ..Settings::default()
        })
    }

    #[test]
    fn g3_world_messages_wait_for_a_host_and_registrations_do_not() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(REGISTER);
        rig.server(&push(1));
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
        rig.client(1, "{}");
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
        rig.mcpl_host(2);
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
    }

    #[test]
    fn g3_a_pause_holds_what_wakes_an_agent_and_belongs_to_the_server() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.run(|traffic, at, out| traffic.pause(true, at, out));
        rig.server(&push(1));
        rig.server(&request(2, "x/unknown", "{}"));
        let passed = rig.take_answers(1);
        assert_eq!(passed.len(), 1);
        assert_eq!(field(&passed[0], "method"), "x/unknown");
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert!(
            rig.take_answers(1)
                .iter()
                .all(|line| !line.contains("push/event"))
        );
        rig.run(|traffic, at, out| traffic.pause(false, at, out));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "push/event");
    }

    #[test]
    fn g4_a_request_past_the_bound_is_refused_and_the_oldest_notification_dropped() {
        let mut rig = bounded(Bounds {
            held_requests: 2,
            held_notifications: 2,
            ..Bounds::default()
        });
        rig.adopt(CHAT);
        rig.take_sent();
        for id in 1..=3 {
            rig.server(&push(id));
            rig.server(&format!(
                r#"{{"jsonrpc":"2.0","method":"push/event","params":{{"n":{id}}}}}"#
            ));
        }
        assert_eq!(rig.waiting(), [2, 2, 0, 0]);
        let refused = rig.take_sent();
        assert_eq!(field(&refused[0], "id"), 3);
        assert_eq!(field(&refused[0], "error.code"), code::BUSY);
        assert_eq!(rig.dropped("held_full"), 1);
    }

    #[test]
    fn g4_a_bound_in_bytes_acts_as_the_bound_in_messages() {
        let mut rig = bounded(Bounds {
            held_bytes: 200,
            ..Bounds::default()
        });
        rig.adopt(CHAT);
        rig.take_sent();
        for id in 1..=3 {
            rig.server(&push(id));
        }
        assert_eq!(rig.waiting(), [2, 0, 0, 0]);
        assert_eq!(field(&rig.take_sent()[0], "error.code"), code::BUSY);
    }

    #[test]
    fn g4_a_notification_that_cannot_fit_is_dropped_and_no_other_for_it() {
        let mut rig = bounded(Bounds {
            held_bytes: 300,
            ..Bounds::default()
        });
        rig.adopt(CHAT);
        let note = |fill: usize| {
            let fill = "x".repeat(fill);
            format!(r#"{{"jsonrpc":"2.0","method":"push/event","params":{{"x":"{fill}"}}}}"#)
        };
        rig.server(&push(1));
        rig.server(&note(1));
        rig.server(&note(200));
        assert_eq!(rig.waiting(), [1, 1, 0, 0]);
        assert_eq!(rig.dropped("held_full"), 1);
        rig.server(&note(130));
        assert_eq!(rig.waiting(), [1, 1, 0, 0]);
        assert_eq!(rig.dropped("held_full"), 2);
    }

    #[test]
    fn g4_a_held_request_that_reports_nothing_of_the_world_is_answered_after_a_minute() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        rig.server(&request(1, "inference/request", "{}"));
        rig.server(&push(2));
        rig.wait(Duration::from_secs(59));
        assert!(rig.take_sent().iter().all(|line| !line.contains("error")));
        rig.wait(Duration::from_secs(1));
        let sent = rig.take_sent();
        let refused: Vec<_> = sent.iter().filter(|line| line.contains("error")).collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(field(refused[0], "id"), 1);
        assert_eq!(rig.waiting(), [1, 0, 0, 0]);
    }

    #[test]
    fn g5_a_boundary_keeps_the_world_and_drops_the_process() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(REGISTER);
        rig.server(&push(1));
        rig.server(&request(2, "inference/request", "{}"));
        rig.take_sent();
        rig.lose();
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        assert_eq!(rig.dropped("boundary"), 2);
        rig.lose_with(true);
        assert_eq!(rig.waiting(), [0; 4]);
        assert_eq!(rig.dropped("closed_for_good"), 1);
        assert!(rig.take_sent().is_empty());
    }

    #[test]
    fn g6_ten_thousand_kept_messages_do_not_refuse_the_next_registration() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        (1..=10_001).for_each(|id| rig.server(&push(id)));
        let refused = rig.take_sent();
        assert_eq!(refused.len(), 1);
        assert_eq!(field(&refused[0], "id"), 10_001);
        assert_eq!(field(&refused[0], "error.code"), code::BUSY);
        rig.lose();
        rig.late(1, &push(10_002));
        let dropped = Decision::Dropped {
            reason: DropReason::KeptFull,
            method: "push/event".into(),
            count: 1,
        };
        assert_eq!(rig.decisions.last(), Some(&dropped), "the newest, by name");
        assert_eq!(rig.waiting(), [0, 0, 10_000, 0]);
        rig.adopt(CHAT);
        rig.server(REGISTER);
        (1..10_000).for_each(|id| rig.server(&push(20_000 + id)));
        assert_eq!(rig.waiting(), [10_000, 0, 10_000, 0]);
        rig.server(&push(30_000));
        rig.accept();
        let sent = rig.take_sent();
        assert!(sent.iter().any(|line| line.contains("registered")));
        rig.lose();
        assert_eq!(rig.waiting(), [0, 0, 10_000, 0]);
        assert_eq!(rig.dropped("kept_full"), 10_000);
        rig.settled();
        rig.mcpl_host(1);
        rig.wait(Duration::from_secs(1));
        let events = rig.traffic.waiting.in_order();
        let first = events.first().map(|(_, item)| item.message.params());
        assert_eq!(
            first,
            Some(Some(r#"{"eventId":"e257"}"#)),
            "the earliest stayed"
        );
    }

    #[test]
    fn g6_past_the_bound_the_earliest_stay_also_where_boundaries_join() {
        let mut rig = bounded(Bounds {
            kept_requests: 2,
            kept_notifications: 1,
            ..Bounds::default()
        });
        for round in 0..2 {
            rig.adopt(CHAT);
            for id in 1..=2 {
                rig.server(&push(round * 10 + id));
                rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{}}"#);
            }
            rig.take_sent();
            rig.lose();
            rig.late(
                rig.traffic.serving.map_or(round + 1, |epoch| epoch.0),
                &push(99),
            );
        }
        assert_eq!(rig.waiting(), [0, 0, 2, 1]);
        rig.mcpl_host(1);
        rig.settled();
        let events = rig.take_answers(1);
        let ids: Vec<_> = events
            .iter()
            .map(|line| field(line, "params.eventId"))
            .collect();
        assert_eq!(ids[0], "e1");
        assert!(ids.contains(&"e2".into()) && !ids.contains(&"e11".into()));
    }

    #[test]
    fn g6_what_is_kept_too_long_is_dropped() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.take_sent();
        rig.lose();
        rig.wait(Duration::from_secs(86_399));
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        rig.wait(Duration::from_secs(1));
        assert_eq!(rig.waiting(), [0; 4]);
        assert_eq!(rig.dropped("kept_too_old"), 1);
    }

    #[test]
    fn g8_kept_messages_never_meet_an_empty_grant() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.take_sent();
        rig.lose();
        rig.run(|traffic, at, out| traffic.pause(true, at, out));
        rig.run(|traffic, at, out| traffic.pause(false, at, out));
        assert!(rig.take_answers(1).is_empty());
        rig.adopt(CHAT);
        rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert_eq!(field(&rig.take_answers(1)[0], "params.eventId"), "e1");
    }

    #[test]
    fn g9_a_kept_message_waits_for_its_channel_and_others_pass_it() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.server(&push(2));
        rig.take_sent();
        rig.lose();
        rig.settled();
        let passed = rig.take_answers(1);
        assert_eq!(passed.len(), 1);
        assert_eq!(field(&passed[0], "method"), "push/event");
        rig.server(REGISTER);
        let asked = rig.take_answers(1);
        rig.server(&incoming(3, "chat:1"));
        assert!(rig.take_answers(1).is_empty());
        rig.host(1, &accepted(&asked[0]));
        let messages = rig.take_answers(1);
        let ids: Vec<_> = messages
            .iter()
            .map(|line| field(line, "params.messages.0.messageId"))
            .collect();
        assert_eq!(ids, ["m1", "m3"]);
    }

    #[test]
    fn g9_a_channel_that_a_lasting_epoch_never_registers_is_gone() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert_eq!(rig.waiting(), [0, 0, 1, 0]);
        rig.run(Traffic::last);
        assert_eq!(rig.dropped("channel_gone"), 1);
    }

    #[test]
    fn g9_a_channel_whose_registration_waits_when_its_epoch_has_lasted_is_not_gone() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.take_sent();
        rig.lose();
        rig.adopt(CHAT);
        rig.server(REGISTER);
        rig.run(Traffic::last);
        rig.accept();
        let asked = rig.take_answers(1);
        rig.run(Traffic::last);
        rig.host(1, &accepted(asked.last().unwrap()));
        let passed = rig.take_answers(1);
        assert_eq!(field(&passed[0], "params.messages.0.messageId"), "m1");
        assert_eq!(rig.dropped("channel_gone"), 0);
    }

    /// What cuts a flush in its middle.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Cut {
        Connection,
        Host,
        Pause,
    }

    /// The world messages that a session was told since the last look: its id for each, its number, whether marked.
    fn told(rig: &mut Rig, session: u64) -> Vec<(serde_json::Value, u64, bool)> {
        let lines = rig.take_answers(session).into_iter();
        let lines = lines.filter(|line| line.contains("channels/incoming"));
        let one = |line: String| {
            let number = field(&line, "params.messages.0.messageId");
            let number = number.as_str().unwrap().trim_start_matches('m');
            let marked = field(&line, "params._meta.tidegate~1redelivered") == true;
            (field(&line, "id"), number.parse().unwrap(), marked)
        };
        lines.map(one).collect()
    }

    fn open_channels(rig: &mut Rig) {
        let params = r#"{"added":[{"id":"c0"},{"id":"c1"}]}"#;
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","method":"channels/changed","params":{params}}}"#
        ));
    }

    fn serves(rig: &mut Rig, session: u64) {
        rig.mcpl_host(session);
        rig.wait(Duration::from_secs(5));
    }

    /// Makes the cut; the session that serves after it.
    fn cut(rig: &mut Rig, how: Cut) -> u64 {
        rig.take_sent();
        match how {
            Cut::Connection => {
                rig.lose();
                rig.settled();
                open_channels(rig);
                return 1;
            }
            Cut::Host => {
                rig.event(1, crate::engine::input::HostEvent::Detached);
                serves(rig, 2);
                return 2;
            }
            Cut::Pause => rig.run(|traffic, at, out| traffic.pause(true, at, out)),
        }
        let before = rig.take_answers(1);
        assert!(
            before
                .iter()
                .all(|line| !line.contains("channels/incoming"))
        );
        rig.run(|traffic, at, out| traffic.pause(false, at, out));
        1
    }

    #[test]
    fn g10_a_flush_that_is_cut_at_any_point_loses_nothing_doubles_nothing_and_keeps_the_order() {
        const ALL: u64 = 300;
        for how in [Cut::Connection, Cut::Host, Cut::Pause] {
            for answered in [0, 1, 2, 43, 44, 45, 100, 255, 256, 257, 299, 300] {
                let mut rig = Rig::new();
                rig.settled();
                open_channels(&mut rig);
                (0..ALL).for_each(|n| rig.server(&incoming(n, &format!("c{}", n % 2))));
                rig.mcpl_host(1);
                rig.wait(Duration::from_secs(5));
                let mut first: Vec<_> = Vec::new();
                let mut open = std::collections::VecDeque::new();
                for _ in 0..answered {
                    open.extend(told(&mut rig, 1));
                    let (id, number, marked) = open.pop_front().unwrap();
                    assert!(!marked);
                    first.push(number);
                    rig.host(
                        1,
                        &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                    );
                }
                open.extend(told(&mut rig, 1));
                let had: Vec<u64> = open.iter().map(|(_, number, _)| *number).collect();
                let session = cut(&mut rig, how);
                if session == 2 {
                    open.clear();
                }
                open.extend(told(&mut rig, session));
                while let Some((id, number, marked)) = open.pop_front() {
                    let again = session == 2 && had.contains(&number);
                    assert_eq!(marked, again, "{number} after {answered} and {how:?}");
                    first.push(number);
                    rig.host(
                        session,
                        &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                    );
                    open.extend(told(&mut rig, session));
                }
                let whole: Vec<u64> = (0..ALL).collect();
                assert_eq!(first, whole, "after {answered} and {how:?}");
                assert_eq!((rig.waiting(), rig.dropped("channel_gone")), ([0; 4], 0));
            }
        }
    }

    #[test]
    fn g10_a_flush_within_a_flush_delivers_nothing_twice() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.take_sent();
        rig.lose();
        rig.adopt(CHAT);
        for change in [r#""removed":["chat:1"]"#, r#""added":[{"id":"chat:1"}]"#] {
            rig.server(&format!(
                r#"{{"jsonrpc":"2.0","method":"channels/changed","params":{{{change}}}}}"#
            ));
        }
        rig.server(&request(2, "push/event", "{}"));
        rig.accept();
        let told = rig.take_answers(1);
        let told = told.iter().map(|line| field(line, "method"));
        let world: Vec<_> = told.filter(|name| name != "channels/changed").collect();
        assert_eq!(world, ["channels/incoming", "push/event"]);
    }

    #[test]
    fn g10_a_flush_stops_at_the_window_and_goes_on_as_the_host_answers() {
        let mut rig = Rig::new();
        rig.settled();
        for id in 0..300 {
            rig.server(&push(id));
        }
        rig.mcpl_host(1);
        assert_eq!(rig.waiting(), [44, 0, 0, 0]);
        rig.host(1, r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
        assert_eq!(rig.waiting(), [43, 0, 0, 0]);
        assert_eq!(field(&rig.take_answers(1)[0], "params.eventId"), "e256");
    }

    #[test]
    fn g11_authority_is_checked_at_admission() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{}}"#);
        rig.server(REGISTER);
        rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
        let sent = rig.take_sent();
        let refused: Vec<_> = sent
            .iter()
            .map(|line| field(line, "error.data.capability"))
            .collect();
        assert_eq!(refused[..2], ["pushEvents", "channels.register"]);
        assert_eq!(field(&sent[0], "error.code"), code::NOT_GRANTED);
        assert_eq!(rig.dropped("not_granted"), 1);
    }

    #[test]
    fn g12_a_message_that_a_restarted_bridge_sends_again_reaches_the_host_once() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&push(1));
        let first = rig.take_answers(1);
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.server(&request(50, "push/event", r#"{"eventId":"e1"}"#));
        assert!(rig.take_answers(1).is_empty());
        rig.host(1, &accepted(&first[0]));
        rig.server(&request(51, "push/event", r#"{"eventId":"e1"}"#));
        let sent = rig.take_sent();
        let reasons: Vec<_> = sent
            .iter()
            .map(|line| field(line, "result.reason"))
            .collect();
        assert_eq!(
            reasons
                .iter()
                .filter(|reason| *reason == "duplicate")
                .count(),
            2
        );
        assert!(rig.take_answers(1).is_empty());
    }
}
