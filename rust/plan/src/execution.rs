//! Execution plans: thread blocks with one-sided operations, channels and semaphores, as MSCCL++ has them.
//!
//! Every reference is resolved to ranks, buffers, chunks and channel ends. [`ExecutionPlan::lower`] turns a plan into a
//! program for so many bytes on a machine. A thread block is an agent. All memory operations are one-sided:
//! copies, loads and stores on any rank's buffers. A channel's end is a counter: the k-th wait on it waits for the
//! k-th signal. Packets carry their own arrival: writing some bytes of scratch as packets signals a counter that
//! reading them waits for. Loops are unrolled.
//!
//! Differences from a GPU, by design:
//!
//! * what a thread block puts at another rank is posted: the block goes on when the last byte has left, through a
//!   port as through memory, and its source may change then;
//! * a signal has no cost of its own: it arrives with the last byte that its thread block has put before it, through
//!   whichever channel; a flush, a barrier and the end of a thread block wait for those bytes, a semaphore does not;
//! * packets occupy memory of their own and travel as payload plus as many bytes of flags;
//! * a switch reduces and broadcasts as loads and stores to every member, unless the machine's switch reduces;
//! * relaxed signals order memory like the others.
//!
//! Reading order: the model below, `layout` (bytes), `packets`, `context` (memory and counters), `body`, `lower`.

mod body;
mod context;
mod layout;
mod lower;
mod packets;

pub use lower::Launch;

use crate::{Extents, Goal, Protocol, Space};
use ahbm_findings::Diagnostic;
use ahbm_program::{BinaryFn, Locus, Origin};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An execution plan.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionPlan {
    /// Name for people.
    pub name: String,
    /// The file it was read from, as the user knows it.
    pub file: Arc<str>,
    /// Where its operations are written.
    pub places: Places,
    /// The computation that it performs.
    pub goal: Goal,
    /// Input and output are one memory.
    pub in_place: bool,
    /// LL doubles the executor's scratch; packets decide the cost.
    pub protocol: Protocol,
    /// Scratch has the fixed size of the executor's default buffer.
    pub reuse_resources: bool,
    /// Launches alternate between two halves of scratch.
    pub double_scratch: bool,
    /// Bytes that thread-block groups split by, and that message sizes are multiples of.
    pub alignment: u64,
    /// Smallest message, bytes.
    pub min_bytes: u64,
    /// Largest message, bytes.
    pub max_bytes: u64,
    /// Chunks that the larger of input and output is cut into.
    pub chunks: u32,
    /// One entry per rank.
    pub ranks: Vec<Rank>,
    /// Ends of memory and port channels, rank by rank; [`Action::Signal`] and [`Action::Wait`] index them. The
    /// k-th end of a rank towards another is one channel with the other's k-th end of that kind towards it.
    pub ends: Vec<End>,
    /// Behave like the public executor where it does not do what its interface says.
    pub quirks: bool,
    /// Operations that no executor runs; a plan that has some cannot be lowered.
    pub unsupported: Vec<Diagnostic>,
    /// Parts that a real executor would reject, overrun or misread; none of them stops a run.
    pub warnings: Vec<Diagnostic>,
}

/// Where the operations of a plan are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    /// At their positions in the plan's file.
    Positions,
    /// In other documents.
    Listed {
        /// The place of the plan itself.
        whole: Origin,
        /// What [`Op::place`] indexes.
        places: Arc<[Origin]>,
    },
}

/// The work of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Chunks of input, output and scratch.
    pub chunks: [u32; 3],
    /// Initial values of the semaphores.
    pub semaphores: Vec<u32>,
    /// Participants of the barriers, by the id the file uses.
    pub barriers: Vec<(u32, u32)>,
    /// Operations of each thread block.
    pub blocks: Vec<Vec<Op>>,
}

/// A rank's end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct End {
    /// Whose end.
    pub rank: u32,
    /// Memory or port.
    pub kind: Kind,
    /// The rank at the other end.
    pub peer: u32,
}

/// How bytes and signals travel.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Loads and stores to a peer's memory.
    Memory,
    /// Transfers by a proxy.
    Port,
    /// Loads and stores to a group of peers at once.
    Switch,
    /// Inside the rank.
    #[default]
    None,
}

impl Kind {
    /// Index of a kind that joins two ranks.
    pub const fn way(self) -> Option<usize> {
        match self {
            Self::Memory => Some(0),
            Self::Port => Some(1),
            Self::Switch | Self::None => None,
        }
    }
}

/// The words in which a file says an operation. Of them, only `kind` has a part in a run: a machine's switch that reduces
/// performs the operations on switch channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// Name of the operation.
    pub name: &'static str,
    /// `channel_type`.
    pub kind: Kind,
    /// The rank's own ends of the channels that it names.
    pub ends: Box<[u32]>,
}

impl Words {
    /// Of an operation without channels.
    pub fn local(name: &'static str) -> Self {
        Self { name, kind: Kind::None, ends: Box::default() }
    }
}

/// One operation of a thread block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The action of the operation.
    pub action: Action,
    /// How it is written.
    pub words: Words,
    /// The part of its bytes that this thread block handles.
    pub share: Option<Share>,
    /// Its position in the file's list; an operation that is split by chunks stands there several times.
    pub index: u32,
    /// Index into the places of [`Places::Listed`].
    pub place: u32,
}

/// A part of an operation that a thread-block group does together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which part.
    pub index: u32,
    /// Number of parts, at least 1.
    pub of: u32,
}

