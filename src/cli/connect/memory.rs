//! What the host set up and the gateway took, so that it can be set up again on the next connection (G15).

use std::collections::BTreeSet;

use crate::wire::jsonrpc::{self, Message, quoted};
use crate::wire::mcp::{Revision, method};
use crate::wire::mcpl;

/// Subscriptions that are remembered, in number and in bytes of their URIs.
const SUBSCRIPTIONS_MAX: usize = 10_000;
/// See [`SUBSCRIPTIONS_MAX`].
const SUBSCRIPTION_BYTES_MAX: usize = 4 << 20;
/// Reductions of an MCPL host's policy that are remembered since the policy itself, and the longest, in bytes.
const REDUCTIONS_MAX: usize = 64;
/// See [`REDUCTIONS_MAX`].
const REDUCTION_MAX: usize = 64 << 10;

/// What a call sets up, once it has succeeded.
#[derive(Clone, Debug)]
pub(super) enum Setting {
    /// Nothing.
    None,
    /// The session itself.
    Initialize(Message),
    /// The log level; the params.
    Level(Box<str>),
    /// A subscription to that URI.
    Subscribe(Box<str>),
    /// The end of one.
    Unsubscribe(Box<str>),
    /// An MCPL host's policy; the params.
    Policy(Box<str>),
}

impl Setting {
    /// What that request of the host's sets up.
    pub(super) fn of(request: &Message) -> Self {
        let params = || request.params().unwrap_or("{}").into();
        match request.method() {
            method::INITIALIZE => Self::Initialize(request.clone()),
            method::SET_LEVEL => Self::Level(params()),
            method::RESOURCES_SUBSCRIBE => uri(request).map_or(Self::None, Self::Subscribe),
            method::RESOURCES_UNSUBSCRIBE => uri(request).map_or(Self::None, Self::Unsubscribe),
            mcpl::method::FEATURE_SETS_UPDATE => Self::Policy(params()),
            _ => Self::None,
        }
    }
}

fn uri(request: &Message) -> Option<Box<str>> {
    let span = request.param(&["uri"])?;
    serde_json::from_str(request.text(&span)).ok()
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Memory {
    session: Option<Session>,
    initialized: bool,
    level: Option<Box<str>>,
    subscriptions: BTreeSet<Box<str>>,
    subscription_bytes: usize,
    policy: Option<Box<str>>,
    reductions: Vec<Message>,
}

/// The session as the host knows it.
#[derive(Debug)]
struct Session {
    request: Message,
    revision: String,
    manifest: Option<String>,
}

/// Why a session cannot be taken up again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unlike {
    #[error("it refuses `initialize`: {0}")]
    Refused(String),
    #[error("it answers `initialize` with revision {now}, and the host was told {told}")]
    Revision { told: String, now: String },
}

impl Memory {
    /// A call has succeeded with that answer.
    pub(super) fn take(&mut self, setting: Setting, answer: &Message) {
        match setting {
            Setting::None => {}
            Setting::Initialize(request) => {
                let session = Session {
                    request,
                    revision: revision(answer),
                    manifest: manifest(answer),
                };
                self.session.get_or_insert(session);
            }
            Setting::Level(params) => self.level = Some(params),
            Setting::Subscribe(uri) => self.subscribe(uri),
            Setting::Unsubscribe(uri) => {
                if self.subscriptions.remove(&uri) {
                    self.subscription_bytes -= uri.len();
                }
            }
            Setting::Policy(params) => {
                self.policy = Some(params);
                self.reductions.clear();
            }
        }
    }

    fn subscribe(&mut self, uri: Box<str>) {
        let bytes = self.subscription_bytes + uri.len();
        let fits = self.subscriptions.len() < SUBSCRIPTIONS_MAX && bytes <= SUBSCRIPTION_BYTES_MAX;
        if fits && self.subscriptions.insert(uri) {
            self.subscription_bytes = bytes;
        }
    }

    /// The host said that it is initialized.
    pub(super) fn initialized(&mut self) {
        self.initialized = true;
    }

    /// Whether it said so, on this connection or an earlier one.
    pub(super) fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// An MCPL host took something out of its policy, without an answer to wait for.
    pub(super) fn reduce(&mut self, message: &Message) {
        if self.reductions.len() < REDUCTIONS_MAX && message.len() <= REDUCTION_MAX {
            self.reductions.push(message.clone());
        }
    }

