//! Plan to program: agents, queues, memory, and the loop over slices.

use super::block::Writer;
use super::layout::{Layout, MAX_TOGETHER};
use super::posts::Posts;
use super::queues::Queues;
use super::{Plan, Precopy};
use crate::{Budget, Limit, LowerOptions, Lowered, Protocol, RankBuffers, Reduction, Region, Site};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Node};
use ahbm_program::{
    AgentId, BinaryFn, BodyBuilder, ChannelSettings, Control, Dtype, Math, Mem, Move, OriginId, ProgramBuilder, Scalar,
    Tile,
};

impl Plan {
    /// The plan on a machine: the thread blocks of a rank on the PEs of its SIP in turn, its buffers in the HBM slice
    /// of the SIP's first PE.
    ///
    /// As in the runtimes, every thread block runs all its steps once per slice of a chunk, and consecutive
    /// chunks of a step travel together while they fit a slice.
    ///
    /// # Errors
    /// `AHBM-U203` an average of what is no reduction, `AHBM-U204` more ranks than the machine has SIPs, `AHBM-F127` a
    /// size that does not split into the plan's chunks, `AHBM-F128` a message that nobody receives or sends,
    /// `AHBM-B209` over the budget of operations, and what [`ProgramBuilder::finish`] finds.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Lowered, Vec<Diagnostic>> {
        let site = Site::of(machine, options, &self.name, self.ranks.len());
        self.lower_at(&site.map_err(|error| vec![error.site("plan", &*self.file)])?, options)
    }

    /// The plan without a machine, one 8-byte element per chunk: what a check of its meaning runs. One message
    /// per step.
    ///
    /// # Errors
    /// As [`Plan::lower`], but for the machine.
    pub fn lower_for_check(&self, slots: u32, budget: &Budget) -> Result<Lowered, Vec<Diagnostic>> {
        self.lower_in_messages(slots, u64::MAX / 8, budget)
    }

    /// The same with messages of at most `chunks` chunks, as of arrays so large that no more fit a slice.
    ///
    /// # Errors
    /// As [`Plan::lower_for_check`].
    pub fn lower_in_messages(&self, slots: u32, chunks: u64, budget: &Budget) -> Result<Lowered, Vec<Diagnostic>> {
        // Before lowering: the operations of a step grow with its chunks.
        let cells: u64 = (0..self.ranks.len() as u32).map(|rank| self.extents(rank).cells()).sum();
        budget.check(Limit::Cells, cells).map_err(|error| vec![error.site("chunks of all buffers", &*self.file)])?;
        let mut options = LowerOptions::new(u64::from(self.chunks) * 8, Dtype::I64);
        (options.slots, options.budget, options.slice_bytes) = (slots, *budget, Some(chunks * 8));
        self.lower_at(&Site::abstract_of(self.ranks.len() as u32), &options)
    }

    fn lower_at(&self, site: &Site, options: &LowerOptions) -> Result<Lowered, Vec<Diagnostic>> {
        let unmatched = self.unmatched();
        if !unmatched.is_empty() {
            return Err(unmatched);
        }
        let layout = self.layout(options).map_err(|error| vec![error.site("plan", &*self.file)])?;
        options.budget.check(Limit::Ops, layout.cost(self)).map_err(|error| vec![error])?;
        let mut builder = ProgramBuilder::new(&*self.name);
        let protocol = options.protocol.unwrap_or(self.protocol);
        builder.wire(protocol.wire());
        let mut ranks = vec![None; self.ranks.len()];
        let mut queues = Queues::default();
        // Messages that reach a port at one time pass it in the order of the places that they come from.
        let mut order: Vec<u32> = (0..self.ranks.len() as u32).collect();
        order.sort_by_key(|&rank| site.sips[rank as usize]);
        for rank in order {
            let buffers = self.allocate(&mut builder, site, rank, layout.chunk_bytes());
            let layout = &layout;
            RankWriter { plan: self, builder: &mut builder, site, rank, layout, buffers: &buffers, agents: 0 }
                .write(&mut queues);
            ranks[rank as usize] = Some(buffers);
        }
        ranks.truncate(self.members() as usize);
        let ranks = ranks.into_iter().flatten().collect();
        queues.connect(&mut builder);
        let settings = ChannelSettings {
            slots: protocol.depth(options.slots),
            slot_bytes: None,
            tier: options.tier,
            credit_bytes: options.credit_bytes,
        };
        Ok(Lowered { program: builder.finish(settings)?, ranks, chunk_bytes: layout.chunk_bytes(), later: Vec::new() })
    }

    /// How chunks are cut.
    fn layout(&self, options: &LowerOptions) -> Result<Layout, Diagnostic> {
        let size = options.dtype.bytes();
        let unit = u64::from(self.chunks) * size;
        if options.bytes == 0 || !options.bytes.is_multiple_of(unit) {
            let (down, up) = (options.bytes / unit * unit, options.bytes.div_ceil(unit).max(1).saturating_mul(unit));
            let near = if down == 0 { format!("{up}") } else { format!("{down} and {up}") };
            return Err(Diagnostic::new(
                "AHBM-F127",
                format!("{} bytes of {} do not split into {} chunks", options.bytes, options.dtype, self.chunks),
            )
            .hint(format!("a runtime would fall back to another algorithm; nearest sizes: {near} bytes")));
        }
        let chunk = options.bytes / unit;
        let instances = options.instances.max(1);
        if u64::from(instances) > chunk {
            return Err(Diagnostic::new(
                "AHBM-F127",
                format!("{instances} instances cannot share a chunk of {chunk} elements"),
            )
            .hint(format!("use at most {chunk} instances or a larger size")));
        }
        if instances.checked_mul(self.channels.max(1)).is_none() {
            let message = format!("{instances} instances of {} channels are too many", self.channels);
            return Err(Diagnostic::new("AHBM-F127", message));
        }
        let protocol: Protocol = options.protocol.unwrap_or(self.protocol);
        let slice = (options.slice_bytes.unwrap_or(protocol.slice_bytes()) / size).clamp(1, u64::from(u32::MAX));
        let together = if options.slice_bytes.is_some() { u64::MAX } else { MAX_TOGETHER };
        let average = options.reduction == Reduction::Avg;
        if average && !(0..self.members()).any(|rank| self.goal.reduces_at(rank)) {
            return Err(Diagnostic::new("AHBM-U203", format!("{} has no average", self.goal.name()))
                .hint("avg is for all_reduce, reduce_scatter and reduce"));
        }
        Ok(Layout {
            chunk,
            slice,
            together,
            instances,
            dtype: options.dtype,
            reduce: options.reduction.function(),
            divisor: average.then(|| self.members()),
        })
    }

    fn allocate(&self, builder: &mut ProgramBuilder, site: &Site, rank: u32, chunk: u64) -> RankBuffers {
        let extents = self.extents(rank);
        let node = Node::Hbm(site.place(rank, 0).1);
        let bytes = |chunks: u32| u64::from(chunks).saturating_mul(chunk);
        let region = |buffer, base, chunks| Region { buffer, offset: bytes(base), bytes: bytes(chunks) };
        let (first, second) = if extents.shared {
            let both = builder.buffer(node, bytes(extents.shared_chunks()));
            (both, both)
        } else {
            (builder.buffer(node, bytes(extents.chunks[0])), builder.buffer(node, bytes(extents.chunks[1])))
        };
        let scratch = builder.buffer(node, bytes(extents.chunks[2]));
        RankBuffers {
            input: region(first, extents.base[0], extents.chunks[0]),
            output: region(second, extents.base[1], extents.chunks[1]),
            scratch: region(scratch, 0, extents.chunks[2]),
        }
    }
}

