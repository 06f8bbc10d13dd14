//! The servers of the run, each with a history of its own, and the driver's hand on those that change theirs.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{faultd, with};

/// How long a connection of the mended server must live, and how long it does in its false dawn: 97 % of that.
pub(crate) const MENDED_LASTS_MS: u64 = 20_000;
const FALSE_DAWN_MS: u64 = 19_400;

/// The servers, and what they are told through files.
pub(crate) struct Scripted {
    pub(crate) servers: Value,
    /// Listens, and never says a word.
    _silent: TcpListener,
}

/// The defaults at our pace: 5 s, 300 s and 300 s.
fn timings() -> Value {
    json!({"reconnectIntervalMs": 167, "reconnectMaxIntervalMs": 10_000, "lastingAfterMs": 10_000})
}

impl Scripted {
    pub(crate) fn new(lives: &Path) -> Self {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let scripted = Self {
            servers: servers(lives, address),
            _silent: silent,
        };
        live(lives, "mended", Some(300));
        live(lives, "dropped", Some(11_000));
        scripted
    }
}

fn servers(lives: &Path, silent: SocketAddr) -> Value {
    let told = |name: &str| faultd(&format!("--life {}", lives.join(name).display()));
    let loops = "--mcpl --register --die-after-ms 300 --exit-code 7";
    json!({
        "steady": with(faultd("--mcpl --register --publish-every-ms 500"), timings()),
        "looping": with(faultd(loops), timings()),
        "absent": with(faultd("--fail-before-handshake"), timings()),
        "hanging": {
            "url": format!("ws://{silent}"), "reconnectIntervalMs": 167, "reconnectMaxIntervalMs": 10_000,
            "lastingAfterMs": 10_000, "connectTimeoutMs": 60_000, "downAfterMs": 4_000,
        },
        "flapping": with(with(faultd("--die-after-ms 9000"), timings()), json!({"downAfterAttempts": 2})),
        "mended": with(with(told("mended"), timings()), json!({
            "reconnectIntervalMs": 100, "reconnectMaxIntervalMs": 2_000, "lastingAfterMs": MENDED_LASTS_MS,
        })),
        "dropped": with(told("dropped"), timings()),
    })
}

/// From its next launch on the server lives for so many milliseconds, or for good.
fn live(lives: &Path, server: &str, ms: Option<u64>) {
    let file = lives.join(server);
    let Some(ms) = ms else {
        return fs::remove_file(file).unwrap();
    };
    let next = file.with_extension("next");
    fs::write(&next, ms.to_string()).unwrap();
    fs::rename(next, file).unwrap();
}

/// The mended server's next connection ends just before it has lasted.
pub(crate) fn dawn_falsely(lives: &Path) {
    live(lives, "mended", Some(FALSE_DAWN_MS));
}

/// The server's next connection stays.
pub(crate) fn mend(lives: &Path, server: &str) {
    live(lives, server, None);
}
