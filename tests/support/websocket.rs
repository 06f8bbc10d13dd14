//! `faultd` over WebSocket: one session per connection, and the upgrades that it refuses.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};

use crate::{Flags, Session};

/// Listens, tells where, and serves for ever.
pub(crate) fn serve(address: &str, flags: &Arc<Flags>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build();
    runtime.unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        println!("listening ws://{}", listener.local_addr().unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve_socket(stream, Arc::clone(flags)));
        }
    });
}

async fn serve_socket(stream: tokio::net::TcpStream, flags: Arc<Flags>) {
    let judge = Arc::clone(&flags);
    let admit = move |request: &Request, response| admit(&judge, request, response);
    let config = WebSocketConfig::default()
        .max_message_size(None)
        .max_frame_size(None);
    let accepted =
        tokio_tungstenite::accept_hdr_async_with_config(stream, admit, Some(config)).await;
    let Ok(socket) = accepted else { return };
    let (mut sink, mut source) = socket.split();
    let (queue, mut queued) = tokio::sync::mpsc::unbounded_channel::<Option<Vec<u8>>>();
    let (out, die) = (queue.clone(), queue);
    let session = Session::new(
        &flags,
        Arc::new(move |messages: &[&[u8]]| drop(out.send(Some(messages.join(&b'\n'))))),
        Arc::new(move || drop(die.send(None))),
        None,
    );
    let code = flags
        .number("close-code")
        .map(|code| u16::try_from(code).unwrap());
    let writer = tokio::spawn(async move {
        while let Some(Some(bytes)) = queued.recv().await {
            let frame = match String::from_utf8(bytes) {
                Ok(text) => Message::text(text),
                Err(error) => Message::binary(error.into_bytes()),
            };
            if sink.send(frame).await.is_err() {
                return None;
            }
        }
        let frame = CloseFrame {
            code: code?.into(),
            reason: "told to".into(),
        };
        sink.send(Message::Close(Some(frame))).await.ok()
    });
    let reader = async {
        while let Some(Ok(message)) = source.next().await {
            for line in message.into_data().split(|byte| *byte == b'\n') {
                tokio::task::block_in_place(|| session.handle(line));
            }
            if session.is_deaf() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut writer = writer;
    tokio::select! {
        () = reader => {}
        closed = &mut writer => {
            // After a close frame the peer's own is read; without one the socket breaks off.
            if matches!(closed, Ok(Some(()))) {
                while let Some(Ok(_)) = source.next().await {}
            }
        }
    }
    writer.abort();
}

fn admit(flags: &Flags, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
    let status = match (flags.number("refuse-status"), flags.text("ws-token")) {
        (Some(status), _) => u16::try_from(status).unwrap(),
        (None, Some(token)) if !presents(request, token) => 401,
        _ => return Ok(response),
    };
    let mut refusal = ErrorResponse::new(None);
    *refusal.status_mut() = status.try_into().unwrap();
    if let Some(after) = flags.text("retry-after") {
        refusal
            .headers_mut()
            .insert("retry-after", after.parse().unwrap());
    }
    Err(refusal)
}

fn presents(request: &Request, token: &str) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let header = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    query
        .split('&')
        .any(|pair| pair.strip_prefix("token=") == Some(token))
        || header.and_then(|value| value.strip_prefix("Bearer ")) == Some(token)
}
