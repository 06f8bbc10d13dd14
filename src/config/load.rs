//! A whole file: its own fields, then each server by itself. What is wrong with the file's own shape stops the start;
//! what is wrong with a server is that server's alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use tracing_subscriber::EnvFilter;

use super::file::{self, File, LogFormat, OnSecondHost};
use super::interpolate::{Env, interpolate};
use super::jsonc::blank_comments;
use super::problem::Scope;
use super::read::read;
use super::receivers::Receivers;
use super::server::{Built, Context, build, prepare_defaults};
use super::tree::{Key, Node, Place, Step, Value};
use super::{Admin, Config, Entry, Host, Problem, Server, foreign, telemetry};
use crate::ids::ServerId;
use crate::observe::traces;

/// A longer file is none of ours.
const FILE_MAX: u64 = 8 << 20;
const LISTEN: &str = "127.0.0.1:7464";
const ADMIN_LISTEN: &str = "127.0.0.1:7465";
const STATE_DIR: &str = "./tidegate-state";
const MAX_QUEUED_BYTES: usize = 1 << 30;
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Everything that one reading of a file found.
pub(super) struct Loaded {
    /// `None` where the file's own shape is at fault.
    pub(super) config: Option<Config>,
    /// Every problem of the file and of its servers, in the file's order.
    pub(super) problems: Vec<Problem>,
    /// In the file's order.
    pub(super) warnings: Vec<Problem>,
}

/// Reads and checks a file.
pub(super) fn load(path: &Path, env: Env<'_>) -> Loaded {
    match parse(path) {
        Ok(root) => Loader::new(path, env).load(root),
        Err(problem) => Loaded {
            config: None,
            problems: vec![problem],
            warnings: Vec::new(),
        },
    }
}

fn parse(path: &Path) -> Result<Node, Problem> {
    let problem = |place: Place, message| Problem {
        file: path.into(),
        line: place.line,
        column: place.column,
        path: String::new(),
        message,
    };
    let start = Place { line: 1, column: 1 };
    let mut text = text(path).map_err(|message| problem(start, message))?;
    if path
        .extension()
        .is_some_and(|kind| kind == "json" || kind == "jsonc")
    {
        text = blank_comments(&text);
    }
    let root = Node::parse(&text).map_err(|(place, message)| problem(place, message))?;
    if !matches!(root.value, Value::Map(_)) {
        return Err(problem(
            root.place,
            "write an object with `mcpServers`".into(),
        ));
    }
    Ok(root)
}

fn text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > FILE_MAX {
        return Err("is longer than 8 MiB; name a configuration file".into());
    }
    Ok(text)
}

struct Loader<'a> {
    path: &'a Path,
    env: Env<'a>,
    /// Of the file's own shape.
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    once: Vec<Problem>,
    /// What servers' names begin with, and who was the first to use it where.
    prefixes: BTreeMap<Box<str>, (ServerId, Problem)>,
}

impl<'a> Loader<'a> {
    fn new(path: &'a Path, env: Env<'a>) -> Self {
        Self {
            path,
            env,
            problems: Vec::new(),
            warnings: Vec::new(),
            once: Vec::new(),
            prefixes: BTreeMap::new(),
        }
    }

    fn load(mut self, mut root: Node) -> Loaded {
        self.tell(foreign::map_file(&mut root, self.path));
        let whole = root.clone();
        let scope = Scope {
            file: self.path,
            node: &whole,
            prefix: "",
        };
        let mut defaults = root.take("defaults").map(|(_, node)| node);
        let entries = root.take("mcpServers");
        let file = self.own_fields(&mut root, scope);
        let context = Context {
            file: self.path,
            env: self.env,
            defaults: None,
            replace_host: file.on_second_host == Some(OnSecondHost::Replace),
        };
        if let Some(defaults) = &mut defaults {
            self.tell(prepare_defaults(defaults, context));
        }
        let context = Context {
            defaults: defaults.as_ref(),
            ..context
        };
        let servers = self.servers(entries, scope, context);
        let config = self.assemble(file, servers, scope);
        self.finish(config)
    }

