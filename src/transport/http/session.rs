//! What every request to one HTTP server has in common: its address, its headers with the credential and the session,
//! the redirects that are followed, the second try with a fresh credential (R18). It reads no answer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::connection::{Broken, Connection, Pool};
use super::fault::Fault;
use crate::transport::Frame;
use crate::transport::link::Link;
use crate::transport::settings::Http;
use crate::transport::{credential, upgrade};

/// How often one request is redirected within its origin.
const REDIRECTS_MAX: usize = 5;
/// From this many server errors in a row on, which are no answers, the server is what is broken (R19).
const STRIKES_MAX: u32 = 2;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One epoch's way to its server.
#[derive(Debug)]
pub(super) struct Session {
    settings: Arc<Http>,
    origin: Url,
    pool: Pool,
    head: Mutex<Head>,
    /// Refusals in a row.
    strikes: AtomicU32,
    /// A request after `initialize` was answered.
    is_welcome: AtomicBool,
}

/// What changes in an epoch.
#[derive(Debug)]
struct Head {
    target: Url,
    headers: HeaderMap,
    token: Option<SecretString>,
    link: Link,
}

/// A request to be sent, as often as it takes.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A message.
    Post(Frame),
    /// The stream of the server's own messages, or a broken stream after the event of that id.
    Get(Option<Box<str>>),
    /// The end of the session.
    Delete,
}

