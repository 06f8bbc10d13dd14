//! One Rust file as the checks see it: its code without comments and strings, the paths it names, its functions.

use std::ops::Range;

/// A Rust file of the tree, or one that a test plants.
pub(crate) struct Source {
    /// From the root of the tree, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// `text` with comments and the insides of strings blanked, byte for byte.
    code: String,
}

/// One function.
pub(crate) struct Function {
    pub(crate) name: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) lines: usize,
    /// Its body is one `match`, as a table over an enum is.
    pub(crate) is_table: bool,
}

/// A path as it is resolved: `crate::a::b` is `["a", "b"]`; one of another crate begins with that crate's name.
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
    pub(crate) is_ours: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            code: blank(text),
        }
    }

    /// The module that the file is: `src/engine/server.rs` is `["engine", "server"]`, `src/lib.rs` is empty.
    pub(crate) fn module(&self) -> Vec<String> {
        let path = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: Vec<String> = path.split('/').map(Into::into).collect();
        module.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
        module
    }

    /// Whether the code, not a comment or a string, contains `text`; the lines where it does.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<usize> {
        self.code
            .match_indices(text)
            .map(|(at, _)| line_of(&self.code, at))
            .collect()
    }

    /// Each line's number, its text, and its code without comments and the insides of strings.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let pairs = self.text.lines().zip(self.code.lines());
        pairs
            .enumerate()
            .map(|(at, (text, code))| (at + 1, text, code))
    }

    /// How many lines come before the unit tests at the bottom.
    pub(crate) fn lines_before_tests(&self) -> usize {
        let tests = self.code.find("#[cfg(test)]\nmod tests {");
        self.text[..tests.unwrap_or(self.text.len())]
            .lines()
            .count()
    }

    /// Every path that begins with `crate`, `self`, `super`, our own crate's name or one of `others`.
    pub(crate) fn named(&self, others: &[&str]) -> Vec<Named> {
        let tokens = tokens(&self.code);
        let mut found = Vec::new();
        let mut modules: Vec<(String, usize)> = Vec::new();
        let mut depth = 0;
        for at in 0..tokens.len() {
            match tokens[at].0 {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    modules.pop_if(|(_, opened)| *opened == depth);
                }
                "mod" if tokens.get(at + 2).is_some_and(|token| token.0 == "{") => {
                    modules.push((tokens[at + 1].0.into(), depth));
                }
                first if starts_path(&tokens, at) => {
                    let ours = ["crate", "self", "super", "tidegate"].contains(&first);
                    if ours || others.contains(&first) {
                        let line = line_of(&self.code, tokens[at].1);
                        let mut here = self.module();
                        here.extend(modules.iter().map(|(name, _)| name.clone()));
                        let resolved = expand(&tokens, at).into_iter().map(|path| Named {
                            line,
                            path: if ours { resolve(&here, &path) } else { path },
                            is_ours: ours,
                        });
                        found.extend(resolved);
                    }
                }
                _ => {}
            }
        }
        found
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let tokens = tokens(&self.code);
        let heads = tokens.windows(2).enumerate();
        let heads = heads.filter(|(_, pair)| pair[0].0 == "fn" && is_ident(pair[1].0));
        heads
            .filter_map(|(at, pair)| self.function(&tokens, at, pair[1].0))
            .collect()
    }

    fn function(&self, tokens: &[Token<'_>], head: usize, name: &str) -> Option<Function> {
        let body = braces(tokens, head)?;
        let (first, last) = (tokens[body.start], tokens[body.end]);
        let line = line_of(&self.code, tokens[head].1);
        let is_table = tokens[body.start + 1].0 == "match"
            && braces(tokens, body.start + 1).is_some_and(|arms| arms.end + 1 == body.end);
        debug_assert_eq!((first.0, last.0), ("{", "}"));
        let lines = line_of(&self.code, last.1) + 1 - line;
        Some(Function {
            name: name.into(),
            line,
            lines,
            is_table,
        })
    }
}

/// A token and where it begins.
type Token<'a> = (&'a str, usize);

