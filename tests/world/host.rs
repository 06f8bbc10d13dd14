//! A fake host or client: how it answers, and what it was told.

use serde_json::{Value, json};

use super::message::{is_request, method, result};

/// One session of a host or client.
#[derive(Clone, Debug)]
pub struct Host {
    /// It answers world messages, registrations and inference requests.
    pub answers: bool,
    pub attached: bool,
    /// Everything that it was sent.
    pub told: Vec<Value>,
}

impl Host {
    pub fn new() -> Self {
        Self {
            answers: true,
            attached: true,
            told: vec![],
        }
    }

    /// Its answer to a message, if it has one.
    pub fn heard(&mut self, said: Value) -> Option<Value> {
        let answer = self.answer(&said);
        self.told.push(said);
        answer
    }

    fn answer(&self, said: &Value) -> Option<Value> {
        if !is_request(said) || (!self.answers && method(said) != "ping") {
            return None;
        }
        let verdict = match method(said) {
            "channels/incoming" => json!({"results": accepted(said, "messages", "messageId")}),
            "channels/register" | "channels/changed" => {
                let results = accepted(said, "channels", "id");
                let ids: Vec<_> = results.iter().map(|item| item["id"].clone()).collect();
                json!({"registered": ids, "results": results})
            }
            "push/event" => json!({"accepted": true}),
            _ => json!({}),
        };
        Some(result(&said["id"], verdict))
    }
}

fn accepted(said: &Value, list: &str, key: &str) -> Vec<Value> {
    let items = said["params"][list].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|item| json!({key: item[key], "accepted": true}))
        .collect()
}
