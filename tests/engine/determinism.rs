//! The test of the tests: a run depends on its seed and on nothing else.

use std::fmt::Write;

use crate::world::World;
use crate::world::draw::Draw;
use crate::world::peer::Peer;
use crate::world::{Jitter, secs};
use tidegate::engine::settings::Settings;

fn transcript(seed: u64) -> String {
    let mut world = World::with(Settings::default(), Peer::bridge());
    world.jitter = Jitter::Seeded(seed);
    world.start();
    let host = world.attach_host(1);
    let mut draw = Draw(seed);
    for n in 0..200 {
        match draw.below(5) {
            0 => world.lose(tidegate::engine::input::End::Exit(1)),
            1 => world.run_for(draw.between(secs(0), secs(900))),
            2 if world.snapshot().connected => {
                world.says(&crate::world::message::incoming(Some(n), n, "room"));
            }
            3 if world.snapshot().connected => {
                world.says(&crate::world::message::register(n, "room"))
            }
            _ => world.host_says(
                host,
                &crate::world::message::request(
                    n,
                    "tools/call",
                    serde_json::json!({"name": "echo"}),
                ),
            ),
        }
    }
    let mut text = String::new();
    for (at, output) in &world.trace {
        writeln!(text, "{at:?} {output:?}").unwrap();
    }
    text
}

#[test]
fn the_same_seed_gives_the_same_outputs_byte_for_byte() {
    let first = transcript(7);
    assert!(first.len() > 10_000);
    assert_eq!(first, transcript(7));
    assert_ne!(first, transcript(8));
}
