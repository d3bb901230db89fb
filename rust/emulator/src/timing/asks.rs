//! What bodies ask of a run's wiring: found once for all that share their operations.

use ahbm_program::{Body, Comm, Control, Move, OpKind, Program, Tile};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// What the operations of a body ask of its agents' wiring.
pub(super) struct Asks {
    /// One operation of each kind that asks for something of its own, in order.
    pub(super) ops: Vec<u32>,
    /// The highest buffer that is loaded from or stored to, and one.
    pub(super) buffers: usize,
}

impl Asks {
    pub(super) fn of(body: &Body) -> Self {
        let mut seen: IndexSet<[u32; 3], FxBuildHasher> = IndexSet::default();
        let mut asks = Self { ops: Vec::new(), buffers: 0 };
        for (index, op) in (0..).zip(&body.ops) {
            let buffer = |mem: u32| u32::from(body.mems.buffer(mem));
            let mut own = |mem: u32| {
                asks.buffers = asks.buffers.max(buffer(mem) as usize + 1);
                buffer(mem)
            };
            let kind = match op.kind {
                OpKind::Move(Move::Load { mem, .. }) => [0, own(mem), 0],
                OpKind::Move(Move::Store { mem, posted, .. }) => [1 + u32::from(posted), own(mem), 0],
                OpKind::Move(Move::Copy { src, dst, posted, .. }) => [3 + u32::from(posted), buffer(src), buffer(dst)],
                OpKind::Move(Move::ReducingLoad { group, .. }) => [5, group, 0],
                OpKind::Move(Move::Multicast { group, .. }) => [6, group, 0],
                OpKind::Control(Control::Signal { posted, .. }) => [7 + u32::from(posted), 0, 0],
                OpKind::Control(Control::Fence) => [9, 0, 0],
                OpKind::Comm(Comm::PostRecv { dir, .. }) => [10, dir.into(), 0],
                OpKind::Comm(Comm::RecvAny { .. }) => [11, 0, 0],
                OpKind::Comm(Comm::Send { .. } | Comm::AwaitSlot { .. } | Comm::Recv { .. } | Comm::Await { .. })
                | OpKind::Control(
                    Control::WaitCounter { .. }
                    | Control::Acquire { .. }
                    | Control::Barrier { .. }
                    | Control::Delay { .. },
                )
                | OpKind::Math(_) => continue,
            };
            if seen.insert(kind) {
                asks.ops.push(index);
            }
        }
        asks
    }
}

/// Per body the bytes of its tiles.
pub(super) fn tile_bytes(program: &Program) -> Vec<Arc<[u64]>> {
    let mut known: FxHashMap<*const Tile, Arc<[u64]>> = FxHashMap::default();
    let bytes = |body: &Arc<Body>| {
        let of = || body.tiles.iter().map(Tile::bytes).collect();
        // Lists without elements may lie at one place with others.
        if body.tiles.is_empty() { of() } else { known.entry(body.tiles.as_ptr()).or_insert_with(of).clone() }
    };
    program.bodies.iter().map(bytes).collect()
}
