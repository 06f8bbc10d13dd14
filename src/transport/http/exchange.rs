//! One message posted, and all that comes back for it: an answer, a stream that ends in one and is taken up again where
//! it broke, or a refusal. What the server says is told as it comes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::connection::{Broken, Connection};
use super::fault::Fault;
use super::refusal::Refusal;
use super::session::{Asked, SESSION_ID, Session};
use super::stream::{Next, Stream};
use crate::engine::input::LinkEvent;
use crate::revision::stateless::{header, method};
use crate::transport::Frame;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{self, About, Kind, Message, Unreadable, code, member};

/// How often in a row a broken stream is taken up again without a word from the server.
const RESUMES_MAX: u32 = 5;
/// How long a stream is read on after the answer, so that its connection can be used again.
const REST_WAIT: Duration = Duration::from_secs(5);

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The request that begins the session.
    Opening(u64),
    /// Another request, with its id.
    Call(u64),
    /// A notification, or an answer of ours.
    Note,
}

impl Purpose {
    fn call(self) -> Option<u64> {
        match self {
            Self::Opening(id) | Self::Call(id) => Some(id),
            Self::Note => None,
        }
    }
}

/// Posts a message of a session that serves. What goes wrong with a call alone is its answer.
///
/// # Errors
/// What ends the session.
pub(super) async fn post(session: &Session, frame: Frame) -> Result<(), Fault> {
    let purpose = frame.request.map_or(Purpose::Note, Purpose::Call);
    let fault = match ask(session, &frame, purpose).await {
        Ok(stream) => {
            drain(session, stream).await;
            return Ok(());
        }
        Err(fault) => fault,
    };
    match &fault {
        // That of changes is opened again, and only where it cannot be is that an end (R19).
        Fault::Broken(Broken::Reset(_)) if is_of_changes(&frame) => {
            fail(session, frame.request, &fault).await;
            Ok(())
        }
        Fault::Broken(_) | Fault::Credential(_) | Fault::Unusable(_) => Err(fault),
        Fault::Session => {
            let request = frame.request;
            let frame = frame.bytes;
            // It did not run, so its caller may try again.
            session
                .link()
                .tell(LinkEvent::Unsent { request, frame })
                .await;
            Err(fault)
        }
        Fault::Status(refusal) if refusal.is_of_credential() => Err(fault),
        Fault::Status(refusal) => {
            let is_answer = refusal.is_answer(frame.request);
            let is_over = !is_answer && session.strikes_out(refusal.status);
            if is_answer {
                session.answered();
            }
            fail(session, frame.request, &fault).await;
            if is_over { Err(fault) } else { Ok(()) }
        }
        Fault::Elsewhere(_) | Fault::Redirects | Fault::NoAnswer(_) => {
            fail(session, frame.request, &fault).await;
            Ok(())
        }
    }
}

/// Answers a call that came to nothing: with the server's own error, or in its place.
pub(super) async fn fail(session: &Session, call: Option<u64>, fault: &Fault) {
    let Some(call) = call else { return };
    let link = session.link();
    let text = format!(
        "the server at {} failed this request: {fault}",
        session.shown()
    );
    let text = link.secrets().clean(&text);
    let answer = match fault {
        Fault::Status(refusal) => refusal.answer(call, text),
        Fault::Broken(_)
        | Fault::Session
        | Fault::Elsewhere(_)
        | Fault::Redirects
        | Fault::Credential(_)
        | Fault::Unusable(_)
        | Fault::NoAnswer(_) => {
            let text = format!("{text}; whether it ran is not known");
            jsonrpc::error_response(&call.to_string(), &jsonrpc::Error::new(code::LOST, text))
        }
    };
    link.received(answer).await;
}

/// The request whose answer is the stream of a stateless server's changes.
fn is_of_changes(frame: &Frame) -> bool {
    let is_it =
        |(name, value): &(String, String)| name == header::METHOD && value == method::LISTEN;
    frame.fields.iter().any(is_it)
}

