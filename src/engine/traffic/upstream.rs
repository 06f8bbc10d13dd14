//! What the server sends: answered at once, held, admitted under the grant, or handed to whom it is for (G, A1, A7).

use super::registrations::CHANNEL;
use super::{Traffic, WINDOW};
use crate::engine::admission::{self, Novelty};
use crate::engine::answers::{Ask, Asker, Call, Own, Want};
use crate::engine::decision::{Class, Decision, DropReason, Queue};
use crate::engine::gate;
use crate::engine::host::{self, Skill};
use crate::engine::input::Moment;
use crate::engine::outbox::Outbox;
use crate::engine::policy::Reply;
use crate::engine::queue::{Held, Item, Lane, Seq};
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::{self, Error, Kind, Message, code, member};
use crate::wire::mcp::method;
use crate::wire::mcpl::{self, Plane};

/// What G4 tells a server whose request finds no room.
const HELD_FULL: &str = "too many requests are held; try again later";
/// What a repeated message waits for while a host has the first.
const RECEIPT: &str = "a receipt";
/// What G4 tells a server whose request waited too long.
const HELD_LONG: &str = "held too long; try again later";

impl Traffic {
    /// A message of the serving epoch.
    pub(super) fn take_of_server(
        &mut self,
        epoch: Epoch,
        message: Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        if message.kind() == Kind::Response {
            return self.take_answer(&message, at, out);
        }
        let plane = Plane::of(message.method());
        if plane == Plane::Never {
            return self.take_at_once(epoch, &message, at, out);
        }
        let lane = lane(plane, message.method());
        let mut item = Item::new(message, epoch, at.now, lane);
        item.world = mcpl::is_world(item.message.method());
        if self.passes(lane) && self.waiting.front(lane).is_none() {
            self.admit(None, item, at, out);
        } else {
            self.hold(item, out);
        }
    }

    fn hold(&mut self, item: Item, out: &mut Outbox) -> Option<Seq> {
        let message = item.message.clone();
        let epoch = item.epoch;
        let (held, dropped) = self.waiting.hold(item, &self.settings.bounds);
        self.drop_items(DropReason::HeldFull, &dropped, out);
        match held {
            Held::Waits(seq) => Some(seq),
            Held::Dropped => None,
            Held::Full => {
                let error = Error::new(code::BUSY, HELD_FULL);
                self.refuse_server(epoch, &message, &error, out);
                None
            }
        }
    }

    /// What no plane delays.
    fn take_at_once(&mut self, epoch: Epoch, message: &Message, at: Moment, out: &mut Outbox) {
        match message.method() {
            method::PING => {
                if let Some(id) = message.id_text() {
                    self.answer_server(epoch, jsonrpc::response(id, "{}"), out);
                }
                self.tally.delivered += 1;
            }
            method::PROGRESS => self.take_progress(message, at, out),
            method::CANCELLED => self.take_cancel(epoch, message, out),
            _ if message.kind() == Kind::Request => {
                let error = Error::new(code::METHOD_NOT_FOUND, "removed in MCPL 0.5");
                self.refuse_server(epoch, message, &error, out);
            }
            _ => self.drop_read(DropReason::Unreadable, message.method(), 1, out),
        }
    }

    /// An answer to one of our requests, by our own integer alone (A2).
    fn take_answer(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let id = message.our_id();
        let Some((ours, call)) = id.and_then(|id| Some((id, self.calls.take(id)?))) else {
            return self.take_unmatched(id, message, out);
        };
        self.tally.delivered += 1;
        match call.asker {
            Asker::Host {
                session, ref id, ..
            } => {
                let frame = self.masked_answer(&call.method, message, id.as_str());
                out.answer(session, frame);
                self.subscribed(ours, message.error().is_some());
                self.end_call(session, &call, error_of(message), at, out);
            }
            Asker::Own(Own::Exchange) => {
                let reply = match (message.result(), message.error()) {
                    (Some(result), _) => Reply::Result(result),
                    (None, error) => Reply::Error(error.unwrap_or_default()),
                };
                self.exchanged(reply, at, out);
            }
            Asker::Own(Own::List) => self.take_page(message, at, out),
            Asker::Own(Own::Setting) => {}
        }
    }

    fn take_unmatched(&mut self, id: Option<u64>, message: &Message, out: &mut Outbox) {
        let late = id.and_then(|id| self.calls.take_overdue(id));
        match late {
            Some(method) => self.drop_late_answer(&method, message, out),
            None => self.drop_read(DropReason::Unmatched, "", 1, out),
        }
    }

    /// Carrying state, it is worth telling; either way it goes nowhere (A5).
    fn drop_late_answer(&mut self, method: &str, message: &Message, out: &mut Outbox) {
        self.drop_read(DropReason::LateAnswer, method, 1, out);
        self.tell_orphan(method, message, out);
    }

    fn tell_orphan(&self, method: &str, message: &Message, out: &mut Outbox) {
        let result = message.result().unwrap_or_default();
        if member(result, "state")
            .or_else(|| member(result, "checkpoint"))
            .is_some()
        {
            let method = method.into();
            out.decide(self.serving, Decision::Orphaned { method });
        }
    }

    /// A call of a host is over.
    pub(super) fn end_call(
        &mut self,
        session: SessionId,
        call: &Call,
        error: Option<String>,
        at: Moment,
        out: &mut Outbox,
    ) {
        if let Some(session) = self.hosts.get_mut(session) {
            session.calls = session.calls.saturating_sub(1);
        }
        let called = Decision::Called {
            method: call.method.to_string(),
            took: at.now.saturating_duration_since(call.since),
            error,
        };
        out.decide(self.serving, called);
    }

