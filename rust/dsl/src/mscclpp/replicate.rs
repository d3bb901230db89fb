//! Where the operands of an instance are.
//!
//! Every chunk becomes as many as there are instances. Instance `i` of `size` chunks from `index` on has `size` of them
//! from `index * instances + i * size` on. That keeps the instances apart only if all operations cut memory the same. Where
//! they do not, [`Faith::Meant`] cuts all of them in pieces of one size. All instances together move the same elements.

use super::model::{Chunk, Code, Map, Op, Via, named};
use super::notes::Notes;
use super::record::Recorder;
use crate::{Faith, Fault, Raised};
use ahbm_plan::Space;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Consecutive chunks, and a statement that names them.
#[derive(Debug, Clone, Copy)]
struct Cut {
    start: u32,
    end: u32,
    place: u32,
}

/// By first chunk and the one after the last: whether a statement writes there, and the first statement.
type Cuts = BTreeMap<(u32, u32), (bool, u32)>;

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
    /// How to cut operations, where statements cut memory differently that one of them writes; nothing if its loops do
    /// not allow it. They have to go over as many chunks as each other, and as all that is in them.
    pub(super) fn grain(&self, notes: &mut Notes<'_>) -> Option<Grain> {
        let ((rank, space), [one, other]) = self.uneven()?;
        let ops = || self.gpus.iter().flat_map(|gpu| &gpu.blocks).flat_map(|block| &block.ops);
        let chunks = |op: &Op| op.src.iter().chain(&op.dst).map(|r| r.chunk).collect::<Vec<_>>();
        let all = ops().flat_map(|op| std::iter::once(op).chain(op.body())).flat_map(chunks);
        let all = all.filter(|chunk| chunk.size > 0).map(|chunk| (self.located(chunk.rank, &chunk).1, chunk.size));
        let grain = all.fold(0, |all, (index, size)| gcd(gcd(all, index), size));
        let mut loops = ops().filter_map(|op| op.body.as_ref());
        let extent = loops.clone().next().map_or(grain, |body| body.chunks);
        let regular = loops
            .all(|body| body.chunks == extent && body.ops.iter().flat_map(chunks).all(|chunk| chunk.size == extent));
        let what = format!(
            "chunks {} to {} and chunks {} to {} of rank {rank}'s {} overlap:",
            one.start,
            one.end,
            other.start,
            other.end,
            named(space)
        );
        let instances = self.settings.instances;
        let (code, then) = if regular {
            let then = format!(
                "{instances} instances alternate in pieces of {grain}, and MSCCL++'s own compiler lets those of the one \
                 collide with other instances of the other"
            );
            ("AHBM-A123", then)
        } else {
            let then = format!("{instances} instances of the one share elements with other instances of the other");
            ("AHBM-A122", then)
        };
        notes.shares(code, format!("{what} {then}"), [one.place, other.place]);
        regular.then_some(Grain(grain))
    }

    /// The first chunk at a rank, as one of the larger of two buffers that are one memory.
    fn located(&self, rank: u32, chunk: &Chunk) -> (Space, u32) {
        let [input, output, _] = self.gpus[rank as usize].chunks;
        let block = |chunks: u32| chunk.index.saturating_add(rank.saturating_mul(chunks));
        match chunk.space {
            Space::Input if self.settings.in_place && input < output => (Space::Output, block(input)),
            Space::Output if self.settings.in_place && input > output => (Space::Input, block(output)),
            Space::Output if self.settings.in_place && input == output => (Space::Input, chunk.index),
            space => (space, chunk.index),
        }
    }

    /// Two cuts that overlap and are not the same, one of them written to, and whose memory it is.
    fn uneven(&self) -> Option<((u32, Space), [Cut; 2])> {
        let mut cuts: Map<(u32, Space), Cuts> = Map::default();
        for gpu in &self.gpus {
            for block in &gpu.blocks {
                for op in block.ops.iter().flat_map(|op| std::iter::once(op).chain(op.body())) {
                    let reads = op.src.iter().map(|r| (r, false));
                    for (r, writes) in reads.chain(op.dst.iter().map(|r| (r, true))).filter(|(r, _)| r.chunk.size > 0) {
                        let own = [r.chunk.rank];
                        let owners = match r.via {
                            Via::Switch(id) => gpu.group(block, id),
                            _ => &own,
                        };
                        for &owner in owners {
                            let (space, index) = self.located(owner, &r.chunk);
                            let known = cuts.entry((owner, space)).or_default();
                            known.entry((index, index.saturating_add(r.chunk.size))).or_insert((false, op.place)).0 |=
                                writes;
                        }
                    }
                }
            }
        }
        cuts.into_iter().find_map(|(memory, cuts)| {
            // Of the cuts so far, the one that ends last, and the one that ends last of those that are written to.
            let (mut last, mut written): (Option<Cut>, Option<Cut>) = (None, None);
            cuts.into_iter().find_map(|((start, end), (writes, place))| {
                let cut = Cut { start, end, place };
                let earlier = if writes { last } else { written };
                let longer = |known: Option<Cut>| known.filter(|known| known.end >= end).unwrap_or(cut);
                last = Some(longer(last));
                if writes {
                    written = Some(longer(written));
                }
                earlier.filter(|earlier| earlier.end > start).map(|earlier| (memory, [earlier, cut]))
            })
        })
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How operations are cut so that instances stay apart: in pieces of so many chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grain(u32);

impl Grain {
    /// The operations in pieces. Loops go over one of them.
    pub(super) fn cut(self, ops: Vec<Op>) -> Vec<Op> {
        let mut out = Vec::with_capacity(ops.len());
        for mut op in ops {
            if let Some(body) = &mut op.body {
                body.chunks = self.0;
                body.ops = self.cut(std::mem::take(&mut body.ops));
            }
            let pieces = (op.src.first().map_or(0, |r| r.chunk.size) / self.0).max(1);
            for piece in 0..pieces {
                let mut part = op.clone();
                for r in part.src.iter_mut().chain(&mut part.dst) {
                    r.chunk.index += piece * self.0;
                    r.chunk.size = r.chunk.size.min(self.0);
                }
                // The signal follows the last piece.
                if piece + 1 < pieces && matches!(op.code, Code::PutSignal | Code::PutSignalFlush) {
                    part.code = Code::Put;
                }
                out.push(part);
            }
        }
        out
    }
}
