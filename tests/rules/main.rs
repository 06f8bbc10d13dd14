//! Keeps docs/rules.md: the rules and the tests that hold them, as it follows from the tests' names, and after them the
//! maps of `ledger.rs`. Fails where the file is out of date, a rule that is built has no test, or a map names a test
//! that is not there; `UPDATE=1 cargo test --test rules` writes it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a check that cannot read the tree fails loudly"
)]

mod ledger;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Every rule in the order of the design, with its short title, and whether it is built.
const RULES: &[(&str, &str, bool)] = &[
    ("R1", "Count", true),
    ("R2", "Wait", true),
    ("R3", "Lasting threshold", true),
    ("R4", "A short connection is a failed attempt", true),
    (
        "R5",
        "A connection that lasts starts the count afresh",
        true,
    ),
    ("R6", "Which clock", true),
    ("R7", "What a short end says", true),
    ("R8", "Exit codes earn nothing", true),
    ("R9", "Numbers that cannot be used are refused", true),
    ("R10", "Permanent failures halt", true),
    ("R11", "Sessions of a Streamable HTTP server", true),
    ("R12", "Liveness", true),
    ("R13", "Stop means stop", true),
    ("R14", "Recycle and restart", true),
    ("R15", "Bounds", true),
    ("R16", "Never faster than a dead server", true),
    ("R17", "Many servers", true),
    ("R18", "Authorization refusals", true),
    ("R19", "An HTTP epoch", true),
    ("R20", "Reconnect off", true),
    ("S1", "One truth", true),
    ("S2", "`connected` is not `recovered`", true),
    ("S3", "Down", true),
    ("S4", "Clear", true),
    ("S5", "Episodes survive a restart of the gateway", true),
    ("S6", "Texts", true),
    ("S7", "Alert rules decide too", true),
    ("G1", "Two planes", true),
    ("G2", "Both planes close at a boundary", true),
    ("G3", "Holds", true),
    ("G4", "Held", true),
    ("G5", "At a boundary, by class", true),
    ("G6", "Kept", true),
    ("G7", "Late lines", true),
    ("G8", "Between epochs nothing kept is admitted", true),
    ("G9", "Admission order", true),
    ("G10", "A flush checks its plane before every item", true),
    ("G11", "At admission", true),
    ("G12", "No double admission", true),
    ("G13", "The host side has boundaries too", true),
    ("G14", "Nothing kept is lost with the gateway", true),
    ("G15", "What a host set up is set up again", true),
    ("G16", "Bounds of what a peer can make us hold", true),
    ("P1", "The gateway is the host's delegate", true),
    ("P2", "Patterns", true),
    ("P3", "Reductions first, expansions after", true),
    ("P4", "A receipt is testimony", true),
    ("P5", "A receipt that comes too late", true),
    ("P6", "One exchange at a time, on its own transport", true),
    ("P7", "Servers without the exchange", true),
    ("P8", "Manifest changes", true),
    ("P9", "Feature sets", true),
    ("A1", "An answer belongs to its epoch", true),
    ("A2", "Ids", true),
    ("A3", "Exactly one answer", true),
    ("A4", "What a call meets while the server is away", true),
    ("A5", "Timeouts", true),
    ("A6", "Announcements", true),
    ("A7", "What is not live is dropped", true),
];

/// Rule to file to tests.
type Tests = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The rules that a test's name begins with: `r1_r2_a_name` is about R1 and R2.
fn rules_of(name: &str) -> Vec<String> {
    let is_rule = |part: &&str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|first| "rsgpa".contains(first))
            && part.len() > 1
            && letters.all(|letter| letter.is_ascii_digit())
    };
    let parts = name.split('_').take_while(is_rule);
    parts.map(str::to_uppercase).collect()
}

/// The names of the tests of one file, in its order.
fn tests_in(text: &str) -> Vec<&str> {
    let mut names = vec![];
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        }
        let rest = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = rest.strip_prefix("fn ")
            && std::mem::take(&mut marked)
        {
            names.extend(rest.split('(').next());
        }
    }
    names
}

/// Every test: its file from the root, and its name, in the files' order.
fn every_test() -> Vec<(String, String)> {
    let mut files = vec![];
    sources(&root().join("src"), &mut files);
    sources(&root().join("tests"), &mut files);
    files.sort();
    let mut tests = vec![];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(root()).unwrap().display().to_string();
        let named = tests_in(&text).into_iter();
        tests.extend(named.map(|name| (place.clone(), name.to_owned())));
    }
    tests
}

fn collect() -> Tests {
    let mut tests = Tests::new();
    for (place, name) in every_test() {
        for rule in rules_of(&name) {
            let of_rule = tests.entry(rule).or_default();
            of_rule.entry(place.clone()).or_default().push(name.clone());
        }
    }
    tests
}

fn table(tests: &Tests) -> String {
    let mut text = String::from(
        "# Rules and the tests that hold them\n\n\
         Generated from the tests' names by `UPDATE=1 cargo test --test rules`; do not edit. A test whose\n\
         name begins with `r4_` holds rule R4, and `r4_r5_` both.\n\n\
         | rule | title | tests |\n|---|---|---|\n",
    );
    for (rule, title, built) in RULES {
        let cell = match tests.get(*rule) {
            Some(files) => files.iter().map(listed).collect::<Vec<_>>().join("; "),
            None if *built => "**none**".into(),
            None => "not built yet".into(),
        };
        writeln!(text, "| {rule} | {title} | {cell} |").unwrap();
    }
    text
}

fn listed((file, names): (&String, &Vec<String>)) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("[{file}](../{file}): {}", names.join(", "))
}

#[test]
fn every_rule_that_is_built_has_a_test() {
    let tests = collect();
    let bare = |(rule, _, built): &&(&str, &str, bool)| *built && !tests.contains_key(*rule);
    let missing: Vec<_> = RULES.iter().filter(bare).map(|(rule, ..)| rule).collect();
    assert!(missing.is_empty(), "no test's name begins with {missing:?}");
}

#[test]
fn every_test_that_names_a_rule_names_one_that_there_is() {
    let known = |rule: &String| RULES.iter().any(|(known, ..)| known == rule);
    let tests = collect();
    let unknown: Vec<_> = tests.iter().filter(|(rule, _)| !known(rule)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_document_of_rules_is_up_to_date() {
    let file = root().join("docs/rules.md");
    let table = table(&collect()) + &ledger::chapters(&every_test());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &table).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == table,
        "docs/rules.md is out of date: run `UPDATE=1 cargo test --test rules`"
    );
}

#[test]
fn names_are_read_as_they_are_meant() {
    assert_eq!(rules_of("r1_r20_waits_and_ends"), ["R1", "R20"]);
    assert_eq!(rules_of("a_test_about_r4"), Vec::<String>::new());
    assert_eq!(rules_of("s3_4_is_no_rule"), ["S3"]);
    let text =
        "#[test]\nfn g1_one() {}\nfn g2_no_test() {}\n#[tokio::test]\nasync fn g3_two() {}\n";
    assert_eq!(tests_in(text), ["g1_one", "g3_two"]);
}
