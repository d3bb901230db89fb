//! Chunks to bytes, by the executor's rules.

use super::{ExecutionPlan, Form, Op, Operand, Share};
use crate::{Extents, LowerOptions, Space};
use ahbm_findings::Diagnostic;
use ahbm_program::Dtype;

/// Scratch of a plan that reuses resources.
const SHARED_SCRATCH: u64 = 64 << 20;

/// Sizes and positions for one message size.
#[derive(Debug)]
pub(super) struct Layout {
    /// Bytes of a chunk.
    pub(super) chunk: u64,
    pub(super) dtype: Dtype,
    pub(super) extents: Vec<Extents>,
    alignment: u64,
    /// Replaces the unit of loops by what gives this many iterations.
    iterations: Option<u64>,
    /// Per rank: bytes of a scratch chunk, less than a chunk where scratch has a fixed size.
    scratch_chunk: Vec<u64>,
    /// Halves of scratch, and which one this launch uses.
    halves: u64,
    half: u64,
    quirks: bool,
}

/// A run of bytes of a rank's buffer. Scratch has an area for plain data and one for packets, each from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) rank: u32,
    pub(super) space: Space,
    pub(super) form: Form,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Position of an iteration of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Iteration {
    pub(super) at: u64,
    pub(super) unit: u64,
}

impl Layout {
    /// The layout of a real message.
    pub(super) fn of(plan: &ExecutionPlan, options: &LowerOptions, even: bool) -> Result<Self, Diagnostic> {
        let (bytes, chunks) = (options.bytes, plan.chunks.max(1));
        let size = options.dtype.bytes();
        if !(plan.min_bytes..=plan.max_bytes).contains(&bytes) {
            let (least, most) = (plan.min_bytes, plan.max_bytes);
            return Err(unfit(format!("{bytes} bytes are outside the plan's range of {least} to {most} bytes")));
        }
        let step = plan.alignment.checked_mul(u64::from(chunks)).filter(|&step| step <= u64::from(u32::MAX));
        let Some(step) = step.filter(|_| plan.alignment.is_multiple_of(size)) else {
            let (alignment, dtype) = (plan.alignment, options.dtype);
            return Err(unfit(format!(
                "the plan's alignment of {alignment} bytes is no size of whole {dtype} elements"
            )));
        };
        if bytes == 0 || !bytes.is_multiple_of(step) {
            let (down, up) = (bytes / step * step, bytes.div_ceil(step).max(1).saturating_mul(step));
            let near = if down == 0 { format!("{up}") } else { format!("{down} and {up}") };
            let message = format!("{bytes} bytes do not split into {chunks} chunks of whole {} bytes", plan.alignment);
            return Err(unfit(message).hint(format!("nearest sizes: {near} bytes")));
        }
        Self::new(plan, bytes / u64::from(chunks), plan.alignment, options.dtype, None, even)
    }

    /// One 8-byte cell for every part that an operation splits a chunk into, loops with `iterations` iterations.
    pub(super) fn of_cells(plan: &ExecutionPlan, iterations: u32, even: bool) -> Result<Self, Diagnostic> {
        let mut parts = 1;
        plan.walk(|_, op| parts = parts.max(op.share.map_or(1, |share| share.of)));
        let cells = u64::from(parts.min(MOST_PARTS)) * if plan.loops() { u64::from(iterations.max(1)) } else { 1 };
        Self::new(plan, 8 * cells, 8, Dtype::I64, Some(iterations.max(1).into()), even)
    }

