//! Every decision there is, and a snapshot with something in every field.

use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::decision::{
    Class, ClearCause, Decision, Difference, Direction, DropReason, Exchange, Hold, Queue, State,
};
use tidegate::engine::input::{End, Outcome};
use tidegate::engine::snapshot::{Backoff, EpisodeView, QueueView, Snapshot};
use tidegate::ids::{Epoch, ServerId};
use tidegate::wire::mcp::Revision;
use tidegate::wire::mcpl::Domain;

pub fn server(name: &str) -> ServerId {
    ServerId::new(name).unwrap()
}

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn down() -> Decision {
    Decision::Down {
        attempt: 5,
        why: "connected, then closed after 0 s".into(),
        mcpl: true,
    }
}

pub fn clear() -> Decision {
    Decision::Clear {
        cause: ClearCause::Lasted(seconds(300)),
        failed_attempts: 6,
        down_for: seconds(900),
        mcpl: true,
    }
}

pub fn called(method: &str, error: Option<&str>) -> Decision {
    Decision::Called {
        id: Some(1),
        method: method.into(),
        took: seconds(2),
        error: error.map(Into::into),
    }
}

/// One of each decision a stdio server can cause, with each value of each closed set in it.
pub fn every_decision() -> Vec<Decision> {
    let mut all = one_of_each();
    all.extend(State::ALL.map(Decision::State));
    let failures = Outcome::ALL.into_iter();
    all.extend(
        failures
            .filter(|outcome| !matches!(outcome, Outcome::Adopted | Outcome::Auth))
            .map(|outcome| Decision::AttemptFailed {
                attempt: 1,
                outcome,
                why: "nobody listens".into(),
                failed_attempts: 2,
            }),
    );
    for end in [
        End::Exit(1),
        End::Signal(9),
        End::Reset("broken pipe".into()),
        End::Liveness,
        End::Recycle,
        End::Operator,
    ] {
        all.extend([true, false].map(|lasted| Decision::Ended {
            attempt: 1,
            end: end.clone(),
            lasted,
            lived: seconds(3),
            failed_attempts: 1,
        }));
    }
    all.extend(Exchange::ALL.map(|outcome| Decision::Settled {
        outcome,
        granted: 3,
        took: seconds(1),
        note: String::new(),
    }));
    all.extend(DropReason::ALL.map(|reason| Decision::Dropped {
        reason,
        method: "push/event".into(),
        count: 2,
    }));
    for direction in Direction::ALL {
        all.extend(Class::ALL.map(|class| Decision::Carried { direction, class }));
    }
    all.extend(Queue::ALL.map(|queue| Decision::Flushed { queue, messages: 4 }));
    all.extend(Hold::ALL.map(|hold| Decision::HoldLifted {
        hold,
        held_for: seconds(1),
    }));
    let codes = [
        -32_700, -32_600, -32_601, -32_602, -32_603, -32_000, -32_001, -32_002, -32_003, -32_050,
        17,
    ];
    all.extend(codes.map(|code| Decision::RefusedMessage {
        code,
        method: "tools/call".into(),
    }));
    for error in [
        None,
        Some("tool"),
        Some("lost"),
        Some("-32601"),
        Some("4711"),
    ] {
        all.extend(["tools/call", "tools/list", "x/y"].map(|method| called(method, error)));
    }
    all
}

fn one_of_each() -> Vec<Decision> {
    vec![
        Decision::Dialing { attempt: 1 },
        Decision::Connected {
            attempt: 1,
            took: seconds(1),
        },
        Decision::Adopted {
            attempt: 1,
            revision: Revision::LATEST,
            mcpl: true,
            took: seconds(1),
        },
        Decision::ShortEnd {
            attempt: 1,
            why: "connected, then closed after 0 s".into(),
            failed_attempts: 2,
        },
        Decision::Waiting {
            attempt: 2,
            wait: seconds(10),
        },
        manifest(),
        Decision::Repeated {
            method: "push/event".into(),
            messages: 2,
        },
        Decision::UnknownChannel {
            method: "channels/incoming".into(),
            messages: 1,
        },
        Decision::SessionRenewed { attempt: 1 },
        Decision::Lasted {
            lived: seconds(300),
        },
        down(),
        clear(),
        Decision::Halted {
            attempt: 1,
            why: "speaks no revision that we do".into(),
        },
        Decision::Refused {
            problem: "reconnectIntervalMs is 0".into(),
        },
        Decision::Kept { messages: 3 },
        Decision::HostAttached,
        Decision::HostServes { unasked: true },
        Decision::HostDetached,
        Decision::Paused(true),
        Decision::Noise {
            lines: 3,
            sample: "hello".into(),
        },
        Decision::Stderr("warn".into()),
        Decision::Orphaned {
            method: "tools/call".into(),
        },
        Decision::AnsweredLate {
            method: "push/event".into(),
        },
        Decision::Reported("odd".into()),
    ]
}

fn manifest() -> Decision {
    Decision::Manifest {
        revision: Some("sha256:abc".into()),
        domains: Domain::ALL.into(),
        capabilities: Difference {
            added: vec!["channels.typing".into()],
            ..Difference::default()
        },
        feature_sets: Difference::default(),
    }
}

/// A server that waits for its seventh attempt, down for 100 s.
pub fn waiting() -> Arc<Snapshot> {
    let queue = |requests, bytes| QueueView {
        requests,
        requests_limit: 10_000,
        notifications: 2,
        notifications_limit: 1_000,
        bytes,
        oldest: seconds(40),
    };
    Arc::new(Snapshot {
        state: State::Waiting,
        epoch: Epoch(9),
        attempt: 7,
        failed_attempts: 7,
        failed_since_unwanted: 3,
        down_after_attempts: 5,
        lasting_threshold: seconds(300),
        since_lasted: Some(seconds(5_000)),
        since_unwanted: Some(seconds(900)),
        since_healthy: Some(seconds(110)),
        episode: Some(EpisodeView {
            open_for: seconds(100),
            attempt: 5,
            why: "connected, then closed after 0 s".into(),
        }),
        backoff: Some(Backoff {
            wait: seconds(80),
            left: seconds(30),
        }),
        reason: Some("exit code 1".into()),
        mcpl: true,
        held: queue(0, 0),
        kept: queue(3, 512),
        holds: vec![Hold::Policy, Hold::NoHost],
        channels: 1,
        in_flight: 4,
        sessions: 1,
        ..Snapshot::default()
    })
}

/// The same server, connected for 10 s and not lasting yet.
pub fn open() -> Arc<Snapshot> {
    let mut snapshot = Arc::unwrap_or_clone(waiting());
    snapshot.state = State::Open;
    snapshot.connected = true;
    snapshot.connection_age = seconds(10);
    snapshot.since_healthy = Some(Duration::ZERO);
    snapshot.revision = Some(Revision::LATEST);
    snapshot.granted = vec!["channels.register"];
    snapshot.backoff = None;
    snapshot.holds = vec![Hold::NoHost];
    snapshot.into()
}
