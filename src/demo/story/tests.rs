//! What a story notices, and what it takes as it should be.

use serde_json::json;

use super::checks::Check;
use super::*;

const LASTING: Duration = Duration::from_secs(2);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn event(server: &str, kind: &str, attempt: u64) -> Event {
    let fields = json!({ "waitSeconds": 1.6, "queue": "kept" });
    let text = format!("{kind} of {attempt}");
    let event = json!({ "server": server, "kind": kind, "text": text, "attempt": attempt, "fields": fields });
    serde_json::from_value(event).unwrap()
}

/// What the metrics say of a whole episode.
fn metrics() -> String {
    ["down", "clear"]
        .map(|edge| {
            format!("tidegate_server_episodes_total{{edge=\"{edge}\",server=\"crash\"}} 1\n")
        })
        .concat()
}

fn called(answer: Answer) -> Seen {
    Seen::Called {
        took: Duration::from_millis(2),
        answer,
    }
}

/// A whole episode that goes as it should.
fn good() -> Story {
    let mut story = Story::new(LASTING);
    for (second, kind) in [
        (5, "ended"),
        (5, "short-end"),
        (5, "down"),
        (8, "adopted"),
        (10, "clear"),
    ] {
        story.decided(at(second), &event("crash", kind, 5));
    }
    story.saw(
        "crash",
        called(Answer::Error(code::NOT_SENT, "later".into())),
    );
    story.saw("steady", called(Answer::Right));
    story.saw("chat", Seen::Message(1));
    story.killed(1, false);
    story.saw("chat", Seen::Message(2));
    story
}

#[track_caller]
fn assert_broken(story: &Story, sent: u64, words: &str) {
    let checks = story.checks(sent, &metrics());
    let broken: Vec<&Check> = checks.iter().filter(|check| !check.held).collect();
    assert!(
        matches!(broken.as_slice(), [one] if one.text.contains(words)),
        "{broken:?}"
    );
}

#[test]
fn a_good_story_holds_whole() {
    let checks = good().checks(2, &metrics());
    assert!(checks.iter().all(|check| check.held), "{checks:?}");
}

#[test]
fn an_empty_story_holds_nothing_but_the_peace() {
    let checks = Story::new(LASTING).checks(0, "");
    assert_eq!(checks.iter().filter(|check| check.held).count(), 1);
}

#[test]
fn a_second_down_is_noticed() {
    let mut story = good();
    story.decided(at(11), &event("crash", "down", 6));
    let checks = story.checks(2, &metrics());
    assert!(checks[0].text.contains("down, clear, down") && !checks[0].held);
    assert!(!checks[1].held, "the metrics count one");
}

#[test]
fn metrics_that_say_something_else_are_noticed() {
    for other in [
        metrics().replace("} 1", "} 2"),
        metrics().replace("crash", "chat"),
        String::new(),
    ] {
        let checks = good().checks(2, &other);
        let broken: Vec<bool> = checks.iter().map(|check| !check.held).collect();
        assert_eq!(
            broken,
            [false, true, false, false, false, false, false],
            "{other}"
        );
    }
}

#[test]
fn an_early_clear_is_noticed() {
    let mut story = Story {
        edges: Vec::new(),
        ..good()
    };
    for (second, kind) in [(5, "down"), (8, "adopted"), (9, "clear")] {
        story.decided(at(second), &event("crash", kind, 5));
    }
    assert_broken(&story, 2, "after a connection of 1000.0 ms");
}

#[test]
fn a_lost_a_repeated_and_a_disordered_message_are_noticed() {
    for (number, words) in [
        (4, "4 came where 3"),
        (2, "2 came where 3"),
        (1, "1 came where 3"),
    ] {
        let mut story = good();
        let line = story.saw("chat", Seen::Message(number)).unwrap();
        assert_eq!(line.tone, Tone::Bad);
        assert_broken(&story, number.max(2), words);
    }
    assert_broken(&good(), 3, "of 3 chat messages the last to come is 2");
}

#[test]
fn a_failed_call_to_steady_is_noticed() {
    for answer in [
        Answer::Error(code::NOT_SENT, "later".into()),
        Answer::Wrong("7".into()),
    ] {
        let mut story = good();
        story.saw("steady", called(answer));
        assert_broken(&story, 2, "1 calls to steady");
    }
}

#[test]
fn a_slow_or_other_answer_while_crash_is_away_is_noticed() {
    let slow = Answer::Error(code::NOT_SENT, "later".into());
    let slow = Seen::Called {
        took: at(3),
        answer: slow,
    };
    for seen in [
        slow,
        called(Answer::Error(-32603, "broken".into())),
        called(Answer::Wrong("?".into())),
    ] {
        let mut story = good();
        story.saw("crash", seen);
        assert_broken(&story, 2, "1 calls to crash");
    }
}

#[test]
fn a_call_that_crash_took_with_it_is_as_it_should_be() {
    let mut story = good();
    story.saw("crash", called(Answer::Error(code::LOST, "unknown".into())));
    assert!(story.checks(2, &metrics()).iter().all(|check| check.held));
}

#[test]
fn a_report_about_a_healthy_server_and_a_lost_connection_are_noticed() {
    let mut story = good();
    story.decided(at(9), &event("steady", "down", 5));
    assert_broken(&story, 2, "steady: down of 5");
    let mut story = good();
    story.saw("chat", Seen::Gone("closed".into()));
    assert_broken(&story, 2, "connection to chat ended");
}

#[test]
fn crash_is_mended_once_after_a_failure_that_adds_nothing() {
    let mut story = Story::new(LASTING);
    story.decided(at(5), &event("crash", "down", 5));
    let next = |attempt| event("crash", "waiting", attempt);
    let mends: Vec<bool> = [6, 7, 8]
        .map(|attempt| story.is_time_to_mend(&next(attempt)))
        .into();
    assert_eq!(mends, [false, true, false]);
}
