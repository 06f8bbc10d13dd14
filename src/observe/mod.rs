//! Decisions to telemetry: metrics, log lines, events, traces. The only module that knows their names. A decision
//! comes in at one place (S1) and goes from there to every signal, so no two can disagree.

pub mod events;
pub mod log;
pub mod traces;

mod counters;
mod facts;
mod flood;
mod gateway;
mod gauges;
mod maker;
mod page;
mod tally;
mod traced;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use tracing::Level;

use counters::Counters;
use events::Events;
use flood::{Flood, LeftOut};
use gateway::GatewayMetrics;
use gauges::Instants;
use page::{Page, Row};
use traces::{ServerTraces, Traces};

use crate::engine::decision::Decision;
use crate::engine::snapshot::Snapshot;
use crate::ids::{Epoch, ServerId};

/// The process's telemetry. Cheap to clone.
#[derive(Clone)]
pub struct Observer {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    gateway: Arc<GatewayMetrics>,
    events: Events,
    /// `None` where none are wanted.
    traces: Option<Traces>,
    servers: Mutex<BTreeMap<ServerId, Entry>>,
    listener: Arc<OnceLock<Listener>>,
}

#[derive(Clone)]
struct Entry {
    observer: ServerObserver,
    transport: &'static str,
    protocol: String,
}

/// Hears every decision that is no traffic, at once and in order; must not wait.
pub type Listener = Arc<dyn Fn(&ServerId, &Decision) + Send + Sync>;

/// What became of an edge on its way to a status channel or webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It was taken.
    Delivered,
    /// A try failed; it waits.
    Failed,
    /// Its opposite came before it was told: neither is.
    Cancelled,
    /// There was no room for it, or it is refused for good.
    Dropped,
}

impl Notice {
    /// All, for metrics that exist from the start.
    const ALL: [Self; 4] = [
        Self::Delivered,
        Self::Failed,
        Self::Cancelled,
        Self::Dropped,
    ];

    /// As metrics and traces name it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
        }
    }
}

/// The kind of what is told of decisions that were not told one by one.
const LEFT_OUT: &str = "left-out";

/// One line of the log and of the event stream.
struct Told<'a> {
    epoch: Option<Epoch>,
    attempt: u64,
    /// The epoch's, where it is traced.
    trace: Option<&'a str>,
    kind: &'static str,
    text: &'a str,
    fields: &'a Value,
}

/// One server's telemetry. Cheap to clone.
#[derive(Clone)]
pub struct ServerObserver {
    server: Arc<Server>,
}

struct Server {
    id: ServerId,
    instants: Instants,
    counters: Counters,
    events: Events,
    listener: Arc<OnceLock<Listener>>,
    flood: Flood,
    traces: Option<ServerTraces>,
    /// The last attempt that a decision named, for those that name none.
    attempt: AtomicU64,
}

