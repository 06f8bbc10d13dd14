//! A client of the stateless revision presented to a server's engine as a session client (decision 0019): its request
//! is read and checked, becomes the messages of a session, and gets its one answer from theirs. It opens no session.

mod answered;
mod ask;
mod fields;
mod gathered;
mod inner;
mod listen;
mod refused;

#[cfg(test)]
mod histories;

pub use crate::revision::mirrored::Mirrored;
pub use ask::{Ask, SUPPORTED, is_stateless};
pub use fields::{Field, Head, Mismatch};
pub use inner::{Inner, Output, Skills, Standing};
pub use listen::Listen;
pub use refused::{Refusal, Refused, full, lost, state};
