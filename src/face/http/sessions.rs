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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::input::HostEvent;

    #[derive(Debug)]
    struct Nobody;

    impl Inbound for Nobody {
        async fn send(&self, _: HostEvent) -> bool {
            true
        }
    }

    fn session(token: Option<&str>) -> Arc<Session<Nobody>> {
        let token = token.map(Into::into);
        Session::new(
            Owner {
                server: None,
                token,
            },
            Nobody,
            "t".into(),
        )
    }

    fn all() -> (watch::Sender<Access>, Arc<Sessions<Nobody>>) {
        let access = watch::Sender::new(Access::default());
        let sessions = Sessions::new(access.subscribe());
        (access, sessions)
    }

    #[tokio::test]
    async fn sessions_are_bounded_for_all_and_for_one_token() {
        let (_access, sessions) = all();
        let fill = |token: Option<&str>, of: &str| {
            (0..=SESSIONS_MAX)
                .take_while(|n| sessions.add(&format!("{of}-{n}"), &session(token)).is_ok())
                .count()
        };
        assert_eq!(fill(Some("one"), "one"), OF_ONE_MAX);
        assert_eq!(fill(Some("two"), "two"), OF_ONE_MAX);
        assert_eq!(fill(None, "all"), SESSIONS_MAX - 2 * OF_ONE_MAX);
        sessions.remove("one-0");
        assert!(sessions.check_room(&session(Some("one")).owner).is_ok());
        assert!(sessions.check_room(&session(Some("two")).owner).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_was_idle_for_so_long_and_not_while_a_call_is_under_way() {
        let (_access, sessions) = all();
        let (idle, busy) = (session(None), session(None));
        sessions.add("idle", &idle).unwrap();
        sessions.add("busy", &busy).unwrap();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
        let call = crate::wire::jsonrpc::Message::parse(call.into()).unwrap();
        let (reader, _) = busy.streams.expect(vec![call]);
        drop(reader);
        let limit = Access::default().session_idle;
        tokio::time::sleep(limit - Duration::from_secs(1)).await;
        assert!(!idle.is_over());
        tokio::time::sleep(2 * SWEEP).await;
        assert!(idle.is_over() && !busy.is_over());
        assert!(sessions.find("idle", None, None).is_err());
        assert!(sessions.find("busy", None, None).is_ok());
    }

    #[test]
    fn an_id_is_long_random_and_visible_and_a_tag_reads_as_one_word() {
        let (one, two) = (new_id().unwrap(), new_id().unwrap());
        assert_ne!(one, two);
        assert!(one.0.len() == 32 && one.0.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(one.1.len() == 8 && !one.1.contains('-'));
    }
}
