//! Invariants over thousands of random histories, each repeatable by its seed.

use super::*;

/// A xorshift generator: repeatable, and good enough to choose the next event.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What is known of the world outside: which transports exist, and what was told.
#[derive(Default)]
struct World {
    alive: Option<Epoch>,
    last: Epoch,
    down: bool,
    state: State,
    stopped: bool,
}

impl World {
    fn watch(&mut self, sim: &mut Sim) {
        for output in sim.take() {
            self.see(&output);
        }
    }

    fn see(&mut self, output: &Output) {
        match output {
            Output::Dial { epoch, .. } => {
                assert_eq!(self.alive, None, "two transports at once");
                assert!(*epoch > self.last && !self.stopped);
                (self.alive, self.last) = (Some(*epoch), *epoch);
            }
            Output::Close { epoch } => assert_eq!(self.alive, Some(*epoch)),
            Output::Decided { decision, .. } => self.hear(decision),
            Output::Send { .. }
            | Output::Answer { .. }
            | Output::Dismiss { .. }
            | Output::Posted { .. }
            | Output::Record(_) => {}
        }
    }

    fn hear(&mut self, decision: &Decision) {
        match decision.kind() {
            "down" => assert!(!std::mem::replace(&mut self.down, true), "down twice"),
            "clear" => assert!(std::mem::replace(&mut self.down, false), "clear of nothing"),
            "attempt-failed" | "short-end" | "halted" | "waiting" => assert!(!self.stopped),
            _ => {}
        }
        if let Decision::State(state) = decision {
            assert_ne!(std::mem::replace(&mut self.state, *state), *state);
        }
        if let Decision::Waiting { wait, .. } = decision {
            assert!(*wait <= WAIT_MAX);
        }
    }
}

fn outcome(dice: &mut Dice) -> Outcome {
    Outcome::ALL[1 + dice.roll(6) as usize]
}

fn end(dice: &mut Dice) -> End {
    match dice.roll(4) {
        0 => End::Exit(dice.roll(3) as i32),
        1 => End::Signal(15),
        2 => End::Liveness,
        _ => End::Reset("reset".into()),
    }
}

fn step(sim: &mut Sim, world: &mut World, dice: &mut Dice) {
    sim.jitter = dice.roll(201) as f64 / 100.0 - 1.0;
    match dice.roll(16) {
        0 => sim.input(Input::Start(Resumed::default())),
        1 => sim.fail_dial(outcome(dice)),
        2 | 3 => sim.link(LinkEvent::Connected),
        4 | 5 => sim.receive(ANSWER),
        6 => sim.link(LinkEvent::Lost(loss(end(dice)))),
        7..=9 => {
            let reap = if dice.roll(20) == 0 {
                unreapable()
            } else {
                Reap::Clean
            };
            sim.link(LinkEvent::Lost(loss(end(dice))));
            world.watch(sim);
            world.alive = None;
            sim.link(LinkEvent::Gone(reap));
        }
        10 => sim.operate([Operator::Restart, Operator::Recycle][dice.roll(2) as usize]),
        11 => {
            let reconnect = dice.roll(4) > 0;
            let changed = settings(|s| s.reconnect = reconnect);
            sim.configure(changed, dice.roll(3) == 0);
        }
        12 if dice.roll(8) == 0 => {
            let problem = "no".to_owned();
            sim.input(Input::Refuse { problem });
        }
        13 if dice.roll(8) == 0 => {
            let stop = if dice.roll(9) == 0 {
                Stop::Shutdown
            } else {
                Stop::Disabled
            };
            sim.input(Input::Stop(stop));
        }
        _ => sim.pass(millis(1 << dice.roll(24))),
    }
    world.stopped = !sim.server.enabled;
}

impl Sim {
    /// As a transport does: only what has not connected can fail to.
    fn fail_dial(&mut self, outcome: Outcome) {
        if self.state() == State::Connecting {
            self.link(LinkEvent::Failed(failure(outcome)));
        }
    }
}

#[test]
fn s4_i5_random_histories_keep_one_transport_and_alternating_edges() {
    for seed in 1..400 {
        let (mut sim, mut world, mut dice) = (Sim::new(defaults()), World::default(), Dice(seed));
        for _ in 0..400 {
            let stopped = world.stopped;
            step(&mut sim, &mut world, &mut dice);
            // An input that starts or stops the server is judged by what held after it.
            world.stopped &= stopped;
            world.watch(&mut sim);
            world.stopped = !sim.server.enabled;
            let view = sim.view();
            assert_eq!(view.state, world.state, "seed {seed}");
            assert_eq!(view.episode.is_some(), world.down, "seed {seed}");
        }
    }
}
