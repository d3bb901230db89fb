//! The objects to which all thread blocks of a program refer: memory, counters, barriers.

use super::layout::Layout;
use super::packets::Packets;
use super::{Action, ExecutionPlan, Form, Op};
use crate::{RankBuffers, Region, Site, Space};
use ahbm_findings::Diagnostic;
use ahbm_machine::Node;
use ahbm_program::{BufferId, ProgramBuilder};

/// The objects to which the bodies of a program refer.
pub(super) struct Context<'p> {
    pub(super) plan: &'p ExecutionPlan,
    /// Whether semaphores get their values.
    pub(super) fresh: bool,
    /// Whether operations on a switch channel take place inside the network.
    pub(super) switched: bool,
    pub(super) layout: Layout,
    pub(super) packets: Packets,
    pub(super) buffers: Vec<RankBuffers>,
    /// Per rank: where packets start in the scratch buffer.
    pub(super) packet_areas: Vec<u64>,
    /// Per rank: the first counter of its semaphores.
    pub(super) semaphores: Vec<u32>,
    /// Per rank: the first of its barriers.
    pub(super) barriers: Vec<u32>,
}

impl<'p> Context<'p> {
    pub(super) fn new(
        plan: &'p ExecutionPlan,
        layout: Layout,
        fresh: bool,
        switched: bool,
        site: &Site,
        builder: &mut ProgramBuilder,
    ) -> Self {
        let mut counters = plan.ends.len() as u32;
        let mut semaphores = Vec::with_capacity(plan.ranks.len());
        let mut barriers = Vec::with_capacity(plan.ranks.len());
        for rank in &plan.ranks {
            semaphores.push(counters);
            counters += rank.semaphores.len() as u32;
            barriers.push(0);
            for (index, &(_, participants)) in rank.barriers.iter().enumerate() {
                let id = builder.barrier(participants);
                if let (0, Some(first)) = (index, barriers.last_mut()) {
                    *first = id;
                }
            }
        }
        let packets = Packets::of(plan, &layout, counters);
        (0..counters).for_each(|_| {
            builder.counter();
        });
        (0..packets.len()).for_each(|_| {
            builder.flag();
        });
        let mut context = Self {
            plan,
            fresh,
            switched,
            layout,
            packets,
            buffers: Vec::with_capacity(plan.ranks.len()),
            packet_areas: Vec::with_capacity(plan.ranks.len()),
            semaphores,
            barriers,
        };
        for rank in 0..plan.ranks.len() as u32 {
            context.allocate(site, rank, builder);
        }
        context
    }

    fn allocate(&mut self, site: &Site, rank: u32, builder: &mut ProgramBuilder) {
        let node = Node::Hbm(site.place(rank, 0).1);
        let (layout, extents) = (&self.layout, self.layout.extents[rank as usize]);
        let bytes = |chunks: u32| u64::from(chunks) * layout.chunk;
        let region = |buffer, which: usize| Region {
            buffer,
            offset: bytes(extents.base[which]),
            bytes: bytes(extents.chunks[which]),
        };
        let (input, output) = if self.plan.in_place {
            let both = builder.buffer(node, layout.shared(rank));
            (both, both)
        } else {
            (builder.buffer(node, bytes(extents.chunks[0])), builder.buffer(node, bytes(extents.chunks[1])))
        };
        let area = layout.scratch(rank);
        // Packets, then as many bytes of flags.
        let all = if self.packets.any(rank) { 3 * area } else { area };
        let scratch = builder.buffer(node, all);
        self.packet_areas.push(area);
        self.buffers.push(RankBuffers {
            input: region(input, 0),
            output: region(output, 1),
            scratch: Region { buffer: scratch, offset: 0, bytes: all },
        });
    }

    /// The buffer of a rank's space and where the space starts in it.
    pub(super) fn home(&self, rank: u32, space: Space) -> (BufferId, u64) {
        let buffers = &self.buffers[rank as usize];
        let Region { buffer, offset, .. } = match space {
            Space::Input => buffers.input,
            Space::Output => buffers.output,
            Space::Scratch => buffers.scratch,
        };
        (buffer, offset)
    }

    /// Operations of the program, from above, without building it.
    pub(super) fn cost(&self) -> Result<u64, Diagnostic> {
        let mut total = 0u64;
        for (rank, work) in (0..).zip(&self.plan.ranks) {
            // A fence at the end of every thread block.
            total = total.saturating_add(work.semaphores.len() as u64 + work.blocks.len() as u64);
            for op in work.blocks.iter().flatten() {
                let cost = match &op.action {
                    Action::Loop { unit, chunks, ops } => {
                        let inner: u64 = ops.iter().map(|op| self.cost_of(rank, op)).sum();
                        self.layout.iterations(*unit, *chunks)?.0.saturating_mul(inner.max(1))
                    }
                    _ => self.cost_of(rank, op),
                };
                total = total.saturating_add(cost);
            }
        }
        Ok(total)
    }

    fn cost_of(&self, rank: u32, op: &Op) -> u64 {
        let mut cost = match &op.action {
            Action::Sync | Action::Loop { .. } => 0,
            Action::Flush => 1,
            Action::Barrier(_) => 2,
            Action::Acquire(ids) | Action::Release(ids) | Action::Wait(ids) => ids.len() as u64,
            Action::Signal(ends) | Action::Move { signals: ends, .. } => ends.len() as u64,
            Action::Reduce { operands, .. } => operands.len() as u64,
        };
        op.action.each_operand(|operand, _| {
            let piece = self.layout.piece(rank, op, operand, None);
            let arrivals = if operand.form == Form::Packets { self.packets.counters(&piece).len() as u64 } else { 0 };
            cost += 2 + arrivals;
        });
        cost
    }
}
