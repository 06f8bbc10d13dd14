//! R11 and R19: sessions of Streamable HTTP that their server ends, and what makes a connection of HTTP last.

use super::*;

/// The settings of a server over HTTP that is not probed by itself.
fn http() -> Arc<Settings> {
    settings(|s| {
        s.launched = false;
        s.lasts_alive = true;
    })
}

impl Sim {
    /// The server answers something, as a server that is there does.
    fn hear(&mut self) {
        self.receive(r#"{"jsonrpc":"2.0","id":9007199254740,"result":{}}"#);
    }

    /// The server ends the session.
    fn forget(&mut self) {
        self.lose(loss(End::Session));
    }

    /// The ping that was sent last, answered.
    fn answer_ping(&mut self) -> bool {
        let sent = self.sent();
        let ping = sent.iter().rfind(|frame| frame.contains(r#""ping""#));
        let Some(id) = ping.and_then(|ping| message(ping).id()) else {
            return false;
        };
        let id = id.as_str();
        self.receive(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        true
    }
}

#[test]
fn r11_a_session_that_the_server_ends_is_renewed_at_once_under_the_same_attempt() {
    let mut sim = Sim::started(http());
    sim.fail(Outcome::Refused);
    sim.until_dial();
    sim.connect();
    sim.pass(secs(100));
    sim.hear();
    let before = sim.server.epoch;
    sim.take();
    sim.forget();
    let decisions = sim.decisions();
    let kinds: Vec<_> = decisions.iter().map(Decision::kind).collect();
    assert!(
        kinds.contains(&"session-renewed") && !kinds.contains(&"short-end"),
        "{kinds:?}"
    );
    assert!(decisions.contains(&Decision::Dialing { attempt: 1 }));
    assert_eq!((sim.state(), sim.count()), (State::Connecting, 1));
    assert_eq!(sim.server.epoch, before.next());
}

#[test]
fn r11_the_life_clock_goes_on_over_a_renewal() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(150));
    sim.hear();
    sim.forget();
    sim.connect();
    assert_eq!(sim.view().connection_age, secs(150));
    sim.pass(secs(100));
    sim.hear();
    sim.take();
    sim.pass(secs(49));
    assert_eq!(sim.kinds(&["lasted"]), [""; 0]);
    sim.pass(secs(1));
    assert_eq!(sim.kinds(&["lasted"]), ["lasted"]);
}

#[test]
fn r11_a_renewal_that_cannot_be_made_is_the_failure_of_the_attempt_that_goes_on() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(100));
    sim.hear();
    sim.forget();
    sim.fail(Outcome::Refused);
    assert_eq!((sim.state(), sim.count()), (State::Waiting, 1));
    assert_eq!(sim.until_dial(), secs(5));
}

#[test]
fn r11_a_renewal_of_a_connection_that_has_lasted_has_lasted_too() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(210));
    sim.hear();
    sim.pass(secs(790));
    sim.hear();
    sim.take();
    sim.forget();
    assert_eq!(sim.dials(), [1]);
    sim.connect();
    sim.pass(secs(60));
    sim.hear();
    assert_eq!(sim.kinds(&["lasted"]), [""; 0]);
    sim.lose(loss(End::Http(502)));
    assert_eq!(sim.kinds(&["short-end"]), [""; 0]);
    assert_eq!((sim.count(), sim.until_dial()), (0, secs(5)));
}

#[test]
fn r11_a_session_that_answers_nothing_is_a_short_end() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(100));
    sim.take();
    sim.forget();
    assert_eq!(
        sim.told(&["short-end", "session-renewed"]),
        ["attempt 0 failed: connected, then closed after 100 s, the server ended the session"]
    );
    assert_eq!((sim.state(), sim.count()), (State::Waiting, 1));
}

