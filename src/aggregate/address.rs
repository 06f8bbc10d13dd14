//! What tells the servers of one session apart: the prefix of names, the scheme of URIs, the beginning of task ids.
//! What a server says is lengthened at its front and nothing else, so what comes back is what it said, byte for byte.

use std::borrow::Cow;

/// Between a server's prefix and a name. No prefix has it inside or ends with `_`, so its first place is the seam.
const SEAM: &str = "__";
/// The scheme of a URI of a server. What follows is no path that begins with a slash, so nobody who reads it as a URL
/// puts its letters in order, takes dots out of it or lengthens it.
const SCHEME: &str = "tidegate:";

/// How one server's things are known to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The server's id.
    pub(super) server: Box<str>,
    /// What stands before its names.
    pub(super) prefix: Box<str>,
}

/// What a text names things by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// A tool or a prompt: `{prefix}__{name}`.
    Name,
    /// A resource or a template: `tidegate:{server}/{uri}`.
    Uri,
    /// A task, an elicitation or a logger: `{server}/{id}`.
    Id,
}

impl Address {
    /// What stands before the server's own text.
    pub(super) fn lead(&self, sort: Sort) -> String {
        match sort {
            Sort::Name => format!("{}{SEAM}", self.prefix),
            Sort::Uri => format!("{SCHEME}{}/", self.server),
            Sort::Id => format!("{}/", self.server),
        }
    }

    /// The server's own text in what the client said.
    pub(super) fn own<'a>(&self, sort: Sort, said: &'a str) -> Option<&'a str> {
        let (owner, own) = split(sort, said)?;
        let is_ours = match sort {
            Sort::Name => owner == &*self.prefix,
            Sort::Uri | Sort::Id => owner == &*self.server,
        };
        is_ours.then_some(own)
    }
}

/// Whose something is, by its prefix for a name and by the server's id else, and what the server itself calls it.
pub(super) fn split(sort: Sort, said: &str) -> Option<(&str, &str)> {
    match sort {
        Sort::Name => said.split_once(SEAM),
        Sort::Uri => said.strip_prefix(SCHEME)?.split_once('/'),
        Sort::Id => said.split_once('/'),
    }
}

/// Whether names can be told apart by that prefix, and told to a model: letters, digits, `.`, `-`, and `_` where it is
/// neither doubled nor last.
#[must_use]
pub fn is_prefix(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len())
        && text.bytes().all(legal)
        && !text.contains(SEAM)
        && !text.ends_with('_')
}

/// The prefix of a server that is given none: its id, whose last `_` could not be told from the seam.
#[must_use]
pub fn default_prefix(server: &str) -> Cow<'_, str> {
    match server.strip_suffix('_') {
        Some(start) => Cow::Owned(format!("{start}-")),
        None => Cow::Borrowed(server),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SORTS: [Sort; 3] = [Sort::Name, Sort::Uri, Sort::Id];

    fn address(server: &str) -> Address {
        Address {
            server: server.into(),
            prefix: default_prefix(server).into(),
        }
    }

    #[test]
    fn a_name_that_begins_with_the_seams_own_letters_is_whose_it_is() {
        for (name, owner, own) in [
            ("a__b", "a", "b"),
            ("a___b", "a", "_b"),
            ("a____b", "a", "__b"),
            ("a__b__c", "a", "b__c"),
            ("a__", "a", ""),
        ] {
            assert_eq!(split(Sort::Name, name), Some((owner, own)), "{name}");
        }
        for nobodys in ["a_b", "a", ""] {
            assert_eq!(split(Sort::Name, nobodys), None);
        }
    }

    #[test]
    fn a_prefix_that_could_be_mistaken_is_none() {
        for good in ["a", "a-b", "A.b_c", "_a", &"x".repeat(64)] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in ["", "a_", "a__b", "a b", "ä", "a/b", "a\"", &"x".repeat(65)] {
            assert!(!is_prefix(bad), "{bad}");
        }
        assert_eq!(default_prefix("a_"), "a-");
        assert_eq!(default_prefix("a.b"), "a.b");
    }

    proptest! {
        /// Whatever servers call their things, two never share a name, and each comes back as it was.
        #[test]
        fn what_servers_say_round_trips_and_never_collides(
            one in "[A-Za-z0-9.-]([A-Za-z0-9.-]|_[A-Za-z0-9.-]){0,5}",
            other in "[A-Za-z0-9.-]([A-Za-z0-9.-]|_[A-Za-z0-9.-]){0,5}",
            mine in "[_/:a-b]{0,6}|.{0,12}",
            theirs in "[_/:a-b]{0,6}|.{0,12}",
        ) {
            prop_assert!(is_prefix(&one) && is_prefix(&other));
            let (one, other) = (address(&one), address(&other));
            for sort in SORTS {
                let said = one.lead(sort) + &mine;
                prop_assert_eq!(one.own(sort, &said), Some(&*mine));
                let also = other.lead(sort) + &theirs;
                prop_assert_eq!(said == also, one == other && mine == theirs);
                if one != other {
                    prop_assert_eq!(other.own(sort, &said), None);
                }
            }
        }
    }
}
