//! `${NAME}` and its kin in the strings of a tree, taken from the environment. Keys are never touched.

use super::tree::{Node, Step, Value};

/// Looks a variable up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What an interpolation met.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What could not be resolved: where, and why.
    pub(super) faults: Vec<(Vec<Step>, String)>,
    /// Every value that came from the environment.
    pub(super) values: Vec<String>,
}

/// Resolves every string of the tree in place. A string that cannot be resolved is cut out and reported.
pub(super) fn interpolate(node: &mut Node, env: Env<'_>) -> Found {
    let mut found = Found::default();
    walk(node, &mut Vec::new(), env, &mut found);
    found
}

fn walk(node: &mut Node, path: &mut Vec<Step>, env: Env<'_>, found: &mut Found) {
    match &mut node.value {
        Value::Text { text, interpolated } if text.contains('$') => {
            match resolve(text, env, &mut found.values) {
                Ok((resolved, from)) => (*text, *interpolated) = (resolved, from),
                Err(message) => {
                    found.faults.push((path.clone(), message));
                    node.value = Value::Cut;
                }
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                under(item, Step::Index(index), path, env, found);
            }
        }
        Value::Map(members) => {
            for (key, item) in members {
                under(item, Step::Key(key.name.clone()), path, env, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(..) | Value::Text { .. } | Value::Cut => {}
    }
}

fn under(node: &mut Node, step: Step, path: &mut Vec<Step>, env: Env<'_>, found: &mut Found) {
    path.push(step);
    walk(node, path, env, found);
    path.pop();
}

/// The text, resolved, and whether a variable stood in it. A dollar that opens nothing stays.
fn resolve(text: &str, env: Env<'_>, values: &mut Vec<String>) -> Result<(String, bool), String> {
    let (mut out, mut rest, mut interpolated) = (String::new(), text, false);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let (inner, after) = after
                .split_once('}')
                .ok_or("close this `${` with `}`, or write `$${` for a dollar and a brace")?;
            out.push_str(&variable(inner, env, values)?);
            (rest, interpolated) = (after, true);
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok((out, interpolated))
}

/// What stands between the braces: `NAME`, `NAME:-default`, each also after `env:`.
fn variable(inner: &str, env: Env<'_>, values: &mut Vec<String>) -> Result<String, String> {
    if inner.starts_with("input:") {
        return Err(format!(
            "nobody can be asked for `${{{inner}}}` here; put it into the environment and write `${{NAME}}`"
        ));
    }
    let inner = inner.strip_prefix("env:").unwrap_or(inner);
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        return Err(format!(
            "`${{{name}}}` names no variable; write `${{NAME}}`, or `$${{` for a dollar and a brace"
        ));
    }
    match (
        env(name).filter(|value| default.is_none() || !value.is_empty()),
        default,
    ) {
        (Some(value), _) => {
            values.push(value.clone());
            Ok(value)
        }
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the variable {name} is not set; set it, or write `${{{name}:-default}}`, or `$${{` for a dollar and a brace"
        )),
    }
}

fn is_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.bytes().all(legal) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("alpha".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn text(source: &str) -> Result<String, String> {
        resolve(source, &env, &mut Vec::new()).map(|(text, _)| text)
    }

    #[test]
    fn variables_defaults_and_dollars_are_resolved() {
        for (source, resolved) in [
            ("${A}", "alpha"),
            ("x-${A}-${env:A}", "x-alpha-alpha"),
            ("${B:-beta}", "beta"),
            ("${B:-}", ""),
            ("${EMPTY:-beta}", "beta"),
            ("${EMPTY}", ""),
            ("${env:B:-b:c}", "b:c"),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$HOME costs 5$", "$HOME costs 5$"),
            ("$$$${A}", "$${A}"),
            ("$$${A}", "$alpha"),
        ] {
            assert_eq!(text(source).as_deref(), Ok(resolved), "{source}");
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_named() {
        for (source, named) in [
            ("${B}", "the variable B is not set"),
            ("${env:B}", "the variable B is not set"),
            ("${input:key}", "`${input:key}`"),
            ("${A", "close this `${`"),
            ("${}", "names no variable"),
            ("${1X}", "names no variable"),
            ("${file:/x}", "names no variable"),
        ] {
            let fault = text(source).unwrap_err();
            assert!(fault.contains(named), "{source}: {fault}");
        }
    }

    #[test]
    fn a_tree_tells_every_fault_and_every_value_it_took() {
        let mut node = Node::parse("a: ['${A}', '${B}']\nb: {c: '${C}', d: 5}\n").unwrap();
        let found = interpolate(&mut node, &env);
        assert_eq!(found.values, ["alpha"]);
        let places: Vec<_> = found
            .faults
            .iter()
            .map(|(path, _)| node.locate(path).1)
            .collect();
        assert_eq!(places, ["a[1]", "b.c"]);
    }
}
