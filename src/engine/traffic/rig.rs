//! A traffic under test, with one server and its hosts played by the test. Test code only.
#![allow(clippy::disallowed_methods, reason = "a test has to begin some time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::{Away, Traffic};
use crate::engine::decision::Decision;
use crate::engine::input::{HostEvent, Moment, Resumed, Stored, Synced};
use crate::engine::outbox::Outbox;
use crate::engine::output::{Output, Posted, Record};
use crate::engine::peer::Peer;
use crate::engine::settings::{Mask, Settings};
use crate::ids::{Epoch, SessionId};
use crate::wire::jsonrpc::Message;
use crate::wire::mcp::Revision;
use crate::wire::mcpl::CAPABILITIES;

/// What a chat bridge advertises.
pub(super) const CHAT: &str = r#"{"capabilities":{"tools":{},"experimental":{"mcpl":{"version":"0.5","pushEvents":true,"inferenceRequest":true,"channels":true}}}}"#;
/// A chat bridge registers its channel.
pub(super) const REGISTER: &str = r#"{"jsonrpc":"2.0","id":100,"method":"channels/register","params":{"channels":[{"id":"chat:1"}]}}"#;
/// What a server advertises that does everything, and needs an operator who names what is denied otherwise (P4).
pub(super) const ALL: &str = r#"{"capabilities":{"tools":{},"experimental":{"mcpl":{"version":"0.5","pushEvents":true,"modelInfo":true,"inferenceRequest":true,"inferenceLifecycle":true,"toolLifecycle":true,"contextHooks":true,"channels":true,"featureSets":{"notes":{"uses":["tools"],"rollback":true},"chat":{"uses":["pushEvents"]}}}}}}"#;
/// What a plain MCP server advertises.
pub(super) const PLAIN: &str = r#"{"capabilities":{}}"#;

pub(super) struct Rig {
    pub(super) traffic: Traffic,
    pub(super) now: Instant,
    epoch: u64,
    out: Outbox,
    /// What was said since the last look.
    pub(super) decisions: Vec<Decision>,
    sent: Vec<(u64, String)>,
    answers: Vec<(u64, String)>,
    /// What told hosts of another manifest: few tests are about that.
    announced: Vec<(u64, String)>,
    dismissed: Vec<(u64, u16)>,
    records: Vec<Record>,
    posted: Vec<(u64, Posted)>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> Self {
        Self {
            traffic: Traffic::new(Arc::new(settings)),
            now: Instant::now(),
            epoch: 0,
            out: Outbox::default(),
            decisions: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            announced: Vec::new(),
            dismissed: Vec::new(),
            records: Vec::new(),
            posted: Vec::new(),
        }
    }

    fn at(&self) -> Moment {
        Moment {
            now: self.now,
            jitter: 0.0,
        }
    }

    /// Runs one input and sorts its outputs.
    pub(super) fn run(&mut self, input: impl FnOnce(&mut Traffic, Moment, &mut Outbox)) {
        let at = self.at();
        input(&mut self.traffic, at, &mut self.out);
        assert!(self.traffic.conserved());
        while let Some(output) = self.out.pop() {
            match output {
                Output::Send { epoch, frame, .. } => self.sent.push((epoch.0, text(&frame))),
                Output::Answer { session, frame, .. } => self.answered(session.0, text(&frame)),
                Output::Dismiss { session, code, .. } => self.dismissed.push((session.0, code)),
                Output::Decided { decision, .. } => self.decisions.push(decision),
                Output::Record(record) => self.records.push(record),
                Output::Posted { ticket, posted } => self.posted.push((ticket, posted)),
                Output::Dial { .. } | Output::Close { .. } => panic!("not traffic's: {output:?}"),
            }
        }
    }

    fn answered(&mut self, session: u64, line: String) {
        if line.contains(r#""method":"mcpl/manifestChanged""#) {
            self.announced.push((session, line));
        } else {
            self.answers.push((session, line));
        }
    }

    /// A state directory is there, with these messages in it.
    pub(super) fn resume(&mut self, kept: Vec<Stored>) {
        let resumed = Resumed {
            durable: true,
            kept,
            ..Resumed::default()
        };
        self.run(|traffic, at, out| traffic.resume(resumed, at.now, out));
    }

