//! S: the edges of an episode, the states, the snapshot.

use super::*;

const EDGES: [&str; 2] = ["down", "clear"];

fn fail_until_down(sim: &mut Sim) {
    for _ in 0..6 {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    assert!(sim.view().episode.is_some());
}

#[test]
fn s1_every_change_of_state_is_told_once() {
    let mut sim = Sim::started(defaults());
    sim.connect();
    sim.pass(secs(1000));
    sim.lose(exit(1));
    sim.until_dial();
    sim.fail(Outcome::Refused);
    sim.input(Input::Stop(Stop::Disabled));
    let states: Vec<String> = sim.told(&["state"]);
    let expected = [
        "connecting",
        "open",
        "waiting",
        "connecting",
        "waiting",
        "disabled",
    ];
    assert_eq!(states, expected.map(|state| format!("state {state}")));
}

#[test]
fn s2_a_handshake_clears_nothing() {
    let mut sim = Sim::started(defaults());
    fail_until_down(&mut sim);
    sim.take();
    sim.connect();
    sim.pass(secs(299));
    assert_eq!(sim.told(&EDGES), [""; 0]);
}

#[test]
fn s3_down_is_told_once_right_after_the_report_of_attempt_five() {
    let mut sim = Sim::started(defaults());
    for _ in 0..5 {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    assert_eq!(sim.told(&EDGES), [""; 0]);
    sim.fail(Outcome::Refused);
    let kinds: Vec<_> = sim.decisions().iter().map(Decision::kind).collect();
    let report = kinds.iter().position(|kind| *kind == "attempt-failed");
    assert_eq!(kinds.get(report.unwrap() + 1), Some(&"down"));
    for _ in 0..10 {
        sim.until_dial();
        sim.fail(Outcome::Refused);
    }
    assert_eq!(sim.told(&EDGES), [""; 0]);
}

#[test]
fn s3_down_follows_a_short_end_right_after_its_report() {
    let mut sim = Sim::started(defaults());
    for _ in 0..5 {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    sim.connect();
    sim.link(LinkEvent::Lost(exit(1)));
    assert_eq!(sim.told(&EDGES), [""; 0], "a halt may still replace it");
    sim.link(LinkEvent::Gone(Reap::Clean));
    let kinds: Vec<_> = sim.decisions().iter().map(Decision::kind).collect();
    assert_eq!(kinds[..2], ["short-end", "down"]);
}

#[test]
fn s3_a_server_that_is_not_connected_for_long_is_down_whatever_its_attempts_do() {
    let mut sim = Sim::started(settings(|s| s.interval = secs(200)));
    sim.fail(Outcome::Refused);
    sim.pass(secs(899));
    assert_eq!(sim.told(&EDGES), [""; 0]);
    sim.operate(Operator::Restart);
    sim.pass(secs(1));
    let down = "MCP server down (attempt 2): not connected for 900 s";
    assert_eq!(sim.told(&EDGES), [down], "a restart is no connection");
}

#[test]
fn s3_the_time_away_is_counted_from_the_last_end() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(5000));
    sim.link(LinkEvent::Lost(exit(1)));
    sim.take();
    sim.pass(secs(899));
    assert_eq!(sim.told(&EDGES), [""; 0]);
    sim.pass(secs(1));
    assert_eq!(sim.told(&EDGES).len(), 1);
}

#[test]
fn s3_a_refusal_is_down_at_once() {
    let mut sim = Sim::new(defaults());
    let problem = "reconnectIntervalMs: 0 must be above 0".to_owned();
    sim.input(Input::Refuse { problem });
    assert_eq!(
        sim.told(&REPORTS),
        [
            "configuration refused: reconnectIntervalMs: 0 must be above 0",
            "MCP server down (attempt 0): reconnectIntervalMs: 0 must be above 0"
        ]
    );
    assert_eq!(
        (sim.state(), sim.server.poll_timeout()),
        (State::Refused, None)
    );
    sim.operate(Operator::Restart);
    assert_eq!(sim.dials(), [0; 0], "it is still unusable");
    sim.configure(defaults(), false);
    assert_eq!(sim.dials(), [0]);
    sim.connect();
    sim.pass(secs(300));
    assert_eq!(sim.kinds(&EDGES), ["clear"]);
}

#[test]
fn s3_a_running_server_that_is_refused_is_closed_without_a_failure() {
    let mut sim = Sim::connected(defaults());
    sim.take();
    let problem = "url: not a URL".to_owned();
    sim.input(Input::Refuse { problem });
    sim.lose(exit(0));
    assert_eq!(sim.kinds(&REPORTS), ["refused", "down"]);
    assert_eq!((sim.state(), sim.count()), (State::Refused, 0));
    assert_eq!(sim.view().reason.as_deref(), Some("url: not a URL"));
}

#[test]
fn s4_an_open_episode_ends_once_when_a_connection_has_lasted() {
    let mut sim = Sim::started(defaults());
    fail_until_down(&mut sim);
    sim.pass(secs(3));
    sim.connect();
    sim.take();
    sim.pass(secs(300));
    let clear = "MCP server clear: connected for 300 s after 6 failed attempts (down for 463 s)";
    assert_eq!(sim.told(&EDGES), [clear]);
    assert_eq!(sim.view().episode, None);
    sim.pass(secs(3000));
    assert_eq!(sim.told(&EDGES), [""; 0]);
}

#[test]
fn s4_a_restart_or_a_reload_clears_nothing_and_removal_and_disabling_do() {
    for (stop, cause) in [(Stop::Removed, "removed"), (Stop::Disabled, "disabled")] {
        let mut sim = Sim::started(defaults());
        fail_until_down(&mut sim);
        sim.take();
        sim.operate(Operator::Restart);
        sim.configure(defaults(), true);
        sim.link(LinkEvent::Gone(Reap::Clean));
        assert_eq!(sim.told(&EDGES), [""; 0]);
        sim.input(Input::Stop(stop));
        let told = sim.told(&EDGES);
        assert_eq!(
            told,
            [format!("MCP server clear: {cause} (down for 160 s)")]
        );
    }
}

fn open_episode() -> Resumed {
    Resumed {
        epoch: Epoch(9),
        failed_attempts: 7,
        episode: Some(OpenEpisode {
            since: secs(1000),
            attempt: 5,
            why: "exit code 1".into(),
        }),
        ..Resumed::default()
    }
}

#[test]
fn s5_an_episode_on_record_goes_on_and_ends_when_a_connection_has_lasted() {
    let mut sim = Sim::resumed(defaults(), open_episode());
    sim.fail(Outcome::Refused);
    sim.until_dial();
    assert_eq!(sim.told(&EDGES), [""; 0], "it was told before");
    assert_eq!(sim.view().episode.unwrap().attempt, 5);
    sim.connect();
    sim.pass(secs(300));
    let clear = "MCP server clear: connected for 300 s after 8 failed attempts (down for 1600 s)";
    assert_eq!(sim.told(&EDGES), [clear]);
}

#[test]
fn s5_a_server_that_is_not_started_keeps_its_edges_alternating() {
    let mut refused = Sim::new(defaults());
    refused.input(Input::Resume(open_episode()));
    let problem = "no".to_owned();
    refused.input(Input::Refuse { problem });
    assert_eq!(refused.kinds(&EDGES), [""; 0]);
    let mut disabled = Sim::new(defaults());
    disabled.input(Input::Resume(open_episode()));
    disabled.input(Input::Stop(Stop::Disabled));
    assert_eq!(disabled.kinds(&EDGES), ["clear"]);
}

#[test]
fn s5_what_a_refusal_opened_is_not_forgotten_by_a_late_start() {
    let mut sim = Sim::new(defaults());
    let problem = "no".to_owned();
    sim.input(Input::Refuse { problem });
    sim.input(Input::Start(Resumed::default()));
    sim.connect();
    sim.pass(secs(300));
    assert_eq!(sim.kinds(&EDGES), ["down", "clear"]);
}

#[test]
fn s5_a_shutdown_leaves_the_episode_open() {
    let mut sim = Sim::started(defaults());
    fail_until_down(&mut sim);
    sim.take();
    sim.input(Input::Stop(Stop::Shutdown));
    let outputs = sim.take();
    let forgets = |output: &Output| {
        matches!(output, Output::Record(Record::Clear | Record::Forget))
            || matches!(output, Output::Decided { decision, .. } if decision.kind() == "clear")
    };
    assert!(!outputs.iter().any(forgets), "{outputs:?}");
    assert!(sim.view().episode.is_some());
    assert_ne!(sim.state(), State::Disabled, "that would read as a reset");
}

#[test]
fn s6_the_family_in_a_text_is_what_the_server_last_told() {
    let mcpl = ANSWER.replace(
        r#""tools":{}"#,
        r#""tools":{},"experimental":{"mcpl":{"version":"0.5"}}"#,
    );
    let mut sim = Sim::started(settings(|s| s.down_after_attempts = 1));
    sim.link(LinkEvent::Connected);
    sim.receive(&mcpl);
    sim.lose(exit(1));
    sim.until_dial();
    sim.fail(Outcome::Spawn);
    assert_eq!(
        sim.told(&["down"]),
        ["MCPL server down (attempt 1): spawn on purpose"]
    );
}

#[test]
fn a_snapshot_shows_the_wait_the_age_and_the_reason() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Spawn);
    sim.pass(secs(2));
    let view = sim.view();
    let backoff = view.backoff.unwrap();
    assert_eq!((backoff.wait, backoff.left), (secs(5), secs(3)));
    assert_eq!((view.attempt, view.since_healthy), (1, None));
    assert_eq!(view.reason.as_deref(), Some("spawn on purpose"));
    sim.until_dial();
    sim.connect();
    sim.pass(secs(40));
    let view = sim.view();
    assert_eq!(
        (view.connection_age, view.lasting_threshold),
        (secs(40), secs(300))
    );
    assert_eq!(view.since_healthy, Some(Duration::ZERO));
    assert_eq!((view.backoff, view.reason), (None, None));
    assert!(view.revision.is_some() && !view.mcpl);
    sim.lose(exit(3));
    sim.pass(secs(4));
    let view = sim.view();
    assert_eq!(
        (view.connection_age, view.since_healthy),
        (Duration::ZERO, Some(secs(4)))
    );
}
