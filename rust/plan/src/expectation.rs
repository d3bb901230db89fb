//! The content of memory at the start, and the content that it must have at the end.

use crate::collective::Contribution;
use crate::{Budget, Goal, Limit, RankBuffers};
use ahbm_findings::Diagnostic;
use ahbm_program::{BinaryFn, BufferId, Dtype};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Orders in which a check looks for every contribution, about.
const ORDERS: u64 = 4;

/// A set of contributions of an [`Expectation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId(u32);

impl SetId {
    /// Its position among [`Expectation::sets`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of elements that holds a run of contributions at the start.
#[derive(Debug, Clone)]
pub struct Held {
    /// The buffer that contains it.
    pub buffer: BufferId,
    /// Which elements of the buffer.
    pub elements: Range<u64>,
    /// The contribution in the first element; the next element holds the next index.
    pub first: Contribution,
}

/// A run of elements that is looked at after a run.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The rank that reads it.
    pub rank: u32,
    /// The buffer that contains it.
    pub buffer: BufferId,
    /// Which elements of the buffer.
    pub elements: Range<u64>,
    /// The content that the first element must have, if it is known; the next element holds the next indices.
    pub set: Option<SetId>,
}

/// The content of memory at the start, and the content that it must have at the end. Elements that are not mentioned
/// hold nothing and may end with anything.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// Bytes of an element.
    element: u64,
    /// The type of the elements, if it is known.
    dtype: Option<Dtype>,
    initial: Vec<Held>,
    observed: Vec<Observed>,
    /// Contributions may repeat.
    idempotent: bool,
    sets: Vec<Box<[Contribution]>>,
    names: FxHashMap<BufferId, String>,
    owners: FxHashMap<BufferId, u32>,
    /// No rank ends before every rank has started.
    synchronises: bool,
    /// What results are of their contributions, if it is known.
    reduction: Option<Reduced>,
}

/// What every result is of its contributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduced {
    /// The function that unites them; none where each result is one contribution.
    pub function: Option<BinaryFn>,
    /// What that is multiplied with: 1 over the number of contributions for an average, else 1.
    pub factor: f64,
}

impl Expectation {
    /// Nothing held, nothing expected, of elements of `bytes` bytes (at least one).
    pub fn new(bytes: u64) -> Self {
        Self {
            element: bytes.max(1),
            dtype: None,
            initial: Vec::new(),
            observed: Vec::new(),
            idempotent: false,
            sets: Vec::new(),
            names: FxHashMap::default(),
            owners: FxHashMap::default(),
            synchronises: false,
            reduction: None,
        }
    }

    /// The same, of elements of a type: no value may lose bits on its way.
    pub fn of(dtype: Dtype) -> Self {
        Self { dtype: Some(dtype), ..Self::new(dtype.bytes()) }
    }

    /// Results are this of their contributions. Without a word, everybody may reduce with any one function, and scale.
    pub fn reduce(&mut self, reduction: Reduced) {
        self.reduction = Some(reduction);
    }

    /// What results are of their contributions, if it is known.
    pub fn reduction(&self) -> Option<Reduced> {
        self.reduction
    }

    /// No rank may end before every rank has started, as a barrier promises.
    pub fn synchronise(&mut self) {
        self.synchronises = true;
    }

