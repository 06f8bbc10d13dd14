//! The real binary with real children and real sockets. Nothing here is simulated and nothing waits by sleeping: each
//! wait is for an event of the gateway's own stream, an answer, or the end of a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails loudly and says its seed"
)]

mod account;
mod bridge;
mod events;
mod gateway;
mod host;
mod processes;
mod receiver;
#[path = "../support/streamable.rs"]
mod streamable;

mod aggregate;
mod agree;
mod away;
mod bounds;
mod collectors;
mod conformance;
mod connect;
mod crash_loop;
mod http_hosts;
mod http_servers;
mod interop;
mod kept;
mod killed;
mod late;
mod messages;
mod methods;
mod modern_hosts;
mod modern_servers;
mod paused;
mod race;
mod real_servers;
mod refused;
mod reloads;
mod restarted;
mod revisions;
mod sockets;
mod stopping;
mod told;
mod traces;
