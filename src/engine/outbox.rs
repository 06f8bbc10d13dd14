//! Where the parts of an engine put what they ask for, in order. It only collects.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::decision::{Class, Decision, Direction};
use super::output::{Output, Record, Regards};
use crate::ids::{Epoch, SessionId};
use crate::wire::redact::Secrets;

/// The outputs of one input.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Output>,
    secrets: Arc<Secrets>,
}

impl Outbox {
    /// The next output, oldest first.
    pub(super) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    /// Asks for something.
    pub(super) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// Writes a message to a server and counts it.
    pub(super) fn send(&mut self, epoch: Epoch, class: Class, frame: Bytes, request: Option<u64>) {
        let forwarded = false;
        self.push(Output::Send {
            epoch,
            frame,
            request,
            forwarded,
        });
        self.carried(epoch, class);
    }

    /// Writes the host's request that is being handled to a server, under the gateway's id, and counts it.
    pub(super) fn forward(&mut self, epoch: Epoch, frame: Bytes, id: u64) {
        let forwarded = true;
        self.push(Output::Send {
            epoch,
            frame,
            request: Some(id),
            forwarded,
        });
        self.carried(epoch, Class::Request);
    }

    fn carried(&mut self, epoch: Epoch, class: Class) {
        let direction = Direction::ToServer;
        self.decide(Some(epoch), Decision::Carried { direction, class });
    }

    /// Writes a message to a host.
    pub(super) fn answer(&mut self, session: SessionId, frame: Bytes) {
        self.tell(session, None, frame);
    }

    /// Writes one to a host that has to do with a request of its own.
    pub(super) fn answer_to(&mut self, session: SessionId, regards: Regards, frame: Bytes) {
        self.tell(session, Some(regards), frame);
    }

    /// Writes one to a host with what is known of it.
    pub(super) fn tell(&mut self, session: SessionId, regards: Option<Regards>, frame: Bytes) {
        self.push(Output::Answer {
            session,
            frame,
            regards,
        });
    }

    /// What is taken out of every text that is told or remembered from now on.
    pub(super) fn hide(&mut self, secrets: Arc<Secrets>) {
        self.secrets = secrets;
    }

    /// What must not be shown.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Tells operators.
    pub(super) fn decide(&mut self, epoch: Option<Epoch>, mut decision: Decision) {
        for text in decision.texts_mut() {
            self.secrets.mask(text);
        }
        self.push(Output::Decided { epoch, decision });
    }

    /// Remembers.
    pub(super) fn record(&mut self, mut record: Record) {
        if let Record::Down { why, .. } = &mut record {
            self.secrets.mask(why);
        }
        self.push(Output::Record(record));
    }
}
