//! R7, R8, R10 and R20: how a connection ends, and when nothing follows.

use std::time::Duration;

use tidegate::engine::decision::State;
use tidegate::engine::input::{End, LinkEvent, Operator, Reap};
use tidegate::engine::settings::Settings;

use crate::world::peer::{Fate, Peer, REFUSED};
use crate::world::{Jitter, World, in_seconds, secs};

#[test]
fn r7_a_short_end_says_how_long_it_lived_and_how_it_ended() {
    let close = End::Close {
        code: 1006,
        reason: String::new(),
    };
    for (end, detail) in [
        (End::Exit(3), "exit code 3"),
        (End::Signal(9), "signal 9"),
        (close, "close code 1006"),
        (End::Http(502), "HTTP status 502"),
    ] {
        let mut world = World::started(Settings::default(), Peer::default());
        world.run_for(Duration::from_millis(12_900));
        world.lose(end);
        let told = world.told(&["short-end"]);
        assert!(
            told[0].contains("connected, then closed after 12 s") && told[0].contains(detail),
            "{told:?}"
        );
    }
}

#[test]
fn r7_the_stderr_tail_goes_with_a_short_ends_report() {
    let mut world = World::started(Settings::default(), Peer::default());
    world.run_for(secs(1));
    world.link(LinkEvent::Lost(tidegate::engine::input::Loss {
        end: End::Exit(1),
        stderr: vec!["Traceback: no such token".into()],
    }));
    let told = world.told(&["short-end"]);
    assert!(told[0].contains("no such token"), "{told:?}");
}

#[test]
fn r8_exit_0_and_sigterm_soon_after_the_handshake_are_short_ends() {
    for end in [End::Exit(0), End::Exit(143), End::Signal(15)] {
        let mut peer = Peer::living(secs(1));
        peer.end = end;
        let mut world = World::started(Settings::default(), peer);
        world.run_for(secs(1));
        assert_eq!(world.count_of("short-end"), 1);
        assert_eq!(in_seconds(&world.waits()), [5]);
        assert_eq!(world.snapshot().failed_attempts, 1);
    }
}

#[test]
fn r10_a_version_verdict_of_a_launched_server_halts_with_one_report() {
    let mut peer = Peer {
        fate: Fate::Version,
        ..Peer::default()
    };
    peer.fates.extend([REFUSED, REFUSED]);
    let mut world = World::started(Settings::default(), peer);
    world.run_for(secs(86_400 * 30));
    assert_eq!(world.dials().len(), 3);
    assert_eq!(world.snapshot().state, State::Halted);
    assert_eq!((world.count_of("halted"), world.count_of("down")), (1, 1));
    assert_eq!(world.count_of("short-end"), 0);
    assert!(world.told(&["halted"])[0].contains("attempt 2"));
    assert!(world.told(&["down"])[0].contains("attempt 2"));
}

#[test]
fn r10_a_server_that_served_and_whose_relaunch_rejects_the_revision_halts_after_its_short_end() {
    let peer = Peer::living(secs(2));
    let mut world = World::started(Settings::default(), peer);
    world.peer.fate = Fate::Version;
    world.run_for(secs(86_400));
    assert_eq!(world.dials(), [(0, 0), (7_000, 1)]);
    let told = world.told(&["short-end", "halted", "down"]);
    let starts = [
        "attempt 0 failed: connected, then",
        "halted (attempt 1): ",
        "MCP server down (attempt 1): ",
    ];
    assert_eq!(told.len(), starts.len(), "{told:?}");
    for (text, start) in told.iter().zip(starts) {
        assert!(text.starts_with(start), "{told:?}");
    }
}

#[test]
fn r10_a_version_verdict_of_a_remote_server_is_retried_slowly() {
    for (cap, least) in [(300, 900), (7_200, 7_200)] {
        let settings = Settings {
            launched: false,
            max_interval: secs(cap),
            ..Settings::default()
        };
        let peer = Peer {
            fate: Fate::Version,
            ..Peer::default()
        };
        let mut world = World::with(settings, peer);
        world.jitter = Jitter::Fixed(-1.0);
        world.start();
        world.run_for(secs(86_400));
        let waits = in_seconds(&world.waits());
        assert!(waits.len() > 3, "{waits:?}");
        assert!(
            waits
                .iter()
                .all(|wait| (least..=least * 5 / 4).contains(wait)),
            "{waits:?}"
        );
        assert_eq!(world.count_of("halted"), 0);
    }
}