/// A rank in the making: its thread blocks, those that copy before and after them, and the one that divides.
struct RankWriter<'a> {
    plan: &'a Plan,
    builder: &'a mut ProgramBuilder,
    site: &'a Site,
    rank: u32,
    layout: &'a Layout,
    buffers: &'a RankBuffers,
    /// Agents so far.
    agents: u32,
}

/// The counters that copies outside of the thread blocks wait for, and those that they signal.
#[derive(Clone, Copy)]
struct Order {
    /// A counter and what it reaches.
    waits: Option<(u32, u32)>,
    signals: Option<u32>,
}

impl RankWriter<'_> {
    fn write(&mut self, queues: &mut Queues) {
        let work = &self.plan.ranks[self.rank as usize];
        let copies = !self.plan.shares();
        let started = (copies && !work.before.is_empty()).then(|| self.builder.counter());
        let copied = copies && !work.after.is_empty();
        let reduces = self.rank < self.plan.members() && self.plan.goal.reduces_at(self.rank);
        let divisor = self.layout.divisor.filter(|_| reduces);
        let ended = (copied || divisor.is_some()).then(|| self.builder.counter());
        self.blocks(queues, started, ended);
        let blocks = work.blocks.len() as u32 * self.layout.instances;
        if copies {
            self.copies(&work.before, Order { waits: None, signals: started });
            let waits = ended.map(|counter| (counter, blocks));
            self.copies(&work.after, Order { waits, signals: ended.filter(|_| divisor.is_some()) });
        }
        if let (Some(divisor), Some(counter)) = (divisor, ended) {
            let origin = self.builder.origins.intern(self.plan.whole());
            let mut body = BodyBuilder::new();
            body.push(Control::WaitCounter { counter, at_least: blocks + u32::from(copied) }, 0, origin);
            divide(&mut body, self.layout, &self.buffers.output, divisor, origin);
            self.stand(body);
        }
    }

    /// The thread blocks, which wait for what has `started` and count as `ended`.
    fn blocks(&mut self, queues: &mut Queues, started: Option<u32>, ended: Option<u32>) {
        let (plan, rank) = (self.plan, self.rank);
        let work = &plan.ranks[rank as usize];
        for instance in 0..self.layout.instances {
            let posts = Posts::of(self.builder, work);
            for (own, block) in work.blocks.iter().enumerate() {
                let mut writer = Writer::new(self.layout, instance, self.buffers, &posts);
                let channel = block.channel + instance * plan.channels;
                let mut at = |line| self.builder.origins.intern(plan.origin(rank, line));
                if let Some(counter) = started {
                    writer.body.push(Control::WaitCounter { counter, at_least: 1 }, 0, at(block.line));
                }
                writer.block(block, channel, posts.counter(own), &mut at);
                if let Some(counter) = ended {
                    writer.body.push(Control::Signal { counter, add: 1, posted: false }, 0, at(block.line));
                }
                let agent = self.stand(writer.body);
                queues.add(rank, block, channel, agent);
            }
        }
    }

    /// An agent that copies chunks of the input to the output.
    fn copies(&mut self, list: &[Precopy], order: Order) {
        let (Some(first), Some(last)) = (list.first(), list.last()) else { return };
        let mut body = BodyBuilder::new();
        let mut at = |copy: &Precopy| self.builder.origins.intern(self.plan.origin(self.rank, copy.line));
        if let Some((counter, at_least)) = order.waits {
            body.push(Control::WaitCounter { counter, at_least }, 0, at(first));
        }
        for copy in list {
            let origin = at(copy);
            for (k, chunks) in self.layout.groups(copy.count) {
                for piece in self.layout.pieces() {
                    copy_piece(
                        &mut body,
                        self.layout,
                        self.buffers,
                        [copy.input + k, copy.output + k],
                        chunks,
                        piece,
                        origin,
                    );
                }
            }
        }
        if let Some(counter) = order.signals {
            body.push(Control::Signal { counter, add: 1, posted: false }, 0, at(last));
        }
        self.stand(body);
    }

    /// Places the next agent of the rank.
    fn stand(&mut self, body: BodyBuilder) -> AgentId {
        let (coord, place) = self.site.place(self.rank, self.agents);
        self.agents += 1;
        let body = self.builder.body(body.finish());
        let RankBuffers { input, output, scratch } = self.buffers;
        self.builder.thread_block(self.rank, coord, place, body, &[input.buffer, output.buffer, scratch.buffer])
    }
}

