//! Runs the demo: starts the gateway in this process, attaches the host, kills the chat now and then, mends the crash
//! server when it has been down, and prints what the story says of it all.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval_at};

use super::account::{Account, Line, Tone};
use super::host::{Seen, Visit};
use super::plan::Plan;
use super::stage::{Sign, Stage};
use super::story::checks::check;
use super::story::{Event, Story, seconds};
use super::{Options, SERVERS};
use crate::app::{App, StartError};
use crate::config::{self, Config, Problem};
use crate::observe::events::{Subscription, Told};
use crate::observe::{Observer, log};

/// How much of what the host saw may wait to be told.
const SEEN_MAX: usize = 1024;
/// The longest page that is read, in bytes.
const PAGE_MAX: u64 = 4 << 20;
/// How long the last messages may take to the host.
const LAST_MESSAGES: Duration = Duration::from_secs(5);
/// Decisions are told in the account, so the log leaves them out.
const LOG: &str = "warn,tidegate::observe::log=off";

/// Why the demo cannot run.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot write the account, or use the temporary folder: {0}")]
    Io(#[from] io::Error),
    #[error("the demo's own configuration: {}", listed(.0))]
    Config(Vec<Problem>),
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    Start(#[from] StartError),
}

fn listed(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("{}: {}; ", problem.path, problem.message))
        .collect()
}

/// Runs the demo in a folder that goes again with it.
pub(super) async fn run(options: &Options) -> ExitCode {
    let held = in_a_folder(options).await;
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            let _ = Account::stdout().say(&format!("The demo cannot run: {failure}"));
            ExitCode::FAILURE
        }
    }
}

async fn in_a_folder(options: &Options) -> Result<bool, Failure> {
    let stage = Stage::create()?;
    let held = play(options, &stage).await;
    stage.remove()?;
    held
}

async fn play(options: &Options, stage: &Stage) -> Result<bool, Failure> {
    let plan = if options.fast {
        Plan::FAST
    } else {
        Plan::FRIENDLY
    };
    let config = configure(&plan, stage, options.lose)?;
    let observer = Observer::new(&config.name);
    let _log = log::init(false, LOG, &observer)?;
    let events = observer.events().subscribe(None);
    let app = App::start(config, observer).await?;
    let (mut show, mut hosts) = Show::begin(plan, stage, &app, events);
    let seen = show.run(options, &app).await;
    hosts.shutdown().await;
    let left = app.stop().await;
    Ok(show.close(&seen?, &left)?)
}

fn configure(plan: &Plan, stage: &Stage, lose: Option<u64>) -> Result<Config, Failure> {
    let file = stage.path().join("tidegate.yaml");
    std::fs::write(&file, plan.config(&std::env::current_exe()?, stage, lose))?;
    config::load(&file, &|name| std::env::var(name).ok()).map_err(Failure::Config)
}

/// What the operators' face answers to a GET.
async fn get(admin: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.take(PAGE_MAX).read_to_string(&mut text).await?;
    Ok(text)
}

