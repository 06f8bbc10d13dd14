//! The accept loop of every HTTP port: bounded connections, a bound on a request's head, and no end by a shortage of
//! descriptors.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections of one port at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 4_096;
/// How long a request's head may take.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long to leave `accept` alone after it failed, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves `router` until `stop`; connections that are open then are left to their sessions.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, router.clone(), permit))),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, _room: OwnedSemaphorePermit) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
