//! The paths of the host faces. Where one path takes both, a request that asks for a WebSocket gets one, and any other
//! is Streamable HTTP's.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::response::Response;
use axum::routing::any;
use tokio::sync::watch;

use super::access::Access;
use super::{Directory, http, websocket};

/// The two faces of one path.
struct Door<D: Directory> {
    socket: websocket::Face<D>,
    http: http::Shared<D>,
}

/// Where each face finds the servers: one by one, or all as one.
#[derive(Clone, Debug)]
pub struct Directories<D> {
    /// For WebSockets.
    pub socket: D,
    /// For Streamable HTTP.
    pub http: D,
}

/// All paths: `/mcpl/{server}` and `/mcp/{server}` of `one`, `/mcp` of `all`. A change of `access` ends the sessions
/// that it no longer admits.
pub fn router<O: Directory, A: Directory>(
    one: Directories<O>,
    all: Directories<A>,
    access: &watch::Receiver<Access>,
) -> Router {
    let mcpl = websocket::Face::new(one.socket.clone(), access.clone());
    Router::new()
        .route("/mcpl/{server}", any(mcpl_of::<O>))
        .with_state(mcpl)
        .merge(
            Router::new()
                .route("/mcp/{server}", any(enter::<O>))
                .with_state(Door::new(one, access)),
        )
        .merge(
            Router::new()
                .route("/mcp", any(enter::<A>))
                .with_state(Door::new(all, access)),
        )
}

async fn mcpl_of<D: Directory>(
    State(face): State<websocket::Face<D>>,
    Path(server): Path<String>,
    request: Request,
) -> Response {
    websocket::upgrade(face, Some(server), request).await
}

async fn enter<D: Directory>(
    State(door): State<Door<D>>,
    server: Option<Path<String>>,
    request: Request,
) -> Response {
    let server = server.map(|Path(server)| server);
    if request.headers().contains_key(header::UPGRADE) {
        websocket::upgrade(door.socket, server, request).await
    } else {
        http::enter(&door.http, server.as_deref(), request).await
    }
}

impl<D: Directory> Door<D> {
    fn new(directories: Directories<D>, access: &watch::Receiver<Access>) -> Self {
        Self {
            socket: websocket::Face::new(directories.socket, access.clone()),
            http: http::Shared::new(directories.http, access.clone()),
        }
    }
}

impl<D: Directory> Clone for Door<D> {
    fn clone(&self) -> Self {
        Self {
            socket: self.socket.clone(),
            http: self.http.clone(),
        }
    }
}
