//! What an operator sees: asks what the dashboards ask over the whole run, has them drawn, has the metrics checked.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::PATIENCE;

use crate::stack::{Stack, at};

/// What Grafana would put in place of its variables, at our pace: a rate needs four scrapes.
const VARIABLES: [(&str, &str); 6] = [
    ("$__rate_interval", "2s"),
    ("$__interval", "1s"),
    ("$__range", "60s"),
    ("$job", ".+"),
    ("$gateway", ".+"),
    ("$server", ".+"),
];

/// A query, by its dashboard and panel; annotations may find nothing to mark.
struct Query {
    place: String,
    text: String,
    may_be_empty: bool,
}

fn queries() -> Vec<Query> {
    let files = fs::read_dir(at("dashboards"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let boards = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    boards
        .flat_map(|file| {
            let board: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let panels = board["panels"].as_array().unwrap().iter();
            let asked = panels.flat_map(|panel| {
                let targets = panel["targets"].as_array().into_iter().flatten();
                targets
                    .map(|target| query(&board, panel, "title", target, false))
                    .collect::<Vec<_>>()
            });
            let marks = board["annotations"]["list"].as_array().unwrap().iter();
            let marks = marks.map(|mark| query(&board, mark, "name", mark, true));
            asked.chain(marks).collect::<Vec<_>>()
        })
        .collect()
}

fn query(board: &Value, place: &Value, name: &str, asks: &Value, may_be_empty: bool) -> Query {
    let text = asks["expr"].as_str().unwrap().to_owned();
    Query {
        place: format!(
            "{} / {}",
            board["title"].as_str().unwrap(),
            place[name].as_str().unwrap()
        ),
        text: VARIABLES
            .iter()
            .fold(text, |text, (name, value)| text.replace(name, value)),
        may_be_empty,
    }
}

/// The queries that were answered with nothing that could be drawn, of how many.
pub(crate) async fn without_data(stack: &Stack, from: f64, to: f64) -> (Vec<String>, usize) {
    let (mut empty, queries) = (Vec::new(), queries());
    for query in &queries {
        let answer = stack
            .range(&query.text, from, to, Duration::from_millis(500))
            .await;
        let mut samples = answer.iter().flat_map(|series| &series.samples);
        if !query.may_be_empty && !samples.any(|(_, value)| value.is_finite()) {
            empty.push(format!("{}: {}", query.place, query.text));
        }
    }
    (empty, queries.len())
}

/// Draws every dashboard as it was between two instants, and returns the folder of the pictures.
pub(crate) async fn render(prometheus: SocketAddr, from: f64, to: f64, server: &str) -> PathBuf {
    let (renderer, pictures) = (at("target/real/render"), at("target/observability"));
    assert!(
        renderer.join("dist").exists(),
        "install it with `make observability`"
    );
    fs::create_dir_all(&pictures).unwrap();
    let mut node = Command::new("node");
    node.args(["render.mjs", &format!("http://{prometheus}")]);
    node.args([from.to_string(), to.to_string(), server.to_owned()]);
    node.arg(&pictures).env("DASHBOARDS", at("dashboards"));
    let output = node.current_dir(renderer).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output)
        .await
        .expect("nothing is drawn")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    pictures
}

/// What Prometheus's own checker says against a live scrape.
pub(crate) fn said_of_metrics(text: &str) -> String {
    let mut promtool = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}
