//! What a body costs: two agents whose bodies agree in this take the same times.

use ahbm_program::{Body, Comm, Control, Math, Move, OpKind, Program};
use rustc_hash::FxHashMap;

/// What the time of an operation depends on, besides the time at which it begins; none where its outcome depends on
/// who else comes at one moment, or where it meets others inside the network.
pub(super) fn step(body: &Body, at: usize) -> Option<[u64; 4]> {
    let op = &body.ops[at];
    let bytes = |tile: u32| body.tiles[tile as usize].bytes();
    let buffer = |mem: u32| u64::from(body.mems.buffer(mem));
    let [kind, a, b, c] = match op.kind {
        OpKind::Comm(Comm::RecvAny { .. })
        | OpKind::Control(Control::Acquire { .. })
        | OpKind::Move(Move::ReducingLoad { .. } | Move::Multicast { .. }) => {
            return None;
        }
        OpKind::Move(Move::Load { mem, tile, .. }) => [1, buffer(mem), bytes(tile), 0],
        OpKind::Move(Move::Store { mem, tile, posted, .. }) => [2, buffer(mem), bytes(tile), u64::from(posted)],
        OpKind::Move(Move::Copy { src, dst, tile, posted }) => {
            [3, buffer(src) << 32 | buffer(dst), bytes(tile), u64::from(posted)]
        }
        OpKind::Comm(Comm::Send { dir, tile, .. }) => [4, u64::from(dir), bytes(tile), 0],
        OpKind::Comm(Comm::AwaitSlot { dir }) => [5, u64::from(dir), 0, 0],
        OpKind::Comm(Comm::Recv { dir, tile, .. }) => [6, u64::from(dir), bytes(tile), 0],
        OpKind::Comm(Comm::PostRecv { dir, dst, tile }) => [7, u64::from(dir), bytes(tile), u64::from(dst.0)],
        OpKind::Comm(Comm::Await { value }) => [8, u64::from(value.0), 0, 0],
        OpKind::Control(Control::Signal { counter, add, posted }) => {
            [9, u64::from(counter), u64::from(add), u64::from(posted)]
        }
        OpKind::Control(Control::WaitCounter { counter, at_least }) => [10, u64::from(counter), u64::from(at_least), 0],
        OpKind::Control(Control::Barrier { id }) => [11, u64::from(id), 0, 0],
        OpKind::Control(Control::Delay { ps }) => [12, ps, 0, 0],
        OpKind::Control(Control::Fence) => [13, 0, 0, 0],
        OpKind::Math(Math::Dot { tile, .. }) => [14, body.tiles[tile as usize].elements(), 0, 0],
        OpKind::Math(Math::Softmax { tile, .. }) => [15, bytes(tile), 0, 0],
        OpKind::Math(math) => [16, bytes(math.tile()), 0, 0],
    };
    Some([kind << 32 | u64::from(op.calls), a, b, c])
}

/// Messages that the agents of a program send, and their bytes.
pub(super) fn traffic(program: &Program) -> (u64, u64) {
    let of = |body: &Body| {
        let sent = body.ops.iter().filter_map(|op| match op.kind {
            OpKind::Comm(Comm::Send { tile, .. }) => Some(body.tiles[tile as usize].bytes()),
            _ => None,
        });
        sent.fold((0, 0), |(messages, bytes): (u64, u64), size| (messages + 1, bytes + size))
    };
    // Bodies of one class of agents share their operations.
    let mut known: FxHashMap<_, (u64, u64)> = FxHashMap::default();
    let bodies: Vec<(u64, u64)> =
        program.bodies.iter().map(|body| *known.entry((&body.ops, &body.tiles)).or_insert_with(|| of(body))).collect();
    program.agents.iter().fold((0, 0), |(messages, bytes), agent| {
        let own = bodies[agent.body as usize];
        (messages + own.0, bytes + own.1)
    })
}

/// Whether two bodies take the same times at places that are alike.
pub(super) fn alike(one: &Body, other: &Body) -> bool {
    std::ptr::eq(one, other)
        || one.ops.len() == other.ops.len()
            && one.directions.len() == other.directions.len()
            && (0..one.ops.len()).all(|at| step(one, at) == step(other, at))
}

/// Equal for bodies that are [`alike`]; none for one that no other can stand for.
pub(super) fn digest(body: &Body) -> Option<u64> {
    let first = super::mix(body.ops.len() as u64, body.directions.len() as u64);
    (0..body.ops.len()).try_fold(first, |hash, at| Some(step(body, at)?.into_iter().fold(hash, super::mix)))
}
