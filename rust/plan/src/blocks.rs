//! Thread-block plans: what MSCCL-like formats say, independent of file syntax and of the machine.
//!
//! A [`Plan`] names buffers in *chunks*; [`Plan::lower`] turns it into a program for so many bytes on a
//! machine. [`crate::LowerOptions`] and [`crate::Lowered`] serve every reader, also those whose steps are of another kind.

mod block;
mod layout;
mod lower;
mod posts;
mod queues;
mod transfers;
mod verify;

pub use layout::MAX_TOGETHER;
pub use transfers::{Transfer, Transfers};

use crate::buffers::{Extents, Space};
use crate::{Goal, Protocol};
use ahbm_findings::Diagnostic;
use ahbm_program::{Locus, Origin};
use std::sync::Arc;

/// A collective algorithm for a fixed number of ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Name for people.
    pub name: String,
    /// The file it was read from, as the user knows it.
    pub file: Arc<str>,
    /// The places that its `line`s count.
    pub places: Places,
    /// The computation that it performs.
    pub goal: Goal,
    /// Usable when input and output are one memory. A plan that allows both is run in place.
    pub in_place: bool,
    /// Usable when input and output are two memories.
    pub out_of_place: bool,
    /// The wire protocol it was written for.
    pub protocol: Protocol,
    /// Channel numbers are below this.
    pub channels: u32,
    /// Chunks that the larger of input and output is cut into; at least one.
    pub chunks: u32,
    /// Smallest size it is meant for, in bytes of `chunks` chunks; `None` where the file does not say.
    pub min_bytes: Option<u64>,
    /// Largest size it is meant for; 0 is unlimited.
    pub max_bytes: Option<u64>,
    /// One entry per rank.
    pub ranks: Vec<Rank>,
    /// How many of them, the last, have no operand and no result: they pass on what others send.
    pub relays: u32,
    /// Why a real runtime would not load or would misread it; none of them stops a run.
    pub warnings: Vec<Diagnostic>,
}

/// The places that the `line` of a step, thread block or copy counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    /// Lines of the plan's file, from the one where the plan itself stands.
    Lines(u32),
    /// Ids of nodes in the file of each rank.
    Nodes(Vec<Arc<str>>),
    /// Indices into a list of places in other documents.
    Listed(Vec<Origin>),
    /// Nothing: the plan was computed.
    Nowhere,
}

/// The work of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rank {
    /// Declared chunks of input, output and scratch.
    pub declared: [u32; 3],
    /// Copies from input to output before any thread block starts; none of them happens in place.
    pub before: Vec<Precopy>,
    /// Copies from input to output after every thread block has ended; none of them happens in place.
    pub after: Vec<Precopy>,
    /// Thread blocks by id.
    pub blocks: Vec<Block>,
}

/// A copy outside every thread block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precopy {
    /// Chunk of the input.
    pub input: u32,
    /// Chunk of the output.
    pub output: u32,
    /// Number of chunks.
    pub count: u32,
    /// Line of the file.
    pub line: u32,
}

/// A thread block: steps in order, one peer per direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    /// The rank it sends to.
    pub send: Option<u32>,
    /// The rank it receives from.
    pub recv: Option<u32>,
    /// Channel number; with both ranks, the identity of a queue.
    pub channel: u32,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Line of the file.
    pub line: u32,
}

