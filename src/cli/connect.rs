//! `tidegate connect SERVER|all`: a stdio bridge for hosts that launch a command. It ends when its stdin does, and not
//! when the gateway goes: calls meet A4's errors meanwhile.

mod bridge;
mod calls;
mod memory;
mod pipes;
mod place;

use std::process::ExitCode;

use clap::Args;
use tokio::runtime::Builder;

use self::place::Reach;
use super::fail;

/// Arguments of `tidegate connect`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server's id, as in `tidegate status`; `all` for every server that the host may use.
    server: String,
    #[command(flatten)]
    reach: Reach,
}

/// Bridges until stdin ends.
pub(super) fn run(options: &Options) -> ExitCode {
    let place = match options.reach.find(&options.server) {
        Ok(place) => place,
        Err(problem) => return fail(2, &problem),
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &error),
    };
    runtime.block_on(pipes::run(&options.server, place));
    // A read of stdin that is under way ends with the process alone.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}