    /// The state directory is so far.
    pub(super) fn stored(&mut self, through: u64, failing: bool) {
        let synced = Synced { through, failing };
        self.run(|traffic, _, out| traffic.stored(synced, out));
    }

    /// What the state directory was told since the last look.
    pub(super) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// What became of posts since the last look.
    pub(super) fn take_posted(&mut self) -> Vec<(u64, Posted)> {
        std::mem::take(&mut self.posted)
    }

    /// The next epoch is adopted.
    pub(super) fn adopt(&mut self, initialize: &str) {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        let peer = Peer::read(Revision::LATEST, initialize).unwrap();
        self.run(|traffic, at, out| traffic.adopt(epoch, peer, at, out));
    }

    /// The serving epoch's server writes a line.
    pub(super) fn server(&mut self, line: &str) {
        self.server_of(self.epoch, line);
    }

    pub(super) fn server_of(&mut self, epoch: u64, line: &str) {
        let message = message(line);
        self.run(|traffic, at, out| traffic.receive(Epoch(epoch), message, at, out));
    }

    /// It writes a line within one of our calls.
    pub(super) fn server_during(&mut self, call: u64, line: &str) {
        let (epoch, message) = (Epoch(self.epoch), message(line));
        self.run(|traffic, at, out| {
            traffic.receive_within(epoch, message, Some(call), at, out);
        });
    }

    pub(super) fn late(&mut self, epoch: u64, line: &str) {
        let message = message(line);
        self.run(|traffic, at, out| traffic.late(Epoch(epoch), message, at, out));
    }

    pub(super) fn lose(&mut self) {
        self.lose_with(false);
    }

    pub(super) fn lose_with(&mut self, for_good: bool) {
        let epoch = Epoch(self.epoch);
        self.run(|traffic, at, out| traffic.lose(epoch, for_good, at, out));
    }

    pub(super) fn away(&mut self, away: Away) {
        self.traffic.set_away(away);
    }

    pub(super) fn event(&mut self, session: u64, event: HostEvent) {
        self.run(|traffic, at, out| traffic.host(SessionId(session), event, at, out));
    }

    /// A host's session writes a line.
    pub(super) fn host(&mut self, session: u64, line: &str) {
        self.event(session, HostEvent::Received(message(line)));
    }

    /// A server without MCPL serves a client.
    pub(super) fn plain() -> Self {
        let mut rig = Self::new();
        rig.adopt(PLAIN);
        rig.client(1, "{}");
        rig
    }