/// Copies a piece, `from` an element on and so many elements long, of `chunks` chunks between the first two buffers of
/// the table.
fn copy_piece(
    body: &mut BodyBuilder,
    layout: &Layout,
    buffers: &RankBuffers,
    [input, output]: [u32; 2],
    chunks: u32,
    (from, elements): (u64, u64),
    origin: OriginId,
) {
    let mut mem = |buffer: u16, region: &Region, chunk: u32| {
        let offset = region.offset + (u64::from(chunk) * layout.chunk + from) * layout.dtype.bytes();
        body.mem(Mem { buffer, offset })
    };
    let (src, dst) = (mem(0, &buffers.input, input), mem(1, &buffers.output, output));
    let tile = body.tile(Tile::new(layout.dtype, &[elements * u64::from(chunks)]));
    body.push(Move::Copy { src, dst, tile, posted: false }, 1, origin);
}

/// Divides the result, whose buffer is the second of the table.
fn divide(body: &mut BodyBuilder, layout: &Layout, output: &Region, divisor: u32, origin: OriginId) {
    let scalar = body.scalar(Scalar::Int(divisor.into()));
    let count = (output.bytes / layout.chunk_bytes()) as u32;
    for (k, chunks) in layout.groups(count) {
        for (from, elements) in layout.pieces() {
            let offset = output.offset + (u64::from(k) * layout.chunk + from) * layout.dtype.bytes();
            let (mem, tile) = (
                body.mem(Mem { buffer: 1, offset }),
                body.tile(Tile::new(layout.dtype, &[elements * u64::from(chunks)])),
            );
            let [sum, dst] = [(); 2].map(|()| body.value());
            body.push(Move::Load { dst: sum, mem, tile }, 1, origin);
            let f = BinaryFn::Div;
            body.push(Math::BinaryScalar { f, swapped: false, dst, a: sum, scalar, tile }, 1, origin);
            body.push(Move::Store { src: dst, mem, tile, posted: false }, 1, origin);
            body.release(sum);
            body.release(dst);
        }
    }
}
