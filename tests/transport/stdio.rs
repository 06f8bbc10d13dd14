//! Servers as child processes.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use serde_json::json;
use tidegate::engine::input::{End, LinkEvent, Outcome, Reap};
use tidegate::wire::framing::MESSAGE_MAX;
use tidegate::wire::jsonrpc::{About, RequestId, Unreadable};

use crate::dialed::{Dialed, child, secret, soon};

fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| !fields.starts_with(" Z"))
}

/// A variable of ours that is not passed on; a shell or cargo sets one.
fn private_variable() -> (String, String) {
    let private = ["CARGO_MANIFEST_DIR", "PWD", "SHLVL", "RUST_BACKTRACE"];
    std::env::vars()
        .find(|(name, _)| private.contains(&name.as_str()))
        .unwrap()
}

/// A shell that runs a script.
fn shell(script: &str) -> tidegate::transport::settings::Stdio {
    let mut settings = child("");
    settings.command = "sh".into();
    settings.args = vec!["-c".into(), script.into()];
    settings
}

async fn pids(server: &mut Dialed) -> (u64, Option<u64>) {
    server.call(90, "pid", json!({})).await;
    let answer = server.answer(90).await;
    let told = &answer["result"]["structuredContent"];
    (told["pid"].as_u64().unwrap(), told["grandchild"].as_u64())
}

