//! docs/configuration.md and docs/config.schema.json say what the types say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tidegate::config::schema;
use tidegate::engine::settings::{Bounds, Settings};

use super::bless;

#[test]
fn the_published_schema_is_the_one_that_is_printed() {
    bless(Path::new("docs/config.schema.json"), &schema::text());
}

#[test]
fn every_field_is_in_the_docs_as_the_schema_has_it() {
    let file = Path::new("docs/configuration.md");
    let schema = schema::schema();
    let (mut out, mut inside) = (Vec::new(), false);
    for line in fs::read_to_string(file).unwrap().lines() {
        inside &= line != "<!-- end -->";
        if !inside {
            out.push(line.to_owned());
        }
        let table = match line.trim_start_matches("<!-- ").trim_end_matches(" -->") {
            "mapped" => mapped(&schema),
            "ignored" => ignored(&schema),
            other => match other.strip_prefix("fields: ") {
                Some(name) => fields(&schema, name),
                None => continue,
            },
        };
        out.extend(table);
        inside = true;
    }
    bless(file, &(out.join("\n") + "\n"));
}

#[test]
fn every_object_of_the_schema_has_its_table() {
    let text = fs::read_to_string("docs/configuration.md").unwrap();
    let schema = schema::schema();
    for (name, object) in schema["$defs"].as_object().unwrap() {
        let tables =
            object.get("properties").is_none() || text.contains(&format!("fields: {name} "));
        assert!(tables, "{name}");
    }
}

#[test]
fn the_defaults_in_the_docs_are_the_ones_that_hold() {
    let settings = Settings::default();
    let Bounds {
        held_requests,
        held_notifications,
        kept_requests,
        kept_notifications,
        ..
    } = settings.bounds;
    let millis = [
        ("reconnectIntervalMs", settings.interval),
        ("reconnectMaxIntervalMs", settings.max_interval),
        ("lastingFloorMs", settings.lasting_floor),
        ("downAfterMs", settings.down_after),
        ("connectTimeoutMs", settings.connect_timeout),
        ("initializeTimeoutMs", settings.initialize_timeout),
        ("policyTimeoutMs", settings.policy_timeout),
        ("requestTimeoutMs", settings.request_timeout),
        ("callTimeoutMs", settings.call_timeout),
        ("acceptAfterMs", settings.accept_after),
        ("keptMaxAgeMs", settings.kept_max_age),
    ];
    let counts = [
        ("downAfterAttempts", settings.down_after_attempts as usize),
        ("heldRequests", held_requests),
        ("heldNotifications", held_notifications),
        ("keptRequests", kept_requests),
        ("keptNotifications", kept_notifications),
    ];
    let millis = millis.map(|(name, value)| (name, value.as_millis() as usize));
    let schema = schema::schema();
    for (name, value) in millis.into_iter().chain(counts) {
        let property = &object(&schema, "Server")["properties"][name];
        let said = property["description"].as_str().unwrap();
        assert!(
            said.ends_with(&format!("Default: {value}.")),
            "{name}: {said}"
        );
    }
}

fn object<'a>(schema: &'a Value, name: &str) -> &'a Value {
    match name {
        "File" => schema,
        _ => &schema["$defs"][name],
    }
}

/// Name and schema of each property, deprecated or not.
fn properties<'a>(schema: &'a Value, name: &str, deprecated: bool) -> Vec<(&'a String, &'a Value)> {
    let all = object(schema, name)["properties"].as_object().unwrap();
    all.iter()
        .filter(|(_, property)| property["deprecated"].as_bool().unwrap_or(false) == deprecated)
        .collect()
}

fn fields(schema: &Value, name: &str) -> Vec<String> {
    let mut table = vec!["| field | takes | |".to_owned(), "|---|---|---|".to_owned()];
    let ours = properties(schema, name, false);
    let ours = ours
        .iter()
        .filter(|(field, _)| *field != "servers" || name != "File");
    table.extend(ours.map(|(field, property)| {
        let what = property["description"].as_str().unwrap();
        format!("| `{field}` | {} | {what} |", takes(schema, property))
    }));
    table
}

/// What a field takes, in a word or two.
fn takes(schema: &Value, property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str() {
        return referred(schema, name.rsplit('/').next().unwrap());
    }
    if let Some(options) = property["anyOf"].as_array() {
        return takes(schema, &options[0]);
    }
    let kind = &property["type"];
    let kind = kind.as_str().or_else(|| kind[0].as_str());
    match kind.unwrap() {
        "boolean" => "true, false".to_owned(),
        "array" => "list".to_owned(),
        other => other.to_owned(),
    }
}

fn referred(schema: &Value, name: &str) -> String {
    let target = &schema["$defs"][name];
    let Some(options) = target["oneOf"].as_array() else {
        let word = match name {
            "Interval" | "Cap" | "Millis" => "ms",
            "Count" => "count",
            "Size" => "bytes",
            _ => "object",
        };
        return word.to_owned();
    };
    let names: Vec<_> = options
        .iter()
        .map(|option| format!("`{}`", option["const"].as_str().unwrap()))
        .collect();
    names.join(", ")
}

fn mapped(schema: &Value) -> Vec<String> {
    let theirs = properties(schema, "Server", true);
    let mapped = theirs.iter().filter_map(|(field, property)| {
        let ours = property["description"].as_str()?.strip_prefix("Write ")?;
        Some(format!("- `{field}`: {}", ours.trim_end_matches('.')))
    });
    mapped.collect()
}

fn ignored(schema: &Value) -> Vec<String> {
    let list = |name| {
        let theirs = properties(schema, name, true);
        let ignored = theirs
            .iter()
            .filter(|(_, property)| property["description"] == "Ignored.");
        let names: BTreeSet<_> = ignored.map(|(field, _)| format!("`{field}`")).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    vec![
        format!("- at the top: {}", list("File")),
        format!("- under a server: {}", list("Server")),
    ]
}