    fn tell(&mut self, told: foreign::Mapping) {
        self.problems.extend(told.problems);
        self.warnings.extend(told.warnings);
        self.once.extend(told.once);
    }

    fn own_fields(&mut self, root: &mut Node, scope: Scope<'_>) -> File {
        let unresolved = interpolate(root, self.env).faults;
        let unresolved = unresolved
            .into_iter()
            .map(|(path, text)| scope.at(&path, text));
        self.problems.extend(unresolved);
        let (file, faults) = read::<File>(root);
        self.problems
            .extend(faults.into_iter().map(|fault| scope.fault(fault)));
        file.unwrap_or_default()
    }

    /// Every entry by itself, in the file's order.
    fn servers(
        &mut self,
        entries: Option<(Key, Node)>,
        scope: Scope<'_>,
        context: Context<'_>,
    ) -> Vec<Server> {
        let members = match entries.map(|(_, node)| node.value) {
            Some(Value::Map(members)) => members,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => {
                let text =
                    "write an object of servers by id, as in `{\"memory\": {\"command\": …}}`";
                self.problems.push(scope.field("mcpServers", text));
                return Vec::new();
            }
        };
        if members.is_empty() {
            let text = "there is no server; add one to `mcpServers`";
            self.warnings.push(scope.field("mcpServers", text));
        }
        let mut servers = Vec::new();
        for (key, node) in members {
            self.server(&key, node, &mut servers, context);
        }
        servers
    }

    fn server(&mut self, key: &Key, node: Node, servers: &mut Vec<Server>, context: Context<'_>) {
        let prefix = format!("mcpServers.{}", key.written);
        let id = slug(&key.name);
        let at_key = |message| Problem {
            file: self.path.into(),
            line: key.place.line,
            column: key.place.column,
            path: prefix.clone(),
            message,
        };
        if id.as_str() != key.name {
            let text = format!(
                "this id is shown as `{id}`: ids are 1 to 64 of A-Z a-z 0-9 . _ - without `__`"
            );
            self.warnings.push(at_key(text));
        }
        let clash = at_key(format!("two entries have the id `{id}`; rename one"));
        let Built {
            enabled,
            mut entry,
            warnings,
            once,
        } = build(&id, node, &prefix, context);
        self.warnings.extend(warnings);
        self.once.extend(once);
        if let Some(other) = servers.iter_mut().find(|server| server.id == id) {
            refuse(&mut other.entry, vec![clash]);
            refuse(&mut other.entry, entry.err().unwrap_or_default());
            other.enabled |= enabled;
            return;
        }
        let here = at_key(String::new());
        self.check_names(&id, &mut entry, here, servers);
        if let Err(problems) = &mut entry {
            problems.sort_by_key(|problem| (problem.line, problem.column));
        }
        servers.push(Server { id, enabled, entry });
    }

    /// Servers whose names would begin alike where all are listed together are all refused.
    fn check_names(
        &mut self,
        id: &ServerId,
        entry: &mut Result<Entry, Vec<Problem>>,
        here: Problem,
        servers: &mut [Server],
    ) {
        let Ok(Entry { prefix, .. }) = entry else {
            return;
        };
        let Some((other, there)) = self.prefixes.get(prefix) else {
            self.prefixes.insert(prefix.clone(), (id.clone(), here));
            return;
        };
        let message = format!(
            "the names of `{other}` and `{id}` would both begin with `{prefix}__`; give one a `toolPrefix` of its own"
        );
        if let Some(server) = servers.iter_mut().find(|server| server.id == *other) {
            let message = message.clone();
            refuse(
                &mut server.entry,
                vec![Problem {
                    message,
                    ..there.clone()
                }],
            );
        }
        refuse(entry, vec![Problem { message, ..here }]);
    }

