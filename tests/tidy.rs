//! Holds the sources against the layers and the style of the project (docs/architecture.md). Every check runs over the
//! tree in one test, and over a planted fault in another, so that a check that finds nothing is known to look.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a check that cannot read the tree fails loudly"
)]

#[path = "tidy/map.rs"]
mod map;
#[path = "tidy/source.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// The layer map of src/lib.rs, lowest first. A module names only lower layers.
const LAYERS: [&[&str]; 6] = [
    &["ids", "wire"],
    &["engine", "revision", "aggregate"],
    &["transport", "face", "journal", "observe"],
    &["driver", "config"],
    &["admin", "notify"],
    &["app", "cli", "demo", "main"],
];
/// The layer that builds everything; its own modules may name each other.
const TOP: usize = 5;
/// Arrows beside the map, each with its file in docs/decisions.
const ARROWS: [(&str, &str); 1] = [("driver", "config")];

/// Engine files that any part may name.
const VOCABULARY: [&str; 8] = [
    "input", "output", "decision", "settings", "snapshot", "timers", "outbox", "peer",
];
/// Engine files that may name every part.
const COMPOSERS: [&str; 2] = ["server", "traffic"];
/// What the pure layers must not name.
const WORLD: [&str; 14] = [
    "tokio",
    "futures_util",
    "axum",
    "reqwest",
    "rusqlite",
    "rustix",
    "tracing",
    "prometheus",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io",
];

const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 70;
/// A function that is one `match` over an enum is a table; it may be longer.
const TABLE_LINES_MAX: usize = 200;
/// Nine functions in ten are shorter than this.
const MOST_FUNCTION_LINES: usize = 40;
const CODE_COLUMNS_MAX: usize = 100;
const COMMENT_COLUMNS_MAX: usize = 120;
const VAGUE_NAMES: [&str; 4] = ["utils", "helpers", "common", "types"];
const FRAGMENT_KINDS: [&str; 5] = ["breaking", "added", "changed", "fixed", "security"];

/// What is wrong, with its place.
type Problems = Vec<String>;

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn layer_problems(source: &Source) -> Problems {
    let module = source.module();
    let Some(own) = module.first().filter(|name| *name != "lib") else {
        return Vec::new();
    };
    let Some(height) = layer(own) else {
        return vec![format!(
            "{}: no layer for `{own}` in tests/tidy.rs",
            source.path
        )];
    };
    let bad = |named: &source::Named| {
        let target = named.path.first().filter(|target| *target != own)?;
        let depth = layer(target)?;
        let allowed = depth < height
            || (depth == TOP && height == TOP)
            || ARROWS.contains(&(own.as_str(), target.as_str()));
        (!allowed).then(|| format!("{}:{}: `{own}` names `{target}`", source.path, named.line))
    };
    source.named(&[]).iter().filter_map(bad).collect()
}

fn engine_problems(source: &Source) -> Problems {
    let module = source.module();
    let [area, part, ..] = module.as_slice() else {
        return Vec::new();
    };
    if area != "engine" || COMPOSERS.contains(&part.as_str()) {
        return Vec::new();
    }
    let bad = |named: &source::Named| {
        let [area, target, ..] = named.path.as_slice() else {
            return None;
        };
        let is_part = area == "engine" && target != part && target.starts_with(char::is_lowercase);
        let is_foreign = is_part && !VOCABULARY.contains(&target.as_str());
        is_foreign.then(|| {
            format!(
                "{}:{}: the part `{part}` names `{target}`",
                source.path, named.line
            )
        })
    };
    source.named(&[]).iter().filter_map(bad).collect()
}

fn purity_problems(source: &Source) -> Problems {
    let is_pure = source
        .module()
        .first()
        .is_some_and(|area| layer(area) < Some(2));
    if !is_pure {
        return Vec::new();
    }
    let heads: Vec<&str> = WORLD
        .iter()
        .filter_map(|path| path.split("::").next())
        .collect();
    let bad = |named: &source::Named| {
        let path = named.path.join("::");
        let worldly = |world: &&str| path == *world || path.starts_with(&format!("{world}::"));
        let is_bad = !named.is_ours && WORLD.iter().any(worldly);
        is_bad.then(|| format!("{}:{}: names `{path}`", source.path, named.line))
    };
    source.named(&heads).iter().filter_map(bad).collect()
}

fn size_problems(source: &Source) -> Problems {
    let mut problems = Vec::new();
    let lines = source.lines_before_tests();
    if lines > FILE_LINES_MAX {
        problems.push(format!("{}: {lines} lines before its tests", source.path));
    }
    for function in source.functions() {
        let most = if function.is_table {
            TABLE_LINES_MAX
        } else {
            FUNCTION_LINES_MAX
        };
        if function.lines > most {
            let (line, name) = (function.line, &function.name);
            let lines = function.lines;
            problems.push(format!(
                "{}:{line}: `{name}` has {lines} lines",
                source.path
            ));
        }
    }
    problems
}

