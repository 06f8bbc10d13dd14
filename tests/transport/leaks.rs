//! Nothing is left behind, counted in a process of its own.

use std::process::Command;

use tidegate::engine::input::Reap;

use crate::dialed::{Dialed, child};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of this process, dead ones included.
fn children() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    threads
        .flat_map(of)
        .map(|pids| pids.split_ascii_whitespace().count())
        .sum()
}

async fn launch(flags: &str) {
    let mut server = Dialed::stdio(child(flags));
    server.handshake().await;
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

/// Set where this test runs with the process to itself.
const ALONE: &str = "TIDEGATE_TEST_ALONE";

#[tokio::test]
async fn fifty_launches_leave_no_process_and_no_descriptor() {
    if std::env::var_os(ALONE).is_none() {
        return run_alone();
    }
    launch("--grandchild").await;
    let before = descriptors();
    for round in 0..50 {
        launch(if round % 10 == 0 { "--grandchild" } else { "" }).await;
    }
    assert_eq!(descriptors(), before);
    assert_eq!(children(), 0);
}

fn run_alone() {
    let mut this = Command::new(std::env::current_exe().unwrap());
    let name = "leaks::fifty_launches_leave_no_process_and_no_descriptor";
    let run = this
        .args(["--exact", name])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}
