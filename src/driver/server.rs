//! The task that owns one server's engine: inputs in, outputs carried out, in order. Nothing else touches the engine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::budget::Share;
use super::link::Link;
use super::outbound::{self, Outbound};
use super::patience::Patience;
use super::{Arrival, Control, Flags, Shared};
use crate::config::{Entry, Problem, Server as Configured};
use crate::engine::Server as Engine;
use crate::engine::decision::Decision;
use crate::engine::input::{HostEvent, Input, LinkEvent, Moment, Post, Reap, Stop, Synced};
use crate::engine::output::{Output, Posted};
use crate::engine::settings::Settings;
use crate::face::Outgoing;
use crate::ids::{Attempt, Epoch, ServerId, SessionId};
use crate::observe::ServerObserver;
use crate::revision::server::Server as Translation;
use crate::transport::{self, Events};

/// What may wait for a server that does not read, in bytes.
const SERVER_BYTES_MAX: usize = 64 << 20;
/// Events of a transport that may wait; one that sends more waits.
const EVENTS_MAX: usize = 256;
/// Inputs handled before the task lets others run.
const BATCH: usize = 64;
/// A host whose queue is this many times over its limit is closed at once.
pub(super) const OVER_MAX: usize = 4;

/// One server's engine and what carries out its outputs.
pub(super) struct Task {
    id: ServerId,
    engine: Engine,
    entry: Option<Entry>,
    begin: Vec<Input>,
    shared: Arc<Shared>,
    /// Its part of what all servers may hold and keep, and how much of that the engine was told of (G6).
    share: Share,
    allowed: Option<usize>,
    observer: ServerObserver,
    flags: Arc<Flags>,
    link: Option<Link>,
    sessions: BTreeMap<SessionId, Outbound<Outgoing>>,
    /// Told when a host's queue fits again.
    drained: Arc<Notify>,
    /// With hosts whose queues are over their limit.
    patience: Patience,
    /// What carrying out an output made happen: told to the engine after the drain.
    consequences: VecDeque<Input>,
    stopping: Option<Stopping>,
    /// Who waits for what became of a post, by its ticket.
    posts: BTreeMap<u64, oneshot::Sender<Posted>>,
    /// The last ticket.
    ticket: u64,
    events: Events,
    arrived: mpsc::Receiver<(Epoch, LinkEvent)>,
    /// What is on disk of its messages.
    synced: watch::Receiver<Synced>,
    /// When what is being handled happened.
    at: Instant,
}

/// Who waits for the end.
struct Stopping {
    done: oneshot::Sender<Vec<u32>>,
    removed: bool,
}

impl Task {
    pub(super) fn new(
        server: &Configured,
        shared: Arc<Shared>,
        observer: ServerObserver,
        flags: Arc<Flags>,
        drained: Arc<Notify>,
    ) -> Self {
        let entry = server.entry.as_ref().ok().cloned();
        let settings = entry.as_ref().map(|entry| Arc::clone(&entry.engine));
        let engine = Engine::new(settings.unwrap_or_else(|| only_named(&server.id)), now());
        let (events, arrived) = mpsc::channel(EVENTS_MAX);
        let synced = shared.journal.synced(&server.id);
        let begin = beginning(server, &shared);
        flags.attempted.store(!server.enabled, Ordering::Relaxed);
        Self {
            id: server.id.clone(),
            engine,
            entry,
            begin,
            share: shared.budget.join(),
            allowed: None,
            shared,
            observer,
            flags,
            link: None,
            sessions: BTreeMap::new(),
            drained,
            patience: Patience::default(),
            consequences: VecDeque::new(),
            stopping: None,
            posts: BTreeMap::new(),
            ticket: 0,
            events,
            arrived,
            synced,
            at: now(),
        }
    }