fn proportion_problems(sources: &[Source]) -> Problems {
    let functions: Vec<_> = sources.iter().flat_map(Source::functions).collect();
    let long = functions
        .iter()
        .filter(|function| function.lines >= MOST_FUNCTION_LINES);
    let long = long
        .map(|function| function.name.as_str())
        .collect::<Vec<_>>();
    let too_many = long.len() * 10 > functions.len();
    let list = long.join(", ");
    too_many
        .then(|| {
            format!(
                "{} of {} functions are long: {list}",
                long.len(),
                functions.len()
            )
        })
        .into_iter()
        .collect()
}

fn column_problems(source: &Source) -> Problems {
    let bad = |(line, text, code): (usize, &str, &str)| {
        let black = |text: &str| text.split_whitespace().map(str::len).sum::<usize>();
        let (columns, most) = match black(code) {
            0 => (text.chars().count(), COMMENT_COLUMNS_MAX),
            // A string, such as a message on the wire, is not broken for a margin.
            outside if outside < black(text) => (outside, CODE_COLUMNS_MAX),
            _ => (text.chars().count(), CODE_COLUMNS_MAX),
        };
        (columns > most).then(|| format!("{}:{line}: {columns} columns", source.path))
    };
    source.lines().filter_map(bad).collect()
}

fn name_problems(source: &Source) -> Problems {
    let mut names = source.path.split(['/', '.']);
    let vague = names.find(|name| VAGUE_NAMES.contains(name));
    vague
        .map(|name| format!("{}: `{name}` says nothing", source.path))
        .into_iter()
        .collect()
}

fn header_problems(source: &Source) -> Problems {
    let is_headless = source.path.starts_with("src/") && !source.text.starts_with("//!");
    is_headless
        .then(|| format!("{}: no `//!` at its head", source.path))
        .into_iter()
        .collect()
}

fn leftover_problems(source: &Source) -> Problems {
    let in_text = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let in_code = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    let texts = source
        .lines()
        .filter(|(_, text, _)| in_text.iter().any(|bad| text.contains(bad)));
    let texts = texts.map(|(line, ..)| line);
    let codes = in_code.iter().flat_map(|bad| source.lines_with(bad));
    texts
        .chain(codes)
        .map(|line| format!("{}:{line}: something is left over", source.path))
        .collect()
}

/// `name` is a file of changelog.d.
fn fragment_problems(name: &str) -> Problems {
    let is_slug = |slug: &str| {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !slug.is_empty() && slug.bytes().all(legal)
    };
    let parts: Vec<&str> = name.split('.').collect();
    let fits = match parts.as_slice() {
        [slug, kind, "md"] => is_slug(slug) && FRAGMENT_KINDS.contains(kind),
        _ => name == "README.md",
    };
    (!fits)
        .then(|| format!("changelog.d/{name}: not <slug>.<kind>.md"))
        .into_iter()
        .collect()
}

/// Hosts of package registries and folders of one machine have no place in a file of the tree.
fn place_problems(path: &str, text: &str) -> Problems {
    let hosts = [
        concat!("npmjs", ".org"),
        concat!("npmjs", ".com"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("static.crates", ".io"),
        concat!("index.crates", ".io"),
        concat!("deb.debian", ".org"),
    ];
    let folders = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let is_start = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-~$}/".contains(c)))
    };
    let is_bad = |line: &str| {
        let hosts = hosts.iter().any(|host| line.contains(host));
        let mut places = folders.iter().flat_map(|folder| line.match_indices(folder));
        hosts || places.any(|(at, _)| is_start(line, at))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_bad(line));
    lines
        .map(|(at, _)| format!("{path}:{}: names a registry or a machine", at + 1))
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the tree, except what .gitignore names at the top.
fn files() -> Vec<PathBuf> {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let ignored: Vec<&str> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('/'))
        .collect();
    let is_ours = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name != ".git" && !ignored.contains(&name)
    };
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(is_ours)
        {
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap()
        .to_str()
        .unwrap()
        .replace('\\', "/")
}

/// The Rust files below `folder`.
fn sources(folder: &str) -> Vec<Source> {
    let files = files().into_iter();
    let rust = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let named = rust.map(|path| (relative(&path), fs::read_to_string(&path).unwrap()));
    let below = named.filter(|(path, _)| path.starts_with(folder));
    let found: Vec<_> = below
        .map(|(path, text)| Source::new(&path, &text))
        .collect();
    assert!(!found.is_empty(), "no sources below {folder}");
    found
}

