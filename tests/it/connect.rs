//! `tidegate connect`: a host that launches a command, and the gateway behind it that is killed and comes back.

use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::gateway::{Gateway, PATIENCE, Place, binary, ended, faultd, host_url, with};
use crate::host::Received;

/// A host on the pipes of `tidegate connect`.
struct Launched {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    inbox: Vec<Received>,
    next_id: u64,
}

impl Launched {
    /// Launches the bridge to a server of the gateway with that configuration.
    fn new(config: &Path, server: &str) -> Self {
        Self::with(&["--config", config.to_str().unwrap()], server)
    }

    fn with(arguments: &[&str], server: &str) -> Self {
        let mut command = binary();
        command.args(["connect", server]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines,
            inbox: Vec::new(),
            next_id: 0,
        }
    }

    /// To a gateway that runs.
    fn to(gateway: &Gateway, server: &str) -> Self {
        Self::new(&gateway.file("tidegate.json"), server)
    }

    async fn send(&mut self, message: Value) {
        let stdin = self.stdin.as_mut().unwrap();
        let line = format!("{message}\n");
        let sent = tokio::time::timeout(PATIENCE, stdin.write_all(line.as_bytes())).await;
        sent.expect("the bridge does not read").unwrap();
    }

    async fn notify(&mut self, method: &str) {
        self.send(json!({"jsonrpc": "2.0", "method": method})).await;
    }

    /// Sends a request and returns its id.
    async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(request).await;
        id
    }

    async fn ask_tool(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask("tools/call", params).await
    }

    /// The next message; every line is one.
    async fn next(&mut self) -> Received {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("nothing comes; read: {:#?}", self.inbox));
        Received::parse(&line.unwrap().expect("the bridge ended"))
    }

    async fn until(&mut self, is_it: impl Fn(&Received) -> bool) -> Received {
        if let Some(at) = self.inbox.iter().position(&is_it) {
            return self.inbox.remove(at);
        }
        loop {
            let next = self.next().await;
            if is_it(&next) {
                return next;
            }
            self.inbox.push(next);
        }
    }

    async fn answer(&mut self, id: u64) -> Received {
        let id = id.to_string();
        self.until(|received| received.is_answer_to(&id)).await
    }

    async fn notification(&mut self, method: &str) -> Received {
        self.until(|received| received.method.as_deref() == Some(method))
            .await
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Received {
        let id = self.ask_tool(tool, arguments).await;
        self.answer(id).await
    }

    async fn initialize(&mut self, capabilities: Value) -> Received {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "it", "version": "1"},
        });
        let id = self.ask("initialize", params).await;
        let answer = self.answer(id).await;
        self.notify("notifications/initialized").await;
        answer
    }

    /// Closes stdin and waits for the end; what still came, and how it ended.
    async fn leave(mut self) -> (Vec<Received>, ExitStatus) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            match line.expect("the bridge does not end").unwrap() {
                Some(line) => rest.push(Received::parse(&line)),
                None => break,
            }
        }
        let end = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        (rest, end.expect("the bridge does not end").unwrap())
    }

    /// What the process holds in memory, in bytes.
    fn memory(&self) -> usize {
        let pid = self.child.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() << 10
    }
}

fn servers() -> Value {
    json!({ "a": with(faultd(""), json!({"reconnectIntervalMs": 50})) })
}

#[tokio::test]
async fn a4_a_host_sees_errors_and_no_end_while_its_gateway_is_killed_and_comes_back() {
    let servers = servers();
    let mut gateway = Gateway::run(&servers).await;
    gateway.events().await.until("a", "adopted").await;
    let mut host = Launched::to(&gateway, "a");
    host.initialize(json!({})).await.result();
    let level = host
        .ask("logging/setLevel", json!({"level": "error"}))
        .await;
    host.answer(level).await;
    for round in 1..=3 {
        // It is under way when the gateway is killed: the server noted it.
        let lost = host.ask_tool("sleep", json!({"ms": 600_000})).await;
        gateway
            .until_server("a", |server| server["inFlight"] == 1)
            .await;
        gateway.kill().await;
        let error = host.answer(lost).await.error();
        assert_eq!(error["code"], -32051, "{error}");
        assert_eq!(
            (&error["data"]["sent"], &error["data"]["server"]),
            (&json!(true), &json!("a"))
        );

        let error = host.call("echo", json!({})).await.error();
        assert_eq!(error["code"], -32050, "{error}");
        assert_eq!(error["data"]["sent"], false, "{error}");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("try again later"),
            "{error}"
        );

        gateway.start(&servers).await;
        host.notification("notifications/tools/list_changed").await;
        gateway.events().await.until("a", "adopted").await;
        let answer = host.call("echo", json!({"round": round})).await;
        assert!(answer.result().contains(&format!("\"round\":{round}")));
    }
    let (rest, status) = host.leave().await;
    assert!(status.success(), "{status}");
    let answers: Vec<_> = rest
        .iter()
        .filter(|message| message.method.is_none())
        .collect();
    assert!(
        answers.is_empty(),
        "each call was answered once: {answers:?}"
    );
}

