//! The operator faces on `admin.listen`: health, metrics, the status page, the API, the event stream, control. It shows
//! what others decided and hands over what an operator asks; it decides nothing about servers.

mod access;
mod api;
mod config;
mod control;
mod fault;
mod health;
mod stream;
pub mod view;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use tokio::sync::{Semaphore, watch};

pub use access::Doors;
pub use config::shown;

use crate::driver::Gateway;
use crate::journal::Journal;
use crate::observe::Observer;

use fault::Fault;

/// How many event streams are served at a time.
pub const STREAMS_MAX: usize = 64;
/// The longest body of Alertmanager's webhook.
const ALERTS_MAX: usize = 1 << 20;
/// The whole status page.
const PAGE: &str = include_str!("page.html");

/// Why a body of Alertmanager's webhook is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertsRefused {
    /// It cannot be read; why, for people.
    Unreadable(String),
    /// No status channel takes it.
    NoChannel,
}

/// Takes the body of Alertmanager's webhook; says how many alerts it told of.
pub type TakeAlerts = Arc<dyn Fn(&[u8]) -> Result<usize, AlertsRefused> + Send + Sync>;

/// What a reload comes to: the problems of a file that does not load, each a line for people.
pub type Reloaded = Pin<Box<dyn Future<Output = Result<(), Vec<String>>> + Send>>;

/// What the operator faces need.
#[derive(Clone)]
pub struct Admin {
    /// The servers.
    pub gateway: Gateway,
    /// Metrics and events.
    pub observer: Observer,
    /// Whether it fails is a metric.
    pub journal: Journal,
    /// What a reload changes.
    pub settings: watch::Receiver<Settings>,
    /// Loads the file again and applies the difference.
    pub reload: Arc<dyn Fn() -> Reloaded + Send + Sync>,
    /// Takes the body of Alertmanager's webhook.
    pub alerts: TakeAlerts,
}

/// What a reload changes of these faces.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may come in.
    pub doors: Doors,
    /// What `/api/v1/config` says; made by [`shown`].
    pub shown: serde_json::Value,
}

/// The routes' state.
#[derive(Clone)]
struct Desk {
    admin: Admin,
    streams: Arc<Semaphore>,
}

/// The routes of `admin.listen`.
pub fn router(admin: Admin) -> Router {
    let desk = Desk {
        admin,
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    };
    let readable = Router::new()
        .route("/metrics", get(api::metrics))
        .route("/api/v1/servers", get(api::servers))
        .route("/api/v1/servers/{id}", get(api::server))
        .route("/api/v1/episodes", get(api::episodes))
        .route("/api/v1/config", get(api::config))
        .route("/api/v1/events", get(stream::events))
        .route_layer(middleware::from_fn_with_state(desk.clone(), access::read));
    let controlled = Router::new()
        .route("/api/v1/servers/{id}/{verb}", post(control::operate))
        .route("/api/v1/reload", post(control::reload))
        .route(
            "/api/v1/webhooks/alertmanager",
            post(control::alerts).layer(DefaultBodyLimit::max(ALERTS_MAX)),
        )
        .route_layer(middleware::from_fn_with_state(
            desk.clone(),
            access::control,
        ));
    let guarded = readable
        .merge(controlled)
        .route("/", get(page))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(desk.clone(), access::guard));
    guarded.merge(health::routes()).with_state(desk)
}

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ];
    (headers, Html(PAGE)).into_response()
}

async fn nothing_here() -> Fault {
    Fault::NothingHere
}

async fn wrong_method() -> Fault {
    Fault::WrongMethod
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
