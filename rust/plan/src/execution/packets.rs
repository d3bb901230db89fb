//! Arrival of packets: counters for every stretch of scratch that some operation writes or reads as packets.

use super::layout::{Layout, Piece};
use super::{ExecutionPlan, Form};
use std::ops::Range;

/// Per rank, scratch cut where any packet operand starts or ends; each stretch has a counter.
#[derive(Debug)]
pub(super) struct Packets {
    cuts: Vec<Vec<u64>>,
    first: Vec<u32>,
}

impl Packets {
    /// `counter` is the first one that is free.
    pub(super) fn of(plan: &ExecutionPlan, layout: &Layout, mut counter: u32) -> Self {
        let mut cuts: Vec<Vec<u64>> = vec![Vec::new(); plan.ranks.len()];
        plan.walk(|rank, op| {
            op.action.each_operand(|operand, _| {
                if operand.form == Form::Packets {
                    let piece = layout.piece(rank, op, operand, None);
                    cuts[piece.rank as usize].extend([piece.offset, piece.offset + piece.bytes]);
                }
            });
        });
        let mut first = Vec::with_capacity(cuts.len());
        for rank in &mut cuts {
            rank.sort_unstable();
            rank.dedup();
            first.push(counter);
            counter = counter.saturating_add(rank.len().saturating_sub(1) as u32);
        }
        Self { cuts, first }
    }

    /// Number of counters.
    pub(super) fn len(&self) -> u32 {
        self.cuts.iter().map(|cuts| cuts.len().saturating_sub(1) as u32).sum()
    }

    /// True when a rank's scratch holds packets.
    pub(super) fn any(&self, rank: u32) -> bool {
        !self.cuts[rank as usize].is_empty()
    }

    /// Counters of the stretches of a piece.
    pub(super) fn counters(&self, piece: &Piece) -> Range<u32> {
        let (cuts, first) = (&self.cuts[piece.rank as usize], self.first[piece.rank as usize]);
        let index = |at: u64| first + cuts.partition_point(|&cut| cut < at) as u32;
        index(piece.offset)..index(piece.offset + piece.bytes)
    }
}
