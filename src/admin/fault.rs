//! What these faces answer instead of what was asked: JSON that names what is wrong and what to do.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::AlertsRefused;
use crate::driver::UnknownServer;

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("there is nothing at this path")]
    NothingHere,
    #[error("this path does not take that method")]
    WrongMethod,
    #[error(transparent)]
    Unknown(#[from] UnknownServer),
    #[error("this name is not ours")]
    Host,
    #[error("this browser origin is not let in")]
    Origin,
    #[error("a token for reading is needed")]
    NoReadToken,
    #[error("the control token is needed")]
    NoControlToken,
    #[error("control is off: no token is configured for it")]
    NoControl,
    #[error("a header that no browser form sends is needed")]
    NoHeader,
    #[error("no such control: {0}")]
    UnknownVerb(String),
    #[error("as many event streams are open as are served")]
    StreamsFull,
    #[error("this is no body of Alertmanager's webhook: {0}")]
    UnreadableAlerts(String),
    #[error("no status channel takes Alertmanager's alerts")]
    NoChannel,
    #[error("the configuration does not load; nothing was changed")]
    NotReloaded(Vec<String>),
}

impl Fault {
    fn status(&self) -> StatusCode {
        match self {
            Self::NothingHere | Self::Unknown(_) | Self::UnknownVerb(_) | Self::NoChannel => {
                StatusCode::NOT_FOUND
            }
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::NoControl | Self::NoHeader => StatusCode::FORBIDDEN,
            Self::NoReadToken | Self::NoControlToken => StatusCode::UNAUTHORIZED,
            Self::StreamsFull => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotReloaded(_) | Self::UnreadableAlerts(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// What to do about it.
    fn help(&self) -> &'static str {
        match self {
            Self::NothingHere => "the paths are listed in docs/api.md; the status page is at /",
            Self::WrongMethod => "read with GET, control with POST",
            Self::Unknown(_) => "the configured servers are listed at /api/v1/servers",
            Self::Host => "use a loopback name or an IP address, or add the name to `allowedHosts`",
            Self::Origin => {
                "open the page from this address, or add its origin to `allowedOrigins`"
            }
            Self::NoReadToken => {
                "send `Authorization: Bearer` with `admin.readToken`, or with `admin.token`"
            }
            Self::NoControlToken => "send `Authorization: Bearer` with `admin.token`",
            Self::NoControl => "set `admin.token`",
            Self::NoHeader => "send `X-Tidegate-Control: 1`, or set `admin.token` and send it",
            Self::UnknownVerb(_) => "use restart, recycle, pause or resume",
            Self::StreamsFull => "close another stream, or read GET /metrics instead",
            Self::UnreadableAlerts(_) => "point a `webhook_configs` receiver of Alertmanager here",
            Self::NoChannel => "add `source: alertmanager` to one of `statusChannels`",
            Self::NotReloaded(_) => "mend the file (`tidegate check` shows the same), then reload",
        }
    }
}

impl From<AlertsRefused> for Fault {
    fn from(refused: AlertsRefused) -> Self {
        match refused {
            AlertsRefused::Unreadable(why) => Self::UnreadableAlerts(why),
            AlertsRefused::NoChannel => Self::NoChannel,
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.to_string(), "help": self.help() });
        if let (Self::NotReloaded(problems), Some(body)) = (&self, body.as_object_mut()) {
            body.insert("problems".into(), json!(problems));
        }
        let status = self.status();
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = axum::http::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