/// The action of a step. `in` is the message it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends src.
    Send,
    /// dst = in.
    Recv,
    /// dst = in, sends it.
    RecvCopySend,
    /// dst = src + in.
    RecvReduceCopy,
    /// Sends src + in without storing it.
    RecvReduceSend,
    /// dst = src + in, sends it.
    RecvReduceCopySend,
    /// dst = src.
    Copy,
    /// dst = dst + src.
    Reduce,
    /// Nothing but its dependency.
    Nop,
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 9] = [
        Self::Send,
        Self::Recv,
        Self::RecvCopySend,
        Self::RecvReduceCopy,
        Self::RecvReduceSend,
        Self::RecvReduceCopySend,
        Self::Copy,
        Self::Reduce,
        Self::Nop,
    ];

    /// The type that MSCCL-IR gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "s",
            Self::Recv => "r",
            Self::RecvCopySend => "rcs",
            Self::RecvReduceCopy => "rrc",
            Self::RecvReduceSend => "rrs",
            Self::RecvReduceCopySend => "rrcs",
            Self::Copy => "cpy",
            Self::Reduce => "re",
            Self::Nop => "nop",
        }
    }

    /// True when a message leaves.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::RecvCopySend | Self::RecvReduceSend | Self::RecvReduceCopySend)
    }

    /// True when a message is taken.
    pub const fn receives(self) -> bool {
        matches!(
            self,
            Self::Recv | Self::RecvCopySend | Self::RecvReduceCopy | Self::RecvReduceSend | Self::RecvReduceCopySend
        )
    }

    /// True when local memory is read at `src`.
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Recv | Self::RecvCopySend | Self::Nop)
    }

    /// True when local memory is written at `dst`.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Send | Self::RecvReduceSend | Self::Nop)
    }
}

/// A chunk of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The buffer.
    pub space: Space,
    /// Index in chunks.
    pub chunk: u32,
}

/// One step of a thread block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The action of the step.
    pub action: Action,
    /// The slot that it reads; informative where the action does not read.
    pub src: Slot,
    /// The slot that it writes; informative where the action does not write.
    pub dst: Slot,
    /// Consecutive chunks.
    pub count: u32,
    /// Waits until this step of another thread block of the rank has run.
    pub wait: Option<Dep>,
    /// Tells waiting thread blocks that it has run. Waiting for a step that does not is satisfied only by a
    /// later one that does.
    pub posts: bool,
    /// Line of the file.
    pub line: u32,
}

/// A step of a thread block of the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dep {
    /// Thread block.
    pub block: u32,
    /// Step.
    pub step: u32,
}

impl Plan {
    /// Ranks that take part in the collective: the first.
    pub fn members(&self) -> u32 {
        self.ranks.len() as u32 - self.relays
    }

    /// The place at which the plan itself was written.
    pub fn whole(&self) -> Origin {
        let locus = match self.places {
            Places::Lines(line) => Locus::Line(line),
            Places::Nodes(_) | Places::Listed(_) | Places::Nowhere => Locus::Whole,
        };
        Origin { file: Arc::clone(&self.file), locus }
    }

    /// The place at which something of a rank was written.
    pub fn origin(&self, rank: u32, line: u32) -> Origin {
        match &self.places {
            Places::Lines(_) => Origin { file: Arc::clone(&self.file), locus: Locus::Line(line) },
            Places::Listed(places) => places[line as usize].clone(),
            Places::Nowhere => self.whole(),
            Places::Nodes(files) => Origin { file: Arc::clone(&files[rank as usize]), locus: Locus::Node(line.into()) },
        }
    }

    /// Steps of all ranks.
    pub fn steps(&self) -> u64 {
        self.ranks.iter().flat_map(|r| &r.blocks).map(|b| b.steps.len() as u64).sum()
    }

    /// Thread blocks of all ranks.
    pub fn blocks(&self) -> u64 {
        self.ranks.iter().map(|r| r.blocks.len() as u64).sum()
    }
}

impl Plan {
    /// The memory of a rank.
    pub fn extents(&self, rank: u32) -> Extents {
        let declared = self.ranks[rank as usize].declared;
        if rank >= self.members() {
            return Extents { chunks: declared, base: [0, 0], shared: false };
        }
        Extents::new(self.goal, self.shares(), [rank, self.members()], self.chunks, declared)
    }

    /// True when input and output are one memory: in place, where the collective says how they overlap.
    pub fn shares(&self) -> bool {
        self.in_place && self.goal != Goal::Custom
    }
}
