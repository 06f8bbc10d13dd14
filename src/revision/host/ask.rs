//! One request of a stateless client as it was read and checked, and the forms in which it is passed on. What it asks
//! for is none of its business.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::fields::{self, Field, Head, Mismatch};
use super::refused::{self, Refused};
use crate::revision::mirrored::Mirrored;
use crate::revision::stateless::{VERSION, header, key};
use crate::wire::jsonrpc::{self, Kind, Message, member};
use crate::wire::mcp::{LEVELS, Revision, method};
use crate::wire::methods;
use crate::wire::object::{self, Change};

/// What a client is told that it can speak here: without a session, and with one.
pub const SUPPORTED: [&str; 4] = [VERSION, "2025-11-25", "2025-06-18", "2025-03-26"];

/// The answers to what the server asked, in a request that is made again.
const RESPONSES: &str = "inputResponses";
/// What such a request must give back.
const STATE: &str = "requestState";

/// Methods of the session revisions that are gone.
const GONE: [&str; 5] = [
    method::INITIALIZE,
    method::PING,
    method::SET_LEVEL,
    method::RESOURCES_SUBSCRIBE,
    method::RESOURCES_UNSUBSCRIBE,
];
/// Methods whose answer may ask for input.
const ASKABLE: [&str; 3] = [
    method::TOOLS_CALL,
    method::PROMPTS_GET,
    method::RESOURCES_READ,
];

/// Whether a POST is of the stateless revision: by its head or its `_meta`, never by what it would be answered. One
/// that names no method in its head is told by a revision that is newer than those with sessions.
#[must_use]
pub fn is_stateless(head: &impl Head, message: &Message) -> bool {
    let is_newer = |version: &str| {
        // Revisions are dates.
        version.len() == VERSION.len() && version > Revision::LATEST.as_str()
    };
    let opens = message.method() == method::INITIALIZE;
    let (named, is_older) = match head.field(header::PROTOCOL_VERSION) {
        Field::Text(version) => {
            let version = version.trim();
            (
                !opens && is_newer(version),
                Revision::parse(version).is_some(),
            )
        }
        Field::Absent | Field::Unreadable => (false, false),
    };
    // A head may repeat the method in any revision, as the conformance suite's does.
    let opens_session = opens && is_older;
    let is_head = !opens_session && head.field(header::METHOD) != Field::Absent;
    is_head || named || message.param(&["_meta", key::PROTOCOL_VERSION]).is_some()
}

/// A request that may be served.
#[derive(Clone, Debug)]
pub struct Ask {
    message: Message,
    capabilities: Box<str>,
    level: Option<Box<str>>,
    token: Option<Box<str>>,
    state: Option<Box<str>>,
    responses: Option<Box<str>>,
}

/// The members of `params._meta` that each request has (MCP 2026-07-28, "Per-request protocol fields").
#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