/// Until the person at the terminal, or the system, has seen enough.
async fn interrupted(terminate: &mut unix::Signal) {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// What the end of the demo is judged by, beside the story.
struct Ending {
    watched: Watched,
    /// How many messages the chat sent.
    sent: u64,
    /// The text of `/metrics`.
    metrics: String,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// What was waited for came.
    Came,
    /// It did not come in time.
    Late,
    /// The person at the terminal has seen enough.
    Interrupted,
}

/// The running demo.
struct Show {
    plan: Plan,
    stage: Stage,
    begun: Instant,
    account: Account<io::Stdout>,
    story: Story,
    events: Subscription,
    seen: mpsc::Receiver<(&'static str, Seen)>,
    summaries: Interval,
    /// Kill the chat as soon as it is connected again, before its grant: once.
    kill_early: bool,
    /// The kills are over.
    at_peace: bool,
}

impl Show {
    /// Attaches the host to every server.
    fn begin(plan: Plan, stage: &Stage, app: &App, events: Subscription) -> (Self, JoinSet<()>) {
        let (tell, seen) = mpsc::channel(SEEN_MAX);
        let mut hosts = JoinSet::new();
        for server in SERVERS {
            let url = format!("ws://{}/mcpl/{server}", app.listen());
            let visit = Visit {
                server,
                url,
                every: plan.every,
                tell: tell.clone(),
            };
            hosts.spawn(visit.run());
        }
        let begun = Instant::now();
        let show = Self {
            plan,
            stage: stage.clone(),
            begun,
            account: Account::stdout(),
            story: Story::new(plan.lasting),
            events,
            seen,
            summaries: interval_at((begun + plan.report_every).into(), plan.report_every),
            kill_early: true,
            at_peace: false,
        };
        (show, hosts)
    }

    /// Everything up to the gateway's stop.
    async fn run(&mut self, options: &Options, app: &App) -> io::Result<Ending> {
        self.open(options.fast, app)?;
        let stay = options.stay.unwrap_or_default();
        let limit = self.plan.limit.max(stay + self.plan.lasting);
        let is_over = |show: &Self| show.story.is_cleared() && show.now() >= stay;
        let watched = self.watch(limit, is_over).await?;
        let sent = self.last_messages().await?;
        let metrics = get(app.admin(), "/metrics").await?;
        Ok(Ending {
            watched,
            sent,
            metrics,
        })
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn tell(&mut self, lines: impl IntoIterator<Item = Line>) -> io::Result<()> {
        let now = self.now();
        lines
            .into_iter()
            .try_for_each(|line| self.account.tell(now, &line))
    }

    /// Says what is about to be seen, and where to look.
    fn open(&mut self, fast: bool, app: &App) -> io::Result<()> {
        let Plan {
            interval,
            cap,
            lasting,
            every,
            ..
        } = self.plan;
        let [interval, cap, lasting, every] = [interval, cap, lasting, every].map(seconds);
        let (admin, listen) = (app.admin(), app.listen());
        let takes = if fast {
            "20 seconds"
        } else {
            "a minute (20 seconds with --fast)"
        };
        self.account.say(&format!(
            "\
Tidegate demo: a gateway, three servers, and a host that uses them through it.
It takes about {takes}; Ctrl-C ends it.

  steady  answers its tools
  crash   exits 300 ms after every handshake, until it is mended
  chat    a bridge with a message every {every}; killed with -9 now and then

The first wait is {interval}, the longest {cap}; a connection has lasted after {lasting}.
(Unless configured otherwise: 5 s, 300 s and 300 s.)

  Status page   http://{admin}/
  Metrics       http://{admin}/metrics
  Servers       http://{admin}/api/v1/servers
  Down, clear   http://{admin}/api/v1/events?kind=down,clear
  Hosts         ws://{listen}/mcpl/{{steady,crash,chat}}
"
        ))
    }

    /// Tells what happens until something has come.
    async fn watch(
        &mut self,
        limit: Duration,
        came: impl Fn(&Self) -> bool,
    ) -> io::Result<Watched> {
        let deadline = tokio::time::sleep_until((self.begun + limit).into());
        let mut terminate = unix::signal(unix::SignalKind::terminate())?;
        let interrupt = interrupted(&mut terminate);
        tokio::pin!(deadline, interrupt);
        while !came(self) {
            tokio::select! {
                told = self.events.next() => self.told(told).await?,
                Some((server, seen)) = self.seen.recv() => {
                    let line = self.story.saw(server, seen);
                    self.tell(line)?;
                }
                _ = self.summaries.tick() => {
                    let line = self.story.summary();
                    self.tell([line])?;
                }
                () = &mut deadline => return Ok(Watched::Late),
                () = &mut interrupt => return Ok(Watched::Interrupted),
            }
        }
        Ok(Watched::Came)
    }

    async fn told(&mut self, told: Told) -> io::Result<()> {
        let Told::Event(event) = told else {
            return Ok(());
        };
        let Ok(event) = serde_json::from_str::<Event>(&event.json) else {
            return Ok(());
        };
        let now = self.now();
        let lines = self.story.decided(now, &event);
        self.tell(lines)?;
        if self.story.is_time_to_mend(&event) {
            self.stage.put_up(Sign::Mended)?;
            let text = "mended now: its next process will stay up";
            self.tell([Line::new("crash", Tone::Plain, text)])?;
        }
        if event.is("chat", "lasted") {
            self.kill(false).await?;
        }
        let is_early = event.is("chat", "adopted") && self.story.kills() > 0;
        if is_early && std::mem::take(&mut self.kill_early) {
            self.kill(true).await?;
        }
        Ok(())
    }

    /// Kills the chat between two of its messages, unless it is gone already or the kills are over.
    async fn kill(&mut self, before_grant: bool) -> io::Result<()> {
        if self.at_peace {
            return Ok(());
        }
        let stage = self.stage.clone();
        let killed = tokio::task::spawn_blocking(move || {
            let ledger = stage.ledger()?;
            let killed = ledger
                .sender()
                .map(|sender| kill_process(sender, Signal::KILL));
            io::Result::Ok(matches!(killed, Some(Ok(()))).then_some(ledger.sent()))
        });
        let sent = killed.await.map_err(io::Error::other)??;
        let line = sent.map(|sent| self.story.killed(sent, before_grant));
        self.tell(line)
    }

    /// Lets the chat send no more, and waits for what it has sent. Says how many messages that are.
    async fn last_messages(&mut self) -> io::Result<u64> {
        self.at_peace = true;
        self.stage.put_up(Sign::Quiet)?;
        let stage = self.stage.clone();
        let ledger = tokio::task::spawn_blocking(move || stage.ledger());
        let sent = ledger.await.map_err(io::Error::other)??.sent();
        let limit = self.now() + LAST_MESSAGES;
        self.watch(limit, |show| show.story.received() >= sent)
            .await?;
        Ok(sent)
    }

    /// The table of what held; whether all of it did.
    fn close(mut self, ending: &Ending, left: &[u32]) -> io::Result<bool> {
        self.account.say(match ending.watched {
            Watched::Came => "",
            Watched::Late => "\nIt took too long, so this is what there is.\n",
            Watched::Interrupted => "\nInterrupted, so this is what there is.\n",
        })?;
        let stopped = "the gateway stopped and left no process";
        let stopped = check(left.is_empty(), stopped.into(), || {
            format!("processes are left: {left:?}")
        });
        let mut checks = self.story.checks(ending.sent, &ending.metrics);
        checks.push(stopped);
        for check in &checks {
            self.account.verdict(check.held, &check.text)?;
        }
        let held = checks.iter().all(|check| check.held);
        self.account.say(match held {
            true => "\nAll of it held. With servers of your own: tidegate run --config FILE",
            false => "\nNot all of it held.",
        })?;
        Ok(held)
    }
}
