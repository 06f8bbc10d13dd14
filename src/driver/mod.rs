//! The shell around the engine: one task owns each server's engine, carries out what it asks for, and tells it what
//! happened and when. It decides nothing.

pub mod aggregate;
mod budget;
mod link;
mod outbound;
mod patience;
mod server;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use crate::aggregate::default_prefix;
use crate::config::diff::{Change, Difference};
use crate::config::{Entry, Server as Configured};
use crate::engine::input::{HostEvent, Input, Operator, Resumed, Stop};
use crate::engine::output::Posted;
use crate::engine::snapshot::Snapshot;
use crate::face::{self, Outgoing, Refusal};
use crate::ids::{ServerId, SessionId};
use crate::journal::Journal;
use crate::observe::Observer;
use crate::transport::LAUNCHES_MAX;

use budget::Budget;
use outbound::{Outbound, Weigh};

pub use outbound::Frames;

/// How many host and client sessions one server takes.
const SESSIONS_MAX: usize = 2_000;
/// Inputs of one kind that may wait for an engine's owner; a peer that sends more waits.
const INPUTS_MAX: usize = 256;
/// What may wait for one host, in bytes (G16).
const HOST_BYTES_MAX: usize = 8 << 20;

/// A running gateway. Cheap to clone; for admin, faces and the demo.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
    /// The label under which sessions that are opened through this handle are counted.
    face: &'static str,
}

struct Shared {
    journal: Journal,
    observer: Observer,
    launches: Arc<Semaphore>,
    budget: Arc<Budget>,
    sessions: AtomicU64,
    servers: RwLock<Vec<Handle>>,
    /// For those that have a session with every server.
    roster: watch::Sender<Roster>,
}

/// The servers that run.
#[derive(Clone, Debug, Default)]
struct Roster {
    members: Arc<[Member]>,
    /// The gateway stops: no session comes back.
    is_stopping: bool,
}

/// A server that runs, as far as who has sessions with all of them must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    id: ServerId,
    /// What stands before its names where all servers are listed together.
    prefix: Box<str>,
}

/// What the gateway holds of one server's task.
#[derive(Clone)]
struct Handle {
    info: ServerInfo,
    control: mpsc::Sender<Control>,
    hosts: mpsc::Sender<Arrival>,
    /// Told when a host's queue fits again.
    drained: Arc<Notify>,
    flags: Arc<Flags>,
}

/// What is read of a server's task without asking it.
#[derive(Debug, Default)]
struct Flags {
    attempted: AtomicBool,
    sessions: AtomicUsize,
}

/// What does not change while a server's entry stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its id.
    pub id: ServerId,
    /// `stdio` or `websocket`; `none` for a refused entry.
    pub transport: &'static str,
    /// The `protocol` field of its entry.
    pub protocol: String,
}

/// No server of that name is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no server `{0}` is configured")]
pub struct UnknownServer(pub String);

/// What the gateway asks of a server's task.
enum Control {
    /// Tell the engine what an operator asks for; answered once it was handled.
    Operate(Operator, oneshot::Sender<()>),
    /// Make transports from this entry from now on, and tell the engine.
    Entry(Box<Entry>, Vec<Input>),
    /// Have a text posted into a channel; answered with what became of it.
    Publish {
        channel: String,
        text: String,
        done: oneshot::Sender<Posted>,
    },
    /// Stop; answered when nothing of the transport is left, with the processes that could not be ended.
    Stop(Stop, oneshot::Sender<Vec<u32>>),
    /// Tell what the server is like.
    Snapshot(oneshot::Sender<Snapshot>),
}

/// What comes from the faces.
enum Arrival {
    /// A session opens.
    Opened {
        session: SessionId,
        host: Option<String>,
        outbound: Outbound<Outgoing>,
    },
    /// Something happened to it.
    Event {
        session: SessionId,
        event: HostEvent,
    },
}

impl Weigh for Outgoing {
    fn weight(&self) -> usize {
        match self {
            Self::Frame(frame) | Self::Regarding(_, frame) => frame.len(),
            Self::Close { .. } => 0,
        }
    }
}

impl Gateway {
    /// Starts every configured server in tasks of its own. All together hold and keep `max_queued_bytes` (G6).
    #[must_use]
    pub fn start(
        servers: &[Configured],
        max_queued_bytes: usize,
        journal: Journal,
        observer: Observer,
    ) -> Self {
        observer.queue_limit(max_queued_bytes);
        let shared = Shared {
            journal,
            observer,
            launches: Arc::new(Semaphore::new(LAUNCHES_MAX)),
            budget: Budget::new(max_queued_bytes),
            sessions: AtomicU64::new(1),
            servers: RwLock::default(),
            roster: watch::Sender::new(roster(servers, &Roster::default())),
        };
        let gateway = Self {
            shared: Arc::new(shared),
            face: "websocket",
        };
        let gone = |id: &ServerId| servers.iter().all(|server| server.id != *id);
        let remembered = gateway.shared.journal.servers();
        remembered
            .iter()
            .filter(|id| gone(id))
            .for_each(|id| server::let_go(id, &gateway.shared));
        *gateway.write() = servers.iter().map(|server| gateway.spawn(server)).collect();
        gateway
    }

