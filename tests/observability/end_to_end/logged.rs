//! The spans that rotel logs, a field a line, as OTLP has them in JSON.

use serde_json::{Map, Value, json};

/// Reads lines; a span is over where something else begins.
#[derive(Default)]
pub(crate) struct Log {
    fields: Map<String, Value>,
    attributes: Vec<Value>,
    /// The lines that follow are attributes of the span.
    lists: bool,
}

/// How a field is called in the log and in JSON.
const FIELDS: [(&str, &str); 6] = [
    ("Trace ID", "traceId"),
    ("Parent ID", "parentSpanId"),
    ("ID", "spanId"),
    ("Name", "name"),
    ("Start time", "startTimeUnixNano"),
    ("End time", "endTimeUnixNano"),
];

impl Log {
    /// Takes a line; the span that it shows to be over.
    pub(crate) fn take(&mut self, line: &str) -> Option<Value> {
        if line.starts_with("Span #") || line.starts_with("ResourceSpans #") {
            return self.end();
        }
        if let Some(attribute) = line.strip_prefix("     -> ") {
            if self.lists {
                self.attributes.push(read(attribute));
            }
            return None;
        }
        self.lists = line == "Attributes:";
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        let field = FIELDS.iter().find(|(logged, _)| *logged == name);
        if let Some((_, field)) = field {
            self.fields.insert((*field).to_owned(), json!(value));
        } else if name == "Status code" && value == "STATUS_CODE_ERROR" {
            self.fields.insert("status".to_owned(), json!({"code": 2}));
        }
        None
    }

    /// The span that was being read, if there was one.
    pub(crate) fn end(&mut self) -> Option<Value> {
        let Self {
            mut fields,
            attributes,
            ..
        } = std::mem::take(self);
        fields.get("name")?;
        fields.insert("attributes".to_owned(), Value::Array(attributes));
        Some(Value::Object(fields))
    }
}

/// `key: Kind(value)`.
fn read(attribute: &str) -> Value {
    let (key, value) = attribute.split_once(": ").unwrap();
    let (kind, value) = value.trim_end_matches(')').split_once('(').unwrap();
    let value = match kind {
        "Int" => json!({ "intValue": value }),
        "Double" => json!({ "doubleValue": value.parse::<f64>().unwrap() }),
        "Bool" => json!({ "boolValue": value == "true" }),
        _ => json!({ "stringValue": value }),
    };
    json!({ "key": key, "value": value })
}

#[test]
fn a_span_that_rotel_logs_is_read_once_another_begins() {
    let logged = "ResourceSpans #0\nResource attributes:\n     -> service.name: Str(tidegate)\n\
                  Span #0\n    Trace ID       : ab\n    Name           : mcpl.epoch\nStart time: 17\n    \
                  Status code    : STATUS_CODE_ERROR\nAttributes:\n     -> tidegate.epoch: Int(9)\n     \
                  -> tidegate.server: Str(a)\nEvents:\n     -> x: Int(1)\nSpan #1";
    let mut log = Log::default();
    let spans: Vec<_> = logged.lines().filter_map(|line| log.take(line)).collect();
    let attributes = json!([
        {"key": "tidegate.epoch", "value": {"intValue": "9"}},
        {"key": "tidegate.server", "value": {"stringValue": "a"}},
    ]);
    let expected = json!({"traceId": "ab", "name": "mcpl.epoch", "startTimeUnixNano": "17",
        "status": {"code": 2}, "attributes": attributes});
    assert_eq!(spans, [expected]);
    assert_eq!(log.end(), None);
}
