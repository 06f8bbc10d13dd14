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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::SystemTime;

    use opentelemetry::trace::SpanKind;
    use prometheus::IntCounter;

    use super::super::{Protocol, Sampling, span};
    use super::*;

    const SPANS: u64 = 100;
    const PATIENCE: Duration = Duration::from_secs(60);

    fn drops() -> Drops {
        let counter = || IntCounter::new("dropped", "For a test.").unwrap();
        Drops {
            full: counter(),
            failed: counter(),
            timeout: counter(),
            stopped: counter(),
        }
    }

    #[tokio::test]
    async fn a_receiver_that_hangs_holds_up_nobody_and_every_span_that_it_misses_is_counted() {
        // Connections wait in its backlog for ever.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = Settings {
            endpoint: format!("http://{}/v1/traces", silent.local_addr().unwrap()),
            protocol: Protocol::Http,
            headers: Vec::new(),
            timeout: Duration::from_millis(50),
            delay: Duration::ZERO,
            queue: 4,
            batch: 1,
            sampling: Sampling::default(),
        };
        let drops = drops();
        let exporter = Exporter::start("gw-1", &settings, drops.clone()).unwrap();
        let now = SystemTime::now();
        for _ in 0..SPANS {
            let ids = span::ids(None);
            exporter.export(span::span("x", SpanKind::Internal, ids, (now, now)));
        }
        assert!(drops.full.get() > 0, "the queue takes four");
        assert!(exporter.pending.load(Ordering::Relaxed) <= SPANS - drops.full.get());
        exporter.stop(PATIENCE).await;
        let counted = drops.full.get() + drops.failed.get() + drops.timeout.get();
        assert_eq!((counted, drops.stopped.get()), (SPANS, 0));
    }
}
