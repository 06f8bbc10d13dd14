//! The identities everything else is keyed by. They are opaque: nothing here routes or counts.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// The name of a configured server: `[A-Za-z0-9._-]{1,64}` without `__` (3-config).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Arc<str>);

impl ServerId {
    /// Takes a name that fits, or `None`.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(legal) && !name.contains("__");
        fits.then(|| Self(name.into()))
    }

    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counted! {
    /// The life of one transport, from the start of its attempt to its loss. From 1 per server, never reused.
    Epoch
}
counted! {
    /// One try to connect: 0 is the first connect, N the Nth reconnect (R1).
    Attempt
}
counted! {
    /// One connection of a host or client to a face. Unique in a process.
    SessionId
}

/// The identity of a span and of its trace (W3C Trace Context); neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// Of the trace.
    pub trace: u128,
    /// Of the span in it.
    pub span: u64,
}

impl SpanIds {
    /// The trace's id as it is written everywhere: 32 digits.
    #[must_use]
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }
}

/// An epoch that is open, as its trace knows it: enough to end its root span, also by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenEpoch {
    /// Which.
    pub epoch: Epoch,
    /// The attempt that made it.
    pub attempt: Attempt,
    /// Its root span.
    pub span: SpanIds,
    /// When its dial began.
    pub began: SystemTime,
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Attempt {
    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_id_takes_the_documented_alphabet_alone() {
        for good in ["a", "discord", "mem-1.x_y", &"x".repeat(64)] {
            assert_eq!(ServerId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a__b", "ä", "a/b", &"x".repeat(65)] {
            assert!(ServerId::new(bad).is_none(), "{bad}");
        }
    }
}
