//! The log: one line per decision, text or JSON, to stderr. A line goes through a bounded channel to a thread of its
//! own, so a reader of stderr that stops never stops the gateway: lines are then dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::FilterExt as _;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use super::traces::{Operations, others};
use super::{Observer, Told};
use crate::ids::ServerId;
use crate::wire::redact::escaped;

/// How many lines wait for the writer.
const LINES_MAX: usize = 1_024;
/// The longest line, in bytes; the rest is cut off.
const LINE_MAX: usize = 16 << 10;
/// How long the end of the process waits for a sink that takes nothing.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Lines of the process that found the channel full, until an observer takes the number.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a level or filter.
    #[error("telemetry.log.level {filter:?} is no level or filter: {why}; write e.g. `info`")]
    Filter {
        /// As it was written.
        filter: String,
        /// What the parser says.
        why: String,
    },
    /// The writer's thread cannot be started.
    #[error("cannot start the log's writer: {0}")]
    Thread(#[from] io::Error),
    /// Somebody else has it.
    #[error("the process has a log already")]
    Taken,
}

/// Keeps the log going; when it goes, the lines that wait are written, for at most half a second.
#[derive(Debug)]
#[must_use]
pub struct Guard {
    lines: Option<SyncSender<Job>>,
    done: Receiver<()>,
}

enum Job {
    Line(Vec<u8>),
    Stop,
}

/// Sends the process's log to stderr, as text or as JSON, and the gateway's own operations to the observer's traces,
/// where it has any. `filter` is a level or a filter of `EnvFilter`, for the log alone.
///
/// # Errors
/// Where the filter cannot be read, or the process has a log already.
pub fn init(json: bool, filter: &str, observer: &Observer) -> Result<Guard, Error> {
    let filter = filter_of(filter)?;
    let (lines, guard) = start(io::stderr(), &DROPPED)?;
    let subscriber = subscriber(json, filter, lines, observer.operations());
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::Taken)?;
    Ok(guard)
}

/// How many lines were dropped since this was last asked.
pub(super) fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

fn filter_of(filter: &str) -> Result<EnvFilter, Error> {
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    builder.parse(filter).map_err(|error| Error::Filter {
        filter: filter.into(),
        why: error.to_string(),
    })
}

fn subscriber(
    json: bool,
    filter: EnvFilter,
    lines: Lines,
    operations: Option<Operations>,
) -> impl tracing::Subscriber + Send + Sync {
    let log = fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(lines);
    let log = if json {
        log.json().flatten_event(true).boxed()
    } else {
        log.boxed()
    };
    let mut layers = vec![log.with_filter(filter.and(others())).boxed()];
    layers.extend(operations);
    tracing_subscriber::registry().with(layers)
}

/// Writes a line about a server.
pub(super) fn tell(level: Level, server: &ServerId, told: &Told<'_>) {
    let epoch = told.epoch.map(|epoch| epoch.0);
    let trace_id = told.trace.map(tracing::field::display);
    let Told {
        attempt,
        kind,
        text,
        ..
    } = told;
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level, server = %server, epoch, attempt, trace_id, kind, "{}", escaped(text)
            )
        };
    }
    match level {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        Level::DEBUG => line!(Level::DEBUG),
        Level::TRACE => line!(Level::TRACE),
    }
}

/// Where formatted lines go.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<Job>,
    dropped: &'static AtomicU64,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Lines {
    /// The formatter writes each line whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line.get(..LINE_MAX).unwrap_or(line).to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        if self.sender.try_send(Job::Line(kept)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(
    mut sink: impl Write + Send + 'static,
    dropped: &'static AtomicU64,
) -> io::Result<(Lines, Guard)> {
    let (sender, jobs) = sync_channel(LINES_MAX);
    let (finished, done) = sync_channel(1);
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || {
            write_lines(&mut sink, &jobs);
            // Nobody waits where the guard has given up.
            let _ = finished.try_send(());
        })?;
    let lines = Some(sender.clone());
    Ok((Lines { sender, dropped }, Guard { lines, done }))
}

