//! The corpus of configuration files: what hosts write today loads as it is, and what is wrong is told with its place.
//! Each file stands beside what is expected of it; `TIDEGATE_BLESS=1` writes that anew, to be read before a commit.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a file that cannot be read fails loudly"
)]

mod commands;
mod docs;
mod garbage;
mod reload;
mod rules;
mod secrets;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate::config::{self, Config, Entry, Problem};
use tidegate::transport::Settings;

fn env(name: &str) -> Option<String> {
    let value = match name {
        "GITHUB_TOKEN" => "ghp-0123456789",
        "DISCORD_TOKEN" => "discord-0123456789",
        "TZ" => "UTC",
        "TIDEGATE_ADMIN_TOKEN" => "admin-token",
        "TIDEGATE_READ_TOKEN" => "read-token",
        "AGENT_1_TOKEN" => "agent-1-token",
        _ => return None,
    };
    Some(value.to_owned())
}

/// What every file of a folder gives, compared with the text beside it.
fn compare(folder: &str, tell: fn(&Path) -> String) {
    let folder = Path::new("tests/corpus/config").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|ext| ext != "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        bless(&file.with_added_extension("txt"), &tell(&file));
    }
}

/// Holds a file to a text, or writes it there where that was asked for.
fn bless(file: &Path, text: &str) {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(file, text).unwrap();
    }
    let held = fs::read_to_string(file).unwrap_or_default();
    let differs = text.lines().zip(held.lines()).find(|(new, old)| new != old);
    let file = file.display();
    assert!(
        text == held,
        "{file} is not what it should be (TIDEGATE_BLESS=1 writes it anew), first at: {differs:?}"
    );
}

/// A configuration of that text, in a folder of its own.
fn load(yaml: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yaml");
    fs::write(&file, yaml).unwrap();
    config::load(&file, &env).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn list(out: &mut String, title: &str, problems: &[Problem]) {
    for problem in problems {
        writeln!(out, "{title}: {problem}").unwrap();
    }
}

fn problems(file: &Path) -> String {
    let (problems, warnings) = config::check(file, &env);
    let mut out = String::new();
    match config::load(file, &env) {
        Ok(config) => {
            for server in config.servers {
                let state = server.entry.map_or("refused", |_| "runs");
                writeln!(out, "{}: {state}", server.id).unwrap();
            }
        }
        Err(_) => writeln!(out, "the file does not load").unwrap(),
    }
    list(&mut out, "problem", &problems);
    list(&mut out, "warning", &warnings);
    out
}

fn settings(file: &Path) -> String {
    let config = config::load(file, &env).unwrap_or_else(|problems| {
        let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", told.join("\n"))
    });
    let mut out = String::new();
    list(&mut out, "warning", &config.warnings);
    let shown = Config {
        name: "(host name)".into(),
        servers: Vec::new(),
        warnings: Vec::new(),
        ..config.clone()
    };
    writeln!(out, "{shown:#?}").unwrap();
    for server in config.servers {
        let entry = server.entry.unwrap();
        writeln!(out, "\n{}: enabled {}", server.id, server.enabled).unwrap();
        shown_entry(&mut out, &entry);
    }
    out
}

/// The transport whole, and of the engine's settings what is not the default. Secrets are shown as redacted.
fn shown_entry(out: &mut String, entry: &Entry) {
    match &entry.transport {
        Settings::Stdio(stdio) => writeln!(out, "{stdio:#?}").unwrap(),
        Settings::WebSocket(socket) => writeln!(out, "{socket:#?}").unwrap(),
        Settings::Http(http) => writeln!(out, "{http:#?}").unwrap(),
    }
    let default = format!("{:#?}", tidegate::engine::settings::Settings::default());
    let known: Vec<_> = default.lines().collect();
    let settings = format!("{:#?}", entry.engine);
    for line in settings.lines().filter(|line| !known.contains(line)) {
        writeln!(out, "{line}").unwrap();
    }
}

#[test]
fn files_of_common_hosts_load_as_they_are() {
    compare("good", settings);
}

#[test]
fn every_problem_of_a_file_is_told_at_once_with_its_place() {
    compare("bad", problems);
}

#[test]
fn no_secret_is_shown_with_a_problem() {
    for file in ["timings.yaml", "servers.yaml", "shape.yaml"] {
        let told = problems(&Path::new("tests/corpus/config/bad").join(file));
        assert!(
            !told.contains("hunter2") && !told.contains("carrier-pigeon"),
            "{told}"
        );
    }
}
