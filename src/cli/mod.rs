//! The command line: one file per subcommand. Exit codes are 4-faces': 0 fine, 1 a check failed, 2 unusable
//! configuration or arguments, 3 cannot bind, 4 state directory unusable.

mod run;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

/// A gateway that keeps an agent host's MCP and MCPL servers connected, gates their traffic, and shows what it decides.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Run(run::Options),
    /// Print a shell's completions.
    Completions(Completions),
}

#[derive(Debug, Args)]
struct Completions {
    /// For which shell.
    shell: clap_complete::Shell,
}

/// Reads the arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Completions(options) => completions(&options),
    }
}

fn completions(options: &Completions) -> ExitCode {
    let mut command = Cli::command();
    clap_complete::generate(
        options.shell,
        &mut command,
        "tidegate",
        &mut std::io::stdout(),
    );
    ExitCode::SUCCESS
}

/// Tells a person on stderr, where no log is set up yet or the process ends.
#[expect(clippy::print_stderr, reason = "the command line's own voice")]
fn fail(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("tidegate: {error}");
    ExitCode::from(code)
}
