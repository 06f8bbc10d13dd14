//! What a guard of the connection keeps apart that seldom meets; `make mutants` found each unwatched.

use super::*;

#[test]
fn r4_a_transport_that_is_gone_without_a_word_is_lost() {
    let mut sim = Sim::connected(defaults());
    sim.link(LinkEvent::Gone(Reap::Clean));
    let view = sim.view();
    assert_eq!((view.state, view.failed_attempts), (State::Waiting, 1));
}

#[test]
fn r6_r7_what_an_end_tells_of_a_life_begins_with_the_handshake() {
    let mut sim = Sim::started(defaults());
    sim.link(LinkEvent::Connected);
    sim.pass(secs(20));
    sim.receive(ANSWER);
    sim.pass(secs(5));
    sim.take();
    sim.link(LinkEvent::Lost(exit(1)));
    sim.link(LinkEvent::Gone(Reap::Clean));
    let told = sim.told(&["short-end"]);
    assert!(told[0].contains("closed after 5 s"), "{told:?}");
}

#[test]
fn r13_a_removed_server_is_not_refused() {
    let mut sim = Sim::connected(defaults());
    sim.input(Input::Stop(Stop::Removed));
    sim.take();
    let problem = "p".into();
    sim.input(Input::Refuse { problem });
    assert!(sim.told(&["refused", "down"]).is_empty());
}

#[test]
fn r15_a_transport_that_tells_twice_that_it_connected_is_asked_once() {
    let mut sim = Sim::started(defaults());
    for _ in 0..2 {
        sim.link(LinkEvent::Connected);
    }
    assert_eq!(sim.sent().len(), 1);
}

#[test]
fn s6_before_it_has_served_a_remote_server_is_one_that_speaks_mcpl() {
    let mut sim = Sim::new(settings(|settings| settings.launched = false));
    let problem = "p".into();
    sim.input(Input::Refuse { problem });
    let told = sim.told(&["down"]);
    assert!(told[0].starts_with("MCPL server down"), "{told:?}");
}

#[test]
fn g2_what_comes_before_the_answer_to_initialize_is_admitted_after_it() {
    let mut sim = Sim::started(defaults());
    sim.link(LinkEvent::Connected);
    sim.receive(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
    sim.take();
    sim.receive(ANSWER);
    assert!(sim.sent().iter().any(|line| line.contains(r#""id":7"#)));
}

#[test]
fn g7_what_comes_late_and_cannot_be_read_is_dropped_and_not_refused() {
    let mut sim = Sim::connected(defaults());
    sim.link(LinkEvent::Lost(exit(1)));
    sim.take();
    let what = Unreadable::TooDeep { about: None };
    let sample = String::new();
    sim.link(LinkEvent::Unreadable { what, sample });
    let told = sim.told(&["dropped", "refused-message"]);
    assert_eq!(told, ["dropped 1 × message: unreadable"]);
}
