//! Facts worked out once per body before it is replayed.

use super::{matrix, reduce};
use ahbm_program::{AgentId, Body, Math, OpKind, Program, Tile};
use rustc_hash::FxHashMap;

/// Facts about a body.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// Per operation, bit i set when operand i is read for the last time: the value may be consumed.
    pub(super) last_use: Box<[u8]>,
    /// Result tiles that no operation of the body names, by operation.
    pub(super) results: FxHashMap<u32, Tile>,
}

impl Liveness {
    pub(super) fn of(body: &Body) -> Self {
        let mut last_use = vec![0u8; body.ops.len()];
        let mut read_later = vec![false; body.values as usize];
        for (index, op) in body.ops.iter().enumerate().rev() {
            if let Some(dst) = op.defines() {
                read_later[dst.0 as usize] = false;
            }
            for (i, value) in op.kind.operands().reads.into_iter().enumerate().rev() {
                let Some(value) = value else { continue };
                let later = std::mem::replace(&mut read_later[value.0 as usize], true);
                last_use[index] |= u8::from(!later) << i;
            }
        }
        let results =
            body.ops.iter().enumerate().filter_map(|(index, op)| Some((index as u32, unnamed_tile(body, op.kind)?)));
        Self { results: results.collect(), last_use: last_use.into() }
    }
}

/// The tile of the result of an operation, if it is not the operation's.
fn unnamed_tile(body: &Body, kind: OpKind) -> Option<Tile> {
    match kind {
        OpKind::Math(Math::Reduce { axis, tile, .. }) => Some(reduce::reduced(&body.tiles[tile as usize], axis)),
        OpKind::Math(Math::Dot { tile, .. }) => Some(matrix::product_tile(&body.tiles[tile as usize])),
        _ => None,
    }
}

/// The tile of the result of an operation, or of what it moves.
pub(crate) fn result_tile(body: &Body, kind: OpKind) -> Option<Tile> {
    unnamed_tile(body, kind).or_else(|| kind.operands().tile.map(|tile| body.tiles[tile as usize].clone()))
}

/// True when some buffer is touched by several agents and written by one of them. Otherwise agents meet
/// only in channels, counters and barriers, and the data cannot depend on the order of their operations.
pub(super) fn shares_memory(program: &Program) -> bool {
    const NOBODY: u32 = u32::MAX;
    let touched: Vec<Vec<(u16, bool)>> = program.bodies.iter().map(|b| buffers(b)).collect();
    let mut owner = vec![NOBODY; program.buffers.len()];
    let mut shared = vec![false; program.buffers.len()];
    let mut written = vec![false; program.buffers.len()];
    for (index, agent) in program.agents.iter().enumerate() {
        for &(buffer, writes) in &touched[agent.body as usize] {
            let buffer = program.buffer(AgentId(index as u32), buffer).0 as usize;
            shared[buffer] |= owner[buffer] != NOBODY && owner[buffer] != index as u32;
            owner[buffer] = index as u32;
            written[buffer] |= writes;
        }
    }
    shared.iter().zip(written).any(|(&shared, written)| shared && written)
}

/// The buffers a body touches, and whether it writes them.
pub(super) fn buffers(body: &Body) -> Vec<(u16, bool)> {
    let mut uses = Vec::new();
    for op in &body.ops {
        uses.extend(body.touched(op.kind).map(|(mem, writes)| (body.mems.buffer(mem), writes)));
    }
    uses.sort_unstable();
    uses.dedup();
    uses
}
