//! One revision of MCP spoken as another, at the edges of the gateway: inside there is one dialect, that of the
//! session revisions (decision 0015). Pure: it keeps no clock, does no IO and decides nothing about reconnecting or
//! gating.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![deny(clippy::disallowed_types, clippy::disallowed_macros)]

pub mod host;
mod mirrored;
pub mod server;
pub mod stateless;
