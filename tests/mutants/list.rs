//! The list: paragraphs of a rule and a sentence, a file, the text that is taken out and the text in its place.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One piece of the engine, and what stands there without it.
pub(crate) struct Mutation {
    /// `G2`; the tests that should notice begin with it.
    pub(crate) rule: String,
    /// A sentence: what is wrong with the mutated engine.
    pub(crate) name: String,
    /// From the root of the tree.
    pub(crate) file: String,
    old: String,
    new: String,
}

/// The root of the tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All mutations, in order.
pub(crate) fn read() -> Vec<Mutation> {
    let folder = fs::read_dir(root().join("tests/mutants")).unwrap();
    let mut lists: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    lists.retain(|path| path.extension().is_some_and(|name| name == "txt"));
    lists.sort();
    let texts = lists.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| parse(&text)).collect()
}

fn parse(text: &str) -> Vec<Mutation> {
    let paragraphs = text.split("\n\n").map(str::trim);
    let wanted = paragraphs.filter(|one| !one.is_empty() && !one.starts_with('#'));
    wanted.map(parse_one).collect()
}

fn parse_one(paragraph: &str) -> Mutation {
    let head = |at: usize| paragraph.lines().nth(at).unwrap();
    let side = |sign: char| {
        let lines = paragraph.lines().skip(2);
        let its = lines.filter_map(|line| line.strip_prefix(sign));
        let its: Vec<&str> = its
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        its.join("\n")
    };
    let (rule, name) = head(0).split_once(": ").unwrap();
    Mutation {
        rule: rule.into(),
        name: name.into(),
        file: head(1).into(),
        old: side('-'),
        new: side('+'),
    }
}

impl Mutation {
    /// Whether somebody who asks for `wanted` means it.
    pub(crate) fn is_like(&self, wanted: &str) -> bool {
        self.to_string().contains(wanted) || self.file.contains(wanted)
    }

    /// Why it does not apply to a tree, if it does not.
    pub(crate) fn problem(&self, tree: &Path) -> Option<String> {
        let text = fs::read_to_string(tree.join(&self.file)).unwrap_or_default();
        let found = text.matches(&self.old).count();
        let odd = found != 1 || self.old.is_empty() || self.old == self.new;
        odd.then(|| format!("{self}: its text stands {found} times in {}", self.file))
    }

    /// Where its text stands.
    pub(crate) fn place(&self, text: &str) -> Option<Range<usize>> {
        let start = text.find(&self.old)?;
        Some(start..start + self.old.len())
    }

    /// The file's text, or a part of it, mutated.
    pub(crate) fn apply(&self, text: &str) -> String {
        text.replacen(&self.old, &self.new, 1)
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.name)
    }
}
