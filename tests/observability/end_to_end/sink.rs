//! Where Alertmanager's notifications arrive.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::PATIENCE;

/// One alert of one notification.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// The receiver that it was sent to.
    pub(crate) receiver: String,
    pub(crate) alert: String,
    /// Empty where the alert is about none.
    pub(crate) server: String,
    /// `firing` or `resolved`.
    pub(crate) status: String,
    /// When it arrived, in milliseconds since 1970.
    pub(crate) at: u128,
}

/// The webhook, and what has arrived at it.
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    arrived: watch::Receiver<Vec<Notice>>,
    serving: JoinHandle<()>,
}

/// The alert whose edges are the engine's.
const DOWN: &str = "TidegateServerDown";
/// The receiver that the shipped settings leave empty.
const TICKETS: &str = "tickets";

type Arrived = watch::Sender<Vec<Notice>>;

pub(crate) fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis()
}

impl Sink {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, seen) = watch::channel(Vec::new());
        let app = Router::new()
            .route("/{receiver}", post(notified))
            .with_state(arrived);
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            arrived: seen,
            serving,
        }
    }

    /// What has arrived at the status channel, in order.
    pub(crate) fn told(&self) -> Vec<Notice> {
        let all = self.arrived.borrow();
        all.iter()
            .filter(|notice| notice.receiver == "status")
            .cloned()
            .collect()
    }

    /// What the channel was told of one server.
    pub(crate) fn of(&self, server: &str) -> Vec<Notice> {
        let told = self.told().into_iter();
        told.filter(|notice| notice.alert == DOWN && notice.server == server)
            .collect()
    }

    /// Waits until the channel was told this of the server, and returns when.
    pub(crate) async fn until(&mut self, server: &str, status: &str) -> u128 {
        let is_it = |notice: &Notice| {
            notice.receiver == "status" && notice.server == server && notice.status == status
        };
        self.first(is_it, &format!("{server} {status}")).await
    }

    /// What the tickets were told of an alert, in order.
    pub(crate) fn tickets(&self, alert: &str) -> Vec<Notice> {
        let all = self.arrived.borrow();
        let is_it = |notice: &&Notice| notice.receiver == TICKETS && notice.alert == alert;
        all.iter().filter(is_it).cloned().collect()
    }

    /// Waits until the tickets were told this of an alert.
    pub(crate) async fn until_ticket(&mut self, alert: &str, status: &str) {
        let is_it = |notice: &Notice| {
            notice.receiver == TICKETS && notice.alert == alert && notice.status == status
        };
        self.first(is_it, &format!("{alert} {status}")).await;
    }

    /// Waits until the path of alerts works: the watchdog was heard after this instant.
    pub(crate) async fn until_watched(&mut self, after: u128) {
        self.first(
            |notice| notice.receiver == "watchdog" && notice.at > after,
            "watchdog",
        )
        .await;
    }

    async fn first(&mut self, is_it: impl Fn(&Notice) -> bool, what: &str) -> u128 {
        let found = self.arrived.wait_for(|all| all.iter().any(&is_it));
        let Ok(found) = tokio::time::timeout(PATIENCE, found).await else {
            panic!(
                "the sink was not told {what}, but: {:#?}",
                self.arrived.borrow()
            );
        };
        let all = found.unwrap();
        all.iter().find(|notice| is_it(notice)).unwrap().at
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn notified(
    State(arrived): State<Arrived>,
    Path(receiver): Path<String>,
    Json(body): Json<Value>,
) {
    let alerts = body["alerts"].as_array().unwrap().iter();
    let of = |alert: &Value, place: &str| {
        alert
            .pointer(place)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let notices = alerts.map(|alert| Notice {
        receiver: receiver.clone(),
        alert: of(alert, "/labels/alertname"),
        server: of(alert, "/labels/server"),
        status: of(alert, "/status"),
        at: now(),
    });
    arrived.send_modify(|all| all.extend(notices));
}
