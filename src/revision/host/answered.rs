//! A server's answer in the form of the stateless revision: what kind of result it is, how long it may be kept, who
//! it is of, and errors under the codes that this revision has for them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::ask::{Ask, SUPPORTED};
use crate::revision::stateless::code::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::revision::stateless::key::SERVER_INFO;
use crate::wire::jsonrpc::{self, Error, Message, code, member, quoted};
use crate::wire::mcp::method;
use crate::wire::object::{self, Change};

/// How long a client may keep a list of a server that says nothing of it, in milliseconds. Its changes are told by
/// `subscriptions/listen`; a client that does not listen is behind by no more than this.
const LIST_TTL_MS: u64 = 60_000;
/// The same for what is in a resource, of which such a server promises nothing.
const CONTENT_TTL_MS: u64 = 0;
/// Each caller sees the servers and tools that its token allows.
const SCOPE: &str = "private";

/// A resource that is not there, in the session revisions.
const NOT_FOUND: i64 = -32002;
/// A tool that needs an elicitation by URL, in 2025-11-25.
const URL_ELICITATION: i64 = -32042;
/// [`code::NOT_SENT`], [`code::LOST`] and [`code::TIMED_OUT`] lie where this revision has its own codes; they are
/// told so much nearer to 0.
const APART: i64 = 1_000;
/// The gateway's own word that a call was lost, as it is told here.
pub(super) const LOST: i64 = code::LOST + APART;

/// What the server behind a session told of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// Its `serverInfo`, as JSON text.
    pub(super) info: Option<Box<str>>,
    /// The result of `initialize`.
    pub(super) introduction: Box<str>,
    /// It speaks the stateless revision itself, so its results are of the right form.
    pub(super) is_stateless: bool,
}

/// An answer for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) frame: Bytes,
}

/// The answer that a server gave.
pub(super) fn of_server(ask: &Ask, message: &Message, server: &Server) -> Answered {
    if let Some(error) = message.error() {
        return of_error(ask, error);
    }
    let frame = dressed(ask, message, server);
    let frame = frame.unwrap_or_else(|| {
        let error = Error::new(INTERNAL, "the server's result is no object");
        jsonrpc::error_response(ask.id(), &error)
    });
    Answered { status: 200, frame }
}

const INTERNAL: i64 = -32603;