/// The action of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Synchronises the threads of the block, which are one agent here.
    Sync,
    /// Meets the other thread blocks of the rank; indexes [`Rank::barriers`].
    Barrier(u32),
    /// Takes one of each semaphore.
    Acquire(Box<[u32]>),
    /// Gives one to each semaphore.
    Release(Box<[u32]>),
    /// Increments the other end of channels; `None` where the peer has no such channel.
    Signal(Box<[Option<u32>]>),
    /// Waits for the next increment of its ends of channels.
    Wait(Box<[u32]>),
    /// Waits until the channel's transfers are done, which they are.
    Flush,
    /// Copies, one after the other, then signals.
    Move {
        /// Source and destination.
        pairs: Box<[(Operand, Operand)]>,
        /// Waits for the packets of a source before it is read.
        waits: bool,
        /// Increments after the last byte has been written, as in [`Action::Signal`].
        signals: Box<[Option<u32>]>,
    },
    /// Reduces the operands in their order and stores the result everywhere.
    Reduce {
        /// The function of a pair.
        function: BinaryFn,
        /// At least one.
        operands: Box<[Operand]>,
        /// At least one.
        results: Box<[Operand]>,
    },
    /// Repeats its operations over pieces of `unit` bytes.
    Loop {
        /// Bytes per iteration, at least 1.
        unit: u64,
        /// Chunks that the iterations cover.
        chunks: u32,
        /// Operations of one iteration; no loops among them.
        ops: Vec<Op>,
    },
}

/// Consecutive chunks of a rank's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Whose buffer.
    pub rank: u32,
    /// Which one.
    pub space: Space,
    /// First chunk.
    pub chunk: u32,
    /// Number of chunks.
    pub count: u32,
    /// Data, or data and flags.
    pub form: Form,
}

/// How data stands in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// As it is.
    Plain,
    /// Every word with a flag: a reader knows when it has arrived.
    Packets,
}

impl ExecutionPlan {
    /// Operations of all thread blocks, those inside loops included once.
    pub fn ops(&self) -> u64 {
        let inner = |op: &Op| if let Action::Loop { ops, .. } = &op.action { ops.len() as u64 } else { 0 };
        self.ranks.iter().flat_map(|rank| &rank.blocks).flatten().map(|op| 1 + inner(op)).sum()
    }

    /// The place of an operation whose position in the file is `pointer`.
    pub fn origin(&self, op: &Op, pointer: impl FnOnce() -> String) -> Origin {
        match &self.places {
            Places::Listed { places, .. } => places[op.place as usize].clone(),
            Places::Positions => Origin { file: Arc::clone(&self.file), locus: Locus::Pointer(pointer().into()) },
        }
    }

    /// The memory of every rank.
    pub fn extents(&self) -> Vec<Extents> {
        let (ranks, shared) = (self.ranks.len() as u32, self.in_place);
        let one = |(rank, work): (u32, &Rank)| Extents::new(self.goal, shared, [rank, ranks], self.chunks, work.chunks);
        (0..).zip(&self.ranks).map(one).collect()
    }

    /// True when some thread block repeats operations.
    pub fn loops(&self) -> bool {
        let mut found = false;
        self.walk(|_, op| found |= matches!(op.action, Action::Loop { .. }));
        found
    }

    /// Every operation with a buffer operand, with the rank it runs on; loops are walked once.
    pub fn walk(&self, mut visit: impl FnMut(u32, &Op)) {
        for (rank, work) in self.ranks.iter().enumerate() {
            for op in work.blocks.iter().flatten() {
                visit(rank as u32, op);
                if let Action::Loop { ops, .. } = &op.action {
                    ops.iter().for_each(|op| visit(rank as u32, op));
                }
            }
        }
    }
}

impl Action {
    /// Visits operands; the flag is true for those written.
    pub fn each_operand(&self, mut visit: impl FnMut(&Operand, bool)) {
        match self {
            Self::Move { pairs, .. } => pairs.iter().for_each(|(src, dst)| {
                visit(src, false);
                visit(dst, true);
            }),
            Self::Reduce { operands, results, .. } => {
                operands.iter().for_each(|operand| visit(operand, false));
                results.iter().for_each(|operand| visit(operand, true));
            }
            _ => {}
        }
    }
}

impl Op {
    /// Chunks that each operand has.
    pub fn count(&self) -> u32 {
        match &self.action {
            Action::Move { pairs, .. } => pairs.first().map_or(0, |(src, _)| src.count),
            Action::Reduce { operands, .. } => operands.first().map_or(0, |operand| operand.count),
            _ => 0,
        }
    }

    /// The part of it that handles chunk `k` of every operand; the last part signals.
    pub fn chunk(&self, k: u32) -> Self {
        let last = k + 1 == self.count();
        let one = |operand: &Operand| Operand { chunk: operand.chunk + k, count: 1, ..*operand };
        let action = match &self.action {
            Action::Move { pairs, waits, signals } => Action::Move {
                pairs: pairs.iter().map(|(src, dst)| (one(src), one(dst))).collect(),
                waits: *waits,
                signals: if last { signals.clone() } else { Box::default() },
            },
            Action::Reduce { function, operands, results } => Action::Reduce {
                function: *function,
                operands: operands.iter().map(one).collect(),
                results: results.iter().map(one).collect(),
            },
            other => other.clone(),
        };
        Self { action, words: self.words.clone(), ..*self }
    }

    /// True for the operations that move or reduce packets.
    pub fn has_packets(&self) -> bool {
        let packets = |operand: &Operand| operand.form == Form::Packets;
        match &self.action {
            Action::Move { pairs, .. } => pairs.iter().any(|(src, dst)| packets(src) || packets(dst)),
            Action::Reduce { operands, results, .. } => operands.iter().chain(results).any(packets),
            _ => false,
        }
    }
}
