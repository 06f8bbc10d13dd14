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

/// A stream that ends sooner earns a wait before the next: one that says nothing an ever longer one.
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
        let step;
        (brief, step) = follows(brief, is_silent, opened.elapsed());
        sleep(stream.pause(step)).await;
        let (body, connection) = reopen(session, &stream).await?;
        stream.resume(body, connection);
    }
}

/// After so many brief streams in a row and one more that lived so long: how many there are now, and which step of the
/// wait comes before the next. One that spoke is had again at once, but not again and again.
fn follows(brief: u32, is_silent: bool, life: Duration) -> (u32, u32) {
    if life >= BRIEF {
        return (0, 0);
    }
    if is_silent {
        return (brief.saturating_add(1), brief.saturating_add(1));
    }
    (1, brief.min(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_ends_soon_is_not_opened_in_a_loop_whether_it_speaks_or_not() {
        let steps = |is_silent, life| {
            let mut brief = 0;
            std::iter::repeat_with(move || {
                let step;
                (brief, step) = follows(brief, is_silent, life);
                step
            })
            .take(4)
            .collect::<Vec<_>>()
        };
        assert_eq!(steps(true, Duration::ZERO), [1, 2, 3, 4]);
        assert_eq!(steps(false, Duration::ZERO), [0, 1, 1, 1]);
        assert_eq!(steps(true, BRIEF), [0; 4]);
        assert_eq!(steps(false, BRIEF), [0; 4]);
    }
}
