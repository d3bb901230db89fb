//! The writer: a plan as the file that says it, one operation per line.

use super::schema::{self, BufferType, Document, Gpu, Protocol, ReduceOp, Ref};
use crate::Format;
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{Action, ExecutionPlan, Kind, Op, Operand, Rank};
use ahbm_plan::{Goal, Space};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::borrow::Cow;
use std::io;

type Set<T> = IndexSet<T, FxBuildHasher>;

/// A plan as an execution plan file. Reading it again gives the same program.
///
/// # Errors
/// `AHBM-U211` operations that no executor runs, `AHBM-U292` what the schema has no word for.
pub fn write(plan: &ExecutionPlan) -> Result<Vec<u8>, Vec<Diagnostic>> {
    if !plan.unsupported.is_empty() {
        return Err(plan.unsupported.clone());
    }
    let document =
        document(plan).map_err(|what| vec![Format::Mscclpp.cannot_express(what).site("plan", &*plan.file)])?;
    let mut bytes = Vec::with_capacity(1024 + plan.ops() as usize * 128);
    // Writing to a Vec cannot fail, nor can numbers and strings be no JSON.
    let _ = document.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Lines::default()));
    bytes.push(b'\n');
    Ok(bytes)
}

fn document(plan: &ExecutionPlan) -> Result<Document<'_>, String> {
    let protocol = match plan.protocol {
        ahbm_plan::Protocol::Simple => Protocol::Simple,
        ahbm_plan::Protocol::Ll => Protocol::Ll,
        ahbm_plan::Protocol::Ll128 => return Err("protocol LL128".to_owned()),
    };
    match plan.goal {
        Goal::SendRecv { .. } => {}
        other if other == Goal::parse(other.name()) => {}
        other => return Err(format!("{other}: rooted collectives start at rank 0")),
    }
    let mut positions = Vec::with_capacity(plan.ends.len());
    let mut counts: IndexMap<(u32, Kind), u32, FxBuildHasher> = IndexMap::default();
    for end in &plan.ends {
        let count = counts.entry((end.rank, end.kind)).or_default();
        positions.push(*count);
        *count += 1;
    }
    let mut first = 0;
    let mut gpus = Vec::with_capacity(plan.ranks.len());
    for (rank, work) in (0u32..).zip(&plan.ranks) {
        let ends = plan.ends[first..].iter().take_while(|end| end.rank == rank).count();
        let mut writer =
            Writer { plan, rank, positions: &positions, remote: IndexMap::default(), switches: Set::default() };
        gpus.push(writer.gpu(work, first..first + ends)?);
        first += ends;
    }
    Ok(Document {
        name: Cow::Borrowed(&plan.name),
        collective: Cow::Owned(plan.goal.name().replace('_', "")),
        protocol,
        inplace: plan.in_place,
        reuse_resources: plan.reuse_resources,
        gpus,
        num_threads_per_block: None,
        use_double_scratch_buffer: plan.double_scratch,
        buffer_alignment: plan.alignment,
        min_message_size: plan.min_bytes,
        max_message_size: plan.max_bytes,
    })
}

/// Writes a rank, collecting what it declares.
struct Writer<'p> {
    plan: &'p ExecutionPlan,
    rank: u32,
    /// Position of every channel end among those of its rank and kind.
    positions: &'p [u32],
    /// Remote buffers by rank and space, and how they are reached.
    remote: IndexMap<(u32, Space), Set<Kind>, FxBuildHasher>,
    switches: Set<(Space, Vec<u32>)>,
}

/// The channels, buffers and switches to which a thread block refers, memory before port.
#[derive(Default)]
struct Lists {
    channels: [Set<u32>; 2],
    buffers: [Set<u32>; 2],
    switches: Set<u32>,
}

