//! Delivers spans: a bounded queue that is filled without waiting, and a thread of its own that empties it in batches.
//! A receiver that is slow, gone or speaks garbage costs spans, which are counted, and nobody's time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Drops, Error, Settings, otlp};

/// What an exporter may take beyond its own limit before it is given up.
const GRACE: Duration = Duration::from_secs(1);

/// The end that is filled.
pub(super) struct Exporter {
    spans: mpsc::Sender<SpanData>,
    /// Taken and not yet delivered or dropped.
    pending: Arc<AtomicU64>,
    drops: Drops,
    stop: CancellationToken,
    /// The worker has ended.
    done: watch::Receiver<bool>,
}

/// The end that is emptied.
struct Worker {
    spans: mpsc::Receiver<SpanData>,
    exporter: SpanExporter,
    settings: Settings,
    pending: Arc<AtomicU64>,
    drops: Drops,
    stop: CancellationToken,
    /// The last delivery failed, and that was told.
    failing: bool,
}

impl Exporter {
    /// Starts the thread.
    pub(super) fn start(name: &str, settings: &Settings, drops: Drops) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let exporter = {
            let _inside = runtime.enter();
            otlp::exporter(name, settings)?
        };
        let (spans, queue) = mpsc::channel(settings.queue);
        let (finished, done) = watch::channel(false);
        let stop = CancellationToken::new();
        let pending = Arc::<AtomicU64>::default();
        let worker = Worker {
            spans: queue,
            exporter,
            settings: settings.clone(),
            pending: Arc::clone(&pending),
            drops: drops.clone(),
            stop: stop.clone(),
            failing: false,
        };
        std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || {
                runtime.block_on(worker.run());
                finished.send_replace(true);
            })?;
        Ok(Self {
            spans,
            pending,
            drops,
            stop,
            done,
        })
    }

    /// Takes a span, or drops and counts it where there is no room.
    pub(super) fn export(&self, span: SpanData) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        if self.spans.try_send(span).is_err() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.drops.full.inc();
        }
    }

    /// Delivers what waits, for at most this long, and takes nothing more. What is left is counted and told.
    pub(super) async fn stop(&self, within: Duration) {
        self.stop.cancel();
        let mut done = self.done.clone();
        let ended = done.wait_for(|done| *done);
        if tokio::time::timeout(within, ended).await.is_ok() {
            return;
        }
        let left = self.pending.load(Ordering::Relaxed);
        self.drops.stopped.inc_by(left);
        tracing::warn!("the receiver of traces did not take the last {left} spans in time");
    }
}

impl Worker {
    async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            self.deliver(batch).await;
        }
        self.spans.close();
        let mut rest = Vec::new();
        while self.spans.recv_many(&mut rest, self.settings.batch).await > 0 {
            self.deliver(std::mem::take(&mut rest)).await;
        }
    }

    /// The next batch: what comes within a moment of its first span. `None` at the end.
    async fn gather(&mut self) -> Option<Vec<SpanData>> {
        let stop = self.stop.clone();
        let first = tokio::select! {
            () = stop.cancelled() => return None,
            span = self.spans.recv() => span?,
        };
        let mut batch = vec![first];
        let due = tokio::time::sleep(self.settings.delay);
        tokio::pin!(due);
        while batch.len() < self.settings.batch {
            let room = self.settings.batch - batch.len();
            tokio::select! {
                () = stop.cancelled() => break,
                () = &mut due => break,
                more = self.spans.recv_many(&mut batch, room) => if more == 0 { break },
            }
        }
        Some(batch)
    }

    async fn deliver(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        let within = self.settings.timeout + GRACE;
        let sent = tokio::time::timeout(within, self.exporter.export(batch)).await;
        let sent = sent.unwrap_or(Err(OTelSdkError::Timeout(within)));
        self.pending.fetch_sub(spans, Ordering::Relaxed);
        match &sent {
            Ok(()) => {}
            Err(OTelSdkError::Timeout(_)) => self.drops.timeout.inc_by(spans),
            Err(OTelSdkError::AlreadyShutdown | OTelSdkError::InternalFailure(_)) => {
                self.drops.failed.inc_by(spans);
            }
        }
        self.tell(sent.is_err());
    }

    /// Once when deliveries begin to fail, and once when they are back. A receiver's own words stay out of the log.
    fn tell(&mut self, failing: bool) {
        if std::mem::replace(&mut self.failing, failing) == failing {
            return;
        }
        if failing {
            tracing::warn!(
                "the receiver of traces does not take them; spans are dropped and counted"
            );
        } else {
            tracing::info!("the receiver of traces takes them again");
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}
