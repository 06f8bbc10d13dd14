//! R: the count, the waits, lasting, halts.

use super::*;

/// Interval 200 ms, cap 3.2 s.
fn quick() -> Arc<Settings> {
    settings(|s| {
        s.interval = millis(200);
        s.max_interval = millis(3200);
    })
}

/// Waits, counts and edges of a server whose every attempt ends in the same way.
fn history(end: impl Fn(&mut Sim)) -> Vec<(Duration, u64, Vec<String>)> {
    let mut sim = Sim::started(quick());
    (0..9)
        .map(|_| {
            end(&mut sim);
            let edges = sim.told(&["down", "clear"]);
            (sim.until_dial(), sim.count(), edges)
        })
        .collect()
}

fn dies(sim: &mut Sim) {
    sim.connect();
    sim.pass(millis(300));
    sim.lose(exit(0));
}

#[test]
fn r1_the_failure_of_attempt_n_makes_the_count_n_plus_1() {
    let mut sim = Sim::started(defaults());
    for attempt in 0..5 {
        assert_eq!(sim.view().attempt, attempt);
        sim.fail(Outcome::Refused);
        assert_eq!(sim.count(), attempt + 1);
        sim.until_dial();
    }
    assert_eq!(sim.dials(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn r1_a_count_on_record_goes_on_where_it_was() {
    let resumed = Resumed {
        epoch: Epoch(41),
        failed_attempts: 3,
        since_launch: Some(secs(2)),
        ..Resumed::default()
    };
    let mut sim = Sim::resumed(defaults(), resumed);
    assert_eq!(sim.state(), State::Waiting);
    assert_eq!(sim.until_dial(), secs(3));
    assert_eq!((sim.view().epoch, sim.view().attempt), (Epoch(42), 3));
    sim.fail(Outcome::Refused);
    assert_eq!(sim.count(), 4);
}

#[test]
fn r1_the_first_dial_is_at_once_where_nothing_speaks_against_it() {
    for (failed_attempts, since_launch) in [(0, Some(secs(1))), (3, None), (3, Some(secs(5)))] {
        let resumed = Resumed {
            failed_attempts,
            since_launch,
            ..Resumed::default()
        };
        let mut sim = Sim::resumed(defaults(), resumed);
        assert_eq!(sim.dials(), [failed_attempts]);
    }
}

#[test]
fn r1_every_dial_is_on_record_with_its_epoch() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Spawn);
    sim.until_dial();
    let launched = |output: &Output| matches!(output, Output::Record(Record::Launched(_)));
    let outputs = sim.take();
    assert_eq!(outputs.iter().filter(|output| launched(output)).count(), 2);
    assert!(matches!(
        outputs.last(),
        Some(Output::Dial {
            epoch: Epoch(2),
            attempt: Attempt(1)
        })
    ));
}

#[test]
fn r2_the_waits_of_a_server_that_dies_soon_double_up_to_the_cap() {
    let waits: Vec<u128> = history(dies)
        .iter()
        .map(|(wait, ..)| wait.as_millis())
        .collect();
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 3200, 3200, 3200, 3200]);
}

#[test]
fn r2_the_jitter_of_the_moment_of_the_loss_decides_the_wait() {
    for (jitter, wait) in [(-1.0, 150), (0.5, 225), (1.0, 250)] {
        let mut sim = Sim::started(quick());
        sim.jitter = jitter;
        sim.fail(Outcome::Refused);
        sim.jitter = 0.0;
        assert_eq!(sim.until_dial().as_millis(), wait);
    }
}

#[test]
fn r2_no_wait_is_longer_than_a_timer_can_be() {
    let mut sim = Sim::started(settings(|s| s.max_interval = Duration::MAX));
    sim.jitter = 1.0;
    for _ in 0..60 {
        sim.fail(Outcome::Refused);
        assert!(sim.until_dial() <= WAIT_MAX);
    }
    sim.fail(Outcome::Refused);
    assert_eq!(sim.until_dial(), WAIT_MAX);
}

#[test]
fn r2_the_wait_runs_from_the_loss_and_the_dial_waits_for_the_end_of_the_last_transport() {
    let mut sim = Sim::connected(defaults());
    sim.link(LinkEvent::Lost(exit(1)));
    sim.pass(secs(2));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.until_dial(), secs(3));
    sim.connect();
    sim.link(LinkEvent::Lost(exit(1)));
    sim.take();
    sim.pass(secs(60));
    assert_eq!(sim.dials(), [0; 0]);
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.dials(), [2]);
}