fn write_lines(sink: &mut impl Write, jobs: &Receiver<Job>) {
    while let Ok(Job::Line(line)) = jobs.recv() {
        // A sink that is gone takes no line, and there is nowhere to say so.
        let _ = sink.write_all(&line);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(lines) = self.lines.take() else {
            return;
        };
        if lines.try_send(Job::Stop).is_ok() {
            let _: Result<(), RecvTimeoutError> = self.done.recv_timeout(LAST_LINES);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::super::traces::Operation;
    use super::*;
    use crate::engine::decision::Decision;
    use crate::ids::Epoch;

    /// A sink that passes on what it takes, and takes nothing until it is told to.
    struct Sink {
        taken: Sender<String>,
        open: Receiver<()>,
    }

    impl Write for Sink {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.open.recv();
            let _ = self.taken.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_of(json: bool, filter: &str, told: impl FnOnce()) -> Vec<String> {
        let (taken, lines) = std::sync::mpsc::channel();
        let (opener, open) = std::sync::mpsc::channel();
        drop(opener);
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let (writer, guard) = start(Sink { taken, open }, &DROPPED).unwrap();
        let subscriber = subscriber(json, filter_of(filter).unwrap(), writer, None);
        tracing::subscriber::with_default(subscriber, told);
        drop(guard);
        lines.iter().collect()
    }

    fn down(why: &str) -> Decision {
        Decision::Down {
            attempt: 5,
            why: why.into(),
            mcpl: true,
        }
    }

    fn say(decision: &Decision) {
        let server = ServerId::new("chat").unwrap();
        let told = Told {
            epoch: Some(Epoch(7)),
            attempt: 5,
            trace: None,
            kind: decision.kind(),
            text: &decision.to_string(),
            fields: &serde_json::Value::Null,
        };
        tell(Level::ERROR, &server, &told);
    }

    #[test]
    fn a_line_names_server_epoch_attempt_and_kind_and_escapes_what_peers_say() {
        let told = || say(&down("gone\r\nfake line\u{1b}[2J\u{202e}"));
        let lines = lines_of(false, "info", told);
        assert_eq!(lines.len(), 1);
        let line = lines[0].trim_end();
        let text = r"MCPL server down (attempt 5): gone\r\nfake line\u{1b}[2J\u{202e}";
        assert!(line.contains(text), "{line}");
        for field in [
            "ERROR",
            "server=chat",
            "epoch=7",
            "attempt=5",
            "kind=\"down\"",
        ] {
            assert!(line.contains(field), "{field}: {line}");
        }
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }

    #[test]
    fn a_json_line_is_one_object() {
        let lines = lines_of(true, "info", || say(&down("gone")));
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["server"], "chat");
        assert_eq!((&line["epoch"], &line["attempt"]), (&7.into(), &5.into()));
        assert_eq!(line["kind"], "down");
        assert_eq!(line["message"], "MCPL server down (attempt 5): gone");
    }

    #[test]
    fn a_line_is_the_same_within_a_traced_operation() {
        let within = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let operation = Operation::reload();
            let work = operation.run(async { say(&down("gone")) });
            runtime.unwrap().block_on(work);
        };
        for json in [false, true] {
            let alone = lines_of(json, "trace", || say(&down("gone")));
            let lines = lines_of(json, "trace", within);
            let untimed = |lines: &[String]| lines[0].split_once('Z').unwrap().1.to_owned();
            assert_eq!(untimed(&lines), untimed(&alone));
        }
    }

    #[test]
    fn what_the_filter_leaves_out_is_not_written() {
        assert!(lines_of(false, "off", || say(&down("gone"))).is_empty());
        let error = filter_of("tidegate=loud").unwrap_err().to_string();
        assert!(error.contains("write e.g. `info`"), "{error}");
    }

    #[test]
    fn a_sink_that_takes_nothing_blocks_nobody_and_what_it_misses_is_counted() {
        let (taken, lines) = std::sync::mpsc::channel();
        let (opener, open) = std::sync::mpsc::channel();
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let (writer, guard) = start(Sink { taken, open }, &DROPPED).unwrap();
        let subscriber = subscriber(false, filter_of("info").unwrap(), writer, None);
        let flood = LINES_MAX as u64 + 100;
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..flood {
                say(&down("gone"));
            }
        });
        // The writer holds one line at most beside those that wait.
        let dropped = DROPPED.load(Ordering::Relaxed);
        assert!((99..=100).contains(&dropped), "{dropped}");
        drop(opener);
        drop(guard);
        assert_eq!(lines.iter().count() as u64, flood - dropped);
    }

    #[test]
    fn a_line_of_any_length_is_cut_off() {
        let lines = lines_of(false, "info", || say(&down(&"x".repeat(LINE_MAX * 2))));
        assert_eq!(lines[0].len(), LINE_MAX + 1);
    }
}
