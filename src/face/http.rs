//! MCP over Streamable HTTP on `/mcp/{server}` and `/mcp`, in the revisions with sessions: a session is one
//! `Mcp-Session-Id`, each message of its client a POST, and what it is sent goes on the POST that it belongs to or on a
//! GET. To a server's engine it is a session as any other.

mod body;
mod cors;
mod events;
mod fault;
mod log;
mod preface;
mod session;
mod sessions;
mod stateless;
mod streams;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::watch;
use tokio::time::timeout;

use self::body::Posted;
use self::events::Feed;
use self::fault::Fault;
use self::session::{Owner, Session};
use self::sessions::Sessions;
use self::stateless::Stateless;
use self::streams::{First, Gone, Reader, TooMany};
use super::access::{Access, Denial};
use super::{Directory, Inbound, head};
use crate::engine::input::HostEvent;
use crate::wire::jsonrpc::{Kind, Message, RequestId, Unreadable, member};
use crate::wire::mcp::{Revision, method};

/// How long a POST may wait for its answer before it becomes a stream, so that it is not taken for dead on the way.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// How long a new session's `initialize` may take; an engine answers at once.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// What the routes need.
struct Face<D: Directory> {
    directory: D,
    access: watch::Receiver<Access>,
    sessions: Arc<Sessions<D::Inbound>>,
    stateless: Stateless<D>,
}

/// Who sends a request, once it was let in.
struct Caller<'a> {
    /// `None` is all servers.
    server: Option<&'a str>,
    /// The name of its `hosts` entry.
    name: Option<String>,
    /// Its token, where tokens are configured.
    token: Option<&'a str>,
}

/// The face over one directory. Cheap to clone.
pub(super) struct Shared<D: Directory>(Arc<Face<D>>);

impl<D: Directory> Clone for Shared<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Directory> Shared<D> {
    /// A change of `access` ends the sessions that it no longer admits.
    pub(super) fn new(directory: D, access: watch::Receiver<Access>) -> Self {
        let sessions = Sessions::new(access.clone());
        let stateless = Stateless::new(directory.clone(), access.clone());
        Self(Arc::new(Face {
            directory,
            access,
            sessions,
            stateless,
        }))
    }
}

/// Serves one request, to a server or to all.
pub(super) async fn enter<D: Directory>(
    Shared(face): &Shared<D>,
    server: Option<&str>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let origin = parts.headers.get(header::ORIGIN).cloned();
    let served = face.serve(&parts.method, server, &parts.headers, body);
    let served = served.await;
    let is_foreign = matches!(served, Err(Fault::Denied(Denial::Origin | Denial::Host)));
    let mut response = served.unwrap_or_else(IntoResponse::into_response);
    if !is_foreign {
        cors::expose(origin, response.headers_mut());
    }
    response
}

