//! Servers of Streamable HTTP, in the revisions that have sessions. One task serves an epoch: it posts what the engine
//! says, many messages at once, and tells what comes back, on whichever stream.

mod connection;
mod exchange;
mod fault;
mod listen;
mod refusal;
mod session;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::exchange::Purpose;
use self::fault::Fault;
use self::session::{Asked, Session};
use self::stream::Stream;
use super::link::{Link, holding, slot};
use super::settings::Http;
use super::{Events, Frame};
use crate::engine::input::{End, Failure, LinkEvent, Reap};
use crate::ids::Epoch;
use crate::wire::jsonrpc::{Message, member};
use crate::wire::mcp::method;
use crate::wire::redact::Secrets;

/// Calls under way at once, each on a connection of its own; more are not sent.
const CALLS_MAX: usize = 512;
/// Notifications and answers that wait for those before them.
const NOTES_MAX: usize = 1_000;
/// A longer notification is not looked at for what it cancels, in bytes.
const CANCEL_MAX: usize = 8 << 10;
/// How long the answer to a cancelled call may still come (A5).
const CANCELLED_WAIT: Duration = Duration::from_secs(10);
/// A notification whose POST is not answered for so long is given up, so that those behind it are sent.
const NOTE_WAIT: Duration = Duration::from_secs(10);
/// How long the server may take to end the session.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// See [`super::dial`].
pub(super) fn dial(
    settings: Arc<Http>,
    epoch: Epoch,
    events: Events,
    mut frames: impl futures_util::Stream<Item = Frame> + Send + Unpin + 'static,
    close: CancellationToken,
    launches: Arc<Semaphore>,
) {
    let link = Link::new(epoch, events, Secrets::new(&settings.secrets));
    tokio::spawn(async move {
        let opened = tokio::select! {
            biased;
            () = link.dismissed(&close) => None,
            opened = open(&settings, &link, &mut frames, launches) => Some(opened),
        };
        match opened {
            Some(Ok(serving)) => serving.run(frames, &close).await,
            Some(Err(failure)) => link.failed(failure).await,
            None => link.lost(End::Operator, Vec::new()).await,
        }
        link.gone(Reap::Clean).await;
    });
}

/// Connects, and begins the session with the first request that is to be sent.
async fn open(
    settings: &Arc<Http>,
    link: &Link,
    frames: &mut (impl futures_util::Stream<Item = Frame> + Unpin),
    launches: Arc<Semaphore>,
) -> Result<Serving, Failure> {
    let slot = slot(launches).await;
    let session = holding(slot, Session::begin(Arc::clone(settings), link.clone())).await;
    let session = session.map_err(|fault| fault.failure(link, &settings.url))?;
    session.link().tell_connected().await;
    let session = Arc::new(session);
    let (mut frame, mut id) = first_request(frames).await;
    loop {
        let rest = begin(&session, &frame, id).await;
        let rest = rest.map_err(|fault| fault.failure(&session.link(), &settings.url))?;
        let mut serving = Serving::new(Arc::clone(&session), frame.is_stateless());
        serving.drain(rest);
        if !frame.is_stateless() {
            return Ok(serving);
        }
        // A server that is no stateless one is asked for a session next.
        let Some(next) = frames.next().await else {
            return Ok(serving);
        };
        match next.request {
            Some(asked) if !next.is_stateless() => (frame, id) = (next, asked),
            _ => {
                serving.take(next).await;
                return Ok(serving);
            }
        }
    }
}

/// Posts the request that says what the server is. What it answers is the engine's to judge, e.g. of the revision; and
/// whatever an old server says to a stateless request.
async fn begin(session: &Session, frame: &Frame, id: u64) -> Result<Option<Stream>, Fault> {
    let fault = match exchange::ask(session, frame, Purpose::Opening(id)).await {
        Ok(rest) => return Ok(rest),
        Err(fault) => fault,
    };
    if let Fault::Status(refusal) = &fault
        && refusal.is_verdict()
    {
        let answer = refusal.answer(id, String::new());
        session.link().received(answer).await;
        return Ok(None);
    }
    let is_of_request = match &fault {
        Fault::Status(refusal) => refusal.is_of_request(),
        Fault::NoAnswer(_) => true,
        Fault::Broken(_)
        | Fault::Session
        | Fault::Elsewhere(_)
        | Fault::Redirects
        | Fault::Credential(_)
        | Fault::Unusable(_) => false,
    };
    if !frame.is_stateless() || !is_of_request {
        return Err(fault);
    }
    exchange::fail(session, Some(id), &fault).await;
    Ok(None)
}

/// Nothing but `initialize` can be sent before a session.
async fn first_request(
    frames: &mut (impl futures_util::Stream<Item = Frame> + Unpin),
) -> (Frame, u64) {
    while let Some(frame) = frames.next().await {
        if let Some(id) = frame.request {
            return (frame, id);
        }
    }
    std::future::pending().await
}

/// What has come to its end.
enum Done {
    /// A call.
    Call(u64, Result<(), Fault>),
    /// A notification or an answer of ours.
    Note(Result<(), Fault>),
    /// The stream of the server's own messages.
    Stream(Result<(), Fault>),
    /// The wait for the answer to a cancelled call.
    Cancelled(u64),
    /// Nothing that anything waits for.
    Rest,
}

