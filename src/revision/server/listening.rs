//! The stream on which a stateless server tells of changes: what it is asked for, opened again where that changes or
//! the server ended it. It writes no message and keeps no clock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::wire::jsonrpc::{member, quoted};
use crate::wire::mcp::method;

/// Resources that may be subscribed to.
const URIS_MAX: usize = 1_000;
/// A stream that ended sooner than this after it was opened is not opened again sooner.
const REOPEN_AFTER: Duration = Duration::from_secs(5);
/// The capability of each list, its member of the filter, and the notification of its changes.
const LISTS: [(&str, &str, &str); 3] = [
    ("tools", "toolsListChanged", method::TOOLS_CHANGED),
    ("prompts", "promptsListChanged", method::PROMPTS_CHANGED),
    (
        "resources",
        "resourcesListChanged",
        method::RESOURCES_CHANGED,
    ),
];

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Open a stream of that number with this filter, as JSON text.
    Open(u64, String),
    /// Close the stream of that number.
    Close(u64),
    /// The request of a session about a subscription is answered: well, or with why not.
    Answer(u64, Result<(), String>),
    /// What changed while there was no stream was not told: a notification, and its params.
    Missed(&'static str, Option<String>),
    /// The stream ended and could not be opened again.
    Deaf(String),
}

/// The streams of one epoch: the one that serves, and the one that is to take its place.
#[derive(Debug)]
pub(super) struct Listening {
    lists: Vec<(&'static str, &'static str)>,
    subscribes: bool,
    uris: BTreeSet<String>,
    serving: Option<Stream>,
    opening: Option<Stream>,
    /// Requests that wait for the stream which has their resource.
    waiting: Vec<(u64, String)>,
    /// When a stream is to be opened that must not be opened yet.
    due: Option<Instant>,
    /// There was a stream, and then none.
    missed: bool,
    last: u64,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    uris: BTreeSet<String>,
    opened: Instant,
}

impl Listening {
    /// For a server with these capabilities, as JSON text.
    pub(super) fn new(capabilities: &str) -> Self {
        let offers = |capability: &str, what: &str| {
            member(capabilities, capability).and_then(|text| member(text, what)) == Some("true")
        };
        let lists = LISTS
            .iter()
            .filter(|(capability, ..)| offers(capability, "listChanged"));
        Self {
            lists: lists.map(|(_, filter, name)| (*filter, *name)).collect(),
            subscribes: offers("resources", "subscribe"),
            uris: BTreeSet::new(),
            serving: None,
            opening: None,
            waiting: Vec::new(),
            due: None,
            missed: false,
            last: 0,
            steps: Vec::new(),
        }
    }

    /// What is to be done, in order.
    pub(super) fn steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// The session is initialized.
    pub(super) fn start(&mut self, now: Instant) {
        self.refresh(now);
    }

    /// A request of the session's for updates of a resource.
    pub(super) fn subscribe(&mut self, id: u64, uri: &str, now: Instant) {
        let served = |stream: &Stream| stream.uris.contains(uri);
        if !self.subscribes {
            let why = "this server has no subscriptions of resources".to_owned();
            self.steps.push(Step::Answer(id, Err(why)));
        } else if self.uris.contains(uri) && self.serving.as_ref().is_some_and(served) {
            self.steps.push(Step::Answer(id, Ok(())));
        } else if self.uris.len() >= URIS_MAX || self.waiting.len() >= URIS_MAX {
            let why = format!("at most {URIS_MAX} resources can be subscribed to");
            self.steps.push(Step::Answer(id, Err(why)));
        } else {
            self.uris.insert(uri.to_owned());
            self.waiting.push((id, uri.to_owned()));
            self.refresh(now);
        }
    }

