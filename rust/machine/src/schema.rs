//! The JSON schema of `topology.yaml`, generated from the table of keys.

use crate::declared::{Topology, Value};
use serde_json::json;

/// JSON schema of a topology file, pretty-printed.
/// The package's `data/schemas/topology.schema.json` is this text; a test compares them.
pub fn topology_schema() -> String {
    let mut schema = Topology::schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_owned(), "AHBM topology".into());
    }
    // Who reads a file for a machine puts it on its base first.
    if let Some(keys) = schema["properties"].as_object_mut() {
        let what = "The machine that this file stands on, by its name or its path: the file says what differs alone.";
        keys.insert("base".to_owned(), json!({"type": "string", "description": what}));
    }
    // A JSON value of maps and strings always serialises.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
