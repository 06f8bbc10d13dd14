//! A seeded simulation of many servers over long simulated time. Each seed draws a configuration and a subset of what
//! can happen (as in swarm testing), runs the real engine through hundreds of epochs of it, and holds it against the
//! checks of `tests/world` and the reference model. `TIDEGATE_SEED` replays one seed; `TIDEGATE_SIM_EPOCHS` sets how
//! many epochs each server runs through.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "tests fail loudly, look at what they are about, and have no outside"
)]

#[path = "../world/mod.rs"]
mod world;

mod history;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tidegate::engine::input::{End, Outcome};
use tidegate::engine::settings::Settings;

use world::draw::Draw;
use world::peer::{Fate, Peer};
use world::{World, secs};

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} must be a number")),
    )
}

/// How many servers, and how many epochs each.
fn size() -> (u64, u64) {
    let full = std::env::var_os("TIDEGATE_FULL").is_some();
    let (servers, epochs) = if full { (2_000, 1_000) } else { (60, 150) };
    (servers, number("TIDEGATE_SIM_EPOCHS").unwrap_or(epochs))
}

#[test]
fn a1_a2_a3_a4_g7_g8_g11_p6_r1_r13_s3_s4_s5_every_rule_holds_in_every_history() {
    let (servers, epochs) = size();
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..servers,
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| history::run(seed, epochs)));
        if let Err(failure) = run {
            eprintln!(
                "seed {seed} failed; replay it with\n  TIDEGATE_SEED={seed} TIDEGATE_SIM_EPOCHS={epochs} cargo test --test sim"
            );
            resume_unwind(failure);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history_byte_for_byte() {
    let transcript = |seed| {
        let world = history::run_traced(seed, 40);
        let lines = world
            .trace
            .iter()
            .map(|(at, output)| format!("{at:?} {output:?}\n"));
        lines.collect::<String>()
    };
    let first = transcript(3);
    assert!(first.len() > 20_000);
    assert_eq!(first, transcript(3));
}

/// The times between one launch and the next.
fn gaps(world: &World) -> Vec<u128> {
    world
        .dials()
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect()
}

#[test]
fn r16_no_server_whose_connections_keep_ending_is_relaunched_sooner_than_a_dead_one() {
    for seed in 0..100 {
        let mut draw = Draw(seed);
        let settings = Settings {
            interval: draw.between(Duration::from_millis(1), secs(20)),
            max_interval: draw.between(secs(1), secs(3_600)),
            ..Settings::default()
        };
        let threshold = settings.lasting_threshold();
        assert!(threshold >= settings.max_interval);
        let refused = Fate::Fail(Outcome::Refused, None);
        let mut dead = World::with(
            settings.clone(),
            Peer {
                fate: refused,
                ..Peer::default()
            },
        );
        let mut dying = World::with(settings, Peer::default());
        let lives: Vec<_> = (0..40)
            .map(|_| draw.between(Duration::ZERO, threshold * 3 / 2))
            .collect();
        dying
            .peer
            .fates
            .extend(lives.iter().map(|life| Fate::Serve(Some(*life))));
        dead.start();
        dying.start();
        dead.run_for(secs(200_000));
        dying.run_for(secs(200_000));
        // Since its count last started afresh, each launch comes no sooner after the one before than a dead server's.
        let dead = gaps(&dead);
        let mut since_afresh = 0;
        for (gap, life) in gaps(&dying).iter().zip(&lives) {
            if *life >= threshold {
                since_afresh = 0;
            }
            assert!(
                *gap >= dead[since_afresh],
                "seed {seed}: {gap} ms, dead {} ms",
                dead[since_afresh]
            );
            since_afresh += 1;
        }
    }
}

#[test]
fn r3_r5_a_cap_of_a_day_and_a_life_of_two_hours_start_the_count_afresh() {
    let settings = Settings {
        max_interval: secs(86_400),
        ..Settings::default()
    };
    let mut peer = Peer {
        fate: Fate::Serve(Some(secs(7_200))),
        ..Peer::default()
    };
    peer.fates
        .extend(std::iter::repeat_n(Fate::Fail(Outcome::Refused, None), 10));
    let mut world = World::with(settings, peer);
    world.start();
    world.run_for(secs(86_400 * 10));
    let lasting = world.waits().split_off(10);
    assert!(lasting.len() > 100);
    assert!(lasting.iter().all(|wait| *wait == 5_000), "{lasting:?}");
    assert_eq!((world.count_of("down"), world.count_of("clear")), (1, 1));
}

#[test]
fn r2_r5_with_an_infinite_cap_one_drop_a_day_for_60_days_waits_one_base_interval_each_time() {
    let settings = Settings {
        max_interval: Duration::MAX,
        ..Settings::default()
    };
    let mut world = World::with(settings, Peer::default());
    world.start();
    for _ in 0..60 {
        world.run_for(secs(86_400));
        world.lose(End::Signal(9));
    }
    assert_eq!(world.waits(), vec![5_000; 60]);
    assert_eq!(world.count_of("down"), 0);
}
