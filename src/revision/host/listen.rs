//! One `subscriptions/listen` of a stateless client as a session of its own: the resources that it subscribes to, and
//! the notifications that pass its filter (MCP 2026-07-28, "Subscriptions"). It keeps no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Deserialize;
use serde_json::json;

use super::ask::Ask;
use super::inner::{Output, Skills, initialize};
use super::refused::{self, Refused};
use crate::revision::stateless::key::SUBSCRIPTION_ID;
use crate::revision::stateless::{self, result};
use crate::wire::jsonrpc::{self, Kind, Message, code, quoted};
use crate::wire::mcp::method;
use crate::wire::object::{self, Change};

/// Resources that one stream subscribes to.
const RESOURCES_MAX: usize = 1_000;

/// The stream.
#[derive(Debug)]
pub struct Listen {
    ask: Ask,
    filter: Filter,
    stage: Stage,
    out: VecDeque<Output>,
}

#[derive(Debug)]
enum Stage {
    /// `initialize` was sent.
    Opening,
    /// The subscriptions that the server has not answered yet, by the ids of their requests.
    Subscribing(BTreeMap<u64, String>),
    /// Acknowledged.
    Open,
    Over,
}

/// What a client wants to be told of.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: BTreeSet<String>,
}

impl Listen {
    /// Opens the stream that a request asks for.
    ///
    /// # Errors
    /// The answer that refuses it.
    pub fn open(ask: Ask) -> Result<Self, Refused> {
        #[derive(Deserialize)]
        struct Params {
            notifications: Filter,
        }
        let filter = match serde_json::from_str(ask.params()) {
            Ok(Params { notifications }) => notifications,
            Err(_) => return Err(ask.refused(refused::malformed(NEEDS_FILTER))),
        };
        if filter.resource_subscriptions.len() > RESOURCES_MAX {
            return Err(ask.refused(refused::malformed(TOO_MANY)));
        }
        Ok(Self {
            ask,
            filter,
            stage: Stage::Opening,
            out: VecDeque::from([Output::Send(initialize(Skills::default()))]),
        })
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The gateway ends it.
    pub fn close(&mut self) {
        let frame = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => return,
            Stage::Open => {
                let id = self.ask.id();
                let complete = result::COMPLETE;
                let result = format!(
                    r#"{{"resultType":"{complete}","_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}"#
                );
                (200, jsonrpc::response(id, &result))
            }
            Stage::Opening | Stage::Subscribing(_) => {
                let refused = self.ask.refused(refused::lost());
                (refused.status, refused.frame)
            }
        };
        let (status, frame) = frame;
        self.out.push_back(Output::Answer { status, frame });
    }

    /// Takes a message that the engine sent on the session.
    pub fn receive(&mut self, message: &Message) {
        match message.kind() {
            Kind::Response => self.take_response(message),
            Kind::Notification => self.take_notification(message),
            Kind::Request => {
                let id = message.id_text().unwrap_or("null");
                let frame = match message.method() {
                    method::PING => jsonrpc::response(id, "{}"),
                    _ => {
                        let text = "a stream of notifications answers nothing";
                        let error = jsonrpc::Error::new(code::METHOD_NOT_FOUND, text);
                        jsonrpc::error_response(id, &error)
                    }
                };
                self.out.push_back(Output::Send(frame));
            }
        }
    }

    fn take_response(&mut self, message: &Message) {
        match &mut self.stage {
            Stage::Opening if message.result().is_some() => self.subscribe(),
            Stage::Opening => self.close(),
            Stage::Subscribing(waiting) => {
                let uri = message.our_id().and_then(|id| waiting.remove(&id));
                let is_over = waiting.is_empty();
                if let (Some(uri), Some(_)) = (uri, message.error()) {
                    self.filter.resource_subscriptions.remove(&uri);
                }
                if is_over {
                    self.acknowledge();
                }
            }
            Stage::Open | Stage::Over => {}
        }
    }

    fn subscribe(&mut self) {
        let done = jsonrpc::notification(method::INITIALIZED, None);
        self.out.push_back(Output::Send(done));
        let uris = self.filter.resource_subscriptions.iter().cloned();
        let waiting: BTreeMap<u64, String> = (1..).zip(uris).collect();
        for (id, uri) in &waiting {
            let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
            let frame = jsonrpc::request(*id, method::RESOURCES_SUBSCRIBE, &params);
            self.out.push_back(Output::Send(frame));
        }
        if waiting.is_empty() {
            return self.acknowledge();
        }
        self.stage = Stage::Subscribing(waiting);
    }

