//! Connections from hosts. A face frames, authenticates and bounds; what a host's message means is the engine's.

pub mod access;
pub mod head;
mod http;
pub mod listener;
mod reading;
pub mod routes;
mod websocket;

use std::future::Future;

use bytes::Bytes;
use futures_util::Stream;

use crate::engine::input::HostEvent;
use crate::engine::output::Regards;

/// Where a face finds the servers. The driver is one.
pub trait Directory: Clone + Send + Sync + 'static {
    /// Where a session's messages go.
    type Inbound: Inbound;
    /// What a session is sent; its end closes the connection.
    type Outbound: Stream<Item = Outgoing> + Send + Unpin + 'static;

    /// Opens a session with a server for a host of this name.
    ///
    /// # Errors
    /// Where no such server is configured, or it takes no more sessions.
    fn open(
        &self,
        server: &str,
        host: Option<&str>,
    ) -> Result<(Self::Inbound, Self::Outbound), Refusal>;
}

/// Where a session's messages go. Dropping it detaches the host.
pub trait Inbound: Send + Sync + 'static {
    /// Hands over what the host did; waits while the engine is busy, which slows this host alone. `false` where the
    /// server is gone.
    fn send(&self, event: HostEvent) -> impl Future<Output = bool> + Send;
}

/// Why no session opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No server of that name is configured.
    #[error("no such server is configured; the configured ones are listed at /api/v1/servers")]
    Unknown,
    /// The server has as many sessions as it takes.
    #[error("the server has as many sessions as it takes; close one first")]
    Full,
}

/// Something for a host.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// One message.
    Frame(Bytes),
    /// One that has to do with a request of the host's.
    Regarding(Regards, Bytes),
    /// The end, with a WebSocket close code and its reason.
    Close {
        /// 4-faces: 4401, 4408, 4409, 4410; 1001 when the gateway stops.
        code: u16,
        /// For people.
        reason: &'static str,
    },
}

impl Outgoing {
    /// A message, with what is known of it.
    #[must_use]
    pub fn new(frame: Bytes, regards: Option<Regards>) -> Self {
        match regards {
            Some(regards) => Self::Regarding(regards, frame),
            None => Self::Frame(frame),
        }
    }
}
