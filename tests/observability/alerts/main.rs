//! What is shipped in `alerts/` and `docs/runbooks/`, held by Prometheus's and Alertmanager's own checkers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "a test that finds something else than it asks for fails loudly"
)]

mod metrics;
mod mutants;
mod rules;
mod scenario;
mod shipped;
mod tools;
