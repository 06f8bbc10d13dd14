//! Rules of the engine's document that the configuration holds.

use std::time::Duration;

use tidegate::config::{Config, Server};
use tidegate::engine::settings::{Settings, WAIT_MAX};

use super::load;

fn engine(fields: &str) -> Settings {
    let mut config = load(&format!("mcpServers: {{ a: {{ command: x, {fields} }} }}"));
    let entry = config.servers.remove(0).entry.unwrap();
    Settings::clone(&entry.engine)
}

fn warned(config: &Config, path: &str) -> bool {
    config.warnings.iter().any(|warning| warning.path == path)
}

#[test]
fn r9_a_server_that_cannot_be_used_leaves_the_others_alone() {
    let config = load(
        "mcpServers: { bad: { command: x, reconnectIntervalMs: 0 }, lost: { command: '${NOT_SET}' }, \
         good: { command: x } }",
    );
    let usable = |server: &Server| (server.id.to_string(), server.entry.is_ok());
    let servers: Vec<_> = config.servers.iter().map(usable).collect();
    let expected = [("bad", false), ("lost", false), ("good", true)];
    assert_eq!(servers, expected.map(|(id, ok)| (id.to_owned(), ok)));
}

#[test]
fn r9_an_interval_is_checked_also_where_reconnect_is_off() {
    let config =
        load("mcpServers: { a: { command: x, reconnect: false, reconnectIntervalMs: 0 } }");
    let problems = config.servers[0].entry.as_ref().unwrap_err();
    assert_eq!(problems[0].path, "mcpServers.a.reconnectIntervalMs");
}

#[test]
fn r9_null_is_the_default_also_where_defaults_say_otherwise() {
    let config = load(
        "defaults: { reconnectIntervalMs: 1 }\n\
         mcpServers: { a: { command: x, reconnectIntervalMs: null }, b: { command: x } }",
    );
    let interval = |server: &Server| server.entry.as_ref().unwrap().engine.interval;
    let intervals: Vec<_> = config.servers.iter().map(interval).collect();
    assert_eq!(
        intervals,
        [Duration::from_secs(5), Duration::from_millis(1)]
    );
}

#[test]
fn servers_whose_names_would_begin_alike_are_both_refused_and_no_other() {
    let config = load(
        "mcpServers: { a: { command: x }, b: { command: x, toolPrefix: a }, c: { command: x }, \
         d_: { command: x }, e: { command: x, toolPrefix: e_ }, f: { command: x, toolPrefix: g.h-1 }, \
         i: { command: x, toolPrefix: a } }",
    );
    let prefix = |server: &Server| match &server.entry {
        Ok(entry) => entry.prefix.to_string(),
        Err(problems) => format!("{}: {}", problems[0].path, problems[0].message),
    };
    let prefixes: Vec<String> = config.servers.iter().map(prefix).collect();
    for (at, path) in [
        (0, "mcpServers.a"),
        (1, "mcpServers.b"),
        (6, "mcpServers.i"),
    ] {
        assert!(prefixes[at].starts_with(path), "{}", prefixes[at]);
        assert!(
            prefixes[at].contains("begin with `a__`"),
            "{}",
            prefixes[at]
        );
    }
    assert_eq!((&*prefixes[2], &*prefixes[3]), ("c", "d-"));
    assert!(
        prefixes[4].starts_with("mcpServers.e.toolPrefix"),
        "{}",
        prefixes[4]
    );
    assert_eq!(prefixes[5], "g.h-1");
}

#[test]
fn r15_a_timeout_of_zero_is_no_limit() {
    let settings = engine("connectTimeoutMs: 0, requestTimeoutMs: 0, callTimeoutMs: 0");
    assert_eq!(settings.connect_timeout, WAIT_MAX);
    assert_eq!(settings.request_timeout, WAIT_MAX);
    assert_eq!(settings.call_timeout, Duration::ZERO);
}

#[test]
fn r16_a_threshold_below_the_longest_wait_is_told() {
    let told = |fields: &str, path: &str| {
        warned(
            &load(&format!("mcpServers: {{ a: {{ command: x, {fields} }} }}")),
            &format!("mcpServers.a.{path}"),
        )
    };
    assert!(told("lastingAfterMs: 1000", "lastingAfterMs"));
    assert!(told(
        "reconnectMaxIntervalMs: Infinity",
        "reconnectMaxIntervalMs"
    ));
    assert!(!told("lastingAfterMs: 300000", "lastingAfterMs"));
    assert!(!told(
        "lastingAfterMs: 1000, reconnect: false",
        "lastingAfterMs"
    ));
}

#[test]
fn p4_tool_lifecycle_is_granted_only_where_it_is_named() {
    let named = |settings: &Settings, path: &str| {
        let enabled = settings.mask.enabled_capabilities.as_ref();
        enabled.is_some_and(|paths| paths.iter().any(|known| known == path))
    };
    let stated = engine("toolLifecycle: { observe: {} }");
    assert!(named(&stated, "toolLifecycle.observe") && named(&stated, "channels.incoming"));
    assert!(!named(&stated, "toolLifecycle.inputs"));
    assert!(!named(
        &stated,
        "contextHooks.beforeInference.inject.system"
    ));
    assert_eq!(engine("enabled: true").mask.enabled_capabilities, None);
}

#[test]
fn a_credential_in_the_clear_is_told_unless_it_stays_on_this_machine() {
    let told = |url: &str, credential: &str| {
        let file = format!("mcpServers: {{ a: {{ url: '{url}', {credential} }} }}");
        warned(&load(&file), "mcpServers.a.url")
    };
    assert!(told("ws://chat.example/", "token: abc"));
    assert!(told("ws://10.0.0.1/", "headers: { A: b }"));
    for url in [
        "wss://chat.example/",
        "ws://127.9.9.9/",
        "ws://[::1]:5/",
        "ws://a.localhost/",
    ] {
        assert!(!told(url, "token: abc"), "{url}");
    }
    assert!(!told("ws://chat.example/", "reconnect: true"));
}
