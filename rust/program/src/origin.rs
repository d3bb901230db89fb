//! The place where an operation was written.

use crate::Set;
use std::fmt;
use std::sync::Arc;

/// Index into [`Origins`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(pub u32);

/// A place in a source document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// File name as the user knows it.
    pub file: Arc<str>,
    /// Position inside the file.
    pub locus: Locus,
}

/// Position inside a source document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Locus {
    /// A line, from 1.
    Line(u32),
    /// A JSON pointer.
    Pointer(Box<str>),
    /// A trace node id.
    Node(u64),
    /// The document as a whole.
    Whole,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.locus {
            Locus::Line(line) => write!(f, "{}:{line}", self.file),
            Locus::Pointer(pointer) => write!(f, "{}#{pointer}", self.file),
            Locus::Node(id) => write!(f, "{} node {id}", self.file),
            Locus::Whole => f.write_str(&self.file),
        }
    }
}

/// The program's table of distinct origins, in order of first use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    entries: Set<Origin>,
}

impl Origins {
    /// Interns an origin.
    pub fn intern(&mut self, origin: Origin) -> OriginId {
        OriginId(self.entries.insert_full(origin).0 as u32)
    }

    /// The origin behind an id handed out by [`Origins::intern`].
    pub fn get(&self, id: OriginId) -> Option<&Origin> {
        self.entries.get_index(id.0 as usize)
    }

    /// Every origin, in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.entries.iter()
    }

    /// Display text, empty for an unknown id.
    pub fn text(&self, id: OriginId) -> String {
        self.get(id).map(ToString::to_string).unwrap_or_default()
    }
}
