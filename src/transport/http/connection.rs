//! Connections to one HTTP server: opened to the address that the epoch began with, driven by whoever uses one, and
//! kept for the next request. It knows no message.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::MaybeTlsStream;

use crate::transport::upgrade;

/// A connection without a request is used again for so long, unless its server says how long it keeps one: many close
/// it after 5 s, and a request that meets that close may have run.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// So much sooner than the server says that it will close.
const IDLE_MARGIN: Duration = Duration::from_secs(1);
/// However long the server says.
const IDLE_LONGEST: Duration = Duration::from_secs(60);
/// A stream may be silent for hours: the kernel asks after so long, so often and so many times whether its other end
/// is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(20);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMES: u32 = 3;

type Body = Full<Bytes>;
type Stream = MaybeTlsStream<TcpStream>;

/// The connections of one epoch, which all go to one instance of the server.
#[derive(Debug)]
pub(super) struct Pool {
    url: Url,
    connect_timeout: Duration,
    address: OnceLock<SocketAddr>,
    idle: Mutex<Vec<Connection>>,
}

/// Why there is no answer to a request.
#[derive(Debug)]
pub(super) enum Broken {
    /// No connection could be opened.
    Unreachable(io::Error),
    /// The connection ended first.
    Reset(hyper::Error),
}

/// A connection that nobody else uses. It moves only while something of it is awaited.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Body>,
    driver: Option<http1::Connection<TokioIo<Stream>, Body>>,
    /// How long it may be idle, and since when it is.
    keep: Duration,
    idle_since: Instant,
}

impl Pool {
    pub(super) fn new(url: Url, connect_timeout: Duration) -> Self {
        Self {
            url,
            connect_timeout,
            address: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    /// Opens a connection and keeps it for the first request.
    ///
    /// # Errors
    /// Where nobody answers there.
    pub(super) async fn warm(&self) -> io::Result<()> {
        let connection = self.connect().await?;
        self.give_back(connection);
        Ok(())
    }

    /// Sends a request over an idle connection, or over a new one. A request that a stale connection did not take is
    /// sent again; one that may have been read is not.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<(Response<Incoming>, Connection), Broken> {
        loop {
            let idle = self.idle();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await.map_err(Broken::Unreachable)?,
            };
            let sending = connection.sender.try_send_request(request);
            let sent = drive(&mut connection.driver, sending).await;
            let mut error = match sent {
                Ok(response) => {
                    connection.keep = keep(response.headers());
                    return Ok((response, connection));
                }
                Err(error) => error,
            };
            match error.take_message().filter(|_| !is_new) {
                Some(unsent) => request = unsent,
                None => return Err(Broken::Reset(error.into_error())),
            }
        }
    }

    /// Keeps a connection whose response was read to its end, where its server keeps it too.
    pub(super) fn give_back(&self, mut connection: Connection) {
        if !connection.is_ready() {
            return;
        }
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Connection::is_fresh);
        idle.push(connection);
    }

    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |connection: &mut Connection| connection.is_fresh() && connection.is_ready();
        std::iter::from_fn(|| idle.pop())
            .find_map(|mut connection| usable(&mut connection).then_some(connection))
    }

    async fn connect(&self) -> io::Result<Connection> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, self.lateness());
        timeout(self.connect_timeout, self.open())
            .await
            .map_err(late)?
    }

    fn lateness(&self) -> String {
        let within = self.connect_timeout.as_secs_f64();
        format!("not connected within {within} s")
    }

    async fn open(&self) -> io::Result<Connection> {
        let socket = self.dial().await?;
        socket.set_nodelay(true)?;
        keep_alive(&socket)?;
        let stream = self.secured(socket).await?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(io::Error::other)?;
        Ok(Connection {
            sender,
            driver: Some(driver),
            keep: IDLE_MAX,
            idle_since: Instant::now(),
        })
    }

    /// A session may be known to one instance of a server alone, so the first address that answers is the epoch's.
    async fn dial(&self) -> io::Result<TcpStream> {
        if let Some(address) = self.address.get() {
            return TcpStream::connect(address).await;
        }
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((bare, port)).await?;
        let _ = self.address.set(socket.peer_addr()?);
        Ok(socket)
    }

    async fn secured(&self, socket: TcpStream) -> io::Result<Stream> {
        if self.url.scheme() != "https" {
            return Ok(MaybeTlsStream::Plain(socket));
        }
        let host = self.url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
        let tls = TlsConnector::from(upgrade::tls()?);
        let stream = tls.connect(name, socket).await;
        let stream = stream.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")));
        Ok(MaybeTlsStream::Rustls(stream?))
    }
}

impl Connection {
    /// The next piece of a response's body; `None` at its end.
    pub(super) async fn piece(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            let frame = drive(&mut self.driver, http_body_util::BodyExt::frame(body)).await;
            match frame.transpose()?.map(Frame::into_data) {
                None => return Ok(None),
                Some(Ok(piece)) if !piece.is_empty() => return Ok(Some(piece)),
                // An empty piece or a trailer.
                Some(_) => {}
            }
        }
    }

    fn is_fresh(&self) -> bool {
        self.idle_since.elapsed() < self.keep
    }

    /// Its other end has not closed it, and a request could be sent now.
    fn is_ready(&mut self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        turn(&mut self.driver, &mut now);
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// How long a server says that it keeps a connection (`Keep-Alive: timeout=N`).
fn keep(headers: &HeaderMap) -> Duration {
    let said = headers
        .get("keep-alive")
        .and_then(|value| value.to_str().ok());
    let seconds = said.and_then(|said| {
        let mut parts = said.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix("timeout=")?.parse().ok())
    });
    seconds.map_or(IDLE_MAX, |seconds| {
        let kept = Duration::from_secs(seconds).min(IDLE_LONGEST);
        kept.saturating_sub(IDLE_MARGIN)
    })
}

fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_TIMES)?;
    Ok(())
}

type Driver = Option<http1::Connection<TokioIo<Stream>, Body>>;

/// Awaits what comes over a connection while it moves: in one task, so that no other has to be woken.
async fn drive<T>(driver: &mut Driver, it: impl Future<Output = T>) -> T {
    let mut it = pin!(it);
    std::future::poll_fn(|cx| {
        turn(driver, cx);
        it.as_mut().poll(cx)
    })
    .await
}

/// Moves a connection; one that is over is let go. Why it ended is told to who awaits its answer.
fn turn(driver: &mut Driver, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && let Poll::Ready(_) = std::pin::Pin::new(connection).poll(cx)
    {
        *driver = None;
    }
}
