//! Which stream of a session each of its messages goes on, and which connection reads that. A POST has a stream of its
//! own, and begins one only where something comes before its answer; each GET has one, for what belongs to no call.
//! What is kept for a connection that is away, or that asks again, is bounded for the session as a whole.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::Notify;

use super::log::{Event, Log};
use crate::engine::output::Regards;
use crate::wire::jsonrpc::{Error, Kind, Message, RequestId, code, error_response};
use crate::wire::mcp::method;

/// Events that a session keeps.
const EVENTS_MAX: usize = 1_000;
/// The same in bytes; a single one may be larger.
const BYTES_MAX: usize = 1 << 20;
/// GET streams of one session that are read at a time, and as many that are remembered.
const LISTENERS_MAX: usize = 8;

/// The streams of one session.
#[derive(Debug)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// Told when there may be room again for what did not fit.
    room: Notify,
}

/// What a connection is given next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An event: its number on its stream, and the message.
    Event(u64, Bytes),
    /// So many events are not kept any more.
    Gap(u64),
}

/// What comes first on a POST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Its answers, all of them; none where it was cancelled.
    Answers(Vec<Bytes>),
    /// Something else: it is a stream.
    Stream,
}

/// What is kept took no more: the message did not fit, and comes back.
#[derive(Debug)]
pub(super) struct Crowded(pub(super) Option<Regards>, pub(super) Bytes);

/// The session has as many GET streams as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// There is no such stream, or nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<u64, Stream>,
    /// The requests under way, by the id under which they were sent on.
    calls: BTreeMap<RequestId, Call>,
    /// The number of the next stream, and the place of the next event.
    next: u64,
    at: u64,
    events: usize,
    bytes: usize,
    /// Events that nobody took and that were forgotten.
    missed: u64,
    /// A request of the server's was among them: its session is of no use any more.
    unheard: bool,
    over: bool,
    /// A message waits for room.
    crowded: bool,
}

#[derive(Debug)]
struct Stream {
    purpose: Purpose,
    log: Log,
    /// How many events that other streams forgot its connection has to be told of.
    inherited: u64,
    /// The connection that reads it, of those that did.
    turn: u64,
    is_read: bool,
    waker: Option<Waker>,
}

#[derive(Debug, PartialEq, Eq)]
enum Purpose {
    /// For what belongs to no call.
    Listen,
    /// For the answers to the requests of a POST.
    Post {
        /// How many are still to come.
        owed: usize,
        /// Those that came, until something else did.
        answers: Option<Vec<Bytes>>,
    },
}

#[derive(Debug)]
struct Call {
    stream: u64,
    /// The progress token that the client chose.
    token: Option<Box<str>>,
    /// The client's id, where another call had it already.
    original: Option<RequestId>,
}

impl Streams {
    pub(super) fn new() -> Arc<Self> {
        let mut state = State::default();
        // For what comes before the first GET.
        state.add(Purpose::Listen, false);
        Arc::new(Self {
            state: Mutex::new(state),
            room: Notify::new(),
        })
    }

    /// A POST with these requests; they come back as they are to be sent on. One whose id is in flight already is sent
    /// on under another, so that each answer finds its own POST (A2).
    pub(super) fn expect(self: &Arc<Self>, requests: Vec<Message>) -> (Reader, Vec<Message>) {
        let mut state = self.state();
        let purpose = Purpose::Post {
            owed: requests.len(),
            answers: Some(Vec::new()),
        };
        let stream = state.add(purpose, true);
        let requests = requests.into_iter();
        let requests = requests.map(|request| state.begin_call(stream, request));
        let requests = requests.collect();
        (self.reader(stream, 0), requests)
    }

    /// A GET: it takes over what waits on streams that nobody reads.
    pub(super) fn listen(self: &Arc<Self>) -> Result<Reader, TooMany> {
        let mut state = self.state();
        let read = state.listeners().filter(|(_, stream)| stream.is_read);
        if read.count() >= LISTENERS_MAX {
            return Err(TooMany);
        }
        let stream = state.add(Purpose::Listen, true);
        state.adopt(stream);
        Ok(self.reader(stream, 0))
    }

    /// A GET that goes on after an event of a stream. A connection that still reads that stream ends.
    pub(super) fn resume(self: &Arc<Self>, number: u64, after: u64) -> Result<Reader, Gone> {
        let mut state = self.state();
        let stream = state.streams.get_mut(&number).ok_or(Gone)?;
        if !stream.has_begun() {
            return Err(Gone);
        }
        if !stream.log.rewind(after) {
            return Err(Gone);
        }
        stream.turn += 1;
        stream.is_read = true;
        stream.wake();
        let turn = stream.turn;
        if !stream.is_post() {
            state.adopt(number);
        }
        Ok(self.reader(number, turn))
    }

