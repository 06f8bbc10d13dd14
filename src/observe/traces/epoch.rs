//! The trace of an epoch: its root from the dial to the loss, its children, which end at once, and what is told beside
//! them. A root is made when it ends; what has to be seen before is a span of its own.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{Event, SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;

use super::exporter::Exporter;
use super::span::{self, child, count, event, fail, has, ids, key, link, network, text};
use crate::engine::decision::{ClearCause, Decision};
use crate::engine::input::Outcome;
use crate::ids::{Attempt, Epoch, OpenEpoch, ServerId, SpanIds};

const ROOT: &str = "mcpl.epoch";
const PENDING: &str = "mcpl.epoch (open)";
const ALONE: &str = "mcpl.decision";
/// The most events in a root; more are counted in it.
const EVENTS_MAX: usize = 128;

/// How far a server's counters are, so that a difference tells what one epoch counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::observe) struct Counts {
    /// Messages read.
    pub(in crate::observe) from_server: u64,
    /// Messages written.
    pub(in crate::observe) to_server: u64,
    /// Messages admitted after they had been held.
    pub(in crate::observe) held: u64,
    /// Messages dropped.
    pub(in crate::observe) dropped: u64,
}

/// The epochs of one server.
pub(super) struct Epochs {
    server: ServerId,
    transport: &'static str,
    open: Option<Open>,
    /// The root of the last epoch.
    last: Option<SpanIds>,
}

/// An epoch whose root has not ended.
struct Open {
    epoch: Epoch,
    attempt: Attempt,
    ids: SpanIds,
    /// Both clocks at its dial: later times are this one and what the monotonic clock says since (R6).
    began: (Instant, SystemTime),
    connected: Option<SystemTime>,
    adopted: bool,
    end: Option<End>,
    kept: u64,
    events: Vec<Event>,
    events_dropped: u32,
    counts: Counts,
    /// At the last checkpoint.
    checked: Counts,
}

/// How it ended.
struct End {
    at: SystemTime,
    attributes: Vec<KeyValue>,
    /// Where it failed.
    error: Option<String>,
}

impl Epochs {
    pub(super) fn new(server: ServerId, transport: &'static str) -> Self {
        Self {
            server,
            transport,
            open: None,
            last: None,
        }
    }

    /// The epoch that is open.
    pub(super) fn open(&self) -> Option<OpenEpoch> {
        self.open.as_ref().map(|open| OpenEpoch {
            epoch: open.epoch,
            attempt: open.attempt,
            span: open.ids,
            began: open.began.1,
        })
    }

    /// Takes a decision.
    pub(super) fn decided(
        &mut self,
        at: Instant,
        epoch: Option<Epoch>,
        decision: &Decision,
        counts: impl Fn() -> Counts,
        out: &Exporter,
    ) {
        if let (Decision::Dialing { attempt }, Some(epoch)) = (decision, epoch) {
            // A dial waits for the end of the last transport; one at once is told before that is.
            if let Some(before) = self.open.as_ref().map(|open| open.epoch) {
                self.gone(at, before, counts(), out);
            }
            self.open = Some(Open::new(epoch, Attempt(*attempt), at, counts()));
            return;
        }
        // What speaks of an epoch speaks of the one that is open, or of one whose root has gone out.
        let mut open = self.open.take();
        let its = open
            .as_mut()
            .filter(|open| epoch.is_none_or(|epoch| epoch == open.epoch));
        match its {
            Some(open) if !is_alone(decision) => {
                for mut told in open.take(at, decision) {
                    told.attributes.extend(self.who(open.epoch, open.attempt));
                    out.export(told);
                }
            }
            _ => {
                if let Some((name, attributes)) = edge(decision) {
                    out.export(self.alone(name, attributes, open.as_ref(), epoch));
                }
            }
        }
        self.open = open;
    }

    /// Nothing of the epoch's transport is left, so everything that its end decided has been told.
    pub(super) fn gone(&mut self, at: Instant, epoch: Epoch, counts: Counts, out: &Exporter) {
        let Some(open) = self.open.take_if(|open| open.epoch == epoch) else {
            return;
        };
        self.last = Some(open.ids);
        let who = self.who(open.epoch, open.attempt);
        let mut root = open.root(at, counts);
        root.attributes.extend(who);
        out.export(root);
    }

