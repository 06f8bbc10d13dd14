//! Calls whose server may want to know more before it answers: what it asks for, what it was given, and the same call
//! again. It writes no message.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::revision::stateless::result;
use crate::wire::jsonrpc::{Message, member, quoted};
use crate::wire::mcp::method;

/// How often one call may ask for more.
const ROUNDS_MAX: u32 = 32;
/// What one result may ask for.
const INPUTS_MAX: usize = 64;
/// Calls that are kept to be sent again, and their bytes. One beyond that cannot be, and is told so where it has to.
const CALLS_MAX: usize = 10_000;
/// See [`CALLS_MAX`].
const BYTES_MAX: usize = 64 << 20;
/// The methods whose results may ask for more.
const ASKING: [&str; 3] = [
    method::TOOLS_CALL,
    method::PROMPTS_GET,
    method::RESOURCES_READ,
];
/// What may be asked for.
const ASKED: [&str; 3] = [method::SAMPLING, method::ELICITATION, method::ROOTS_LIST];

/// The calls that are under way.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    calls: BTreeMap<u64, Call>,
    /// The calls that were sent again, by the number of that.
    again: BTreeMap<u64, u64>,
    /// The calls that wait for an input, by its number.
    inputs: BTreeMap<u64, u64>,
    /// The calls of stateless clients, which do all this themselves.
    untouched: BTreeSet<u64>,
    bytes: usize,
    last: u64,
}

#[derive(Debug)]
struct Call {
    request: Message,
    rounds: u32,
    /// The number under which it was sent last, where that was not the first time.
    again: Option<u64>,
    /// The inputs that are awaited: their keys as JSON text, and methods, by their numbers.
    open: BTreeMap<u64, (String, String)>,
    /// The inputs that came, as members.
    given: Vec<String>,
    /// `requestState` as written.
    state: Option<String>,
}

/// An input that somebody has to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) number: u64,
    pub(super) method: String,
    /// JSON text.
    pub(super) params: Option<String>,
}

/// What became of an input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Nobody waits for it any more.
    Unwanted,
    /// The call waits for others too.
    More,
    /// The call has all that it asked for.
    All(u64),
    /// Nobody can give it: the call, and the input's method.
    Refused(u64, String),
}

/// A call that ended or was given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The number under which the server knows it; `None` where that is its own id.
    pub(super) again: Option<u64>,
    /// The inputs that it still waited for; where there are any, the server knows of no call.
    pub(super) open: Vec<u64>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Whether a result asks for more.
pub(super) fn asks(text: &str) -> bool {
    // Nearly all results are answers, and then nothing of them is parsed.
    memchr::memmem::find(text.as_bytes(), result::INPUT_REQUIRED.as_bytes()).is_some()
        && member(text, "resultType")
            .is_some_and(|kind| kind.trim_matches('"') == result::INPUT_REQUIRED)
}

impl Rounds {
    /// Keeps a call where its result may ask for more.
    pub(super) fn keep(&mut self, id: u64, request: &Message) {
        let fits = self.calls.len() < CALLS_MAX && self.bytes + request.len() <= BYTES_MAX;
        if !fits || !ASKING.contains(&request.method()) {
            return;
        }
        self.bytes += request.len();
        let call = Call {
            request: request.clone(),
            rounds: 0,
            again: None,
            open: BTreeMap::new(),
            given: Vec::new(),
            state: None,
        };
        self.calls.insert(id, call);
    }

    /// Remembers that the answer to a call goes back as it is.
    pub(super) fn leave(&mut self, id: u64) {
        if self.untouched.len() < CALLS_MAX {
            self.untouched.insert(id);
        }
    }

    /// Whether the answer to that call goes back as it is. It is told once.
    pub(super) fn take_untouched(&mut self, id: u64) -> bool {
        self.untouched.remove(&id)
    }

    /// The call that was sent again under that number.
    pub(super) fn call_of(&self, again: u64) -> Option<u64> {
        self.again.get(&again).copied()
    }

