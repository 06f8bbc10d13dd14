//! The account on the terminal: one line per happening, with the time since the start. It says what it is given.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

const COLUMNS: usize = 80;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Quiet,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[1;32m",
            Self::Bad => "\x1b[1;31m",
            Self::Quiet => "\x1b[2m",
        }
    }
}

/// One happening.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Whom it is about.
    pub(super) who: &'static str,
    /// How it is meant.
    pub(super) tone: Tone,
    /// What happened.
    pub(super) text: String,
}

impl Line {
    pub(super) fn new(who: &'static str, tone: Tone, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { who, tone, text }
    }
}

/// Where the account is written.
pub(super) struct Account<W> {
    out: W,
    coloured: bool,
}

impl Account<io::Stdout> {
    /// To stdout, coloured where a person reads it and `NO_COLOR` is unset or empty.
    pub(super) fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let out = io::stdout();
        let coloured = out.is_terminal() && !refused;
        Self { out, coloured }
    }
}

impl<W: Write> Account<W> {
    /// Text as it is, with a line end.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// One happening, at this time since the start.
    pub(super) fn tell(&mut self, at: Duration, line: &Line) -> io::Result<()> {
        let head = format!("{:>6.1} s  {:<8}", at.as_secs_f64(), line.who);
        self.paragraph(&head, line.tone, &line.text)
    }

    /// One line of the table at the end.
    pub(super) fn verdict(&mut self, held: bool, text: &str) -> io::Result<()> {
        let (head, tone) = if held {
            ("held", Tone::Good)
        } else {
            ("BROKEN", Tone::Bad)
        };
        self.paragraph(&format!("  {head:<8}"), tone, text)
    }

    fn paragraph(&mut self, head: &str, tone: Tone, text: &str) -> io::Result<()> {
        let (begin, end) = match tone.code() {
            "" => ("", ""),
            code if self.coloured => (code, "\x1b[0m"),
            _ => ("", ""),
        };
        let margin = head.len();
        for (nth, part) in wrapped(text, COLUMNS - margin).iter().enumerate() {
            let head = if nth == 0 { head } else { "" };
            writeln!(self.out, "{head:margin$}{begin}{part}{end}")?;
        }
        self.out.flush()
    }
}

/// Breaks a text between words, into lines of so many columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(coloured: bool, write: impl Fn(&mut Account<Vec<u8>>)) -> String {
        let mut account = Account {
            out: Vec::new(),
            coloured,
        };
        write(&mut account);
        String::from_utf8(account.out).unwrap()
    }

    #[test]
    fn a_line_has_a_time_and_a_name_and_fits_the_terminal() {
        let text = "word ".repeat(40);
        let line = Line::new("crash", Tone::Bad, text);
        let text = written(false, |account| {
            account.tell(Duration::from_millis(8_320), &line).unwrap()
        });
        assert!(text.starts_with("   8.3 s  crash   word word"), "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS) && text.lines().count() > 2);
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with(&" ".repeat(18)))
        );
    }

    #[test]
    fn colour_is_for_terminals() {
        let say = |account: &mut Account<Vec<u8>>| account.verdict(false, "x").unwrap();
        assert_eq!(written(false, say), "  BROKEN  x\n");
        assert_eq!(written(true, say), "  BROKEN  \x1b[1;31mx\x1b[0m\n");
    }
}
