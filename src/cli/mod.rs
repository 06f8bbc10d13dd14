//! The command line: one file per subcommand. Exit codes are 4-faces': 0 fine, 1 a check failed, 2 unusable
//! configuration or arguments, 3 cannot bind, 4 state directory unusable.

mod check;
mod client;
mod connect;
mod control;
mod events;
mod run;
mod schema;
mod status;

use std::future::Future;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use tokio::runtime::Builder;

use crate::demo;

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
    /// Watch a host keep working while a built-in server crash-loops.
    Demo(demo::Options),
    /// Be one of the demo's servers.
    #[command(hide = true)]
    DemoServer(demo::ServerOptions),
    /// Say everything that is wrong or odd in a configuration; launch nothing.
    Check(check::Options),
    /// Show the servers of a running gateway.
    Status(status::Options),
    /// Show what a running gateway decides.
    Events(events::Options),
    /// Be a server on stdin and stdout, for a host that launches a command, by way of a running gateway.
    Connect(connect::Options),
    /// Close a server's connection and dial at once; ends a halt.
    Restart(control::Options),
    /// Judge a server's connection broken: close it, and count a failure where it has not lasted.
    Recycle(control::Options),
    /// Hold what a server reports of the world.
    Pause(control::Options),
    /// Lift a pause.
    Resume(control::Options),
    /// Read the configuration again and apply the difference.
    Reload(control::Reload),
    /// Print the JSON Schema of the configuration.
    Schema,
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
        Command::Demo(options) => block_on(demo::run(options)).unwrap_or_else(|code| code),
        Command::DemoServer(options) => demo::serve(&options),
        Command::Check(options) => check::check(&options),
        Command::Status(options) => ask(status::run(&options)),
        Command::Events(options) => ask(events::run(&options)),
        Command::Connect(options) => connect::run(&options),
        Command::Restart(options) => ask(control::operate("restart", &options)),
        Command::Recycle(options) => ask(control::operate("recycle", &options)),
        Command::Pause(options) => ask(control::operate("pause", &options)),
        Command::Resume(options) => ask(control::operate("resume", &options)),
        Command::Reload(options) => ask(control::reload(&options)),
        Command::Schema => schema::schema(),
        Command::Completions(options) => completions(&options),
    }
}

/// Asks a running gateway for something.
fn ask(question: impl Future<Output = Result<(), client::Error>>) -> ExitCode {
    match block_on(question) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => error.report(),
        Err(code) => code,
    }
}

/// Runs to the end on this thread, which carries all traffic: no message waits for another core to wake up.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .map(|runtime| runtime.block_on(future))
        .map_err(|error| fail(3, &error))
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
