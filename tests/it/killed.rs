//! A bridge that is killed and launched again all the time, at every point of its life, while its host comes and goes:
//! what the gateway read reaches the host, once, in order, under its grant, and each answer its own process or nobody.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::account::{Account, Diary};
use crate::bridge::Bridge;
use crate::events::{Event, Events};
use crate::gateway::{Gateway, Place};
use crate::host::{Host, Received};

/// How often the bridge dies.
fn deaths() -> usize {
    if std::env::var_os("TIDEGATE_FULL").is_some() {
        1_000
    } else {
        200
    }
}

fn seed() -> u64 {
    let given = std::env::var("TIDEGATE_SEED").ok();
    given.map_or(1, |seed| seed.parse().unwrap())
}

/// A life that ends: numbered messages between all its steps, and a death at one of them or at any time.
fn life(draw: &mut Rng) -> String {
    let lacks = [
        "",
        "",
        "",
        "",
        "",
        " without channels.incoming",
        " without channels.register",
    ];
    let lacks = draw.choice(lacks).unwrap();
    let registers_late = draw.u8(..4) == 0;
    let room = draw.choice(["", "", " 1"]).unwrap();
    let (early, late) = if registers_late {
        (
            "",
            format!("sleep {}; register{room}; await got 100", draw.u8(..30)),
        )
    } else {
        (" register", "await got 100".to_owned())
    };
    let welcome = format!("welcome{early}{lacks}");
    let steps = [
        "await initialize",
        &welcome,
        "await initialized",
        "await policy",
        "grant",
        &late,
    ];
    let mut script: Vec<String> = Vec::new();
    for step in steps {
        script.push(format!("say {}", draw.u8(..4)));
        script.push(step.to_owned());
    }
    // More than a host has at a time, so that the end comes in a flush.
    let many = if draw.u8(..8) == 0 {
        "burst 400"
    } else {
        "say 5"
    };
    script.extend([many, "sleep 5", "say 5", "sleep 5", "say 5"].map(str::to_owned));
    if draw.bool() {
        script.insert(0, format!("doom {}", draw.u32(..60_000)));
        script.extend((0..60).map(|_| "sleep 1; say 1".to_owned()));
    } else {
        let at = draw.usize(..=script.len());
        script.insert(at, "die".into());
    }
    script.join("; ")
}

/// The host: it comes and goes, and says what it received.
struct Visitor<'a> {
    gateway: &'a Gateway,
    events: Events,
    draw: Rng,
    account: Account,
    /// How many more messages it answers in this visit.
    answers: usize,
    deaths: usize,
}