    fn take_progress(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let token = message.param(&["progressToken"]);
        let ours = token
            .as_ref()
            .and_then(|span| message.text(span).parse().ok());
        let call = ours.and_then(|id| self.calls.get(id));
        let asker = call.map(|call| &call.asker);
        let (
            Some(ours),
            Some(span),
            Some(Asker::Host {
                session,
                token: Some(theirs),
                ..
            }),
        ) = (ours, token, asker)
        else {
            return self.drop_read(DropReason::Unmatched, message.method(), 1, out);
        };
        out.answer(*session, message.with("", &[(span, theirs)]));
        self.calls.renew(ours, at.now);
        self.tally.delivered += 1;
    }

    /// The server no longer wants an answer: of what is held, or of what a host has (G4, A7).
    fn take_cancel(&mut self, epoch: Epoch, message: &Message, out: &mut Outbox) {
        let name = message.method();
        let Some(span) = message.param(&["requestId"]) else {
            return self.drop_read(DropReason::Unmatched, name, 1, out);
        };
        let id = message.text(&span);
        if let Some(seq) = self.waiting.find(epoch, id) {
            let item = self.waiting.take(seq);
            self.drop_items(DropReason::Cancelled, item.as_slice(), out);
            self.tally.delivered += 1;
        } else if let Some((session, ours)) = self.asks.find(epoch, id) {
            out.answer(session, message.with("", &[(span, &ours.to_string())]));
            self.tally.delivered += 1;
            let ask = self.asks.take(session, ours);
            let item = ask.and_then(|ask| self.waiting.take(ask.waiting?));
            if let Some(item) = &item {
                self.admitted.recall(&item.message);
                self.waiting.unpark(|what| what == RECEIPT);
            }
            self.drop_items(DropReason::Cancelled, item.as_slice(), out);
        } else {
            self.drop_read(DropReason::Unmatched, name, 1, out);
        }
    }

    /// Whether the next message of a lane may pass now.
    fn passes(&self, lane: Lane) -> bool {
        let open = match lane {
            Lane::Control => self.gate.is_open(Plane::Control, false),
            Lane::Data => self.gate.is_open(Plane::Data, false),
            Lane::Waking => self.gate.is_open(Plane::Data, true) && self.waiting.out() < WINDOW,
        };
        open && self.serving.is_some()
    }

    /// Lets pass what may, one by one, each plane looked at before each (G10).
    pub(super) fn flush(&mut self, at: Moment, out: &mut Outbox) {
        let waiting = self.waiting.in_order();
        let waiting: Vec<_> = waiting
            .iter()
            .map(|(seq, item)| (*seq, item.kept, &item.message))
            .collect();
        let order = admission::order(&waiting);
        let mut flushed = [0, 0];
        for seq in order {
            self.admit_waiting(seq, &mut flushed, at, out);
        }
        self.tell_flushed(flushed, out);
    }

    /// A host took something: the window has room for more.
    pub(super) fn refill(&mut self, at: Moment, out: &mut Outbox) {
        let mut flushed = [0, 0];
        while self.passes(Lane::Waking)
            && let Some(seq) = self.waiting.front(Lane::Waking)
        {
            self.admit_waiting(seq, &mut flushed, at, out);
            if self.waiting.front(Lane::Waking) == Some(seq) {
                break;
            }
        }
        self.tell_flushed(flushed, out);
    }

    fn admit_waiting(&mut self, seq: Seq, flushed: &mut [u64; 2], at: Moment, out: &mut Outbox) {
        let Some(item) = self.waiting.get(seq).filter(|item| self.passes(item.lane)) else {
            return;
        };
        let item = item.clone();
        let [held, kept] = flushed;
        let count = if item.kept { kept } else { held };
        if self.admit(Some(seq), item, at, out) {
            *count += 1;
        }
    }

    fn tell_flushed(&self, [held, kept]: [u64; 2], out: &mut Outbox) {
        for (queue, messages) in [(Queue::Kept, kept), (Queue::Held, held)] {
            if messages > 0 {
                out.decide(self.serving, Decision::Flushed { queue, messages });
            }
        }
    }

    /// Admits a message under the grant of this moment (G11); `false` where it waits on.
    fn admit(&mut self, seq: Option<Seq>, item: Item, at: Moment, out: &mut Outbox) -> bool {
        let name = item.message.method();
        let missing = mcpl::capability_of(name).filter(|path| !self.policy.granted().has(path));
        if item.world && (item.kept || missing.is_none()) {
            return self.admit_world(seq, item, missing, out);
        }
        if let Some(seq) = seq {
            self.waiting.take(seq);
        }
        match missing {
            Some(path) => self.deny(&item, path, out),
            None => self.dispatch(&item, at, out),
        }
        true
    }

    /// A world message goes to the host, or waits for what it lacks: a capability, its channel, a first receipt.
    fn admit_world(
        &mut self,
        seq: Option<Seq>,
        item: Item,
        missing: Option<&str>,
        out: &mut Outbox,
    ) -> bool {
        if let Some(path) = missing {
            return self.park(seq, item, path, out);
        }
        if let Some(what) = self.awaited_channel(&item) {
            return self.park(seq, item, &what, out);
        }
        let Some(session) = self.hosts.serving() else {
            if seq.is_none() {
                self.hold(item, out);
            }
            return false;
        };
        match self.admitted.novelty(&item.message) {
            Novelty::New => self.deliver(session, seq, item, out),
            Novelty::Admitted(receipt) => self.answer_duplicate(seq, &item, &receipt, out),
            Novelty::Undecided => return self.park(seq, item, RECEIPT, out),
        }
        true
    }

