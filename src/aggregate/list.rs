//! The lists that are merged: how each is asked for, and where its items say what they are.

use super::address::Sort;
use crate::wire::mcp::method;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
    /// `tasks/list`
    Tasks,
}

impl List {
    const ALL: [Self; 5] = [
        Self::Tools,
        Self::Prompts,
        Self::Resources,
        Self::Templates,
        Self::Tasks,
    ];

    /// The list that a request asks for.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.method() == name)
    }

    /// The method that asks for it.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_LIST,
            Self::Prompts => method::PROMPTS_LIST,
            Self::Resources => method::RESOURCES_LIST,
            Self::Templates => method::TEMPLATES_LIST,
            Self::Tasks => method::TASKS_LIST,
        }
    }

    /// The notification that it changed; of tasks there is none, and nothing of them is known while a server is away.
    pub(super) fn change(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some(method::TOOLS_CHANGED),
            Self::Prompts => Some(method::PROMPTS_CHANGED),
            Self::Resources | Self::Templates => Some(method::RESOURCES_CHANGED),
            Self::Tasks => None,
        }
    }

    /// The member of a result that holds the items.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Tasks => "tasks",
        }
    }

    /// The member of an item that says which it is, and how that is told apart.
    pub(super) fn address(self) -> (&'static str, Sort) {
        match self {
            Self::Tools | Self::Prompts => ("name", Sort::Name),
            Self::Resources => ("uri", Sort::Uri),
            Self::Templates => ("uriTemplate", Sort::Uri),
            Self::Tasks => ("taskId", Sort::Id),
        }
    }
}
