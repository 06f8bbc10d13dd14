//! The bridge's world: stdin and stdout, the connection, the clock. Each way is bounded in bytes and held back by
//! itself, so that a host that reads nothing grows no memory and still may write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use tokio::io::{AsyncWriteExt, Stdin};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, Output};
use crate::engine::input::{LinkEvent, Moment};
use crate::ids::Epoch;
use crate::transport::lines::{Line, Lines};
use crate::transport::settings::{Settings, WebSocket};
use crate::transport::{self, Frame, LAUNCHES_MAX};
use crate::wire::beginning::about_ends;
use crate::wire::framing::MESSAGE_MAX;
use crate::wire::jsonrpc::{Message, Unreadable};
use crate::wire::redact::escaped;

/// With so many bytes for the host, the gateway is read no further.
const TO_HOST_MAX: usize = 8 << 20;
/// With so many, the host itself is read no further, for each of its lines may be answered by one of ours.
const TO_HOST_WITH_OURS_MAX: usize = 2 * TO_HOST_MAX;
/// With so many bytes for the gateway, the host is read no further.
const TO_GATEWAY_MAX: usize = 1 << 20;
/// How much of a line that is too long is searched for its id.
const BEGINNING: usize = 64 << 10;
/// How many bytes go to stdout in one write, where they are there.
const WRITE: usize = 64 << 10;
/// How long the last messages may take, to stdout and to the gateway.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Lines for stderr that wait for a reader; more are dropped.
const SAYINGS_MAX: usize = 64;

type Events = mpsc::Receiver<(Epoch, LinkEvent)>;

/// Bridges until the host has closed our stdin, or reads us no more.
pub(super) async fn run(server: &str, place: WebSocket) {
    let (events, told) = mpsc::channel(1);
    let to = format!("connecting to {}", place.url);
    let world = World {
        bridge: Bridge::new(server, fastrand::u64(..), moment()),
        voice: voice(server),
        place: Settings::WebSocket(Arc::new(place)),
        launches: Arc::new(Semaphore::new(LAUNCHES_MAX)),
        events,
        connection: None,
        to_gateway: Queue::default(),
        to_host: Queue::default(),
    };
    let _ = world.voice.try_send(to);
    world.run(told).await;
}

/// What waits to be written, and how much it is.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    /// Several short ones as the lines that they become, or one long one.
    fn lines(&mut self) -> Bytes {
        let mut lines = BytesMut::new();
        while let Some(frame) = self.pop() {
            lines.reserve(frame.len() + 1);
            lines.put(frame);
            lines.put_u8(b'\n');
            if lines.len() >= WRITE {
                break;
            }
        }
        lines.freeze()
    }
}

/// One connection, or the dial that may make one.
#[derive(Debug)]
struct Connection {
    jobs: mpsc::Sender<Job>,
    close: CancellationToken,
}

/// For the task that writes to the gateway.
#[derive(Debug)]
enum Job {
    /// Send it.
    Frame(Bytes),
    /// Say that what came before is sent.
    Flushed(oneshot::Sender<()>),
}

struct World {
    bridge: Bridge,
    voice: SyncSender<String>,
    place: Settings,
    launches: Arc<Semaphore>,
    events: transport::Events,
    connection: Option<Connection>,
    to_gateway: Queue,
    to_host: Queue,
}

impl World {
    async fn run(mut self, mut told: Events) {
        let mut lines = Lines::new(tokio::io::stdin(), MESSAGE_MAX, BEGINNING);
        let (stdout, writer) = stdout();
        let mut host_ended = false;
        while self.carry_out() {
            let reads = !host_ended && self.reads_host();
            let due = self.bridge.due().map(Instant::from_std);
            tokio::select! {
                line = next(&mut lines), if reads => match line {
                    Some(line) => self.bridge.host_said(line, moment()),
                    None => {
                        host_ended = true;
                        self.bridge.host_ended(moment());
                    }
                },
                Some((epoch, event)) = told.recv(), if self.to_host.bytes < TO_HOST_MAX => {
                    self.bridge.link(epoch, event, moment());
                }
                // The end of a connection is told by its events.
                Some(room) = room(self.connection.as_ref()), if self.to_gateway.bytes > 0 => {
                    if let Some(frame) = self.to_gateway.pop() {
                        room.send(Job::Frame(frame));
                    }
                }
                room = stdout.reserve(), if self.to_host.bytes > 0 => match room {
                    Ok(room) => room.send(self.to_host.lines()),
                    // The host reads us no more.
                    Err(_) => break,
                },
                () = stdout.closed() => break,
                () = until(due) => self.bridge.wake(moment()),
            }
        }
        self.finish(told, stdout, writer).await;
    }

    fn reads_host(&self) -> bool {
        self.bridge.takes_lines()
            && self.to_gateway.bytes < TO_GATEWAY_MAX
            && self.to_host.bytes < TO_HOST_WITH_OURS_MAX
    }