    /// A kept message waits for its channel, and a live one behind it while a host judges that channel (G9).
    fn awaited_channel(&self, item: &Item) -> Option<String> {
        let channels = &self.channels;
        let id = admission::missing_channel(&item.message, |id| channels.has(id))?;
        let what = format!("{CHANNEL}{id}");
        let behind = || self.waiting.is_awaited(&what) && channels.is_pending(&id);
        (item.kept || behind()).then_some(what)
    }

    fn park(&mut self, seq: Option<Seq>, item: Item, what: &str, out: &mut Outbox) -> bool {
        if let Some(seq) = seq.or_else(|| self.hold(item, out)) {
            self.waiting.park(seq, what);
        }
        false
    }

    fn answer_duplicate(&mut self, seq: Option<Seq>, item: &Item, receipt: &str, out: &mut Outbox) {
        if let Some(seq) = seq {
            self.waiting.take(seq);
        }
        if let Some(id) = item.message.id_text() {
            self.answer_server(item.epoch, jsonrpc::response(id, receipt), out);
        }
        self.tally.duplicate += 1;
    }

    /// A host answered a world message: it is delivered, and what repeats it gets the same receipt (G12).
    pub(super) fn delivered(&mut self, seq: Seq, result: Option<&str>) {
        if let Some(item) = self.waiting.take(seq) {
            self.tally.delivered += 1;
            self.admitted.remember(&item.message, result);
            self.waiting.unpark(|what| what == RECEIPT);
        }
    }

    /// A host went without answering a world message (G13).
    pub(super) fn recall(&mut self, seq: Seq, out: &mut Outbox) {
        if let Some(item) = self.waiting.get(seq) {
            self.admitted.recall(&item.message);
        }
        if self.closed_for_good {
            let item = self.waiting.take(seq);
            return self.drop_items(DropReason::ClosedForGood, item.as_slice(), out);
        }
        let full = self
            .waiting
            .recall(seq, self.serving, &self.settings.bounds);
        self.drop_items(DropReason::KeptFull, &full, out);
        self.waiting.unpark(|what| what == RECEIPT);
    }

    /// The serving epoch has lasted: what was kept for a channel that it never registered has nowhere to go (G9).
    pub(super) fn drop_gone(&mut self, out: &mut Outbox) {
        let gone = self.waiting.take_parked(|what| what.starts_with(CHANNEL));
        self.drop_items(DropReason::ChannelGone, &gone, out);
    }

    fn deny(&mut self, item: &Item, path: &str, out: &mut Outbox) {
        if item.message.kind() == Kind::Notification {
            return self.drop_read(DropReason::NotGranted, item.message.method(), 1, out);
        }
        let error = Error::new(code::NOT_GRANTED, format!("{path} is not granted"));
        let error = error.with_data(serde_json::json!({ "capability": path }));
        self.refuse_server(item.epoch, &item.message, &error, out);
    }

    /// Hands a world message to the host that serves; it stays ours until that host has answered (G13).
    fn deliver(&mut self, session: SessionId, seq: Option<Seq>, item: Item, out: &mut Outbox) {
        let message = item.message.clone();
        let epoch = item.epoch;
        let marked = item.redelivered;
        let seq = match seq {
            Some(seq) => {
                self.waiting.hand_out(seq);
                seq
            }
            None => self.waiting.add_out(item),
        };
        self.admitted.hand_out(&message);
        self.ask(session, epoch, &message, Some(seq), marked, out);
    }

    /// Forwards a request to a host under our own id; a world notification is followed by a ping (G13).
    fn ask(
        &mut self,
        session: SessionId,
        epoch: Epoch,
        message: &Message,
        waiting: Option<Seq>,
        redelivered: bool,
        out: &mut Outbox,
    ) {
        let ours = self.asks.next_id(session).to_string();
        let token = token_of(message);
        let mut changes: Vec<_> = token
            .iter()
            .map(|span| (span.clone(), ours.clone()))
            .collect();
        if redelivered {
            changes.extend(mark(message));
        }
        let changes: Vec<_> = changes
            .iter()
            .map(|(span, text)| (span.clone(), &**text))
            .collect();
        out.answer(session, message.with(&ours, &changes));
        let is_request = message.kind() == Kind::Request;
        let ask = Ask {
            epoch,
            id: message.id(),
            method: message.method().into(),
            token: token.map(|span| message.text(&span).into()),
            waiting,
            want: if is_request { Want::Answer } else { Want::Ping },
            deadline: None,
        };
        let id = self.asks.open(session, ask);
        if !is_request {
            out.answer(session, jsonrpc::request(id, method::PING, "{}"));
        }
    }

    fn dispatch(&mut self, item: &Item, at: Moment, out: &mut Outbox) {
        let message = &item.message;
        let name = message.method();
        match name {
            method::TOOLS_CHANGED | method::RESOURCES_CHANGED | method::PROMPTS_CHANGED => {
                self.tell_all(message, out);
                self.reread_lists(name, at, out);
            }
            mcpl::method::CHANNELS_REGISTER | mcpl::method::CHANNELS_CHANGED => {
                self.register(item, at, out);
            }
            mcpl::method::CHANNELS_LIST => self.list_channels(item, at, out),
            method::LOG => self.tell_log(message, out),
            method::RESOURCES_UPDATED => self.tell_subscribers(message, out),
            method::SAMPLING => self.ask_client(item, Skill::Sampling, out),
            method::ELICITATION => self.ask_client(item, Skill::Elicitation, out),
            method::ROOTS_LIST => self.ask_client(item, Skill::Roots, out),
            mcpl::method::HOST_COMMAND if !self.settings.allow_host_commands => {
                let error = Error::new(code::NOT_GRANTED, "host commands are not allowed");
                let error = error.with_data(serde_json::json!({}));
                self.refuse_server(item.epoch, message, &error, out);
            }
            _ => self.give_host(item, out),
        }
    }

