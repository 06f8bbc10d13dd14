//! The configuration as `/api/v1/config` shows it: what holds, and never a secret. What may hold one (arguments,
//! environment, headers, a URL's user and query) is left out or named without its value.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{Config, Edges, Entry, Host, Server, StatusChannel};
use crate::transport::Settings as Transport;

/// A configuration without its secrets.
#[must_use]
pub fn shown(config: &Config) -> Value {
    let admin = &config.admin;
    json!({
        "name": config.name,
        "listen": config.listen.to_string(),
        "admin": {
            "listen": admin.listen.to_string(),
            "token": admin.token.is_some(),
            "readToken": admin.read_token.is_some(),
        },
        "hosts": config.hosts.iter().map(host).collect::<Vec<_>>(),
        "allowedOrigins": config.allowed_origins,
        "allowedHosts": config.allowed_hosts,
        "statusChannels": config.status_channels.iter().map(channel).collect::<Vec<_>>(),
        "webhooks": config.webhooks.iter().map(|hook| json!({ "events": edges(hook.events) }))
            .collect::<Vec<_>>(),
        "stateDir": config.state_dir.as_ref().map(|dir| dir.display().to_string()),
        "sessionIdleMs": millis(config.session_idle),
        "shutdownTimeoutMs": millis(config.shutdown_timeout),
        "mcpServers": config.servers.iter().map(server).collect::<Vec<_>>(),
    })
}

fn host(host: &Host) -> Value {
    json!({ "name": host.name, "servers": host.servers })
}

fn channel(channel: &StatusChannel) -> Value {
    json!({
        "server": channel.server.as_str(),
        "channelId": channel.channel_id,
        "events": edges(channel.events),
        "source": channel.source.label(),
    })
}

fn edges(events: Edges) -> Vec<&'static str> {
    let edges = [(events.down, "down"), (events.clear, "clear")];
    let told = edges.into_iter().filter(|(told, _)| *told);
    told.map(|(_, name)| name).collect()
}

fn server(server: &Server) -> Value {
    let (settings, problems) = match &server.entry {
        Ok(entry) => (Some(entry_shown(entry)), Vec::new()),
        Err(problems) => (
            None,
            problems
                .iter()
                .map(|problem| problem.message.clone())
                .collect(),
        ),
    };
    json!({
        "id": server.id.as_str(),
        "enabled": server.enabled,
        "problems": problems,
        "settings": settings,
    })
}

fn entry_shown(entry: &Entry) -> Value {
    let engine = &entry.engine;
    let bounds = &engine.bounds;
    json!({
        "transport": transport(&entry.transport),
        "reconnect": engine.reconnect,
        "reconnectIntervalMs": millis(engine.interval),
        "reconnectMaxIntervalMs": millis(engine.max_interval),
        "lastingAfterMs": millis(engine.lasting_threshold()),
        "downAfterAttempts": engine.down_after_attempts,
        "downAfterMs": millis(engine.down_after),
        "connectTimeoutMs": millis(engine.connect_timeout),
        "initializeTimeoutMs": millis(engine.initialize_timeout),
        "policyTimeoutMs": millis(engine.policy_timeout),
        "requestTimeoutMs": millis(engine.request_timeout),
        "callTimeoutMs": millis(engine.call_timeout),
        "heldRequests": bounds.held_requests,
        "heldNotifications": bounds.held_notifications,
        "keptRequests": bounds.kept_requests,
        "keptNotifications": bounds.kept_notifications,
        "grantWithoutReceipt": engine.grant_without_receipt,
        "allowHostCommands": engine.allow_host_commands,
    })
}

fn transport(settings: &Transport) -> Value {
    match settings {
        Transport::Stdio(stdio) => json!({
            "kind": "stdio", "command": stdio.command, "args": stdio.args.len(),
            "env": stdio.env.keys().collect::<Vec<_>>(),
        }),
        Transport::WebSocket(socket) => json!({
            "kind": "websocket", "url": bare(&socket.url),
            "headers": socket.headers.keys().collect::<Vec<_>>(),
        }),
        Transport::Http(http) => json!({
            "kind": "http", "url": bare(&http.url),
            "headers": http.headers.keys().collect::<Vec<_>>(),
        }),
    }
}

/// A URL without user, query and fragment.
fn bare(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return String::new();
    };
    // Fails only where a URL can have neither.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// `null` for a time without end.
fn millis(duration: Duration) -> Option<u64> {
    let finite = duration != Duration::MAX;
    finite
        .then(|| u64::try_from(duration.as_millis()).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("wss://u:p@host:9/mcpl?token=x#y", "wss://host:9/mcpl"),
            ("ws://host", "ws://host/"),
            ("ws://host/p@q", "ws://host/p@q"),
            ("nonsense", ""),
        ] {
            assert_eq!(bare(url), shown);
        }
    }

    #[test]
    fn a_cap_of_infinity_is_null() {
        assert_eq!(millis(Duration::MAX), None);
        assert_eq!(millis(Duration::from_secs(5)), Some(5000));
    }
}
