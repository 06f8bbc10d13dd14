//! One session with a server's engine, opened for stateless clients: it serves one request of theirs after the other,
//! never two at a time, so that what the engine sends on it is about the request that it serves. It keeps no clock.

use std::collections::VecDeque;

use bytes::Bytes;

use super::answered::{self, Answered, Server};
use super::ask::Ask;
use super::gathered::{Gathered, missing};
use super::refused;
use crate::revision::mirrored::Mirrored;
use crate::revision::stateless::{self, MARK};
use crate::wire::jsonrpc::{self, Error, Kind, Message, code, member};
use crate::wire::mcp::{Revision, method};

/// Pages of tools that are read for their mirrored parameters.
const PAGES_MAX: u32 = 100;

/// What a server may ask of the clients that one session is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Skills {
    sampling: bool,
    elicitation: bool,
    roots: bool,
}

impl Skills {
    /// Those of a request's client.
    #[must_use]
    pub fn of(ask: &Ask) -> Self {
        let has = |key| {
            let told = member(ask.capabilities(), key);
            told.is_some_and(|text| text.starts_with('{') || text == "true")
        };
        Self {
            sampling: has("sampling"),
            elicitation: has("elicitation"),
            roots: has("roots"),
        }
    }

    /// The JSON text of `initialize`'s `capabilities`.
    fn capabilities(self) -> String {
        let each = [
            (self.sampling, "sampling"),
            (self.elicitation, "elicitation"),
            (self.roots, "roots"),
        ];
        let told = each.iter().filter(|(can, _)| *can);
        let told: String = told.map(|(_, name)| format!(r#","{name}":{{}}"#)).collect();
        format!(r#"{{"experimental":{{"{MARK}":{{}}}}{told}}}"#)
    }
}

/// The request that opens a session.
pub(super) fn initialize(skills: Skills) -> Bytes {
    let params = format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{{"name":"stateless client","version":"{}"}}}}"#,
        Revision::LATEST,
        skills.capabilities(),
        stateless::VERSION,
    );
    jsonrpc::request(0, method::INITIALIZE, &params)
}

/// Something to do. In order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this on the session.
    Send(Bytes),
    /// Write this to the stream of the client whose request is served.
    Notify(Bytes),
    /// Answer that client, which ends its stream.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The JSON-RPC response.
        frame: Bytes,
    },
    /// What the server's tools have clients mirror, as [`Inner::learn`] asked.
    Learned(Mirrored),
    /// That is no longer so.
    Stale,
}

/// What becomes of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It serves a request.
    Busy,
    /// It waits for a client to give what a server asked for.
    Waiting,
    /// It can serve the next.
    Free,
    /// It can serve nothing any more: end it.
    Spent,
}

/// The session.
#[derive(Debug)]
pub struct Inner {
    stage: Stage,
    server: Server,
    ids: u64,
    /// A request set the level of log messages, which stays set.
    has_level: bool,
    out: VecDeque<Output>,
}

#[derive(Debug)]
enum Stage {
    /// `initialize` was sent under this id; what comes next waits.
    Opening(u64, Option<Work>),
    Free,
    Learning {
        id: u64,
        mirrored: Mirrored,
        pages: u32,
    },
    Calling(Box<Call>),
    Spent,
}

#[derive(Debug)]
enum Work {
    Learn,
    Serve(Box<Ask>),
}

/// A request under way.
#[derive(Debug)]
struct Call {
    /// The client's request, or the one that it made again.
    ask: Ask,
    id: u64,
    gathered: Gathered,
    /// What the client answers with when it comes again; `None` while it waits here.
    away: bool,
    /// The answer, which came while the client was away.
    done: Option<Message>,
}

