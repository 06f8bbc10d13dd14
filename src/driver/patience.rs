//! How long each host that does not read is borne (G16). It holds no frame and closes nobody.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ids::SessionId;

/// How long a host's full queue is borne. Meanwhile its server is not read.
const FULL_MAX: Duration = Duration::from_secs(10);

/// The hosts whose queue is over its limit, and since when.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: BTreeMap<SessionId, Instant>,
}

impl Patience {
    /// The queue of that host is over its limit.
    pub(super) fn begin(&mut self, session: SessionId, now: Instant) {
        self.since.entry(session).or_insert(now);
    }

    /// It fits again, or the host is gone.
    pub(super) fn end(&mut self, session: SessionId) {
        self.since.remove(&session);
    }

    /// Whether some host does not read.
    pub(super) fn is_tried(&self) -> bool {
        !self.since.is_empty()
    }

    /// When it is over with the first of them.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = self.since.values().min()?;
        first.checked_add(FULL_MAX)
    }

    /// Those that were borne long enough.
    pub(super) fn lost(&self, now: Instant) -> Vec<SessionId> {
        let hosts = self.since.iter();
        let lost = hosts.filter(|(_, since)| now.saturating_duration_since(**since) >= FULL_MAX);
        lost.map(|(session, _)| *session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_each_host_that_does_not_read_is_borne_for_ten_seconds_of_its_own() {
        let (one, two) = (SessionId(1), SessionId(2));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut patience = Patience::default();
        assert!(!patience.is_tried() && patience.due().is_none());
        patience.begin(one, start);
        patience.begin(two, after(9));
        patience.begin(one, after(9));
        assert_eq!(patience.due(), Some(after(10)));
        assert_eq!(patience.lost(after(9)), []);
        assert_eq!(patience.lost(after(10)), [one]);
        patience.end(one);
        assert_eq!(
            (patience.due(), patience.is_tried()),
            (Some(after(19)), true)
        );
        assert_eq!(patience.lost(after(19)), [two]);
        patience.end(two);
        assert!(!patience.is_tried());
    }
}
