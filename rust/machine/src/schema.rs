//! The JSON schema of `topology.yaml`, generated from the table of keys.

use crate::declared::{Topology, Value};

/// JSON schema of a topology file, pretty-printed.
/// The package's `data/schemas/topology.schema.json` is this text; a test compares them.
pub fn topology_schema() -> String {
    let mut schema = Topology::schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_owned(), "AHBM topology".into());
    }
    // A JSON value of maps and strings always serialises.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
