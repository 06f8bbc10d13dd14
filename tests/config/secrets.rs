//! What an entry gives to be taken out of everything that its server says.

use secrecy::ExposeSecret as _;
use tidegate::config::Entry;
use tidegate::transport::Settings;

use super::load;

fn entry(fields: &str) -> Entry {
    let mut config = load(&format!("mcpServers: {{ a: {{ {fields} }} }}"));
    config.servers.remove(0).entry.unwrap()
}

fn secrets(fields: &str) -> Vec<String> {
    let secrets = match entry(fields).transport {
        Settings::Stdio(stdio) => stdio.secrets.clone(),
        Settings::WebSocket(socket) => socket.secrets.clone(),
        Settings::Http(http) => http.secrets.clone(),
    };
    let mut secrets: Vec<_> = secrets
        .iter()
        .map(|s| s.expose_secret().to_owned())
        .collect();
    secrets.sort();
    secrets
}

#[test]
fn telling_names_long_values_and_the_environment_make_secrets() {
    let fields = "command: x, args: ['--at=${DISCORD_TOKEN}', --password, opensesame], \
                  env: { API_KEY: abcdef, SHORT_KEY: abcde, REGION: eu-central-1, ZONE: '${TZ}' }";
    assert_eq!(
        secrets(fields),
        ["abcdef", "discord-0123456789", "opensesame"]
    );
}

#[test]
fn tokens_headers_and_addresses_make_secrets() {
    let fields =
        "url: 'wss://me:pw@h/x?apikey=0123456&n=1234567', token: abc, headers: { X-Team: magenta }";
    assert_eq!(secrets(fields), ["0123456", "abc", "magenta", "pw"]);
}

#[test]
fn the_transport_key_holds_no_secret() {
    let key = entry("command: x, env: { API_KEY: abcdef }").transport_key;
    assert!(key.starts_with("stdio:") && !key.contains("abcdef"));
}
