//! S7: the shipped rules reach the engine's edges from the raw gauges alone. Seeded histories of the real engine are
//! sampled as Prometheus would scrape them, and promtool plays the rules over the samples, beside its episodes.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use tidegate::engine::decision::{Decision, State};
use tidegate::engine::input::{End, Operator, Outcome, Stop};
use tidegate::engine::settings::Settings;
use tidegate::ids::ServerId;
use tidegate::observe::Observer;

use crate::rules;
use crate::tools::{promtool, read};
use crate::world::checker::Phase;
use crate::world::draw::Draw;
use crate::world::peer::{Fate, Peer, REFUSED};
use crate::world::{Jitter, World, secs};

/// From one scrape, and evaluation, to the next.
const STEP: Duration = Duration::from_secs(15);
/// How long a history is, in scrapes: three hours.
const SCRAPES: usize = 720;
/// When the simulated time began, in seconds since 1970.
const BEGAN: f64 = 1_000_000_000.0;
/// What the rules read of a server.
const GAUGES: [&str; 10] = [
    "failed_attempts",
    "failed_attempts_since_unwanted",
    "down_after_attempts",
    "away_seconds",
    "down_after_seconds",
    "connection_age_seconds",
    "lasting_threshold_seconds",
    "lasted_timestamp_seconds",
    "unwanted_timestamp_seconds",
    "stuck_timestamp_seconds",
];
/// The states that the rules ask for.
const STATES: [State; 5] = [
    State::Halted,
    State::Refused,
    State::Auth,
    State::Disabled,
    State::Ended,
];

/// One scrape: the values of [`GAUGES`] and of [`STATES`]; `None` where the gateway did not answer.
type Scrape = Option<([f64; GAUGES.len()], [bool; STATES.len()])>;

/// A history as Prometheus saw it, and what the engine decided meanwhile.
struct Sampled {
    seed: u64,
    scrapes: Vec<Scrape>,
    /// Down or not, at each scrape.
    episodes: Vec<bool>,
}

struct History {
    world: World,
    draw: Draw,
    enabled: bool,
    /// The operator disables and enables, changes thresholds and has the gateway silent all the time.
    restless: bool,
    /// Scrapes that the gateway will not answer.
    silent: u64,
    /// When the gateway was last started.
    booted: Duration,
    /// The instants that it restores move by some milliseconds with each run of the gateway.
    skew: f64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let mut world = World::with(settings(&mut draw), Peer::default());
        world.jitter = Jitter::Seeded(seed);
        world.start();
        Self {
            world,
            draw,
            enabled: true,
            restless: false,
            silent: 0,
            booted: Duration::ZERO,
            skew: 0.0,
        }
    }

    fn restless(seed: u64) -> Self {
        Self {
            restless: true,
            ..Self::new(seed)
        }
    }

    fn play(mut self, seed: u64) -> Sampled {
        let (mut scrapes, mut told) = (Vec::new(), Vec::new());
        for _ in 0..SCRAPES {
            scrapes.push(self.scrape());
            told.push(self.world.count_of("down") + self.world.count_of("clear"));
            let before = self.draw.between(Duration::ZERO, STEP);
            self.world.run_for(before);
            self.act();
            self.world.run_for(STEP - before);
        }
        let episodes = episodes(&scrapes, &told);
        Sampled {
            seed,
            scrapes,
            episodes,
        }
    }

    fn scrape(&mut self) -> Scrape {
        if self.silent > 0 {
            self.silent -= 1;
            return None;
        }
        let view = self.world.snapshot();
        let now = BEGAN + self.world.elapsed().as_secs_f64();
        let at = |ago: Option<Duration>| ago.map_or(0.0, |ago| now - ago.as_secs_f64() + self.skew);
        let count = |n: u64| n as f64;
        let gauges = [
            count(view.failed_attempts),
            count(view.failed_since_unwanted),
            count(view.down_after_attempts),
            view.away_for.as_secs_f64(),
            view.down_after.as_secs_f64(),
            view.connection_age.as_secs_f64(),
            view.lasting_threshold.as_secs_f64(),
            at(view.since_lasted),
            at(view.since_unwanted),
            self.stuck_at(),
        ];
        Some((gauges, STATES.map(|state| state == view.state)))
    }

    /// As `/metrics` has it: noted when it is told, and not over a restart of the gateway.
    fn stuck_at(&self) -> f64 {
        let stuck = [State::Halted, State::Refused, State::Auth].map(Decision::State);
        let told = self.world.decisions();
        let last = told.filter(|(_, decision)| stuck.contains(decision)).last();
        let at = last.map(|(at, _)| at).filter(|at| *at >= self.booted);
        at.map_or(0.0, |at| BEGAN + at.as_secs_f64() + self.skew)
    }

    /// What happens within one step, most often nothing but time.
    fn act(&mut self) {
        if self.restless && self.draw.one_in(3) {
            return self.meddle();
        }
        match self.draw.below(60) {
            0..=3 => self.fate(),
            4 => self.world.operator(Operator::Recycle),
            5 => self.toggle(),
            6 => self.reboot(),
            7 => self.silent = 1 + self.draw.below(3),
            8 => self.lose(),
            9 => self.world.operator(Operator::Restart),
            // With reconnect off nothing else goes on.
            10..=14 if !self.world.settings.reconnect => {
                self.world.operator(Operator::Restart);
            }
            _ => {}
        }
    }

    /// What a restless operator does.
    fn meddle(&mut self) {
        match self.draw.below(6) {
            0 => self.toggle(),
            1 => self.silent = 1 + self.draw.below(4),
            2 => self.retune(),
            3 => self.fate(),
            _ if self.enabled => {
                self.toggle();
                self.toggle();
            }
            _ => {}
        }
    }

    /// Lower thresholds, while everything goes on. What only a higher one makes unseen is gone before any scrape.
    fn retune(&mut self) {
        let mut settings = Settings::clone(&self.world.settings);
        let fewer = 1 + self.draw.below(9);
        settings.down_after_attempts = settings.down_after_attempts.min(fewer);
        settings.down_after = settings.down_after.mul_f64(0.9);
        self.world.configure(settings, false);
    }

    /// How the server does from now on.
    fn fate(&mut self) {
        let threshold = self.world.settings.lasting_threshold();
        let life = match self.draw.below(4) {
            0 | 1 => threshold.mul_f64(0.99),
            2 => self.draw.between(Duration::ZERO, threshold * 2),
            _ => self.draw.between(Duration::ZERO, secs(10)),
        };
        self.world.peer.fate = match self.draw.below(8) {
            0 | 1 => REFUSED,
            2 => Fate::Hang,
            3 => Fate::Mute,
            4 => Fate::Version,
            5 => Fate::Fail(Outcome::Auth, None),
            6 => Fate::Serve(None),
            _ => Fate::Serve(Some(life)),
        };
        self.world.peer.end = if self.draw.one_in(2) {
            End::Exit(0)
        } else {
            End::Exit(1)
        };
    }

    fn lose(&mut self) {
        let epoch = self.world.epoch();
        if self.world.check.link(epoch) == Some(Phase::Connected) && self.world.snapshot().connected
        {
            self.world.lose(End::Signal(9));
        }
    }

    fn toggle(&mut self) {
        if self.enabled {
            self.world.stop(Stop::Disabled);
        } else {
            self.world.start();
        }
        self.enabled = !self.enabled;
    }

    fn reboot(&mut self) {
        if self.enabled {
            self.world.reboot();
            self.booted = self.world.elapsed();
            self.silent = self.draw.below(4);
            self.skew = self.draw.below(10) as f64 / 1e3;
        }
    }
}

