//! The opening of a connection: the text of `initialize`, the verdict on its answer, and what a server sends before it
//! answers. It decides nothing about what follows.

use bytes::Bytes;
use serde_json::{Value, json};

use super::input::Outcome;
use crate::wire::jsonrpc::{self, Kind, Message, member};
use crate::wire::mcp::{Revision, method};
use crate::wire::mcpl;
use crate::wire::redact::Secrets;

/// The id of the `initialize` request, the first of every connection.
pub(super) const ID: u64 = 0;
/// The error code by which a server refuses our revision (MCP 2026-07-28).
const UNSUPPORTED_VERSION: &str = "-32022";
/// What is held before the answer, in messages and bytes.
const EARLY_MAX: usize = 1_000;
/// See [`EARLY_MAX`].
const EARLY_BYTES_MAX: usize = 16 << 20;

/// Why an answer to `initialize` makes no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `Version` or `Handshake`.
    pub(super) outcome: Outcome,
    /// For people.
    pub(super) why: String,
}

/// The `initialize` request. It offers the pinned revision or the latest, and what some host may be able to do.
pub(super) fn request(pinned: Option<Revision>) -> Bytes {
    let params = json!({
        "protocolVersion": pinned.unwrap_or(Revision::LATEST).as_str(),
        "capabilities": {
            "roots": {"listChanged": true},
            "sampling": {},
            "elicitation": {},
            "experimental": {"mcpl": mcpl_offer()},
        },
        "clientInfo": {"name": "tidegate", "version": env!("CARGO_PKG_VERSION")},
    });
    jsonrpc::request(ID, method::INITIALIZE, &params.to_string())
}

/// Every leaf of MCPL but `modelInfo`.
fn mcpl_offer() -> Value {
    json!({
        "version": mcpl::VERSION,
        "pushEvents": true,
        "contextHooks": {"beforeInference": true},
        "inferenceLifecycle": true,
        "toolLifecycle": {"observe": true, "inputs": true},
        "inferenceRequest": {"streaming": true},
        "channels": {
            "register": true, "lifecycle": true, "publish": true, "incoming": true,
            "streaming": true, "acknowledge": true, "typing": true,
        },
        "featureSets": true,
        "eventCoalescing": {
            "pushEvents": true, "channelsIncoming": true, "deferred": true,
            "channelScopedPush": true, "retryWindowMs": 3_600_000,
        },
    })
}

/// The notification that ends the handshake.
pub(super) fn initialized() -> Bytes {
    jsonrpc::notification(method::INITIALIZED, None)
}

/// Whether a response answers `initialize`. An error without an id can be about nothing else.
pub(super) fn is_answer(message: &Message) -> bool {
    message.our_id() == Some(ID) || (message.id().is_none() && message.error().is_some())
}

/// The revision that both speak, and the result's text.
pub(super) fn read<'a>(
    answer: &'a Message,
    pinned: Option<Revision>,
    secrets: &Secrets,
) -> Result<(Revision, &'a str), Verdict> {
    if let Some(error) = answer.error() {
        return Err(refused(error, secrets));
    }
    let result = answer.result().unwrap_or("null");
    let named: String = member(result, "protocolVersion")
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| verdict(Outcome::Handshake, unreadable(result, secrets)))?;
    let known = Revision::parse(&named).filter(|known| pinned.is_none_or(|want| want == *known));
    let revision =
        known.ok_or_else(|| verdict(Outcome::Version, unknown(&named, pinned, secrets)))?;
    Ok((revision, result))
}

fn refused(error: &str, secrets: &Secrets) -> Verdict {
    let message = member(error, "message")
        .and_then(|text| serde_json::from_str::<String>(text).ok())
        .unwrap_or_default();
    let code = member(error, "code").unwrap_or("no code");
    let text = format!(
        "initialize was refused ({}): {}",
        secrets.sample(code.as_bytes()),
        secrets.sample(message.as_bytes())
    );
    if code != UNSUPPORTED_VERSION {
        return verdict(Outcome::Handshake, text);
    }
    let supported = member(error, "data").and_then(|data| member(data, "supported"));
    let supported = supported.map_or_else(String::new, |list| {
        format!("; it supports {}", secrets.sample(list.as_bytes()))
    });
    verdict(Outcome::Version, text + &supported)
}

fn unknown(named: &str, pinned: Option<Revision>, secrets: &Secrets) -> String {
    let named = secrets.sample(named.as_bytes());
    match pinned {
        Some(want) => format!("it answered with MCP {named}, and `protocol` wants {want} alone"),
        None => format!("it answered with MCP {named}, which this gateway does not speak"),
    }
}

fn unreadable(result: &str, secrets: &Secrets) -> String {
    format!(
        "its answer to initialize names no protocolVersion: {}",
        secrets.sample(result.as_bytes())
    )
}

fn verdict(outcome: Outcome, why: String) -> Verdict {
    Verdict { outcome, why }
}

/// What a server sent before it answered `initialize`, in order.
#[derive(Debug, Default)]
pub(super) struct Early {
    messages: Vec<Message>,
    bytes: usize,
}

