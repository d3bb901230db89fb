//! Instances: where the slots of a program are when several copies of it share the buffers.
//!
//! Slices of scratch have one copy per instance, one after the other. Input and output are shared: *batched*, instance
//! i has the i-th copy of the whole buffer; *interleaved*, the places of the instances alternate, in runs as long as
//! the chunks that an operation moves. Operations of different lengths on one slot then disagree about its place:
//! `Faith::Meant` gives every slot one place instead, and moves chunk by chunk.

use super::record::{INPUT, OUTPUT, Op, Place, Recording};
use crate::Faith;
use ahbm_plan::blocks::Action;
use ahbm_plan::{Collective, Goal, Space};
use rustc_hash::FxHashMap;

/// How instances share input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Each has a copy of the whole.
    Batched,
    /// They alternate, in runs as long as a move.
    Interleaved,
    /// They alternate slot by slot.
    PerSlot,
}

/// Where slots are.
pub struct Layout<'a> {
    recording: &'a Recording,
    instances: u32,
    sharing: Sharing,
    /// First slot of every slice of scratch, by rank.
    offsets: Vec<FxHashMap<u32, u64>>,
}

impl<'a> Layout<'a> {
    /// That of `instances` copies. With two operations that disagree about a place of a slot, if there are such and they
    /// are to agree.
    pub fn new(
        recording: &'a Recording,
        instances: u32,
        interleaved: bool,
        goal: Goal,
        factor: u32,
        faith: Faith,
    ) -> (Self, Option<[u32; 2]>) {
        let offsets = (0..recording.ranks()).map(|rank| {
            let mut offset = 0;
            let slices = recording.slices(rank).iter().map(|&slice| {
                let start = offset;
                offset += u64::from(recording.length(rank, slice).unwrap_or(0)) * u64::from(instances);
                (slice, start)
            });
            slices.collect()
        });
        let offsets = offsets.collect();
        let mut sharing = if interleaved { Sharing::Interleaved } else { Sharing::Batched };
        let mut apart = None;
        if interleaved && instances > 1 && faith == Faith::Meant {
            apart = disagreement(recording, goal, factor.max(1));
            if apart.is_some() {
                sharing = Sharing::PerSlot;
            }
        }
        (Self { recording, instances, sharing, offsets }, apart)
    }

    /// Number of instances.
    pub fn instances(&self) -> u32 {
        self.instances
    }

    /// Moves that an operation on `place` takes, and the slots of each.
    pub fn pieces(&self, size: u32) -> (u32, u32) {
        if self.sharing == Sharing::PerSlot { (size, 1) } else { (1, size) }
    }

    /// The space of a buffer.
    pub fn space(buffer: u32) -> Space {
        match buffer {
            INPUT => Space::Input,
            OUTPUT => Space::Output,
            _ => Space::Scratch,
        }
    }

    /// First chunk of a piece of `place`.
    pub fn locate(&self, place: Place, instance: u32, piece: u32) -> u64 {
        let (index, instance) = (u64::from(place.index), u64::from(instance));
        let length = || u64::from(self.recording.length(place.rank, place.buffer).unwrap_or(0));
        if place.buffer > OUTPUT {
            let offset = self.offsets[place.rank as usize].get(&place.buffer).copied().unwrap_or(0);
            return offset + length() * instance + index + u64::from(piece);
        }
        match self.sharing {
            _ if self.instances == 1 => index,
            Sharing::Batched => length() * instance + index,
            Sharing::Interleaved => index * u64::from(self.instances) + instance * u64::from(place.size),
            Sharing::PerSlot => (index + u64::from(piece)) * u64::from(self.instances) + instance,
        }
    }

    /// True when both places, at their ranks, are the same chunks of the same space in every instance.
    pub fn same_slots(&self, a: Place, b: Place) -> bool {
        let ends = |place| [self.locate(place, 0, 0), self.locate(place, self.instances - 1, 0)];
        Self::space(a.buffer) == Self::space(b.buffer) && a.size == b.size && ends(a) == ends(b)
    }
}

/// Two operations that touch one chunk of the collective in runs that differ, so that interleaved instances would look
/// for it in two places.
fn disagreement(recording: &Recording, goal: Goal, factor: u32) -> Option<[u32; 2]> {
    let mut known: FxHashMap<(u64, u64), ((i64, u32), u32)> = FxHashMap::default();
    let ranks = u64::from(recording.ranks());
    for (id, op) in (0u32..).zip(&recording.ops) {
        for place in own(op).into_iter().flatten().filter(|place| place.buffer <= OUTPUT) {
            for slot in place.index..place.index + place.size {
                let (rank, input) = (u64::from(place.rank), place.buffer == INPUT);
                let (block, within) = (u64::from(slot / factor), u64::from(slot % factor));
                let factor = u64::from(factor);
                // A number for the chunk, the same wherever it is, and the start of the block it may not leave.
                let (chunk, base, bounded) = match goal {
                    Goal::Collective(Collective::AllGather, _) if input => (rank * factor + within, 0, true),
                    Goal::Collective(Collective::ReduceScatter, _) if !input => (rank * factor + within, 0, true),
                    Goal::Collective(Collective::AllGather | Collective::ReduceScatter, _) => {
                        (u64::from(slot), block * factor, true)
                    }
                    Goal::Collective(Collective::AllToAll, _) => {
                        let (from, to) = if input { (rank, block) } else { (block, rank) };
                        ((from * ranks + to) * factor + within, block * factor, true)
                    }
                    Goal::Custom => (u64::from(slot), 0, false),
                    _ => (u64::from(slot), 0, false),
                };
                let whose = if goal == Goal::Custom { rank * 2 + u64::from(!input) } else { 0 };
                let run = (i64::from(place.index) - base as i64, place.size);
                let inside = run.0 >= 0 && run.0 as u64 + u64::from(run.1) <= factor;
                let (first, by) = *known.entry((whose, chunk)).or_insert((run, id));
                if first != run || (bounded && !inside) {
                    return Some([by, id]);
                }
            }
        }
    }
    None
}

/// The places that an operation touches at its own rank.
fn own(op: &Op) -> [Option<Place>; 2] {
    match op.action {
        None => [None, None],
        Some(Action::Send) => [Some(op.src), None],
        Some(Action::Copy | Action::Reduce) => [Some(op.src), Some(op.dst)],
        Some(_) => [None, Some(op.dst)],
    }
}
