//! What a server says, made fit to be shown: without secrets and without control characters. Used for stderr, error
//! texts, samples and decisions; never for what is forwarded.

use secrecy::{ExposeSecret, SecretString};

/// Stands where a secret was.
const MARK: &str = "[secret]";
/// A shorter secret would be found in ordinary words, so it is left in place. In bytes.
const SECRET_MIN: usize = 4;
/// The longest sample of unreadable bytes, in characters.
const SAMPLE_MAX: usize = 200;

/// The secrets of one server, longest first, so that one within another cannot uncover it.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<SecretString>);

impl Secrets {
    /// Takes each secret as it is, line by line (a key file is printed in lines), and as it stands in a URL.
    pub fn new(secrets: &[SecretString]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for secret in secrets.iter().map(ExposeSecret::expose_secret) {
            all.push(secret.into());
            all.extend(secret.lines().map(|line| line.trim().into()));
            all.push(percent_encoded(secret));
        }
        all.retain(|secret| secret.len() >= SECRET_MIN);
        all.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        all.dedup();
        Self(all.into_iter().map(SecretString::from).collect())
    }

    /// The same and one more, e.g. a credential that was resolved just now.
    pub fn with(&self, secret: &SecretString) -> Self {
        let mut all = self.0.clone();
        all.push(secret.clone());
        Self::new(&all)
    }

    /// The length of the longest, in bytes: what has to be read beyond a cut to see a secret that crosses it.
    pub fn longest(&self) -> usize {
        self.0
            .first()
            .map_or(0, |secret| secret.expose_secret().len())
    }

    /// The text without secrets and without control characters, on one line.
    pub fn clean(&self, text: &str) -> String {
        escaped(&self.masked(text))
    }

    /// The same for the beginning of a text: the part of a secret that the cut left at its end goes too.
    pub fn clean_beginning(&self, text: &str) -> String {
        let mut masked = self.masked(text);
        let torn = self
            .0
            .iter()
            .filter_map(|secret| torn(&masked, secret.expose_secret()))
            .max();
        if let Some(length) = torn {
            masked.truncate(masked.len() - length);
            masked.push_str(MARK);
        }
        escaped(&masked)
    }

    /// The beginning of unreadable bytes, for people.
    pub fn sample(&self, bytes: &[u8]) -> String {
        let window = SAMPLE_MAX * 4 + self.longest();
        let head = bytes.get(..window).unwrap_or(bytes);
        let shown = self.clean_beginning(&String::from_utf8_lossy(head));
        shown.chars().take(SAMPLE_MAX).collect()
    }

    /// Takes the secrets out of a text.
    pub fn mask(&self, text: &mut String) {
        for secret in self.0.iter().map(ExposeSecret::expose_secret) {
            if memchr::memmem::find(text.as_bytes(), secret.as_bytes()).is_some() {
                *text = text.replace(secret, MARK);
            }
        }
    }

    fn masked(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        self.mask(&mut masked);
        masked
    }
}

/// How much of the secret's beginning the text ends with, in bytes.
fn torn(text: &str, secret: &str) -> Option<usize> {
    (SECRET_MIN..secret.len())
        .rev()
        .filter(|length| secret.is_char_boundary(*length))
        .find(|length| {
            secret
                .get(..*length)
                .is_some_and(|head| text.ends_with(head))
        })
}

/// The text on one line: control characters, line ends and characters that turn the direction of writing are written
/// out, as `\n` or `\u{…}`.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() || ends_line_or_turns(char) {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

fn ends_line_or_turns(char: char) -> bool {
    matches!(
        char,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// A value as it stands in a query: everything but RFC 3986's unreserved characters is encoded.
pub fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(of: &[&str]) -> Secrets {
        let of: Vec<SecretString> = of.iter().copied().map(SecretString::from).collect();
        Secrets::new(&of)
    }

    #[test]
    fn secrets_are_masked_also_within_one_another_and_in_urls() {
        let secrets = secrets(&["abcd", "abcd-and-more", "p@ss/word"]);
        assert_eq!(
            secrets.clean("abcd-and-more, abcd, ?token=p%40ss%2Fword"),
            "[secret], [secret], ?token=[secret]"
        );
    }

    #[test]
    fn each_line_of_a_secret_is_one() {
        assert_eq!(
            secrets(&["BEGIN KEY\nline-two\n"]).clean("read line-two"),
            "read [secret]"
        );
    }

    #[test]
    fn a_secret_too_short_to_be_one_leaves_the_text_alone() {
        assert_eq!(secrets(&["", "1"]).clean("attempt 1"), "attempt 1");
    }

    #[test]
    fn a_secret_that_a_cut_tore_is_masked() {
        assert_eq!(
            secrets(&["hunter2-hunter2"]).clean_beginning("token hunter2-h"),
            "token [secret]"
        );
    }

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(
            Secrets::default().clean("a\u{1b}[1mb\r\n\u{200f}\u{2028}\u{202e}c\tä"),
            "a\\u{1b}[1mb\\r\\n\\u{200f}\\u{2028}\\u{202e}c\\tä"
        );
    }

    #[test]
    fn a_sample_is_short_and_takes_any_bytes() {
        let sample = secrets(&["topsecret"])
            .sample(&[b"topsecret \xff\x00".as_slice(), &[b'x'; 900]].concat());
        assert_eq!(sample.chars().count(), SAMPLE_MAX);
        assert!(sample.starts_with("[secret] \u{fffd}\\u{0}xxx"));
    }
}
