//! How a server is reached: the fields of one entry that make its transport, checked together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use super::Problem;
use super::file::{self, ServerFields, Text, Transport};
use super::limits;
use super::problem::Scope;
use super::read::nearest;
use super::secrets::{Secrets, fingerprint};
use super::tree::{Node, Step};
use crate::transport::settings::{Credential, Http, Settings, Stdio, TokenIn, WebSocket};

/// R12: silence on a WebSocket after which a ping is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Fields that mean nothing to a server that is dialed.
const LAUNCHED_ONLY: [&str; 4] = ["args", "cwd", "env", "inheritEnv"];
/// Fields that mean nothing to a server that is launched.
const DIALED_ONLY: [&str; 5] = ["token", "tokenFile", "tokenCommand", "tokenIn", "headers"];

/// Collects what is wrong with one entry.
pub(super) struct Checks<'a> {
    pub(super) scope: Scope<'a>,
    /// The entry without `defaults`.
    pub(super) own: &'a Node,
    pub(super) fields: &'a ServerFields,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl Checks<'_> {
    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.problems.push(self.scope.field(field, message));
    }

    fn warn(&mut self, field: &str, message: impl Into<String>) {
        self.warnings.push(self.scope.field(field, message));
    }

    /// Given in the file, also where it could not be read.
    fn has(&self, field: &str) -> bool {
        self.scope.node.gives(field)
    }

    fn idle(&mut self, fields: &[&str], why: &str) {
        for field in fields {
            if self.own.gives(field) {
                let path = [Step::Key((*field).to_owned())];
                let text = format!("has no effect on a server that is {why}; take it out");
                self.warnings.push(self.scope.at_key(&path, text));
            }
        }
    }
}

/// The transport, or `None` where a problem says why there is none.
pub(super) fn link(checks: &mut Checks<'_>, secrets: Secrets) -> Option<Settings> {
    match kind(checks)? {
        Transport::Stdio => launched(checks, secrets),
        Transport::WebSocket | Transport::Http => dialed(checks, secrets),
    }
}

/// Which transport, from `transport`, the scheme of `url`, and what is given.
fn kind(checks: &mut Checks<'_>) -> Option<Transport> {
    let (command, url) = (checks.has("command"), checks.has("url"));
    match (checks.fields.transport, command, url) {
        (Some(Transport::Stdio), true, _) => Some(Transport::Stdio),
        (Some(Transport::Stdio), false, _) => {
            checks.refuse("transport", "`stdio` needs `command`; add it");
            None
        }
        (Some(asked), _, true) => scheme(checks).and_then(|kind| agreed(checks, asked, kind)),
        (Some(_), _, false) => {
            checks.refuse(
                "transport",
                "this transport needs `url`; add it, or write `stdio`",
            );
            None
        }
        // Unreadable: told already.
        (None, _, _) if checks.has("transport") => None,
        (None, true, true) => {
            let text = "`command` is given too; keep one of the two, or say which with `transport`";
            checks.refuse("url", text);
            None
        }
        (None, true, false) => Some(Transport::Stdio),
        (None, false, true) => scheme(checks),
        (None, false, false) => {
            let mut names = checks.scope.node.members().iter();
            let slip = |name: &str| nearest(name, &["command", "url"]).is_some();
            if names.any(|(key, _)| slip(&key.name)) {
                return None;
            }
            let text = "add `command` (a program to launch) or `url` (an address to dial)";
            checks.problems.push(checks.scope.at(&[], text));
            None
        }
    }
}

fn agreed(checks: &mut Checks<'_>, asked: Transport, kind: Transport) -> Option<Transport> {
    if asked == kind {
        return Some(kind);
    }
    let schemes = match asked {
        Transport::Http => "`http://` or `https://`",
        Transport::WebSocket | Transport::Stdio => "`ws://` or `wss://`",
    };
    checks.refuse(
        "transport",
        format!("the scheme of `url` says otherwise; write a {schemes} address, or leave this out"),
    );
    None
}

