//! `faultd`, a made-up MCP or MCPL server that misbehaves as it is told. It speaks over stdio, over WebSocket with
//! `--ws`, or over Streamable HTTP with `--http` (`http.rs`). It answers ids as they were written and copies members it
//! does not know into its answer.
//!
//! What it is:
//! - `--name N`, `--revision R` (default: the revision it is asked for), `--mcpl` (advertises MCPL 0.5)
//! - `--ws ADDR`: listens there (port 0: any) and prints `listening ws://HOST:PORT` on stdout
//! - `--log FILE`: appends `<unix ms> <pid>` per launch
//! - `--tools-file FILE`: lists the tools named there too, one a line, by name or as written
//! - `--stateless`: a server of 2026-07-28 alone, see `stateless.rs`
//!
//! How it dies (`--survive-after FILE` ends all of these, and `--never-handshake`, once FILE exists):
//! - `--die-after-ms N`: after `notifications/initialized`, with `--exit-code N` (0); over WebSocket it closes with
//!   `--close-code N`, or breaks the socket off where there is none
//! - `--life FILE`: likewise, after so many milliseconds as FILE says then; not at all where there is no FILE
//! - `--fail-before-handshake`: at once, with `--exit-code N` (1)
//! - `--never-handshake`: reads and never answers `initialize`
//! - `--ignore-sigterm`: neither SIGTERM nor the end of stdin ends it
//! - `--grandchild`: a process in a session of its own that inherits stdout, writes a notification
//!   `notifications/grandchild {"n":…}` every 100 ms and lives on; its pid is in the answer of the tool `pid`
//! - `--close-stdout`: closes its stdout after the handshake and lives on
//!
//! How it disturbs (all after the handshake, unless said otherwise):
//! - `--deaf`: stops reading; what it sends goes on
//! - `--noise`: lines that are no JSON, no message or no UTF-8, before and after each answer
//! - `--stderr-lines N`: numbered lines on stderr at the start; `--stderr-env NAME`: the value of a variable there
//! - `--big N`: a request of N bytes, id `"big"`, then a notification `notifications/after-big`
//! - `--stall-ms N`: sleeps before each answer
//! - `--refuse-status N` with `--retry-after TEXT`: answers the WebSocket upgrade with that HTTP status
//! - `--ws-token T`: answers 401 unless `?token=T` or `Authorization: Bearer T` is sent
//!
//! MCPL:
//! - `--register`: `channels/register` of `chat:room-1`, id 100, in one write with the answer to `initialize`
//! - `--policy-delay-ms N`, `--policy-answer accept|refuse-mcp-only|refuse-close|error|silent|malformed`
//! - `--publish-every-ms N`: numbered `channels/incoming` requests, id `"in-N"`, messageId `m-N`, text `message N`;
//!   `--counter FILE` continues the number across launches; `--acks FILE` appends `<id> <result or error>` for each
//!   answer to a request of its own
//! - `--manifest FILE`: what it advertises with `--mcpl`, and answers to `mcpl/manifest`
//! - `--answers FILE`: an object of results by method, for requests that it would not know
//! - `--heard FILE`: appends each message that it reads, as it was written
//! - `--script FILE --diary FILE`: a bridge whose lives follow a script, see `script.rs`
//!
//! Tools: `echo` (its params and arguments, verbatim), `sleep{ms}`, `exit{code}`, `big{bytes}`, `env{name}`, `pid`,
//! `crash` (SIGKILL), `notify` (`notifications/tools/list_changed`), `say{messages}` (sends each, verbatim),
//! `progress{count}` (of the call), `ask` (`roots/list`, answered once that is), `wonder{requests}` (sends each
//! `{method, params}` as a request, and answers with what they were answered once all are).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::result_large_err,
    reason = "a fixture fails loudly"
)]

mod http;
mod script;
mod stateless;
mod websocket;
mod wonder;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, process, thread};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use script::Script;

fn main() {
    let flags = Arc::new(Flags::parse(env::args().skip(1)));
    if let Some(parent) = flags.number("as-grandchild-of") {
        grandchild(parent);
    }
    flags.start();
    match (flags.text("ws"), flags.text("http")) {
        (Some(address), _) => websocket::serve(address, &flags),
        (None, Some(address)) => http::serve(address, &flags),
        (None, None) => serve_stdio(&flags),
    }
}

/// The command line: `--flag` or `--flag value`.
struct Flags(BTreeMap<String, String>);

