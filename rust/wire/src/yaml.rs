//! YAML text to a bounded tree whose every node knows where it was written.
//!
//! The only module that knows the YAML library. The tree is read whole before anything is judged, so
//! that one run reports all mistakes of a file and command-line overrides are edits of the tree.

use ahbm_findings::Diagnostic;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// Longest text that is read.
const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 32;

/// The place where a node was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line of the file; 0 when unknown.
    Line(u32),
    /// An override by its index.
    Override(u32),
}

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Its place.
    pub at: At,
    /// What it says.
    pub value: Value,
}

/// The values of YAML, reduced to those a topology needs.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// Any number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// Entries in file order.
    Map(Vec<(String, Tree)>),
}

impl Value {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Parses one document; an empty one is `Null`. `origin` names it in findings.
///
/// # Errors
/// `AHBM-T001` no YAML, `AHBM-T002` a document that is too long, nested too deeply or inflates.
pub fn parse(text: &str, origin: &str) -> Result<Tree, Diagnostic> {
    if text.len() > MAX_BYTES {
        return Err(Diagnostic::new(
            "AHBM-T002",
            format!("the text has {} bytes, more than the limit of {MAX_BYTES}", text.len()),
        )
        .site("topology", origin));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_events: 400_000,
            max_nodes: 200_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000, },
        with_snippet: false,
        // `.inf` is how a topology says unlimited; other non-finite numbers are refused by their key.
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
    };
    match serde_saphyr::from_str_with_options::<Option<Spanned<Value>>>(text, options) {
        Ok(Some(node)) => Ok(tree(node)),
        Ok(None) => Ok(Tree { at: At::Line(0), value: Value::Null }),
        Err(error) => {
            let place = match error.location() {
                Some(location) if location.line() > 0 => format!("{origin}:{}", location.line()),
                _ => origin.to_owned(),
            };
            let error = error.without_snippet();
            let message = error.to_string();
            let code = if over_budget(error, &message) { "AHBM-T002" } else { "AHBM-T001" };
            let first = message.lines().next().unwrap_or("not a YAML document").to_owned();
            Err(Diagnostic::new(code, format!("cannot read the YAML: {first}")).site("topology", place))
        }
    }
}

/// The library wraps some of its limits in general errors, so their wording has to do.
fn over_budget(error: &serde_saphyr::Error, message: &str) -> bool {
    matches!(error, serde_saphyr::Error::Budget { .. }) || message.contains("limit exceeded")
}

fn tree(node: Spanned<Value>) -> Tree {
    Tree { at: At::Line(u32::try_from(node.referenced.line()).unwrap_or(0)), value: node.value }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(tree(item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, Spanned<Value>>()? {
            map.push((key, tree(value)));
        }
        Ok(Value::Map(map))
    }
}