    fn give_host(&mut self, item: &Item, out: &mut Outbox) {
        let message = &item.message;
        match (self.hosts.serving(), message.kind()) {
            (Some(session), Kind::Request) => {
                if self.has_room(item, out) {
                    self.tally.delivered += 1;
                    self.ask(session, item.epoch, message, None, false, out);
                }
            }
            (Some(session), _) => {
                self.tally.delivered += 1;
                out.answer(session, message.raw().clone());
            }
            (None, Kind::Request) => self.refuse_nobody(item, out),
            (None, _) if message.method().starts_with("notifications/") => {
                self.tell_all(message, out);
            }
            (None, _) => self.drop_read(DropReason::NoReceiver, message.method(), 1, out),
        }
    }

    fn has_room(&mut self, item: &Item, out: &mut Outbox) -> bool {
        let fits = self.asks.len() < self.settings.bounds.in_flight;
        if !fits {
            let error = Error::new(
                code::BUSY,
                "too many requests are in flight; try again later",
            );
            self.refuse_server(item.epoch, &item.message, &error, out);
        }
        fits
    }

    fn refuse_nobody(&mut self, item: &Item, out: &mut Outbox) {
        // A host may come for what only a host serves; nobody else will for the rest.
        let error = if Plane::of(item.message.method()) == Plane::Control {
            Error::new(code::BUSY, "no host is connected; try again later")
        } else {
            Error::new(code::METHOD_NOT_FOUND, "no client here serves this")
        };
        self.refuse_server(item.epoch, &item.message, &error, out);
    }

