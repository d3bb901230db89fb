//! `AHBM-L103`: memory operands stay inside their buffers.

use super::{Findings, label};
use crate::{AgentId, Body, Program};
use ahbm_machine::Diagnostic;

pub(super) fn check(program: &Program, findings: &mut Findings) {
    let extents: Vec<Vec<u64>> = program.bodies.iter().map(|b| extents(b)).collect();
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

/// The end of the furthest access per buffer; zero where the body does not touch it.
fn extents(body: &Body) -> Vec<u64> {
    let mut extents = vec![0; body.mems.iter().map(|m| usize::from(m.buffer) + 1).max().unwrap_or(0)];
    for_each_access(body, |_, buffer, start, bytes| {
        extents[buffer] = extents[buffer].max(start.saturating_add(bytes));
    });
    extents
}

fn first_beyond(body: &Body, buffer: usize, size: u64) -> (usize, u64, u64) {
    let mut first = None;
    for_each_access(body, |op, b, start, bytes| {
        let end = start.saturating_add(bytes);
        if b == buffer && end > size && first.is_none() {
            first = Some((op, start, end));
        }
    });
    first.unwrap_or_default()
}

fn for_each_access(body: &Body, mut f: impl FnMut(usize, usize, u64, u64)) {
    for (index, op) in body.ops.iter().enumerate() {
        let bytes = op.kind.operands().tile.map_or(0, |t| body.tiles[t as usize].bytes());
        for (mem, _) in body.touched(op.kind) {
            let mem = body.mems[mem as usize];
            f(index, mem.buffer.into(), mem.offset, bytes);
        }
    }
}
