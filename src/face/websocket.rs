//! MCPL, or plain MCP, over WebSocket on `/mcpl/{server}` and `/mcp/{server}`, and plain MCP of all servers on `/mcp`:
//! one JSON-RPC message per text frame; several newline-separated ones in a frame are accepted.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message as Frame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Query, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;
use tokio_tungstenite::tungstenite;

use super::access::{Access, Denial};
use super::{Directory, Inbound, Outgoing, Refusal, head, reading};
use crate::engine::input::HostEvent;
use crate::engine::liveness::{Keepalive, Verdict};
use crate::wire::framing::{self, FRAME_MAX};

/// What an idle socket holds to read into, in bytes. Each read zeroes it, and a long frame is read in such parts.
const READ_ROOM: usize = 16 << 10;
/// Silence after which a host is pinged (R12).
const SILENCE: Duration = Duration::from_secs(20);
/// Frames that go to a host in one write at most.
const AT_ONCE: usize = 64;
/// How long one write may take; a host that reads nothing for so long is gone.
const WRITE_MAX: Duration = Duration::from_secs(20);
/// How long the close frame may take.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What a session needs.
#[derive(Clone, Debug)]
pub(super) struct Face<D> {
    directory: D,
    access: watch::Receiver<Access>,
}

#[derive(Deserialize)]
struct Params {
    token: Option<String>,
}

impl<D: Directory> Face<D> {
    /// A change of `access` closes the sessions that it no longer admits (4401).
    pub(super) fn new(directory: D, access: watch::Receiver<Access>) -> Self {
        Self { directory, access }
    }
}

/// Opens a session with a server, or with all.
pub(super) async fn upgrade<D: Directory>(
    face: Face<D>,
    server: Option<String>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let params = Query::<Params>::try_from_uri(&parts.uri);
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let visit = Visit {
        server,
        headers: parts.headers,
        query: params.ok().and_then(|Query(params)| params.token),
    };
    let name = match visit.admitted(&face.access.borrow()) {
        Ok(name) => name,
        Err(denial) => return turned_away(denial),
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade
            .read_buffer_size(READ_ROOM)
            .max_message_size(FRAME_MAX)
            .max_frame_size(FRAME_MAX),
        Err(rejection) => return rejection.into_response(),
    };
    let server = visit.server.as_deref().unwrap_or_default();
    match face.directory.open(server, name.as_deref()) {
        Ok((inbound, outbound)) => {
            upgrade.on_upgrade(move |socket| serve(socket, inbound, outbound, visit, face.access))
        }
        Err(refusal) => (status(refusal), refusal.to_string()).into_response(),
    }
}

/// One request to open a session, kept so that a change of the tokens can judge it again.
struct Visit {
    /// `None` asks for all that the token covers.
    server: Option<String>,
    headers: HeaderMap,
    query: Option<String>,
}

impl Visit {
    fn admitted(&self, access: &Access) -> Result<Option<String>, Denial> {
        let token = head::bearer(&self.headers).or(self.query.as_deref());
        access
            .admit(&self.headers, token, self.server.as_deref())
            .map(|name| name.map(str::to_owned))
    }
}

fn turned_away(denial: Denial) -> Response {
    let status = match denial {
        Denial::Unauthorized => StatusCode::UNAUTHORIZED,
        Denial::Forbidden | Denial::Origin | Denial::Host => StatusCode::FORBIDDEN,
    };
    (status, denial.to_string()).into_response()
}

fn status(refusal: Refusal) -> StatusCode {
    match refusal {
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::Full => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Runs one session to its end: reading and writing never wait for each other.
async fn serve<I: Inbound>(
    socket: WebSocket,
    inbound: I,
    outbound: impl futures_util::Stream<Item = Outgoing> + Send + Unpin,
    visit: Visit,
    access: watch::Receiver<Access>,
) {
    let (sink, stream) = socket.split();
    let pulse = Mutex::new(Keepalive::new(SILENCE, now()));
    let (accuse, fault) = oneshot::channel();
    tokio::select! {
        () = read(stream, &inbound, &pulse, accuse) => {}
        () = write(sink, outbound, &pulse, visit, access, fault) => {}
    }
    inbound.send(HostEvent::Detached).await;
}

async fn read(
    mut stream: SplitStream<WebSocket>,
    inbound: &impl Inbound,
    pulse: &Mutex<Keepalive>,
    accuse: oneshot::Sender<Fault>,
) {
    while let Some(frame) = stream.next().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return tell_fault(error, accuse).await,
        };
        if let Ok(mut pulse) = pulse.lock() {
            pulse.heard(now());
        }
        let bytes = match frame {
            Frame::Text(text) => Bytes::from(text),
            Frame::Binary(bytes) => bytes,
            Frame::Close(_) => return,
            Frame::Ping(_) | Frame::Pong(_) => continue,
        };
        for line in framing::lines(&bytes) {
            if !inbound.send(event(bytes.slice_ref(line)).await).await {
                return;
            }
        }
    }
}

