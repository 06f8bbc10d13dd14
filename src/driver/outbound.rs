//! The queue towards one peer: bounded in bytes, filled by the engine's owner without waiting, emptied by the task that
//! writes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{Notify, mpsc};

use crate::transport::Frame;

/// The end that is filled.
#[derive(Clone, Debug)]
pub(super) struct Outbound<T> {
    frames: mpsc::UnboundedSender<T>,
    queued: Arc<AtomicUsize>,
    limit: usize,
}

/// The end that is emptied.
#[derive(Debug)]
pub struct Frames<T> {
    frames: mpsc::UnboundedReceiver<T>,
    queued: Arc<AtomicUsize>,
    limit: usize,
    drained: Arc<Notify>,
}

/// What takes room in a queue.
pub trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

impl Weigh for Bytes {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for Frame {
    fn weight(&self) -> usize {
        self.bytes.len()
    }
}

/// The frame did not fit, or nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A queue of at most `limit` bytes; `drained` is told when it falls back to that.
pub(super) fn bounded<T>(limit: usize, drained: Arc<Notify>) -> (Outbound<T>, Frames<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let frames = Frames {
        frames: receiver,
        queued: Arc::clone(&queued),
        limit,
        drained,
    };
    (
        Outbound {
            frames: sender,
            queued,
            limit,
        },
        frames,
    )
}

impl<T: Weigh> Outbound<T> {
    /// Queues a frame where it fits; a single one may be larger than the limit.
    ///
    /// # Errors
    /// [`Full`] where the frame does not fit; it is dropped then.
    pub(super) fn push(&self, frame: T) -> Result<(), Full> {
        let queued = self.queued.load(Ordering::Relaxed);
        if queued > 0 && queued.saturating_add(frame.weight()) > self.limit {
            return Err(Full);
        }
        self.push_over(frame);
        Ok(())
    }

    /// Queues a frame that must not be dropped. The caller sees to it that little comes after [`Self::is_over`].
    pub(super) fn push_over(&self, frame: T) {
        self.queued.fetch_add(frame.weight(), Ordering::Relaxed);
        // Nobody writes any more: the end of the connection is told elsewhere.
        let _ = self.frames.send(frame);
    }

    /// How often over its limit the queue is: 0 while it fits.
    pub(super) fn is_over(&self) -> usize {
        let queued = self.queued.load(Ordering::Relaxed);
        if self.frames.is_closed() {
            0
        } else {
            queued.saturating_sub(1) / self.limit.max(1)
        }
    }
}

impl<T: Weigh> Stream for Frames<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let frame = std::task::ready!(self.frames.poll_recv(cx));
        if let Some(frame) = &frame {
            let before = self.queued.fetch_sub(frame.weight(), Ordering::Relaxed);
            if before > self.limit && before - frame.weight() <= self.limit {
                self.drained.notify_one();
            }
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_queue_is_bounded_in_bytes_and_refills_as_it_empties() {
        let (queue, mut frames) = bounded::<Bytes>(10, Arc::default());
        assert_eq!(queue.push(Bytes::from_static(b"123456")), Ok(()));
        assert_eq!(queue.push(Bytes::from_static(b"12345")), Err(Full));
        assert_eq!(queue.push(Bytes::from_static(b"1234")), Ok(()));
        assert_eq!(frames.next().await.as_deref(), Some(&b"123456"[..]));
        assert_eq!(queue.push(Bytes::from_static(b"12345")), Ok(()));
    }

    #[tokio::test]
    async fn one_large_frame_passes_an_empty_queue() {
        let (queue, mut frames) = bounded::<Bytes>(2, Arc::default());
        assert_eq!(queue.push(Bytes::from_static(b"large")), Ok(()));
        assert_eq!(queue.push(Bytes::from_static(b"x")), Err(Full));
        assert_eq!(frames.next().await.as_deref(), Some(&b"large"[..]));
    }

    #[tokio::test]
    async fn a_queue_that_was_over_its_limit_tells_when_it_fits_again() {
        let drained = Arc::<Notify>::default();
        let (queue, mut frames) = bounded::<Bytes>(4, Arc::clone(&drained));
        queue.push_over(Bytes::from_static(b"1234"));
        assert_eq!(queue.is_over(), 0);
        queue.push_over(Bytes::from_static(b"56789"));
        assert_eq!(queue.is_over(), 2);
        frames.next().await;
        frames.next().await;
        drained.notified().await;
        assert_eq!(queue.is_over(), 0);
    }
}