fn settings(draw: &mut Draw) -> Settings {
    Settings {
        interval: draw.between(secs(1), secs(10)),
        max_interval: draw.between(secs(20), secs(300)),
        lasting_after: Some(draw.between(secs(90), secs(400))),
        // In some histories it is time alone that makes a server down.
        down_after_attempts: if draw.one_in(3) {
            1_000
        } else {
            2 + draw.below(5)
        },
        down_after: draw.between(secs(300), secs(1_500)),
        reconnect: !draw.one_in(5),
        ..Settings::default()
    }
}

/// Down or not, at each scrape, from how many edges had come by then. A scrape that was not answered sees nothing, and
/// a down that is over at the next scrape is not seen; but the clear of one that was seen is, for one evaluation.
fn episodes(scrapes: &[Scrape], told: &[usize]) -> Vec<bool> {
    let (mut seen, mut down) = (0, false);
    let mut episodes = Vec::new();
    for (scrape, told) in scrapes.iter().zip(told) {
        if scrape.is_some() {
            let again = down && told % 2 == 1 && *told > seen;
            down = told % 2 == 1 && !again;
            seen = if again { told - 1 } else { *told };
        }
        episodes.push(down);
    }
    episodes
}

impl Sampled {
    /// Its series for promtool.
    fn series(&self, out: &mut String) {
        let labels = format!("job=\"tidegate\",gateway=\"seed-{}\"", self.seed);
        let up = self.scrapes.iter().map(|scrape| flag(scrape.is_some()));
        line(out, &format!("up{{{labels}}}"), up);
        let labels = format!("{labels},server=\"s\"");
        for (n, name) in GAUGES.iter().enumerate() {
            let name = format!("tidegate_server_{name}{{{labels}}}");
            self.values(out, &name, |(gauges, _)| gauges[n].to_string());
        }
        for (n, state) in STATES.iter().enumerate() {
            let state = state.label();
            let name = format!("tidegate_server_state{{{labels},state=\"{state}\"}}");
            self.values(out, &name, |(_, states)| flag(states[n]));
        }
        let episodes = self.episodes.iter().map(|down| flag(*down));
        line(out, &format!("test_down{{{labels}}}"), episodes);
    }