impl Flags {
    fn parse(args: impl Iterator<Item = String>) -> Self {
        let mut args = args.peekable();
        let mut flags = BTreeMap::new();
        while let Some(arg) = args.next() {
            let name = arg
                .strip_prefix("--")
                .unwrap_or_else(|| panic!("what is `{arg}`?"));
            let value = args.next_if(|next| !next.starts_with("--"));
            flags.insert(name.to_owned(), value.unwrap_or_default());
        }
        Self(flags)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)
            .map(|text| text.parse().unwrap_or_else(|_| panic!("--{name} {text}")))
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// Whether a flag of the dying kind still holds.
    fn dies(&self, name: &str) -> bool {
        self.has(name)
            && !self
                .text("survive-after")
                .is_some_and(|file| Path::new(file).exists())
    }

    /// How long a connection lives, where that has an end.
    fn life(&self) -> Option<Duration> {
        let told = self
            .text("life")
            .and_then(|file| fs::read_to_string(file).ok());
        let told = told.map(|ms| Duration::from_millis(ms.parse().unwrap()));
        let said = self
            .dies("die-after-ms")
            .then(|| self.duration("die-after-ms"));
        told.or(said.flatten())
    }

    fn exit_code(&self, default: i32) -> i32 {
        self.number("exit-code")
            .map_or(default, |code| i32::try_from(code).unwrap())
    }

    /// What happens before anything is read.
    fn start(&self) {
        if let Some(file) = self.text("log") {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_millis();
            append(file, &format!("{now} {}", process::id()));
        }
        if let Some(name) = self.text("stderr-env") {
            eprintln!("{name}={}", env::var(name).unwrap_or_default());
        }
        for n in 1..=self.number("stderr-lines").unwrap_or(0) {
            eprintln!("line {n}");
        }
        if self.dies("fail-before-handshake") {
            process::exit(self.exit_code(1));
        }
    }
}

fn append(file: &str, line: &str) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Writes whole messages, each given without its line end, in one write.
type Out = Arc<dyn Fn(&[&[u8]]) + Send + Sync>;
/// Ends the connection as `--die-after-ms` says.
type Die = Arc<dyn Fn() + Send + Sync>;

fn serve_stdio(flags: &Arc<Flags>) {
    let deathless = flags.has("ignore-sigterm");
    let _ignored = deathless.then(ignore_sigterm);
    let grandchild = flags.has("grandchild").then(launch_grandchild);
    let code = flags.exit_code(0);
    let session = Session::new(
        flags,
        Arc::new(write_stdout),
        Arc::new(move || process::exit(code)),
        grandchild,
    );
    if let Some(script) = session.script.clone() {
        let session = Arc::clone(&session);
        thread::spawn(move || script.run(&session));
    }
    for line in std::io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { break };
        session.handle(&line);
        if session.is_deaf() {
            park();
        }
    }
    if deathless {
        park();
    }
}

fn park() -> ! {
    loop {
        thread::park();
    }
}

fn write_stdout(messages: &[&[u8]]) {
    let mut text = messages.join(&b'\n');
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&text).and_then(|()| out.flush()).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
}

/// A handler that does nothing stays installed for the life of the process.
fn ignore_sigterm() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let kind = tokio::signal::unix::SignalKind::terminate();
    std::mem::forget(tokio::signal::unix::signal(kind).unwrap());
    drop(guard);
    runtime
}

fn launch_grandchild() -> u32 {
    let mut command = process::Command::new(env::current_exe().unwrap());
    command.args(["--as-grandchild-of", &process::id().to_string()]);
    command.stdin(process::Stdio::null()).spawn().unwrap().id()
}

fn grandchild(_parent: u64) -> ! {
    rustix::process::setsid().unwrap();
    for n in 0_u64.. {
        let note =
            json!({"jsonrpc": "2.0", "method": "notifications/grandchild", "params": {"n": n}});
        write_stdout(&[note.to_string().as_bytes()]);
        thread::sleep(Duration::from_millis(100));
    }
    unreachable!()
}

/// One connection.
struct Session {
    flags: Arc<Flags>,
    out: Out,
    die: Die,
    grandchild: Option<u32>,
    /// Answers since the start, for `--noise`.
    answered: AtomicU32,
    deaf: Mutex<bool>,
    script: Option<Arc<Script>>,
    /// The answers to calls of the tool `ask` that wait for the host's.
    asking: Mutex<Vec<String>>,
    /// The calls of the tool `wonder` that wait.
    wondering: wonder::Wonders,
}

type Members = BTreeMap<String, Box<RawValue>>;

