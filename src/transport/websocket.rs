//! Servers as WebSockets. Reading and writing are tasks of their own, so that a server that stops reading never stops
//! our reading.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, Stream, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::link::{Link, holding, slot};
use super::settings::{Credential, WebSocket};
use super::upgrade::{self, Socket};
use super::vigil::{Due, Vigil};
use super::{Events, credential};
use crate::engine::input::{End, Failure, Reap};
use crate::ids::Epoch;
use crate::wire::framing::{self, FRAME_MAX, MESSAGE_MAX};
use crate::wire::redact::Secrets;

/// How long the peer may take to answer a close frame and to close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// RFC 6455 §7.1.5: a close frame without a code, and no close frame.
const NO_CODE: u16 = 1005;
const NO_CLOSE: u16 = 1006;

/// See [`super::dial`].
pub(super) fn dial(
    settings: Arc<WebSocket>,
    epoch: Epoch,
    events: Events,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    close: CancellationToken,
    launches: Arc<Semaphore>,
) {
    let link = Link::new(epoch, events, Secrets::new(&settings.secrets));
    tokio::spawn(async move {
        let opened = tokio::select! {
            biased;
            () = link.dismissed(&close) => None,
            opened = open(&settings, &link, launches) => Some(opened),
        };
        match opened {
            Some(Ok((socket, link))) => {
                serve(socket, &link, frames, settings.keep_alive, &close).await;
            }
            Some(Err(failure)) => link.failed(failure).await,
            None => link.lost(End::Operator, Vec::new()).await,
        }
        link.gone(Reap::Clean).await;
    });
}

/// Dials with the credential as it is now, and once more where it was refused and is by now another (R18). The link
/// that comes with the socket knows the credential as a secret.
async fn open(
    settings: &WebSocket,
    link: &Link,
    launches: Arc<Semaphore>,
) -> Result<(Socket, Link), Failure> {
    let mut known = resolve(&settings.credential, settings, link).await?;
    for is_last in [false, true] {
        let link = known
            .as_ref()
            .map_or(link.clone(), |token| link.with_secret(token));
        let slot = slot(Arc::clone(&launches)).await;
        let error = match holding(slot, upgrade::connect(settings, known.as_ref())).await {
            Ok(socket) => return Ok((socket, link)),
            Err(error) => error,
        };
        let failure = upgrade::failure(&error, settings, link.secrets());
        if is_last || !upgrade::refuses_credential(&error) {
            return Err(failure);
        }
        let fresh = resolve(&settings.credential, settings, &link).await?;
        if exposed(fresh.as_ref()) == exposed(known.as_ref()) {
            return Err(failure);
        }
        known = fresh;
    }
    Err(upgrade::refused("not dialed", settings, link.secrets()))
}

fn exposed(token: Option<&SecretString>) -> Option<&str> {
    token.map(ExposeSecret::expose_secret)
}

async fn resolve(
    from: &Credential,
    settings: &WebSocket,
    link: &Link,
) -> Result<Option<SecretString>, Failure> {
    let resolved = credential::resolve(from).await;
    resolved.map_err(|error| upgrade::refused(&error.to_string(), settings, link.secrets()))
}

async fn serve(
    socket: Socket,
    link: &Link,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    keep_alive: Duration,
    close: &CancellationToken,
) {
    link.tell_connected().await;
    let (sink, source) = socket.split();
    let (writer, pings) = Writer::start(sink, frames);
    let vigil = Vigil::new(keep_alive, Instant::now());
    let mut reader = Reader {
        source,
        link,
        vigil,
        pings,
    };
    let (end, code) = reader.run(close).await;
    link.lost(end, Vec::new()).await;
    writer.close(code, reader.rest()).await;
}

/// The sending half's task.
struct Writer {
    task: JoinHandle<()>,
    closing: oneshot::Sender<CloseCode>,
}

impl Writer {
    /// Starts it; a message through the sender makes it send a ping.
    fn start(
        sink: SplitSink<Socket, Message>,
        frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    ) -> (Self, mpsc::Sender<()>) {
        let (pings, to_ping) = mpsc::channel(1);
        let (closing, to_close) = oneshot::channel();
        let task = tokio::spawn(write(sink, frames, to_ping, to_close));
        (Self { task, closing }, pings)
    }

    /// Says that we close, unless the peer did, and reads what is still to come, for at most [`CLOSE_WAIT`].
    async fn close(self, code: CloseCode, rest: impl Future<Output = ()>) {
        let mut task = self.task;
        let _ = self.closing.send(code);
        let closed = async {
            rest.await;
            // Where nothing more can be read, the close frame may still wait to be written.
            let _ = (&mut task).await;
        };
        if timeout(CLOSE_WAIT, closed).await.is_err() {
            task.abort();
            let _ = task.await;
        }
    }
}

