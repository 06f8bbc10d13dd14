//! Calls of the tool `wonder`, each of which waits for what its own requests are answered.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// The calls that wait.
#[derive(Default)]
pub(crate) struct Wonders(Mutex<Vec<Wonder>>);

struct Wonder {
    id: Value,
    /// Each under the id of its request.
    answers: Vec<(Value, Option<Value>)>,
}

impl Wonders {
    /// A call with that id: the requests that it has to send.
    pub(crate) fn ask(&self, id: &str, requests: &Value) -> Vec<Value> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let requests = requests.as_array().unwrap().iter().cloned();
        let requests: Vec<Value> = requests
            .map(|mut request| {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                request["jsonrpc"] = "2.0".into();
                request["id"] = format!("wonder-{number}").into();
                request
            })
            .collect();
        let answers = requests.iter().map(|request| (request["id"].clone(), None));
        self.0.lock().unwrap().push(Wonder {
            id: serde_json::from_str(id).unwrap(),
            answers: answers.collect(),
        });
        requests
    }

    /// A request with that id is answered: what has to be sent then.
    pub(crate) fn answered(&self, id: &str, verdict: &str) -> Vec<Value> {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        let mut all = self.0.lock().unwrap();
        for (of, answer) in all.iter_mut().flat_map(|wonder| &mut wonder.answers) {
            if *of == id {
                *answer = serde_json::from_str(verdict).ok();
            }
        }
        let is_done = |wonder: &mut Wonder| wonder.answers.iter().all(|(_, a)| a.is_some());
        all.extract_if(.., is_done).map(Wonder::answer).collect()
    }
}

impl Wonder {
    fn answer(self) -> Value {
        let answers: Vec<_> = self.answers.into_iter().map(|(_, answer)| answer).collect();
        let result = json!({"content": [], "structuredContent": {"answers": answers}});
        json!({"jsonrpc": "2.0", "id": self.id, "result": result})
    }
}
