//! One dialed transport, and what it tells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use serde_json::{Value, json};
use tidegate::engine::input::{End, LinkEvent, Loss, Reap};
use tidegate::ids::Epoch;
use tidegate::transport::settings::{Settings, Stdio};
use tidegate::transport::{Frame, LAUNCHES_MAX, dial};
use tidegate::wire::jsonrpc::{Kind, Message};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes: a test that waits for it fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn faultd() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().nth(2).unwrap().join("examples/faultd");
    assert!(
        found.exists(),
        "build it first: cargo build --example faultd"
    );
    found
}

/// A child process's settings; the flags are `faultd`'s, split at spaces.
pub(crate) fn child(flags: &str) -> Stdio {
    tidegate::transport::become_subreaper().unwrap();
    Stdio {
        command: faultd().to_str().unwrap().into(),
        args: flags.split_ascii_whitespace().map(String::from).collect(),
        cwd: None,
        env: BTreeMap::new(),
        inherit_env: false,
        secrets: Vec::new(),
    }
}

/// Whether this test has its process to itself. Where it has not, runs it so, with more variables, and passes if that
/// passed.
pub(crate) fn is_alone(test: &str, variables: &[(&str, &str)]) -> bool {
    const ALONE: &str = "TIDEGATE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["--exact", test])
        .env(ALONE, "1")
        .envs(variables.iter().copied());
    let run = this.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// What comes of it, which it must do soon.
pub(crate) async fn soon<T>(it: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, it).await;
    done.expect("nothing comes of it")
}

pub(crate) fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

pub(crate) struct Dialed {
    events: mpsc::Receiver<(Epoch, LinkEvent)>,
    frames: Option<mpsc::Sender<Bytes>>,
    pub(crate) close: CancellationToken,
    /// Stderr lines that were passed over.
    pub(crate) stderr: Vec<String>,
}

impl Dialed {
    pub(crate) fn stdio(settings: Stdio) -> Self {
        Self::new(&Settings::Stdio(Arc::new(settings)))
    }

    pub(crate) fn new(settings: &Settings) -> Self {
        let (tell, events) = mpsc::channel(64);
        let (frames, queued) = mpsc::channel::<Bytes>(1024);
        let close = CancellationToken::new();
        let queued = futures_util::stream::unfold(queued, async |mut queued| {
            let bytes = queued.recv().await?;
            let request = Message::parse(bytes.clone()).ok();
            let request = request.filter(|message| message.kind() == Kind::Request);
            let request = request.and_then(|message| message.our_id());
            Some((Frame::new(bytes, request), queued))
        });
        let slots = Arc::new(Semaphore::new(LAUNCHES_MAX));
        dial(
            settings,
            Epoch(7),
            tell,
            Box::pin(queued),
            close.clone(),
            slots,
        );
        Self {
            events,
            frames: Some(frames),
            close,
            stderr: Vec::new(),
        }
    }

    pub(crate) async fn send(&self, message: Value) {
        let frames = self.frames.as_ref().unwrap();
        soon(frames.send(message.to_string().into())).await.unwrap();
    }

    /// Queues a frame where there is room.
    pub(crate) fn try_send(&self, frame: Bytes) -> bool {
        self.frames.as_ref().unwrap().try_send(frame).is_ok()
    }

    pub(crate) fn end_frames(&mut self) {
        self.frames = None;
    }

    pub(crate) async fn event(&mut self) -> LinkEvent {
        let next = tokio::time::timeout(PATIENCE, self.events.recv()).await;
        let (epoch, event) = next
            .expect("nothing more is told")
            .expect("the transport went silently");
        assert_eq!(epoch, Epoch(7));
        event
    }

    /// The next event that is no stderr line and no secret.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        loop {
            match self.event().await {
                LinkEvent::Stderr(line) => self.stderr.push(line),
                LinkEvent::Secrets(_) => {}
                event => return event,
            }
        }
    }

    pub(crate) async fn connected(&mut self) {
        let event = self.next().await;
        assert!(matches!(event, LinkEvent::Connected), "{event:?}");
    }

    /// The next message, as JSON.
    pub(crate) async fn message(&mut self) -> Value {
        match self.next().await {
            LinkEvent::Received(message) => serde_json::from_slice(message.raw()).unwrap(),
            event => panic!("{event:?}"),
        }
    }

    /// The answer to a request of ours, whatever else comes before.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            if let LinkEvent::Received(message) = self.next().await
                && message.our_id() == Some(id)
            {
                return serde_json::from_slice(message.raw()).unwrap();
            }
        }
    }

    /// The loss, whatever comes before.
    pub(crate) async fn loss(&mut self) -> Loss {
        loop {
            match self.next().await {
                LinkEvent::Lost(loss) => return loss,
                LinkEvent::Failed(failure) => panic!("{failure:?}"),
                LinkEvent::Gone(_) => panic!("gone before it was lost"),
                _ => {}
            }
        }
    }

    /// The verdict, whatever comes before; after it nothing more.
    pub(crate) async fn gone(&mut self) -> Reap {
        loop {
            if let LinkEvent::Gone(reap) = self.next().await {
                let more = soon(self.events.recv()).await;
                assert!(more.is_none(), "told after the end: {more:?}");
                return reap;
            }
        }
    }

    /// `initialize` and `notifications/initialized`, with the answer.
    pub(crate) async fn handshake(&mut self) -> Value {
        self.connected().await;
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}});
        self.send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
            .await;
        let answer = self.answer(0).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        answer
    }

    pub(crate) async fn call(&mut self, id: u64, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await;
    }

    pub(crate) async fn close_and_wait(mut self) -> Reap {
        self.close.cancel();
        let loss = self.loss().await;
        assert_eq!(loss.end, End::Operator);
        self.gone().await
    }
}