impl Ask {
    /// Reads and checks a request.
    ///
    /// # Errors
    /// The answer that refuses it.
    pub fn read(head: &impl Head, message: Message) -> Result<Self, Refused> {
        let refuse = |refusal: refused::Refusal| refusal.of(&message);
        if message.kind() != Kind::Request {
            return Err(refuse(refused::no_request()));
        }
        let params = message.params().unwrap_or("{}");
        let meta = member(params, "_meta").and_then(|meta| serde_json::from_str(meta).ok());
        let (version, meta) = meta
            .and_then(|meta: Meta<'_>| Some((string(meta.version?)?, meta)))
            .ok_or_else(|| refuse(refused::malformed(NEEDS_VERSION)))?;
        let capabilities = meta.capabilities.map(RawValue::get);
        let capabilities = capabilities
            .filter(|text| text.starts_with('{'))
            .ok_or_else(|| refuse(refused::malformed(NEEDS_CAPABILITIES)))?;
        agrees(head, &version, &message).map_err(|odd| refuse(refused::mismatch(&odd)))?;
        if version != VERSION {
            return Err(refuse(refused::version(&version)));
        }
        if !is_served(message.method()) {
            return Err(refuse(refused::unknown(message.method())));
        }
        let level = meta
            .level
            .map(|level| known_level(level).ok_or(UNKNOWN_LEVEL));
        let level = level
            .transpose()
            .map_err(|why| refuse(refused::malformed(why)))?;
        let (state, responses) = again(&message).map_err(|why| refuse(refused::malformed(why)))?;
        Ok(Self {
            capabilities: capabilities.into(),
            level,
            token: meta.token.map(|token| token.get().into()),
            state,
            responses,
            message,
        })
    }

    /// Its id, as JSON text.
    #[must_use]
    pub fn id(&self) -> &str {
        self.message.id_text().unwrap_or("null")
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.message.method()
    }

    /// What it is told to give back, where it is made again.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Refuses it with an answer of the gateway's own.
    #[must_use]
    pub fn refused(&self, refusal: refused::Refusal) -> Refused {
        refusal.of(&self.message)
    }

    /// Whether it calls a tool, so that parameters of it may have to stand in its head.
    #[must_use]
    pub fn calls_tool(&self) -> bool {
        self.method() == method::TOOLS_CALL
    }

    /// Whether its head says what its arguments say, as far as the tool has it so.
    ///
    /// # Errors
    /// The answer that refuses it.
    pub fn agrees(&self, head: &impl Head, mirrored: &Mirrored) -> Result<(), Refused> {
        let params = self.params();
        let name =
            member(params, "name").and_then(|name| serde_json::from_str::<String>(name).ok());
        let arguments = member(params, "arguments").unwrap_or("{}");
        let name = name.unwrap_or_default();
        let mut values = mirrored.values(&name, arguments);
        values
            .try_for_each(|(field, value)| fields::mirrors(head, field, value))
            .map_err(|odd| self.refused(refused::mismatch(&odd)))
    }

    /// What a request that is made again must be the same in: all but its id, `_meta` and what is new in it.
    #[must_use]
    pub fn print(&self) -> [u8; 32] {
        let salient = object::edited(self.params(), |name, _| match name {
            "_meta" | RESPONSES | STATE => Change::Remove,
            _ => Change::Keep,
        });
        let salient = salient.unwrap_or_default();
        // The same value may be written otherwise the second time.
        let value = serde_json::from_str::<serde_json::Value>(&salient).ok();
        let canonical = value.and_then(|value| serde_json_canonicalizer::to_string(&value).ok());
        let text = canonical.unwrap_or(salient);
        Sha256::new()
            .chain_update(self.method())
            .chain_update([0])
            .chain_update(text)
            .finalize()
            .into()
    }

    pub(super) fn params(&self) -> &str {
        self.message.params().unwrap_or("{}")
    }

    /// The client's capabilities, as JSON text.
    #[must_use]
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// The least severe log message that it wants on its stream, as JSON text; `None` where it wants none.
    pub(super) fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// The token of its progress, as JSON text.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The client's answers to what was asked, as JSON text.
    pub(super) fn responses(&self) -> Option<&str> {
        self.responses.as_deref()
    }

    /// Whether its answer may ask for input.
    #[must_use]
    pub fn is_askable(&self) -> bool {
        ASKABLE.contains(&self.method())
    }

    /// The request for a server of its own revision: with another id.
    pub(super) fn as_it_is(&self, id: &str) -> Bytes {
        self.message.with_id(id)
    }

    /// The request for a server of a session revision: without what that has no place for.
    pub(super) fn of_session(&self, id: &str) -> Bytes {
        let again = self.state.is_some() || self.responses.is_some();
        if again {
            let params = object::edited(self.params(), |name, value| match name {
                RESPONSES | STATE => Change::Remove,
                "_meta" => Change::Replace(without_own(value)),
                _ => Change::Keep,
            });
            let span = self.message.param(&[]);
            let change = span.zip(params.as_deref());
            return self.message.with(id, change.as_slice());
        }
        let span = self.message.param(&["_meta"]);
        let meta = span.map(|span| (without_own(self.message.text(&span)), span));
        let change = meta.as_ref().map(|(meta, span)| (span.clone(), &**meta));
        self.message.with(id, change.as_slice())
    }
}

/// A `_meta` without the members that each request of the stateless revision has.
fn without_own(meta: &str) -> String {
    let own = [
        key::PROTOCOL_VERSION,
        key::CLIENT_INFO,
        key::CLIENT_CAPABILITIES,
        key::LOG_LEVEL,
    ];
    let others = object::edited(meta, |name, _| match own.contains(&name) {
        true => Change::Remove,
        false => Change::Keep,
    });
    others.unwrap_or_else(|| "{}".into())
}

/// Whether the standard fields say what the body says.
fn agrees(head: &impl Head, version: &str, message: &Message) -> Result<(), Mismatch> {
    fields::agree(head, header::PROTOCOL_VERSION, version)?;
    fields::agree(head, header::METHOD, message.method())?;
    let key = match message.method() {
        method::TOOLS_CALL | method::PROMPTS_GET => "name",
        method::RESOURCES_READ => "uri",
        _ => return Ok(()),
    };
    let span = message.param(&[key]);
    let name = span.and_then(|span| serde_json::from_str::<String>(message.text(&span)).ok());
    match name {
        Some(name) => fields::agree_encoded(head, header::NAME, &name),
        None => fields::absent(head, header::NAME),
    }
}

/// Whether a server may be asked for it: MCPL needs a session, and some methods are gone. Others are the server's to
/// know.
fn is_served(name: &str) -> bool {
    !GONE.contains(&name) && methods::find(name).is_none()
}

/// The state and the answers of a request that is made again.
type Again = (Option<Box<str>>, Option<Box<str>>);

fn again(message: &Message) -> Result<Again, &'static str> {
    if !ASKABLE.contains(&message.method()) {
        return Ok((None, None));
    }
    let text = |key| message.param(&[key]).map(|span| message.text(&span));
    let state = text(STATE).map(serde_json::from_str::<Box<str>>);
    let state = state.transpose().map_err(|_| STATE_KIND)?;
    let responses = text(RESPONSES);
    if responses.is_some_and(|responses| !responses.starts_with('{')) {
        return Err(RESPONSES_KIND);
    }
    Ok((state, responses.map(Into::into)))
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// A log level's JSON text, where it is one.
fn known_level(level: &RawValue) -> Option<Box<str>> {
    let name = string(level)?;
    LEVELS
        .contains(&&*name)
        .then(|| jsonrpc::quoted(&name).into())
}

const NEEDS_VERSION: &str =
    "`params._meta` needs `io.modelcontextprotocol/protocolVersion`, a string";
const NEEDS_CAPABILITIES: &str =
    "`params._meta` needs `io.modelcontextprotocol/clientCapabilities`, an object";
const UNKNOWN_LEVEL: &str = "`io.modelcontextprotocol/logLevel` is no log level";
const STATE_KIND: &str = "`requestState` must be the string that was given";
const RESPONSES_KIND: &str = "`inputResponses` must be an object";

#[cfg(test)]
pub(super) mod tests {
    use super::super::fields::tests::Fields;
    use super::*;

