//! What the bounds of the queues drop and what they spare: an earlier epoch's, a host's, what outlived the gateway.
//! Test code only.

use std::time::Duration;

use super::rig::{CHAT, REGISTER, Rig, push};
use crate::engine::input::{HostEvent, Stored};
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
