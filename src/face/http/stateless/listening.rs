//! A `subscriptions/listen` that is open: a session of its own, and what is written of it. Dropping it ends the
//! session.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::StreamExt;
use secrecy::SecretString;
use tokio::sync::watch;

use super::Caller;
use super::lease::{end, revoked};
use crate::engine::input::HostEvent;
use crate::face::access::Access;
use crate::face::{Directory, Inbound, Outgoing};
use crate::revision::host::{Listen, Output};
use crate::wire::jsonrpc::Message;

/// The stream.
pub(super) struct Listening<D: Directory> {
    listen: Listen,
    inbound: Option<D::Inbound>,
    outbound: D::Outbound,
    access: watch::Receiver<Access>,
    /// `None` is all servers.
    server: Option<String>,
    token: Option<SecretString>,
    sending: VecDeque<Message>,
    is_over: bool,
}

impl<D: Directory> Listening<D> {
    pub(super) fn new(
        listen: Listen,
        inbound: D::Inbound,
        outbound: D::Outbound,
        caller: &Caller<'_>,
        access: watch::Receiver<Access>,
    ) -> Self {
        Self {
            listen,
            inbound: Some(inbound),
            outbound,
            access,
            server: caller.server.map(str::to_owned),
            token: caller.token.map(Into::into),
            sending: VecDeque::new(),
            is_over: false,
        }
    }

    /// The next message for the client; `None` where there is no more. May be given up at any time and asked again.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.send().await;
            match self.listen.poll() {
                Some(Output::Send(frame)) => self.sending.extend(Message::parse(frame).ok()),
                Some(Output::Notify(frame)) => return Some(frame),
                Some(Output::Answer { frame, .. }) => {
                    self.is_over = true;
                    return Some(frame);
                }
                Some(Output::Learned(_) | Output::Stale) => {}
                None if self.is_over => return None,
                None => self.read().await,
            }
        }
    }

    async fn send(&mut self) {
        while let (Some(message), Some(inbound)) = (self.sending.front(), &self.inbound) {
            let taken = inbound.send(HostEvent::Received(message.clone())).await;
            self.sending.pop_front();
            if !taken {
                self.listen.close();
            }
        }
    }

    async fn read(&mut self) {
        let outgoing = tokio::select! {
            outgoing = self.outbound.next() => outgoing,
            () = revoked(&mut self.access, self.token.as_ref(), self.server.as_deref()) => None,
        };
        match outgoing {
            Some(Outgoing::Frame(frame) | Outgoing::Regarding(_, frame)) => {
                if let Ok(message) = Message::parse(frame) {
                    self.listen.receive(&message);
                }
            }
            Some(Outgoing::Close { .. }) | None => {
                self.listen.close();
                self.is_over = true;
            }
        }
    }
}

impl<D: Directory> Drop for Listening<D> {
    fn drop(&mut self) {
        if let Some(inbound) = self.inbound.take() {
            end(inbound);
        }
    }
}
