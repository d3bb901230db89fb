//! What memory holds at the start, and what it must hold at the end.

use ahbm_program::BufferId;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A set of contributions of an [`Expectation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId(u32);

impl SetId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A contribution: element `index` of the input of `rank`.
pub(super) type Contribution = (u32, u64);

/// A run of elements that holds a run of contributions at the start.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) buffer: BufferId,
    pub(super) elements: Range<u64>,
    /// The contribution in the first element; the next element holds the next index.
    pub(super) first: Contribution,
}

/// A run of elements that is looked at after a run.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) rank: u32,
    pub(super) buffer: BufferId,
    pub(super) elements: Range<u64>,
    /// What the first element must hold, if that is known; the next element holds the next indices.
    pub(super) set: Option<SetId>,
}

/// What memory holds at the start, and what it must hold at the end. Elements that are not mentioned hold nothing
/// and may end with anything.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// Bytes of an element.
    pub(super) element: u64,
    pub(super) initial: Vec<Held>,
    pub(super) observed: Vec<Observed>,
    /// Contributions may repeat.
    pub(super) idempotent: bool,
    sets: Vec<Box<[Contribution]>>,
    names: FxHashMap<BufferId, String>,
}

impl Expectation {
    /// Nothing held, nothing expected, of elements of `bytes` bytes (at least one).
    pub fn new(bytes: u64) -> Self {
        Self {
            element: bytes.max(1),
            initial: Vec::new(),
            observed: Vec::new(),
            idempotent: false,
            sets: Vec::new(),
            names: FxHashMap::default(),
        }
    }

    /// The reduction does not mind a contribution that takes part twice (a maximum, a minimum).
    pub fn repeats_do_not_matter(&mut self) {
        self.idempotent = true;
    }

    /// Names a buffer in findings, e.g. `input of rank 3`.
    pub fn name(&mut self, buffer: BufferId, name: impl Into<String>) {
        self.names.entry(buffer).or_insert_with(|| name.into());
    }

    /// At the start, `elements` of `buffer` are the contributions of `rank` from `index` on.
    pub fn hold(&mut self, buffer: BufferId, elements: Range<u64>, rank: u32, index: u64) {
        if !elements.is_empty() {
            self.initial.push(Held { buffer, elements, first: (rank, index) });
        }
    }

    /// A multiset of contributions `(rank, index)`, shared by the elements that must hold it.
    pub fn set(&mut self, contributions: impl Into<Box<[(u32, u64)]>>) -> SetId {
        self.sets.push(contributions.into());
        SetId(self.sets.len() as u32 - 1)
    }

    /// At the end, the first of `elements` of `buffer`, which `rank` reads, must hold exactly `set`, and every
    /// further one the same ranks' next indices.
    pub fn expect(&mut self, rank: u32, buffer: BufferId, elements: Range<u64>, set: SetId) {
        if !elements.is_empty() {
            self.observed.push(Observed { rank, buffer, elements, set: Some(set) });
        }
    }

    /// At the end, `elements` of `buffer` must be the same in every order.
    pub fn observe(&mut self, rank: u32, buffer: BufferId, elements: Range<u64>) {
        if !elements.is_empty() {
            self.observed.push(Observed { rank, buffer, elements, set: None });
        }
    }

    /// True when some element's result is known.
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

    /// `elements [4, 8) of the input of rank 3`, or bytes where they are no whole elements.
    pub(super) fn place(&self, buffer: BufferId, bytes: Range<u64>) -> String {
        let name = self.buffer_name(buffer);
        if bytes.start.is_multiple_of(self.element) && bytes.end.is_multiple_of(self.element) {
            return format!("elements [{}, {}) of {name}", bytes.start / self.element, bytes.end / self.element);
        }
        format!("bytes [{}, {}) of {name}", bytes.start, bytes.end)
    }
}