#[test]
fn r4_a_server_that_dies_soon_backs_off_and_goes_down_as_one_that_never_connects() {
    let never = history(|sim| sim.fail(Outcome::Refused));
    let mute = history(|sim| {
        sim.link(LinkEvent::Connected);
        sim.lose(exit(0));
    });
    let same = |other: &[(Duration, u64, Vec<String>)]| {
        other
            .iter()
            .map(|(wait, count, edges)| (*wait, *count, edges.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(same(&never), same(&history(dies)));
    assert_eq!(same(&never), same(&mute));
    let edges: Vec<usize> = never.iter().map(|(_, _, edges)| edges.len()).collect();
    assert_eq!(edges, [0, 0, 0, 0, 0, 1, 0, 0, 0], "one down, at attempt 5");
}

#[test]
fn r4_a_short_end_is_the_failure_of_the_attempt_that_made_the_connection() {
    let mut sim = Sim::started(defaults());
    let mut told = Vec::new();
    for lasts in [false, false, true, false] {
        sim.connect();
        sim.pass(if lasts { secs(301) } else { secs(7) });
        sim.lose(exit(1));
        sim.until_dial();
        told.extend(sim.told(&["adopted", "short-end"]));
    }
    let why = "connected, then closed after 7 s, exit code 1";
    let adopted = |n| format!("connected by attempt {n}, MCP 2025-06-18; not yet lasting");
    let failed = |n| format!("attempt {n} failed: {why}");
    let expected = [
        adopted(0),
        failed(0),
        adopted(1),
        failed(1),
        adopted(2),
        adopted(1),
        failed(1),
    ];
    assert_eq!(told, expected);
}

#[test]
fn r4_the_end_is_counted_once_and_before_anything_else_sees_it() {
    let mut sim = Sim::connected(defaults());
    sim.take();
    sim.link(LinkEvent::Lost(exit(1)));
    let first = sim.outputs.remove(0);
    let Output::Decided { decision, .. } = first else {
        panic!("{first:?}")
    };
    assert!(
        matches!(
            decision,
            Decision::Ended {
                failed_attempts: 1,
                lasted: false,
                ..
            }
        ),
        "{decision:?}"
    );
    sim.link(LinkEvent::Lost(exit(1)));
    sim.link(LinkEvent::Gone(Reap::Clean));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.count(), 1);
    assert_eq!(sim.kinds(&["ended", "short-end"]), ["short-end"]);
}

#[test]
fn r5_lasting_starts_the_count_afresh_while_connected() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Refused);
    sim.until_dial();
    sim.connect();
    sim.pass(secs(299));
    assert_eq!(sim.count(), 1);
    sim.take();
    sim.pass(secs(1));
    assert_eq!(sim.count(), 0);
    assert_eq!(sim.view().since_lasted, Some(Duration::ZERO));
    let records = sim.records();
    assert_eq!(records, [Record::Lasted, Record::Count(0)]);
    sim.pass(secs(100));
    sim.lose(exit(1));
    assert_eq!(sim.kinds(&REPORTS), ["waiting"]);
    assert_eq!((sim.until_dial(), sim.view().attempt), (secs(5), 1));
}

#[test]
fn r5_a_life_that_reached_the_threshold_has_lasted_though_its_end_is_handled_first() {
    let mut sim = Sim::connected(defaults());
    sim.take();
    sim.now += secs(300);
    sim.lose(exit(1));
    assert_eq!(sim.kinds(&REPORTS), ["lasted", "waiting"]);
    assert_eq!(sim.count(), 0);
}

#[test]
fn r5_a_changed_threshold_holds_for_the_connection_that_serves() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(20));
    sim.take();
    sim.configure(settings(|s| s.lasting_after = Some(secs(30))), false);
    assert_eq!(sim.kinds(&REPORTS), [""; 0]);
    sim.configure(settings(|s| s.lasting_after = Some(secs(20))), false);
    assert_eq!(sim.kinds(&REPORTS), ["lasted"]);
}

