//! Many mutations in one build: a function gets a copy for each mutation of it, and asks at its entry which one is on.
//! It reads Rust as `rustfmt` writes it, and leaves out what it cannot read: constants, and methods of traits.

use std::collections::BTreeMap;
use std::ops::Range;

use super::list::Mutation;

/// Goes to the end of `lib.rs`.
pub(crate) const SWITCH: &str = r#"
pub(crate) fn mutant() -> usize {
    static ON: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("MUTANT").map_or(0, |on| on.parse().unwrap_or(0)))
}
"#;

/// One function of a file.
struct Function<'a> {
    range: Range<usize>,
    /// Where its body begins.
    body: usize,
    name: &'a str,
    /// From the name on to the body.
    signature: &'a str,
    /// It is no method.
    is_free: bool,
}

/// A file's text with those mutations woven in, each under its number; the numbers of those that are.
pub(crate) fn weave(text: &str, mutations: &[(usize, &Mutation)]) -> (String, Vec<usize>) {
    let mut insertions: BTreeMap<usize, String> = BTreeMap::new();
    let mut woven = Vec::new();
    for (number, mutation) in mutations {
        let function = mutation.place(text).and_then(|place| around(text, &place));
        let Some(function) = function.filter(Function::can_be_called) else {
            continue;
        };
        let copy = format!("{}__{number}", function.name);
        let whole = mutation.apply(&text[function.range.clone()]);
        let whole = whole.replacen(&format!("fn {}", function.name), &format!("fn {copy}"), 1);
        let call = function.call(&copy);
        let ask = format!("if crate::mutant() == {number} {{ return {call}; }}\n");
        *insertions.entry(function.body).or_default() += &ask;
        *insertions.entry(function.range.end).or_default() += &whole;
        woven.push(*number);
    }
    let mut out = text.to_owned();
    for (at, insertion) in insertions.iter().rev() {
        out.insert_str(*at, insertion);
    }
    (out, woven)
}

/// The innermost function around a place, unless it is a trait's.
fn around<'a>(text: &'a str, place: &Range<usize>) -> Option<Function<'a>> {
    let mut found = None;
    let mut at = 0;
    let mut is_trait = false;
    for line in text.split_inclusive('\n') {
        if line.starts_with("impl") {
            is_trait = line.contains(" for ");
        }
        if let Some(function) = function(text, at, line)
            && function.range.start <= place.start
            && place.end <= function.range.end
        {
            found = (!is_trait).then_some(function);
        }
        at += line.len();
    }
    found
}

/// The function that begins in the line at `start`.
fn function<'a>(text: &'a str, start: usize, line: &str) -> Option<Function<'a>> {
    let code = line.trim_start();
    let begins = [
        "fn ",
        "pub fn ",
        "pub(super) fn ",
        "pub(in crate::engine) fn ",
    ];
    let name_at = begins.iter().find(|begin| code.starts_with(**begin))?.len();
    let indent = &line[..line.len() - code.len()];
    let rest = &text[start..];
    let end = start + rest.find(&format!("\n{indent}}}\n"))? + indent.len() + 3;
    let body = rest.find("{\n")? + 2;
    let signature = &rest[indent.len() + name_at..body - 2];
    let name = signature.split(['(', '<']).next()?;
    Some(Function {
        range: start..end,
        body: start + body,
        name,
        signature,
        is_free: indent.is_empty(),
    })
}

impl Function<'_> {
    /// An opaque type of the copy would be another than that of the function.
    fn can_be_called(&self) -> bool {
        !self.signature.contains("-> impl")
    }

    /// The call of a copy with the same arguments.
    fn call(&self, copy: &str) -> String {
        let mut arguments = arguments(self.signature);
        let first = arguments.first().copied().unwrap_or_default();
        let receiver = if first.ends_with("self") {
            arguments.remove(0);
            "self."
        } else if self.is_free {
            ""
        } else {
            "Self::"
        };
        let names = arguments.iter().filter_map(|one| one.split_once(": "));
        let names: Vec<&str> = names
            .map(|(name, _)| name.trim_start_matches("mut "))
            .collect();
        format!("{receiver}{copy}({})", names.join(", "))
    }
}

/// The parameters in a signature.
fn arguments(signature: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut begin = None;
    let mut found = Vec::new();
    let mut last = ' ';
    for (at, sign) in signature.char_indices() {
        match sign {
            '(' if begin.is_none() && depth == 0 => begin = Some(at + 1),
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ',' if depth == 0 && begin.is_some() => {
                let from = begin.replace(at + 1).unwrap_or(at);
                found.push(signature[from..at].trim());
                if sign == ')' {
                    break;
                }
            }
            ')' | ']' | '}' => depth -= 1,
            '>' if last != '-' => depth -= 1,
            _ => {}
        }
        last = sign;
    }
    found.retain(|one| !one.is_empty());
    found
}
