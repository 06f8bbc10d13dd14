//! What the stateless revision, 2026-07-28, calls things: members of `_meta`, methods, error codes, headers. Both
//! edges use the same names.

/// The name of the revision on the wire.
pub const VERSION: &str = "2026-07-28";

/// Under `capabilities.experimental`: in the answer to `initialize` of the edge that speaks for a stateless server,
/// and in the `initialize` of the one that speaks for a stateless client. Between the two a message passes as it is.
pub const MARK: &str = crate::wire::mcp::STATELESS_MARK;

/// Members of `_meta`.
pub mod key {
    /// What all of them begin with.
    pub const PREFIX: &str = "io.modelcontextprotocol/";
    /// Of a request: its revision.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Of a request: who asks, an `Implementation`.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Of a request: what the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Of a request: the lowest level of the log messages that it may cause.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Of a notification: the id of the `subscriptions/listen` that it belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Of a result: who answers, an `Implementation`.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
}

/// Method names that the session revisions do not have.
pub mod method {
    #![allow(missing_docs, reason = "each is the name it holds")]
    pub const DISCOVER: &str = "server/discover";
    pub const LISTEN: &str = "subscriptions/listen";
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
}

/// Values of a result's `resultType`; one that is absent is [`COMPLETE`](result::COMPLETE).
pub mod result {
    /// It is the answer.
    pub const COMPLETE: &str = "complete";
    /// The request has to be sent again with what `inputRequests` asks for.
    pub const INPUT_REQUIRED: &str = "input_required";
}

/// Error codes that the session revisions do not have.
pub mod code {
    /// A header is missing, or does not say what the body says.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability that the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The request's revision is not spoken; `data.supported` names those that are.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// HTTP headers that repeat what the body says.
pub mod header {
    /// The revision.
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// The method.
    pub const METHOD: &str = "mcp-method";
    /// `params.name` or `params.uri` of a `tools/call`, `prompts/get` or `resources/read`.
    pub const NAME: &str = "mcp-name";
    /// Before the name that a tool's schema gives to one of its parameters.
    pub const PARAM_PREFIX: &str = "mcp-param-";
}