    /// A request of MCP's own goes to a client that can serve it (4-faces, "Who gets what").
    fn ask_client(&mut self, item: &Item, skill: Skill, out: &mut Outbox) {
        let message = &item.message;
        match self.hosts.for_request(skill) {
            Some(session) if message.kind() == Kind::Request => {
                if self.has_room(item, out) {
                    self.tally.delivered += 1;
                    self.ask(session, item.epoch, message, None, false, out);
                }
            }
            None if skill == Skill::Elicitation && message.kind() == Kind::Request => {
                let id = message.id_text().unwrap_or("null");
                let answer = jsonrpc::response(id, r#"{"action":"decline"}"#);
                self.answer_server(item.epoch, answer, out);
                self.tally.delivered += 1;
            }
            None if message.kind() == Kind::Request => self.refuse_nobody(item, out),
            _ => self.drop_read(DropReason::NoReceiver, message.method(), 1, out),
        }
    }

    fn tell_all(&mut self, message: &Message, out: &mut Outbox) {
        let all: Vec<SessionId> = self.hosts.initialized_ones().map(|(id, _)| id).collect();
        self.tell(message, &all, out);
    }

    fn tell_log(&mut self, message: &Message, out: &mut Outbox) {
        let level = message.param(&["level"]);
        let level = level.and_then(|span| host::severity(message.text(&span).trim_matches('"')));
        let wants = self
            .hosts
            .initialized_ones()
            .filter(|(_, session)| session.wants_log(level));
        let sessions: Vec<SessionId> = wants.map(|(id, _)| id).collect();
        self.tell(message, &sessions, out);
    }

    fn tell_subscribers(&mut self, message: &Message, out: &mut Outbox) {
        let uri = message.param(&["uri"]).map(|span| message.text(&span));
        let uri = uri.and_then(|text| serde_json::from_str::<String>(text).ok());
        let sessions = self.hosts.subscribers(&uri.unwrap_or_default());
        self.tell(message, &sessions, out);
    }

    /// Copies a notification to sessions.
    fn tell(&mut self, message: &Message, sessions: &[SessionId], out: &mut Outbox) {
        if sessions.is_empty() {
            return self.drop_read(DropReason::NoReceiver, message.method(), 1, out);
        }
        self.tally.delivered += 1;
        for session in sessions {
            out.answer(*session, message.raw().clone());
        }
    }

    /// Answers on the transport that the request came on, or nowhere (A1).
    pub(super) fn answer_server(&self, epoch: Epoch, frame: bytes::Bytes, out: &mut Outbox) {
        if self.serving == Some(epoch) {
            out.send(epoch, Class::Response, frame, None);
        }
    }

    pub(super) fn refuse_server(
        &mut self,
        epoch: Epoch,
        message: &Message,
        error: &Error,
        out: &mut Outbox,
    ) {
        if let Some(id) = message.id_text() {
            self.answer_server(epoch, jsonrpc::error_response(id, error), out);
        }
        self.tally.refused += 1;
        let refused = Decision::RefusedMessage {
            code: error.code,
            method: message.method().into(),
        };
        out.decide(Some(epoch), refused);
    }

    /// A message read after its transport's loss (G7).
    pub(super) fn take_late(
        &mut self,
        epoch: Epoch,
        message: Message,
        at: Moment,
        out: &mut Outbox,
    ) {
        self.tally.read += 1;
        if message.kind() == Kind::Response {
            self.drop_read(DropReason::Late, "", 1, out);
            return self.tell_orphan("", &message, out);
        }
        let name = message.method();
        if !mcpl::is_world(name) {
            return self.drop_read(DropReason::Late, name, 1, out);
        }
        if self.closed_for_good {
            return self.drop_read(DropReason::ClosedForGood, name, 1, out);
        }
        let mut item = Item::new(message, epoch, at.now, Lane::Waking);
        item.world = true;
        let full = self.waiting.keep(item, &self.settings.bounds);
        self.drop_items(DropReason::KeptFull, &full, out);
    }

    /// A boundary for what waits (G5).
    pub(super) fn cross(&mut self, for_good: bool, out: &mut Outbox) {
        let before = self.waiting.kept();
        let crossed = self.waiting.cross(for_good, &self.settings.bounds);
        self.drop_items(DropReason::Boundary, &crossed.process, out);
        self.drop_items(DropReason::ClosedForGood, &crossed.closed, out);
        self.drop_items(DropReason::KeptFull, &crossed.full, out);
        let messages = self.waiting.kept();
        if messages > before {
            let messages = u64::try_from(messages).unwrap_or(u64::MAX);
            out.decide(None, Decision::Kept { messages });
        }
    }

    /// A message waited too long (G4, G6).
    pub(super) fn expire_item(&mut self, item: &Item, out: &mut Outbox) {
        if item.kept {
            return self.drop_read(DropReason::KeptTooOld, item.message.method(), 1, out);
        }
        let error = Error::new(code::BUSY, HELD_LONG);
        self.refuse_server(item.epoch, &item.message, &error, out);
    }
}

fn lane(plane: Plane, name: &str) -> Lane {
    match plane {
        Plane::Data if gate::wakes(name) => Lane::Waking,
        Plane::Data => Lane::Data,
        Plane::Control | Plane::Outside | Plane::Never => Lane::Control,
    }
}

/// Where a request names a token for its progress.
pub(super) fn token_of(message: &Message) -> Option<jsonrpc::Span> {
    let params = message.params()?;
    memchr::memmem::find(params.as_bytes(), b"progressToken")?;
    message.param(&["_meta", "progressToken"])
}

/// The change that marks a message as forwarded a second time (G13).
fn mark(message: &Message) -> Option<(jsonrpc::Span, String)> {
    const MARK: &str = r#""tidegate/redelivered":true"#;
    let meta = message.param(&["_meta"]);
    let nested = meta.is_some();
    let span = meta.or_else(|| message.param(&[]))?;
    let text = message.text(&span);
    let inside = text.strip_prefix('{')?;
    let comma = if inside.trim_ascii_start().starts_with('}') {
        ""
    } else {
        ","
    };
    let mark = if nested {
        MARK.into()
    } else {
        format!(r#""_meta":{{{MARK}}}"#)
    };
    let at = span.start + 1;
    Some((at..at, mark + comma))
}

/// What went wrong, as `Called` names it.
fn error_of(message: &Message) -> Option<String> {
    if let Some(error) = message.error() {
        return Some(member(error, "code").unwrap_or("error").to_owned());
    }
    let result = message.result()?;
    memchr::memmem::find(result.as_bytes(), b"isError")?;
    (member(result, "isError") == Some("true")).then(|| "tool".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, PLAIN, Rig, field};
    use super::*;
    use crate::engine::settings::{Bounds, Settings};

    fn request(id: u64, method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    fn push(id: u64) -> String {
        request(id, "push/event", &format!(r#"{{"eventId":"e{id}"}}"#))
    }

    fn incoming(id: u64, channel: &str) -> String {
        let params = format!(r#"{{"messages":[{{"channelId":"{channel}","messageId":"m{id}"}}]}}"#);
        request(id, "channels/incoming", &params)
    }

    const REGISTER: &str = r#"{"jsonrpc":"2.0","id":100,"method":"channels/register","params":{"channels":[{"id":"chat:1"}]}}"#;

    fn accepted(host_line: &str) -> String {
        let id = field(host_line, "id");
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#)
    }

    /// What waits is counted by kind: held requests, held notifications, kept requests, kept notifications.
    fn waiting(rig: &Rig) -> [usize; 4] {
        let bounds = rig.traffic.settings.bounds;
        let (held, kept) = rig.traffic.waiting.views(rig.now, &bounds);
        [
            held.requests,
            held.notifications,
            kept.requests,
            kept.notifications,
        ]
    }

    fn bounded(bounds: Bounds) -> Rig {
        Rig::with(Settings {
            bounds,
            ..Settings::default()
        })
    }

    #[test]
    fn g2_a_registration_right_after_initialize_waits_for_its_grant_and_is_answered_itemised() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(REGISTER);
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
        rig.accept();
        let wanted = r#"{"jsonrpc":"2.0","id":100,"result":{"registered":["chat:1"],"results":[{"id":"chat:1","accepted":true}]}}"#;
        assert!(rig.take_sent().contains(&wanted.to_owned()));
        assert_eq!(waiting(&rig), [0; 4]);
    }

    #[test]
    fn g1_a_ping_is_answered_while_all_else_is_held() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        rig.server(&push(5));
        rig.server(&request(7, "ping", "{}"));
        assert_eq!(rig.take_sent(), [r#"{"jsonrpc":"2.0","id":7,"result":{}}"#]);
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
    }

    #[test]
    fn g1_a_server_without_mcpl_has_no_policy_hold() {
        let mut rig = Rig::new();
        rig.client(1, r#"{"roots":{}}"#);
        rig.adopt(PLAIN);
        assert!(rig.traffic.is_settled());
        rig.server(&request(1, "roots/list", "{}"));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "roots/list");
        rig.server(&push(2));
        assert_eq!(
            field(&rig.take_sent()[0], "error.data.capability"),
            "pushEvents"
        );
    }

    #[test]
    fn g3_world_messages_wait_for_a_host_and_registrations_do_not() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(REGISTER);
        rig.server(&push(1));
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
        rig.client(1, "{}");
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
        rig.mcpl_host(2);
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
    }

    #[test]
    fn g13_a_host_gets_the_channels_before_the_data_plane_opens() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(REGISTER);
        rig.server(&incoming(1, "chat:1"));
        rig.client(1, r#"{"experimental":{"mcpl":{}}}"#);
        rig.host(
            1,
            &request(
                1,
                "featureSets/update",
                r#"{"effectiveCapabilities":["*","channels.*"]}"#,
            ),
        );
        rig.receipt(r#"{"accepted":true}"#);
        let [_, replay] = &rig.take_answers(1)[..] else {
            panic!("a receipt and a replay are wanted");
        };
        assert_eq!(field(replay, "method"), "channels/register");
        assert_eq!(field(replay, "params.channels.0.id"), "chat:1");
        rig.host(1, &accepted(replay));
        let delivered = rig.take_answers(1);
        assert_eq!(field(&delivered[0], "method"), "channels/incoming");
        rig.host(1, &accepted(&delivered[0]));
        let sent = rig.take_sent();
        assert_eq!(
            sent.last().unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#
        );
    }

    #[test]
    fn g3_a_host_that_does_not_judge_in_time_is_judged_for_and_its_later_refusal_unregisters() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.server(REGISTER);
        let asked = rig.take_answers(1);
        assert!(rig.take_sent().is_empty());
        rig.wait(Duration::from_secs(5));
        assert_eq!(field(&rig.take_sent()[0], "result.registered.0"), "chat:1");
        assert_eq!(rig.traffic.channels.len(), 1);
        let id = field(&asked[0], "id");
        let results = r#"{"results":[{"id":"chat:1","accepted":false}]}"#;
        rig.host(
            1,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{results}}}"#),
        );
        assert_eq!(rig.traffic.channels.len(), 0);
        assert!(rig.take_sent().is_empty());
    }

    #[test]
    fn g3_a_pause_holds_what_wakes_an_agent_and_belongs_to_the_server() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.run(|traffic, at, out| traffic.pause(true, at, out));
        rig.server(&push(1));
        rig.server(&request(2, "x/unknown", "{}"));
        let passed = rig.take_answers(1);
        assert_eq!(passed.len(), 1);
        assert_eq!(field(&passed[0], "method"), "x/unknown");
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert!(
            rig.take_answers(1)
                .iter()
                .all(|line| !line.contains("push/event"))
        );
        rig.run(|traffic, at, out| traffic.pause(false, at, out));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "push/event");
    }

    #[test]
    fn g4_a_request_past_the_bound_is_refused_and_the_oldest_notification_dropped() {
        let mut rig = bounded(Bounds {
            held_requests: 2,
            held_notifications: 2,
            ..Bounds::default()
        });
        rig.adopt(CHAT);
        rig.take_sent();
        for id in 1..=3 {
            rig.server(&push(id));
            rig.server(&format!(
                r#"{{"jsonrpc":"2.0","method":"push/event","params":{{"n":{id}}}}}"#
            ));
        }
        assert_eq!(waiting(&rig), [2, 2, 0, 0]);
        let refused = rig.take_sent();
        assert_eq!(field(&refused[0], "id"), 3);
        assert_eq!(field(&refused[0], "error.code"), code::BUSY);
        assert_eq!(rig.dropped("held_full"), 1);
    }

    #[test]
    fn g4_a_bound_in_bytes_acts_as_the_bound_in_messages() {
        let mut rig = bounded(Bounds {
            held_bytes: 200,
            ..Bounds::default()
        });
        rig.adopt(CHAT);
        rig.take_sent();
        for id in 1..=3 {
            rig.server(&push(id));
        }
        assert_eq!(waiting(&rig), [2, 0, 0, 0]);
        assert_eq!(field(&rig.take_sent()[0], "error.code"), code::BUSY);
    }

    #[test]
    fn g4_a_held_request_that_reports_nothing_of_the_world_is_answered_after_a_minute() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        rig.server(&request(1, "inference/request", "{}"));
        rig.server(&push(2));
        rig.wait(Duration::from_secs(59));
        assert!(rig.take_sent().iter().all(|line| !line.contains("error")));
        rig.wait(Duration::from_secs(1));
        let sent = rig.take_sent();
        let refused: Vec<_> = sent.iter().filter(|line| line.contains("error")).collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(field(refused[0], "id"), 1);
        assert_eq!(waiting(&rig), [1, 0, 0, 0]);
    }

