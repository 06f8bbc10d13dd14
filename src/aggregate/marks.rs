//! Where a message names what belongs to one server alone, and the changes that make it a name of the whole session or
//! of the server again. What is not such a name is copied.

use super::address::{Address, Sort};
use crate::wire::jsonrpc::{Kind, Message, Span, member};
use crate::wire::mcp::method;

/// The key of `_meta` that says which task a message is of (MCP 2025-11-25).
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Changes to one message.
pub(super) struct Marks<'a> {
    message: &'a Message,
    address: &'a Address,
    edits: Vec<(Span, String)>,
}

impl<'a> Marks<'a> {
    /// None yet.
    pub(super) fn new(message: &'a Message, address: &'a Address) -> Self {
        let edits = Vec::new();
        Self {
            message,
            address,
            edits,
        }
    }

    /// The message with the changes, and another id.
    pub(super) fn applied(&self, id: &str) -> bytes::Bytes {
        let edits: Vec<(Span, &str)> = self
            .edits
            .iter()
            .map(|(span, text)| (span.clone(), &**text))
            .collect();
        self.message.with(id, &edits)
    }

    /// Another change.
    pub(super) fn replace(&mut self, span: Span, text: String) {
        self.edits.push((span, text));
    }

    /// Lengthens every name in what a server answers to a client's request of that method.
    pub(super) fn answer(mut self, name: &str) -> Self {
        let result = self.message.result().unwrap_or_default();
        match name {
            method::TOOLS_CALL | method::TASKS_RESULT => {
                self.contents(self.found(result, "content"));
                self.task_within(result, "task");
            }
            method::PROMPTS_GET => self.messages(result),
            method::RESOURCES_READ => self.read(result),
            method::TASKS_GET | method::TASKS_CANCEL => self.lengthen(result, "taskId", Sort::Id),
            _ => {}
        }
        self.related(result);
        self.elicitations();
        self
    }

    /// Lengthens every name in what a server asks or tells the client.
    pub(super) fn told(mut self) -> Self {
        let params = self.message.params().unwrap_or_default();
        match self.message.method() {
            method::SAMPLING => self.messages(params),
            method::ELICITATION | method::ELICITATION_COMPLETE => {
                self.lengthen(params, "elicitationId", Sort::Id);
            }
            method::RESOURCES_UPDATED => self.lengthen(params, "uri", Sort::Uri),
            method::TASKS_STATUS => self.lengthen(params, "taskId", Sort::Id),
            method::LOG => self.logger(params),
            _ => {}
        }
        self.related(params);
        self
    }

    /// Shortens the name of a task that the client says its message is of.
    pub(super) fn shortened(mut self) -> Self {
        let body = match self.message.kind() {
            Kind::Response => self.message.result(),
            Kind::Request | Kind::Notification => self.message.params(),
        };
        let told = self.related_task(body.unwrap_or_default());
        let text = told.and_then(|text| serde_json::from_str::<String>(text).ok());
        if let (Some(told), Some(text)) = (told, text)
            && let Some(own) = self.address.own(Sort::Id, &text)
        {
            let span = self.place(told);
            self.replace(span, crate::wire::jsonrpc::quoted(own));
        }
        self
    }

