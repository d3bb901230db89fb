//! Where the operands of an instance are.
//!
//! Every chunk becomes as many as there are instances. Instance `i` of `size` chunks from `index` on has `size` of them
//! from `index * instances + i * size` on. That keeps the instances apart only if all operations cut memory the same.

use super::lower::Notes;
use super::model::{Chunk, Code, Op, Via, named};
use super::record::Recorder;
use crate::{Faith, Fault, Raised};
use ahbm_plan::Space;
use rustc_hash::FxHashMap;

/// First chunk, the one after the last, and the statement.
type Cut = (u32, u32, u32);

/// One instance of a thread block.
pub(super) struct Instance {
    pub(super) index: u32,
    pub(super) of: u32,
    faith: Faith,
    /// How many operations of the thread block hold an object of the author; empty where that does not matter.
    holders: FxHashMap<u32, u32>,
}

impl Instance {
    pub(super) fn new(index: u32, of: u32, faith: Faith, ops: &[Op], notes: &mut Notes<'_>) -> Self {
        let mut holders = FxHashMap::default();
        if of > 1 {
            for op in ops.iter().flat_map(|op| std::iter::once(op).chain(op.body())) {
                let packed = matches!(op.code, Code::ReduceCopyPackets | Code::ReduceCopySendPackets);
                if packed && faith == Faith::Meant {
                    notes.differs(op.place, "gives all instances the same copy as packets; each has its own");
                }
                for r in op.src.iter().chain(&op.dst).filter(|r| r.via == Via::Named) {
                    let held = holders.entry(r.chunk.object).or_insert(0);
                    *held += 1;
                    if *held == 2 && faith == Faith::Meant {
                        notes.differs(op.place, "shifts a chunk that two switch operations share twice; once is meant");
                    }
                }
            }
        }
        Self { index, of, faith, holders }
    }

    /// The number of a channel, semaphore, barrier or thread block.
    pub(super) fn id(&self, id: u32) -> Result<u32, Fault> {
        id.checked_mul(self.of).and_then(|id| id.checked_add(self.index)).ok_or_else(too_many)
    }

    /// The first chunk of the operand at position `at` of an operation's destinations, or of its sources.
    pub(super) fn first(&self, code: Code, via: Via, chunk: &Chunk, result: Option<usize>) -> Result<u32, Fault> {
        let packed = matches!(code, Code::ReduceCopyPackets | Code::ReduceCopySendPackets) && result == Some(1);
        let times = match (self.faith, via) {
            (Faith::AsIs, _) if packed => 0,
            (Faith::AsIs, Via::Named) => self.holders.get(&chunk.object).copied().unwrap_or(1),
            _ => 1,
        };
        let shift = |index: u32| {
            let own = self.index.checked_mul(chunk.size)?;
            index.checked_mul(self.of)?.checked_add(own)
        };
        (0..times).try_fold(chunk.index, |index, _| shift(index)).ok_or_else(too_many)
    }
}

pub(super) fn too_many() -> Fault {
    Fault::new(Raised::Value, "AHBM-A103", "so many instances that numbers of chunks or thread blocks overflow")
}

impl Recorder {
    /// Warns of instances that share elements, because operations cut the same memory differently.
    pub(super) fn check_instances(&self, notes: &mut Notes<'_>) {
        let mut cuts: FxHashMap<(u32, Space), Vec<Cut>> = FxHashMap::default();
        for op in self.gpus.iter().flat_map(|gpu| &gpu.blocks).flat_map(|block| &block.ops) {
            for op in std::iter::once(op).chain(op.body()) {
                for r in op.src.iter().chain(&op.dst) {
                    let Chunk { rank, space, index, size, .. } = r.chunk;
                    cuts.entry((rank, space)).or_default().push((index, index + size, op.place));
                }
            }
        }
        let mut spaces: Vec<_> = cuts.into_iter().collect();
        spaces.sort_unstable_by_key(|&((rank, space), _)| (rank, space as u8));
        for ((rank, space), mut cuts) in spaces {
            cuts.sort_unstable();
            let mut widest = cuts[0];
            for &(start, end, place) in &cuts[1..] {
                if start < widest.1 && (start, end) != (widest.0, widest.1) {
                    let message = format!(
                        "chunks {} to {} and chunks {start} to {end} of rank {rank}'s {} overlap: {} instances of the \
                         one share elements with other instances of the other",
                        widest.0,
                        widest.1,
                        named(space),
                        self.settings.instances
                    );
                    notes.shares(message, [widest.2, place]);
                    break;
                }
                if end > widest.1 {
                    widest = (start, end, place);
                }
            }
        }
    }
}
