//! `faultd` over Streamable HTTP: a session for each `initialize`, and what goes wrong with its requests.
//!
//! An answer is JSON, or a stream with `--sse`; all else that a session sends goes to its GET stream, which exists with
//! `--stream` and is 405 without. `--verbs FILE` is read at each request: a line `WHAT VERB…`, where WHAT is the
//! method of JSON-RPC or of HTTP, or `*`; the first that fits has the say. Verbs:
//! - `status N [NAME:VALUE]…`: that status, with those headers; `hang`: no answer; `reset`: the connection breaks off
//! - `forget`: this session and all others are forgotten first, so that the answer is 404
//! - `cut`: the answer's stream ends before the answer, which is there for a GET after the last event
//!
//! `--session-ms N`: a session is forgotten so long after it began.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{Flags, Session};

type Queue = mpsc::UnboundedSender<String>;

/// All sessions.
struct Server {
    flags: Arc<Flags>,
    sessions: Mutex<BTreeMap<String, Arc<Held>>>,
    began: Mutex<u32>,
}

/// One session.
struct Held {
    session: Arc<Session>,
    ways: Arc<Ways>,
}

/// Where what a session sends goes.
#[derive(Default)]
struct Ways {
    /// By the id of the request that waits.
    waiting: Mutex<BTreeMap<String, Queue>>,
    own: Mutex<Option<Queue>>,
    /// What no stream took yet.
    unsent: Mutex<Vec<String>>,
}

/// Listens, tells where, and serves for ever.
pub(crate) fn serve(address: &str, flags: &Arc<Flags>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build();
    runtime.unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        println!("listening http://{}/mcp", listener.local_addr().unwrap());
        let server = Arc::new(Server {
            flags: Arc::clone(flags),
            sessions: Mutex::default(),
            began: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(server);
        axum::serve(listener, router).await.unwrap();
    });
}

async fn answer(
    State(server): State<Arc<Server>>,
    method: Method,
    headers: HeaderMap,
    body: String,
) -> Response<Body> {
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let name = message["method"].as_str().unwrap_or(method.as_str());
    let verb = server.verb(name).unwrap_or_default();
    let words: Vec<&str> = verb.split_whitespace().collect();
    match words.as_slice() {
        ["status", status, more @ ..] => return refusal(status.parse().unwrap(), more),
        ["hang"] => std::future::pending().await,
        ["reset"] => return broken(),
        ["forget"] => server.sessions.lock().unwrap().clear(),
        _ => {}
    }
    let id = headers
        .get("mcp-session-id")
        .map(|id| id.to_str().unwrap().to_owned());
    let (id, held) = match id {
        None if name == "initialize" => server.begin(),
        None => return refusal(400, &[]),
        Some(id) => match server.held(&id) {
            Some(held) => (id, held),
            None => return refusal(404, &[]),
        },
    };
    match method {
        Method::POST => post(&server.flags, &id, &held, &message, body, words == ["cut"]).await,
        Method::GET => listen(&server.flags, &held, headers.contains_key("last-event-id")),
        Method::DELETE => {
            server.sessions.lock().unwrap().remove(&id);
            refusal(200, &[])
        }
        _ => refusal(405, &[]),
    }
}

impl Server {
    fn verb(&self, name: &str) -> Option<String> {
        let verbs = fs::read_to_string(self.flags.text("verbs")?).ok()?;
        verbs.lines().find_map(|line| {
            let (what, verb) = line.split_once(' ')?;
            (what == name || what == "*").then(|| verb.to_owned())
        })
    }

    fn held(&self, id: &str) -> Option<Arc<Held>> {
        self.sessions.lock().unwrap().get(id).cloned()
    }

