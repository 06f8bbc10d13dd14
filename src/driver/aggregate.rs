//! The task of one client's session with all servers that it may use: it opens a session with each, and carries what
//! the state machine of [`crate::aggregate`] decides between them and the client. It waits for no server: what one does
//! not take at once waits for that one alone.

mod post;
mod side;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, SelectAll};
use tokio::sync::{Notify, mpsc, watch};

use super::outbound::{self, Frames, Outbound};
use super::{Gateway, HOST_BYTES_MAX, Member, Roster};
use crate::aggregate::{Aggregate as Machine, Input, Output, SeatId};
use crate::engine::input::HostEvent;
use crate::engine::settings::fits;
use crate::face::access::Access;
use crate::face::{self, Directory, Outgoing, Refusal};
use crate::observe::Observer;
use crate::wire::jsonrpc::{Message, Unreadable};

use post::{Post, Room};
use side::Side;

/// How many clients may have a session with all servers.
const SESSIONS_MAX: usize = 2_000;
/// Messages of a client that may wait for its task; a client that sends more waits.
const INPUTS_MAX: usize = 64;
/// Inputs handled before the task lets others run.
const BATCH: usize = 64;
/// A message longer than this is parsed on another thread, so that nobody waits for it.
const INLINE_MAX: usize = 256 << 10;
/// How long a client's full queue is borne (G16). Meanwhile nothing is read for it.
const FULL_MAX: Duration = Duration::from_secs(10);
/// How long to leave a server alone that takes no more sessions, or has ended one.
const AGAIN: Duration = Duration::from_secs(5);

/// The sessions with all servers. Cheap to clone; the second directory of the faces.
#[derive(Clone)]
pub struct Aggregate {
    gateway: Gateway,
    access: watch::Receiver<Access>,
    open: Arc<AtomicUsize>,
}

impl Aggregate {
    /// Opens sessions with the servers of `gateway` for the hosts that `access` knows.
    #[must_use]
    pub fn new(gateway: Gateway, access: watch::Receiver<Access>) -> Self {
        let open = Arc::default();
        Self {
            gateway,
            access,
            open,
        }
    }
}

impl Directory for Aggregate {
    type Inbound = Inbound;
    type Outbound = Frames<Outgoing>;

    /// A session with all servers that the host may use, whatever `server` says.
    fn open(
        &self,
        _server: &str,
        host: Option<&str>,
    ) -> Result<(Inbound, Frames<Outgoing>), Refusal> {
        let (events, inputs) = mpsc::channel(INPUTS_MAX);
        let observer = self.gateway.shared.observer.clone();
        observer.session_opened(self.gateway.face);
        let inbound = Inbound {
            events,
            open: Arc::clone(&self.open),
            observer,
            face: self.gateway.face,
        };
        if self.open.fetch_add(1, Ordering::Relaxed) >= SESSIONS_MAX {
            return Err(Refusal::Full);
        }
        let drained = Arc::<Notify>::default();
        let (outbound, frames) = outbound::bounded(HOST_BYTES_MAX, Arc::clone(&drained));
        let task = Task {
            machine: Machine::default(),
            gateway: self.gateway.for_face("aggregate"),
            host: host.map(str::to_owned),
            roster: self.gateway.shared.roster.subscribe(),
            access: self.access.clone(),
            seats: BTreeMap::new(),
            last: 0,
            sides: SelectAll::new(),
            rooms: FuturesUnordered::new(),
            outbound,
            drained,
            full_since: None,
            again: None,
        };
        tokio::spawn(task.run(inputs));
        Ok((inbound, frames))
    }
}

/// A client's way into its task.
pub struct Inbound {
    events: mpsc::Sender<HostEvent>,
    open: Arc<AtomicUsize>,
    observer: Observer,
    face: &'static str,
}

impl face::Inbound for Inbound {
    async fn send(&self, event: HostEvent) -> bool {
        self.events.send(event).await.is_ok()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.observer.session_closed(self.face);
    }
}