impl<D: Directory> Face<D> {
    async fn serve(
        &self,
        method: &Method,
        server: Option<&str>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Fault> {
        if *method == Method::OPTIONS {
            let origin = self.access.borrow().admit_page(headers);
            return origin
                .map(|()| cors::preflight(headers))
                .map_err(Fault::Denied);
        }
        let caller = self.caller(server, headers)?;
        match *method {
            Method::POST => self.post(&caller, headers, body).await,
            Method::GET => self.get(&caller, headers),
            Method::DELETE => self.delete(&caller, headers),
            _ => Err(Fault::Method),
        }
    }

    fn caller<'a>(
        &self,
        server: Option<&'a str>,
        headers: &'a HeaderMap,
    ) -> Result<Caller<'a>, Fault> {
        let access = self.access.borrow();
        let token = head::bearer(headers);
        let name = access.admit(headers, token, server);
        let name = name.map_err(Fault::Denied)?.map(str::to_owned);
        // Without tokens in the configuration, one that is sent says nothing.
        let token = token.filter(|_| name.is_some());
        Ok(Caller {
            server,
            name,
            token,
        })
    }

    /// The session that a request names.
    fn session(
        &self,
        caller: &Caller<'_>,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<Session<D::Inbound>>>, Fault> {
        let Some(id) = preface::session(headers)? else {
            return Ok(None);
        };
        let session = self.sessions.find(id, caller.server, caller.token)?;
        preface::check_revision(headers)?;
        Ok(Some(session))
    }

    async fn post(
        &self,
        caller: &Caller<'_>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Fault> {
        preface::check_post(headers)?;
        let posted = body::read(body).await?;
        let posted = match posted {
            Posted::One(message) if stateless::is_stateless(headers, &message) => {
                return self.stateless.post(caller, headers, message).await;
            }
            posted @ (Posted::One(_) | Posted::Batch(_)) => posted,
        };
        let session = self.session(caller, headers)?;
        match (session, posted) {
            (None, Posted::One(message)) if message.method() == method::INITIALIZE => {
                // What is rare is boxed, so that the future of a call stays small.
                Box::pin(self.open(caller, message)).await
            }
            (None, _) => {
                preface::check_revision(headers)?;
                Err(Fault::NoSession)
            }
            (Some(session), Posted::One(message)) => session.exchange(message).await,
            (Some(session), Posted::Batch(parts)) if session.revision().has_batches() => {
                Box::pin(session.exchange_all(parts)).await
            }
            (Some(_), Posted::Batch(parts)) => Err(Unreadable::Batch(parts).into()),
        }
    }

    /// Opens a session with its `initialize`.
    async fn open(&self, caller: &Caller<'_>, message: Message) -> Result<Response, Fault> {
        let token = caller.token.map(Into::into);
        let server = caller.server.map(str::to_owned);
        let owner = Owner { server, token };
        self.sessions.check_room(&owner)?;
        let (id, tag) = sessions::new_id()?;
        let server = caller.server.unwrap_or_default();
        let opened = self.directory.open(server, caller.name.as_deref());
        let (inbound, outbound) = opened?;
        let session = Session::new(owner, inbound, tag);
        let mut opening = Opening(Some(Arc::clone(&session)));
        let (running, sessions) = (Arc::clone(&session), Arc::clone(&self.sessions));
        let key = id.clone();
        tokio::spawn(async move {
            running.run(outbound).await;
            sessions.remove(&key);
        });
        let answer = session.begin(message).await?;
        self.sessions.add(&id, &session)?;
        // Where it ended meanwhile, nobody else will remove it.
        if session.is_over() {
            self.sessions.remove(&id);
        }
        opening.0 = None;
        let mut response = json(answer);
        let id = HeaderValue::from_str(&id).map_err(|_| Fault::NoRandomness)?;
        response.headers_mut().insert(preface::SESSION, id);
        Ok(response)
    }

    fn get(&self, caller: &Caller<'_>, headers: &HeaderMap) -> Result<Response, Fault> {
        preface::check_get(headers)?;
        let session = self.session(caller, headers)?.ok_or(Fault::NoSession)?;
        let primes = session.revision() >= Revision::V2025_11_25;
        let Some(last) = headers.get(preface::LAST_EVENT) else {
            let reader = session.streams.listen();
            let reader = reader.map_err(|TooMany| Fault::TooManyStreams)?;
            return Ok(Feed::new(reader, &session.tag, None, primes).into_response());
        };
        let last = last.to_str().ok();
        let last = last.and_then(|id| events::read_id(&session.tag, id));
        let (stream, after) = last.ok_or(Fault::EventGone)?;
        let reader = session.streams.resume(stream, after);
        let reader = reader.map_err(|Gone| Fault::EventGone)?;
        Ok(Feed::new(reader, &session.tag, Some(after), primes).into_response())
    }

    fn delete(&self, caller: &Caller<'_>, headers: &HeaderMap) -> Result<Response, Fault> {
        let session = self.session(caller, headers)?.ok_or(Fault::NoSession)?;
        if let Some(id) = preface::session(headers)? {
            self.sessions.remove(id);
        }
        session.end();
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

/// A session whose `initialize` is not answered: it ends if its client goes.
struct Opening<I: Inbound>(Option<Arc<Session<I>>>);

impl<I: Inbound> Drop for Opening<I> {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.end();
        }
    }
}

impl<I: Inbound> Session<I> {
    /// Has `initialize` answered; its answer.
    async fn begin(&self, message: Message) -> Result<Bytes, Fault> {
        let (reader, messages) = self.streams.expect(vec![message]);
        for message in messages {
            self.hand_over(message).await?;
        }
        let first = timeout(OPENING_MAX, poll_fn(|cx| reader.poll_first(cx))).await;
        if let Some((_, reason)) = self.closed() {
            return Err(Fault::Dismissed(reason));
        }
        let Ok(First::Answers(mut answers)) = first else {
            return Err(Fault::Dismissed("`initialize` was not answered in time"));
        };
        let answer = answers.pop().ok_or(Fault::UnknownSession)?;
        let spoken = Message::parse(answer.clone());
        let spoken = spoken.ok().and_then(|answer| revision(answer.result()?));
        if let Some(revision) = spoken {
            self.speaks(revision);
        }
        Ok(answer)
    }

