//! Hosts of the stateless revision on the URLs of the session revisions (decision 0019): each POST is a request by
//! itself, served on a session with the server that no other request uses meanwhile. What a request means is
//! [`revision::host`](crate::revision::host)'s to say.

mod lease;
mod listening;
mod parked;
mod pool;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::timeout;

use self::lease::{Lease, Said};
use self::listening::Listening;
use self::parked::Parked;
use self::pool::{Place, Pool};
use super::events::{self, SILENCE};
use super::fault::Fault;
use super::{Caller, QUIET_MAX, json};
use crate::face::access::Access;
use crate::face::{Directory, Refusal};
use crate::revision::host::{self, Ask, Field, Head, Listen, Refused, Skills, Standing};
use crate::revision::stateless::method;
use crate::wire::jsonrpc::{Kind, Message};

/// How long the server's tools may take to be read before a call of one.
const LEARNING_MAX: Duration = Duration::from_secs(60);

/// The stateless half of the face. Cheap to clone.
pub(super) struct Stateless<D: Directory> {
    shared: Arc<Shared<D>>,
}

/// What its requests share.
struct Shared<D: Directory> {
    directory: D,
    access: watch::Receiver<Access>,
    pool: Pool<D>,
    parked: Parked<D>,
}

/// The fields of a request's head, as the pure half reads them.
struct Fields<'a>(&'a HeaderMap);

impl Head for Fields<'_> {
    fn field(&self, name: &str) -> Field<'_> {
        let mut values = self.0.get_all(name).iter();
        match (values.next().map(HeaderValue::to_str), values.next()) {
            (None, _) => Field::Absent,
            (Some(Ok(text)), None) => Field::Text(text),
            _ => Field::Unreadable,
        }
    }
}

/// Whether a POST is of the stateless revision.
pub(super) fn is_stateless(headers: &HeaderMap, message: &Message) -> bool {
    host::is_stateless(&Fields(headers), message)
}

impl<D: Directory> Shared<D> {
    fn open(&self, caller: &Caller<'_>) -> Result<(D::Inbound, D::Outbound), Refusal> {
        let server = caller.server.unwrap_or_default();
        self.directory.open(server, caller.name.as_deref())
    }
}

