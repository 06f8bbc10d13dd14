//! All servers as one, on `/mcp` (4-faces): while some are away, slow or refused, while they come and go, and beside
//! the same servers alone.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Place, faultd, with};
use crate::host::{Host, Received};
use crate::real_servers::everything;
use crate::streamable::{Client, body};

const CHANGED: &str = "notifications/tools/list_changed";

fn value(answer: &Received) -> Value {
    serde_json::from_str(answer.result()).unwrap()
}

async fn list(client: &mut Host) -> Value {
    value(&client.request("tools/list", json!({})).await)
}

fn names(listed: &Value) -> BTreeSet<&str> {
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Waits until each of them has been connected to.
async fn adopted(gateway: &Gateway, servers: &[&str]) {
    let mut events = gateway.events().await;
    for server in servers {
        events.until_times(server, "adopted", 1).await;
    }
}

/// The servers that a list names under this key, with their states.
fn noted(listed: &Value, key: &str) -> Vec<(String, String)> {
    let noted = listed["_meta"][key].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let noted = noted.iter();
    noted
        .map(|one| (text(one, "server"), text(one, "state")))
        .collect()
}

/// Lists until it is so; the client looks again whenever it is told that something changed.
async fn until_list(client: &mut Host, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let listed = list(client).await;
        if is_so(&listed) {
            return listed;
        }
        client.notification(CHANGED).await;
    }
}