    pub(in crate::revision::host) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;

    pub(in crate::revision::host) fn request(method: &str, params: &str) -> Message {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{{params}}}}}"#);
        Message::parse(text.into()).unwrap()
    }

    /// A request whose head agrees with it.
    pub(in crate::revision::host) fn ask(method: &str, params: &str) -> Result<Ask, Refused> {
        let name = match method {
            "tools/call" => Some("echo"),
            _ => None,
        };
        let mut all = vec![
            (header::PROTOCOL_VERSION, VERSION),
            (header::METHOD, method),
        ];
        all.extend(name.map(|name| (header::NAME, name)));
        Ask::read(&Fields(&all), request(method, params))
    }

    fn code(refused: Result<Ask, Refused>) -> (u16, i64) {
        let refused = refused.unwrap_err();
        let message = Message::parse(refused.frame).unwrap();
        let code = member(message.error().unwrap(), "code").unwrap();
        (refused.status, code.parse().unwrap())
    }

    #[test]
    fn a_request_is_told_by_its_head_or_its_meta() {
        let plain = request("tools/list", "");
        let with_meta = request("tools/list", META);
        let initialize = request("initialize", "");
        let version = |version| [(header::PROTOCOL_VERSION, version)];
        assert!(!is_stateless(&Fields(&[]), &plain));
        assert!(!is_stateless(&Fields(&version("2025-11-25")), &plain));
        assert!(!is_stateless(&Fields(&version("1999-01-01")), &plain));
        assert!(!is_stateless(&Fields(&version(VERSION)), &initialize));
        let repeated = [
            (header::METHOD, "initialize"),
            (header::PROTOCOL_VERSION, "2025-11-25"),
        ];
        assert!(!is_stateless(&Fields(&repeated), &initialize));
        assert!(is_stateless(&Fields(&version(VERSION)), &plain));
        assert!(is_stateless(&Fields(&version("2027-01-01")), &plain));
        assert!(is_stateless(&Fields(&[]), &with_meta));
        assert!(is_stateless(
            &Fields(&[(header::METHOD, "initialize")]),
            &initialize
        ));
    }

    #[test]
    fn a_request_without_its_meta_is_malformed() {
        let without = |key: &str| META.replace(key, "x");
        for params in [
            String::new(),
            r#""_meta":3"#.into(),
            without("protocolVersion"),
            without("clientCapabilities"),
            META.replace(r#"{"elicitation":{}}"#, "[]"),
            META.replace(r#""2026-07-28""#, "1"),
        ] {
            assert_eq!(code(ask("tools/list", &params)), (400, -32602), "{params}");
        }
        assert!(ask("tools/list", &without("clientInfo")).is_ok());
        let loud = META.replace(
            "clientInfo\":{\"name\":\"c\",\"version\":\"1\"}",
            "logLevel\":\"loud\"",
        );
        assert_eq!(code(ask("tools/list", &loud)), (400, -32602));
    }

    #[test]
    fn a_head_that_disagrees_is_refused_before_the_version_is() {
        let head = |fields: &[(&str, &str)], method: &str, params: &str| {
            code(Ask::read(&Fields(fields), request(method, params)))
        };
        let mismatch = (400, -32020);
        let [version, list] = [
            (header::PROTOCOL_VERSION, VERSION),
            (header::METHOD, "tools/list"),
        ];
        assert_eq!(head(&[list], "tools/list", META), mismatch);
        assert_eq!(head(&[version], "tools/list", META), mismatch);
        assert_eq!(head(&[version, list], "prompts/list", META), mismatch);
        let other = META.replace("2026-07-28", "v9");
        assert_eq!(head(&[version, list], "tools/list", &other), mismatch);
        let both = [(header::PROTOCOL_VERSION, "v9"), list];
        assert_eq!(head(&both, "tools/list", &other), (400, -32022));
        let call = (header::METHOD, "tools/call");
        let named = format!(r#""name":"echo",{META}"#);
        assert_eq!(head(&[version, call], "tools/call", &named), mismatch);
        let wrong = [version, call, (header::NAME, "Echo")];
        assert_eq!(head(&wrong, "tools/call", &named), mismatch);
        assert!(ask("tools/call", &named).is_ok());
    }

    #[test]
    fn what_this_revision_has_not_is_not_found() {
        for name in GONE
            .into_iter()
            .chain(["channels/publish", "mcpl/manifest"])
        {
            assert_eq!(code(ask(name, META)), (404, -32601), "{name}");
        }
        assert!(ask("x/of-the-servers-own", META).is_ok());
    }

    #[test]
    fn a_session_server_gets_nothing_that_it_has_no_place_for_and_all_the_rest_as_written() {
        let extra = META.replace(
            "{\"io.",
            "{\"traceparent\":\"t\", \"progressToken\": 7,\"io.",
        );
        let params = format!(r#""name":"echo","arguments":{{"n":1.0}},{extra}"#);
        let plain = ask("tools/call", &params).unwrap();
        let text = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.0},"_meta":{"traceparent":"t","progressToken":7}}}"#;
        assert_eq!(plain.of_session("5"), text);
        let again = format!(r#"{params},"inputResponses":{{}},"requestState":"s""#);
        let again = ask("tools/call", &again).unwrap();
        assert_eq!(again.of_session("5"), text);
        assert_eq!((again.state(), again.responses()), (Some("s"), Some("{}")));
        let whole = String::from_utf8(again.as_it_is("5").to_vec()).unwrap();
        assert!(whole.contains(key::CLIENT_CAPABILITIES) && whole.contains(STATE));
    }

    #[test]
    fn a_request_made_again_is_known_however_it_is_written() {
        let of = |params: &str| {
            ask("tools/call", &format!("{params},{META}"))
                .unwrap()
                .print()
        };
        let first = of(r#""name":"echo","arguments":{"a":1,"b":[2]}"#);
        let same = of(r#""arguments":{"b":[2.0],"a":1.0},"requestState":"s","name":"echo""#);
        assert_eq!(first, same);
        assert_ne!(first, of(r#""name":"echo","arguments":{"a":2,"b":[2]}"#));
    }

    #[test]
    fn odd_answers_to_input_are_malformed_and_other_methods_have_none() {
        for odd in [r#""inputResponses":null"#, r#""requestState":5"#] {
            let params = format!(r#""name":"echo",{odd},{META}"#);
            assert_eq!(code(ask("tools/call", &params)), (400, -32602));
            assert!(ask("tools/list", &params).is_ok());
        }
    }
}
