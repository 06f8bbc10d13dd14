//! What a server told about itself in its answer to `initialize`. It is testimony, and grants nothing.

use crate::wire::jsonrpc::member;
use crate::wire::mcp::{Revision, STATELESS_MARK};

/// A server, as its `initialize` described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    revision: Revision,
    capabilities: Box<str>,
    info: Option<Box<str>>,
    instructions: Option<Box<str>>,
    manifest: Option<Box<str>>,
}

impl Peer {
    /// Reads the result of `initialize`; `None` where it is no object.
    pub(super) fn read(revision: Revision, result: &str) -> Option<Self> {
        if !is_object(result) {
            return None;
        }
        let object = |key| member(result, key).filter(|text| is_object(text));
        let capabilities = object("capabilities").unwrap_or("{}");
        let manifest = member(capabilities, "experimental")
            .and_then(|experimental| member(experimental, "mcpl"))
            .filter(|text| is_object(text) || *text == "true");
        Some(Self {
            revision,
            capabilities: capabilities.into(),
            info: object("serverInfo").map(Into::into),
            instructions: member(result, "instructions")
                .filter(|text| text.starts_with('"'))
                .map(Into::into),
            manifest: manifest.map(Into::into),
        })
    }

    /// The revision that both speak.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// It advertised MCPL.
    pub(super) fn is_mcpl(&self) -> bool {
        self.manifest.is_some()
    }

    /// It is of the stateless revision, and an edge of the gateway speaks for it.
    pub(super) fn is_stateless(&self) -> bool {
        let experimental = member(&self.capabilities, "experimental");
        experimental.is_some_and(|marks| member(marks, STATELESS_MARK).is_some())
    }

    /// Its `experimental.mcpl`, as JSON text.
    pub(super) fn manifest(&self) -> Option<&str> {
        self.manifest.as_deref()
    }

    /// It told another manifest while it served (P8).
    pub(super) fn set_manifest(&mut self, manifest: &str) {
        self.manifest = Some(manifest.into());
    }

    /// Its `serverInfo`, as JSON text.
    pub(super) fn info(&self) -> Option<&str> {
        self.info.as_deref()
    }

    /// Its `instructions`, as JSON text.
    pub(super) fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Whether MCP's own capability of that name is there, e.g. `tools`.
    pub(super) fn offers(&self, capability: &str) -> bool {
        member(&self.capabilities, capability).is_some_and(|text| text != "null" && text != "false")
    }

    /// The capability of that name where it is an object, as JSON text.
    pub(super) fn capability(&self, name: &str) -> Option<&str> {
        member(&self.capabilities, name).filter(|text| is_object(text))
    }

    /// Whether resources can be subscribed to.
    pub(super) fn takes_subscriptions(&self) -> bool {
        let resources = member(&self.capabilities, "resources");
        resources.and_then(|text| member(text, "subscribe")) == Some("true")
    }
}

fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_initialize_told_is_kept_as_written() {
        let peer = Peer::read(
            Revision::LATEST,
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":null,
               "experimental":{"mcpl":{"version":"0.5","n":1.0}}},
               "serverInfo":{"name":"a", "version":"1"},"instructions":"say \"hi\""}"#,
        )
        .unwrap();
        assert!(peer.is_mcpl() && peer.offers("tools") && !peer.offers("prompts"));
        assert_eq!(peer.manifest(), Some(r#"{"version":"0.5","n":1.0}"#));
        assert_eq!(peer.info(), Some(r#"{"name":"a", "version":"1"}"#));
        assert_eq!(peer.instructions(), Some(r#""say \"hi\"""#));
    }

    #[test]
    fn odd_answers_are_read_as_far_as_they_go() {
        for odd in ["[]", "3", "\"x\"", "null"] {
            assert!(Peer::read(Revision::LATEST, odd).is_none(), "{odd}");
        }
        let peer = Peer::read(
            Revision::LATEST,
            r#"{"capabilities":3,"instructions":{},"serverInfo":"x"}"#,
        );
        let peer = peer.unwrap();
        assert!(!peer.is_mcpl() && peer.info().is_none() && peer.instructions().is_none());
        for no in ["null", "false", "7", "[]"] {
            let text = format!(r#"{{"capabilities":{{"experimental":{{"mcpl":{no}}}}}}}"#);
            assert!(!Peer::read(Revision::LATEST, &text).unwrap().is_mcpl());
        }
    }
}
