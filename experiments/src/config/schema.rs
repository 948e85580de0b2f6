//! The JSON schema of the experiment file, for editors: made from the types that read it and from the registry.

use super::file::{Budget, File};
use super::value::List;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use treeline_policies::Registry;

/// The schema as JSON; `[[policy]]` admits the policies of `registry`, each with its own parameters.
#[must_use]
pub fn schema(registry: &Registry) -> Value {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<File>().to_value();
    let mut definitions = Map::new();
    let kinds: Vec<Value> = registry.kinds().filter_map(|kind| policy(registry, kind, &mut definitions)).collect();
    schema["properties"]["policy"] = json!({
        "description": "The policies that are compared.",
        "type": "array",
        "minItems": 1,
        "items": { "oneOf": kinds },
    });
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(json!("policy"));
    }
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
    without_null(&mut schema);
    schema
}

/// An optional key is one that may be left out: TOML has no null.
fn without_null(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(any)) = map.get_mut("anyOf") {
                any.retain(|s| s["type"] != "null");
                if let [Value::Object(only)] = &any[..] {
                    let only = only.clone();
                    map.shift_remove("anyOf");
                    map.extend(only);
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.shift_remove("default");
            }
            map.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// The schema as it is committed and printed.
#[must_use]
pub fn schema_text(registry: &Registry) -> String {
    format!("{:#}\n", schema(registry))
}

/// One policy's table. Its nested types move to `definitions` under names that carry the kind.
fn policy(registry: &Registry, kind: &str, definitions: &mut Map<String, Value>) -> Option<Value> {
    let mut schema = registry.schema(kind).ok()?.to_value();
    // A policy that takes another's parameters refers to them: they stand in its place.
    let referred = schema["$ref"].as_str().and_then(|s| s.strip_prefix("#/$defs/")).map(str::to_owned);
    if let (Some(name), Some(table)) = (referred, schema.as_object_mut())
        && let Some(Value::Object(mut nested)) = table.shift_remove("$defs")
        && let Some(Value::Object(whole)) = nested.shift_remove(&name)
    {
        *table = whole;
        table.insert("$defs".into(), Value::Object(nested));
    }
    rename(&mut schema, kind);
    let table = schema.as_object_mut()?;
    if let Some(Value::Object(nested)) = table.shift_remove("$defs") {
        definitions.extend(nested.into_iter().map(|(name, value)| (format!("{kind}.{name}"), value)));
    }
    table.shift_remove("$schema");
    table.insert("title".into(), json!(kind));
    let mut budget = List::<Budget>::json_schema(&mut schemars::SchemaGenerator::default()).to_value();
    budget["description"] = json!("Nodes of a tree without the root; one cell each.");
    let mut properties = Map::from_iter([("kind".to_owned(), json!({ "const": kind })), ("budget".to_owned(), budget)]);
    if let Some(Value::Object(own)) = table.shift_remove("properties") {
        properties.extend(own);
    }
    table.insert("properties".into(), Value::Object(properties));
    let mut required = vec![json!("kind"), json!("budget")];
    if let Some(Value::Array(own)) = table.shift_remove("required") {
        required.extend(own);
    }
    table.insert("required".into(), Value::Array(required));
    Some(schema)
}

/// Points every reference to a nested type to its new name.
fn rename(value: &mut Value, kind: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str().and_then(|s| s.strip_prefix("#/$defs/")) {
                    Some(name) if key == "$ref" => *value = json!(format!("#/$defs/{kind}.{name}")),
                    _ => rename(value, kind),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| rename(v, kind)),
        _ => {}
    }
}
