//! The queue towards one peer: bounded in bytes, filled by the engine's owner without waiting, emptied by the task that
//! writes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;

/// The end that is filled.
#[derive(Clone, Debug)]
pub(super) struct Outbound<T> {
    frames: mpsc::UnboundedSender<T>,
    queued: Arc<AtomicUsize>,
    limit: usize,
}

/// The end that is emptied.
#[derive(Debug)]
pub(super) struct Frames<T> {
    frames: mpsc::UnboundedReceiver<T>,
    queued: Arc<AtomicUsize>,
}

/// What takes room in a queue.
pub(super) trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

impl Weigh for Bytes {
    fn weight(&self) -> usize {
        self.len()
    }
}

/// The frame did not fit, or nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A queue of at most `limit` bytes. A single frame may be larger where the queue is empty.
pub(super) fn bounded<T>(limit: usize) -> (Outbound<T>, Frames<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let frames = Frames { frames: receiver, queued: Arc::clone(&queued) };
    (Outbound { frames: sender, queued, limit }, frames)
}

impl<T: Weigh> Outbound<T> {
    /// Queues a frame.
    ///
    /// # Errors
    /// [`Full`] where the frame does not fit; it is dropped then.
    pub(super) fn push(&self, frame: T) -> Result<(), Full> {
        let weight = frame.weight();
        let queued = self.queued.load(Ordering::Relaxed);
        if queued > 0 && queued.saturating_add(weight) > self.limit {
            return Err(Full);
        }
        self.queued.fetch_add(weight, Ordering::Relaxed);
        self.frames.send(frame).map_err(|_| Full)
    }
}

impl<T: Weigh> Stream for Frames<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let frame = std::task::ready!(self.frames.poll_recv(cx));
        if let Some(frame) = &frame {
            self.queued.fetch_sub(frame.weight(), Ordering::Relaxed);
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
        let (queue, mut frames) = bounded::<Bytes>(10);
        assert_eq!(queue.push(Bytes::from_static(b"123456")), Ok(()));
        assert_eq!(queue.push(Bytes::from_static(b"12345")), Err(Full));
        assert_eq!(queue.push(Bytes::from_static(b"1234")), Ok(()));
        assert_eq!(frames.next().await.as_deref(), Some(&b"123456"[..]));
        assert_eq!(queue.push(Bytes::from_static(b"12345")), Ok(()));
    }

    #[tokio::test]
    async fn one_large_frame_passes_an_empty_queue() {
        let (queue, mut frames) = bounded::<Bytes>(2);
        assert_eq!(queue.push(Bytes::from_static(b"large")), Ok(()));
        assert_eq!(queue.push(Bytes::from_static(b"x")), Err(Full));
        assert_eq!(frames.next().await.as_deref(), Some(&b"large"[..]));
    }
}
