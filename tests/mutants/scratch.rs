//! A copy of the tree in which mutations are tried. The work tree is never touched.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::list::{Mutation, root};
use super::weave::{SWITCH, weave};

/// The pure tests, the quickest first: a mutation that one kills is not shown to the next.
const TESTS: [&str; 5] = ["--lib", "--test", "engine", "--test", "sim"];
/// Tests that run longer, in seconds, or want more, in KiB, have noticed the mutation too.
const LIMITS: &str = "ulimit -v 8000000; exec timeout 300 \"$@\"";
const COPIED: [&str; 6] = [".ci", "Cargo.toml", "Cargo.lock", "docs", "src", "tests"];

pub(crate) struct Scratch {
    tree: PathBuf,
    target: PathBuf,
}

/// The built tests, and the number of the mutation that is on in them; 0 is none.
pub(crate) type Built = Vec<PathBuf>;

/// What became of a mutation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// These tests failed.
    Killed(Vec<String>),
    /// All tests passed.
    Survived,
    /// It says nothing about the tests: its text is not there, or the outcome does not compile.
    Void(String),
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let (tree, target) = (folder.join("tree"), folder.join("target"));
        fs::create_dir_all(&tree).unwrap();
        let scratch = Self { tree, target };
        scratch.restore();
        scratch
    }

    /// The tree as it is.
    pub(crate) fn restore(&self) {
        for part in COPIED {
            copy(&root().join(part), &self.tree.join(part));
        }
    }

    /// Weaves mutations into the tree, each under its place in the list, from 1; which are woven.
    pub(crate) fn weave(&self, mutations: &[&Mutation]) -> Vec<usize> {
        let mut files: BTreeMap<&str, Vec<(usize, &Mutation)>> = BTreeMap::new();
        for (at, mutation) in mutations.iter().enumerate() {
            files
                .entry(&mutation.file)
                .or_default()
                .push((at + 1, mutation));
        }
        let mut all = Vec::new();
        for (file, mutations) in files {
            let text = fs::read_to_string(self.tree.join(file)).unwrap();
            let (text, woven) = weave(&text, &mutations);
            fs::write(self.tree.join(file), text).unwrap();
            all.extend(woven);
        }
        let library = self.tree.join("src/lib.rs");
        let text = fs::read_to_string(&library).unwrap();
        fs::write(library, text + SWITCH).unwrap();
        all
    }

    /// Runs the tests with a mutation alone in the tree, and takes it back.
    pub(crate) fn judge_alone(&self, mutation: &Mutation) -> Verdict {
        let path = self.tree.join(&mutation.file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, mutation.apply(&text)).unwrap();
        let built = self.build();
        fs::write(&path, text).unwrap();
        built.map_or_else(Verdict::Void, |built| self.judge(&built, 0))
    }

    /// Builds the tests; or what the compiler says.
    pub(crate) fn build(&self) -> Result<Built, String> {
        let output = Command::new("cargo")
            .args(["test", "--no-default-features", "--no-run"])
            .args(TESTS)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        if !output.status.success() {
            return Err(told);
        }
        let lines = told.lines().filter(|line| line.contains("Executable "));
        let paths = lines.filter_map(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
        Ok(paths.map(|path| self.tree.join(path)).collect())
    }

    /// Runs built tests with one of the mutations that are woven in them, until some fail; 0 is none.
    pub(crate) fn judge(&self, built: &Built, number: usize) -> Verdict {
        for tests in built {
            let ran = Command::new("sh")
                .args(["-c", LIMITS, "sh"])
                .arg(tests)
                .current_dir(&self.tree)
                .env("MUTANT", number.to_string())
                .env("RUST_BACKTRACE", "0")
                .output()
                .unwrap();
            if !ran.status.success() {
                return Verdict::Killed(failed(&ran));
            }
        }
        Verdict::Survived
    }
}

fn failed(ran: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&ran.stdout);
    let tests = text.lines().filter_map(|line| line.strip_prefix("test "));
    let mut failed: Vec<String> = tests
        .filter_map(|line| line.strip_suffix(" ... FAILED"))
        .map(|name| name.rsplit("::").next().unwrap_or(name).to_owned())
        .collect();
    if failed.is_empty() {
        failed.push("a test that does not end, or breaks off".into());
    }
    failed
}

/// Writes what differs and nothing else, so that only that is built again.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        let text = fs::read(from).unwrap();
        if fs::read(to).ok().as_ref() != Some(&text) {
            fs::write(to, text).unwrap();
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(tests) => write!(f, "killed by {}", tests.join(", ")),
            Self::Survived => f.write_str("SURVIVED"),
            Self::Void(why) => write!(f, "VOID, {why}"),
        }
    }
}
