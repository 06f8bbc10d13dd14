//! One revision of MCP spoken as another, at the edges of the gateway: inside there is one dialect, that of the
//! session revisions (decision 0015). Pure: it keeps no clock, does no IO and decides nothing about reconnecting or
//! gating.

pub mod host;
mod mirrored;
pub mod stateless;
