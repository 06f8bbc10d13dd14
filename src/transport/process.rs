//! Child processes: each leads a session of its own, and is ended with everything that descends from it. Never waits
//! for "any child": that would take the statuses that others wait for.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};

use super::procfs::{self, Launch, MARK, Row};
use crate::engine::input::{End, Reap};

/// From the end of stdin to SIGTERM, from there to SIGKILL, and from there to the verdict.
const STDIN_WAIT: Duration = Duration::from_secs(1);
const TERM_WAIT: Duration = Duration::from_secs(2);
const KILL_WAIT: Duration = Duration::from_secs(2);
/// While a process that SIGKILL was sent to is waited for, so often the table is read again for new ones.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// A program that is being written cannot be started (ETXTBSY); so often, and after so long, it is tried again.
const BUSY_TRIES: u32 = 5;
const BUSY_WAIT: Duration = Duration::from_millis(20);
/// Orphans that exited are waited for at most so often.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Our direct children that somebody waits for.
static OWNED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// Held shared by each launch until its child is entered, so that nobody takes it for an orphan.
static LAUNCHING: RwLock<()> = RwLock::new(());

fn owned() -> MutexGuard<'static, BTreeSet<u32>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes orphaned grandchildren come to this process, so that they can be found and ended. Called once, by `main`.
///
/// # Errors
/// The kernel's (Linux 3.4 and later has none).
pub fn become_subreaper() -> io::Result<()> {
    process::set_child_subreaper(Some(process::getpid()))?;
    Ok(())
}

/// Ends every process that descends from this one at once, whoever made it: all are servers', for none else is started.
pub fn kill_descendants() {
    let us = std::process::id();
    for pid in procfs::descendants(us, &procfs::table()) {
        let _ = pid_of(pid).map(|pid| process::kill_process(pid, Signal::KILL));
    }
}