    fn values(
        &self,
        out: &mut String,
        name: &str,
        value: impl Fn(&([f64; GAUGES.len()], [bool; STATES.len()])) -> String,
    ) {
        let values = self
            .scrapes
            .iter()
            .enumerate()
            .map(|(n, scrape)| match scrape {
                Some(scrape) => value(scrape),
                // A failed scrape makes what was there stale.
                None if n > 0 && self.scrapes[n - 1].is_some() => "stale".into(),
                None => "_".into(),
            });
        line(out, name, values);
    }

    fn edges(&self) -> usize {
        let pairs = self.episodes.windows(2);
        pairs.filter(|pair| pair[0] != pair[1]).count() + usize::from(self.episodes[0])
    }
}

fn flag(on: bool) -> String {
    u8::from(on).to_string()
}

fn line(out: &mut String, name: &str, values: impl Iterator<Item = String>) {
    let values = values.collect::<Vec<_>>().join(" ");
    writeln!(out, "  - {{series: '{name}', values: '{values}'}}").unwrap();
}

/// Where latch and episode have differed at three evaluations in a row, they are more than two apart.
const CHECK: &str = "groups:
- name: check
  rules:
  - record: test:differs
    expr: tidegate_server:down:latch != bool on (job, gateway, server) test_down
  - record: test:late
    expr: min_over_time(test:differs[30s]) == 1 and count_over_time(test:differs[30s]) >= 3
";

/// The histories as one file of promtool's, which asks that no edge is late and that there is none more or less.
fn scenario(histories: &[Sampled]) -> String {
    let mut text = "rule_files: [rules.yml, check.yml]\nevaluation_interval: 15s\n\
         group_eval_order: [tidegate-servers, check]\ntests:\n- interval: 15s\n  input_series:\n"
        .to_owned();
    histories
        .iter()
        .for_each(|history| history.series(&mut text));
    let (end, whole) = (15 * (SCRAPES - 1), 15 * SCRAPES);
    writeln!(text, "  promql_expr_test:").unwrap();
    let mut ask = |expr: String, samples: &str| {
        writeln!(
            text,
            "  - eval_time: {end}s\n    expr: '{expr}'\n    exp_samples: [{samples}]"
        )
        .unwrap();
    };
    ask(
        format!("max by (gateway) (max_over_time(test:late[{whole}s]))"),
        "",
    );
    let difference = format!(
        "changes(tidegate_server:down:latch[{whole}s]) - on (job, gateway, server) changes(test_down[{whole}s]) != 0"
    );
    ask(difference, "");
    text
}

fn count() -> u64 {
    let full = std::env::var_os("TIDEGATE_FULL").is_some();
    if full { 200 } else { 16 }
}

#[test]
fn s7_the_rules_reach_the_edges_of_the_engine_in_every_history() {
    reach_the_edges_in(History::new);
}

/// A clear and the down after it are often over before a scrape could show either.
#[test]
fn s7_the_rules_reach_the_edges_of_the_engine_whatever_an_operator_does_between_two_scrapes() {
    reach_the_edges_in(History::restless);
}

fn reach_the_edges_in(history: fn(u64) -> History) {
    let histories: Vec<_> = (0..count()).map(|seed| history(seed).play(seed)).collect();
    let edges: usize = histories.iter().map(Sampled::edges).sum();
    assert!(edges > 3 * histories.len(), "{edges} edges show little");
    let mut failed = Vec::new();
    for some in histories.chunks(16) {
        let folder = tempfile::tempdir().unwrap();
        let group = rules::only(&read(rules::PATH), &["tidegate-servers".to_owned()]);
        fs::write(folder.path().join("rules.yml"), group).unwrap();
        fs::write(folder.path().join("check.yml"), CHECK).unwrap();
        fs::write(folder.path().join("test.yml"), scenario(some)).unwrap();
        let said = promtool(&["test", "rules", "test.yml"], folder.path());
        if !said.ok {
            failed.push(said.text);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What is sampled here is what `/metrics` says.
#[test]
fn s7_the_samples_are_those_of_the_page_of_metrics() {
    let mut history = History::new(1);
    history.world.peer.fate = REFUSED;
    history.world.operator(Operator::Restart);
    history.world.run_for(secs(400));
    let (gauges, _) = history.scrape().unwrap();
    let observer = Observer::new("gw");
    let id = ServerId::new("s").unwrap();
    let _s = observer.server(&id, "stdio", "auto");
    let page = observer.metrics(&[(id, history.world.snapshot().into())]);
    for (name, value) in GAUGES
        .iter()
        .zip(gauges)
        .filter(|(name, _)| !name.ends_with("_timestamp_seconds"))
    {
        let start = format!("tidegate_server_{name}{{server=\"s\"}} ");
        let shown = page.lines().find_map(|line| line.strip_prefix(&start));
        let shown: f64 = shown.unwrap_or_else(|| panic!("{name}")).parse().unwrap();
        assert_eq!(shown, value, "{name}");
    }
}