    /// Runs until the server is removed or the gateway stops.
    pub(super) async fn run(
        mut self,
        mut controls: mpsc::Receiver<Control>,
        mut arrivals: mpsc::Receiver<Arrival>,
    ) {
        if let Some(left) = self.shared.journal.take_open(&self.id) {
            self.observer.epoch_died(left);
        }
        for input in std::mem::take(&mut self.begin) {
            self.tell(input);
        }
        let timer = tokio::time::sleep_until(tokio::time::Instant::now());
        tokio::pin!(timer);
        while !self.is_finished() {
            let due = self.next_due();
            if let Some(due) = due.filter(|due| *due != timer.deadline()) {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                control = controls.recv() => match control {
                    Some(control) => self.control(control),
                    None => return,
                },
                Some((epoch, event)) = self.arrived.recv(), if !self.patience.is_tried() => {
                    self.link_event(epoch, event);
                    self.more_link_events();
                }
                Some(arrival) = arrivals.recv() => {
                    self.arrival(arrival);
                    self.more_arrivals(&mut arrivals);
                }
                Ok(()) = self.synced.changed() => {
                    let synced = *self.synced.borrow_and_update();
                    self.tell(Input::Stored(synced));
                }
                () = self.drained.notified() => self.see_whether_hosts_read(),
                () = &mut timer, if due.is_some() => self.wake(),
            }
        }
    }

    /// When the engine, or a host that does not read, wants attention.
    fn next_due(&self) -> Option<tokio::time::Instant> {
        let engine = self.engine.poll_timeout().map(|(due, _)| due);
        let host = self.patience.due();
        let link = self.link.as_ref().and_then(Link::due);
        engine
            .into_iter()
            .chain(host)
            .chain(link)
            .min()
            .map(tokio::time::Instant::from_std)
    }

    fn wake(&mut self) {
        let moment = self.moment();
        self.engine.handle_timeout(moment);
        self.drain();
        self.wake_link();
        self.see_whether_hosts_read();
    }