impl Writer<'_> {
    fn gpu(&mut self, work: &Rank, ends: std::ops::Range<usize>) -> Result<Gpu<'static>, String> {
        if let (Goal::SendRecv { shift }, 0) = (self.plan.goal, self.rank) {
            // Readers take the distance from the first remote buffer.
            self.remote.entry((shift, self.first_space_of(shift, work))).or_default();
        }
        let threadblocks = (0..).zip(&work.blocks).map(|(id, ops)| self.block(id, ops)).collect::<Result<_, _>>()?;
        let mut channels = Vec::new();
        for kind in [Kind::Memory, Kind::Port] {
            let peers = self.plan.ends[ends.clone()].iter().filter(|end| end.kind == kind);
            let connected_to: Vec<u32> = peers.map(|end| end.peer).collect();
            if !connected_to.is_empty() {
                let (buffer_type, rank_groups) = (None, Vec::new());
                channels.push(schema::Channel { channel_type: kind, connected_to, buffer_type, rank_groups });
            }
        }
        channels.extend(self.switches.drain(..).map(|(space, ranks)| schema::Channel {
            channel_type: Kind::Switch,
            connected_to: Vec::new(),
            buffer_type: Some(space.into()),
            rank_groups: vec![schema::RankGroup { size: ranks.len() as u32, ranks }],
        }));
        let remote_buffers = self.remote.drain(..).map(|((rank, space), kinds)| schema::RemoteBuffer {
            rank,
            space: space.into(),
            access_channel_types: if kinds.is_empty() { vec![Kind::Memory] } else { kinds.into_iter().collect() },
        });
        Ok(Gpu {
            id: self.rank,
            input_chunks: work.chunks[0],
            output_chunks: work.chunks[1],
            scratch_chunks: work.chunks[2],
            threadblocks,
            channels,
            remote_buffers: remote_buffers.collect(),
            semaphores: work.semaphores.iter().map(|&init_value| schema::Semaphore { init_value }).collect(),
        })
    }

    /// The first buffer of rank `peer` that an operation touches, or its output.
    fn first_space_of(&self, peer: u32, work: &Rank) -> Space {
        let mut found = None;
        for op in work.blocks.iter().flatten() {
            op.action.each_operand(|operand, _| {
                found = found.or((operand.rank == peer).then_some(operand.space));
            });
        }
        found.unwrap_or(Space::Output)
    }

    fn block(&mut self, id: u32, ops: &[Op]) -> Result<schema::ThreadBlock<'static>, String> {
        let mut lists = Lists::default();
        let ops = self.ops(ops, &mut lists)?;
        let mut channels = Vec::new();
        let mut remote_buffer_refs = Vec::new();
        for (kind, (ids, buffers)) in
            [Kind::Memory, Kind::Port].into_iter().zip(lists.channels.into_iter().zip(lists.buffers))
        {
            if !ids.is_empty() {
                channels.push(schema::ChannelIds {
                    channel_type: kind,
                    channel_ids: ids.into_iter().collect(),
                    places: Vec::new(),
                });
            }
            if !buffers.is_empty() {
                let remote_buffer_ids = buffers.into_iter().collect();
                remote_buffer_refs.push(schema::RemoteBufferIds {
                    access_channel_type: kind,
                    remote_buffer_ids,
                    places: Vec::new(),
                });
            }
        }
        if !lists.switches.is_empty() {
            let channel_ids = lists.switches.into_iter().collect();
            channels.push(schema::ChannelIds { channel_type: Kind::Switch, channel_ids, places: Vec::new() });
        }
        Ok(schema::ThreadBlock { id, ops, channels, remote_buffer_refs })
    }

    fn ops(&mut self, ops: &[Op], lists: &mut Lists) -> Result<Vec<schema::Op<'static>>, String> {
        // An operation that was split by chunks stands there once for every chunk.
        ops.chunk_by(|a, b| a.index == b.index).map(|parts| self.op(&parts[0], parts.len() as u32, lists)).collect()
    }

    fn op(&mut self, op: &Op, parts: u32, lists: &mut Lists) -> Result<schema::Op<'static>, String> {
        let words = &op.words;
        let kind = words.kind;
        let mut written = schema::Op {
            name: Cow::Borrowed(words.name),
            channel_type: (kind != Kind::None).then_some(kind),
            tbg_info: op.share.map(|share| schema::Group { tb_id: share.index, tbg_size: share.of }),
            ..schema::Op::default()
        };
        if let Some(way) = kind.way() {
            let id = |&end: &u32| lists.channels[way].insert_full(self.positions[end as usize]).0 as u32;
            written.channel_ids = words.ends.iter().map(id).collect();
        }
        match &op.action {
            Action::Sync | Action::Flush | Action::Signal(_) | Action::Wait(_) => {}
            Action::Barrier(index) => {
                let (id, blocks) = self.plan.ranks[self.rank as usize].barriers[*index as usize];
                (written.barrier_id, written.num_threadblocks) = (Some(id), Some(blocks));
            }
            Action::Acquire(ids) | Action::Release(ids) => written.semaphore_ids = ids.to_vec(),
            Action::Move { pairs, .. } => {
                let sources = if matches!(words.name, "rppkt" | "gstore" | "gstorepkt") { 1 } else { pairs.len() };
                let src: Vec<Operand> = pairs.iter().take(sources).map(|(src, _)| *src).collect();
                let dst: Vec<Operand> = pairs.iter().map(|(_, dst)| *dst).collect();
                if kind == Kind::Switch {
                    written.src_buff = src.iter().map(|s| Ref { rank: Some(s.rank), ..local(s, parts) }).collect();
                } else {
                    written.src_buff = self.refs(&src, kind, parts, lists);
                }
                written.dst_buff = self.refs(&dst, kind, parts, lists);
            }
            Action::Reduce { function, operands, results } if words.name == "glre" => {
                let src = self.refs(operands, kind, parts, lists);
                written.channel_ids = src.iter().filter_map(|src| src.switch_channel_id).collect();
                written.buffer_type = operands.first().map(|operand| operand.space.into());
                (written.buffer_offset, written.size) = src.first().map(|src| (src.index, src.size)).unzip();
                written.dst_chunk = results.first().map(|dst| Ref { rank: Some(dst.rank), ..local(dst, parts) });
                let named = ReduceOp::of(*function).ok_or_else(|| format!("a reduction by {function:?}"))?;
                written.reduce_op = Some(named);
            }
            Action::Reduce { function, operands, results } => {
                let mut operands = operands.to_vec();
                if words.name.ends_with("pkt") {
                    // The file names the rank's own data first.
                    operands.rotate_right(1);
                }
                written.src_buff = self.refs(&operands, kind, parts, lists);
                written.dst_buff = self.refs(results, kind, parts, lists);
                let named = ReduceOp::of(*function).ok_or_else(|| format!("a reduction by {function:?}"))?;
                written.reduce_op = Some(named);
            }
            Action::Loop { unit, chunks, ops } => {
                written.iter_context = Some(schema::Iteration { unit_size: *unit, num_chunks: *chunks });
                written.ops = self.ops(ops, lists)?;
            }
        }
        Ok(written)
    }

    /// References to operands, those of a switch by groups of ranks.
    fn refs(&mut self, operands: &[Operand], kind: Kind, parts: u32, lists: &mut Lists) -> Vec<Ref> {
        if kind == Kind::Switch {
            let same = |a: &Operand, b: &Operand| (a.space, a.chunk, a.count) == (b.space, b.chunk, b.count);
            let group = |members: &[Operand]| {
                let ranks = members.iter().map(|member| member.rank).collect();
                let declared = self.switches.insert_full((members[0].space, ranks)).0;
                let id = lists.switches.insert_full(declared as u32).0;
                Ref { switch_channel_id: Some(id as u32), space: None, ..local(&members[0], parts) }
            };
            return operands.chunk_by(same).map(group).collect();
        }
        let mut one = |operand: &Operand| {
            let Some(way) = kind.way().filter(|_| operand.rank != self.rank) else { return local(operand, parts) };
            let entry = self.remote.entry((operand.rank, operand.space));
            let declared = entry.index();
            entry.or_default().insert(kind);
            let id = lists.buffers[way].insert_full(declared as u32).0;
            Ref { buffer_id: Some(id as u32), space: None, ..local(operand, parts) }
        };
        operands.iter().map(&mut one).collect()
    }
}

