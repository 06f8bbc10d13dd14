//! What is shipped, made to run faster: every duration is divided by one number, and nothing else is changed.

use std::time::Duration;

/// How many times faster than shipped it goes.
pub(crate) const PACE: u32 = 30;

/// Where a duration stands in the shipped files, beside `[…]` and `offset …`.
const KEYS: [&str; 8] = [
    "for",
    "keep_firing_for",
    "interval",
    "scrape_interval",
    "evaluation_interval",
    "group_wait",
    "group_interval",
    "repeat_interval",
];

/// A shipped duration, at our pace.
pub(crate) fn paced(shipped: Duration) -> Duration {
    shipped / PACE
}

/// A rule file or configuration, at our pace.
pub(crate) fn text(shipped: &str) -> String {
    shipped.split_inclusive('\n').map(line).collect()
}

/// The flags that the comments of a shipped configuration ask for, at our pace.
pub(crate) fn flags(shipped: &str) -> Vec<String> {
    let comments = shipped.lines().filter(|line| line.starts_with('#'));
    let words = comments.flat_map(str::split_whitespace);
    let flags = words.filter(|word| word.starts_with("--"));
    flags
        .map(|flag| flag.trim_end_matches([')', ',', '.', ';']))
        .map(|flag| match flag.split_once('=') {
            Some((name, value)) => format!("{name}={}", value_at_pace(value)),
            None => flag.to_owned(),
        })
        .collect()
}

fn line(line: &str) -> String {
    if line.trim_start().starts_with('#') {
        return line.to_owned();
    }
    let field = line.split_once(": ");
    if let Some((key, value)) = field
        && KEYS.contains(&key.trim().trim_start_matches("- "))
    {
        return format!("{key}: {}\n", value_at_pace(value.trim_end()));
    }
    let looks_back = after_each(line, "[");
    after_each(&looks_back, "offset ")
}

/// The line with every duration that follows `start` at our pace.
fn after_each(line: &str, start: &str) -> String {
    let mut parts = line.split(start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric());
        let (value, rest) = part.split_at(end.unwrap_or(part.len()));
        format!("{line}{start}{}{rest}", value_at_pace(value))
    })
}

/// The value at our pace where it is a duration, else as it is.
fn value_at_pace(value: &str) -> String {
    let shipped = humantime::parse_duration(value);
    shipped.map_or(value.to_owned(), |shipped| written(paced(shipped)))
}

/// As Prometheus reads it.
pub(crate) fn written(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[test]
fn durations_of_the_shipped_files_are_divided_and_nothing_else_is_changed() {
    let shipped =
        "# for: 5m\n  for: 5m\n- interval: 1m\n  expr: rate(x:rate5m[15m] offset 1h) > 600\n";
    let paced = "# for: 5m\n  for: 10000ms\n- interval: 2000ms\n  expr: rate(x:rate5m[30000ms] offset 120000ms) > 600\n";
    assert_eq!(text(shipped), paced);
    let asked =
        "# Start it with --a.delay=10m, and (alone) --cluster.listen-address=).\nx: --y=1m\n";
    assert_eq!(
        flags(asked),
        ["--a.delay=20000ms", "--cluster.listen-address="]
    );
}
