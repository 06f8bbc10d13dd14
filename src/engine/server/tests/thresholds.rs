//! S3, S4: what counts of the past where a threshold moves, or where the server was not wanted meanwhile.

use super::*;

const EDGES: [&str; 2] = ["down", "clear"];

fn with_threshold(attempts: u64) -> Arc<Settings> {
    settings(|s| s.down_after_attempts = attempts)
}

fn failed(times: usize, settings: Arc<Settings>) -> Sim {
    let mut sim = Sim::started(settings);
    for _ in 0..times {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    sim.take();
    sim
}

fn unwanted(sim: &Sim) -> (Option<Duration>, u64) {
    let view = sim.view();
    (view.since_unwanted, view.failed_since_unwanted)
}

#[test]
fn s3_a_lower_threshold_of_attempts_counts_what_has_failed_already() {
    let mut sim = failed(4, with_threshold(5));
    sim.configure(with_threshold(4), false);
    assert_eq!(sim.told(&EDGES), [""; 0], "attempt 3 was the last to fail");
    sim.configure(with_threshold(3), false);
    let down = "MCP server down (attempt 3): 4 attempts in a row have failed";
    assert_eq!(sim.told(&EDGES), [down]);
    sim.configure(with_threshold(9), false);
    assert_eq!(sim.told(&EDGES), [""; 0], "S4: no reload clears");
}

#[test]
fn s3_a_lower_threshold_that_the_gateway_starts_with_counts_what_is_on_record() {
    let resumed = |forgiven_attempts| Resumed {
        failed_attempts: 4,
        forgiven_attempts,
        ..Resumed::default()
    };
    let mut sim = Sim::resumed(with_threshold(3), resumed(0));
    assert_eq!(sim.kinds(&EDGES), ["down"]);
    let mut sim = Sim::resumed(with_threshold(3), resumed(4));
    assert_eq!(sim.kinds(&EDGES), [""; 0], "nothing failed since");
}

#[test]
fn s3_a_lower_threshold_of_time_counts_the_longest_time_away_until_a_connection_has_lasted() {
    let after = |seconds| settings(|s| s.down_after = secs(seconds));
    let mut sim = Sim::started(after(900));
    sim.pass(secs(14));
    sim.connect();
    sim.lose(exit(1));
    sim.pass(secs(4));
    assert_eq!(sim.view().away_for, secs(14));
    sim.until_dial();
    sim.connect();
    sim.take();
    sim.configure(after(15), false);
    assert_eq!(sim.told(&EDGES), [""; 0]);
    sim.configure(after(14), false);
    let down = "MCP server down (attempt 0): not connected for 14 s";
    assert_eq!(sim.told(&EDGES), [down]);
    sim.pass(secs(300));
    assert_eq!(sim.view().away_for, Duration::ZERO);
    sim.take();
    sim.configure(after(10), false);
    assert_eq!(sim.told(&EDGES), [""; 0]);
}

#[test]
fn s4_what_had_failed_when_a_server_was_disabled_opens_no_episode() {
    let mut sim = failed(7, with_threshold(5));
    sim.input(Input::Stop(Stop::Disabled));
    assert_eq!(sim.kinds(&EDGES), ["clear"]);
    assert_eq!(unwanted(&sim), (Some(Duration::ZERO), 0));
    sim.pass(secs(9));
    sim.input(Input::Stop(Stop::Disabled));
    sim.input(Input::Start(Resumed::default()));
    assert_eq!(unwanted(&sim), (Some(secs(9)), 0), "it was disabled once");
    sim.configure(with_threshold(1), false);
    assert_eq!(sim.told(&EDGES), [""; 0], "nothing failed since");
    sim.link(LinkEvent::Gone(Reap::Clean));
    sim.fail(Outcome::Refused);
    assert_eq!((unwanted(&sim).1, sim.count()), (1, 8));
    assert_eq!(sim.kinds(&EDGES), ["down"]);
}

#[test]
fn s4_a_server_is_unwanted_from_its_end_as_asked_and_from_a_start_that_finds_it_disabled() {
    let mut asked = Sim::connected(settings(|s| s.reconnect = false));
    asked.pass(secs(5));
    asked.link(LinkEvent::Lost(exit(0)));
    assert!(asked.records().contains(&Record::Unwanted));
    asked.pass(secs(2));
    assert_eq!(unwanted(&asked), (Some(secs(2)), 0));
    let mut disabled = Sim::new(defaults());
    disabled.input(Input::Resume(Resumed {
        since_unwanted: Some(secs(1_000)),
        failed_attempts: 7,
        ..Resumed::default()
    }));
    assert_eq!(unwanted(&disabled), (Some(secs(1_000)), 7));
    disabled.input(Input::Stop(Stop::Disabled));
    assert_eq!(unwanted(&disabled), (Some(Duration::ZERO), 0));
}

#[test]
fn s4_a_refused_server_that_is_disabled_again_was_wanted_between() {
    let mut sim = Sim::started(defaults());
    let refuse = Input::Refuse {
        problem: "no".into(),
    };
    sim.input(Input::Stop(Stop::Disabled));
    sim.input(refuse);
    sim.pass(secs(7));
    sim.input(Input::Stop(Stop::Disabled));
    assert_eq!(sim.kinds(&EDGES), ["down", "clear"]);
    assert_eq!(unwanted(&sim).0, Some(Duration::ZERO));
}
