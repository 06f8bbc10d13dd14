//! The conformance suite of the protocol's authors, against the reference server (`tests/real/scripts/reference.mjs`)
//! and against the gateway in front of it: what passes directly passes through, except what `tests/real/conformance`
//! names with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::gateway::{Gateway, binary, ended, host_url, with};
use crate::interop::{new_node, reference_over_http, reference_over_stdio};
use crate::real_servers::{installed, script};

/// Scenarios by name, and whether each passes.
type Results = BTreeMap<String, bool>;

fn suite(role: &str) -> Command {
    let mut command = new_node();
    let program = installed("npm/node_modules/@modelcontextprotocol/conformance/dist/index.js");
    command.arg(program).arg(role);
    command
}

/// Runs what a revision requires of a server, and what is not scored of it.
async fn server_scenarios(url: &str, revision: &str) -> Results {
    let mut command = suite("server");
    command.args(["--url", url, "--requirements", revision]);
    results(command).await
}

/// What the suite says of each scenario in its summary.
async fn results(command: Command) -> Results {
    let output = ended(command).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, summary) = text
        .split_once("=== SUMMARY ===")
        .unwrap_or_else(|| panic!("{}: {text}", String::from_utf8_lossy(&output.stderr)));
    let verdicts = summary.lines().filter_map(|line| {
        let passes = line.starts_with('✓');
        let rest = line.strip_prefix(['✓', '✗'])?;
        let (name, _) = rest.trim().split_once(':')?;
        Some((name.to_owned(), passes))
    });
    let results: Results = verdicts.collect();
    assert!(!results.is_empty(), "{summary}");
    results
}

/// The scenarios that are known to fail, each with its reason: lines `- name  # reason`.
fn expected_failures(file: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/conformance");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let entries = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "));
    let names = entries.map(|entry| {
        let (name, reason) = entry.split_once('#').unwrap_or((entry, ""));
        assert!(reason.trim().len() > 10, "{file}: {name} has no reason");
        name.trim().to_owned()
    });
    names.collect()
}

/// Holds what passes through the gateway against what passes without it, and the list against both.
fn compare(way: &str, direct: &Results, through: &Results, expected: &BTreeSet<String>) {
    let passing = |results: &Results| -> BTreeSet<String> {
        let passing = results.iter().filter(|(_, passes)| **passes);
        passing.map(|(name, _)| name.clone()).collect()
    };
    let (direct, through) = (passing(direct), passing(through));
    println!(
        "{way}: {} of {} scenarios pass",
        direct.intersection(&through).count(),
        direct.len()
    );
    let failing: Vec<_> = direct.difference(&through).collect();
    let unexpected: Vec<_> = failing
        .iter()
        .filter(|name| !expected.contains(**name))
        .collect();
    assert!(
        unexpected.is_empty(),
        "{way}: these pass directly: {unexpected:#?}"
    );
    let stale: Vec<_> = expected.intersection(&through).collect();
    assert!(
        stale.is_empty(),
        "{way}: these pass, so take them out of the list: {stale:?}"
    );
}

/// The scenarios of a revision, directly and through the gateway, whose server has this entry.
async fn passes_through(way: &str, revision: &str, entry: Value) {
    let direct = reference_over_http(false).await;
    let baseline = server_scenarios(&direct.url, revision).await;
    let entry = with(entry, json!({"reconnectIntervalMs": 50}));
    let gateway = Gateway::run(&json!({ "reference": entry })).await;
    gateway
        .until_server("reference", |told| told["state"] == "open")
        .await;
    let base = host_url(&gateway).replace("ws://", "http://");
    let through = server_scenarios(&format!("{base}/mcp/reference"), revision).await;
    let expected = expected_failures(&format!("server-{revision}.yml"));
    compare(
        &format!("{revision} from {way}"),
        &baseline,
        &through,
        &expected,
    );
}

#[tokio::test]
async fn what_the_reference_server_passes_of_2025_11_25_passes_through_from_stdio() {
    passes_through("stdio", "2025-11-25", reference_over_stdio(false)).await;
}

#[tokio::test]
async fn what_the_reference_server_passes_of_2025_11_25_passes_through_from_http() {
    let server = reference_over_http(false).await;
    let entry = json!({"url": server.url, "transport": "http", "protocol": "legacy"});
    passes_through("Streamable HTTP", "2025-11-25", entry).await;
}

#[tokio::test]
async fn what_the_reference_server_passes_of_2026_07_28_passes_through_from_stdio() {
    let entry = with(reference_over_stdio(true), json!({"protocol": "modern"}));
    passes_through("stdio", "2026-07-28", entry).await;
}

#[tokio::test]
async fn what_the_reference_server_passes_of_2026_07_28_passes_through_from_http() {
    let server = reference_over_http(true).await;
    let entry = json!({"url": server.url, "transport": "http", "protocol": "modern"});
    passes_through("Streamable HTTP", "2026-07-28", entry).await;
}

/// What a revision requires of a client.
fn required_of_clients(revision: &str) -> BTreeSet<String> {
    let package = "npm/node_modules/@modelcontextprotocol/conformance/requirements";
    let text = fs::read_to_string(installed(&format!("{package}/{revision}.yaml"))).unwrap();
    let section = text.lines().skip_while(|line| *line != "client:").skip(1);
    let entries = section.map_while(|line| line.strip_prefix("  - "));
    entries.map(str::to_owned).collect()
}

/// Whether a client scenario passes: the suite is the server, and a gateway of its own is in front of it.
async fn client_scenario(name: &str, revision: &str) -> Result<(), String> {
    let node = new_node();
    let node = node.as_std().get_program().display();
    let mut command = suite("client");
    let drive = format!("{node} {}", script("drive.mjs").display());
    command.args(["--command", &drive, "--scenario", name]);
    command.args(["--spec-version", revision]);
    command.env("TIDEGATE", binary().as_std().get_program());
    let output = ended(command).await;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let telling = told
        .lines()
        .filter(|line| line.contains("rror") || line.contains("Failed"));
    Err(telling.take(5).collect::<Vec<_>>().join(" | "))
}

/// Runs what a revision requires of a client, except what the list names; in the long form that too, for what passes
/// has no place there.
async fn gateway_passes_as_a_client(revision: &str) {
    let expected = expected_failures(&format!("client-{revision}.yml"));
    let required = required_of_clients(revision);
    assert!(expected.is_subset(&required), "{expected:?}");
    let mut wrong = Vec::new();
    let mut passed = 0;
    for name in &required {
        let is_expected = expected.contains(name);
        if is_expected && std::env::var_os("TIDEGATE_FULL").is_none() {
            continue;
        }
        let result = client_scenario(name, revision).await;
        passed += usize::from(result.is_ok());
        match result {
            Ok(()) if is_expected => wrong.push(format!("{name} passes: take it out of the list")),
            Err(why) if !is_expected => wrong.push(format!("{name}: {why}")),
            Ok(()) | Err(_) => {}
        }
    }
    let all = required.len();
    println!(
        "{revision} as a client: {passed} of {all} scenarios pass, {} are expected not to",
        expected.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn the_gateway_passes_the_client_scenarios_of_2025_11_25() {
    gateway_passes_as_a_client("2025-11-25").await;
}

#[tokio::test]
async fn the_gateway_passes_the_client_scenarios_of_2026_07_28() {
    gateway_passes_as_a_client("2026-07-28").await;
}
