//! Hosts of the stateless revision, 2026-07-28, in front of servers with sessions: what each request is answered
//! with, what becomes of what a server asks, and that nothing of a session is needed or left (decision 0019).

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, faultd, with};
use crate::real_servers::everything;
use crate::streamable::{Client, Feed, body, header, sent};

const VERSION: &str = "2026-07-28";

/// A client, and what it can do.
struct Stateless {
    client: Client,
    capabilities: Value,
    /// More members of each request's `_meta`.
    meta: Value,
    next_id: u64,
}

impl Stateless {
    fn new(gateway: &Gateway, server: &str) -> Self {
        Self {
            client: Client::new(&gateway.http_url(server)),
            capabilities: json!({}),
            meta: json!({}),
            next_id: 1,
        }
    }

    fn able(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    fn with_meta(mut self, meta: Value) -> Self {
        self.meta = meta;
        self
    }

    /// A request with the headers that it needs.
    fn request(&mut self, method: &str, params: Value) -> RequestBuilder {
        self.next_id += 1;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        let name = params["name"].as_str().or(params["uri"].as_str());
        let name = name.map(str::to_owned);
        let params = with(params, json!({"_meta": with(meta, self.meta.clone())}));
        let message =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        let request = self
            .client
            .request(Method::POST)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        let request = match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        };
        request.body(message.to_string())
    }

    async fn send(&mut self, method: &str, params: Value) -> Response {
        let response = sent(self.request(method, params)).await;
        assert_eq!(header(&response, "mcp-session-id"), "");
        response
    }

    /// The status and the answer, which is JSON.
    async fn ask(&mut self, method: &str, params: Value) -> (u16, Value) {
        let response = self.send(method, params).await;
        let status = response.status().as_u16();
        let answer = body(response).await;
        assert_eq!(answer["id"], self.next_id, "{answer}");
        (status, answer)
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask("tools/call", params).await.1
    }
}

async fn running(flags: &str) -> Gateway {
    run(Place::new(), faultd(flags)).await
}

async fn run(place: Place, server: Value) -> Gateway {
    let gateway = place.run(&json!({ "a": server })).await;
    gateway.events().await.until("a", "adopted").await;
    gateway
}

fn elicit() -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"method": "elicitation/create",
        "params": {"message": "who are you?", "requestedSchema": schema}})
}

#[tokio::test]
async fn a_request_needs_no_session_and_its_result_says_what_it_is() {
    let gateway = running("--name made-up").await;
    let mut client = Stateless::new(&gateway, "a");
    let (status, found) = client.ask("server/discover", json!({})).await;
    let found = &found["result"];
    assert_eq!(
        (status, &found["supportedVersions"][0]),
        (200, &json!(VERSION))
    );
    assert!(found["capabilities"]["tools"].is_object(), "{found}");
    assert_eq!(found["capabilities"]["experimental"], Value::Null);
    let info = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "made-up");
    let (_, list) = client.ask("tools/list", json!({})).await;
    let list = &list["result"];
    assert_eq!(list["resultType"], "complete");
    assert_eq!(
        (&list["ttlMs"], &list["cacheScope"]),
        (&json!(60000), &json!("private"))
    );
    let answer = client.call("echo", json!({"n": 1})).await;
    let result = &answer["result"];
    assert_eq!(
        (&result["resultType"], &result["structuredContent"]["n"]),
        (&json!("complete"), &json!(1))
    );
    // What the server read of it has no trace of the revision.
    let read = result["echo"]["_meta"].as_object().unwrap();
    assert!(read.is_empty(), "{read:?}");
}

#[tokio::test]
async fn clients_of_both_kinds_are_served_on_one_url() {
    let gateway = running("").await;
    let mut session = Client::open(&gateway.http_url("a")).await;
    let mut stateless = Stateless::new(&gateway, "a");
    for n in 0..3 {
        let answer = stateless.call("echo", json!({ "n": n })).await;
        assert_eq!(answer["result"]["structuredContent"]["n"], n);
        let answer = session.call("echo", json!({ "n": n })).await;
        assert_eq!(answer["result"]["structuredContent"]["n"], n);
        assert_eq!(answer["result"]["resultType"], Value::Null);
    }
}

