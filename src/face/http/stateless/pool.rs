//! Sessions that serve nobody just now, for the next request of the same host, server and skills; and what those of
//! one host and server know together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::lease::Lease;
use super::{Caller, Shared};
use crate::face::Directory;
use crate::revision::host::{Mirrored, Skills};

/// Sessions that wait, of one place and together.
const OF_ONE_MAX: usize = 64;
const ALL_MAX: usize = 512;
/// How long one waits.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How often what came on them meanwhile is read. While a session is not read its server may have to wait.
const SWEEP: Duration = Duration::from_secs(1);

/// Whose requests a session can serve, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// `None` is all servers.
    pub(super) server: Option<String>,
    /// The name of the `hosts` entry.
    pub(super) host: Option<String>,
    pub(super) skills: Skills,
}

impl Place {
    pub(super) fn new(caller: &Caller<'_>, skills: Skills) -> Self {
        Self {
            server: caller.server.map(str::to_owned),
            host: caller.name.clone(),
            skills,
        }
    }
}

/// What all sessions of one host with one server share, while there is one.
#[derive(Debug, Default)]
pub(super) struct Group(Mutex<Option<Arc<Mirrored>>>);

impl Group {
    pub(super) fn mirrored(&self) -> Option<Arc<Mirrored>> {
        self.known().clone()
    }

    pub(super) fn learn(&self, mirrored: Mirrored) -> Arc<Mirrored> {
        Arc::clone(self.known().insert(Arc::new(mirrored)))
    }

    pub(super) fn forget(&self) {
        *self.known() = None;
    }

    fn known(&self) -> MutexGuard<'_, Option<Arc<Mirrored>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions.
pub(super) struct Pool<D: Directory> {
    state: Mutex<State<D>>,
}

struct State<D: Directory> {
    /// The last that came is the first that goes.
    idle: HashMap<Place, Vec<Idle<D>>>,
    count: usize,
    groups: HashMap<(Option<String>, Option<String>), Weak<Group>>,
    is_swept: bool,
}

struct Idle<D: Directory> {
    lease: Lease<D>,
    since: Instant,
}

impl<D: Directory> Pool<D> {
    pub(super) fn new() -> Self {
        let state = State {
            idle: HashMap::new(),
            count: 0,
            groups: HashMap::new(),
            is_swept: false,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// One that can serve at once.
    pub(super) async fn take(&self, place: &Place) -> Option<Lease<D>> {
        loop {
            let mut lease = self.state().pop(place)?;
            if lease.catch_up().await && lease.is_free() {
                return Some(lease);
            }
        }
    }

    /// What a new session of that place shares with the others.
    pub(super) fn join(&self, place: &Place) -> Arc<Group> {
        let mut state = self.state();
        state.groups.retain(|_, group| group.strong_count() > 0);
        let key = (place.server.clone(), place.host.clone());
        let known = state.groups.get(&key).and_then(Weak::upgrade);
        let group = known.unwrap_or_default();
        state.groups.insert(key, Arc::downgrade(&group));
        group
    }

    /// Keeps one for the next request; it ends where there are enough.
    pub(super) fn put(&self, shared: &Arc<Shared<D>>, lease: Lease<D>) {
        let since = Instant::now();
        let mut state = self.state();
        let _ = state.push(Idle { lease, since });
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(shared)));
        }
    }

    /// Reads what came, and ends those that waited for long; whether any is left.
    async fn look_after(&self, now: Instant) -> bool {
        let all = self.state().take_all();
        for mut idle in all {
            let is_over = now.saturating_duration_since(idle.since) >= IDLE_MAX;
            if !is_over && idle.lease.catch_up().await && idle.lease.is_free() {
                let _ = self.state().push(idle);
            }
        }
        let mut state = self.state();
        state.is_swept = state.count > 0;
        state.is_swept
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Directory> State<D> {
    fn pop(&mut self, place: &Place) -> Option<Lease<D>> {
        let idle = self.idle.get_mut(place)?.pop()?;
        self.count -= 1;
        Some(idle.lease)
    }

    /// Comes back where there are enough.
    fn push(&mut self, idle: Idle<D>) -> Result<(), Box<Idle<D>>> {
        let same = self.idle.get(&idle.lease.place).map_or(0, Vec::len);
        if same >= OF_ONE_MAX || self.count >= ALL_MAX {
            return Err(Box::new(idle));
        }
        self.count += 1;
        self.idle
            .entry(idle.lease.place.clone())
            .or_default()
            .push(idle);
        Ok(())
    }

    fn take_all(&mut self) -> Vec<Idle<D>> {
        self.count = 0;
        self.idle.drain().flat_map(|(_, idle)| idle).collect()
    }
}

/// Looks after the sessions until none is left.
async fn sweep<D: Directory>(shared: Weak<Shared<D>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if !shared.pool.look_after(Instant::now()).await {
            return;
        }
    }
}