fn scheme(checks: &mut Checks<'_>) -> Option<Transport> {
    match address(checks)?.scheme() {
        "ws" | "wss" => Some(Transport::WebSocket),
        "http" | "https" => Some(Transport::Http),
        _ => {
            checks.refuse(
                "url",
                "write an address with `http://`, `https://`, `ws://` or `wss://`",
            );
            None
        }
    }
}

/// The address as parsed. What was written is not repeated: it may hold a password.
fn address(checks: &mut Checks<'_>) -> Option<Url> {
    let url = checks.fields.url.as_deref()?;
    match Url::parse(url) {
        Ok(url) if url.has_host() => Some(url),
        Ok(_) => {
            checks.refuse("url", "name a host, as in `ws://127.0.0.1:9020/mcpl`");
            None
        }
        Err(error) => {
            checks.refuse(
                "url",
                format!("write an address such as `ws://127.0.0.1:9020/mcpl` ({error})"),
            );
            None
        }
    }
}

fn launched(checks: &mut Checks<'_>, mut secrets: Secrets) -> Option<Settings> {
    checks.idle(&DIALED_ONLY, "launched");
    let fields = checks.fields;
    let command = fields.command.clone()?;
    if command.trim().is_empty() {
        checks.refuse("command", "name a program");
        return None;
    }
    let args = texts(fields.args.as_deref());
    let env = environment(checks);
    secrets.args(&args);
    for (name, value) in &env {
        secrets.named(name, value.expose_secret());
    }
    Some(Settings::Stdio(Arc::new(Stdio {
        command,
        args,
        cwd: fields
            .cwd
            .as_deref()
            .map(|cwd| beside(checks.scope.file, cwd)),
        env,
        inherit_env: fields.inherit_env.unwrap_or(false),
        secrets: secrets.finish(),
    })))
}

fn environment(checks: &mut Checks<'_>) -> BTreeMap<String, SecretString> {
    let fields = checks.fields;
    for name in fields.env.iter().flat_map(BTreeMap::keys) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let path = [Step::Key("env".into()), Step::Key(name.clone())];
            let text = "no variable can have this name; write one without `=`";
            checks.problems.push(checks.scope.at_key(&path, text));
        }
    }
    sealed(fields.env.as_ref())
}

fn dialed(checks: &mut Checks<'_>, mut secrets: Secrets) -> Option<Settings> {
    checks.idle(&LAUNCHED_ONLY, "dialed");
    let url = address(checks)?;
    let credential = credential(checks)?;
    let headers = headers(checks);
    secrets.url(&url);
    if let Credential::Fixed(token) = &credential {
        secrets.token(token.expose_secret());
    }
    for value in headers.values() {
        secrets.text(value.expose_secret());
    }
    let secret = !matches!(credential, Credential::None) || !headers.is_empty();
    let safe = match url.scheme() {
        "ws" => Some("wss"),
        "http" => Some("https"),
        _ => None,
    };
    if let Some(safe) = safe.filter(|_| secret && !is_loopback(&url)) {
        let text = format!("its credential crosses the network in the clear; write `{safe}://`");
        checks.warn("url", text);
    }
    if url.scheme().starts_with("http") {
        checks.idle(&["tokenIn"], "dialed over HTTP");
        return Some(Settings::Http(Arc::new(Http {
            url: url.into(),
            credential,
            headers,
            connect_timeout: limits::connect_timeout(checks.fields),
            secrets: secrets.finish(),
        })));
    }
    Some(Settings::WebSocket(Arc::new(WebSocket {
        url: url.into(),
        credential,
        token_in: match checks.fields.token_in {
            Some(file::TokenIn::Query) => TokenIn::Query,
            Some(file::TokenIn::Header) => TokenIn::Header,
            Some(file::TokenIn::Both) | None => TokenIn::Both,
        },
        headers,
        keep_alive: checks
            .fields
            .keep_alive_ms
            .map_or(KEEP_ALIVE, |after| after.0),
        secrets: secrets.finish(),
    })))
}

