//! Memory of a rank: how large, and what is the same memory in place.

use super::{Plan, Space};
use crate::Collective;
use ahbm_program::BufferId;

/// A piece of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Size.
    pub bytes: u64,
}

/// Where a rank's operand and result are in a lowered program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankBuffers {
    /// The operand. In place, a region of the same buffer as the result.
    pub input: Region,
    /// The result.
    pub output: Region,
    /// Memory of the plan's own.
    pub scratch: Region,
}

/// Chunks of input, output and scratch of a rank, and where input and output start in their buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Chunks per space.
    pub(crate) chunks: [u32; 3],
    /// First chunk of input and output; both zero unless they share a buffer.
    pub(crate) base: [u32; 2],
    /// True when input and output share a buffer.
    pub(crate) shared: bool,
}

impl Extents {
    /// What the collective needs, or what the rank declares where that is more; `whole` chunks are those of the
    /// larger of input and output.
    ///
    /// `shared`, in place: the input of an all-gather is block `rank` of its output, the output of a reduce-scatter
    /// block `rank` of its input; otherwise input and output start together.
    pub(crate) fn new(
        collective: Collective,
        shared: bool,
        [rank, ranks]: [u32; 2],
        whole: u32,
        declared: [u32; 3],
    ) -> Self {
        let part = whole / ranks.max(1);
        let (input, output) = match collective {
            Collective::AllGather | Collective::Gather { .. } => (part, whole),
            Collective::ReduceScatter | Collective::Scatter { .. } => (whole, part),
            Collective::Custom => (0, 0),
            _ => (whole, whole),
        };
        let base = match collective {
            _ if !shared => [0, 0],
            Collective::AllGather | Collective::Gather { .. } => [rank.saturating_mul(part), 0],
            Collective::ReduceScatter | Collective::Scatter { .. } => [0, rank.saturating_mul(part)],
            _ => [0, 0],
        };
        Self { chunks: [input.max(declared[0]), output.max(declared[1]), declared[2]], base, shared }
    }

    /// Chunks of a space.
    pub(crate) fn of(&self, space: Space) -> u32 {
        self.chunks[space as usize]
    }

    /// The memory that chunk `chunk` of a space is in, named by its first space, and where it is there.
    pub(crate) fn home(&self, space: Space, chunk: u64) -> (Space, u64) {
        match space {
            Space::Input | Space::Output if self.shared => (Space::Input, chunk + u64::from(self.base[space as usize])),
            _ => (space, chunk),
        }
    }

    /// Chunks of all buffers.
    pub(crate) fn cells(&self) -> u64 {
        let [input, output, scratch] = self.chunks.map(u64::from);
        scratch + if self.shared { self.shared_chunks().into() } else { input + output }
    }

    /// Chunks of the buffer that input and output share.
    pub(crate) fn shared_chunks(&self) -> u32 {
        (self.base[0].saturating_add(self.chunks[0])).max(self.base[1].saturating_add(self.chunks[1]))
    }
}

impl Plan {
    /// The memory of a rank.
    pub(crate) fn extents(&self, rank: u32) -> Extents {
        let declared = self.ranks[rank as usize].declared;
        if rank >= self.members() {
            return Extents { chunks: declared, base: [0, 0], shared: false };
        }
        Extents::new(self.collective, self.shares(), [rank, self.members()], self.chunks, declared)
    }

    /// True when input and output are one memory: in place, where the collective says how they overlap.
    pub(crate) fn shares(&self) -> bool {
        self.in_place && self.collective != Collective::Custom
    }
}
