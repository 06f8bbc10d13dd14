//! Processes as the system sees them.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

pub(crate) fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Lets it do nothing more until it is killed.
pub(crate) fn stop(pid: u32) {
    signal(pid, Signal::STOP);
}

/// The child of this process with that word on its command line.
pub(crate) fn child_running(parent: u32, word: &str) -> u32 {
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let child = children(parent)
        .into_iter()
        .find(|pid| line(pid).contains(word));
    child.unwrap_or_else(|| panic!("no child runs {word}"))
}

/// The system lists them by the thread that launched them.
fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).unwrap();
    let files = threads.map(|thread| thread.unwrap().path().join("children"));
    let lists: String = files
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    lists
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Whether it runs; one that has ended and was not waited for does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// The launches in a file of `faultd --log`: unix milliseconds and process id.
pub(crate) fn launches(log: &Path) -> Vec<(u64, u32)> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let (at, pid) = line.split_once(' ').unwrap();
        (at.parse().unwrap(), pid.parse().unwrap())
    });
    lines.collect()
}
