//! Fields of other MCP hosts: what they mean here, or that they mean nothing. It changes the tree before it is read.

use super::Problem;
use super::problem::Scope;
use super::tree::{Key, Node, Step, Value};

/// A server's fields under other names.
pub(super) const MAPPED: [(&str, &str); 7] = [
    ("type", "transport"),
    ("disabled", "enabled"),
    ("httpUrl", "url"),
    ("serverUrl", "url"),
    ("timeout", "callTimeoutMs"),
    ("includeTools", "enabledTools"),
    ("excludeTools", "disabledTools"),
];

/// A server's fields that mean nothing here.
pub(super) const IGNORED: [&str; 20] = [
    "access",
    "alwaysAllow",
    "autoApprove",
    "autofetch",
    "channelSubscription",
    "description",
    "dev",
    "displayName",
    "envFile",
    "gallery",
    "icon",
    "metadata",
    "name",
    "oauth",
    "scopes",
    "shouldTriggerInference",
    "tags",
    "title",
    "trust",
    "version",
];

/// The file's fields that mean nothing here.
pub(super) const IGNORED_AT_TOP: [&str; 6] = [
    "$schema",
    "globalShortcut",
    "inputs",
    "mcpRefresh",
    "preferences",
    "toolClassOverrides",
];

/// What a mapping found. `once` is told once for the whole file.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    pub(super) once: Vec<Problem>,
}

/// The file's own fields: `servers` is `mcpServers`.
pub(super) fn map_file(root: &mut Node, file: &std::path::Path) -> Mapping {
    let before = root.clone();
    let scope = Scope {
        file,
        node: &before,
        prefix: "",
    };
    let mut found = Mapping::default();
    ignore(root, &IGNORED_AT_TOP, scope, &mut found);
    rename(root, "servers", "mcpServers", scope, &mut found);
    found
}

/// One server's fields, or those of `defaults`.
pub(super) fn map_server(node: &mut Node, scope: Scope<'_>) -> Mapping {
    let mut found = Mapping::default();
    ignore(node, &IGNORED, scope, &mut found);
    for (theirs, ours) in MAPPED {
        if let Some(value) = node.get_mut(theirs) {
            let faults = translate(theirs, value);
            found
                .problems
                .extend(faults.0.map(|text| scope.field(theirs, text)));
            found
                .warnings
                .extend(faults.1.map(|text| scope.field(theirs, text)));
            rename(node, theirs, ours, scope, &mut found);
        }
    }
    found
}

fn ignore(node: &mut Node, names: &[&str], scope: Scope<'_>, found: &mut Mapping) {
    for name in names {
        if node.take(name).is_some() {
            let text = format!("`{name}` is a field of other hosts and is ignored here");
            let path = [Step::Key((*name).to_owned())];
            found.once.push(scope.at_key(&path, text));
        }
    }
}

/// Gives a member our name; the path of a problem keeps theirs.
fn rename(node: &mut Node, theirs: &str, ours: &str, scope: Scope<'_>, found: &mut Mapping) {
    let clash = node.get(ours).is_some();
    let Some((key, value)) = node.take(theirs) else {
        return;
    };
    if clash {
        let path = [Step::Key(theirs.to_owned())];
        let text = format!("`{theirs}` means `{ours}`, which is given too; keep `{ours}`");
        found.problems.push(scope.at_key(&path, text));
    } else if let Value::Map(members) = &mut node.value {
        let name = ours.to_owned();
        members.push((Key { name, ..key }, value));
    }
}

/// Says in our words what a value says in theirs: a problem, a warning.
fn translate(theirs: &str, node: &mut Node) -> (Option<String>, Option<String>) {
    match (theirs, &mut node.value) {
        ("disabled", Value::Bool(disabled)) => *disabled = !*disabled,
        ("disabled", Value::Null) => {}
        ("disabled", value) => {
            *value = Value::Cut;
            return (Some("write true or false, or `enabled`".into()), None);
        }
        ("type", Value::Text { text, .. }) => return (transport(text), None),
        ("timeout", Value::Number(value, written)) if *value > 0.0 && *value < 1000.0 => {
            *value *= 1000.0;
            let millis = *value;
            let text = format!("{written} is read as seconds; write `callTimeoutMs: {millis}`");
            *written = millis.to_string();
            return (None, Some(text));
        }
        _ => {}
    }
    (None, None)
}

fn transport(text: &mut String) -> Option<String> {
    let ours = match text.as_str() {
        "streamable-http" | "streamableHttp" | "streamable_http" => "http",
        "ws" => "websocket",
        "sse" => {
            "http".clone_into(text);
            let problem = "the HTTP+SSE transport of 2024-11-05 is not spoken; give the server's Streamable HTTP or \
                           WebSocket address and leave `type` out";
            return Some(problem.into());
        }
        _ => return None,
    };
    ours.clone_into(text);
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn mapped(source: &str) -> (Node, Mapping) {
        let mut node = Node::parse(source).unwrap();
        let before = node.clone();
        let scope = Scope {
            file: Path::new("f"),
            node: &before,
            prefix: "",
        };
        let mapping = map_server(&mut node, scope);
        (node, mapping)
    }

    fn names(node: &Node) -> Vec<&str> {
        let names = node.members().iter();
        names.map(|(key, _)| key.name.as_str()).collect()
    }

    #[test]
    fn other_hosts_fields_get_our_names_and_keep_theirs_in_paths() {
        let (node, mapping) = mapped("httpUrl: x\ndisabled: true\ntype: streamable-http\n");
        assert_eq!(names(&node), ["transport", "enabled", "url"]);
        assert!(matches!(
            node.get("enabled").unwrap().value,
            Value::Bool(false)
        ));
        assert!(mapping.problems.is_empty() && mapping.warnings.is_empty());
        assert_eq!(node.locate(&[Step::Key("url".into())]).1, "httpUrl");
    }

    #[test]
    fn a_field_that_means_nothing_here_is_taken_out_and_told() {
        let (node, mapping) = mapped("command: x\nautoApprove: [a]\ndescription: y\n");
        assert_eq!(names(&node), ["command"]);
        let told: Vec<_> = mapping.once.iter().map(|told| told.path.as_str()).collect();
        assert_eq!(told, ["autoApprove", "description"]);
    }

    #[test]
    fn two_names_for_one_thing_and_an_unspoken_transport_are_problems() {
        let (_, mapping) = mapped("url: x\nserverUrl: y\ntype: sse\ndisabled: maybe\n");
        let paths: Vec<_> = mapping
            .problems
            .iter()
            .map(|problem| problem.path.as_str())
            .collect();
        assert_eq!(paths, ["type", "disabled", "serverUrl"]);
    }

    #[test]
    fn a_small_timeout_is_seconds() {
        let (node, mapping) = mapped("timeout: 60");
        assert!(
            matches!(node.get("callTimeoutMs").unwrap().value, Value::Number(ms, _) if ms == 60_000.0)
        );
        assert_eq!(
            mapping.warnings[0].message,
            "60 is read as seconds; write `callTimeoutMs: 60000`"
        );
        let (node, mapping) = mapped("timeout: 60000");
        assert!(
            matches!(node.get("callTimeoutMs").unwrap().value, Value::Number(ms, _) if ms == 60_000.0)
        );
        assert!(mapping.warnings.is_empty());
    }
}
