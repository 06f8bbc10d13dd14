//! All sessions of the face by their ids: how many there may be, and which end because nobody uses them or their token
//! is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::Fault;
use super::session::{Owner, Session};
use crate::face::Inbound;
use crate::face::access::Access;

/// Sessions at a time.
const SESSIONS_MAX: usize = 4_000;
/// Those of one token.
const OF_ONE_MAX: usize = 1_000;
/// How often idle sessions are looked for; more often where they may be idle for less.
const SWEEP: Duration = Duration::from_secs(15);
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions<I> {
    open: Mutex<HashMap<String, Arc<Session<I>>>>,
    access: watch::Receiver<Access>,
}

impl<I: Inbound> Sessions<I> {
    /// No session yet. Those that come end when they are idle or their token goes.
    pub(super) fn new(access: watch::Receiver<Access>) -> Arc<Self> {
        let sessions = Arc::new(Self {
            open: Mutex::default(),
            access: access.clone(),
        });
        tokio::spawn(keep(Arc::downgrade(&sessions), access));
        sessions
    }

    /// The session of that id, where it is this caller's.
    pub(super) fn find(
        &self,
        id: &str,
        server: Option<&str>,
        token: Option<&str>,
    ) -> Result<Arc<Session<I>>, Fault> {
        let open = self.open();
        let session = open.get(id);
        let session = session.filter(|session| session.owner.is(server, token));
        let session = session.ok_or(Fault::UnknownSession)?;
        session.touch();
        Ok(Arc::clone(session))
    }

    /// Whether one more fits.
    pub(super) fn check_room(&self, owner: &Owner) -> Result<(), Fault> {
        room(&self.open(), owner)
    }

    /// Lets a session be found by that id.
    pub(super) fn add(&self, id: &str, session: &Arc<Session<I>>) -> Result<(), Fault> {
        let mut open = self.open();
        room(&open, &session.owner)?;
        open.insert(id.to_owned(), Arc::clone(session));
        Ok(())
    }

    /// It is found no more.
    pub(super) fn remove(&self, id: &str) {
        self.open().remove(id);
    }

    fn end_idle(&self, now: Instant) {
        let limit = self.access.borrow().session_idle;
        let is_over = |session: &Session<I>| {
            let since = session.idle_since();
            since.is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        self.end_those(is_over);
    }

    fn end_those(&self, is_over: impl Fn(&Session<I>) -> bool) {
        // Nobody finds one that is about to end.
        self.open().retain(|_, session| {
            let stays = !is_over(session);
            if !stays {
                session.end();
            }
            stays
        });
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<Session<I>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn room<I: Inbound>(open: &HashMap<String, Arc<Session<I>>>, owner: &Owner) -> Result<(), Fault> {
    if open.len() >= SESSIONS_MAX {
        return Err(Fault::TooMany(
            "there are as many sessions as this gateway takes",
        ));
    }
    if owner.token.is_none() {
        return Ok(());
    }
    let same = open
        .values()
        .filter(|session| session.owner.shares_token(owner));
    if same.count() >= OF_ONE_MAX {
        return Err(Fault::TooMany("this token has as many sessions as it may"));
    }
    Ok(())
}

/// Ends what is idle or no longer permitted, until the face is gone.
async fn keep<I: Inbound>(sessions: Weak<Sessions<I>>, mut access: watch::Receiver<Access>) {
    loop {
        let pause = access.borrow().session_idle.clamp(PAUSE_MIN, SWEEP);
        let changed = tokio::select! {
            changed = access.changed() => Some(changed),
            () = tokio::time::sleep(pause) => None,
        };
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        match changed {
            None => sessions.end_idle(Instant::now()),
            Some(Ok(())) => {
                let access = access.borrow_and_update().clone();
                sessions.end_those(|session| !session.is_permitted(&access));
            }
            // The gateway is about to end, and every session with it.
            Some(Err(_)) => return,
        }
    }
}

/// A session's id: 192 bits of the system's randomness as 32 visible characters, and the tag of its events.
pub(super) fn new_id() -> Result<(String, String), Fault> {
    let mut bytes = [0; 30];
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| Fault::NoRandomness)?;
    let (id, tag) = bytes.split_at(24);
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    // The tag's own dashes would read as the end of it.
    Ok((text(id), text(tag).replace('-', ".")))
}
