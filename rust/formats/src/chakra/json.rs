//! Traces as JSON, in the three forms that tools write, one file per rank.
//!
//! | form | top level | a node |
//! |---|---|---|
//! | protobuf's JSON mapping | metadata and nodes one after another, nothing between | `type`, `dataDeps`, `attr: [{name, int64Val}]` |
//! | the feeder's | `{"workload_graph": [...]}` | `Id`, `NodeType` as a number, attributes beside them, `runtime` in µs |
//! | the symbolic generator's | `{"nodes": [...]}` | `id`, `node_type` as a name, attributes beside them |
//!
//! Numbers may be strings, names may be in camel case or not. An attribute beside the fields that is a list or an
//! object is kept as its JSON text.

use super::graph::Graph;
use super::{ReadOptions, Usage, one};
use crate::scan;
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::chakra::{Arm, Attribute, COLLECTIVES, Metadata, Names, Node, NodeKind, Value};
use rustc_hash::FxHashSet;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value as Json;
use std::sync::Arc;

/// True when a JSON text is a trace: decided by the first key of the top level that says so.
pub(crate) fn is_trace(bytes: &[u8]) -> bool {
    let told = scan::told(bytes, |key| match key {
        b"nodes" | b"workload_graph" | b"version" | b"attr" | b"id" | b"type" => Some(true),
        b"gpus" | b"collective" | b"protocol" | b"inplace" => Some(false),
        _ => None,
    });
    told == Some(true)
}

/// The trace of one rank. `usage` counts against the budget over all ranks.
pub(super) fn graph(
    rank: u32,
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<Graph, Vec<Diagnostic>> {
    let (metadata, nodes) = nodes(file, bytes, options, usage)?;
    Graph::new(rank, Arc::clone(file), metadata, nodes, options.lenient)
}

/// Metadata and nodes of one rank.
pub(super) fn nodes(
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<(Metadata, Vec<Node>), Vec<Diagnostic>> {
    // Metadata may hold a whole source; the strings of nodes are bounded below.
    let budget = options.budget.with(Limit::StringBytes, u64::MAX);
    scan::scan(bytes, &budget).map_err(|error| one(error.site("trace", &**file)))?;
    let (metadata, nodes) = documents(bytes).map_err(|error| {
        one(Diagnostic::new("AHBM-F131", format!("no execution trace: {error}"))
            .site("reading", format!("{file}:{}", error.line())))
    })?;
    let mut seen = FxHashSet::default();
    for node in &nodes {
        usage.admit(node, options).map_err(one)?;
        if !seen.insert(node.id) {
            let finding = Diagnostic::new("AHBM-F133", format!("two nodes have the id {}", node.id));
            return Err(one(finding.site("second", format!("{file} node {}", node.id))));
        }
    }
    Ok((metadata, nodes))
}

fn documents(bytes: &[u8]) -> Result<(Metadata, Vec<Node>), serde_json::Error> {
    let mut metadata = None;
    let mut nodes = Vec::new();
    let mut names = Names::default();
    for (index, object) in serde_json::Deserializer::from_slice(bytes).into_iter::<Object>().enumerate() {
        let Object(fields) = object?;
        let is_node = |name: &str| matches!(plain(name).as_str(), "id" | "type" | "datadeps" | "ctrldeps");
        if fields.iter().any(|(name, _)| matches!(name.as_str(), "nodes" | "workload_graph")) {
            let mut own = Metadata::default();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("nodes" | "workload_graph", Json::Array(list)) => {
                        for value in list {
                            let fields = members(value)?;
                            nodes.push(flat(fields, &mut names)?);
                        }
                    }
                    ("version" | "schema", Json::String(version)) => own.version = version.into(),
                    (_, value) => own.attributes.extend(beside(&name, value, &mut names)?),
                }
            }
            metadata = Some(own);
        } else if index == 0 && !fields.iter().any(|(name, _)| is_node(name)) {
            let mut own = Metadata::default();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("version", Json::String(version)) => own.version = version.into(),
                    ("attr", Json::Array(list)) => own.attributes = attributes(list, &mut names)?,
                    _ => return Err(Error::custom(format!("metadata with {name:?}"))),
                }
            }
            metadata = Some(own);
        } else {
            nodes.push(mapped(fields, &mut names)?);
        }
    }
    if metadata.is_none() && nodes.is_empty() {
        return Err(Error::custom("the file is empty"));
    }
    Ok((metadata.unwrap_or_default(), nodes))
}

