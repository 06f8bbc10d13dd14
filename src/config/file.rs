//! What a file may say, as it is written; `tidegate schema` prints the same types. What the values mean together is
//! `server`'s and `load`'s business.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, Visitor};

use super::numbers::{Cap, Count, Interval, Millis, Ratio, Size};

/// The configuration of a Tidegate gateway. An `mcpServers` file of an MCP host is one, too.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `mcpServers`")]
#[schemars(title = "Tidegate configuration")]
pub(super) struct File {
    /// This gateway's name in metrics, traces, events and webhooks. Default: the host name.
    pub(super) name: Option<String>,
    /// Where hosts connect. Default: 127.0.0.1:7464. Off loopback, `hosts` with tokens are required.
    pub(super) listen: Option<String>,
    /// The operator faces.
    pub(super) admin: Admin,
    /// Who may connect as a host. Without it: loopback only, no token.
    pub(super) hosts: Option<Vec<Host>>,
    /// What happens to a second host of another name on one server. Default: refuse.
    pub(super) on_second_host: Option<OnSecondHost>,
    /// Browser origins that are let in. Default: none.
    pub(super) allowed_origins: Option<Vec<String>>,
    /// `Host` values beside loopback names and the bound address.
    pub(super) allowed_hosts: Option<Vec<String>>,
    /// Bytes held and kept, all servers together. Default: 1GiB.
    pub(super) max_queued_bytes: Option<Size>,
    /// Channels that down and clear are posted to.
    pub(super) status_channels: Option<Vec<StatusChannel>>,
    /// URLs that down and clear are posted to.
    pub(super) webhooks: Option<Vec<Webhook>>,
    /// What survives a restart.
    pub(super) state: State,
    /// Logs and traces.
    pub(super) telemetry: Telemetry,
    /// How long nobody uses a session over HTTP before it ends. Default: 1800000.
    pub(super) session_idle_ms: Option<Millis>,
    /// From SIGTERM to exit. Default: 8000.
    pub(super) shutdown_timeout_ms: Option<Millis>,
    /// Any field of a server, for all servers that do not give it themselves.
    pub(super) defaults: Option<ServerFields>,
    /// The servers, by id.
    pub(super) mcp_servers: Servers,
}

/// The operator faces.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `listen`, `token` and `readToken`")]
pub(super) struct Admin {
    /// Where operators connect. Default: 127.0.0.1:7465. Off loopback, `token` or `readToken` is required.
    pub(super) listen: Option<String>,
    /// For control.
    pub(super) token: Option<Text>,
    /// For metrics, events, status and API reads.
    pub(super) read_token: Option<Text>,
}

/// Who may connect as a host.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `name` and `token`")]
pub(super) struct Host {
    /// Its name. The same one always replaces its old session.
    pub(super) name: String,
    /// Its token.
    pub(super) token: Text,
    /// Patterns of the servers it may use, `*` for any run. Default: all.
    pub(super) servers: Option<Vec<String>>,
}

/// What happens to a second host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnSecondHost {
    /// It is refused (4409).
    Refuse,
    /// It replaces the first (4408).
    Replace,
}

/// A channel that down and clear are posted to.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `server` and `channelId`")]
pub(super) struct StatusChannel {
    /// The server that has the channel.
    pub(super) server: String,
    /// The channel.
    pub(super) channel_id: String,
    /// Which edges. Default: both.
    pub(super) events: Option<Vec<Edge>>,
    /// Who decides: the gateway's `engine`, or `alertmanager` through its webhook. Default: engine.
    pub(super) source: Option<Source>,
}

/// Who decides what is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This gateway.
    Engine,
    /// Alertmanager.
    Alertmanager,
}

impl Source {
    /// As it is written.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Alertmanager => "alertmanager",
        }
    }
}

/// A URL that down and clear are posted to.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `url`")]
pub(super) struct Webhook {
    /// An `http` or `https` URL. It is shown nowhere.
    pub(super) url: Text,
    /// Which edges. Default: both.
    pub(super) events: Option<Vec<Edge>>,
}

/// An edge of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Edge {
    /// An episode opened.
    Down,
    /// An episode ended.
    Clear,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "an object with `dir`")]
pub(super) struct State {
    /// The state directory; `none` keeps everything in memory. Default: ./tidegate-state.
    pub(super) dir: Option<String>,
}

