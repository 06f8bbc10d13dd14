//! Which revision a server speaks, found with one or two messages on the transport that there is (decision 0015): what
//! the engine's `initialize` becomes, and what the answers mean.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::own::DISCOVERY;
use super::stamp::Stamp;
use crate::revision::stateless::{MARK, VERSION, code, key, method};
use crate::wire::jsonrpc::{self, Error, Kind, Message, code as standard, member};
use crate::wire::mcp::{Revision, method as session};
use crate::wire::object::{Change, edited};

/// How long a server that refused `initialize` may take to answer `server/discover`. An old one may never.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a server without a name is called.
const NAMELESS: &str = r#"{"name":"unknown","version":"0"}"#;

/// What is asked first, and what may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// `initialize`, and `server/discover` where it is refused: no server ends of it.
    InitializeFirst,
    /// `server/discover`, and `initialize` where the answer is no stateless server's: for requests that stand alone.
    DiscoverFirst,
    /// `server/discover` alone: 2026-07-28, or no connection.
    Stateless,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Step {
    /// To the server, with the id where it is a request.
    Send(Bytes, Option<u64>),
    /// To the engine, as if the server had sent it.
    Tell(Bytes),
    /// Nothing is translated from now on, for it is a session server or none. The message goes to the engine.
    Session(Bytes),
    /// It is a stateless one.
    Stateless(Box<Found>),
}

/// A stateless server.
#[derive(Debug)]
pub(super) struct Found {
    /// The answer to `initialize`.
    pub(super) answer: Bytes,
    /// What the requests to it carry.
    pub(super) stamp: Stamp,
    /// Its capabilities, as JSON text.
    pub(super) capabilities: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Initialize,
    Discover,
}

/// A server of which nothing is known yet.
#[derive(Debug)]
pub(super) struct Finding {
    opening: Opening,
    asked: Asked,
    /// The engine's, once it came.
    initialize: Option<Message>,
    /// The answer by which the server refused it.
    refusal: Option<Message>,
    /// `server/discover` came to nothing, so the answer to `initialize` is the last word.
    undiscovered: bool,
    /// `server/discover` was sent a second time.
    asked_again: bool,
    /// Until when a refusal may be outdone by the answer to `server/discover`.
    until: Option<Instant>,
}

impl Finding {
    pub(super) fn new(opening: Opening) -> Self {
        Self {
            opening,
            asked: Asked::Nothing,
            initialize: None,
            refusal: None,
            undiscovered: false,
            asked_again: false,
            until: None,
        }
    }

    /// A frame of the engine's.
    pub(super) fn take_of_engine(&mut self, message: &Message) -> Step {
        if message.kind() != Kind::Request || message.method() != session::INITIALIZE {
            return Step::Send(message.raw().clone(), None);
        }
        self.initialize = Some(message.clone());
        match self.opening {
            Opening::InitializeFirst => self.ask(),
            Opening::DiscoverFirst | Opening::Stateless => self.discover(message),
        }
    }

    /// A message of the server's.
    pub(super) fn take_of_server(&mut self, message: Message, now: Instant) -> Step {
        let Some(initialize) = self.initialize.clone() else {
            return Step::Tell(message.raw().clone());
        };
        let about_nothing = message.id().is_none() && message.error().is_some();
        let answers = |id: Option<u64>| {
            message.kind() == Kind::Response && (about_nothing || message.our_id() == id)
        };
        match self.asked {
            Asked::Initialize if answers(initialize.our_id()) => {
                self.initialized(message, &initialize, now)
            }
            Asked::Discover if answers(Some(DISCOVERY)) => self.discovered(&message, &initialize),
            Asked::Nothing | Asked::Initialize | Asked::Discover => {
                Step::Tell(message.raw().clone())
            }
        }
    }

    /// The transport is lost: what the server had said when it refused `initialize` is worth more than that it went.
    pub(super) fn take_loss(&mut self) -> Option<Message> {
        self.refusal.take()
    }

