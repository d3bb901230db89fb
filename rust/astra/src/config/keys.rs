//! The keys of a file: read by name, with the file and the key in every finding.

use ahbm_findings::Diagnostic;
use ahbm_wire::load::load;
use serde_json::{Map, Value};
use std::path::Path;

/// Longest file of a set-up.
const MAX_BYTES: u64 = 16 << 20;
/// Beyond this, a number of whole things is refused.
const MAX_WHOLE: f64 = (1u64 << 48) as f64;

/// The text of a file of a set-up.
pub(super) fn text(path: &Path) -> Result<String, Diagnostic> {
    let failed = |why: String| Diagnostic::new("AHBM-F101", format!("cannot read {}: {why}", path.display()));
    let bytes = load(path, MAX_BYTES).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(format!("it is longer than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| failed("it is no text".to_owned()))
}

/// A finding about a key of a file.
pub(super) fn wrong(file: &str, key: &str, what: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new("AHBM-C190", format!("{key}: {what}")).site("reading", file)
}

/// A finding about a key that changes nothing.
pub(super) fn ignored(file: &str, key: &str, why: &str) -> Diagnostic {
    Diagnostic::new("AHBM-C191", format!("{key} {why}")).site("reading", file)
}

/// The object of a JSON file. What is taken from it is known; what stays is not.
pub(super) struct Keys {
    pub(super) file: String,
    left: Map<String, Value>,
}

impl Keys {
    pub(super) fn read(path: &Path) -> Result<Self, Diagnostic> {
        let file = path.display().to_string();
        match serde_json::from_str(&text(path)?) {
            Ok(Value::Object(left)) => Ok(Self { file, left }),
            Ok(_) => Err(wrong(&file, "the file", "is no JSON object")),
            Err(error) => Err(wrong(&file, "the file", format!("is no JSON: {error}"))),
        }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.left.remove(key)
    }

    /// A finite number.
    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, Diagnostic> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(f64::from(u8::from(flag)))),
            Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(&self.file, key, format!("{} is no number", shown(&value)))),
            },
        }
    }

    /// A number of whole things; a fraction is dropped, as the simulator drops it.
    pub(super) fn whole(&mut self, key: &str) -> Result<Option<u64>, Diagnostic> {
        match self.number(key)? {
            None => Ok(None),
            Some(number) if (0.0..MAX_WHOLE).contains(&number) => Ok(Some(number as u64)),
            Some(number) => Err(wrong(&self.file, key, format!("{number} is out of range"))),
        }
    }

    /// A switch: a number that is 0 or is not.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, Diagnostic> {
        Ok(self.number(key)?.is_some_and(|number| number != 0.0))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Diagnostic> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(wrong(&self.file, key, format!("{} is no text", shown(&value)))),
        }
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Diagnostic> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        match list {
            Some(list) => Ok(Some(list)),
            None => Err(wrong(&self.file, key, format!("{} is no list of names", shown(&value)))),
        }
    }

    /// What nobody took.
    pub(super) fn left(self) -> (String, Map<String, Value>) {
        (self.file, self.left)
    }
}

/// A value in a finding, cut to a line.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