#[tokio::test]
async fn calls_one_after_the_other_share_a_session_with_the_server_and_calls_at_once_do_not() {
    let gateway = running("").await;
    let mut client = Stateless::new(&gateway, "a");
    for n in 0..20 {
        client.call("echo", json!({ "n": n })).await;
    }
    let open = r#"tidegate_host_sessions{face="http"}"#;
    assert_eq!(gateway.metric(open).await, 1.0);
    let calls = (0..8).map(|n| {
        let request = client.request("tools/call", json!({"name": "echo", "arguments": {"n": n}}));
        tokio::spawn(async move { (n, body(sent(request).await).await) })
    });
    for call in calls.collect::<Vec<_>>() {
        let (n, answer) = call.await.unwrap();
        assert_eq!(answer["result"]["structuredContent"]["n"], n);
    }
}

#[tokio::test]
async fn what_a_request_does_not_say_rightly_is_refused_with_its_own_code() {
    let gateway = running("").await;
    let mut client = Stateless::new(&gateway, "a");
    for (method, status) in [
        ("ping", 404),
        ("logging/setLevel", 404),
        ("initialize", 404),
        ("x/y", 404),
    ] {
        let (seen, answer) = client.ask(method, json!({})).await;
        assert_eq!(
            (seen, &answer["error"]["code"]),
            (status, &json!(-32601)),
            "{method}"
        );
    }
    let twice = client
        .request("tools/list", json!({}))
        .header("mcp-method", "tools/list");
    assert_eq!(sent(twice).await.status(), 400);
    let (status, answer) = client.ask("tools/list", json!({"_meta": 3})).await;
    // `with` replaced it, so this one is right.
    assert_eq!((status, &answer["error"]), (200, &Value::Null));
    let plain = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let bare = client
        .client
        .request(Method::POST)
        .header("content-type", "application/json")
        .header("mcp-method", "tools/list")
        .header("mcp-protocol-version", VERSION)
        .body(plain.to_string());
    let bare = sent(bare).await;
    assert_eq!(bare.status(), 400);
    assert_eq!(body(bare).await["error"]["code"], -32602);
    let mut later =
        client.with_meta(json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"}));
    let (status, answer) = later.ask("tools/list", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)));
}

