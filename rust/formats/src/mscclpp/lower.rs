//! Plan to program: memory, counters, and one agent per thread block.

use super::body::Writer;
use super::layout::Layout;
use super::model::{Action, Op, Plan};
use super::packets::Packets;
use crate::plan::{Lowered, RankBuffers, Reduction, Region, Site, Space};
use crate::{Budget, Limit, LowerOptions};
use ahbm_machine::{Diagnostic, Machine, Node};
use ahbm_program::{BinaryFn, BufferId, ChannelSettings, ProgramBuilder};

/// Which launch of the plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// It uses the second half of a double scratch: the second, the fourth, …
    even: bool,
    /// Semaphores get their values, which they keep from launch to launch.
    first: bool,
}

impl Launch {
    /// The first, on the first half of a double scratch.
    pub const ODD: Self = Self { even: false, first: true };
    /// On the second half, as if it were the first.
    pub const EVEN: Self = Self { even: true, first: true };
}

/// What the bodies of a program refer to.
pub(super) struct Lowering<'p> {
    pub(super) plan: &'p Plan,
    /// Whether semaphores get their values.
    pub(super) fresh: bool,
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

impl Plan {
    /// What follows `launch`, in turn: nothing when all launches are the same.
    pub fn after(&self, launch: Launch) -> Vec<Launch> {
        let again = Launch { first: false, ..launch };
        let started = self.ranks.iter().any(|rank| rank.semaphores.iter().any(|&value| value > 0));
        match (self.double_scratch, started) {
            (true, _) => vec![Launch { even: !launch.even, ..again }, again],
            (false, true) => vec![again],
            (false, false) => Vec::new(),
        }
    }

    /// The plan on a machine: the thread blocks of a rank on the PEs of its SIP in turn, its buffers in the HBM slice
    /// of the SIP's first PE. `options.bytes` are those of the larger of input and output.
    ///
    /// # Errors
    /// `AHBM-U211` operations without an executor, `AHBM-U204` more ranks than the machine has SIPs, `AHBM-F147` a
    /// size that does not fit the plan, `AHBM-U212` options that a plan of this format decides itself, `AHBM-B209`
    /// over the budget of operations, and what [`ProgramBuilder::finish`] finds.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions, launch: Launch) -> Result<Lowered, Vec<Diagnostic>> {
        let here = |error: Diagnostic| vec![error.site("plan", &*self.file)];
        let site = Site::of(machine, options, &self.name, self.ranks.len()).map_err(here)?;
        self.decides(options).map_err(here)?;
        let layout = Layout::of(self, options, launch.even).map_err(here)?;
        self.lower_at(&site, layout, launch.first, &options.budget)
    }

    /// The plan without a machine, in 8-byte cells: what a check of its meaning runs. A chunk is one cell, or
    /// [`Lowered::chunk_bytes`]` / 8` cells where thread-block groups or loops of `iterations` iterations split it.
    ///
    /// # Errors
    /// As [`Plan::lower`], but for the machine and the size.
    pub fn lower_for_check(
        &self,
        iterations: u32,
        launch: Launch,
        budget: &Budget,
    ) -> Result<Lowered, Vec<Diagnostic>> {
        let layout =
            Layout::of_cells(self, iterations, launch.even).map_err(|error| vec![error.site("plan", &*self.file)])?;
        self.lower_at(&Site::abstract_of(self.ranks.len() as u32), layout, launch.first, budget)
    }

    fn decides(&self, options: &LowerOptions) -> Result<(), Diagnostic> {
        let fixed = |what: String| Err(Diagnostic::new("AHBM-U212", what));
        if options.instances != 1 {
            return fixed("an execution plan is written for its instances; they cannot be chosen".to_owned());
        }
        if options.protocol.is_some_and(|protocol| protocol != self.protocol) {
            return fixed(format!("an execution plan is written for its protocol, {} here", self.protocol.name()));
        }
        if options.reduction == Reduction::Avg {
            return fixed("an execution plan has no step that divides".to_owned());
        }
        let mut written: Option<BinaryFn> = None;
        self.walk(|_, op| {
            if let Action::Reduce { function, .. } = op.action {
                written = written.filter(|known| *known != options.reduction.function()).or(Some(function));
            }
        });
        match written {
            Some(function) if function != options.reduction.function() => {
                fixed(format!("the plan reduces with {function:?}, the run asks for {:?}", options.reduction))
            }
            _ => Ok(()),
        }
    }

    fn lower_at(&self, site: &Site, layout: Layout, fresh: bool, budget: &Budget) -> Result<Lowered, Vec<Diagnostic>> {
        if !self.unsupported.is_empty() {
            return Err(self.unsupported.clone());
        }
        let mut builder = ProgramBuilder::new(&*self.name);
        let lowering = Lowering::new(self, layout, fresh, site, &mut builder);
        let cost = lowering.cost().map_err(|error| vec![error.site("plan", &*self.file)])?;
        budget.check(Limit::Ops, cost).map_err(|error| vec![error.site("plan", &*self.file)])?;
        for (rank, work) in (0..).zip(&self.ranks) {
            for (index, ops) in (0..).zip(&work.blocks) {
                let mut writer = Writer::new(&lowering, rank);
                writer.block(index, ops, &mut builder.origins).map_err(|error| vec![error])?;
                let (body, table) = writer.finish();
                let (coord, place) = site.place(rank, index);
                let body = builder.body(body);
                builder.thread_block(rank, coord, place, body, &table);
            }
        }
        let Lowering { buffers, layout, .. } = lowering;
        let settings = ChannelSettings { slots: 1, slot_bytes: None, tier: 0, credit_bytes: 0 };
        Ok(Lowered { program: builder.finish(settings)?, ranks: buffers, chunk_bytes: layout.chunk, later: Vec::new() })
    }
}

impl<'p> Lowering<'p> {
    fn new(plan: &'p Plan, layout: Layout, fresh: bool, site: &Site, builder: &mut ProgramBuilder) -> Self {
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
        (0..counters + packets.len()).for_each(|_| {
            builder.counter();
        });
        let mut lowering = Self {
            plan,
            fresh,
            layout,
            packets,
            buffers: Vec::with_capacity(plan.ranks.len()),
            packet_areas: Vec::with_capacity(plan.ranks.len()),
            semaphores,
            barriers,
        };
        for rank in 0..plan.ranks.len() as u32 {
            lowering.allocate(site, rank, builder);
        }
        lowering
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
    fn cost(&self) -> Result<u64, Diagnostic> {
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
        super::limits::each_operand(&op.action, |operand, _| {
            let piece = self.layout.piece(rank, op, operand, None);
            let arrivals =
                if operand.form == super::Form::Packets { self.packets.counters(&piece).len() as u64 } else { 0 };
            cost += 2 + arrivals;
        });
        cost
    }
}
