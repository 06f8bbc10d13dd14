//! Limits and policies of one server, already validated: a `Settings` in hand is a usable one. The defaults are those
//! of 3-config; the numbers are rules R2, R3, R15, S3, G4 to G6.

use std::time::Duration;

use crate::wire::mcp::Revision;

/// A timer's limit, 2^31-1 ms: no wait is longer (R2).
pub const WAIT_MAX: Duration = Duration::from_millis(2_147_483_647);
/// Retries of a credential or a remote version verdict are never closer than these (R10, R18).
pub const AUTH_WAIT_MIN: Duration = Duration::from_secs(300);
/// See [`AUTH_WAIT_MIN`].
pub const VERSION_WAIT_MIN: Duration = Duration::from_secs(900);

/// What one server's engine is told to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The server's id, for the texts that a host reads (A4).
    pub server: String,
    /// Launched as a child, so that a version verdict halts (R10); a remote one is retried.
    pub launched: bool,
    /// It lasts only with a sign of life in the last third of the threshold (R19): a connection of HTTP has none of its
    /// own.
    pub lasts_alive: bool,
    /// The revision to offer, where the operator pinned one; `None` offers the latest and takes any.
    pub revision: Option<Revision>,
    /// Retry after a failure or an end (R20).
    pub reconnect: bool,
    /// The base of R2's wait.
    pub interval: Duration,
    /// R2's cap; [`Duration::MAX`] for `Infinity`.
    pub max_interval: Duration,
    /// R3's floor.
    pub lasting_floor: Duration,
    /// R3's threshold itself, where the operator set it.
    pub lasting_after: Option<Duration>,
    /// S3: down at the failure of an attempt of this number or more.
    pub down_after_attempts: u64,
    /// S3: down when enabled and not connected for this long.
    pub down_after: Duration,
    /// R15: from `Dial` to `Connected`.
    pub connect_timeout: Duration,
    /// R15: from `Connected` to the answered `initialize`.
    pub initialize_timeout: Duration,
    /// R15: a policy exchange, a manifest.
    pub policy_timeout: Duration,
    /// R15: the gateway's own requests.
    pub request_timeout: Duration,
    /// R15: a forwarded call, restarted by each progress; zero is none.
    pub call_timeout: Duration,
    /// A3: after this the gateway may accept a world request for the host; zero is never.
    pub accept_after: Duration,
    /// G6: kept no longer than this.
    pub kept_max_age: Duration,
    /// R12, R19: probe with `ping` after this much silence; zero is never. WebSockets probe themselves.
    pub probe_after: Duration,
    /// G4 to G6.
    pub bounds: Bounds,
    /// The mask over what the server may use, see and show.
    pub mask: Mask,
    /// P7: grant what the mask allows although the server never answers the exchange.
    pub grant_without_receipt: bool,
    /// `host/command` is allowed.
    pub allow_host_commands: bool,
    /// A second host of another name replaces the first, rather than being refused (4-faces).
    pub replace_host: bool,
}

/// How much one server may make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// G4: live held requests.
    pub held_requests: usize,
    /// G4: live held notifications.
    pub held_notifications: usize,
    /// G6: kept requests.
    pub kept_requests: usize,
    /// G6: kept notifications.
    pub kept_notifications: usize,
    /// G4: bytes held, of requests and notifications together.
    pub held_bytes: usize,
    /// G6: bytes kept.
    pub kept_bytes: usize,
    /// G16: channels.
    pub channels: usize,
    /// G16: bytes of channel descriptors.
    pub channel_bytes: usize,
    /// Forwarded requests in flight, either way.
    pub in_flight: usize,
}

/// Patterns over tools, channels, feature sets and capabilities. In every list a deny wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Bare tool names with `*` for any run; `None` allows all.
    pub enabled_tools: Option<Vec<String>>,
    /// Bare tool names with `*` for any run.
    pub disabled_tools: Vec<String>,
    /// P9: `None` allows all, an empty list none.
    pub enabled_feature_sets: Option<Vec<String>>,
    /// P9.
    pub disabled_feature_sets: Vec<String>,
    /// Paths with `*` per segment; a pattern that names a parent covers what is below it. `None` allows all.
    pub enabled_capabilities: Option<Vec<String>>,
    /// As above.
    pub disabled_capabilities: Vec<String>,
    /// Channel ids the server may register, with `*` for any run; `None` allows all.
    pub channels: Option<Vec<String>>,
}

