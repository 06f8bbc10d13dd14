//! What is shipped in `alerts/`, `dashboards/` and `docs/runbooks/`, by the checkers of Prometheus and Alertmanager.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test that finds something else than it asks for fails loudly"
)]

mod dashboards;
#[path = "../../world/mod.rs"]
mod world;

mod edges;
mod metrics;
mod mutants;
mod rules;
mod scenario;
mod shipped;
mod tools;
