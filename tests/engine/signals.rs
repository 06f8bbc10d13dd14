//! S1 to S6: what operators are told, once and in order.

use std::time::Duration;

use tidegate::engine::decision::{Decision, State};
use tidegate::engine::input::{End, LinkEvent, OpenEpisode, Operator, Resumed, Stop};
use tidegate::engine::output::Output;
use tidegate::engine::settings::Settings;

use crate::world::peer::{Fate, Peer, REFUSED};
use crate::world::{World, secs};

fn failing(times: usize, then: Fate) -> World {
    with_peer(times, then, Peer::default())
}

fn with_peer(times: usize, then: Fate, peer: Peer) -> World {
    let mut peer = Peer { fate: then, ..peer };
    peer.fates.extend(std::iter::repeat_n(REFUSED, times));
    World::started(Settings::default(), peer)
}

#[test]
fn s1_every_attempt_adoption_settle_and_end_is_one_decision() {
    let mut world = with_peer(2, Fate::Serve(Some(secs(400))), Peer::bridge());
    world.run_for(secs(15 + 400));
    let kinds = [
        "dialing",
        "attempt-failed",
        "adopted",
        "settled",
        "lasted",
        "ended",
        "short-end",
        "waiting",
    ];
    let counts = kinds.map(|kind| world.count_of(kind));
    assert_eq!(counts, [3, 2, 1, 1, 1, 1, 0, 3]);
}

#[test]
fn s1_every_change_of_the_state_is_told_and_is_what_is_shown() {
    let mut world = with_peer(1, Fate::Serve(Some(secs(1))), Peer::bridge());
    world.run_for(secs(6));
    world.stop(Stop::Disabled);
    let states: Vec<_> = world
        .decisions()
        .filter_map(|(_, decision)| match decision {
            Decision::State(state) => Some(*state),
            _ => None,
        })
        .collect();
    use State::{Connecting, Disabled, Negotiating, Open, Waiting};
    assert_eq!(
        states,
        [
            Connecting,
            Waiting,
            Connecting,
            Negotiating,
            Open,
            Waiting,
            Disabled
        ]
    );
}

#[test]
fn s1_a_stderr_line_is_a_decision_at_once_even_while_the_policy_holds() {
    let mut peer = Peer::bridge();
    peer.receipt = crate::world::peer::Receipt::Silent;
    let mut world = with_peer(0, Fate::Serve(None), peer);
    world.link(LinkEvent::Stderr("loading plugins".into()));
    assert_eq!(world.told(&["stderr"]), ["stderr: loading plugins"]);
}

#[test]
fn s2_no_handshake_is_told_as_a_recovery() {
    let mut world = failing(6, Fate::Serve(Some(secs(200))));
    world.run_for(secs(86_400));
    assert!(world.count_of("adopted") > 10);
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 0));
    let said = world.told(&["adopted"]).join(" ").to_lowercase();
    assert!(!said.contains("recover") && !said.contains("clear") && !said.contains("up again"));
    assert!(world.snapshot().episode.is_some());
}

#[test]
fn s3_an_episode_opens_at_the_failure_of_attempt_5_and_once() {
    let mut world = failing(99, REFUSED);
    world.run_for(secs(154));
    assert_eq!(world.count_of("down"), 0);
    world.run_for(secs(1));
    assert_eq!(world.count_of("down"), 1);
    world.run_for(secs(86_400));
    assert_eq!(world.count_of("down"), 1);
    assert_eq!(world.snapshot().episode.unwrap().attempt, 5);
}

#[test]
fn s3_an_episode_opens_when_a_server_was_not_connected_for_long_enough() {
    let settings = Settings {
        interval: secs(3_600),
        max_interval: secs(3_600),
        ..Settings::default()
    };
    let peer = Peer {
        fate: REFUSED,
        ..Peer::default()
    };
    let mut world = World::started(settings, peer);
    world.run_for(secs(899));
    assert_eq!(world.count_of("down"), 0);
    world.run_for(secs(1));
    assert_eq!(world.count_of("down"), 1);
    world.run_for(secs(86_400));
    assert_eq!(world.count_of("down"), 1);
}

#[test]
fn s3_the_time_without_a_connection_starts_at_each_loss() {
    let settings = Settings {
        interval: secs(600),
        max_interval: secs(600),
        ..Settings::default()
    };
    let peer = Peer {
        fate: Fate::Serve(Some(secs(100))),
        ..Peer::default()
    };
    let mut world = World::started(settings, peer);
    world.run_for(secs(2_700));
    assert_eq!(world.count_of("down"), 0, "it was never away for 900 s");
}

