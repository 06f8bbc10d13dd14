//! Which of MCP's methods work between which revisions through the gateway, found out by trying: docs/revisions.md.
//! `UPDATE=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, with};
use crate::host::{Host, Received};
use crate::interop::reference_over_stdio;

/// The revisions that begin with `initialize`.
const SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The stateless one.
const STATELESS: &str = "2026-07-28";

/// What is tried: the method as the table has it, and the request that a client makes for it.
fn trials() -> Vec<(&'static str, &'static str, Value)> {
    let tool = |name: &str| json!({ "name": name, "arguments": {} });
    let asks = |kind: &str| tool(&format!("test_input_required_result_{kind}"));
    let progress = with(
        tool("test_tool_with_progress"),
        json!({"_meta": {"progressToken": "p"}}),
    );
    let prompt = json!({ "name": "test_simple_prompt" });
    let complete = json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "a"},
    });
    let watched = json!({ "uri": "test://watched-resource" });
    vec![
        ("ping", "ping", json!({})),
        ("tools/list", "tools/list", json!({})),
        ("tools/call", "tools/call", tool("test_simple_text")),
        ("resources/list", "resources/list", json!({})),
        (
            "resources/templates/list",
            "resources/templates/list",
            json!({}),
        ),
        (
            "resources/read",
            "resources/read",
            json!({ "uri": "test://static-text" }),
        ),
        (
            "resources/subscribe",
            "resources/subscribe",
            watched.clone(),
        ),
        ("resources/unsubscribe", "resources/unsubscribe", watched),
        ("prompts/list", "prompts/list", json!({})),
        ("prompts/get", "prompts/get", prompt),
        ("completion/complete", "completion/complete", complete),
        (
            "logging/setLevel",
            "logging/setLevel",
            json!({ "level": "debug" }),
        ),
        (
            "notifications/message",
            "tools/call",
            tool("test_logging_tool"),
        ),
        ("notifications/progress", "tools/call", progress),
        ("sampling/createMessage", "tools/call", asks("sampling")),
        ("elicitation/create", "tools/call", asks("elicitation")),
        ("roots/list", "tools/call", asks("list_roots")),
        ("server/discover", "server/discover", json!({})),
    ]
}

/// What a client answers to a request of the server's.
fn reply(method: &str) -> Value {
    match method {
        "sampling/createMessage" => {
            json!({"model": "none", "role": "assistant", "content": {"type": "text", "text": "Paris"}})
        }
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Tide"}}),
        "roots/list" => json!({"roots": [{"uri": "file:///tide", "name": "tide"}]}),
        _ => json!({}),
    }
}

/// Tries one of them in a session, and says what came of it.
async fn tried(host: &mut Host, name: &str, method: &str, params: Value) -> String {
    let id = host.ask(method, params).await;
    let mut seen = false;
    let answer = loop {
        let message = host.next().await;
        match &message.method {
            Some(method) => {
                seen |= method == name;
                if message.id.is_some() {
                    host.reply(&message, reply(method)).await;
                }
            }
            None if message.is_answer_to(&id) => break message,
            None => {}
        }
    };
    outcome(&answer, seen || name == method)
}

fn outcome(answer: &Received, seen: bool) -> String {
    if answer.error.is_some() {
        let error = answer.error();
        return format!("{}: {}", error["code"], error["message"].as_str().unwrap());
    }
    let result: Value = serde_json::from_str(answer.result()).unwrap();
    match (seen, result["isError"] == true) {
        (true, false) => "yes".into(),
        (false, false) => "not sent".into(),
        (_, true) => format!("fails: {}", result["content"][0]["text"]),
    }
}

/// What came of each method between clients of a revision and a server of one.
type Outcomes = BTreeMap<&'static str, String>;

async fn in_session(gateway: &Gateway, revision: &str, server: &str) -> Outcomes {
    let mut host = gateway.connect(server).await;
    let params = json!({
        "protocolVersion": revision,
        "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
        "clientInfo": {"name": "it", "version": "1"},
    });
    let answer = host.request("initialize", params).await;
    let told: Value = serde_json::from_str(answer.result()).unwrap();
    assert_eq!(told["protocolVersion"], revision);
    host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let mut outcomes = Outcomes::new();
    for (name, method, params) in trials() {
        outcomes.insert(name, tried(&mut host, name, method, params).await);
    }
    outcomes
}

/// A server of each revision: the reference server, as the gateway is told to speak to it.
fn servers() -> Value {
    let quick = json!({"reconnectIntervalMs": 50});
    let entry = |revision: &str| {
        let entry = reference_over_stdio(revision == STATELESS);
        with(with(entry, quick.clone()), json!({ "protocol": revision }))
    };
    let all = SESSIONS.iter().chain([&STATELESS]);
    let entries: BTreeMap<_, _> = all
        .map(|revision| (id(revision), entry(revision)))
        .collect();
    json!(entries)
}

fn id(revision: &str) -> String {
    format!("r-{revision}")
}

/// The same outcome for all revisions of an era, or each with its own.
fn joined(outcomes: &[(String, &Outcomes)], name: &str) -> String {
    let mut by_outcome = BTreeMap::<&str, Vec<&str>>::new();
    for (between, outcomes) in outcomes {
        by_outcome.entry(&outcomes[name]).or_default().push(between);
    }
    let several = by_outcome.len() > 1;
    let cells = by_outcome.iter().map(|(outcome, between)| {
        if several {
            format!("{}: {outcome}", between.join(", "))
        } else {
            (*outcome).to_owned()
        }
    });
    cells.collect::<Vec<_>>().join("; ")
}

const HEAD: &str = "\
# MCP's revisions through the gateway

Written by `UPDATE=1 cargo test --test it revisions`, which tries each method through a running gateway, from a client
of each revision to a server of each. A client and a server need not speak the same one: inside, the gateway has one
dialect, that of the revisions with sessions, and translates at both edges
([decision 0015](decisions/0015-one-dialect-inside.md)).

`yes` means that the method did what it is for on both sides; anything else is the error that its sender gets. What
differs between the session revisions themselves is said in the cell.

";

fn document(sessions: &[(String, &Outcomes)], stateless: &[(String, &Outcomes)]) -> String {
    let mut text = HEAD.to_owned();
    let list = SESSIONS.join(", ");
    writeln!(
        text,
        "| method | client and server: {list} | client: one of these, server: {STATELESS} |"
    )
    .unwrap();
    text.push_str("|---|---|---|\n");
    for (name, ..) in trials() {
        let cells = [sessions, stateless].map(|outcomes| joined(outcomes, name));
        writeln!(text, "| `{name}` | {} | {} |", cells[0], cells[1]).unwrap();
    }
    text
}

#[tokio::test]
async fn each_method_works_between_the_revisions_that_docs_revisions_md_says() {
    let gateway = Gateway::run(&servers()).await;
    let mut outcomes = Vec::new();
    for server in SESSIONS.iter().chain([&STATELESS]) {
        let id = id(server);
        gateway
            .until_server(&id, |told| told["state"] == "open")
            .await;
        for client in SESSIONS {
            let between = format!("{client} to {server}");
            outcomes.push((*server, between, in_session(&gateway, client, &id).await));
        }
    }
    let of = |is_stateless: bool| -> Vec<(String, &Outcomes)> {
        let those = outcomes
            .iter()
            .filter(|(server, ..)| (*server == STATELESS) == is_stateless);
        those
            .map(|(_, between, outcomes)| (between.clone(), outcomes))
            .collect()
    };
    let written = document(&of(false), &of(true));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/revisions.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &written).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(kept, written, "UPDATE=1 writes it anew");
}