    /// An earlier process died while this epoch was open. When it died nobody knows: no later than now.
    pub(super) fn died(&mut self, left: OpenEpoch, now: SystemTime, out: &Exporter) {
        self.last = Some(left.span);
        let mut root = span::span(ROOT, SpanKind::Internal, left.span, (left.began, now));
        root.attributes.extend(self.who(left.epoch, left.attempt));
        root.attributes.push(has(key::END, "gateway_died"));
        root.attributes.push(has(key::ERROR, "gateway_died"));
        fail(&mut root, "gateway died");
        out.export(root);
    }

    /// Tells of an epoch that stays open. `waiting` is how many messages are held and kept.
    pub(super) fn checkpoint(
        &mut self,
        at: Instant,
        counts: Counts,
        (held, kept): (usize, usize),
        out: &Exporter,
    ) {
        let Some(open) = self.open.as_mut().filter(|open| open.adopted) else {
            return;
        };
        let now = open.wall(at);
        let mut told = open.child("checkpoint", SpanKind::Internal, (now, now));
        told.attributes = counts.since(open.checked).to_vec();
        told.attributes
            .push(has(key::WAITING_HELD, count(held as u64)));
        told.attributes
            .push(has(key::WAITING_KEPT, count(kept as u64)));
        open.checked = counts;
        let (epoch, attempt) = (open.epoch, open.attempt);
        told.attributes.extend(self.who(epoch, attempt));
        out.export(told);
    }

    fn who(&self, epoch: Epoch, attempt: Attempt) -> [KeyValue; 4] {
        [
            has(key::SERVER, self.server.as_str().to_owned()),
            has(key::EPOCH, count(epoch.0)),
            has(key::ATTEMPT, count(attempt.0)),
            has(key::NETWORK, network(self.transport)),
        ]
    }

    /// A decision that belongs to no open epoch is a trace of its own, linked to the last one.
    fn alone(
        &self,
        name: &'static str,
        attributes: Vec<KeyValue>,
        open: Option<&Open>,
        epoch: Option<Epoch>,
    ) -> SpanData {
        let now = SystemTime::now();
        let mut told = span::span(ALONE, SpanKind::Internal, ids(None), (now, now));
        told.attributes = attributes;
        told.attributes.push(has(key::DECISION, name));
        told.attributes
            .push(has(key::SERVER, self.server.as_str().to_owned()));
        if let Some(epoch) = epoch {
            told.attributes.push(has(key::EPOCH, count(epoch.0)));
        }
        if let Some(of) = open.map(|open| open.ids).or(self.last) {
            link(&mut told, of);
        }
        told
    }
}

impl Open {
    fn new(epoch: Epoch, attempt: Attempt, at: Instant, counts: Counts) -> Self {
        Self {
            epoch,
            attempt,
            ids: ids(None),
            began: (at, SystemTime::now()),
            connected: None,
            adopted: false,
            end: None,
            kept: 0,
            events: Vec::new(),
            events_dropped: 0,
            counts,
            checked: counts,
        }
    }

    fn wall(&self, at: Instant) -> SystemTime {
        let (then, wall) = self.began;
        wall + at.saturating_duration_since(then)
    }

    /// Takes a decision of this epoch; what is to be told of it at once.
    fn take(&mut self, at: Instant, decision: &Decision) -> Vec<SpanData> {
        let now = self.wall(at);
        if let Some((name, mut attributes)) = edge(decision) {
            attributes.push(has(key::DECISION, name));
            self.note(event(name, now, attributes));
        }
        if matches!(decision, Decision::Connected { .. }) {
            self.connected = Some(now);
        }
        self.learn(now, decision);
        self.children(now, decision)
    }

    /// What its root will say of a decision.
    fn learn(&mut self, now: SystemTime, decision: &Decision) {
        if let Decision::AttemptFailed { outcome, why, .. } = decision {
            self.failed(now, *outcome, why);
        } else if let Decision::Ended { .. } = decision {
            self.ended(now, decision);
        } else if let Decision::ShortEnd { why, .. } | Decision::Halted { why, .. } = decision {
            self.blame(why);
        } else if let Decision::Kept { messages } = decision {
            self.kept = *messages;
        } else if let Decision::Adopted { .. } = decision {
            self.adopted = true;
        }
    }

