//! The shipped dashboards: they are what their code makes, and each check of them is known to find its fault.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::metrics::{exported, family, pairs, selectors};
use crate::rules;
use crate::tools::{at, names, promtool, read};

/// What a dashboard may say in a query beside the names of metrics: nothing that an operator could have configured.
const NUMBERS: [&str; 9] = ["0", "1", "2", "60", "1000", "0.5", "0.9", "0.95", "0.99"];
/// What Grafana puts in place of its variables, with an example of each.
const VARIABLES: [(&str, &str); 6] = [
    ("$__rate_interval", "1m"),
    ("$__interval", "15s"),
    ("$__range", "1h"),
    ("$job", "tidegate"),
    ("$gateway", "gw-1"),
    ("$server", "chat"),
];
/// What a counter is read through.
const WINDOWS: [&str; 3] = ["[$__rate_interval]", "[$__interval]", "[$__range]"];

/// A file of `dashboards/`.
struct Board {
    file: String,
    json: Value,
}

type Check = fn(&Board) -> Vec<String>;

const CHECKS: [(&str, Check); 9] = [
    ("variables", variables),
    ("words", words),
    ("places", places),
    ("thresholds", thresholds),
    ("numbers", numbers),
    ("counters", counters),
    ("selection", selection),
    ("metrics", metrics),
    ("links", links),
];

fn boards() -> Vec<Board> {
    let files = names("dashboards")
        .into_iter()
        .filter(|file| file.ends_with(".json"));
    let board = |file| {
        let json = serde_json::from_str(&read(&format!("dashboards/{file}"))).unwrap();
        Board { file, json }
    };
    files.map(board).collect()
}

fn list<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let found = value.pointer(path).and_then(Value::as_array);
    found.map_or(Vec::new(), |found| found.iter().collect())
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

impl Board {
    /// What shows something: all but the headings.
    fn panels(&self) -> Vec<&Value> {
        let panels = list(&self.json, "/panels").into_iter();
        panels
            .filter(|panel| text(panel, "/type") != "row")
            .collect()
    }

    /// Every query, with the title of its panel or the name of its annotation.
    fn queries(&self) -> Vec<(String, String)> {
        let panels = self.panels().into_iter().flat_map(|panel| {
            let targets = list(panel, "/targets").into_iter();
            targets.map(|target| (text(panel, "/title"), text(target, "/expr")))
        });
        let marks = list(&self.json, "/annotations/list").into_iter();
        let marks = marks.map(|mark| (text(mark, "/name"), text(mark, "/expr")));
        panels
            .chain(marks)
            .map(|(place, query)| (place.to_owned(), query.to_owned()))
            .collect()
    }

    fn chosen(&self, name: &str) -> Option<&Value> {
        let mut variables = list(&self.json, "/templating/list").into_iter();
        variables.find(|variable| text(variable, "/name") == name)
    }

    fn problems(&self) -> Vec<(&'static str, String)> {
        let of = |(name, check): (&'static str, Check)| {
            check(self)
                .into_iter()
                .map(move |problem| (name, format!("{}: {problem}", self.file)))
        };
        CHECKS.into_iter().flat_map(of).collect()
    }
}

/// A query as Prometheus is asked it.
fn concrete(query: &str) -> String {
    VARIABLES
        .iter()
        .fold(query.to_owned(), |query, (name, value)| {
            query.replace(name, value)
        })
}

/// One source of data, and a choice of what is shown that follows the time and the choices before it.
fn variables(board: &Board) -> Vec<String> {
    let all = list(&board.json, "/templating/list").into_iter();
    let sources = all.filter(|variable| text(variable, "/type") == "datasource");
    let mut problems = Vec::new();
    if sources
        .map(|source| text(source, "/name"))
        .ne(["datasource"])
    {
        problems.push("not one data source, `datasource`".to_owned());
    }
    for name in ["job", "gateway", "server"] {
        let query = board.chosen(name).filter(|variable| {
            text(variable, "/type") == "query"
                && variable["refresh"] == 2
                && text(variable, "/datasource/uid") == "$datasource"
        });
        if query.is_none() {
            problems.push(format!("no choice of `{name}`"));
        }
    }
    problems
}

/// What is shown, and in which unit, is said once.
fn words(board: &Board) -> Vec<String> {
    let mut titles = Vec::new();
    let mut problems = Vec::new();
    for panel in board.panels() {
        let title = text(panel, "/title");
        let said = ["/title", "/description", "/fieldConfig/defaults/unit"];
        let silent = said.iter().filter(|path| text(panel, path).is_empty());
        problems.extend(silent.map(|path| format!("{title}: no {path}")));
        if titles.contains(&title) {
            problems.push(format!("{title}: twice"));
        }
        titles.push(title);
        let targets = list(panel, "/targets");
        if targets.is_empty() || text(panel, "/datasource/uid") != "$datasource" {
            problems.push(format!("{title}: asks nothing of the data source"));
        }
    }
    problems
}

