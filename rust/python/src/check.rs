//! Checks of captured programs.

use ahbm_check::{CheckOptions, Part, Verdict};
use ahbm_plan::{Expectation, Reduced};
use ahbm_program::{BufferId, Dtype, Program};

/// The place of an array: its rank, the buffer, the first byte in the buffer, the bytes, the first byte in the array.
pub(crate) type Piece = (u32, u32, u64, u64, u64);
/// The content that some bytes must have: the rank that reads them, the buffer, the first byte, the bytes, and which of
/// the sets the first element must hold.
pub(crate) type Wanted = (u32, u32, u64, u64, u32);

/// Orders in brackets, and who adds up which elements in which of them: the party, its first element, the end, and the
/// index of the order.
pub(crate) type Orders = (Vec<String>, Vec<(u32, u64, u64, u32)>);

/// The orders of additions; see `Program.orders`.
pub(crate) fn orders(
    program: &Program,
    dtype: Dtype,
    operands: &[Piece],
    results: &[Piece],
    parties: u32,
) -> Option<Orders> {
    let part = |&(party, buffer, first, bytes, at): &Piece| Part {
        party,
        buffer: BufferId(buffer),
        bytes: first..first.saturating_add(bytes),
        first: at / dtype.bytes(),
    };
    let parts = |pieces: &[Piece]| pieces.iter().map(part).collect::<Vec<_>>();
    let found = ahbm_check::orders(program, dtype, &parts(operands), &parts(results), parties)?;
    let stretches = found.stretches.into_iter().map(|s| (s.party, s.elements.start, s.elements.end, s.order));
    Some((found.orders, stretches.collect()))
}

/// The conditions for which a program is checked.
pub(crate) struct Subject {
    pub(crate) dtype: Dtype,
    pub(crate) operands: Vec<Piece>,
    pub(crate) results: Vec<Wanted>,
    /// Sets of contributions, each a rank and the index of its element.
    pub(crate) sets: Vec<Vec<(u32, u64)>>,
    pub(crate) names: Vec<(u32, String)>,
    /// The rank whose operands or results a buffer holds.
    pub(crate) owners: Vec<(u32, u32)>,
    pub(crate) repeats: bool,
    pub(crate) synchronises: bool,
    pub(crate) reduction: Reduced,
}

impl Subject {
    /// Runs the check; buffers and sets that do not exist are left out.
    pub(crate) fn check(self, program: &Program, options: &CheckOptions) -> Verdict {
        let size = self.dtype.bytes();
        let known = |buffer: u32| (buffer as usize) < program.buffers.len();
        let elements = |first: u64, bytes: u64| first / size..first.saturating_add(bytes) / size;
        let mut expectation = Expectation::of(self.dtype);
        if self.repeats {
            expectation.repeats_do_not_matter();
        }
        expectation.reduce(self.reduction);
        if self.synchronises {
            expectation.synchronise();
        }
        for (buffer, rank) in self.owners {
            expectation.own(BufferId(buffer), rank);
        }
        for (buffer, name) in self.names {
            expectation.name(BufferId(buffer), name);
        }
        for (rank, buffer, first, bytes, at) in self.operands.into_iter().filter(|piece| known(piece.1)) {
            expectation.hold(BufferId(buffer), elements(first, bytes), rank, at / size);
        }
        let sets: Vec<_> = self.sets.into_iter().map(|set| expectation.set(set)).collect();
        for (rank, buffer, first, bytes, set) in self.results.into_iter().filter(|want| known(want.1)) {
            if let Some(&set) = sets.get(set as usize) {
                expectation.expect(rank, BufferId(buffer), elements(first, bytes), set);
            }
        }
        ahbm_check::check(program, &expectation, options)
    }
}
