//! The header fields that repeat what a frame to an HTTP server says (Streamable HTTP 2026-07-28, "Request Metadata"),
//! and which tools cannot be called over HTTP because of them. It sends nothing.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::revision::mirrored::Mirrored;
use crate::revision::stateless::{header, key};
use crate::wire::jsonrpc::{Message, Span, member};
use crate::wire::mcp::method;
use crate::wire::object::{Change, edited, sifted};

/// What stands around a value that no header can carry as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");
/// The integers that a header may carry: those that a double holds.
const SAFE: i64 = 9_007_199_254_740_991;
/// The annotation in a tool's schema.
const ANNOTATION: &str = "x-mcp-header";
/// How deep a schema is searched; one that goes deeper is taken as it is.
const DEPTH_MAX: usize = 64;

/// The fields of a frame; none where it is no stateless request.
pub(super) fn fields(frame: &Message, mirrored: &Mirrored) -> Vec<(String, String)> {
    let Some(version) = string(frame, &["_meta", key::PROTOCOL_VERSION]) else {
        return Vec::new();
    };
    let name = frame.method();
    let mut fields = vec![
        (header::PROTOCOL_VERSION.to_owned(), version),
        (header::METHOD.to_owned(), encoded(name)),
    ];
    let about = match name {
        method::TOOLS_CALL | method::PROMPTS_GET => string(frame, &["name"]),
        method::RESOURCES_READ => string(frame, &["uri"]),
        _ => None,
    };
    if let Some(about) = about {
        fields.push((header::NAME.to_owned(), encoded(&about)));
        if name == method::TOOLS_CALL {
            fields.extend(of_arguments(frame, &about, mirrored));
        }
    }
    fields
}

fn of_arguments(frame: &Message, tool: &str, mirrored: &Mirrored) -> Vec<(String, String)> {
    let arguments = frame.param(&["arguments"]);
    let arguments = arguments.map_or("{}", |span: Span| frame.text(&span));
    let values = mirrored.values(tool, arguments);
    let fields = values.filter_map(|(field, value)| Some((field.to_owned(), written(value?)?)));
    fields.collect()
}