#[tokio::test]
async fn a_mirrored_parameter_must_stand_in_the_head() {
    let place = Place::new();
    let tools = place.file("tools");
    let tool = json!({"name": "sql", "inputSchema": {"type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}});
    std::fs::write(&tools, tool.to_string()).unwrap();
    let flags = format!("--tools-file {}", tools.display());
    let gateway = run(place, faultd(&flags)).await;
    let mut client = Stateless::new(&gateway, "a");
    let params = json!({"name": "sql", "arguments": {"region": "eu"}});
    for (header, code) in [
        (None, -32020),
        (Some("us"), -32020),
        (Some("eu"), -32602),
        (Some("=?base64?ZXU=?="), -32602),
    ] {
        let mut request = client.request("tools/call", params.clone());
        if let Some(value) = header {
            request = request.header("Mcp-Param-Region", value);
        }
        let answer = body(sent(request).await).await;
        // The server knows no such tool, and says so where it is asked.
        assert_eq!(answer["error"]["code"], code, "{header:?} {answer}");
    }
}

#[tokio::test]
async fn what_a_server_asks_is_asked_for_and_given_on_another_connection() {
    let gateway = running("").await;
    let able = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    let mut client = Stateless::new(&gateway, "a").able(able.clone());
    let sample =
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let asked = json!({"requests": [elicit(), sample, {"method": "roots/list"}]});
    let params = json!({"name": "wonder", "arguments": asked});
    let mut wanted = client.ask("tools/call", params.clone()).await.1;
    let mut given = serde_json::Map::new();
    // The three come one after the other, so that the first may be told before the last is there.
    for round in 0.. {
        assert!(round < 4, "{wanted}");
        let result = &wanted["result"];
        if result["resultType"] == "complete" {
            break;
        }
        assert_eq!(result["resultType"], "input_required", "{wanted}");
        let state = result["requestState"].clone();
        for (key, request) in result["inputRequests"].as_object().unwrap() {
            let answer = match request["method"].as_str().unwrap() {
                "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
                "sampling/createMessage" => {
                    json!({"role": "assistant", "content": {"type": "text", "text": "t"}, "model": "m"})
                }
                _ => json!({"roots": [{"uri": "file:///r"}]}),
            };
            given.insert(key.clone(), answer);
        }
        let again = with(
            params.clone(),
            json!({"inputResponses": given, "requestState": state}),
        );
        let mut other = Stateless::new(&gateway, "a").able(able.clone());
        wanted = other.ask("tools/call", again).await.1;
    }
    let answers = wanted["result"]["structuredContent"]["answers"].clone();
    assert_eq!(answers[0]["content"]["name"], "Ada", "{wanted}");
    assert_eq!(
        (&answers[1]["model"], &answers[2]["roots"][0]["uri"]),
        (&json!("m"), &json!("file:///r"))
    );
}

#[tokio::test]
async fn a_state_is_good_once_for_the_same_request_of_the_same_host() {
    let hosts = json!({"hosts": [
        {"name": "one", "token": "token-of-one", "servers": ["a"]},
        {"name": "two", "token": "token-of-two", "servers": ["a"]}]});
    let gateway = run(Place::with(hosts), faultd("")).await;
    let able = json!({"elicitation": {}});
    let client = |token: &str| {
        let mut client = Stateless::new(&gateway, "a").able(able.clone());
        client.client.token = Some(token.into());
        client
    };
    let mut one = client("token-of-one");
    let params = json!({"name": "wonder", "arguments": {"requests": [elicit()]}});
    let wanted = one.ask("tools/call", params.clone()).await.1;
    let state = wanted["result"]["requestState"]
        .as_str()
        .unwrap()
        .to_owned();
    let given = json!({"elicitation-1": {"action": "decline"}});
    let again = |params: &Value, state: &str| {
        with(
            params.clone(),
            json!({"inputResponses": given, "requestState": state}),
        )
    };
    let refused = json!(-32602);
    let theft = client("token-of-two")
        .ask("tools/call", again(&params, &state))
        .await
        .1;
    assert_eq!(theft["error"]["code"], refused, "{theft}");
    let other = json!({"name": "wonder", "arguments": {"requests": [elicit(), elicit()]}});
    let other = one.ask("tools/call", again(&other, &state)).await.1;
    assert_eq!(other["error"]["code"], refused, "{other}");
    let tampered = one
        .ask("tools/call", again(&params, &format!("{state}x")))
        .await
        .1;
    assert_eq!(tampered["error"]["code"], refused);
    let done = one.ask("tools/call", again(&params, &state)).await.1;
    assert_eq!(
        done["result"]["structuredContent"]["answers"][0]["action"], "decline",
        "{done}"
    );
    let twice = one.ask("tools/call", again(&params, &state)).await.1;
    assert_eq!(twice["error"]["code"], refused);
}

#[tokio::test]
async fn a_call_that_needs_what_the_client_did_not_declare_says_so_and_is_cancelled() {
    let place = Place::new();
    let heard = place.file("heard");
    let flags = format!("--heard {}", heard.display());
    let gateway = run(place, faultd(&flags)).await;
    let mut client = Stateless::new(&gateway, "a").able(json!({"sampling": {}}));
    let params = json!({"name": "wonder", "arguments": {"requests": [elicit()]}});
    let (status, answer) = client.ask("tools/call", params).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32021)));
    let needed = &answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({"elicitation": {"form": {}}}));
    until_heard(&heard, "notifications/cancelled").await;
    // The session goes on.
    assert!(client.call("echo", json!({})).await["result"].is_object());
}

