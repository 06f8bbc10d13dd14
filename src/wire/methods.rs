//! Every method of MCPL: who sends it, in which form, and what its sender needs (MCPL §4.1, §14.1). It judges nothing.

use super::mcpl::method;

/// Which side sends a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A server, to its host.
    Server,
    /// A host, to its server.
    Host,
    /// Either, to the other.
    Both,
    /// Neither: MCPL 0.5 took it out.
    Nobody,
}

/// How a method is sent. Nothing is refused for its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It wants an answer.
    Request,
    /// It wants none.
    Notification,
    /// As its sender likes.
    Either,
}

/// What a method needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// One of these capabilities; the first is the one that a refusal names.
    Granted(&'static [&'static str]),
    /// This capability, and the feature set that it names, where it names one (P9).
    GrantedUnder(&'static [&'static str]),
    /// The feature set that it names, which declares `rollback`.
    Rollback,
    /// The operator's `allowHostCommands`.
    Leave,
}

/// One method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Who sends it.
    pub sender: Sender,
    /// How.
    pub form: Form,
    /// What that needs.
    pub needs: Needs,
}

impl Method {
    const fn new(name: &'static str, sender: Sender, form: Form, needs: Needs) -> Self {
        Self {
            name,
            sender,
            form,
            needs,
        }
    }

    const fn removed(name: &'static str) -> Self {
        Self::new(name, Sender::Nobody, Form::Either, Needs::Nothing)
    }

    /// The capabilities of which it needs one; none where it needs none.
    #[must_use]
    pub fn capabilities(&self) -> &'static [&'static str] {
        match self.needs {
            Needs::Granted(paths) | Needs::GrantedUnder(paths) => paths,
            Needs::Nothing | Needs::Rollback | Needs::Leave => &[],
        }
    }

    /// Why that side may not send it, where it may not.
    #[must_use]
    pub fn misplaced(&self, by: Sender) -> Option<&'static str> {
        match self.sender {
            Sender::Nobody => Some("was removed in MCPL 0.5"),
            Sender::Server if by != Sender::Server => Some("goes from a server to its host"),
            Sender::Host if by != Sender::Host => Some("goes from a host to its server"),
            Sender::Server | Sender::Host | Sender::Both => None,
        }
    }
}

/// The method of that name; `None` where MCPL has none.
#[must_use]
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Any of them lets a host call the hook; `observe` alone lets it say what the user wrote (MCPL §10.1).
const HOOK: &[&str] = &[
    "contextHooks.beforeInference.observe",
    "contextHooks.beforeInference.inject.afterUser",
    "contextHooks.beforeInference.inject.beforeUser",
    "contextHooks.beforeInference.inject.system",
];

use Form::{Either, Notification, Request};
use Needs::{Granted, GrantedUnder, Leave, Nothing, Rollback};
use Sender::{Both, Host, Server};

/// All, those of servers first.
pub const METHODS: [Method; 28] = [
    Method::new(
        method::PUSH_EVENT,
        Server,
        Request,
        GrantedUnder(&["pushEvents"]),
    ),
    Method::new(
        method::INFERENCE_REQUEST,
        Server,
        Request,
        GrantedUnder(&["inferenceRequest"]),
    ),
    Method::new(method::MODEL_INFO, Server, Request, Granted(&["modelInfo"])),
    Method::new(
        method::CHANNELS_REGISTER,
        Server,
        Request,
        Granted(&["channels.register"]),
    ),
    Method::new(
        method::CHANNELS_CHANGED,
        Server,
        Either,
        Granted(&["channels.register"]),
    ),
    Method::new(
        method::CHANNELS_INCOMING,
        Server,
        Either,
        Granted(&["channels.incoming"]),
    ),
    Method::new(
        method::TOOLS_OBSERVE,
        Server,
        Request,
        Granted(&["toolLifecycle.observe"]),
    ),
    Method::new(method::MANIFEST_CHANGED, Server, Notification, Nothing),
    Method::new(method::HOST_COMMAND, Server, Request, Leave),
    Method::new(
        method::CHANNELS_LIST,
        Both,
        Request,
        Granted(&["channels.register"]),
    ),
    Method::new(method::FEATURE_SETS_UPDATE, Host, Either, Nothing),
    Method::new(method::MANIFEST, Host, Request, Nothing),
    Method::new(method::BEFORE_INFERENCE, Host, Request, Granted(HOOK)),
    Method::new(
        method::INFERENCE_LIFECYCLE,
        Host,
        Notification,
        Granted(&["inferenceLifecycle"]),
    ),
    Method::new(
        method::INFERENCE_CHUNK,
        Host,
        Notification,
        Granted(&["inferenceRequest.streaming"]),
    ),
    Method::new(
        method::PUSH_RENDER,
        Host,
        Request,
        Granted(&["pushEvents", "channels.incoming"]),
    ),
    Method::new(
        method::TOOLS_LIFECYCLE,
        Host,
        Notification,
        Granted(&["toolLifecycle.observe"]),
    ),
    Method::new(method::STATE_ROLLBACK, Host, Request, Rollback),
    Method::new(
        method::CHANNELS_OPEN,
        Host,
        Request,
        Granted(&["channels.lifecycle"]),
    ),
    Method::new(
        method::CHANNELS_CLOSE,
        Host,
        Request,
        Granted(&["channels.lifecycle"]),
    ),
    Method::new(
        method::CHANNELS_PUBLISH,
        Host,
        Either,
        Granted(&["channels.publish"]),
    ),
    Method::new(
        method::OUTGOING_CHUNK,
        Host,
        Notification,
        Granted(&["channels.streaming"]),
    ),
    Method::new(
        method::OUTGOING_COMPLETE,
        Host,
        Notification,
        Granted(&["channels.streaming"]),
    ),
    Method::new(
        method::CHANNELS_ACKNOWLEDGE,
        Host,
        Request,
        Granted(&["channels.acknowledge"]),
    ),
    Method::new(
        method::CHANNELS_TYPING,
        Host,
        Notification,
        Granted(&["channels.typing"]),
    ),
    Method::removed(method::SCOPE_ELEVATE),
    Method::removed(method::FEATURE_SETS_CHANGED),
    Method::removed(method::AFTER_INFERENCE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mcpl::CAPABILITIES;

    #[test]
    fn every_capability_is_needed_by_some_method_or_has_another_use() {
        let needed: Vec<&str> = METHODS
            .iter()
            .flat_map(Method::capabilities)
            .copied()
            .collect();
        let unneeded: Vec<_> = CAPABILITIES
            .iter()
            .filter(|path| !needed.contains(path))
            .collect();
        // MCP's own methods need `tools` of no MCPL server, and arguments are a part of another method.
        assert_eq!(unneeded, [&"toolLifecycle.inputs", &"tools"]);
        assert!(needed.iter().all(|path| CAPABILITIES.contains(path)));
    }

    #[test]
    fn a_method_goes_its_own_way_and_one_that_was_removed_goes_none() {
        let why = |name: &str, by| find(name).unwrap().misplaced(by);
        assert_eq!(why("channels/list", Sender::Server), None);
        assert_eq!(why("channels/list", Sender::Host), None);
        assert!(why("channels/publish", Sender::Server).is_some());
        assert!(why("push/event", Sender::Host).is_some());
        assert!(why("scope/elevate", Sender::Server).is_some());
        assert!(why("context/afterInference", Sender::Host).is_some());
        assert_eq!(find("tools/call"), None);
    }
}
