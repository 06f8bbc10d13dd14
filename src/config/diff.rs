//! The difference between two configurations: what a reload has to do (3-config, Reload).

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;

use super::{Config, Entry, Host, Server};
use crate::ids::ServerId;

/// What a reload has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Not there before, in the new file's order.
    pub added: Vec<ServerId>,
    /// Closed for good, in the old file's order.
    pub removed: Vec<ServerId>,
    /// There before and otherwise, in the new file's order.
    pub changed: Vec<(ServerId, Change)>,
    /// Keeps its transport, its epoch and its queues.
    pub unchanged: Vec<ServerId>,
    /// Who may connect as a host is otherwise: sessions of tokens that are gone end with 4401.
    pub hosts: bool,
    /// Settings that only a restart of the gateway applies, by their paths.
    pub restart: Vec<&'static str>,
}

/// How a server changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its transport is another one: an ordinary boundary, and a dial where the new entry runs.
    Redial,
    /// Applied to the connection it has.
    Live,
    /// `enabled: true` from false.
    Enabled,
    /// `enabled: false` from true.
    Disabled,
    /// Its entry is unusable now, and may have been before, for other reasons.
    Refused,
}

/// Compares two configurations.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Difference {
    let before: BTreeMap<_, _> = old
        .servers
        .iter()
        .map(|server| (&server.id, server))
        .collect();
    let mut difference = Difference {
        hosts: !same_hosts(old, new),
        restart: restart(old, new),
        ..Difference::default()
    };
    for server in &new.servers {
        let id = server.id.clone();
        match before.get(&server.id).map(|old| change(old, server)) {
            None => difference.added.push(id),
            Some(None) => difference.unchanged.push(id),
            Some(Some(change)) => difference.changed.push((id, change)),
        }
    }
    let kept = |server: &&Server| new.servers.iter().any(|other| other.id == server.id);
    let removed = old.servers.iter().filter(|server| !kept(server));
    difference.removed = removed.map(|server| server.id.clone()).collect();
    difference
}

/// What runs once a difference is applied: an entry that became unusable leaves its server as it was (R9), and that is
/// what the next difference compares with.
#[must_use]
pub fn running(old: &Config, mut new: Config) -> Config {
    let broken = new
        .servers
        .iter_mut()
        .filter(|server| server.entry.is_err());
    for server in broken {
        let before = old.servers.iter().find(|other| other.id == server.id);
        if let Some(before) = before.filter(|before| before.entry.is_ok()) {
            server.clone_from(before);
        }
    }
    new
}

fn change(old: &Server, new: &Server) -> Option<Change> {
    match (&old.entry, &new.entry) {
        (_, Err(problems)) if old.entry.as_ref().err() != Some(problems) => Some(Change::Refused),
        _ if old.enabled != new.enabled => Some(if new.enabled {
            Change::Enabled
        } else {
            Change::Disabled
        }),
        (Ok(old), Ok(new)) if old.transport_key != new.transport_key => Some(Change::Redial),
        (Ok(old), Ok(new)) => (!same_otherwise(old, new)).then_some(Change::Live),
        (Err(_), Ok(_)) => Some(Change::Redial),
        (_, Err(_)) => None,
    }
}

/// The same but for what [`Entry::transport_key`] compares.
fn same_otherwise(old: &Entry, new: &Entry) -> bool {
    old.engine == new.engine
        && old.prefix == new.prefix
        && old.transport.keep_alive() == new.transport.keep_alive()
}

fn same_hosts(old: &Config, new: &Config) -> bool {
    let same = |(old, new): (&Host, &Host)| {
        old.name == new.name
            && old.servers == new.servers
            && old.token.expose_secret() == new.token.expose_secret()
    };
    old.hosts.len() == new.hosts.len()
        && old.hosts.iter().zip(&new.hosts).all(same)
        && old.allowed_origins == new.allowed_origins
        && old.allowed_hosts == new.allowed_hosts
}

fn restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let settings = [
        ("name", old.name != new.name),
        ("listen", old.listen != new.listen),
        ("admin.listen", old.admin.listen != new.admin.listen),
        ("state.dir", old.state_dir != new.state_dir),
        ("telemetry.log.format", old.log_json != new.log_json),
        ("telemetry.log.level", old.log_level != new.log_level),
        ("telemetry.otlp", old.traces != new.traces),
    ];
    let differing = settings.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(path, _)| path).collect()
}
