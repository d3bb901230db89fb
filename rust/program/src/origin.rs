//! The place where an operation was written.

use crate::{Map, Set};
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
    /// A line inside loops, with the values that their variables had: `rank=3, peer=5`.
    Iteration(u32, Arc<str>),
    /// Several places, whose statements became one operation: two or more, and different.
    Fused(Arc<[Origin]>),
    /// The lines of calls inside each other, from the outermost to that of the operation: two or more.
    Called(Arc<[Origin]>),
    /// A JSON pointer.
    Pointer(Box<str>),
    /// A trace node id.
    Node(u64),
    /// The document as a whole.
    Whole,
}

impl Origin {
    /// The place of what was made of several statements, the first of which gives its name to it.
    pub fn fused(first: Self, others: impl IntoIterator<Item = Self>) -> Self {
        let mut places: Set<Self> = std::iter::once(first).collect();
        places.extend(others);
        let file = Arc::clone(&places[0].file);
        match places.len() {
            1 => places.swap_remove_index(0).unwrap_or(Self { file, locus: Locus::Whole }),
            _ => Self { file, locus: Locus::Fused(places.into_iter().collect()) },
        }
    }

    /// The place of what `calls` led to, the outermost first; the last is the place itself.
    ///
    /// # Panics
    ///
    /// Without a call.
    pub fn called(mut calls: Vec<Self>) -> Self {
        match &calls[..] {
            [_] => calls.swap_remove(0),
            [first, ..] => Self { file: Arc::clone(&first.file), locus: Locus::Called(calls.into()) },
            [] => panic!("an operation has a line"),
        }
    }

    /// The same place in any iteration of the loops around it.
    #[must_use]
    pub fn line(&self) -> Self {
        let at = |locus| Self { file: Arc::clone(&self.file), locus };
        match &self.locus {
            Locus::Iteration(line, _) => at(Locus::Line(*line)),
            Locus::Fused(places) => Self::fused(places[0].line(), places[1..].iter().map(Self::line)),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.locus {
            Locus::Line(line) => write!(f, "{}:{line}", self.file),
            Locus::Iteration(line, values) => write!(f, "{}:{line} ({values})", self.file),
            Locus::Fused(places) => fused(f, places),
            Locus::Called(places) => {
                let lines: Vec<String> = places.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join(" -> "))
            }
            Locus::Pointer(pointer) => write!(f, "{}#{pointer}", self.file),
            Locus::Node(id) => write!(f, "{} node {id}", self.file),
            Locus::Whole => f.write_str(&self.file),
        }
    }
}

/// Every line once, with one or two iterations.
fn fused(f: &mut fmt::Formatter<'_>, places: &[Origin]) -> fmt::Result {
    let mut lines: Map<Origin, Vec<&Origin>> = Map::default();
    for place in places {
        lines.entry(place.line()).or_default().push(place);
    }
    for (index, places) in lines.values().enumerate() {
        let before = if index == 0 { "" } else { ", fused with " };
        write!(f, "{before}{}", places[0])?;
        match places[1..] {
            [] => {}
            [Origin { locus: Locus::Iteration(_, values), .. }] => write!(f, " and ({values})")?,
            [_] => f.write_str(" and once more")?,
            [..] => write!(f, " and {} more times", places.len() - 1)?,
        }
    }
    Ok(())
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

    /// The line of every origin, by id: equal numbers are equal lines, in whatever iteration.
    pub fn lines(&self) -> Vec<u32> {
        let mut lines = Set::default();
        self.entries.iter().map(|origin| lines.insert_full(origin.line()).0 as u32).collect()
    }

    /// Display text, empty for an unknown id.
    pub fn text(&self, id: OriginId) -> String {
        self.get(id).map(ToString::to_string).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Locus, Origin, Origins};

    fn at(line: u32, values: &str) -> Origin {
        let locus = if values.is_empty() { Locus::Line(line) } else { Locus::Iteration(line, values.into()) };
        Origin { file: "a.py".into(), locus }
    }

    #[test]
    fn an_operation_of_a_helper_begins_with_the_line_that_called_it() {
        assert_eq!(Origin::called(vec![at(3, "")]), at(3, ""));
        assert_eq!(Origin::called(vec![at(9, ""), at(7, ""), at(3, "")]).to_string(), "a.py:9 -> a.py:7 -> a.py:3");
    }

    #[test]
    fn a_fused_operation_tells_every_line_once() {
        let (put, get) = (at(3, "peer=1"), at(4, ""));
        assert_eq!(Origin::fused(put.clone(), [put.clone(), put.clone()]), put);
        let pair = Origin::fused(put.clone(), [get.clone(), at(3, "peer=2")]);
        assert_eq!(pair.to_string(), "a.py:3 (peer=1) and (peer=2), fused with a.py:4");
        assert_eq!(pair.line().to_string(), "a.py:3, fused with a.py:4");
        let many = Origin::fused(put.clone(), (2..9).map(|peer| at(3, &format!("peer={peer}"))));
        assert_eq!(many.to_string(), "a.py:3 (peer=1) and 7 more times");
        assert_eq!(many.line(), at(3, ""));
    }

    #[test]
    fn iterations_of_a_line_are_one_line() {
        let mut origins = Origins::default();
        for origin in [at(3, "peer=1"), at(4, ""), at(3, "peer=2"), at(3, "")] {
            origins.intern(origin);
        }
        assert_eq!(origins.lines(), [0, 1, 0, 0]);
    }
}
