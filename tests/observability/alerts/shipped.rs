//! The files that are shipped: each is clean by its own checker, and no alert is without its runbook.

use std::collections::BTreeSet;

use crate::rules::{self, alerts};
use crate::scenario;
use crate::tools::{amtool, at, names, problems, promtool, read};

const PROMETHEUS: &str = "alerts/prometheus.yml";
const ALERTMANAGER: &str = "alerts/alertmanager.yml";

#[test]
fn promtool_has_nothing_to_say_against_the_rules_and_the_configuration() {
    for (what, file) in [("rules", rules::PATH), ("config", PROMETHEUS)] {
        let said = promtool(&["check", what, file], &at(""));
        let clean = said.ok && !said.text.contains("FAILED") && !said.text.contains("WARNING");
        assert!(clean, "{}", said.text);
    }
}

#[test]
fn amtool_has_nothing_to_say_against_the_configuration() {
    let said = amtool(&["check-config", ALERTMANAGER], &at(""));
    assert!(said.ok && said.text.contains("SUCCESS"), "{}", said.text);
}

#[test]
fn every_scenario_of_the_alerts_is_played_as_it_is_told() {
    let rules = read(rules::PATH);
    let failed = problems(&scenario::files(), |file| {
        let said = file.play(&rules);
        (!said.ok).then_some(said.text)
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn alerts_go_where_somebody_waits_for_them() {
    let ways = [
        (
            "alertname=TidegateServerDown severity=critical channel=status",
            "status,pager",
        ),
        (
            "alertname=TidegateJournalFailing severity=critical",
            "pager",
        ),
        (
            "alertname=TidegateServerUnstable severity=warning",
            "tickets",
        ),
        ("alertname=TidegateWatchdog severity=none", "watchdog"),
    ];
    for (labels, receivers) in ways {
        let file = format!("--config.file={ALERTMANAGER}");
        let verify = format!("--verify.receivers={receivers}");
        let mut arguments = vec!["config", "routes", "test", &file, &verify];
        arguments.extend(labels.split(' '));
        let said = amtool(&arguments, &at(""));
        assert!(said.ok, "{labels}: {}", said.text);
    }
}

/// Its "resolved" would be swallowed, and never sent afterwards.
#[test]
fn no_alert_of_the_status_channel_is_the_target_of_an_inhibition() {
    let text = read(ALERTMANAGER);
    let targets: Vec<_> = text
        .lines()
        .filter(|line| line.contains("target_matchers"))
        .collect();
    assert!(!targets.is_empty());
    let waited: Vec<_> = alerts()
        .into_iter()
        .filter(|alert| alert.text.contains("channel: status"))
        .collect();
    assert!(waited.len() >= 3);
    for alert in waited {
        let is_target = targets.iter().any(|line| line.contains(&alert.name));
        assert!(!is_target, "{}", alert.name);
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let named: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    let written = names("docs/runbooks").into_iter();
    let written: BTreeSet<_> = written
        .map(|file| file.trim_end_matches(".md").to_owned())
        .collect();
    assert_eq!(named, written);
    for alert in alerts() {
        let link = format!("runbook_url: docs/runbooks/{}.md\n", alert.name);
        assert!(alert.text.contains(&link), "{}", alert.text);
        let book = read(&format!("docs/runbooks/{}.md", alert.name));
        let heads = [
            "## What it means",
            "## Where to look",
            "## What to do",
            "## How it ends",
        ];
        for head in heads {
            assert!(book.contains(head), "{}: {head}", alert.name);
        }
    }
}
