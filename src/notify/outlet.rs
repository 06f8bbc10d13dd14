//! One receiver of edges, a channel or a URL: its ledger, and the task that tells it what the ledger says, one edge
//! after the other.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use reqwest::Client;
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, Manner, Note, Taken, Told};
use super::webhook;
use crate::config::Source;
use crate::driver::Gateway;
use crate::engine::output::Posted;
use crate::ids::ServerId;
use crate::journal::Journal;
use crate::observe::traces::Operation;
use crate::observe::{Notice, Observer};

/// The journal's area of what outlets remember.
pub(super) const AREA: &str = "notify";

/// Where edges go.
#[derive(Clone)]
pub(super) enum Sink {
    /// A channel of a configured server.
    Channel { server: ServerId, channel: String },
    /// A URL.
    Webhook { client: Client, url: SecretString },
}

impl Sink {
    /// Its kind, as metrics and traces name it.
    fn label(&self) -> &'static str {
        match self {
            Self::Channel { .. } => "status_channel",
            Self::Webhook { .. } => "webhook",
        }
    }
}

/// An outlet as a configuration has it.
pub(super) struct Plan {
    /// Whose edges it is told.
    pub(super) source: Source,
    /// Its own among all outlets and over restarts; says nothing of a URL.
    pub(super) key: String,
    /// For people: never a URL.
    pub(super) label: String,
    pub(super) sink: Sink,
    pub(super) manner: Manner,
}

/// See the module.
pub(super) struct Outlet {
    pub(super) source: Source,
    pub(super) key: String,
    label: String,
    sink: Sink,
    ledger: Mutex<Ledger>,
    /// Something is to be told, or can be.
    stirred: Notify,
    pub(super) stop: CancellationToken,
    journal: Journal,
    observer: Observer,
}

impl Outlet {
    /// One that remembers what it did before a restart.
    pub(super) fn new(plan: Plan, journal: &Journal, observer: &Observer) -> Self {
        let Plan {
            source,
            key,
            label,
            sink,
            manner,
        } = plan;
        let mut ledger = Ledger::new(manner);
        for (place, stored) in journal.notes(AREA) {
            if let Some(subject) = subject_of(&place, &key) {
                ledger.resume(subject, &stored);
            }
        }
        Self {
            source,
            key,
            label,
            sink,
            ledger: Mutex::new(ledger),
            stirred: Notify::new(),
            stop: CancellationToken::new(),
            journal: journal.clone(),
            observer: observer.clone(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An edge came. Never waits.
    pub(super) fn take(&self, subject: &str, note: Note) {
        let mut ledger = self.ledger();
        match ledger.take(subject, note) {
            Taken::Waits => self.stirred.notify_one(),
            Taken::Cancels => self.count(Notice::Cancelled),
            Taken::Full => self.count(Notice::Dropped),
            Taken::Known => {}
        }
        self.store(&mut ledger);
    }

    /// The server of the channel serves now.
    pub(super) fn wake(&self, server: &ServerId) {
        if matches!(&self.sink, Sink::Channel { server: of, .. } if of == server) {
            self.ledger().wake();
            self.stirred.notify_one();
        }
    }

    pub(super) fn set_manner(&self, manner: Manner) {
        self.ledger().set_manner(manner);
    }

    /// What is stored is in the order in which it happened, for the ledger is locked meanwhile.
    fn store(&self, ledger: &mut Ledger) {
        if self.stop.is_cancelled() {
            return;
        }
        for (subject, record) in ledger.take_changes() {
            let place = format!("{} {subject}", self.key);
            self.journal.note(AREA, &place, record);
        }
    }

    fn count(&self, notice: Notice) {
        self.observer.noticed(self.sink.label(), notice);
    }

    /// Tells what is to be told until it is stopped.
    pub(super) async fn run(self: Arc<Self>, gateway: Gateway) {
        let stop = self.stop.clone();
        let telling = async {
            loop {
                self.tell(&gateway).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = telling => {}
        }
    }

    async fn tell(&self, gateway: &Gateway) {
        let begun = self.ledger().begin(now());
        let Some(note) = begun else {
            return self.wait().await;
        };
        let operation = Operation::notice(self.sink.label());
        if let Sink::Channel { server, .. } = &self.sink {
            operation.server(server.as_str());
        }
        let (told, why) = operation.run(self.send(gateway, &note)).await;
        let notice = notice(told);
        operation.ended(notice.label(), notice != Notice::Delivered);
        let mut ledger = self.ledger();
        let failed_before = ledger.failures() > 0;
        ledger.end(told, now());
        self.store(&mut ledger);
        drop(ledger);
        self.count(notice);
        self.report(told, &why, failed_before);
    }

    async fn wait(&self) {
        let due = self.ledger().due(now());
        let stirred = self.stirred.notified();
        match due.map(tokio::time::Instant::from_std) {
            // The time has come, or something stirred before it.
            Some(due) => drop(tokio::time::timeout_at(due, stirred).await),
            None => stirred.await,
        }
    }

    async fn send(&self, gateway: &Gateway, note: &Note) -> webhook::Result {
        match &self.sink {
            Sink::Webhook { client, url } => webhook::post(client, url, &note.text).await,
            Sink::Channel { server, channel } => {
                match gateway.publish(server, channel, &note.text).await {
                    Posted::Delivered => (Told::Yes, String::new()),
                    Posted::NotSent(why) | Posted::Refused(why) => (Told::No(None), why),
                    Posted::Unknown(why) => (Told::Unknown, why),
                }
            }
        }
    }

    /// Says once that telling fails, and once that it goes on.
    fn report(&self, told: Told, why: &str, failed_before: bool) {
        let label = &self.label;
        match told {
            Told::Yes if failed_before => tracing::info!("{label} takes down and clear again"),
            Told::Never => {
                tracing::error!("{label} does not take an edge, which is dropped: {why}");
            }
            Told::No(_) | Told::Unknown if !failed_before => {
                tracing::warn!("{label} does not take an edge, which waits: {why}");
            }
            Told::Yes | Told::No(_) | Told::Unknown => {}
        }
    }
}

fn notice(told: Told) -> Notice {
    match told {
        Told::Yes => Notice::Delivered,
        Told::Never => Notice::Dropped,
        Told::No(_) | Told::Unknown => Notice::Failed,
    }
}

/// Forgets what outlets that are none of these remember.
pub(super) fn forget(journal: &Journal, is_known: impl Fn(&str) -> bool) {
    for place in journal.notes(AREA).into_keys() {
        let key = place.split_once(' ').map_or("", |(key, _)| key);
        if !is_known(key) {
            journal.note(AREA, &place, None);
        }
    }
}

fn subject_of<'a>(place: &'a str, key: &str) -> Option<&'a str> {
    place.strip_prefix(key)?.strip_prefix(' ')
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.label).finish()
    }
}