    fn children(&self, now: SystemTime, decision: &Decision) -> Vec<SpanData> {
        match decision {
            Decision::Connected { .. } => {
                vec![self.child("dial", SpanKind::Client, (self.began.1, now))]
            }
            Decision::Adopted { revision, mcpl, .. } => {
                vec![
                    self.initialized(now, revision.as_str(), *mcpl),
                    self.pending(now),
                ]
            }
            Decision::AttemptFailed { outcome, why, .. } => vec![self.broken(now, *outcome, why)],
            Decision::Settled {
                outcome,
                granted,
                took,
                ..
            } => {
                let asked = now.checked_sub(*took).unwrap_or(now);
                let mut told = self.child("policy exchange", SpanKind::Client, (asked, now));
                told.attributes = vec![
                    has(key::OUTCOME, outcome.label()),
                    has(key::GRANTED, count(*granted as u64)),
                ];
                vec![told]
            }
            Decision::Flushed { queue, messages } => {
                let mut told = self.child("flush", SpanKind::Internal, (now, now));
                told.attributes = vec![
                    has(key::QUEUE, queue.label()),
                    has(key::MESSAGES, count(*messages)),
                ];
                vec![told]
            }
            Decision::Lasted { lived } => {
                let mut told = self.child("lasted", SpanKind::Internal, (now, now));
                told.attributes = vec![has(key::LIVED, lived.as_secs_f64())];
                vec![told]
            }
            Decision::SessionRenewed { .. } => {
                vec![self.child("session renewed", SpanKind::Internal, (now, now))]
            }
            // These are in the root, or are told by metrics, the log and events alone.
            Decision::State(_)
            | Decision::Dialing { .. }
            | Decision::Ended { .. }
            | Decision::ShortEnd { .. }
            | Decision::Halted { .. }
            | Decision::Kept { .. }
            | Decision::Waiting { .. }
            | Decision::Manifest { .. }
            | Decision::Down { .. }
            | Decision::Clear { .. }
            | Decision::Refused { .. }
            | Decision::Carried { .. }
            | Decision::Dropped { .. }
            | Decision::Repeated { .. }
            | Decision::UnknownChannel { .. }
            | Decision::RefusedMessage { .. }
            | Decision::Accepted { .. }
            | Decision::Verdict { .. }
            | Decision::HoldLifted { .. }
            | Decision::Called { .. }
            | Decision::HostAttached
            | Decision::HostServes { .. }
            | Decision::HostDetached
            | Decision::Paused(_)
            | Decision::Noise { .. }
            | Decision::Stderr(_)
            | Decision::Orphaned { .. }
            | Decision::AnsweredLate { .. }
            | Decision::Reported(_) => Vec::new(),
        }
    }

    fn child(
        &self,
        name: &'static str,
        kind: SpanKind,
        times: (SystemTime, SystemTime),
    ) -> SpanData {
        child(name, kind, self.ids, times)
    }