/// One client's session.
struct Task {
    machine: Machine,
    gateway: Gateway,
    /// `hosts[].name`; `None` where no tokens are configured.
    host: Option<String>,
    roster: watch::Receiver<Roster>,
    access: watch::Receiver<Access>,
    seats: BTreeMap<SeatId, Seat>,
    /// The last seat.
    last: u64,
    /// What servers' sides send.
    sides: SelectAll<Side>,
    /// Which servers' sides that were full take something again.
    rooms: FuturesUnordered<Room>,
    outbound: Outbound<Outgoing>,
    /// Told when the client's queue fits again.
    drained: Arc<Notify>,
    full_since: Option<Instant>,
    /// When to try the servers again with which there is no session.
    again: Option<Instant>,
}

/// A session with one server; without a way in where it takes no more.
struct Seat {
    member: Member,
    post: Option<Post>,
}

impl Task {
    async fn run(mut self, mut inputs: mpsc::Receiver<HostEvent>) {
        self.take_seats();
        while !self.is_over() {
            let reads = self.outbound.is_over() == 0;
            let due = self.next_due();
            let wake = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into());
            tokio::select! {
                event = inputs.recv(), if reads => match event {
                    None | Some(HostEvent::Detached) => break,
                    Some(event) => self.client(event),
                },
                Some((seat, outgoing)) = self.sides.next(), if reads => {
                    self.side(seat, outgoing).await;
                    self.more_sides().await;
                }
                Some((seat, room)) = self.rooms.next() => self.has_room(seat, room),
                Ok(()) = self.roster.changed() => self.take_seats(),
                Ok(()) = self.access.changed() => self.take_seats(),
                () = self.drained.notified() => {}
                () = wake, if due.is_some() => self.wake(),
            }
            self.drain().await;
        }
        self.end().await;
    }

    fn next_due(&self) -> Option<Instant> {
        let machine = self.machine.poll_timeout();
        let full = self
            .full_since
            .and_then(|since| since.checked_add(FULL_MAX));
        [machine, full, self.again].into_iter().flatten().min()
    }

    fn wake(&mut self) {
        self.machine.handle_timeout(now());
        if self.again.is_some_and(|again| again <= now()) {
            self.take_seats();
        }
    }

    /// The client does not read, or the gateway stops and has said all there was to say.
    fn is_over(&mut self) -> bool {
        let over = self.outbound.is_over();
        let since = *self.full_since.get_or_insert_with(now);
        if over == 0 {
            self.full_since = None;
        }
        let lost = over > 0 && now().saturating_duration_since(since) >= FULL_MAX;
        let (code, reason) = if lost || over >= super::server::OVER_MAX {
            (4410, "the host does not read")
        } else if self.roster.borrow().is_stopping && self.seats.is_empty() {
            (1001, "the gateway is stopping")
        } else {
            return false;
        };
        self.outbound.push_over(Outgoing::Close { code, reason });
        true
    }

    fn client(&mut self, event: HostEvent) {
        match event {
            HostEvent::Received(message) => self.tell(Input::Client(message)),
            HostEvent::Unreadable(what) => self.tell(Input::Unreadable(what)),
            // What a client of all misses is no one server's to count.
            HostEvent::Attached { .. } | HostEvent::Missed(_) | HostEvent::Detached => {}
        }
    }

    fn tell(&mut self, input: Input) {
        self.machine.handle_input(input, now());
    }

    /// What a server's side sent; its end gives the seat up.
    async fn side(&mut self, seat: SeatId, outgoing: Option<Outgoing>) {
        match outgoing {
            Some(Outgoing::Frame(frame) | Outgoing::Regarding(_, frame)) => {
                if let Ok(message) = parse(frame).await {
                    self.tell(Input::Server { seat, message });
                }
            }
            Some(Outgoing::Close { .. }) | None => {
                if self.seats.remove(&seat).is_some() {
                    self.tell(Input::Left(seat));
                    self.again = self.again.or_else(|| now().checked_add(AGAIN));
                }
            }
        }
    }

    /// What else servers' sides have sent by now.
    async fn more_sides(&mut self) {
        for _ in 1..BATCH {
            let Some(Some((seat, outgoing))) =
                futures_util::FutureExt::now_or_never(self.sides.next())
            else {
                return;
            };
            self.side(seat, outgoing).await;
        }
    }

    /// Takes a seat with every server that the client may use, and leaves the others.
    fn take_seats(&mut self) {
        self.again = None;
        let wanted = self.wanted();
        let gone = |seat: &Seat| !wanted.contains(&seat.member);
        let gone: Vec<SeatId> = self
            .seats
            .iter()
            .filter(|(_, seat)| gone(seat))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.leave(id);
        }
        for member in wanted {
            self.take_seat(member);
        }
    }

    /// The servers that run and whose names the host's patterns cover.
    fn wanted(&mut self) -> Vec<Member> {
        let access = self.access.borrow_and_update();
        let permit = |name: &String| access.permits.iter().find(|permit| permit.name == *name);
        let patterns = self
            .host
            .as_ref()
            .map(|name| permit(name).map(|permit| &permit.servers));
        let may_use = |member: &&Member| match &patterns {
            None => access.permits.is_empty(),
            Some(patterns) => patterns.is_some_and(|patterns| {
                patterns
                    .iter()
                    .any(|pattern| fits(pattern, member.id.as_str()))
            }),
        };
        let roster = self.roster.borrow_and_update();
        if roster.is_stopping {
            return self
                .seats
                .values()
                .map(|seat| seat.member.clone())
                .collect();
        }
        roster.members.iter().filter(may_use).cloned().collect()
    }

    fn take_seat(&mut self, member: Member) {
        let mut seats = self.seats.iter();
        let held = seats.find(|(_, seat)| seat.member == member);
        let held = held.map(|(id, seat)| (*id, seat.post.is_some()));
        if held.is_some_and(|(_, is_open)| is_open) {
            return;
        }
        let opened = self.gateway.open(member.id.as_str(), self.host.as_deref());
        let is_full = match &opened {
            Ok(_) => false,
            Err(Refusal::Full) => true,
            // It was removed a moment ago, which is told soon.
            Err(Refusal::Unknown) => return,
        };
        if is_full {
            self.again = now().checked_add(AGAIN);
        }
        match held {
            Some(_) if is_full => return,
            Some((id, _)) => self.leave(id),
            None => {}
        }
        self.last += 1;
        let id = SeatId(self.last);
        let post = opened.ok().map(|(inbound, frames)| {
            self.sides.push(Side::new(id, frames));
            Post::new(id, inbound)
        });
        self.tell(Input::Joined {
            seat: id,
            server: member.id.as_str().into(),
            prefix: member.prefix.clone(),
            is_full,
        });
        self.seats.insert(id, Seat { member, post });
    }

    /// Ends the session with a server.
    fn leave(&mut self, id: SeatId) {
        let Some(seat) = self.seats.remove(&id) else {
            return;
        };
        self.tell(Input::Left(id));
        if let Some(post) = seat.post {
            tokio::spawn(post.detach());
        }
    }

    fn has_room(&mut self, seat: SeatId, room: post::Permit) {
        let post = self
            .seats
            .get_mut(&seat)
            .and_then(|seat| seat.post.as_mut());
        if let Some(waits) = post.and_then(|post| post.go_on(room)) {
            self.rooms.push(waits);
        }
    }

    /// Carries out what the machine asks for.
    async fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Send { seat, frame } => self.send(seat, frame).await,
                Output::Answer(frame) => self.outbound.push_over(Outgoing::Frame(frame)),
                Output::Dropped { why, method } => {
                    tracing::debug!("of a session with all servers, `{method}` is dropped: {why}");
                }
            }
        }
    }

    async fn send(&mut self, id: SeatId, frame: Bytes) {
        let Ok(message) = parse(frame.clone()).await else {
            return;
        };
        let seat = self.seats.get_mut(&id);
        let Some(post) = seat.and_then(|seat| seat.post.as_mut()) else {
            return;
        };
        match post.send(message) {
            Ok(None) => {}
            Ok(Some(waits)) => self.rooms.push(waits),
            Err(post::Full) => self.tell(Input::Unsent { seat: id, frame }),
        }
    }

    /// Every server's side learns that the client went.
    async fn end(self) {
        let posts = self.seats.into_values().filter_map(|seat| seat.post);
        join_all(posts.map(Post::detach)).await;
    }
}

async fn parse(frame: Bytes) -> Result<Message, Unreadable> {
    if frame.len() <= INLINE_MAX {
        return Message::parse(frame);
    }
    let parsed = tokio::task::spawn_blocking(|| Message::parse(frame)).await;
    parsed.unwrap_or(Err(Unreadable::NotJson))
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