    fn wake_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        let epoch = link.epoch;
        for event in link.wake(now()) {
            self.tell(Input::Link { epoch, event });
        }
    }

    fn more_link_events(&mut self) {
        for _ in 1..BATCH {
            if self.patience.is_tried() {
                return;
            }
            let Ok((epoch, event)) = self.arrived.try_recv() else {
                return;
            };
            self.link_event(epoch, event);
        }
    }

    fn more_arrivals(&mut self, arrivals: &mut mpsc::Receiver<Arrival>) {
        for _ in 1..BATCH {
            let Ok(arrival) = arrivals.try_recv() else {
                return;
            };
            self.arrival(arrival);
        }
    }

    /// Nothing of the transport is left and nobody will start another.
    fn is_finished(&mut self) -> bool {
        let removed = self
            .stopping
            .as_ref()
            .is_some_and(|stopping| stopping.removed);
        if self.link.is_none() {
            self.stopped(Vec::new());
        }
        removed && self.link.is_none()
    }

    fn stopped(&mut self, left: Vec<u32>) {
        if let Some(stopping) = self.stopping.take() {
            let _ = stopping.done.send(left);
        }
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::Operate(command, done) => {
                self.tell(Input::Operator(command));
                let _ = done.send(());
            }
            Control::Entry(entry, inputs) => {
                self.entry = Some(*entry);
                inputs.into_iter().for_each(|input| self.tell(input));
            }
            Control::Publish {
                channel,
                text,
                done,
            } => {
                self.ticket += 1;
                let ticket = self.ticket;
                self.posts.insert(ticket, done);
                self.tell(Input::Post(Post {
                    ticket,
                    channel,
                    text,
                }));
            }
            Control::Stop(stop, done) => {
                let removed = matches!(stop, Stop::Removed | Stop::Shutdown);
                self.tell(Input::Stop(stop));
                self.stopping = Some(Stopping { done, removed });
            }
            Control::Snapshot(reply) => {
                let _ = reply.send(self.engine.snapshot(now()));
            }
        }
    }

    fn link_event(&mut self, epoch: Epoch, event: LinkEvent) {
        let gone = if let LinkEvent::Gone(reap) = &event {
            Some(reap.clone())
        } else {
            None
        };
        let link = self.link.as_mut();
        match link.filter(|link| link.epoch == epoch && link.translation.is_some()) {
            Some(link) => {
                for event in link.read(event, now()) {
                    self.tell(Input::Link { epoch, event });
                }
            }
            None => self.tell(Input::Link { epoch, event }),
        }
        if let Some(reap) = gone {
            self.link_gone(epoch, reap);
        }
    }

    fn link_gone(&mut self, epoch: Epoch, reap: Reap) {
        if self.link.as_ref().is_some_and(|link| link.epoch == epoch) {
            self.link = None;
            self.observer.epoch_gone(self.at, epoch);
            self.shared.journal.closed(&self.id);
        }
        if let Reap::Unreapable { pids } = reap {
            self.stopped(pids);
        }
    }

    fn arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Opened {
                session,
                host: name,
                outbound,
            } => {
                self.sessions.insert(session, outbound);
                self.tell(Input::Host {
                    session,
                    event: HostEvent::Attached { name },
                });
            }
            Arrival::Event { session, event } => {
                let detached = matches!(event, HostEvent::Detached);
                if let HostEvent::Received(message) = &event {
                    self.observer.received(now(), message);
                }
                self.tell(Input::Host { session, event });
                self.observer.handled();
                if detached {
                    self.sessions.remove(&session);
                    self.patience.end(session);
                }
            }
        }
    }

    /// Tells the engine something, and carries out what it asks for.
    fn tell(&mut self, input: Input) {
        let more = weight(&input);
        if more > 0 {
            self.make_room(more);
        }
        let moment = self.moment();
        self.engine.handle_input(input, moment);
        self.drain();
        if self.share.borrows() {
            self.make_room(0);
        }
    }

    /// Has its share reach so many bytes beyond what the engine holds and keeps, as far as there are any (G6).
    fn make_room(&mut self, more: usize) {
        let bytes = self.share.reach(self.engine.queued_bytes() + more);
        if self.allowed.replace(bytes) != Some(bytes) {
            let moment = self.moment();
            self.engine.handle_input(Input::Allowance(bytes), moment);
            self.drain();
        }
    }

    fn moment(&mut self) -> Moment {
        let moment = moment();
        self.at = moment.now;
        moment
    }

    fn drain(&mut self) {
        loop {
            while let Some(output) = self.engine.poll_output() {
                self.carry_out(output);
            }
            let Some(input) = self.consequences.pop_front() else {
                return;
            };
            let moment = self.moment();
            self.engine.handle_input(input, moment);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Dial { epoch, attempt } => self.dial(epoch, attempt),
            Output::Close { epoch } => {
                if let Some(link) = self.link.as_ref().filter(|link| link.epoch == epoch) {
                    link.close.cancel();
                }
            }
            Output::Send {
                epoch,
                frame,
                request,
                forwarded,
            } => self.send(epoch, frame, request, forwarded),
            Output::Answer {
                session,
                frame,
                regards,
            } => self.answer(session, Outgoing::new(frame, regards)),
            Output::Dismiss {
                session,
                code,
                reason,
            } => {
                self.answer(session, Outgoing::Close { code, reason });
            }
            Output::Posted { ticket, posted } => {
                if let Some(done) = self.posts.remove(&ticket) {
                    // Nobody waits any more where the reload took the channel away.
                    let _ = done.send(posted);
                }
            }
            Output::Record(record) => {
                self.shared
                    .journal
                    .record(&self.id, record, SystemTime::now());
            }
            Output::Decided { epoch, decision } => self.decided(epoch, &decision),
        }
    }

    fn dial(&mut self, epoch: Epoch, _attempt: Attempt) {
        let Some(entry) = &self.entry else { return };
        if let Some(open) = self.observer.open_epoch() {
            self.shared.journal.opened(&self.id, open);
        }
        let (frames, stream) = outbound::bounded(SERVER_BYTES_MAX, Arc::default());
        let close = CancellationToken::new();
        let launches = Arc::clone(&self.shared.launches);
        let events = self.events.clone();
        transport::dial(
            &entry.transport,
            epoch,
            events,
            stream,
            close.clone(),
            launches,
        );
        let over_http = entry.transport.label() == "http";
        self.link = Some(Link {
            epoch,
            frames,
            close,
            over_http,
            translation: entry
                .opening
                .map(|opening| Translation::new(opening, over_http)),
        });
    }

    fn send(&mut self, epoch: Epoch, frame: Bytes, request: Option<u64>, forwarded: bool) {
        let Some(link) = self.link.as_mut().filter(|link| link.epoch == epoch) else {
            return;
        };
        let frame = match request.filter(|_| forwarded) {
            Some(id) => self.observer.forwarded(self.at, id, frame),
            None => frame,
        };
        let told = link.send(frame, request, self.at);
        let told = told.into_iter().map(|event| Input::Link { epoch, event });
        self.consequences.extend(told);
    }

    fn answer(&mut self, session: SessionId, outgoing: Outgoing) {
        let Some(host) = self.sessions.get_mut(&session) else {
            return;
        };
        host.push_over(outgoing);
        match host.is_over() {
            0 => {}
            over if over >= OVER_MAX => self.give_up(session),
            _ => self.patience.begin(session, now()),
        }
    }

    /// Reads the server again once every host reads, and gives up on a host that does not for too long.
    fn see_whether_hosts_read(&mut self) {
        if !self.patience.is_tried() {
            return;
        }
        for (session, host) in &self.sessions {
            if host.is_over() == 0 {
                self.patience.end(*session);
            }
        }
        for session in self.patience.lost(now()) {
            self.give_up(session);
        }
        self.drain();
    }

    fn give_up(&mut self, session: SessionId) {
        self.patience.end(session);
        let Some(host) = self.sessions.remove(&session) else {
            return;
        };
        host.push_over(Outgoing::Close {
            code: 4410,
            reason: "the host does not read",
        });
        let event = HostEvent::Detached;
        self.consequences.push_back(Input::Host { session, event });
    }

    fn decided(&mut self, epoch: Option<Epoch>, decision: &Decision) {
        let attempted = matches!(
            decision,
            Decision::Adopted { .. } | Decision::AttemptFailed { .. } | Decision::Refused { .. }
        );
        if attempted {
            self.flags.attempted.store(true, Ordering::Relaxed);
        }
        self.observer.decided_at(self.at, epoch, decision);
    }
}