impl Session {
    /// Resolves the credential and opens the first connection.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn begin(settings: Arc<Http>, link: Link) -> Result<Self, Fault> {
        let origin =
            Url::parse(&settings.url).map_err(|_| Fault::Unusable("its URL cannot be dialed"))?;
        let headers = headers(&settings, &origin).ok_or(Fault::Unusable(UNSENDABLE))?;
        let pool = Pool::new(origin.clone(), settings.connect_timeout);
        let head = Head {
            target: origin.clone(),
            headers,
            token: None,
            link,
        };
        let session = Self {
            settings,
            origin,
            pool,
            head: Mutex::new(head),
            strikes: AtomicU32::new(0),
            is_welcome: AtomicBool::new(false),
        };
        session.refresh().await?;
        session
            .pool
            .warm()
            .await
            .map_err(|error| Fault::Broken(Broken::Unreachable(error)))?;
        Ok(session)
    }

    /// The way to the engine, with the credential as a secret.
    pub(super) fn link(&self) -> Link {
        self.head().link.clone()
    }

    /// The server's address as it may be shown.
    pub(super) fn shown(&self) -> String {
        upgrade::shown(&self.settings.url)
    }

    /// The server named the session.
    pub(super) fn name(&self, id: Option<&HeaderValue>) {
        if let Some(id) = id {
            self.head().headers.insert(SESSION_ID, id.clone());
        }
    }

    /// Both speak this revision from now on.
    pub(super) fn speak(&self, revision: &str) {
        if let Ok(value) = HeaderValue::from_str(revision) {
            self.head().headers.insert(PROTOCOL_VERSION, value);
        }
    }

    /// Whether the server named the session.
    pub(super) fn is_named(&self) -> bool {
        self.head().headers.contains_key(SESSION_ID)
    }

    /// Sends a request, along redirects within the origin, and once more with a fresh credential where it was refused.
    ///
    /// # Errors
    /// Why there is no response.
    pub(super) async fn send(
        &self,
        asked: &Asked,
    ) -> Result<(Response<Incoming>, Connection), Fault> {
        let (response, connection) = self.follow(asked).await?;
        let is_refused = matches!(
            response.status(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        );
        if !is_refused || !self.refresh().await? {
            return Ok((response, connection));
        }
        drop(connection);
        self.follow(asked).await
    }

    /// Keeps a connection whose response was read to its end.
    pub(super) fn give_back(&self, connection: Connection) {
        self.pool.give_back(connection);
    }

    /// A request got an answer.
    pub(super) fn answered(&self) {
        self.strikes.store(0, Ordering::Relaxed);
        self.is_welcome.store(true, Ordering::Relaxed);
    }

    /// Whether a refusal of that status, which is no answer, is one too many in a row (R19): a server error; or any,
    /// where the server has answered nothing yet but `initialize`.
    pub(super) fn strikes_out(&self, status: StatusCode) -> bool {
        if !status.is_server_error() && self.is_welcome.load(Ordering::Relaxed) {
            self.strikes.store(0, Ordering::Relaxed);
            return false;
        }
        self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES_MAX
    }

    async fn follow(&self, asked: &Asked) -> Result<(Response<Incoming>, Connection), Fault> {
        for _ in 0..=REDIRECTS_MAX {
            let request = self.request(asked)?;
            let (response, connection) = self.pool.send(request).await.map_err(Fault::Broken)?;
            match self.redirected(asked, &response)? {
                None => return Ok((response, connection)),
                Some(target) => self.head().target = target,
            }
        }
        Err(Fault::Redirects)
    }

    /// Where a response sends the same request: only within the origin, for the credential goes with it.
    fn redirected(
        &self,
        asked: &Asked,
        response: &Response<Incoming>,
    ) -> Result<Option<Url>, Fault> {
        let keeps_method = matches!(response.status().as_u16(), 307 | 308);
        let is_read = matches!(asked, Asked::Get(_));
        let is_redirect = matches!(response.status().as_u16(), 301..=303);
        if !(keeps_method || (is_redirect && is_read)) {
            return Ok(None);
        }
        let location = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| self.head().target.join(location).ok());
        match target {
            Some(target) if target.origin() == self.origin.origin() => Ok(Some(target)),
            Some(target) => Err(Fault::Elsewhere(upgrade::shown(target.as_str()))),
            None => Err(Fault::Redirects),
        }
    }

    fn request(&self, asked: &Asked) -> Result<Request<Full<Bytes>>, Fault> {
        let head = self.head();
        let mut headers = head.headers.clone();
        let uri = path(&head.target);
        drop(head);
        let (method, body) = match asked {
            Asked::Post(frame) => {
                headers.insert(CONTENT_TYPE, JSON);
                headers.extend(fields(frame));
                (Method::POST, frame.bytes.clone())
            }
            Asked::Get(after) => {
                headers.insert(ACCEPT, STREAM);
                let after = after
                    .as_deref()
                    .and_then(|id| HeaderValue::from_str(id).ok());
                headers.extend(after.map(|id| (LAST_EVENT_ID, id)));
                (Method::GET, Bytes::new())
            }
            Asked::Delete => (Method::DELETE, Bytes::new()),
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.ok_or(Fault::Unusable(UNSENDABLE))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Resolves the credential; whether it is another than before. It is a secret from then on.
    async fn refresh(&self) -> Result<bool, Fault> {
        let fresh = credential::resolve(&self.settings.credential).await;
        let Some(fresh) = fresh.map_err(Fault::Credential)? else {
            return Ok(false);
        };
        let bearer = upgrade::sensitive(&format!("Bearer {}", fresh.expose_secret()));
        let bearer = bearer.map_err(|_| Fault::Unusable(UNSENDABLE))?;
        let (link, is_first) = {
            let mut head = self.head();
            let known = head.token.as_ref().map(ExposeSecret::expose_secret);
            if known == Some(fresh.expose_secret()) {
                return Ok(false);
            }
            let is_first = known.is_none();
            head.headers.insert(AUTHORIZATION, bearer);
            head.link = head.link.with_secret(&fresh);
            head.token = Some(fresh);
            (head.link.clone(), is_first)
        };
        if !is_first {
            link.tell_secrets().await;
        }
        Ok(true)
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The header fields of a frame; what none can carry is left out.
fn fields(frame: &Frame) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    frame.fields.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    })
}

const UNSENDABLE: &str = "the URL or a header cannot be sent";

/// The headers that every request has; `None` where one cannot be sent.
fn headers(settings: &Http, url: &Url) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(&authority(url)).ok()?);
    headers.insert(ACCEPT, BOTH);
    for (name, value) in &settings.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.insert(name, upgrade::sensitive(value.expose_secret()).ok()?);
    }
    Some(headers)
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or(host.into(), |port| format!("{host}:{port}"))
}

/// What a request line names: the path and the query.
fn path(url: &Url) -> Option<Uri> {
    let query = url
        .query()
        .map_or(String::new(), |query| format!("?{query}"));
    format!("{}{query}", url.path()).parse().ok()
}