impl Inner {
    /// A session that opens.
    #[must_use]
    pub fn open(skills: Skills) -> Self {
        Self {
            stage: Stage::Opening(0, None),
            server: Server::default(),
            ids: 1,
            has_level: false,
            out: VecDeque::from([Output::Send(initialize(skills))]),
        }
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// What becomes of it.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.stage {
            Stage::Opening(..) | Stage::Learning { .. } => Standing::Busy,
            Stage::Calling(call) if call.away => Standing::Waiting,
            Stage::Calling(_) => Standing::Busy,
            // The next request would get the log messages of the last.
            Stage::Free if self.has_level => Standing::Spent,
            Stage::Free => Standing::Free,
            Stage::Spent => Standing::Spent,
        }
    }

    /// Reads what the server's tools have clients mirror; answered by [`Output::Learned`]. Only while it is free or
    /// opens.
    pub fn learn(&mut self) {
        self.work(Work::Learn);
    }

    /// Serves a request. Only while it is free or opens.
    pub fn serve(&mut self, ask: Ask) {
        self.work(Work::Serve(Box::new(ask)));
    }

    /// Goes on with the request that this one is made again of. Only while it waits. The client's answers go to the
    /// server.
    pub fn resume(&mut self, ask: Ask) {
        let Stage::Calling(call) = &mut self.stage else {
            return self.answer(refuse(&ask, refused::state()));
        };
        call.away = false;
        call.ask = ask;
        let given = call.ask.responses().unwrap_or("{}").to_owned();
        for frame in call.gathered.answer(&given) {
            self.out.push_back(Output::Send(frame));
        }
        if let Some(done) = call.done.take() {
            self.finish(&done);
        }
    }

    /// Nothing more is there to be read now: what the server has asked for is told. The caller keeps `state` with the
    /// session. `true` where it was told, so that the session waits for that client.
    pub fn rest(&mut self, state: &str) -> bool {
        let Stage::Calling(call) = &mut self.stage else {
            return false;
        };
        if call.away || call.gathered.is_empty() {
            return false;
        }
        call.away = true;
        let answer = answered::wanting(&call.ask, &call.gathered.requests(), Some(state));
        self.answer(answer);
        true
    }

    /// The bytes of what the server asked for and the client is still to be told; `None` where that is nothing.
    #[must_use]
    pub fn gathered(&self) -> Option<usize> {
        let Stage::Calling(call) = &self.stage else {
            return None;
        };
        let is_due = !call.away && !call.gathered.is_empty();
        is_due.then(|| call.gathered.bytes())
    }

    /// Answers the request under way with this refusal, and has its server told that it is over.
    pub fn give_up(&mut self, refusal: refused::Refusal) {
        if let Stage::Calling(call) = &mut self.stage
            && !call.away
        {
            let mut gathered = std::mem::take(&mut call.gathered);
            let answer = refuse(&call.ask, refusal);
            self.dismiss(&mut gathered);
            self.cancel();
            self.answer(answer);
        }
    }

    /// The session is gone: who waits on it is answered.
    pub fn close(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Spent) {
            Stage::Calling(call) if !call.away => self.answer(refuse(&call.ask, refused::lost())),
            Stage::Opening(_, Some(Work::Serve(ask))) => {
                self.answer(refuse(&ask, refused::lost()));
            }
            Stage::Opening(_, Some(Work::Learn)) | Stage::Learning { .. } => {
                self.out.push_back(Output::Learned(Mirrored::default()));
            }
            Stage::Opening(_, None) | Stage::Calling(_) | Stage::Free | Stage::Spent => {}
        }
    }

    /// Takes a message that the engine sent on the session.
    pub fn receive(&mut self, message: &Message) {
        match message.kind() {
            Kind::Response => self.take_response(message),
            Kind::Request => self.take_request(message),
            Kind::Notification => self.take_notification(message),
        }
    }

    fn work(&mut self, work: Work) {
        match &mut self.stage {
            Stage::Opening(_, next) => *next = Some(work),
            Stage::Free => self.start(work),
            Stage::Learning { .. } | Stage::Calling(_) | Stage::Spent => {
                if let Work::Serve(ask) = work {
                    self.answer(refuse(&ask, refused::lost()));
                }
            }
        }
    }

    fn start(&mut self, work: Work) {
        match work {
            Work::Learn => self.read_tools(Mirrored::default(), 0, "{}"),
            Work::Serve(ask) if ask.method() == stateless::method::DISCOVER => {
                let answer = answered::discovered(&ask, &self.server);
                self.answer(answer);
            }
            // Nothing waits under it, and only a stateless server has states of its own.
            Work::Serve(ask) if ask.state().is_some() && !self.server.is_stateless => {
                self.answer(refuse(&ask, refused::state()));
            }
            Work::Serve(ask) => self.call(*ask),
        }
    }

    fn read_tools(&mut self, mirrored: Mirrored, pages: u32, params: &str) {
        let id = self.next_id();
        let frame = jsonrpc::request(id, method::TOOLS_LIST, params);
        self.out.push_back(Output::Send(frame));
        self.stage = Stage::Learning {
            id,
            mirrored,
            pages: pages + 1,
        };
    }

    fn call(&mut self, ask: Ask) {
        let own = self.server.is_stateless;
        if let Some(level) = ask.level().filter(|_| !own) {
            let id = self.next_id();
            let params = format!(r#"{{"level":{level}}}"#);
            let frame = jsonrpc::request(id, method::SET_LEVEL, &params);
            self.out.push_back(Output::Send(frame));
            self.has_level = true;
        }
        let id = self.next_id();
        let text = id.to_string();
        let frame = if own {
            ask.as_it_is(&text)
        } else {
            ask.of_session(&text)
        };
        self.out.push_back(Output::Send(frame));
        self.stage = Stage::Calling(Box::new(Call {
            ask,
            id,
            gathered: Gathered::default(),
            away: false,
            done: None,
        }));
    }

    fn next_id(&mut self) -> u64 {
        let id = self.ids;
        self.ids += 1;
        id
    }

    fn answer(&mut self, Answered { status, frame }: Answered) {
        self.out.push_back(Output::Answer { status, frame });
    }

    fn take_response(&mut self, message: &Message) {
        let id = message.our_id();
        match &mut self.stage {
            Stage::Opening(opening, next) if id == Some(*opening) => {
                let next = next.take();
                self.opened(message, next);
            }
            Stage::Learning {
                id: asked,
                mirrored,
                pages,
            } if id == Some(*asked) => {
                let (mirrored, pages) = (std::mem::take(mirrored), *pages);
                self.learned(message, mirrored, pages);
            }
            Stage::Calling(call) if id == Some(call.id) => {
                if call.away {
                    call.done.get_or_insert_with(|| message.clone());
                } else {
                    self.finish(message);
                }
            }
            // An answer to the level that was set, or to a request that is over.
            Stage::Opening(..)
            | Stage::Learning { .. }
            | Stage::Calling(_)
            | Stage::Free
            | Stage::Spent => {}
        }
    }

    /// `initialize` is answered. It can be refused only where the gateway is stopping.
    fn opened(&mut self, message: &Message, next: Option<Work>) {
        let Some(introduction) = message.result() else {
            self.stage = Stage::Opening(0, next);
            return self.close();
        };
        let experimental = member(introduction, "capabilities")
            .and_then(|capabilities| member(capabilities, "experimental"));
        self.server = Server {
            info: member(introduction, "serverInfo").map(Into::into),
            is_stateless: experimental.is_some_and(|marks| member(marks, MARK).is_some()),
            introduction: introduction.into(),
        };
        let done = jsonrpc::notification(method::INITIALIZED, None);
        self.out.push_back(Output::Send(done));
        self.stage = Stage::Free;
        if let Some(work) = next {
            self.start(work);
        }
    }

    fn learned(&mut self, message: &Message, mut mirrored: Mirrored, pages: u32) {
        let result = message.result().unwrap_or("{}");
        mirrored.learn(result);
        let cursor = member(result, "nextCursor").filter(|cursor| cursor.starts_with('"'));
        match cursor.filter(|_| pages < PAGES_MAX) {
            Some(cursor) => {
                let params = format!(r#"{{"cursor":{cursor}}}"#);
                self.read_tools(mirrored, pages, &params);
            }
            None => {
                self.stage = Stage::Free;
                self.out.push_back(Output::Learned(mirrored));
            }
        }
    }

    /// The request that is served has its answer. What its server still asks is asked for nothing.
    fn finish(&mut self, message: &Message) {
        let Stage::Calling(call) = std::mem::replace(&mut self.stage, Stage::Free) else {
            return;
        };
        let Call {
            ask, mut gathered, ..
        } = *call;
        self.dismiss(&mut gathered);
        let answer = answered::of_server(&ask, message, &self.server);
        self.answer(answer);
    }

    fn take_request(&mut self, message: &Message) {
        let name = message.method();
        if name == method::PING {
            let id = message.id_text().unwrap_or("null");
            let pong = jsonrpc::response(id, "{}");
            return self.out.push_back(Output::Send(pong));
        }
        let is_input = [method::ELICITATION, method::SAMPLING, method::ROOTS_LIST].contains(&name);
        let Stage::Calling(call) = &mut self.stage else {
            return self.refuse(message, "no request of this client is under way");
        };
        if !is_input || !call.ask.is_askable() {
            return self.refuse(
                message,
                "the client's request cannot be answered with this one",
            );
        }
        match missing(message, call.ask.capabilities()) {
            None if call.gathered.add(message) => {}
            None => self.refuse(message, "too much is asked of one client"),
            Some(_) if call.away => self.refuse(message, "the client did not declare this"),
            Some(required) => {
                let mut gathered = std::mem::take(&mut call.gathered);
                let answer = answered::unable(&call.ask, required);
                self.refuse(message, "the client did not declare this");
                self.dismiss(&mut gathered);
                self.cancel();
                self.answer(answer);
            }
        }
    }

    /// The call is over before its server has answered it: the server is told.
    fn cancel(&mut self) {
        if let Stage::Calling(call) = std::mem::replace(&mut self.stage, Stage::Free) {
            let params = format!(r#"{{"requestId":{}}}"#, call.id);
            let frame = jsonrpc::notification(method::CANCELLED, Some(&params));
            self.out.push_back(Output::Send(frame));
        }
    }

    fn refuse(&mut self, message: &Message, why: &str) {
        self.refuse_id(message.id_text().unwrap_or("null"), why);
    }

    fn refuse_id(&mut self, id: &str, why: &str) {
        let error = Error::new(code::METHOD_NOT_FOUND, why);
        let frame = jsonrpc::error_response(id, &error);
        self.out.push_back(Output::Send(frame));
    }

    /// Nobody will answer what is gathered.
    fn dismiss(&mut self, gathered: &mut Gathered) {
        for id in gathered.take_ids() {
            self.refuse_id(&id, "the client's request is over");
        }
    }

    fn take_notification(&mut self, message: &Message) {
        if message.method() == method::TOOLS_CHANGED {
            return self.out.push_back(Output::Stale);
        }
        let Stage::Calling(call) = &mut self.stage else {
            return;
        };
        match message.method() {
            method::CANCELLED => {
                if let Some(span) = message.param(&["requestId"]) {
                    call.gathered.cancel(message.text(&span));
                }
            }
            method::PROGRESS if !call.away => {
                let span = message.param(&["progressToken"]);
                let change = span.zip(call.ask.token());
                if change.is_some() {
                    let frame = message.with("", change.as_slice());
                    self.out.push_back(Output::Notify(frame));
                }
            }
            method::LOG if !call.away && call.ask.level().is_some() => {
                let frame = message.raw().clone();
                self.out.push_back(Output::Notify(frame));
            }
            // Other clients are told of changes, by `subscriptions/listen`.
            _ => {}
        }
    }
}

fn refuse(ask: &Ask, refusal: refused::Refusal) -> Answered {
    let refused = ask.refused(refusal);
    Answered {
        status: refused.status,
        frame: refused.frame,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::tests::{META, ask};
    use super::*;

    const OPENED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{}}}"#;
    const STATELESS: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{"experimental":{"tidegate/stateless":{}}}}}"#;
    const ELICIT: &str =
        r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"m"}}"#;

    fn call(extra: &str) -> Ask {
        ask("tools/call", &format!(r#""name":"echo",{extra}{META}"#)).unwrap()
    }

    fn opened(by: &str) -> Inner {
        let mut inner = Inner::open(Skills::default());
        take(&mut inner, by);
        inner
    }

    fn take(inner: &mut Inner, line: &str) -> Vec<String> {
        inner.receive(&Message::parse(line.to_owned().into()).unwrap());
        drained(inner)
    }

    /// What is sent, told and answered.
    fn drained(inner: &mut Inner) -> Vec<String> {
        let text = |frame: Bytes| String::from_utf8(frame.to_vec()).unwrap();
        std::iter::from_fn(|| inner.poll())
            .map(|output| match output {
                Output::Send(frame) => format!("> {}", text(frame)),
                Output::Notify(frame) => text(frame),
                Output::Answer { status, frame } => format!("{status} {}", text(frame)),
                Output::Learned(_) => "learned".into(),
                Output::Stale => "stale".into(),
            })
            .collect()
    }

    #[test]
    fn a_session_is_opened_with_the_skills_of_its_clients_and_serves_when_it_is_open() {
        let skills = Skills::of(&call(""));
        let mut inner = Inner::open(skills);
        let sent = drained(&mut inner);
        assert!(sent[0].contains(r#""elicitation":{}"#) && !sent[0].contains("sampling"));
        inner.serve(call(""));
        assert!(drained(&mut inner).is_empty());
        let sent = take(&mut inner, OPENED);
        assert!(sent[0].contains("notifications/initialized"));
        assert!(sent[1].contains(r#""id":1,"method":"tools/call""#));
        assert!(!sent[1].contains("io.modelcontextprotocol"), "{}", sent[1]);
        let answer = take(&mut inner, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(answer[0].starts_with(r#"200 {"jsonrpc":"2.0","id":"q""#));
        assert_eq!(inner.standing(), Standing::Free);
    }

    #[test]
    fn to_a_stateless_server_all_passes_as_it_is() {
        let mut inner = opened(STATELESS);
        inner.serve(call(
            r#""requestState":"theirs","inputResponses":{"k":{}},"#,
        ));
        let sent = drained(&mut inner);
        for part in [
            "clientCapabilities",
            r#""requestState":"theirs""#,
            "inputResponses",
        ] {
            assert!(sent[0].contains(part), "{part}");
        }
        let wants = r#"{"resultType":"input_required","requestState":"theirs2"}"#;
        let answer = take(
            &mut inner,
            &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{wants}}}"#),
        );
        assert!(answer[0].contains(wants));
        assert_eq!(inner.standing(), Standing::Free);
    }

    #[test]
    fn what_a_server_asks_is_told_once_nothing_more_comes_and_its_answer_goes_back() {
        let mut inner = opened(OPENED);
        inner.serve(call(""));
        drained(&mut inner);
        assert!(take(&mut inner, ELICIT).is_empty());
        assert!(inner.gathered().is_some() && inner.rest("k1"));
        let told = drained(&mut inner);
        assert!(
            told[0].contains(r#""elicitation-1":{"method""#)
                && told[0].contains(r#""requestState":"k1""#)
        );
        assert_eq!(inner.standing(), Standing::Waiting);
        assert!(!inner.rest("k2"));
        inner.resume(call(
            r#""inputResponses":{"elicitation-1":{"action":"accept"}},"#,
        ));
        let sent = drained(&mut inner);
        assert_eq!(
            sent,
            [r#"> {"jsonrpc":"2.0","id":9,"result":{"action":"accept"}}"#]
        );
        let answer = take(&mut inner, r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
        assert!(answer[0].contains(r#""resultType":"complete""#));
    }

    #[test]
    fn an_answer_that_is_missing_is_asked_for_again_and_one_that_came_meanwhile_is_kept() {
        let mut inner = opened(OPENED);
        inner.serve(call(""));
        take(&mut inner, ELICIT);
        inner.rest("k1");
        drained(&mut inner);
        inner.resume(call(r#""inputResponses":{"wrong":{}},"#));
        assert!(drained(&mut inner).is_empty() && inner.rest("k2"));
        assert!(drained(&mut inner)[0].contains("elicitation-1"));
        assert!(take(&mut inner, r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#).is_empty());
        inner.resume(call(""));
        let last = drained(&mut inner);
        // The server is told that nobody will answer what it asked.
        assert!(
            last[0].contains("-32601") && last[1].contains(r#""a":1"#),
            "{last:?}"
        );
    }

    #[test]
    fn what_the_client_cannot_do_ends_its_call_and_says_what_it_needs() {
        let mut inner = opened(OPENED);
        inner.serve(call(""));
        drained(&mut inner);
        let sample = ELICIT.replace("elicitation/create", "sampling/createMessage");
        let said = take(&mut inner, &sample);
        assert!(said[0].starts_with(r#"> {"jsonrpc":"2.0","id":9,"error""#));
        assert!(said[1].contains("notifications/cancelled"));
        assert!(said[2].starts_with("400") && said[2].contains(r#""sampling":{}"#));
        assert!(take(&mut inner, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).is_empty());
    }

    #[test]
    fn other_requests_of_a_client_are_not_answered_with_questions() {
        let mut inner = opened(OPENED);
        inner.serve(ask("completion/complete", META).unwrap());
        drained(&mut inner);
        let said = take(&mut inner, ELICIT);
        assert!(said[0].contains("-32601") && said.len() == 1);
        assert!(inner.gathered().is_none());
    }

    #[test]
    fn logs_are_told_to_who_asked_for_them_and_no_later_request_gets_them() {
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;
        let mut inner = opened(OPENED);
        inner.serve(call(""));
        drained(&mut inner);
        assert!(take(&mut inner, log).is_empty());
        let loud = META.replace(
            "{\"io.",
            "{\"io.modelcontextprotocol/logLevel\":\"info\",\"io.",
        );
        let loud = ask("tools/call", &format!(r#""name":"echo",{loud}"#)).unwrap();
        let mut inner = opened(OPENED);
        inner.serve(loud);
        let sent = drained(&mut inner);
        assert!(sent[0].contains(r#""method":"logging/setLevel","params":{"level":"info"}"#));
        assert_eq!(take(&mut inner, log), [log]);
        take(&mut inner, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        assert_eq!(inner.standing(), Standing::Spent);
    }

    #[test]
    fn a_state_that_nothing_waits_under_is_refused_and_a_session_that_ends_answers() {
        let mut inner = opened(OPENED);
        inner.serve(call(r#""requestState":"k","#));
        assert!(drained(&mut inner)[0].contains("-32602"));
        inner.serve(call(""));
        drained(&mut inner);
        inner.close();
        assert!(drained(&mut inner)[0].contains("-31051"));
        inner.close();
        assert!(drained(&mut inner).is_empty());
        assert_eq!(inner.standing(), Standing::Spent);
    }

    #[test]
    fn tools_are_read_page_by_page_for_what_they_mirror() {
        let mut inner = opened(OPENED);
        inner.learn();
        assert!(drained(&mut inner)[0].contains("tools/list"));
        let page = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"c"}}"#;
        let more = take(&mut inner, page);
        assert!(more[0].contains(r#""params":{"cursor":"c"}"#));
        let last = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"m"}}"#;
        assert_eq!(take(&mut inner, last), ["learned"]);
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(take(&mut inner, changed), ["stale"]);
        assert_eq!(inner.standing(), Standing::Free);
    }
}
