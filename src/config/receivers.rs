//! `statusChannels` and `webhooks`: who is told of down and clear. What is wrong with one stops the start, as for all
//! of the file's own shape; a URL is never in what is told of it.

use reqwest::Url;

use super::file::{self, Edge};
use super::problem::Scope;
use super::tree::Step;
use super::{Edges, Problem, Server, Source, StatusChannel, Webhook};

/// More receivers of one kind than anybody needs, each with a task.
const RECEIVERS_MAX: usize = 64;

/// Reads both lists, and keeps what is wrong with them.
pub(super) struct Receivers<'a> {
    scope: Scope<'a>,
    servers: &'a [Server],
    pub(super) problems: Vec<Problem>,
}

impl<'a> Receivers<'a> {
    pub(super) fn new(scope: Scope<'a>, servers: &'a [Server]) -> Self {
        Self {
            scope,
            servers,
            problems: Vec::new(),
        }
    }

    pub(super) fn channels(
        &mut self,
        given: Option<Vec<file::StatusChannel>>,
    ) -> Vec<StatusChannel> {
        let given = given.unwrap_or_default();
        self.check_count("statusChannels", given.len());
        let mut known: Vec<StatusChannel> = Vec::new();
        for (n, channel) in given.into_iter().enumerate() {
            let events = self.events("statusChannels", n, channel.events);
            let Some(channel) = self.channel(n, channel.server, channel.channel_id, channel.source)
            else {
                continue;
            };
            let channel = StatusChannel { events, ..channel };
            let same = |other: &StatusChannel| {
                other.server == channel.server && other.channel_id == channel.channel_id
            };
            if known.iter().any(same) {
                let text = "this channel is there already; a channel has one entry, and one source";
                self.problem("statusChannels", n, "channelId", text);
            }
            known.push(channel);
        }
        known
    }

    fn channel(
        &mut self,
        n: usize,
        server: String,
        channel_id: String,
        source: Option<Source>,
    ) -> Option<StatusChannel> {
        if channel_id.is_empty() {
            let text = "is empty; write the id under which the server registers the channel";
            self.problem("statusChannels", n, "channelId", text);
        }
        let mut servers = self.servers.iter();
        let Some(found) = servers.find(|other| other.id.as_str() == server) else {
            let text = "no server of this id is in `mcpServers`; write one that is";
            self.problem("statusChannels", n, "server", text);
            return None;
        };
        Some(StatusChannel {
            server: found.id.clone(),
            channel_id,
            events: BOTH,
            source: source.unwrap_or(Source::Engine),
        })
    }

    pub(super) fn webhooks(&mut self, given: Option<Vec<file::Webhook>>) -> Vec<Webhook> {
        let given = given.unwrap_or_default();
        self.check_count("webhooks", given.len());
        let mut urls: Vec<String> = Vec::new();
        let mut hooks = Vec::new();
        for (n, hook) in given.into_iter().enumerate() {
            let events = self.events("webhooks", n, hook.events);
            let file::Text(url) = hook.url;
            let parsed = Url::parse(&url).ok();
            if !parsed.is_some_and(|url| ["http", "https"].contains(&url.scheme())) {
                self.problem("webhooks", n, "url", "write an `http` or `https` URL");
            }
            if urls.contains(&url) {
                self.problem(
                    "webhooks",
                    n,
                    "url",
                    "this URL is there already; write it once",
                );
            }
            urls.push(url.clone());
            hooks.push(Webhook {
                url: url.into(),
                events,
            });
        }
        hooks
    }

    fn events(&mut self, list: &str, n: usize, given: Option<Vec<Edge>>) -> Edges {
        let Some(given) = given else {
            return BOTH;
        };
        if given.is_empty() {
            let text = "is empty; write `down`, `clear` or both, or leave it out for both";
            self.problem(list, n, "events", text);
        }
        Edges {
            down: given.contains(&Edge::Down),
            clear: given.contains(&Edge::Clear),
        }
    }

    fn check_count(&mut self, list: &str, count: usize) {
        if count > RECEIVERS_MAX {
            let text = format!("{count} entries; write at most {RECEIVERS_MAX}");
            self.problems.push(self.scope.field(list, text));
        }
    }

    fn problem(&mut self, list: &str, n: usize, field: &str, text: &str) {
        let path = [
            Step::Key(list.to_owned()),
            Step::Index(n),
            Step::Key(field.to_owned()),
        ];
        self.problems.push(self.scope.at(&path, text));
    }
}

const BOTH: Edges = Edges {
    down: true,
    clear: true,
};
