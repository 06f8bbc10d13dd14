//! The words in a decision that a peer may have chosen.

use super::Decision;

impl Decision {
    /// The text in it that can hold a peer's words.
    pub(in crate::engine) fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::AttemptFailed { why, .. }
            | Self::ShortEnd { why, .. }
            | Self::Down { why, .. }
            | Self::Halted { why, .. } => Some(why),
            Self::Settled { note, .. } => Some(note),
            Self::Refused { problem } => Some(problem),
            Self::Dropped { method, .. }
            | Self::RefusedMessage { method, .. }
            | Self::Called { method, .. }
            | Self::Orphaned { method } => Some(method),
            Self::Noise { sample, .. } => Some(sample),
            Self::Stderr(text) | Self::Reported(text) => Some(text),
            Self::State(_)
            | Self::Dialing { .. }
            | Self::Adopted { .. }
            | Self::Ended { .. }
            | Self::Waiting { .. }
            | Self::Lasted { .. }
            | Self::Clear { .. }
            | Self::Carried { .. }
            | Self::Kept { .. }
            | Self::Flushed { .. }
            | Self::HoldLifted { .. }
            | Self::HostAttached
            | Self::HostServes { .. }
            | Self::HostDetached
            | Self::Paused(_) => None,
        }
    }
}
