//! What the rules read exists: every metric, and every value of a label that they ask for.

use std::time::Duration;

use tidegate::engine::decision::Decision;
use tidegate::engine::input::End;
use tidegate::ids::ServerId;
use tidegate::observe::Observer;

use crate::rules;
use crate::tools::read;

/// `/metrics` of a gateway with a server of each transport, once a session ended and calls have failed in every way of
/// its own.
pub fn exported() -> String {
    let observer = Observer::new("gw-1");
    let id = |name| ServerId::new(name).unwrap();
    let chat = observer.server(&id("chat"), "stdio", "auto");
    let _mail = observer.server(&id("mail"), "websocket", "auto");
    let search = observer.server(&id("search"), "http", "auto");
    let ended = Decision::Ended {
        attempt: 0,
        end: End::Session,
        lasted: false,
        lived: Duration::ZERO,
        failed_attempts: 0,
    };
    search.decided(None, &ended);
    for error in ["lost", "timeout", "not_sent", "-32603"] {
        let called = Decision::Called {
            id: Some(1),
            method: "tools/call".into(),
            took: Duration::ZERO,
            error: Some(error.into()),
        };
        chat.decided(None, &called);
    }
    observer.metrics(&[])
}

/// The selectors of the rules: a metric's name and the text between its braces.
pub fn selectors(text: &str) -> Vec<(String, String)> {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let code = code.collect::<Vec<_>>().join("\n");
    let starts = ["tidegate_", "mcp_client_", "mcp_server_", "process_"];
    let found = starts.iter().flat_map(|start| code.match_indices(start));
    found.map(|(at, _)| selector(&code[at..])).collect()
}

fn selector(text: &str) -> (String, String) {
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    (
        name.to_owned(),
        inside.map_or("", |(inside, _)| inside).to_owned(),
    )
}

/// The name that a histogram's series belong to.
pub fn family(name: &str) -> &str {
    let ends = ["_bucket", "_count"];
    let cut = ends.iter().find_map(|end| name.strip_suffix(end));
    cut.unwrap_or(name)
}

/// `label="value"` for every value that a selector's matchers can take.
pub fn pairs(inside: &str) -> Vec<String> {
    let matchers = inside
        .split(',')
        .filter_map(|matcher| matcher.split_once('='));
    matchers
        .map(|(label, values)| (label.trim().trim_end_matches('!'), values))
        .filter(|(label, _)| !["job", "gateway", "server"].contains(label))
        .flat_map(|(label, values)| {
            let values = values.trim_start_matches('~').trim_matches('"').split('|');
            values.map(move |value| format!("{label}=\"{value}\""))
        })
        .collect()
}

#[test]
fn the_rules_read_only_what_is_exported() {
    let (rules, exported) = (read(rules::PATH), exported());
    let recorded = |name: &str| rules.contains(&format!("- record: {name}\n"));
    let mut seen = 0;
    for (name, inside) in selectors(&rules) {
        let is_exported = exported.contains(&format!("\n# TYPE {} ", family(&name)));
        assert!(is_exported || recorded(&name), "{name}");
        for pair in pairs(&inside) {
            let mut lines = exported.lines();
            let of_it = |line: &str| recorded(&name) || line.starts_with(&format!("{name}{{"));
            assert!(
                lines.any(|line| of_it(line) && line.contains(&pair)),
                "{name}: {pair}"
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
