//! What one server's side sends, marked with its seat; its end is told once.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;

use crate::aggregate::SeatId;
use crate::driver::outbound::Frames;
use crate::face::Outgoing;

/// One server's side.
pub(super) struct Side {
    seat: SeatId,
    frames: Option<Frames<Outgoing>>,
}

impl Side {
    pub(super) fn new(seat: SeatId, frames: Frames<Outgoing>) -> Self {
        let frames = Some(frames);
        Self { seat, frames }
    }
}

impl Stream for Side {
    /// `None` is the end.
    type Item = (SeatId, Option<Outgoing>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(None);
        };
        let outgoing = std::task::ready!(Pin::new(frames).poll_next(cx));
        if outgoing.is_none() {
            self.frames = None;
        }
        Poll::Ready(Some((self.seat, outgoing)))
    }
}