#[test]
fn r3_under_a_cap_of_a_day_a_life_of_two_hours_has_lasted() {
    let mut sim = Sim::started(settings(|s| s.max_interval = DAY));
    for _ in 0..10 {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    assert_eq!(sim.count(), 10);
    sim.connect();
    sim.pass(secs(7200));
    sim.lose(exit(1));
    assert_eq!((sim.count(), sim.until_dial()), (0, secs(5)));
}

#[test]
fn r3_without_a_cap_a_drop_a_day_always_waits_one_base_interval() {
    let mut sim = Sim::started(settings(|s| s.max_interval = Duration::MAX));
    for _ in 0..60 {
        sim.connect();
        sim.pass(DAY);
        sim.lose(exit(1));
        assert_eq!(sim.until_dial(), secs(5));
    }
    assert_eq!(sim.kinds(&["short-end", "down"]), [""; 0]);
}

#[test]
fn r7_a_short_end_tells_its_seconds_its_cause_and_the_last_of_stderr() {
    let mut sim = Sim::connected(defaults());
    sim.pass(millis(2999));
    sim.lose(Loss {
        end: End::Signal(9),
        stderr: vec!["no token".into(), "bye".into()],
    });
    assert_eq!(
        sim.told(&["short-end"]),
        ["attempt 0 failed: connected, then closed after 2 s, signal 9 | stderr: no token / bye"]
    );
}

#[test]
fn r8_exit_0_and_sigterm_are_short_ends_like_any_other() {
    for end in [End::Exit(0), End::Exit(143), End::Signal(15)] {
        let mut sim = Sim::connected(defaults());
        sim.take();
        sim.lose(loss(end));
        assert_eq!(sim.kinds(&REPORTS), ["short-end", "waiting"]);
        assert_eq!(sim.count(), 1);
    }
}

const VERDICT: &str = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"no"}}"#;

fn version_verdict(settings: Arc<Settings>) -> Sim {
    let mut sim = Sim::started(settings);
    sim.link(LinkEvent::Connected);
    sim.take();
    sim.receive(VERDICT);
    sim
}

#[test]
fn r10_a_version_verdict_of_a_launched_server_halts() {
    let mut sim = version_verdict(defaults());
    assert_eq!(sim.kinds(&REPORTS), ["attempt-failed", "halted", "down"]);
    sim.link(LinkEvent::Gone(Reap::Clean));
    sim.pass(DAY * 30);
    assert_eq!((sim.state(), sim.dials()), (State::Halted, vec![]));
    sim.operate(Operator::Restart);
    assert_eq!((sim.dials(), sim.count()), (vec![1], 1));
}

#[test]
fn r10_a_version_verdict_of_a_remote_server_is_retried_slowly() {
    let mut sim = version_verdict(settings(|s| s.launched = false));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.kinds(&REPORTS), ["attempt-failed", "waiting"]);
    assert_eq!(sim.until_dial(), secs(900));
}

#[test]
fn r10_a_halt_for_an_unreapable_launch_replaces_the_short_end_report() {
    let mut sim = Sim::started(defaults());
    for _ in 0..2 {
        dies(&mut sim);
        sim.until_dial();
    }
    sim.connect();
    sim.take();
    sim.link(LinkEvent::Lost(exit(1)));
    sim.link(LinkEvent::Gone(unreapable()));
    let why = "connected, then closed after 0 s, exit code 1; \
               processes 7, 12 outlive SIGTERM and SIGKILL";
    assert_eq!(
        sim.told(&REPORTS),
        [
            format!("halted (attempt 2): {why}"),
            format!("MCP server down (attempt 2): {why}")
        ]
    );
    sim.pass(DAY * 30);
    assert_eq!((sim.state(), sim.dials()), (State::Halted, vec![]));
    assert_eq!(sim.view().reason.as_deref(), Some(why));
}

#[test]
fn r10_a_halt_after_a_lasting_connection_is_numbered_1() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(400));
    sim.take();
    sim.link(LinkEvent::Lost(exit(1)));
    sim.link(LinkEvent::Gone(unreapable()));
    let halted = sim.told(&["halted", "short-end"]);
    assert_eq!(halted.len(), 1);
    assert!(halted[0].starts_with("halted (attempt 1): "), "{halted:?}");
}

#[test]
fn r10_a_failed_attempt_or_a_restart_that_leaves_processes_halts_too() {
    let mut failed = Sim::started(defaults());
    failed.link(LinkEvent::Failed(failure(Outcome::Spawn)));
    let mut restarted = Sim::connected(defaults());
    restarted.operate(Operator::Restart);
    for mut sim in [failed, restarted] {
        sim.take();
        sim.link(LinkEvent::Gone(unreapable()));
        assert_eq!(sim.kinds(&REPORTS), ["halted", "down"]);
        sim.pass(DAY);
        assert_eq!((sim.state(), sim.dials()), (State::Halted, vec![]));
    }
}