    /// One message of the client's.
    async fn exchange(&self, message: Message) -> Result<Response, Fault> {
        match message.kind() {
            Kind::Request => {
                let (reader, requests) = self.streams.expect(vec![message]);
                for request in requests {
                    self.hand_over(request).await?;
                }
                Ok(self.answer(reader, false).await)
            }
            Kind::Notification | Kind::Response => {
                self.tell(message).await?;
                Ok(StatusCode::ACCEPTED.into_response())
            }
        }
    }

    /// A batch: its messages in their order, and one answer to the whole (2025-03-26).
    async fn exchange_all(&self, parts: Vec<Bytes>) -> Result<Response, Fault> {
        let messages: Result<Vec<Message>, Unreadable> =
            parts.into_iter().map(Message::parse).collect();
        let (requests, others): (Vec<Message>, Vec<Message>) = messages?
            .into_iter()
            .partition(|message| message.kind() == Kind::Request);
        for message in others {
            self.tell(message).await?;
        }
        if requests.is_empty() {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let (reader, requests) = self.streams.expect(requests);
        for request in requests {
            self.hand_over(request).await?;
        }
        Ok(self.answer(reader, true).await)
    }

    /// Hands over a notification or a response.
    async fn tell(&self, message: Message) -> Result<(), Fault> {
        let cancelled = (message.method() == method::CANCELLED)
            .then(|| message.param(&["requestId"]))
            .flatten()
            .and_then(|span| RequestId::read(message.text(&span)));
        self.hand_over(message).await?;
        // The engine answers a call that it cancels no more.
        if let Some(id) = cancelled {
            self.streams.cancel(&id);
        }
        Ok(())
    }

    async fn hand_over(&self, message: Message) -> Result<(), Fault> {
        let taken = self.inbound.send(HostEvent::Received(message)).await;
        taken.then_some(()).ok_or(Fault::UnknownSession)
    }

    /// JSON where nothing comes before the answer and that comes soon, else a stream.
    async fn answer(&self, reader: Reader, is_batch: bool) -> Response {
        let first = timeout(QUIET_MAX, poll_fn(|cx| reader.poll_first(cx))).await;
        match first {
            Ok(First::Answers(answers)) => answered(answers, is_batch),
            Ok(First::Stream) => self.feed(reader),
            Err(_) => {
                reader.begin();
                self.feed(reader)
            }
        }
    }

    fn feed(&self, reader: Reader) -> Response {
        let primes = self.revision() >= Revision::V2025_11_25;
        Feed::new(reader, &self.tag, None, primes).into_response()
    }
}

fn answered(mut answers: Vec<Bytes>, is_batch: bool) -> Response {
    match (answers.pop(), is_batch) {
        (Some(answer), false) => json(answer),
        (Some(last), true) => {
            answers.push(last);
            json(batch(&answers))
        }
        // It was cancelled: a stream that ends without an answer says so, and JSON could not.
        (None, _) => ([(header::CONTENT_TYPE, "text/event-stream")], "").into_response(),
    }
}

fn batch(answers: &[Bytes]) -> Bytes {
    let mut all = BytesMut::new();
    for (n, answer) in answers.iter().enumerate() {
        all.put_u8(if n == 0 { b'[' } else { b',' });
        all.put_slice(answer);
    }
    all.put_u8(b']');
    all.freeze()
}

fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The revision that an answer to `initialize` names.
fn revision(result: &str) -> Option<Revision> {
    let name: String = serde_json::from_str(member(result, "protocolVersion")?).ok()?;
    Revision::parse(&name)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// Where nobody answers.
    struct Nobody;

    impl Inbound for Nobody {
        async fn send(&self, _: HostEvent) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_silent_for_long_becomes_a_stream_that_is_kept_alive() {
        let owner = Owner {
            server: None,
            token: None,
        };
        let session = Session::new(owner, Nobody, "tag".into());
        session.speaks(Revision::V2025_11_25);
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
        let begun = tokio::time::Instant::now();
        let response = session.exchange(Message::parse(call.into()).unwrap());
        let response = response.await.unwrap();
        assert_eq!(begun.elapsed(), QUIET_MAX);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut parts = response.into_body().into_data_stream();
        let mut next = async || parts.next().await.unwrap().unwrap();
        assert!(next().await.starts_with(b"id: tag-"));
        for _ in 0..3 {
            let since = tokio::time::Instant::now();
            assert_eq!(next().await, ":\n\n");
            assert!(since.elapsed() < Duration::from_secs(30));
        }
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        session.streams.place(None, answer.into()).unwrap();
        assert!(
            next()
                .await
                .ends_with(format!("data: {answer}\n\n").as_bytes())
        );
        assert!(parts.next().await.is_none());
    }
}