    /// It is answered or given up.
    pub(super) fn end(&mut self, id: u64) -> Option<Ended> {
        self.untouched.remove(&id);
        let call = self.calls.remove(&id)?;
        self.bytes -= call.request.len();
        if let Some(again) = call.again {
            self.again.remove(&again);
        }
        let open: Vec<u64> = call.open.into_keys().collect();
        for number in &open {
            self.inputs.remove(number);
        }
        let again = call.again;
        Some(Ended { again, open })
    }

    /// Reads a result that asks for more. Nothing to ask for means that the call is to be sent again at once.
    ///
    /// # Errors
    /// Why it cannot be had; the call stays, to be ended.
    pub(super) fn ask(&mut self, id: u64, result: &str) -> Result<Vec<Input>, String> {
        let asked = read(result)?;
        let call = self.calls.get_mut(&id);
        let call = call.ok_or("the server wants to know more about a request that is not kept")?;
        call.rounds += 1;
        if call.rounds > ROUNDS_MAX {
            return Err(format!("the server asked for more {ROUNDS_MAX} times"));
        }
        if let Some(again) = call.again.take() {
            self.again.remove(&again);
        }
        call.given.clear();
        call.state = member(result, "requestState").map(Into::into);
        let mut inputs = Vec::new();
        for (key, method, params) in asked {
            self.last += 1;
            let number = self.last;
            self.inputs.insert(number, id);
            call.open.insert(number, (quoted(&key), method.clone()));
            inputs.push(Input {
                number,
                method,
                params,
            });
        }
        Ok(inputs)
    }

    /// Somebody answered for an input: a result as JSON text, or `None` for an error.
    pub(super) fn give(&mut self, number: u64, result: Option<&str>) -> Given {
        let id = self.inputs.remove(&number);
        let Some((id, call)) = id.and_then(|id| Some((id, self.calls.get_mut(&id)?))) else {
            return Given::Unwanted;
        };
        let Some((key, method)) = call.open.remove(&number) else {
            return Given::Unwanted;
        };
        let Some(result) = result else {
            return Given::Refused(id, method);
        };
        call.given.push(format!("{key}:{result}"));
        if call.open.is_empty() {
            Given::All(id)
        } else {
            Given::More
        }
    }

    /// Sends a call again: the number to send it under, the request, and the members that its params get.
    pub(super) fn again(&mut self, id: u64) -> Option<(u64, &Message, String)> {
        let call = self.calls.get_mut(&id)?;
        self.last += 1;
        let number = self.last;
        call.again = Some(number);
        self.again.insert(number, id);
        let mut members = Vec::new();
        if !call.given.is_empty() {
            members.push(format!(r#""inputResponses":{{{}}}"#, call.given.join(",")));
        }
        if let Some(state) = &call.state {
            members.push(format!(r#""requestState":{state}"#));
        }
        Some((number, &call.request, members.join(",")))
    }
}

type Read = Vec<(String, String, Option<String>)>;

fn read(result: &str) -> Result<Read, String> {
    let requests = member(result, "inputRequests").unwrap_or("{}");
    if requests == "{}" && member(result, "requestState").is_none() {
        return Err("the server wants to know more and does not say what".into());
    }
    let asked: BTreeMap<String, Asked<'_>> = serde_json::from_str(requests)
        .map_err(|_| "what the server wants to know cannot be read".to_owned())?;
    if asked.len() > INPUTS_MAX {
        return Err(format!("the server asks for more than {INPUTS_MAX} things"));
    }
    let known = |(key, asked): (String, Asked<'_>)| {
        if ASKED.contains(&asked.method.as_str()) {
            let params = asked.params.map(|params| params.get().to_owned());
            return Ok((key, asked.method, params));
        }
        let name: String = asked.method.chars().take(64).collect();
        Err(format!(
            "the server asks for `{name}`, which no client answers"
        ))
    };
    asked.into_iter().map(known).collect()
}