    #[test]
    fn g4_a_cancel_removes_the_held_request() {
        let mut rig = Rig::new();
        rig.settled();
        rig.server(&push(1));
        rig.server(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        assert_eq!(waiting(&rig), [0; 4]);
        assert_eq!(rig.dropped("cancelled"), 1);
    }

    #[test]
    fn g5_a_boundary_keeps_the_world_and_drops_the_process() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(REGISTER);
        rig.server(&push(1));
        rig.server(&request(2, "inference/request", "{}"));
        rig.take_sent();
        rig.lose();
        assert_eq!(waiting(&rig), [0, 0, 1, 0]);
        assert_eq!(rig.dropped("boundary"), 2);
        rig.lose_with(true);
        assert_eq!(waiting(&rig), [0; 4]);
        assert_eq!(rig.dropped("closed_for_good"), 1);
        assert!(rig.take_sent().is_empty());
    }

    #[test]
    fn g6_ten_thousand_kept_messages_do_not_refuse_the_next_registration() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        for id in 0..10_001 {
            rig.server(&push(id));
        }
        rig.take_sent();
        rig.lose();
        assert_eq!(waiting(&rig), [0, 0, 10_000, 0]);
        rig.adopt(CHAT);
        rig.server(REGISTER);
        rig.server(&push(1));
        assert_eq!(waiting(&rig), [2, 0, 10_000, 0]);
        rig.accept();
        assert!(
            rig.take_sent()
                .iter()
                .any(|line| line.contains("registered"))
        );
        rig.lose();
        assert_eq!(waiting(&rig), [0, 0, 10_000, 0]);
        assert_eq!(rig.dropped("kept_full"), 1);
    }

    #[test]
    fn g6_past_the_bound_the_earliest_stay_also_where_boundaries_join() {
        let mut rig = bounded(Bounds {
            kept_requests: 2,
            kept_notifications: 1,
            ..Bounds::default()
        });
        for round in 0..2 {
            rig.adopt(CHAT);
            for id in 1..=2 {
                rig.server(&push(round * 10 + id));
                rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{}}"#);
            }
            rig.take_sent();
            rig.lose();
            rig.late(
                rig.traffic.serving.map_or(round + 1, |epoch| epoch.0),
                &push(99),
            );
        }
        assert_eq!(waiting(&rig), [0, 0, 2, 1]);
        rig.mcpl_host(1);
        rig.settled();
        let events = rig.take_answers(1);
        let ids: Vec<_> = events
            .iter()
            .map(|line| field(line, "params.eventId"))
            .collect();
        assert_eq!(ids[0], "e1");
        assert!(ids.contains(&"e2".into()) && !ids.contains(&"e11".into()));
    }

    #[test]
    fn g6_what_is_kept_too_long_is_dropped() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.take_sent();
        rig.lose();
        rig.wait(Duration::from_secs(86_399));
        assert_eq!(waiting(&rig), [0, 0, 1, 0]);
        rig.wait(Duration::from_secs(1));
        assert_eq!(waiting(&rig), [0; 4]);
        assert_eq!(rig.dropped("kept_too_old"), 1);
    }

    #[test]
    fn g7_a_late_line_is_never_answered_and_a_late_world_message_is_kept() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        rig.lose();
        rig.late(1, &request(1, "ping", "{}"));
        rig.late(1, &request(2, "x/unknown", "{}"));
        rig.late(1, REGISTER);
        rig.late(1, &push(3));
        rig.late(1, r#"{"jsonrpc":"2.0","id":2,"result":{"state":1}}"#);
        assert!(rig.take_sent().is_empty());
        assert_eq!(waiting(&rig), [0, 0, 1, 0]);
        assert_eq!(rig.dropped("late"), 4);
        assert!(
            rig.decisions
                .iter()
                .any(|decision| decision.kind() == "orphaned")
        );
        rig.lose_with(true);
        rig.late(1, &push(4));
        assert_eq!(rig.dropped("closed_for_good"), 2);
    }

    #[test]
    fn g8_kept_messages_never_meet_an_empty_grant() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.take_sent();
        rig.lose();
        rig.run(|traffic, at, out| traffic.pause(true, at, out));
        rig.run(|traffic, at, out| traffic.pause(false, at, out));
        assert!(rig.take_answers(1).is_empty());
        rig.adopt(CHAT);
        rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(waiting(&rig), [0, 0, 1, 0]);
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert_eq!(field(&rig.take_answers(1)[0], "params.eventId"), "e1");
    }

    #[test]
    fn g9_a_kept_message_waits_for_its_channel_and_others_pass_it() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.server(&push(2));
        rig.take_sent();
        rig.lose();
        rig.settled();
        let passed = rig.take_answers(1);
        assert_eq!(passed.len(), 1);
        assert_eq!(field(&passed[0], "method"), "push/event");
        rig.server(REGISTER);
        let asked = rig.take_answers(1);
        rig.server(&incoming(3, "chat:1"));
        assert!(rig.take_answers(1).is_empty());
        rig.host(1, &accepted(&asked[0]));
        let messages = rig.take_answers(1);
        let ids: Vec<_> = messages
            .iter()
            .map(|line| field(line, "params.messages.0.messageId"))
            .collect();
        assert_eq!(ids, ["m1", "m3"]);
    }

    #[test]
    fn g9_a_channel_that_a_lasting_epoch_never_registers_is_gone() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&incoming(1, "chat:1"));
        rig.take_sent();
        rig.lose();
        rig.settled();
        assert_eq!(waiting(&rig), [0, 0, 1, 0]);
        rig.run(|traffic, _, out| traffic.last(out));
        assert_eq!(rig.dropped("channel_gone"), 1);
    }

    #[test]
    fn g10_a_flush_stops_at_the_window_and_goes_on_as_the_host_answers() {
        let mut rig = Rig::new();
        rig.settled();
        for id in 0..300 {
            rig.server(&push(id));
        }
        rig.mcpl_host(1);
        assert_eq!(waiting(&rig), [44, 0, 0, 0]);
        rig.host(1, r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
        assert_eq!(waiting(&rig), [43, 0, 0, 0]);
        assert_eq!(field(&rig.take_answers(1)[0], "params.eventId"), "e256");
    }

    #[test]
    fn g11_authority_is_checked_at_admission() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(CHAT);
        rig.server(&push(1));
        rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{}}"#);
        rig.server(REGISTER);
        rig.receipt(r#"{"accepted":false,"fallback":"mcp-only"}"#);
        let sent = rig.take_sent();
        let refused: Vec<_> = sent
            .iter()
            .map(|line| field(line, "error.data.capability"))
            .collect();
        assert_eq!(refused[..2], ["pushEvents", "channels.register"]);
        assert_eq!(field(&sent[0], "error.code"), code::NOT_GRANTED);
        assert_eq!(rig.dropped("not_granted"), 1);
    }

    #[test]
    fn g11_a_host_command_needs_the_operators_leave() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.take_sent();
        rig.server(&request(1, "host/command", "{}"));
        assert_eq!(field(&rig.take_sent()[0], "error.code"), code::NOT_GRANTED);
        let mut rig = Rig::with(Settings {
            allow_host_commands: true,
            ..Settings::default()
        });
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(1, "host/command", "{}"));
        assert_eq!(field(&rig.take_answers(1)[0], "method"), "host/command");
    }

    #[test]
    fn g12_a_message_that_a_restarted_bridge_sends_again_reaches_the_host_once() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&push(1));
        let first = rig.take_answers(1);
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.server(&request(50, "push/event", r#"{"eventId":"e1"}"#));
        assert!(rig.take_answers(1).is_empty());
        rig.host(1, &accepted(&first[0]));
        rig.server(&request(51, "push/event", r#"{"eventId":"e1"}"#));
        let sent = rig.take_sent();
        let reasons: Vec<_> = sent
            .iter()
            .map(|line| field(line, "result.reason"))
            .collect();
        assert_eq!(
            reasons
                .iter()
                .filter(|reason| *reason == "duplicate")
                .count(),
            2
        );
        assert!(rig.take_answers(1).is_empty());
    }

    #[test]
    fn g13_what_a_host_had_not_answered_goes_first_to_the_next_and_is_marked() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&push(1));
        rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{"_meta":{"k":1}}}"#);
        rig.event(1, crate::engine::input::HostEvent::Detached);
        rig.server(&push(3));
        assert_eq!(waiting(&rig), [2, 1, 0, 0]);
        rig.client(2, r#"{"experimental":{"mcpl":{}}}"#);
        rig.wait(Duration::from_secs(15));
        let lines = rig.take_answers(2);
        assert_eq!(field(&lines[0], "params.eventId"), "e1");
        let mark = "tidegate~1redelivered";
        for line in &lines[..2] {
            assert_eq!(field(line, &format!("params._meta.{mark}")), true, "{line}");
        }
        assert_eq!(field(&lines[1], "params._meta.k"), 1);
        assert_eq!(field(&lines[2], "method"), "ping");
        assert_eq!(field(&lines[3], "params._meta"), serde_json::Value::Null);
    }

    #[test]
    fn a1_two_epochs_that_use_the_same_id_never_cross() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(100, "inference/request", r#"{"n":1}"#));
        let first = rig.take_answers(1);
        rig.take_sent();
        rig.lose();
        rig.settled();
        rig.server(&request(100, "inference/request", r#"{"n":2}"#));
        rig.take_sent();
        rig.host(1, &accepted(&first[0]));
        assert!(rig.take_sent().is_empty());
        let second = rig.take_answers(1);
        rig.host(1, &accepted(second.last().unwrap()));
        assert_eq!(
            rig.take_sent(),
            [r#"{"jsonrpc":"2.0","id":100,"result":{"accepted":true}}"#]
        );
    }

    #[test]
    fn a2_an_answer_that_matches_no_call_is_dropped() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig.host(1, &request(1, "tools/call", "{}"));
        for id in ["2", "\"1\"", "1.0", "01e0"] {
            if let Ok(message) = crate::wire::jsonrpc::Message::parse(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into(),
            ) {
                rig.run(|traffic, at, out| traffic.receive(Epoch(1), message, at, out));
            }
        }
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(rig.dropped("unmatched"), 3);
    }

    #[test]
    fn a7_a_cancel_of_a_request_that_is_with_a_host_reaches_it_under_our_id() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.settled();
        rig.server(&request(9, "inference/request", "{}"));
        let ours = field(&rig.take_answers(1)[0], "id");
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,"reason":"r"}}"#;
        rig.server(cancel);
        let line = &rig.take_answers(1)[0];
        assert_eq!(
            (
                field(line, "params.requestId"),
                field(line, "params.reason")
            ),
            (ours, "r".into())
        );
        rig.server(cancel);
        assert_eq!(rig.dropped("unmatched"), 1);
    }

    #[test]
    fn a_request_of_mcps_own_goes_to_the_client_whose_call_is_in_flight() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.client(1, r#"{"sampling":{}}"#);
        rig.client(2, r#"{"sampling":{}}"#);
        rig.host(2, &request(1, "tools/call", "{}"));
        rig.server(&request(1, "sampling/createMessage", "{}"));
        assert!(rig.take_answers(1).is_empty());
        assert_eq!(
            field(&rig.take_answers(2)[0], "method"),
            "sampling/createMessage"
        );
        rig.take_sent();
        rig.server(&request(2, "elicitation/create", "{}"));
        rig.server(&request(3, "roots/list", "{}"));
        let sent = rig.take_sent();
        assert_eq!(field(&sent[0], "result.action"), "decline");
        assert_eq!(field(&sent[1], "error.code"), code::METHOD_NOT_FOUND);
    }

    #[test]
    fn logs_go_by_level_and_updates_by_subscription() {
        let mut rig = Rig::new();
        rig.adopt(r#"{"capabilities":{"logging":{},"resources":{"subscribe":true}}}"#);
        rig.client(1, "{}");
        rig.client(2, "{}");
        rig.host(1, &request(1, "logging/setLevel", r#"{"level":"error"}"#));
        rig.host(2, &request(1, "logging/setLevel", r#"{"level":"debug"}"#));
        rig.host(2, &request(2, "resources/subscribe", r#"{"uri":"a"}"#));
        rig.take_answers(1);
        rig.take_answers(2);
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}"#,
        ] {
            rig.server(line);
            assert!(rig.take_answers(1).is_empty());
            assert_eq!(rig.take_answers(2), [line]);
        }
    }

    #[test]
    fn removed_methods_are_refused_and_their_notifications_dropped() {
        let mut rig = Rig::new();
        rig.adopt(CHAT);
        rig.take_sent();
        rig.server(&request(1, "scope/elevate", "{}"));
        rig.server(r#"{"jsonrpc":"2.0","method":"featureSets/changed"}"#);
        assert_eq!(
            field(&rig.take_sent()[0], "error.code"),
            code::METHOD_NOT_FOUND
        );
        assert_eq!(rig.dropped("unreadable"), 1);
    }
}
