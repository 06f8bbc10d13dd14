//! What the gateway answers for the host, and what outlives it (A3, G14): accepted only once it is on disk, and taken
//! over after a restart.

use std::time::Instant;

use super::{Traffic, itemised};
use crate::engine::admission;
use crate::engine::decision::{Decision, DropReason};
use crate::engine::input::{Stored, Synced};
use crate::engine::outbox::Outbox;
use crate::engine::queue::Item;
use crate::wire::jsonrpc::{self, Error, Message, code};
use crate::wire::mcpl;

/// What a server is told whose message can be kept nowhere (G14).
const NO_DISK: &str = "no host is here and the message cannot be stored; try again later";
const FAILING: &str = "messages cannot be stored: none is accepted for a host until they can be";
const STORED: &str = "messages are stored again";

impl Traffic {
    /// The state directory tells how far it is (G14).
    pub(in crate::engine) fn stored(&mut self, synced: Synced, out: &mut Outbox) {
        if self.waiting.synced(synced) {
            let text = if synced.failing { FAILING } else { STORED };
            out.decide(None, Decision::Reported(text.into()));
        }
        self.finish(out);
    }

    /// Takes over what outlived the gateway, within the bounds and ages of what is kept (G6).
    pub(super) fn restore(&mut self, stored: &[Stored], now: Instant, out: &mut Outbox) {
        for one in stored {
            self.tally.read += 1;
            let message = Message::parse(one.frame.clone());
            match message
                .ok()
                .filter(|message| mcpl::is_world(message.method()))
            {
                Some(message) => self.waiting.restore(message, one, now),
                None => {
                    self.waiting.discard_stored(one.key);
                    self.drop_read(DropReason::Unreadable, "", 1, out);
                }
            }
        }
        let full = self.waiting.trim(&self.settings.bounds);
        self.drop_items(DropReason::KeptFull, &full, out);
        let messages = u64::try_from(self.waiting.kept()).unwrap_or(u64::MAX);
        if messages > 0 {
            out.decide(None, Decision::Kept { messages });
        }
    }

    /// Answers what no host has answered in time, where it is on disk, and refuses what no disk takes (A3).
    pub(super) fn accept_overdue(&mut self, out: &mut Outbox) {
        while let Some(seq) = self.waiting.acceptable(&self.settings.bounds) {
            if !self.settle_unknown(seq, out) {
                continue;
            }
            let Some(item) = self.waiting.accept(seq) else {
                return;
            };
            self.asks.close(seq);
            self.accept(&item, out);
        }
        while let Some(item) = self.waiting.take_unstorable() {
            let error = Error::new(code::BUSY, NO_DISK);
            self.refuse_server(item.epoch, &item.message, &error, out);
        }
    }

    fn accept(&self, item: &Item, out: &mut Outbox) {
        if let Some(id) = item.message.id_text() {
            let result = itemised::acceptance(item);
            self.answer_server(item.epoch, jsonrpc::response(id, &result), out);
        }
        let method = item.message.method().into();
        out.decide(Some(item.epoch), Decision::Accepted { method });
    }

