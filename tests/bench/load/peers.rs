//! The peers of the measurements, each a process of its own: an MCP server over WebSocket that echoes, a bare relay,
//! and a client that times its calls.

use std::process::ExitCode;
use std::time::Instant;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::http_peers;

/// A WebSocket of either end.
pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const ROLES: [&str; 5] = [
    "role:echo",
    "role:relay",
    "role:client",
    "role:http-server",
    "role:http-client",
];

/// The role that the arguments ask for.
pub(crate) fn role(args: &[String]) -> Option<(&str, &[String])> {
    let (first, rest) = args.split_first()?;
    ROLES
        .contains(&first.as_str())
        .then_some((first.as_str(), rest))
}

/// Plays a role until it is killed, or its calls are done.
pub(crate) fn play(role: &str, args: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match role {
            "role:echo" => echo(&args[0]).await,
            "role:http-server" => http_peers::serve(&args[0]).await,
            "role:http-client" => println!("{}", http_peers::play(args).await),
            "role:relay" => relay(&args[0], &args[1]).await,
            _ => {
                let times =
                    client(&args[0], args[1].parse().unwrap(), args[2].parse().unwrap()).await;
                println!("{}", serde_json::to_string(&times).unwrap());
            }
        }
    });
    ExitCode::SUCCESS
}

/// An MCP server without MCPL. `tools/call` is answered with the arguments' text.
async fn echo(address: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Text(text) = message
                    && let Some(answer) = answer(&text)
                {
                    socket.send(Message::Text(answer.into())).await.unwrap();
                }
            }
        });
    }
}

#[derive(serde::Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a serde_json::value::RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a serde_json::value::RawValue>,
}

fn answer(text: &str) -> Option<String> {
    let request: Request<'_> = serde_json::from_str(text).unwrap();
    let id = request.id?.get();
    let result = match request.method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        })
        .to_string(),
        "tools/list" => {
            json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}).to_string()
        }
        _ => format!(
            r#"{{"content":[],"echo":{}}}"#,
            request.params.map_or("null", |params| params.get())
        ),
    };
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

/// Copies messages between two WebSockets and reads nothing of them.
async fn relay(address: &str, target: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let target = target.to_owned();
        tokio::spawn(async move {
            let near = tokio_tungstenite::accept_async(stream).await.unwrap();
            let far = connect(&target).await;
            let (near_out, near_in) = near.split();
            let (far_out, far_in) = far.split();
            tokio::select! {
                _ = near_in.forward(far_out) => {}
                _ = far_in.forward(near_out) => {}
            }
        });
    }
}

/// Connects, and waits for a server that is still starting.
pub(crate) async fn connect(url: &str) -> Socket {
    loop {
        match tokio_tungstenite::connect_async_with_config(url, None, true).await {
            Ok((socket, _)) => return socket,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
}

/// Opens a session as a plain MCP client.
pub(crate) async fn session(url: &str) -> Socket {
    let mut socket = connect(url).await;
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
    ask(&mut socket, &initialize.to_string()).await;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    socket
        .send(Message::Text(initialized.into()))
        .await
        .unwrap();
    socket
}

/// Sends one message and waits for the next response, passing notifications by.
pub(crate) async fn ask(socket: &mut Socket, message: &str) -> String {
    socket.send(Message::Text(message.into())).await.unwrap();
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Text(text) if text.contains("\"id\"") => return text.to_string(),
            _ => {}
        }
    }
}

/// A call of the tool `echo` with about `size` bytes of text.
pub(crate) fn call(id: usize, size: usize) -> String {
    let text = "x".repeat(size.saturating_sub(100));
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": text}}})
    .to_string()
}

/// Times `count` calls of `size` bytes, one after the other, in microseconds; a tenth more come first to warm up.
pub(crate) async fn client(url: &str, size: usize, count: usize) -> Vec<f64> {
    let mut socket = session(url).await;
    let mut times = Vec::with_capacity(count);
    for id in 1..=count + count / 10 {
        let message = call(id, size);
        let start = Instant::now();
        let answer = ask(&mut socket, &message).await;
        let took = start.elapsed();
        assert!(
            answer.contains("\"result\""),
            "{}",
            &answer[..answer.len().min(300)]
        );
        if id > count / 10 {
            times.push(took.as_secs_f64() * 1e6);
        }
    }
    times
}
