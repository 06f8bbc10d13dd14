//! Servers as WebSockets: against `faultd --ws`, and against servers of this file where the wire itself is judged.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tidegate::engine::input::{End, Failure, LinkEvent, Outcome, Reap};
use tidegate::transport::settings::{Credential, Settings, TokenIn, WebSocket};
use tidegate::wire::framing::MESSAGE_MAX;
use tidegate::wire::jsonrpc::{About, RequestId, Unreadable};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::dialed::{Dialed, faultd, is_alone, secret, soon};

const CERTIFICATE: &str = include_str!("tls/cert.pem");

fn settings(url: &str) -> WebSocket {
    WebSocket {
        url: url.into(),
        credential: Credential::None,
        token_in: TokenIn::Both,
        headers: BTreeMap::new(),
        keep_alive: Duration::from_secs(20),
        secrets: Vec::new(),
    }
}

fn dial(settings: WebSocket) -> Dialed {
    Dialed::new(&Settings::WebSocket(Arc::new(settings)))
}

/// `faultd --ws`, ended when dropped.
struct Faultd {
    child: Child,
    url: String,
}

impl Faultd {
    fn start(flags: &str) -> Self {
        let mut command = Command::new(faultd());
        command
            .args(["--ws", "127.0.0.1:0"])
            .args(flags.split_ascii_whitespace());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.trim().strip_prefix("listening ").unwrap().into();
        Self { child, url }
    }
}

impl Drop for Faultd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Listens, and says where.
async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcpl", listener.local_addr().unwrap());
    (listener, url)
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (stream, _) = soon(listener.accept()).await.unwrap();
    soon(tokio_tungstenite::accept_async(stream)).await.unwrap()
}

/// TLS as `localhost`, with the test's own certificate.
pub(crate) async fn accept_tls(listener: &TcpListener) -> std::io::Result<TlsStream<TcpStream>> {
    let cert = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    let (stream, _) = soon(listener.accept()).await?;
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
        .accept(stream)
        .await
}

/// The request line's target and the `Authorization` and `X-Team` headers of the next upgrade.
async fn upgrade(listener: &TcpListener) -> (String, Vec<Option<String>>) {
    let (stream, _) = soon(listener.accept()).await.unwrap();
    let mut seen = None;
    let look = |request: &Request, response: Response| {
        let header = |name| {
            request
                .headers()
                .get(name)
                .map(|v| v.to_str().unwrap().to_owned())
        };
        seen = Some((
            request.uri().to_string(),
            vec![header("authorization"), header("x-team")],
        ));
        Ok(response)
    };
    soon(tokio_tungstenite::accept_hdr_async(stream, look))
        .await
        .unwrap();
    seen.unwrap()
}

async fn failure(mut server: Dialed) -> Failure {
    let LinkEvent::Failed(failure) = server.next().await else {
        panic!("it did not fail")
    };
    assert_eq!(server.gone().await, Reap::Clean);
    failure
}