impl Mask {
    /// Whether hosts may see and call that tool.
    #[must_use]
    pub fn shows_tool(&self, name: &str) -> bool {
        allows(self.enabled_tools.as_deref(), name) && !any(&self.disabled_tools, name)
    }

    /// Whether it hides any tool at all.
    #[must_use]
    pub fn hides_tools(&self) -> bool {
        self.enabled_tools.is_some() || !self.disabled_tools.is_empty()
    }

    /// Whether the server may register that channel.
    #[must_use]
    pub fn allows_channel(&self, id: &str) -> bool {
        allows(self.channels.as_deref(), id)
    }
}

fn allows(patterns: Option<&[String]>, name: &str) -> bool {
    patterns.is_none_or(|patterns| any(patterns, name))
}

fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

/// Whether `pattern` is `name`, with `*` for any run of characters: of tools and channels, and of the servers that a
/// token covers.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = rest.split('*');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = name.split_once(part) else {
            return false;
        };
        name = after;
    }
    name.ends_with(last)
}

impl Settings {
    /// R3: `max(floor, min(max_interval, 1 h))`, or what the operator set.
    #[must_use]
    pub fn lasting_threshold(&self) -> Duration {
        let derived = self
            .lasting_floor
            .max(self.max_interval.min(Duration::from_secs(3600)));
        self.lasting_after.unwrap_or(derived)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: String::new(),
            launched: true,
            lasts_alive: false,
            revision: None,
            reconnect: true,
            interval: Duration::from_secs(5),
            max_interval: Duration::from_secs(300),
            lasting_floor: Duration::from_secs(300),
            lasting_after: None,
            down_after_attempts: 5,
            down_after: Duration::from_secs(900),
            connect_timeout: Duration::from_secs(15),
            initialize_timeout: Duration::from_secs(30),
            policy_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(600),
            accept_after: Duration::from_secs(10),
            kept_max_age: Duration::from_secs(86_400),
            probe_after: Duration::ZERO,
            bounds: Bounds::default(),
            mask: Mask::default(),
            grant_without_receipt: false,
            allow_host_commands: false,
            replace_host: false,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            held_requests: 10_000,
            held_notifications: 1_000,
            kept_requests: 10_000,
            kept_notifications: 1_000,
            held_bytes: 64 << 20,
            kept_bytes: 64 << 20,
            channels: 20_000,
            channel_bytes: 8 << 20,
            in_flight: 10_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(max_interval: u64) -> u64 {
        let settings = Settings {
            max_interval: Duration::from_secs(max_interval),
            ..Settings::default()
        };
        settings.lasting_threshold().as_secs()
    }

    #[test]
    fn a_star_in_a_mask_is_any_run_of_characters_and_a_deny_wins() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mask = Mask {
            enabled_tools: Some(names(&["read_*", "*.*.x", "exact"])),
            disabled_tools: names(&["*secret*"]),
            ..Mask::default()
        };
        let shown = |name| mask.shows_tool(name);
        assert!(shown("read_") && shown("read_file") && shown("a.b.x") && shown("exact"));
        assert!(!shown("a.x") && !shown("exactly") && !shown("read_secret_file"));
        assert!(
            fits("*", "")
                && fits("a*a", "aa")
                && !fits("a*a", "a")
                && fits("*-x", "a-b-x")
                && !fits("", "a")
        );
        assert!(mask.allows_channel("any") && !Mask::default().hides_tools());
    }

    #[test]
    fn r3_the_threshold_follows_the_cap_between_five_minutes_and_an_hour() {
        assert_eq!(
            [
                threshold(1),
                threshold(300),
                threshold(600),
                threshold(86_400)
            ],
            [300, 300, 600, 3600]
        );
        let unbounded = Settings {
            max_interval: Duration::MAX,
            ..Settings::default()
        };
        assert_eq!(unbounded.lasting_threshold().as_secs(), 3600);
        let set = Settings {
            lasting_after: Some(Duration::from_secs(2)),
            ..Settings::default()
        };
        assert_eq!(set.lasting_threshold().as_secs(), 2);
    }
}
