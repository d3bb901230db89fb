//! Attributes of which no other type will do. The error is what stands there instead, for a message that begins with the
//! attribute's name. An attribute that is absent, or has no value, is none.

use super::{Metadata, Node, Value, integers, named};

impl Value {
    /// What stands here in place of something else.
    fn told(&self, wanted: &str) -> String {
        let told = match self {
            Self::None => "nothing".to_owned(),
            Self::Integer(_, n) => format!("{n} in an integral field"),
            Self::Double(x) => format!("{x:?} in double_val"),
            Self::Float(x) => format!("{x:?} in float_val"),
            Self::Text(text) => format!("{:?} in string_val", text.chars().take(40).collect::<String>()),
            Self::Raw(..) => "a list or bytes".to_owned(),
        };
        format!("is {told}, no {wanted}")
    }

    fn whole(&self) -> Result<Option<i128>, String> {
        match self {
            Self::None => Ok(None),
            Self::Integer(_, n) => Ok(Some(*n)),
            other => Err(other.told("whole number in an integral field")),
        }
    }
}

impl Node {
    /// An attribute in any integral arm.
    ///
    /// # Errors
    /// See this module.
    pub fn whole(&self, name: &str) -> Result<Option<i128>, String> {
        named(&self.attributes, name).map_or(Ok(None), Value::whole)
    }

    /// A text attribute.
    ///
    /// # Errors
    /// See this module.
    pub fn word(&self, name: &str) -> Result<Option<&str>, String> {
        match named(&self.attributes, name) {
            None | Some(Value::None) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(other.told("text in string_val")),
        }
    }

    /// A name: a text, or a number in writing.
    ///
    /// # Errors
    /// See this module.
    pub fn title(&self, name: &str) -> Result<Option<String>, String> {
        match named(&self.attributes, name) {
            Some(Value::Integer(_, n)) => Ok(Some(n.to_string())),
            _ => Ok(self.word(name)?.map(str::to_owned)),
        }
    }

    /// A number in any arm.
    ///
    /// # Errors
    /// See this module.
    pub fn number(&self, name: &str) -> Result<Option<f64>, String> {
        match named(&self.attributes, name) {
            None | Some(Value::None) => Ok(None),
            Some(other) => self.real(name).map(Some).ok_or_else(|| other.told("number")),
        }
    }

    /// A list of integers, in the list of any arm that is a plain number.
    ///
    /// # Errors
    /// See this module.
    pub fn list(&self, name: &str) -> Result<Option<Vec<i64>>, String> {
        match named(&self.attributes, name) {
            None | Some(Value::None) => Ok(None),
            Some(other) => {
                integers(&self.attributes, name).map(Some).ok_or_else(|| other.told("list of whole numbers"))
            }
        }
    }
}

impl Metadata {
    /// An attribute in any integral arm.
    ///
    /// # Errors
    /// See this module.
    pub fn whole(&self, name: &str) -> Result<Option<i128>, String> {
        named(&self.attributes, name).map_or(Ok(None), Value::whole)
    }
}