#[tokio::test]
async fn a_host_that_is_there_before_its_gateway_waits_for_it() {
    let place = Place::new();
    let config = place.configure(&servers());
    let mut host = Launched::new(&config, "a");
    // The answer to this one says that the bridge runs, and that nobody was there.
    let early = host.ask("tools/list", json!({})).await;
    assert_eq!(host.answer(early).await.error()["code"], -32050);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    let id = host.ask("initialize", params).await;
    let _gateway = place.run(&servers()).await;
    assert!(host.answer(id).await.result().contains("2025-11-25"));
}

#[tokio::test]
async fn messages_of_megabytes_pass_both_ways_and_one_past_the_bound_is_refused() {
    let gateway = Gateway::run(&servers()).await;
    gateway.events().await.until("a", "adopted").await;
    let mut host = Launched::to(&gateway, "a");
    host.initialize(json!({})).await;
    let text = "x".repeat(6 << 20);
    // Both write at the same time, and neither waits for the other to read.
    let ids = [
        host.ask_tool("echo", json!({ "text": text })).await,
        host.ask_tool("big", json!({"bytes": 6 << 20})).await,
        host.ask_tool("echo", json!({ "text": text })).await,
    ];
    for id in ids {
        assert!(host.answer(id).await.result().len() > 6 << 20);
    }
    let id = host
        .ask_tool("echo", json!({"text": "x".repeat(17 << 20)}))
        .await;
    assert_eq!(host.answer(id).await.error()["code"], -32600);
    host.call("echo", json!({})).await.result();
}

#[tokio::test]
async fn a_host_that_reads_nothing_grows_no_memory_and_gets_every_answer_when_it_reads() {
    const CALLS: u64 = 200;
    let gateway = Gateway::run(&servers()).await;
    gateway.events().await.until("a", "adopted").await;
    let mut host = Launched::to(&gateway, "a");
    host.initialize(json!({})).await;
    let first = host.next_id + 1;
    for _ in 0..CALLS {
        host.ask_tool("big", json!({"bytes": 1 << 20})).await;
    }
    // All of them were answered by the server: 200 MiB, of which neither the gateway nor the bridge keep much.
    gateway
        .until_server("a", |server| server["inFlight"] == 0)
        .await;
    let memory = host.memory();
    assert!(memory < 100 << 20, "{memory} bytes");
    for id in first..first + CALLS {
        let answer = host.answer(id).await;
        assert!(answer.result.is_some() || answer.error()["code"] == -32051);
    }
}

#[tokio::test]
async fn the_end_of_stdin_leaves_calls_their_answers_and_ends_with_0() {
    let gateway = Gateway::run(&servers()).await;
    gateway.events().await.until("a", "adopted").await;
    // As from a shell: everything at once, and the end.
    let mut host = Launched::to(&gateway, "a");
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    host.ask("initialize", params).await;
    host.notify("notifications/initialized").await;
    let slow = host.ask_tool("sleep", json!({"ms": 300})).await;
    let (rest, status) = host.leave().await;
    assert!(status.success(), "{status}");
    let answer = rest
        .iter()
        .find(|message| message.is_answer_to(&slow.to_string()));
    answer.expect("no answer").result();
    gateway
        .until_server("a", |server| server["sessions"] == 0)
        .await;
}

#[tokio::test]
async fn the_last_notification_before_the_end_of_stdin_is_sent() {
    let place = Place::new();
    let heard = place.file("heard");
    let flags = format!("--heard {}", heard.display());
    let gateway = place.run(&json!({ "a": faultd(&flags) })).await;
    gateway.events().await.until("a", "adopted").await;
    let mut host = Launched::to(&gateway, "a");
    host.initialize(json!({})).await;
    host.call("echo", json!({})).await;
    host.notify("notifications/last").await;
    let (_, status) = host.leave().await;
    assert!(status.success(), "{status}");
    gateway
        .until_server("a", |_| {
            fs::read_to_string(&heard).is_ok_and(|text| text.contains("notifications/last"))
        })
        .await;
}