/// Panels stand beside each other, within the 24 columns, and each has an id of its own.
fn places(board: &Board) -> Vec<String> {
    let mut taken = Vec::new();
    let mut problems = Vec::new();
    for panel in list(&board.json, "/panels") {
        let title = text(panel, "/title");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        let overlaps = |(left, top, wide, high): &(u64, u64, u64, u64)| {
            x < left + wide && *left < x + w && y < top + high && *top < y + h
        };
        if x + w > 24 || taken.iter().any(overlaps) {
            problems.push(format!("{title}: has no room"));
        }
        taken.push((x, y, w, h));
    }
    let mut ids: Vec<_> = list(&board.json, "/panels")
        .into_iter()
        .map(|panel| panel["id"].as_u64())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != taken.len() || ids.contains(&None) {
        problems.push("two panels of one id, or one of none".to_owned());
    }
    problems
}

/// The colours say whether something is, and nothing about how much: that is for a metric to say.
fn thresholds(board: &Board) -> Vec<String> {
    let panels = board.panels().into_iter();
    let copied = panels.flat_map(|panel| {
        let steps = list(panel, "/fieldConfig/defaults/thresholds/steps").into_iter();
        let numbers =
            steps.filter(|step| !step["value"].is_null() && step["value"].as_f64() != Some(1.0));
        numbers.map(|step| {
            format!(
                "{}: a threshold of {}",
                text(panel, "/title"),
                step["value"]
            )
        })
    });
    copied.collect()
}

/// No number stands in a query that could be one of the configuration.
fn numbers(board: &Board) -> Vec<String> {
    let of = |(place, query): (String, String)| {
        let query = concrete(&unquoted(&query));
        let words = query.split(|c: char| !(c.is_alphanumeric() || "_:.".contains(c)));
        let numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let durations = ["1m", "15s", "1h"];
        numbers
            .filter(|word| !NUMBERS.contains(word) && !durations.contains(word))
            .map(|word| format!("{place}: {word}"))
            .collect::<Vec<_>>()
    };
    board.queries().into_iter().flat_map(of).collect()
}

