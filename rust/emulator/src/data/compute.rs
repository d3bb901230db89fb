//! The operations on values alone.

use super::error::Fault;
use super::image::Image;
use super::replay::{Replay, Slot};
use super::value::Value;
use super::{create, elementwise, matrix, reduce};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Body, Dtype, OpKind, Tile};

impl<'p, I: Image<'p>> Replay<'p, '_, I> {
    /// Operations on values alone.
    pub(super) fn compute(&mut self, agent: AgentId, op: usize) -> Result<(), Diagnostic> {
        let program = self.program;
        let body = program.body(agent);
        let kind = body.ops[op].kind;
        let operands = kind.operands();
        let live = &self.prepared.liveness[program.agents[agent.0 as usize].body as usize];
        let mut values = [const { None }; 3];
        for (i, value) in operands.reads.into_iter().enumerate() {
            if let Some(value) = value {
                values[i] = Some(self.operand(agent, op, i, value)?);
            }
        }
        let (Some(t), Some(dst)) = (operands.tile, body.ops[op].defines()) else { return Ok(()) };
        let tile = &body.tiles[t as usize];
        let result_tile = live.results.get(&(op as u32)).unwrap_or(tile);
        let Some(result) = self.image.apply(body, kind, values, tile, result_tile) else { return Ok(()) };
        let value = result.map_err(|fault| fault.at(program, agent, op))?;
        self.define(agent, dst, Slot::Value(value));
        Ok(())
    }
}

/// The result of an operation on values, whose tile is `tile`; `None` for other operations.
pub(super) fn apply<'p>(
    body: &Body,
    kind: OpKind,
    values: [Option<Value<'p>>; 3],
    tile: &'p Tile,
    result_tile: &'p Tile,
) -> Option<Result<Value<'p>, Fault>> {
    let scalar = |s: u32| body.scalars[s as usize];
    Some(match (kind, values) {
        (OpKind::Fill { scalar: s, .. }, _) => create::fill(scalar(s), tile),
        (OpKind::Arange { start, .. }, _) => create::arange(scalar(start), tile),
        (OpKind::Unary { f, .. }, [Some(a), ..]) => elementwise::unary(f, a, tile),
        (OpKind::Binary { f, .. }, [Some(a), Some(b), _]) => elementwise::binary(f, a, b, tile),
        (OpKind::BinaryScalar { f, swapped, scalar: s, .. }, [Some(a), ..]) => {
            elementwise::binary_scalar(f, swapped, a, scalar(s), tile)
        }
        (OpKind::Fma { .. }, [Some(a), Some(b), Some(c)]) => elementwise::fma(a, b, c, tile),
        (OpKind::Clamp { lo, hi, .. }, [Some(a), ..]) => elementwise::clamp(a, scalar(lo), scalar(hi), tile),
        (OpKind::Where { .. }, [Some(cond), Some(a), Some(b)]) => elementwise::select(cond, a, b, tile),
        (OpKind::Reduce { f, axis, .. }, [Some(a), ..]) => reduce::reduce(f, axis, a, tile, result_tile),
        (OpKind::Softmax { axis, .. }, [Some(a), ..]) => reduce::softmax(axis, a, tile),
        (OpKind::Dot { .. }, [Some(a), Some(b), _]) => matrix::dot(a, b, tile, result_tile),
        (OpKind::Transpose { .. }, [Some(a), ..]) => matrix::transpose(a, tile),
        (OpKind::Cast { .. }, [Some(a), ..]) => create::cast(a, tile),
        // `Operands` names as many values as the arms above take.
        (
            OpKind::Unary { .. }
            | OpKind::Binary { .. }
            | OpKind::BinaryScalar { .. }
            | OpKind::Fma { .. }
            | OpKind::Clamp { .. }
            | OpKind::Where { .. }
            | OpKind::Reduce { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dot { .. }
            | OpKind::Transpose { .. }
            | OpKind::Cast { .. },
            _,
        ) => return None,
        // `Replay::step` does these.
        (
            OpKind::Load { .. }
            | OpKind::Store { .. }
            | OpKind::ReducingLoad { .. }
            | OpKind::Multicast { .. }
            | OpKind::Copy { .. }
            | OpKind::Send { .. }
            | OpKind::AwaitSlot { .. }
            | OpKind::Recv { .. }
            | OpKind::RecvAny { .. }
            | OpKind::PostRecv { .. }
            | OpKind::Await { .. }
            | OpKind::Signal { .. }
            | OpKind::Fence
            | OpKind::WaitCounter { .. }
            | OpKind::Acquire { .. }
            | OpKind::Barrier { .. }
            | OpKind::Delay { .. },
            _,
        ) => return None,
    })
}

