//! A host or client of the gateway, or of a server's own stdio: it speaks JSON-RPC and sees the very bytes.

use std::collections::VecDeque;

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::gateway::PATIENCE;

/// A WebSocket to a server's face.
pub(crate) struct Host {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Read while something else was waited for.
    inbox: VecDeque<Received>,
    next_id: u64,
}

/// A message; every member as it was written.
#[derive(Debug, Deserialize)]
pub(crate) struct Received {
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) method: Option<String>,
    pub(crate) params: Option<Box<RawValue>>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<Box<RawValue>>,
}

impl Received {
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// A member of its params, at a JSON pointer.
    pub(crate) fn param(&self, pointer: &str) -> Value {
        let params = self.params.as_ref().map_or("null", |params| params.get());
        let params: Value = serde_json::from_str(params).unwrap();
        params.pointer(pointer).cloned().unwrap_or_default()
    }

    pub(crate) fn is_answer_to(&self, id: &str) -> bool {
        self.method.is_none() && self.id.as_ref().map_or("null", |id| id.get()) == id
    }

    /// The result's bytes.
    #[track_caller]
    pub(crate) fn result(&self) -> &str {
        self.result
            .as_ref()
            .unwrap_or_else(|| panic!("no result: {self:?}"))
            .get()
    }

    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let error = self
            .error
            .as_ref()
            .unwrap_or_else(|| panic!("no error: {self:?}"));
        serde_json::from_str(error.get()).unwrap()
    }
}

impl Host {
    pub(crate) async fn connect(url: &str) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let connecting = tokio_tungstenite::connect_async_with_config(url, Some(config), true);
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let connected = connected.unwrap_or_else(|_| panic!("{url} does not answer"));
        let (socket, _) = connected.unwrap_or_else(|error| panic!("{url}: {error}"));
        Self {
            socket,
            inbox: VecDeque::new(),
            next_id: 0,
        }
    }

    /// The HTTP status with which a connection is refused.
    pub(crate) async fn refusal(url: &str) -> u16 {
        let connecting = tokio_tungstenite::connect_async(url);
        match tokio::time::timeout(PATIENCE, connecting)
            .await
            .expect("no answer")
        {
            Err(Error::Http(answer)) => answer.status().as_u16(),
            other => panic!("{url} is not refused: {other:?}"),
        }
    }

    /// Waits for the end of the connection, and returns its close code.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            let next = next
                .expect("the connection stays")
                .expect("it ended without a close frame");
            if let Message::Close(frame) = next.unwrap() {
                return frame.expect("no close code").code.into();
            }
        }
    }

    /// Ends the connection as the protocol has it; what came in before its end.
    pub(crate) async fn leave(mut self) -> Vec<Received> {
        let sent = tokio::time::timeout(PATIENCE, self.socket.send(Message::Close(None))).await;
        sent.expect("nobody reads us").unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let next = tokio::time::timeout_at(end, self.socket.next()).await;
            match next.expect("the connection stays") {
                Some(Ok(Message::Text(text))) => self.inbox.push_back(Received::parse(&text)),
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return self.inbox.into(),
            }
        }
    }

    /// Sends one frame of text, which need not be a message.
    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        let sent = self.socket.send(Message::text(text.into()));
        tokio::time::timeout(PATIENCE, sent)
            .await
            .expect("nobody reads us")
            .unwrap();
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &'static [u8]) {
        self.socket.send(Message::binary(bytes)).await.unwrap();
    }

    /// Writes bytes as they are, which need not be a frame.
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).await.unwrap();
    }

    /// The next message, whatever it is. Nothing is lost where this is not waited for to the end.
    pub(crate) async fn next(&mut self) -> Received {
        // Pings come all the while, so it is not each frame that is waited for.
        let end = Instant::now() + PATIENCE;
        loop {
            let next = tokio::time::timeout_at(end, self.socket.next()).await;
            let next = next.unwrap_or_else(|_| panic!("no answer; read: {:#?}", self.inbox));
            let next = next.expect("the connection ended").unwrap();
            assert!(!next.is_close(), "{next:?}");
            if let Message::Text(text) = next {
                return Received::parse(&text);
            }
        }
    }

    async fn until(&mut self, is_it: impl Fn(&Received) -> bool) -> Received {
        if let Some(at) = self.inbox.iter().position(&is_it) {
            return self.inbox.remove(at).unwrap();
        }
        loop {
            let next = self.next().await;
            if is_it(&next) {
                return next;
            }
            self.inbox.push_back(next);
        }
    }

    /// The answer to the request with this id, as written.
    pub(crate) async fn answer(&mut self, id: &str) -> Received {
        self.until(|received| received.is_answer_to(id)).await
    }

    pub(crate) async fn notification(&mut self, method: &str) -> Received {
        self.until(|received| received.method.as_deref() == Some(method))
            .await
    }

    /// Forgets what was read and not waited for.
    pub(crate) fn forget(&mut self) {
        self.inbox.clear();
    }

    /// Whether this was sent to us before what was read last, and not forgotten.
    pub(crate) fn was_sent(&self, method: &str) -> bool {
        self.inbox
            .iter()
            .any(|received| received.method.as_deref() == Some(method))
    }

    /// Answers a request.
    pub(crate) async fn reply(&mut self, request: &Received, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": request.id, "result": result});
        self.send(answer.to_string()).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> String {
        self.next_id += 1;
        let id = self.next_id.to_string();
        let request =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.send(request.to_string()).await;
        id
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Received {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Received {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    pub(crate) async fn ask_to_initialize(&mut self, capabilities: Value) -> String {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "it", "version": "1"},
        });
        self.ask("initialize", params).await
    }

    /// An MCPL host's `initialize`, and its policy, which grants all that a bridge uses; the id of the latter.
    pub(crate) async fn ask_to_serve(&mut self) -> String {
        self.initialize(json!({"experimental": {"mcpl": {"version": "0.5"}}}))
            .await;
        let all =
            json!({"effectiveCapabilities": ["channels.*", "inferenceRequest", "pushEvents"]});
        self.ask("featureSets/update", all).await
    }

    pub(crate) async fn initialize(&mut self, capabilities: Value) -> Value {
        let id = self.ask_to_initialize(capabilities).await;
        let answer = self.answer(&id).await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        serde_json::from_str(answer.result()).unwrap()
    }
}
