//! The scenarios of `alerts/tests`, which promtool plays: each is one `- name:` of a file, and can be played by itself.

use std::fs;

use crate::rules;
use crate::tools::{Said, names, promtool, read};

/// One of them, or a file of them.
pub struct Scenario {
    pub file: String,
    pub name: String,
    /// A file of its own.
    text: String,
}

/// All of them, file by file.
pub fn files() -> Vec<Scenario> {
    let whole = |file: String| Scenario {
        text: read(&format!("alerts/tests/{file}")),
        name: file.clone(),
        file,
    };
    names("alerts/tests").into_iter().map(whole).collect()
}

/// All of them, one by one.
pub fn all() -> Vec<Scenario> {
    files().iter().flat_map(Scenario::each).collect()
}

impl Scenario {
    fn each(&self) -> Vec<Self> {
        let (head, rest) = self.text.split_once("\ntests:\n").unwrap();
        let blocks = rest.split("- name: ").skip(1);
        blocks
            .map(|block| Self {
                file: self.file.clone(),
                name: block.lines().next().unwrap().to_owned(),
                text: format!("{head}\ntests:\n- name: {block}"),
            })
            .collect()
    }

    /// Whether it says when this alert fires.
    pub fn is_about(&self, alert: &str) -> bool {
        let named = |end: &str| self.text.contains(&format!("alertname: {alert}{end}"));
        named("\n") || named(",")
    }

    /// Plays it under these rules, which are rules at least.
    pub fn play(&self, rules: &str) -> Said {
        let folder = tempfile::tempdir().unwrap();
        let tests = folder.path().join("tests");
        fs::create_dir(&tests).unwrap();
        let rules = rules::only(rules, &self.groups());
        fs::write(folder.path().join("tidegate.rules.yml"), rules).unwrap();
        fs::write(tests.join(&self.file), &self.text).unwrap();
        let checked = promtool(&["check", "rules", "tidegate.rules.yml"], folder.path());
        assert!(checked.ok, "{}", checked.text);
        promtool(&["test", "rules", &self.file], &tests)
    }

    /// The groups of rules that it is about.
    fn groups(&self) -> Vec<String> {
        let (_, rest) = self.text.split_once("\ngroup_eval_order: [").unwrap();
        let (groups, _) = rest.split_once(']').unwrap();
        groups.split(", ").map(Into::into).collect()
    }
}
