//! Attributes of an element, each looked at once.

use ahbm_findings::Diagnostic;
use roxmltree::Node;

/// Line numbers by byte offset.
pub(super) struct Lines {
    file: Box<str>,
    starts: Vec<usize>,
}

impl Lines {
    pub(super) fn new(text: &str, file: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { file: file.into(), starts: std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect() }
    }

    /// The line of an element, from 1.
    pub(super) fn of(&self, node: Node<'_, '_>) -> u32 {
        self.starts.partition_point(|&start| start <= node.range().start) as u32
    }

    /// `file:line`.
    pub(super) fn origin(&self, line: u32) -> String {
        format!("{}:{line}", self.file)
    }

    /// A finding at a line.
    pub(super) fn finding(&self, code: &'static str, line: u32, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, message).site("plan", self.origin(line))
    }

    /// `AHBM-F111`: an attribute that must be there.
    pub(super) fn missing(&self, node: Node<'_, '_>, name: &str) -> Diagnostic {
        let element = node.tag_name().name();
        self.finding("AHBM-F111", self.of(node), format!("<{element}> has no attribute {name}"))
    }

    /// `AHBM-F112`: an attribute with an unusable value.
    pub(super) fn unusable(&self, node: Node<'_, '_>, name: &str, value: &str, want: &str) -> Diagnostic {
        let element = node.tag_name().name();
        let shown: String = value.chars().take(40).collect();
        self.finding("AHBM-F112", self.of(node), format!("<{element}> has {name}={shown:?}; {want}"))
    }

    /// A whole number in `0..=most`.
    pub(super) fn count(&self, node: Node<'_, '_>, name: &str, value: &str, most: u64) -> Result<u64, Diagnostic> {
        match value.trim().parse() {
            Ok(n) if n <= most => Ok(n),
            _ => Err(self.unusable(node, name, value, &format!("expected a whole number up to {most}"))),
        }
    }

    /// A whole number up to `most`, or `None` for a negative one.
    pub(super) fn optional(
        &self,
        node: Node<'_, '_>,
        name: &str,
        value: &str,
        most: u32,
    ) -> Result<Option<u32>, Diagnostic> {
        match value.trim().parse::<i64>() {
            Ok(n) if n < 0 => Ok(None),
            Ok(n) if n <= i64::from(most) => Ok(Some(n as u32)),
            _ => Err(self.unusable(node, name, value, &format!("expected a whole number up to {most}, or -1"))),
        }
    }

    /// 0 or 1.
    pub(super) fn flag(&self, node: Node<'_, '_>, name: &str, value: &str) -> Result<bool, Diagnostic> {
        match value.trim() {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(self.unusable(node, name, value, "expected 0 or 1")),
        }
    }
}
