//! The demo's timings, and the configuration that they make: the file that a user would write.

use std::path::Path;
use std::time::Duration;

use super::stage::Stage;

/// How fast everything goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// `reconnectIntervalMs`.
    pub(super) interval: Duration,
    /// `reconnectMaxIntervalMs`.
    pub(super) cap: Duration,
    /// `lastingAfterMs`.
    pub(super) lasting: Duration,
    /// Between two calls of the host, and between two messages of the chat.
    pub(super) every: Duration,
    /// The chat's `lastingAfterMs`. It is killed whenever it has lasted, so it always begins anew and is never down.
    pub(super) killed_after: Duration,
    /// Between two summaries on the terminal.
    pub(super) report_every: Duration,
    /// What takes longer than this did not hold.
    pub(super) limit: Duration,
}

impl Plan {
    /// An episode in about 20 s.
    pub(super) const FAST: Self = Self {
        interval: Duration::from_millis(200),
        cap: Duration::from_millis(3200),
        lasting: Duration::from_secs(2),
        every: Duration::from_millis(250),
        killed_after: Duration::from_secs(4),
        report_every: Duration::from_secs(5),
        limit: Duration::from_secs(55),
    };
    /// An episode in about a minute.
    pub(super) const FRIENDLY: Self = Self {
        interval: Duration::from_secs(1),
        cap: Duration::from_secs(8),
        lasting: Duration::from_secs(10),
        every: Duration::from_secs(1),
        killed_after: Duration::from_secs(10),
        report_every: Duration::from_secs(10),
        limit: Duration::from_secs(180),
    };

    /// The configuration, with the three servers run as children of `program`. `lose` is the number of a message that
    /// the chat counts and does not send.
    pub(super) fn config(&self, program: &Path, stage: &Stage, lose: Option<u64>) -> String {
        let [program, folder, state] =
            [program, stage.path(), &stage.path().join("state")].map(quoted);
        let [interval, cap, lasting, every, killed_after] = [
            self.interval,
            self.cap,
            self.lasting,
            self.every,
            self.killed_after,
        ]
        .map(|time| time.as_millis());
        let lose = lose.map_or_else(String::new, |number| format!(r#", "--lose", "{number}""#));
        format!(
            r#"name: demo
listen: 127.0.0.1:0
admin:
  listen: 127.0.0.1:0
state:
  dir: {state}
defaults:
  command: {program}
  reconnectIntervalMs: {interval}
  reconnectMaxIntervalMs: {cap}
  lastingAfterMs: {lasting}
mcpServers:
  steady:
    args: [demo-server, steady, --stage, {folder}]
  crash:
    args: [demo-server, crash, --stage, {folder}]
  chat:
    args: [demo-server, chat, --stage, {folder}, --every-ms, "{every}"{lose}]
    lastingAfterMs: {killed_after}
"#
        )
    }
}

/// A path as a double-quoted YAML string, whose escapes are JSON's. A dollar would begin a variable.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy())
        .to_string()
        .replace('$', "$$")
}
