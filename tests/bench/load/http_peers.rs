//! The peers over Streamable HTTP: a server that answers with as many bytes as it is asked for, and a client that has
//! many calls under way at a time, each on a connection of its own.

use std::io::{Read, Write};
use std::net::TcpStream as Plain;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long calls are made before they are counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// What a client measured.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub(crate) struct Measured {
    /// Microseconds, of each call.
    pub(crate) times: Vec<f64>,
    pub(crate) per_second: f64,
    pub(crate) calls: usize,
}

/// A server without state: `tools/call` is answered with a text of `arguments.bytes`.
pub(crate) async fn serve(address: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    let router = Router::new().route("/mcp", any(answer));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        stream.set_nodelay(true).unwrap();
    });
    axum::serve(listener, router).await.unwrap();
}

#[derive(serde::Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a serde_json::value::RawValue>,
    #[serde(default)]
    method: &'a str,
    #[serde(default)]
    params: Params,
}

#[derive(Default, serde::Deserialize)]
struct Params {
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Default, serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    bytes: usize,
}

async fn answer(request: Request) -> Response {
    if request.method() != "POST" {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
    let body = body.unwrap();
    let asked: Asked<'_> = serde_json::from_slice(&body).unwrap();
    let Some(id) = asked.id else {
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match asked.method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "giver", "version": "1"},
        })
        .to_string(),
        "tools/list" => {
            json!({"tools": [{"name": "give", "inputSchema": {"type": "object"}}]}).to_string()
        }
        "tools/call" => {
            let text = "x".repeat(asked.params.arguments.bytes.saturating_sub(80));
            format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
        }
        _ => "{}".to_owned(),
    };
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let kind = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s"),
    ];
    (kind, text).into_response()
}

/// The head and body of a POST.
fn post(address: &str, path: &str, session: &str, body: &str) -> Vec<u8> {
    let session = if session.is_empty() {
        String::new()
    } else {
        format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n")
    };
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{session}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Opens a session as a plain MCP client; its id.
pub(crate) fn open(address: &str, path: &str) -> String {
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
    let mut stream = Plain::connect(address).unwrap();
    let answer = exchange(
        &mut stream,
        &post(address, path, "", &initialize.to_string()),
    );
    let session = answer
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap_or_else(|| panic!("no session: {answer}"))
        .to_owned();
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    exchange(&mut stream, &post(address, path, &session, initialized));
    session
}

/// One request and the answer's head and first part.
fn exchange(stream: &mut Plain, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut room = vec![0; 64 << 10];
    let read = stream.read(&mut room).unwrap();
    String::from_utf8_lossy(&room[..read]).into_owned()
}

/// The connection of a GET stream, whose head was read.
pub(crate) fn listen(address: &str, path: &str, session: &str) -> Plain {
    let mut stream = Plain::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\r\n"
    );
    let answer = exchange(&mut stream, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stream
}

/// Makes calls for so long, so many at a time.
pub(crate) async fn call(
    address: &str,
    path: &str,
    bytes: usize,
    at_once: usize,
    time: Duration,
) -> Measured {
    let session = open(address, path);
    let begin = Instant::now() + WARM_UP;
    let end = begin + time;
    let calls = (0..at_once).map(|n| {
        let caller = Caller {
            address: address.to_owned(),
            path: path.to_owned(),
            session: session.clone(),
            bytes,
            first: n,
        };
        tokio::spawn(caller.run(begin, end))
    });
    let mut times = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        times.extend(call.await.unwrap());
    }
    let calls = times.len();
    Measured {
        per_second: calls as f64 / time.as_secs_f64(),
        calls,
        times,
    }
}

struct Caller {
    address: String,
    path: String,
    session: String,
    bytes: usize,
    first: usize,
}

impl Caller {
    async fn run(self, begin: Instant, end: Instant) -> Vec<f64> {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut times, mut room) = (Vec::new(), vec![0; 128 << 10]);
        let mut id = self.first;
        loop {
            id += 1_000;
            let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "give", "arguments": {"bytes": self.bytes}}});
            let request = post(&self.address, &self.path, &self.session, &body.to_string());
            let start = Instant::now();
            stream.write_all(&request).await.unwrap();
            read(&mut stream, &mut room, self.bytes / 2).await;
            let now = Instant::now();
            if now >= end {
                return times;
            }
            if start >= begin {
                times.push((now - start).as_secs_f64() * 1e6);
            }
        }
    }
}

/// Reads one answer to its end.
async fn read(stream: &mut TcpStream, room: &mut [u8], least: usize) {
    let (mut filled, mut whole) = (0, usize::MAX);
    while filled < whole {
        let read = stream.read(&mut room[filled..]).await.unwrap();
        assert!(read > 0, "the connection ended");
        filled += read;
        if whole == usize::MAX
            && let Some(end) = memchr::memmem::find(&room[..filled], b"\r\n\r\n")
        {
            let head = std::str::from_utf8(&room[..end]).unwrap().to_lowercase();
            let length = head.split_once("content-length: ");
            let (_, length) = length.unwrap_or_else(|| panic!("no JSON: {head}"));
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            assert!(
                head.starts_with("http/1.1 200") && length >= least,
                "{head}"
            );
            whole = end + 4 + length;
        }
    }
}

/// The arguments of the client's role: address, path, bytes, calls at a time, milliseconds.
pub(crate) async fn play(args: &[String]) -> Value {
    let number = |at: usize| args[at].parse::<usize>().unwrap();
    let time = Duration::from_millis(number(4) as u64);
    let measured = call(&args[0], &args[1], number(2), number(3), time).await;
    serde_json::to_value(measured).unwrap()
}
