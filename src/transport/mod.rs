//! Connections to servers. A transport turns bytes into facts for the engine and commands into bytes; it decides
//! nothing about retrying, gating or answering.

mod credential;
mod drained;
mod environment;
pub mod http;
pub mod lines;
mod link;
mod process;
mod procfs;
pub mod settings;
mod stderr;
pub mod stdio;
mod upgrade;
mod vigil;
pub mod websocket;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

pub use process::{become_subreaper, kill_descendants, reap_orphans};
pub use settings::Settings;

use crate::engine::input::LinkEvent;
use crate::ids::Epoch;

/// How many launches or connect calls run at once (R17).
pub const LAUNCHES_MAX: usize = 8;

/// What a transport tells: which epoch, and what happened, in the order that [`LinkEvent`] documents.
pub type Events = mpsc::Sender<(Epoch, LinkEvent)>;

/// One message to write to a server.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The message, without a line end.
    pub bytes: Bytes,
    /// The gateway's id, where it is a request.
    pub request: Option<u64>,
    /// The header fields that repeat what it says, for HTTP. Where there are any it is a request of the stateless
    /// revision.
    pub fields: Vec<(String, String)>,
}

impl Frame {
    /// A message of a session.
    #[must_use]
    pub fn new(bytes: Bytes, request: Option<u64>) -> Self {
        let fields = Vec::new();
        Self {
            bytes,
            request,
            fields,
        }
    }

    /// It stands alone: it belongs to no session.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        !self.fields.is_empty()
    }
}

/// Starts a transport in tasks of its own and returns at once. `frames` are the messages to write; its
/// end is not a close. `close` asks for the staged stop; the transport answers with `Lost` (unless it was told
/// before) and then `Gone`. A slot of `launches` is held for the launch or connect call only, at most 2 s (R17).
pub fn dial(
    settings: &Settings,
    epoch: Epoch,
    events: Events,
    frames: impl Stream<Item = Frame> + Send + Unpin + 'static,
    close: CancellationToken,
    launches: Arc<Semaphore>,
) {
    match settings {
        Settings::Stdio(settings) => {
            let frames = frames.map(|frame: Frame| frame.bytes);
            stdio::dial(Arc::clone(settings), epoch, events, frames, close, launches);
        }
        Settings::WebSocket(settings) => {
            let frames = frames.map(|frame: Frame| frame.bytes);
            websocket::dial(Arc::clone(settings), epoch, events, frames, close, launches);
        }
        Settings::Http(settings) => {
            http::dial(Arc::clone(settings), epoch, events, frames, close, launches);
        }
    }
}