#[tokio::test]
async fn bytes_flow_both_ways_as_they_are_written() {
    let mut server = Dialed::stdio(child("--name it"));
    assert_eq!(
        server.handshake().await["result"]["serverInfo"]["name"],
        "it"
    );
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a": 1.0}}}"#;
    assert!(server.try_send(Bytes::from_static(call.as_bytes())));
    let LinkEvent::Received(message) = server.next().await else {
        panic!()
    };
    assert!(
        message
            .result()
            .unwrap()
            .contains(r#""structuredContent":{"a": 1.0}"#)
    );
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn r7_an_exit_is_told_with_its_code_and_the_tail_of_stderr() {
    let mut server = Dialed::stdio(child("--stderr-lines 30"));
    server.handshake().await;
    server.call(1, "exit", json!({"code": 3})).await;
    let loss = server.loss().await;
    assert_eq!(loss.end, End::Exit(3));
    assert_eq!(loss.stderr.len(), 20);
    assert_eq!(loss.stderr.last().unwrap(), "line 30");
    assert_eq!(server.gone().await, Reap::Clean);
    assert_eq!(server.stderr.len(), 30);
}

#[tokio::test]
async fn r7_a_signal_is_told() {
    let mut server = Dialed::stdio(child(""));
    server.handshake().await;
    server.call(1, "crash", json!({})).await;
    assert_eq!(server.loss().await.end, End::Signal(9));
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn what_a_child_wrote_before_its_exit_comes_before_the_loss() {
    let script = r#"i=0; while [ $i -lt 400 ]; do echo '{"jsonrpc":"2.0","method":"n"}'; i=$((i+1)); done; echo bye >&2"#;
    let mut server = Dialed::stdio(shell(script));
    server.connected().await;
    for _ in 0..400 {
        server.message().await;
    }
    let loss = server.loss().await;
    assert_eq!(
        (loss.end, loss.stderr),
        (End::Exit(0), vec!["bye".to_owned()])
    );
}

#[tokio::test]
async fn g7_a_grandchild_that_holds_stdout_delays_no_loss_and_is_gone_before_the_end() {
    let mut server = Dialed::stdio(child("--grandchild"));
    server.handshake().await;
    let (_, grandchild) = pids(&mut server).await;
    let grandchild = grandchild.unwrap();
    assert!(is_alive(grandchild));
    server.call(1, "crash", json!({})).await;
    assert_eq!(server.loss().await.end, End::Signal(9));
    assert_eq!(server.gone().await, Reap::Clean);
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn r10_a_child_that_ignores_sigterm_is_killed_with_its_descendants() {
    let mut server = Dialed::stdio(child("--ignore-sigterm --grandchild"));
    server.handshake().await;
    let (pid, grandchild) = pids(&mut server).await;
    assert_eq!(server.close_and_wait().await, Reap::Clean);
    assert!(!is_alive(pid));
    assert!(!is_alive(grandchild.unwrap()));
}

#[tokio::test]
async fn a_descendant_that_shed_session_and_environment_is_gone_before_the_end() {
    // It tells of itself once it has shed them.
    let told = r#"{"jsonrpc":"2.0","method":"pid","params":{"pid":%d}}"#;
    let shed = r#"printf "$0\n" $$; exec sleep 1000"#;
    let script = format!("setsid env -i sh -c '{shed}' '{told}' & cat >/dev/null");
    let mut server = Dialed::stdio(shell(&script));
    server.connected().await;
    let pid = server.message().await["params"]["pid"].as_u64().unwrap();
    assert!(is_alive(pid));
    assert_eq!(server.close_and_wait().await, Reap::Clean);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_child_that_closes_its_stdin_is_not_lost() {
    let told = r#"{"jsonrpc":"2.0","method":"n"}"#;
    let script = format!("exec 0<&-; while echo '{told}'; do sleep 0.01; done");
    let mut server = Dialed::stdio(shell(&script));
    server.connected().await;
    server.message().await;
    server
        .send(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    for _ in 0..5 {
        assert_eq!(server.message().await["method"], "n");
    }
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn orphans_that_exit_are_waited_for_and_nobody_elses_children_are() {
    let reaping = tokio::spawn(tidegate::transport::reap_orphans());
    let mut others = std::process::Command::new("sh")
        .args(["-c", "exit 7"])
        .spawn()
        .unwrap();
    // The shell in parentheses exits at once, so that the one in the background is an orphan.
    let told = r#"{"jsonrpc":"2.0","method":"pid","params":{"pid":%d}}"#;
    let script = format!("(sh -c 'printf \"$0\\n\" $$; read x <$1' '{told}' /dev/null &); cat");
    let mut server = Dialed::stdio(shell(&script));
    server.connected().await;
    let pid = server.message().await["params"]["pid"].as_u64().unwrap();
    let stat = format!("/proc/{pid}/stat");
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(10));
    soon(async {
        while std::fs::exists(&stat).unwrap() {
            tick.tick().await;
        }
    })
    .await;
    assert_eq!(others.wait().unwrap().code(), Some(7));
    assert_eq!(server.close_and_wait().await, Reap::Clean);
    reaping.abort();
}

#[tokio::test]
async fn late_lines_are_told_after_the_loss() {
    let script = r#"trap '' TERM; (sleep 0.2; echo '{"jsonrpc":"2.0","method":"late"}') & echo '{"jsonrpc":"2.0","method":"now"}'; kill -9 $$"#;
    let mut server = Dialed::stdio(shell(script));
    server.connected().await;
    assert_eq!(server.message().await["method"], "now");
    assert_eq!(server.loss().await.end, End::Signal(9));
    assert_eq!(server.message().await["method"], "late");
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn a_child_that_stops_reading_never_stops_our_reading() {
    let mut server = Dialed::stdio(child("--deaf --publish-every-ms 1"));
    server.handshake().await;
    let filler = Bytes::from(vec![b' '; 64 << 10]);
    let mut read = 0;
    while server.try_send(filler.clone()) || read < 500 {
        assert_eq!(server.message().await["method"], "channels/incoming");
        read += 1;
    }
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn g16_a_message_past_the_bound_is_skipped_and_the_next_one_read() {
    let flags = format!("--big {}", MESSAGE_MAX + 1);
    let mut server = Dialed::stdio(child(&flags));
    server.handshake().await;
    let LinkEvent::Unreadable { what, sample } = server.next().await else {
        panic!()
    };
    let Unreadable::TooLong { limit, about } = what else {
        panic!("{what:?}")
    };
    let big = RequestId::read("\"big\"").map(About::Request);
    assert_eq!((limit, about), (MESSAGE_MAX, big));
    assert_eq!(sample.len(), 200);
    assert_eq!(server.message().await["method"], "notifications/after-big");
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}

#[tokio::test]
async fn g16_a_message_of_the_bound_is_read() {
    let mut server = Dialed::stdio(child(&format!("--big {MESSAGE_MAX}")));
    server.handshake().await;
    let LinkEvent::Received(message) = server.next().await else {
        panic!()
    };
    assert_eq!(message.raw().len(), MESSAGE_MAX);
}

#[tokio::test]
async fn noise_is_told_and_harms_nothing() {
    let mut server = Dialed::stdio(child("--noise"));
    server.connected().await;
    server
        .send(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    let mut noise = Vec::new();
    for _ in 0..5 {
        match server.next().await {
            LinkEvent::Unreadable { what, sample } => noise.push((what, sample)),
            LinkEvent::Received(message) => assert_eq!(message.our_id(), Some(1)),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(
        noise[0],
        (
            Unreadable::NotJson,
            "INFO noise 0: \\u{1b}[1mready\\u{1b}[0m".into()
        )
    );
    assert!(matches!(noise[1].0, Unreadable::Invalid { .. }));
    assert_eq!(noise[2].0, Unreadable::NotJson);
    assert!(matches!(noise[3].0, Unreadable::Invalid { .. }));
}

#[tokio::test]
async fn secrets_are_taken_out_of_stderr() {
    let mut settings = child("--stderr-env TOKEN");
    settings
        .env
        .insert("TOKEN".into(), secret("hunter2-hunter2"));
    settings.secrets.push(secret("hunter2-hunter2"));
    let mut server = Dialed::stdio(settings);
    server.handshake().await;
    server.call(1, "exit", json!({"code": 1})).await;
    assert_eq!(server.loss().await.stderr, ["TOKEN=[secret]"]);
    assert_eq!(server.stderr, ["TOKEN=[secret]"]);
}

#[tokio::test]
async fn a_child_gets_ordinary_variables_and_its_own() {
    let mut settings = child("");
    settings.env.insert("OWN".into(), secret("mine"));
    let mut server = Dialed::stdio(settings);
    server.handshake().await;
    let (private, _) = private_variable();
    let mut texts = Vec::new();
    for (id, name) in [(1, "OWN"), (2, "PATH"), (3, &*private)] {
        server.call(id, "env", json!({"name": name})).await;
        texts.push(
            server.answer(id).await["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(texts[0], "mine");
    assert_eq!(texts[1], std::env::var("PATH").unwrap());
    assert_eq!(texts[2], "", "{private}");
}

#[tokio::test]
async fn inherit_env_passes_everything() {
    let (name, value) = private_variable();
    let mut settings = child("");
    settings.inherit_env = true;
    let mut server = Dialed::stdio(settings);
    server.handshake().await;
    server.call(1, "env", json!({"name": name})).await;
    let answer = server.answer(1).await;
    assert_eq!(answer["result"]["content"][0]["text"], value);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_a_failure_that_names_it() {
    let no_program = std::env::temp_dir().to_str().unwrap().to_owned();
    for (command, cwd, why) in [
        ("no-such-program", None, "not found"),
        (no_program.as_str(), None, "permission denied"),
        (
            "sh",
            Some("/no/such/directory"),
            "its working directory `/no/such/directory` is none",
        ),
    ] {
        let mut settings = child("");
        settings.command = command.into();
        settings.cwd = cwd.map(Into::into);
        let mut server = Dialed::stdio(settings);
        let LinkEvent::Failed(failure) = server.next().await else {
            panic!()
        };
        assert_eq!(failure.outcome, Outcome::Spawn);
        assert_eq!(
            failure.detail,
            format!("command `{command}` cannot be started: {why}")
        );
        assert_eq!(server.gone().await, Reap::Clean);
    }
}

#[tokio::test]
async fn a_program_that_stays_open_for_writing_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("server");
    std::fs::copy("/bin/cat", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let _writer = std::fs::OpenOptions::new()
        .append(true)
        .open(&program)
        .unwrap();
    let mut settings = child("");
    settings.command = program.to_str().unwrap().into();
    let mut server = Dialed::stdio(settings);
    let LinkEvent::Failed(failure) = server.next().await else {
        panic!()
    };
    assert!(
        failure.detail.ends_with("executable file busy"),
        "{}",
        failure.detail
    );
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn a_child_that_closes_its_stdout_and_lives_is_lost_and_ended() {
    let mut server = Dialed::stdio(child("--close-stdout --ignore-sigterm"));
    server.handshake().await;
    assert_eq!(
        server.loss().await.end,
        End::Reset("closed its stdout".into())
    );
    assert_eq!(server.gone().await, Reap::Clean);
}

#[tokio::test]
async fn r13_a_close_before_the_launch_launches_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = Dialed::stdio(child(&format!("--log {}", log.display())));
    // The transport's task has not run yet: this test's thread is the only one.
    assert_eq!(server.close_and_wait().await, Reap::Clean);
    assert!(!log.exists());
}

#[tokio::test]
async fn an_end_of_the_frames_is_not_a_close() {
    let mut server = Dialed::stdio(child("--publish-every-ms 20"));
    server.handshake().await;
    server.end_frames();
    for _ in 0..5 {
        server.message().await;
    }
    assert_eq!(server.close_and_wait().await, Reap::Clean);
}