    /// Puts a message where it belongs.
    pub(super) fn place(&self, regards: Option<Regards>, frame: Bytes) -> Result<(), Crowded> {
        let mut state = self.state();
        let placed = state.place(regards, frame);
        state.crowded = placed.is_err();
        placed
    }

    /// Waits until something was taken after a message did not fit.
    pub(super) async fn room(&self) {
        self.room.notified().await;
    }

    /// The client wants no answer to that request any more, and none will come.
    pub(super) fn cancel(&self, id: &RequestId) {
        let mut state = self.state();
        if let Some(call) = state.calls.remove(id) {
            state.owe_less(call.stream);
        }
    }

    /// How many messages were forgotten since this was asked that nobody took.
    pub(super) fn take_missed(&self) -> u64 {
        std::mem::take(&mut self.state().missed)
    }

    /// Whether a request of the server's is among what nobody took.
    pub(super) fn is_unheard(&self) -> bool {
        self.state().unheard
    }

    /// Nobody reads and no call is under way.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.calls.is_empty() && state.streams.values().all(|stream| !stream.is_read)
    }

    /// Ends every stream; each call that is under way is answered with this.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state();
        state.over = true;
        for (id, call) in std::mem::take(&mut state.calls) {
            let id = call.original.unwrap_or(id);
            let error = error_response(id.as_str(), &Error::new(code::LOST, why));
            state.answer(call.stream, error);
        }
        state.streams.values_mut().for_each(Stream::wake);
    }

    fn reader(self: &Arc<Self>, stream: u64, turn: u64) -> Reader {
        let streams = Arc::clone(self);
        Reader {
            streams,
            stream,
            turn,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_room(&self, state: &State) {
        if state.crowded {
            self.room.notify_one();
        }
    }
}

impl State {
    fn add(&mut self, purpose: Purpose, is_read: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let stream = Stream {
            purpose,
            log: Log::default(),
            inherited: 0,
            turn: 0,
            is_read,
            waker: None,
        };
        self.streams.insert(number, stream);
        number
    }

    fn begin_call(&mut self, stream: u64, request: Message) -> Message {
        let Some(id) = request.id() else {
            return request;
        };
        let token = request.param(&["_meta", "progressToken"]);
        let token = token.map(|span| request.text(&span).into());
        let mut call = Call {
            stream,
            token,
            original: None,
        };
        let (id, request) = if self.calls.contains_key(&id) {
            let other = format!("\"tidegate-{stream}-{}\"", self.calls.len());
            call.original = Some(id);
            let renamed = Message::parse(request.with_id(&other)).unwrap_or(request);
            (RequestId::read(&other), renamed)
        } else {
            (Some(id), request)
        };
        if let Some(id) = id {
            self.calls.insert(id, call);
        }
        request
    }

    /// The GET streams, oldest first.
    fn listeners(&self) -> impl DoubleEndedIterator<Item = (u64, &Stream)> {
        let all = self
            .streams
            .iter()
            .map(|(number, stream)| (*number, stream));
        all.filter(|(_, stream)| stream.purpose == Purpose::Listen)
    }

    /// Moves what nobody took of GET streams that nobody reads: it was given to no connection yet.
    fn adopt(&mut self, heir: u64) {
        let (mut waiting, mut lost) = (Vec::new(), 0);
        for stream in self.streams.values_mut() {
            if stream.purpose == Purpose::Listen && !stream.is_read {
                let (own, given) = stream.log.give();
                lost += std::mem::take(&mut stream.inherited) + own;
                waiting.extend(given);
            }
        }
        waiting.sort_by_key(|event: &Event| event.at);
        if let Some(stream) = self.streams.get_mut(&heir) {
            stream.inherited += lost;
            waiting.into_iter().for_each(|event| stream.log.push(event));
        }
        let unread = self.listeners().filter(|(_, stream)| !stream.is_read);
        let unread: Vec<u64> = unread.map(|(number, _)| number).collect();
        let surplus = unread.len().saturating_sub(LISTENERS_MAX);
        for number in unread.into_iter().take(surplus) {
            self.drop_stream(number);
        }
    }

    fn place(&mut self, regards: Option<Regards>, frame: Bytes) -> Result<(), Crowded> {
        match regards {
            Some(Regards::Answer(id)) => self.place_answer(id, frame),
            Some(Regards::Meanwhile(id)) => self.place_meanwhile(id, frame),
            None => self.place_unknown(frame),
        }
    }

    /// A message that has to be read to know what it is.
    fn place_unknown(&mut self, frame: Bytes) -> Result<(), Crowded> {
        let Ok(message) = Message::parse(frame.clone()) else {
            return self.append(self.listener(), frame, false);
        };
        match (message.kind(), message.id()) {
            (Kind::Response, Some(id)) => self.place_answer(id, frame),
            (Kind::Request, _) => self.append(self.for_request(), frame, true),
            (Kind::Response | Kind::Notification, _) => {
                self.append(self.for_notification(&message), frame, false)
            }
        }
    }

    fn place_meanwhile(&mut self, id: RequestId, frame: Bytes) -> Result<(), Crowded> {
        let stream = self.calls.get(&id).map(|call| call.stream);
        // Where the client of that call left before anything came, a GET of the same client may hear it.
        let Some(stream) = stream.filter(|number| self.streams.contains_key(number)) else {
            return self.place_unknown(frame);
        };
        let asks = Message::parse(frame.clone());
        let asks = asks.is_ok_and(|message| message.kind() == Kind::Request);
        self.append(stream, frame, asks)
    }

    fn place_answer(&mut self, id: RequestId, frame: Bytes) -> Result<(), Crowded> {
        let Some((id, call)) = self.calls.remove_entry(&id) else {
            // It was cancelled, or its client left before anything came.
            return Ok(());
        };
        let stream = self.streams.get(&call.stream);
        if stream.is_some_and(Stream::has_begun) && !self.make_room(frame.len()) {
            let regards = Regards::Answer(id.clone());
            self.calls.insert(id, call);
            return Err(Crowded(Some(regards), frame));
        }
        let frame = match &call.original {
            Some(original) => renamed(frame, original),
            None => frame,
        };
        self.answer(call.stream, frame);
        Ok(())
    }

    /// An answer goes to the POST that waits for it, or onto its stream.
    fn answer(&mut self, number: u64, frame: Bytes) {
        match self
            .streams
            .get_mut(&number)
            .map(|stream| &mut stream.purpose)
        {
            Some(Purpose::Post {
                answers: Some(answers),
                ..
            }) => answers.push(frame),
            Some(Purpose::Post { .. }) => self.push(number, frame, false),
            // The client left before anything came, and cannot ask again.
            Some(Purpose::Listen) | None => self.missed += 1,
        }
        self.owe_less(number);
    }

    fn owe_less(&mut self, number: u64) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        if let Purpose::Post { owed, .. } = &mut stream.purpose {
            *owed = owed.saturating_sub(1);
        }
        stream.wake();
        self.tidy(number);
    }

    /// Where a request of the server's goes: with the call that it came for, which nobody tells if there are several.
    fn for_request(&self) -> u64 {
        let open = |(_, stream): &(&u64, &Stream)| stream.is_read && stream.owes();
        let mut posts = self.streams.iter().filter(open).map(|(number, _)| *number);
        match (posts.next(), posts.next()) {
            (Some(only), None) => only,
            (Some(first), Some(_)) if !self.is_listening() => first,
            _ => self.listener(),
        }
    }

    fn for_notification(&self, message: &Message) -> u64 {
        let token = (message.method() == method::PROGRESS)
            .then(|| message.param(&["progressToken"]))
            .flatten();
        if let Some(span) = token {
            let token = message.text(&span);
            let mut calls = self.calls.values();
            let call = calls.find(|call| call.token.as_deref() == Some(token));
            return call.map_or_else(|| self.listener(), |call| call.stream);
        }
        // A client that never listens still hears what is said while its call runs.
        let said = matches!(message.method(), method::LOG | method::CANCELLED);
        if said && !self.is_listening() {
            self.for_request()
        } else {
            self.listener()
        }
    }

    fn is_listening(&self) -> bool {
        self.listeners().any(|(_, stream)| stream.is_read)
    }

    /// The newest GET stream that is read, else the newest.
    fn listener(&self) -> u64 {
        let read = self.listeners().rev().find(|(_, stream)| stream.is_read);
        let found = read.or_else(|| self.listeners().next_back());
        found.map_or(0, |(number, _)| number)
    }

    fn append(&mut self, number: u64, frame: Bytes, asks: bool) -> Result<(), Crowded> {
        if !self.make_room(frame.len()) {
            return Err(Crowded(None, frame));
        }
        let Some(stream) = self.streams.get_mut(&number) else {
            // The client of that call left before anything came.
            self.missed += 1;
            self.unheard |= asks;
            return Ok(());
        };
        for answer in stream.begin() {
            self.push(number, answer, false);
        }
        self.push(number, frame, asks);
        Ok(())
    }

    fn push(&mut self, number: u64, frame: Bytes, asks: bool) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        self.events += 1;
        self.bytes += frame.len();
        self.at += 1;
        let at = self.at;
        stream.log.push(Event { at, frame, asks });
        stream.wake();
    }

    /// Forgets the oldest events until so many bytes fit; `false` where what is left has yet to be taken by connections
    /// that are there.
    fn make_room(&mut self, bytes: usize) -> bool {
        while self.events >= EVENTS_MAX || (self.events > 0 && self.bytes + bytes > BYTES_MAX) {
            let oldest = self.streams.iter().filter_map(|(number, stream)| {
                let (event, taken) = stream.log.oldest()?;
                (taken || !stream.is_read).then_some((event.at, *number, taken))
            });
            let Some((_, number, taken)) = oldest.min() else {
                return false;
            };
            self.forget(number, taken);
        }
        true
    }

    fn forget(&mut self, number: u64, taken: bool) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        let Some(event) = stream.log.forget() else {
            return;
        };
        self.events -= 1;
        self.bytes -= event.frame.len();
        if !taken {
            self.missed += 1;
            self.unheard |= event.asks;
        }
        self.tidy(number);
    }

    /// Drops the stream of a POST that is answered, once nobody can ask for anything of it.
    fn tidy(&mut self, number: u64) {
        let is_spent = |stream: &Stream| {
            stream.is_post() && !stream.is_read && !stream.owes() && stream.log.is_empty()
        };
        if self.streams.get(&number).is_some_and(is_spent) {
            self.streams.remove(&number);
        }
    }

    fn drop_stream(&mut self, number: u64) {
        let Some(mut stream) = self.streams.remove(&number) else {
            return;
        };
        while let Some(event) = stream.log.forget() {
            self.events -= 1;
            self.bytes -= event.frame.len();
        }
    }
}

