//! The text of the rules, and edits of it.

use crate::tools::read;

/// Where they are.
pub const PATH: &str = "alerts/tidegate.rules.yml";

/// The text of an alert's rule, by its lines.
pub struct Alert {
    pub name: String,
    pub text: String,
}

/// The rules without the groups that are not among these: what a scenario is not about takes most of its time.
pub fn only(rules: &str, groups: &[String]) -> String {
    let (head, rest) = rules.split_once("\n- name: ").unwrap();
    let wanted = rest.split("\n- name: ").filter(|group| {
        let name = group.lines().next().unwrap();
        groups.iter().any(|wanted| wanted == name)
    });
    wanted.fold(head.to_owned(), |text, group| {
        format!("{text}\n- name: {group}")
    })
}

/// Every alert, in the order of the file; one that is there twice comes twice.
pub fn alerts() -> Vec<Alert> {
    let text = read(PATH);
    let starts = text.match_indices("  - alert: ");
    starts.map(|(at, _)| alert(&text[at..])).collect()
}

fn alert(text: &str) -> Alert {
    let mut lines = text.split_inclusive('\n');
    let mut text = lines.next().unwrap().to_owned();
    let name = text.trim().trim_start_matches("- alert: ").to_owned();
    text.extend(lines.take_while(|line| line.starts_with("    ")));
    Alert { name, text }
}

/// The rules with `from` replaced by `to`, wherever it is.
pub fn edited(from: &str, to: &str) -> String {
    let text = read(PATH);
    assert!(text.contains(from), "{PATH} does not say: {from}");
    text.replace(from, to)
}

/// The rules with one alert's settings of these names gone, and `line` among those that are left.
pub fn with_setting(alert: &Alert, gone: &[&str], line: &str) -> String {
    let keeps = |line: &&str| !gone.iter().any(|name| line.trim_start().starts_with(name));
    let kept: String = alert.text.split_inclusive('\n').filter(keeps).collect();
    edited(&alert.text, &format!("{kept}    {line}\n"))
}
