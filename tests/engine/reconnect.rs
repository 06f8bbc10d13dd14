//! R1 to R6, R13, R15, R16 and R18: when the next attempt comes, and what it is called.

use std::time::Duration;

use tidegate::engine::decision::{Decision, State};
use tidegate::engine::input::{End, Outcome, Resumed, Stop};
use tidegate::engine::output::{Output, Record};
use tidegate::engine::settings::{Settings, WAIT_MAX};
use tidegate::engine::timers::Timer;
use tidegate::ids::Epoch;

use crate::world::message::is_response;
use crate::world::peer::{Fate, Peer, REFUSED, Receipt};
use crate::world::{Jitter, World, in_seconds, secs};

#[test]
fn r1_attempts_are_numbered_from_0_and_each_failure_counts_one() {
    let mut world = World::started(Settings::default(), Peer::refusing());
    world.run_for(secs(80));
    let dials = world.dials();
    assert_eq!(
        dials,
        [(0, 0), (5_000, 1), (15_000, 2), (35_000, 3), (75_000, 4)]
    );
    assert_eq!(world.snapshot().failed_attempts, 5);
    assert_eq!(world.snapshot().attempt, 5);
}

#[test]
fn r1_every_epoch_has_its_number_and_its_launch_is_recorded() {
    let mut world = World::started(Settings::default(), Peer::refusing());
    world.run_for(secs(20));
    let launches: Vec<_> = world
        .trace
        .iter()
        .filter_map(|(_, output)| match output {
            Output::Record(Record::Launched(epoch)) => Some(epoch.0),
            _ => None,
        })
        .collect();
    assert_eq!(launches, [1, 2, 3]);
}

#[test]
fn r1_lasting_sets_the_count_to_0_while_connected() {
    let mut peer = Peer::default();
    peer.fates.extend([REFUSED, REFUSED]);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(15 + 299));
    assert_eq!(world.snapshot().failed_attempts, 2);
    world.run_for(secs(1));
    assert_eq!(world.snapshot().failed_attempts, 0);
    assert!(world.snapshot().connected);
}

#[test]
fn r1_a_resumed_count_is_the_number_of_the_first_dial_one_interval_after_the_last_launch() {
    let mut world = World::with(Settings::default(), Peer::refusing());
    world.start_with(Resumed {
        epoch: Epoch(41),
        failed_attempts: 3,
        since_launch: Some(secs(2)),
        ..Resumed::default()
    });
    assert!(world.dials().is_empty());
    world.run_for(secs(3));
    assert_eq!(world.dials(), [(3_000, 3)]);
    assert_eq!(world.epoch(), Epoch(42));
    assert_eq!(world.snapshot().failed_attempts, 4);
}

#[test]
fn r1_a_resumed_count_is_dialed_at_once_when_the_last_launch_is_long_ago_or_unknown() {
    for since_launch in [Some(secs(5)), Some(secs(86_400)), None] {
        let mut world = World::with(Settings::default(), Peer::refusing());
        world.start_with(Resumed {
            failed_attempts: 7,
            since_launch,
            ..Resumed::default()
        });
        assert_eq!(world.dials(), [(0, 7)], "{since_launch:?}");
    }
}

