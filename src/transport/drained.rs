//! The point in a pipe up to which its writer wrote before it exited. What lies before it is told before the loss,
//! what lies behind it is late (G7); it does not matter who else still holds the pipe open.

use std::os::fd::AsFd;

use tokio::io::AsyncRead;
use tokio::sync::oneshot;

use super::lines::Lines;

/// The supervisor's end: says that the child exited, and hears that the pipe is read up to there.
#[derive(Debug)]
pub(super) struct Drain {
    exited: Option<oneshot::Sender<()>>,
    read: oneshot::Receiver<()>,
}

impl Drain {
    /// Waits until all that lay in the pipe when this was called has been told.
    pub(super) async fn finish(&mut self) {
        if let Some(exited) = self.exited.take() {
            let _ = exited.send(());
            // A reader that is gone has read everything.
            let _ = (&mut self.read).await;
        }
    }
}

/// The reader's end.
#[derive(Debug)]
pub(super) struct Drained {
    exited: Option<oneshot::Receiver<()>>,
    read: Option<oneshot::Sender<()>>,
    /// How much has to be consumed, once the child exited.
    until: Option<u64>,
}

/// Both ends.
pub(super) fn drain() -> (Drain, Drained) {
    let (exited, hears_exit) = oneshot::channel();
    let (says_read, read) = oneshot::channel();
    let drain = Drain {
        exited: Some(exited),
        read,
    };
    (
        drain,
        Drained {
            exited: Some(hears_exit),
            read: Some(says_read),
            until: None,
        },
    )
}

impl Drained {
    /// Ends when the child has exited, once. [`Self::mark`] comes next.
    pub(super) async fn exited(&mut self) {
        let Some(exited) = &mut self.exited else {
            return std::future::pending().await;
        };
        let _ = exited.await;
        self.exited = None;
    }

    /// Sets the mark at the end of what the pipe holds now.
    pub(super) fn mark<R: AsyncRead + AsFd + Unpin>(&mut self, lines: &Lines<R>) {
        let pending = rustix::io::ioctl_fionread(lines.reader()).unwrap_or(0);
        self.until = Some(lines.consumed().saturating_add(pending));
    }

    /// Says that the mark is reached, if it is.
    pub(super) fn note<R: AsyncRead + Unpin>(&mut self, lines: &Lines<R>) {
        let reached = self.until.is_some_and(|until| lines.consumed() >= until);
        if reached && !lines.holds_line() {
            self.until = None;
            let _ = self.read.take().map(|read| read.send(()));
        }
    }
}
