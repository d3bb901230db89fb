//! Bytes to [`ExecutionPlan`].

use super::ends::Ends;
use super::limits::Warnings;
use super::resolve::{At, Block};
use super::schema;
use super::schema::{Document, Gpu, Protocol};
use crate::scan;
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{Action, ExecutionPlan, Op, Rank};
use ahbm_plan::{Budget, Goal, Limit};
use ahbm_program::Origin;
use std::sync::Arc;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Bounds of the reading.
    pub budget: Budget,
    /// Read it like the public executor where that deviates from the interface it documents.
    pub quirks: bool,
}

/// Reads an execution plan. `file` names it in findings.
///
/// Operations that no executor runs are collected in [`ExecutionPlan::unsupported`], what a real executor would choke on
/// in [`ExecutionPlan::warnings`].
///
/// # Errors
/// `AHBM-B2xx` over the budget; `AHBM-F141` no such document (with the line), `F142` ranks out of order,
/// `F143` a value that means nothing, `F144` a reference to something that is not declared, `F145` operands that
/// do not fit each other or the operation, `F146` chunks outside a buffer, each with a JSON pointer.
pub fn read(bytes: &[u8], file: &str, options: &ReadOptions) -> Result<ExecutionPlan, Diagnostic> {
    scan::scan(bytes, &options.budget).map_err(|error| error.site("plan", file))?;
    let document: Document<'_> = serde_json::from_slice(bytes).map_err(|error| {
        Diagnostic::new("AHBM-F141", format!("no execution plan: {error}"))
            .site("plan", format!("{file}:{}", error.line()))
    })?;
    Reader { at: At::new(file), options: *options, operands: 0 }.document(&document)
}

/// The plan that `document` says. `whole` is where a program was written that made it, `places` where the operations
/// were: [`schema::Op::place`] indexes them.
///
/// # Errors
/// As [`read()`], at those places.
pub fn resolve(
    document: &Document<'_>,
    whole: Origin,
    places: Arc<[Origin]>,
    options: &ReadOptions,
) -> Result<ExecutionPlan, Diagnostic> {
    Reader { at: At::listed(whole, places), options: *options, operands: 0 }.document(document)
}

struct Reader {
    at: At,
    options: ReadOptions,
    /// Buffer operands so far; switch groups multiply them.
    operands: u64,
}

impl Reader {
    fn document(&mut self, document: &Document<'_>) -> Result<ExecutionPlan, Diagnostic> {
        let ranks = document.gpus.len() as u64;
        self.options.budget.check(Limit::Ranks, ranks).map_err(|error| self.at.site(error))?;
        self.declarations(document)?;
        let ends = Ends::of(&document.gpus);
        let widest = |gpu: &Gpu<'_>| gpu.input_chunks.max(gpu.output_chunks);
        let chunks = document.gpus.iter().map(widest).max().unwrap_or(0);
        let mut plan = ExecutionPlan {
            name: document.name.to_string(),
            file: self.at.file(),
            places: self.at.places().clone(),
            goal: goal(document),
            in_place: document.inplace,
            protocol: match document.protocol {
                Protocol::Simple => ahbm_plan::Protocol::Simple,
                Protocol::Ll => ahbm_plan::Protocol::Ll,
            },
            reuse_resources: document.reuse_resources,
            double_scratch: document.use_double_scratch_buffer,
            alignment: document.buffer_alignment,
            min_bytes: document.min_message_size,
            max_bytes: document.max_message_size,
            chunks,
            ranks: document.gpus.iter().map(rank_of).collect(),
            ends: ends.all.clone(),
            quirks: self.options.quirks,
            unsupported: Vec::new(),
            warnings: Vec::new(),
        };
        let extents = plan.extents();
        let mut warnings = Warnings::new();
        let mut unsupported = Warnings::new();
        for (rank, gpu) in document.gpus.iter().enumerate() {
            for (index, written) in gpu.threadblocks.iter().enumerate() {
                self.at.thread_block(rank, index);
                let block = Block::new(rank as u32, gpu, written, &ends, &extents, &self.at)?;
                warnings.thread_block(&mut self.at, written, &block);
                let ops = self.ops(&written.ops, &block, &mut plan.ranks[rank], &mut warnings, &mut unsupported)?;
                plan.ranks[rank].blocks.push(ops);
            }
        }
        self.at.whole();
        warnings.plan(&self.at, &plan, document.gpus.iter().any(|gpu| gpu.input_chunks.min(gpu.output_chunks) == 0));
        plan.warnings = warnings.finish();
        plan.unsupported = unsupported.finish();
        Ok(plan)
    }

