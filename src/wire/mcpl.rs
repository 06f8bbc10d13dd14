//! MCPL's method names, what plane and class each belongs to (G1, G5), and the vocabulary of capabilities (P2).

use super::mcp;
use super::methods::{self, Sender};

/// The version of MCPL that the gateway speaks.
pub const VERSION: &str = "0.5";

/// Method names.
pub mod method {
    #![allow(missing_docs, reason = "each is the name it holds")]
    pub const FEATURE_SETS_UPDATE: &str = "featureSets/update";
    pub const PUSH_EVENT: &str = "push/event";
    pub const CHANNELS_REGISTER: &str = "channels/register";
    pub const CHANNELS_CHANGED: &str = "channels/changed";
    pub const CHANNELS_LIST: &str = "channels/list";
    pub const CHANNELS_INCOMING: &str = "channels/incoming";
    pub const CHANNELS_OPEN: &str = "channels/open";
    pub const CHANNELS_CLOSE: &str = "channels/close";
    pub const CHANNELS_PUBLISH: &str = "channels/publish";
    pub const OUTGOING_CHUNK: &str = "channels/outgoing/chunk";
    pub const OUTGOING_COMPLETE: &str = "channels/outgoing/complete";
    pub const CHANNELS_ACKNOWLEDGE: &str = "channels/acknowledge";
    pub const CHANNELS_TYPING: &str = "channels/typing";
    pub const BEFORE_INFERENCE: &str = "context/beforeInference";
    pub const AFTER_INFERENCE: &str = "context/afterInference";
    pub const TOOLS_OBSERVE: &str = "tools/observe";
    pub const MANIFEST: &str = "mcpl/manifest";
    pub const MANIFEST_CHANGED: &str = "mcpl/manifestChanged";
    pub const HOST_COMMAND: &str = "host/command";
    pub const INFERENCE_REQUEST: &str = "inference/request";
    pub const INFERENCE_CHUNK: &str = "inference/chunk";
    pub const INFERENCE_LIFECYCLE: &str = "inference/lifecycle";
    pub const PUSH_RENDER: &str = "push/render";
    pub const TOOLS_LIFECYCLE: &str = "tools/lifecycle";
    pub const STATE_ROLLBACK: &str = "state/rollback";
    pub const MODEL_INFO: &str = "model/info";
    pub const SCOPE_ELEVATE: &str = "scope/elevate";
    pub const FEATURE_SETS_CHANGED: &str = "featureSets/changed";
}

/// Which of its planes a server's message waits behind (G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// Registrations and what describes the server.
    Control,
    /// What wakes an agent, and every method we do not know.
    Data,
    /// Delayed by the policy exchange alone: `roots/list`, sampling, elicitation, logs, resource updates.
    Outside,
    /// Never delayed: `ping`, progress and cancellation of live requests, and what no server may send.
    Never,
}

impl Plane {
    /// The plane of a request or notification that a server sent (G1).
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            method::CHANNELS_REGISTER
            | method::CHANNELS_CHANGED
            | method::CHANNELS_LIST
            | method::TOOLS_OBSERVE
            | method::MANIFEST_CHANGED
            | method::HOST_COMMAND
            | mcp::method::TOOLS_CHANGED
            | mcp::method::RESOURCES_CHANGED
            | mcp::method::PROMPTS_CHANGED => Self::Control,
            mcp::method::ROOTS_LIST
            | mcp::method::SAMPLING
            | mcp::method::ELICITATION
            | mcp::method::LOG
            | mcp::method::RESOURCES_UPDATED => Self::Outside,
            mcp::method::PING | mcp::method::PROGRESS | mcp::method::CANCELLED => Self::Never,
            name if is_misplaced(name) => Self::Never,
            _ => Self::Data,
        }
    }
}

/// Whether a message reports the world, and so outlives its process (G5).
#[must_use]
pub fn is_world(name: &str) -> bool {
    matches!(name, method::CHANNELS_INCOMING | method::PUSH_EVENT)
}

/// The capability that a server's message needs at admission (G11); `None` where it needs none.
#[must_use]
pub fn capability_of(name: &str) -> Option<&'static str> {
    methods::find(name)?.capabilities().first().copied()
}

/// Whether MCPL has that method, and not for servers.
fn is_misplaced(name: &str) -> bool {
    methods::find(name).is_some_and(|method| method.misplaced(Sender::Server).is_some())
}

/// What a change of a manifest is about (MCPL §17.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// What is advertised, extensions included.
    Capabilities,
    /// The feature sets, but for their tags.
    FeatureSets,
    /// The tags of the feature sets.
    TagOntology,
}

impl Domain {
    /// All.
    pub const ALL: [Self; 3] = [Self::Capabilities, Self::FeatureSets, Self::TagOntology];

    /// Its name on the wire.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::FeatureSets => "featureSets",
            Self::TagOntology => "tagOntology",
        }
    }
}

/// Every path that can be granted, sorted.
pub const CAPABILITIES: [&str; 19] = [
    "channels.acknowledge",
    "channels.incoming",
    "channels.lifecycle",
    "channels.publish",
    "channels.register",
    "channels.streaming",
    "channels.typing",
    "contextHooks.beforeInference.inject.afterUser",
    "contextHooks.beforeInference.inject.beforeUser",
    "contextHooks.beforeInference.inject.system",
    "contextHooks.beforeInference.observe",
    "inferenceLifecycle",
    "inferenceRequest",
    "inferenceRequest.streaming",
    "modelInfo",
    "pushEvents",
    "toolLifecycle.inputs",
    "toolLifecycle.observe",
    "tools",
];

/// Denied unless an allowing pattern names the path in full (P4).
pub const UNLESS_NAMED: [&str; 3] = [
    "contextHooks.beforeInference.inject.system",
    "toolLifecycle.inputs",
    "toolLifecycle.observe",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_messages_are_data_and_registrations_are_control() {
        assert_eq!(Plane::of("channels/incoming"), Plane::Data);
        assert_eq!(Plane::of("push/event"), Plane::Data);
        assert_eq!(Plane::of("channels/register"), Plane::Control);
        assert_eq!(Plane::of("x/unknown"), Plane::Data);
        assert_eq!(Plane::of("ping"), Plane::Never);
        assert_eq!(Plane::of("scope/elevate"), Plane::Never);
        assert_eq!(Plane::of("channels/publish"), Plane::Never);
        assert!(is_world("push/event") && !is_world("inference/request"));
    }

    #[test]
    fn capabilities_are_sorted_for_the_search_in_them() {
        assert!(CAPABILITIES.is_sorted());
    }
}
