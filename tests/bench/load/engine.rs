//! The engine alone: how many inputs it handles per second on one core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate::engine::Server;
use tidegate::engine::input::{HostEvent, Input, LinkEvent, Moment, Resumed};
use tidegate::engine::output::Output;
use tidegate::engine::settings::Settings;
use tidegate::ids::{Epoch, SessionId};
use tidegate::wire::jsonrpc::Message;

use crate::Line;

const CALLS: u32 = 1_000_000;
const SESSION: SessionId = SessionId(1);

/// Calls of a host and their answers: two inputs each, parsed beforehand.
pub(crate) fn inputs_per_second() -> Vec<Line> {
    let mut world = World::open();
    let call = message(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#,
    );
    let start = Instant::now();
    for _ in 0..CALLS {
        world.tell(Input::Host {
            session: SESSION,
            event: HostEvent::Received(call.clone()),
        });
        let id = world.sent.take().unwrap();
        let answer = world.answer(id);
        world.tell(Input::Link {
            epoch: Epoch(1),
            event: LinkEvent::Received(answer),
        });
    }
    let value = f64::from(CALLS) * 2.0 / start.elapsed().as_secs_f64() / 1e6;
    let name = "engine inputs, calls and their answers, one core";
    vec![Line {
        name,
        unit: "M/s",
        value,
        target: 1.0,
        floor: None,
        more: true,
    }]
}

/// A server that is connected and a client that is attached.
struct World {
    engine: Server,
    now: Instant,
    sent: Option<u64>,
}

impl World {
    fn open() -> Self {
        let now = Instant::now();
        let engine = Server::new(Arc::new(Settings::default()), now);
        let mut world = Self {
            engine,
            now,
            sent: None,
        };
        world.tell(Input::Start(Resumed::default()));
        world.link(LinkEvent::Connected);
        let initialized = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
        world.link(LinkEvent::Received(message(initialized)));
        world.host(HostEvent::Attached { name: None });
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#;
        world.host(HostEvent::Received(message(initialize)));
        world.host(HostEvent::Received(message(
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )));
        world
    }

    fn link(&mut self, event: LinkEvent) {
        self.tell(Input::Link {
            epoch: Epoch(1),
            event,
        });
    }

    fn host(&mut self, event: HostEvent) {
        self.tell(Input::Host {
            session: SESSION,
            event,
        });
    }

    fn tell(&mut self, input: Input) {
        self.now += Duration::from_micros(1);
        self.engine.handle_input(
            input,
            Moment {
                now: self.now,
                jitter: 0.0,
            },
        );
        while let Some(output) = self.engine.poll_output() {
            if let Output::Send {
                request: Some(id), ..
            } = output
            {
                self.sent = Some(id);
            }
        }
        std::hint::black_box(self.engine.poll_timeout());
    }

    fn answer(&self, id: u64) -> Message {
        message(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#
        ))
    }
}

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}
