//! What a receiver of traces that is no use costs the calls and the memory of the gateway: every call is traced.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::Line;
use crate::gateway::{
    Gateway, client_times, free_address, get, peer, percentile, resident_mebibytes,
};

const CALLS: usize = 10_000;
/// As often again, once its queue of spans is full.
const ROUNDS: usize = 4;

/// What a receiver does with one connection.
type Manner = fn(TcpStream);

/// The worst of a receiver that is not there, one that never answers and one that answers with a page.
pub(crate) fn collector() -> Vec<Line> {
    let silent = |mut stream: TcpStream| drop(stream.read_to_end(&mut Vec::new()));
    let costs = [
        cost(&free_address()),
        cost(&receiver(silent)),
        cost(&receiver(answer_with_a_page)),
    ];
    let worst = |of: fn(&Cost) -> f64| costs.iter().map(of).fold(f64::MIN, f64::max);
    let line = |name, unit, value, target| Line {
        name,
        unit,
        value,
        target,
        floor: None,
        more: false,
    };
    vec![
        line(
            "p99 that a useless collector adds to traced calls",
            "ms",
            worst(|cost| cost.added),
            2.0,
        ),
        line(
            "memory that 40,000 such calls add",
            "MiB",
            worst(|cost| cost.grown),
            1.0,
        ),
    ]
}

struct Cost {
    /// To the p99 of a call, in milliseconds.
    added: f64,
    /// In MiB, after the queue of spans was full.
    grown: f64,
}

fn cost(receiver: &str) -> Cost {
    let echo = free_address();
    let _echo = peer(&["role:echo", &echo], false);
    let servers = format!("  echo: {{ url: \"ws://{echo}\" }}\n");
    let p99 = |gateway: &Gateway| percentile(&client_times(&gateway.url("echo"), 200, CALLS), 0.99);
    let untraced = p99(&Gateway::start(&servers, false));
    let gateway = Gateway::traced(&servers, &format!("http://{receiver}"));
    let traced = p99(&gateway);
    let pid = gateway.process.0.id();
    let full = resident_mebibytes(pid);
    for _ in 0..ROUNDS {
        p99(&gateway);
    }
    let grown = resident_mebibytes(pid) - full;
    let page = get(&gateway.admin, "/metrics");
    let dropped = page
        .lines()
        .filter(|line| line.starts_with("tidegate_telemetry_dropped_total{"))
        .any(|line| line.contains("traces") && !line.ends_with(" 0"));
    assert!(dropped, "no span was counted as dropped");
    Cost {
        added: (traced - untraced) / 1e3,
        grown,
    }
}

/// Where a receiver of this manner listens, for the life of the process.
fn receiver(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || manner(stream));
        }
    });
    address
}

/// To whatever is asked, as a proxy in front of nothing does.
fn answer_with_a_page(mut stream: TcpStream) {
    let mut some = [0; 64 << 10];
    while stream.read(&mut some).is_ok_and(|read| read > 0) {
        let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
        if stream.write_all(page.as_bytes()).is_err() {
            return;
        }
    }
}