#[track_caller]
fn assert_none(problems: Problems) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn check(folder: &str, problems: fn(&Source) -> Problems) {
    assert_none(sources(folder).iter().flat_map(problems).collect());
}

mod the_tree {
    use super::*;

    #[test]
    fn names_only_lower_layers() {
        check("src/", layer_problems);
    }

    #[test]
    fn has_engine_parts_that_do_not_name_each_other() {
        check("src/engine/", engine_problems);
    }

    #[test]
    fn has_pure_layers_that_do_not_name_the_world() {
        check("src/", purity_problems);
    }

    #[test]
    fn has_files_and_functions_of_a_readable_size() {
        check("src/", size_problems);
        check("tests/", size_problems);
        assert_none(proportion_problems(&sources("src/")));
    }

    #[test]
    fn has_lines_that_fit_a_window() {
        check("src/", column_problems);
        check("tests/", column_problems);
    }

    #[test]
    fn has_names_that_say_something() {
        check("src/", name_problems);
        check("tests/", name_problems);
    }

    #[test]
    fn has_modules_that_say_what_they_own() {
        check("src/", header_problems);
    }

    #[test]
    fn has_its_files_in_the_map_of_the_architecture() {
        let map = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
        let sources = sources("src/");
        let files: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        assert_none(map::problems(&map, &files));
    }

    #[test]
    fn has_nothing_left_over() {
        check("src/", leftover_problems);
        check("tests/", leftover_problems);
    }

    #[test]
    fn has_changelog_fragments_with_a_kind() {
        let entries = fs::read_dir(root().join("changelog.d")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_none(names.flat_map(|name| fragment_problems(&name)).collect());
    }

    #[test]
    fn names_no_registry_and_no_machine() {
        let texts = files().into_iter().filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            Some((relative(&path), text))
        });
        assert_none(
            texts
                .flat_map(|(path, text)| place_problems(&path, &text))
                .collect(),
        );
    }
}

mod planted {
    use super::*;

