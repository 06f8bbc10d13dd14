//! The reference for reconnecting, written from the rules alone (R1–R5, R10, R14, R15, R18, R20, S3, S4). It sees the
//! inputs, predicts the count, the waits, the dials and the edges, and is compared with the engine at every instant.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::engine::decision::{Decision, State};
use tidegate::engine::input::{
    End, Input, LinkEvent, Moment, Operator, Outcome, Reap, Resumed, Stop,
};
use tidegate::engine::settings::Settings;
use tidegate::engine::snapshot::Snapshot;

const WAIT_MAX: f64 = 2_147_483.647;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Off,
    Away,
    Dialing {
        attempt: u64,
        since: Instant,
        connected: Option<Instant>,
    },
    Serving {
        attempt: u64,
        since: Instant,
        lasted: bool,
    },
}

/// What operators are told, and when. A down that time alone opens has no number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Edge {
    Down(Option<u64>),
    Clear,
    Lasted,
}

/// What follows the end of a connection once nothing is left of it: only then is it known whether it is a short end or
/// a halt, which replaces it (R10).
#[derive(Clone, Copy, Debug)]
enum AfterGone {
    Retry {
        down: Option<u64>,
        wait: Wait,
    },
    Over {
        over: Over,
        down: Option<u64>,
    },
    /// The operator came first (R14).
    Dial {
        down: Option<u64>,
    },
}

/// A wait that must be told: its least and greatest length in seconds, and since when it runs.
#[derive(Clone, Copy, Debug)]
struct Wait {
    low: f64,
    high: f64,
    since: Instant,
}

/// Why nothing is dialed any more.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Halted,
    Ended,
}

#[derive(Clone, Debug)]
pub struct Model {
    settings: Settings,
    phase: Phase,
    count: u64,
    /// The count that it had when nobody wanted it connected: only a failure after that makes it down.
    forgiven: u64,
    /// No dial yet since the start, so that the next is attempt 0 where the count is 0.
    fresh: bool,
    dial_at: Option<Instant>,
    /// The id of the `initialize` that was sent.
    pub initialize: Value,
    gone_at: Option<Instant>,
    over: Option<Over>,
    auth_refusals: u32,
    down: bool,
    away_since: Option<Instant>,
    wait: Option<Wait>,
    after_gone: Option<AfterGone>,
    expected: Vec<(Instant, Edge)>,
    told: Vec<(Instant, Edge)>,
    now: Instant,
    /// The state directory was taken over.
    resumed: bool,
    /// The gateway stops: what is shown then is nobody's business.
    shut_down: bool,
    /// Forgotten, so that its count is nobody's business.
    removed: bool,
}

