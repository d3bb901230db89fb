//! Memory of a rank: how large, and what is the same memory in place.

use crate::Goal;
use ahbm_program::BufferId;

/// Which of a rank's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// The operand.
    Input,
    /// The result.
    Output,
    /// Memory of the plan's own.
    Scratch,
}

impl Space {
    /// The name that MSCCL-IR gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "i",
            Self::Output => "o",
            Self::Scratch => "s",
        }
    }
}

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

/// The places of a rank's operand and result in a lowered program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankBuffers {
    /// The operand. In place, a region of the same buffer as the result.
    pub input: Region,
    /// The result.
    pub output: Region,
    /// Memory of the plan's own.
    pub scratch: Region,
}

impl RankBuffers {
    /// The buffer of a space by its position in the table of a thread block, and where the space is.
    pub fn region(&self, space: Space) -> (u16, Region) {
        match space {
            Space::Input => (0, self.input),
            Space::Output => (1, self.output),
            Space::Scratch => (2, self.scratch),
        }
    }
}

/// Chunks of input, output and scratch of a rank, and where input and output start in their buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Chunks per space.
    pub chunks: [u32; 3],
    /// First chunk of input and output; both zero unless they share a buffer.
    pub base: [u32; 2],
    /// True when input and output share a buffer.
    pub shared: bool,
}

impl Extents {
    /// The extents that the goal needs, or those that the rank declares where they are larger; `whole` chunks are those
    /// of the larger of input and output.
    ///
    /// `shared`, in place: the input of an all-gather is block `rank` of its output, the output of a reduce-scatter
    /// block `rank` of its input; otherwise input and output start together.
    pub fn new(goal: Goal, shared: bool, [rank, ranks]: [u32; 2], whole: u32, declared: [u32; 3]) -> Self {
        let part = whole / ranks.max(1);
        let own = if shared { rank.saturating_mul(part) } else { 0 };
        let (chunks, base) = goal.relation().map_or(([0, 0], [0, 0]), |relation| {
            let both = [relation.operand, relation.result];
            (both.map(|extent| extent.of(whole, part)), both.map(|extent| extent.start(own)))
        });
        let [input, output] = chunks;
        Self { chunks: [input.max(declared[0]), output.max(declared[1]), declared[2]], base, shared }
    }

    /// Chunks of a space.
    pub fn of(&self, space: Space) -> u32 {
        self.chunks[space as usize]
    }

    /// The memory that chunk `chunk` of a space is in, named by its first space, and where it is there.
    pub fn home(&self, space: Space, chunk: u64) -> (Space, u64) {
        match space {
            Space::Input | Space::Output if self.shared => (Space::Input, chunk + u64::from(self.base[space as usize])),
            _ => (space, chunk),
        }
    }

    /// Chunks of all buffers.
    pub fn cells(&self) -> u64 {
        let [input, output, scratch] = self.chunks.map(u64::from);
        scratch + if self.shared { self.shared_chunks().into() } else { input + output }
    }

    /// Chunks of the buffer that input and output share.
    pub fn shared_chunks(&self) -> u32 {
        (self.base[0].saturating_add(self.chunks[0])).max(self.base[1].saturating_add(self.chunks[1]))
    }

    /// Chunks of `cells` cells each as cells; `None` beyond 32 bits.
    pub fn times(&self, cells: u32) -> Option<Self> {
        let [input, output, scratch] = self.chunks.map(|chunks| chunks.checked_mul(cells));
        let [first, second] = self.base.map(|chunk| chunk.checked_mul(cells));
        Some(Self { chunks: [input?, output?, scratch?], base: [first?, second?], shared: self.shared })
    }
}
