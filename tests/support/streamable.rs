//! A plain client of Streamable HTTP: it posts what it is told, and shows each answer and each event as they came.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client, and its session once it has one.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    pub(crate) token: Option<String>,
    pub(crate) revision: &'static str,
    pub(crate) session: Option<String>,
    next_id: u64,
}

/// One Server-Sent Event, or a comment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) is_comment: bool,
}

impl Event {
    /// The message that it carries; null where it carries none.
    pub(crate) fn message(&self) -> Value {
        let data = self.data.as_deref().filter(|data| !data.is_empty());
        data.map_or(Value::Null, |data| serde_json::from_str(data).unwrap())
    }
}

/// The events of an answer.
pub(crate) struct Feed {
    response: Response,
    unread: Vec<u8>,
}

impl Feed {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(header(&response, "content-type"), "text/event-stream");
        let unread = Vec::new();
        Self { response, unread }
    }

    /// The next event or comment; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let text: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Some(event(std::str::from_utf8(&text).unwrap()));
            }
            let part = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            match part.expect("the stream says nothing") {
                Ok(Some(part)) => self.unread.extend_from_slice(&part),
                Ok(None) => return None,
                Err(error) => panic!("the stream broke: {error:?}"),
            }
        }
    }

    /// The next event that carries a message.
    pub(crate) async fn message(&mut self) -> Option<Event> {
        loop {
            let event = self.next().await?;
            if event.message() != Value::Null {
                return Some(event);
            }
        }
    }
}

fn event(text: &str) -> Event {
    let mut event = Event::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "" => event.is_comment = true,
            "id" => event.id = Some(value),
            "retry" => event.retry = Some(value),
            "data" => event.data = Some(event.data.map_or(value.clone(), |d| d + "\n" + &value)),
            _ => panic!("what is {line:?}?"),
        }
    }
    event
}

/// A header of an answer; empty where it has none.
pub(crate) fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// The body of an answer that is JSON.
pub(crate) async fn body(response: Response) -> Value {
    assert_eq!(header(&response, "content-type"), "application/json");
    let text = tokio::time::timeout(PATIENCE, response.text()).await;
    serde_json::from_str(&text.expect("the body does not end").unwrap()).unwrap()
}

impl Client {
    /// One without a session.
    pub(crate) fn new(url: &str) -> Self {
        // It may be installed already, by another test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            url: url.into(),
            token: None,
            revision: "2025-11-25",
            session: None,
            next_id: 1,
        }
    }

    /// One with a session.
    pub(crate) async fn open(url: &str) -> Self {
        let mut client = Self::new(url);
        client.initialize(json!({})).await;
        client
    }

    /// Opens its session; the answer.
    pub(crate) async fn initialize(&mut self, capabilities: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": self.revision, "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}}});
        let response = self.post(&message.to_string()).await;
        assert_eq!(response.status(), 200);
        self.session = Some(header(&response, "mcp-session-id").to_owned());
        let answer = body(response).await;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(self.post(initialized).await.status(), 202);
        answer
    }

    /// A request with the headers of its session.
    pub(crate) fn request(&self, method: Method) -> RequestBuilder {
        let mut request = self.http.request(method, &self.url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", self.revision);
        }
        request
    }

    /// Posts a body.
    pub(crate) async fn post(&self, body: &str) -> Response {
        let request = self
            .request(Method::POST)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned());
        sent(request).await
    }

    /// Opens a stream, after an event where one is named.
    pub(crate) async fn get(&self, after: Option<&str>) -> Response {
        let mut request = self.request(Method::GET);
        request = request.header("accept", "text/event-stream");
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        sent(request).await
    }

    /// A stream that is there.
    pub(crate) async fn listen(&self, after: Option<&str>) -> Feed {
        let response = self.get(after).await;
        assert_eq!(response.status(), 200);
        Feed::new(response)
    }

    pub(crate) async fn delete(&self) -> u16 {
        sent(self.request(Method::DELETE)).await.status().as_u16()
    }

    /// A request of its own numbering.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> String {
        self.next_id += 1;
        json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
            .to_string()
    }

    /// Calls a tool; the answer, which is JSON.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let message = self.ask("tools/call", &params);
        body(self.post(&message).await).await
    }
}

/// The head of the answer.
pub(crate) async fn sent(request: RequestBuilder) -> Response {
    let sent = tokio::time::timeout(PATIENCE, request.send()).await;
    sent.expect("nobody answers").unwrap()
}
