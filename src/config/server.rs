//! One entry of `mcpServers`, from the tree to usable settings, or everything that is wrong with it. A bad entry never
//! touches another (R9).

use std::path::Path;
use std::sync::Arc;

use super::file::{Narrowing, Protocol, ServerFields};
use super::foreign;
use super::interpolate::{Env, interpolate};
use super::limits;
use super::link::{Checks, link, transport_key};
use super::problem::Scope;
use super::read::read;
use super::secrets::Secrets;
use super::tree::{Node, Value};
use super::{Entry, Problem};
use crate::aggregate;
use crate::ids::ServerId;
use crate::revision::server::Opening;

/// What every entry of a file has in common.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) file: &'a Path,
    pub(super) env: Env<'a>,
    pub(super) defaults: Option<&'a Node>,
    /// `onSecondHost: replace`.
    pub(super) replace_host: bool,
}

/// What became of an entry.
pub(super) struct Built {
    pub(super) enabled: bool,
    pub(super) entry: Result<Entry, Vec<Problem>>,
    pub(super) warnings: Vec<Problem>,
    /// Told once for the whole file.
    pub(super) once: Vec<Problem>,
}

/// Reads one entry.
pub(super) fn build(id: &ServerId, mut node: Node, prefix: &str, context: Context<'_>) -> Built {
    let told = map(&mut node, prefix, context.file);
    let own = node.clone();
    if let Some(defaults) = context.defaults {
        node.inherit(defaults);
    }
    let whole = node.clone();
    let scope = Scope {
        file: context.file,
        node: &whole,
        prefix,
    };
    let (fields, problems, secrets) = fields(&mut node, scope, context.env);
    let mut checks = Checks {
        scope,
        own: &own,
        fields: &fields,
        problems: told.problems.into_iter().chain(problems).collect(),
        warnings: told.warnings,
    };
    let is_object = matches!(whole.value, Value::Map(_));
    let entry = is_object
        .then(|| entry(id, &mut checks, secrets, context))
        .flatten();
    let once = told.once;
    Built {
        enabled: fields.enabled.unwrap_or(true),
        entry: entry
            .filter(|_| checks.problems.is_empty())
            .ok_or(checks.problems),
        warnings: checks.warnings,
        once,
    }
}

/// Checks `defaults` by itself, so that a fault in it is told once and stops the start. What it tells says nothing
/// about the fields that every server inherits; those are checked where they are used.
pub(super) fn prepare_defaults(node: &mut Node, context: Context<'_>) -> foreign::Mapping {
    let mut told = map(node, "defaults", context.file);
    let whole = node.clone();
    let scope = Scope {
        file: context.file,
        node: &whole,
        prefix: "defaults",
    };
    told.problems
        .extend(fields(&mut whole.clone(), scope, context.env).1);
    told
}

/// Other hosts' fields become ours.
fn map(node: &mut Node, prefix: &str, file: &Path) -> foreign::Mapping {
    let before = node.clone();
    let scope = Scope {
        file,
        node: &before,
        prefix,
    };
    foreign::map_server(node, scope)
}

/// What can be read, what cannot, and what came from the environment.
fn fields(
    node: &mut Node,
    scope: Scope<'_>,
    env: Env<'_>,
) -> (ServerFields, Vec<Problem>, Secrets) {
    let found = interpolate(node, env);
    let unresolved = found
        .faults
        .into_iter()
        .map(|(path, text)| scope.at(&path, text));
    let mut problems: Vec<_> = unresolved.collect();
    let (fields, faults) = read::<ServerFields>(node);
    problems.extend(faults.into_iter().map(|fault| scope.fault(fault)));
    let mut secrets = Secrets::default();
    found.values.iter().for_each(|value| secrets.text(value));
    (fields.unwrap_or_default(), problems, secrets)
}

/// Everything that fields mean together.
fn entry(
    id: &ServerId,
    checks: &mut Checks<'_>,
    secrets: Secrets,
    context: Context<'_>,
) -> Option<Entry> {
    warn_of_lists(checks);
    let transport = link(checks, secrets)?;
    let engine = limits::settings(id, checks.fields, &transport, context.replace_host);
    warn_of_lasting(checks, &engine);
    let over_http = transport.label() == "http";
    let transport_key = transport_key(&transport, checks.fields);
    Some(Entry {
        engine: Arc::new(engine),
        prefix: prefix(id, checks),
        transport,
        opening: opening(checks.fields.protocol, over_http),
        transport_key,
    })
}

/// What a server of this transport is asked first (decision 0015).
fn opening(protocol: Option<Protocol>, over_http: bool) -> Option<Opening> {
    match protocol.unwrap_or(Protocol::Auto) {
        Protocol::Auto if over_http => Some(Opening::DiscoverFirst),
        Protocol::Auto => Some(Opening::InitializeFirst),
        Protocol::Modern | Protocol::V2026_07_28 => Some(Opening::Stateless),
        Protocol::Legacy
        | Protocol::V2024_11_05
        | Protocol::V2025_03_26
        | Protocol::V2025_06_18
        | Protocol::V2025_11_25 => None,
    }
}

/// R16: below the cap, a server that keeps ending is launched more often than one that never connects.
fn warn_of_lasting(checks: &mut Checks<'_>, engine: &crate::engine::settings::Settings) {
    let threshold = engine.lasting_threshold();
    if !engine.reconnect || threshold >= engine.max_interval {
        return;
    }
    let fields = ["lastingAfterMs", "reconnectMaxIntervalMs"];
    let given = fields.iter().find(|name| checks.scope.node.gives(name));
    let text = format!(
        "a connection lasts after {} s, which is less than the longest wait: a server that dies after that is launched \
         again sooner than one that never connects; raise `lastingAfterMs` or lower `reconnectMaxIntervalMs`",
        threshold.as_secs_f64()
    );
    let warning = checks
        .scope
        .field(given.unwrap_or(&"reconnectMaxIntervalMs"), text);
    checks.warnings.push(warning);
}

fn warn_of_lists(checks: &mut Checks<'_>) {
    let fields = checks.fields;
    if fields.enabled_tools.as_ref().is_some_and(Vec::is_empty) {
        let text = "an empty list shows no tool; leave it out to show all";
        checks
            .warnings
            .push(checks.scope.field("enabledTools", text));
    }
    let lifecycle = fields.tool_lifecycle.iter();
    let narrows = |narrowing: &&Narrowing| !narrowing.empty;
    let mut narrowed = lifecycle.flat_map(|asked| asked.observe.iter().chain(&asked.inputs));
    if narrowed.any(|narrowing| narrows(&narrowing)) {
        let text =
            "what narrows the grant inside is the host's to apply; this gateway grants the path";
        checks
            .warnings
            .push(checks.scope.field("toolLifecycle", text));
    }
}

/// What stands before its names where servers are listed together.
fn prefix(id: &ServerId, checks: &mut Checks<'_>) -> Box<str> {
    let given = checks.fields.tool_prefix.as_deref();
    if given.is_some_and(|prefix| !aggregate::is_prefix(prefix)) {
        let text =
            "write 1 to 64 of A-Z a-z 0-9 . _ - without `__` and not ending in `_`, as in `chat`";
        checks.problems.push(checks.scope.field("toolPrefix", text));
    }
    let default = || aggregate::default_prefix(id.as_str()).into();
    given.map_or_else(default, Into::into)
}