fn local(operand: &Operand, parts: u32) -> Ref {
    let space = Some(BufferType::from(operand.space));
    let size = operand.count * parts;
    Ref { rank: None, space, buffer_id: None, switch_channel_id: None, index: operand.chunk, size }
}

/// Depth down to which every value has a line of its own: operations do, what is inside them does not.
const LINES: usize = 6;

/// JSON with a line for every operation.
#[derive(Default)]
struct Lines {
    depth: usize,
    filled: bool,
}

impl Lines {
    fn open(&mut self, writer: &mut (impl io::Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(bracket)
    }

    fn close(&mut self, writer: &mut (impl io::Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        if self.filled && self.depth <= LINES {
            self.line(writer, self.depth - 1)?;
        }
        self.depth -= 1;
        self.filled = true;
        writer.write_all(bracket)
    }

    fn next(&mut self, writer: &mut (impl io::Write + ?Sized), first: bool) -> io::Result<()> {
        self.filled = true;
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= LINES { self.line(writer, self.depth) } else { Ok(()) }
    }

    fn line(&self, writer: &mut (impl io::Write + ?Sized), depth: usize) -> io::Result<()> {
        writer.write_all(b"\n")?;
        writer.write_all(&[b' '; LINES][..depth.min(LINES)])
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }
}
