//! What hosts set up at the server, as it was told on its serving transport: a log level and subscriptions. Only what
//! changes that is worth a message (G15).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::SessionId;

/// What the serving transport was told.
#[derive(Debug, Default)]
pub(super) struct Setup {
    level: Option<usize>,
    subscriptions: BTreeSet<Box<str>>,
    /// Subscriptions that the server has not answered, by the gateway's id of the request.
    asked: BTreeMap<u64, (SessionId, Box<str>)>,
}

impl Setup {
    /// Another transport knows nothing of it.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether the server must be told that the most verbose level wanted is this. It counts as told.
    pub(super) fn take_level(&mut self, wanted: Option<usize>) -> bool {
        let news = wanted.is_some() && self.level != wanted;
        self.level = wanted.or(self.level);
        news
    }

    /// Whether the server must be told of a subscription. It counts as told.
    pub(super) fn take_subscription(&mut self, uri: &str) -> bool {
        self.subscriptions.insert(uri.into())
    }

    /// Whether the server must be told of its end. It counts as told.
    pub(super) fn end_subscription(&mut self, uri: &str) -> bool {
        self.subscriptions.remove(uri)
    }

    /// What the server was told of and nobody wants any more.
    pub(super) fn unwanted(&self, wanted: &BTreeSet<Box<str>>) -> Vec<Box<str>> {
        self.subscriptions.difference(wanted).cloned().collect()
    }

    /// Request `id` asks for that subscription.
    pub(super) fn ask(&mut self, id: u64, session: SessionId, uri: &str) {
        self.asked.insert(id, (session, uri.into()));
    }

    /// Request `id` is over; where it failed, the subscription that did not come about.
    pub(super) fn answered(&mut self, id: u64, failed: bool) -> Option<(SessionId, Box<str>)> {
        let (session, uri) = self.asked.remove(&id).filter(|_| failed)?;
        self.subscriptions.remove(&uri);
        Some((session, uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g15_only_what_changes_what_the_server_must_do_is_told() {
        let mut setup = Setup::default();
        assert!(!setup.take_level(None) && setup.take_level(Some(1)));
        assert!(!setup.take_level(Some(1)) && setup.take_level(Some(4)));
        assert!(setup.take_subscription("a") && !setup.take_subscription("a"));
        assert_eq!(setup.unwanted(&BTreeSet::new()), ["a".into()]);
        assert!(setup.end_subscription("a") && !setup.end_subscription("a"));
        setup.forget();
        assert!(setup.take_level(Some(4)));
    }

    #[test]
    fn a_subscription_that_the_server_refused_did_not_come_about() {
        let mut setup = Setup::default();
        setup.take_subscription("a");
        setup.ask(7, SessionId(1), "a");
        let undone = setup.answered(7, true);
        assert_eq!(undone, Some((SessionId(1), "a".into())));
        assert!(setup.take_subscription("a"));
        assert_eq!(setup.answered(8, true), None);
    }
}
