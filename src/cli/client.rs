//! A client of a running gateway's operator faces (docs/api.md), for the commands that ask it something.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::fail;
use crate::config::{self, Admin};

/// Where operator faces are when nothing says otherwise (3-config).
const USUAL: &str = "http://127.0.0.1:7465";
/// The most bytes of a stream without the end of an event.
const EVENT_MAX: usize = 4 << 20;

/// How to reach the gateway.
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// The operator faces, e.g. http://127.0.0.1:7465; else the configuration's `admin.listen`.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The gateway's configuration; else as for `tidegate run`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The token, where one is needed; else the configuration's.
    #[arg(
        long,
        env = "TIDEGATE_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<SecretString>,
}

/// Why a command did not do what it is for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Configuration(String),
    #[error("no gateway answers at {url}: {why}; is it running? name it with --admin or --config")]
    Unreachable { url: String, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("the gateway's answer cannot be read: {0}")]
    Unreadable(String),
    /// Whoever read our output has read enough.
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Tells it on stderr, and gives the exit code of 4-faces.
    pub(super) fn report(&self) -> ExitCode {
        match self {
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                ExitCode::SUCCESS
            }
            Self::Configuration(_) => fail(2, self),
            Self::Unreachable { .. } | Self::Refused(_) | Self::Unreadable(_) | Self::Output(_) => {
                fail(1, self)
            }
        }
    }
}

/// A gateway that can be asked.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<SecretString>,
}

/// Events as they come.
pub(super) struct Events {
    answer: Response,
    rest: Vec<u8>,
}

impl Reach {
    /// Works out where the gateway is. It is not asked anything yet.
    pub(super) fn client(&self) -> Result<Client, Error> {
        // Without one no client can be made, encrypted or not.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let configured = self.configured()?;
        let base = match (&self.admin, &configured) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some(admin)) => format!("http://{}", reachable(admin.listen)),
            (None, None) => USUAL.into(),
        };
        let token = configured.and_then(|admin| admin.token.or(admin.read_token));
        let http = reqwest::Client::builder().no_proxy().build();
        Ok(Client {
            http: http.map_err(|error| Error::Configuration(error.to_string()))?,
            base,
            token: self.token.clone().or(token),
        })
    }

    /// What the configuration says, where one is named or found. A URL alone needs none, and gets no token of one.
    fn configured(&self) -> Result<Option<Admin>, Error> {
        let env = |name: &str| std::env::var(name).ok();
        if self.admin.is_some() && self.config.is_none() {
            return Ok(None);
        }
        let file = match config::find(self.config.as_deref(), &env) {
            Ok(file) => file,
            Err(_) if self.config.is_none() => return Ok(None),
            Err(error) => return Err(Error::Configuration(error)),
        };
        let loaded = config::load(&file, &env);
        loaded.map(|config| Some(config.admin)).map_err(|problems| {
            let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
            Error::Configuration(texts.join("\n"))
        })
    }
}

impl Client {
    /// Reads JSON.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Error> {
        let request = self
            .http
            .get(self.url(path))
            .header("accept", "application/json");
        json(self.send(request).await?).await
    }

    /// Asks for a change.
    pub(super) async fn post(&self, path: &str) -> Result<Value, Error> {
        let request = self
            .http
            .post(self.url(path))
            .header("x-tidegate-control", "1");
        json(self.send(request).await?).await
    }

    /// Follows the event stream, from behind the event of this id on.
    pub(super) async fn follow(&self, path: &str, after: Option<&str>) -> Result<Events, Error> {
        let mut request = self
            .http
            .get(self.url(path))
            .header("accept", "text/event-stream");
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let answer = self.send(request).await?;
        Ok(Events {
            answer,
            rest: Vec::new(),
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, Error> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let answer = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        Err(refusal(status, &json(answer).await.unwrap_or_default()))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable {
            url: self.base.clone(),
            why: root(error),
        }
    }
}

impl Events {
    /// The next event; `None` where the stream ended.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Error> {
        loop {
            if let Some(block) = self.take() {
                match data(&block) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let chunk = self.answer.chunk().await;
            let Some(chunk) = chunk.map_err(|error| Error::Unreadable(root(&error)))? else {
                return Ok(None);
            };
            self.rest.extend_from_slice(&chunk);
            if self.rest.len() > EVENT_MAX {
                return Err(Error::Unreadable("an event without an end".into()));
            }
        }
    }

    /// The next block of lines, without the empty one that ends it.
    fn take(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memmem::find(&self.rest, b"\n\n")?;
        let block = self.rest.drain(..end + 2);
        Some(block.collect())
    }
}

/// The JSON of a block; a comment has none.
fn data(block: &[u8]) -> Option<Value> {
    let block = std::str::from_utf8(block).ok()?;
    let data = block.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(data).ok()
}

async fn json(answer: Response) -> Result<Value, Error> {
    let body = answer.json().await;
    body.map_err(|error| Error::Unreadable(root(&error)))
}

/// The gateway's own words: what is wrong, what to do, and why in detail.
fn refusal(status: StatusCode, body: &Value) -> Error {
    let Some(error) = body.get("error").and_then(Value::as_str) else {
        return Error::Refused(format!("the gateway answers {status}"));
    };
    let help = body.get("help").and_then(Value::as_str).unwrap_or_default();
    let mut lines = vec![format!("{error}: {help}")];
    let problems = body.get("problems").and_then(Value::as_array);
    let problems = problems.into_iter().flatten().filter_map(Value::as_str);
    lines.extend(problems.map(|problem| format!("  {problem}")));
    Error::Refused(lines.join("\n"))
}

/// The innermost cause, which is what a person can do something about.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// An address that listens everywhere is reached on this machine.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_listens_everywhere_is_reached_on_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), reached);
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_and_every_problem() {
        let body =
            serde_json::json!({ "error": "no", "help": "do", "problems": ["a:1:2: x", "b"] });
        let told = refusal(StatusCode::UNPROCESSABLE_ENTITY, &body).to_string();
        assert_eq!(told, "no: do\n  a:1:2: x\n  b");
        let told = refusal(StatusCode::BAD_GATEWAY, &Value::Null).to_string();
        assert_eq!(told, "the gateway answers 502 Bad Gateway");
    }

    #[test]
    fn a_comment_is_no_event() {
        assert_eq!(data(b": keep-alive\n\n"), None);
        assert_eq!(data(b"id: x\ndata: 5\n\n"), Some(5.into()));
    }
}