    /// The host's answer to what was accepted for it.
    pub(super) fn tell_verdict(&self, item: &Item, result: Option<&str>, out: &mut Outbox) {
        let verdict = Decision::Verdict {
            method: item.message.method().into(),
            agrees: result.is_some_and(admission::is_accepting),
        };
        out.decide(self.serving, verdict);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::super::rig::{CHAT, Rig, field, register};
    use super::*;
    use crate::engine::input::HostEvent;
    use crate::engine::output::{Mark, Record};
    use crate::engine::settings::{Bounds, Settings};

    const TIME: Duration = Duration::from_secs(10);

    fn push(id: u64) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"push/event","params":{{"eventId":"e{id}"}}}}"#
        )
    }

    fn incoming(id: u64) -> String {
        let one = format!(r#"{{"channelId":"c","messageId":"a{id}"}}"#);
        let two = format!(r#"{{"channelId":"c","messageId":{id}}}"#);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"channels/incoming","params":{{"messages":[{one},{two}]}}}}"#
        )
    }

    fn outlived(key: u64, seconds: u64, line: &str) -> Stored {
        Stored {
            key,
            age: Duration::from_secs(seconds),
            forwarded: false,
            accepted: false,
            frame: Bytes::copy_from_slice(line.as_bytes()),
        }
    }

    /// A chat bridge serves, no host does, and there is a state directory.
    fn alone() -> Rig {
        alone_with(Settings::default())
    }

    fn alone_with(settings: Settings) -> Rig {
        let mut rig = Rig::with(settings);
        rig.resume(Vec::new());
        rig.settled();
        rig.take_sent();
        rig.take_records();
        rig
    }

    fn kept(rig: &Rig) -> usize {
        let bounds = rig.traffic.settings.bounds;
        rig.traffic.waiting.views(rig.now, &bounds).1.requests
    }

    fn answer(rig: &mut Rig, session: u64, line: &str, result: &str) {
        let id = field(line, "id");
        rig.host(
            session,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        );
    }

    #[test]
    fn a3_the_gateway_accepts_for_the_host_when_the_time_has_come_and_the_message_is_stored() {
        let mut rig = alone();
        rig.server(&register("c"));
        rig.take_sent();
        rig.server(&push(1));
        rig.stored(1, false);
        rig.server(&incoming(2));
        rig.wait(TIME - Duration::from_millis(1));
        assert!(rig.take_sent().is_empty(), "its time has not come");
        rig.wait(TIME);
        let accepted = r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#;
        assert_eq!(rig.take_sent(), [accepted], "the other is not stored");
        rig.stored(2, false);
        let items = r#"[{"messageId":"a2","accepted":true},{"messageId":2,"accepted":true}]"#;
        let accepted = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"results":{items}}}}}"#);
        assert_eq!(rig.take_sent(), [accepted]);
        assert_eq!(kept(&rig), 2);
        let records = rig.take_records();
        let mark = Mark::Accepted;
        assert!(records.contains(&Record::Mark { key: 2, mark }));
    }

    #[test]
    fn a3_without_a_state_directory_or_with_no_time_nothing_is_accepted() {
        let mut nowhere = Rig::new();
        nowhere.settled();
        let never = Settings {
            accept_after: Duration::ZERO,
            ..Settings::default()
        };
        for mut rig in [nowhere, alone_with(never)] {
            rig.take_sent();
            rig.server(&push(1));
            rig.stored(1, false);
            rig.wait(Duration::from_secs(3600));
            assert!(rig.take_sent().iter().all(|line| field(line, "id") != 1));
            assert_eq!(kept(&rig), 0);
        }
    }

    #[test]
    fn a3_a_host_that_answers_in_time_answers_and_its_later_verdict_is_only_counted() {
        let mut rig = alone();
        rig.mcpl_host(1);
        rig.server(&push(1));
        rig.server(&push(2));
        rig.stored(2, false);
        let asked = rig.take_answers(1);
        answer(&mut rig, 1, &asked[0], r#"{"accepted":true,"by":"host"}"#);
        assert_eq!(field(&rig.take_sent()[0], "result.by"), "host");
        rig.wait(TIME);
        let sent = rig.take_sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(field(&sent[0], "id"), 2);
        answer(&mut rig, 1, &asked[1], r#"{"accepted":false}"#);
        assert!(rig.take_sent().is_empty(), "one answer");
        let verdict = Decision::Verdict {
            method: "push/event".into(),
            agrees: false,
        };
        assert!(rig.decisions.contains(&verdict));
        assert_eq!(rig.dropped("late_answer"), 0);
        assert!(rig.take_records().contains(&Record::Discard { key: 2 }));
    }

    #[test]
    fn a3_what_is_accepted_is_the_gateways_a_cancel_or_a_missing_grant_takes_nothing_away() {
        let mut rig = Rig::new();
        rig.resume(Vec::new());
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.stored(1, false);
        rig.wait(TIME);
        assert_eq!(kept(&rig), 1);
        rig.server(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
        rig.mcpl_host(1);
        assert_eq!((kept(&rig), rig.dropped("cancelled")), (1, 0));
        assert!(rig.take_sent().iter().all(|line| field(line, "id") != 1));
        rig.lose();
        rig.settled();
        assert_eq!(field(&rig.take_answers(1)[0], "params.eventId"), "e1");
    }

    #[test]
    fn a3_a_boundary_ends_the_wait_and_a_message_with_a_host_is_accepted_too() {
        let mut rig = alone();
        rig.mcpl_host(1);
        rig.server(&push(1));
        rig.stored(1, false);
        rig.lose();
        rig.settled();
        rig.server(&push(2));
        rig.stored(2, false);
        rig.take_sent();
        rig.wait(TIME);
        let sent = rig.take_sent();
        assert_eq!(sent.len(), 1, "nobody waits for the first any more");
        assert_eq!(field(&sent[0], "id"), 2);
    }

    #[test]
    fn g6_no_bound_drops_what_was_accepted_and_no_more_is_accepted_than_fits() {
        let mut rig = alone_with(Settings {
            bounds: Bounds {
                kept_requests: 2,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        rig.mcpl_host(1);
        (1..=2).for_each(|id| rig.server(&push(id)));
        rig.event(1, HostEvent::Detached);
        (3..=4).for_each(|id| rig.server(&push(id)));
        rig.stored(4, false);
        rig.wait(TIME);
        let accepted: Vec<_> = rig
            .take_sent()
            .iter()
            .map(|line| field(line, "id"))
            .collect();
        assert_eq!(accepted, [1, 2]);
        rig.lose();
        assert_eq!((kept(&rig), rig.dropped("kept_full")), (2, 2));
        rig.settled();
        rig.client(2, r#"{"experimental":{"mcpl":{}}}"#);
        rig.wait(Duration::from_secs(15));
        let first = &rig.take_answers(2)[0];
        assert_eq!(field(first, "params.eventId"), "e1");
    }

    #[test]
    fn g14_forwarding_does_not_wait_for_the_disk_and_what_is_answered_is_discarded() {
        let mut rig = alone();
        rig.server(&push(1));
        rig.server(r#"{"jsonrpc":"2.0","id":9,"method":"inference/request","params":{}}"#);
        rig.mcpl_host(1);
        rig.server(&push(2));
        let frame = |id| Bytes::from(push(id));
        let store = |key, forwarded, frame| Record::Store {
            key,
            forwarded,
            frame,
        };
        let mark = Mark::Forwarded;
        assert_eq!(
            rig.take_records(),
            [
                store(1, false, frame(1)),
                Record::Mark { key: 1, mark },
                store(3, true, frame(2)),
            ]
        );
        rig.event(1, HostEvent::Detached);
        rig.mcpl_host(2);
        assert!(rig.take_records().is_empty(), "it is told once");
        rig.server(&push(3));
        let asked = rig.take_answers(2);
        answer(&mut rig, 2, &asked[0], r#"{"accepted":true}"#);
        assert!(matches!(
            rig.take_records()[..],
            [Record::Store { key: 4, .. }, Record::Discard { key: 4 }]
        ));
    }

    #[test]
    fn g14_what_outlived_the_gateway_flows_after_the_next_grant_in_order_and_marked() {
        let mut rig = Rig::new();
        let first = Stored {
            forwarded: true,
            accepted: true,
            ..outlived(7, 5, &push(1))
        };
        rig.resume(vec![
            first,
            outlived(9, 4, &push(2)),
            outlived(12, 3, "no message"),
            outlived(13, 86_399, &push(3)),
        ]);
        assert_eq!((kept(&rig), rig.dropped("unreadable")), (3, 1));
        assert_eq!(rig.take_records(), [Record::Discard { key: 12 }]);
        rig.wait(Duration::from_secs(1));
        assert_eq!((kept(&rig), rig.dropped("kept_too_old")), (2, 1));
        assert_eq!(rig.take_records(), [Record::Discard { key: 13 }]);
        rig.mcpl_host(1);
        assert!(rig.take_answers(1).is_empty(), "G8");
        rig.settled();
        rig.server(&push(4));
        let asked = rig.take_answers(1);
        let told: Vec<_> = asked
            .iter()
            .map(|line| {
                let mark = field(line, "params._meta.tidegate~1redelivered");
                (field(line, "params.eventId"), mark == true)
            })
            .collect();
        let wanted = [("e1", true), ("e2", false), ("e4", false)];
        assert_eq!(told, wanted.map(|(id, marked)| (id.into(), marked)));
        rig.take_sent();
        answer(&mut rig, 1, &asked[1], r#"{"accepted":true}"#);
        assert!(rig.take_sent().is_empty(), "nobody waits for it");
        let records = rig.take_records();
        assert!(records.contains(&Record::Discard { key: 9 }));
        assert!(
            matches!(records[1], Record::Store { key: 14, .. }),
            "{records:?}"
        );
    }

    #[test]
    fn g14_a_disk_that_fails_is_a_refusal_to_the_server_and_told_once() {
        let mut rig = alone();
        rig.server(&push(1));
        rig.stored(1, false);
        rig.server(&push(2));
        rig.stored(1, true);
        rig.stored(1, true);
        rig.wait(TIME);
        let sent = rig.take_sent();
        assert_eq!(field(&sent[0], "result.accepted"), true, "it is stored");
        assert_eq!(field(&sent[1], "error.code"), code::BUSY);
        assert!(rig.take_records().contains(&Record::Discard { key: 2 }));
        let told = |text: &str| {
            let it = Decision::Reported(text.into());
            rig.decisions.iter().filter(|one| **one == it).count()
        };
        assert_eq!((told(FAILING), told(STORED)), (1, 0));
        rig.stored(1, false);
        rig.server(&push(3));
        rig.stored(3, false);
        rig.wait(TIME);
        assert_eq!(field(&rig.take_sent()[0], "result.accepted"), true);
    }

    #[test]
    fn g14_what_a_boundary_or_an_end_drops_is_discarded() {
        let mut rig = alone();
        rig.server(&push(1));
        rig.lose();
        rig.late(1, &push(2));
        rig.take_records();
        rig.lose_with(true);
        let wanted = [1, 2].map(|key| Record::Discard { key });
        assert_eq!(rig.take_records(), wanted);
    }
}
