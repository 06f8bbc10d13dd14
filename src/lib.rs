//! Tidegate, a gateway that owns an agent host's connections to its MCP and MCPL servers.
//!
//! The layers, lowest first; a module names only lower ones, and `tests/tidy.rs` holds the sources against this map:
//!
//! | layer | modules |
//! |---|---|
//! | 0 | [`ids`], [`wire`]: identities, bytes to messages and back |
//! | 1 | [`engine`]: the pure state machines; [`revision`]: one revision as another; [`aggregate`]: many as one |
//! | 2 | `transport` (to servers), `face` (from hosts), `journal` (durable), `observe` (decisions to telemetry) |
//! | 3 | `driver` (the shell around the engine), `config` (text to settings) |
//! | 4 | `admin`: health, metrics, status, control; `notify`: down and clear to channels and webhooks |
//! | 5 | `app`, `cli`, `demo` |
//!
//! Layers 0 and 1 build without the `daemon` feature, and then without any crate that touches the world.

pub mod ids;
pub mod wire;

pub mod aggregate;
pub mod engine;
pub mod revision;

#[cfg(feature = "daemon")]
pub mod admin;
#[cfg(feature = "daemon")]
pub mod app;
#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod demo;
#[cfg(feature = "daemon")]
pub mod driver;
#[cfg(feature = "daemon")]
pub mod face;
#[cfg(feature = "daemon")]
pub mod journal;
#[cfg(feature = "daemon")]
pub mod notify;
#[cfg(feature = "daemon")]
pub mod observe;
#[cfg(feature = "daemon")]
pub mod transport;
