//! Names what is built: `TIDEGATE_REVISION` and `TIDEGATE_RUSTC` for `tidegate_build_info`. It never fails a build: what
//! cannot be found out (no git, a source archive) is left to the caller's environment, and is `unknown` without it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=.ci/build.rs");
    for (name, found) in [
        ("TIDEGATE_REVISION", revision()),
        ("TIDEGATE_RUSTC", rustc()),
    ] {
        println!("cargo::rerun-if-env-changed={name}");
        let given = env::var(name).ok().filter(|given| !given.is_empty());
        if let Some(value) = given.or(found) {
            println!("cargo::rustc-env={name}={value}");
        }
    }
}

/// The commit. A release is built anew for each one; in a debug build it is the one at which this last ran, for every
/// commit would else cost a build of everything.
fn revision() -> Option<String> {
    // Within somebody else's repository, its commit says nothing of this tree.
    if !git(&["rev-parse", "--show-prefix"])
        .unwrap_or_default()
        .is_empty()
    {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    first_line(Command::new("git").args(arguments))
}

/// `rustc 1.95.0 (…)` without its first word.
fn rustc() -> Option<String> {
    let line = first_line(Command::new(env::var_os("RUSTC")?).arg("--version"))?;
    line.split_once(' ').map(|(_, version)| version.to_owned())
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next().unwrap_or_default().to_owned())
}
