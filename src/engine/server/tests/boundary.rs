//! What a boundary hands to traffic: whether another epoch follows (G5).

use super::*;

const EVENT: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"push/event","params":{"eventId":"e","payload":{}}}"#;

/// Serving with MCPL, one world message held.
fn holding(settings: Arc<Settings>) -> Sim {
    let mut sim = Sim::started(settings);
    sim.link(LinkEvent::Connected);
    sim.receive(&ANSWER.replace(
        r#""tools":{}"#,
        r#""tools":{},"experimental":{"mcpl":{"version":"0.5","pushEvents":true}}"#,
    ));
    sim.receive(EVENT);
    assert_eq!(sim.view().held.requests, 1);
    sim.take();
    sim
}

fn single() -> Arc<Settings> {
    settings(|s| s.reconnect = false)
}

#[test]
fn g5_a_loss_keeps_what_reports_the_world() {
    let mut sim = holding(defaults());
    sim.lose(exit(1));
    assert_eq!(sim.view().kept.requests, 1);
    assert_eq!(sim.kinds(&["dropped"]), [""; 0]);
}

#[test]
fn g5_a_loss_with_reconnect_off_is_closed_for_good_and_a_restart_is_not() {
    let mut lost = holding(single());
    lost.lose(exit(1));
    assert_eq!(
        lost.told(&["dropped"]),
        ["dropped 1 × push/event: closed_for_good"]
    );
    let mut restarted = holding(single());
    restarted.operate(Operator::Restart);
    assert_eq!(restarted.view().kept.requests, 1);
}

#[test]
fn g5_removal_drops_what_is_held_or_kept_and_every_other_stop_keeps_it() {
    for (stop, left) in [(Stop::Removed, 0), (Stop::Disabled, 1), (Stop::Shutdown, 1)] {
        let mut held = holding(defaults());
        held.input(Input::Stop(stop));
        let mut kept = holding(defaults());
        kept.lose(exit(1));
        kept.input(Input::Stop(stop));
        let mut late = holding(defaults());
        late.link(LinkEvent::Lost(exit(1)));
        late.input(Input::Stop(stop));
        for sim in [held, kept, late] {
            assert_eq!(sim.view().kept.requests, left, "{stop:?}");
        }
    }
}

#[test]
fn g5_what_came_before_a_handshake_that_failed_is_kept_by_class() {
    let mut sim = Sim::started(defaults());
    sim.link(LinkEvent::Connected);
    sim.receive(EVENT);
    sim.receive(r#"{"jsonrpc":"2.0","method":"channels/changed","params":{}}"#);
    sim.take();
    sim.lose(exit(1));
    assert_eq!(sim.view().kept.requests, 1);
    assert_eq!(
        sim.told(&["dropped"]),
        ["dropped 1 × channels/changed: late"]
    );
}

#[test]
fn p4_a_receipt_that_asks_for_the_end_is_a_short_end() {
    let mut sim = holding(defaults());
    sim.receive(r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":false,"fallback":"close"}}"#);
    assert_eq!((sim.state(), sim.count()), (State::Waiting, 1));
    sim.lose(exit(0));
    assert_eq!(
        sim.told(&["short-end"]),
        ["attempt 0 failed: connected, then closed after 0 s, closed by this gateway"]
    );
}

#[test]
fn a4_a_call_is_told_the_attempt_the_time_and_the_reason_while_its_server_is_away() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Spawn);
    let session = crate::ids::SessionId(1);
    let event = crate::engine::input::HostEvent::Attached { name: None };
    sim.input(Input::Host { session, event });
    for text in [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#,
    ] {
        let event = crate::engine::input::HostEvent::Received(message(text));
        sim.input(Input::Host { session, event });
    }
    let mut answers = Vec::new();
    for output in sim.take() {
        if let Output::Answer { frame, .. } = output {
            answers.push(String::from_utf8(frame.to_vec()).unwrap());
        }
    }
    let answer = answers.last().unwrap();
    for part in [
        r#""code":-32050"#,
        r#""attempt":1"#,
        r#""retryAfterMs":5000"#,
    ] {
        assert!(answer.contains(part), "{answer}");
    }
}