/// A breach of the WebSocket protocol: the close code and reason that RFC 6455 has for it.
type Fault = (u16, &'static str);

/// Lets the writer close with what is wrong, and ends with it; a connection that is gone needs no words.
async fn tell_fault(error: axum::Error, accuse: oneshot::Sender<Fault>) {
    let fault = match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(_)) => (1009, "a frame is longer than 32 MiB"),
        Some(tungstenite::Error::Utf8(_)) => (1007, "a text frame is not UTF-8"),
        Some(tungstenite::Error::Protocol(error)) if !is_end(error) => (1002, "not WebSocket"),
        _ => return,
    };
    tracing::info!(
        "a host's connection is closed with {}: {}",
        fault.0,
        fault.1
    );
    if accuse.send(fault).is_ok() {
        std::future::pending().await
    }
}

fn is_end(error: &tungstenite::error::ProtocolError) -> bool {
    matches!(
        error,
        tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
    )
}

async fn event(line: Bytes) -> HostEvent {
    let parsed = reading::read(line).await;
    parsed.map_or_else(HostEvent::Unreadable, HostEvent::Received)
}

type Sink = SplitSink<WebSocket, Frame>;

async fn write(
    mut sink: Sink,
    mut outbound: impl futures_util::Stream<Item = Outgoing> + Unpin,
    pulse: &Mutex<Keepalive>,
    visit: Visit,
    mut access: watch::Receiver<Access>,
    mut fault: oneshot::Receiver<Fault>,
) {
    loop {
        let due = pulse
            .lock()
            .ok()
            .and_then(|pulse| pulse.due())
            .unwrap_or_else(|| now() + SILENCE);
        let sent = tokio::select! {
            outgoing = outbound.next() => match outgoing {
                Some(Outgoing::Frame(frame) | Outgoing::Regarding(_, frame)) => {
                    match send(&mut sink, frame, &mut outbound).await {
                        Ok(Some((code, reason))) => return close(sink, code, reason).await,
                        sent => sent.map(drop),
                    }
                }
                Some(Outgoing::Close { code, reason }) => return close(sink, code, reason).await,
                None => return close(sink, 1001, "the gateway is stopping").await,
            },
            () = sleep_until(due.into()) => match wake(pulse) {
                Verdict::Wait => Ok(()),
                Verdict::Ping => sink.send(Frame::Ping(Bytes::new())).await,
                Verdict::Lost => return,
            },
            Ok((code, reason)) = &mut fault => return close(sink, code, reason).await,
            Ok(()) = access.changed() => {
                if visit.admitted(&access.borrow_and_update()).is_err() {
                    return close(sink, 4401, "the token is no longer valid").await;
                }
                Ok(())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn wake(pulse: &Mutex<Keepalive>) -> Verdict {
    pulse
        .lock()
        .map_or(Verdict::Lost, |mut pulse| pulse.wake(now()))
}

/// Sends a frame, and in one write with it what else waits; the close that is to follow, where one waits.
async fn send(
    sink: &mut Sink,
    frame: Bytes,
    outbound: &mut (impl futures_util::Stream<Item = Outgoing> + Unpin),
) -> Result<Option<(u16, &'static str)>, axum::Error> {
    let all = async {
        feed(sink, frame).await?;
        for _ in 1..AT_ONCE {
            match outbound.next().now_or_never().flatten() {
                Some(Outgoing::Frame(frame) | Outgoing::Regarding(_, frame)) => {
                    feed(sink, frame).await?;
                }
                Some(Outgoing::Close { code, reason }) => {
                    sink.flush().await?;
                    return Ok(Some((code, reason)));
                }
                // That there is no more will be told again.
                None => break,
            }
        }
        sink.flush().await?;
        Ok(None)
    };
    let sent = tokio::time::timeout(WRITE_MAX, all).await;
    sent.unwrap_or_else(|late| Err(axum::Error::new(late)))
}

async fn feed(sink: &mut Sink, frame: Bytes) -> Result<(), axum::Error> {
    // Every message was parsed as UTF-8 or is our own.
    let Ok(text) = Utf8Bytes::try_from(frame) else {
        return Ok(());
    };
    sink.feed(Frame::Text(text)).await
}

async fn close(mut sink: Sink, code: u16, reason: &'static str) {
    let frame = Frame::Close(Some(CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason),
    }));
    let _ = tokio::time::timeout(CLOSE_WAIT, sink.send(frame)).await;
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::jsonrpc::Unreadable;

    #[tokio::test]
    async fn a_frame_may_carry_several_messages() {
        let frame = Bytes::from_static(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n {\"jsonrpc\":\"2.0\",\"method\":\"m\"} \r\nx",
        );
        let lines: Vec<Bytes> = framing::lines(&frame)
            .map(|line| frame.slice_ref(line))
            .collect();
        assert_eq!(lines.len(), 3);
        let mut seen = Vec::new();
        for line in lines {
            seen.push(event(line).await);
        }
        assert!(matches!(&seen[0], HostEvent::Received(m) if m.method() == "ping"));
        assert!(matches!(&seen[1], HostEvent::Received(m) if m.method() == "m"));
        assert!(matches!(
            &seen[2],
            HostEvent::Unreadable(Unreadable::NotJson)
        ));
    }
}