/// One element of what an operation makes, of the elements that it is made of, in the order of the operands; `None` when
/// these are not as many as it takes, or not defined on. The same bits as in a replay.
pub(crate) fn element(body: &Body, kind: OpKind, element: u64, made_of: &[(Dtype, &[u8])]) -> Option<Vec<u8>> {
    let whole = &body.tiles[kind.operands().tile? as usize];
    let dtype = whole.dtype;
    let one = Tile::new(dtype, &[1]);
    let n = made_of.len() as u64;
    let reads = kind.operands().reads.iter().flatten().count();
    // The part of the tile that the element depends on, and where it is in the result of that part.
    let (kind, tile, at) = match kind {
        OpKind::Reduce { f, dst, a, tile, .. } => {
            (OpKind::Reduce { f, axis: 0, dst, a, tile }, Tile::new(dtype, &[n]), 0)
        }
        OpKind::Softmax { axis, dst, a, tile } => {
            let extents = whole.shape.len();
            let axis = if axis < 0 { extents.checked_sub(usize::from(axis.unsigned_abs()))? } else { axis as usize };
            let inner: u64 = whole.shape.get(axis + 1..)?.iter().product();
            (OpKind::Softmax { axis: 0, dst, a, tile }, Tile::new(dtype, &[n]), element / inner.max(1) % n.max(1))
        }
        OpKind::Dot { .. } => (kind, Tile::new(dtype, &[1, n / 2, 1]), 0),
        OpKind::Arange { .. } => (kind, whole.clone(), element),
        OpKind::Transpose { .. } => (kind, Tile::new(dtype, &[1, 1]), 0),
        _ => (kind, one.clone(), 0),
    };
    let result = match kind {
        OpKind::Reduce { .. } => Tile::new(dtype, &[]),
        OpKind::Dot { .. } => Tile::new(dtype, &[1, 1]),
        _ => tile.clone(),
    };
    let moved = match kind {
        OpKind::ReducingLoad { f, .. } => {
            let read = |from: &(Dtype, &[u8])| of_bytes(&one, std::slice::from_ref(from));
            let mut values = made_of.iter().map(read);
            let first = values.next()??;
            let total = values.try_fold(first, |sum, next| elementwise::binary(f, sum, next?, &one).ok())?;
            return Some(total.bytes().to_vec());
        }
        OpKind::Load { .. }
        | OpKind::Store { .. }
        | OpKind::Multicast { .. }
        | OpKind::Copy { .. }
        | OpKind::Send { .. }
        | OpKind::Recv { .. }
        | OpKind::RecvAny { .. }
        | OpKind::PostRecv { .. } => true,
        _ => false,
    };
    if moved {
        let [(_, bytes)] = made_of else { return None };
        return (bytes.len() as u64 == dtype.bytes()).then(|| bytes.to_vec());
    }
    // Every operand has the same share of the elements.
    let share = made_of.len().checked_div(reads).unwrap_or(0);
    let tiles: Vec<Tile> = (0..reads)
        .map(|i| {
            let dtype = made_of.get(i * share).map_or(dtype, |of| of.0);
            match kind {
                OpKind::Dot { .. } if i == 0 => Tile::new(dtype, &[1, share as u64]),
                OpKind::Dot { .. } => Tile::new(dtype, &[share as u64, 1]),
                OpKind::Transpose { .. } => Tile::new(dtype, &[1, 1]),
                _ => Tile::new(dtype, &[share as u64]),
            }
        })
        .collect();
    let mut values = [const { None }; 3];
    for (i, tile) in tiles.iter().enumerate() {
        values[i] = Some(of_bytes(tile, made_of.get(i * share..(i + 1) * share)?)?);
    }
    let value = apply(body, kind, values, &tile, &result)?.ok()?;
    let (at, size) = (at as usize, value.dtype().bytes() as usize);
    value.bytes().get(at * size..(at + 1) * size).map(<[u8]>::to_vec)
}

/// Elements side by side.
fn of_bytes<'p>(tile: &'p Tile, elements: &[(Dtype, &[u8])]) -> Option<Value<'p>> {
    let bytes: Vec<u8> = elements.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    if bytes.len() as u64 != tile.bytes() {
        return None;
    }
    let mut value = Value::zeros(tile).ok()?;
    value.bytes_mut().copy_from_slice(&bytes);
    Some(value)
}