fn unreapable(life: u64) -> World {
    let mut peer = Peer::living(secs(life));
    peer.reap = Reap::Unreapable { pids: vec![4711] };
    peer.fates.extend([REFUSED, REFUSED]);
    peer.fates.push_back(Fate::Serve(Some(secs(life))));
    let mut world = World::with(Settings::default(), peer);
    world.peer.reap = Reap::Clean;
    world.start();
    world.run_for(secs(15));
    world.peer.reap = Reap::Unreapable { pids: vec![4711] };
    world
}

#[test]
fn r10_a_launch_that_cannot_be_reaped_halts_under_the_number_of_its_attempt() {
    let mut world = unreapable(1_000_000);
    world.run_for(secs(10));
    world.lose(End::Exit(1));
    world.run_for(secs(86_400));
    assert_eq!(world.dials().len(), 3);
    assert_eq!(world.snapshot().state, State::Halted);
    assert_eq!((world.count_of("halted"), world.count_of("down")), (1, 1));
    let told = world.told(&["halted"]);
    assert!(
        told[0].contains("attempt 2") && told[0].contains("4711"),
        "{told:?}"
    );
}

#[test]
fn r10_a_halt_replaces_the_short_ends_report() {
    let mut world = unreapable(1_000_000);
    world.run_for(secs(10));
    world.lose(End::Exit(1));
    assert_eq!(world.count_of("halted"), 1);
    assert_eq!(world.count_of("short-end"), 0);
}

#[test]
fn r10_a_halt_of_a_connection_that_had_lasted_is_attempt_1() {
    let mut world = unreapable(1_000_000);
    world.run_for(secs(500));
    world.lose(End::Exit(1));
    let told = world.told(&["halted"]);
    assert!(told[0].contains("attempt 1)"), "{told:?}");
    assert!(world.told(&["down"])[0].contains("attempt 1)"));
}

#[test]
fn r20_with_reconnect_off_a_failed_first_connect_opens_the_episode_at_once() {
    let settings = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let mut world = World::started(settings, Peer::refusing());
    assert_eq!(world.snapshot().state, State::Halted);
    assert_eq!(world.count_of("down"), 1);
    world.run_for(secs(86_400));
    assert_eq!(world.dials().len(), 1);
    assert_eq!(world.count_of("waiting"), 0);
}

#[test]
fn r20_with_reconnect_off_an_end_as_asked_is_no_episode() {
    let ends = [0, 129, 130, 143]
        .map(End::Exit)
        .into_iter()
        .chain([1, 2, 15].map(End::Signal));
    for end in ends {
        let settings = Settings {
            reconnect: false,
            ..Settings::default()
        };
        let mut peer = Peer::living(secs(10));
        peer.end = end.clone();
        let mut world = World::started(settings, peer);
        world.run_for(secs(86_400));
        assert_eq!(world.snapshot().state, State::Ended, "{end}");
        assert_eq!(world.count_of("down"), 0, "{end}");
        assert_eq!(world.dials().len(), 1);
    }
}

#[test]
fn s4_r20_an_open_episode_ends_when_the_server_ends_as_asked() {
    let settings = Settings {
        reconnect: false,
        ..Settings::default()
    };
    let mut peer = Peer::living(secs(10));
    peer.fates.push_back(REFUSED);
    peer.end = End::Exit(0);
    let mut world = World::started(settings, peer);
    world.run_for(secs(60));
    assert_eq!(world.snapshot().state, State::Halted);
    world.operator(Operator::Restart);
    world.run_for(secs(60));
    assert_eq!(world.snapshot().state, State::Ended);
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 1));
    assert!(world.snapshot().episode.is_none());
}

#[test]
fn r20_with_reconnect_off_any_other_end_opens_the_episode_at_once() {
    for (end, life) in [
        (End::Exit(1), 10),
        (End::Signal(9), 10),
        (End::Exit(1), 1_000),
    ] {
        let settings = Settings {
            reconnect: false,
            ..Settings::default()
        };
        let mut peer = Peer::living(secs(life));
        peer.end = end.clone();
        let mut world = World::started(settings, peer);
        world.run_for(secs(2_000));
        assert_eq!(world.snapshot().state, State::Halted, "{end}");
        assert_eq!(world.count_of("down"), 1, "{end}");
        assert_eq!(world.dials().len(), 1);
    }
}
