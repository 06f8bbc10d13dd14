//! The demo's three servers: the same program run again as a child, speaking MCP over stdio. They are as simple as real
//! ones are careless; everything that keeps their host working is the gateway's.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::peer::{Fault, Message, answer, request, text};
use super::stage::{Sign, Stage};
use crate::wire::jsonrpc::code;
use crate::wire::mcp::{self, Revision};
use crate::wire::mcpl::{self, method};

/// The channel that the chat registers.
const CHANNEL: &str = "chat:demo";
/// From the crash server's handshake to its end.
const CRASH_AFTER: Duration = Duration::from_millis(300);
/// How long the chat thinks about its policy, as a bridge that logs in first.
const POLICY_AFTER: Duration = Duration::from_millis(300);

/// Arguments of the hidden `tidegate demo-server`.
#[derive(Clone, Debug, Args)]
pub struct ServerOptions {
    kind: Kind,
    /// The folder shared with the script.
    #[arg(long)]
    stage: PathBuf,
    /// Between two messages of the chat, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    every_ms: u64,
    /// The number of a message that the chat counts and does not send.
    #[arg(long)]
    lose: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Answers its tools.
    Steady,
    /// Ends soon after its handshake.
    Crash,
    /// Bridges a made-up chat.
    Chat,
}

/// Serves over stdio until stdin ends.
#[must_use]
pub fn serve(options: &ServerOptions) -> ExitCode {
    let server = Arc::new(Server {
        kind: options.kind,
        stage: Stage::at(options.stage.clone()),
        every: Duration::from_millis(options.every_ms),
        lose: options.lose,
    });
    for line in io::stdin().lock().lines() {
        let handled = line.and_then(|line| server.handle(&line));
        if handled.is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

struct Server {
    kind: Kind,
    stage: Stage,
    every: Duration,
    lose: Option<u64>,
}

impl Server {
    fn handle(self: &Arc<Self>, line: &str) -> io::Result<()> {
        let message = Message::read(line);
        let Some(method) = &message.method else {
            return Ok(());
        };
        if message.id.is_null() {
            self.noted(method);
            return Ok(());
        }
        let answer = answer(&message.id, self.asked(method, &message.params));
        if method == mcp::method::INITIALIZE && self.kind == Kind::Chat {
            return self.begin_chat(&answer);
        }
        write(&[answer])
    }

    fn noted(&self, method: &str) {
        let crashes = self.kind == Kind::Crash && !self.stage.shows(Sign::Mended);
        if method == mcp::method::INITIALIZED && crashes {
            thread::spawn(|| {
                thread::sleep(CRASH_AFTER);
                process::exit(1);
            });
        }
    }

    fn asked(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        match method {
            mcp::method::INITIALIZE => Ok(self.introduction(params)),
            mcp::method::TOOLS_LIST => Ok(json!({ "tools": self.tools() })),
            mcp::method::TOOLS_CALL if self.kind != Kind::Chat => call(params),
            mcp::method::PING | method::CHANNELS_OPEN | method::CHANNELS_CLOSE => Ok(json!({})),
            method::FEATURE_SETS_UPDATE if self.kind == Kind::Chat => {
                thread::sleep(POLICY_AFTER);
                Ok(json!({ "accepted": true }))
            }
            _ => Err(Fault {
                code: code::METHOD_NOT_FOUND,
                message: format!("no method {method}"),
            }),
        }
    }

    fn introduction(&self, params: &Value) -> Value {
        let asked = text(params, "/protocolVersion").and_then(Revision::parse);
        let capabilities = match self.kind {
            Kind::Steady | Kind::Crash => json!({ "tools": {} }),
            Kind::Chat => json!({ "experimental": { "mcpl": manifest() } }),
        };
        json!({
            "protocolVersion": asked.unwrap_or(Revision::LATEST).as_str(),
            "capabilities": capabilities,
            "serverInfo": { "name": "tidegate-demo", "version": env!("CARGO_PKG_VERSION") },
        })
    }

    fn tools(&self) -> Vec<Value> {
        let names: &[&str] = match self.kind {
            Kind::Steady => &["time", "add", "echo"],
            Kind::Crash => &["time"],
            Kind::Chat => &[],
        };
        let tool = |name: &&str| json!({ "name": name, "inputSchema": { "type": "object" } });
        names.iter().map(tool).collect()
    }

    /// Registers the channel and sends the first message in one write with the answer to `initialize`, before any
    /// grant: a host that refuses what comes too early loses both (G2).
    fn begin_chat(self: &Arc<Self>, introduction: &Value) -> io::Result<()> {
        self.send(&[introduction.clone(), registration()])?;
        let server = Arc::clone(self);
        thread::spawn(move || {
            loop {
                thread::sleep(server.every);
                if server.send(&[]).is_err() {
                    process::exit(1);
                }
            }
        });
        Ok(())
    }

    /// Writes these messages and the next of the chat's. It counts as sent once it is written.
    fn send(&self, first: &[Value]) -> io::Result<()> {
        let mut ledger = self.stage.ledger()?;
        let number = ledger.sent() + 1;
        let quiet = self.stage.shows(Sign::Quiet);
        let mut messages = first.to_vec();
        if !quiet && self.lose != Some(number) {
            messages.push(incoming(number));
        }
        write(&messages)?;
        ledger.record(if quiet { ledger.sent() } else { number })
    }
}

fn manifest() -> Value {
    json!({
        "version": mcpl::VERSION,
        "channels": { "register": true, "incoming": true, "lifecycle": true },
        "featureSets": { "chat": { "description": "a made-up chat", "uses": ["channels.incoming"] } },
    })
}

fn registration() -> Value {
    let channel =
        json!({ "id": CHANNEL, "type": "chat", "label": "demo", "direction": "bidirectional" });
    let params = json!({ "channels": [channel] });
    request(&"register".into(), method::CHANNELS_REGISTER, &params)
}

fn incoming(number: u64) -> Value {
    let message = json!({
        "channelId": CHANNEL,
        "messageId": format!("m-{number}"),
        "author": { "id": "ada", "name": "Ada" },
        "timestamp": now(),
        "content": [{ "type": "text", "text": format!("message {number}") }],
    });
    let params = json!({ "messages": [message] });
    request(
        &format!("m-{number}").into(),
        method::CHANNELS_INCOMING,
        &params,
    )
}

fn call(params: &Value) -> Result<Value, Fault> {
    let argument = |name: &str| params.pointer(&format!("/arguments/{name}"));
    let number = |name: &str| argument(name).and_then(Value::as_i64).unwrap_or(0);
    let text = match text(params, "/name").unwrap_or_default() {
        "time" => now(),
        "add" => number("a").saturating_add(number("b")).to_string(),
        "echo" => argument("text")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .into(),
        name => {
            return Err(Fault {
                code: code::INVALID_PARAMS,
                message: format!("no tool {name}"),
            });
        }
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Writes messages, one a line, at once.
fn write(messages: &[Value]) -> io::Result<()> {
    let text: String = messages
        .iter()
        .map(|message| format!("{message}\n"))
        .collect();
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