    fn assemble(&mut self, file: File, servers: Vec<Server>, scope: Scope<'_>) -> Config {
        let hosts = self.hosts(file.hosts, scope);
        let listen = self.address(file.listen, &["listen"], LISTEN, scope);
        let admin = self.admin(file.admin, scope);
        self.check_exposure(listen, &admin, scope);
        let mut receivers = Receivers::new(scope, &servers);
        let status_channels = receivers.channels(file.status_channels);
        let webhooks = receivers.webhooks(file.webhooks);
        self.problems.append(&mut receivers.problems);
        Config {
            file: self.path.into(),
            name: file.name.unwrap_or_else(host_name),
            listen,
            admin,
            hosts,
            allowed_origins: file.allowed_origins.unwrap_or_default(),
            allowed_hosts: file.allowed_hosts.unwrap_or_default(),
            status_channels,
            webhooks,
            max_queued_bytes: file.max_queued_bytes.map_or(MAX_QUEUED_BYTES, |size| {
                usize::try_from(size.0).unwrap_or(usize::MAX)
            }),
            state_dir: match file.state.dir.as_deref() {
                Some("none") => None,
                dir => Some(dir.unwrap_or(STATE_DIR).into()),
            },
            log_json: file.telemetry.log.format == Some(LogFormat::Json),
            log_level: self.log_level(file.telemetry.log.level, scope),
            traces: self.traces(file.telemetry.otlp, scope),
            session_idle: file.session_idle_ms.map_or(SESSION_IDLE, |after| after.0),
            shutdown_timeout: file
                .shutdown_timeout_ms
                .map_or(SHUTDOWN_TIMEOUT, |after| after.0),
            servers,
            warnings: Vec::new(),
        }
    }

    fn hosts(&mut self, hosts: Option<Vec<file::Host>>, scope: Scope<'_>) -> Vec<Host> {
        let (mut known, mut names, mut tokens) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (index, host) in hosts.unwrap_or_default().into_iter().enumerate() {
            let path = |name: &str| {
                let step = |name: &str| Step::Key(name.to_owned());
                [step("hosts"), Step::Index(index), step(name)]
            };
            let file::Text(token) = host.token;
            if !names.insert(host.name.clone()) {
                let text = "another host has this name; give each its own";
                self.problems.push(scope.at(&path("name"), text));
            }
            if token.is_empty() || !tokens.insert(token.clone()) {
                let text = "is empty or another host's; give each host a token of its own";
                self.problems.push(scope.at(&path("token"), text));
            }
            known.push(Host {
                name: host.name,
                token: token.into(),
                servers: host.servers.unwrap_or_else(|| vec!["*".to_owned()]),
            });
        }
        known
    }

    fn admin(&mut self, admin: file::Admin, scope: Scope<'_>) -> Admin {
        Admin {
            listen: self.address(admin.listen, &["admin", "listen"], ADMIN_LISTEN, scope),
            token: self.token(admin.token, "token", scope),
            read_token: self.token(admin.read_token, "readToken", scope),
        }
    }

    fn token(
        &mut self,
        token: Option<file::Text>,
        name: &str,
        scope: Scope<'_>,
    ) -> Option<SecretString> {
        let file::Text(token) = token?;
        if token.is_empty() {
            let text = "is empty; write a token, or leave it out";
            self.problems.push(scope.at(&path(&["admin", name]), text));
        }
        Some(token.into())
    }