/// The arguments of the tool `say`.
#[derive(serde::Deserialize)]
struct Said {
    messages: Vec<Box<RawValue>>,
}

impl Session {
    fn new(flags: &Arc<Flags>, out: Out, die: Die, grandchild: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            flags: Arc::clone(flags),
            out,
            die,
            grandchild,
            answered: AtomicU32::new(0),
            deaf: Mutex::new(false),
            script: Script::of(flags),
            asking: Mutex::default(),
            wondering: wonder::Wonders::default(),
        })
    }

    fn is_deaf(&self) -> bool {
        *self.deaf.lock().unwrap()
    }

    fn send(&self, message: &Value) {
        (self.out)(&[message.to_string().as_bytes()]);
    }

    fn handle(self: &Arc<Self>, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Members>(line) else {
            return;
        };
        if let Some(file) = self.flags.text("heard") {
            append(file, std::str::from_utf8(line).unwrap());
        }
        let method: Option<String> = message
            .get("method")
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        match (method.as_deref(), message.get("id")) {
            (Some(method), _) if self.flags.has("stateless") => {
                stateless::handle(self, method, &message);
            }
            (Some("notifications/initialized"), None) => self.initialized(),
            (Some(method), None) => {
                let params = message.get("params").map_or("{}", |raw| raw.get());
                let script = self.script.as_ref();
                script.inspect(|script| script.notified(method, params));
            }
            (None, id) => self.acknowledged(id.map_or("null", |id| id.get()), &message),
            (Some(method), Some(id)) => self.request(method, id.get(), &message),
        }
    }

    fn acknowledged(&self, id: &str, message: &Members) {
        let verdict = message.get("result").or(message.get("error"));
        let verdict = verdict.map_or("null", |raw| raw.get());
        if let Some(file) = self.flags.text("acks") {
            append(file, &format!("{id} {verdict}"));
        }
        if let Some(script) = &self.script {
            script.got(id, verdict);
        }
        let answers = self.wondering.answered(id, verdict);
        answers.iter().for_each(|answer| self.send(answer));
        if id == r#""ask""# {
            let asking = self.asking.lock().unwrap().pop();
            asking
                .iter()
                .for_each(|answer| (self.out)(&[answer.as_bytes()]));
        }
    }

    fn request(self: &Arc<Self>, method: &str, id: &str, message: &Members) {
        if let Some(stall) = self.flags.duration("stall-ms") {
            thread::sleep(stall);
        }
        let params = message.get("params").map_or("{}", |raw| raw.get());
        match method {
            "initialize" => self.initialize(id, params, message),
            "featureSets/update" => self.policy(id, message),
            "tools/call" => self.call(id, params, message),
            "tools/list" => self.answer(id, "result", &self.tools().to_string(), message),
            "mcpl/manifest" => self.answer(id, "result", &self.manifest().to_string(), message),
            "channels/publish" => {
                self.answer(
                    id,
                    "result",
                    r#"{"delivered":true,"messageId":"out-1"}"#,
                    message,
                );
            }
            "ping"
            | "channels/open"
            | "channels/close"
            | "channels/typing"
            | "channels/acknowledge"
            | "logging/setLevel" => self.answer(id, "result", "{}", message),
            _ => match self.written("answers").get(method) {
                Some(result) => self.answer(id, "result", &result.to_string(), message),
                None => {
                    let error = json!({"code": -32601, "message": format!("no method {method}")});
                    self.answer(id, "error", &error.to_string(), message);
                }
            },
        }
    }

    /// The JSON of the file that a flag names; `null` without one.
    fn written(&self, flag: &str) -> Value {
        let file = self.flags.text(flag);
        file.map_or(Value::Null, |file| {
            serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
        })
    }

    fn manifest(&self) -> Value {
        let written = self.written("manifest");
        if written.is_null() {
            manifest()
        } else {
            written
        }
    }

    /// An answer with the id as it was written and the members that the protocol does not know.
    fn answer(&self, id: &str, member: &str, value: &str, request: &Members) {
        let text = answer_text(id, member, value, request);
        if !self.flags.has("noise") {
            return (self.out)(&[text.as_bytes()]);
        }
        let n = self.answered.fetch_add(1, Ordering::Relaxed);
        let noise = format!("INFO noise {n}: \u{1b}[1mready\u{1b}[0m");
        let parts: [&[u8]; 6] = [
            b"",
            noise.as_bytes(),
            b"[]",
            text.as_bytes(),
            b"\xff\xfe",
            br#"{"jsonrpc":"1.0"}"#,
        ];
        (self.out)(&parts);
    }

    fn initialize(&self, id: &str, params: &str, message: &Members) {
        if self.flags.dies("never-handshake") {
            return;
        }
        if let Some(script) = &self.script {
            return script.initialize(id, message);
        }
        let offered = self.flags.has("mcpl").then(|| self.manifest());
        let result = self.introduction(params, offered);
        if self.flags.has("register") {
            let text = answer_text(id, "result", &result.to_string(), message);
            return (self.out)(&[text.as_bytes(), register(Some(1)).to_string().as_bytes()]);
        }
        self.answer(id, "result", &result.to_string(), message);
    }

    /// The result of `initialize`.
    fn introduction(&self, params: &str, mcpl: Option<Value>) -> Value {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let asked = params["protocolVersion"].as_str().unwrap_or("2024-11-05");
        let mut capabilities = json!({"tools": {"listChanged": true}});
        if let Some(manifest) = mcpl {
            capabilities["experimental"] = json!({ "mcpl": manifest });
        }
        json!({
            "protocolVersion": self.flags.text("revision").unwrap_or(asked),
            "capabilities": capabilities,
            "serverInfo": {"name": self.flags.text("name").unwrap_or("faultd"), "version": "1"},
        })
    }

    fn initialized(self: &Arc<Self>) {
        if let Some(script) = &self.script {
            script.initialized();
        }
        *self.deaf.lock().unwrap() = self.flags.has("deaf");
        if let Some(life) = self.flags.life() {
            let die = Arc::clone(&self.die);
            thread::spawn(move || {
                thread::sleep(life);
                die();
            });
        }
        if let Some(bytes) = self.flags.number("big") {
            (self.out)(&[big(bytes).as_bytes()]);
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/after-big"}));
        }
        if let Some(every) = self.flags.duration("publish-every-ms") {
            let session = Arc::clone(self);
            thread::spawn(move || session.publish(every));
        }
        if self.flags.has("close-stdout") {
            rustix::stdio::dup2_stdout(fs::File::open("/dev/null").unwrap()).unwrap();
        }
    }

    fn publish(&self, every: Duration) -> ! {
        let file = self.flags.text("counter").map(PathBuf::from);
        let last = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let mut n: u64 = last.map_or(0, |text| text.trim().parse().unwrap());
        loop {
            thread::sleep(every);
            n += 1;
            if let Some(file) = &file {
                let next = file.with_extension("next");
                fs::write(&next, n.to_string()).unwrap();
                fs::rename(next, file).unwrap();
            }
            self.send(&incoming(n, 1));
        }
    }

    fn policy(self: &Arc<Self>, id: &str, message: &Members) {
        let script = self.script.as_ref();
        if script.is_some_and(|script| script.policy(id, message)) {
            return;
        }
        let error = r#"{"code":-32603,"message":"no policy today"}"#;
        let (member, value) = match self.flags.text("policy-answer").unwrap_or("accept") {
            "accept" => ("result", r#"{"accepted":true}"#),
            "refuse-mcp-only" => ("result", r#"{"accepted":false,"fallback":"mcp-only"}"#),
            "refuse-close" => ("result", r#"{"accepted":false,"fallback":"close"}"#),
            "error" => ("error", error),
            "malformed" => ("result", r#"{"accepted":"yes"}"#),
            "silent" => return,
            other => panic!("--policy-answer {other}"),
        };
        let Some(delay) = self.flags.duration("policy-delay-ms") else {
            return self.answer(id, member, value, message);
        };
        let (session, text) = (Arc::clone(self), answer_text(id, member, value, message));
        thread::spawn(move || {
            thread::sleep(delay);
            (session.out)(&[text.as_bytes()]);
        });
    }

    fn call(self: &Arc<Self>, id: &str, params: &str, message: &Members) {
        let call: Members = serde_json::from_str(params).unwrap_or_default();
        let name: String = call
            .get("name")
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let raw = call.get("arguments").map_or("{}", |raw| raw.get());
        let arguments: Value = serde_json::from_str(raw).unwrap_or_default();
        let number = |key: &str| arguments[key].as_u64().unwrap_or(0);
        let result = match name.as_str() {
            "echo" => format!(r#"{{"content":[],"structuredContent":{raw},"echo":{params}}}"#),
            "sleep" => return self.sleep(number("ms"), id, message),
            "exit" => process::exit(i32::try_from(number("code")).unwrap_or(1)),
            "big" => says(&"x".repeat(usize::try_from(number("bytes")).unwrap())),
            "env" => says(&env::var(arguments["name"].as_str().unwrap_or("")).unwrap_or_default()),
            "pid" => json!({"content": [], "structuredContent":
                {"pid": process::id(), "grandchild": self.grandchild}})
            .to_string(),
            "crash" => {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
                park();
            }
            "progress" => {
                let call: Value = serde_json::from_str(params).unwrap();
                let token = &call["_meta"]["progressToken"];
                for n in 1..=number("count") {
                    self.send(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": n}}),
                    );
                }
                says("done")
            }
            "ask" => {
                let answer = answer_text(id, "result", &says("told"), message);
                self.asking.lock().unwrap().push(answer);
                return self.send(&json!({"jsonrpc": "2.0", "id": "ask", "method": "roots/list"}));
            }
            "wonder" => {
                let requests = self.wondering.ask(id, &arguments["requests"]);
                return requests.iter().for_each(|request| self.send(request));
            }
            "notify" => {
                self.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                says("notified")
            }
            "say" => {
                let said: Said = serde_json::from_str(raw).unwrap();
                for message in said.messages {
                    (self.out)(&[message.get().as_bytes()]);
                }
                says("said")
            }
            _ => {
                let error = json!({"code": -32602, "message": format!("no tool {name}")});
                return self.answer(id, "error", &error.to_string(), message);
            }
        };
        self.answer(id, "result", &result, message);
    }

    fn tools(&self) -> Value {
        let file = self.flags.text("tools-file");
        let more = file.map(|file| fs::read_to_string(file).unwrap());
        tools(more.iter().flat_map(|names| names.lines()))
    }

    /// Answers later, and reads on meanwhile.
    fn sleep(self: &Arc<Self>, ms: u64, id: &str, message: &Members) {
        let (session, text) = (
            Arc::clone(self),
            answer_text(id, "result", &says("slept"), message),
        );
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(ms));
            (session.out)(&[text.as_bytes()]);
        });
    }
}

fn answer_text(id: &str, member: &str, value: &str, request: &Members) -> String {
    let known = ["jsonrpc", "id", "method", "params"];
    let unknown = request
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()));
    let extra: String = unknown
        .map(|(name, raw)| format!(",{}:{}", json!(name), raw.get()))
        .collect();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}{extra}}}"#)
}

