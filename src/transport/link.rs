//! What every transport tells the engine, in the order that [`LinkEvent`] documents: bytes to messages, and ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Events;
use crate::engine::input::{End, Failure, LinkEvent, Loss, Reap};
use crate::ids::Epoch;
use crate::wire::beginning::about_ends;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{About, Message, Unreadable};
use crate::wire::redact::Secrets;

/// R17: a slot is given back after this, however long the launch or connect call goes on.
const SLOT_MAX: Duration = Duration::from_secs(2);
/// A longer message is read on a thread of its own, so that it delays nobody. In bytes.
const READ_HERE_MAX: usize = 1 << 20;

/// One epoch's way to the engine. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Link {
    epoch: Epoch,
    events: Events,
    secrets: Arc<Secrets>,
}

impl Link {
    pub(super) fn new(epoch: Epoch, events: Events, secrets: Secrets) -> Self {
        Self {
            epoch,
            events,
            secrets: Arc::new(secrets),
        }
    }

    /// The same with one more secret.
    pub(super) fn with_secret(&self, secret: &secrecy::SecretString) -> Self {
        let secrets = Arc::new(self.secrets.with(secret));
        Self {
            secrets,
            ..self.clone()
        }
    }

    /// It is open: what must not be shown of it comes first.
    pub(super) async fn tell_connected(&self) {
        self.tell_secrets().await;
        self.tell(LinkEvent::Connected).await;
    }

    pub(super) async fn tell_secrets(&self) {
        self.tell(LinkEvent::Secrets(Arc::clone(&self.secrets)))
            .await;
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Tells it. Waits while the engine's inbox is full; with the engine gone there is nobody to tell.
    pub(super) async fn tell(&self, event: LinkEvent) {
        let _ = self.events.send((self.epoch, event)).await;
    }

    /// Ends when the transport is asked to end, or nobody listens any more.
    pub(super) async fn dismissed(&self, close: &CancellationToken) {
        tokio::select! {
            () = close.cancelled() => {}
            () = self.events.closed() => {}
        }
    }

    pub(super) async fn failed(&self, failure: Failure) {
        self.tell(LinkEvent::Failed(failure)).await;
    }

    pub(super) async fn lost(&self, end: End, stderr: Vec<String>) {
        self.tell(LinkEvent::Lost(Loss { end, stderr })).await;
    }

    pub(super) async fn gone(&self, reap: Reap) {
        self.tell(LinkEvent::Gone(reap)).await;
    }

    /// Reads one line and tells what it is. Blank ones are nothing.
    pub(super) async fn received(&self, line: Bytes) {
        if let Some(event) = self.read(line).await {
            self.tell(event).await;
        }
    }

    /// What one line is; a blank one is nothing.
    pub(super) async fn read(&self, line: Bytes) -> Option<LinkEvent> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        Some(match parsed(line.clone()).await {
            Ok(message) => LinkEvent::Received(message),
            Err(what) => LinkEvent::Unreadable {
                what,
                sample: self.secrets.sample(&line),
            },
        })
    }

    /// Tells of a message whose end never came.
    pub(super) async fn torn(&self, line: &[u8]) {
        if !line.trim_ascii().is_empty() {
            let sample = self.secrets.sample(line);
            self.tell(LinkEvent::Unreadable {
                what: Unreadable::NotJson,
                sample,
            })
            .await;
        }
    }

    /// Tells of a message past the bound (G16), of which these are the beginning and the end; or all, and nothing.
    pub(super) async fn too_long(&self, beginning: Bytes, end: Bytes) {
        let event = self.unread(beginning, end).await;
        self.tell(event).await;
    }

    /// What such a message is.
    pub(super) async fn unread(&self, beginning: Bytes, end: Bytes) -> LinkEvent {
        let sample = self.secrets.sample(&beginning);
        let what = Unreadable::TooLong {
            limit: MESSAGE_MAX,
            about: told(beginning, end).await,
        };
        LinkEvent::Unreadable { what, sample }
    }
}

async fn parsed(line: Bytes) -> Result<Message, Unreadable> {
    if line.len() <= READ_HERE_MAX {
        return Message::parse(line);
    }
    let reading = tokio::task::spawn_blocking(|| Message::parse(line));
    reading.await.unwrap_or(Err(Unreadable::NotJson))
}

async fn told(beginning: Bytes, end: Bytes) -> Option<About> {
    if beginning.len() <= READ_HERE_MAX {
        return about_ends(&beginning, &end);
    }
    let reading = tokio::task::spawn_blocking(move || about_ends(&beginning, &end));
    reading.await.ok().flatten()
}

/// A slot for a launch or connect call, once there is one. Only a closed semaphore has none; then there is no limit.
pub(super) async fn slot(slots: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    slots.acquire_owned().await.ok()
}

/// Runs a launch or connect call, which holds its slot no longer than [`SLOT_MAX`] (R17).
pub(super) async fn holding<T>(
    slot: Option<OwnedSemaphorePermit>,
    call: impl Future<Output = T>,
) -> T {
    let mut call = std::pin::pin!(call);
    if let Ok(done) = tokio::time::timeout(SLOT_MAX, &mut call).await {
        return done;
    }
    drop(slot);
    call.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r17_a_hanging_call_gives_its_slot_back() {
        let slots = Arc::new(Semaphore::new(1));
        let held = slot(Arc::clone(&slots)).await;
        let hanging = tokio::spawn(holding(held, std::future::pending::<()>()));
        tokio::task::yield_now().await;
        assert_eq!(slots.available_permits(), 0);
        let next = slot(slots).await;
        assert_eq!(holding(next, std::future::ready(7)).await, 7);
        hanging.abort();
    }
}
