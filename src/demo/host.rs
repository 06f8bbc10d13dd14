//! The demo's agent host: a connection to one server's face over WebSocket, as any MCPL host has one. It calls the
//! server's tools, receives its chat, and says what it saw; it knows nothing of the gateway but the address.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::peer::{self, Fault, Message};
use crate::wire::jsonrpc::code;
use crate::wire::mcp::{self, Revision};
use crate::wire::mcpl::{self, method};

/// A call without an answer for so long counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the host grants a server at most.
const GRANT: [&str; 4] = [
    "channels.incoming",
    "channels.lifecycle",
    "channels.register",
    "tools",
];

/// What a host saw.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// It is connected to a server's face.
    Attached,
    /// A chat message of this number came.
    Message(u64),
    /// A call is over.
    Called {
        /// From its request to its answer.
        took: Duration,
        /// How it ended.
        answer: Answer,
    },
    /// Its connection ended, or could not be made.
    Gone(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// With the right result.
    Right,
    /// With a JSON-RPC error.
    Error(i64, String),
    /// With a wrong result, or none.
    Wrong(String),
}

/// Who to connect to, and where to tell what was seen.
#[derive(Debug)]
pub(super) struct Visit {
    /// The server's name.
    pub(super) server: &'static str,
    /// Its face.
    pub(super) url: String,
    /// Between two calls.
    pub(super) every: Duration,
    /// Takes what is seen, with the server's name.
    pub(super) tell: mpsc::Sender<(&'static str, Seen)>,
}

impl Visit {
    /// Connects and stays until the connection ends.
    pub(super) async fn run(self) {
        let (server, tell) = (self.server, self.tell.clone());
        let ended = self.converse().await;
        let why = ended.map_or_else(|error| error.to_string(), |()| "closed".into());
        let _ = tell.send((server, Seen::Gone(why))).await;
    }

    async fn converse(self) -> Result<(), Error> {
        let (socket, _) = connect_async(&self.url).await?;
        let mut ticks = tokio::time::interval(self.every);
        let mut session = Session::new(self, socket);
        session.ask(Asked::Initialize).await?;
        loop {
            tokio::select! {
                frame = session.socket.next() => match frame {
                    Some(frame) => session.read(&frame?).await?,
                    None => return Ok(()),
                },
                _ = ticks.tick() => session.tick().await?,
            }
        }
    }
}

/// What a request of the host asked for.
#[derive(Clone, Debug)]
enum Asked {
    Initialize,
    Policy,
    Tools,
    /// The `turn`th call; each asks for something else.
    Call {
        tool: String,
        turn: usize,
    },
}

struct Session {
    visit: Visit,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The id of the last request.
    last_id: u64,
    pending: BTreeMap<u64, (Asked, Instant)>,
    tools: Vec<String>,
    calls: usize,
}

impl Session {
    fn new(visit: Visit, socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self {
            visit,
            socket,
            last_id: 0,
            pending: BTreeMap::new(),
            tools: Vec::new(),
            calls: 0,
        }
    }

    async fn tell(&self, seen: Seen) {
        // The script that no longer listens is about to end this task.
        let _ = self.visit.tell.send((self.visit.server, seen)).await;
    }

    async fn send(&mut self, message: Value) -> Result<(), Error> {
        self.socket.send(Frame::text(message.to_string())).await
    }

    async fn ask(&mut self, asked: Asked) -> Result<(), Error> {
        self.last_id += 1;
        let (method, params) = asked.request();
        self.pending.insert(self.last_id, (asked, Instant::now()));
        let id = self.last_id;
        self.send(peer::request(&id.into(), method, &params)).await
    }

    /// Gives up what has waited too long, and makes the next call once the server has tools.
    async fn tick(&mut self) -> Result<(), Error> {
        let is_late = |_: &u64, (_, since): &mut (Asked, Instant)| since.elapsed() > PATIENCE;
        let late: Vec<_> = self.pending.extract_if(.., is_late).collect();
        for (_, (asked, since)) in late {
            self.over(&asked, since, Answer::Wrong("no answer".into()))
                .await;
        }
        let turn = self.calls;
        let Some(tool) = self.tools.get(turn % self.tools.len().max(1)).cloned() else {
            return Ok(());
        };
        self.calls += 1;
        self.ask(Asked::Call { tool, turn }).await
    }

    async fn over(&self, asked: &Asked, since: Instant, answer: Answer) {
        let is_call = matches!(asked, Asked::Call { .. });
        if is_call || matches!(answer, Answer::Wrong(_)) {
            self.tell(Seen::Called {
                took: since.elapsed(),
                answer,
            })
            .await;
        }
    }

    async fn read(&mut self, frame: &Frame) -> Result<(), Error> {
        let Frame::Text(text) = frame else {
            return Ok(());
        };
        let message = Message::read(text);
        match (message.method.as_deref(), &message.id) {
            (Some(mcp::method::TOOLS_CHANGED), Value::Null) => self.ask(Asked::Tools).await,
            (Some(_), Value::Null) => Ok(()),
            (Some(method), id) => self.serve(method, id, &message.params).await,
            (None, id) => self.answered(id, &message).await,
        }
    }

