//! The engine's settings of one server: defaults where nothing is given, and the sense of a zero.

use std::time::Duration;

use super::file::{Protocol, ServerFields, ToolLifecycle};
use super::numbers::{Count, Millis};
use crate::engine::settings::{Bounds, Mask, Settings, WAIT_MAX};
use crate::ids::ServerId;
use crate::transport::Settings as Transport;
use crate::wire::mcp::Revision;
use crate::wire::mcpl::{CAPABILITIES, UNLESS_NAMED};

/// R19: silence of an HTTP server after which it is asked for a sign of life.
const HTTP_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Fields with an own default keep it where the file gives none.
pub(super) fn settings(
    id: &ServerId,
    fields: &ServerFields,
    transport: &Transport,
    replace_host: bool,
) -> Settings {
    let base = Settings::default();
    let millis = |given: Option<Millis>, default| given.map_or(default, |Millis(value)| value);
    Settings {
        server: id.as_str().to_owned(),
        launched: matches!(transport, Transport::Stdio(_)),
        lasts_alive: matches!(transport, Transport::Http(_)),
        revision: revision(fields.protocol),
        reconnect: fields.reconnect.unwrap_or(true),
        interval: fields
            .reconnect_interval_ms
            .map_or(base.interval, |value| value.0),
        max_interval: fields
            .reconnect_max_interval_ms
            .map_or(base.max_interval, |value| value.0),
        lasting_floor: millis(fields.lasting_floor_ms, base.lasting_floor),
        lasting_after: fields.lasting_after_ms.map(|Millis(value)| value),
        down_after_attempts: fields
            .down_after_attempts
            .map_or(base.down_after_attempts, |value| value.0),
        down_after: millis(fields.down_after_ms, base.down_after),
        connect_timeout: connect_timeout(fields),
        initialize_timeout: timeout(fields.initialize_timeout_ms, base.initialize_timeout),
        policy_timeout: timeout(fields.policy_timeout_ms, base.policy_timeout),
        request_timeout: timeout(fields.request_timeout_ms, base.request_timeout),
        call_timeout: millis(fields.call_timeout_ms, base.call_timeout),
        accept_after: millis(fields.accept_after_ms, base.accept_after),
        kept_max_age: millis(fields.kept_max_age_ms, base.kept_max_age),
        probe_after: probe_after(fields, transport),
        bounds: bounds(fields, base.bounds),
        mask: mask(fields),
        grant_without_receipt: fields.grant_without_receipt.unwrap_or(false),
        allow_host_commands: fields.allow_host_commands.unwrap_or(false),
        replace_host,
    }
}

/// Zero is no limit, which for a timer is its longest wait.
fn timeout(given: Option<Millis>, default: Duration) -> Duration {
    match given {
        Some(Millis(Duration::ZERO)) => WAIT_MAX,
        Some(Millis(value)) => value,
        None => default,
    }
}

/// R15: how long a connect call may take.
pub(super) fn connect_timeout(fields: &ServerFields) -> Duration {
    timeout(
        fields.connect_timeout_ms,
        Settings::default().connect_timeout,
    )
}

/// R12, R19: a WebSocket probes itself; a launched server is probed only where it is asked for.
fn probe_after(fields: &ServerFields, transport: &Transport) -> Duration {
    let default = match transport {
        Transport::WebSocket(_) => return Duration::ZERO,
        Transport::Stdio(_) => Duration::ZERO,
        Transport::Http(_) => HTTP_KEEP_ALIVE,
    };
    let given = fields.keep_alive_ms;
    given.map_or(default, |Millis(value)| value)
}

fn revision(protocol: Option<Protocol>) -> Option<Revision> {
    match protocol? {
        Protocol::V2024_11_05 => Some(Revision::V2024_11_05),
        Protocol::V2025_03_26 => Some(Revision::V2025_03_26),
        Protocol::V2025_06_18 => Some(Revision::V2025_06_18),
        Protocol::V2025_11_25 => Some(Revision::V2025_11_25),
        Protocol::Auto | Protocol::Legacy | Protocol::Modern | Protocol::V2026_07_28 => None,
    }
}

fn bounds(fields: &ServerFields, base: Bounds) -> Bounds {
    let count = |given: Option<Count>, default| {
        given.map_or(default, |Count(value)| {
            usize::try_from(value).unwrap_or(usize::MAX)
        })
    };
    Bounds {
        held_requests: count(fields.held_requests, base.held_requests),
        held_notifications: count(fields.held_notifications, base.held_notifications),
        kept_requests: count(fields.kept_requests, base.kept_requests),
        kept_notifications: count(fields.kept_notifications, base.kept_notifications),
        ..base
    }
}

fn mask(fields: &ServerFields) -> Mask {
    let list = |given: &Option<Vec<String>>| given.clone().unwrap_or_default();
    let lifecycle = fields.tool_lifecycle.as_ref();
    let enabled = fields.enabled_capabilities.clone();
    Mask {
        enabled_tools: fields.enabled_tools.clone(),
        disabled_tools: list(&fields.disabled_tools),
        enabled_feature_sets: fields.enabled_feature_sets.clone(),
        disabled_feature_sets: list(&fields.disabled_feature_sets),
        enabled_capabilities: lifecycle
            .map_or(enabled.clone(), |asked| with_lifecycle(enabled, asked)),
        disabled_capabilities: list(&fields.disabled_capabilities),
        channels: fields.channels.clone(),
    }
}

/// `toolLifecycle` names its paths in full, which P4 asks for; "all" becomes the list of what is granted unnamed.
fn with_lifecycle(enabled: Option<Vec<String>>, asked: &ToolLifecycle) -> Option<Vec<String>> {
    let all = CAPABILITIES.iter();
    let all = all.filter(|path| !UNLESS_NAMED.contains(path));
    let mut paths = enabled.unwrap_or_else(|| all.map(ToString::to_string).collect());
    let stated = [
        (asked.observe.is_some(), "observe"),
        (asked.inputs.is_some(), "inputs"),
    ];
    paths.extend(
        stated
            .iter()
            .filter(|(given, _)| *given)
            .map(|(_, leaf)| format!("toolLifecycle.{leaf}")),
    );
    Some(paths)
}
