//! MCPL's method names, what plane and class each belongs to (G1, G5), and the vocabulary of capabilities (P2).

use super::mcp;

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
    pub const TOOLS_OBSERVE: &str = "tools/observe";
    pub const MANIFEST: &str = "mcpl/manifest";
    pub const MANIFEST_CHANGED: &str = "mcpl/manifestChanged";
    pub const HOST_COMMAND: &str = "host/command";
    pub const INFERENCE_REQUEST: &str = "inference/request";
    pub const INFERENCE_CHUNK: &str = "inference/chunk";
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
    /// Never delayed: `ping`, progress and cancellation of live requests, removed methods.
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
            mcp::method::PING
            | mcp::method::PROGRESS
            | mcp::method::CANCELLED
            | method::SCOPE_ELEVATE
            | method::FEATURE_SETS_CHANGED => Self::Never,
            _ => Self::Data,
        }
    }
}

/// Whether a message reports the world, and so outlives its process (G5).
#[must_use]
pub fn is_world(name: &str) -> bool {
    matches!(name, method::CHANNELS_INCOMING | method::PUSH_EVENT)
}

/// A method that MCPL 0.5 took out: a request for it gets -32601 and a notification is ignored.
#[must_use]
pub fn is_removed(name: &str) -> bool {
    matches!(name, method::SCOPE_ELEVATE | method::FEATURE_SETS_CHANGED)
}

/// The capability that a server's message needs at admission (G11); `None` where it needs none.
#[must_use]
pub fn capability_of(name: &str) -> Option<&'static str> {
    Some(match name {
        method::PUSH_EVENT => "pushEvents",
        method::CHANNELS_REGISTER | method::CHANNELS_CHANGED | method::CHANNELS_LIST => {
            "channels.register"
        }
        method::CHANNELS_INCOMING => "channels.incoming",
        method::INFERENCE_REQUEST => "inferenceRequest",
        method::MODEL_INFO => "modelInfo",
        method::TOOLS_OBSERVE => "toolLifecycle.observe",
        _ => return None,
    })
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
        assert!(is_world("push/event") && !is_world("inference/request"));
    }

    #[test]
    fn every_capability_that_a_message_needs_can_be_granted() {
        for name in [
            "push/event",
            "channels/list",
            "inference/request",
            "model/info",
            "tools/observe",
        ] {
            assert!(
                CAPABILITIES.contains(&capability_of(name).unwrap()),
                "{name}"
            );
        }
        assert!(CAPABILITIES.is_sorted());
    }
}