    fn note(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        } else {
            self.events_dropped = self.events_dropped.saturating_add(1);
        }
    }

    fn initialized(&self, now: SystemTime, revision: &'static str, mcpl: bool) -> SpanData {
        let asked = self.connected.unwrap_or(self.began.1);
        let mut told = self.child("initialize", SpanKind::Client, (asked, now));
        told.attributes = vec![
            has(key::METHOD, "initialize"),
            has(key::REVISION, revision),
            has(key::MCPL, mcpl),
        ];
        told
    }

    /// What shows that an epoch is open before its root is there.
    fn pending(&self, now: SystemTime) -> SpanData {
        let mut told = self.child(PENDING, SpanKind::Internal, (now, now));
        told.attributes = vec![has(key::STATE, "open")];
        told
    }

    /// The step that an attempt failed in.
    fn broken(&self, now: SystemTime, outcome: Outcome, why: &str) -> SpanData {
        let (name, since) = match self.connected {
            Some(connected) => ("initialize", connected),
            None => ("dial", self.began.1),
        };
        let mut told = self.child(name, SpanKind::Client, (since, now));
        told.attributes = vec![has(key::ERROR, outcome.label())];
        fail(&mut told, why);
        told
    }

    fn failed(&mut self, now: SystemTime, outcome: Outcome, why: &str) {
        self.end = Some(End {
            at: now,
            attributes: vec![
                has(key::END, outcome.label()),
                has(key::ERROR, outcome.label()),
            ],
            error: Some(why.to_owned()),
        });
    }

    fn ended(&mut self, now: SystemTime, decision: &Decision) {
        let Decision::Ended {
            attempt,
            end,
            lasted,
            lived,
            failed_attempts,
        } = decision
        else {
            return;
        };
        let mut attributes = vec![
            has(key::END, end.label()),
            has(key::LASTED, *lasted),
            has(key::LIVED, lived.as_secs_f64()),
            has(key::FAILED_ATTEMPTS, count(*failed_attempts)),
        ];
        // R4: a short end, and nothing else here, counts as the failure of its attempt.
        let early = !lasted && failed_attempts > attempt;
        if early {
            attributes.push(has(key::ERROR, end.label()));
        }
        self.end = Some(End {
            at: now,
            attributes,
            error: early.then(|| end.to_string()),
        });
    }

    /// Says more of why it ended early.
    fn blame(&mut self, why: &str) {
        if let Some(end) = &mut self.end {
            end.error = Some(why.to_owned());
        }
    }

    fn root(self, at: Instant, counts: Counts) -> SpanData {
        let gone = self.wall(at);
        let adopted = self.adopted;
        let end = self.end.unwrap_or_else(|| End {
            at: gone,
            attributes: vec![has(key::END, "operator")],
            error: (!adopted).then(|| "never adopted".to_owned()),
        });
        let mut root = span::span(ROOT, SpanKind::Internal, self.ids, (self.began.1, end.at));
        root.attributes = end.attributes;
        root.attributes.extend(counts.since(self.counts));
        root.attributes.push(has(key::KEPT, count(self.kept)));
        root.events.events = self.events;
        root.events.dropped_count = self.events_dropped;
        root.status = end
            .error
            .map_or(Status::Unset, |why| Status::error(text(&why)));
        root
    }
}

impl Counts {
    fn since(self, then: Self) -> [KeyValue; 4] {
        let more = |now: u64, then: u64| count(now.saturating_sub(then));
        [
            has(key::FROM_SERVER, more(self.from_server, then.from_server)),
            has(key::TO_SERVER, more(self.to_server, then.to_server)),
            has(key::HELD, more(self.held, then.held)),
            has(key::DROPPED, more(self.dropped, then.dropped)),
        ]
    }
}

/// It is never about an epoch's life, so it never waits for an epoch's end.
fn is_alone(decision: &Decision) -> bool {
    let removed = matches!(
        decision,
        Decision::Clear {
            cause: ClearCause::Removed | ClearCause::Disabled,
            ..
        }
    );
    removed || matches!(decision, Decision::Refused { .. })
}

/// What is told of an edge: its name and its attributes; `None` for what is no edge.
fn edge(decision: &Decision) -> Option<(&'static str, Vec<KeyValue>)> {
    let seconds = |time: Duration| time.as_secs_f64();
    let attributes = if let Decision::Down { attempt, why, .. } = decision {
        vec![
            has(key::ATTEMPT, count(*attempt)),
            has(key::REASON, text(why)),
        ]
    } else if let Decision::Clear {
        failed_attempts,
        down_for,
        ..
    } = decision
    {
        vec![
            has(key::FAILED_ATTEMPTS, count(*failed_attempts)),
            has(key::DOWN_SECONDS, seconds(*down_for)),
        ]
    } else if let Decision::Halted { attempt, why } = decision {
        vec![
            has(key::ATTEMPT, count(*attempt)),
            has(key::REASON, text(why)),
        ]
    } else if let Decision::Refused { problem } = decision {
        vec![has(key::REASON, text(problem))]
    } else {
        return None;
    };
    Some((decision.kind(), attributes))
}