    /// A member, where its name is in the text at all.
    fn found<'t>(&self, object: &'t str, key: &str) -> Option<&'t str> {
        memchr::memmem::find(object.as_bytes(), key.as_bytes())?;
        member(object, key)
    }

    /// A log message's logger is its server's, under the server's name.
    fn logger(&mut self, params: &str) {
        match member(params, "logger") {
            // The gateway's own word about a server (S1).
            Some(logger) if logger.starts_with("\"tidegate/") => {}
            Some(_) => self.lengthen(params, "logger", Sort::Id),
            None if params.starts_with('{') => {
                let at = self.place(params).start + 1;
                let comma = if params.trim_start_matches('{').trim_ascii_start() == "}" {
                    ""
                } else {
                    ","
                };
                let logger = format!(r#""logger":"{}"{comma}"#, self.address.server);
                self.replace(at..at, logger);
            }
            None => {}
        }
    }

    fn messages(&mut self, body: &str) {
        if !may_name_resources(body) {
            return;
        }
        for message in items(member(body, "messages")) {
            self.contents(member(message, "content"));
        }
    }

    fn read(&mut self, result: &str) {
        for part in items(member(result, "contents")) {
            self.lengthen(part, "uri", Sort::Uri);
        }
    }

    /// One block of content, or a list of them.
    fn contents(&mut self, content: Option<&str>) {
        let Some(content) = content.filter(|text| may_name_resources(text)) else {
            return;
        };
        if content.starts_with('{') {
            return self.block(content);
        }
        for block in items(Some(content)) {
            self.block(block);
        }
    }

    fn block(&mut self, block: &str) {
        let sort = member(block, "type").and_then(|text| serde_json::from_str::<String>(text).ok());
        match sort.as_deref() {
            Some("resource_link") => self.lengthen(block, "uri", Sort::Uri),
            Some("resource") => {
                let resource = member(block, "resource").unwrap_or_default();
                self.lengthen(resource, "uri", Sort::Uri);
            }
            Some("tool_result") => {
                for inner in items(member(block, "content")) {
                    self.block(inner);
                }
            }
            _ => {}
        }
    }

    fn task_within(&mut self, body: &str, key: &str) {
        if memchr::memmem::find(body.as_bytes(), b"taskId").is_some()
            && let Some(task) = member(body, key)
        {
            self.lengthen(task, "taskId", Sort::Id);
        }
    }

    fn related(&mut self, body: &str) {
        if let Some(task) = self.related_task(body) {
            self.front(task, Sort::Id);
        }
    }

    fn related_task<'t>(&self, body: &'t str) -> Option<&'t str> {
        memchr::memmem::find(body.as_bytes(), RELATED_TASK.as_bytes())?;
        let meta = member(body, "_meta")?;
        member(member(meta, RELATED_TASK)?, "taskId")
    }

    /// What an error asks the user to do first (MCP 2025-11-25, -32042).
    fn elicitations(&mut self) {
        let error = self.message.error().unwrap_or_default();
        let Some(data) = self.found(error, "data") else {
            return;
        };
        if memchr::memmem::find(data.as_bytes(), b"elicitationId").is_none() {
            return;
        }
        for one in items(member(data, "elicitations")) {
            self.lengthen(one, "elicitationId", Sort::Id);
        }
    }

    /// Lengthens the text of a member.
    fn lengthen(&mut self, object: &str, key: &str, sort: Sort) {
        if let Some(text) = member(object, key) {
            self.front(text, sort);
        }
    }

    fn front(&mut self, text: &str, sort: Sort) {
        if text.starts_with('"') {
            let at = self.place(text).start + 1;
            self.replace(at..at, self.address.lead(sort));
        }
    }

    /// Where a part of this message lies in it.
    fn place(&self, part: &str) -> Span {
        let start = part.as_ptr().addr() - self.message.raw().as_ptr().addr();
        start..start + part.len()
    }
}

/// Whether a text can have the key `uri`, which may be written with escapes. Most results cannot, and are not read.
fn may_name_resources(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memmem::find(bytes, b"\"uri\"").is_some()
        || memchr::memmem::find(bytes, b"\\u00").is_some()
}