    /// The same gateway for another face: the label under which its sessions are counted.
    #[must_use]
    pub fn for_face(&self, face: &'static str) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared, face }
    }

    /// The configured servers, in the file's order.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerInfo> {
        self.handles()
            .into_iter()
            .map(|handle| handle.info)
            .collect()
    }

    /// A view of one server, as of now.
    ///
    /// # Errors
    /// Where no such server is configured.
    pub async fn snapshot(&self, server: &str) -> Result<Arc<Snapshot>, UnknownServer> {
        let handle = self
            .handle(server)
            .ok_or_else(|| UnknownServer(server.into()))?;
        handle
            .snapshot()
            .await
            .ok_or_else(|| UnknownServer(server.into()))
    }

    /// A view of every server, as of now, in the file's order.
    pub async fn snapshots(&self) -> Vec<(ServerInfo, Arc<Snapshot>)> {
        let views = self.handles().into_iter().map(|handle| async move {
            let snapshot = handle.snapshot().await?;
            Some((handle.info, snapshot))
        });
        join_all(views).await.into_iter().flatten().collect()
    }

    /// Asks one server's engine for something. Returns once it was handled.
    ///
    /// # Errors
    /// Where no such server is configured.
    pub async fn operate(&self, server: &str, command: Operator) -> Result<(), UnknownServer> {
        let handle = self
            .handle(server)
            .ok_or_else(|| UnknownServer(server.into()))?;
        let (done, handled) = oneshot::channel();
        let _ = handle.control.send(Control::Operate(command, done)).await;
        handled.await.map_err(|_| UnknownServer(server.into()))
    }

    /// Posts a text into a channel of a server, as the gateway's own request.
    pub async fn publish(&self, server: &ServerId, channel: &str, text: &str) -> Posted {
        let gone = || Posted::NotSent("no such server is configured".into());
        let Some(handle) = self.handle(server.as_str()) else {
            return gone();
        };
        let (done, posted) = oneshot::channel();
        let publish = Control::Publish {
            channel: channel.to_owned(),
            text: text.to_owned(),
            done,
        };
        if handle.control.send(publish).await.is_err() {
            return gone();
        }
        posted.await.unwrap_or_else(|_| gone())
    }

    /// Whether every server's first attempt has come to something (`/startupz`).
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.handles()
            .iter()
            .all(|handle| handle.flags.attempted.load(Ordering::Relaxed))
    }

    /// Carries out the difference to a new configuration. An entry that became unusable leaves its running server as it
    /// is, and the caller reports it: nothing is torn down for a mistake (R9).
    pub async fn apply(&self, servers: &[Configured], difference: &Difference) {
        join_all(difference.removed.iter().map(|id| self.remove(id))).await;
        let mut handles = Vec::with_capacity(servers.len());
        for server in servers {
            let change = difference.changed.iter().find(|(id, _)| *id == server.id);
            handles.push(match (self.handle(server.id.as_str()), change) {
                (None, _) => self.spawn(server),
                (Some(handle), None) => handle,
                (Some(handle), Some((_, change))) => handle.changed(server, *change).await,
            });
        }
        *self.write() = handles;
        self.shared
            .roster
            .send_modify(|old| *old = roster(servers, old));
    }

    /// All servers together hold and keep so much from now on (G6). What they have stays.
    pub fn limit_queues(&self, max_queued_bytes: usize) {
        self.shared.budget.set(max_queued_bytes);
        self.shared.observer.queue_limit(max_queued_bytes);
    }

    /// Stops every server, bounded by `within`; says which processes are left.
    pub async fn shutdown(&self, within: Duration) -> Vec<u32> {
        let handles = self.handles();
        self.shared
            .roster
            .send_modify(|roster| roster.is_stopping = true);
        let stops = join_all(handles.iter().map(|handle| handle.stop(Stop::Shutdown)));
        let left = tokio::time::timeout(within, stops).await;
        left.unwrap_or_default().into_iter().flatten().collect()
    }

    async fn remove(&self, id: &ServerId) {
        let Some(handle) = self.handle(id.as_str()) else {
            return;
        };
        handle.stop(Stop::Removed).await;
        self.shared.observer.forget(id);
    }

    /// Starts a server's task and tells its engine how to begin.
    fn spawn(&self, server: &Configured) -> Handle {
        let info = info(server);
        let (control, controls) = mpsc::channel(INPUTS_MAX);
        let (hosts, arrivals) = mpsc::channel(INPUTS_MAX);
        let flags = Arc::new(Flags::default());
        let observer = self
            .shared
            .observer
            .server(&info.id, info.transport, &info.protocol);
        let drained = Arc::<Notify>::default();
        let shared = Arc::clone(&self.shared);
        let task = server::Task::new(
            server,
            shared,
            observer,
            Arc::clone(&flags),
            Arc::clone(&drained),
        );
        tokio::spawn(task.run(controls, arrivals));
        Handle {
            info,
            control,
            hosts,
            drained,
            flags,
        }
    }

    fn handles(&self) -> Vec<Handle> {
        self.shared
            .servers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn handle(&self, server: &str) -> Option<Handle> {
        let handles = self
            .shared
            .servers
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        handles
            .iter()
            .find(|handle| handle.info.id.as_str() == server)
            .cloned()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Handle>> {
        self.shared
            .servers
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who runs by these entries. An entry that became unusable leaves its server as it was (R9).
fn roster(servers: &[Configured], before: &Roster) -> Roster {
    let member = |server: &Configured| {
        let prefix: Box<str> = match &server.entry {
            Ok(entry) => entry.prefix.clone(),
            Err(_) => {
                let mut members = before.members.iter();
                let was = members.find(|member| member.id == server.id);
                let default = || default_prefix(server.id.as_str()).into();
                was.map_or_else(default, |member| member.prefix.clone())
            }
        };
        let id = server.id.clone();
        server.enabled.then_some(Member { id, prefix })
    };
    Roster {
        members: servers.iter().filter_map(member).collect(),
        is_stopping: before.is_stopping,
    }
}

fn info(server: &Configured) -> ServerInfo {
    let entry = server.entry.as_ref().ok();
    ServerInfo {
        id: server.id.clone(),
        transport: entry.map_or("none", |entry| entry.transport.label()),
        protocol: entry.map_or_else(String::new, |entry| protocol(entry).to_owned()),
    }
}

fn protocol(entry: &Entry) -> &'static str {
    entry
        .engine
        .revision
        .map_or("auto", |revision| revision.as_str())
}

impl Handle {
    /// Runs by another entry from now on.
    async fn changed(mut self, server: &Configured, change: Change) -> Self {
        let Ok(entry) = &server.entry else {
            return self;
        };
        let settings = Arc::clone(&entry.engine);
        let configure = |redial| Input::Configure { settings, redial };
        let inputs = match change {
            Change::Refused => return self,
            // Stopped first, so that the change does not end a halt for a moment.
            Change::Disabled => vec![Input::Stop(Stop::Disabled), configure(false)],
            Change::Enabled => vec![configure(false), Input::Start(Resumed::default())],
            Change::Redial => vec![configure(true)],
            Change::Live => vec![configure(false)],
        };
        let _ = self
            .control
            .send(Control::Entry(Box::new(entry.clone()), inputs))
            .await;
        self.info = info(server);
        self
    }

    async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let (reply, snapshot) = oneshot::channel();
        self.control.send(Control::Snapshot(reply)).await.ok()?;
        snapshot.await.ok().map(Arc::new)
    }

    async fn stop(&self, stop: Stop) -> Vec<u32> {
        let (done, stopped) = oneshot::channel();
        if self.control.send(Control::Stop(stop, done)).await.is_err() {
            return Vec::new();
        }
        stopped.await.unwrap_or_default()
    }
}

/// One session's way into its server's task.
pub struct Inbound {
    session: SessionId,
    hosts: mpsc::Sender<Arrival>,
    flags: Arc<Flags>,
    observer: Observer,
    face: &'static str,
}

impl face::Inbound for Inbound {
    async fn send(&self, event: HostEvent) -> bool {
        self.hosts
            .send(Arrival::Event {
                session: self.session,
                event,
            })
            .await
            .is_ok()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.flags.sessions.fetch_sub(1, Ordering::Relaxed);
        self.observer.session_closed(self.face);
    }
}

impl face::Directory for Gateway {
    type Inbound = Inbound;
    type Outbound = Frames<Outgoing>;

    fn open(
        &self,
        server: &str,
        host: Option<&str>,
    ) -> Result<(Inbound, Frames<Outgoing>), Refusal> {
        let handle = self.handle(server).ok_or(Refusal::Unknown)?;
        let session = SessionId(self.shared.sessions.fetch_add(1, Ordering::Relaxed));
        let (outbound, frames) = outbound::bounded(HOST_BYTES_MAX, handle.drained);
        let observer = self.shared.observer.clone();
        observer.session_opened(self.face);
        let others = handle.flags.sessions.fetch_add(1, Ordering::Relaxed);
        let inbound = Inbound {
            session,
            hosts: handle.hosts.clone(),
            flags: handle.flags,
            observer,
            face: self.face,
        };
        if others >= SESSIONS_MAX {
            return Err(Refusal::Full);
        }
        let opened = Arrival::Opened {
            session,
            host: host.map(str::to_owned),
            outbound,
        };
        handle.hosts.try_send(opened).map_err(|_| Refusal::Full)?;
        Ok((inbound, frames))
    }
}
