//! The words in a decision that a peer may have chosen.

use super::{Decision, Difference};

impl Decision {
    /// The texts in it that can hold a peer's words.
    pub(in crate::engine) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let (text, names) = if let Self::Manifest { feature_sets, .. } = self {
            (None, Some(feature_sets))
        } else {
            (self.text_mut(), None)
        };
        let lists = names.into_iter().flat_map(|of| {
            let Difference {
                added,
                pending,
                removed,
            } = of;
            added.iter_mut().chain(pending).chain(removed)
        });
        text.into_iter().chain(lists)
    }

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::AttemptFailed { why, .. }
            | Self::ShortEnd { why, .. }
            | Self::Down { why, .. }
            | Self::Halted { why, .. } => Some(why),
            Self::Settled { note, .. } => Some(note),
            Self::Refused { problem } => Some(problem),
            Self::Dropped { method, .. }
            | Self::Repeated { method, .. }
            | Self::UnknownChannel { method, .. }
            | Self::RefusedMessage { method, .. }
            | Self::Called { method, .. }
            | Self::Orphaned { method }
            | Self::AnsweredLate { method }
            | Self::Accepted { method }
            | Self::Verdict { method, .. } => Some(method),
            Self::Noise { sample, .. } => Some(sample),
            Self::Stderr(text) | Self::Reported(text) => Some(text),
            Self::State(_)
            | Self::Dialing { .. }
            | Self::Connected { .. }
            | Self::Adopted { .. }
            | Self::Ended { .. }
            | Self::Waiting { .. }
            | Self::Manifest { .. }
            | Self::SessionRenewed { .. }
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
