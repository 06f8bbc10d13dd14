//! The ids of the gateway's own requests to a stateless server, far from those of the engine: it counts up from 0, and
//! its pings count down from 2^53. All are integers that every JSON reader keeps whole.

/// The request for what a server is.
pub(super) const DISCOVERY: u64 = 1 << 49;
/// Streams of changes begin here.
const LISTEN: u64 = 1 << 50;
/// Calls that are sent again begin here.
const AGAIN: u64 = 1 << 51;
/// And end here.
const END: u64 = 1 << 52;

/// A request of the gateway's own, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// A call sent again.
    Again(u64),
    /// A stream of changes.
    Listen(u64),
}

impl Own {
    /// Whose id that is.
    pub(super) fn of(id: u64) -> Option<Self> {
        match id {
            LISTEN..AGAIN => Some(Self::Listen(id - LISTEN)),
            AGAIN..END => Some(Self::Again(id - AGAIN)),
            _ => None,
        }
    }

    /// The same of an id as JSON text.
    pub(super) fn read(id: &str) -> Option<Self> {
        Self::of(id.parse().ok()?)
    }

    /// Its id.
    pub(super) fn id(self) -> u64 {
        match self {
            Self::Again(number) => AGAIN + number,
            Self::Listen(number) => LISTEN + number,
        }
    }
}