    /// A plain client attaches and is initialized.
    pub(super) fn client(&mut self, session: u64, capabilities: &str) {
        self.event(session, HostEvent::Attached { name: None });
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        self.host(session, &initialize);
        self.host(
            session,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        self.answers.clear();
    }

    /// An MCPL host attaches, is initialized and serves.
    pub(super) fn mcpl_host(&mut self, session: u64) {
        self.client(
            session,
            r#"{"experimental":{"mcpl":{"version":"0.5"}},"sampling":{}}"#,
        );
        self.wait(self.traffic.settings.policy_timeout);
        self.answers.clear();
    }

    /// Adopts a chat bridge that accepts the policy.
    pub(super) fn settled(&mut self) {
        self.adopt(CHAT);
        self.accept();
    }

    /// A host serves, and a server that does everything but these has accepted its policy.
    pub(super) fn without(disabled: &[&str]) -> Self {
        let mut rig = Self::with(Settings {
            mask: mask_without(disabled),
            ..Settings::default()
        });
        rig.mcpl_host(1);
        rig.adopt(ALL);
        rig.accept();
        rig.take_sent();
        rig
    }

    /// The operator takes these away on the connection that serves.
    pub(super) fn mask(&mut self, disabled: &[&str]) {
        let settings = Settings {
            mask: mask_without(disabled),
            ..Settings::default()
        };
        self.run(|traffic, at, out| traffic.configure(settings.into(), at, out));
    }

    /// The server accepts the exchange that runs, and what was sent is forgotten.
    pub(super) fn accept(&mut self) {
        self.receipt(r#"{"accepted":true}"#);
    }

    pub(super) fn receipt(&mut self, receipt: &str) {
        let sent = self.take_sent();
        let update = sent
            .iter()
            .rev()
            .find(|line| line.contains("featureSets/update"));
        let id = field(update.unwrap(), "id").to_string();
        self.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{receipt}}}"#
        ));
    }

    /// Time passes, deadline by deadline.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((due, _)) = self.traffic.poll_timeout().filter(|(due, _)| *due <= end) {
            self.now = self.now.max(due);
            self.run(Traffic::handle_timeout);
            assert!(
                self.traffic
                    .poll_timeout()
                    .is_none_or(|(next, _)| next > self.now)
            );
        }
        self.now = end;
    }

    /// What went to the serving epoch's server since the last look.
    pub(super) fn take_sent(&mut self) -> Vec<String> {
        let epoch = self.epoch;
        let sent = std::mem::take(&mut self.sent);
        let its = sent.into_iter().inspect(|(of, _)| assert_eq!(*of, epoch));
        its.map(|(_, line)| line).collect()
    }

    /// What went to a session since the last look.
    pub(super) fn take_answers(&mut self, session: u64) -> Vec<String> {
        take_of(session, &mut self.answers)
    }

    /// What told a session of another manifest since the last look.
    pub(super) fn take_announced(&mut self, session: u64) -> Vec<String> {
        take_of(session, &mut self.announced)
    }

    /// What waits: held requests, held notifications, kept requests, kept notifications.
    pub(super) fn waiting(&self) -> [usize; 4] {
        let bounds = self.traffic.settings.bounds;
        let (held, kept) = self.traffic.waiting.views(self.now, &bounds);
        [
            held.requests,
            held.notifications,
            kept.requests,
            kept.notifications,
        ]
    }

    pub(super) fn take_dismissed(&mut self) -> Vec<(u64, u16)> {
        std::mem::take(&mut self.dismissed)
    }

    /// How the calls of hosts have ended.
    pub(super) fn call_errors(&self) -> Vec<Option<String>> {
        let called = |decision: &Decision| {
            let Decision::Called { error, .. } = decision else {
                return None;
            };
            Some(error.clone())
        };
        self.decisions.iter().filter_map(called).collect()
    }

    /// How many messages were dropped for that reason, by its label.
    pub(super) fn dropped(&self, label: &str) -> u64 {
        let count = |decision: &Decision| {
            let Decision::Dropped { reason, count, .. } = decision else {
                return 0;
            };
            if reason.label() == label { *count } else { 0 }
        };
        self.decisions.iter().map(count).sum()
    }
}

fn mask_without(disabled: &[&str]) -> Mask {
    let names = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
    Mask {
        enabled_capabilities: Some(names(&CAPABILITIES)),
        disabled_capabilities: names(disabled),
        ..Mask::default()
    }
}

fn take_of(session: u64, lines: &mut Vec<(u64, String)>) -> Vec<String> {
    let its = lines.extract_if(.., |(of, _)| *of == session);
    its.map(|(_, line)| line).collect()
}

pub(super) fn message(line: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(line.as_bytes())).unwrap()
}

pub(super) fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

pub(super) fn call(id: u64, params: &str) -> String {
    request(id, "tools/call", params)
}

pub(super) fn push(id: u64) -> String {
    request(id, "push/event", &format!(r#"{{"eventId":"e{id}"}}"#))
}

pub(super) fn incoming(id: u64, channel: &str) -> String {
    let params = format!(r#"{{"messages":[{{"channelId":"{channel}","messageId":"m{id}"}}]}}"#);
    request(id, "channels/incoming", &params)
}

/// A server registers a channel.
pub(super) fn register(channel: &str) -> String {
    request(
        100,
        "channels/register",
        &format!(r#"{{"channels":[{{"id":"{channel}"}}]}}"#),
    )
}

/// A host accepts what it was asked in a line.
pub(super) fn accepted(host_line: &str) -> String {
    let id = field(host_line, "id");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#)
}

/// A member of a line, by its path from the root.
pub(super) fn field(line: &str, path: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap();
    let pointer = format!("/{}", path.replace('.', "/"));
    value.pointer(&pointer).cloned().unwrap_or(Value::Null)
}

fn text(frame: &Bytes) -> String {
    String::from_utf8(frame.to_vec()).unwrap()
}
