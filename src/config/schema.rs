//! The JSON Schema of the whole file, from the types that read it, so that editors complete and check it.

use serde_json::{Map, Value, json};

use super::file::File;
use super::foreign::{IGNORED, IGNORED_AT_TOP, MAPPED};

/// The schema. Fields of other hosts are in it, marked as deprecated: they load.
#[must_use]
pub fn schema() -> Value {
    let mut schema = Value::from(schemars::schema_for!(File));
    tidy(&mut schema);
    let servers = schema.pointer("/properties/mcpServers").cloned();
    if let Some(properties) = properties(&mut schema, "/properties") {
        properties.insert("servers".into(), servers.unwrap_or_default());
        add(
            properties,
            IGNORED_AT_TOP.map(|name| (name, "Ignored.".to_owned())),
        );
    }
    if let Some(properties) = properties(&mut schema, "/$defs/Server/properties") {
        add(
            properties,
            IGNORED.map(|name| (name, "Ignored.".to_owned())),
        );
        add(
            properties,
            MAPPED.map(|(name, ours)| (name, format!("Write `{ours}`."))),
        );
    }
    schema
}

/// The schema as it is printed and published.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema())
}

/// Takes out defaults, which the descriptions say in words (serde's are all null), and lets a variable stand for
/// true or false.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("default");
            if members.get("type") == Some(&json!(["boolean", "null"])) {
                members.remove("type");
                let variable = json!({ "type": "string", "pattern": r"\$\{" });
                let flag = json!([{ "type": ["boolean", "null"] }, variable]);
                members.insert("anyOf".into(), flag);
                return;
            }
            members.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn properties<'a>(schema: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    schema.pointer_mut(pointer)?.as_object_mut()
}

fn add<const N: usize>(properties: &mut Map<String, Value>, fields: [(&str, String); N]) {
    for (name, description) in fields {
        let schema = json!({ "deprecated": true, "description": description });
        properties.insert(name.to_owned(), schema);
    }
}