#[test]
fn r2_waits_double_up_to_the_cap() {
    let mut world = World::started(Settings::default(), Peer::refusing());
    world.run_for(secs(1_300));
    let waits = in_seconds(&world.waits());
    assert_eq!(waits[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn r2_jitter_is_a_quarter_either_way_and_the_cap_applies_before_it() {
    for (jitter, first, last) in [
        (-1.0, 3_750, 225_000),
        (1.0, 6_250, 375_000),
        (9.0, 6_250, 375_000),
    ] {
        let mut world = World::with(Settings::default(), Peer::refusing());
        world.jitter = Jitter::Fixed(jitter);
        world.start();
        world.run_for(secs(3_000));
        let waits = world.waits();
        assert_eq!((waits[0], waits[7]), (first, last), "jitter {jitter}");
    }
}

#[test]
fn r2_no_wait_exceeds_a_timers_limit_whatever_the_cap() {
    for max_interval in [Duration::MAX, secs(1 << 40), WAIT_MAX] {
        let settings = Settings {
            interval: secs(86_400),
            max_interval,
            ..Settings::default()
        };
        let mut world = World::with(settings, Peer::refusing());
        world.jitter = Jitter::Fixed(1.0);
        world.start();
        world.run_for(secs(86_400 * 2_000));
        assert_eq!(*world.waits().last().unwrap(), WAIT_MAX.as_millis());
        assert!(world.waits().len() > 60);
    }
}

#[test]
fn r2_an_interval_above_its_cap_waits_for_the_cap() {
    let settings = Settings {
        interval: secs(10),
        max_interval: secs(4),
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::refusing());
    world.run_for(secs(30));
    assert_eq!(in_seconds(&world.waits())[..3], [4, 4, 4]);
}

#[test]
fn r3_the_threshold_is_shown_and_is_what_the_connection_is_measured_by() {
    let settings = Settings {
        max_interval: secs(1200),
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::default());
    assert_eq!(world.snapshot().lasting_threshold, secs(1200));
    assert_eq!(world.next_deadline().unwrap(), (secs(1200), Timer::Lasting));
    world.run_for(secs(1199));
    assert_eq!(world.count_of("lasted"), 0);
    world.run_for(secs(1));
    assert_eq!(world.count_of("lasted"), 1);
}

#[test]
fn r3_under_a_cap_of_ten_minutes_a_life_of_five_is_short() {
    for (life, is_short) in [(301, true), (599, true), (600, false)] {
        let settings = Settings {
            max_interval: secs(600),
            ..Settings::default()
        };
        let mut world = World::started(settings, Peer::living(secs(life)));
        world.run_for(secs(life));
        let told = world.told(&["short-end"]);
        assert_eq!(told.len(), usize::from(is_short), "{told:?}");
        let seconds = format!("connected, then closed after {life} s");
        assert!(told.iter().all(|text| text.contains(&seconds)), "{told:?}");
    }
}

#[test]
fn r4_an_end_in_the_policy_exchange_is_a_short_end_and_announces_nothing() {
    let peer = Peer {
        receipt: Receipt::Silent,
        ..Peer::bridge()
    };
    let mut world = World::started(Settings::default(), peer);
    let host = world.attach_host(1);
    world.run_for(secs(1));
    let before = world.hosts[&host].told.len();
    world.lose(End::Exit(1));
    assert_eq!(world.snapshot().failed_attempts, 1);
    assert_eq!(world.count_of("short-end"), 1);
    let told = &world.hosts[&host].told[before..];
    assert!(told.iter().all(is_response), "{told:?}");
}

#[test]
fn r4_a_short_connection_is_the_failure_of_its_attempt() {
    let mut world = World::started(
        Settings::default(),
        Peer::living(Duration::from_millis(300)),
    );
    world.run_for(secs(700));
    assert_eq!(
        in_seconds(&world.waits())[..7],
        [5, 10, 20, 40, 80, 160, 300]
    );
    let attempts: Vec<_> = world.dials().iter().map(|(_, attempt)| *attempt).collect();
    assert_eq!(attempts[..5], [0, 1, 2, 3, 4]);
    assert_eq!(world.count_of("lasted"), 0);
    assert_eq!(world.count_of("down"), 1);
    assert_eq!(world.count_of("short-end"), world.count_of("adopted"));
}

#[test]
fn r4_a_server_that_dies_after_its_handshake_has_the_waits_and_edges_of_one_that_never_connects() {
    let settings = Settings {
        interval: Duration::from_millis(200),
        max_interval: Duration::from_millis(3_200),
        ..Settings::default()
    };
    let mut dying = World::started(settings.clone(), Peer::living(Duration::from_millis(300)));
    let mut dead = World::started(settings, Peer::refusing());
    dying.run_for(secs(120));
    dead.run_for(secs(120));
    let waits = dead.waits();
    assert_eq!(waits[..6], [200, 400, 800, 1_600, 3_200, 3_200]);
    assert_eq!(dying.waits()[..20], waits[..20]);
    let texts = |world: &World| -> Vec<String> {
        let downs = world.told(&["down", "clear"]).into_iter();
        downs
            .map(|text| text.split(':').next().unwrap().into())
            .collect()
    };
    assert_eq!(texts(&dying), ["MCP server down (attempt 5)"]);
    assert_eq!(texts(&dead), texts(&dying));
}

#[test]
fn r4_the_loss_is_counted_before_anything_else_can_see_it() {
    let mut world = World::started(Settings::default(), Peer::default());
    world.run_for(secs(10));
    world.lose_but_not_gone(End::Exit(1));
    assert_eq!(world.snapshot().failed_attempts, 1);
    let at_loss: Vec<_> = world
        .trace
        .iter()
        .filter(|(at, _)| *at == secs(10))
        .map(|(_, output)| output)
        .collect();
    let Some(Output::Decided { decision, .. }) = at_loss
        .iter()
        .find(|output| matches!(output, Output::Decided { .. }))
    else {
        panic!("nothing was decided");
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
        "{decision}"
    );
}

#[test]
fn r4_a_loss_said_twice_is_counted_once() {
    let mut world = World::started(Settings::default(), Peer::default());
    world.run_for(secs(10));
    world.lose_but_not_gone(End::Exit(1));
    let lost = world.peer.lost(End::Exit(1));
    world.link(lost);
    let gone = world.peer.gone();
    world.link(gone);
    assert_eq!(world.snapshot().failed_attempts, 1);
    assert_eq!(world.count_of("ended"), 1);
    assert_eq!(world.count_of("waiting"), 1);
}

#[test]
fn r5_a_connection_that_lasts_starts_the_count_afresh_at_that_moment() {
    let mut peer = Peer::living(secs(400));
    peer.fates.extend([REFUSED, REFUSED, REFUSED]);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(35 + 400));
    assert_eq!(
        world.told(&["lasted"]),
        ["the connection has lasted (300 s)"]
    );
    assert_eq!(in_seconds(&world.waits()), [5, 10, 20, 5]);
    world.run_for(secs(5));
    assert_eq!(world.dials().last(), Some(&(440_000, 1)));
    assert_eq!(world.count_of("short-end"), 0);
}

#[test]
fn r5_an_end_at_the_threshold_whose_timer_is_late_has_lasted() {
    let mut world = World::started(Settings::default(), Peer::default());
    // The loop was late: the loss is handled before the timer that was due at the same time, or long before.
    for late in [Duration::ZERO, secs(20)] {
        let mut peer = Peer::default();
        peer.fates.extend([REFUSED, REFUSED]);
        world = World::started(Settings::default(), peer);
        world.run_for(secs(15));
        world.now += secs(300) + late;
        world.lose_but_not_gone(End::Exit(1));
        assert_eq!(world.snapshot().failed_attempts, 0, "late by {late:?}");
        assert_eq!(world.count_of("short-end"), 0);
    }
    assert!(world.told(&["ended"])[0].contains("after it had lasted"));
}

#[test]
fn r5_lasting_is_recorded_with_the_count() {
    let mut peer = Peer::default();
    peer.fates.push_back(REFUSED);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(305));
    let records: Vec<_> = world
        .trace
        .iter()
        .filter_map(|(at, output)| match output {
            Output::Record(record) if *at == secs(305) => Some(record.clone()),
            _ => None,
        })
        .collect();
    assert!(
        records.contains(&Record::Lasted) && records.contains(&Record::Count(0)),
        "{records:?}"
    );
}

#[test]
fn r6_a_life_is_measured_from_the_completed_handshake() {
    let peer = Peer {
        fate: Fate::Mute,
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(29));
    let initialize = world.asked_server("initialize")[0].1.clone();
    world.peer.fate = Fate::Serve(None);
    let answer = crate::world::message::result(
        &initialize["id"],
        serde_json::json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "serverInfo": {"name": "slow", "version": "1"}}),
    );
    world.says(&answer);
    world.run_for(secs(299));
    assert_eq!(world.snapshot().connection_age, secs(299));
    assert_eq!(world.count_of("lasted"), 0);
    world.run_for(secs(1));
    assert_eq!(world.count_of("lasted"), 1);
}