    fn declarations(&mut self, document: &Document<'_>) -> Result<(), Diagnostic> {
        if document.gpus.is_empty() {
            return Err(self.at.malformed("AHBM-F143", "a plan without ranks"));
        }
        if document.buffer_alignment == 0 {
            return Err(self.at.malformed("AHBM-F143", "buffer_alignment is 0"));
        }
        let ranks = document.gpus.len() as u32;
        for (rank, gpu) in document.gpus.iter().enumerate() {
            self.at.rank(rank);
            if gpu.id != rank as u32 {
                return Err(self.at.malformed("AHBM-F142", format!("rank {rank} has id {}", gpu.id)));
            }
            let connected = gpu.channels.iter().flat_map(|c| &c.connected_to);
            let grouped = gpu.channels.iter().flat_map(|c| &c.rank_groups).flat_map(|group| &group.ranks);
            let buffers = gpu.remote_buffers.iter().map(|buffer| &buffer.rank);
            if let Some(peer) = connected.chain(grouped).chain(buffers).find(|peer| **peer >= ranks) {
                return Err(self.at.malformed("AHBM-F144", format!("rank {peer} of {ranks} ranks")));
            }
        }
        self.at.whole();
        Ok(())
    }

    fn ops(
        &mut self,
        written: &[schema::Op<'_>],
        block: &Block<'_>,
        rank: &mut Rank,
        warnings: &mut Warnings,
        unsupported: &mut Warnings,
    ) -> Result<Vec<Op>, Diagnostic> {
        let mut ops = Vec::with_capacity(written.len());
        for (index, op) in written.iter().enumerate() {
            self.at.op(index, op.place);
            warnings.op(&self.at, op, self.at.in_loop());
            let operands = block.operands(op);
            self.charge(operands)?;
            let action = match &*op.name {
                "pipeline" if !self.at.in_loop() => {
                    let Some(context) = op.iter_context.filter(|context| context.unit_size > 0) else {
                        return Err(self
                            .at
                            .malformed("AHBM-F143", "pipeline without an iter_context of unit_size > 0"));
                    };
                    self.at.enter();
                    let ops = self.ops(&op.ops, block, rank, warnings, unsupported)?;
                    self.at.leave();
                    self.at.op(index, op.place);
                    Action::Loop { unit: context.unit_size, chunks: context.num_chunks, ops }
                }
                "barrier" => Action::Barrier(self.barrier(op, rank)?),
                _ => match block.action(op, &self.at, self.options.quirks)? {
                    Some(action) => action,
                    None => {
                        let what = if op.name == "pipeline" { "nested pipeline" } else { &*op.name };
                        unsupported.push("AHBM-U211", &self.at, format!("operation {what} is not supported"));
                        Action::Sync
                    }
                },
            };
            warnings.action(&self.at, &action);
            let words = block.words(op, &self.at)?;
            let op = Op { action, words, share: self.at.share(op)?, index: index as u32, place: op.place };
            let shared = op.share.is_some_and(|share| share.of > 1) && op.count() > 1;
            if shared {
                warnings.shared(&self.at);
            }
            match op.count() {
                // A group shares out every chunk, so that its members meet the same peers whatever the size of an
                // operation; the executor cuts the bytes of the whole operation.
                count if shared && !self.options.quirks => {
                    self.charge(u64::from(count - 1).saturating_mul(operands))?;
                    ops.extend((0..count).map(|k| op.chunk(k)));
                }
                _ => ops.push(op),
            }
        }
        Ok(ops)
    }

    fn charge(&mut self, operands: u64) -> Result<(), Diagnostic> {
        self.operands = self.operands.saturating_add(operands);
        self.options.budget.check(Limit::Ops, self.operands).map_err(|error| self.at.site(error))
    }

    fn barrier(&self, op: &schema::Op<'_>, rank: &mut Rank) -> Result<u32, Diagnostic> {
        let (Some(id), Some(blocks @ 1..)) = (op.barrier_id, op.num_threadblocks) else {
            return Err(self.at.malformed("AHBM-F143", "barrier needs barrier_id and num_threadblocks > 0"));
        };
        match rank.barriers.iter().position(|&(known, _)| known == id) {
            Some(index) if rank.barriers[index].1 == blocks => Ok(index as u32),
            Some(index) => {
                let known = rank.barriers[index].1;
                let message = format!("barrier {id} is for {known} thread blocks elsewhere and for {blocks} here");
                Err(self.at.malformed("AHBM-F145", message))
            }
            None => {
                rank.barriers.push((id, blocks));
                Ok(rank.barriers.len() as u32 - 1)
            }
        }
    }
}

fn rank_of(gpu: &Gpu<'_>) -> Rank {
    Rank {
        chunks: [gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks],
        semaphores: gpu.semaphores.iter().map(|semaphore| semaphore.init_value).collect(),
        barriers: Vec::new(),
        blocks: Vec::with_capacity(gpu.threadblocks.len()),
    }
}

/// A send/receive goes as far as the file says that rank 0 reaches.
fn goal(document: &Document<'_>) -> Goal {
    match Goal::parse(&document.collective) {
        Goal::SendRecv { shift } => {
            let reached = document.gpus.first().and_then(|gpu| gpu.remote_buffers.first());
            Goal::SendRecv { shift: reached.map_or(shift, |buffer| buffer.rank) }
        }
        other => other,
    }
}
