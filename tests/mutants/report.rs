//! The table at the end of docs/mutants.md: one row for each mutation, with the test that killed it and the commit at
//! which it did. A run of some mutations leaves the rows of the others as they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::list::{Mutation, root};
use super::scratch::Verdict;

/// What follows this line is the table.
const MARK: &str = "<!-- Written by `make mutants` from here on. -->\n";

pub(crate) struct Report {
    head: String,
    /// In the order of the list: the name in the table, and the rest of its row, if it was run.
    rows: Vec<(String, Option<String>)>,
    at: String,
}

impl Report {
    /// The report of earlier runs, for the mutations that there are now.
    pub(crate) fn read(mutations: &[Mutation]) -> Self {
        let text = fs::read_to_string(path()).unwrap();
        let (head, table) = text.split_once(MARK).unwrap();
        let row = |line: &str| {
            let (name, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
            Some((name.to_owned(), rest.to_owned()))
        };
        let earlier: BTreeMap<String, String> = table.lines().filter_map(row).collect();
        let names = mutations.iter().map(ToString::to_string);
        Self {
            head: head.into(),
            rows: names
                .map(|name| (name.clone(), earlier.get(&name).cloned()))
                .collect(),
            at: format!(
                "{}, {}",
                output("date", &["+%F"]),
                output("git", &["describe", "--always", "--dirty"])
            ),
        }
    }

    /// Takes down what became of a mutation.
    pub(crate) fn add(&mut self, mutation: &Mutation, verdict: &Verdict) {
        let what = match verdict {
            Verdict::Killed(tests) => killers(mutation, tests),
            Verdict::Survived => "**survived**".into(),
            Verdict::Void(_) => "**void**".into(),
        };
        let name = mutation.to_string();
        let row = self.rows.iter_mut().find(|(of, _)| *of == name).unwrap();
        row.1 = Some(format!("{what} | {} |", self.at));
    }

    /// Writes the file, and tells the count.
    pub(crate) fn write(&self) -> String {
        let rows = self.rows.iter().map(|(name, rest)| {
            let rest = rest.as_deref().unwrap_or("not run yet | |");
            format!("| {name} | {rest}\n")
        });
        let killed = self
            .rows
            .iter()
            .filter(|(_, rest)| rest.as_deref().is_some_and(|rest| rest.starts_with('`')));
        let count = format!(
            "{} of {} mutations are killed.",
            killed.count(),
            self.rows.len()
        );
        let table: String = rows.collect();
        let columns = "| mutation | killed by | run |\n|---|---|---|\n";
        fs::write(
            path(),
            format!("{}{MARK}\n{count}\n\n{columns}{table}", self.head),
        )
        .unwrap();
        count
    }
}

/// One of the tests, of the mutation's own rule if there is one, and how many there were beside it.
fn killers(mutation: &Mutation, tests: &[String]) -> String {
    let prefix = format!("{}_", mutation.rule.to_lowercase());
    let own = tests.iter().find(|name| name.starts_with(&prefix));
    let shown = own.or_else(|| {
        tests
            .iter()
            .find(|name| name.contains(&format!("_{prefix}")))
    });
    let shown = shown.or(tests.first()).unwrap();
    match tests.len() - 1 {
        0 => format!("`{shown}`"),
        more => format!("`{shown}` and {more} more"),
    }
}

fn path() -> PathBuf {
    root().join("docs/mutants.md")
}

fn output(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command)
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