#[test]
fn r13_after_a_stop_nothing_is_dialed_whatever_was_in_flight() {
    let fates = [
        REFUSED,
        Fate::Hang,
        Fate::Mute,
        Fate::Serve(None),
        Fate::Serve(Some(secs(2))),
        Fate::Version,
    ];
    for stop in [Stop::Disabled, Stop::Removed, Stop::Shutdown] {
        for fate in &fates {
            let mut peer = Peer::bridge();
            peer.fate = fate.clone();
            peer.gone_after = secs(3);
            let mut world = World::started(Settings::default(), peer);
            world.run_for(secs(1));
            world.stop(stop);
            let before = (world.dials().len(), world.count_of("short-end"));
            world.run_for(secs(86_400 * 40));
            assert_eq!(
                (world.dials().len(), world.count_of("short-end")),
                before,
                "{fate:?}"
            );
            if stop != Stop::Shutdown {
                assert_eq!(world.snapshot().state, State::Disabled);
            }
            assert_eq!(
                world.next_deadline().map(|(_, timer)| timer),
                None,
                "{fate:?} {stop:?}"
            );
        }
    }
}

#[test]
fn r13_a_stop_closes_what_is_open() {
    let mut world = World::started(Settings::default(), Peer::bridge());
    world.stop(Stop::Shutdown);
    let closes = world
        .trace
        .iter()
        .filter(|(_, output)| matches!(output, Output::Close { .. }));
    assert_eq!(closes.count(), 1);
}

