//! Servers as WebSockets.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Events;
use super::settings::WebSocket;
use crate::ids::Epoch;

/// See [`super::dial`].
pub(super) fn dial(
    settings: Arc<WebSocket>,
    epoch: Epoch,
    events: Events,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    close: CancellationToken,
    launches: Arc<Semaphore>,
) {
    let _ = (settings, epoch, events, frames, close, launches);
}
