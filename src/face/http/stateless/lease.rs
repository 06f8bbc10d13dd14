//! A session with a server while one request has it to itself. Dropping it ends the session, which cancels the
//! request.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use secrecy::SecretString;
use tokio::sync::watch;

use super::Shared;
use super::parked::Room;
use super::pool::{Group, Place};
use crate::engine::input::HostEvent;
use crate::face::access::Access;
use crate::face::{Directory, Inbound, Outgoing, reading};
use crate::revision::host::{self, Inner, Mirrored, Output, Standing};
use crate::wire::jsonrpc::Message;

/// The session.
pub(super) struct Lease<D: Directory> {
    pub(super) place: Place,
    pub(super) inner: Inner,
    pub(super) group: Arc<Group>,
    /// What the request that it serves must be the same in when it is made again; `None` where none can be.
    pub(super) print: Option<[u8; 32]>,
    /// Where it waits for that, once its client was told.
    pub(super) room: Option<Room>,
    /// A frame that the machine has not been given yet, and a message that the engine has not taken.
    unread: Option<Bytes>,
    sending: Option<Message>,
    link: Option<Link<D>>,
    token: Option<SecretString>,
}

/// Its two directions.
struct Link<D: Directory> {
    inbound: D::Inbound,
    outbound: D::Outbound,
}

/// What there is for the client.
#[derive(Debug)]
pub(super) enum Said {
    /// Something on its stream.
    Notify(Bytes),
    /// The end.
    Answer { status: u16, frame: Bytes },
}

impl<D: Directory> Lease<D> {
    pub(super) fn open(
        place: Place,
        inbound: D::Inbound,
        outbound: D::Outbound,
        group: Arc<Group>,
        token: Option<&str>,
    ) -> Self {
        Self {
            inner: Inner::open(place.skills),
            place,
            group,
            print: None,
            room: None,
            unread: None,
            sending: None,
            link: Some(Link { inbound, outbound }),
            token: token.map(Into::into),
        }
    }

    /// The next request of the same host has that token: the one that the session began with may be gone.
    pub(super) fn is_for(&mut self, token: Option<&str>) {
        self.token = token.map(Into::into);
    }

    /// What comes next for the client whose request it serves. May be given up at any time and asked again.
    pub(super) async fn next(&mut self, shared: &Shared<D>) -> Said {
        loop {
            match self.step(shared).await {
                Step::Said(said) => return said,
                Step::Learned(_) => {}
                Step::More => self.read(shared).await,
            }
        }
    }

    /// What it was to learn.
    pub(super) async fn learned(&mut self, shared: &Shared<D>) -> Arc<Mirrored> {
        loop {
            match self.step(shared).await {
                Step::Learned(mirrored) => return mirrored,
                // Nobody is served yet.
                Step::Said(_) => return Arc::default(),
                Step::More => self.read(shared).await,
            }
        }
    }

    /// Takes what came while it served nobody; whether it goes on.
    pub(super) async fn catch_up(&mut self) -> bool {
        loop {
            // Whoever would be told of these is not there.
            while self.pump().await.is_some() {}
            let Some(link) = &mut self.link else {
                return false;
            };
            match link.outbound.next().now_or_never() {
                None => return true,
                Some(outgoing) => self.take(outgoing),
            }
        }
    }

    /// Waits for what comes while its client is away; `false` once nothing will. May be given up at any time.
    pub(super) async fn overhear(&mut self) -> bool {
        if let Some(link) = &mut self.link {
            let outgoing = link.outbound.next().await;
            self.take(outgoing);
        }
        self.catch_up().await
    }

