//! What the observer has to say to traces and of them, where traces are wanted. Nothing here costs anything where they
//! are not.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::traces::{Operations, Traces};
use super::{Observer, ServerObserver};
use crate::engine::decision::Decision;
use crate::engine::snapshot::{QueueView, Snapshot};
use crate::ids::{Epoch, OpenEpoch, ServerId};
use crate::wire::jsonrpc::Message;

impl Observer {
    /// The trace of a server's epoch that is open, as 32 digits; `None` where there is none, or none are wanted.
    #[must_use]
    pub fn trace_id(&self, id: &ServerId) -> Option<String> {
        let servers = self.shared.servers();
        let open = servers.get(id)?.observer.open_epoch()?;
        Some(open.span.trace_id())
    }

    /// Tells in traces of every epoch that stays open, as these snapshots have it.
    pub fn checkpoint(&self, snapshots: &[(ServerId, Arc<Snapshot>)]) {
        let servers = self.shared.servers();
        for (id, snapshot) in snapshots {
            if let Some(entry) = servers.get(id) {
                entry.observer.checkpoint(snapshot);
            }
        }
    }

    /// What takes the gateway's own operations out of the process's subscriber; `None` where there are no traces.
    pub(super) fn operations(&self) -> Option<Operations> {
        self.shared.traces.as_ref().map(Traces::operations)
    }

    /// Delivers the spans that wait, for at most this long, and takes no more.
    pub async fn stop_traces(&self, within: Duration) {
        if let Some(traces) = &self.shared.traces {
            traces.stop(within).await;
        }
    }
}

impl ServerObserver {
    /// The epoch whose root span has not ended: what a later process needs to end it.
    #[must_use]
    pub fn open_epoch(&self) -> Option<OpenEpoch> {
        self.server.traces.as_ref()?.open()
    }

    /// Nothing of an epoch's transport is left.
    pub fn epoch_gone(&self, at: Instant, epoch: Epoch) {
        if let Some(traces) = &self.server.traces {
            traces.gone(at, epoch, self.server.counters.counts());
        }
    }

    /// An earlier process died while this epoch was open.
    pub fn epoch_died(&self, left: OpenEpoch) {
        if let Some(traces) = &self.server.traces {
            traces.died(left, SystemTime::now());
        }
    }

    /// A host's request is handled from now on.
    pub fn received(&self, at: Instant, request: &Message) {
        if let Some(traces) = &self.server.traces {
            traces.received(at, request);
        }
    }

    /// What was received is handled.
    pub fn handled(&self) {
        if let Some(traces) = &self.server.traces {
            traces.handled();
        }
    }

    /// It is sent to the server under this id: the frame to send, with the trace's context where it is traced.
    #[must_use]
    pub fn forwarded(&self, at: Instant, id: u64, frame: Bytes) -> Bytes {
        let traces = self.server.traces.as_ref();
        let traced = traces.and_then(|traces| traces.forwarded(at, id, &frame));
        traced.unwrap_or(frame)
    }

    pub(super) fn traffic(&self, at: Instant, decision: &Decision) {
        if let (Some(traces), Decision::Called { id, error, .. }) = (&self.server.traces, decision)
        {
            traces.called(at, *id, error.as_deref());
        }
    }

    /// Tells a decision to the epoch's trace, and which that is.
    pub(super) fn traced(
        &self,
        at: Instant,
        epoch: Option<Epoch>,
        decision: &Decision,
    ) -> Option<String> {
        let server = &*self.server;
        let traces = server.traces.as_ref()?;
        traces.decided(at, epoch, decision, || server.counters.counts());
        let open = traces.open()?;
        let its = epoch.is_none_or(|epoch| epoch == open.epoch);
        its.then(|| open.span.trace_id())
    }

    fn checkpoint(&self, snapshot: &Snapshot) {
        let server = &*self.server;
        if let Some(traces) = &server.traces {
            let messages = |queue: &QueueView| queue.requests + queue.notifications;
            let waiting = (messages(&snapshot.held), messages(&snapshot.kept));
            traces.checkpoint(Instant::now(), server.counters.counts(), waiting);
        }
    }
}