impl Observer {
    /// For a gateway of this name, without traces.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let registry = Registry::new();
        let gateway = GatewayMetrics::new(&registry, name);
        Self::of(registry, gateway, None)
    }

    /// For a gateway of this name whose traces go where the settings say.
    ///
    /// # Errors
    /// Where the settings make no exporter, or its thread cannot be started.
    pub fn tracing(name: &str, settings: &traces::Settings) -> Result<Self, traces::Error> {
        let registry = Registry::new();
        let gateway = GatewayMetrics::new(&registry, name);
        let traces = Traces::start(name, settings, gateway.lost_spans())?;
        Ok(Self::of(registry, gateway, Some(traces)))
    }

    fn of(registry: Registry, gateway: GatewayMetrics, traces: Option<Traces>) -> Self {
        let events = Events::new(gateway.lagged_streams());
        let shared = Shared {
            registry,
            gateway: Arc::new(gateway),
            events,
            traces,
            servers: Mutex::default(),
            listener: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes every series of a server exist, at 0; one that is known already keeps its counts. `transport` and
    /// `protocol` are the labels of `tidegate_server_info`.
    #[must_use]
    pub fn server(&self, id: &ServerId, transport: &'static str, protocol: &str) -> ServerObserver {
        let mut servers = self.shared.servers();
        let entry = servers
            .entry(id.clone())
            .or_insert_with(|| self.shared.entry(id, transport));
        entry.transport = transport;
        entry.protocol = protocol.to_owned();
        entry.observer.clone()
    }

    /// Takes a removed server's series away.
    pub fn forget(&self, id: &ServerId) {
        let gone = self.shared.servers().remove(id);
        if let Some(Entry { observer, .. }) = gone {
            observer.tell_left_out(None);
        }
    }

    /// Tells how much was not told one by one, in each minute that is over by `now`, or in all. To be called often.
    pub fn tell_left_out(&self, now: Option<Instant>) {
        for Entry { observer, .. } in self.shared.entries() {
            observer.tell_left_out(now);
        }
    }

    /// The text of `/metrics`: of the servers, as these snapshots have them.
    #[must_use]
    pub fn metrics(&self, snapshots: &[(ServerId, Arc<Snapshot>)]) -> String {
        self.shared.gateway.lost_lines(log::take_dropped());
        let queued = snapshots.iter().map(|(_, view)| view.queued_bytes);
        self.shared.gateway.queued(queued.sum());
        let text = TextEncoder::new().encode_to_string(&self.shared.registry.gather());
        let (now, unknown) = (gauges::now(), Snapshot::default());
        let servers = self.shared.entries();
        let snapshots: BTreeMap<_, _> = snapshots.iter().map(|(id, view)| (id, &**view)).collect();
        let rows = servers.iter().map(|entry| {
            let snapshot = snapshots.get(&entry.observer.server.id).copied();
            if let Some(snapshot) = snapshot {
                entry.observer.server.instants.restore(snapshot, now);
            }
            let snapshot = snapshot.unwrap_or(&unknown);
            Row { entry, snapshot }
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let mut page = Page::new(text.unwrap_or_default(), &rows);
        Counters::write(&mut page);
        gauges::write(&mut page, now);
        page.finish()
    }

    /// The event stream.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Who hears every decision; the first that asks.
    pub fn listen(&self, listener: Listener) {
        // There is one of them in a process.
        let _ = self.shared.listener.set(listener);
    }

    /// What became of an edge on its way to a `status_channel` or `webhook`.
    pub fn noticed(&self, outlet: &'static str, notice: Notice) {
        self.shared.gateway.noticed(outlet, notice);
    }

    /// A host or client opened a session on this face.
    pub fn session_opened(&self, face: &'static str) {
        self.shared.gateway.session_opened(face);
    }

    /// A session on this face ended.
    pub fn session_closed(&self, face: &'static str) {
        self.shared.gateway.session_closed(face);
    }

    /// The configuration was loaded, at the start or again, and could be used or not.
    pub fn reloaded(&self, usable: bool) {
        self.shared.gateway.reloaded(usable);
    }

    /// The file could not be used when it was last loaded, so that an older one holds.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.shared.gateway.is_stale()
    }

    /// The gateway's own loop woke this late.
    pub fn loop_lag(&self, late: Duration) {
        self.shared.gateway.lag(late);
    }

    /// What all servers together may hold and keep, in bytes (G6).
    pub fn queue_limit(&self, bytes: usize) {
        self.shared.gateway.queue_limit(bytes);
    }

    /// Whether the state directory cannot be written.
    pub fn journal_failing(&self, failing: bool) {
        self.shared.gateway.journal_failing(failing);
    }
}

impl Shared {
    fn servers(&self) -> MutexGuard<'_, BTreeMap<ServerId, Entry>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every server's, by its id. Who works with them does not hold up who adds one.
    fn entries(&self) -> Vec<Entry> {
        self.servers().values().cloned().collect()
    }

    fn entry(&self, id: &ServerId, transport: &'static str) -> Entry {
        let server = Server {
            id: id.clone(),
            instants: Instants::default(),
            counters: Counters::new(transport, Arc::clone(&self.gateway)),
            events: self.events.clone(),
            listener: Arc::clone(&self.listener),
            flood: Flood::default(),
            traces: self
                .traces
                .as_ref()
                .map(|traces| traces.server(id, transport)),
            attempt: AtomicU64::new(0),
        };
        let server = Arc::new(server);
        Entry {
            observer: ServerObserver { server },
            transport,
            protocol: String::new(),
        }
    }
}

impl ServerObserver {
    fn tell_left_out(&self, now: Option<Instant>) {
        for left in self.server.flood.end_windows(now) {
            self.server.tell_left_out(left);
        }
    }

    /// Tells a decision of now to every signal.
    pub fn decided(&self, epoch: Option<Epoch>, decision: &Decision) {
        self.decided_at(Instant::now(), epoch, decision);
    }

    /// Tells one decision to every signal.
    pub fn decided_at(&self, at: Instant, epoch: Option<Epoch>, decision: &Decision) {
        let server = &*self.server;
        server.counters.count(decision);
        if decision.is_traffic() {
            return self.traffic(at, decision);
        }
        server.instants.note(decision);
        if let Some(listener) = server.listener.get() {
            listener(&server.id, decision);
        }
        let facts = facts::facts(decision);
        if let Some(attempt) = facts.attempt {
            server.attempt.store(attempt, Ordering::Relaxed);
        }
        if !server.flood.admits(decision, Instant::now()) {
            return;
        }
        let trace = self.traced(at, epoch, decision);
        let told = Told {
            epoch,
            attempt: server.attempt.load(Ordering::Relaxed),
            trace: trace.as_deref(),
            kind: decision.kind(),
            text: &decision.to_string(),
            fields: &facts.fields,
        };
        server.tell(facts.level, &told);
    }
}

impl Server {
    /// Logs it and streams it.
    fn tell(&self, level: Level, told: &Told<'_>) {
        log::tell(level, &self.id, told);
        self.events.push(&self.id, told);
    }

    /// What was not told in a window that is over.
    fn tell_left_out(&self, left: LeftOut) {
        let LeftOut {
            sort: (kind, what),
            decisions,
            messages,
        } = left;
        let gap = if what.is_empty() { "" } else { " " };
        let told = Told {
            epoch: None,
            attempt: self.attempt.load(Ordering::Relaxed),
            trace: None,
            kind: LEFT_OUT,
            text: &format!("{decisions} more of {kind}{gap}{what} within a minute were not told"),
            fields: &json!({ "of": kind, "what": what, "decisions": decisions, "messages": messages }),
        };
        self.tell(Level::WARN, &told);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerObserver")
            .field(&self.server.id)
            .finish()
    }
}
