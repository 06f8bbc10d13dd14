//! The sessions of hosts and clients: what each told at `initialize`, what each set up, and which one is the MCPL
//! host that serves (P1, G15). It sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

use super::timers::Deadlines;
use crate::ids::SessionId;
use crate::wire::jsonrpc::{RequestId, quoted};
use crate::wire::mcp::{LEVELS, Revision, STATELESS_MARK};
use crate::wire::mcpl;

/// Subscriptions of one session.
const SUBSCRIPTIONS_MAX: usize = 10_000;

/// The severity of a log level's name.
pub(super) fn severity(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| *level == name)
}

/// The name of a severity.
pub(super) fn level_name(severity: usize) -> &'static str {
    LEVELS.get(severity).copied().unwrap_or("debug")
}

/// One session.
#[derive(Debug, Default)]
pub(super) struct Session {
    name: Option<String>,
    stage: Stage,
    client: Client,
    serves: bool,
    deadline: Option<Instant>,
    level: Option<usize>,
    subscriptions: BTreeSet<Box<str>>,
    /// Its `featureSets/update` requests that wait for a receipt.
    pub(super) updates: Vec<RequestId>,
    /// Its calls under way to the server.
    pub(super) calls: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Attached,
    Answered,
    Initialized,
}

/// What a session told at `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    revision: Option<Revision>,
    mcpl: bool,
    sampling: bool,
    elicitation: bool,
    roots: bool,
    stateless: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialize {
    #[serde(default)]
    protocol_version: String,
    #[serde(default)]
    capabilities: Value,
}

impl Client {
    /// Reads the params of `initialize`.
    pub(super) fn read(params: &str) -> Self {
        let Ok(told) = serde_json::from_str::<Initialize>(params) else {
            return Self::default();
        };
        let has = |path: &str| {
            told.capabilities
                .pointer(path)
                .is_some_and(|value| value.is_object() || *value == Value::Bool(true))
        };
        Self {
            revision: Revision::parse(&told.protocol_version),
            mcpl: has("/experimental/mcpl"),
            sampling: has("/sampling"),
            elicitation: has("/elicitation"),
            roots: has("/roots"),
            stateless: told
                .capabilities
                .get("experimental")
                .is_some_and(|marks| marks.get(STATELESS_MARK).is_some()),
        }
    }

    /// It is an MCPL host.
    pub(super) fn is_mcpl(&self) -> bool {
        self.mcpl
    }

    /// The revision that its session speaks.
    pub(super) fn revision(&self) -> Revision {
        self.revision.unwrap_or(Revision::LATEST)
    }
}

/// What a server asks of a client, as MCP's client capabilities have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skill {
    /// `sampling/createMessage`
    Sampling,
    /// `elicitation/create`
    Elicitation,
    /// `roots/list`
    Roots,
}

impl Session {
    /// Whether what it sends may be batches.
    pub(super) fn has_batches(&self) -> bool {
        self.is_answered() && self.client.revision().has_batches()
    }

    /// `initialize` was answered.
    pub(super) fn is_answered(&self) -> bool {
        self.stage >= Stage::Answered
    }

    fn is_initialized(&self) -> bool {
        self.stage == Stage::Initialized
    }

    /// It is the kind of session that receives MCPL traffic.
    pub(super) fn is_mcpl(&self) -> bool {
        self.client.mcpl
    }

    /// Its policy is settled (P1).
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    fn can(&self, skill: Skill) -> bool {
        self.is_initialized()
            && self.may_be_asked()
            && match skill {
                Skill::Sampling => self.client.sampling,
                Skill::Elicitation => self.client.elicitation,
                Skill::Roots => self.client.roots,
            }
    }

    /// A stateless client is there only while a call of its own is (decision 0019).
    fn may_be_asked(&self) -> bool {
        !self.client.stateless || self.calls > 0
    }

    /// Sets the level; whether it reads as one.
    pub(super) fn set_level(&mut self, name: &str) -> bool {
        let level = severity(name);
        self.level = level.or(self.level);
        level.is_some()
    }

    /// Whether it wants log messages of that severity; one that set no level takes what the server sends.
    pub(super) fn wants_log(&self, severity: Option<usize>) -> bool {
        self.is_initialized()
            && self
                .level
                .is_none_or(|level| severity.is_none_or(|s| s >= level))
    }