    fn problems(check: fn(&Source) -> Problems, path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn a_higher_or_equal_layer_is_found_however_it_is_written() {
        let found = |path: &str, text: &str| problems(layer_problems, path, text);
        assert_eq!(
            found("src/engine/gate.rs", "use crate::driver::Gateway;"),
            1
        );
        assert_eq!(
            found("src/engine/gate.rs", "fn f() { crate::observe::g(); }"),
            1
        );
        assert_eq!(found("src/engine/gate.rs", "use super::super::journal;"), 1);
        assert_eq!(
            found(
                "src/journal/mod.rs",
                "use crate::{ids::Epoch, observe::Observer};"
            ),
            1
        );
        assert_eq!(
            found(
                "src/journal/disk.rs",
                "use crate::{ids, engine::{self}, face::{A, B}};"
            ),
            2
        );
        assert_eq!(found("src/config/mod.rs", "use crate::driver;"), 1);
        assert_eq!(found("src/transport/mod.rs", "use crate::config;"), 1);
        assert_eq!(
            found(
                "src/config/mod.rs",
                "mod tests { use super::super::driver; }"
            ),
            1
        );
        assert_eq!(found("src/ids.rs", "use super::wire::jsonrpc;"), 1);
        assert_eq!(found("src/secret/mod.rs", ""), 1);
    }

    #[test]
    fn a_lower_layer_may_be_named() {
        let found = |path: &str, text: &str| problems(layer_problems, path, text);
        assert_eq!(
            found(
                "src/driver/mod.rs",
                "use crate::{engine::Server, transport};"
            ),
            0
        );
        assert_eq!(
            found(
                "src/engine/gate.rs",
                "// crate::driver\nlet s = \"crate::driver::x\";"
            ),
            0
        );
        assert_eq!(found("src/driver/mod.rs", "mod tests { use super::*; }"), 0);
        assert_eq!(found("src/main.rs", "use tidegate::cli;"), 0);
    }

    #[test]
    fn an_engine_part_that_names_another_is_found() {
        let found = |path: &str, text: &str| problems(engine_problems, path, text);
        assert_eq!(found("src/engine/gate.rs", "use super::queue::Queue;"), 1);
        assert_eq!(
            found(
                "src/engine/gate.rs",
                "use crate::engine::{queue, input::Input};"
            ),
            1
        );
        assert_eq!(
            found(
                "src/engine/queue/kept.rs",
                "use super::super::server::Server;"
            ),
            1
        );
        assert_eq!(
            found("src/engine/gate.rs", "use super::{input, decision::Hold};"),
            0
        );
        assert_eq!(found("src/engine/queue/kept.rs", "use super::held;"), 0);
        assert_eq!(found("src/engine/server.rs", "use super::queue::Queue;"), 0);
    }

    #[test]
    fn a_pure_layer_that_names_the_world_is_found() {
        let found = |path: &str, text: &str| problems(purity_problems, path, text);
        assert_eq!(found("src/engine/gate.rs", "use tokio::sync::mpsc;"), 1);
        assert_eq!(
            found("src/wire/mcp.rs", "use std::{fmt, fs, net::{IpAddr}};"),
            2
        );
        assert_eq!(
            found("src/wire/mcp.rs", "fn f() { std::thread::yield_now(); }"),
            1
        );
        assert_eq!(found("src/driver/mod.rs", "use tokio::sync::mpsc;"), 0);
        assert_eq!(
            found("src/engine/gate.rs", "use std::{fmt, time::Instant};"),
            0
        );
    }

    #[test]
    fn a_file_or_function_that_grew_is_found() {
        let found = |text: &str| problems(size_problems, "src/a.rs", text);
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        assert_eq!(found(&"//\n".repeat(FILE_LINES_MAX)), 0);
        assert_eq!(found(&"//\n".repeat(FILE_LINES_MAX + 1)), 1);
        assert_eq!(found(&function(FUNCTION_LINES_MAX)), 0);
        assert_eq!(found(&function(FUNCTION_LINES_MAX + 1)), 1);
        let arms = "        A => '}',\n".repeat(FUNCTION_LINES_MAX);
        assert_eq!(
            found(&format!("fn f() {{\n    match a {{\n{arms}    }}\n}}\n")),
            0
        );
        assert_eq!(
            found(&format!(
                "fn f() {{\n    match a {{\n{arms}    }}\n    g();\n}}\n"
            )),
            1
        );
        let long = Source::new("src/a.rs", &function(MOST_FUNCTION_LINES));
        assert_eq!(proportion_problems(&[long]).len(), 1);
        let short = Source::new("src/a.rs", &function(MOST_FUNCTION_LINES - 1));
        assert_eq!(proportion_problems(&[short]).len(), 0);
    }

    #[test]
    fn a_line_that_is_too_long_is_found() {
        let found = |text: &str| problems(column_problems, "src/a.rs", text);
        let line = |start: &str, columns: usize| format!("{start}{}", "x".repeat(columns - 2));
        assert_eq!(found(&line("a ", CODE_COLUMNS_MAX)), 0);
        assert_eq!(found(&line("a ", CODE_COLUMNS_MAX + 1)), 1);
        assert_eq!(found(&format!("a(b\"{}\");", "x".repeat(200))), 0);
        assert_eq!(found(&format!("r#\"{}\"#,", "x".repeat(200))), 0);
        assert_eq!(found(&line("//", COMMENT_COLUMNS_MAX)), 0);
        assert_eq!(found(&line("//", COMMENT_COLUMNS_MAX + 1)), 1);
    }

    #[test]
    fn a_name_or_head_that_says_nothing_is_found() {
        assert_eq!(problems(name_problems, "src/wire/utils.rs", ""), 1);
        assert_eq!(problems(name_problems, "src/common/mod.rs", ""), 1);
        assert_eq!(problems(name_problems, "src/wire/mod.rs", ""), 0);
        assert_eq!(
            problems(header_problems, "src/wire/mcp.rs", "use std::fmt;"),
            1
        );
        assert_eq!(
            problems(header_problems, "src/wire/mcp.rs", "//! Methods.\n"),
            0
        );
    }

    #[test]
    fn something_left_over_is_found() {
        let found = |text: &str| problems(leftover_problems, "src/a.rs", text);
        assert_eq!(found(concat!("// TO", "DO: more")), 1);
        assert_eq!(found(concat!("// FIX", "ME")), 1);
        assert_eq!(found(concat!("fn f() { todo", "!(); }")), 1);
        assert_eq!(found(concat!("#[ig", "nore]\nfn f() {}")), 1);
        assert_eq!(found(concat!("#[ig", "nore = \"slow\"]\nfn f() {}")), 1);
        assert_eq!(found("fn f() {}"), 0);
    }

    #[test]
    fn a_misnamed_changelog_fragment_is_found() {
        for good in ["a-b.added.md", "r4.fixed.md", "README.md"] {
            assert_eq!(fragment_problems(good).len(), 0, "{good}");
        }
        for bad in [
            "a.md",
            "a.new.md",
            "A.added.md",
            ".added.md",
            "a.added.txt",
            "a b.added.md",
        ] {
            assert_eq!(fragment_problems(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_registry_or_a_machine_is_found() {
        let found = |text: &str| place_problems("README.md", text).len();
        assert_eq!(found(concat!("https://registry.npmjs", ".org/x")), 1);
        assert_eq!(found(concat!("cd /wo", "rk/x\nls /ho", "me/me/x")), 2);
        assert_eq!(found(concat!("./wo", "rk/x and src/ro", "ot/")), 0);
    }
}
