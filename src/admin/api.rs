//! What is read: metrics, servers, episodes, configuration.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::fault::Fault;
use super::{Desk, view};
use crate::driver::UnknownServer;

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn metrics(State(desk): State<Desk>) -> Response {
    let snapshots = desk.admin.gateway.snapshots().await;
    let snapshots: Vec<_> = snapshots
        .into_iter()
        .map(|(info, snapshot)| (info.id, snapshot))
        .collect();
    let observer = &desk.admin.observer;
    observer.journal_failing(desk.admin.journal.is_failing());
    let observer = observer.clone();
    // Not on a thread that carries calls. A page that panics is none.
    let page = tokio::task::spawn_blocking(move || observer.metrics(&snapshots));
    let page = page.await.unwrap_or_default();
    ([(header::CONTENT_TYPE, PROMETHEUS)], page).into_response()
}

pub(super) async fn servers(State(desk): State<Desk>) -> Json<Value> {
    let now = SystemTime::now();
    let all = desk.admin.gateway.snapshots().await;
    let servers = all.iter().map(|(info, snapshot)| {
        let trace = desk.admin.observer.trace_id(&info.id);
        view::server(info, snapshot, trace.as_deref(), now)
    });
    let servers: Vec<_> = servers.collect();
    Json(json!({ "at": view::time(Some(now)), "servers": servers }))
}

pub(super) async fn server(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    one(&desk, &id).await.map(Json)
}

/// One server's view.
pub(super) async fn one(desk: &Desk, id: &str) -> Result<Value, Fault> {
    let snapshot = desk.admin.gateway.snapshot(id).await?;
    let all = desk.admin.gateway.servers();
    let info = all.iter().find(|info| info.id.as_str() == id);
    let info = info.ok_or_else(|| UnknownServer(id.into()))?;
    let trace = desk.admin.observer.trace_id(&info.id);
    Ok(view::server(
        info,
        &snapshot,
        trace.as_deref(),
        SystemTime::now(),
    ))
}

pub(super) async fn episodes(State(desk): State<Desk>) -> Json<Value> {
    Json(open_episodes(&desk).await)
}

/// The open episodes, and when they were looked at.
pub(super) async fn open_episodes(desk: &Desk) -> Value {
    let now = SystemTime::now();
    let all = desk.admin.gateway.snapshots().await;
    let servers = all.iter().map(|(info, snapshot)| (info, &**snapshot));
    json!({ "at": view::time(Some(now)), "episodes": view::episodes(servers, now) })
}

pub(super) async fn config(State(desk): State<Desk>) -> Json<Value> {
    Json(desk.admin.settings.borrow().shown.clone())
}
