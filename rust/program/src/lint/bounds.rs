//! `AHBM-L103`: memory operands stay inside their buffers.

use super::{Findings, label};
use crate::{AgentId, Body, Mem, Program};
use ahbm_findings::Diagnostic;

pub(super) fn check(program: &Program, alike: &[u32], findings: &mut Findings) {
    let mut longest: Vec<Vec<u64>> = Vec::with_capacity(alike.len());
    for (index, (body, &first)) in program.bodies.iter().zip(alike).enumerate() {
        longest.push(if first as usize == index { longest_accesses(body) } else { Vec::new() });
    }
    let extents: Vec<Vec<u64>> =
        program.bodies.iter().zip(alike).map(|(body, &first)| extents(body, &longest[first as usize])).collect();
    for (index, agent) in program.agents.iter().enumerate() {
        let id = AgentId(index as u32);
        for (buffer, &extent) in extents[agent.body as usize].iter().enumerate() {
            let target = program.buffer(id, buffer as u16);
            let size = program.buffers[target.0 as usize].bytes;
            if extent > size {
                findings.add("AHBM-L103", |code| {
                    let (op, start, end) = first_beyond(program.body(id), buffer, size);
                    Diagnostic::new(code, format!("bytes {start}..{end} of a buffer of {size} bytes"))
                        .site(label(program, id, op), program.origin_text(id, op))
                        .hint("check offset and shape against the tensor's shard on this PE")
                });
            }
        }
    }
}

/// The bytes of the longest access per memory operand; zero where no operation touches it.
fn longest_accesses(body: &Body) -> Vec<u64> {
    let mut longest = vec![0; body.mems.len()];
    for_each_access(body, |_, mem, bytes| longest[mem] = bytes.max(longest[mem]));
    longest
}

/// The end of the furthest access per buffer; zero where the body does not touch it.
fn extents(body: &Body, longest: &[u64]) -> Vec<u64> {
    let mut extents = vec![0; body.mems.buffers() as usize];
    let mut reach = |mem: Mem, bytes: u64| {
        let extent = &mut extents[usize::from(mem.buffer)];
        *extent = mem.offset.saturating_add(bytes).max(*extent);
    };
    // Where all accesses are of one length, the ends of a run reach furthest.
    if let Some(&bytes) = longest.first().filter(|&&bytes| bytes > 0 && longest.iter().all(|&other| other == bytes)) {
        body.mems.extremes().for_each(|mem| reach(mem, bytes));
    } else {
        body.mems.iter().zip(longest).filter(|(_, bytes)| **bytes > 0).for_each(|(mem, &bytes)| reach(mem, bytes));
    }
    extents
}

fn first_beyond(body: &Body, buffer: usize, size: u64) -> (usize, u64, u64) {
    let mut first = None;
    for_each_access(body, |op, mem, bytes| {
        let mem = body.mems.at(mem as u32);
        let end = mem.offset.saturating_add(bytes);
        if usize::from(mem.buffer) == buffer && end > size && first.is_none() {
            first = Some((op, mem.offset, end));
        }
    });
    first.unwrap_or_default()
}

/// The operation, its memory operand and its bytes.
fn for_each_access(body: &Body, mut f: impl FnMut(usize, usize, u64)) {
    for (index, op) in body.ops.iter().enumerate() {
        let bytes = op.kind.operands().tile.map_or(0, |t| body.tiles[t as usize].bytes());
        for (mem, _) in body.touched(op.kind) {
            f(index, mem as usize, bytes);
        }
    }
}