/// The items of a JSON array as they are written; none where it is no array.
fn items(array: Option<&str>) -> Vec<&str> {
    let items: Option<Vec<&serde_json::value::RawValue>> =
        array.and_then(|text| serde_json::from_str(text).ok());
    let items = items.unwrap_or_default();
    items.into_iter().map(|item| item.get()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            server: "s".into(),
            prefix: "p".into(),
        }
    }

    fn message(text: &str) -> Message {
        Message::parse(text.to_owned().into()).unwrap()
    }

    fn answered(name: &str, result: &str) -> String {
        let message = message(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#));
        let frame = Marks::new(&message, &address())
            .answer(name)
            .applied("\"a\"");
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let head = r#"{"jsonrpc":"2.0","id":"a","result":"#;
        text.strip_prefix(head)
            .unwrap()
            .strip_suffix('}')
            .unwrap()
            .to_owned()
    }

    fn told(name: &str, params: &str) -> String {
        let message = message(&format!(
            r#"{{"jsonrpc":"2.0","method":"{name}","params":{params}}}"#
        ));
        let frame = Marks::new(&message, &address()).told().applied("");
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let at = text.find("\"params\":").unwrap() + 9;
        text[at..text.len() - 1].to_owned()
    }

    #[test]
    fn links_and_embedded_resources_are_the_sessions_and_all_else_is_copied() {
        let result = r#"{"content":[{"type":"text","text":"\"uri\" http://x"},{ "uri" : "a:b","type":"resource_link"},{"type":"resource","resource":{"uri":"c\u0064","text":"t"}},{"type":"image","uri":"no"},7],"structuredContent":{"uri":"no"},"isError":false}"#;
        let wanted = result
            .replace("\"a:b\"", "\"tidegate:s/a:b\"")
            .replace("\"c\\u0064\"", "\"tidegate:s/c\\u0064\"");
        for name in ["tools/call", "tasks/result"] {
            assert_eq!(answered(name, result), wanted);
        }
        assert_eq!(answered("completion/complete", result), result);
    }

    #[test]
    fn a_key_written_with_escapes_is_the_same_key() {
        let result = r#"{"content":[{"type":"resource_lin\u006b","\u0075ri":"a"}]}"#;
        let wanted = r#"{"content":[{"type":"resource_lin\u006b","\u0075ri":"tidegate:s/a"}]}"#;
        assert_eq!(answered("tools/call", result), wanted);
    }

    #[test]
    fn prompts_and_readings_name_their_resources() {
        let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a"}}},{"content":[{"type":"resource_link","uri":"b"}]}]}"#;
        let wanted = prompt
            .replace("\"a\"", "\"tidegate:s/a\"")
            .replace("\"b\"", "\"tidegate:s/b\"");
        assert_eq!(answered("prompts/get", prompt), wanted);
        let read = r#"{"contents":[{"uri":"a","text":"t"},{"uri":3}]}"#;
        let wanted = read.replace("\"a\"", "\"tidegate:s/a\"");
        assert_eq!(answered("resources/read", read), wanted);
    }

    #[test]
    fn tasks_are_their_servers() {
        let created = r#"{"task":{"taskId":"1","status":"working"}}"#;
        assert_eq!(
            answered("tools/call", created),
            created.replace("\"1\"", "\"s/1\"")
        );
        let task = r#"{"taskId":"1"}"#;
        for name in ["tasks/get", "tasks/cancel"] {
            assert_eq!(answered(name, task), r#"{"taskId":"s/1"}"#);
        }
        assert_eq!(
            told("notifications/tasks/status", task),
            r#"{"taskId":"s/1"}"#
        );
        let related =
            r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}"#;
        let theirs = related.replace("\"1\"", "\"s/1\"");
        assert_eq!(answered("tasks/result", related), theirs);
        let back = message(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{theirs}}}"#));
        let back = Marks::new(&back, &address()).shortened().applied("9");
        let wanted = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{related}}}"#);
        assert_eq!(back, wanted.as_bytes());
    }

    #[test]
    fn what_a_server_tells_is_under_its_name() {
        let update = "notifications/resources/updated";
        assert_eq!(told(update, r#"{"uri":"a"}"#), r#"{"uri":"tidegate:s/a"}"#);
        let log = "notifications/message";
        for (params, wanted) in [
            (
                r#"{"logger":"db","data":1}"#,
                r#"{"logger":"s/db","data":1}"#,
            ),
            (r#"{"data":1}"#, r#"{"logger":"s","data":1}"#),
            ("{ }", r#"{"logger":"s" }"#),
            (r#"{"logger":"tidegate/s"}"#, r#"{"logger":"tidegate/s"}"#),
        ] {
            assert_eq!(told(log, params), wanted);
        }
        let asked = r#"{"mode":"url","elicitationId":"e"}"#;
        for name in ["elicitation/create", "notifications/elicitation/complete"] {
            assert_eq!(told(name, asked), asked.replace("\"e\"", "\"s/e\""));
        }
        let sampling = r#"{"messages":[{"content":[{"type":"tool_result","content":[{"type":"resource_link","uri":"a"}]}]}]}"#;
        let wanted = sampling.replace("\"a\"", "\"tidegate:s/a\"");
        assert_eq!(told("sampling/createMessage", sampling), wanted);
    }

    #[test]
    fn an_error_that_asks_the_user_first_names_its_servers_elicitations() {
        let error =
            r#"{"code":-32042,"message":"m","data":{"elicitations":[{"elicitationId":"e"}]}}"#;
        let message = message(&format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#));
        let frame = Marks::new(&message, &address())
            .answer("tools/call")
            .applied("1");
        let wanted = format!(
            r#"{{"jsonrpc":"2.0","id":1,"error":{}}}"#,
            error.replace("\"e\"", "\"s/e\"")
        );
        assert_eq!(frame, wanted.as_bytes());
    }
}