impl Model {
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            settings,
            phase: Phase::Off,
            count: 0,
            forgiven: 0,
            fresh: true,
            dial_at: None,
            initialize: Value::Null,
            gone_at: Some(now),
            over: None,
            auth_refusals: 0,
            down: false,
            away_since: None,
            wait: None,
            after_gone: None,
            expected: vec![],
            told: vec![],
            now,
            resumed: false,
            shut_down: false,
            removed: false,
        }
    }

    /// The gateway was started again on its state directory.
    pub fn rebooted(&mut self, resumed: &Resumed, now: Instant) {
        let count = if self.removed { 0 } else { self.count };
        assert_eq!(resumed.failed_attempts, count, "S5: the count is recorded");
        assert_eq!(
            resumed.episode.is_some(),
            self.down,
            "S5: the episode is recorded"
        );
        *self = Self {
            count,
            forgiven: if self.removed { 0 } else { self.forgiven },
            down: self.down,
            ..Self::new(self.settings.clone(), now)
        };
    }

    // Facts.

    pub fn input(&mut self, input: &Input, at: Moment) {
        match input {
            Input::Start(resumed) => self.start(resumed, at.now),
            Input::Configure { settings, redial } => {
                // R10: any change of its configuration ends a halt.
                let freed = self.is_halting() && self.settings != **settings;
                self.settings = Settings::clone(settings);
                if *redial || freed {
                    self.redial(at.now);
                }
                self.count_again(at.now);
            }
            Input::Operator(Operator::Restart) => self.redial(at.now),
            Input::Operator(Operator::Recycle) => {
                if matches!(self.phase, Phase::Serving { .. }) {
                    self.ended(&End::Recycle, at);
                }
            }
            Input::Stop(stop) => self.stop(*stop, at.now),
            Input::Link { event, .. } => self.link(event, at),
            Input::Resume(_)
            | Input::Operator(_)
            | Input::Refuse { .. }
            | Input::Host { .. }
            | Input::Post(_)
            | Input::Stored(_)
            | Input::Allowance(_) => {}
        }
    }

    /// Halted, or about to be once its transport is gone.
    fn is_halting(&self) -> bool {
        let next = match self.after_gone {
            Some(AfterGone::Over { over, .. }) => Some(over),
            Some(AfterGone::Retry { .. } | AfterGone::Dial { .. }) | None => None,
        };
        self.over.or(next) == Some(Over::Halted)
    }

    fn start(&mut self, resumed: &Resumed, now: Instant) {
        self.phase = Phase::Away;
        self.over = None;
        // What it carries counts at the first time only; an enable dials at once (R14).
        let first = !std::mem::replace(&mut self.resumed, true);
        if first {
            self.count = resumed.failed_attempts;
            self.forgiven = resumed.forgiven_attempts;
        }
        self.count_again(now);
        self.away_since = Some(now);
        let since = resumed.since_launch.filter(|_| first && self.count > 0);
        let rest = since.map_or(Duration::ZERO, |ago| {
            self.settings.interval.saturating_sub(ago)
        });
        if rest.is_zero() {
            self.dial_at = Some(now);
        } else {
            let rest = rest.as_secs_f64();
            self.wait = Some(Wait {
                low: rest - 0.001,
                high: rest + 0.001,
                since: now,
            });
        }
    }

    /// R14: at once, without a failure.
    fn redial(&mut self, now: Instant) {
        if self.phase == Phase::Off {
            return;
        }
        if matches!(self.phase, Phase::Serving { .. }) || self.away_since.is_none() {
            self.away_since = Some(now);
        }
        self.phase = Phase::Away;
        self.over = None;
        self.wait = None;
        self.dial_at = Some(now);
        if let Some(AfterGone::Retry { down, .. } | AfterGone::Over { down, .. }) = self.after_gone
        {
            self.after_gone = Some(AfterGone::Dial { down });
        } else if !matches!(self.after_gone, Some(AfterGone::Dial { .. })) {
            self.after_gone = None;
        }
    }

    fn stop(&mut self, stop: Stop, now: Instant) {
        self.phase = Phase::Off;
        self.over = None;
        self.wait = None;
        self.after_gone = None;
        self.dial_at = None;
        self.away_since = None;
        if stop == Stop::Disabled {
            self.forgiven = self.count;
        }
        if stop != Stop::Shutdown && self.down {
            self.clear(now);
        }
        self.removed = stop == Stop::Removed;
        self.shut_down = stop == Stop::Shutdown;
    }

    fn link(&mut self, event: &LinkEvent, at: Moment) {
        match (event, self.phase) {
            (LinkEvent::Connected, Phase::Dialing { attempt, since, .. }) => {
                let connected = Some(at.now);
                self.phase = Phase::Dialing {
                    attempt,
                    since,
                    connected,
                };
            }
            (LinkEvent::Failed(failure), Phase::Dialing { attempt, .. }) => {
                self.failed(attempt, failure.outcome, failure.retry_after, at);
            }
            (LinkEvent::Received(message), Phase::Dialing { attempt, .. }) => {
                let said: Value = serde_json::from_slice(message.raw()).unwrap();
                if said["id"] != self.initialize || said.get("method").is_some() {
                    return;
                }
                match said["result"]["protocolVersion"].as_str() {
                    Some(date) if date.starts_with("202") => self.adopted(attempt, at.now),
                    Some(_) => self.failed(attempt, Outcome::Version, None, at),
                    None if said.get("error").is_some() => {
                        self.failed(attempt, Outcome::Handshake, None, at);
                    }
                    None => {}
                }
            }
            (LinkEvent::Lost(_), Phase::Dialing { attempt, .. }) => {
                self.failed(attempt, Outcome::Refused, None, at);
            }
            (LinkEvent::Lost(loss), Phase::Serving { .. }) => self.ended(&loss.end, at),
            (LinkEvent::Gone(reap), phase) => {
                self.gone_at = Some(at.now);
                if phase != Phase::Off {
                    self.gone(reap, at.now);
                }
            }
            _ => {}
        }
    }

    fn gone(&mut self, reap: &Reap, now: Instant) {
        let after = self.after_gone.take();
        if *reap != Reap::Clean {
            self.halt(Over::Halted);
            return self.open(None, now);
        }
        match after {
            Some(AfterGone::Retry { down, wait }) => {
                self.wait = Some(wait);
                if down.is_some() {
                    self.open(down, now);
                }
            }
            Some(AfterGone::Dial { down }) if down.is_some() => self.open(down, now),
            Some(AfterGone::Over { over, .. }) => {
                self.halt(over);
                if over == Over::Halted {
                    self.open(None, now);
                } else if self.down {
                    self.clear(now);
                }
            }
            Some(AfterGone::Dial { .. }) | None => {}
        }
    }

    /// R15.
    pub fn timed_out(&mut self, at: Moment) {
        if let Phase::Dialing {
            attempt,
            since,
            connected,
        } = self.phase
        {
            let deadline = match connected {
                None => since + self.settings.connect_timeout,
                Some(connected) => connected + self.settings.initialize_timeout,
            };
            if deadline <= at.now {
                self.failed(attempt, Outcome::Timeout, None, at);
            }
        }
    }

    fn adopted(&mut self, attempt: u64, now: Instant) {
        self.phase = Phase::Serving {
            attempt,
            since: now,
            lasted: false,
        };
        self.away_since = None;
        self.auth_refusals = 0;
    }

    fn failed(&mut self, attempt: u64, outcome: Outcome, floor: Option<Duration>, at: Moment) {
        self.phase = Phase::Away;
        self.count = attempt + 1;
        self.auth_refusals = if outcome == Outcome::Auth {
            self.auth_refusals + 1
        } else {
            0
        };
        let permanent = outcome == Outcome::Version && self.settings.launched;
        if permanent || !self.settings.reconnect {
            self.halt(Over::Halted);
            return self.open(Some(attempt), at.now);
        }
        let cap = self.settings.max_interval.as_secs_f64();
        let Wait { low, high, since } = match outcome {
            Outcome::Auth if self.auth_refusals > 1 => slow(cap.max(300.0), at.now),
            Outcome::Version => slow(cap.max(900.0), at.now),
            _ => self.backoff(at),
        };
        let floor = floor.map_or(0.0, |floor| floor.as_secs_f64().min(cap.max(300.0)));
        let within = |wait: f64| wait.max(floor).min(WAIT_MAX);
        self.wait = Some(Wait {
            low: within(low),
            high: within(high),
            since,
        });
        if attempt >= self.settings.down_after_attempts || self.auth_refusals > 1 {
            self.open(Some(attempt), at.now);
        }
    }

    fn ended(&mut self, end: &End, at: Moment) {
        let Phase::Serving {
            attempt, lasted, ..
        } = self.phase
        else {
            return;
        };
        self.phase = Phase::Away;
        self.away_since = Some(at.now);
        let attempt = if lasted { 1 } else { attempt };
        // R8: only with reconnect on is an end as asked an end like any other.
        let asked = !self.settings.reconnect
            && matches!(
                end,
                End::Exit(0 | 129 | 130 | 143) | End::Signal(1 | 2 | 15)
            );
        if asked {
            self.forgiven = self.count;
        } else if !lasted {
            self.count = attempt + 1;
        }
        let down = (!lasted && attempt >= self.settings.down_after_attempts).then_some(attempt);
        if !self.settings.reconnect {
            let over = if asked { Over::Ended } else { Over::Halted };
            self.after_gone = Some(AfterGone::Over {
                over,
                down: down.filter(|_| !asked),
            });
            return;
        }
        self.after_gone = Some(AfterGone::Retry {
            down,
            wait: self.backoff(at),
        });
    }

    fn halt(&mut self, over: Over) {
        self.over = Some(over);
        self.wait = None;
        self.dial_at = None;
        if over == Over::Ended {
            self.away_since = None;
        }
    }

    /// R2.
    fn backoff(&self, at: Moment) -> Wait {
        let doublings = self.count.saturating_sub(1).min(30);
        let base = self.settings.interval.as_secs_f64() * (1_u64 << doublings) as f64;
        let wait = base.min(self.settings.max_interval.as_secs_f64()) * (1.0 + 0.25 * at.jitter);
        let wait = wait.min(WAIT_MAX);
        let slack = 0.001 + wait * 1e-9;
        Wait {
            low: wait - slack,
            high: wait + slack,
            since: at.now,
        }
    }

    // Time.

    /// Everything that time alone brings, up to and including `now`.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        if let Phase::Serving {
            attempt,
            since,
            lasted: false,
        } = self.phase
        {
            let at = since + self.settings.lasting_threshold();
            if at <= now {
                self.phase = Phase::Serving {
                    attempt,
                    since,
                    lasted: true,
                };
                (self.count, self.forgiven) = (0, 0);
                self.expected.push((at, Edge::Lasted));
                if self.down {
                    self.clear(at);
                }
            }
        }
        if let Some(at) = self
            .away_since
            .map(|since| since + self.settings.down_after)
            && at <= now
        {
            self.open(None, at);
        }
    }

    /// S3: what has failed already counts where the threshold is lower now.
    fn count_again(&mut self, at: Instant) {
        let failed = self.count > self.forgiven && self.count > self.settings.down_after_attempts;
        if failed && self.phase != Phase::Off {
            self.open(Some(self.count - 1), at);
        }
    }

    fn open(&mut self, attempt: Option<u64>, at: Instant) {
        if !self.down {
            self.down = true;
            self.expected.push((at, Edge::Down(attempt)));
        }
    }

    fn clear(&mut self, at: Instant) {
        self.down = false;
        self.expected.push((at, Edge::Clear));
    }

    // The engine.

    pub fn dialed(&mut self, attempt: u64, now: Instant) {
        assert_eq!(
            self.phase,
            Phase::Away,
            "a dial while something is dialed or serves"
        );
        let due = self
            .dial_at
            .expect("a dial is due")
            .max(self.gone_at.expect("and the last is gone"));
        assert_eq!(now - due, Duration::ZERO, "the dial comes late");
        assert!(now >= due, "the dial comes {:?} early", due - now);
        let next = if self.fresh {
            self.count
        } else {
            self.count.max(1)
        };
        assert_eq!(
            attempt, next,
            "R1: the number of the attempt, at a count of {}",
            self.count
        );
        self.fresh = false;
        self.dial_at = None;
        self.gone_at = None;
        self.phase = Phase::Dialing {
            attempt,
            since: now,
            connected: None,
        };
    }

    pub fn decided(&mut self, decision: &Decision, now: Instant) {
        match decision {
            Decision::Down { attempt, .. } => self.told.push((now, Edge::Down(Some(*attempt)))),
            Decision::Clear { .. } => self.told.push((now, Edge::Clear)),
            Decision::Lasted { .. } => self.told.push((now, Edge::Lasted)),
            Decision::Waiting { attempt, wait } => {
                let Wait { low, high, since } = self.wait.take().expect("a wait is due");
                let told = wait.as_secs_f64();
                assert!(
                    low <= told && told <= high,
                    "R2: told {told} s, not {low} to {high} s"
                );
                assert_eq!(*attempt, self.count.max(1), "R1: the next attempt's number");
                self.dial_at = Some(since + *wait);
            }
            _ => {}
        }
    }

    pub fn compare(&mut self, view: &Snapshot, elapsed: Duration) {
        if !self.removed {
            assert_eq!(
                view.failed_attempts, self.count,
                "R1: the count, at {elapsed:?}"
            );
        }
        assert_eq!(
            view.episode.is_some(),
            self.down,
            "S3, S4: the episode, at {elapsed:?}"
        );
        assert!(self.wait.is_none(), "R2: no wait was told, at {elapsed:?}");
        let same = |(a, b): (&(Instant, Edge), &(Instant, Edge))| {
            let edge = match (a.1, b.1) {
                (Edge::Down(None), Edge::Down(_)) => true,
                (a, b) => a == b,
            };
            a.0 == b.0 && edge
        };
        assert!(
            self.expected.len() == self.told.len()
                && self.expected.iter().zip(&self.told).all(same),
            "S3, S4: expected {:#?}\n told {:#?}, at {elapsed:?}",
            self.expected,
            self.told
        );
        self.expected.clear();
        self.told.clear();
        if let Some(state) = self.state() {
            assert_eq!(view.state, state, "the state, at {elapsed:?}");
        }
    }

    /// The state, where the rules leave no choice.
    fn state(&self) -> Option<State> {
        match (self.phase, self.over) {
            (Phase::Off, _) if self.shut_down => None,
            (Phase::Off, _) => Some(State::Disabled),
            (Phase::Away, _) if self.gone_at.is_none() => None,
            (Phase::Away, Some(Over::Halted)) => Some(State::Halted),
            (Phase::Away, Some(Over::Ended)) => Some(State::Ended),
            (Phase::Away, None) if self.dial_at.is_none_or(|at| at <= self.now) => None,
            (Phase::Away, None) if self.auth_refusals > 1 => Some(State::Auth),
            (Phase::Away, None) => Some(State::Waiting),
            (Phase::Dialing { .. }, _) => Some(State::Connecting),
            (Phase::Serving { .. }, _) => None,
        }
    }

    /// Nothing is left of the transport, so that the next may be dialed.
    pub fn is_gone(&self) -> bool {
        self.gone_at.is_some()
    }
}

/// R10, R18: never closer than this, and no further than a wait's jitter allows.
fn slow(wait: f64, since: Instant) -> Wait {
    Wait {
        low: wait - 0.001,
        high: wait * 1.25 + 0.001,
        since,
    }
}