fn says(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

fn tools<'a>(more: impl Iterator<Item = &'a str>) -> Value {
    let names = [
        "echo", "sleep", "exit", "big", "env", "pid", "crash", "notify", "say", "progress", "ask",
        "wonder",
    ];
    let tool = |name: &str| {
        serde_json::from_str(name).unwrap_or_else(
            |_| json!({"name": name, "description": name, "inputSchema": {"type": "object"}}),
        )
    };
    json!({"tools": names.into_iter().chain(more).map(tool).collect::<Vec<Value>>()})
}

fn manifest() -> Value {
    json!({
        "version": "0.5",
        "pushEvents": true,
        "channels": {"register": true, "lifecycle": true, "publish": true, "incoming": true},
        "featureSets": {"chat": {"description": "chat", "uses": ["channels.incoming"]}},
    })
}

/// Of one room, or of both.
fn register(room: Option<u64>) -> Value {
    let rooms = room.map_or(vec![1, 2], |room| vec![room]);
    let channel = |room: &u64| {
        json!({"id": format!("chat:room-{room}"), "type": "chat", "label": format!("room-{room}"),
            "direction": "bidirectional"})
    };
    let channels: Vec<Value> = rooms.iter().map(channel).collect();
    json!({"jsonrpc": "2.0", "id": 100, "method": "channels/register", "params": {"channels": channels}})
}

fn incoming(n: u64, room: u64) -> Value {
    let message = json!({
        "channelId": format!("chat:room-{room}"),
        "messageId": format!("m-{n}"),
        "author": {"id": "u-1", "name": "Ada"},
        "timestamp": "2026-01-01T00:00:00Z",
        "content": [{"type": "text", "text": format!("message {n}")}],
    });
    json!({"jsonrpc": "2.0", "id": format!("in-{n}"), "method": "channels/incoming",
        "params": {"messages": [message]}})
}

/// A request of exactly `bytes` bytes, where that is possible.
fn big(bytes: u64) -> String {
    let head = r#"{"jsonrpc":"2.0","id":"big","method":"big","params":{"x":""#;
    let fill = usize::try_from(bytes)
        .unwrap()
        .saturating_sub(head.len() + 3);
    format!("{head}{}\"}}}}", "x".repeat(fill))
}