impl<D: Directory> Stateless<D> {
    pub(super) fn new(directory: D, access: watch::Receiver<Access>) -> Self {
        let shared = Shared {
            directory,
            access,
            pool: Pool::new(),
            parked: Parked::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Serves one message of a stateless client.
    pub(super) async fn post(
        &self,
        caller: &Caller<'_>,
        headers: &HeaderMap,
        message: Message,
    ) -> Result<Response, Fault> {
        // This revision defines no notification of clients over HTTP; closing the stream is what cancels.
        if message.kind() == Kind::Notification {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let served = match Ask::read(&Fields(headers), message) {
            Ok(ask) if ask.method() == method::LISTEN => self.listen(caller, ask),
            Ok(ask) => self.serve(caller, headers, ask).await,
            Err(refused) => Err(Unserved::Refused(refused)),
        };
        match served {
            Ok(response) => Ok(response),
            Err(Unserved::Refused(refused)) => Ok(answer(refused.status, refused.frame)),
            Err(Unserved::Fault(fault)) => Err(fault),
        }
    }

    async fn serve(
        &self,
        caller: &Caller<'_>,
        headers: &HeaderMap,
        ask: Ask,
    ) -> Result<Response, Unserved> {
        let place = Place::new(caller, Skills::of(&ask));
        if let Some(mut lease) = self.parked(&place, &ask).await {
            lease.is_for(caller.token);
            lease.inner.resume(ask);
            return Ok(self.respond(lease).await);
        }
        let mut lease = self.lease(caller, place, &ask).await?;
        if ask.calls_tool() {
            let mirrored = self.mirrored(&mut lease).await;
            if let Err(refused) = ask.agrees(&Fields(headers), &mirrored) {
                self.settle(lease);
                return Err(refused.into());
            }
        }
        lease.print = ask.is_askable().then(|| ask.print());
        lease.inner.serve(ask);
        Ok(self.respond(lease).await)
    }

    /// The session that waits for this request.
    async fn parked(&self, place: &Place, ask: &Ask) -> Option<Lease<D>> {
        let claim = self.shared.parked.take(ask.state()?, place, &ask.print())?;
        claim.await.ok()
    }

    /// A session that serves nothing else.
    async fn lease(
        &self,
        caller: &Caller<'_>,
        place: Place,
        ask: &Ask,
    ) -> Result<Lease<D>, Unserved> {
        if let Some(mut lease) = self.shared.pool.take(&place).await {
            lease.is_for(caller.token);
            return Ok(lease);
        }
        let opened = self.shared.open(caller);
        let (inbound, outbound) = opened.map_err(|refusal| match refusal {
            Refusal::Full => Unserved::Refused(ask.refused(host::full())),
            Refusal::Unknown => Unserved::Fault(refusal.into()),
        })?;
        let group = self.shared.pool.join(&place);
        Ok(Lease::open(place, inbound, outbound, group, caller.token))
    }

    /// What the server's tools have clients mirror, read where nobody knows.
    async fn mirrored(&self, lease: &mut Lease<D>) -> Arc<host::Mirrored> {
        if let Some(known) = lease.group.mirrored() {
            return known;
        }
        lease.inner.learn();
        let learned = timeout(LEARNING_MAX, lease.learned(&self.shared)).await;
        learned.unwrap_or_default()
    }

    /// JSON where nothing comes before the answer and that comes soon, else a stream.
    async fn respond(&self, mut lease: Lease<D>) -> Response {
        match timeout(QUIET_MAX, lease.next(&self.shared)).await {
            Ok(Said::Answer { status, frame }) => {
                self.settle(lease);
                answer(status, frame)
            }
            Ok(Said::Notify(frame)) => self.stream(lease, Some(frame)),
            Err(_) => self.stream(lease, None),
        }
    }

    /// What a session that has answered is for next.
    fn settle(&self, lease: Lease<D>) {
        match lease.inner.standing() {
            Standing::Free => self.shared.pool.put(&self.shared, lease),
            Standing::Waiting => self.shared.parked.put(&self.shared, lease),
            // Its end cancels what is under way.
            Standing::Busy | Standing::Spent => {}
        }
    }

    /// The rest of a request as a stream. Whoever closes it cancels the request.
    fn stream(&self, lease: Lease<D>, first: Option<Bytes>) -> Response {
        let begun = first.map_or_else(
            || Bytes::from_static(events::COMMENT),
            |frame| event(&frame),
        );
        let this = Self {
            shared: Arc::clone(&self.shared),
        };
        let rest = stream::unfold(Some((this, lease)), async |under_way| {
            let (this, mut lease) = under_way?;
            match timeout(SILENCE, lease.next(&this.shared)).await {
                Ok(Said::Answer { frame, .. }) => {
                    this.settle(lease);
                    Some((event(&frame), None))
                }
                Ok(Said::Notify(frame)) => Some((event(&frame), Some((this, lease)))),
                Err(_) => Some((Bytes::from_static(events::COMMENT), Some((this, lease)))),
            }
        });
        streamed(begun, rest)
    }

    /// Opens a stream of notifications, with a session of its own.
    fn listen(&self, caller: &Caller<'_>, ask: Ask) -> Result<Response, Unserved> {
        let full = ask.refused(host::full());
        let listen = Listen::open(ask)?;
        let opened = self.shared.open(caller);
        let (inbound, outbound) = opened.map_err(|refusal| match refusal {
            Refusal::Full => Unserved::Refused(full),
            Refusal::Unknown => Unserved::Fault(refusal.into()),
        })?;
        let access = self.shared.access.clone();
        let listening = Listening::<D>::new(listen, inbound, outbound, caller, access);
        let rest = stream::unfold(listening, async |mut listening| {
            match timeout(SILENCE, listening.next()).await {
                Ok(frame) => Some((event(&frame?), listening)),
                Err(_) => Some((Bytes::from_static(events::COMMENT), listening)),
            }
        });
        Ok(streamed(Bytes::from_static(events::COMMENT), rest))
    }
}

/// Why a request is not served.
enum Unserved {
    /// By an answer to it.
    Refused(Refused),
    /// As any request would.
    Fault(Fault),
}

impl From<Refused> for Unserved {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// A whole answer.
fn answer(status: u16, frame: Bytes) -> Response {
    let mut response = json(frame);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

/// A message as an event; there is nothing to resume, so it has no id.
fn event(frame: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    events::put_data(frame, &mut out);
    out.freeze()
}

fn streamed(begun: Bytes, rest: impl stream::Stream<Item = Bytes> + Send + 'static) -> Response {
    let all = stream::StreamExt::chain(stream::iter([begun]), rest);
    let all = stream::StreamExt::map(all, Ok::<Bytes, Infallible>);
    (events::HEADERS, Body::from_stream(all)).into_response()
}
