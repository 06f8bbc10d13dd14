//! The planes of a server's traffic and the named holds that close them (G1 to G3). It holds no message.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::decision::Hold;
use crate::wire::mcpl::{self, Plane, method};

/// Which holds are on, and since when.
#[derive(Debug, Default)]
pub(super) struct Gate {
    holds: BTreeMap<Hold, Option<Instant>>,
}

/// Whether a message reaches an agent by itself, so that a pause or a refresh of the lists holds it (G3).
pub(super) fn wakes(name: &str) -> bool {
    mcpl::is_world(name) || matches!(name, method::INFERENCE_REQUEST | method::MODEL_INFO)
}

impl Gate {
    /// Adds a hold; one that is on keeps its instant.
    pub(super) fn hold(&mut self, hold: Hold, now: Instant) {
        self.holds.entry(hold).or_insert(Some(now));
    }

    /// Adds a hold that began before this run of the gateway.
    pub(super) fn resume(&mut self, hold: Hold) {
        self.holds.insert(hold, None);
    }

    /// Takes a hold away, and tells how long it was on in this run.
    pub(super) fn lift(&mut self, hold: Hold, now: Instant) -> Option<Duration> {
        let since = self.holds.remove(&hold)?;
        Some(since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)))
    }

    /// Whether that hold is on.
    pub(super) fn is_held(&self, hold: Hold) -> bool {
        self.holds.contains_key(&hold)
    }

    /// Whether what waits behind `plane` may pass. `wakes` is [`wakes`] of the message.
    pub(super) fn is_open(&self, plane: Plane, wakes: bool) -> bool {
        !self.holds.keys().any(|hold| closes(*hold, plane, wakes))
    }

    /// The holds that are on.
    pub(super) fn holds(&self) -> Vec<Hold> {
        self.holds.keys().copied().collect()
    }
}

fn closes(hold: Hold, plane: Plane, wakes: bool) -> bool {
    match hold {
        Hold::Policy => plane != Plane::Never,
        Hold::NoHost => plane == Plane::Data,
        Hold::ListRefresh | Hold::Pause => wakes,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test has to begin some time")]

    use super::*;

    fn with(holds: &[Hold]) -> Gate {
        let now = Instant::now();
        let mut gate = Gate::default();
        holds.iter().for_each(|hold| gate.hold(*hold, now));
        gate
    }

    fn open(gate: &Gate) -> [bool; 5] {
        let planes = [Plane::Never, Plane::Outside, Plane::Control, Plane::Data];
        let [a, b, c, d] = planes.map(|plane| gate.is_open(plane, false));
        [a, b, c, d, gate.is_open(Plane::Data, true)]
    }

    #[test]
    fn g1_policy_closes_both_planes_and_what_is_outside_them() {
        assert_eq!(open(&with(&[])), [true; 5]);
        assert_eq!(
            open(&with(&[Hold::Policy])),
            [true, false, false, false, false]
        );
    }

    #[test]
    fn g3_no_host_closes_the_data_plane_and_pause_what_wakes_an_agent() {
        assert_eq!(
            open(&with(&[Hold::NoHost])),
            [true, true, true, false, false]
        );
        for hold in [Hold::Pause, Hold::ListRefresh] {
            assert_eq!(open(&with(&[hold])), [true, true, true, true, false]);
        }
        assert!(wakes("push/event") && wakes("inference/request") && !wakes("x/unknown"));
    }

    #[test]
    fn g3_a_plane_is_open_exactly_when_it_has_no_hold() {
        let start = Instant::now();
        let mut gate = with(&[Hold::NoHost, Hold::Pause]);
        gate.lift(Hold::NoHost, start);
        assert!(!gate.is_open(Plane::Data, true));
        gate.lift(Hold::Pause, start);
        assert!(gate.is_open(Plane::Data, true));
        assert_eq!(gate.lift(Hold::Pause, start), None);
    }

    #[test]
    fn g3_a_hold_keeps_the_instant_it_began() {
        let start = Instant::now();
        let mut gate = Gate::default();
        gate.hold(Hold::Pause, start);
        gate.hold(Hold::Pause, start + Duration::from_secs(5));
        let held_for = gate.lift(Hold::Pause, start + Duration::from_secs(7));
        assert_eq!(held_for, Some(Duration::from_secs(7)));
    }
}
