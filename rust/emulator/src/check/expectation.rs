//! What memory holds at the start, and what it must hold at the end.

use ahbm_program::BufferId;
use rustc_hash::FxHashMap;

/// A set of contributions of an [`Expectation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId(u32);

impl SetId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A contribution: element `index` of the input of `rank`.
pub(super) type Contribution = (u32, u32);

/// A cell: one element of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) buffer: BufferId,
    pub(super) element: u64,
}

/// A cell that is looked at after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) rank: u32,
    pub(super) cell: Cell,
    /// What it must hold, if that is known.
    pub(super) set: Option<SetId>,
}

/// What memory holds at the start, and what it must hold at the end. Cells that are not mentioned hold nothing
/// and may end with anything.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    pub(super) initial: Vec<(Cell, Contribution)>,
    pub(super) observed: Vec<Observed>,
    sets: Vec<Box<[Contribution]>>,
    names: FxHashMap<BufferId, String>,
}

impl Expectation {
    /// Nothing held, nothing expected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names a buffer in findings, e.g. `input of rank 3`.
    pub fn name(&mut self, buffer: BufferId, name: impl Into<String>) {
        self.names.entry(buffer).or_insert_with(|| name.into());
    }

    /// At the start, `element` of `buffer` is the contribution `index` of `rank`.
    pub fn hold(&mut self, buffer: BufferId, element: u64, rank: u32, index: u32) {
        self.initial.push((Cell { buffer, element }, (rank, index)));
    }

    /// A multiset of contributions `(rank, index)`, shared by the cells that must hold it.
    pub fn set(&mut self, contributions: impl Into<Box<[(u32, u32)]>>) -> SetId {
        self.sets.push(contributions.into());
        SetId(self.sets.len() as u32 - 1)
    }

    /// At the end, `element` of `buffer`, which `rank` reads, must hold exactly `set`.
    pub fn expect(&mut self, rank: u32, buffer: BufferId, element: u64, set: SetId) {
        self.observed.push(Observed { rank, cell: Cell { buffer, element }, set: Some(set) });
    }

    /// At the end, `element` of `buffer` must be the same in every order.
    pub fn observe(&mut self, rank: u32, buffer: BufferId, element: u64) {
        self.observed.push(Observed { rank, cell: Cell { buffer, element }, set: None });
    }

    /// True when some cell's result is known.
    pub fn is_known(&self) -> bool {
        self.observed.iter().any(|o| o.set.is_some())
    }

    pub(super) fn contributions(&self, set: SetId) -> &[Contribution] {
        &self.sets[set.index()]
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = &[Contribution]> {
        self.sets.iter().map(|s| &**s)
    }

    pub(super) fn buffer_name(&self, buffer: BufferId) -> String {
        self.names.get(&buffer).cloned().unwrap_or_else(|| format!("buffer {}", buffer.0))
    }
}
