//! What changes something: one server's connection, or the configuration.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::fault::Fault;
use super::{Desk, api};
use crate::engine::input::Operator;
use crate::observe::traces::Operation;

/// Answers with the server as it is once the engine has heard of it.
pub(super) async fn operate(
    State(desk): State<Desk>,
    Path((id, verb)): Path<(String, String)>,
) -> Result<Json<Value>, Fault> {
    let Some(command) = command(&verb) else {
        return Err(Fault::UnknownVerb(verb));
    };
    let operation = Operation::control(&verb);
    let done = desk.admin.gateway.operate(&id, command);
    match operation.run(done).await {
        Ok(()) => {
            operation.server(&id);
            operation.ended("done", false);
        }
        Err(unknown) => {
            operation.ended("unknown_server", true);
            return Err(unknown.into());
        }
    }
    api::one(&desk, &id).await.map(Json)
}

pub(super) async fn reload(State(desk): State<Desk>) -> Result<Json<Value>, Fault> {
    let reload = (desk.admin.reload)();
    // In a task of its own: a client that goes away does not leave a reload half done.
    let reloaded = tokio::spawn(reload).await;
    let failed =
        |error: tokio::task::JoinError| Err(vec![format!("the reload broke off: {error}")]);
    reloaded
        .unwrap_or_else(failed)
        .map_err(Fault::NotReloaded)?;
    Ok(Json(json!({ "reloaded": true })))
}

/// Alertmanager tries again on a status of 5xx alone, so nothing here has one.
pub(super) async fn alerts(State(desk): State<Desk>, body: Bytes) -> Result<Json<Value>, Fault> {
    let taken = (desk.admin.alerts)(&body)?;
    Ok(Json(json!({ "alerts": taken })))
}

fn command(verb: &str) -> Option<Operator> {
    match verb {
        "restart" => Some(Operator::Restart),
        "recycle" => Some(Operator::Recycle),
        "pause" => Some(Operator::Pause),
        "resume" => Some(Operator::Resume),
        _ => None,
    }
}
