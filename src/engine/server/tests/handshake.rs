//! What crosses a connection before it serves, and after it is lost.

use super::*;

fn connecting() -> Sim {
    let mut sim = Sim::started(defaults());
    sim.take();
    sim.link(LinkEvent::Connected);
    sim
}

#[test]
fn initialize_is_the_first_message_and_initialized_follows_its_answer() {
    let mut sim = connecting();
    let sent = sim.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(message(&sent[0]).method(), "initialize");
    sim.receive(ANSWER);
    let sent = sim.sent();
    assert_eq!(
        sent[0],
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
    );
}

#[test]
fn a_ping_before_the_answer_is_answered_at_once() {
    let mut sim = connecting();
    sim.take();
    sim.receive(r#"{"jsonrpc":"2.0","id":"p\u0031","method":"ping"}"#);
    assert_eq!(
        sim.sent(),
        [r#"{"jsonrpc":"2.0","id":"p\u0031","result":{}}"#]
    );
}

#[test]
fn a2_an_answer_to_a_request_that_was_not_sent_is_dropped() {
    let mut sim = connecting();
    sim.take();
    sim.receive(r#"{"jsonrpc":"2.0","id":1,"result":{"accepted":true}}"#);
    assert_eq!(sim.told(&["dropped"]), ["dropped 1 × message: unmatched"]);
    assert!(!sim.view().connected);
}

#[test]
fn g4_more_than_can_be_held_before_the_answer_is_refused_or_dropped() {
    let mut sim = connecting();
    for _ in 0..1000 {
        sim.receive(r#"{"jsonrpc":"2.0","method":"channels/changed","params":{}}"#);
    }
    sim.take();
    sim.receive(r#"{"jsonrpc":"2.0","method":"channels/changed","params":{}}"#);
    assert_eq!(
        sim.told(&["dropped"]),
        ["dropped 1 × channels/changed: held_full"]
    );
    sim.receive(r#"{"jsonrpc":"2.0","id":7,"method":"push/event","params":{}}"#);
    let sent = sim.sent();
    assert!(sent[0].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"#));
}

#[test]
fn g7_after_a_loss_nothing_is_answered_and_no_answer_makes_a_connection() {
    let mut sim = connecting();
    sim.link(LinkEvent::Lost(exit(1)));
    sim.take();
    sim.receive(ANSWER);
    sim.receive(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    sim.link(LinkEvent::Unreadable {
        what: Unreadable::Batch(Vec::new()),
        sample: "[]".into(),
    });
    let outputs = sim.take();
    let sends = |output: &&Output| matches!(output, Output::Send { .. });
    assert_eq!(outputs.iter().filter(sends).count(), 0);
    assert!(!sim.view().connected);
}

#[test]
fn what_is_tagged_with_another_epoch_changes_nothing() {
    let mut sim = Sim::connected(defaults());
    sim.lose(exit(1));
    sim.until_dial();
    sim.take();
    for epoch in [Epoch(0), Epoch(1), Epoch(3)] {
        for event in [
            LinkEvent::Connected,
            LinkEvent::Received(message(ANSWER)),
            LinkEvent::Failed(failure(Outcome::Auth)),
            LinkEvent::Lost(exit(1)),
            LinkEvent::Gone(unreapable()),
            LinkEvent::Stderr("x".into()),
            LinkEvent::Unsent {
                request: Some(0),
                frame: Bytes::new(),
            },
        ] {
            let before = sim.view();
            sim.input(Input::Link { epoch, event });
            assert_eq!(sim.view(), before);
        }
    }
    assert!(sim.take().is_empty());
}

#[test]
fn an_error_in_answer_to_initialize_is_a_failed_handshake_and_is_retried() {
    let mut sim = connecting();
    sim.receive(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no database"}}"#);
    assert!(matches!(sim.outputs.last(), Some(Output::Close { .. })));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert_eq!(
        sim.told(&["attempt-failed"]),
        ["attempt 0 failed: initialize was refused (-32603): no database"]
    );
    assert_eq!(sim.until_dial(), secs(5));
}

#[test]
fn an_end_before_the_answer_is_a_refused_attempt() {
    let mut sim = connecting();
    sim.take();
    sim.lose(Loss {
        end: End::Exit(2),
        stderr: vec!["cannot find module".into()],
    });
    let expected = "attempt 0 failed: the connection ended before its handshake, exit code 2 \
                    | stderr: cannot find module";
    assert_eq!(sim.told(&["attempt-failed"]), [expected]);
}

#[test]
fn noise_on_stdout_is_told_once_a_minute_and_ends_nothing() {
    let mut sim = connecting();
    let noise = || LinkEvent::Unreadable {
        what: Unreadable::NotJson,
        sample: "listening on 3000".into(),
    };
    sim.link(noise());
    sim.receive(ANSWER);
    for _ in 0..99 {
        sim.link(noise());
    }
    sim.pass(secs(200));
    assert_eq!(
        sim.told(&["noise"]),
        [
            "1 lines on stdout are no JSON-RPC, e.g. listening on 3000",
            "99 lines on stdout are no JSON-RPC, e.g. listening on 3000"
        ]
    );
    assert!(sim.view().connected);
}

#[test]
fn every_message_that_is_read_is_counted() {
    let mut sim = Sim::connected(defaults());
    sim.receive(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    sim.link(LinkEvent::Lost(exit(1)));
    sim.receive(r#"{"jsonrpc":"2.0","method":"x/late"}"#);
    let carried = sim.told(&["carried"]);
    let read = carried.iter().filter(|text| text.ends_with("from_server"));
    assert_eq!(read.count(), 3);
}

#[test]
fn an_answer_before_initialize_was_sent_makes_no_connection() {
    let mut sim = Sim::started(defaults());
    sim.receive(ANSWER);
    assert!(!sim.view().connected);
    sim.connect();
}

#[test]
fn a2_a_batch_of_a_2025_03_26_server_is_its_messages() {
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let batch = || LinkEvent::Unreadable {
        what: Unreadable::Batch(vec![ping.into(), "7".into()]),
        sample: String::new(),
    };
    for (revision, answered) in [("2025-03-26", true), ("2025-11-25", false)] {
        let mut sim = connecting();
        sim.receive(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{revision}","capabilities":{{}}}}}}"#
        ));
        sim.take();
        sim.link(batch());
        let sent = sim.sent();
        assert_eq!(
            sent.iter()
                .any(|frame| frame.contains(r#""id":"p","result""#)),
            answered
        );
        assert!(
            sent.iter().any(|frame| frame.contains("-32600")),
            "{sent:?}"
        );
    }
}

#[test]
fn what_must_not_be_shown_is_taken_out_of_all_that_is_told_and_remembered() {
    let secret = || secrecy::SecretString::from("sk-s3cr3t");
    for answer in [
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"bad key sk-s3cr3t"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"sk-s3cr3t","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{"x":"sk-s3cr3t"}}}"#,
        ANSWER,
    ] {
        let mut sim = Sim::started(settings(|s| s.down_after_attempts = 0));
        let secrets = Secrets::new(&[secret()]);
        sim.link(LinkEvent::Secrets(Arc::new(secrets)));
        sim.link(LinkEvent::Connected);
        sim.receive(answer);
        sim.receive(r#"{"jsonrpc":"2.0","id":1,"method":"m/sk-s3cr3t"}"#);
        let all = format!("{:?} {:?}", sim.take(), sim.view());
        assert!(!all.contains("sk-s3cr3t"), "{all}");
        assert!(all.contains("[secret]"), "{all}");
    }
}