/// A server that restarts behind 404s in a loop, each time with a good answer first.
#[test]
fn r11_s3_a_loop_of_renewals_backs_off_and_goes_down() {
    for life in [1, 40] {
        let mut sim = Sim::started(http());
        let (mut dials, mut downs) = (0, 0);
        let begun = sim.now;
        while sim.now - begun < secs(3600) {
            dials += 1;
            sim.connect();
            sim.pass(secs(life));
            sim.hear();
            sim.forget();
            sim.until_dial();
            downs += sim.kinds(&["down"]).len();
        }
        assert_eq!(downs, 1, "lives of {life} s");
        assert!(dials < 70, "{dials} dials with lives of {life} s");
    }
}

#[test]
fn r11_without_reconnect_a_session_is_renewed_and_a_failure_halts() {
    let off = settings(|s| {
        s.lasts_alive = true;
        s.reconnect = false;
    });
    let mut sim = Sim::connected(off);
    sim.pass(secs(100));
    sim.hear();
    sim.forget();
    assert_eq!(sim.state(), State::Connecting);
    sim.connect();
    sim.forget();
    assert_eq!(sim.state(), State::Halted);
}

#[test]
fn r11_r13_a_stop_while_a_session_is_renewed_dials_nothing() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(100));
    sim.hear();
    sim.link(LinkEvent::Lost(loss(End::Session)));
    sim.take();
    sim.input(Input::Stop(Stop::Disabled));
    sim.link(LinkEvent::Gone(Reap::Clean));
    assert!(sim.dials().is_empty());
    assert_eq!(sim.state(), State::Disabled);
}

#[test]
fn r19_a_connection_without_a_sign_of_life_in_the_last_third_is_asked_for_one() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(199));
    sim.hear();
    sim.take();
    sim.pass(secs(50));
    assert!(!sim.answer_ping());
    // In the middle of the last third.
    sim.pass(secs(1));
    assert!(sim.answer_ping());
    sim.pass(secs(49));
    assert_eq!(sim.kinds(&["lasted"]), [""; 0]);
    sim.pass(secs(1));
    assert_eq!(sim.kinds(&["lasted"]), ["lasted"]);
}

#[test]
fn r19_a_sign_of_life_in_the_last_third_is_enough() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(200));
    sim.hear();
    sim.take();
    sim.pass(secs(100));
    let sent = sim
        .outputs
        .iter()
        .any(|output| matches!(output, Output::Send { .. }));
    assert!(!sent);
    assert_eq!(sim.kinds(&["lasted"]), ["lasted"]);
}

#[test]
fn r19_a_server_that_does_not_answer_when_it_is_asked_has_not_lasted_and_is_lost() {
    let mut sim = Sim::connected(http());
    sim.pass(secs(269));
    assert!(sim.view().connected);
    sim.pass(secs(1));
    assert!(!sim.view().connected);
    sim.link(LinkEvent::Gone(Reap::Clean));
    let told = ["attempt 0 failed: connected, then closed after 270 s, no sign of life"];
    assert_eq!(sim.told(&["short-end", "lasted"]), told);
}

#[test]
fn r19_where_it_is_asked_late_it_lasts_when_it_answers() {
    let late = settings(|s| {
        s.lasts_alive = true;
        s.lasting_after = Some(secs(6));
    });
    let mut sim = Sim::connected(late);
    sim.pass(secs(8));
    assert!(sim.answer_ping());
    assert_eq!(sim.kinds(&["lasted"]), ["lasted"]);
    sim.pass(DAY);
    assert!(sim.view().connected && !sim.answer_ping());
}

#[test]
fn r19_a_server_of_http_that_is_probed_lasts_and_is_lost_after_two_probes() {
    let mut sim = Sim::connected(settings(|s| {
        s.lasts_alive = true;
        s.probe_after = secs(30);
    }));
    for _ in 0..10 {
        sim.pass(secs(30));
        assert!(sim.answer_ping());
    }
    sim.pass(secs(50));
    assert_eq!(sim.state(), State::Waiting);
    assert_eq!(sim.view().since_lasted, Some(secs(50)));
}
