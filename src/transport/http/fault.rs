//! Why a request to an HTTP server came to nothing, in words that hold no secret, and what that means: a failed
//! attempt, or the end of an epoch (R18, R19).

use std::fmt;
use std::io;

use super::connection::Broken;
use super::refusal::Refusal;
use crate::engine::input::{End, Failure, Outcome};
use crate::transport::credential::Unresolved;
use crate::transport::link::Link;
use crate::transport::upgrade;

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection.
    Broken(Broken),
    /// A status that is none of success.
    Status(Box<Refusal>),
    /// The server ended the session (R11).
    Session,
    /// A redirect to another origin.
    Elsewhere(String),
    /// Redirects without an end, or to nowhere.
    Redirects,
    /// The credential cannot be had.
    Credential(Unresolved),
    /// What was configured cannot be sent.
    Unusable(&'static str),
    /// The answer was none.
    NoAnswer(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(Broken::Unreachable(error)) => error.fmt(f),
            Self::Broken(Broken::Reset(error)) => broken(error).fmt(f),
            Self::Status(refusal) if refusal.words.is_empty() => {
                write!(f, "HTTP status {}", refusal.status.as_u16())
            }
            Self::Status(refusal) => {
                write!(
                    f,
                    "HTTP status {}: {}",
                    refusal.status.as_u16(),
                    refusal.words
                )
            }
            Self::Session => f.write_str("the server ended the session"),
            Self::Elsewhere(url) => write!(
                f,
                "it redirects to {url}, which is another origin; write that address instead"
            ),
            Self::Redirects => f.write_str("it redirects again and again"),
            Self::Credential(error) => error.fmt(f),
            Self::Unusable(why) | Self::NoAnswer(why) => f.write_str(why),
        }
    }
}

/// In words of our own; the library's may hold what was sent.
fn broken(error: &hyper::Error) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return error.to_string();
        }
        cause = inner.source();
    }
    if error.is_parse() {
        "it does not answer in HTTP".into()
    } else if error.is_incomplete_message() || error.is_canceled() {
        "the connection closed before the answer".into()
    } else {
        "the connection broke".into()
    }
}

impl Fault {
    /// As the failure of an attempt.
    pub(super) fn failure(&self, link: &Link, url: &str) -> Failure {
        let outcome = match self {
            Self::Status(refusal) if refusal.is_of_credential() => Outcome::Auth,
            Self::Broken(Broken::Unreachable(error)) if error.kind() == io::ErrorKind::TimedOut => {
                Outcome::Timeout
            }
            Self::NoAnswer(_) => Outcome::Handshake,
            Self::Broken(_)
            | Self::Status(_)
            | Self::Session
            | Self::Elsewhere(_)
            | Self::Redirects
            | Self::Credential(_)
            | Self::Unusable(_) => Outcome::Refused,
        };
        let retry_after = if let Self::Status(refusal) = self {
            refusal.retry_after
        } else {
            None
        };
        let detail = format!("{}: {self}", upgrade::shown(url));
        Failure {
            outcome,
            detail: link.secrets().clean(&detail),
            retry_after,
            stderr: Vec::new(),
        }
    }

    /// As the end of a connection that served.
    pub(super) fn end(&self, link: &Link) -> End {
        match self {
            Self::Status(refusal) => End::Http(refusal.status.as_u16()),
            Self::Session => End::Session,
            Self::Broken(_)
            | Self::Elsewhere(_)
            | Self::Redirects
            | Self::Credential(_)
            | Self::Unusable(_)
            | Self::NoAnswer(_) => End::Reset(link.secrets().clean(&self.to_string())),
        }
    }
}
