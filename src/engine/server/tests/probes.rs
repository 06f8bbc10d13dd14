//! R12: the silence of a server, and the pings that end it.

use super::*;

#[test]
fn r12_a_silent_server_is_pinged_twice_and_then_lost() {
    let mut sim = Sim::connected(settings(|s| s.probe_after = secs(30)));
    sim.take();
    sim.pass(secs(49));
    assert_eq!(sim.sent().iter().filter(|f| f.contains("ping")).count(), 2);
    sim.pass(secs(1));
    assert_eq!(sim.state(), State::Waiting);
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(
        sim.told(&["short-end"]),
        ["attempt 0 failed: connected, then closed after 50 s, no sign of life"]
    );
}

#[test]
fn r12_an_answered_probe_is_life_and_reaches_nobody_else() {
    let mut sim = Sim::connected(settings(|s| s.probe_after = secs(30)));
    for _ in 0..5 {
        sim.take();
        sim.pass(secs(30));
        let pings = sim.sent();
        let ping = pings.iter().find(|frame| frame.contains("ping")).unwrap();
        let id = message(ping).id().unwrap();
        sim.receive(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
            id.as_str()
        ));
    }
    assert!(sim.view().connected);
    assert_eq!(sim.kinds(&["dropped", "ended"]), [""; 0]);
}

#[test]
fn r12_a_changed_silence_holds_at_once_and_any_line_ends_one() {
    let mut sim = Sim::connected(defaults());
    sim.pass(DAY);
    sim.take();
    sim.configure(settings(|s| s.probe_after = secs(30)), false);
    for _ in 0..10 {
        sim.pass(secs(29));
        sim.link(LinkEvent::Unreadable {
            what: Unreadable::NotJson,
            sample: "tick".into(),
        });
    }
    assert!(!sim.sent().iter().any(|frame| frame.contains("ping")));
    sim.pass(secs(30));
    assert!(sim.sent().iter().any(|frame| frame.contains("ping")));
}

/// BR-040
#[test]
fn r12_an_error_in_answer_to_a_probe_is_life_too() {
    let mut sim = Sim::connected(settings(|s| s.probe_after = secs(30)));
    for _ in 0..5 {
        sim.take();
        sim.pass(secs(30));
        let pings = sim.sent();
        let ping = pings.iter().find(|frame| frame.contains("ping")).unwrap();
        let id = message(ping).id().unwrap();
        let error = r#"{"code":-32601,"message":"no such method"}"#;
        sim.receive(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
            id.as_str()
        ));
    }
    assert!(sim.view().connected);
}
