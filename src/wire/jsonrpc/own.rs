//! Messages of the gateway's own, and the error codes in them.

use bytes::Bytes;
use serde::Serialize;

/// The error codes of 2-engine and JSON-RPC.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// JSON, but no request, notification or response.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody here serves that method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The params do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something else went wrong on the way.
    pub const INTERNAL: i64 = -32603;
    /// Held requests are full or waited too long: try again (G4).
    pub const BUSY: i64 = -32000;
    /// A feature set that is declared and not enabled (MCPL, appendix A).
    pub const NOT_ENABLED: i64 = -32001;
    /// The capability is not in the grant (G11).
    pub const NOT_GRANTED: i64 = -32002;
    /// A feature set that is not declared (MCPL, appendix A).
    pub const UNKNOWN_FEATURE_SET: i64 = -32003;
    /// A host's call was not sent: nothing ran (A4).
    pub const NOT_SENT: i64 = -32050;
    /// A host's call was sent and its server then lost: outcome unknown (A4).
    pub const LOST: i64 = -32051;
    /// A host's call timed out (A4).
    pub const TIMED_OUT: i64 = -32052;
}

/// The `error` member of a response of our own.
#[derive(Clone, Debug, Serialize)]
pub struct Error {
    /// One of [`code`].
    pub code: i64,
    /// For people.
    pub message: String,
    /// For programs; absent when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl Error {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with data.
    #[must_use]
    pub fn with_data(self, data: serde_json::Value) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }
}

/// A request of our own. `params` is JSON text.
#[must_use]
pub fn request(id: u64, method: &str, params: &str) -> Bytes {
    let method = quoted(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#).into()
}

/// A notification of our own. `params` is JSON text, or `None` to leave the member out.
#[must_use]
pub fn notification(method: &str, params: Option<&str>) -> Bytes {
    let method = quoted(method);
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#).into()
        }
        None => format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#).into(),
    }
}

/// A successful response of our own. `id` and `result` are JSON texts.
#[must_use]
pub fn response(id: &str, result: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into()
}

/// An error response of our own. `id` is JSON text.
#[must_use]
pub fn error_response(id: &str, error: &Error) -> Bytes {
    let error = serde_json::to_string(error)
        .unwrap_or_else(|_| r#"{"code":-32603,"message":"internal"}"#.into());
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// The same with the `error` as JSON text.
#[must_use]
pub fn error_as_written(id: &str, error: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// The JSON text of a string.
#[must_use]
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".into())
}