#[tokio::test]
async fn a_call_with_a_renewed_token_is_not_ended_with_the_session_that_the_old_one_began() {
    let hosts = |token: &str| json!({"hosts": [{"name": "one", "token": token, "servers": ["*"]}]});
    let server = faultd("");
    let mut gateway = run(Place::with(hosts("token-old")), server.clone()).await;
    let mut client = Stateless::new(&gateway, "a");
    client.client.token = Some("token-old".into());
    let answer = client.call("echo", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
    let servers = json!({ "a": server });
    gateway.reload_with(hosts("token-new"), &servers).await;
    assert_eq!(client.send("tools/list", json!({})).await.status(), 401);
    client.client.token = Some("token-new".into());
    let answer = client.call("echo", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
}

async fn until_heard(file: &std::path::Path, what: &str) {
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    for _ in 0..1_500 {
        tick.tick().await;
        if read().contains(what) {
            return;
        }
    }
    panic!("no {what} in {}", read());
}

#[tokio::test]
async fn progress_and_the_logs_that_were_asked_for_come_before_the_answer() {
    let gateway = running("").await;
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
    let say = json!({"name": "say", "arguments": {"messages": [log]}});
    let mut quiet = Stateless::new(&gateway, "a");
    assert_eq!(quiet.ask("tools/call", say.clone()).await.0, 200);
    let meta = json!({"io.modelcontextprotocol/logLevel": "info", "progressToken": "mine"});
    let mut loud = Stateless::new(&gateway, "a").with_meta(meta);
    let mut feed = Feed::new(loud.send("tools/call", say).await);
    let first = feed.message().await.unwrap();
    assert_eq!(
        (first.message()["method"].as_str(), &first.id),
        (Some("notifications/message"), &None)
    );
    assert!(feed.message().await.unwrap().message()["result"].is_object());
    assert_eq!(feed.next().await, None);
    let params = json!({"name": "progress", "arguments": {"count": 2}});
    let mut feed = Feed::new(loud.send("tools/call", params).await);
    for n in 1..=2 {
        let told = feed.message().await.unwrap().message();
        assert_eq!(
            told["params"],
            json!({"progressToken": "mine", "progress": n})
        );
    }
    let answer = feed.message().await.unwrap().message();
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_client_that_closes_its_stream_cancels_its_call() {
    let place = Place::new();
    let heard = place.file("heard");
    let flags = format!("--heard {}", heard.display());
    let gateway = run(place, faultd(&flags)).await;
    let mut client = Stateless::new(&gateway, "a");
    let sleep = json!({"name": "sleep", "arguments": {"ms": 600_000}});
    let sleeping = tokio::spawn(client.request("tools/call", sleep).send());
    until_heard(&heard, "tools/call").await;
    sleeping.abort();
    until_heard(&heard, "notifications/cancelled").await;
}

#[tokio::test]
async fn a_stream_of_notifications_has_what_it_was_asked_for_and_says_when_it_ends() {
    let gateway = running("").await;
    let mut client = Stateless::new(&gateway, "a");
    let filter = |filter: Value| json!({ "notifications": filter });
    let tools = client
        .send(
            "subscriptions/listen",
            filter(json!({"toolsListChanged": true})),
        )
        .await;
    let mut tools = Feed::new(tools);
    let id = client.next_id;
    let first = tools.message().await.unwrap().message();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let prompts = filter(json!({"promptsListChanged": true}));
    let mut prompts = Feed::new(client.send("subscriptions/listen", prompts).await);
    prompts.message().await.unwrap();
    client.call("notify", json!({})).await;
    let told = tools.message().await.unwrap().message();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        id
    );
    // The gateway stops: both streams say that they are complete, and no more.
    crate::processes::terminate(gateway.pid());
    let mut last = tools.message().await.unwrap().message();
    // The gateway's own first reading of the tools may have been told too.
    while last["method"] == "notifications/tools/list_changed" {
        last = tools.message().await.unwrap().message();
    }
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!(id), &json!("complete")),
        "{last}"
    );
    let last = prompts.message().await.unwrap().message();
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(prompts.next().await, None);
}

