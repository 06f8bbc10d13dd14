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
    pub(super) fn from_server(
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
        let channels = &self.channels;
        let gone = admission::missing_channel(&item.message, |id| channels.has(id));
        if let Some(channel) = gone.filter(|_| item.kept) {
            return self.park(seq, item, &format!("{CHANNEL}{channel}"), out);
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
            (None, _) => self.tell_all(message, out),
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
        let error = Error::new(code::METHOD_NOT_FOUND, "no client here serves this");
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
        let all: Vec<SessionId> = self.hosts.answered().map(|(id, _)| id).collect();
        self.tell(message, &all, out);
    }

    fn tell_log(&mut self, message: &Message, out: &mut Outbox) {
        let level = message.param(&["level"]);
        let level = level.and_then(|span| host::severity(message.text(&span).trim_matches('"')));
        let wants = self
            .hosts
            .answered()
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