impl Visitor<'_> {
    /// Notes which process of the bridge runs: every one before it died. So it counts also where events were left out.
    fn note(&mut self, event: &Event) {
        let epoch = event.epoch().unwrap_or_default();
        self.deaths = self.deaths.max(epoch.saturating_sub(1));
    }

    /// Stays away while the bridge dies so often.
    async fn wait(&mut self, deaths: usize) {
        let until = self.deaths + deaths;
        while self.deaths < until {
            let event = self.events.next().await;
            self.note(&event);
        }
    }

    /// Comes, and stays while the bridge dies so often.
    async fn visit(&mut self, deaths: usize) -> Host {
        let mut host = self.gateway.connect("chat").await;
        host.ask_to_serve().await;
        self.account.new_session();
        // Every other one falls silent, so that it goes with messages that it has not answered.
        self.answers = if self.draw.bool() {
            self.draw.usize(..100)
        } else {
            usize::MAX
        };
        let until = self.deaths + deaths;
        while self.deaths < until {
            tokio::select! {
                event = self.events.next() => self.note(&event),
                message = host.next() => self.answer(&mut host, &message).await,
            }
        }
        host
    }

    async fn answer(&mut self, host: &mut Host, message: &Received) {
        match message.method.as_deref() {
            Some("channels/incoming") => {
                let number = self.account.receive(message);
                if self.answers == 0 {
                    return;
                }
                self.answers -= 1;
                let item = json!({"messageId": format!("m-{number}"), "accepted": true});
                host.reply(message, json!({"results": [item], "by": "the host"}))
                    .await;
                self.account.answered(number);
            }
            Some("channels/register") => {
                let pid = message.param("/channels/0/metadata/pid");
                host.reply(message, json!({ "pid": pid })).await;
            }
            _ => {}
        }
    }

    /// Goes: as the protocol has it, with a last look at what it did not answer, or without a word.
    async fn go(&mut self, host: Host) {
        if self.draw.bool() {
            self.account.broke_off();
            drop(host);
        } else {
            for message in host.leave().await {
                if message.method.as_deref() == Some("channels/incoming") {
                    self.account.receive(&message);
                }
            }
        }
        // There is one host at a time: the next one comes when this one is known to be gone.
        let alone = |server: &Value| server["sessions"] == 0;
        self.gateway.until_server("chat", alone).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g5_g7_g9_g13_a1_a_bridge_killed_at_every_point_of_its_life_loses_nothing() {
    let (seed, deaths) = (seed(), deaths());
    println!("TIDEGATE_SEED={seed}");
    let mut draw = Rng::with_seed(seed);
    let mut lives: Vec<String> = (0..deaths).map(|_| life(&mut draw)).collect();
    lives.push(
        "await initialize; welcome register; await policy; grant; await got 100; say 10".into(),
    );
    let place = Place::new();
    let bridge = Bridge::new(&place, "chat", &lives);
    let timings =
        json!({"acceptAfterMs": 100, "lastingAfterMs": 3_600_000, "downAfterAttempts": 100_000});
    let gateway = place.run(&json!({ "chat": bridge.entry(timings) })).await;
    let mut visitor = Visitor {
        events: gateway.events().await,
        gateway: &gateway,
        draw,
        account: Account::default(),
        answers: 0,
        deaths: 0,
    };
    while visitor.deaths < deaths {
        let left = deaths - visitor.deaths;
        let (away, there) = (visitor.draw.usize(..4), visitor.draw.usize(1..6));
        visitor.wait(away.min(left)).await;
        let left = deaths - visitor.deaths;
        let host = visitor.visit(there.min(left)).await;
        visitor.go(host).await;
    }
    settle(&mut visitor, &bridge, deaths + 1).await;
    check(&visitor, &bridge, &lives).await;
}

/// The last life goes on until nothing waits.
async fn settle(visitor: &mut Visitor<'_>, bridge: &Bridge, life: usize) {
    let gateway = visitor.gateway;
    let mut host = visitor.visit(0).await;
    visitor.answers = usize::MAX;
    let quiet = gateway.until_server("chat", |server| {
        let waiting = ["held", "kept"].map(|queue| server[queue]["requests"].as_u64().unwrap());
        server["epoch"] == life
            && server["channels"] == 2
            && waiting == [0, 0]
            && server["inFlight"] == 0
    });
    tokio::pin!(quiet);
    loop {
        tokio::select! {
            _ = &mut quiet => break,
            message = host.next() => visitor.answer(&mut host, &message).await,
        }
    }
    let ended = |lines: &[(usize, String)]| {
        let got = lines
            .iter()
            .filter(|(of, what)| *of == life && what.starts_with("got \"in-"));
        got.count() == 10
    };
    bridge.until("ten answers in the last life", ended).await;
}

/// Every message that the gateway read is accounted for.
async fn check(visitor: &Visitor<'_>, bridge: &Bridge, lives: &[String]) {
    let (gateway, account) = (visitor.gateway, &visitor.account);
    let diary = Diary::read(&bridge.diary(), lives);
    diary.check_answers();
    let missing = diary.missing(account);
    let metric = async |name: &str, labels: &str| {
        let series = format!(r#"tidegate_server_{name}{{{labels}server="chat"}}"#);
        gateway.metric(&series).await as usize
    };
    let requests = r#"class="request",direction="from_server","#;
    let unread = diary.requests() - metric("messages_total", requests).await;
    let mut untold = 0;
    for code in ["-32002", "unknown_channel"] {
        untold += metric("messages_refused_total", &format!(r#"code="{code}","#)).await;
    }
    untold -= diary.refusals();
    println!(
        "{} requests, {unread} of them not read; {} received, {} of them again; {} refused, and {untold} untold; {missing} missing",
        diary.requests(),
        account.len(),
        account.redelivered,
        diary.refusals(),
    );
    assert!(missing <= untold + unread, "{missing} are missing");
    assert!(account.redelivered > 0, "every host answered all");
    for reason in [
        "held_full",
        "kept_full",
        "kept_too_old",
        "channel_gone",
        "closed_for_good",
        "not_granted",
    ] {
        let dropped = metric("messages_dropped_total", &format!(r#"reason="{reason}","#)).await;
        assert_eq!(dropped, 0, "{reason}");
    }
    assert_eq!(
        metric("messages_repeated_total", "").await,
        0,
        "the bridge repeats nothing"
    );
}