/// A query without what stands in its strings.
fn unquoted(query: &str) -> String {
    query.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// A counter begins anew with its process, so only its growth says something, over a window that fits the picture.
fn counters(board: &Board) -> Vec<String> {
    let of = |(place, query): (String, String)| {
        let mut problems = Vec::new();
        for (start, _) in query.match_indices("_total{") {
            let name = query[..start].rfind(|c: char| !(c.is_alphanumeric() || c == '_'));
            let before = &query[..name.map_or(0, |end| end + 1)];
            let rest = query[start..].split_once('}').map_or("", |(_, rest)| rest);
            let grows = before.ends_with("rate(") || before.ends_with("increase(");
            if !grows || !WINDOWS.iter().any(|window| rest.starts_with(window)) {
                problems.push(format!("{place}: reads a counter as it is"));
            }
        }
        problems
    };
    board.queries().into_iter().flat_map(of).collect()
}

/// What is chosen is what is shown.
fn selection(board: &Board) -> Vec<String> {
    let of = |(place, query): (String, String)| {
        let all = selectors(&query).into_iter();
        let open = all.filter(|(_, inside)| {
            !(inside.contains("job=~\"$job\"") && inside.contains("gateway=~\"$gateway\""))
        });
        open.map(|(name, _)| format!("{place}: {name} of every gateway"))
            .collect::<Vec<_>>()
    };
    board.queries().into_iter().flat_map(of).collect()
}

/// Only what the gateway exports or the rules record is asked for, by names and by labels.
fn metrics(board: &Board) -> Vec<String> {
    let (rules, exported) = (read(rules::PATH), exported());
    let of = |(place, query): (String, String)| {
        let unknown = selectors(&query)
            .into_iter()
            .filter(|(name, inside)| !is_there(name, inside, &rules, &exported));
        unknown
            .map(|(name, inside)| format!("{place}: {name}{{{inside}}}"))
            .collect::<Vec<_>>()
    };
    board.queries().into_iter().flat_map(of).collect()
}

fn is_there(name: &str, inside: &str, rules: &str, exported: &str) -> bool {
    if rules.contains(&format!("- record: {name}\n")) {
        return true;
    }
    let has = |pair: &String| {
        let mut lines = exported.lines();
        lines.any(|line| line.starts_with(&format!("{name}{{")) && line.contains(pair))
    };
    exported.contains(&format!("\n# TYPE {} ", family(name))) && pairs(inside).iter().all(has)
}

/// From here to the traces, the runbooks, the status page and the other dashboards.
fn links(board: &Board) -> Vec<String> {
    let links = list(&board.json, "/links");
    let urls = ["/explore?", "${runbooks}", "http://${instance}/"];
    let missing = urls.iter().filter(|url| {
        let mut links = links.iter();
        !links.any(|link| text(link, "/url").starts_with(**url))
    });
    let mut problems: Vec<_> = missing.map(|url| format!("no link to {url}")).collect();
    let others =
        |link: &&&Value| text(link, "/type") == "dashboards" && link["includeVars"] == true;
    if links.iter().find(others).is_none() {
        problems.push("no link to the other dashboards".to_owned());
    }
    let named = ["instance", "runbooks", "traces"].into_iter();
    problems.extend(
        named
            .filter(|name| board.chosen(name).is_none())
            .map(|name| format!("no variable `{name}`")),
    );
    problems
}

#[test]
fn dashboards_are_what_their_code_makes() {
    let python = at("target/real/venv/bin/python");
    assert!(python.exists(), "install it with `make install`");
    let made = tempfile::tempdir().unwrap();
    let mut build = Command::new(python);
    build
        .arg("-B")
        .arg(at("dashboards/build.py"))
        .arg(made.path());
    let output = build.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let boards = boards();
    assert_eq!(fs::read_dir(made.path()).unwrap().count(), boards.len());
    for board in boards {
        let made = fs::read_to_string(made.path().join(&board.file)).unwrap();
        let same = made == read(&format!("dashboards/{}", board.file));
        assert!(
            same,
            "{}: write it anew with dashboards/build.py",
            board.file
        );
    }
}

#[test]
fn dashboards_have_nothing_that_a_check_finds() {
    let boards = boards();
    let files: Vec<_> = boards.iter().map(|board| board.file.as_str()).collect();
    let shipped = [
        "tidegate-gateway.json",
        "tidegate-server.json",
        "tidegate-servers.json",
    ];
    assert_eq!(files, shipped);
    let problems: Vec<_> = boards.iter().flat_map(Board::problems).collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn each_check_of_the_dashboards_finds_its_fault() {
    let query = "/panels/1/targets/0/expr";
    let faults = [
        ("variables", "/templating/list/0/name", json!("prometheus")),
        ("variables", "/templating/list/2/refresh", json!(1)),
        ("words", "/panels/1/description", json!("")),
        ("words", "/panels/1/fieldConfig/defaults/unit", json!(null)),
        ("words", "/panels/1/title", json!("Not connected now")),
        ("words", "/panels/1/datasource/uid", json!("prometheus-1")),
        ("places", "/panels/1/gridPos/w", json!(5)),
        ("places", "/panels/1/id", json!(1)),
        (
            "thresholds",
            "/panels/1/fieldConfig/defaults/thresholds/steps/1/value",
            json!(5),
        ),
        (
            "numbers",
            query,
            json!("max(tidegate_server_failed_attempts{job=~\"$job\", gateway=~\"$gateway\"}) > 5"),
        ),
        (
            "counters",
            query,
            json!("tidegate_config_reloads_total{job=~\"$job\", gateway=~\"$gateway\"}"),
        ),
        (
            "counters",
            query,
            json!("rate(tidegate_config_reloads_total{job=~\"$job\", gateway=~\"$gateway\"}[5m])"),
        ),
        (
            "selection",
            query,
            json!("tidegate_server_down{server=~\"$server\"}"),
        ),
        ("links", "/links/1/url", json!("http://127.0.0.1:7465/")),
        (
            "metrics",
            query,
            json!("up or tidegate_server_gone{job=~\"$job\", gateway=~\"$gateway\"}"),
        ),
        (
            "metrics",
            query,
            json!("tidegate_server_state{job=~\"$job\", gateway=~\"$gateway\", state=\"well\"}"),
        ),
        ("links", "/links/0/includeVars", json!(false)),
    ];
    for (check, place, fault) in &faults {
        let mut board = boards().pop().unwrap();
        *board.json.pointer_mut(place).unwrap() = fault.clone();
        let found = board.problems();
        assert!(
            found.iter().any(|(name, _)| name == check),
            "{check} does not see {place} as {fault}: {found:?}"
        );
    }
    let checked = faults.map(|(check, ..)| check);
    assert!(CHECKS.iter().all(|(name, _)| checked.contains(name)));
}

#[test]
fn promtool_reads_every_query_of_the_dashboards() {
    let queries = boards().into_iter().flat_map(|board| board.queries());
    let rule = |(number, (_, query)): (usize, (String, String))| {
        format!(
            "  - record: query:{number}\n    expr: {}\n",
            json!(concrete(&query))
        )
    };
    let written: String = queries.enumerate().map(rule).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.yml");
    fs::write(
        &file,
        format!("groups:\n- name: dashboards\n  rules:\n{written}"),
    )
    .unwrap();
    let said = promtool(&["check", "rules", file.to_str().unwrap()], folder.path());
    assert!(said.ok && !said.text.contains("FAILED"), "{}", said.text);
}