#[tokio::test]
async fn a_bridge_takes_its_token_from_the_configuration_and_hides_it() {
    let hosts = json!([{"name": "agent", "token": "sesame", "servers": ["a"]}]);
    let gateway = Place::with(json!({ "hosts": hosts })).run(&servers()).await;
    gateway.events().await.until("a", "adopted").await;
    let mut host = Launched::to(&gateway, "a");
    host.initialize(json!({})).await.result();
    let pid = host.child.id().unwrap();
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(!line.contains("sesame"), "{line}");

    // In a file, where it is another one from now on.
    let token = gateway.file("token");
    fs::write(&token, "wrong\n").unwrap();
    let url = host_url(&gateway);
    let arguments = ["--url", &url, "--token-file", token.to_str().unwrap()];
    let mut other = Launched::with(&arguments, "a");
    let refused = other.initialize(json!({})).await.error();
    assert_eq!(refused["data"]["state"], "auth", "{refused}");
    fs::write(&token, "sesame\n").unwrap();
    // Refused at once until the next try, which reads the file anew.
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while other.initialize(json!({})).await.error.is_some() {
        tick.tick().await;
    }
    other.call("echo", json!({})).await.result();
}

#[tokio::test]
async fn arguments_that_cannot_be_used_end_with_2_and_say_what_to_write_instead() {
    let place = Place::new();
    let config = place.configure(&servers());
    let config = config.to_str().unwrap();
    for (arguments, told) in [
        (vec!["b", "--config", config], "it has: a"),
        (vec!["a b", "--config", config], "no server id"),
        (vec!["a", "--url", "127.0.0.1:1"], "ws://127.0.0.1:7464"),
        (vec!["a", "--config", "no-such-file"], "no-such-file"),
    ] {
        let mut command = binary();
        command.arg("connect").args(&arguments);
        let output = ended(command).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test]
async fn g13_an_mcpl_host_behind_a_bridge_gets_its_messages_through_a_kill_of_the_gateway() {
    let place = Place::new();
    let counter = place.file("counter");
    let flags = format!(
        "--mcpl --register --publish-every-ms 20 --counter {}",
        counter.display()
    );
    let servers = json!({ "chat": with(faultd(&flags), json!({"reconnectIntervalMs": 50})) });
    let mut gateway = place.run(&servers).await;
    let mut host = Launched::to(&gateway, "chat");
    host.initialize(json!({"experimental": {"mcpl": {"version": "0.5"}}}))
        .await
        .result();
    let all = json!({"effectiveCapabilities": ["channels.*", "pushEvents"]});
    let policy = host.ask("featureSets/update", all).await;
    let mut seen = Chat::default();
    seen.until(&mut host, |seen| {
        seen.answered.contains(&policy) && seen.numbers.len() >= 10
    })
    .await;
    let before = seen.numbers.len();
    gateway.kill().await;
    gateway.start(&servers).await;
    // It serves again without having said anything again: the bridge did.
    seen.until(&mut host, |seen| seen.numbers.len() >= before + 10)
        .await;
    assert_eq!(seen.twice_unmarked, [0; 0], "twice, and not marked as such");
    assert!(seen.registrations >= 2, "the channel was registered anew");
}

/// What an MCPL host saw.
#[derive(Default)]
struct Chat {
    answered: Vec<u64>,
    numbers: Vec<u64>,
    twice_unmarked: Vec<u64>,
    registrations: usize,
}

impl Chat {
    async fn until(&mut self, host: &mut Launched, is_enough: impl Fn(&Self) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is_enough(self) {
            assert!(tokio::time::Instant::now() < end, "{:?}", self.numbers);
            let message = host.next().await;
            let result = self.take(&message);
            if let (Some(id), Some(_)) = (&message.id, &message.method) {
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                host.send(answer).await;
            }
        }
    }

    /// Notes a message; what to answer it, where it is a request.
    fn take(&mut self, message: &Received) -> Value {
        match message.method.as_deref() {
            Some("channels/incoming") => {
                let text = message.param("/messages/0/messageId");
                let number: u64 = text.as_str().unwrap()[2..].parse().unwrap();
                let marked = message.param("/_meta/tidegate~1redelivered") == true;
                if self.numbers.contains(&number) && !marked {
                    self.twice_unmarked.push(number);
                }
                self.numbers.push(number);
                json!({"results": [{"messageId": text, "accepted": true}]})
            }
            Some("channels/register") => {
                self.registrations += 1;
                json!({"results": [{"id": "chat:room-1", "accepted": true}]})
            }
            None => {
                let id = message.id.as_ref().map(|id| id.get().parse::<u64>());
                self.answered.extend(id.and_then(Result::ok));
                Value::Null
            }
            Some(_) => json!({}),
        }
    }
}