/// Posts a message and tells what comes back, up to the answer; what is left of a stream then can be drained.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn ask(
    session: &Session,
    frame: &Frame,
    purpose: Purpose,
) -> Result<Option<Stream>, Fault> {
    let (response, mut connection) = session.send(&Asked::Post(frame.clone())).await?;
    let status = response.status();
    let is_stateless = frame.is_stateless();
    if let Purpose::Opening(_) = purpose
        && !is_stateless
    {
        session.name(response.headers().get(SESSION_ID));
    }
    if status.is_success() {
        if is_stream(response.headers()) {
            let stream = Stream::new(response.into_body(), connection);
            return follow(session, stream, purpose, is_stateless)
                .await
                .map(Some);
        }
        let body = whole(session, response, &mut connection, purpose).await?;
        session.give_back(connection);
        return take(session, body, status, purpose).await.map(|()| None);
    }
    if status == StatusCode::NOT_FOUND
        && session.is_named()
        && !matches!(purpose, Purpose::Opening(_))
    {
        return Err(Fault::Session);
    }
    let refusal = Refusal::read(session, response, connection).await;
    Err(Fault::Status(Box::new(refusal)))
}

/// The body of an answer that is no stream.
async fn take(
    session: &Session,
    body: Bytes,
    status: StatusCode,
    purpose: Purpose,
) -> Result<(), Fault> {
    let is_answered = tell(session, body, purpose).await;
    // One that is accepted may be answered on another stream.
    if is_answered || purpose == Purpose::Note || status == StatusCode::ACCEPTED {
        return Ok(());
    }
    Err(Fault::NoAnswer(
        "what it answered is no answer to this request",
    ))
}

/// Reads a stream up to the answer, over as many connections as it takes.
async fn follow(
    session: &Session,
    mut stream: Stream,
    purpose: Purpose,
    is_stateless: bool,
) -> Result<Stream, Fault> {
    let mut silent = 0;
    loop {
        let broken = match read(session, &mut stream, purpose, &mut silent).await {
            Read::Answered => return Ok(stream),
            Read::Ended(broken) => broken,
        };
        // A stateless request has no second chance: what its stream would have said is lost.
        let resumes = purpose != Purpose::Note && !is_stateless;
        let Some(after) = stream.last_id().filter(|_| resumes) else {
            return match broken {
                Some(error) => Err(Fault::Broken(Broken::Reset(error))),
                None if purpose == Purpose::Note => Ok(stream),
                None => Err(Fault::NoAnswer("its stream ended without the answer")),
            };
        };
        if silent >= RESUMES_MAX {
            return Err(Fault::NoAnswer(
                "its stream ends again and again without the answer",
            ));
        }
        sleep(stream.pause(silent)).await;
        silent += 1;
        let (response, connection) = session.send(&Asked::Get(Some(after))).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_named() {
            return Err(Fault::Session);
        }
        if !status.is_success() || !is_stream(response.headers()) {
            return Err(Fault::NoAnswer(
                "its stream ended without the answer and could not be taken up again",
            ));
        }
        stream.resume(response.into_body(), connection);
    }
}

/// How far a stream was read.
enum Read {
    /// Up to the answer.
    Answered,
    /// To its end, or to where it broke.
    Ended(Option<hyper::Error>),
}

async fn read(session: &Session, stream: &mut Stream, purpose: Purpose, silent: &mut u32) -> Read {
    loop {
        match stream.next().await {
            Next::Message(data) => {
                *silent = 0;
                if tell(session, data, purpose).await {
                    return Read::Answered;
                }
            }
            Next::TooLong(beginning) => {
                *silent = 0;
                let event = session.link().unread(beginning, Bytes::new()).await;
                if tell_event(session, event, purpose).await {
                    return Read::Answered;
                }
            }
            Next::End => return Read::Ended(None),
            Next::Broken(error) => return Read::Ended(Some(error)),
        }
    }
}

