//! What goes to one server's side: handed over at once where there is room, else in order once there is, so that nobody
//! else waits for that server.

use std::collections::VecDeque;
use std::pin::Pin;

use tokio::sync::mpsc;

use crate::aggregate::SeatId;
use crate::driver::{Arrival, Inbound};
use crate::engine::input::HostEvent;
use crate::face;
use crate::wire::jsonrpc::Message;

/// Bytes that may wait for one server's side.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Messages that may.
const WAITING_MAX: usize = 1_000;

/// Room for one message in a server's task.
pub(super) type Permit = mpsc::OwnedPermit<Arrival>;
/// Tells whose task has room; a task that has ended never has.
pub(super) type Room = Pin<Box<dyn Future<Output = (SeatId, Permit)> + Send>>;

/// Too much waits already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The way to one server's side.
pub(super) struct Post {
    seat: SeatId,
    inbound: Inbound,
    waiting: VecDeque<Message>,
    bytes: usize,
}

impl Post {
    pub(super) fn new(seat: SeatId, inbound: Inbound) -> Self {
        Self {
            seat,
            inbound,
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Hands a message over, or has it wait for the room that comes.
    ///
    /// # Errors
    /// [`Full`] where too much waits; the message is dropped then.
    pub(super) fn send(&mut self, message: Message) -> Result<Option<Room>, Full> {
        let waits = !self.waiting.is_empty();
        if !waits {
            match self.inbound.hosts.clone().try_reserve_owned() {
                Ok(permit) => {
                    self.hand_over(permit, message);
                    return Ok(None);
                }
                // Its end is told by its side.
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(None),
                Err(mpsc::error::TrySendError::Full(_)) => {}
            }
        }
        if self.waiting.len() >= WAITING_MAX || self.bytes + message.len() > WAITING_BYTES_MAX {
            return Err(Full);
        }
        self.bytes += message.len();
        self.waiting.push_back(message);
        Ok((!waits).then(|| self.room()))
    }

    /// There is room: the first that waits goes, and the next waits for more.
    pub(super) fn go_on(&mut self, permit: Permit) -> Option<Room> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.len();
        self.hand_over(permit, message);
        (!self.waiting.is_empty()).then(|| self.room())
    }

    fn hand_over(&self, permit: Permit, message: Message) {
        permit.send(Arrival::Event {
            session: self.inbound.session,
            event: HostEvent::Received(message),
        });
    }

    fn room(&self) -> Room {
        let (seat, hosts) = (self.seat, self.inbound.hosts.clone());
        Box::pin(async move {
            match hosts.reserve_owned().await {
                Ok(permit) => (seat, permit),
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// The client went: what waits goes nowhere.
    pub(super) async fn detach(self) {
        face::Inbound::send(&self.inbound, HostEvent::Detached).await;
    }
}
