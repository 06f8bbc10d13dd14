//! The transport that a server's task started last: the queue to it, and what is translated on the way where the server
//! may speak another revision than its engine (decision 0015).

use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::outbound::{Full, Outbound};
use crate::engine::input::{End, LinkEvent, Loss};
use crate::ids::Epoch;
use crate::revision::server::{Output, Server as Translation};
use crate::transport::Frame;

/// The transport of one epoch.
pub(super) struct Link {
    pub(super) epoch: Epoch,
    pub(super) frames: Outbound<Frame>,
    pub(super) close: CancellationToken,
    /// Its frames carry header fields, and it ends with its server's stream of changes (R19).
    pub(super) over_http: bool,
    /// Not there where the server speaks as its engine does.
    pub(super) translation: Option<Translation>,
}

impl Link {
    /// Sends a frame of the engine's. What the engine is to be told of it.
    pub(super) fn send(
        &mut self,
        frame: Bytes,
        request: Option<u64>,
        now: Instant,
    ) -> Vec<LinkEvent> {
        let Some(translation) = &mut self.translation else {
            let mut told = Vec::new();
            self.push(frame, request, now, &mut told);
            return told;
        };
        translation.take_of_engine(frame, request, now);
        self.carry_out(now)
    }

    /// What the engine is to be told where the transport told this, in order.
    pub(super) fn read(&mut self, event: LinkEvent, now: Instant) -> Vec<LinkEvent> {
        let Some(translation) = &mut self.translation else {
            return vec![event];
        };
        let rest = match event {
            LinkEvent::Received(message) | LinkEvent::Asked { message, .. } => {
                translation.take_of_server(message, now);
                None
            }
            LinkEvent::Unreadable { what, sample } if what.about().is_none() => {
                Some(LinkEvent::Unreadable { what, sample })
            }
            LinkEvent::Unreadable { what, .. } => {
                translation.take_unreadable(what, now);
                None
            }
            LinkEvent::Lost(loss) => {
                translation.take_loss();
                Some(LinkEvent::Lost(loss))
            }
            LinkEvent::Unsent {
                request: Some(id),
                frame,
            } => translation.unsent(id, now).map(|id| LinkEvent::Unsent {
                request: Some(id),
                frame,
            }),
            LinkEvent::Secrets(_)
            | LinkEvent::Connected
            | LinkEvent::Failed(_)
            | LinkEvent::Unsent { request: None, .. }
            | LinkEvent::Stderr(_)
            | LinkEvent::Gone(_) => Some(event),
        };
        let mut told = self.carry_out(now);
        told.extend(rest);
        told
    }

    /// When the translation wants to be woken.
    pub(super) fn due(&self) -> Option<Instant> {
        self.translation.as_ref()?.poll_timeout()
    }

    /// What the engine is to be told now that it is that late.
    pub(super) fn wake(&mut self, now: Instant) -> Vec<LinkEvent> {
        if let Some(translation) = &mut self.translation {
            translation.handle_timeout(now);
        }
        self.carry_out(now)
    }

    fn carry_out(&mut self, now: Instant) -> Vec<LinkEvent> {
        let mut told = Vec::new();
        while let Some(output) = self.translation.as_mut().and_then(Translation::poll_output) {
            match output {
                Output::Send { frame, request } => self.push(frame, request, now, &mut told),
                Output::Receive {
                    message,
                    during: None,
                } => told.push(LinkEvent::Received(message)),
                Output::Receive {
                    message,
                    during: Some(during),
                } => told.push(LinkEvent::Asked { message, during }),
                Output::Unreadable(what) => {
                    let sample = String::new();
                    told.push(LinkEvent::Unreadable { what, sample });
                }
                Output::Unsent(frame) => {
                    let request = None;
                    told.push(LinkEvent::Unsent { request, frame });
                }
                Output::Deaf(why) if self.over_http => told.push(deaf(&why)),
                // A launched server serves on, and its lists stay as they were.
                Output::Deaf(_) => {}
            }
        }
        if self
            .translation
            .as_ref()
            .is_some_and(Translation::is_needless)
        {
            self.translation = None;
        }
        told
    }

    /// Queues a frame where it fits.
    fn push(
        &mut self,
        frame: Bytes,
        request: Option<u64>,
        now: Instant,
        told: &mut Vec<LinkEvent>,
    ) {
        let bytes = frame.clone();
        let fields = match &self.translation {
            Some(translation) if self.over_http => translation.heading(&bytes),
            _ => Vec::new(),
        };
        let queued = self.frames.push(Frame {
            bytes,
            request,
            fields,
        });
        if queued != Err(Full) {
            return;
        }
        let request = match (&mut self.translation, request) {
            (Some(translation), Some(id)) => translation.unsent(id, now),
            (_, request) => request,
        };
        told.push(LinkEvent::Unsent { request, frame });
    }
}

/// R19: the loss of the stream that was not mended.
fn deaf(why: &str) -> LinkEvent {
    let why = format!("its stream of changes was lost and could not be opened again: {why}");
    LinkEvent::Lost(Loss {
        end: End::Reset(why),
        stderr: Vec::new(),
    })
}
