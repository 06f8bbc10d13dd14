//! The stream of a server's own messages, opened once the session serves and again whenever it ends. Where the server
//! has none that is no fault.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::exchange::{in_one_line, is_stream};
use super::fault::Fault;
use super::refusal::Refusal;
use super::session::{Asked, Session};
use super::stream::{Next, Stream};

/// A stream that ends sooner, and says nothing, earns a longer wait before the next.
const BRIEF: Duration = Duration::from_secs(5);

/// Tells what the server says of its own for as long as it has such a stream.
///
/// # Errors
/// What ends the session: a stream that was lost and is not had again at once (R19).
pub(super) async fn listen(session: &Session) -> Result<(), Fault> {
    let Some(mut stream) = open(session, None).await? else {
        return Ok(());
    };
    let mut brief = 0;
    loop {
        let opened = Instant::now();
        let is_silent = hear(session, &mut stream).await;
        brief = if is_silent && opened.elapsed() < BRIEF {
            brief + 1
        } else {
            0
        };
        sleep(stream.pause(brief)).await;
        let (body, connection) = reopen(session, &stream).await?;
        stream.resume(body, connection);
    }
}

/// Opens it; `None` where the server has none.
async fn open(session: &Session, after: Option<Box<str>>) -> Result<Option<Stream>, Fault> {
    let (response, connection) = session.send(&Asked::Get(after)).await?;
    if response.status().is_success() && is_stream(response.headers()) {
        return Ok(Some(Stream::new(response.into_body(), connection)));
    }
    Ok(None)
}

async fn reopen(session: &Session, stream: &Stream) -> Result<(Incoming, Connection), Fault> {
    let (response, connection) = session.send(&Asked::Get(stream.last_id())).await?;
    let status = response.status();
    if status == StatusCode::NOT_FOUND && session.is_named() {
        return Err(Fault::Session);
    }
    if !status.is_success() {
        let refusal = Refusal::read(session, response, connection).await;
        return Err(Fault::Status(Box::new(refusal)));
    }
    Ok((response.into_body(), connection))
}

/// Reads it to its end; whether it said nothing.
async fn hear(session: &Session, stream: &mut Stream) -> bool {
    let mut is_silent = true;
    loop {
        match stream.next().await {
            Next::Message(data) => session.link().received(in_one_line(data)).await,
            Next::TooLong(beginning) => session.link().too_long(beginning, Bytes::new()).await,
            Next::End | Next::Broken(_) => return is_silent,
        }
        is_silent = false;
    }
}
