//! What must never be shown: which texts of an entry are secrets, and a key that compares them without holding them.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

use secrecy::SecretString;

/// A shorter text is too common to be taken out wherever it occurs. A token is named at any length, of which
/// `wire::redact` leaves in place what would be found in ordinary words.
const LENGTH_MIN: usize = 6;

/// Parts of names whose values are secrets.
const TELLING: [&str; 9] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASS",
    "PWD",
    "AUTH",
    "CREDENTIAL",
    "SIGNATURE",
    "DSN",
];

/// Differs from process to process, so that a key tells nothing outside of this one.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The secrets of one entry, each once.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// A token, whatever its length.
    pub(super) fn token(&mut self, token: &str) {
        if !token.is_empty() && !self.0.iter().any(|known| known == token) {
            self.0.push(token.to_owned());
        }
    }

    /// A text that may be one, where it is long enough to be recognised.
    pub(super) fn text(&mut self, text: &str) {
        if text.chars().count() >= LENGTH_MIN {
            self.token(text);
        }
    }

    /// A value, where its name says that it is one.
    pub(super) fn named(&mut self, name: &str, value: &str) {
        if is_telling(name) {
            self.text(value);
        }
    }

    /// The user, password and secret query values of a URL, as written and decoded.
    pub(super) fn url(&mut self, url: &reqwest::Url) {
        self.text(url.username());
        if let Some(password) = url.password() {
            self.token(password);
        }
        for (name, value) in url.query_pairs() {
            self.named(&name, &value);
        }
        for pair in url.query().unwrap_or_default().split('&') {
            if let Some((name, value)) = pair.split_once('=') {
                self.named(name, value);
            }
        }
    }

    /// A program's arguments: `--token X`, `--token=X`, and URLs.
    pub(super) fn args(&mut self, args: &[String]) {
        let mut flag = "";
        for arg in args {
            match arg.split_once('=') {
                Some((name, value)) if arg.starts_with('-') => self.named(name, value),
                _ if !arg.starts_with('-') => self.named(flag, arg),
                _ => {}
            }
            if let Ok(url) = reqwest::Url::parse(arg) {
                self.url(&url);
            }
            flag = if arg.starts_with('-') { arg } else { "" };
        }
    }

    /// The longest first, so that one that contains another is taken out whole.
    pub(super) fn finish(mut self) -> Vec<SecretString> {
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.into_iter().map(SecretString::from).collect()
    }
}

fn is_telling(name: &str) -> bool {
    let name = name.to_uppercase();
    TELLING.iter().any(|part| name.contains(part))
}

/// One text to compare whatever can be hashed, which holds none of it.
pub(super) fn fingerprint(value: &impl Hash) -> String {
    format!("{:016x}", HASHER.hash_one(value))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn shown(secrets: Secrets) -> Vec<String> {
        let finished = secrets.finish();
        finished
            .iter()
            .map(|s| s.expose_secret().to_owned())
            .collect()
    }

    #[test]
    fn a_value_is_a_secret_by_its_name_and_length() {
        let mut secrets = Secrets::default();
        secrets.named("DISCORD_TOKEN", "abcdef");
        secrets.named("api_key", "short");
        secrets.named("REGION", "eu-central-1");
        secrets.token("abc");
        secrets.token("");
        assert_eq!(shown(secrets), ["abcdef", "abc"]);
    }

    #[test]
    fn urls_and_arguments_give_up_their_secrets() {
        let mut secrets = Secrets::default();
        let url = "wss://someone:pw@h/?api_key=q%2B12345&page=1000000";
        secrets.url(&reqwest::Url::parse(url).unwrap());
        secrets.args(&[
            "--api-key=opensesame".into(),
            "--auth".into(),
            "hunter22".into(),
            "plain-text".into(),
        ]);
        let shown = shown(secrets);
        for secret in [
            "someone",
            "pw",
            "q+12345",
            "q%2B12345",
            "opensesame",
            "hunter22",
        ] {
            assert!(
                shown.iter().any(|known| known == secret),
                "{secret} {shown:?}"
            );
        }
        assert_eq!(shown.len(), 6);
    }

    #[test]
    fn a_fingerprint_compares_and_holds_nothing() {
        assert_eq!(fingerprint(&"secret"), fingerprint(&"secret"));
        assert_ne!(fingerprint(&"secret"), fingerprint(&"Secret"));
        assert!(!fingerprint(&"secret").contains("secret"));
    }
}
