//! Piece by piece: reading a message, forwarding it, and what observing that costs.
#![allow(clippy::unwrap_used, reason = "a measurement fails loudly")]

use bytes::Bytes;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use tidegate::wire::jsonrpc::Message;

fn main() {
    divan::main();
}

const SIZES: [usize; 3] = [200, 65_536, 1 << 20];

fn call(size: usize) -> Bytes {
    let text = "x".repeat(size.saturating_sub(100));
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{text}"}}}}}}"#
    )
    .into()
}

#[divan::bench(args = SIZES)]
fn parse(bencher: Bencher<'_, '_>, size: usize) {
    let raw = call(size);
    bencher
        .counter(BytesCount::new(raw.len()))
        .bench(|| Message::parse(black_box(raw.clone())).is_ok());
}

/// Many small values, the other end from one long string.
#[divan::bench(args = SIZES)]
fn parse_dense(bencher: Bencher<'_, '_>, size: usize) {
    let numbers = vec!["{\"a\":1}"; size / 8].join(",");
    let raw: Bytes =
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{numbers}]}}}}"#).into();
    bencher
        .counter(BytesCount::new(raw.len()))
        .bench(|| Message::parse(black_box(raw.clone())).is_ok());
}

#[divan::bench(args = SIZES)]
fn replace_the_id(bencher: Bencher<'_, '_>, size: usize) {
    let message = Message::parse(call(size)).unwrap();
    bencher
        .counter(BytesCount::new(message.len()))
        .bench(|| black_box(&message).with_id(black_box("18446744073709551615")));
}

/// All that is observed of one forwarded call: it went, its answer came, it took so long. Target: 0.5 µs.
#[cfg(feature = "daemon")]
#[divan::bench]
fn observe_a_call(bencher: Bencher<'_, '_>) {
    use tidegate::engine::decision::{Class, Decision, Direction};
    use tidegate::observe::Observer;

    let observer = Observer::new("bench");
    let id = tidegate::ids::ServerId::new("s").unwrap();
    let server = observer.server(&id, "stdio", "auto");
    let carried = |direction, class| Decision::Carried { direction, class };
    let decisions = [
        carried(Direction::ToServer, Class::Request),
        carried(Direction::FromServer, Class::Response),
        Decision::Called {
            id: Some(1),
            method: "tools/call".into(),
            took: std::time::Duration::from_millis(3),
            error: None,
        },
    ];
    bencher.bench(|| {
        for decision in &decisions {
            server.decided(None, black_box(decision));
        }
    });
}

/// What tracing adds to a forwarded call: sampled (target: 4 µs), and left out by the sampler (target: 0.5 µs). Nobody
/// takes the spans, so most find the queue full.
#[cfg(feature = "daemon")]
#[divan::bench(args = [1.0, 0.0])]
fn trace_a_call(bencher: Bencher<'_, '_>, ratio: f64) {
    use std::time::{Duration, Instant};

    use tidegate::engine::decision::Decision;
    use tidegate::observe::Observer;
    use tidegate::observe::traces::{Protocol, Sampling, Settings};

    let settings = Settings {
        endpoint: "http://127.0.0.1:9/v1/traces".into(),
        protocol: Protocol::Http,
        headers: Vec::new(),
        timeout: Duration::from_secs(1),
        delay: Duration::from_secs(1),
        queue: 65_536,
        batch: 512,
        sampling: Sampling {
            ratio,
            parent_based: true,
        },
    };
    let observer = Observer::tracing("bench", &settings).unwrap();
    let id = tidegate::ids::ServerId::new("s").unwrap();
    let server = observer.server(&id, "stdio", "auto");
    let frame = call(200);
    let message = Message::parse(frame.clone()).unwrap();
    let called = Decision::Called {
        id: Some(1),
        method: "tools/call".into(),
        took: Duration::from_millis(3),
        error: None,
    };
    bencher.bench(|| {
        let now = Instant::now();
        server.received(now, black_box(&message));
        let sent = server.forwarded(now, 1, frame.clone());
        server.handled();
        server.decided(None, &called);
        sent
    });
}