    /// A request of the session's for no more of them.
    pub(super) fn unsubscribe(&mut self, id: u64, uri: &str, now: Instant) {
        self.steps.push(Step::Answer(id, Ok(())));
        let (of_it, waiting): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|(_, of)| of == uri);
        self.waiting = waiting;
        for (id, _) in of_it {
            self.steps.push(Step::Answer(id, Ok(())));
        }
        if self.uris.remove(uri) {
            self.refresh(now);
        }
    }

    /// The server took a stream on, with this filter as JSON text.
    pub(super) fn acknowledged(&mut self, number: u64, filter: &str, now: Instant) {
        let Some(stream) = self.opening.take_if(|stream| stream.number == number) else {
            return;
        };
        let taken = member(filter, "resourceSubscriptions").unwrap_or("[]");
        let taken: Vec<String> = serde_json::from_str(taken).unwrap_or_default();
        let taken: BTreeSet<String> = taken.into_iter().collect();
        if std::mem::take(&mut self.missed) {
            self.tell_missed(&taken);
        }
        let why = "the server did not take this subscription on";
        self.answer_waiting(&stream.uris, |uri| match taken.contains(uri) {
            true => Ok(()),
            false => Err(why.to_owned()),
        });
        self.uris
            .retain(|uri| taken.contains(uri) || !stream.uris.contains(uri));
        let uris = stream.uris.intersection(&taken).cloned().collect();
        if let Some(before) = self.serving.replace(Stream { uris, ..stream }) {
            self.steps.push(Step::Close(before.number));
        }
        self.refresh(now);
    }

    /// A stream is over: the server ended it, refused it, or its connection was lost.
    pub(super) fn ended(&mut self, number: u64, why: &str, now: Instant) {
        if let Some(stream) = self.opening.take_if(|stream| stream.number == number) {
            self.answer_waiting(&stream.uris, |_| Err(why.to_owned()));
            let serving = self.serving.as_ref().map(|serving| &serving.uris);
            let is_served = |uri: &String| serving.is_some_and(|uris| uris.contains(uri));
            self.uris
                .retain(|uri| !stream.uris.contains(uri) || is_served(uri));
            if self.missed && self.serving.is_none() {
                self.steps.push(Step::Deaf(why.to_owned()));
            }
            if !self.waiting.is_empty() {
                self.refresh(now);
            }
        } else if let Some(stream) = self.serving.take_if(|stream| stream.number == number) {
            self.missed = true;
            let lived = now.saturating_duration_since(stream.opened);
            if lived < REOPEN_AFTER {
                self.due = stream.opened.checked_add(REOPEN_AFTER);
            } else {
                self.refresh(now);
            }
        }
    }

    /// When a stream is to be opened.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// That time has come.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.refresh(now);
        }
    }

    /// Opens a stream where there is none with what is wanted now, one at a time.
    fn refresh(&mut self, now: Instant) {
        if self.opening.is_some() || self.due.is_some() {
            return;
        }
        let is_wanted = !self.lists.is_empty() || !self.uris.is_empty();
        match &self.serving {
            Some(stream) if is_wanted && stream.uris == self.uris => {
                let served = stream.uris.clone();
                self.answer_waiting(&served, |_| Ok(()));
            }
            Some(stream) if !is_wanted => {
                self.steps.push(Step::Close(stream.number));
                self.serving = None;
            }
            None if !is_wanted => {}
            Some(_) | None => self.open(now),
        }
    }

    fn open(&mut self, now: Instant) {
        self.last += 1;
        self.opening = Some(Stream {
            number: self.last,
            uris: self.uris.clone(),
            opened: now,
        });
        self.steps.push(Step::Open(self.last, self.filter()));
    }

    fn filter(&self) -> String {
        let mut members: Vec<String> = self
            .lists
            .iter()
            .map(|(name, _)| format!(r#""{name}":true"#))
            .collect();
        if !self.uris.is_empty() {
            let uris: Vec<String> = self.uris.iter().map(|uri| quoted(uri)).collect();
            members.push(format!(r#""resourceSubscriptions":[{}]"#, uris.join(",")));
        }
        format!("{{{}}}", members.join(","))
    }

    /// Whatever changed meanwhile, nobody was told: all of it may have.
    fn tell_missed(&mut self, uris: &BTreeSet<String>) {
        let lists = self.lists.iter().map(|(_, name)| Step::Missed(name, None));
        self.steps.extend(lists);
        let updates = uris.iter().filter(|uri| self.uris.contains(*uri));
        let updates = updates.map(|uri| {
            let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
            Step::Missed(method::RESOURCES_UPDATED, Some(params))
        });
        self.steps.extend(updates);
    }

    fn answer_waiting(
        &mut self,
        uris: &BTreeSet<String>,
        answer: impl Fn(&str) -> Result<(), String>,
    ) {
        let (asked, waiting): (Vec<_>, Vec<_>) = self
            .waiting
            .drain(..)
            .partition(|(_, uri)| uris.contains(uri));
        self.waiting = waiting;
        for (id, uri) in asked {
            self.steps.push(Step::Answer(id, answer(&uri)));
        }
    }
}
