//! `GET /api/v1/events`: decisions as Server-Sent Events as they happen, or, for a client that asks for JSON, the last
//! ones at once. A stream without a usable `Last-Event-ID` begins with a snapshot of the open episodes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::fault::Fault;
use super::{Desk, api};
use crate::observe::events::{Event, Subscription, Told};

/// How long a client waits before it connects again.
const RETRY: Duration = Duration::from_secs(2);
/// A comment after this much silence, so that a proxy keeps the stream and a client sees that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(super) struct Params {
    /// Kinds, separated by commas; all where absent.
    kind: Option<String>,
}

/// The kinds that are asked for.
#[derive(Clone, Debug)]
struct Kinds(Option<BTreeSet<String>>);

struct Following {
    desk: Desk,
    subscription: Subscription,
    kinds: Kinds,
    _room: OwnedSemaphorePermit,
}

pub(super) async fn events(
    State(desk): State<Desk>,
    Query(params): Query<Params>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let kinds = Kinds::read(params.kind.as_deref());
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.starts_with("application/json")) {
        return Ok(recent(&desk, &kinds));
    }
    let room = Arc::clone(&desk.streams).try_acquire_owned();
    let room = room.map_err(|_| Fault::StreamsFull)?;
    let after = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    let following = Following {
        subscription: desk.admin.observer.events().subscribe(after),
        desk,
        kinds,
        _room: room,
    };
    let sent = stream::unfold(following, |mut following| async {
        let sent = following.next().await;
        Some((Ok::<_, Infallible>(sent), following))
    });
    let sse = Sse::new(sent).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([(header::CACHE_CONTROL, "no-store")], sse).into_response())
}

fn recent(desk: &Desk, kinds: &Kinds) -> Response {
    let events = desk.admin.observer.events().recent();
    let events = events.iter().filter(|event| kinds.has(event.kind));
    let events: Vec<_> = events.map(|event| event.json.as_str()).collect();
    let body = format!("{{\"events\":[{}]}}", events.join(","));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl Kinds {
    fn read(list: Option<&str>) -> Self {
        let kinds = list.map(|list| list.split(',').map(|kind| kind.trim().to_owned()).collect());
        Self(kinds)
    }

    fn has(&self, kind: &str) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}

impl Following {
    async fn next(&mut self) -> Sent {
        loop {
            match self.subscription.next().await {
                Told::Event(event) if self.kinds.has(event.kind) => return sent(&event),
                Told::Event(_) => {}
                Told::Gap => return self.snapshot().await,
            }
        }
    }

    /// Whatever kinds were asked for: without it a reader cannot know what is open.
    async fn snapshot(&self) -> Sent {
        let mut body = api::open_episodes(&self.desk).await;
        if let Some(body) = body.as_object_mut() {
            body.insert("kind".into(), "snapshot".into());
            body.insert("id".into(), self.subscription.id().into());
        }
        let sent = Sent::default().id(self.subscription.id()).retry(RETRY);
        sent.data(body.to_string())
    }
}

fn sent(event: &Event) -> Sent {
    Sent::default().id(&event.id).data(&event.json)
}