/// The one credential that is given; `None` where it cannot be used.
fn credential(checks: &mut Checks<'_>) -> Option<Credential> {
    let given: Vec<_> = ["token", "tokenFile", "tokenCommand"]
        .into_iter()
        .filter(|field| checks.has(field))
        .collect();
    if let [first, second, ..] = given.as_slice() {
        checks.refuse(second, format!("`{first}` is given too; keep one of them"));
        return None;
    }
    let fields = checks.fields;
    let command = texts(fields.token_command.as_deref());
    let (empty, credential) = match (&fields.token, &fields.token_file, command.is_empty()) {
        (Some(Text(token)), ..) => (token.is_empty(), Credential::Fixed(token.as_str().into())),
        (None, Some(path), _) => (
            path.is_empty(),
            Credential::File(beside(checks.scope.file, path)),
        ),
        (None, None, false) => (false, Credential::Command(command)),
        (None, None, true) => (fields.token_command.is_some(), Credential::None),
    };
    if let (true, Some(field)) = (empty, given.first()) {
        checks.refuse(field, "is empty; fill it, or leave it out");
        return None;
    }
    Some(credential)
}

fn headers(checks: &mut Checks<'_>) -> BTreeMap<String, SecretString> {
    let fields = checks.fields;
    for (name, Text(value)) in fields.headers.iter().flatten() {
        let path = [Step::Key("headers".into()), Step::Key(name.clone())];
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            let text = "no header can have this name; write letters, digits and dashes";
            checks.problems.push(checks.scope.at_key(&path, text));
        } else if HeaderValue::from_str(value).is_err() {
            let text = "no header can have this value; write it in one line of visible ASCII";
            checks.problems.push(checks.scope.at(&path, text));
        }
    }
    sealed(fields.headers.as_ref())
}

fn texts(texts: Option<&[Text]>) -> Vec<String> {
    let texts = texts.unwrap_or_default().iter();
    texts.map(|Text(text)| text.clone()).collect()
}

fn sealed(map: Option<&BTreeMap<String, Text>>) -> BTreeMap<String, SecretString> {
    let pairs = map.into_iter().flatten();
    pairs
        .map(|(name, Text(value))| (name.clone(), value.as_str().into()))
        .collect()
}

/// A path as written in the file: from the file's folder.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Hosts whose traffic stays on this machine (upstream-engine h: `localhost`, 127/8, `[::1]`, the unspecified ones).
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<std::net::IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_) => bare == "localhost" || bare.ends_with(".localhost"),
    }
}

/// Everything that makes the transport, as one text to compare (3-config, Reload).
pub(super) fn transport_key(settings: &Settings, fields: &ServerFields) -> String {
    let protocol = fields.protocol.map(|protocol| format!("{protocol:?}"));
    let print = match settings {
        Settings::Stdio(stdio) => fingerprint(&(
            (&stdio.command, &stdio.args, &stdio.cwd, stdio.inherit_env),
            (exposed(&stdio.env), protocol),
        )),
        Settings::Http(http) => fingerprint(&(
            (&http.url, credential_key(&http.credential)),
            (exposed(&http.headers), protocol),
        )),
        Settings::WebSocket(socket) => fingerprint(&(
            (&socket.url, credential_key(&socket.credential)),
            (
                exposed(&socket.headers),
                format!("{:?}", socket.token_in),
                protocol,
            ),
        )),
    };
    format!("{}:{print}", settings.label())
}

fn exposed(map: &BTreeMap<String, SecretString>) -> Vec<(&str, &str)> {
    let pairs = map.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect()
}

fn credential_key(credential: &Credential) -> String {
    match credential {
        Credential::None => String::new(),
        Credential::Fixed(token) => format!("fixed {}", token.expose_secret()),
        Credential::File(path) => format!("file {}", path.display()),
        Credential::Command(command) => format!("command {command:?}"),
    }
}
