//! Problems with their places.

use std::fmt;
use std::path::Path;

use super::Problem;
use super::read::Fault;
use super::tree::{Node, Place, Step};

/// Turns what is wrong inside a node into a [`Problem`].
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) file: &'a Path,
    pub(super) node: &'a Node,
    /// The node's own path; empty for the file.
    pub(super) prefix: &'a str,
}

impl Scope<'_> {
    /// A problem of the value at the end of a path.
    pub(super) fn at(&self, path: &[Step], message: impl Into<String>) -> Problem {
        let (place, shown) = self.node.locate(path);
        self.problem(place, &shown, message.into())
    }

    /// A problem of the key at the end of a path.
    pub(super) fn at_key(&self, path: &[Step], message: impl Into<String>) -> Problem {
        let (place, shown) = self.node.locate_key(path);
        self.problem(place, &shown, message.into())
    }

    /// A problem of one field's value.
    pub(super) fn field(&self, name: &str, message: impl Into<String>) -> Problem {
        self.at(&[Step::Key(name.to_owned())], message)
    }

    /// What a reading found.
    pub(super) fn fault(&self, fault: Fault) -> Problem {
        if fault.at_key {
            self.at_key(&fault.path, fault.message)
        } else {
            self.at(&fault.path, fault.message)
        }
    }

    fn problem(&self, place: Place, shown: &str, message: String) -> Problem {
        let path = match (self.prefix, shown) {
            ("", shown) => shown.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, shown) if shown.starts_with('[') => format!("{prefix}{shown}"),
            (prefix, shown) => format!("{prefix}.{shown}"),
        };
        Problem {
            file: self.file.into(),
            line: place.line,
            column: place.column,
            path,
            message,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (self.file.display(), self.line, self.column);
        write!(f, "{file}:{line}:{column}: ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