/// Writes until told to close or until the socket breaks; the reader sees that too.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    frames: impl Stream<Item = Bytes> + Unpin,
    mut to_ping: mpsc::Receiver<()>,
    mut to_close: oneshot::Receiver<CloseCode>,
) {
    // The end of the frames is not a close.
    let mut frames = frames.chain(futures_util::stream::pending());
    let code = loop {
        let message = tokio::select! {
            biased;
            code = &mut to_close => break code,
            Some(()) = to_ping.recv() => Message::Ping(Bytes::new()),
            Some(frame) = frames.next() => message(frame),
        };
        // A peer that stops reading must not keep us from closing.
        tokio::select! {
            code = &mut to_close => break code,
            sent = sink.send(message) => if sent.is_err() { return },
        }
    };
    let code = code.unwrap_or(CloseCode::Away);
    let reason = if code == CloseCode::Size {
        too_long().into()
    } else {
        Utf8Bytes::default()
    };
    let frame = CloseFrame { code, reason };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

fn message(frame: Bytes) -> Message {
    match Utf8Bytes::try_from(frame.clone()) {
        Ok(text) => Message::Text(text),
        Err(_) => Message::Binary(frame),
    }
}

/// The receiving half.
struct Reader<'a> {
    source: SplitStream<Socket>,
    link: &'a Link,
    vigil: Option<Vigil>,
    pings: mpsc::Sender<()>,
}

impl Reader<'_> {
    /// Reads until an end, and says with which code we close then.
    async fn run(&mut self, close: &CancellationToken) -> (End, CloseCode) {
        loop {
            let frame = tokio::select! {
                biased;
                () = self.link.dismissed(close) => return (End::Operator, CloseCode::Normal),
                frame = self.source.next() => frame,
                () = due(self.vigil.as_ref()) => {
                    if self.is_over() {
                        return (End::Liveness, CloseCode::Away);
                    }
                    continue;
                }
            };
            if let Some(vigil) = &mut self.vigil {
                vigil.heard(Instant::now());
            }
            match frame {
                Some(Ok(frame)) => {
                    if let Some(end) = self.take(frame).await {
                        return (end, CloseCode::Normal);
                    }
                }
                Some(Err(error)) => return self.broken(&error).await,
                None => return (unclosed(String::new()), CloseCode::Normal),
            }
        }
    }

    /// Sends a ping, or says that the peer is dead (R12).
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        match self.vigil.as_mut().map(|vigil| vigil.wake(now)) {
            Some(Due::Verdict) => true,
            Some(Due::Ping) => {
                // Where one still waits to be sent, the socket is full: another would say no more.
                let _ = self.pings.try_send(());
                false
            }
            None => false,
        }
    }

    /// Tells of the messages in a frame, or of the end that it is.
    async fn take(&mut self, frame: Message) -> Option<End> {
        match frame {
            Message::Text(text) => self.lines(text.into()).await,
            Message::Binary(bytes) => self.lines(bytes).await,
            Message::Close(frame) => return Some(self.closed(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
        None
    }

    /// One frame may carry several messages, each on a line. They are copied, for a frame shares its memory with those
    /// that were read with it.
    async fn lines(&self, frame: Bytes) {
        for line in framing::lines(&frame) {
            if line.len() > MESSAGE_MAX {
                self.link
                    .too_long(frame.slice_ref(line), Bytes::new())
                    .await;
            } else {
                self.link.received(Bytes::copy_from_slice(line)).await;
            }
        }
    }

    fn closed(&self, frame: Option<CloseFrame>) -> End {
        let code = frame.as_ref().map_or(NO_CODE, |frame| frame.code.into());
        let reason = frame.map_or(String::new(), |frame| {
            self.link.secrets().clean(&frame.reason)
        });
        End::Close { code, reason }
    }

    async fn broken(&self, error: &Error) -> (End, CloseCode) {
        match error {
            Error::Capacity(_) => {
                self.link.too_long(Bytes::new(), Bytes::new()).await;
                (End::Reset(format!("sent {}", too_long())), CloseCode::Size)
            }
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
            | Error::ConnectionClosed
            | Error::AlreadyClosed => (unclosed(String::new()), CloseCode::Normal),
            Error::Io(error) => (
                unclosed(self.link.secrets().clean(&error.to_string())),
                CloseCode::Normal,
            ),
            Error::Utf8(_) => (
                End::Reset("sent text that is no UTF-8".into()),
                CloseCode::Invalid,
            ),
            Error::Protocol(error) => (
                End::Reset(format!("broke the protocol: {error}")),
                CloseCode::Protocol,
            ),
            Error::Tls(_)
            | Error::WriteBufferFull(_)
            | Error::AttackAttempt
            | Error::Url(_)
            | Error::Http(_)
            | Error::HttpFormat(_) => (End::Reset("the connection broke".into()), CloseCode::Error),
        }
    }

    /// What still comes after the loss, until the peer closes.
    async fn rest(mut self) {
        while let Some(Ok(frame)) = self.source.next().await {
            self.take(frame).await;
        }
    }
}

/// Ends when a vigil is due.
async fn due(vigil: Option<&Vigil>) {
    match vigil {
        Some(vigil) => tokio::time::sleep_until(vigil.due()).await,
        None => std::future::pending().await,
    }
}

fn too_long() -> String {
    format!("a message longer than {FRAME_MAX} bytes")
}

fn unclosed(reason: String) -> End {
    End::Close {
        code: NO_CLOSE,
        reason,
    }
}
