//! The engine from outside: every rule of 2-engine that the engine keeps, against the contract alone. Nothing here
//! knows how the engine is built.

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

mod admission;
mod answers;
mod boundaries;
mod bounds;
mod calls;
mod determinism;
mod digest;
mod endings;
mod exchange;
mod gating;
mod grants;
mod history;
mod methods;
mod operators;
mod reconnect;
mod reports;
mod signals;
