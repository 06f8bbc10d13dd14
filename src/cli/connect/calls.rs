//! Who waits for an answer of whom: the host's calls at the gateway, and the gateway's requests at the host. Both are
//! of one connection; when it is lost, each is ended and none is taken over.

use std::collections::BTreeMap;

use crate::wire::jsonrpc::{Message, RequestId, Span};

use super::memory::Setting;

/// The most calls of a host, and the most requests of the gateway, in flight. Past it a call is refused.
pub(super) const IN_FLIGHT_MAX: usize = 10_000;

/// The host's calls, by its own ids. An id that is used twice at a time waits for two answers (A2).
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_id: BTreeMap<RequestId, Vec<Setting>>,
    count: usize,
}

impl Calls {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// A call went out; its answer may be worth remembering.
    pub(super) fn open(&mut self, id: RequestId, setting: Setting) {
        self.by_id.entry(id).or_default().push(setting);
        self.count += 1;
    }

    /// The oldest call with that id is over; `None` where there is none.
    pub(super) fn close(&mut self, id: &RequestId) -> Option<Setting> {
        let waiting = self.by_id.get_mut(id)?;
        let setting = waiting.remove(0);
        if waiting.is_empty() {
            self.by_id.remove(id);
        }
        self.count -= 1;
        Some(setting)
    }

    /// All are over.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (RequestId, Setting)> + use<> {
        self.count = 0;
        let all = std::mem::take(&mut self.by_id).into_iter();
        all.flat_map(|(id, waiting)| {
            waiting
                .into_iter()
                .map(move |setting| (id.clone(), setting))
        })
    }
}

/// A request of the gateway's: its id and progress token as the gateway wrote them.
#[derive(Debug)]
struct Ask {
    id: RequestId,
    token: Option<Box<str>>,
}

/// The gateway's requests. To the host they bear ids that no other connection had, for the next gateway begins to count
/// anew, and a late answer must not reach it.
#[derive(Debug, Default)]
pub(super) struct Asks {
    next: u64,
    open: BTreeMap<u64, Ask>,
}

impl Asks {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes a request; the message for the host. `None` for what is no request.
    pub(super) fn open(&mut self, message: &Message) -> Option<bytes::Bytes> {
        let id = message.id()?;
        self.next += 1;
        let token: Option<Span> = message.param(&["_meta", "progressToken"]);
        let ours = self.next.to_string();
        let changes: Vec<_> = token.iter().map(|span| (span.clone(), &*ours)).collect();
        let frame = message.with(&ours, &changes);
        let token = token.map(|span| message.text(&span).into());
        self.open.insert(self.next, Ask { id, token });
        Some(frame)
    }

    /// The host answered; the id as the gateway wrote it.
    pub(super) fn close(&mut self, ours: u64) -> Option<RequestId> {
        self.open.remove(&ours).map(|ask| ask.id)
    }

    /// The gateway's id of a request that the host has.
    pub(super) fn id(&self, ours: u64) -> Option<&str> {
        self.open.get(&ours).map(|ask| ask.id.as_str())
    }

    /// The gateway's progress token of a request that the host has.
    pub(super) fn token(&self, ours: u64) -> Option<&str> {
        self.open.get(&ours)?.token.as_deref()
    }

    /// The gateway takes its request back; the id that the host knows it by.
    pub(super) fn recall(&mut self, id: &str) -> Option<u64> {
        let found = self.open.iter().find(|(_, ask)| ask.id.as_str() == id);
        let ours = *found?.0;
        self.open.remove(&ours);
        Some(ours)
    }

    /// All are over; the ids that the host knows them by.
    pub(super) fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.open).into_keys().collect()
    }
}