    fn address(
        &mut self,
        given: Option<String>,
        at: &[&str],
        default: &str,
        scope: Scope<'_>,
    ) -> SocketAddr {
        let given = given.unwrap_or_else(|| default.to_owned());
        let numeric = given
            .strip_prefix("localhost:")
            .map(|port| format!("127.0.0.1:{port}"));
        let parsed = numeric.as_deref().unwrap_or(&given).parse();
        parsed.unwrap_or_else(|_| {
            let text = format!("write an IP address and a port, as in `{default}`");
            self.problems.push(scope.at(&path(at), text));
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    /// Whatever is bound off loopback asks for a token (4-faces). What is given but cannot be read is told already.
    fn check_exposure(&mut self, listen: SocketAddr, admin: &Admin, scope: Scope<'_>) {
        let open = !listen.ip().is_loopback();
        let none = scope.node.get("hosts").is_none_or(|hosts| hosts.is_empty());
        if open && none {
            let text = "this is reachable from other machines: add `hosts` with a name and a token each, or write 127.0.0.1";
            self.problems.push(scope.at(&path(&["listen"]), text));
        }
        let given = scope.node.get("admin");
        let secured = ["token", "readToken"]
            .iter()
            .any(|name| given.is_some_and(|admin| admin.gives(name)));
        if !admin.listen.ip().is_loopback() && !secured {
            let text = "this is reachable from other machines: add `admin.token` or `admin.readToken`, or write 127.0.0.1";
            self.problems
                .push(scope.at(&path(&["admin", "listen"]), text));
        }
        if listen == admin.listen && listen.port() != 0 {
            let text = "`listen` has this address too; give each its own port";
            self.problems
                .push(scope.at(&path(&["admin", "listen"]), text));
        }
    }

    fn traces(&mut self, otlp: Option<file::Otlp>, scope: Scope<'_>) -> Option<traces::Settings> {
        let mut checks = telemetry::Checks::new(scope, self.env);
        let settings = checks.traces(otlp);
        self.problems.append(&mut checks.problems);
        self.warnings.append(&mut checks.warnings);
        settings
    }

    fn log_level(&mut self, given: Option<String>, scope: Scope<'_>) -> String {
        let level = given.unwrap_or_else(|| "info".to_owned());
        if EnvFilter::try_new(&level).is_err() {
            let text = "write error, warn, info, debug, trace, or a filter such as `info,tidegate::engine=debug`";
            self.problems
                .push(scope.at(&path(&["telemetry", "log", "level"]), text));
        }
        level
    }

    /// Sorts what was found, says once what is told once, and gives the configuration only where the file is sound.
    fn finish(mut self, mut config: Config) -> Loaded {
        let mut told = BTreeSet::new();
        self.once
            .sort_by_key(|problem| (problem.line, problem.column));
        self.once
            .retain(|warning| told.insert(warning.message.clone()));
        let mut warnings = self.warnings;
        warnings.append(&mut self.once);
        let sound = self.problems.is_empty();
        let servers = config
            .servers
            .iter()
            .filter_map(|server| server.entry.as_ref().err());
        let mut problems = self.problems;
        problems.extend(servers.flatten().cloned());
        in_order(&mut problems);
        in_order(&mut warnings);
        config.warnings.clone_from(&warnings);
        Loaded {
            config: sound.then_some(config),
            problems,
            warnings,
        }
    }
}

fn path(names: &[&str]) -> Vec<Step> {
    names
        .iter()
        .map(|name| Step::Key((*name).to_owned()))
        .collect()
}

/// In the file's order. What `defaults` does to every server is told once.
fn in_order(problems: &mut Vec<Problem>) {
    let mut told = BTreeSet::new();
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems.retain(|problem| told.insert((problem.line, problem.column, problem.message.clone())));
}

fn refuse<T>(entry: &mut Result<T, Vec<Problem>>, more: Vec<Problem>) {
    match entry {
        Ok(_) => *entry = Err(more),
        Err(problems) => problems.extend(more),
    }
}

/// The id itself where it fits, else the nearest that does.
fn slug(key: &str) -> ServerId {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut slug = String::new();
    for c in key.chars().map(|c| if legal(c) { c } else { '-' }).take(64) {
        if !(c == '_' && slug.ends_with('_')) {
            slug.push(c);
        }
    }
    let slug = ServerId::new(&slug).or_else(|| ServerId::new("server"));
    #[expect(clippy::expect_used, reason = "`server` is in the alphabet")]
    slug.expect("a legal id")
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_does_not_fit_becomes_the_nearest_that_does() {
        for (key, id) in [
            ("discord", "discord"),
            ("memory server", "memory-server"),
            ("a__b___c", "a_b_c"),
            ("é/ü", "---"),
            ("", "server"),
            (&"x".repeat(70), &"x".repeat(64)),
        ] {
            assert_eq!(slug(key).as_str(), id);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_told_by_its_name() {
        let loaded = load(Path::new("/no/such/file.yaml"), &|_| None);
        assert!(loaded.config.is_none());
        let told = loaded.problems[0].to_string();
        assert!(
            told.starts_with("/no/such/file.yaml:1:1: cannot be opened"),
            "{told}"
        );
    }
}