/// A session that serves.
struct Serving {
    session: Arc<Session>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    calls: BTreeMap<u64, AbortHandle>,
    /// Posted one after another, in their order.
    notes: VecDeque<Bytes>,
    noting: bool,
    /// The handshake's last message was taken: before that nothing else is sent.
    ready: bool,
    /// There is no session: each request stands alone, and its connection's close cancels it.
    stateless: bool,
}

impl Serving {
    fn new(session: Arc<Session>, stateless: bool) -> Self {
        Self {
            session,
            under_way: FuturesUnordered::new(),
            calls: BTreeMap::new(),
            notes: VecDeque::new(),
            noting: false,
            ready: stateless,
            stateless,
        }
    }

    /// Reads what is left of the first stream.
    fn drain(&self, rest: Option<Stream>) {
        let session = Arc::clone(&self.session);
        self.start(async move {
            exchange::drain(&session, rest).await;
            Done::Rest
        });
    }

    fn start(&self, work: impl Future<Output = Done> + Send + 'static) {
        self.under_way.push(work.boxed());
    }

    async fn run(
        mut self,
        frames: impl futures_util::Stream<Item = Frame> + Unpin,
        close: &CancellationToken,
    ) {
        // The end of the frames is not a close.
        let mut frames = frames.chain(futures_util::stream::pending());
        let link = self.session.link();
        let mut dismissed = pin!(link.dismissed(close));
        let end = loop {
            let accepts = self.ready || !self.noting;
            tokio::select! {
                biased;
                () = &mut dismissed => break End::Operator,
                Some(done) = self.under_way.next() => {
                    if let Err(fault) = self.finish(done) {
                        break fault.end(&self.session.link());
                    }
                }
                Some(frame) = frames.next(), if accepts => self.take(frame).await,
            }
        };
        self.leave(end).await;
    }

    /// Goes on after something that has ended.
    fn finish(&mut self, done: Done) -> Result<(), Fault> {
        match done {
            Done::Call(id, done) => {
                self.calls.remove(&id);
                done
            }
            Done::Note(done) => {
                self.noting = false;
                if !std::mem::replace(&mut self.ready, true) {
                    self.listen();
                }
                self.note();
                done
            }
            Done::Stream(done) => done,
            Done::Cancelled(id) => {
                if let Some(call) = self.calls.remove(&id) {
                    call.abort();
                }
                Ok(())
            }
            Done::Rest => Ok(()),
        }
    }

    async fn take(&mut self, frame: Frame) {
        let is_full = match frame.request {
            Some(_) => self.calls.len() >= CALLS_MAX,
            None => self.notes.len() >= NOTES_MAX,
        };
        if is_full {
            let unsent = LinkEvent::Unsent {
                request: frame.request,
                frame: frame.bytes,
            };
            return self.session.link().tell(unsent).await;
        }
        match frame.request {
            Some(id) => self.call(id, frame),
            None if self.stateless => self.cancel(&frame.bytes),
            None => {
                self.see_what_it_cancels(&frame.bytes);
                self.notes.push_back(frame.bytes);
                self.note();
            }
        }
    }

    fn call(&mut self, id: u64, frame: Frame) {
        let session = Arc::clone(&self.session);
        let (abort, registration) = AbortHandle::new_pair();
        self.calls.insert(id, abort);
        let call = Abortable::new(
            async move { exchange::post(&session, frame).await },
            registration,
        );
        self.start(call.map(move |done| Done::Call(id, done.unwrap_or(Ok(())))));
    }

    /// Posts the next notification, where none is under way.
    fn note(&mut self) {
        if self.noting {
            return;
        }
        let Some(bytes) = self.notes.pop_front() else {
            return;
        };
        self.noting = true;
        let session = Arc::clone(&self.session);
        self.start(async move {
            let frame = Frame::new(bytes, None);
            let posted = timeout(NOTE_WAIT, exchange::post(&session, frame)).await;
            Done::Note(posted.unwrap_or(Ok(())))
        });
    }

    fn listen(&self) {
        let session = Arc::clone(&self.session);
        self.start(async move { Done::Stream(listen::listen(&session).await) });
    }

    /// The only notification that a stateless server has is the end of a request's connection.
    fn cancel(&mut self, frame: &Bytes) {
        let call = cancelled(frame).and_then(|id| self.calls.remove(&id));
        if let Some(call) = call {
            call.abort();
        }
    }

    /// Nothing more may come for a cancelled call, and the server need not say so.
    fn see_what_it_cancels(&self, frame: &Bytes) {
        if let Some(id) = cancelled(frame).filter(|id| self.calls.contains_key(id)) {
            self.start(sleep(CANCELLED_WAIT).map(move |()| Done::Cancelled(id)));
        }
    }

    /// Tells the end, and tells the server where the session is ours to end.
    async fn leave(self, end: End) {
        let is_ours = end == End::Operator && self.session.is_named();
        let session = Arc::clone(&self.session);
        drop(self);
        session.link().lost(end, Vec::new()).await;
        if is_ours {
            let _ = timeout(CLOSE_WAIT, session.send(&Asked::Delete)).await;
        }
    }
}

/// The id of the call that a notification cancels.
fn cancelled(frame: &Bytes) -> Option<u64> {
    if frame.len() > CANCEL_MAX {
        return None;
    }
    let message = Message::parse(frame.clone()).ok();
    let cancel = message.filter(|message| message.method() == method::CANCELLED)?;
    member(cancel.params()?, "requestId")?.parse().ok()
}
