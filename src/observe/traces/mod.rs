//! Decisions to traces: one per epoch, and one per host's request that is sampled. Spans are made whole, with the times
//! of their decisions, and go through a bounded queue to the exporter's own thread: nobody waits for a receiver.

mod calls;
mod epoch;
mod exporter;
mod operation;
mod otlp;
mod sampling;
mod span;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prometheus::IntCounter;
use secrecy::{ExposeSecret as _, SecretString};

use calls::Calls;
pub(super) use epoch::Counts;
use epoch::Epochs;
use exporter::Exporter;
pub use operation::Operation;
pub(super) use operation::{Operations, others};
pub use otlp::Error;
pub use sampling::Sampling;

use crate::engine::decision::Decision;
use crate::ids::{Epoch, OpenEpoch, ServerId};
use crate::wire::jsonrpc::Message;

/// Where traces go, and which requests are traced.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The whole URL for HTTP, the receiver's address for gRPC.
    pub endpoint: String,
    /// How they are sent.
    pub protocol: Protocol,
    /// Sent along, beside those of `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Vec<(String, SecretString)>,
    /// Of one delivery, its retries included.
    pub timeout: Duration,
    /// How long a span waits for others to go with.
    pub delay: Duration,
    /// How many spans wait at most; more are dropped and counted.
    pub queue: usize,
    /// How many go at once.
    pub batch: usize,
    /// Which requests are traced. Epochs always are.
    pub sampling: Sampling,
}

/// How traces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf over HTTP.
    Http,
    /// gRPC.
    Grpc,
}

/// Spans that were dropped, by reason.
#[derive(Clone, Debug)]
pub(super) struct Drops {
    /// The queue was full.
    pub(super) full: IntCounter,
    /// The receiver refused them or could not be reached.
    pub(super) failed: IntCounter,
    /// The receiver did not answer in time.
    pub(super) timeout: IntCounter,
    /// The gateway stopped before they were delivered.
    pub(super) stopped: IntCounter,
}

/// The process's traces. Cheap to clone.
#[derive(Clone)]
pub(super) struct Traces {
    exporter: Arc<Exporter>,
    sampling: Sampling,
}

/// The traces of one server.
pub(super) struct ServerTraces {
    exporter: Arc<Exporter>,
    state: Mutex<State>,
}

struct State {
    epochs: Epochs,
    calls: Calls,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        let headers = |of: &Self| -> Vec<(String, String)> {
            let pair = |(name, value): &(String, SecretString)| {
                (name.clone(), value.expose_secret().to_owned())
            };
            of.headers.iter().map(pair).collect()
        };
        self.endpoint == other.endpoint
            && self.protocol == other.protocol
            && headers(self) == headers(other)
            && (self.timeout, self.delay) == (other.timeout, other.delay)
            && (self.queue, self.batch) == (other.queue, other.batch)
            && self.sampling == other.sampling
    }
}

impl Traces {
    /// Starts the exporter of a gateway of this name.
    ///
    /// # Errors
    /// Where the settings make no exporter, or its thread cannot be started.
    pub(super) fn start(name: &str, settings: &Settings, drops: Drops) -> Result<Self, Error> {
        let exporter = Exporter::start(name, settings, drops)?;
        Ok(Self {
            exporter: Arc::new(exporter),
            sampling: settings.sampling,
        })
    }

    /// The traces of one server.
    pub(super) fn server(&self, id: &ServerId, transport: &'static str) -> ServerTraces {
        let state = State {
            epochs: Epochs::new(id.clone(), transport),
            calls: Calls::new(id.clone(), transport, self.sampling),
        };
        ServerTraces {
            exporter: Arc::clone(&self.exporter),
            state: Mutex::new(state),
        }
    }

    /// The layer for the gateway's own operations.
    pub(super) fn operations(&self) -> Operations {
        operation::layer(Arc::clone(&self.exporter))
    }

    /// Delivers what waits, for at most this long.
    pub(super) async fn stop(&self, within: Duration) {
        self.exporter.stop(within).await;
    }
}

impl ServerTraces {
    /// Takes a decision other than traffic.
    pub(super) fn decided(
        &self,
        at: Instant,
        epoch: Option<Epoch>,
        decision: &Decision,
        counts: impl Fn() -> Counts,
    ) {
        let mut state = self.state();
        state
            .epochs
            .decided(at, epoch, decision, counts, &self.exporter);
    }

    /// The trace of the epoch that is open.
    pub(super) fn open(&self) -> Option<OpenEpoch> {
        self.state().epochs.open()
    }

    /// Nothing of the epoch's transport is left: its root ends.
    pub(super) fn gone(&self, at: Instant, epoch: Epoch, counts: Counts) {
        let mut state = self.state();
        state.calls.clear();
        state.epochs.gone(at, epoch, counts, &self.exporter);
    }

    /// An earlier process died while this epoch was open.
    pub(super) fn died(&self, left: OpenEpoch, now: SystemTime) {
        self.state().epochs.died(left, now, &self.exporter);
    }

    /// Tells of an epoch that stays open.
    pub(super) fn checkpoint(&self, at: Instant, counts: Counts, waiting: (usize, usize)) {
        let mut state = self.state();
        state.epochs.checkpoint(at, counts, waiting, &self.exporter);
    }

    /// A host's request is handled from now on.
    pub(super) fn received(&self, at: Instant, request: &Message) {
        self.state().calls.received(at, request);
    }

    /// It was handled.
    pub(super) fn handled(&self) {
        self.state().calls.handled();
    }

    /// It is sent to the server under this id, as that frame; `None` where its own does.
    pub(super) fn forwarded(&self, at: Instant, id: u64, frame: &Bytes) -> Option<Bytes> {
        let mut state = self.state();
        let open = state.epochs.open();
        state.calls.forwarded(at, id, frame, open)
    }

    /// A host's request is over. `id` is the gateway's, where it was sent.
    pub(super) fn called(&self, at: Instant, id: Option<u64>, error: Option<&str>) {
        let spans = self.state().calls.called(at, id, error);
        for span in spans.into_iter().flatten() {
            self.exporter.export(span);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
