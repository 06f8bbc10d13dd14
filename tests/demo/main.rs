//! The demo as a stranger runs it: the real binary, its exit code and its account.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails loudly, with the account"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A demo that runs with a temporary folder of its own.
struct Demo {
    child: Child,
    folder: TempDir,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("demo")
            .args(args)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Its exit code and account, once it has ended and left nothing.
    fn end(self) -> (i32, String) {
        let output = self.child.wait_with_output().unwrap();
        let account = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        let left: Vec<_> = fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}\n{account}");
        assert_eq!(processes_naming(self.folder.path()), Vec::<String>::new());
        println!("{account}\n{log}");
        (output.status.code().unwrap(), account)
    }
}

/// The command lines with this folder in them.
fn processes_naming(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap();
    let lines = entries.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}

#[test]
fn the_fast_demo_shows_one_down_and_then_one_clear_and_holds() {
    let (code, account) = Demo::start(&["--fast"]).end();
    assert_eq!(code, 0);
    assert_eq!(account.matches("DOWN: ").count(), 1);
    assert_eq!(account.matches("CLEAR: ").count(), 1);
    assert!(account.find("DOWN: ") < account.find("CLEAR: "));
    assert!(account.contains("(attempt 5)"));
    assert!(account.lines().all(|line| line.chars().count() <= 80));
    assert!(!account.contains('\x1b'), "colour is for terminals");
}

#[test]
fn a_message_that_the_chat_loses_fails_the_demo_and_is_named() {
    let (code, account) = Demo::start(&["--fast", "--lose", "5"]).end();
    assert_eq!(code, 1);
    assert!(account.contains("message 6 came where 5 was due"));
    assert_eq!(account.matches("BROKEN").count(), 1);
}

#[test]
fn ctrl_c_ends_it_with_what_there_is_and_leaves_no_process() {
    let mut demo = Demo::start(&["--fast"]);
    let mut out = BufReader::new(demo.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("attached") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    let pid = Pid::from_child(&demo.child);
    kill_process(pid, Signal::INT).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let (code, _) = demo.end();
    assert!(code == 1 && rest.contains("Interrupted"), "{rest}");
}