    /// Adds a subscription; `false` where there are too many.
    pub(super) fn subscribe(&mut self, uri: &str) -> bool {
        let fits = self.subscriptions.len() < SUBSCRIPTIONS_MAX;
        if fits {
            self.subscriptions.insert(uri.into());
        }
        fits
    }

    /// Takes a subscription back.
    pub(super) fn unsubscribe(&mut self, uri: &str) {
        self.subscriptions.remove(uri);
    }
}

/// How a session takes the place of the MCPL host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The place was free.
    Free,
    /// That session gives way.
    Replaces(SessionId),
    /// Another host has it.
    Refused,
}

/// All sessions of one server.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    sessions: BTreeMap<SessionId, Session>,
    host: Option<SessionId>,
    deadlines: Deadlines<SessionId>,
}

impl Hosts {
    /// A session came.
    pub(super) fn attach(&mut self, id: SessionId, name: Option<String>) {
        let session = Session {
            name,
            ..Session::default()
        };
        self.sessions.insert(id, session);
    }

    /// A session went.
    pub(super) fn detach(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        if self.host == Some(id) {
            self.host = None;
        }
        if let Some(at) = session.deadline {
            self.deadlines.clear(at, id);
        }
        Some(session)
    }

    /// Whether an MCPL session may become the host, and in whose place. One without a name is nobody's second self.
    pub(super) fn claim(&self, id: SessionId, replace: bool) -> Claim {
        let Some(holder) = self.host.filter(|host| *host != id) else {
            return Claim::Free;
        };
        let name = |id| self.get(id).and_then(|session| session.name.as_deref());
        if replace || (name(id).is_some() && name(id) == name(holder)) {
            Claim::Replaces(holder)
        } else {
            Claim::Refused
        }
    }

    /// `initialize` is answered.
    pub(super) fn answer(&mut self, id: SessionId, client: Client) {
        if client.mcpl {
            self.host = Some(id);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.stage = Stage::Answered;
            session.client = client;
        }
    }

    /// `notifications/initialized` came: an MCPL host must send its policy by `deadline` (P1).
    pub(super) fn initialized(&mut self, id: SessionId, deadline: Option<Instant>) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.stage != Stage::Answered {
            return;
        }
        session.stage = Stage::Initialized;
        if session.client.mcpl && !session.serves {
            session.deadline = deadline;
            if let Some(at) = deadline {
                self.deadlines.set(at, id);
            }
        }
    }

    /// The MCPL session serves from now on; `false` where it did already.
    pub(super) fn serve(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        if let Some(at) = session.deadline.take() {
            self.deadlines.clear(at, id);
        }
        !std::mem::replace(&mut session.serves, true)
    }

    /// The next host whose policy is overdue. Its deadline is over.
    pub(super) fn expire(&mut self, now: Instant) -> Option<SessionId> {
        let (at, id) = self.deadlines.next().filter(|(at, _)| *at <= now)?;
        self.deadlines.clear(at, id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.deadline = None;
        }
        Some(id)
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadlines.next().map(|(at, _)| at)
    }

    /// A session.
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// A session.
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// The MCPL host that serves.
    pub(super) fn serving(&self) -> Option<SessionId> {
        self.host
            .filter(|id| self.get(*id).is_some_and(Session::serves))
    }

    /// Every session that is initialized.
    pub(super) fn initialized_ones(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let all = self.sessions.iter();
        all.filter(|(_, session)| session.is_initialized())
            .map(|(id, session)| (*id, session))
    }

    /// Every session, to change it.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (SessionId, &mut Session)> {
        self.sessions.iter_mut().map(|(id, session)| (*id, session))
    }

    /// Which there are.
    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Who serves a request of the server: the one with calls under way, if several the host, else the oldest that
    /// can. One that `owes` an answer is past over, for its call waits for that; where all owe one, the last that was
    /// asked is asked again, for a server may ask for several things at once.
    pub(super) fn for_request(
        &self,
        skill: Skill,
        owes: impl Fn(SessionId) -> Option<u64>,
    ) -> Option<SessionId> {
        let busy = self.sessions.values().any(|session| session.calls > 0);
        let can = |id: &SessionId| {
            self.get(*id)
                .is_some_and(|session| session.can(skill) && (!busy || session.calls > 0))
        };
        let is_free = |id: &SessionId| owes(*id).is_none();
        let able = || self.sessions.keys().copied().filter(can);
        let first = self.host.filter(can).or_else(|| able().find(is_free));
        first
            .or_else(|| self.only_caller_is_stateless(&owes))
            .or_else(|| able().max_by_key(|id| owes(*id)))
    }

    /// Whether that client serves such a request, or is to be told that it cannot (-32021).
    pub(super) fn can(&self, id: SessionId, skill: Skill) -> bool {
        self.get(id)
            .is_some_and(|session| session.can(skill) || session.client.stateless)
    }

    /// The stateless client that alone has calls under way, but for those that owe an answer: it is told what its call
    /// needs and it cannot do (-32021).
    fn only_caller_is_stateless(
        &self,
        owes: impl Fn(SessionId) -> Option<u64>,
    ) -> Option<SessionId> {
        let callers = self.sessions.iter().filter(|(_, held)| held.calls > 0);
        let mut free = callers.filter(|(id, _)| owes(**id).is_none());
        let (id, session) = free.next()?;
        (free.next().is_none() && session.client.stateless).then_some(*id)
    }

    /// The most verbose level that any session set.
    pub(super) fn level(&self) -> Option<usize> {
        self.sessions
            .values()
            .filter_map(|session| session.level)
            .min()
    }

    /// Every resource that some session subscribed to.
    pub(super) fn subscriptions(&self) -> BTreeSet<Box<str>> {
        let all = self.sessions.values();
        all.flat_map(|session| session.subscriptions.iter().cloned())
            .collect()
    }

    /// Who subscribed to that resource.
    pub(super) fn subscribers(&self, uri: &str) -> Vec<SessionId> {
        let all = self.sessions.iter();
        all.filter(|(_, session)| session.subscriptions.contains(uri))
            .map(|(id, _)| *id)
            .collect()
    }
}

