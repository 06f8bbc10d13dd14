//! Nothing is left behind, counted in a process of its own.

use tidegate::engine::input::Reap;

use crate::dialed::{Dialed, child, is_alone};

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

#[tokio::test]
async fn fifty_launches_leave_no_process_and_no_descriptor() {
    if !is_alone(
        "leaks::fifty_launches_leave_no_process_and_no_descriptor",
        &[],
    ) {
        return;
    }
    launch("--grandchild").await;
    let before = descriptors();
    for round in 0..50 {
        launch(if round % 10 == 0 { "--grandchild" } else { "" }).await;
    }
    assert_eq!(descriptors(), before);
    assert_eq!(children(), 0);
}
