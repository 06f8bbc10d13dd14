//! Which parameters of which tools are mirrored into header fields (`x-mcp-header`), and what they are in a call. It
//! lists no tools, and judges nothing.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::stateless::header;
use crate::wire::jsonrpc::member;

/// The annotation in a tool's schema.
const ANNOTATION: &str = "x-mcp-header";
/// Tools with annotations that are known of one server.
const TOOLS_MAX: usize = 1_000;
/// Annotated parameters of one tool.
const PARAMS_MAX: usize = 64;
/// How deep a schema is searched.
const DEPTH_MAX: usize = 16;

/// The mirrored parameters of a server's tools, by the tool's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrored(BTreeMap<Box<str>, Vec<Parameter>>);

/// One of them: its field, and where its value stands in the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    field: Box<str>,
    path: Vec<Box<str>>,
}

impl Mirrored {
    /// Adds the tools of one page, the result of `tools/list`.
    pub fn learn(&mut self, result: &str) {
        let tools = member(result, "tools").unwrap_or("[]");
        let tools: Vec<&RawValue> = serde_json::from_str(tools).unwrap_or_default();
        for tool in tools {
            let text = tool.get();
            // Most tools have none, and then nothing of them is parsed.
            if memchr::memmem::find(text.as_bytes(), ANNOTATION.as_bytes()).is_none() {
                continue;
            }
            if let Some((name, parameters)) = annotated(text)
                && self.0.len() < TOOLS_MAX
            {
                self.0.insert(name, parameters);
            }
        }
    }

    /// The fields of a call of that tool, in lower case, with the JSON texts of their values in its arguments.
    pub(super) fn values<'a>(
        &'a self,
        tool: &str,
        arguments: &'a str,
    ) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let parameters = self.0.get(tool).into_iter().flatten();
        parameters.map(|Parameter { field, path }| (&**field, at(arguments, path)))
    }
}

/// A tool's name, and the parameters that its schema annotates; `None` where nothing of it can be.
fn annotated(tool: &str) -> Option<(Box<str>, Vec<Parameter>)> {
    let name: String = serde_json::from_str(member(tool, "name")?).ok()?;
    let schema: Value = serde_json::from_str(member(tool, "inputSchema")?).ok()?;
    let mut found = Vec::new();
    search(&schema, &mut Vec::new(), &mut found);
    (!found.is_empty()).then(|| (name.into(), found))
}

/// Annotations that a chain of `properties` reaches, on what has one value; clients leave out a tool that has others.
fn search(schema: &Value, path: &mut Vec<Box<str>>, found: &mut Vec<Parameter>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    for (name, property) in properties {
        path.push(name.as_str().into());
        let of = property.get(ANNOTATION).and_then(Value::as_str);
        if let Some(of) = of.filter(|of| is_token(of) && found.len() < PARAMS_MAX) {
            let field = format!("{}{}", header::PARAM_PREFIX, of.to_ascii_lowercase()).into();
            found.push(Parameter {
                field,
                path: path.clone(),
            });
        }
        if path.len() < DEPTH_MAX {
            search(property, path, found);
        }
        path.pop();
    }
}

/// What may be the name of a field (RFC 9110, `token`).
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// The JSON text at a path of an object's members.
fn at<'a>(object: &'a str, path: &[Box<str>]) -> Option<&'a str> {
    path.iter()
        .try_fold(object, |object, key| member(object, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const LIST: &str = r#"{"tools":[{"name":"plain","inputSchema":{"type":"object"}},
        {"name":"sql","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry"}}},
            "odd":{"type":"string","x-mcp-header":"no token"},
            "list":{"type":"array","items":{"properties":{"x":{"x-mcp-header":"X"}}}}}}}]}"#;

    #[test]
    fn a_parameter_is_mirrored_where_a_chain_of_properties_leads_to_a_name() {
        let mut mirrored = Mirrored::default();
        mirrored.learn(LIST);
        let arguments = r#"{"region" : "a\"b","deep":{"dry":true},"odd":"o","list":[{"x":1}]}"#;
        let mut values: Vec<_> = mirrored.values("sql", arguments).collect();
        values.sort_unstable();
        let wanted = [
            ("mcp-param-dry", Some("true")),
            ("mcp-param-region", Some(r#""a\"b""#)),
        ];
        assert_eq!(values, wanted);
        let none = mirrored.values("sql", r#"{"region":null,"deep":3}"#);
        assert!(
            none.into_iter()
                .all(|(_, value)| value.is_none_or(|value| value == "null"))
        );
        assert_eq!(mirrored.values("plain", arguments).count(), 0);
    }

    #[test]
    fn what_is_no_list_of_tools_teaches_nothing() {
        let mut mirrored = Mirrored::default();
        for odd in [
            "",
            "{}",
            r#"{"tools":3}"#,
            r#"{"tools":[{"x-mcp-header":1}]}"#,
        ] {
            mirrored.learn(odd);
        }
        assert_eq!(mirrored, Mirrored::default());
    }
}