/// An answer under its client's own id.
fn renamed(frame: Bytes, id: &RequestId) -> Bytes {
    match Message::parse(frame.clone()) {
        Ok(message) => message.with_id(id.as_str()),
        Err(_) => frame,
    }
}

impl Stream {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn is_post(&self) -> bool {
        self.purpose != Purpose::Listen
    }

    fn owes(&self) -> bool {
        matches!(self.purpose, Purpose::Post { owed, .. } if owed > 0)
    }

    /// A connection reads its events, or may.
    fn has_begun(&self) -> bool {
        !matches!(
            self.purpose,
            Purpose::Post {
                answers: Some(_),
                ..
            }
        )
    }

    /// It is a stream from now on; the answers that came before.
    fn begin(&mut self) -> Vec<Bytes> {
        match &mut self.purpose {
            Purpose::Post { answers, .. } => answers.take().unwrap_or_default(),
            Purpose::Listen => Vec::new(),
        }
    }
}

/// A connection's end of a stream. Dropping it leaves the stream to the next one.
#[derive(Debug)]
pub(super) struct Reader {
    streams: Arc<Streams>,
    stream: u64,
    turn: u64,
}

impl Reader {
    /// The number of its stream.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// What comes first on a POST.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Poll<First> {
        let mut state = self.streams.state();
        let Some(stream) = state.streams.get_mut(&self.stream) else {
            return Poll::Ready(First::Answers(Vec::new()));
        };
        let Purpose::Post { owed, answers } = &mut stream.purpose else {
            return Poll::Ready(First::Stream);
        };
        match (answers, *owed) {
            (None, _) => Poll::Ready(First::Stream),
            (Some(answers), 0) => {
                let answers = std::mem::take(answers);
                state.streams.remove(&self.stream);
                Poll::Ready(First::Answers(answers))
            }
            (Some(_), _) => {
                stream.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Makes a POST a stream, whatever comes.
    pub(super) fn begin(&self) {
        let mut state = self.streams.state();
        let answers = state.streams.get_mut(&self.stream).map(Stream::begin);
        for answer in answers.unwrap_or_default() {
            state.push(self.stream, answer, false);
        }
    }

    /// The next step; `None` at the end.
    pub(super) fn poll_step(&self, cx: &Context<'_>) -> Poll<Option<Step>> {
        let mut state = self.streams.state();
        let over = state.over;
        let stream = state.streams.get_mut(&self.stream);
        let Some(stream) = stream.filter(|stream| stream.turn == self.turn) else {
            return Poll::Ready(None);
        };
        let lost = std::mem::take(&mut stream.inherited) + stream.log.skip_lost();
        if lost > 0 {
            return Poll::Ready(Some(Step::Gap(lost)));
        }
        if let Some((number, frame)) = stream.log.take() {
            self.streams.tell_room(&state);
            return Poll::Ready(Some(Step::Event(number, frame)));
        }
        if over || (stream.is_post() && !stream.owes()) {
            return Poll::Ready(None);
        }
        stream.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.streams.state();
        let stream = state.streams.get_mut(&self.stream);
        let Some(stream) = stream.filter(|stream| stream.turn == self.turn) else {
            return;
        };
        stream.is_read = false;
        stream.waker = None;
        if stream.has_begun() {
            state.tidy(self.stream);
        } else {
            // Its client has no event id to ask for the answer with.
            state.streams.remove(&self.stream);
        }
        self.streams.tell_room(&state);
    }
}

#[cfg(test)]
mod tests;