#[test]
fn r15_a_dial_has_15_seconds_and_an_initialize_30() {
    for (fate, bound) in [(Fate::Hang, 15), (Fate::Mute, 30)] {
        let peer = Peer {
            fate: fate.clone(),
            ..Peer::default()
        };
        let mut world = World::started(Settings::default(), peer);
        world.run_for(secs(bound) - Duration::from_millis(1));
        assert_eq!(world.count_of("attempt-failed"), 0, "{fate:?}");
        world.run_for(Duration::from_millis(1));
        let failed = world.decisions().find_map(|(_, decision)| match decision {
            Decision::AttemptFailed { outcome, .. } => Some(*outcome),
            _ => None,
        });
        assert_eq!(failed, Some(Outcome::Timeout), "{fate:?}");
        world.run_for(secs(5));
        assert_eq!(world.dials().len(), 2);
    }
}

#[test]
fn r15_the_next_dial_waits_until_nothing_of_the_last_is_left() {
    let peer = Peer {
        fate: Fate::Serve(Some(secs(1))),
        gone_after: secs(60),
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(60));
    assert_eq!(world.dials().len(), 1);
    world.run_for(secs(1));
    assert_eq!(world.dials(), [(0, 0), (61_000, 1)]);
}

#[test]
fn r15_a_failed_handshake_closes_its_transport() {
    let peer = Peer {
        fate: Fate::Reject,
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(5));
    let outcomes: Vec<_> = world
        .decisions()
        .filter_map(|(_, decision)| match decision {
            Decision::AttemptFailed { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [Outcome::Handshake, Outcome::Handshake]);
    let first_close = world
        .trace
        .iter()
        .find(|(_, output)| matches!(output, Output::Close { .. }));
    assert!(first_close.is_some());
}

#[test]
fn r16_a_server_whose_connections_keep_ending_is_relaunched_no_sooner_than_a_dead_one() {
    for life in [0, 1, 299_999, 300_000, 301_000] {
        let mut dying = World::started(
            Settings::default(),
            Peer::living(Duration::from_millis(life)),
        );
        let mut dead = World::started(Settings::default(), Peer::refusing());
        dying.run_for(secs(86_400));
        dead.run_for(secs(86_400));
        let pairs = dying.dials();
        let gaps = pairs.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let theirs = dead.dials();
        let dead_gaps = theirs.windows(2).map(|pair| pair[1].0 - pair[0].0);
        for (gap, dead_gap) in gaps.zip(dead_gaps) {
            assert!(
                gap >= dead_gap,
                "a life of {life} ms: {gap} ms, dead {dead_gap} ms"
            );
        }
    }
}

#[test]
fn r18_the_second_refusal_of_a_credential_in_a_row_opens_the_episode_and_slows_down() {
    let peer = Peer {
        fate: Fate::Fail(Outcome::Auth, None),
        ..Peer::default()
    };
    let mut world = World::started(Settings::default(), peer);
    assert_eq!(world.snapshot().state, State::Waiting);
    assert_eq!(world.count_of("down"), 0);
    world.run_for(secs(5));
    assert_eq!(world.snapshot().state, State::Auth);
    assert_eq!(world.count_of("down"), 1);
    assert!((300..=375).contains(&in_seconds(&world.waits())[1]));
    world.peer.fate = Fate::Serve(None);
    world.run_for(secs(375 + 300));
    assert_eq!(world.told(&["clear"]).len(), 1);
    assert_eq!(world.snapshot().state, State::Open);
}

#[test]
fn r18_refusals_of_a_credential_that_are_not_in_a_row_are_ordinary_failures() {
    let mut peer = Peer::refusing();
    let auth = Fate::Fail(Outcome::Auth, None);
    peer.fates.extend([auth.clone(), REFUSED, auth, REFUSED]);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(75));
    assert_eq!(in_seconds(&world.waits())[..4], [5, 10, 20, 40]);
    assert_eq!(world.count_of("down"), 0);
}

#[test]
fn r18_retry_after_is_a_floor_for_the_wait_up_to_the_cap() {
    let after = |seconds| Fate::Fail(Outcome::Refused, Some(secs(seconds)));
    let mut peer = Peer::refusing();
    peer.fates.extend([after(60), after(1), after(100_000)]);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(80));
    assert_eq!(in_seconds(&world.waits()), [60, 10, 300]);
}