/// The answer with what this revision wants in its result, as far as it is not there; `None` where that is no object.
fn dressed(ask: &Ask, message: &Message, server: &Server) -> Option<Bytes> {
    let result = message.in_result(&[])?;
    let inside = message.text(&result).strip_prefix('{')?;
    let mut front = String::new();
    let mut changes = Vec::new();
    match message.in_result(&["resultType"]) {
        None => front += r#""resultType":"complete","#,
        // A server of a session revision means nothing by it.
        Some(span) if !server.is_stateless => changes.push((span, r#""complete""#.to_owned())),
        Some(_) => {}
    }
    if let Some(ttl) = ttl(ask.method()) {
        if message.in_result(&["ttlMs"]).is_none() {
            front += &format!(r#""ttlMs":{ttl},"#);
        }
        if message.in_result(&["cacheScope"]).is_none() {
            front += &format!(r#""cacheScope":"{SCOPE}","#);
        }
    }
    if let Some(info) = &server.info {
        match message.in_result(&["_meta"]) {
            None => front += &format!(r#""_meta":{{"{SERVER_INFO}":{info}}},"#),
            Some(span) => {
                changes.extend(identified(message.text(&span), info).map(|meta| (span, meta)))
            }
        }
    }
    if inside.trim_ascii_start().starts_with('}') {
        front.pop();
    }
    let at = result.start + 1;
    changes.push((at..at, front));
    let changes: Vec<_> = changes
        .iter()
        .map(|(span, text)| (span.clone(), &**text))
        .collect();
    Some(message.with(ask.id(), &changes))
}

/// A `_meta` that says whose it is; `None` where it does already.
fn identified(meta: &str, info: &str) -> Option<String> {
    if member(meta, SERVER_INFO).is_some() {
        return None;
    }
    let others = object::edited(meta, |_, _| Change::Keep)?;
    let others = others.strip_prefix('{')?;
    let comma = if others == "}" { "" } else { "," };
    Some(format!("{{\"{SERVER_INFO}\":{info}{comma}{others}"))
}

/// How long a result of that method may be kept; `None` where none may.
fn ttl(name: &str) -> Option<u64> {
    match name {
        method::TOOLS_LIST
        | method::PROMPTS_LIST
        | method::RESOURCES_LIST
        | method::TEMPLATES_LIST => Some(LIST_TTL_MS),
        method::RESOURCES_READ => Some(CONTENT_TTL_MS),
        _ => None,
    }
}

fn of_error(ask: &Ask, error: &str) -> Answered {
    let code = member(error, "code").and_then(|code| code.parse().ok());
    let other = match code {
        Some(NOT_FOUND) => Some(code::INVALID_PARAMS),
        Some(own @ (code::NOT_SENT | code::LOST | code::TIMED_OUT)) => Some(own + APART),
        Some(URL_ELICITATION) => return elsewhere(ask, error),
        _ => None,
    };
    let changed = other.and_then(|other| {
        object::edited(error, |name, _| match name {
            "code" => Change::Replace(other.to_string()),
            _ => Change::Keep,
        })
    });
    let error = changed.as_deref().unwrap_or(error);
    let id = ask.id();
    Answered {
        status: status(code),
        frame: format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into(),
    }
}

/// The HTTP status that this revision has for an error (Streamable HTTP, "Protocol Version Header").
fn status(code: Option<i64>) -> u16 {
    match code {
        Some(code::METHOD_NOT_FOUND) => 404,
        Some(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => 400,
        _ => 200,
    }
}

/// A tool that wants its user to visit pages first: input that is asked for, after which the call is made anew.
fn elsewhere(ask: &Ask, error: &str) -> Answered {
    let pages = member(error, "data").and_then(|data| member(data, "elicitations"));
    let pages: Vec<Value> = pages
        .and_then(|pages| serde_json::from_str(pages).ok())
        .unwrap_or_default();
    let capabilities: Value = serde_json::from_str(ask.capabilities()).unwrap_or_default();
    if capabilities.pointer("/elicitation/url").is_none() {
        return unable(ask, json!({"elicitation": {"url": {}}}));
    }
    let inputs = pages.iter().enumerate().map(|(n, page)| {
        let params = json!({"mode": "url", "message": page["message"], "url": page["url"]});
        let key = quoted(&format!("elicitation-{}", n + 1));
        format!(r#"{key}:{{"method":"elicitation/create","params":{params}}}"#)
    });
    let inputs = inputs.collect::<Vec<_>>().join(",");
    wanting(ask, &format!("{{{inputs}}}"), None)
}

/// The answer that the client cannot be served for want of a capability.
pub(super) fn unable(ask: &Ask, required: Value) -> Answered {
    let text = "the server asked for what the client did not declare";
    let data = json!({"requiredCapabilities": required});
    let error = Error::new(MISSING_CAPABILITY, text).with_data(data);
    Answered {
        status: 400,
        frame: jsonrpc::error_response(ask.id(), &error),
    }
}

/// The answer that input is wanted first.
pub(super) fn wanting(ask: &Ask, inputs: &str, state: Option<&str>) -> Answered {
    let state = state.map_or_else(String::new, |state| {
        format!(r#","requestState":{}"#, quoted(state))
    });
    let result = format!(r#"{{"resultType":"input_required","inputRequests":{inputs}{state}}}"#);
    Answered {
        status: 200,
        frame: jsonrpc::response(ask.id(), &result),
    }
}

/// The answer to `server/discover`, from what is known of the server.
pub(super) fn discovered(ask: &Ask, server: &Server) -> Answered {
    let introduction = &server.introduction;
    let capabilities = member(introduction, "capabilities").unwrap_or("{}");
    let capabilities = object::edited(capabilities, |name, _| match name {
        "experimental" => Change::Remove,
        _ => Change::Keep,
    });
    let capabilities = capabilities.unwrap_or_else(|| "{}".into());
    let versions = json!(SUPPORTED);
    let instructions = member(introduction, "instructions")
        .map_or_else(String::new, |text| format!(r#","instructions":{text}"#));
    let meta = server.info.as_ref().map_or_else(String::new, |info| {
        format!(r#","_meta":{{"{SERVER_INFO}":{info}}}"#)
    });
    let result = format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{capabilities}{instructions},"ttlMs":{LIST_TTL_MS},"cacheScope":"{SCOPE}"{meta}}}"#
    );
    Answered {
        status: 200,
        frame: jsonrpc::response(ask.id(), &result),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::tests::{META, ask};
    use super::*;

    fn server(is_stateless: bool) -> Server {
        Server {
            info: Some(r#"{"name":"s","version":"1"}"#.into()),
            introduction: "{}".into(),
            is_stateless,
        }
    }

    fn answered(method: &str, rest: &str, is_stateless: bool) -> (u16, String) {
        let ask = ask(method, &format!(r#""name":"echo",{META}"#)).unwrap();
        let message = format!(r#"{{"jsonrpc":"2.0","id":3,{rest}}}"#);
        let message = Message::parse(message.into()).unwrap();
        let answered = of_server(&ask, &message, &server(is_stateless));
        let text = String::from_utf8(answered.frame.to_vec()).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        (answered.status, text)
    }

    #[test]
    fn a_result_says_what_it_is_and_of_whom_and_keeps_its_bytes() {
        let (status, text) = answered("tools/call", r#""result":{"content":[ ],"n":1.0}"#, false);
        let wanted = r#"{"jsonrpc":"2.0","id":"q","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"content":[ ],"n":1.0}}"#;
        assert_eq!((status, &*text), (200, wanted));
        let (_, empty) = answered("tools/call", r#""result":{ }"#, false);
        assert!(
            empty.contains(r#"{"name":"s","version":"1"}} }"#),
            "{empty}"
        );
        let (_, meta) = answered("tools/call", r#""result":{"_meta":{"k":1}}"#, false);
        assert!(meta.contains(r#""version":"1"},"k":1}"#), "{meta}");
        let own = r#""result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}},"resultType":"complete"}"#;
        let (_, text) = answered("tools/call", own, true);
        assert!(text.contains(own), "{text}");
        let (_, odd) = answered("tools/call", r#""result":3"#, false);
        assert!(odd.contains("-32603"));
    }

    #[test]
    fn what_may_be_kept_says_how_long_unless_the_server_did() {
        let (_, list) = answered("tools/list", r#""result":{"tools":[]}"#, false);
        assert!(
            list.contains(r#""ttlMs":60000,"cacheScope":"private""#),
            "{list}"
        );
        let own =
            r#""result":{"resultType":"complete","tools":[],"ttlMs":5,"cacheScope":"public"}"#;
        let (_, list) = answered("tools/list", own, true);
        assert!(list.contains(r#""ttlMs":5,"cacheScope":"public"}"#) && !list.contains("60000"));
        let (_, call) = answered("tools/call", r#""result":{}"#, false);
        assert!(!call.contains("ttlMs"));
    }

    #[test]
    fn only_a_server_of_this_revision_can_want_input_by_itself() {
        let wants = r#""result":{"resultType":"input_required","requestState":"s"}"#;
        let (_, text) = answered("tools/call", wants, true);
        assert!(text.contains("input_required"));
        let (_, text) = answered("tools/call", wants, false);
        assert!(text.contains(r#""resultType":"complete""#));
    }

    #[test]
    fn errors_have_the_codes_and_statuses_of_this_revision() {
        for (code, status, told) in [
            (-32601, 404, -32601),
            (-32021, 400, -32021),
            (-32022, 400, -32022),
            (-32602, 200, -32602),
            (-32002, 200, -32602),
            (-32050, 200, -31050),
            (-32051, 200, -31051),
            (-32052, 200, -31052),
            (7, 200, 7),
        ] {
            let error = format!(r#""error":{{"code":{code},"message":"m","data":{{"uri":"u"}}}}"#);
            let (seen, text) = answered("resources/read", &error.replace("\"name\"", ""), false);
            assert_eq!(seen, status, "{code}");
            let wanted = format!(r#""error":{{"code":{told},"message":"m","data":{{"uri":"u"}}}}"#);
            assert!(text.contains(&wanted), "{text}");
        }
    }

    #[test]
    fn a_tool_that_wants_a_page_visited_asks_for_that_as_input() {
        let error = r#""error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a","message":"go"}]}}"#;
        let (status, text) = answered("tools/call", error, false);
        assert_eq!(status, 400);
        assert!(text.contains(r#"-32021"#) && text.contains(r#"{"elicitation":{"url":{}}}"#));
        let able = META.replace(r#"{"elicitation":{}}"#, r#"{"elicitation":{"url":{}}}"#);
        let ask = ask("tools/call", &format!(r#""name":"echo",{able}"#)).unwrap();
        let message = format!(r#"{{"jsonrpc":"2.0","id":3,{error}}}"#);
        let message = Message::parse(message.into()).unwrap();
        let answer = of_server(&ask, &message, &server(false)).frame;
        let wanted = r#"{"jsonrpc":"2.0","id":"q","result":{"resultType":"input_required","inputRequests":{"elicitation-1":{"method":"elicitation/create","params":{"message":"go","mode":"url","url":"https://a"}}}}}"#;
        assert_eq!(answer, wanted);
    }

    #[test]
    fn discover_tells_what_initialize_told_without_what_needs_a_session() {
        let ask = ask("server/discover", META).unwrap();
        let mut server = server(false);
        server.introduction =
            r#"{"capabilities":{"tools":{},"experimental":{"mcpl":{}}},"instructions":"i"}"#.into();
        let frame = discovered(&ask, &server).frame;
        let message = Message::parse(frame).unwrap();
        let result: Value = serde_json::from_str(message.result().unwrap()).unwrap();
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        assert_eq!(result["supportedVersions"][0], "2026-07-28");
        assert_eq!(
            (&result["instructions"], &result["resultType"]),
            (&json!("i"), &json!("complete"))
        );
        assert_eq!(result["_meta"][SERVER_INFO]["name"], "s");
    }
}
