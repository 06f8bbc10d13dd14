//! The whole gateway under load on loopback: prints value, target and floor of every bound that the design states, in
//! one run, and fails only where a value is beyond twice its target.
//!
//! `cargo bench --bench load` runs all lines, `cargo bench --bench load -- latency` those whose name contains a word.
//! The same program plays the peers when it is called with a role (see `peers.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a measurement fails loudly"
)]

mod collector;
mod engine;
mod flush;
mod gateway;
mod http;
mod http_peers;
mod lines;
mod peers;

use std::process::ExitCode;

/// What one line of the table says.
struct Line {
    name: &'static str,
    unit: &'static str,
    value: f64,
    /// Infinite where the design states none.
    target: f64,
    /// What the same machine does without the gateway, measured in the same run.
    floor: Option<f64>,
    /// Larger is better.
    more: bool,
}

impl Line {
    fn is_beyond_twice(&self) -> bool {
        if self.target.is_infinite() {
            false
        } else if self.more {
            self.value < self.target / 2.0
        } else {
            self.value > self.target * 2.0
        }
    }

    fn print(&self) {
        let sign = if self.more { "≥" } else { "≤" };
        let floor = self
            .floor
            .map_or_else(|| "–".to_owned(), |floor| format!("{floor:.1}"));
        let mark = match (
            self.is_beyond_twice(),
            self.more == (self.value >= self.target),
        ) {
            (true, _) => "FAILED",
            (false, true) => "ok",
            (false, false) => "over target",
        };
        let (sign, target, mark) = if self.target.is_finite() {
            (sign, format!("{:.1}", self.target), mark)
        } else {
            ("", "–".to_owned(), "")
        };
        println!(
            "{:<58} {:>12.1} {sign:1} {target:>10} {:<4} {floor:>8}  {mark}",
            self.name, self.value, self.unit
        );
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    if let Some((role, rest)) = peers::role(&args) {
        return peers::play(role, rest);
    }
    let wanted =
        |name: &str| args.is_empty() || args.iter().any(|word| name.contains(word.as_str()));
    println!(
        "{:<58} {:>12}   {:>10} {:<4} {:>8}",
        "figure", "value", "target", "unit", "floor"
    );
    let mut failed = false;
    for (group, measure) in lines::GROUPS {
        if !wanted(group) {
            continue;
        }
        for line in measure() {
            line.print();
            failed |= line.is_beyond_twice();
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
