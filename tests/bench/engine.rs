//! The pure layers, piece by piece: reading a message, forwarding it, and what an engine costs.
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