    fn begin(self: &Arc<Self>) -> (String, Arc<Held>) {
        let mut began = self.began.lock().unwrap();
        *began += 1;
        let id = format!("s-{began}");
        let ways = Arc::new(Ways::default());
        let out = Arc::clone(&ways);
        let session = Session::new(
            &self.flags,
            Arc::new(move |messages: &[&[u8]]| messages.iter().for_each(|one| out.send(one))),
            Arc::new(|| std::process::exit(0)),
            None,
        );
        let held = Arc::new(Held { session, ways });
        self.sessions
            .lock()
            .unwrap()
            .insert(id.clone(), Arc::clone(&held));
        if let Some(life) = self.flags.duration("session-ms") {
            let (server, id) = (Arc::clone(self), id.clone());
            thread::spawn(move || {
                thread::sleep(life);
                server.sessions.lock().unwrap().remove(&id);
            });
        }
        (id, held)
    }
}

impl Ways {
    fn send(&self, message: &[u8]) {
        let text = String::from_utf8(message.to_vec()).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap_or_default();
        let answers = read["method"].is_null().then(|| read["id"].to_string());
        let waiting = answers.and_then(|id| self.waiting.lock().unwrap().remove(&id));
        let own = self.own.lock().unwrap().clone();
        let unsent = match waiting.or(own) {
            Some(queue) => queue.send(text).err().map(|error| error.0),
            None => Some(text),
        };
        self.unsent.lock().unwrap().extend(unsent);
    }
}

async fn post(
    flags: &Flags,
    id: &str,
    held: &Arc<Held>,
    message: &Value,
    body: String,
    cut: bool,
) -> Response<Body> {
    let (queue, mut answers) = mpsc::unbounded_channel();
    let waits = message["method"].is_string() && !message["id"].is_null();
    if waits && !cut {
        let mut waiting = held.ways.waiting.lock().unwrap();
        waiting.insert(message["id"].to_string(), queue);
    }
    tokio::task::block_in_place(|| held.session.handle(body.as_bytes()));
    let head = Response::builder().header("mcp-session-id", id);
    if !waits {
        return head.status(202).body(Body::empty()).unwrap();
    }
    if cut {
        let text = "id: e-1\ndata:\n\n";
        return head
            .header("content-type", "text/event-stream")
            .body(text.into())
            .unwrap();
    }
    let Some(answer) = answers.recv().await else {
        return refusal(500, &[]);
    };
    if flags.has("sse") {
        let text = format!("event: message\ndata: {answer}\n\n");
        return head
            .header("content-type", "text/event-stream")
            .body(text.into())
            .unwrap();
    }
    head.header("content-type", "application/json")
        .body(answer.into())
        .unwrap()
}

/// The stream of a session's own messages, or what a broken one had still to say.
fn listen(flags: &Flags, held: &Arc<Held>, again: bool) -> Response<Body> {
    let unsent = std::mem::take(&mut *held.ways.unsent.lock().unwrap());
    let head = Response::builder().header("content-type", "text/event-stream");
    let event = |text: String| format!("data: {text}\n\n");
    if again {
        let text: String = unsent.into_iter().map(event).collect();
        return head.body(text.into()).unwrap();
    }
    if !flags.has("stream") {
        return refusal(405, &[]);
    }
    let (queue, messages) = mpsc::unbounded_channel();
    for text in unsent {
        queue.send(text).unwrap();
    }
    *held.ways.own.lock().unwrap() = Some(queue);
    let events = stream::unfold(messages, move |mut messages| async move {
        let text = messages.recv().await?;
        Some((Ok::<_, Infallible>(event(text)), messages))
    });
    head.body(Body::from_stream(events)).unwrap()
}

fn refusal(status: u16, headers: &[&str]) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for header in headers {
        let (name, value) = header.split_once(':').unwrap();
        let name: axum::http::HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// The connection breaks off before the body that it announces.
fn broken() -> Response<Body> {
    let pieces = stream::iter([Err::<String, _>(std::io::Error::other("told to"))]);
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert("content-length", 5.into());
    response
}