impl Early {
    /// Holds a message, or gives it back where the bound is reached.
    pub(super) fn push(&mut self, message: Message) -> Option<Message> {
        let bytes = self.bytes.saturating_add(message.len());
        if self.messages.len() >= EARLY_MAX || bytes > EARLY_BYTES_MAX {
            return Some(message);
        }
        self.bytes = bytes;
        self.messages.push(message);
        None
    }

    /// What is held.
    pub(super) fn take(&mut self) -> Vec<Message> {
        self.bytes = 0;
        std::mem::take(&mut self.messages)
    }
}

/// Whether a message is a `ping`, which is answered in any state of a connection.
pub(super) fn is_ping(message: &Message) -> bool {
    message.kind() == Kind::Request && message.method() == method::PING
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn result(result: &str) -> Message {
        message(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#))
    }

    fn error(error: &str) -> Message {
        message(&format!(r#"{{"jsonrpc":"2.0","id":0,"error":{error}}}"#))
    }

    #[test]
    fn initialize_offers_the_latest_revision_or_the_pinned_one() {
        for (pinned, offered) in [
            (None, "2025-11-25"),
            (Some(Revision::V2024_11_05), "2024-11-05"),
        ] {
            let request = Message::parse(request(pinned)).unwrap();
            assert_eq!(
                (request.method(), request.our_id()),
                ("initialize", Some(0))
            );
            let params: Value = request.params_as().unwrap();
            assert_eq!(params["protocolVersion"], offered);
            assert_eq!(params["clientInfo"]["name"], "tidegate");
            let mcpl = &params["capabilities"]["experimental"]["mcpl"];
            assert_eq!(mcpl["version"], "0.5");
            assert_eq!(mcpl["modelInfo"], Value::Null);
        }
    }

    #[test]
    fn any_revision_that_we_speak_is_taken_unless_one_is_pinned() {
        for revision in Revision::ALL {
            let answer = result(&format!(r#"{{"protocolVersion":"{revision}"}}"#));
            assert_eq!(
                read(&answer, None, &Secrets::default()).unwrap().0,
                revision
            );
            assert_eq!(
                read(&answer, Some(revision), &Secrets::default())
                    .unwrap()
                    .0,
                revision
            );
            let other = Some(Revision::V2024_11_05).filter(|other| *other != revision);
            if other.is_some() {
                assert_eq!(
                    read(&answer, other, &Secrets::default())
                        .unwrap_err()
                        .outcome,
                    Outcome::Version
                );
            }
        }
    }

    #[test]
    fn r10_an_unknown_revision_and_error_32022_are_version_verdicts() {
        let unknown = result(r#"{"protocolVersion":"2019-01-01","capabilities":{}}"#);
        let refused =
            error(r#"{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"]}}"#);
        let verdict = read(&unknown, None, &Secrets::default()).unwrap_err();
        assert_eq!(verdict.outcome, Outcome::Version);
        assert!(verdict.why.contains("2019-01-01"));
        let verdict = read(&refused, None, &Secrets::default()).unwrap_err();
        assert_eq!(verdict.outcome, Outcome::Version);
        assert!(verdict.why.contains("2026-07-28"));
    }

    #[test]
    fn r10_a_version_refusal_without_a_list_is_told_in_the_servers_own_words() {
        let refused = error(r#"{"code":-32022,"message":"too old for me"}"#);
        let verdict = read(&refused, None, &Secrets::default()).unwrap_err();
        assert_eq!(verdict.outcome, Outcome::Version);
        assert!(verdict.why.ends_with("(-32022): too old for me"));
    }

    #[test]
    fn other_errors_and_odd_results_are_handshake_failures() {
        let long = format!(
            r#"{{"protocolVersion":7,"x":"{}\u0007"}}"#,
            "y".repeat(9_000)
        );
        let answers = [
            error(r#"{"code":-32603,"message":"no\u001b[31m token"}"#),
            error("3"),
            result("null"),
            result("[]"),
            result("{}"),
            result(&long),
        ];
        for answer in answers {
            let verdict = read(&answer, None, &Secrets::default()).unwrap_err();
            assert_eq!(verdict.outcome, Outcome::Handshake);
            assert!(verdict.why.len() < 1_000 && !verdict.why.contains(char::is_control));
        }
    }

    #[test]
    fn an_error_without_an_id_answers_initialize_too() {
        assert!(is_answer(&message(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#
        )));
        assert!(!is_answer(&message(
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
        )));
        assert!(!is_answer(&message(
            r#"{"jsonrpc":"2.0","id":"0","result":{}}"#
        )));
    }

    #[test]
    fn g16_what_comes_early_is_bounded_in_number_and_bytes() {
        let mut early = Early::default();
        let small = message(r#"{"jsonrpc":"2.0","method":"m"}"#);
        for _ in 0..EARLY_MAX {
            assert!(early.push(small.clone()).is_none());
        }
        assert!(early.push(small.clone()).is_some());
        assert_eq!(early.take().len(), EARLY_MAX);
        let padding = "x".repeat(EARLY_BYTES_MAX / 2);
        let big = message(&format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":["{padding}"]}}"#
        ));
        assert!(early.push(big.clone()).is_none());
        assert!(early.push(big).is_some());
        assert!(early.push(small).is_none());
    }
}
