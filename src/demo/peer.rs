//! JSON-RPC messages as the demo's host and servers read and write them. They are peers of the gateway, so they share
//! nothing with its own reading.

use serde::Deserialize;
use serde_json::{Value, json};

/// A message; what it has not is null or `None`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) id: Value,
    pub(super) method: Option<String>,
    pub(super) params: Value,
    pub(super) result: Value,
    pub(super) error: Option<Fault>,
}

/// An error's code and text.
#[derive(Debug, Deserialize)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
}

impl Message {
    /// Reads a message; one that cannot be read says nothing.
    pub(super) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// The text at a JSON pointer, or nothing.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// The elements of the list at a JSON pointer.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// A request.
pub(super) fn request(id: &Value, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The answer to a request.
pub(super) fn answer(id: &Value, outcome: Result<Value, Fault>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Fault { code, message }) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    }
}
