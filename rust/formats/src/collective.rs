//! Collectives: what a plan promises, by the names its formats use, and what memory must hold when it is kept.

use crate::{Budget, Limit, RankBuffers};
use ahbm_emulator::Expectation;
use ahbm_machine::Diagnostic;

/// What a plan says it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce,
    /// Every rank ends with all inputs, in rank order.
    AllGather,
    /// Rank r ends with block r of the reduction of all inputs.
    ReduceScatter,
    /// Rank r ends with block r of every rank's input, in rank order.
    AllToAll,
    /// Rank r + 1 ends with the input of rank r; the first rank's output is left alone.
    AllToNext,
    /// Rank r ends with the input of the rank `shift` before it, cyclically.
    SendRecv {
        /// Distance from a rank to the one it sends to.
        shift: u32,
    },
    /// Every rank ends with the root's input.
    Broadcast {
        /// The rank that has the data.
        root: u32,
    },
    /// The root ends with the reduction of all inputs.
    Reduce {
        /// The rank that gets the result.
        root: u32,
    },
    /// The root ends with all inputs, in rank order.
    Gather {
        /// The rank that gets the result.
        root: u32,
    },
    /// Rank r ends with block r of the root's input.
    Scatter {
        /// The rank that has the data.
        root: u32,
    },
    /// A name without a known post-condition.
    Custom,
}

impl Collective {
    /// From a file's spelling: case, `_` and `-` do not matter; rooted collectives are rooted at rank 0, and
    /// a send/receive goes to the next rank.
    pub fn parse(name: &str) -> Self {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        match plain.as_str() {
            "allreduce" => Self::AllReduce,
            "allgather" => Self::AllGather,
            "reducescatter" => Self::ReduceScatter,
            "alltoall" => Self::AllToAll,
            "alltonext" => Self::AllToNext,
            "sendrecv" => Self::SendRecv { shift: 1 },
            "broadcast" => Self::Broadcast { root: 0 },
            "reduce" => Self::Reduce { root: 0 },
            "gather" => Self::Gather { root: 0 },
            "scatter" => Self::Scatter { root: 0 },
            _ => Self::Custom,
        }
    }

    /// The name that the rest of the project uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::AllToNext => "all_to_next",
            Self::SendRecv { .. } => "send_recv",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Custom => "custom",
        }
    }

    /// What a file's spelling leaves open, by name: the root, or the distance of a send.
    pub const fn parameter(self) -> Option<(&'static str, u32)> {
        match self {
            Self::SendRecv { shift } => Some(("shift", shift)),
            Self::Broadcast { root } | Self::Reduce { root } | Self::Gather { root } | Self::Scatter { root } => {
                Some(("root", root))
            }
            _ => None,
        }
    }

    /// With that parameter; itself where it has none.
    #[must_use]
    pub const fn with_parameter(self, n: u32) -> Self {
        match self {
            Self::SendRecv { .. } => Self::SendRecv { shift: n },
            Self::Broadcast { .. } => Self::Broadcast { root: n },
            Self::Reduce { .. } => Self::Reduce { root: n },
            Self::Gather { .. } => Self::Gather { root: n },
            Self::Scatter { .. } => Self::Scatter { root: n },
            other => other,
        }
    }

    /// True when it cuts its larger buffer into one block per rank.
    pub const fn in_blocks(self) -> bool {
        matches!(
            self,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather { .. } | Self::Scatter { .. }
        )
    }

    /// True when a rank ends with a reduction.
    pub const fn reduces_at(self, rank: u32) -> bool {
        match self {
            Self::AllReduce | Self::ReduceScatter => true,
            Self::Reduce { root } => root == rank,
            _ => false,
        }
    }

    /// What memory holds before and after, when the operand and result of rank r are `ranks[r]`, the larger of
    /// the two has `whole` elements, and an element has `element` bytes.
    ///
    /// For [`Collective::Custom`] results are only observed.
    ///
    /// # Errors
    /// `AHBM-B211` when there are more elements than the budget has cells.
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
        let part = whole / n.max(1);
        let mut expectation = Expectation::new(element);
        for (rank, at) in (0u32..).zip(ranks) {
            let shared = at.input.buffer == at.output.buffer;
            expectation
                .name(at.input.buffer, format!("the {} of rank {rank}", if shared { "buffer" } else { "input" }));
            expectation.name(at.output.buffer, format!("the output of rank {rank}"));
            expectation.name(at.scratch.buffer, format!("the scratch of rank {rank}"));
            let held = match self {
                Self::AllGather | Self::Gather { .. } => part,
                Self::Custom => fits(at.input.bytes),
                _ => whole,
            };
            let start = fits(at.input.offset);
            expectation.hold(at.input.buffer, start..start + held.min(fits(at.input.bytes)), rank, 0);
        }
        let all = |index: u64| (0..n).map(|q| (q as u32, index)).collect::<Vec<_>>();
        for (rank, at) in (0u64..).zip(ranks) {
            let start = fits(at.output.offset);
            let mut expect = |elements: std::ops::Range<u64>, contributions: Vec<(u32, u64)>| {
                let set = expectation.set(contributions);
                expectation.expect(rank as u32, at.output.buffer, start + elements.start..start + elements.end, set);
            };
            // A block of every rank, one after the other.
            let size = part.max(1);
            let blocks = || (0..whole.div_ceil(size)).map(|q| (q as u32, q * size..whole.min((q + 1) * size)));
            match self {
                Self::AllReduce => expect(0..whole, all(0)),
                Self::Reduce { root } if u64::from(root) == rank => expect(0..whole, all(0)),
                Self::Gather { root } if u64::from(root) != rank => {}
                Self::AllGather | Self::Gather { .. } => blocks().for_each(|(q, block)| expect(block, vec![(q, 0)])),
                Self::ReduceScatter => expect(0..part, all(rank * part)),
                Self::AllToAll => blocks().for_each(|(q, block)| expect(block, vec![(q, rank * part)])),
                Self::AllToNext if rank > 0 => expect(0..whole, vec![(rank as u32 - 1, 0)]),
                Self::AllToNext | Self::Reduce { .. } => {}
                Self::SendRecv { shift } => {
                    expect(0..whole, vec![(((rank + n - u64::from(shift) % n) % n) as u32, 0)]);
                }
                Self::Broadcast { root } => expect(0..whole, vec![(root, 0)]),
                Self::Scatter { root } => expect(0..part, vec![(root, rank * part)]),
                Self::Custom => {
                    expectation.observe(rank as u32, at.output.buffer, start..start + fits(at.output.bytes));
                }
            }
        }
        Ok(expectation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        assert_eq!(Collective::parse("allreduce"), Collective::AllReduce);
        assert_eq!(Collective::parse("Reduce_Scatter"), Collective::ReduceScatter);
        assert_eq!(Collective::parse("test"), Collective::Custom);
    }
}