#[test]
fn r10_only_a_restart_or_a_changed_configuration_ends_a_halt() {
    let halted = || {
        let mut sim = version_verdict(defaults());
        sim.link(LinkEvent::Gone(Reap::Clean));
        sim.take();
        sim
    };
    let mut sim = halted();
    sim.configure(defaults(), false);
    sim.operate(Operator::Recycle);
    sim.input(Input::Start(Resumed::default()));
    assert_eq!(sim.dials(), [0; 0]);
    sim.configure(settings(|s| s.interval = secs(1)), false);
    assert_eq!(sim.dials(), [1]);
    let mut sim = halted();
    sim.configure(defaults(), true);
    assert_eq!(sim.dials(), [1]);
    let mut sim = halted();
    sim.operate(Operator::Restart);
    assert_eq!(sim.dials(), [1]);
}

#[test]
fn r14_a_restart_dials_at_once_and_is_no_failure() {
    let mut sim = Sim::started(defaults());
    for _ in 0..3 {
        sim.fail(Outcome::Refused);
        sim.until_dial();
    }
    sim.connect();
    sim.take();
    sim.operate(Operator::Restart);
    assert!(matches!(sim.outputs.last(), Some(Output::Close { .. })));
    assert_eq!(sim.dials(), [0; 0], "not before the last one is gone");
    sim.lose(exit(0));
    assert_eq!((sim.count(), sim.state()), (3, State::Connecting));
    assert_eq!(sim.kinds(&REPORTS), [""; 0]);
    assert_eq!(sim.view().attempt, 3);
}

#[test]
fn r14_a_restart_skips_a_wait_and_ends_an_attempt_that_hangs() {
    let mut waiting = Sim::started(defaults());
    waiting.fail(Outcome::Refused);
    waiting.take();
    waiting.operate(Operator::Restart);
    assert_eq!(waiting.dials(), [1]);

    let mut hanging = Sim::started(defaults());
    hanging.take();
    hanging.configure(defaults(), true);
    hanging.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(hanging.count(), 0);
    assert_eq!(hanging.dials(), [1]);

    let mut closing = Sim::connected(defaults());
    closing.link(LinkEvent::Lost(exit(1)));
    closing.operate(Operator::Restart);
    closing.take();
    closing.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(
        closing.kinds(&["short-end", "dialing"]),
        ["short-end", "dialing"]
    );
}

#[test]
fn r14_a_recycle_of_a_connection_that_has_not_lasted_is_its_attempts_failure() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(9));
    sim.operate(Operator::Recycle);
    sim.take();
    sim.lose(exit(0));
    assert_eq!(
        sim.told(&["short-end", "ended"]),
        ["attempt 0 failed: connected, then closed after 9 s, closed by this gateway"]
    );
    assert_eq!((sim.count(), sim.until_dial()), (1, secs(5)));
    sim.operate(Operator::Recycle);
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.count(), 2, "an attempt that runs fails");
    sim.operate(Operator::Recycle);
    assert_eq!(sim.until_dial(), secs(10), "a wait is not shortened");
}

#[test]
fn r14_a_recycle_of_a_connection_that_has_lasted_is_no_failure() {
    let mut sim = Sim::connected(defaults());
    sim.pass(secs(301));
    sim.take();
    sim.operate(Operator::Recycle);
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.kinds(&REPORTS), ["waiting"]);
    assert_eq!((sim.count(), sim.until_dial()), (0, secs(5)));
}

#[test]
fn r15_a_dial_and_an_initialize_have_their_bounds() {
    let mut sim = Sim::started(defaults());
    sim.pass(secs(15));
    sim.link(LinkEvent::Gone(Reap::Clean));
    sim.until_dial();
    sim.link(LinkEvent::Connected);
    sim.link(LinkEvent::Stderr("waiting for a database".into()));
    sim.pass(secs(30));
    assert!(matches!(sim.outputs.last(), Some(Output::Close { .. })));
    assert_eq!(
        sim.told(&["attempt-failed"]),
        [
            "attempt 0 failed: not connected within 15 s",
            "attempt 1 failed: initialize was not answered within 30 s \
             | stderr: waiting for a database"
        ]
    );
}

