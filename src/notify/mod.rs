//! Down and clear, told to status channels and webhooks: what waits, what undoes what, and what is told again. It
//! decides nothing about servers, delays nobody who tells it something, and connects to nothing but a webhook's URL.

mod alertmanager;
mod ledger;
mod outlet;
mod text;
mod webhook;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Client;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use crate::config::{Config, Edges, Source, StatusChannel, Webhook};
use crate::driver::Gateway;
use crate::engine::decision::Decision;
use crate::ids::ServerId;
use crate::journal::Journal;
use crate::observe::Observer;

use ledger::{Kind, Manner, Note};
use outlet::{Outlet, Plan, Sink};

/// Downs of one server are this far apart at one webhook; a clear never waits for that.
const WEBHOOK_APART: Duration = Duration::from_mins(15);

/// Every status channel and webhook of the gateway. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    shared: Arc<Shared>,
}

struct Shared {
    /// The gateway's.
    name: String,
    client: Option<Client>,
    journal: Journal,
    observer: Observer,
    outlets: Mutex<Outlets>,
}

#[derive(Default)]
struct Outlets {
    all: Vec<Arc<Outlet>>,
    /// What new ones are run with; `None` before the servers are there.
    gateway: Option<Gateway>,
}

/// Why a body of Alertmanager's webhook is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertsRefused {
    /// It is not what Alertmanager sends.
    #[error("this is no body of Alertmanager's webhook: {0}")]
    Unreadable(String),
    /// Nobody wants it.
    #[error("no status channel takes Alertmanager's alerts")]
    NoChannel,
}

impl Notifier {
    /// Listens to every decision from now on; what there is to tell waits for [`Self::run`].
    #[must_use]
    pub fn new(config: &Config, journal: Journal, observer: Observer) -> Self {
        let client = webhook::client();
        let client = client.inspect_err(|error| tracing::error!(%error, "no webhook is posted to"));
        let shared = Shared {
            name: config.name.clone(),
            client: client.ok(),
            journal,
            observer: observer.clone(),
            outlets: Mutex::default(),
        };
        let notifier = Self {
            shared: Arc::new(shared),
        };
        notifier.configure(config);
        let listening = Arc::downgrade(&notifier.shared);
        observer.listen(Arc::new(move |server, decision| {
            if let Some(shared) = listening.upgrade() {
                shared.decided(server, decision);
            }
        }));
        notifier
    }

    /// Tells what waits, from now on.
    pub fn run(&self, gateway: &Gateway) {
        let mut outlets = self.shared.outlets();
        outlets.gateway = Some(gateway.clone());
        outlets.all.iter().for_each(|outlet| {
            tokio::spawn(Arc::clone(outlet).run(gateway.clone()));
        });
    }

    /// Takes over what a configuration says. An outlet that stays keeps what it remembers.
    pub fn configure(&self, config: &Config) {
        let mut outlets = self.shared.outlets();
        let before = std::mem::take(&mut outlets.all);
        for plan in self.shared.plans(config) {
            let outlet = match before.iter().find(|outlet| outlet.key == plan.key) {
                Some(kept) => {
                    kept.set_manner(plan.manner);
                    Arc::clone(kept)
                }
                None => self.shared.start(plan, &outlets),
            };
            outlets.all.push(outlet);
        }
        let stays = |key: &str| outlets.all.iter().any(|outlet| outlet.key == key);
        let gone = before.iter().filter(|outlet| !stays(&outlet.key));
        gone.for_each(|outlet| outlet.stop.cancel());
        outlet::forget(&self.shared.journal, stays);
    }

    /// What Alertmanager's webhook sent, for the channels that take it. Says how many alerts it told of.
    ///
    /// # Errors
    /// Where it cannot be read, or nobody takes it.
    pub fn alerts(&self, body: &[u8]) -> Result<usize, AlertsRefused> {
        let edges = alertmanager::edges(body).map_err(AlertsRefused::Unreadable)?;
        let outlets = self.shared.outlets();
        let mut takers = outlets.of(Source::Alertmanager).peekable();
        if takers.peek().is_none() {
            return Err(AlertsRefused::NoChannel);
        }
        for outlet in takers {
            for (subject, note) in &edges {
                outlet.take(subject, note.clone());
            }
        }
        Ok(edges.len())
    }
}

impl Shared {
    fn outlets(&self) -> MutexGuard<'_, Outlets> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self, config: &Config) -> Vec<Plan> {
        let channels = config.status_channels.iter().map(channel);
        let hooks = config.webhooks.iter().enumerate();
        let hooks = hooks.filter_map(|(n, hook)| Some(webhook(n, hook, self.client.clone()?)));
        channels.chain(hooks).collect()
    }

    fn start(&self, plan: Plan, outlets: &Outlets) -> Arc<Outlet> {
        let outlet = Arc::new(Outlet::new(plan, &self.journal, &self.observer));
        if let Some(gateway) = &outlets.gateway {
            tokio::spawn(Arc::clone(&outlet).run(gateway.clone()));
        }
        outlet
    }

    /// What the engine decided. Never waits.
    fn decided(&self, server: &ServerId, decision: &Decision) {
        if matches!(decision, Decision::Settled { .. }) {
            // The planes of a new connection are open: what waits for its server can be told.
            let outlets = self.outlets();
            return outlets.all.iter().for_each(|outlet| outlet.wake(server));
        }
        let kind = if matches!(decision, Decision::Down { .. }) {
            Kind::Down
        } else if matches!(decision, Decision::Clear { .. }) {
            Kind::Clear
        } else {
            return;
        };
        let text = text::of_engine(&self.name, server, &decision.to_string());
        for outlet in self.outlets().of(Source::Engine) {
            let text = text.clone();
            outlet.take(server.as_str(), Note { kind, text });
        }
    }
}

impl Outlets {
    fn of(&self, source: Source) -> impl Iterator<Item = &Arc<Outlet>> {
        self.all
            .iter()
            .filter(move |outlet| outlet.source == source)
    }
}

fn channel(channel: &StatusChannel) -> Plan {
    let (server, id) = (channel.server.clone(), channel.channel_id.clone());
    let source = channel.source;
    let key = key(&["channel", server.as_str(), &id, source.label()]);
    let label = format!("status channel {id} of {server}");
    let manner = Manner {
        kinds: kinds(channel.events),
        apart: Duration::ZERO,
        once: source == Source::Alertmanager,
    };
    let sink = Sink::Channel {
        server,
        channel: id,
    };
    Plan {
        source,
        key,
        label,
        sink,
        manner,
    }
}

fn webhook(n: usize, hook: &Webhook, client: Client) -> Plan {
    let url = hook.url.clone();
    let key = key(&["webhook", url.expose_secret()]);
    let manner = Manner {
        kinds: kinds(hook.events),
        apart: WEBHOOK_APART,
        once: false,
    };
    Plan {
        source: Source::Engine,
        key,
        label: format!("webhooks[{n}]"),
        sink: Sink::Webhook { client, url },
        manner,
    }
}

fn kinds(events: Edges) -> BTreeSet<Kind> {
    let kinds = [(events.down, Kind::Down), (events.clear, Kind::Clear)];
    let wanted = kinds.into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, kind)| kind).collect()
}

/// A name in the journal that tells nothing of its parts.
fn key(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n"));
    digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
