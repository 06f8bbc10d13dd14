//! One session: where its messages go, whose it is, and the task that puts what it is sent on its streams.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::streams::{Crowded, Streams};
use crate::engine::input::HostEvent;
use crate::engine::output::Regards;
use crate::face::access::Access;
use crate::face::{Inbound, Outgoing, head};
use crate::wire::mcp::Revision;

/// How long a client may leave unread what has no room any more (G16).
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Who may use a session: whoever has the token that made it, and on that path alone.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// `None` is all servers.
    pub(super) server: Option<String>,
    /// `None` where no tokens are configured.
    pub(super) token: Option<SecretString>,
}

impl Owner {
    pub(super) fn is(&self, server: Option<&str>, token: Option<&str>) -> bool {
        let is_theirs = match (&self.token, token) {
            (Some(own), Some(sent)) => head::is_same(own, sent),
            (own, _) => own.is_none(),
        };
        is_theirs && self.server.as_deref() == server
    }

    /// Whether both have the same token.
    pub(super) fn shares_token(&self, other: &Self) -> bool {
        self.token() == other.token()
    }

    fn token(&self) -> Option<&str> {
        self.token.as_ref().map(ExposeSecret::expose_secret)
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Session<I> {
    pub(super) owner: Owner,
    pub(super) inbound: I,
    pub(super) streams: Arc<Streams>,
    /// What the ids of its events begin with, so that another session's are known as such.
    pub(super) tag: String,
    revision: OnceLock<Revision>,
    /// When a request last named it.
    used: Mutex<Instant>,
    /// Why the gateway closed it: a WebSocket close code and its reason.
    closed: OnceLock<(u16, &'static str)>,
    over: CancellationToken,
}

impl<I: Inbound> Session<I> {
    pub(super) fn new(owner: Owner, inbound: I, tag: String) -> Arc<Self> {
        Arc::new(Self {
            owner,
            inbound,
            streams: Streams::new(),
            tag,
            revision: OnceLock::new(),
            used: Mutex::new(Instant::now()),
            closed: OnceLock::new(),
            over: CancellationToken::new(),
        })
    }

    /// What the client speaks: the oldest until `initialize` has settled it.
    pub(super) fn revision(&self) -> Revision {
        let oldest = Revision::V2024_11_05;
        self.revision.get().copied().unwrap_or(oldest)
    }

    pub(super) fn speaks(&self, revision: Revision) {
        // `initialize` is answered once.
        let _ = self.revision.set(revision);
    }

    /// A request names it.
    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Since when nobody reads, asks or waits; `None` where somebody does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.streams.is_idle().then_some(used)
    }

    /// Whether the token that made it is still good for its server.
    pub(super) fn is_permitted(&self, access: &Access) -> bool {
        access
            .identify(self.owner.token(), self.owner.server.as_deref())
            .is_ok()
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// Whether it ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Why the gateway closed it, where it did.
    pub(super) fn closed(&self) -> Option<(u16, &'static str)> {
        self.closed.get().copied()
    }

    /// Puts what the client is sent on its streams until the session ends.
    pub(super) async fn run(&self, mut outbound: impl Stream<Item = Outgoing> + Send + Unpin) {
        let over = self.over.cancelled();
        tokio::pin!(over);
        let why = loop {
            let outgoing = tokio::select! {
                outgoing = outbound.next() => outgoing,
                () = &mut over => break "its session ended",
            };
            let is_read = match outgoing {
                Some(Outgoing::Frame(frame)) => self.put(None, frame).await,
                Some(Outgoing::Regarding(regards, frame)) => self.put(Some(regards), frame).await,
                Some(Outgoing::Close { code, reason }) => {
                    let _ = self.closed.set((code, reason));
                    break reason;
                }
                None => break "the gateway is stopping",
            };
            if !is_read {
                break "its client does not read";
            }
        };
        self.over.cancel();
        self.streams.end(&format!(
            "there is no answer, for {why}; the call may have run"
        ));
        self.inbound.send(HostEvent::Detached).await;
    }

    /// Waits for a client that reads too slowly; `false` where it does not, or misses what it has to answer.
    async fn put(&self, mut regards: Option<Regards>, mut frame: Bytes) -> bool {
        let end = Instant::now() + UNREAD_MAX;
        while let Err(Crowded(known, back)) = self.streams.place(regards, frame) {
            if timeout_at(end, self.streams.room()).await.is_err() {
                return false;
            }
            (regards, frame) = (known, back);
        }
        let missed = self.streams.take_missed();
        if missed > 0 {
            self.inbound.send(HostEvent::Missed(missed)).await;
        }
        !self.streams.is_unheard()
    }
}
