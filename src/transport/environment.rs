//! What of the gateway's own environment a server gets: ordinary variables, and none that may hold a secret.

use std::env;
use std::ffi::OsString;

/// The names that are passed on, beside every `LC_*` (3-config, `env`).
const PASSED: [&str; 28] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// The variables of this process that a server gets without `inheritEnv`.
pub(super) fn passed_on() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed))
}

fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || name.starts_with("LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_variables_are_passed_on_and_others_are_not() {
        for name in ["PATH", "LC_ALL", "https_proxy"] {
            assert!(is_passed(name), "{name}");
        }
        for name in [
            "DISCORD_TOKEN",
            "TIDEGATE_ADMIN_TOKEN",
            "LD_PRELOAD",
            "path",
            "",
        ] {
            assert!(!is_passed(name), "{name}");
        }
    }
}
