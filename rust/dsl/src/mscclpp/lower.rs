//! What was recorded becomes the document of a plan.

use super::access;
use super::fuse::fuse;
use super::meet::spell_out;
use super::model::{Chunk, Code, Gpu, Op, Ref, Via};
use super::notes::Notes;
use super::record::Recorder;
use super::replicate::{Grain, Instance, too_many};
use crate::statements::Statements;
use crate::{Faith, Fault};
use ahbm_findings::Diagnostic;
use ahbm_formats::mscclpp::schema::{self, Document, Kind};
use ahbm_program::Origins;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use std::borrow::Cow;

/// A program after its lowering.
pub struct Lowered<'r> {
    /// The plan. Places of its operations count `statements`.
    pub document: Document<'r>,
    /// The statements of the recorder, and those that became one operation.
    pub statements: Statements,
    /// Where it differs from what the language's own compiler makes, and warnings.
    pub notes: Vec<Diagnostic>,
}

/// The document as the language's own compiler prints it.
pub fn text(document: &Document<'_>) -> String {
    let mut bytes = Vec::with_capacity(4096);
    let formatter = PrettyFormatter::with_indent(b"  ");
    // Writing to a Vec cannot fail, and a document is nothing that JSON cannot say.
    let _ = document.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter));
    String::from_utf8(bytes).unwrap_or_default()
}

impl Recorder {
    /// The plan of what was recorded so far; nothing recorded changes. `origins` has the statements.
    ///
    /// # Errors
    /// `AHBM-A104` signals that nobody waits for, or the reverse; `AHBM-A103` numbers that overflow.
    pub fn lower(&self, origins: &Origins) -> Result<Lowered<'_>, Fault> {
        self.count_signals(origins)?;
        let (mut notes, mut statements) = (Notes::new(origins), Statements::new(origins.iter().count()));
        for &place in &self.renumbered {
            notes.differs(place, "takes the same thread blocks in another order for another barrier");
        }
        let several = self.settings.instances > 1 && self.faith == Faith::Meant;
        let grain = if several { self.grain(&mut notes) } else { None };
        let gpus = (0..).zip(&self.gpus).map(|(id, gpu)| self.gpu(id, gpu, grain, &mut statements, &mut notes));
        let gpus = gpus.collect::<Result<_, Fault>>()?;
        let settings = &self.settings;
        let document = Document {
            name: Cow::Borrowed(&settings.name),
            collective: Cow::Borrowed(&settings.collective),
            protocol: settings.protocol,
            inplace: settings.in_place,
            reuse_resources: settings.reuse_resources,
            gpus,
            num_threads_per_block: Some(settings.threads),
            use_double_scratch_buffer: settings.double_scratch,
            buffer_alignment: settings.alignment,
            min_message_size: settings.min_bytes,
            max_message_size: settings.max_bytes,
        };
        Ok(Lowered { document, statements, notes: notes.finish() })
    }

    fn gpu(
        &self,
        id: u32,
        gpu: &Gpu,
        grain: Option<Grain>,
        statements: &mut Statements,
        notes: &mut Notes<'_>,
    ) -> Result<schema::Gpu<'static>, Fault> {
        let instances = self.settings.instances;
        let times = |chunks: u32| chunks.checked_mul(instances).ok_or_else(too_many);
        let repeated = |list: &[u32]| list.iter().flat_map(|&one| (0..instances).map(move |_| one)).collect::<Vec<_>>();
        let mut channels = Vec::new();
        for (kind, peers) in &gpu.peers {
            let (buffer_type, rank_groups) = (None, Vec::new());
            channels.push(schema::Channel {
                channel_type: *kind,
                connected_to: repeated(peers),
                buffer_type,
                rank_groups,
            });
        }
        for (space, ranks) in &gpu.switches {
            let group = schema::RankGroup { size: ranks.len() as u32, ranks: ranks.clone() };
            channels.extend((0..instances).map(|_| schema::Channel {
                channel_type: Kind::Switch,
                connected_to: Vec::new(),
                buffer_type: Some((*space).into()),
                rank_groups: vec![schema::RankGroup { size: group.size, ranks: group.ranks.clone() }],
            }));
        }
        let remote = |(&(rank, space), ways): (&(u32, ahbm_plan::Space), &Vec<Kind>)| {
            let mut ways = ways.clone();
            ways.sort_unstable_by_key(|&kind| kind as u8);
            schema::RemoteBuffer { rank, space: space.into(), access_channel_types: ways }
        };
        let mut threadblocks = Vec::with_capacity(gpu.blocks.len() * instances as usize);
        for (index, block) in (0u32..).zip(&gpu.blocks) {
            let mut ops = block.ops.clone();
            if self.settings.fuse {
                ops = fuse(ops, self.faith, notes);
            }
            let copies = (0..instances).map(|i| Instance::new(i, instances, self.faith, &ops, notes));
            let copies: Vec<Instance> = copies.collect();
            if let Some(grain) = grain {
                ops = grain.cut(ops);
            }
            ops = spell_out(ops);
            if self.settings.auto_sync {
                ops = access::resolve(ops, self.faith, notes);
            }
            for instance in &copies {
                let channel = |(kind, ids): &(Kind, super::model::Map<u32, u32>)| {
                    let channel_ids = ids.keys().map(|&id| instance.id(id)).collect::<Result<_, Fault>>()?;
                    Ok(schema::ChannelIds { channel_type: *kind, channel_ids, places: ids.values().copied().collect() })
                };
                let buffers = |(kind, ids): &(Kind, super::model::Map<u32, u32>)| schema::RemoteBufferIds {
                    access_channel_type: *kind,
                    remote_buffer_ids: ids.keys().copied().collect(),
                    places: ids.values().copied().collect(),
                };
                threadblocks.push(schema::ThreadBlock {
                    id: instance.id(index)?,
                    ops: ops.iter().map(|op| written(op, instance, statements)).collect::<Result<_, Fault>>()?,
                    channels: block.channels.iter().map(channel).collect::<Result<_, Fault>>()?,
                    remote_buffer_refs: block.remote.iter().map(buffers).collect(),
                });
            }
        }
        Ok(schema::Gpu {
            id,
            input_chunks: times(gpu.chunks[0])?,
            output_chunks: times(gpu.chunks[1])?,
            scratch_chunks: times(gpu.chunks[2])?,
            threadblocks,
            channels,
            remote_buffers: gpu.remote.iter().map(remote).collect(),
            semaphores: repeated(&gpu.semaphores)
                .into_iter()
                .map(|init_value| schema::Semaphore { init_value })
                .collect(),
        })
    }
}