    /// A request of the server.
    async fn serve(&mut self, method: &str, id: &Value, params: &Value) -> Result<(), Error> {
        let answer = match method {
            method::CHANNELS_INCOMING => Some(self.receive(params).await),
            method::CHANNELS_REGISTER => Some(registered(params)),
            mcp::method::PING => Some(json!({})),
            _ => None,
        };
        let refusal = || Fault {
            code: code::METHOD_NOT_FOUND,
            message: format!("no method {method}"),
        };
        self.send(peer::answer(id, answer.ok_or_else(refusal)))
            .await
    }

    async fn receive(&self, params: &Value) -> Value {
        let mut results = Vec::new();
        for message in peer::list(params, "/messages") {
            let id = peer::text(message, "/messageId").unwrap_or_default();
            if let Some(number) = id.strip_prefix("m-").and_then(|number| number.parse().ok()) {
                self.tell(Seen::Message(number)).await;
            }
            results.push(json!({ "messageId": id, "accepted": true }));
        }
        json!({ "results": results })
    }

    /// An answer to one of our requests.
    async fn answered(&mut self, id: &Value, message: &Message) -> Result<(), Error> {
        let Some((asked, since)) = id.as_u64().and_then(|id| self.pending.remove(&id)) else {
            return Ok(());
        };
        let answer = asked.judge(message);
        self.over(&asked, since, answer).await;
        match asked {
            Asked::Initialize => self.initialized(&message.result).await,
            Asked::Tools if message.error.is_none() => {
                self.tools = names(&message.result);
                Ok(())
            }
            Asked::Tools | Asked::Policy | Asked::Call { .. } => Ok(()),
        }
    }

    async fn initialized(&mut self, result: &Value) -> Result<(), Error> {
        self.tell(Seen::Attached).await;
        self.send(json!({ "jsonrpc": "2.0", "method": mcp::method::INITIALIZED }))
            .await?;
        if result.pointer("/capabilities/experimental/mcpl").is_some() {
            self.ask(Asked::Policy).await?;
        }
        self.ask(Asked::Tools).await
    }
}

impl Asked {
    /// Its method and params.
    fn request(&self) -> (&'static str, Value) {
        match self {
            Self::Initialize => (mcp::method::INITIALIZE, introduction()),
            Self::Policy => (
                method::FEATURE_SETS_UPDATE,
                json!({ "effectiveCapabilities": GRANT }),
            ),
            Self::Tools => (mcp::method::TOOLS_LIST, json!({})),
            Self::Call { tool, turn } => {
                let params = json!({ "name": tool, "arguments": arguments(tool, *turn) });
                (mcp::method::TOOLS_CALL, params)
            }
        }
    }

    /// How its answer is to be read.
    fn judge(&self, message: &Message) -> Answer {
        if let Some(error) = &message.error {
            return Answer::Error(error.code, error.message.clone());
        }
        let text = peer::text(&message.result, "/content/0/text");
        let is_right = match self {
            Self::Initialize | Self::Policy | Self::Tools => true,
            Self::Call { tool, turn } => match expected(tool, *turn) {
                Some(expected) => text == Some(&expected),
                None => text.is_some(),
            },
        };
        if is_right {
            Answer::Right
        } else {
            Answer::Wrong(message.result.to_string())
        }
    }
}

fn arguments(tool: &str, turn: usize) -> Value {
    match tool {
        "add" => json!({ "a": turn, "b": 1 }),
        "echo" => json!({ "text": format!("call {turn}") }),
        _ => json!({}),
    }
}

/// The text that a call must give, where it is known beforehand.
fn expected(tool: &str, turn: usize) -> Option<String> {
    match tool {
        "add" => Some((turn + 1).to_string()),
        "echo" => Some(format!("call {turn}")),
        _ => None,
    }
}

/// The names in an answer to `tools/list`.
fn names(result: &Value) -> Vec<String> {
    let tools = peer::list(result, "/tools");
    tools
        .filter_map(|tool| Some(peer::text(tool, "/name")?.to_owned()))
        .collect()
}

/// The itemised answer to `channels/register`.
fn registered(params: &Value) -> Value {
    let channels = peer::list(params, "/channels");
    let ids: Vec<&Value> = channels.filter_map(|channel| channel.get("id")).collect();
    let results: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "id": id, "accepted": true }))
        .collect();
    json!({ "registered": ids, "results": results })
}

fn introduction() -> Value {
    let channels = json!({ "register": true, "incoming": true, "lifecycle": true });
    json!({
        "protocolVersion": Revision::LATEST.as_str(),
        "capabilities": { "experimental": { "mcpl": { "version": mcpl::VERSION, "channels": channels } } },
        "clientInfo": { "name": "tidegate-demo-host", "version": env!("CARGO_PKG_VERSION") },
    })
}
