//! Health, one word each. A server that is down fails none of them: that is an alert's business.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::Desk;

/// The three paths, which need no token and no name.
pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/startupz", get(started))
}

async fn alive() -> &'static str {
    "ok\n"
}

/// Whoever can ask finds the faces bound and a configuration loaded; `stale` says that a newer file does not load.
async fn ready(State(desk): State<Desk>) -> &'static str {
    if desk.admin.observer.is_stale() {
        "stale\n"
    } else {
        "ready\n"
    }
}

/// Whether every server's first attempt has come to something.
async fn started(State(desk): State<Desk>) -> (StatusCode, &'static str) {
    if desk.admin.gateway.has_started() {
        (StatusCode::OK, "started\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}
