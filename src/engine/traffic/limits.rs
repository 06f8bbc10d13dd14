//! What the bounds of the queues drop and what they spare: an earlier epoch's, a host's, what outlived the gateway.
//! Test code only.

use std::time::Duration;

use super::rig::{CHAT, REGISTER, Rig, push, request};
use crate::engine::admission;
use crate::engine::input::{HostEvent, Stored};
use crate::engine::inventory::{Inventory, List, Read};
use crate::engine::settings::{Bounds, Settings};

fn bounded(bounds: Bounds) -> Rig {
    Rig::with(Settings {
        bounds,
        ..Settings::default()
    })
}

#[test]
fn g4_a_notification_that_could_never_fit_is_not_held() {
    let mut rig = bounded(Bounds {
        held_bytes: 300,
        ..Bounds::default()
    });
    rig.adopt(CHAT);
    rig.server(&push(1));
    let fill = "x".repeat(300);
    rig.server(&format!(
        r#"{{"jsonrpc":"2.0","method":"push/event","params":{{"x":"{fill}"}}}}"#
    ));
    assert_eq!(rig.waiting(), [1, 0, 0, 0]);
    assert_eq!(rig.dropped("held_full"), 1);
}

#[test]
fn g4_a_cancel_takes_back_nothing_of_an_earlier_epoch() {
    let mut rig = Rig::new();
    rig.adopt(CHAT);
    rig.server(&push(5));
    rig.take_sent();
    rig.lose();
    rig.adopt(CHAT);
    rig.server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    assert_eq!(rig.waiting(), [0, 0, 1, 0]);
}

fn one_kept() -> Rig {
    bounded(Bounds {
        kept_requests: 1,
        ..Bounds::default()
    })
}

fn on_disk(accepted: bool) -> Vec<Stored> {
    let one = |key| Stored {
        key,
        age: Duration::ZERO,
        forwarded: false,
        accepted,
        frame: push(key).into(),
    };
    vec![one(1), one(2)]
}

#[test]
fn g6_g14_of_what_outlived_the_gateway_no_bound_drops_what_it_accepted() {
    for (accepted, left) in [(true, 2), (false, 1)] {
        let mut rig = one_kept();
        rig.resume(on_disk(accepted));
        assert_eq!(rig.waiting(), [0, 0, left, 0]);
    }
}

#[test]
fn g14_what_is_on_disk_and_reports_nothing_of_the_world_is_forgotten() {
    let mut rig = Rig::new();
    let mut stored = on_disk(false);
    stored[0].frame = REGISTER.into();
    rig.resume(stored);
    assert_eq!(rig.waiting(), [0, 0, 1, 0]);
}

#[test]
fn g6_the_bound_holds_for_what_a_host_went_with_which_is_not_too_old_while_it_judges() {
    let mut rig = one_kept();
    rig.mcpl_host(1);
    rig.settled();
    rig.server(&push(1));
    rig.server(&push(2));
    rig.take_sent();
    rig.lose();
    rig.wait(Duration::from_secs(90_000));
    assert_eq!(rig.dropped("kept_too_old"), 0);
    rig.event(1, HostEvent::Detached);
    assert_eq!(rig.dropped("kept_full"), 1);
}

#[test]
fn g14_what_is_stored_or_with_a_host_is_not_refused_when_the_disk_fails() {
    for with_host in [false, true] {
        let mut rig = bounded(Bounds {
            kept_requests: 0,
            ..Bounds::default()
        });
        rig.resume(Vec::new());
        if with_host {
            rig.mcpl_host(1);
        }
        rig.settled();
        rig.server(&push(1));
        rig.take_sent();
        rig.stored(u64::from(!with_host), false);
        rig.wait(Duration::from_secs(11));
        rig.stored(0, true);
        assert!(rig.take_sent().is_empty(), "with a host: {with_host}");
    }
}

#[test]
fn a3_a_changed_time_of_accepting_holds_for_what_comes_from_then_on() {
    let mut rig = Rig::new();
    rig.resume(Vec::new());
    rig.settled();
    let settings = Settings {
        accept_after: Duration::from_secs(1),
        ..Settings::default()
    };
    rig.run(|traffic, at, out| traffic.configure(settings.into(), at, out));
    rig.take_sent();
    rig.server(&push(1));
    rig.stored(1, false);
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.take_sent().len(), 1);
}

#[test]
fn a3_a_result_that_refuses_one_of_its_items_does_not_accept() {
    let result = r#"{"results":[{"accepted":true},{"accepted":false}]}"#;
    assert!(!admission::is_accepting(result));
    assert!(admission::is_accepting(
        r#"{"results":[{"accepted":true}]}"#
    ));
}

#[test]
fn g15_a_server_is_asked_for_nothing_that_it_does_not_have() {
    let mut rig = Rig::new();
    rig.client(2, "{}");
    rig.host(2, &request(1, "logging/setLevel", r#"{"level":"info"}"#));
    rig.host(2, &request(2, "resources/subscribe", r#"{"uri":"a"}"#));
    rig.adopt(r#"{"capabilities":{}}"#);
    assert!(rig.take_sent().is_empty());
}

#[test]
fn g16_the_bytes_of_a_list_are_bounded() {
    let mut inventory = Inventory::default();
    inventory.want(List::Tools, true);
    inventory.start();
    let page = format!(r#"{{"tools":["{}"]}}"#, "x".repeat(16 << 20));
    assert!(matches!(inventory.read(&page).0, Read::Failed(_)));
}
