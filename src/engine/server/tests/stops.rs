//! R13: after a stop nothing is dialed, reported as failed or retried, whatever was in flight.

use super::*;
use crate::engine::input::HostEvent;
use crate::ids::SessionId;

type Made = fn() -> Sim;

/// A server in every phase.
const PHASES: [(&str, Made); 6] = [
    ("dialing", || Sim::started(defaults())),
    ("initializing", || {
        let mut sim = Sim::started(defaults());
        sim.link(LinkEvent::Connected);
        sim
    }),
    ("serving", || Sim::connected(defaults())),
    ("closing", || {
        let mut sim = Sim::connected(defaults());
        sim.link(LinkEvent::Lost(exit(1)));
        sim
    }),
    ("waiting", || {
        let mut sim = Sim::started(defaults());
        sim.fail(Outcome::Refused);
        sim
    }),
    ("halted", || {
        let mut sim = Sim::connected(defaults());
        sim.link(LinkEvent::Lost(exit(1)));
        sim.link(LinkEvent::Gone(unreapable()));
        sim
    }),
];

fn everything_that_can_still_come(sim: &mut Sim) {
    sim.link(LinkEvent::Connected);
    sim.receive(ANSWER);
    sim.link(LinkEvent::Failed(failure(Outcome::Auth)));
    sim.link(LinkEvent::Lost(exit(1)));
    sim.link(LinkEvent::Gone(unreapable()));
    sim.operate(Operator::Restart);
    sim.operate(Operator::Recycle);
    sim.configure(settings(|s| s.interval = secs(1)), true);
    sim.pass(DAY * 60);
}

#[test]
fn r13_after_a_stop_nothing_is_dialed_reported_as_failed_or_retried() {
    for (phase, made) in PHASES {
        for stop in [Stop::Disabled, Stop::Removed, Stop::Shutdown] {
            let mut sim = made();
            let count = sim.count();
            sim.take();
            sim.input(Input::Stop(stop));
            everything_that_can_still_come(&mut sim);
            let outputs = std::mem::take(&mut sim.outputs);
            let dial = |output: &Output| matches!(output, Output::Dial { .. });
            assert!(!outputs.iter().any(dial), "{phase} {stop:?}");
            sim.outputs = outputs;
            let mut kinds = sim.kinds(&REPORTS);
            kinds.retain(|kind| *kind != "clear");
            assert_eq!(kinds, [""; 0], "{phase} {stop:?}");
            assert_eq!(sim.count(), count, "{phase} {stop:?}");
        }
    }
}

#[test]
fn r13_a_stop_closes_the_transport_that_runs() {
    for (phase, made) in PHASES {
        let mut sim = made();
        let epoch = sim.server.epoch;
        let runs = matches!(phase, "dialing" | "initializing" | "serving");
        sim.take();
        sim.input(Input::Stop(Stop::Shutdown));
        let close = |o: &Output| matches!(o, Output::Close { epoch: closed } if *closed == epoch);
        assert_eq!(sim.take().iter().any(close), runs, "{phase}");
    }
}

#[test]
fn r10_processes_that_outlive_a_stop_are_told_though_it_is_no_halt() {
    for (phase, made) in PHASES {
        let runs = matches!(phase, "dialing" | "initializing" | "serving" | "closing");
        for stop in [Stop::Disabled, Stop::Removed, Stop::Shutdown] {
            let mut sim = made();
            sim.input(Input::Stop(stop));
            sim.take();
            sim.link(LinkEvent::Lost(exit(1)));
            sim.link(LinkEvent::Gone(unreapable()));
            let told = sim.told(&["reported", "halted", "down"]);
            assert_eq!(told.len(), usize::from(runs), "{phase} {stop:?}: {told:?}");
            let why = "processes 7, 12 outlive SIGTERM and SIGKILL";
            assert!(told.iter().all(|text| text.ends_with(why)), "{told:?}");
        }
    }
}

#[test]
fn r13_a_removed_server_is_forgotten_and_cannot_be_started() {
    let mut sim = Sim::connected(defaults());
    sim.take();
    sim.input(Input::Stop(Stop::Removed));
    let forget = |output: &Output| matches!(output, Output::Record(Record::Forget));
    assert!(sim.take().iter().any(forget));
    sim.input(Input::Start(Resumed::default()));
    sim.link(LinkEvent::Gone(Reap::Clean));
    sim.pass(DAY);
    assert_eq!(sim.dials(), [0; 0]);
}

#[test]
fn a4_hosts_of_a_removed_server_are_told_so_and_their_sessions_end() {
    let mut sim = Sim::connected(defaults());
    let session = SessionId(1);
    let call = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{}}"#;
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
    let received = |text: &'static str| HostEvent::Received(Message::parse(text.into()).unwrap());
    for event in [
        HostEvent::Attached { name: None },
        received(initialize),
        received(call),
    ] {
        sim.input(Input::Host { session, event });
    }
    sim.take();
    sim.input(Input::Stop(Stop::Removed));
    let to_host = |output: &Output| {
        if let Output::Answer { frame, .. } = output {
            return Some(String::from_utf8(frame.to_vec()).unwrap());
        }
        let Output::Dismiss { code, reason, .. } = output else {
            return None;
        };
        Some(format!("{code} {reason}"))
    };
    let told: Vec<String> = sim.take().iter().filter_map(to_host).collect();
    let [answer, dismissal] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(answer.contains("-32051") && answer.contains("the server was removed"));
    assert_eq!(dismissal, "1001 the server was removed");
}

#[test]
fn r13_an_end_by_a_stop_is_told_as_the_operators_and_counts_nothing() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(10));
    sim.take();
    sim.input(Input::Stop(Stop::Disabled));
    assert_eq!(
        sim.told(&["ended"]),
        ["connection ended before it lasted, 10 s old: closed by this gateway"]
    );
    assert_eq!(sim.state(), State::Disabled);
}

#[test]
fn r14_enabling_again_dials_at_once_and_keeps_the_count() {
    for (phase, made) in PHASES {
        let mut sim = made();
        let count = sim.count();
        sim.input(Input::Stop(Stop::Disabled));
        sim.link(LinkEvent::Gone(Reap::Clean));
        sim.take();
        sim.input(Input::Start(Resumed::default()));
        assert_eq!(sim.dials(), [count.max(1)], "{phase}");
        assert_eq!(sim.count(), count, "{phase}");
    }
}

#[test]
fn r14_enabling_again_while_the_last_transport_closes_waits_for_its_end() {
    let mut sim = Sim::connected(defaults());
    sim.input(Input::Stop(Stop::Disabled));
    sim.input(Input::Start(Resumed::default()));
    sim.take();
    sim.pass(secs(60));
    assert_eq!(sim.dials(), [0; 0]);
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.dials(), [1]);
}

#[test]
fn a_server_that_was_never_started_does_nothing() {
    let mut sim = Sim::new(defaults());
    everything_that_can_still_come(&mut sim);
    assert!(sim.dials().is_empty());
    assert_eq!(sim.state(), State::Disabled);
}

#[test]
fn r13_a_refused_server_is_not_started_after_a_shutdown() {
    let mut sim = Sim::new(defaults());
    let problem = "no".to_owned();
    sim.input(Input::Refuse { problem });
    sim.input(Input::Stop(Stop::Shutdown));
    sim.configure(defaults(), true);
    assert_eq!((sim.state(), sim.dials()), (State::Refused, vec![]));
}