#[test]
fn s3_a_resumed_episode_is_not_told_again() {
    let mut world = World::with(
        Settings::default(),
        Peer {
            fate: REFUSED,
            ..Peer::default()
        },
    );
    world.start_with(Resumed {
        failed_attempts: 12,
        episode: Some(OpenEpisode {
            since: secs(3_600),
            attempt: 5,
            why: "it is gone".into(),
        }),
        ..Resumed::default()
    });
    world.run_for(secs(86_400));
    assert_eq!(world.count_of("down"), 0);
    assert!(world.snapshot().episode.unwrap().open_for >= secs(3_600 + 86_400));
}

#[test]
fn s4_an_episode_ends_when_a_connection_has_lasted() {
    let mut world = failing(6, Fate::Serve(None));
    world.run_for(secs(315 + 299));
    assert_eq!(world.count_of("clear"), 0);
    world.run_for(secs(1));
    assert_eq!(world.count_of("clear"), 1);
    world.run_for(secs(86_400));
    assert_eq!(world.count_of("clear"), 1);
}

#[test]
fn s4_without_a_down_a_connection_that_lasts_clears_nothing() {
    let mut world = failing(3, Fate::Serve(Some(secs(400))));
    world.run_for(secs(86_400));
    assert!(world.count_of("lasted") > 100);
    assert_eq!((world.count_of("down"), world.count_of("clear")), (0, 0));
}

#[test]
fn s4_a_connection_that_ends_a_second_too_soon_clears_nothing() {
    let mut world = failing(6, Fate::Serve(Some(secs(299))));
    world.run_for(secs(86_400));
    assert!(world.count_of("adopted") > 100);
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 0));
}

#[test]
fn s4_a_handshake_a_restart_and_a_reload_do_not_end_an_episode() {
    let mut world = failing(6, Fate::Serve(None));
    world.run_for(secs(320));
    for _ in 0..3 {
        world.operator(Operator::Restart);
        world.configure(Settings::default(), true);
        world.operator(Operator::Recycle);
        world.run_for(secs(20));
    }
    assert_eq!(world.count_of("clear"), 0);
}

#[test]
fn s4_a_removal_and_a_disable_end_an_episode_and_a_shutdown_does_not() {
    for (stop, clears) in [(Stop::Removed, 1), (Stop::Disabled, 1), (Stop::Shutdown, 0)] {
        let mut world = failing(99, REFUSED);
        world.run_for(secs(200));
        world.stop(stop);
        assert_eq!(world.count_of("clear"), clears, "{stop:?}");
    }
}

#[test]
fn s4_a_stop_without_an_episode_clears_nothing() {
    for stop in [Stop::Removed, Stop::Disabled, Stop::Shutdown] {
        let mut world = failing(0, Fate::Serve(None));
        world.run_for(secs(10));
        world.stop(stop);
        assert_eq!(world.count_of("clear"), 0);
    }
}

#[test]
fn s5_an_episode_and_a_count_survive_a_restart_of_the_gateway() {
    let mut world = failing(7, Fate::Serve(None));
    world.run_for(secs(200));
    let count = world.snapshot().failed_attempts;
    assert_eq!(count, 6);
    world.reboot();
    assert_eq!(world.dials().last().unwrap().1, count);
    assert_eq!(world.snapshot().episode.as_ref().unwrap().attempt, 5);
    world.run_for(secs(86_400));
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 1));
}

#[test]
fn s5_what_is_to_be_remembered_is_recorded_when_it_is_told() {
    let mut world = failing(6, Fate::Serve(None));
    world.run_for(secs(700));
    for (at, decision) in world.decisions() {
        if matches!(decision, Decision::Down { .. } | Decision::Clear { .. }) {
            let recorded = world
                .trace
                .iter()
                .any(|(then, output)| then == &at && matches!(output, Output::Record(_)));
            assert!(recorded, "{decision}");
        }
    }
}

#[test]
fn s6_the_texts_of_down_and_clear() {
    for (peer, family) in [(Peer::default(), "MCP"), (Peer::bridge(), "MCPL")] {
        let mut world = with_peer(0, Fate::Serve(None), peer);
        world.run_for(secs(10));
        world.peer.fates.extend(std::iter::repeat_n(REFUSED, 5));
        world.lose(End::Exit(3));
        // Attempt 0 lived 10 s; attempts 1 to 5 are refused; attempt 6 lasts.
        world.run_for(secs(315 + 300));
        let down = world.told(&["down"]);
        assert!(
            down[0].starts_with(&format!("{family} server down (attempt 5): ")),
            "{down:?}"
        );
        assert!(!down[0].contains("unreachable"));
        let clear = world.told(&["clear"]);
        assert_eq!(
            clear[0],
            format!(
                "{family} server clear: connected for 300 s after 6 failed attempts (down for 460 s)"
            )
        );
    }
}

#[test]
fn s6_a_clear_by_removal_says_so() {
    let mut world = failing(99, REFUSED);
    world.run_for(secs(155) + Duration::from_millis(500));
    world.run_for(secs(5));
    world.stop(Stop::Removed);
    let clear = world.told(&["clear"]);
    assert_eq!(clear, ["MCP server clear: removed (down for 5 s)"]);
}