/// Lets go of a server that is remembered and no longer configured: who was told that it is down is told that it is
/// no more (S4, S5).
pub(super) fn let_go(id: &ServerId, shared: &Shared) {
    let observer = shared.observer.server(id, "none", "");
    if let Some(left) = shared.journal.take_open(id) {
        observer.epoch_died(left);
    }
    let mut engine = Engine::new(only_named(id), now());
    let resumed = shared.journal.resume(id, SystemTime::now());
    for input in [Input::Resume(resumed), Input::Stop(Stop::Removed)] {
        engine.handle_input(input, moment());
    }
    while let Some(output) = engine.poll_output() {
        match output {
            Output::Decided { epoch, decision } => observer.decided(epoch, &decision),
            Output::Record(record) => shared.journal.record(id, record, SystemTime::now()),
            // It never ran, so there is nothing to dial, close, send, post or answer.
            Output::Dial { .. }
            | Output::Close { .. }
            | Output::Send { .. }
            | Output::Answer { .. }
            | Output::Posted { .. }
            | Output::Dismiss { .. } => {}
        }
    }
    shared.observer.forget(id);
}

/// How many bytes an input may add to what is held and kept.
fn weight(input: &Input) -> usize {
    match input {
        Input::Link {
            event: LinkEvent::Received(message) | LinkEvent::Asked { message, .. },
            ..
        } => message.len(),
        Input::Start(resumed) | Input::Resume(resumed) => {
            resumed.kept.iter().map(|one| one.frame.len()).sum()
        }
        Input::Link { .. }
        | Input::Refuse { .. }
        | Input::Configure { .. }
        | Input::Operator(_)
        | Input::Stop(_)
        | Input::Host { .. }
        | Input::Post(_)
        | Input::Stored(_)
        | Input::Allowance(_) => 0,
    }
}

/// What an engine goes by that has no usable entry.
fn only_named(id: &ServerId) -> Arc<Settings> {
    let server = id.as_str().to_owned();
    Arc::new(Settings {
        server,
        ..Settings::default()
    })
}

/// How a server begins: with what is remembered of it, and then by its entry.
fn beginning(server: &Configured, shared: &Shared) -> Vec<Input> {
    let resumed = shared.journal.resume(&server.id, SystemTime::now());
    match &server.entry {
        Err(problems) => vec![
            Input::Resume(resumed),
            Input::Refuse {
                problem: all(problems),
            },
        ],
        Ok(_) if server.enabled => vec![Input::Start(resumed)],
        Ok(_) => vec![Input::Resume(resumed), Input::Stop(Stop::Disabled)],
    }
}

fn all(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn moment() -> Moment {
    Moment {
        now: now(),
        jitter: fastrand::f64().mul_add(2.0, -1.0),
    }
}
