//! How the chunks of a plan are cut into messages.

use super::{Action, Plan};
use ahbm_program::{BinaryFn, Dtype};

/// Consecutive chunks that travel together in the runtimes, at most.
pub const MAX_TOGETHER: u64 = 71;

/// How chunks are cut into messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Elements of a chunk.
    pub(super) chunk: u64,
    /// Elements of a slice: the largest message.
    pub(super) slice: u64,
    /// Chunks per message, at most.
    pub(super) together: u64,
    /// Parallel copies of the plan.
    pub(super) instances: u32,
    /// Element type.
    pub(super) dtype: Dtype,
    /// Reduction of two elements.
    pub(super) reduce: BinaryFn,
    /// The number by which the result is divided in the end.
    pub(super) divisor: Option<u32>,
}

/// Elements of every chunk that one pass over the steps handles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub(super) from: u64,
    pub(super) elements: u64,
}

impl Layout {
    /// Bytes of a chunk.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk * self.dtype.bytes()
    }

    /// The elements `[from, from + n)` of every chunk that an instance handles, slice by slice.
    pub(super) fn passes(&self, instance: u32) -> impl Iterator<Item = Pass> {
        let share = |i: u32| (u128::from(self.chunk) * u128::from(i) / u128::from(self.instances)) as u64;
        let (first, last) = (share(instance), share(instance + 1));
        let slice = self.slice;
        (0..(last - first).div_ceil(slice)).map(move |k| {
            let from = first + k * slice;
            Pass { from, elements: slice.min(last - from) }
        })
    }

    /// A whole chunk in pieces of at most a slice: first element and number of elements.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let whole = Self { instances: 1, ..*self };
        whole.passes(0).map(|p| (p.from, p.elements)).collect::<Vec<_>>().into_iter()
    }

    /// Chunks per message: several only where whole chunks are moved, since only then they are adjacent.
    fn together(&self) -> u64 {
        if self.instances == 1 { (self.slice / self.chunk).clamp(1, self.together) } else { 1 }
    }

    /// The messages of a step of `count` chunks: first chunk and number of chunks, several only where a slice holds
    /// whole chunks.
    pub(super) fn groups(&self, count: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let together = self.together() as u32;
        (0..count.div_ceil(together)).map(move |g| (g * together, together.min(count - g * together)))
    }

    /// Operations of the program, from above, without building it.
    pub(super) fn cost(&self, plan: &Plan) -> u64 {
        let share = self.chunk.div_ceil(u64::from(self.instances));
        let passes = share.div_ceil(self.slice).saturating_mul(self.instances.into());
        let together = self.together();
        let mut ops = 0u64;
        for rank in &plan.ranks {
            ops = ops.saturating_add(rank.blocks.len() as u64);
            for step in rank.blocks.iter().flat_map(|b| &b.steps) {
                let messages = u64::from(step.count).div_ceil(together);
                ops = ops.saturating_add(2 + messages.saturating_mul(step.action.operations()));
            }
            let copied: u64 =
                rank.before.iter().chain(&rank.after).map(|c| u64::from(c.count).div_ceil(together)).sum();
            let divided = if self.divisor.is_some() { 3 * u64::from(plan.chunks).div_ceil(together) } else { 0 };
            ops = ops.saturating_add(copied).saturating_add(divided);
        }
        ops.saturating_mul(passes)
    }
}

impl Action {
    /// Operations of one message's worth of work.
    const fn operations(self) -> u64 {
        match self {
            Self::Nop => 0,
            Self::Copy => 1,
            Self::Send | Self::Recv => 2,
            Self::RecvCopySend | Self::RecvReduceCopy | Self::Reduce => 4,
            Self::RecvReduceSend => 5,
            Self::RecvReduceCopySend => 6,
        }
    }
}
