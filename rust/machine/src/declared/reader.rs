//! Walks the tree with a path, collecting every finding with the place it was written.

use ahbm_findings::{Diagnostic, Site, suggestion};
use ahbm_wire::yaml::{At, Tree, Value as Yaml};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// More findings than this help nobody.
const MAX_FINDINGS: usize = 50;

/// Something a topology can declare.
pub(crate) trait Value: Sized {
    /// Reads the node; `None` when a finding was recorded.
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self>;
    /// JSON schema of the value.
    fn schema() -> Json;
    /// Appends `path=value` lines: the canonical form that the machine's hash covers.
    fn canonical(&self, path: &str, out: &mut String);
    /// The default as the schema shows it; `None` for sections and for unlimited bandwidth.
    fn shown(&self) -> Option<Json> {
        None
    }
}

/// State of one reading: the current path, where each path was written, what was wrong.
pub(crate) struct Reader<'a> {
    origin: &'a str,
    overrides: &'a [(String, String)],
    path: Vec<String>,
    places: BTreeMap<String, At>,
    findings: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(origin: &'a str, overrides: &'a [(String, String)]) -> Self {
        Self { origin, overrides, path: Vec::new(), places: BTreeMap::new(), findings: Vec::new() }
    }

    /// Runs `read` with `key` appended to the path, remembering where the path was written.
    pub(crate) fn within<T>(&mut self, key: &str, at: At, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(key.to_owned());
        self.places.insert(self.path.join("."), at);
        let result = read(self);
        self.path.pop();
        result
    }

    /// Records a finding about the value at the current path.
    pub(crate) fn report(&mut self, at: At, code: &'static str, message: impl Into<String>, hint: Option<String>) {
        let mut finding = Diagnostic::new(code, message);
        let label = if self.path.is_empty() { "topology".to_owned() } else { self.path.join(".") };
        finding.sites.push(Site { label, origin: self.place(at) });
        finding.hint = hint;
        self.push(finding);
    }

    /// Records a finding about values by their paths.
    pub(crate) fn report_paths(&mut self, paths: &[&str], code: &'static str, message: String, hint: &str) {
        let mut finding = Diagnostic::new(code, message).hint(hint);
        for path in paths {
            finding.sites.push(Site { label: (*path).to_owned(), origin: self.place_of(path) });
        }
        self.push(finding);
    }

    pub(crate) fn push(&mut self, finding: Diagnostic) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    /// Ends the reading: `value` when nothing was wrong.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.findings.is_empty() { Ok(value) } else { Err(self.findings) }
    }

    /// True when nothing was wrong so far.
    pub(crate) fn clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// A wrong kind of value.
    pub(crate) fn wrong_kind(&mut self, node: &Tree, wanted: &str) {
        self.report(node.at, "AHBM-T004", format!("expected {wanted}, found {}", node.value.kind()), None);
    }

    /// The entries of a section; `None` (and a finding) when it is something else.
    pub(crate) fn entries<'t>(&mut self, node: &'t Tree) -> Option<&'t [(String, Tree)]> {
        match &node.value {
            Yaml::Map(entries) => Some(entries),
            Yaml::Null => Some(&[]),
            _ => {
                self.wrong_kind(node, "a mapping of keys");
                None
            }
        }
    }

    /// A key that the section does not have.
    pub(crate) fn unknown_key(&mut self, key: &str, at: At, known: &[&str]) {
        let hint = suggestion(key, known);
        let section = if self.path.is_empty() { "the topology".to_owned() } else { self.path.join(".") };
        let message = format!("{section} has no key `{}`", shorten(key));
        self.within(&shorten(key), at, |reader| reader.report(at, "AHBM-T003", message, Some(hint)));
    }

    /// Reads a leaf or a section, or the default where the file says nothing.
    pub(crate) fn field<T: Value>(&mut self, key: &str, node: &Tree, slot: &mut T) {
        if matches!(node.value, Yaml::Null) {
            return;
        }
        let value = self.within(key, node.at, |reader| T::read(node, reader));
        if let Some(value) = value {
            *slot = value;
        }
    }

    /// The place where a path was written; the nearest enclosing section if it was not.
    fn place_of(&self, path: &str) -> String {
        let mut path = path;
        loop {
            if let Some(&at) = self.places.get(path) {
                return self.place(at);
            }
            match path.rsplit_once('.') {
                Some((parent, _)) => path = parent,
                None => return self.origin.to_owned(),
            }
        }
    }

    fn place(&self, at: At) -> String {
        match at {
            At::Line(0) => self.origin.to_owned(),
            At::Line(line) => format!("{}:{line}", self.origin),
            At::Override(index) => match self.overrides.get(index as usize) {
                Some((path, value)) => format!("override {}={}", shorten(path), shorten(value)),
                None => "override".to_owned(),
            },
        }
    }
}

/// Foreign text in a message, at most 60 characters.
pub(crate) fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 {
        return text.to_owned();
    }
    text.chars().take(57).chain("...".chars()).collect()
}
