//! One translation between an engine and a server that both do what a test says.

mod calls;
mod openings;
mod streams;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// One translation between an engine and a server, both of this test.
struct Pair {
    edge: Server,
    now: Instant,
}

/// What came out of one input.
#[derive(Debug, PartialEq)]
enum Out {
    Server(Value),
    Engine(Value),
    Unreadable(String),
    Unsent(String),
    Deaf(String),
}

impl Pair {
    #[expect(
        clippy::disallowed_methods,
        reason = "a simulated clock must begin somewhere"
    )]
    fn new(opening: Opening) -> Self {
        Self {
            edge: Server::new(opening, false),
            now: Instant::now(),
        }
    }

    fn outputs(&mut self) -> Vec<Out> {
        std::iter::from_fn(|| self.edge.poll_output())
            .map(|output| match output {
                Output::Send { frame, .. } => Out::Server(serde_json::from_slice(&frame).unwrap()),
                Output::Receive { message, .. } => {
                    Out::Engine(serde_json::from_slice(message.raw()).unwrap())
                }
                Output::Unreadable(what) => Out::Unreadable(what.to_string()),
                Output::Unsent(frame) => Out::Unsent(String::from_utf8(frame.to_vec()).unwrap()),
                Output::Deaf(why) => Out::Deaf(why),
            })
            .collect()
    }

    fn engine(&mut self, message: Value) -> Vec<Out> {
        let id = message["id"].as_u64();
        self.edge
            .take_of_engine(message.to_string().into(), id, self.now);
        self.outputs()
    }

    fn server(&mut self, message: Value) -> Vec<Out> {
        let message = Message::parse(message.to_string().into()).unwrap();
        self.edge.take_of_server(message, self.now);
        self.outputs()
    }

    /// One that serves, with these capabilities.
    fn serving(capabilities: Value) -> Self {
        let mut pair = Self::new(Opening::Stateless);
        pair.engine(initialize());
        let out = pair.server(discovered(capabilities));
        assert!(matches!(out.as_slice(), [Out::Engine(_)]), "{out:?}");
        pair
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}, "roots": {"listChanged": true}, "experimental": {"mcpl": {}}},
        "clientInfo": {"name": "tidegate", "version": "1"},
    }})
}

fn discovered(capabilities: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1_u64 << 49, "result": {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}},
        "instructions": "be kind", "ttlMs": 0, "cacheScope": "public",
    }})
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "tidegate", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "roots": {}},
    })
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn result(id: impl Into<Value>, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "result": result})
}

fn error(id: impl Into<Value>, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "error": {"code": code, "message": message}})
}

fn discover() -> Out {
    Out::Server(request(
        1_u64 << 49,
        "server/discover",
        json!({"_meta": meta()}),
    ))
}

fn listen(number: u64, filter: Value) -> Out {
    let params = json!({"_meta": meta(), "notifications": filter});
    Out::Server(request((1 << 50) + number, "subscriptions/listen", params))
}

fn acknowledged(number: u64, filter: Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": (1 << 50) + number});
    notification(
        "notifications/subscriptions/acknowledged",
        json!({"_meta": meta, "notifications": filter}),
    )
}

fn closed(number: u64) -> Out {
    let id = (1 << 50) + number;
    Out::Server(notification(
        "notifications/cancelled",
        json!({"requestId": id}),
    ))
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}
