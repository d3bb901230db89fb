//! Plan to program: agents, queues, memory, and the loop over slices.

use super::block::{Layout, MAX_TOGETHER, Writer};
use super::queues::Queues;
use super::{LowerOptions, Plan, Protocol, RankBuffers, Reduction, Region, Site};
use crate::Limit;
use ahbm_machine::{Diagnostic, Machine, Node};
use ahbm_program::{
    BinaryFn, BodyBuilder, ChannelSettings, Dtype, Mem, OpKind, OriginId, Program, ProgramBuilder, Scalar, Tile,
};

/// A plan as a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// What runs.
    pub program: Program,
    /// Operand, result and scratch of every rank that takes part.
    pub ranks: Vec<RankBuffers>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// What further launches run, in turn, where that is not the same.
    pub later: Vec<Program>,
}

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
    pub fn lower_for_check(&self, slots: u32, budget: &crate::Budget) -> Result<Lowered, Vec<Diagnostic>> {
        // Before lowering: the operations of a step grow with its chunks.
        let cells: u64 = (0..self.ranks.len() as u32).map(|rank| self.extents(rank).cells()).sum();
        budget.check(Limit::Cells, cells).map_err(|error| vec![error.site("chunks of all buffers", &*self.file)])?;
        let mut options = LowerOptions::new(u64::from(self.chunks) * 8, Dtype::I64);
        (options.slots, options.budget, options.slice_bytes) = (slots, *budget, Some(u64::MAX));
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
        builder.wire(options.protocol.unwrap_or(self.protocol).wire());
        let mut ranks = Vec::with_capacity(self.ranks.len());
        let mut queues = Queues::default();
        for rank in 0..self.ranks.len() as u32 {
            let buffers = self.allocate(&mut builder, site, rank, layout.chunk_bytes());
            self.lower_rank(&mut builder, site, rank, &layout, &buffers, &mut queues);
            ranks.push(buffers);
        }
        ranks.truncate(self.members() as usize);
        queues.connect(&mut builder);
        let settings = ChannelSettings {
            slots: options.slots,
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
        if average && !(0..self.members()).any(|rank| self.collective.reduces_at(rank)) {
            return Err(Diagnostic::new("AHBM-U203", format!("{} has no average", self.collective.name()))
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

    fn lower_rank(
        &self,
        builder: &mut ProgramBuilder,
        site: &Site,
        rank: u32,
        layout: &Layout,
        buffers: &RankBuffers,
        queues: &mut Queues,
    ) {
        let work = &self.ranks[rank as usize];
        let table = [buffers.input.buffer, buffers.output.buffer, buffers.scratch.buffer];
        let mut index = 0;
        let mut stand = |builder: &mut ProgramBuilder, body: BodyBuilder| {
            let (coord, place) = site.place(rank, index);
            index += 1;
            let body = builder.body(body.finish());
            builder.thread_block(rank, coord, place, body, &table)
        };
        let copies = !self.shares();
        let started = (copies && !work.before.is_empty()).then(|| builder.counter());
        let copied = copies && !work.after.is_empty();
        let divisor = layout.divisor.filter(|_| rank < self.members() && self.collective.reduces_at(rank));
        let ended = (copied || divisor.is_some()).then(|| builder.counter());
        for instance in 0..layout.instances {
            let posts = Posts::of(builder, work);
            for (own, block) in work.blocks.iter().enumerate() {
                let mut writer = Writer::new(layout, instance, buffers, &posts);
                let channel = block.channel + instance * self.channels;
                let at = |line| self.origin(rank, line);
                if let Some(counter) = started {
                    let origin = builder.origins.intern(at(block.line));
                    writer.body.push(OpKind::WaitCounter { counter, at_least: 1 }, 0, origin);
                }
                writer.block(block, channel, posts.counter(own), |line| builder.origins.intern(at(line)));
                if let Some(counter) = ended {
                    let origin = builder.origins.intern(at(block.line));
                    writer.body.push(OpKind::Signal { counter, add: 1, posted: false }, 0, origin);
                }
                let agent = stand(builder, writer.body);
                queues.add(rank, block, channel, agent);
            }
        }
        let blocks = work.blocks.len() as u32 * layout.instances;
        for (list, waits, posts) in
            [(&work.before, None, started), (&work.after, ended, ended.filter(|_| divisor.is_some()))]
        {
            if list.is_empty() || !copies {
                continue;
            }
            let mut body = BodyBuilder::new();
            for (i, copy) in list.iter().enumerate() {
                let origin = builder.origins.intern(self.origin(rank, copy.line));
                if let (0, Some(counter)) = (i, waits) {
                    body.push(OpKind::WaitCounter { counter, at_least: blocks }, 0, origin);
                }
                for (k, chunks) in layout.groups(copy.count) {
                    for (from, elements) in layout.pieces() {
                        let mem = |body: &mut BodyBuilder, buffer: u16, region: &Region, chunk: u32| {
                            let offset =
                                region.offset + (u64::from(chunk) * layout.chunk + from) * layout.dtype.bytes();
                            body.mem(Mem { buffer, offset })
                        };
                        let src = mem(&mut body, 0, &buffers.input, copy.input + k);
                        let dst = mem(&mut body, 1, &buffers.output, copy.output + k);
                        let tile = body.tile(Tile::new(layout.dtype, &[elements * chunks]));
                        body.push(OpKind::Copy { src, dst, tile, posted: false }, 1, origin);
                    }
                }
                if let (true, Some(counter)) = (i + 1 == list.len(), posts) {
                    body.push(OpKind::Signal { counter, add: 1, posted: false }, 0, origin);
                }
            }
            stand(builder, body);
        }
        if let (Some(divisor), Some(counter)) = (divisor, ended) {
            let origin = builder.origins.intern(self.whole());
            let mut body = BodyBuilder::new();
            body.push(OpKind::WaitCounter { counter, at_least: blocks + u32::from(copied) }, 0, origin);
            divide(&mut body, layout, &buffers.output, divisor, origin);
            stand(builder, body);
        }
    }
}

/// Divides the result, whose buffer is the second of the table.
fn divide(body: &mut BodyBuilder, layout: &Layout, output: &Region, divisor: u32, origin: OriginId) {
    let scalar = body.scalar(Scalar::Int(divisor.into()));
    let count = (output.bytes / layout.chunk_bytes()) as u32;
    for (k, chunks) in layout.groups(count) {
        for (from, elements) in layout.pieces() {
            let offset = output.offset + (u64::from(k) * layout.chunk + from) * layout.dtype.bytes();
            let (mem, tile) =
                (body.mem(Mem { buffer: 1, offset }), body.tile(Tile::new(layout.dtype, &[elements * chunks])));
            let [sum, dst] = [(); 2].map(|()| body.value());
            body.push(OpKind::Load { dst: sum, mem, tile }, 1, origin);
            let f = BinaryFn::Div;
            body.push(OpKind::BinaryScalar { f, swapped: false, dst, a: sum, scalar, tile }, 1, origin);
            body.push(OpKind::Store { src: dst, mem, tile, posted: false }, 1, origin);
            body.release(sum);
            body.release(dst);
        }
    }
}

/// Which counter every thread block of a rank signals, and how often it does.
pub(super) struct Posts {
    /// Per block: its counter, and how many of its steps before each step post.
    blocks: Vec<(u32, Vec<u32>)>,
}

impl Posts {
    fn of(builder: &mut ProgramBuilder, work: &super::Rank) -> Self {
        let mut blocks = Vec::with_capacity(work.blocks.len());
        for block in &work.blocks {
            let mut before = Vec::with_capacity(block.steps.len() + 1);
            let mut posted = 0;
            for step in &block.steps {
                before.push(posted);
                posted += u32::from(step.posts);
            }
            before.push(posted);
            blocks.push((builder.counter(), before));
        }
        Self { blocks }
    }

    fn counter(&self, block: usize) -> u32 {
        self.blocks[block].0
    }

    /// Counter and value by which `step` of `block` has run in the given slice. A step that does not post is
    /// known to have run once a later one has posted, in this slice or the next.
    pub(super) fn goal(&self, dep: super::Dep, slice: u32) -> (u32, u32) {
        let (counter, before) = &self.blocks[dep.block as usize];
        let all = before.last().copied().unwrap_or(0);
        let sooner = before.get(dep.step as usize).copied().unwrap_or(all);
        (*counter, slice.saturating_mul(all).saturating_add(sooner).saturating_add(1))
    }
}

/// The buffers of a thread block by [`super::Space`].
pub(super) fn region(buffers: &RankBuffers, space: super::Space) -> (u16, Region) {
    match space {
        super::Space::Input => (0, buffers.input),
        super::Space::Output => (1, buffers.output),
        super::Space::Scratch => (2, buffers.scratch),
    }
}
