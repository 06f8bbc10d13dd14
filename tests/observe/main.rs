//! What operators see: the text of `/metrics`, the event stream, the operator faces.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "a test that finds something else than it asks for fails loudly"
)]

mod admin;
mod commands;
mod desk;
mod metrics;
mod samples;