/// Logs and traces.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "an object with `log` and `otlp`")]
pub(super) struct Telemetry {
    /// Where traces go. Default: nowhere.
    pub(super) otlp: Option<Otlp>,
    /// The log on standard error.
    pub(super) log: Log,
}

/// Where traces go.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `endpoint`")]
pub(super) struct Otlp {
    /// An OTLP receiver: `http` or `https`. Over HTTP, `/v1/traces` is added.
    pub(super) endpoint: String,
    /// Default: http/protobuf.
    pub(super) protocol: Option<OtlpProtocol>,
    /// Sent along.
    pub(super) headers: Option<BTreeMap<String, Text>>,
    /// The share of hosts' requests to trace, where the caller has not decided. Default: 1.
    pub(super) sample_ratio: Option<Ratio>,
}

/// How traces are sent.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
pub(super) enum OtlpProtocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// The log on standard error.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "an object with `format` and `level`")]
pub(super) struct Log {
    /// Default: text.
    pub(super) format: Option<LogFormat>,
    /// A level, or a filter such as `info,tidegate::engine=debug`. Default: info.
    pub(super) level: Option<String>,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// One server. Give `command` or `url`.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `command` or `url`")]
#[schemars(rename = "Server")]
pub(super) struct ServerFields {
    /// The program of a server that is launched.
    pub(super) command: Option<String>,
    /// Its arguments, as they are.
    pub(super) args: Option<Vec<Text>>,
    /// Its working directory, from this file's folder. Default: the gateway's own.
    pub(super) cwd: Option<String>,
    /// Its environment, on top of a small allowlist of ordinary variables.
    pub(super) env: Option<BTreeMap<String, Text>>,
    /// Give it the gateway's whole environment. Default: false.
    pub(super) inherit_env: Option<bool>,
    /// The address of a server that is dialed: `ws://` or `wss://`, `http://` or `https://`.
    pub(super) url: Option<String>,
    /// Default: from the scheme of `url`, or `stdio` where `command` is given.
    pub(super) transport: Option<Transport>,
    /// The credential. One of `token`, `tokenFile` and `tokenCommand`.
    pub(super) token: Option<Text>,
    /// A file that holds the credential, read at each dial, from this file's folder.
    pub(super) token_file: Option<String>,
    /// A program and its arguments that print the credential, run at each dial.
    pub(super) token_command: Option<Vec<Text>>,
    /// Where the credential of a WebSocket goes. Default: both.
    pub(super) token_in: Option<TokenIn>,
    /// Sent with the request that connects, and over HTTP with each.
    pub(super) headers: Option<BTreeMap<String, Text>>,
    /// The revision of MCP to speak. Default: auto.
    pub(super) protocol: Option<Protocol>,
    /// Connect again after a failure or an end. Default: true.
    pub(super) reconnect: Option<bool>,
    /// The first wait; it doubles with each failure. Default: 5000.
    pub(super) reconnect_interval_ms: Option<Interval>,
    /// The longest wait. Default: 300000.
    pub(super) reconnect_max_interval_ms: Option<Cap>,
    /// A connection has lasted after at least this. Default: 300000.
    pub(super) lasting_floor_ms: Option<Millis>,
    /// A connection has lasted after exactly this. Default: the longest wait, at least the floor and at most an hour.
    pub(super) lasting_after_ms: Option<Millis>,
    /// Down at the failure of the attempt of this number. Default: 5.
    pub(super) down_after_attempts: Option<Count>,
    /// Down when not connected for this long. Default: 900000.
    pub(super) down_after_ms: Option<Millis>,
    /// For a launch or a connect call; 0 is no limit. Default: 15000.
    pub(super) connect_timeout_ms: Option<Millis>,
    /// For the answer to `initialize`; 0 is no limit. Default: 30000.
    pub(super) initialize_timeout_ms: Option<Millis>,
    /// For a policy exchange or a manifest; 0 is no limit. Default: 15000.
    pub(super) policy_timeout_ms: Option<Millis>,
    /// For the gateway's own requests; 0 is no limit. Default: 60000.
    pub(super) request_timeout_ms: Option<Millis>,
    /// For a host's call, started afresh by each progress; 0 is no limit. Default: 600000.
    pub(super) call_timeout_ms: Option<Millis>,
    /// The gateway accepts a message for the host after this; 0 is never. Default: 10000.
    pub(super) accept_after_ms: Option<Millis>,
    /// A kept message is dropped after this. Default: 86400000.
    pub(super) kept_max_age_ms: Option<Millis>,
    /// Silence after which the connection is probed; 0 is never. Default: 20000 over WebSocket, 30000 over HTTP, 0 over
    /// stdio.
    pub(super) keep_alive_ms: Option<Millis>,
    /// The tools that are shown, `*` for any run. Default: all.
    pub(super) enabled_tools: Option<Vec<String>>,
    /// The tools that are not shown, also where `enabledTools` names them.
    pub(super) disabled_tools: Option<Vec<String>>,
    /// Stands before tool names where servers are listed together. Default: the server's id.
    pub(super) tool_prefix: Option<String>,
    /// The feature sets that may be used. Default: all; an empty list is none.
    pub(super) enabled_feature_sets: Option<Vec<String>>,
    /// The feature sets that may not be used.
    pub(super) disabled_feature_sets: Option<Vec<String>>,
    /// The capabilities that may be granted, `*` for one segment; a parent covers what is below it. Default: all.
    pub(super) enabled_capabilities: Option<Vec<String>>,
    /// The capabilities that may not be granted.
    pub(super) disabled_capabilities: Option<Vec<String>>,
    /// Observation of other tools' calls: stating a key grants it.
    pub(super) tool_lifecycle: Option<ToolLifecycle>,
    /// Ids of channels that the server may register, `*` for any run. Default: all.
    pub(super) channels: Option<Vec<String>>,
    /// Grant what is allowed although the server never answers the policy exchange. Default: false.
    pub(super) grant_without_receipt: Option<bool>,
    /// The server may send `host/command`. Default: false.
    pub(super) allow_host_commands: Option<bool>,
    /// Requests held while they wait. Default: 10000.
    pub(super) held_requests: Option<Count>,
    /// Notifications held while they wait. Default: 1000.
    pub(super) held_notifications: Option<Count>,
    /// Requests kept across the loss of a connection. Default: 10000.
    pub(super) kept_requests: Option<Count>,
    /// Notifications kept across the loss of a connection. Default: 1000.
    pub(super) kept_notifications: Option<Count>,
    /// False keeps the entry and runs nothing. Default: true.
    pub(super) enabled: Option<bool>,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    /// A child process.
    Stdio,
    /// A WebSocket.
    WebSocket,
    /// Streamable HTTP.
    Http,
}

/// Where a WebSocket's credential goes.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TokenIn")]
pub(super) enum TokenIn {
    /// `?token=`.
    Query,
    /// `Authorization: Bearer`.
    Header,
    /// Both.
    Both,
}

/// A revision of MCP, or a family of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
pub(super) enum Protocol {
    /// Whatever the server speaks.
    #[serde(rename = "auto")]
    Auto,
    /// A revision that begins with `initialize`.
    #[serde(rename = "legacy")]
    Legacy,
    /// The stateless one.
    #[serde(rename = "modern")]
    Modern,
    /// 2024-11-05
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    /// 2025-03-26
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    /// 2025-06-18
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    /// 2025-11-25
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    /// 2026-07-28
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

/// Observation of other tools' calls.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with `observe` and `inputs`")]
pub(super) struct ToolLifecycle {
    /// Grants `toolLifecycle.observe`. What narrows it inside is the host's to apply.
    pub(super) observe: Option<Narrowing>,
    /// Grants `toolLifecycle.inputs`. What narrows it inside is the host's to apply.
    pub(super) inputs: Option<Narrowing>,
    /// The host's to apply.
    pub(super) max_input_bytes: Option<Count>,
}

/// An object whose members the host reads.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(from = "BTreeMap<String, serde_json::Value>")]
pub(super) struct Narrowing {
    /// Whether anything stands in it.
    #[serde(skip)]
    pub(super) empty: bool,
}

impl From<BTreeMap<String, serde_json::Value>> for Narrowing {
    fn from(members: BTreeMap<String, serde_json::Value>) -> Self {
        Self {
            empty: members.is_empty(),
        }
    }
}

/// A text that may be written as a number or a boolean: a port in an environment, a token of digits.
#[derive(Clone)]
pub(super) struct Text(pub(super) String);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text")
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }
}

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// The entries of `mcpServers`: known here for their schema, read one by one so that each fails alone (R9).
#[derive(Clone, Debug, Default)]
pub(super) struct Servers;

impl<'de> Deserialize<'de> for Servers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Servers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Servers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, ServerFields>::json_schema(generator)
    }
}