/// What the gateway tells a host about the server behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Introduction<'a> {
    /// The server's `serverInfo`, as JSON text.
    pub(super) info: Option<&'a str>,
    /// The server's `instructions`, as JSON text.
    pub(super) instructions: Option<&'a str>,
    /// The server's `experimental.mcpl`, as JSON text.
    pub(super) manifest: Option<&'a str>,
    /// It is of the stateless revision.
    pub(super) is_stateless: bool,
    /// The server's `tasks`, as JSON text.
    pub(super) tasks: Option<&'a str>,
}

impl Introduction<'_> {
    /// The result of `initialize` for a client.
    pub(super) fn result(&self, client: &Client) -> String {
        let changes = r#"{"listChanged":true}"#;
        let mut capabilities = format!(
            r#""tools":{changes},"prompts":{changes},"resources":{{"subscribe":true,"listChanged":true}},"logging":{{}},"completions":{{}}"#
        );
        let experimental = self.experimental(client);
        if !experimental.is_empty() {
            capabilities += &format!(r#","experimental":{{{}}}"#, experimental.join(","));
        }
        if let Some(tasks) = self.tasks.filter(|_| client.revision().has_tasks()) {
            capabilities += &format!(r#","tasks":{tasks}"#);
        }
        let own = format!(
            r#"{{"name":"tidegate","version":{}}}"#,
            quoted(env!("CARGO_PKG_VERSION"))
        );
        let info = self.info.unwrap_or(&own);
        let instructions = self
            .instructions
            .map_or_else(String::new, |text| format!(r#","instructions":{text}"#));
        format!(
            r#"{{"protocolVersion":"{}","capabilities":{{{capabilities}}},"serverInfo":{info}{instructions}}}"#,
            client.revision()
        )
    }

    /// What the two have in common beside MCP's own capabilities: members of an object.
    fn experimental(&self, client: &Client) -> Vec<String> {
        let mut marks = Vec::new();
        if client.mcpl {
            let version = format!(r#"{{"version":{}}}"#, quoted(mcpl::VERSION));
            let manifest = self.manifest.filter(|text| text.starts_with('{'));
            marks.push(format!(r#""mcpl":{}"#, manifest.unwrap_or(&version)));
        }
        if client.stateless && self.is_stateless {
            marks.push(format!(r#""{STATELESS_MARK}":{{}}"#));
        }
        marks
    }
}
