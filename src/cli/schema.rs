//! `tidegate schema`: the JSON Schema of the whole configuration file.

use std::io::Write as _;
use std::process::ExitCode;

use crate::config::schema;

/// Prints it as docs/config.schema.json holds it.
pub(super) fn schema() -> ExitCode {
    let text = schema::text();
    // A reader that went away has read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
