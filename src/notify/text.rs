//! How an edge reads where people meet it.

use crate::ids::ServerId;
use crate::wire::redact::escaped;

/// The longest text, in characters; chat services take 2,000.
const TEXT_MAX: usize = 1_900;

/// The engine's text, S6's, with whose it is.
pub(super) fn of_engine(gateway: &str, server: &ServerId, text: &str) -> String {
    fit(&format!("[{gateway}] {server}: {text}"))
}

/// A text that harms nobody where it is shown: one line, bounded, and nobody is called by an `@` that a server wrote.
pub(super) fn fit(text: &str) -> String {
    let shown = escaped(text).replace('@', "@\u{200b}");
    if shown.chars().count() <= TEXT_MAX {
        return shown;
    }
    let cut: String = shown.chars().take(TEXT_MAX).collect();
    cut + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_bounded_line_that_calls_nobody() {
        let server = ServerId::new("chat").unwrap();
        let text = of_engine("gw", &server, "down:\n@everyone <@1>\u{202e}");
        assert_eq!(
            text,
            "[gw] chat: down:\\n@\u{200b}everyone <@\u{200b}1>\\u{202e}"
        );
        let long = fit(&"é".repeat(3_000));
        assert_eq!(long.chars().count(), TEXT_MAX + 1);
    }
}
