//! A server of HTTP that does what a test says, request by request, down to the bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::dialed::soon;
use crate::websocket::accept_tls;

/// The server.
pub(crate) struct Wire {
    pub(crate) url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    connections: Arc<AtomicUsize>,
    listening: tokio::task::JoinHandle<()>,
}

/// One request, and the way to answer it. Dropped, it is answered in full.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    reply: mpsc::UnboundedSender<Option<String>>,
}

impl Wire {
    pub(crate) async fn listen() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub(crate) async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, tell.clone()));
            }
        });
        Self {
            url,
            asked,
            connections,
            listening,
        }
    }

    /// The same over TLS, as `localhost`.
    pub(crate) async fn secured() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, asked) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            loop {
                if let Ok(stream) = accept_tls(&listener).await {
                    tokio::spawn(serve(stream, tell.clone()));
                }
            }
        });
        Self {
            url: format!("https://localhost:{port}/mcp"),
            asked,
            connections: Arc::default(),
            listening,
        }
    }

    /// The next request of any kind.
    pub(crate) async fn any(&mut self) -> Asked {
        soon(self.asked.recv()).await.unwrap()
    }

    /// The next request, which is this.
    pub(crate) async fn next(&mut self, method: &str) -> Asked {
        let asked = self.any().await;
        assert_eq!(asked.method, method, "{}", asked.body);
        asked
    }

    /// Answers `initialize` and `notifications/initialized`, and has no stream of its own.
    pub(crate) async fn welcome(&mut self) {
        self.begin("s-1").await;
        self.next("GET").await.status("405 Method Not Allowed");
    }

    /// Answers `initialize` and `notifications/initialized`.
    pub(crate) async fn begin(&mut self, session: &str) {
        let asked = self.next("POST").await;
        assert_eq!(asked.body["method"], "initialize");
        let headers = format!("mcp-session-id: {session}\r\n");
        asked.json_with(&headers, &introduction());
        let asked = self.next("POST").await;
        assert_eq!(asked.body["method"], "notifications/initialized");
        asked.status("202 Accepted");
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Listens no more; what is open goes on.
    pub(crate) async fn close(&mut self) {
        self.listening.abort();
        let _ = (&mut self.listening).await;
    }
}

/// The answer to `initialize`, whose id is 0.
pub(crate) fn introduction() -> Value {
    serde_json::json!({"jsonrpc": "2.0", "id": 0, "result":
        {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "wire", "version": "1"}}})
}

/// The answer to a call.
pub(crate) fn answer(id: u64, text: &str) -> Value {
    serde_json::json!({"jsonrpc": "2.0", "id": id, "result": {"said": text}})
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn write(&self, text: &str) {
        self.reply.send(Some(text.into())).unwrap();
    }

    pub(crate) fn json(self, body: &Value) {
        self.json_with("", body);
    }

    pub(crate) fn json_with(self, headers: &str, body: &Value) {
        self.whole(
            "200 OK",
            &format!("content-type: application/json\r\n{headers}"),
            &body.to_string(),
        );
    }

    pub(crate) fn status(self, status: &str) {
        self.whole(status, "", "");
    }

    pub(crate) fn whole(self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        self.write(&format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"
        ));
    }

    /// Begins a stream.
    pub(crate) fn stream(&self) {
        self.stream_with("");
    }

    pub(crate) fn stream_with(&self, headers: &str) {
        self.write(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}transfer-encoding: chunked\r\n\r\n"
        ));
    }

    /// A piece of a stream.
    pub(crate) fn piece(&self, text: &str) {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len()));
    }

    /// A message in a stream.
    pub(crate) fn event(&self, id: &str, message: &Value) {
        let id = if id.is_empty() {
            String::new()
        } else {
            format!("id: {id}\n")
        };
        self.piece(&format!("{id}data: {message}\n\n"));
    }

    /// Ends a stream as it should be.
    pub(crate) fn end(self) {
        self.write("0\r\n\r\n");
    }

    /// Ends when the client gives the connection up.
    pub(crate) async fn closed(&self) {
        self.reply.closed().await;
    }

    /// Breaks the connection off.
    pub(crate) fn reset(self) {
        self.reply.send(None).unwrap();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, tell: mpsc::UnboundedSender<Asked>) {
    let mut stream = BufReader::new(stream);
    while let Some((asked, mut replies)) = read(&mut stream).await {
        let _ = tell.send(asked);
        loop {
            let reply = tokio::select! {
                reply = replies.recv() => reply,
                // Before it is answered a client sends nothing more, so this is its end.
                _ = stream.fill_buf() => return,
            };
            let Some(reply) = reply else { break };
            let Some(text) = reply else { return };
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

async fn read(
    stream: &mut BufReader<impl AsyncRead + Unpin>,
) -> Option<(Asked, mpsc::UnboundedReceiver<Option<String>>)> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (reply, replies) = mpsc::unbounded_channel();
    let asked = Asked {
        method,
        target,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        reply,
    };
    Some((asked, replies))
}