    /// Does what the bridge asks for; `false` where that is to finish.
    fn carry_out(&mut self) -> bool {
        while let Some(output) = self.bridge.next() {
            match output {
                Output::Host(frame) => self.to_host.push(frame),
                Output::Gateway(frame) => self.to_gateway.push(frame),
                Output::Dial(epoch) => self.dial(epoch),
                Output::Close => self.close(),
                // Where nobody reads stderr, there is nobody to tell.
                Output::Say(text) => drop(self.voice.try_send(text)),
                Output::Finish => return false,
            }
        }
        true
    }

    fn dial(&mut self, epoch: Epoch) {
        self.close();
        let (jobs, to_do) = mpsc::channel(1);
        let close = CancellationToken::new();
        transport::dial(
            &self.place,
            epoch,
            self.events.clone(),
            Box::pin(stream::unfold(to_do, next_frame)),
            close.clone(),
            Arc::clone(&self.launches),
        );
        self.connection = Some(Connection { jobs, close });
    }

    /// What was not sent on a connection is sent on no other.
    fn close(&mut self) {
        self.to_gateway = Queue::default();
        if let Some(connection) = self.connection.take() {
            connection.close.cancel();
        }
    }

    /// Writes what is left, to the gateway and to the host, and closes the connection.
    async fn finish(mut self, told: Events, stdout: mpsc::Sender<Bytes>, writer: JoinHandle<()>) {
        let to_host = async {
            while self.to_host.bytes > 0 && stdout.send(self.to_host.lines()).await.is_ok() {}
            drop(stdout);
            let _ = writer.await;
        };
        let to_gateway = async {
            if let Some(connection) = self.connection.take() {
                connection.finish(self.to_gateway, told).await;
            }
        };
        let last = async { tokio::join!(to_host, to_gateway) };
        let _ = timeout(LAST_WORDS, last).await;
    }
}

impl Connection {
    /// Sends what is left and closes.
    async fn finish(self, mut left: Queue, mut told: Events) {
        while let Some(frame) = left.pop() {
            let _ = self.jobs.send(Job::Frame(frame)).await;
        }
        let (flushed, is_flushed) = oneshot::channel();
        let _ = self.jobs.send(Job::Flushed(flushed)).await;
        // What the gateway says by now is for nobody, and must not keep it from reading.
        let flushing = async { while told.recv().await.is_some() {} };
        tokio::select! {
            _ = is_flushed => {}
            () = flushing => {}
        }
        self.close.cancel();
        while let Some((_, event)) = told.recv().await {
            if matches!(event, LinkEvent::Gone(_)) {
                return;
            }
        }
    }
}

/// Room for one more frame; `None` where nobody sends any.
async fn room(connection: Option<&Connection>) -> Option<mpsc::Permit<'_, Job>> {
    connection?.jobs.reserve().await.ok()
}

/// The next frame of a connection. Asked for when the one before is sent.
async fn next_frame(mut jobs: mpsc::Receiver<Job>) -> Option<(Frame, mpsc::Receiver<Job>)> {
    loop {
        match jobs.recv().await? {
            Job::Frame(bytes) => {
                // A WebSocket's frames need no ids.
                let request = None;
                return Some((Frame::new(bytes, request), jobs));
            }
            Job::Flushed(tell) => drop(tell.send(())),
        }
    }
}

/// The next line of the host, read; `None` at the end of stdin. It may be dropped at any point.
async fn next(lines: &mut Lines<Stdin>) -> Option<Result<Message, Unreadable>> {
    loop {
        // A stdin that cannot be read has ended.
        return Some(match lines.next().await.ok()?? {
            Line::Whole(line) | Line::Unended(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) | Line::Unended(line) => Message::parse(line),
            Line::Long { beginning, end } => Err(Unreadable::TooLong {
                limit: MESSAGE_MAX,
                about: about_ends(&beginning, &end),
            }),
        });
    }
}

/// The task that writes to the host. It ends when nothing more can come, or when the host reads no more.
fn stdout() -> (mpsc::Sender<Bytes>, JoinHandle<()>) {
    let (lines, mut to_write) = mpsc::channel::<Bytes>(1);
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(lines) = to_write.recv().await {
            if stdout.write_all(&lines).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    (lines, writer)
}

/// A thread that writes to stderr, so that a host that does not read it holds up nothing.
#[expect(clippy::print_stderr, reason = "the command line's own voice")]
fn voice(server: &str) -> SyncSender<String> {
    let (sayings, said) = sync_channel::<String>(SAYINGS_MAX);
    let who = format!("tidegate connect {server}");
    std::thread::spawn(move || {
        for text in said {
            eprintln!("{who}: {}", escaped(&text));
        }
    });
    sayings
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn moment() -> Moment {
    Moment {
        now: Instant::now().into_std(),
        jitter: fastrand::f64().mul_add(2.0, -1.0),
    }
}