    fn ask(&mut self) -> Step {
        self.asked = Asked::Initialize;
        let initialize = self.initialize.as_ref();
        let frame = initialize.map_or_else(Bytes::new, |message| message.raw().clone());
        Step::Send(frame, initialize.and_then(Message::our_id))
    }

    fn discover(&mut self, initialize: &Message) -> Step {
        self.asked = Asked::Discover;
        let stamp = Stamp::new(initialize);
        Step::Send(discovery(DISCOVERY, &stamp), Some(DISCOVERY))
    }

    /// When the refusal is the last word.
    pub(super) fn due(&self) -> Option<Instant> {
        self.until
    }

    /// That time has come.
    pub(super) fn wake(&mut self, now: Instant) -> Option<Step> {
        self.until.filter(|until| *until <= now)?;
        let refusal = self.refusal.take()?;
        Some(Step::Session(refusal.raw().clone()))
    }

    fn initialized(&mut self, answer: Message, initialize: &Message, now: Instant) -> Step {
        if answer.error().is_none() || self.undiscovered {
            return Step::Session(answer.raw().clone());
        }
        self.refusal = Some(answer);
        self.until = now.checked_add(PATIENCE);
        self.discover(initialize)
    }

    fn discovered(&mut self, answer: &Message, initialize: &Message) -> Step {
        match read(answer) {
            Verdict::Stateless(result) => Step::Stateless(Box::new(found(initialize, result))),
            // It refused what it says that it speaks; once that is taken for a mistake.
            Verdict::Other(versions) if names(versions, VERSION) && !self.asked_again => {
                self.asked_again = true;
                self.discover(initialize)
            }
            Verdict::Other(versions) if !self.may_initialize(versions) => {
                self.fail(initialize, &unsupported(versions))
            }
            Verdict::Other(_) => self.fall_back(),
            Verdict::Not(why) => match self.opening {
                Opening::Stateless => self.fail(initialize, &why),
                Opening::InitializeFirst => self.refused(initialize, &why),
                Opening::DiscoverFirst => self.fall_back(),
            },
        }
    }

    /// Of the revisions that it names, one begins with `initialize`, and that has not been refused.
    fn may_initialize(&self, versions: &str) -> bool {
        let named: Vec<String> = serde_json::from_str(versions).unwrap_or_default();
        self.opening == Opening::DiscoverFirst
            && named.iter().any(|name| Revision::parse(name).is_some())
    }

    fn fall_back(&mut self) -> Step {
        self.undiscovered = true;
        self.ask()
    }

    fn refused(&mut self, initialize: &Message, why: &Error) -> Step {
        match self.refusal.take() {
            Some(refusal) => Step::Session(refusal.raw().clone()),
            None => self.fail(initialize, why),
        }
    }

    fn fail(&mut self, initialize: &Message, error: &Error) -> Step {
        self.refusal = None;
        let id = initialize.id_text().unwrap_or("null");
        Step::Session(jsonrpc::error_response(id, error))
    }
}

/// A `server/discover` under this id.
pub(super) fn discovery(id: u64, stamp: &Stamp) -> Bytes {
    let meta = stamp.members();
    let name = method::DISCOVER;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{name}","params":{{"_meta":{{{meta}}}}}}}"#)
        .into()
}

/// What an answer to `server/discover` says.
enum Verdict<'a> {
    /// It speaks 2026-07-28. The result.
    Stateless(&'a str),
    /// It speaks these revisions, a list as JSON text.
    Other(&'a str),
    /// It is no stateless server's.
    Not(Error),
}

fn read(answer: &Message) -> Verdict<'_> {
    if let Some(error) = answer.error() {
        return refusal(error);
    }
    let result = answer.result().unwrap_or("null");
    match member(result, "supportedVersions") {
        Some(versions) if names(versions, VERSION) => Verdict::Stateless(result),
        Some(versions) => Verdict::Other(versions),
        None => Verdict::Not(Error::new(
            standard::INVALID_REQUEST,
            "its answer to server/discover names no supportedVersions",
        )),
    }
}

