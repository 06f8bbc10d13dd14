//! Servers as child processes. Reading, writing and stderr are tasks of their own, so that a child that stops reading
//! never stops our reading.

use std::path::Path;
use std::process::Stdio as Pipe;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use secrecy::ExposeSecret;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::drained::{Drain, Drained, drain};
use super::lines::{Line, Lines};
use super::link::{Link, holding, slot};
use super::process::{self, Family};
use super::settings::Stdio;
use super::stderr::{self, Tail};
use super::{Events, environment};
use crate::engine::input::{End, Failure, Outcome, Reap};
use crate::ids::Epoch;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::redact::Secrets;

/// Of a message past [`MESSAGE_MAX`], so much of its beginning and of its end is kept to find its id in (G16).
const KEPT: usize = 4 << 10;
/// A child that exits closes its stdout a moment before; one that lives on for this long has only closed it.
const EXIT_WAIT: Duration = Duration::from_millis(100);
/// How long a loss waits for a full inbox to take what the child wrote before its exit.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// With every process gone the pipes end; one that somebody unknown still holds is closed after this.
const LATE_MAX: Duration = Duration::from_millis(200);

/// See [`super::dial`].
pub(super) fn dial(
    settings: Arc<Stdio>,
    epoch: Epoch,
    events: Events,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    close: CancellationToken,
    launches: Arc<Semaphore>,
) {
    let link = Link::new(epoch, events, Secrets::new(&settings.secrets));
    tokio::spawn(async move {
        let slot = tokio::select! {
            biased;
            () = link.dismissed(&close) => None,
            slot = slot(launches) => Some(slot),
        };
        let reap = match slot {
            Some(slot) => run(&settings, slot, &link, frames, &close).await,
            None => {
                link.lost(End::Operator, Vec::new()).await;
                Reap::Clean
            }
        };
        link.gone(reap).await;
    });
}

/// Launches and serves. A launch that began is waited for even where it is no longer wanted, so that it can be ended.
async fn run(
    settings: &Arc<Stdio>,
    slot: Option<OwnedSemaphorePermit>,
    link: &Link,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    close: &CancellationToken,
) -> Reap {
    let to_launch = Arc::clone(settings);
    match holding(slot, process::spawn(move || command(&to_launch))).await {
        Ok(family) => serve(family, link, frames, close).await,
        Err(error) => {
            link.failed(failure(settings, &error, link.secrets())).await;
            Reap::Clean
        }
    }
}

fn command(settings: &Stdio) -> Command {
    let mut command = Command::new(&settings.command);
    command
        .args(&settings.args)
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped());
    if !settings.inherit_env {
        command.env_clear().envs(environment::passed_on());
    }
    command.envs(
        settings
            .env
            .iter()
            .map(|(name, value)| (name, value.expose_secret())),
    );
    if let Some(cwd) = &settings.cwd {
        command.current_dir(cwd);
    }
    command
}

fn failure(settings: &Stdio, error: &std::io::Error, secrets: &Secrets) -> Failure {
    let cwd = settings.cwd.as_deref().filter(|cwd| !Path::is_dir(cwd));
    let why = match (cwd, error.kind()) {
        (Some(cwd), _) => format!("its working directory `{}` is none", cwd.display()),
        (None, std::io::ErrorKind::NotFound) => "not found".into(),
        (None, std::io::ErrorKind::PermissionDenied) => "permission denied".into(),
        (None, _) => error.to_string(),
    };
    let detail = secrets.clean(&format!(
        "command `{}` cannot be started: {why}",
        settings.command
    ));
    Failure {
        outcome: Outcome::Spawn,
        detail,
        retry_after: None,
        stderr: Vec::new(),
    }
}

/// From the launch to the last of its processes.
async fn serve(
    mut family: Family,
    link: &Link,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    close: &CancellationToken,
) -> Reap {
    link.tell_connected().await;
    let tail = Tail::default();
    let mut tasks = Tasks::start(&mut family, link, &tail, frames);
    let end = ended(&mut family, link, close, &tasks.stdout_over).await;
    if matches!(end, End::Exit(_) | End::Signal(_)) {
        tasks.drain().await;
    }
    link.lost(end, tail.take()).await;
    // Before its stdin ends: then it may exit at once, and who came of it could no longer be told.
    family.remember().await;
    tasks.close_stdin().await;
    let reap = family.end().await;
    tasks.finish().await;
    reap
}