    /// The first message of the stream: what of the filter is honored.
    fn acknowledge(&mut self) {
        self.stage = Stage::Open;
        let mut honored = serde_json::Map::new();
        let lists = [
            (self.filter.tools_list_changed, "toolsListChanged"),
            (self.filter.prompts_list_changed, "promptsListChanged"),
            (self.filter.resources_list_changed, "resourcesListChanged"),
        ];
        for (_, name) in lists.into_iter().filter(|(wanted, _)| *wanted) {
            honored.insert(name.into(), true.into());
        }
        let uris = &self.filter.resource_subscriptions;
        if !uris.is_empty() {
            honored.insert("resourceSubscriptions".into(), json!(uris));
        }
        let (id, honored) = (self.ask.id(), serde_json::Value::from(honored));
        let params =
            format!(r#"{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}},"notifications":{honored}}}"#);
        let frame = jsonrpc::notification(stateless::method::ACKNOWLEDGED, Some(&params));
        self.out.push_back(Output::Notify(frame));
    }

    fn take_notification(&mut self, message: &Message) {
        let is_open = matches!(self.stage, Stage::Open);
        let filter = &self.filter;
        let is_wanted = match message.method() {
            method::TOOLS_CHANGED => filter.tools_list_changed,
            method::PROMPTS_CHANGED => filter.prompts_list_changed,
            method::RESOURCES_CHANGED => filter.resources_list_changed,
            // The engine sends updates of what this session subscribed to alone.
            method::RESOURCES_UPDATED => !filter.resource_subscriptions.is_empty(),
            _ => false,
        };
        // A client that reads its lists after the acknowledgment has what changed before it.
        if is_open && is_wanted {
            let params = tagged(message.params().unwrap_or("{}"), self.ask.id());
            let frame = jsonrpc::notification(message.method(), Some(&params));
            self.out.push_back(Output::Notify(frame));
        }
    }
}

/// Params that say which stream they are on.
fn tagged(params: &str, id: &str) -> String {
    let meta = jsonrpc::member(params, "_meta").unwrap_or("{}");
    let meta = object::edited(meta, |name, _| match name {
        SUBSCRIPTION_ID => Change::Remove,
        _ => Change::Keep,
    });
    let meta = meta.unwrap_or_else(|| "{}".into());
    let more = meta.strip_prefix('{').unwrap_or("}");
    let comma = if more == "}" { "" } else { "," };
    let meta = format!(r#"{{"{SUBSCRIPTION_ID}":{id}{comma}{more}"#);
    let others = object::edited(params, |name, _| match name {
        "_meta" => Change::Remove,
        _ => Change::Keep,
    });
    let others = others.unwrap_or_else(|| "{}".into());
    let more = others.strip_prefix('{').unwrap_or("}");
    let comma = if more == "}" { "" } else { "," };
    format!(r#"{{"_meta":{meta}{comma}{more}"#)
}

const NEEDS_FILTER: &str = "`params.notifications` must be an object of what to be told of";
const TOO_MANY: &str = "one stream subscribes to at most 1000 resources";

#[cfg(test)]
mod tests {
    use super::super::ask::tests::{META, ask};
    use super::*;

    fn listen(filter: &str) -> Result<Listen, Refused> {
        let params = format!(r#""notifications":{filter},{META}"#);
        Listen::open(ask("subscriptions/listen", &params).unwrap())
    }

    fn take(listen: &mut Listen, line: &str) -> Vec<String> {
        listen.receive(&Message::parse(line.to_owned().into()).unwrap());
        drained(listen)
    }

    fn drained(listen: &mut Listen) -> Vec<String> {
        std::iter::from_fn(|| listen.poll())
            .map(|output| match output {
                Output::Send(frame) => format!("> {}", String::from_utf8(frame.to_vec()).unwrap()),
                Output::Notify(frame) => String::from_utf8(frame.to_vec()).unwrap(),
                Output::Answer { status, frame } => {
                    format!("{status} {}", String::from_utf8(frame.to_vec()).unwrap())
                }
                Output::Learned(_) | Output::Stale => unreachable!(),
            })
            .collect()
    }

    const OPENED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{}}}"#;
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    const UPDATED: &str = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a","_meta":{"k":1}}}"#;

    #[test]
    fn a_stream_begins_with_what_it_honors_and_carries_nothing_else() {
        let mut stream = listen(r#"{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a","b"]}"#).unwrap();
        drained(&mut stream);
        let sent = take(&mut stream, OPENED);
        assert_eq!(sent.len(), 3, "{sent:?}");
        assert!(take(&mut stream, CHANGED).is_empty());
        assert!(take(&mut stream, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).is_empty());
        let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"m"}}"#;
        let first = take(&mut stream, refused);
        let wanted = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"q"},"notifications":{"resourceSubscriptions":["a"],"toolsListChanged":true}}}"#;
        assert_eq!(first, [wanted]);
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"q"}}}"#;
        assert_eq!(take(&mut stream, CHANGED), [changed]);
        let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"q","k":1},"uri":"a"}}"#;
        assert_eq!(take(&mut stream, UPDATED), [updated]);
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error"}}"#,
        ] {
            assert!(take(&mut stream, other).is_empty());
        }
    }

    #[test]
    fn a_stream_that_the_gateway_ends_says_that_it_is_complete_and_nothing_after() {
        let mut stream = listen(r#"{"toolsListChanged":true}"#).unwrap();
        take(&mut stream, OPENED);
        stream.close();
        let last = r#"200 {"jsonrpc":"2.0","id":"q","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"q"}}}"#;
        assert_eq!(drained(&mut stream), [last]);
        assert!(take(&mut stream, CHANGED).is_empty());
        stream.close();
        assert!(drained(&mut stream).is_empty());
    }

    #[test]
    fn a_filter_that_is_none_is_malformed() {
        for odd in ["3", "null", r#"{"resourceSubscriptions":"a"}"#] {
            assert_eq!(listen(odd).unwrap_err().status, 400, "{odd}");
        }
        let many: Vec<String> = (0..=RESOURCES_MAX).map(|n| n.to_string()).collect();
        let many = json!({"resourceSubscriptions": many}).to_string();
        assert_eq!(listen(&many).unwrap_err().status, 400);
    }
}
