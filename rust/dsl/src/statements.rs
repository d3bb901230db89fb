//! The statements that operations were made of: one, or after fusion several.

use ahbm_program::Origin;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Numbers for the statements of a recording and, behind them, for the sets of those that became one operation.
#[derive(Debug, Clone, Default)]
pub struct Statements {
    single: u32,
    joint: IndexSet<Box<[u32]>, FxBuildHasher>,
}

impl Statements {
    /// Those of a recording of `single` statements.
    pub(crate) fn new(single: usize) -> Self {
        Self { single: single as u32, joint: IndexSet::default() }
    }

    /// The number of an operation made of a statement and others.
    pub(crate) fn number(&mut self, first: u32, others: &[u32]) -> u32 {
        if others.iter().all(|&other| other == first) {
            return first;
        }
        let set = std::iter::once(first).chain(others.iter().copied()).collect();
        self.single + self.joint.insert_full(set).0 as u32
    }

    /// Where each of them is written; `single` has the statements of the recording.
    pub fn places<'o>(&self, single: impl IntoIterator<Item = &'o Origin>) -> Vec<Origin> {
        let mut places: Vec<Origin> = single.into_iter().cloned().collect();
        places.reserve(self.joint.len());
        for set in &self.joint {
            let mut of = set.iter().map(|&at| places[at as usize].clone());
            let fused = of.next().map(|first| Origin::fused(first, of));
            places.extend(fused);
        }
        places
    }
}
