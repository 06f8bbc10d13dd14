//! `tidegate check` and `tidegate schema`, as they are run.

use std::process::{Command, Output};

fn tidegate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env_remove("TIDEGATE_CONFIG");
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn check_exits_with_0_where_there_are_only_warnings() {
    let output = tidegate(&["check", "tests/corpus/config/good/cursor_mcp.json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(told(&output).ends_with("cursor_mcp.json: no problem, 4 warnings\n"));
}

#[test]
fn r9_check_exits_with_1_and_tells_every_timing_that_cannot_be_used() {
    let output = tidegate(&["check", "tests/corpus/config/bad/timings.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let told = told(&output);
    assert_eq!(told.matches("problem: ").count(), 14, "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn check_without_a_file_exits_with_2() {
    let output = tidegate(&["check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("./tidegate.yaml"));
}

#[test]
fn schema_prints_what_is_published() {
    let published = std::fs::read_to_string("docs/config.schema.json").unwrap();
    assert_eq!(told(&tidegate(&["schema"])), published);
}