/// Reads what is left of a stream after the answer, so that its connection can be used again.
pub(super) async fn drain(session: &Session, stream: Option<Stream>) {
    let Some(mut stream) = stream else { return };
    let mut silent = 0;
    let rest = read(session, &mut stream, Purpose::Note, &mut silent);
    if let Ok(Read::Ended(None)) = timeout(REST_WAIT, rest).await {
        session.give_back(stream.into_connection());
    }
}

/// Tells what a message is; whether it is the answer.
async fn tell(session: &Session, text: Bytes, purpose: Purpose) -> bool {
    match session.link().read(in_one_line(text)).await {
        Some(event) => tell_event(session, event, purpose).await,
        None => false,
    }
}

async fn tell_event(session: &Session, event: LinkEvent, purpose: Purpose) -> bool {
    let answers = purpose.call().is_some_and(|call| answers(&event, call));
    match (purpose, &event) {
        (Purpose::Opening(_), LinkEvent::Received(message)) if answers => speak(session, message),
        (Purpose::Call(_), _) if answers => session.answered(),
        _ => {}
    }
    let event = match (event, purpose) {
        // What a call's own stream asks is for that call's client.
        (LinkEvent::Received(message), Purpose::Call(during))
            if message.kind() == Kind::Request =>
        {
            LinkEvent::Asked { message, during }
        }
        (event, _) => event,
    };
    session.link().tell(event).await;
    answers
}

/// A message of a body may have line ends between its tokens; where it goes, a line is a message.
pub(super) fn in_one_line(text: Bytes) -> Bytes {
    let Some(first) = memchr::memchr2(b'\n', b'\r', &text) else {
        return text;
    };
    let mut line = BytesMut::from(text);
    for byte in line.iter_mut().skip(first) {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.freeze()
}

/// The revision that the server chose.
fn speak(session: &Session, answer: &Message) {
    let revision = answer
        .result()
        .and_then(|result| member(result, "protocolVersion"));
    let revision = revision.and_then(|text| serde_json::from_str::<String>(text).ok());
    if let Some(revision) = revision {
        session.speak(&revision);
    }
}

fn answers(event: &LinkEvent, call: u64) -> bool {
    let is_it =
        |message: &Message| message.kind() == Kind::Response && message.our_id() == Some(call);
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only what was read can answer"
    )]
    match event {
        LinkEvent::Received(message) => is_it(message),
        LinkEvent::Unreadable {
            what: Unreadable::Batch(parts),
            ..
        } => {
            let mut parts = parts
                .iter()
                .filter_map(|part| Message::parse(part.clone()).ok());
            parts.any(|message| is_it(&message))
        }
        LinkEvent::Unreadable { what, .. } => {
            matches!(what.about(), Some(About::Answer(id)) if id.as_ours() == Some(call))
        }
        _ => false,
    }
}

/// A body read to its end; one past the bound is told as such, and read no further.
async fn whole(
    session: &Session,
    response: Response<Incoming>,
    connection: &mut Connection,
    purpose: Purpose,
) -> Result<Bytes, Fault> {
    let mut body = response.into_body();
    let reset = |error| Fault::Broken(Broken::Reset(error));
    let Some(first) = connection.piece(&mut body).await.map_err(reset)? else {
        return Ok(Bytes::new());
    };
    if body.is_end_stream() {
        return Ok(first);
    }
    let announced = body.size_hint().lower().try_into().unwrap_or(MESSAGE_MAX);
    let mut joined = BytesMut::with_capacity(first.len() + announced.min(MESSAGE_MAX));
    joined.extend_from_slice(&first);
    while let Some(piece) = connection.piece(&mut body).await.map_err(reset)? {
        joined.extend_from_slice(&piece);
        if joined.len() > MESSAGE_MAX {
            let event = session.link().unread(joined.freeze(), Bytes::new()).await;
            tell_event(session, event, purpose).await;
            return Err(Fault::NoAnswer(
                "its answer is longer than a message may be",
            ));
        }
    }
    Ok(joined.freeze())
}

pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    kind.get(..17)
        .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}