/// BR-073, BR-128, BR-130, BR-131, BR-133: what is wrong with one server is its own.
#[tokio::test]
async fn a_server_that_is_down_slow_refused_or_flapping_leaves_the_others_lists_alone() {
    let never = json!({"reconnectIntervalMs": 600_000});
    let quick = json!({"reconnectIntervalMs": 50, "reconnectMaxIntervalMs": 50});
    let gateway = Gateway::run(&json!({
        "good": faultd(""),
        "down": with(faultd("--fail-before-handshake"), never),
        "gone": with(json!({"command": "/no/such/program"}), json!({"reconnectIntervalMs": 600_000})),
        "slow": faultd("--stall-ms 2500"),
        "refused": with(faultd(""), json!({"reconnectIntervalMs": "soon"})),
        "flaps": with(faultd("--die-after-ms 300"), quick),
    }))
    .await;
    adopted(&gateway, &["good", "slow"]).await;
    let mut client = gateway.client_of_all().await;
    let listed = until_list(&mut client, |listed| names(listed).contains("good__echo")).await;
    let missing = noted(&listed, "tidegate/missing");
    for (server, state) in [
        ("down", "waiting"),
        ("gone", "waiting"),
        ("refused", "refused"),
    ] {
        assert!(
            missing.contains(&(server.into(), state.into())),
            "{listed:#}"
        );
    }
    // A slow one is there as last known, once it is, and a flapping one whether it is up or not.
    let listed = until_list(&mut client, |listed| {
        let names = names(listed);
        names.contains("slow__echo") && names.contains("flaps__echo")
    })
    .await;
    let stale = noted(&listed, "tidegate/stale");
    assert!(
        stale.contains(&("slow".into(), "open".into())),
        "{listed:#}"
    );

    let echoed = client.call("good__echo", json!({"n": 1})).await;
    assert!(echoed.result().contains(r#"{"n":1}"#));
    for (server, state) in [("down", "waiting"), ("refused", "refused")] {
        let error = client
            .call(&format!("{server}__echo"), json!({}))
            .await
            .error();
        assert_eq!(error["code"], -32050, "{error}");
        assert_eq!(
            (&error["data"]["server"], &error["data"]["state"]),
            (&json!(server), &json!(state))
        );
    }
    let error = client.call("echo", json!({})).await.error();
    assert_eq!(error["code"], -32602, "{error}");
}

/// BR-112, BR-115: a call ends with its server's connection, and no other does.
#[tokio::test]
async fn a4_a_server_that_dies_ends_its_own_calls_alone() {
    let slow = json!({"reconnectIntervalMs": 600_000});
    let servers = json!({ "a": with(faultd(""), slow.clone()), "b": with(faultd(""), slow) });
    let gateway = Gateway::run(&servers).await;
    adopted(&gateway, &["a", "b"]).await;
    let mut client = gateway.client_of_all().await;
    let sleep =
        |server: &str| json!({"name": format!("{server}__sleep"), "arguments": {"ms": 600_000}});
    let lost = client.ask("tools/call", sleep("a")).await;
    let stays = client.ask("tools/call", sleep("b")).await;
    client.call("a__crash", json!({})).await.error();
    assert_eq!(client.answer(&lost).await.error()["code"], -32051);
    let listed = list(&mut client).await;
    assert!(
        names(&listed).contains("a__echo"),
        "its list stays as it was"
    );
    assert_eq!(
        noted(&listed, "tidegate/stale"),
        [("a".into(), "waiting".into())]
    );
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": stays.parse::<u64>().unwrap()}});
    client.send(cancel.to_string()).await;
    assert!(client.call("b__echo", json!({})).await.error.is_none());
}

/// BR-136, BR-137, BR-139: the servers of a session are those of the configuration.
#[tokio::test]
async fn servers_join_and_leave_a_session_by_reload() {
    let one = |name: &str, more: Value| (name.to_owned(), with(faultd(""), more));
    let servers = |entries: Vec<(String, Value)>| Value::Object(entries.into_iter().collect());
    let gateway = Gateway::run(&servers(vec![one("a", json!({}))])).await;
    let mut client = gateway.client_of_all().await;
    until_list(&mut client, |listed| names(listed).contains("a__echo")).await;
    gateway
        .reload(&servers(vec![one("a", json!({})), one("b", json!({}))]))
        .await;
    adopted(&gateway, &["b"]).await;
    assert!(client.call("b__echo", json!({})).await.error.is_none());
    until_list(&mut client, |listed| names(listed).contains("b__echo")).await;
    gateway
        .reload(&servers(vec![one("b", json!({"toolPrefix": "other"}))]))
        .await;
    let listed = until_list(&mut client, |listed| names(listed).contains("other__echo")).await;
    assert!(
        names(&listed)
            .iter()
            .all(|name| name.starts_with("other__")),
        "{listed:#}"
    );
    assert_eq!(
        client.call("a__echo", json!({})).await.error()["code"],
        -32602
    );
    assert_eq!(
        client.call("b__echo", json!({})).await.error()["code"],
        -32602
    );
    gateway
        .reload(&servers(vec![one("b", json!({"enabled": false}))]))
        .await;
    let listed = until_list(&mut client, |listed| names(listed).is_empty()).await;
    assert_eq!(listed, json!({"tools": []}), "nothing is missing");
}

#[tokio::test]
async fn a_token_has_the_servers_that_it_covers_and_no_other() {
    let host = |servers: Value| json!({"hosts": [{"name": "h", "token": "t", "servers": servers}]});
    let place = Place::with(host(json!(["a*"])));
    let servers = json!({ "a1": faultd(""), "a2": faultd(""), "b": faultd("") });
    let mut gateway = place.run(&servers).await;
    let url = |query: &str| format!("ws://{}/mcp{query}", gateway.listen());
    assert_eq!(Host::refusal(&url("")).await, 401);
    assert_eq!(Host::refusal(&url("?token=x")).await, 401);
    adopted(&gateway, &["a1", "a2"]).await;
    let mut client = gateway.connect_all("?token=t").await;
    client.initialize(json!({})).await;
    let listed = until_list(&mut client, |listed| {
        ["a1__echo", "a2__echo"]
            .iter()
            .all(|name| names(listed).contains(name))
    })
    .await;
    assert!(!listed.to_string().contains("b__"), "{listed:#}");
    assert_eq!(
        client.call("b__echo", json!({})).await.error()["code"],
        -32602
    );
    gateway.change(host(json!(["a1", "b"])));
    gateway.reload(&servers).await;
    let listed = until_list(&mut client, |listed| names(listed).contains("b__echo")).await;
    assert!(!names(&listed).contains("a2__echo"), "{listed:#}");
    assert_eq!(
        client.call("a2__echo", json!({})).await.error()["code"],
        -32602
    );
}

#[tokio::test]
async fn tools_that_the_operator_hides_are_hidden_here_too() {
    let place = Place::new();
    let more = place.file("more-tools");
    fs::write(&more, "secret-one\n").unwrap();
    let entry = faultd(&format!("--tools-file {}", more.display()));
    let mask = json!({"enabledTools": ["echo", "secret-*"], "disabledTools": ["secret-*"]});
    let gateway = place.run(&json!({ "a": with(entry, mask) })).await;
    gateway.events().await.until("a", "adopted").await;
    let mut client = gateway.client_of_all().await;
    let listed = until_list(&mut client, |listed| !names(listed).is_empty()).await;
    assert_eq!(names(&listed), BTreeSet::from(["a__echo"]));
    assert!(client.call("a__echo", json!({})).await.error.is_none());
    for hidden in ["a__secret-one", "a__pid"] {
        assert_eq!(client.call(hidden, json!({})).await.error()["code"], -32602);
    }
}

/// BR-118, BR-119: two servers that use one id are answered each by its own.
#[tokio::test]
async fn requests_of_servers_with_one_id_are_told_apart() {
    let place = Place::new();
    let heard = ["a", "b"].map(|server| place.file(&format!("heard-{server}")));
    let entry = |file: &std::path::Path| faultd(&format!("--heard {}", file.display()));
    let servers = json!({ "a": entry(&heard[0]), "b": entry(&heard[1]) });
    let gateway = place.run(&servers).await;
    adopted(&gateway, &["a", "b"]).await;
    let mut client = gateway.client_of_all().await;
    let ask = |of: &str| json!({"jsonrpc": "2.0", "id": "same", "method": "sampling/createMessage", "params": {"of": of}});
    for server in ["a", "b"] {
        let messages = json!({"messages": [ask(server)]});
        client
            .call(&format!("{server}__say"), messages)
            .await
            .result();
    }
    for server in ["a", "b"] {
        let asked = client.notification("sampling/createMessage").await;
        assert_eq!(asked.param("/of"), server);
        client.reply(&asked, json!({ "for": server })).await;
    }
    for (server, file) in ["a", "b"].iter().zip(&heard) {
        client
            .call(&format!("{server}__echo"), json!({}))
            .await
            .result();
        let heard = fs::read_to_string(file).unwrap();
        let answer = format!(r#"{{"id":"same","jsonrpc":"2.0","result":{{"for":"{server}"}}}}"#);
        assert_eq!(heard.matches(&answer).count(), 1, "{heard}");
    }
}

#[tokio::test]
async fn a_session_ends_with_the_gateway_and_says_so() {
    let mut gateway = Gateway::run(&json!({ "a": faultd("") })).await;
    let mut client = gateway.client_of_all().await;
    let (status, code) = tokio::join!(gateway.terminate(), client.closed());
    assert!(status.success());
    assert_eq!(code, 1001);
}

#[tokio::test]
async fn mcp_of_one_server_is_served_over_a_websocket_too() {
    let gateway = Gateway::run(&json!({ "a": faultd("") })).await;
    gateway.events().await.until("a", "adopted").await;
    let url = format!("ws://{}/mcp/a", gateway.listen());
    let mut client = Host::connect(&url).await;
    client.initialize(json!({})).await;
    assert!(client.call("echo", json!({})).await.error.is_none());
    assert_eq!(Host::refusal(&format!("{url}b")).await, 404);
}

#[tokio::test]
async fn all_servers_are_served_over_streamable_http_too() {
    let gateway = Gateway::run(&json!({ "a": faultd(""), "b": faultd("") })).await;
    adopted(&gateway, &["a", "b"]).await;
    let mut client = Client::new(&gateway.http_of_all());
    let answer = client.initialize(json!({})).await;
    assert_eq!(answer["result"]["serverInfo"]["name"], "tidegate");
    let mut feed = client.listen(None).await;
    let ask = client.ask("tools/list", &json!({}));
    let listed = body(client.post(&ask).await).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    for server in ["a", "b"] {
        let echoed = client
            .call(&format!("{server}__echo"), json!({"n": server}))
            .await;
        assert_eq!(echoed["result"]["structuredContent"], json!({"n": server}));
    }
    client.call("a__notify", json!({})).await;
    loop {
        let told = feed.message().await.unwrap().message();
        if told["method"] == CHANGED {
            break;
        }
    }
    // A session of all servers is none of one, and the other way round.
    let mut other = Client::new(&gateway.http_url("a"));
    other.session.clone_from(&client.session);
    let ask = other.ask("tools/list", &json!({}));
    assert_eq!(other.post(&ask).await.status(), 404);
    assert_eq!(client.delete().await, 204);
}

/// What a real server says is the same but for its names, beside another of the same names.
#[tokio::test]
async fn two_real_servers_with_the_same_names_are_each_as_they_are_alone() {
    let gateway = Gateway::run(&json!({ "one": everything(), "two": everything() })).await;
    adopted(&gateway, &["one", "two"]).await;
    let mut all = gateway.client_of_all().await;
    for server in ["one", "two"] {
        let mut alone = gateway.client(server).await;
        let (prefix, lead) = (format!("{server}__"), format!("tidegate:{server}/"));
        for (method, key, of, lead) in [
            ("tools/list", "tools", "name", &prefix),
            ("prompts/list", "prompts", "name", &prefix),
            ("resources/list", "resources", "uri", &lead),
            (
                "resources/templates/list",
                "resourceTemplates",
                "uriTemplate",
                &lead,
            ),
        ] {
            let mut whole = value(&all.request(method, json!({})).await);
            let mut items = whole[key].take().as_array().unwrap().clone();
            items.retain(|item| item[of].as_str().unwrap().starts_with(lead.as_str()));
            for item in &mut items {
                let own = item[of]
                    .as_str()
                    .unwrap()
                    .strip_prefix(lead.as_str())
                    .unwrap();
                item[of] = own.into();
            }
            let own = value(&alone.request(method, json!({})).await);
            assert_eq!(Value::Array(items), own[key], "{method} of {server}");
        }
        same_calls(&mut all, &mut alone, server).await;
        same_subscription(&mut all, &lead).await;
    }
}

/// Calls that name a thing, whose answers name others.
async fn same_calls(all: &mut Host, alone: &mut Host, server: &str) {
    let lead = format!("tidegate:{server}/");
    let uri = "demo://resource/dynamic/text/1";
    let resource =
        json!({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"});
    let named = |name: &str| json!({"name": name, "arguments": {"count": 3, "city": "Oslo", "department": "Sales", "resourceType": "Text", "resourceId": "1", "message": "hi"}});
    for (method, params, key) in [
        ("tools/call", named("echo"), "/name"),
        ("tools/call", named("get-resource-links"), "/name"),
        ("tools/call", named("get-resource-reference"), "/name"),
        ("prompts/get", named("resource-prompt"), "/name"),
        ("prompts/get", named("args-prompt"), "/name"),
        (
            "resources/read",
            json!({ "uri": "demo://resource/static/document/features.md" }),
            "/uri",
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "S"}}),
            "/ref/name",
        ),
        (
            "completion/complete",
            json!({"ref": resource, "argument": {"name": "resourceId", "value": "1"}}),
            "/ref/uri",
        ),
        (
            "resources/read",
            json!({"uri": format!("{uri}-no-such")}),
            "/uri",
        ),
    ] {
        let own = alone.request(method, params.clone()).await;
        let mut mapped = params.clone();
        let thing = mapped.pointer_mut(key).unwrap();
        *thing = if key.ends_with("uri") {
            format!("{lead}{}", thing.as_str().unwrap()).into()
        } else {
            format!("{server}__{}", thing.as_str().unwrap()).into()
        };
        let seen = all.request(method, mapped).await;
        let text = |answer: &Received| {
            let (result, error) = (answer.result.as_ref(), answer.error.as_ref());
            result.or(error).unwrap().get().to_owned()
        };
        let own = text(&own).replace(r#""uri":"demo:"#, &format!(r#""uri":"{lead}demo:"#));
        assert_eq!(
            without_time(&text(&seen)),
            without_time(&own),
            "{method} {params}"
        );
    }
}

/// Dynamic resources of that server tell the time of their making.
fn without_time(text: &str) -> String {
    let mut parts = text.split("created at ");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        text + part.find(['"', '\\']).map_or("", |end| &part[end..])
    })
}

/// An update of a resource that was subscribed to comes under the session's name for it.
async fn same_subscription(all: &mut Host, lead: &str) {
    let server = lead.trim_start_matches("tidegate:").trim_end_matches('/');
    let uri = format!("{lead}demo://resource/dynamic/text/1");
    all.request("resources/subscribe", json!({ "uri": uri }))
        .await
        .result();
    all.call(&format!("{server}__toggle-subscriber-updates"), json!({}))
        .await
        .result();
    let told = all.notification("notifications/resources/updated").await;
    assert_eq!(told.param("/uri"), json!(uri));
    all.call(&format!("{server}__toggle-subscriber-updates"), json!({}))
        .await
        .result();
    all.request("resources/unsubscribe", json!({ "uri": uri }))
        .await
        .result();
}
