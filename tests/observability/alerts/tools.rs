//! Runs promtool and amtool, and splits work over the machine's cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

/// What a checker said.
pub struct Said {
    pub ok: bool,
    pub text: String,
}

/// A path from the root of the tree.
pub fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn read(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names in a folder, in order.
pub fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(at(folder)).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn promtool(arguments: &[&str], folder: &Path) -> Said {
    said(run("promtool", "prometheus", arguments, folder))
}

pub fn amtool(arguments: &[&str], folder: &Path) -> Said {
    said(run("amtool", "prometheus-alertmanager", arguments, folder))
}

fn run(tool: &str, package: &str, arguments: &[&str], folder: &Path) -> Output {
    let run = Command::new(tool)
        .args(arguments)
        .current_dir(folder)
        .output();
    run.unwrap_or_else(|error| {
        panic!("{tool}: {error}: it is in the Debian package `{package}`, and `make test` puts it on the PATH")
    })
}

fn said(output: Output) -> Said {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Said {
        ok: output.status.success(),
        text,
    }
}

/// Looks into every item, on as many threads as there are cores; the problems found.
pub fn problems<T: Sync>(items: &[T], look: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let (next, found) = (Mutex::new(items.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            // Taken by itself, so that the lock is free while it is looked into.
            let item = next.lock().unwrap().next();
            let Some(item) = item else { break };
            let problem = look(item);
            found.lock().unwrap().extend(problem);
        }
    };
    let workers = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}
