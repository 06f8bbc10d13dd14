//! What peers say, as JSON.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate::wire::jsonrpc::Message;

/// The message that a JSON value is.
pub fn message(value: &Value) -> Message {
    raw(&value.to_string())
}

/// The message that a text is, byte for byte.
pub fn raw(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).expect("a test writes good messages")
}

pub fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

pub fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub fn result(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub fn error(id: &Value, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
}

/// One chat message, `channels/incoming`; a notification where there is no id. `n` tells it from every other one.
pub fn incoming(id: Option<u64>, n: u64, channel: &str) -> Value {
    let params = json!({"n": n, "messages": [{
        "channelId": channel, "messageId": format!("m{n}"), "author": {"id": "u", "name": "U"},
        "timestamp": "2026-08-01T00:00:00Z", "content": [{"type": "text", "text": format!("hello {n}")}],
    }]});
    maybe_request(id, "channels/incoming", params)
}

/// One `push/event`.
pub fn push(id: Option<u64>, n: u64) -> Value {
    let params = json!({"n": n, "featureSet": "chat", "eventId": format!("e{n}"),
        "timestamp": "2026-08-01T00:00:00Z", "payload": {"content": [{"type": "text", "text": format!("event {n}")}]}});
    maybe_request(id, "push/event", params)
}

/// One `channels/register` of one channel.
pub fn register(id: u64, channel: &str) -> Value {
    request(
        id,
        "channels/register",
        json!({"channels": [{"id": channel, "type": "chat", "label": channel, "direction": "bidirectional"}]}),
    )
}

/// A request with an id, a notification without one.
pub fn maybe_request(id: Option<u64>, method: &str, params: Value) -> Value {
    match id {
        Some(id) => request(id, method, params),
        None => notification(method, params),
    }
}

/// Its method, empty for a response.
pub fn method(value: &Value) -> &str {
    value["method"].as_str().unwrap_or_default()
}

pub fn is_response(value: &Value) -> bool {
    value.get("method").is_none()
}

pub fn is_request(value: &Value) -> bool {
    value.get("method").is_some() && value.get("id").is_some()
}

/// The code of an error response.
pub fn code(value: &Value) -> Option<i64> {
    value["error"]["code"].as_i64()
}
