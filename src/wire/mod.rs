//! Bytes to messages and back. Pure: no clock, no socket, no state beyond what a framing needs.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros
)]

pub mod beginning;
pub mod capability;
pub mod digest;
pub mod framing;
pub mod incoming;
pub mod jsonrpc;
pub mod mcp;
pub mod mcpl;
pub mod methods;
pub mod object;
pub mod redact;
pub mod sse;
pub mod trace_context;