/// An object's members in the order of the file.
struct Object(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn members(value: Json) -> Result<Vec<(String, Json)>, serde_json::Error> {
    match value {
        Json::Object(map) => Ok(map.into_iter().collect()),
        _ => Err(Error::custom("a node or attribute that is no object")),
    }
}

/// A name without case and underscores: all forms then agree.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

/// A field of the schema; gives anything else back.
fn field(node: &mut Node, name: &str, value: Json) -> Result<Option<Json>, serde_json::Error> {
    match plain(name).as_str() {
        "id" => node.id = unsigned(&value)?,
        "name" => match value {
            Json::String(text) => node.name = text.into(),
            _ => return Err(Error::custom("a name that is no text")),
        },
        "type" | "nodetype" => node.kind = kind(&value)?,
        "ctrldeps" => node.ctrl_deps = ids(&value)?,
        "datadeps" => node.data_deps = ids(&value)?,
        "starttimemicros" => node.start_micros = unsigned(&value)?,
        "durationmicros" | "runtime" => node.duration_micros = unsigned(&value)?,
        _ => return Ok(Some(value)),
    }
    Ok(None)
}

/// A node of protobuf's mapping.
fn mapped(fields: Vec<(String, Json)>, names: &mut Names) -> Result<Node, serde_json::Error> {
    let mut node = Node::new(0, "", NodeKind::Other(0));
    for (name, value) in fields {
        match (name.as_str(), field(&mut node, &name, value)?) {
            (_, None) => {}
            ("attr", Some(Json::Array(list))) => node.attributes = attributes(list, names)?,
            ("inputs", Some(value)) => node.tensors[0] = Some(tensors(value)?),
            ("outputs", Some(value)) => node.tensors[1] = Some(tensors(value)?),
            _ => return Err(Error::custom(format!("a node with {name:?}"))),
        }
    }
    Ok(node)
}

/// A node whose attributes stand beside its fields.
fn flat(fields: Vec<(String, Json)>, names: &mut Names) -> Result<Node, serde_json::Error> {
    let mut node = Node::new(0, "", NodeKind::Other(0));
    for (name, value) in fields {
        if let Some(value) = field(&mut node, &name, value)? {
            let attribute = match (name.as_str(), &value) {
                ("comm_type", Json::String(text)) => {
                    let number = COLLECTIVES.iter().position(|known| *known == text);
                    let number = number.ok_or_else(|| Error::custom(format!("comm_type {text:?}")))?;
                    Some(Attribute::integer(&names.intern(&name), Arm::Int64, number as u64))
                }
                _ => beside(&name, value, names)?,
            };
            node.attributes.extend(attribute);
        }
    }
    Ok(node)
}

/// An attribute that stands beside the fields; none for null.
fn beside(name: &str, value: Json, names: &mut Names) -> Result<Option<Attribute>, serde_json::Error> {
    if name.is_empty() {
        return Err(Error::custom("an attribute without a name"));
    }
    let value = match value {
        Json::Null => return Ok(None),
        Json::Bool(flag) => Value::Integer(Arm::Bool, flag.into()),
        Json::String(text) => Value::Text(text.into()),
        Json::Number(n) if n.is_u64() && !n.is_i64() => Value::Integer(Arm::Uint64, integer(&Json::Number(n))?),
        Json::Number(n) if n.is_i64() => Value::Integer(Arm::Int64, integer(&Json::Number(n))?),
        Json::Number(n) => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
        list => Value::Text(list.to_string().into()),
    };
    Ok(Some(Attribute { name: names.intern(name), value, doc: None }))
}

fn attributes(list: Vec<Json>, names: &mut Names) -> Result<Vec<Attribute>, serde_json::Error> {
    list.into_iter().map(|value| attribute(members(value)?, names)).collect()
}

/// `{"name": "comm_size", "int64Val": "131072"}`.
fn attribute(fields: Vec<(String, Json)>, names: &mut Names) -> Result<Attribute, serde_json::Error> {
    let mut attribute = Attribute { name: names.intern(""), value: Value::None, doc: None };
    for (key, value) in fields {
        let key = plain(&key);
        match (key.as_str(), value) {
            ("name", Json::String(text)) => attribute.name = names.intern(&text),
            ("docstring", Json::String(text)) => attribute.doc = Some(text.into()),
            ("stringval", Json::String(text)) => attribute.value = Value::Text(text.into()),
            ("doubleval", value) => attribute.value = Value::Double(float(&value)?),
            ("floatval", value) => attribute.value = Value::Float(float(&value)? as f32),
            (key, value) => {
                let unknown = || Error::custom(format!("an attribute with {key:?}"));
                attribute.value = match key.strip_suffix("list") {
                    Some(arm) => list(arm, value)?,
                    None => {
                        let arm = key.strip_suffix("val").and_then(Arm::named).ok_or_else(unknown)?;
                        Value::Integer(arm, integer(&value)?)
                    }
                };
            }
        }
    }
    if attribute.name.is_empty() {
        return Err(Error::custom("an attribute without a name"));
    }
    Ok(attribute)
}

/// `{"values": [...]}` of an arm, as it is encoded.
fn list(arm: &str, value: Json) -> Result<Value, serde_json::Error> {
    let mut values = Vec::new();
    for (name, value) in members(value)? {
        match (name.as_str(), value) {
            ("values", Json::Array(list)) => values = list,
            _ => return Err(Error::custom(format!("a list with {name:?}"))),
        }
    }
    match (arm, Arm::named(arm)) {
        (_, Some(arm)) => Ok(arm.list(&values.iter().map(integer).collect::<Result<Vec<_>, _>>()?)),
        ("double" | "float", None) => {
            let numbers = values.iter().map(float).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::floats(&numbers, arm == "double"))
        }
        ("string", None) => {
            let texts: Option<Vec<&str>> = values.iter().map(Json::as_str).collect();
            Ok(Value::texts(&texts.ok_or_else(|| Error::custom("a list of strings with something else"))?))
        }
        _ => Err(Error::custom(format!("an attribute with \"{arm}List\""))),
    }
}

