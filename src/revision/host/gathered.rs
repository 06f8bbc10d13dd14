//! What a server asks of its client while a call is under way, gathered for the next answer to it, and the client's
//! answers given back under the server's ids (MCP 2026-07-28, "Multi Round-Trip Requests").

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::jsonrpc::{self, Message, member, quoted};
use crate::wire::mcp::method;

/// Requests of a server that one call waits for.
const INPUTS_MAX: usize = 16;
/// What they take together, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// What one call's server asked and has no answer to.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    inputs: Vec<Input>,
    numbered: u64,
}

#[derive(Debug)]
struct Input {
    key: String,
    request: Message,
}

impl Gathered {
    /// Takes a request of the server; `false` where there are too many.
    pub(super) fn add(&mut self, request: &Message) -> bool {
        if self.inputs.len() >= INPUTS_MAX || self.bytes() + request.len() > BYTES_MAX {
            return false;
        }
        self.numbered += 1;
        let kind = match request.method() {
            method::ELICITATION => "elicitation",
            method::SAMPLING => "sampling",
            _ => "roots",
        };
        self.inputs.push(Input {
            key: format!("{kind}-{}", self.numbered),
            request: request.clone(),
        });
        true
    }

    /// The server wants no answer to that request any more.
    pub(super) fn cancel(&mut self, id: &str) {
        self.inputs
            .retain(|input| input.request.id_text() != Some(id));
    }

    /// Whether nothing is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// What is asked, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.inputs.iter().map(|input| input.request.len()).sum()
    }

    /// All that is asked, as the JSON text of `inputRequests`.
    pub(super) fn requests(&self) -> String {
        let inputs = self.inputs.iter().map(|Input { key, request }| {
            let (key, method) = (quoted(key), quoted(request.method()));
            let params = request.params().unwrap_or("{}");
            format!(r#"{key}:{{"method":{method},"params":{params}}}"#)
        });
        format!("{{{}}}", inputs.collect::<Vec<_>>().join(","))
    }

    /// Takes the client's answers, the JSON text of `inputResponses`: what the server is sent. What has no answer, or
    /// one that is no object, stays asked; answers to what was not asked are nobody's.
    pub(super) fn answer(&mut self, responses: &str) -> Vec<Bytes> {
        let mut frames = Vec::new();
        self.inputs.retain(|Input { key, request }| {
            let answer = member(responses, key).filter(|text| text.starts_with('{'));
            if let (Some(answer), Some(id)) = (answer, request.id_text()) {
                frames.push(jsonrpc::response(id, answer));
            }
            answer.is_none()
        });
        frames
    }

    /// Takes out the ids of all that is asked.
    pub(super) fn take_ids(&mut self) -> Vec<String> {
        let inputs = std::mem::take(&mut self.inputs);
        let ids = inputs.iter().filter_map(|input| input.request.id_text());
        ids.map(str::to_owned).collect()
    }
}

/// The capability that a server's request needs and the client did not declare, as `requiredCapabilities` has it.
pub(super) fn missing(request: &Message, capabilities: &str) -> Option<Value> {
    let capabilities: Value = serde_json::from_str(capabilities).unwrap_or_default();
    let has = |path: &str| capabilities.pointer(path).is_some_and(is_declared);
    let param = |key| request.param(&[key]).map(|span| request.text(&span));
    match request.method() {
        // A client that names no mode has forms (MCP 2026-07-28, "Elicitation").
        method::ELICITATION if param("mode") == Some("\"url\"") => {
            (!has("/elicitation/url")).then(|| json!({"elicitation": {"url": {}}}))
        }
        method::ELICITATION => {
            let forms =
                has("/elicitation") && (has("/elicitation/form") || !has("/elicitation/url"));
            (!forms).then(|| json!({"elicitation": {"form": {}}}))
        }
        method::SAMPLING if param("tools").is_some() => {
            (!has("/sampling/tools")).then(|| json!({"sampling": {"tools": {}}}))
        }
        method::SAMPLING => (!has("/sampling")).then(|| json!({"sampling": {}})),
        _ => (!has("/roots")).then(|| json!({"roots": {}})),
    }
}

fn is_declared(value: &Value) -> bool {
    value.is_object() || *value == Value::Bool(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(id: u64, method: &str, params: &str) -> Message {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        Message::parse(text.into()).unwrap()
    }

    #[test]
    fn answers_go_back_under_the_servers_ids_and_the_rest_stays_asked() {
        let mut gathered = Gathered::default();
        gathered.add(&ask(7, "elicitation/create", r#"{"message":"m"}"#));
        gathered.add(&ask(8, "roots/list", "{}"));
        let asked = r#"{"elicitation-1":{"method":"elicitation/create","params":{"message":"m"}},"roots-2":{"method":"roots/list","params":{}}}"#;
        assert_eq!(gathered.requests(), asked);
        let odd = r#"{"roots-2":12345,"elicitation-1": {"action":"accept"},"other":{}}"#;
        let frames = gathered.answer(odd);
        let wanted = r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#;
        assert_eq!(frames, [wanted]);
        assert_eq!(
            gathered.requests(),
            r#"{"roots-2":{"method":"roots/list","params":{}}}"#
        );
        assert!(gathered.answer(odd).is_empty());
        gathered.cancel("8");
        assert!(gathered.is_empty());
    }

    #[test]
    fn what_one_call_waits_for_is_bounded() {
        let mut gathered = Gathered::default();
        let taken = (0..100).filter(|id| gathered.add(&ask(*id, "roots/list", "{}")));
        assert_eq!(taken.count(), INPUTS_MAX);
        let mut gathered = Gathered::default();
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(BYTES_MAX / 2));
        assert!(gathered.add(&ask(1, "sampling/createMessage", &long)));
        assert!(!gathered.add(&ask(2, "sampling/createMessage", &long)));
        assert_eq!(gathered.take_ids(), ["1"]);
    }

    #[test]
    fn each_request_needs_its_capability() {
        let needs = |method, params, capabilities| {
            missing(&ask(1, method, params), capabilities).map(|needed| needed.to_string())
        };
        let (form, url) = ("{}", r#"{"mode":"url"}"#);
        let elicit = |params, capabilities| needs("elicitation/create", params, capabilities);
        assert_eq!(elicit(form, r#"{"elicitation":{}}"#), None);
        assert_eq!(elicit(url, r#"{"elicitation":{"url":{}}}"#), None);
        let forms = Some(r#"{"elicitation":{"form":{}}}"#.to_owned());
        assert_eq!(elicit(form, r#"{"elicitation":{"url":{}}}"#), forms);
        assert_eq!(elicit(form, "{}"), forms);
        let urls = Some(r#"{"elicitation":{"url":{}}}"#.to_owned());
        assert_eq!(elicit(url, r#"{"elicitation":{}}"#), urls);
        let sample = |params, capabilities| needs("sampling/createMessage", params, capabilities);
        assert_eq!(sample("{}", r#"{"sampling":{}}"#), None);
        assert_eq!(sample("{}", "{}"), Some(r#"{"sampling":{}}"#.into()));
        let tools = Some(r#"{"sampling":{"tools":{}}}"#.to_owned());
        assert_eq!(sample(r#"{"tools":[]}"#, r#"{"sampling":{}}"#), tools);
        assert_eq!(needs("roots/list", "{}", r#"{"roots":{}}"#), None);
        assert_eq!(
            needs("roots/list", "{}", "{}"),
            Some(r#"{"roots":{}}"#.into())
        );
    }
}
