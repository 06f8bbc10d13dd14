//! `faultd --stateless`: a server of 2026-07-28 alone. It refuses `initialize`, refuses requests that do not say who
//! sends them, asks for input where the tool `ask` is called, and tells of changes on `subscriptions/listen`.
//!
//! Tools: `echo` (its params, verbatim), `ask` (a name, by elicitation, and the client's roots; then says both),
//! `change` (tells of changed tools and of the resource `test:one`, on all streams), `log` (logs "hello" at the level
//! that was asked for), `end-stream` (ends all streams), `exit{code}`.

use std::process;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Members, Session};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The ids of the streams that are open.
static STREAMS: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// Answers a request or takes a notification.
pub(super) fn handle(session: &Session, method: &str, message: &Members) {
    let value = |name: &str| {
        let raw = message.get(name).map_or("null", |raw| raw.get());
        serde_json::from_str::<Value>(raw).unwrap()
    };
    let (id, params) = (value("id"), value("params"));
    if method == "notifications/cancelled" {
        return streams().retain(|stream| *stream != params["requestId"]);
    }
    let refuse = |code: i64, text: &str, data: Value| {
        let error = json!({"code": code, "message": text, "data": data});
        session.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    };
    let supported = json!({"supported": ["2026-07-28"], "requested": params["protocolVersion"]});
    if method == "initialize" {
        return refuse(-32022, "Unsupported protocol version", supported);
    }
    let meta = &params["_meta"];
    if meta[VERSION] != "2026-07-28" || !meta[CAPABILITIES].is_object() {
        return refuse(-32602, "_meta does not say who asks", Value::Null);
    }
    match method {
        "server/discover" => answer(session, &id, discovery()),
        "tools/list" => answer(session, &id, tools()),
        "tools/call" => call(session, &id, &params),
        "subscriptions/listen" => listen(session, &id, &params),
        _ => refuse(-32601, "Method not found", Value::Null),
    }
}

fn streams() -> std::sync::MutexGuard<'static, Vec<Value>> {
    STREAMS.lock().unwrap()
}

fn answer(session: &Session, id: &Value, mut result: Value) {
    let kind = result["resultType"].take();
    result["resultType"] = if kind.is_null() {
        json!("complete")
    } else {
        kind
    };
    session.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn discovery() -> Value {
    json!({
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "faultd", "version": "stateless"}},
        "instructions": "ask me", "ttlMs": 0, "cacheScope": "public",
    })
}

fn tools() -> Value {
    let names = ["echo", "ask", "change", "log", "end-stream", "exit"];
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    json!({"tools": names.map(tool), "ttlMs": 0, "cacheScope": "public"})
}

fn listen(session: &Session, id: &Value, params: &Value) {
    streams().push(id.clone());
    let taken = json!({"_meta": {SUBSCRIPTION: id}, "notifications": params["notifications"]});
    notify(session, "notifications/subscriptions/acknowledged", taken);
}

fn notify(session: &Session, method: &str, params: Value) {
    session.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

fn call(session: &Session, id: &Value, params: &Value) {
    let says = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    match params["name"].as_str().unwrap_or_default() {
        "echo" => answer(
            session,
            id,
            json!({"content": [], "structuredContent": params}),
        ),
        "ask" => answer(session, id, asked(params)),
        "change" => {
            for stream in streams().iter() {
                let meta = json!({SUBSCRIPTION: stream});
                notify(
                    session,
                    "notifications/tools/list_changed",
                    json!({"_meta": meta}),
                );
                let one = json!({"_meta": meta, "uri": "test:one"});
                notify(session, "notifications/resources/updated", one);
            }
            answer(session, id, says("changed"));
        }
        "log" => {
            let level = &params["_meta"]["io.modelcontextprotocol/logLevel"];
            if level.is_string() {
                notify(
                    session,
                    "notifications/message",
                    json!({"level": level, "data": "hello"}),
                );
            }
            answer(session, id, says("logged"));
        }
        "end-stream" => {
            for stream in streams().drain(..) {
                answer(session, &stream, json!({"_meta": {SUBSCRIPTION: stream}}));
            }
            answer(session, id, says("ended"));
        }
        "exit" => {
            let code = params["arguments"]["code"].as_i64().unwrap_or(0);
            process::exit(i32::try_from(code).unwrap());
        }
        other => {
            let error = json!({"code": -32602, "message": format!("no tool {other}")});
            session.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    }
}

/// The first time what is asked for; then what came of it.
fn asked(params: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let given = &params["inputResponses"];
    if given.is_null() {
        return json!({"resultType": "input_required", "requestState": "kept \"by\" the client", "inputRequests": {
            "name": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}},
            "roots": {"method": "roots/list"},
        }});
    }
    json!({"content": [], "structuredContent": {"given": given, "state": params["requestState"]}})
}