    /// The host's `initialize` under another id, where it was answered.
    pub(super) fn greeting(&self, id: &str) -> Option<bytes::Bytes> {
        self.session
            .as_ref()
            .map(|session| session.request.with_id(id))
    }

    /// Whether the session's revision has batches.
    pub(super) fn has_batches(&self) -> bool {
        let told = self.session.as_ref();
        let revision = told.and_then(|session| Revision::parse(&session.revision));
        revision.is_some_and(Revision::has_batches)
    }

    /// Whether the new answer to `initialize` is one that the host's session can go on with.
    pub(super) fn compare(&self, answer: &Message) -> Result<(), Unlike> {
        if answer.result().is_none() {
            let error = answer.error().unwrap_or("null");
            return Err(Unlike::Refused(error.chars().take(200).collect()));
        }
        let (told, now) = (self.revision(), revision(answer));
        if told == now {
            return Ok(());
        }
        Err(Unlike::Revision {
            told: told.into(),
            now,
        })
    }

    fn revision(&self) -> &str {
        self.session
            .as_ref()
            .map_or("", |session| &session.revision)
    }

    /// What the new connection is told to be where the old one was; `ids` gives the ids of its requests.
    pub(super) fn replay(&self, mut ids: impl FnMut() -> String) -> Vec<bytes::Bytes> {
        if !self.initialized {
            return Vec::new();
        }
        let mut frames = vec![jsonrpc::notification(method::INITIALIZED, None)];
        let mut ask = |name, params: &str| request(&ids(), name, params);
        if let Some(params) = &self.policy {
            frames.push(ask(mcpl::method::FEATURE_SETS_UPDATE, params));
        }
        frames.extend(
            self.reductions
                .iter()
                .map(|reduction| reduction.raw().clone()),
        );
        if let Some(params) = &self.level {
            frames.push(ask(method::SET_LEVEL, params));
        }
        for uri in &self.subscriptions {
            let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
            frames.push(ask(method::RESOURCES_SUBSCRIBE, &params));
        }
        frames
    }

    /// What the host is told on a new connection: which lists and what else may have changed meanwhile (A6).
    pub(super) fn news(&mut self, answer: &Message) -> Vec<bytes::Bytes> {
        if !self.initialized {
            return Vec::new();
        }
        let lists = [
            ("tools", method::TOOLS_CHANGED),
            ("resources", method::RESOURCES_CHANGED),
            ("prompts", method::PROMPTS_CHANGED),
        ];
        let offers = |(name, _): &(&str, _)| answer.in_result(&["capabilities", name]).is_some();
        let told = lists.iter().filter(|list| offers(list));
        let mut frames: Vec<_> = told
            .map(|(_, name)| jsonrpc::notification(name, None))
            .collect();
        frames.extend(self.manifest_changed(answer));
        frames
    }

    /// The manifest is another one: which parts of it is for the host to find out.
    fn manifest_changed(&mut self, answer: &Message) -> Option<bytes::Bytes> {
        let session = self.session.as_mut()?;
        let now = manifest(answer)?;
        if session.manifest.as_deref() == Some(&now) {
            return None;
        }
        session.manifest = Some(now);
        let domains = mcpl::Domain::ALL
            .map(|domain| quoted(domain.label()))
            .join(",");
        let params = format!(r#"{{"domains":[{domains}]}}"#);
        Some(jsonrpc::notification(
            mcpl::method::MANIFEST_CHANGED,
            Some(&params),
        ))
    }
}

fn revision(answer: &Message) -> String {
    let span = answer.in_result(&["protocolVersion"]);
    let read = span.and_then(|span| serde_json::from_str(answer.text(&span)).ok());
    read.unwrap_or_default()
}

fn manifest(answer: &Message) -> Option<String> {
    let span = answer.in_result(&["capabilities", "experimental", "mcpl"])?;
    Some(answer.text(&span).to_owned())
}

/// A request of the bridge's own. `id` and `params` are JSON texts.
fn request(id: &str, name: &str, params: &str) -> bytes::Bytes {
    let name = quoted(name);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name},"params":{params}}}"#).into()
}