    /// `buffer` holds operands or results of the agents of `rank` ([`ahbm_program::Agent::rank`]): nobody else may touch
    /// those before that rank has started or after it has ended. Without a word, the rank that first holds or expects
    /// something there is meant.
    pub fn own(&mut self, buffer: BufferId, rank: u32) {
        self.owners.entry(buffer).or_insert(rank);
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
            self.own(buffer, rank);
            self.initial.push(Held { buffer, elements, first: (rank, index) });
        }
    }

    /// A multiset of contributions `(rank, index)`, shared by the elements that must hold it: one that is the last
    /// one again is kept once.
    pub fn set(&mut self, contributions: impl Into<Box<[(u32, u64)]>>) -> SetId {
        let set = contributions.into();
        if self.sets.last() != Some(&set) {
            self.sets.push(set);
        }
        SetId(self.sets.len() as u32 - 1)
    }

    /// At the end, the first of `elements` of `buffer`, which `rank` reads, must hold exactly `set`, and every
    /// further one the same ranks' next indices.
    pub fn expect(&mut self, rank: u32, buffer: BufferId, elements: Range<u64>, set: SetId) {
        if !elements.is_empty() {
            self.own(buffer, rank);
            self.observed.push(Observed { rank, buffer, elements, set: Some(set) });
        }
    }

    /// At the end, `elements` of `buffer` must be the same in every order.
    pub fn observe(&mut self, rank: u32, buffer: BufferId, elements: Range<u64>) {
        if !elements.is_empty() {
            self.own(buffer, rank);
            self.observed.push(Observed { rank, buffer, elements, set: None });
        }
    }

    /// True when some element's result is known.
    pub fn is_known(&self) -> bool {
        self.observed.iter().any(|o| o.set.is_some())
    }

    /// Bytes of an element.
    pub fn element(&self) -> u64 {
        self.element
    }

    /// The type of the elements, if it is known.
    pub fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    /// The content of memory at the start.
    pub fn initial(&self) -> &[Held] {
        &self.initial
    }

    /// The elements that are looked at in the end.
    pub fn observed(&self) -> &[Observed] {
        &self.observed
    }

    /// Whose operands or results a buffer holds.
    pub fn owner(&self, buffer: BufferId) -> Option<u32> {
        self.owners.get(&buffer).copied()
    }

    /// True when no rank may end before every rank has started.
    pub fn synchronises(&self) -> bool {
        self.synchronises
    }

    /// True when contributions may repeat.
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// The contributions of a set.
    pub fn contributions(&self, set: SetId) -> &[Contribution] {
        &self.sets[set.index()]
    }

    /// Every set, by [`SetId::index`].
    pub fn sets(&self) -> impl Iterator<Item = &[Contribution]> {
        self.sets.iter().map(|s| &**s)
    }

    /// The name of a buffer, or its number.
    pub fn buffer_name(&self, buffer: BufferId) -> String {
        self.names.get(&buffer).cloned().unwrap_or_else(|| format!("buffer {}", buffer.0))
    }

    /// `elements [4, 8) of the input of rank 3`, or bytes where they are no whole elements.
    pub fn place(&self, buffer: BufferId, bytes: Range<u64>) -> String {
        let name = self.buffer_name(buffer);
        if bytes.start.is_multiple_of(self.element) && bytes.end.is_multiple_of(self.element) {
            return format!("elements [{}, {}) of {name}", bytes.start / self.element, bytes.end / self.element);
        }
        format!("bytes [{}, {}) of {name}", bytes.start, bytes.end)
    }
}

impl Goal {
    /// The contents of memory before and after, when the operand and result of rank r are `ranks[r]`, the larger of the
    /// two has `whole` elements, and an element has `element` bytes.
    ///
    /// A rank whose operand nobody reads holds it all the same, so that a check can say where it went. For
    /// [`Goal::Custom`] results are only observed.
    ///
    /// # Errors
    /// `AHBM-B211` when there are more elements than the budget has cells, `AHBM-B210` for more contributions to results
    /// than a check takes steps.
    pub fn expectation(
        self,
        ranks: &[RankBuffers],
        whole: u64,
        element: u64,
        budget: &Budget,
    ) -> Result<Expectation, Diagnostic> {
        let fits = |bytes: u64| bytes / element.max(1);
        let n = ranks.len() as u64;
        let declared = ranks.iter().fold(0u64, |sum, r| sum.saturating_add(fits(r.input.bytes.max(r.output.bytes))));
        budget.check(Limit::Cells, whole.saturating_mul(n).max(declared))?;
        let whole = if n == 0 { 0 } else { whole };
        let relation = self.relation();
        let mut expectation = Expectation::new(element);
        for (rank, at) in (0u32..).zip(ranks) {
            let shared = at.input.buffer == at.output.buffer;
            expectation
                .name(at.input.buffer, format!("the {} of rank {rank}", if shared { "buffer" } else { "input" }));
            expectation.name(at.output.buffer, format!("the output of rank {rank}"));
            expectation.name(at.scratch.buffer, format!("the scratch of rank {rank}"));
            let has = fits(at.input.bytes);
            let held = relation.map_or(has, |relation| relation.operand.of(whole, whole / n));
            let start = fits(at.input.offset);
            expectation.hold(at.input.buffer, start..start + held.min(has), rank, 0);
        }
        let mut terms = 0u64;
        for (rank, at) in (0u32..).zip(ranks) {
            let start = fits(at.output.offset);
            let Some(relation) = relation else {
                expectation.observe(rank, at.output.buffer, start..start + fits(at.output.bytes));
                continue;
            };
            for run in relation.expected(rank, n as u32, whole) {
                terms = terms.saturating_add(run.made_of.len() as u64);
                budget.check(Limit::CheckSteps, terms.saturating_mul(ORDERS))?;
                let set = expectation.set(run.made_of);
                let elements = start + run.elements.start..start + run.elements.end;
                expectation.expect(rank, at.output.buffer, elements, set);
            }
        }
        Ok(expectation)
    }
}
