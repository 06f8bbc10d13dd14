//! MCP's method names and revisions, as far as a gateway must know them.

use std::fmt;

/// A revision of MCP that begins with `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26, the one with batches.
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
}

impl Revision {
    /// Every one, oldest first.
    pub const ALL: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];
    /// What the gateway offers, and what it answers to a revision that it does not know.
    pub const LATEST: Self = Self::V2025_11_25;

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Whether its sessions may send JSON-RPC batches (A2).
    #[must_use]
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether it has tasks.
    #[must_use]
    pub fn has_tasks(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// The revision of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == name)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Under `capabilities.experimental` of an `initialize` and of its answer: the peer is of the stateless revision, and
/// one of the gateway's edges speaks for it (decision 0015).
pub const STATELESS_MARK: &str = "tidegate/stateless";

/// Log levels, least severe first (MCP, `logging/setLevel`).
pub const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The key of a list's `_meta` that names the servers whose items are as last known: `[{"server", "state"}]`.
pub const STALE: &str = "tidegate/stale";
/// The same for servers of which a list has no items, though they may have some.
pub const MISSING: &str = "tidegate/missing";
/// The key of a list request's `_meta` that asks, with `true`, for what is known rather than to wait for the server.
pub const KNOWN: &str = "tidegate/known";

/// Method names.
pub mod method {
    #![allow(missing_docs, reason = "each is the name it holds")]
    pub const INITIALIZE: &str = "initialize";
    pub const INITIALIZED: &str = "notifications/initialized";
    pub const PING: &str = "ping";
    pub const CANCELLED: &str = "notifications/cancelled";
    pub const PROGRESS: &str = "notifications/progress";
    pub const LOG: &str = "notifications/message";
    pub const SET_LEVEL: &str = "logging/setLevel";
    pub const TOOLS_LIST: &str = "tools/list";
    pub const TOOLS_CALL: &str = "tools/call";
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    pub const RESOURCES_LIST: &str = "resources/list";
    pub const TEMPLATES_LIST: &str = "resources/templates/list";
    pub const RESOURCES_READ: &str = "resources/read";
    pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
    pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
    pub const RESOURCES_UPDATED: &str = "notifications/resources/updated";
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    pub const PROMPTS_GET: &str = "prompts/get";
    pub const PROMPTS_LIST: &str = "prompts/list";
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    pub const ROOTS_LIST: &str = "roots/list";
    pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
    pub const SAMPLING: &str = "sampling/createMessage";
    pub const ELICITATION: &str = "elicitation/create";
    pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
    pub const COMPLETE: &str = "completion/complete";
    pub const TASKS_GET: &str = "tasks/get";
    pub const TASKS_RESULT: &str = "tasks/result";
    pub const TASKS_LIST: &str = "tasks/list";
    pub const TASKS_CANCEL: &str = "tasks/cancel";
    pub const TASKS_STATUS: &str = "notifications/tasks/status";
}