/// From the first `{` after `from` to its `}`; `None` where a `;` comes first, as in a trait.
fn braces(tokens: &[Token<'_>], from: usize) -> Option<Range<usize>> {
    let mut nested = 0_usize;
    let mut start = None;
    for (at, (token, _)) in tokens.iter().enumerate().skip(from) {
        match *token {
            ";" if nested == 0 && start.is_none() => return None,
            "{" if nested == 0 && start.is_none() => start = Some(at),
            "(" | "[" => nested += 1,
            ")" | "]" => nested -= 1,
            "{" => nested += 1,
            "}" if nested == 0 => return start.map(|start| start..at),
            "}" => nested -= 1,
            _ => {}
        }
    }
    None
}

fn starts_path(tokens: &[Token<'_>], at: usize) -> bool {
    let follows = at
        .checked_sub(1)
        .is_some_and(|before| tokens[before].0 == "::");
    let goes_on = tokens.get(at + 1).is_some_and(|next| next.0 == "::");
    let is_use = at
        .checked_sub(1)
        .is_some_and(|before| tokens[before].0 == "use");
    !follows && (goes_on || is_use) && is_ident(tokens[at].0)
}

/// The paths that begin at `at`, one for each leaf of a `use` tree.
fn expand(tokens: &[Token<'_>], at: usize) -> Vec<Vec<String>> {
    let mut at = at;
    let mut path = vec![tokens[at].0.to_owned()];
    while tokens.get(at + 1).is_some_and(|token| token.0 == "::") {
        match tokens.get(at + 2).map(|token| token.0) {
            Some("{") => return leaves(tokens, at + 3, &path),
            Some(name) if is_ident(name) => path.push(name.into()),
            _ => break,
        }
        at += 2;
    }
    vec![path]
}

fn leaves(tokens: &[Token<'_>], from: usize, stem: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut depth = 0_usize;
    for at in from..tokens.len() {
        let starts = depth == 0 && matches!(tokens[at - 1].0, "{" | ",") && is_ident(tokens[at].0);
        if starts {
            let joined = expand(tokens, at)
                .into_iter()
                .map(|leaf| [stem, &leaf[..]].concat());
            paths.extend(joined);
        }
        match tokens[at].0 {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            _ => {}
        }
    }
    paths
}

fn resolve(here: &[String], path: &[String]) -> Vec<String> {
    let mut base = match path[0].as_str() {
        "crate" | "tidegate" => Vec::new(),
        _ => here.to_vec(),
    };
    let mut rest = path
        .iter()
        .skip_while(|name| ["crate", "tidegate"].contains(&name.as_str()));
    for name in rest.by_ref() {
        match name.as_str() {
            "super" => drop(base.pop()),
            "self" => {}
            name => base.push(name.into()),
        }
    }
    base
}

fn is_ident(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(next) = code[at..].chars().next() {
        let word = code[at..].find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let len = match word.unwrap_or(code.len() - at) {
            0 if code[at..].starts_with("::") => 2,
            0 => next.len_utf8(),
            len => len,
        };
        if !next.is_whitespace() {
            tokens.push((&code[at..at + len], at));
        }
        at += len;
    }
    tokens
}

/// Comments and the insides of strings and characters as spaces; line ends stay.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = skipped(rest, code.chars().next_back());
        let taken = skipped.unwrap_or(next.len_utf8());
        match skipped {
            Some(_) => code.push_str(&hidden(&rest[..taken])),
            None if next.is_ascii() => code.push(next),
            None => code.extend(std::iter::repeat_n('_', taken)),
        }
        rest = &rest[taken..];
    }
    code
}

/// A comment, or a string of which a quote is left, so that its line still counts as code.
fn hidden(skipped: &str) -> String {
    let spaces = skipped.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' });
    let quote = if skipped.starts_with('/') {
        None
    } else {
        Some('"')
    };
    quote
        .into_iter()
        .chain(spaces.skip(usize::from(quote.is_some())))
        .collect()
}

/// How long the comment, string or character is that `rest` begins with.
fn skipped(rest: &str, before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |at| at + 2));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let is_lifetime = !inside.starts_with('\\') && rest.chars().nth(2) != Some('\'');
        return (!is_lifetime).then(|| quoted(rest, '\''));
    }
    let hashes = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    let is_raw = !in_word && hashes[count..].starts_with('"');
    is_raw.then(|| {
        let close = format!("\"{}", "#".repeat(count));
        let open = rest.len() - hashes.len() + count + 1;
        rest[open..]
            .find(&close)
            .map_or(rest.len(), |at| open + at + close.len())
    })
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}