fn refusal(error: &str) -> Verdict<'_> {
    let number = member(error, "code").and_then(|code| code.parse().ok());
    let supported = member(error, "data").and_then(|data| member(data, "supported"));
    if let (Some(code::UNSUPPORTED_VERSION), Some(versions)) = (number, supported) {
        return Verdict::Other(versions);
    }
    let said = member(error, "message").and_then(|text| serde_json::from_str::<String>(text).ok());
    let code = number.unwrap_or(standard::INTERNAL);
    let text = format!(
        "server/discover was refused ({code}): {}",
        said.unwrap_or_default()
    );
    // What old servers answer to a method that they do not know: another try changes nothing (R10).
    let unknown = [
        standard::METHOD_NOT_FOUND,
        standard::INVALID_PARAMS,
        standard::INVALID_REQUEST,
    ];
    let verdict = if unknown.contains(&code) {
        code::UNSUPPORTED_VERSION
    } else {
        code
    };
    Verdict::Not(Error::new(verdict, text))
}

fn names(versions: &str, version: &str) -> bool {
    let versions: Vec<String> = serde_json::from_str(versions).unwrap_or_default();
    versions.iter().any(|named| named == version)
}

/// The verdict in the words that the engine reads (R10).
fn unsupported(versions: &str) -> Error {
    let supported: Option<serde_json::Value> = serde_json::from_str(versions).ok();
    let text = "it speaks no revision that this gateway does";
    Error::new(code::UNSUPPORTED_VERSION, text)
        .with_data(serde_json::json!({ "supported": supported }))
}

/// What `initialize` would have answered, had there been one.
fn found(initialize: &Message, result: &str) -> Found {
    let capabilities = member(result, "capabilities").unwrap_or("{}");
    let offered = initialize
        .params()
        .and_then(|params| member(params, "protocolVersion"))
        .unwrap_or(r#""2025-11-25""#);
    let meta = member(result, "_meta").unwrap_or("{}");
    let info = member(meta, key::SERVER_INFO).or_else(|| member(result, "serverInfo"));
    let instructions = member(result, "instructions")
        .filter(|text| text.starts_with('"'))
        .map_or_else(String::new, |text| format!(r#","instructions":{text}"#));
    let answer = format!(
        r#"{{"protocolVersion":{offered},"capabilities":{},"serverInfo":{}{instructions}}}"#,
        as_of_a_session(capabilities),
        info.filter(|text| text.starts_with('{'))
            .unwrap_or(NAMELESS),
    );
    let id = initialize.id_text().unwrap_or("0");
    Found {
        answer: jsonrpc::response(id, &answer),
        stamp: Stamp::new(initialize),
        capabilities: capabilities.to_owned(),
    }
}

/// MCPL and tasks go: neither is translated. The mark comes in.
fn as_of_a_session(capabilities: &str) -> String {
    let mark = format!(r#""{MARK}":{{}}"#);
    let experimental = member(capabilities, "experimental").unwrap_or("{}");
    let kept = edited(experimental, |name, _| match name {
        "mcpl" | MARK => Change::Remove,
        _ => Change::Keep,
    });
    let experimental = with(&kept.unwrap_or_else(|| "{}".into()), &mark);
    let others = edited(capabilities, |name, _| match name {
        "experimental" | "tasks" => Change::Remove,
        _ => Change::Keep,
    });
    let others = others.unwrap_or_else(|| "{}".into());
    with(&others, &format!(r#""experimental":{experimental}"#))
}

/// An object that `edited` wrote, with one more member.
fn with(object: &str, member: &str) -> String {
    match object.strip_suffix('}') {
        Some("{") | None => format!("{{{member}}}"),
        Some(open) => format!("{open},{member}}}"),
    }
}