/// An operation of one instance, as the document has it.
fn written(op: &Op, instance: &Instance, statements: &mut Statements) -> Result<schema::Op<'static>, Fault> {
    let mut out = schema::Op {
        name: Cow::Borrowed(op.code.name()),
        channel_type: (op.kind != Kind::None).then_some(op.kind),
        reduce_op: op.code.reduces().then_some(op.function),
        tbg_info: op.part.map(|(tb_id, tbg_size)| schema::Group { tb_id, tbg_size }),
        place: statements.number(op.place, &op.also),
        ..schema::Op::default()
    };
    let shifted = |ids: &[u32]| ids.iter().map(|&id| instance.id(id)).collect::<Result<Vec<_>, Fault>>();
    match op.code {
        Code::Barrier => {
            (out.barrier_id, out.num_threadblocks) = (shifted(&op.ids)?.first().copied(), Some(op.blocks));
        }
        Code::Acquire | Code::Release => out.semaphore_ids = shifted(&op.ids)?,
        Code::Signal | Code::Wait | Code::RelaxedSignal | Code::RelaxedWait | Code::Flush => {
            out.channel_ids.clone_from(&op.ids);
            out.channel_ids.sort_unstable();
        }
        Code::Loop => {
            if let Some(body) = &op.body {
                out.iter_context = Some(schema::Iteration { unit_size: body.unit, num_chunks: body.chunks });
                let inner = body.ops.iter().map(|op| written(op, instance, statements));
                out.ops = inner.collect::<Result<_, Fault>>()?;
            }
        }
        Code::SwitchReduce => {
            let (from, to) = (&op.src[0], &op.dst[0]);
            if let Via::Switch(id) = from.via {
                out.channel_ids.push(id);
            }
            out.buffer_type = Some(from.chunk.space.into());
            out.buffer_offset = Some(instance.first(op.code, from.via, &from.chunk, None)?);
            out.size = Some(from.chunk.size);
            out.dst_chunk = Some(reference(op.code, to, Some(0), instance)?);
        }
        _ => {
            out.channel_ids.clone_from(&op.ids);
            out.src_buff =
                op.src.iter().map(|r| reference(op.code, r, None, instance)).collect::<Result<_, Fault>>()?;
            let results = op.dst.iter().enumerate();
            out.dst_buff =
                results.map(|(at, r)| reference(op.code, r, Some(at), instance)).collect::<Result<_, Fault>>()?;
        }
    }
    Ok(out)
}

fn reference(code: Code, r: &Ref, result: Option<usize>, instance: &Instance) -> Result<schema::Ref, Fault> {
    let Chunk { rank, space, size, .. } = r.chunk;
    let index = instance.first(code, r.via, &r.chunk, result)?;
    let mut out = schema::Ref { rank: None, space: None, buffer_id: None, switch_channel_id: None, index, size };
    match r.via {
        Via::Own => out.space = Some(space.into()),
        Via::Remote(id) => out.buffer_id = Some(id),
        Via::Switch(id) => out.switch_channel_id = Some(id),
        Via::Named => (out.rank, out.space) = (Some(rank), Some(space.into())),
    }
    Ok(out)
}