/// What stands for a JSON value; nothing for what cannot be mirrored.
fn written(value: &str) -> Option<String> {
    match serde_json::from_str(value).ok()? {
        Value::String(text) => Some(encoded(&text)),
        Value::Bool(is) => Some(is.to_string()),
        Value::Number(number) => {
            let number = number.as_i64().or_else(|| whole(number.as_f64()?))?;
            (-SAFE..=SAFE).contains(&number).then(|| number.to_string())
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `42.0` is an integer too.
fn whole(number: f64) -> Option<i64> {
    let text = format!("{number:.0}");
    let fits = number.fract() == 0.0;
    fits.then(|| text.parse().ok()).flatten()
}

/// A value as it is where a header can carry it, or as Base64.
fn encoded(text: &str) -> String {
    let (begin, end) = ENCODED;
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
        && text.trim_ascii() == text
        && !(text.starts_with(begin) && text.ends_with(end));
    if is_plain {
        return text.to_owned();
    }
    format!("{begin}{}{end}", STANDARD.encode(text))
}

fn string(frame: &Message, path: &[&str]) -> Option<String> {
    let span = frame.param(path)?;
    serde_json::from_str(frame.text(&span)).ok()
}

/// Whether a result may be a list of tools that mirror parameters. Nearly none is, and then nothing of it is parsed.
pub(super) fn annotates(result: &str) -> bool {
    memchr::memmem::find(result.as_bytes(), ANNOTATION.as_bytes()).is_some()
}

/// A list of tools without those that annotate what no header can carry, which must not be called over HTTP; `None`
/// where all can.
pub(super) fn callable(result: &str) -> Option<String> {
    let (tools, gone) = sifted(member(result, "tools")?, is_callable)?;
    if gone == 0 {
        return None;
    }
    edited(result, |name, _| match name {
        "tools" => Change::Replace(tools.clone()),
        _ => Change::Keep,
    })
}

fn is_callable(tool: &str) -> bool {
    let schema = member(tool, "inputSchema").and_then(|text| serde_json::from_str(text).ok());
    let mut names = BTreeSet::new();
    schema.is_none_or(|schema: Value| fits(&schema, true, &mut names, 0))
}

/// Whether each annotation below here is on what has one value, reached by `properties` alone, under a name of its own.
fn fits(schema: &Value, reached: bool, names: &mut BTreeSet<String>, depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return true;
    }
    if let Value::Array(schemas) = schema {
        let mut schemas = schemas.iter();
        return schemas.all(|schema| fits(schema, false, names, depth + 1));
    }
    let Value::Object(members) = schema else {
        return true;
    };
    if let Some(name) = members.get(ANNOTATION)
        && !(reached && depth > 0 && is_annotation(name, members.get("type"), names))
    {
        return false;
    }
    members.iter().all(|(keyword, inner)| {
        let properties = inner.as_object().filter(|_| keyword == "properties");
        if let Some(properties) = properties {
            let mut properties = properties.values();
            return properties.all(|property| fits(property, reached, names, depth + 1));
        }
        // What an instance may be is no schema.
        let is_instance = ["const", "default", "enum", "examples"].contains(&keyword.as_str());
        is_instance || fits(inner, false, names, depth + 1)
    })
}

fn is_annotation(name: &Value, kind: Option<&Value>, names: &mut BTreeSet<String>) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let kinds = ["string", "integer", "boolean"];
    let is_primitive = kind
        .and_then(Value::as_str)
        .is_some_and(|kind| kinds.contains(&kind));
    match name.as_str() {
        Some(name) if is_primitive && !name.is_empty() && name.bytes().all(token) => {
            names.insert(name.to_ascii_lowercase())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.to_owned().into()).unwrap()
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

    #[test]
    fn a_stateless_request_repeats_its_method_its_name_and_what_its_tool_mirrors() {
        let mut mirrored = Mirrored::default();
        mirrored.learn(
            r#"{"tools":[{"name":"t","inputSchema":{"properties":{
            "region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
            "dry":{"type":"boolean","x-mcp-header":"Dry"},"none":{"type":"string","x-mcp-header":"None"}}}}]}"#,
        );
        let call = message(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{META},"name":"t",
            "arguments":{{"region":" eü","n":42.0,"dry":true,"none":null}}}}}}"#
        ));
        let mut seen = fields(&call, &mirrored);
        seen.sort();
        let wanted = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
            ("mcp-param-dry", "true"),
            ("mcp-param-n", "42"),
            ("mcp-param-region", "=?base64?IGXDvA==?="),
            ("mcp-protocol-version", "2026-07-28"),
        ];
        assert_eq!(
            seen,
            wanted.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_session_frame_and_a_notification_have_no_fields() {
        for text in [
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        ] {
            assert_eq!(fields(&message(text), &Mirrored::default()), []);
        }
    }

    #[test]
    fn what_no_header_can_carry_is_encoded() {
        for (text, wanted) in [
            ("us-west1", "us-west1"),
            ("a b\tc", "a b\tc"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
        ] {
            assert_eq!(encoded(text), wanted, "{text}");
        }
        for none in ["null", "[]", "{}", "1.5", "9007199254740992", "1e300"] {
            assert_eq!(written(none), None, "{none}");
        }
    }

    #[test]
    fn a_tool_that_annotates_what_no_header_can_carry_is_left_out() {
        let tool =
            |schema: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object",{schema}}}}}"#);
        for good in [
            r#""properties":{"a":{"type":"string","x-mcp-header":"A"}}"#,
            r#""properties":{"a":{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}"#,
            r#""properties":{"x-mcp-header":{"type":"string"}}"#,
            r#""properties":{"a":{"type":"string","default":{"x-mcp-header":""}}}"#,
        ] {
            assert!(is_callable(&tool(good)), "{good}");
        }
        for bad in [
            r#""properties":{"a":{"type":"string","x-mcp-header":""}}"#,
            r#""properties":{"a":{"type":"string","x-mcp-header":"a b"}}"#,
            r#""properties":{"a":{"type":"string","x-mcp-header":7}}"#,
            r#""properties":{"a":{"type":"number","x-mcp-header":"A"}}"#,
            r#""properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
            r#""properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
            r#""anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]"#,
            r#""x-mcp-header":"A""#,
        ] {
            assert!(!is_callable(&tool(bad)), "{bad}");
        }
        let list = format!(
            r#"{{"tools":[{},{{"name":"ok","n":1.0}}],"nextCursor":"c"}}"#,
            tool(r#""x-mcp-header":"A""#)
        );
        let kept = r#"{"tools":[{"name":"ok","n":1.0}],"nextCursor":"c"}"#;
        assert_eq!(callable(&list).as_deref(), Some(kept));
        assert_eq!(callable(kept), None);
    }
}
