//! Sessions whose request waits for its client to give what a server asked for, each under a key that nobody can
//! guess: how many there may be, how much they may hold and for how long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Shared;
use super::lease::Lease;
use super::pool::Place;
use crate::face::Directory;
use crate::face::http::sessions;

/// Requests that wait at a time.
const COUNT_MAX: usize = 1_000;
/// What they hold of their servers' questions, in bytes.
const BYTES_MAX: usize = 64 << 20;
/// How long one waits.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The requests that wait.
pub(super) struct Parked<D: Directory> {
    waiting: Mutex<HashMap<String, Waiting<D>>>,
    held: Arc<Held>,
}

/// How many places are taken, and the bytes in them.
#[derive(Debug, Default)]
struct Held {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// A place for one request, and the key that its client gets.
#[derive(Debug)]
pub(super) struct Room {
    key: String,
    bytes: usize,
    held: Arc<Held>,
}

struct Waiting<D: Directory> {
    place: Place,
    print: [u8; 32],
    claim: oneshot::Sender<oneshot::Sender<Lease<D>>>,
}

impl Room {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.count.fetch_sub(1, Ordering::Relaxed);
        self.held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<D: Directory> Parked<D> {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            held: Arc::default(),
        }
    }

    /// A place for a request whose server asked for so many bytes; `None` where there is none.
    pub(super) fn room(&self, bytes: usize) -> Option<Room> {
        let (key, _) = sessions::new_id().ok()?;
        let held = Arc::clone(&self.held);
        let count = held.count.fetch_add(1, Ordering::Relaxed);
        let before = held.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Given back where it is dropped.
        let room = Room { key, bytes, held };
        (count < COUNT_MAX && before + bytes <= BYTES_MAX).then_some(room)
    }

    /// Sets a session aside until its client comes again, or does not.
    pub(super) fn put(&self, shared: &Arc<Shared<D>>, mut lease: Lease<D>) {
        let (Some(room), Some(print)) = (lease.room.take(), lease.print) else {
            return;
        };
        let (claim, claimed) = oneshot::channel();
        let waiting = Waiting {
            place: lease.place.clone(),
            print,
            claim,
        };
        self.waiting().insert(room.key.clone(), waiting);
        tokio::spawn(wait(Arc::downgrade(shared), lease, room, claimed));
    }

    /// The session that waits under that key, where it is for this host and this very request. It waits no more then.
    pub(super) fn take(
        &self,
        key: &str,
        place: &Place,
        print: &[u8; 32],
    ) -> Option<oneshot::Receiver<Lease<D>>> {
        let mut waiting = self.waiting();
        let is_for = |waiting: &&Waiting<D>| {
            let other = &waiting.place;
            other.server == place.server && other.host == place.host && waiting.print == *print
        };
        waiting.get(key).filter(is_for)?;
        let claim = waiting.remove(key)?.claim;
        let (give, given) = oneshot::channel();
        claim.send(give).ok()?;
        Some(given)
    }

    fn forget(&self, key: &str) {
        self.waiting().remove(key);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting<D>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what comes for a request that waits. Where its time is over its session ends, and the call with it.
async fn wait<D: Directory>(
    shared: Weak<Shared<D>>,
    mut lease: Lease<D>,
    room: Room,
    mut claimed: oneshot::Receiver<oneshot::Sender<Lease<D>>>,
) {
    let end = Instant::now() + WAIT_MAX;
    loop {
        tokio::select! {
            biased;
            claim = &mut claimed => {
                if let Ok(give) = claim {
                    let _ = give.send(lease);
                }
                return;
            }
            () = tokio::time::sleep_until(end) => break,
            goes_on = lease.overhear() => if !goes_on { break },
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.parked.forget(room.key());
    }
}
