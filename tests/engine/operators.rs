//! R14 and R9's engine half: what an operator and a reload do.

use tidegate::engine::decision::State;
use tidegate::engine::input::{End, Input, Operator, Stop};
use tidegate::engine::settings::Settings;

use crate::world::peer::{Fate, Peer, REFUSED};
use crate::world::{World, secs};

fn failing(times: usize, then: Fate) -> World {
    let mut peer = Peer {
        fate: then,
        ..Peer::default()
    };
    peer.fates.extend(std::iter::repeat_n(REFUSED, times));
    World::started(Settings::default(), peer)
}

#[test]
fn r9_a_configuration_that_cannot_be_used_launches_nothing_and_is_an_episode() {
    let mut world = World::new(Settings::default());
    world.feed(Input::Refuse {
        problem: "server `a`: reconnectIntervalMs is -1; write a number above 0".into(),
    });
    world.run_for(secs(86_400));
    assert!(world.dials().is_empty());
    assert_eq!(world.snapshot().state, State::Refused);
    assert_eq!((world.count_of("refused"), world.count_of("down")), (1, 1));
    assert!(
        world
            .snapshot()
            .reason
            .unwrap()
            .contains("reconnectIntervalMs is -1")
    );
}

#[test]
fn r14_a_recycle_of_a_connection_that_has_not_lasted_is_its_attempts_failure() {
    let mut world = failing(2, Fate::Serve(None));
    world.run_for(secs(20));
    world.operator(Operator::Recycle);
    assert_eq!(world.snapshot().failed_attempts, 3);
    let told = world.told(&["short-end"]);
    assert!(
        told[0].contains("connected, then closed after 5 s"),
        "{told:?}"
    );
    assert!(told[0].contains("closed by this gateway"), "{told:?}");
    assert_eq!(world.waits().last(), Some(&20_000));
}

#[test]
fn r14_a_recycle_of_a_connection_that_has_lasted_is_no_failure() {
    let mut world = failing(2, Fate::Serve(None));
    world.run_for(secs(400));
    world.operator(Operator::Recycle);
    assert_eq!(world.snapshot().failed_attempts, 0);
    assert_eq!(world.count_of("short-end"), 0);
    assert_eq!(world.waits().last(), Some(&5_000));
}

#[test]
fn r14_a_restart_dials_at_once_and_keeps_count_and_episode() {
    let mut world = failing(6, Fate::Serve(None));
    world.run_for(secs(320));
    assert_eq!(world.snapshot().failed_attempts, 6);
    assert!(world.snapshot().episode.is_some());
    world.operator(Operator::Restart);
    assert_eq!(world.dials().last(), Some(&(320_000, 6)));
    assert_eq!(world.snapshot().failed_attempts, 6);
    assert!(world.snapshot().episode.is_some());
    assert_eq!(
        (world.count_of("short-end"), world.count_of("down")),
        (0, 1)
    );
    let ended = world.told(&["ended"]);
    assert!(ended[0].contains("closed by this gateway"), "{ended:?}");
}

#[test]
fn r14_a_restart_during_a_wait_a_dial_or_a_handshake_dials_at_once() {
    for fate in [REFUSED, Fate::Hang, Fate::Mute] {
        let mut world = failing(0, fate.clone());
        world.run_for(secs(1));
        let count = world.snapshot().failed_attempts;
        world.peer.fate = Fate::Serve(None);
        world.operator(Operator::Restart);
        assert_eq!(world.dials().last(), Some(&(1_000, 1)), "{fate:?}");
        assert_eq!(world.snapshot().failed_attempts, count, "{fate:?}");
        world.run_for(secs(60));
        assert_eq!(world.dials().len(), 2, "{fate:?}");
    }
}

#[test]
fn r14_a_restart_waits_until_the_old_transport_is_gone() {
    let mut world = failing(0, Fate::Serve(None));
    world.peer.gone_after = secs(4);
    world.run_for(secs(10));
    world.operator(Operator::Restart);
    assert_eq!(world.dials().len(), 1);
    world.run_for(secs(4));
    assert_eq!(world.dials(), [(0, 0), (14_000, 1)]);
}

#[test]
fn r10_r14_a_restart_or_a_changed_configuration_ends_a_halt() {
    for reload in [false, true] {
        let mut world = failing(0, Fate::Version);
        assert_eq!(world.snapshot().state, State::Halted);
        world.run_for(secs(1_000));
        world.peer.fate = Fate::Serve(None);
        if reload {
            world.configure(Settings::default(), true);
        } else {
            world.operator(Operator::Restart);
        }
        assert_eq!(world.dials().len(), 2);
        assert_eq!(world.snapshot().state, State::Open);
        assert!(
            world.snapshot().episode.is_some(),
            "S4: a restart does not clear"
        );
    }
}

#[test]
fn r14_a_changed_transport_is_redialed_at_once_and_another_change_is_not() {
    let mut world = failing(2, Fate::Serve(None));
    world.run_for(secs(20));
    let slower = Settings {
        interval: secs(60),
        ..Settings::default()
    };
    world.configure(slower.clone(), false);
    assert_eq!(world.dials().len(), 3);
    world.configure(slower, true);
    assert_eq!(world.dials().last(), Some(&(20_000, 2)));
    assert_eq!(world.snapshot().failed_attempts, 2);
    assert_eq!(world.count_of("short-end"), 0);
}

#[test]
fn r14_an_enable_dials_at_once_and_keeps_the_count() {
    let mut world = failing(9, REFUSED);
    world.run_for(secs(20));
    assert_eq!(world.snapshot().failed_attempts, 3);
    world.stop(Stop::Disabled);
    world.run_for(secs(3_600));
    assert_eq!(world.snapshot().failed_attempts, 3);
    let resumed = world.resumed();
    world.feed(Input::Start(resumed));
    world.settle();
    assert_eq!(world.dials().last(), Some(&(3_620_000, 3)));
}

#[test]
fn r14_a_restart_of_a_connection_is_not_undone_by_how_its_process_ends() {
    let mut world = failing(0, Fate::Serve(None));
    for end in [
        End::Exit(1),
        End::Signal(9),
        End::Operator,
        End::Reset("reset".into()),
    ] {
        world.peer.end_when_closed = end;
        world.operator(Operator::Restart);
        assert_eq!(world.snapshot().failed_attempts, 0);
        assert_eq!(world.count_of("short-end"), 0);
        assert!(world.snapshot().connected);
    }
}
