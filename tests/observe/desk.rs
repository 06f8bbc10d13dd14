//! Operator faces on a socket of their own, before a gateway with one refused server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tidegate::admin::{Admin, AlertsRefused, Doors, Reloaded, Settings, router};
use tidegate::config::{Problem, Server};
use tidegate::driver::Gateway;
use tidegate::journal::Journal;
use tidegate::observe::{Observer, ServerObserver};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::samples::server;

pub struct Desk {
    pub address: SocketAddr,
    client: Client,
    pub observer: Observer,
    /// Whether the next reload finds a usable file.
    pub usable: Arc<AtomicBool>,
    _settings: watch::Sender<Settings>,
}

pub fn doors() -> Doors {
    Doors {
        token: None,
        read_token: None,
        loopback: true,
        names: Vec::new(),
        origins: Vec::new(),
    }
}

pub fn with_tokens() -> Doors {
    Doors {
        token: Some("control".into()),
        read_token: Some("read".into()),
        ..doors()
    }
}

impl Desk {
    pub async fn open(doors: Doors) -> Self {
        let shown = json!({ "name": "gw-1" });
        let (sender, settings) = watch::channel(Settings { doors, shown });
        let observer = Observer::new("gw-1");
        let usable = Arc::new(AtomicBool::new(true));
        let found = Arc::clone(&usable);
        let gateway = gateway(&observer);
        // Answered once the engine has handled what came before, so that its first decisions are told.
        gateway.snapshots().await;
        let admin = Admin {
            gateway,
            observer: observer.clone(),
            journal: Journal::none(),
            settings,
            reload: Arc::new(move || reload(found.load(Ordering::SeqCst))),
            alerts: Arc::new(alerts),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router(admin)).await });
        Self {
            address,
            client: client(),
            observer,
            usable,
            _settings: sender,
        }
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(format!("http://{}{path}", self.address))
    }

    pub fn chat(&self) -> ServerObserver {
        self.observer.server(&server("chat"), "stdio", "auto")
    }
}

/// One server whose configuration cannot be used.
fn gateway(observer: &Observer) -> Gateway {
    let broken = Server {
        id: server("broken"),
        enabled: true,
        entry: Err(vec![Problem {
            file: "tidegate.yaml".into(),
            line: 3,
            column: 5,
            path: "mcpServers.broken.reconnectIntervalMs".into(),
            message: "reconnectIntervalMs is 0: write a number above 0".into(),
        }]),
    };
    Gateway::start(&[broken], 1 << 30, Journal::none(), observer.clone())
}

fn client() -> Client {
    // Only its making needs one: nothing here is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

fn alerts(body: &[u8]) -> Result<usize, AlertsRefused> {
    match body {
        b"{}" => Err(AlertsRefused::Unreadable("missing field".into())),
        b"none" => Err(AlertsRefused::NoChannel),
        _ => Ok(2),
    }
}

fn reload(usable: bool) -> Reloaded {
    let problem = "tidegate.yaml:3:5: listen: no address".to_owned();
    Box::pin(async move { if usable { Ok(()) } else { Err(vec![problem]) } })
}