/// `{"values": "...", "shapes": "...", "types": "..."}`, as it is encoded.
fn tensors(value: Json) -> Result<Box<[u8]>, serde_json::Error> {
    let mut texts = [const { String::new() }; 3];
    for (name, value) in members(value)? {
        let at = ["values", "shapes", "types"].iter().position(|known| *known == name);
        match (at, value) {
            (Some(at), Json::String(text)) => texts[at] = text,
            _ => return Err(Error::custom(format!("tensors with {name:?}"))),
        }
    }
    Ok(ahbm_wire::chakra::tensors(&texts))
}

fn kind(value: &Json) -> Result<NodeKind, serde_json::Error> {
    if let Json::String(text) = value {
        let wanted = plain(text);
        // The generator puts the words of two names the other way around.
        let wanted = if wanted == "collcommnode" { "commcollnode".into() } else { wanted };
        let kind = NodeKind::ALL.into_iter().find(|kind| plain(kind.name()) == wanted);
        return kind.ok_or_else(|| Error::custom(format!("a node of type {text:?}")));
    }
    Ok(NodeKind::from_number(unsigned(value)?))
}

fn ids(value: &Json) -> Result<Vec<u64>, serde_json::Error> {
    let list = value.as_array().ok_or_else(|| Error::custom("dependencies that are no list"))?;
    list.iter().map(unsigned).collect()
}

fn integer(value: &Json) -> Result<i128, serde_json::Error> {
    let number = match value {
        Json::Bool(flag) => Some(i128::from(*flag)),
        Json::Number(n) => n.as_i128(),
        Json::String(text) => text.parse::<i64>().map(i128::from).or_else(|_| text.parse::<u64>().map(i128::from)).ok(),
        _ => None,
    };
    number.ok_or_else(|| Error::custom(format!("{value} where a whole number is expected")))
}

fn unsigned(value: &Json) -> Result<u64, serde_json::Error> {
    let number = integer(value)?;
    u64::try_from(number).map_err(|_| Error::custom(format!("{number} where a number from 0 on is expected")))
}

/// Numbers that JSON has no digits for are strings.
fn float(value: &Json) -> Result<f64, serde_json::Error> {
    let number = match value {
        Json::String(text) => text.parse().ok(),
        other => other.as_f64(),
    };
    number.ok_or_else(|| Error::custom(format!("{value} where a number is expected")))
}
