//! A child's standard error: told line by line at a bounded rate, and its last lines kept for the report of an end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::ChildStderr;
use tokio::time::Instant;

use super::drained::Drained;
use super::lines::{Line, Lines};
use super::link::Link;
use crate::engine::input::{LinkEvent, StderrTail};
use crate::wire::redact::Secrets;

/// A longer line is cut, in bytes.
const LINE_MAX: usize = 8 << 10;
/// So many lines are told per [`WINDOW`]; the others are counted.
const TOLD_MAX: u32 = 200;
const WINDOW: Duration = Duration::from_secs(1);

/// The last lines, told or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<StderrTail>>);

impl Tail {
    fn push(&self, line: &str) {
        self.lock().push(line);
    }

    /// Takes them out, oldest first.
    pub(super) fn take(&self) -> Vec<String> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, StderrTail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads until the end of the stream. Says when all that was written before the child's exit is in the tail.
pub(super) async fn read(stderr: ChildStderr, link: Link, tail: Tail, mut drained: Drained) {
    let beginning = LINE_MAX + link.secrets().longest();
    let mut lines = Lines::new(stderr, LINE_MAX, beginning);
    let mut told = Told::new(Instant::now());
    loop {
        drained.note(&lines);
        let window_ends = told.window_ends();
        let next = tokio::select! {
            next = lines.next() => next,
            () = drained.exited() => {
                drained.mark(&lines);
                continue;
            }
            () = tokio::time::sleep_until(window_ends), if told.skipped > 0 => {
                told.tell_skipped(&link, Instant::now()).await;
                continue;
            }
        };
        let Ok(Some(line)) = next else { break };
        let line = shown(&line, link.secrets());
        if line.is_empty() {
            continue;
        }
        tail.push(&line);
        told.tell_skipped(&link, Instant::now()).await;
        if told.admits() {
            link.tell(LinkEvent::Stderr(line)).await;
        }
    }
    told.tell_skipped(&link, told.window_ends()).await;
}

fn shown(line: &Line, secrets: &Secrets) -> String {
    match line {
        Line::Whole(bytes) | Line::Unended(bytes) => {
            secrets.clean(String::from_utf8_lossy(bytes).trim_end())
        }
        Line::Long { beginning, .. } => {
            let text = secrets.clean_beginning(&String::from_utf8_lossy(beginning));
            text.get(..text.floor_char_boundary(LINE_MAX))
                .unwrap_or_default()
                .into()
        }
    }
}

/// Counts what is told in a window.
struct Told {
    since: Instant,
    lines: u32,
    skipped: u64,
}

impl Told {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            lines: 0,
            skipped: 0,
        }
    }

    fn window_ends(&self) -> Instant {
        self.since + WINDOW
    }

    /// Whether another line is told.
    fn admits(&mut self) -> bool {
        let admitted = self.lines < TOLD_MAX;
        if admitted {
            self.lines += 1;
        } else {
            self.skipped += 1;
        }
        admitted
    }

    /// Begins another window where this one has ended, and sums up what was skipped in it.
    async fn tell_skipped(&mut self, link: &Link, now: Instant) {
        if now < self.window_ends() {
            return;
        }
        let skipped = self.skipped;
        *self = Self::new(now);
        if skipped > 0 {
            let line = format!("({skipped} lines were skipped: more than {TOLD_MAX} in a second)");
            link.tell(LinkEvent::Stderr(line)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_exceeds_the_rate_is_counted_in_one_line() {
        let (events, mut told) = tokio::sync::mpsc::channel(500);
        let link = Link::new(crate::ids::Epoch(1), events, Secrets::default());
        let mut rate = Told::new(Instant::now());
        let admitted = (0..300).filter(|_| rate.admits()).count();
        assert_eq!(admitted, 200);
        rate.tell_skipped(&link, Instant::now()).await;
        assert!(told.try_recv().is_err());
        rate.tell_skipped(&link, Instant::now() + WINDOW).await;
        let (_, event) = told.try_recv().unwrap();
        assert!(matches!(event, LinkEvent::Stderr(line) if line.starts_with("(100 lines")));
        assert!(rate.admits());
    }
}