    fn new(
        plan: &ExecutionPlan,
        chunk: u64,
        alignment: u64,
        dtype: Dtype,
        iterations: Option<u64>,
        even: bool,
    ) -> Result<Self, Diagnostic> {
        let extents = plan.extents();
        let halves = 1 + u64::from(plan.double_scratch);
        let scratch_chunk: Vec<u64> = extents
            .iter()
            .map(|rank| match (plan.reuse_resources, rank.of(Space::Scratch)) {
                (false, _) | (_, 0) => chunk,
                (true, chunks) => chunk.min(SHARED_SCRATCH / halves / u64::from(chunks) / alignment * alignment),
            })
            .collect();
        let layout = Self {
            chunk,
            dtype,
            extents,
            alignment,
            iterations,
            scratch_chunk,
            halves,
            half: u64::from(plan.double_scratch && even),
            quirks: plan.quirks,
        };
        let largest = (0..plan.ranks.len() as u32).map(|rank| layout.shared(rank).max(layout.scratch(rank))).max();
        match largest {
            Some(bytes) if bytes > u64::from(u32::MAX) => {
                Err(unfit(format!("a buffer of {bytes} bytes is more than the executor's 32-bit offsets reach")))
            }
            _ if layout.scratch_chunk.contains(&0) => Err(unfit("the fixed scratch has no byte per chunk".to_owned())),
            _ => Ok(layout),
        }
    }

    /// Bytes that input and output need when they are one memory.
    pub(super) fn shared(&self, rank: u32) -> u64 {
        u64::from(self.extents[rank as usize].shared_chunks()).saturating_mul(self.chunk)
    }

    /// Bytes of one area of scratch.
    pub(super) fn scratch(&self, rank: u32) -> u64 {
        self.half_scratch(rank).saturating_mul(self.halves)
    }

    fn half_scratch(&self, rank: u32) -> u64 {
        u64::from(self.extents[rank as usize].of(Space::Scratch)).saturating_mul(self.scratch_chunk[rank as usize])
    }

    /// Number of iterations of a loop and the bytes of one.
    pub(super) fn iterations(&self, unit: u64, chunks: u32) -> Result<(u64, u64), Diagnostic> {
        let total = u64::from(chunks).saturating_mul(self.chunk);
        let unit = match self.iterations {
            Some(times) => total.div_ceil(times).next_multiple_of(self.dtype.bytes()).max(self.dtype.bytes()),
            None => unit,
        };
        if unit.is_multiple_of(self.dtype.bytes()) {
            return Ok((total.div_ceil(unit), unit));
        }
        Err(unfit(format!("a loop over {unit} bytes does not step over whole {} elements", self.dtype)))
    }

    /// The bytes that an operation touches through an operand. Packet operations ignore loops.
    pub(super) fn piece(&self, acting: u32, op: &Op, operand: &Operand, pass: Option<Iteration>) -> Piece {
        let Operand { rank, space, form, .. } = *operand;
        let scratch = space == Space::Scratch;
        let stride = if scratch { self.scratch_chunk[rank as usize] } else { self.chunk };
        let (mut offset, mut bytes) = (u64::from(operand.chunk) * stride, u64::from(operand.count) * self.chunk);
        if let Some(share) = op.share {
            let (start, end) = (self.part(bytes, share, 0), self.part(bytes, share, 1));
            (offset, bytes) = (offset + start, end - start);
        }
        if let (Some(Iteration { at, unit }), false) = (pass, op.has_packets()) {
            offset += if scratch && stride < self.chunk { at % stride } else { at };
            bytes = match bytes.checked_sub(at) {
                Some(rest) => rest.min(unit),
                // The executor's difference is unsigned.
                None if self.quirks => unit,
                None => 0,
            };
        }
        let misses_half = self.quirks && form == Form::Plain && rank != acting;
        if scratch && !misses_half {
            offset += self.half * self.half_scratch(rank);
        }
        Piece { rank, space, form, offset, bytes }
    }

    /// The start of part `share.index + next` of `bytes` bytes: whole units of the alignment, the first parts larger.
    fn part(&self, bytes: u64, share: Share, next: u64) -> u64 {
        let (units, of) = (bytes / self.alignment, u64::from(share.of));
        let index = u64::from(share.index) + next;
        (index * (units / of) + index.min(units % of)) * self.alignment
    }
}

/// Parts of a chunk that a check tells apart; a larger group leaves some of its thread blocks without work.
const MOST_PARTS: u32 = 1024;

fn unfit(message: String) -> Diagnostic {
    Diagnostic::new("AHBM-F147", message)
}