/// Waits for whichever end comes first.
async fn ended(
    family: &mut Family,
    link: &Link,
    close: &CancellationToken,
    stdout_over: &CancellationToken,
) -> End {
    tokio::select! {
        biased;
        end = family.exited() => return end,
        () = link.dismissed(close) => return End::Operator,
        () = stdout_over.cancelled() => {}
    }
    let exit = timeout(EXIT_WAIT, family.exited()).await;
    exit.unwrap_or_else(|_| End::Reset("closed its stdout".into()))
}

/// What runs beside the supervisor.
struct Tasks {
    writer: Option<JoinHandle<()>>,
    readers: Vec<JoinHandle<()>>,
    drains: Vec<Drain>,
    stdout_over: CancellationToken,
}

impl Tasks {
    fn start(
        family: &mut Family,
        link: &Link,
        tail: &Tail,
        frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    ) -> Self {
        let stdout_over = CancellationToken::new();
        let (stdin, stdout, stderr) = family.pipes();
        let mut tasks = Self {
            writer: stdin.map(|stdin| tokio::spawn(write(stdin, frames))),
            readers: Vec::new(),
            drains: Vec::new(),
            stdout_over: stdout_over.clone(),
        };
        if let Some(stdout) = stdout {
            let drained = tasks.drained();
            let read = read(stdout, link.clone(), drained, stdout_over.drop_guard());
            tasks.readers.push(tokio::spawn(read));
        }
        if let Some(stderr) = stderr {
            let drained = tasks.drained();
            let read = stderr::read(stderr, link.clone(), tail.clone(), drained);
            tasks.readers.push(tokio::spawn(read));
        }
        tasks
    }

    fn drained(&mut self) -> Drained {
        let (drain, drained) = drain();
        self.drains.push(drain);
        drained
    }

    /// Waits until all that the child wrote before its exit has been told.
    async fn drain(&mut self) {
        let all = futures_util::future::join_all(self.drains.iter_mut().map(Drain::finish));
        let _ = timeout(DRAIN_MAX, all).await;
    }

    async fn close_stdin(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abort();
            let _ = writer.await;
        }
    }

    /// Lets the readers come to the end of their pipes, or closes these.
    async fn finish(self) {
        for mut reader in self.readers {
            if timeout(LATE_MAX, &mut reader).await.is_err() {
                reader.abort();
                let _ = reader.await;
            }
        }
    }
}

/// Writes until the frames end or the pipe breaks. A broken one is no loss: the child's exit, or its silence, is.
async fn write(mut stdin: ChildStdin, mut frames: impl Stream<Item = Bytes> + Unpin) {
    while let Some(frame) = frames.next().await {
        let mut line = on_one_line(frame).chain(&b"\n"[..]);
        if stdin.write_all_buf(&mut line).await.is_err() {
            return;
        }
    }
    // Stdin stays open: its end would be a close.
    std::future::pending().await
}

/// Line ends in JSON text are white space, for within strings they are escaped.
fn on_one_line(frame: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &frame).is_none() {
        return frame;
    }
    let spaced = |byte: &u8| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            *byte
        }
    };
    frame.iter().map(spaced).collect()
}

async fn read(stdout: ChildStdout, link: Link, mut drained: Drained, _over: DropGuard) {
    let mut lines = Lines::new(stdout, MESSAGE_MAX, KEPT);
    loop {
        drained.note(&lines);
        let next = tokio::select! {
            next = lines.next() => next,
            () = drained.exited() => {
                drained.mark(&lines);
                continue;
            }
        };
        match next {
            Ok(Some(Line::Whole(line))) => link.received(line).await,
            Ok(Some(Line::Long { beginning, end })) => link.too_long(beginning, end).await,
            Ok(Some(Line::Unended(line))) => link.torn(&line).await,
            Ok(None) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_several_lines_becomes_one() {
        let frame = Bytes::from_static(b"{\r\n \"a\": 1\n}");
        assert_eq!(&on_one_line(frame)[..], b"{   \"a\": 1 }");
    }
}
