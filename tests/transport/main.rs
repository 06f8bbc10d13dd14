//! The transports against real processes and sockets: `tidegate::transport::dial` and the fixture `faultd`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::result_large_err,
    clippy::wildcard_enum_match_arm,
    reason = "a test crate"
)]

mod dialed;
mod http;
mod leaks;
mod stdio;
mod websocket;