/// Waits for orphans that exited, so that they do not pile up. Runs for the life of the process.
pub async fn reap_orphans() {
    let Ok(mut child_ended) = signal(SignalKind::child()) else {
        return;
    };
    while child_ended.recv().await.is_some() {
        // No further signal need come: what a launch put off is done after it.
        let mut put_off = true;
        while put_off {
            tokio::time::sleep(REAP_EVERY).await;
            let reaped = tokio::task::spawn_blocking(reap_dead_orphans).await;
            put_off = reaped.is_ok_and(|reaped| reaped == Reaped::PutOff);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Reaped {
    All,
    /// A launch was under way, and its child might have been taken for an orphan.
    PutOff,
}

/// Orphans lead sessions that servers made or are in them; whatever else this process started is in its own.
fn reap_dead_orphans() -> Reaped {
    let us = std::process::id();
    // Read from the table too: in a pid namespace its leader may be out of sight, and our session is then 0.
    let ours = Row::of(us).map(|row| row.session);
    let Ok(_no_launch_is_under_way) = LAUNCHING.try_write() else {
        return Reaped::PutOff;
    };
    let (table, owned) = (procfs::table(), owned());
    let orphan =
        |row: &&Row| row.parent == us && Some(row.session) != ours && !owned.contains(&row.pid);
    for row in table.iter().filter(|row| row.dead).filter(orphan) {
        wait_for(row.pid);
    }
    Reaped::All
}

/// Takes the status of one dead child of ours; anything else is left alone.
fn wait_for(pid: u32) {
    if let Some(pid) = pid_of(pid) {
        let _ = process::waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

fn pid_of(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// A child and all that descends from it.
#[derive(Debug)]
pub(super) struct Family {
    child: Box<dyn ChildWrapper>,
    launch: Launch,
    end: Option<End>,
    /// What was found beside the child: it stays known when its parent is gone and it bears no mark.
    known: Vec<Row>,
}

impl Drop for Family {
    /// One that was not ended is killed as far as its group goes, e.g. where its task is dropped.
    fn drop(&mut self) {
        if self.end.is_none() {
            self.signal_group(Signal::KILL);
            owned().remove(&self.launch.leader);
        }
    }
}

impl Family {
    /// The child's three pipes; each can be taken once.
    pub(super) fn pipes(
        &mut self,
    ) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (
            self.child.stdin().take(),
            self.child.stdout().take(),
            self.child.stderr().take(),
        )
    }

    /// Waits for the child itself. May be dropped and called again.
    pub(super) async fn exited(&mut self) -> End {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let end = match self.child.wait().await {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exit(code),
                (None, signal) => End::Signal(signal.unwrap_or(0)),
            },
            Err(error) => End::Reset(format!("its exit status is unknown: {error}")),
        };
        owned().remove(&self.launch.leader);
        self.end.insert(end).clone()
    }

    /// Ends what is left of it, once its stdin is closed: a wait, SIGTERM to the group, SIGKILL to the group and to all
    /// descendants; at most 5 s. Where the child has exited by itself, its descendants get both signals.
    pub(super) async fn end(&mut self) -> Reap {
        let _ = timeout(STDIN_WAIT, self.exited()).await;
        for (signal, wait) in [(Signal::TERM, TERM_WAIT), (Signal::KILL, KILL_WAIT)] {
            if self.ends_with(signal, Instant::now() + wait).await {
                return Reap::Clean;
            }
        }
        let left = self.others().await;
        let leader = self.end.is_none().then_some(self.launch.leader);
        let pids = leader
            .into_iter()
            .chain(left.iter().map(|other| other.row.pid))
            .collect();
        Reap::Unreapable { pids }
    }

    /// Sends a signal to all of it, and says whether all of it was gone in time.
    async fn ends_with(&mut self, signal: Signal, until: Instant) -> bool {
        let group_told = self.end.is_none();
        if group_told {
            self.remember().await;
            self.signal_group(signal);
        }
        // While its leader lives, it is the leader who passes SIGTERM on to what left the group.
        if signal == Signal::TERM && timeout_at(until, self.exited()).await.is_err() {
            return false;
        }
        let mut told: BTreeSet<(u32, u64)> = BTreeSet::new();
        loop {
            let others = self.others().await;
            if others.is_empty() && self.end.is_some() {
                return true;
            }
            for Other { row, handle } in &others {
                let told_by_group = group_told && row.group == self.launch.leader;
                if told.insert((row.pid, row.started)) && !told_by_group {
                    let _ = process::pidfd_send_signal(handle, signal);
                }
            }
            if Instant::now() >= until {
                return false;
            }
            self.any_exits(others).await;
        }
    }

    /// Only while the leader is not waited for: then its number is nobody else's.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = pid_of(self.launch.leader) {
            let _ = process::kill_process_group(group, signal);
        }
    }

    /// Waits until one of what is left exits, at most [`SWEEP_EVERY`].
    async fn any_exits(&mut self, others: Vec<Other>) {
        if others.is_empty() {
            let _ = timeout(SWEEP_EVERY, self.exited()).await;
            return;
        }
        let waited = tokio::task::spawn_blocking(move || wait_for_any(&others));
        if self.end.is_some() {
            let _ = waited.await;
            return;
        }
        tokio::select! {
            _ = self.exited() => {}
            _ = waited => {}
        }
    }

    /// Notes who descends from the child while it lives.
    pub(super) async fn remember(&mut self) {
        if self.end.is_none() {
            self.others().await;
        }
    }

    /// What lives beside the child. Waits for those that are dead and came to us.
    async fn others(&mut self) -> Vec<Other> {
        let (launch, known) = (self.launch.clone(), self.known.clone());
        let search = tokio::task::spawn_blocking(move || launch_others(&launch, &known));
        let (rows, living) = search.await.unwrap_or_default();
        self.known = rows;
        living
    }
}

/// A process of a family beside the child. Its handle becomes readable when it exits.
#[derive(Debug)]
struct Other {
    row: Row,
    handle: OwnedFd,
}

impl Other {
    /// `None` where the pid is by now another process's or nobody's.
    fn of(row: Row) -> Option<Self> {
        let handle = process::pidfd_open(pid_of(row.pid)?, PidfdFlags::empty()).ok()?;
        let same = Row::of(row.pid).is_some_and(|now| now.started == row.started && !now.dead);
        same.then_some(Self { row, handle })
    }
}

/// All that belong to a launch beside its leader, and handles of those that live.
fn launch_others(launch: &Launch, known: &[Row]) -> (Vec<Row>, Vec<Other>) {
    let us = std::process::id();
    let owned = owned().clone();
    let found = launch.others(us, &owned, known, &procfs::table());
    for row in found.iter().filter(|row| row.dead && row.parent == us) {
        wait_for(row.pid);
    }
    let living = found.iter().filter(|row| !row.dead).cloned();
    let living = living.filter_map(Other::of).collect();
    (found, living)
}

fn wait_for_any(others: &[Other]) {
    let mut handles: Vec<PollFd<'_>> = others
        .iter()
        .map(|other| PollFd::new(&other.handle, PollFlags::IN))
        .collect();
    let within = Timespec::try_from(SWEEP_EVERY).ok();
    let _ = poll(&mut handles, within.as_ref());
}

/// Starts a command as the leader of a session of its own, away from the async threads.
///
/// # Errors
/// Why it cannot be started.
pub(super) async fn spawn(
    command: impl Fn() -> Command + Send + Sync + 'static,
) -> io::Result<Family> {
    let command = Arc::new(command);
    for _ in 0..BUSY_TRIES {
        let command = Arc::clone(&command);
        let started = tokio::task::spawn_blocking(move || start(command())).await;
        let started = started.map_err(io::Error::other)?;
        if !started
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::ExecutableFileBusy)
        {
            return started;
        }
        tokio::time::sleep(BUSY_WAIT).await;
    }
    Err(io::ErrorKind::ExecutableFileBusy.into())
}

fn start(mut command: Command) -> io::Result<Family> {
    static LAUNCHES: AtomicU64 = AtomicU64::new(1);
    let mark = format!("{}-{}", boot(), LAUNCHES.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark).kill_on_drop(true);
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessSession);
    let _launching = LAUNCHING.read().unwrap_or_else(PoisonError::into_inner);
    // The wrapper's own `wait` is for the group; ours is for the child alone.
    let child = command.spawn()?.into_inner();
    let leader = child.id().unwrap_or(0);
    owned().insert(leader);
    Ok(Family {
        child,
        launch: Launch { leader, mark },
        end: None,
        known: Vec::new(),
    })
}

/// Tells this run of the gateway's marks from those of another one.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| format!("{:016x}", fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_puts_the_reaping_of_orphans_off() {
        let _launching = LAUNCHING.read().unwrap();
        assert!(reap_dead_orphans() == Reaped::PutOff);
    }
}
