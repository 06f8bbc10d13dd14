//! The maps of what others found to the tests that hold it here: the behaviours of an existing host's engine, and
//! public reports against gateways of this kind. They are kept in `behaviours.txt` and `field-reports.txt`.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What a row without tests may say.
const EXCUSES: [&str; 2] = ["does not apply: ", "not built: "];

/// One line of a map: `key | words | tests | remark`.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    key: &'a str,
    words: &'a str,
    tests: Vec<&'a str>,
    remark: &'a str,
}

/// A heading and its rows.
type Chapter<'a> = (&'a str, Vec<Row<'a>>);

const BEHAVIOURS: &str = include_str!("behaviours.txt");
const REPORTS: &str = include_str!("field-reports.txt");

fn read(text: &str) -> Vec<Chapter<'_>> {
    let mut chapters: Vec<Chapter<'_>> = vec![];
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(heading) = line.strip_prefix("## ") {
            chapters.push((heading, vec![]));
        } else if !line.starts_with('#') {
            let (_, rows) = chapters.last_mut().unwrap();
            rows.push(row(line));
        }
    }
    chapters
}

fn row(line: &str) -> Row<'_> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let [key, words, tests, remark] = cells[..] else {
        panic!("four cells are wanted: {line}");
    };
    let tests = tests.split(", ").filter(|name| !name.is_empty()).collect();
    Row {
        key,
        words,
        tests,
        remark,
    }
}

fn rows(text: &str) -> Vec<Row<'_>> {
    read(text).into_iter().flat_map(|(_, rows)| rows).collect()
}

/// The chapters of docs/rules.md.
pub(super) fn chapters(tests: &[(String, String)]) -> String {
    let mut files = BTreeMap::<&str, Vec<&str>>::new();
    for (file, name) in tests {
        files.entry(name).or_default().push(file);
    }
    let behaviours = "Behaviours of an existing host's engine";
    let reports = "Public reports against gateways of this kind";
    let held = "\n| number | behaviour | held by |\n|---|---|---|\n";
    let reported = "\n| key | what went wrong | held here by |\n|---|---|---|\n";
    chapter(behaviours, "behaviours.txt", BEHAVIOURS, held, &files)
        + &chapter(reports, "field-reports.txt", REPORTS, reported, &files)
}

fn chapter(
    title: &str,
    file: &str,
    text: &str,
    head: &str,
    files: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let all = rows(text);
    let held = all.iter().filter(|row| !row.tests.is_empty()).count();
    let [does_not_apply, not_built] =
        EXCUSES.map(|why| all.iter().filter(|row| row.remark.starts_with(why)).count());
    let mut out = format!(
        "\n## {title}\n\nFrom [tests/rules/{file}](../tests/rules/{file}): {} in all, {held} held by tests, \
         {does_not_apply} do not apply, {not_built} not built.\n",
        all.len()
    );
    for (heading, rows) in read(text) {
        write!(out, "\n### {heading}\n{head}").unwrap();
        for row in rows {
            writeln!(
                out,
                "| {} | {} | {} |",
                row.key,
                row.words,
                cell(&row, files)
            )
            .unwrap();
        }
    }
    out
}

fn cell(row: &Row<'_>, files: &BTreeMap<&str, Vec<&str>>) -> String {
    let linked = |name: &&str| {
        let places = files.get(name).into_iter().flatten();
        let links: Vec<_> = places
            .map(|file| format!("[`{name}`](../{file})"))
            .collect();
        links.join(", ")
    };
    let mut parts: Vec<_> = row.tests.iter().map(linked).collect();
    parts.extend((!row.remark.is_empty()).then(|| format!("*{}*", row.remark)));
    parts.join("; ")
}

#[test]
fn every_behaviour_is_in_the_map_once() {
    let keys: Vec<_> = rows(BEHAVIOURS).iter().map(|row| row.key).collect();
    let wanted: Vec<_> = (1..=194).map(|number| number.to_string()).collect();
    assert_eq!(keys, wanted);
}

#[test]
fn every_report_is_in_the_map_once() {
    let mut keys: Vec<_> = rows(REPORTS).iter().map(|row| row.key).collect();
    let listed = keys.clone();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys, listed, "in order, each once");
    assert!(keys.iter().all(|key| key.starts_with("BR-")));
}

#[test]
fn every_test_that_a_map_names_is_there() {
    let tests = super::every_test();
    let is_there = |wanted: &&str| tests.iter().any(|(_, name)| name == wanted);
    for row in rows(BEHAVIOURS).into_iter().chain(rows(REPORTS)) {
        let gone: Vec<_> = row.tests.iter().filter(|name| !is_there(name)).collect();
        assert!(gone.is_empty(), "{}: there is no {gone:?}", row.key);
    }
}

#[test]
fn every_row_of_a_map_has_a_test_or_says_why_not() {
    for row in rows(BEHAVIOURS).into_iter().chain(rows(REPORTS)) {
        let excused = EXCUSES.iter().any(|why| row.remark.starts_with(why));
        assert_eq!(row.tests.is_empty(), excused, "{row:?}");
    }
}

#[test]
fn a_line_of_a_map_is_read_as_it_is_meant() {
    let text = "# told first\n## One\n\n1 | two words | a, b |\n2 | more | | does not apply: why\n";
    let [(heading, rows)] = &read(text)[..] else {
        panic!("one chapter is wanted");
    };
    assert_eq!((*heading, rows.len()), ("One", 2));
    assert_eq!((rows[0].tests.len(), rows[0].remark), (2, ""));
    assert_eq!(rows[1].remark, "does not apply: why");
}
