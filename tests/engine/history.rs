//! Whole histories of a server, drawn by proptest and compared with the reference model at every instant.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::engine::input::{End, Input, Operator, Outcome, Stop};
use tidegate::engine::settings::Settings;

use crate::world::model::Model;
use crate::world::peer::{Fate, Peer};
use crate::world::{Jitter, World};

/// One thing that happens, after some time.
#[derive(Clone, Debug)]
enum Step {
    /// The fate of a dial to come.
    Fate(Fate),
    /// Time passes.
    Wait(Duration),
    /// The open connection ends.
    Lose(End),
    Restart,
    Recycle,
    Reload,
    /// Another wait from now on; the transport stays.
    Interval(Duration),
    Stop(Stop),
    Reboot,
}

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    // Odd milliseconds, so that no drawn instant is a deadline of a round number of seconds.
    range.prop_map(|ms| Duration::from_millis(ms * 2 + 1))
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Refused),
        1 => Just(Outcome::Spawn),
        1 => Just(Outcome::Timeout),
        2 => Just(Outcome::Auth),
        1 => Just(Outcome::Handshake),
    ]
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (outcomes(), prop::option::weighted(0.2, millis(0..400_000)))
            .prop_map(|(outcome, after)| Fate::Fail(outcome, after)),
        2 => millis(0..1_000).prop_map(|life| Fate::Serve(Some(life))),
        2 => millis(0..150_000).prop_map(|life| Fate::Serve(Some(life))),
        2 => millis(150_000..4_000_000).prop_map(|life| Fate::Serve(Some(life))),
        1 => Just(Fate::Hang),
        1 => Just(Fate::Mute),
        1 => Just(Fate::Reject),
        1 => Just(Fate::Drop),
        1 => Just(Fate::Version),
    ]
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Exit(0)),
        Just(End::Exit(1)),
        Just(End::Signal(15)),
        Just(End::Signal(9)),
        Just(End::Reset("reset by peer".into())),
    ]
}

fn stops() -> impl Strategy<Value = Stop> {
    prop_oneof![
        Just(Stop::Disabled),
        Just(Stop::Removed),
        Just(Stop::Shutdown)
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => fates().prop_map(Step::Fate),
        4 => millis(0..10_000).prop_map(Step::Wait),
        6 => millis(0..600_000).prop_map(Step::Wait),
        1 => millis(0..40_000_000).prop_map(Step::Wait),
        3 => ends().prop_map(Step::Lose),
        1 => Just(Step::Restart),
        1 => Just(Step::Recycle),
        1 => Just(Step::Reload),
        1 => millis(1..60_000).prop_map(Step::Interval),
        1 => stops().prop_map(Step::Stop),
        1 => Just(Step::Reboot),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let cap = prop_oneof![
        3 => Just(Duration::from_secs(300)),
        1 => Just(Duration::MAX),
        1 => Just(Duration::from_secs(86_400)),
        2 => millis(1..600_000),
    ];
    (
        millis(1..10_000),
        cap,
        prop::bool::weighted(0.85),
        any::<bool>(),
        1_u64..8,
    )
        .prop_map(
            |(interval, max_interval, reconnect, launched, down_after_attempts)| Settings {
                interval,
                max_interval,
                reconnect,
                launched,
                down_after_attempts,
                ..Settings::default()
            },
        )
}

fn run(
    settings: Settings,
    seed: u64,
    bridge: bool,
    gone_after: Duration,
    steps: Vec<Step>,
) -> World {
    let peer = if bridge {
        Peer::bridge()
    } else {
        Peer::default()
    };
    let mut world = World::with(settings.clone(), peer);
    world.peer.gone_after = gone_after;
    world.jitter = Jitter::Seeded(seed);
    world.model = Some(Model::new(settings, world.now));
    world.start();
    for step in steps {
        take(&mut world, step);
    }
    world
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Fate(fate) => world.peer.fates.push_back(fate),
        Step::Wait(time) => world.run_for(time),
        Step::Lose(end) if world.snapshot().connected => {
            world.later(
                Duration::ZERO,
                Input::Link {
                    epoch: world.epoch(),
                    event: world.peer.lost(end),
                },
            );
            world.later(
                world.peer.gone_after,
                Input::Link {
                    epoch: world.epoch(),
                    event: world.peer.gone(),
                },
            );
            world.settle();
        }
        Step::Restart => world.operator(Operator::Restart),
        Step::Recycle if world.snapshot().connected && world.settings.reconnect => {
            world.operator(Operator::Recycle);
        }
        Step::Reload => world.configure(Settings::clone(&world.settings), true),
        Step::Interval(interval) => {
            let settings = Settings {
                interval,
                ..Settings::clone(&world.settings)
            };
            world.configure(settings, false);
        }
        Step::Stop(stop) => stopped_and_enabled_again(world, stop),
        Step::Reboot => world.reboot(),
        Step::Lose(_) | Step::Recycle => {}
    }
}

/// A stopped server stays stopped for an hour; then it is enabled, or the gateway is started, again.
fn stopped_and_enabled_again(world: &mut World, stop: Stop) {
    world.stop(stop);
    world.run_for(Duration::from_secs(3_601));
    if stop == Stop::Disabled {
        let resumed = world.resumed();
        world.feed(Input::Start(resumed));
        world.settle();
    } else {
        world.disk.forgotten = false;
        world.reboot();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r1_r2_r4_r5_r10_r13_r14_r15_r18_r20_s3_s4_s5_every_history_is_as_the_rules_say(
        settings in settings(),
        seed in any::<u64>(),
        bridge in any::<bool>(),
        gone_after in prop_oneof![3 => Just(Duration::ZERO), 1 => millis(0..3_000)],
        steps in prop::collection::vec(steps(), 1..60),
    ) {
        run(settings, seed, bridge, gone_after, steps);
    }
}
