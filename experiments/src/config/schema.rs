//! The JSON schema of the experiment file, for editors: made from the types that read it.

use super::file::{Budget, File};
use super::value::List;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The schema as JSON.
#[must_use]
pub fn schema() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let budget = List::<Budget>::json_schema(&mut generator);
    let mut schema = generator.into_root_schema_for::<File>().to_value();
    // Policies have parameters of their own, which each policy checks.
    schema["properties"]["policy"] = json!({
        "description": "The policies that are compared; keys beside these belong to the policy (`treeline policies` lists them).",
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["kind", "budget"],
            "properties": {
                "kind": { "description": "A registered policy.", "type": "string" },
                "budget": budget.to_value(),
            },
        },
    });
    schema["properties"]["policy"]["items"]["properties"]["budget"]["description"] =
        json!("Nodes of a tree without the root; one cell each.");
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(json!("policy"));
    }
    schema
}

/// The schema as it is committed and printed.
#[must_use]
pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}
