//! `tidegate check`: every problem and every warning of a file, each with its place. Nothing is launched.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::config::{self, Problem};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The file; else $TIDEGATE_CONFIG, ./tidegate.yaml, ./tidegate.json, ./.mcp.json or ./mcp.json.
    file: Option<PathBuf>,
}

/// Exits with 0 where there is no problem, else with 1.
pub(super) fn check(options: &Options) -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let file = match config::find(options.file.as_deref(), &env) {
        Ok(file) => file,
        Err(error) => return super::fail(2, &error),
    };
    let (problems, warnings) = config::check(&file, &env);
    // A reader that went away has read enough.
    let _ = std::io::stdout().write_all(report(&file, &problems, &warnings).as_bytes());
    ExitCode::from(u8::from(!problems.is_empty()))
}

fn report(file: &Path, problems: &[Problem], warnings: &[Problem]) -> String {
    let mut out = String::new();
    for (kind, list) in [("problem", problems), ("warning", warnings)] {
        for problem in list {
            let _ = writeln!(out, "{kind}: {problem}");
        }
    }
    let count = |list: &[Problem], what| match list.len() {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    };
    let (problems, warnings) = (count(problems, "problem"), count(warnings, "warning"));
    let _ = writeln!(out, "{}: {problems}, {warnings}", file.display());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_ends_with_its_sum() {
        let problem = Problem {
            file: "f.yaml".into(),
            line: 2,
            column: 3,
            path: "listen".into(),
            message: "write an address".into(),
        };
        let told = report(Path::new("f.yaml"), &[problem], &[]);
        let lines: Vec<_> = told.lines().collect();
        let first = "problem: f.yaml:2:3: listen: write an address";
        assert_eq!(lines, [first, "f.yaml: 1 problem, no warning"]);
    }
}