    /// Does what the machine wants done, up to something that is not for the engine.
    async fn step(&mut self, shared: &Shared<D>) -> Step {
        loop {
            match self.pump().await {
                Some(Output::Notify(frame)) => return Step::Said(Said::Notify(frame)),
                Some(Output::Answer { status, frame }) => {
                    return Step::Said(Said::Answer { status, frame });
                }
                Some(Output::Learned(mirrored)) => {
                    return Step::Learned(self.group.learn(mirrored));
                }
                Some(Output::Send(_) | Output::Stale) => {}
                None if self.rest(shared) => {}
                None => return Step::More,
            }
        }
    }

    /// Gives the machine what was read and the engine what the machine sends; what is for neither comes back.
    async fn pump(&mut self) -> Option<Output> {
        loop {
            if let Some(frame) = self.unread.clone() {
                // Each was a message before the engine passed it on.
                if let Ok(message) = reading::read(frame).await {
                    self.inner.receive(&message);
                }
                self.unread = None;
            }
            if let Some(message) = self.sending.clone() {
                self.hand_over(message).await;
                self.sending = None;
            }
            match self.inner.poll()? {
                Output::Send(frame) => self.sending = Message::parse(frame).ok(),
                Output::Stale => self.group.forget(),
                output @ (Output::Notify(_) | Output::Answer { .. } | Output::Learned(_)) => {
                    return Some(output);
                }
            }
        }
    }

    /// Tells what the server asked, once nothing more is there to be read; whether there is something to do then.
    fn rest(&mut self, shared: &Shared<D>) -> bool {
        let Some(bytes) = self.inner.gathered() else {
            return false;
        };
        let link = self.link.as_mut();
        if let Some(outgoing) = link.and_then(|link| link.outbound.next().now_or_never()) {
            self.take(outgoing);
            return true;
        }
        match shared.parked.room(bytes) {
            Some(room) => {
                self.inner.rest(room.key());
                self.room = Some(room);
            }
            None => self.inner.give_up(host::full()),
        }
        true
    }

    /// Waits for the engine, or for the token to go.
    async fn read(&mut self, shared: &Shared<D>) {
        let Some(link) = &mut self.link else {
            return self.inner.close();
        };
        let mut access = shared.access.clone();
        let token = self.token.as_ref();
        let outgoing = tokio::select! {
            outgoing = link.outbound.next() => outgoing,
            () = revoked(&mut access, token, self.place.server.as_deref()) => None,
        };
        self.take(outgoing);
    }

    fn take(&mut self, outgoing: Option<Outgoing>) {
        match outgoing {
            Some(Outgoing::Frame(frame) | Outgoing::Regarding(_, frame)) => {
                self.unread = Some(frame)
            }
            Some(Outgoing::Close { .. }) | None => self.unlink(),
        }
    }

    async fn hand_over(&mut self, message: Message) {
        let Some(link) = &self.link else { return };
        let inbound = &link.inbound;
        if !inbound.send(HostEvent::Received(message)).await {
            self.unlink();
        }
    }

    /// There is no session any more.
    fn unlink(&mut self) {
        if let Some(link) = self.link.take() {
            end(link.inbound);
        }
        self.inner.close();
    }

    /// Whether it can serve the next request.
    pub(super) fn is_free(&self) -> bool {
        self.link.is_some() && self.inner.standing() == Standing::Free
    }
}

enum Step {
    Said(Said),
    Learned(Arc<Mirrored>),
    More,
}

/// Waits until a token is no longer good for a server.
pub(super) async fn revoked(
    access: &mut watch::Receiver<Access>,
    token: Option<&SecretString>,
    server: Option<&str>,
) {
    use secrecy::ExposeSecret;
    let token = token.map(ExposeSecret::expose_secret);
    while access.changed().await.is_ok() {
        if access.borrow_and_update().identify(token, server).is_err() {
            return;
        }
    }
    // The gateway is about to end, and every session with it.
    std::future::pending().await
}

impl<D: Directory> Drop for Lease<D> {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Ends a session from where nobody can wait for it.
pub(super) fn end(inbound: impl Inbound) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { inbound.send(HostEvent::Detached).await });
    }
}
