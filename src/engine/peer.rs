//! What a server says of itself in its `initialize` result. A stub until the traffic half lands.

use crate::wire::jsonrpc::member;
use crate::wire::mcp::Revision;

/// A server, as it introduced itself.
#[derive(Debug)]
pub(super) struct Peer {
    mcpl: bool,
}

impl Peer {
    /// Reads the `initialize` result, whose text is JSON; `None` where it is no object.
    pub(super) fn read(revision: Revision, result: &str) -> Option<Self> {
        let _ = revision;
        if !result.trim_ascii_start().starts_with('{') {
            return None;
        }
        let mcpl = member(result, "capabilities")
            .and_then(|capabilities| member(capabilities, "experimental"))
            .and_then(|experimental| member(experimental, "mcpl"))
            .is_some();
        Some(Self { mcpl })
    }

    /// Whether it advertises MCPL.
    pub(super) fn is_mcpl(&self) -> bool {
        self.mcpl
    }
}
