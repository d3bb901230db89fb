//! How many chunks a rank's buffers have, and what is the same memory in place.

use super::model::Plan;
use crate::Collective;
use crate::plan::Space;

/// Chunks of input, output and scratch of a rank, and where input and output start in the memory they share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extents {
    pub(super) chunks: [u32; 3],
    /// First chunk of input and output.
    pub(super) base: [u32; 2],
}

impl Extents {
    pub(super) fn of(&self, space: Space) -> u32 {
        self.chunks[space as usize]
    }

    /// Chunks of the memory that input and output share in place.
    pub(super) fn shared(&self) -> u32 {
        let end = |which: usize| self.base[which].saturating_add(self.chunks[which]);
        end(0).max(end(1))
    }
}

/// What the collective needs, or what the file declares where that is more. In place, the input of an
/// all-gather is block `rank` of its output and the output of a reduce-scatter block `rank` of its input.
pub(super) fn all(plan: &Plan) -> Vec<Extents> {
    let whole = plan.chunks;
    let part = whole / plan.ranks.len() as u32;
    let (input, output) = match plan.collective {
        Collective::AllGather => (part, whole),
        Collective::ReduceScatter => (whole, part),
        Collective::AllReduce | Collective::AllToAll => (whole, whole),
        _ => (0, 0),
    };
    let one = |(rank, declared): (u32, [u32; 3])| Extents {
        chunks: [input.max(declared[0]), output.max(declared[1]), declared[2]],
        base: match plan.collective {
            Collective::AllGather if plan.in_place => [rank.saturating_mul(part), 0],
            Collective::ReduceScatter if plan.in_place => [0, rank.saturating_mul(part)],
            _ => [0, 0],
        },
    };
    (0..).zip(plan.ranks.iter().map(|rank| rank.chunks)).map(one).collect()
}
