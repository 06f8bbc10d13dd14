//! The commands that ask a running gateway, as the real binary.

use std::process::{Output, Stdio};
use std::sync::atomic::Ordering;

use tidegate::ids::Epoch;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::desk::{Desk, doors, with_tokens};
use crate::samples::{clear, down};

fn tidegate(desk: &Desk, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(args)
        .args(["--admin", &format!("http://{}", desk.address)])
        .env_remove("TIDEGATE_ADMIN_TOKEN")
        .kill_on_drop(true);
    command
}

async fn output(desk: &Desk, args: &[&str]) -> (Option<i32>, String, String) {
    said(tidegate(desk, args).output().await.unwrap())
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    (status.code(), text(stdout), text(stderr))
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    lines.next_line().await.unwrap().unwrap()
}

#[tokio::test]
async fn status_prints_a_table_or_the_json_of_the_api() {
    let desk = Desk::open(doors()).await;
    let (code, table, _) = output(&desk, &["status"]).await;
    assert_eq!(code, Some(0));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("SERVER"), "{table}");
    assert!(
        lines[1].starts_with("broken") && lines[1].contains("refused"),
        "{table}"
    );
    let (_, json, _) = output(&desk, &["status", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["servers"][0]["state"], "refused");
}

#[tokio::test]
async fn events_prints_what_happened_and_follows_what_happens() {
    let desk = Desk::open(doors()).await;
    let chat = desk.chat();
    chat.decided(Some(Epoch(1)), &down());
    let (code, told, _) = output(&desk, &["events", "--kind", "down"]).await;
    assert_eq!(code, Some(0));
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(
        lines[1].contains("chat  down  MCPL server down (attempt 5): "),
        "{told}"
    );
    let mut following = tidegate(&desk, &["events", "--follow", "--kind", "clear,down"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(line(&mut lines).await.contains("broken  down"));
    assert!(line(&mut lines).await.contains("chat  down"));
    chat.decided(Some(Epoch(2)), &clear());
    assert!(
        line(&mut lines)
            .await
            .contains("chat  clear  MCPL server clear")
    );
}

#[tokio::test]
async fn control_says_what_came_of_it() {
    let desk = Desk::open(doors()).await;
    let (code, told, _) = output(&desk, &["pause", "broken"]).await;
    assert_eq!(
        (code, told.as_str()),
        (Some(0), "broken: refused, paused\n")
    );
    let (code, _, told) = output(&desk, &["restart", "ghost"]).await;
    assert_eq!(code, Some(1));
    assert!(
        told.contains("no server `ghost` is configured: the configured"),
        "{told}"
    );
    assert_eq!(output(&desk, &["restart", "../reload"]).await.0, Some(2));
    let (code, told, _) = output(&desk, &["reload"]).await;
    assert_eq!(
        (code, told.as_str()),
        (Some(0), "the configuration was reloaded\n")
    );
    desk.usable.store(false, Ordering::SeqCst);
    let (code, _, told) = output(&desk, &["reload"]).await;
    assert_eq!(code, Some(1));
    assert!(
        told.contains("  tidegate.yaml:3:5: listen: no address"),
        "{told}"
    );
}

#[tokio::test]
async fn a_token_comes_from_the_environment_and_its_want_is_explained() {
    let desk = Desk::open(with_tokens()).await;
    let (code, _, told) = output(&desk, &["status"]).await;
    assert_eq!(code, Some(1));
    assert!(told.contains("`admin.readToken`"), "{told}");
    let mut command = tidegate(&desk, &["pause", "broken"]);
    command.env("TIDEGATE_ADMIN_TOKEN", "control");
    assert_eq!(said(command.output().await.unwrap()).0, Some(0));
    let mut help = tidegate(&desk, &["status", "--help"]);
    help.env("TIDEGATE_ADMIN_TOKEN", "control-secret");
    let (_, told, _) = said(help.output().await.unwrap());
    assert!(!told.contains("control-secret"));
}

#[tokio::test]
async fn the_address_and_the_token_come_from_the_configuration() {
    let desk = Desk::open(with_tokens()).await;
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("tidegate.yaml");
    let listen = desk.address;
    let text = format!("admin: {{listen: \"{listen}\", token: control}}\nmcpServers: {{}}\n");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("status").arg("--config").arg(&file);
    command.env_remove("TIDEGATE_ADMIN_TOKEN");
    let (code, told, error) = said(command.output().await.unwrap());
    assert_eq!(code, Some(0), "{error}");
    assert!(told.contains("broken"), "{told}");
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_said_to_be_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // Port 1 is reserved, and nobody listens.
    command.args(["status", "--admin", "http://127.0.0.1:1"]);
    let (code, _, told) = said(command.output().await.unwrap());
    assert_eq!(code, Some(1));
    assert!(
        told.contains("no gateway answers at http://127.0.0.1:1: "),
        "{told}"
    );
}