/// When each relaunch came, of a server whose connections live so long; 0 is a dial that fails.
fn relaunches(lives: &[u64]) -> Vec<Duration> {
    let mut sim = Sim::started(defaults());
    let start = sim.now;
    let relaunch = |life: &u64| {
        if *life == 0 {
            sim.fail(Outcome::Refused);
        } else {
            sim.connect();
            sim.pass(secs(*life));
            sim.lose(exit(1));
        }
        sim.until_dial();
        sim.now - start
    };
    lives.iter().map(relaunch).collect()
}

#[test]
fn r16_a_window_without_a_lasting_connection_has_at_most_one_launch_over_a_dead_servers() {
    let dead = relaunches(&[0; 40]);
    for seed in 1..50_u64 {
        let life = |n: u64| (seed * 7919 + n * n * 104_729) % [3, 299, 330][(n % 3) as usize];
        let lives: Vec<u64> = (0..40).map(life).collect();
        let times = relaunches(&lives);
        for (first, from) in times.iter().enumerate() {
            let in_window = |n: &usize| lives[first + 1..=*n].iter().all(|life| *life < 300);
            for to in (first + 2..times.len()).take_while(in_window) {
                assert!(
                    times[to] - *from >= dead[to - first - 2],
                    "seed {seed}: {first} to {to}"
                );
            }
        }
    }
}

#[test]
fn r18_a_credential_refused_twice_is_down_and_retried_slowly() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Auth);
    assert_eq!((sim.state(), sim.until_dial()), (State::Waiting, secs(5)));
    sim.take();
    sim.fail(Outcome::Auth);
    assert_eq!(sim.kinds(&REPORTS), ["attempt-failed", "down", "waiting"]);
    assert_eq!((sim.state(), sim.until_dial()), (State::Auth, secs(300)));
    sim.connect();
    assert_eq!(sim.state(), State::Open, "a rotated credential heals it");
    sim.pass(secs(300));
    assert_eq!(sim.kinds(&["clear"]), ["clear"]);
}

#[test]
fn r18_retry_after_is_a_floor_for_the_wait() {
    let mut sim = Sim::started(defaults());
    sim.link(LinkEvent::Failed(Failure {
        retry_after: Some(secs(60)),
        ..failure(Outcome::Refused)
    }));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(sim.until_dial(), secs(60));
}

fn single() -> Arc<Settings> {
    settings(|s| s.reconnect = false)
}

#[test]
fn r20_with_reconnect_off_a_failed_first_connect_is_down_and_final() {
    let mut sim = Sim::started(single());
    sim.take();
    sim.fail(Outcome::Refused);
    assert_eq!(sim.kinds(&REPORTS), ["attempt-failed", "halted", "down"]);
    sim.pass(DAY);
    assert_eq!((sim.state(), sim.dials()), (State::Halted, vec![]));
}

#[test]
fn r20_with_reconnect_off_an_end_is_down_unless_it_was_asked_for() {
    for (lived, end, state) in [
        (9, End::Exit(1), State::Halted),
        (900, End::Exit(1), State::Halted),
        (9, End::Recycle, State::Halted),
        (9, End::Exit(0), State::Ended),
        (900, End::Signal(15), State::Ended),
    ] {
        let mut sim = Sim::connected(single());
        sim.pass(secs(lived));
        sim.take();
        sim.lose(loss(end.clone()));
        let edges: &[&str] = if state == State::Halted {
            &["halted", "down"]
        } else {
            &[]
        };
        assert_eq!(sim.kinds(&REPORTS), edges, "{end}");
        sim.pass(DAY);
        assert_eq!((sim.state(), sim.dials()), (state, vec![]), "{end}");
        sim.operate(Operator::Restart);
        assert_eq!(sim.state(), State::Connecting);
    }
}

#[test]
fn r4_every_change_of_the_count_is_on_record() {
    let mut sim = Sim::started(defaults());
    sim.fail(Outcome::Refused);
    sim.until_dial();
    sim.connect();
    sim.lose(exit(1));
    let mut records = sim.records();
    records.retain(|record| matches!(record, Record::Count(_)));
    assert_eq!(records, [Record::Count(1), Record::Count(2)]);
}

#[test]
fn r20_an_end_as_asked_with_reconnect_off_is_no_failure() {
    let mut sim = Sim::connected(single());
    sim.lose(exit(0));
    assert_eq!((sim.state(), sim.count()), (State::Ended, 0));
}
