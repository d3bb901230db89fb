//! The facts that a file states besides its plan.

use roxmltree::Node;

/// The facts that the warnings need besides the plan.
#[derive(Default)]
pub(super) struct Facts {
    /// Line of the algorithm, among the places of the plan.
    pub(super) line: u32,
    /// Attributes of the algorithm that a runtime requires and the file lacks.
    pub(super) missing: Vec<&'static str>,
    /// The collective as the file spells it.
    pub(super) coll: String,
    /// Unknown attributes as `element attribute`, and the first line of each.
    pub(super) unknown: Vec<(String, u32)>,
    /// First step whose number is not its position.
    pub(super) numbering: Option<u32>,
    /// The protocol, where the file spells it otherwise than a runtime does.
    pub(super) protocol: Option<String>,
    /// First thread block with a negative channel.
    pub(super) channel: Option<u32>,
    /// Attributes that elements lack, as `<element> lacks ...`; the first line and the number of each.
    pub(super) lacking: Vec<(String, u32, u32)>,
}

impl Facts {
    /// Notes which of the attributes that a runtime requires `node` lacks.
    pub(super) fn lacks(&mut self, node: Node<'_, '_>, required: &[&str], line: u32) {
        let mut missing = required.iter().copied().filter(|name| !node.has_attribute(*name)).peekable();
        if missing.peek().is_none() {
            return;
        }
        let names = missing.collect::<Vec<_>>().join(", ");
        let what = format!("<{}> lacks {names}", node.tag_name().name());
        if let Some((.., places)) = self.lacking.iter_mut().find(|(known, ..)| *known == what) {
            *places += 1;
        } else if self.lacking.len() < 16 {
            // A file may lack something else in every step.
            self.lacking.push((what, line, 1));
        }
    }

    /// Notes an attribute that no reader knows.
    pub(super) fn unknown(&mut self, node: Node<'_, '_>, name: &str, line: impl Fn() -> u32) {
        let element = node.tag_name().name();
        let known = self.unknown.iter().any(|(seen, _)| seen.split_once(' ') == Some((element, name)));
        // A file may invent a name per step.
        if !known && self.unknown.len() < 16 {
            self.unknown.push((format!("{element} {name}"), line()));
        }
    }
}