#[tokio::test]
async fn a4_a_call_that_meets_a_server_that_is_away_is_told_with_a_free_code() {
    let place = Place::new();
    let lives = place.file("lives");
    let gateway = place
        .run(&json!({ "a": faultd(&format!("--fail-before-handshake --log {}", lives.display())) }))
        .await;
    gateway.events().await.until("a", "attempt-failed").await;
    let mut client = Stateless::new(&gateway, "a");
    let (status, answer) = client
        .ask("tools/call", json!({"name": "echo", "arguments": {}}))
        .await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (200, &json!(-31050)),
        "{answer}"
    );
    assert_eq!(answer["error"]["data"]["sent"], false);
    let (status, list) = client.ask("tools/list", json!({})).await;
    assert_eq!((status, &list["result"]["tools"]), (200, &json!([])));
    let nowhere = Stateless::new(&gateway, "nowhere")
        .send("tools/list", json!({}))
        .await;
    assert_eq!(nowhere.status(), 404);
}

#[tokio::test]
async fn a_stateless_client_has_all_its_servers_on_one_url() {
    let servers = json!({"a": faultd(""), "b": faultd("")});
    let gateway = Gateway::run(&servers).await;
    for server in ["a", "b"] {
        // Either may be the first.
        gateway.events().await.until(server, "adopted").await;
    }
    let all = format!("http://{}/mcp", gateway.listen());
    let mut client = Stateless::new(&gateway, "a").able(json!({"elicitation": {}}));
    client.client = Client::new(&all);
    let (_, list) = client.ask("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    assert!(has("a__echo") && has("b__echo"), "{list}");
    let echo = client.call("b__echo", json!({"n": 1})).await;
    assert_eq!(echo["result"]["structuredContent"]["n"], 1, "{echo}");
    let params = json!({"name": "a__wonder", "arguments": {"requests": [elicit()]}});
    let wanted = client.ask("tools/call", params.clone()).await.1;
    let state = &wanted["result"]["requestState"];
    let given = json!({"elicitation-1": {"action": "decline"}});
    let again = with(
        params,
        json!({"inputResponses": given, "requestState": state}),
    );
    let done = client.ask("tools/call", again).await.1;
    assert_eq!(
        done["result"]["structuredContent"]["answers"][0]["action"], "decline",
        "{done}"
    );
}

#[tokio::test]
async fn a_real_server_with_sessions_serves_a_stateless_client() {
    let gateway = run(Place::new(), everything()).await;
    let mut client = Stateless::new(&gateway, "a").able(json!({"elicitation": {}, "sampling": {}}));
    let sum = client.call("get-sum", json!({"a": 2, "b": 3})).await;
    let text = sum["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains('5'), "{sum}");
    let params = json!({"name": "trigger-sampling-request", "arguments": {"prompt": "hello", "maxTokens": 10}});
    let wanted = client.ask("tools/call", params.clone()).await.1;
    let asked = &wanted["result"]["inputRequests"]["sampling-1"];
    assert_eq!(asked["method"], "sampling/createMessage", "{wanted}");
    let given = json!({"sampling-1": {"role": "assistant", "model": "m", "stopReason": "endTurn",
        "content": {"type": "text", "text": "a model said this"}}});
    let state = &wanted["result"]["requestState"];
    let again = with(
        params,
        json!({"inputResponses": given, "requestState": state}),
    );
    let done = client.ask("tools/call", again).await.1;
    assert!(done.to_string().contains("a model said this"), "{done}");
    let (_, list) = client.ask("resources/list", json!({})).await;
    let uri = list["result"]["resources"][0]["uri"].clone();
    let (_, read) = client.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["result"]["ttlMs"], 0, "{read}");
}
