//! The difference of two files, which a reload applies.

use tidegate::config::diff::{Change, Difference, diff, running};
use tidegate::ids::ServerId;

use super::load;

fn id(name: &str) -> ServerId {
    ServerId::new(name).unwrap()
}

fn between(old: &str, new: &str) -> Difference {
    diff(&load(old), &load(new))
}

/// What a change of the fields of one server asks for.
fn change(old: &str, new: &str) -> Option<Change> {
    let file = |fields: &str| format!("mcpServers: {{ a: {{ {fields} }} }}");
    let difference = between(&file(old), &file(new));
    let changed = difference.changed.first().map(|(_, change)| *change);
    assert_eq!(changed.is_none(), difference.unchanged == [id("a")]);
    changed
}

#[test]
fn servers_that_come_go_and_stay_are_told_apart() {
    let difference = between(
        "mcpServers: { gone: { command: x }, stays: { command: x }, changes: { command: x } }",
        "mcpServers: { changes: { command: y }, stays: { command: x }, comes: { command: x } }",
    );
    assert_eq!(
        difference,
        Difference {
            added: vec![id("comes")],
            removed: vec![id("gone")],
            changed: vec![(id("changes"), Change::Redial)],
            unchanged: vec![id("stays")],
            hosts: false,
            restart: vec![],
        }
    );
}

#[test]
fn another_prefix_of_names_is_applied_to_the_connection_that_is_there() {
    let changed = change("command: x", "command: x, toolPrefix: y");
    assert_eq!(changed, Some(Change::Live));
}

#[test]
fn only_what_makes_the_transport_replaces_it() {
    let stdio = "command: x, args: [a], env: { A: b }";
    for other in [
        "command: y, args: [a], env: { A: b }",
        "command: x, args: [a, b], env: { A: b }",
        "command: x, args: [a], env: { A: c }",
        "command: x, args: [a], env: { A: b }, cwd: /tmp",
        "command: x, args: [a], env: { A: b }, inheritEnv: true",
        "command: x, args: [a], env: { A: b }, protocol: 2025-06-18",
        "url: 'ws://127.0.0.1'",
    ] {
        assert_eq!(change(stdio, other), Some(Change::Redial), "{other}");
    }
    let socket = "url: 'ws://127.0.0.1', token: abc";
    for other in [
        "url: 'ws://127.0.0.1:81', token: abc",
        "url: 'ws://127.0.0.1', token: abd",
        "url: 'ws://127.0.0.1', tokenFile: abc",
        "url: 'ws://127.0.0.1', tokenCommand: [abc]",
        "url: 'ws://127.0.0.1', token: abc, tokenIn: header",
        "url: 'ws://127.0.0.1', token: abc, headers: { A: b }",
    ] {
        assert_eq!(change(socket, other), Some(Change::Redial), "{other}");
    }
}

#[test]
fn every_other_field_applies_live() {
    let stdio = "command: x";
    for other in [
        "command: x, reconnectIntervalMs: 6000",
        "command: x, lastingAfterMs: 1",
        "command: x, disabledTools: [a]",
        "command: x, keepAliveMs: 1",
        "command: x, allowHostCommands: true",
    ] {
        assert_eq!(change(stdio, other), Some(Change::Live), "{other}");
    }
    let socket = "url: 'ws://127.0.0.1'";
    let probed = "url: 'ws://127.0.0.1', keepAliveMs: 5";
    assert_eq!(change(socket, probed), Some(Change::Live));
    let replacing = "onSecondHost: replace\nmcpServers: { a: { command: x } }";
    let difference = between("mcpServers: { a: { command: x } }", replacing);
    assert_eq!(difference.changed, [(id("a"), Change::Live)]);
}

#[test]
fn what_is_written_otherwise_and_means_the_same_is_no_change() {
    assert_eq!(
        change("command: x", "command: x, reconnect: true, args: null"),
        None
    );
    assert_eq!(
        change("command: x, disabled: true", "command: x, enabled: false"),
        None
    );
}

#[test]
fn switching_and_breaking_an_entry_are_changes_of_their_own() {
    assert_eq!(
        change("command: x", "command: x, enabled: false"),
        Some(Change::Disabled)
    );
    assert_eq!(
        change("command: x, enabled: false", "command: y"),
        Some(Change::Enabled)
    );
    assert_eq!(change("command: x", "comand: x"), Some(Change::Refused));
    assert_eq!(change("comand: x", "command: x"), Some(Change::Redial));
}

#[test]
fn a_mistake_and_its_repair_leave_a_server_as_it_runs() {
    let sound = load("mcpServers: { a: { command: x } }");
    let broken = load("mcpServers: { a: { comand: x } }");
    let changed = [(id("a"), Change::Refused)];
    assert_eq!(diff(&sound, &broken).changed, changed);
    let current = running(&sound, broken);
    assert_eq!(diff(&current, &sound).unchanged, [id("a")]);
}

#[test]
fn hosts_apply_live_and_faces_need_a_restart() {
    let difference = between(
        "hosts: [{ name: a, token: t }]\nlisten: 127.0.0.1:1\nstate: { dir: none }\n",
        "hosts: [{ name: a, token: u }]\nlisten: 127.0.0.1:2\n",
    );
    assert!(difference.hosts);
    assert_eq!(difference.restart, ["listen", "state.dir"]);
}
