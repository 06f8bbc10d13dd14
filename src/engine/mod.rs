//! The engine: one pure state machine per server, which decides when to dial, what to hold, what to grant, and who is
//! owed which answer. It reads no clock, opens no socket, draws no randomness, takes no lock and cannot block.
//!
//! Its contract has four calls. [`Server::handle_input`] takes a fact about the past; [`Server::handle_timeout`] takes
//! the time, once [`Server::poll_timeout`]'s instant is reached; after either, [`Server::poll_output`] is drained to
//! `None`, and then the next deadline is later than `now`. Time never goes back.
// A test has to begin somewhere, so it may read the clock.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![deny(clippy::disallowed_types, clippy::disallowed_macros)]

pub mod decision;
pub mod input;
pub mod liveness;
mod manifest;
pub mod output;
pub mod reconnect;
pub mod settings;
pub mod snapshot;
pub mod timers;

mod admission;
mod answers;
mod channels;
mod episode;
mod gate;
mod grant;
mod handshake;
mod host;
mod inventory;
mod noise;
mod outbox;
mod peer;
mod policy;
mod queue;
mod server;
mod sessions;
mod setup;
mod streams;
mod traffic;

pub use server::Server;