#[tokio::test]
async fn bytes_flow_both_ways() {
    let faultd = Faultd::start("--register");
    let mut server = dial(settings(&faultd.url));
    server.handshake().await;
    // In one frame with the answer.
    assert_eq!(server.message().await["method"], "channels/register");
    server.call(1, "echo", json!({"a": 1})).await;
    assert_eq!(
        server.answer(1).await["result"]["structuredContent"]["a"],
        1
    );
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r7_a_close_code_and_its_reason_are_told() {
    let faultd = Faultd::start("--die-after-ms 1 --close-code 4001");
    let mut server = dial(settings(&faultd.url));
    server.handshake().await;
    let end = server.loss().await.end;
    assert_eq!(
        end,
        End::Close {
            code: 4001,
            reason: "told to".into()
        }
    );
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn r7_a_socket_that_breaks_off_is_code_1006() {
    let faultd = Faultd::start("--die-after-ms 1");
    let mut server = dial(settings(&faultd.url));
    server.handshake().await;
    assert!(matches!(
        server.loss().await.end,
        End::Close { code: 1006, .. }
    ));
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn r12_a_half_open_socket_is_lost() {
    let (listener, url) = listen().await;
    let mut server = dial(WebSocket {
        keep_alive: Duration::from_millis(20),
        ..settings(&url)
    });
    // Open, and never read again: no pong comes.
    let socket = accept(&listener).await;
    assert_eq!(server.loss().await.end, End::Liveness);
    assert_eq!(server.gone().await, Reap::Clean);
    drop(socket);
}

#[tokio::test]
async fn r12_a_quiet_peer_that_answers_pings_is_not_lost() {
    let (listener, url) = listen().await;
    let mut server = dial(WebSocket {
        keep_alive: Duration::from_millis(200),
        ..settings(&url)
    });
    let mut socket = accept(&listener).await;
    server.connected().await;
    let mut pings = 0;
    while pings < 4 {
        // Reading answers them.
        let frame = soon(socket.next()).await.unwrap().unwrap();
        pings += u32::from(matches!(frame, Message::Ping(_)));
    }
    socket
        .send(Message::text(r#"{"jsonrpc":"2.0","method":"alive"}"#))
        .await
        .unwrap();
    assert_eq!(server.message().await["method"], "alive");
}

#[tokio::test]
async fn a_close_of_ours_is_a_close_frame() {
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url));
    let mut socket = accept(&listener).await;
    server.connected().await;
    server.close.cancel();
    assert_eq!(server.loss().await.end, End::Operator);
    let Message::Close(Some(frame)) = soon(socket.next()).await.unwrap().unwrap() else {
        panic!("no close frame")
    };
    assert_eq!(u16::from(frame.code), 1000);
    // What comes before the peer's own close is late, and is told.
    assert!(soon(socket.next()).await.is_none());
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn a_peer_that_never_closes_does_not_delay_the_end_for_ever() {
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url));
    let _socket = accept(&listener).await;
    server.connected().await;
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r13_a_close_ends_a_dial_that_hangs() {
    let (listener, url) = listen().await;
    let server = dial(settings(&url));
    // Accepted, and never upgraded.
    let _stream = soon(listener.accept()).await.unwrap();
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn a_frame_may_carry_several_messages_and_be_binary() {
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url));
    let mut socket = accept(&listener).await;
    server.connected().await;
    let lines =
        "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\r\n\n{\"jsonrpc\":\"2.0\",\"method\":\"b\"}\n";
    socket.send(Message::binary(lines)).await.unwrap();
    socket.send(Message::text("[]")).await.unwrap();
    assert_eq!(server.message().await["method"], "a");
    assert_eq!(server.message().await["method"], "b");
    assert!(matches!(server.next().await, LinkEvent::Unreadable { .. }));
}

#[tokio::test]
async fn g16_a_message_past_the_bound_is_skipped_and_the_next_one_read() {
    let faultd = Faultd::start(&format!("--big {}", MESSAGE_MAX + 1));
    let mut server = dial(settings(&faultd.url));
    server.handshake().await;
    let LinkEvent::Unreadable { what, .. } = server.next().await else {
        panic!("it was read")
    };
    let wanted = Unreadable::TooLong {
        limit: MESSAGE_MAX,
        about: RequestId::read("\"big\"").map(About::Request),
    };
    assert_eq!(what, wanted);
    assert_eq!(server.message().await["method"], "notifications/after-big");
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn g16_an_answer_past_the_bound_is_skipped_and_its_id_told_wherever_it_stands() {
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url));
    let mut socket = accept(&listener).await;
    server.connected().await;
    let fill = "x".repeat(MESSAGE_MAX);
    let answer = format!(r#"{{"result":{{"x":"{fill}"}},"jsonrpc":"2.0","id":7}}"#);
    let (event, sent) = tokio::join!(server.next(), socket.send(Message::text(answer)));
    sent.unwrap();
    let LinkEvent::Unreadable { what, .. } = event else {
        panic!("it was read")
    };
    assert_eq!(what.about(), Some(&About::Answer(RequestId::from(7))));
}

#[tokio::test]
async fn g16_a_message_past_twice_the_bound_ends_the_connection_with_a_close_that_says_so() {
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url));
    let mut socket = accept(&listener).await;
    server.connected().await;
    // The head of a text frame with a length of 64 bits, and no more.
    let head = [
        &[0x81, 127],
        &(2 * MESSAGE_MAX as u64 + 1).to_be_bytes()[..],
    ]
    .concat();
    tokio::io::AsyncWriteExt::write_all(socket.get_mut(), &head)
        .await
        .unwrap();
    let Message::Close(Some(frame)) = soon(socket.next()).await.unwrap().unwrap() else {
        panic!("no close frame")
    };
    let why = "a message longer than 33554432 bytes";
    assert_eq!((u16::from(frame.code), &*frame.reason), (1009, why));
    assert!(matches!(server.next().await, LinkEvent::Unreadable { .. }));
    let end = server.loss().await.end;
    assert_eq!(end, End::Reset(format!("sent {why}")));
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn a_server_that_stops_reading_never_stops_our_reading() {
    let faultd = Faultd::start("--deaf --publish-every-ms 1");
    let mut server = dial(settings(&faultd.url));
    server.handshake().await;
    let filler = bytes::Bytes::from(vec![b' '; 64 << 10]);
    let mut read = 0;
    while server.try_send(filler.clone()) || read < 500 {
        assert_eq!(server.message().await["method"], "channels/incoming");
        read += 1;
    }
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn a_token_goes_where_it_is_wanted() {
    let bearer = Some("Bearer se/cret".to_owned());
    let team = Some("blue".to_owned());
    for (token_in, target, authorization) in [
        (TokenIn::Query, "/mcpl?x=%41&token=se%2Fcret", None),
        (TokenIn::Header, "/mcpl?x=%41", bearer.clone()),
        (TokenIn::Both, "/mcpl?x=%41&token=se%2Fcret", bearer),
    ] {
        let (listener, url) = listen().await;
        let credential = Credential::Fixed(secret("se/cret"));
        let headers = BTreeMap::from([("X-Team".to_owned(), secret("blue"))]);
        let url = format!("{url}?x=%41");
        let mut server = dial(WebSocket {
            credential,
            token_in,
            headers,
            ..settings(&url)
        });
        assert_eq!(
            upgrade(&listener).await,
            (target.into(), vec![authorization, team.clone()])
        );
        server.connected().await;
    }
}

#[tokio::test]
async fn r18_a_refused_credential_is_its_own_outcome_and_not_shown() {
    let faultd = Faultd::start("--ws-token right");
    let url = faultd.url.replace("ws://", "ws://user:pass@") + "/?key=query-secret";
    let credential = Credential::Fixed(secret("wrong-secret"));
    let failure = failure(dial(WebSocket {
        credential,
        ..settings(&url)
    }))
    .await;
    assert_eq!(failure.outcome, Outcome::Auth);
    assert_eq!(failure.detail, format!("{}/: HTTP status 401", faultd.url));
}

#[tokio::test]
async fn r18_a_credential_that_was_rotated_is_resolved_freshly_once() {
    let faultd = Faultd::start("--ws-token right");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "stale\n").unwrap();
    let rotate = format!("cat {0}; echo right > {0}", file.display());
    let command = ["sh", "-c", &rotate].map(String::from).to_vec();
    let credential = Credential::Command(command);
    let mut server = dial(WebSocket {
        credential,
        ..settings(&faultd.url)
    });
    server.connected().await;
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r18_retry_after_is_told_with_the_failure() {
    let faultd = Faultd::start("--refuse-status 503 --retry-after 7");
    let failure = failure(dial(settings(&faultd.url))).await;
    assert_eq!(failure.outcome, Outcome::Refused);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
    assert!(
        failure.detail.ends_with("HTTP status 503"),
        "{}",
        failure.detail
    );
}

#[tokio::test]
async fn nobody_listening_is_refused() {
    let (listener, url) = listen().await;
    drop(listener);
    let failure = failure(dial(settings(&url))).await;
    assert_eq!(failure.outcome, Outcome::Refused);
    assert!(failure.detail.starts_with(&url), "{}", failure.detail);
}

#[tokio::test]
async fn a_credential_that_cannot_be_had_is_a_failure_that_names_its_place() {
    let (_listener, url) = listen().await;
    let credential = Credential::File("/no/such/token".into());
    let failure = failure(dial(WebSocket {
        credential,
        ..settings(&url)
    }))
    .await;
    assert_eq!(failure.outcome, Outcome::Refused);
    assert!(
        failure.detail.contains("the token file `/no/such/token`"),
        "{}",
        failure.detail
    );
}

#[tokio::test]
async fn the_token_is_masked_where_the_peer_repeats_it() {
    let (listener, url) = listen().await;
    let credential = Credential::Fixed(secret("repeated-secret"));
    let mut server = dial(WebSocket {
        credential,
        ..settings(&url)
    });
    let mut socket = accept(&listener).await;
    server.connected().await;
    let reason = Utf8Bytes::from_static("bad token repeated-secret\u{7}");
    let frame = CloseFrame {
        code: 4401.into(),
        reason,
    };
    socket.send(Message::Close(Some(frame))).await.unwrap();
    let reason = "bad token [secret]\\u{7}".into();
    assert_eq!(server.loss().await.end, End::Close { code: 4401, reason });
}

#[tokio::test]
async fn a_wss_server_is_believed_by_the_roots_of_the_machine() {
    let roots = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transport/tls/cert.pem");
    let name = "websocket::a_wss_server_is_believed_by_the_roots_of_the_machine";
    if !is_alone(name, &[("SSL_CERT_FILE", roots)]) {
        return;
    }
    let (listener, url) = listen().await;
    let mut server = dial(settings(&url.replace("ws://127.0.0.1", "wss://localhost")));
    let socket = accept_tls(&listener).await.unwrap();
    let mut socket = soon(tokio_tungstenite::accept_async(socket)).await.unwrap();
    server.connected().await;
    socket
        .send(Message::text(r#"{"jsonrpc":"2.0","method":"a"}"#))
        .await
        .unwrap();
    assert_eq!(server.message().await["method"], "a");

    // The same certificate for another name.
    let server = dial(settings(&url.replace("ws://", "wss://")));
    let (refused, failure) = tokio::join!(accept_tls(&listener), failure(server));
    assert!(refused.is_err());
    assert_eq!(failure.outcome, Outcome::Refused);
    assert!(failure.detail.contains("certificate"), "{}", failure.detail);
}
