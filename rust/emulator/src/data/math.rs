//! The results of operations on values.

use super::error::Fault;
use super::value::Value;
use super::{create, elementwise, matrix, reduce};
use ahbm_program::{Body, Dtype, Math, Move, OpKind, Tile};

/// The result of an operation on values, whose tile is `tile`; `None` where it lacks an operand.
pub(super) fn apply<'p>(
    body: &Body,
    math: Math,
    [a, b, c]: [Option<Value<'p>>; 3],
    tile: &'p Tile,
    result_tile: &'p Tile,
) -> Option<Result<Value<'p>, Fault>> {
    let scalar = |s: u32| body.scalars[s as usize];
    Some(match math {
        Math::Fill { scalar: s, .. } => create::fill(scalar(s), tile),
        Math::Arange { start, .. } => create::arange(scalar(start), tile),
        Math::Unary { f, .. } => elementwise::unary(f, a?, tile),
        Math::Binary { f, .. } => elementwise::binary(f, a?, b?, tile),
        Math::BinaryScalar { f, swapped, scalar: s, .. } => elementwise::binary_scalar(f, swapped, a?, scalar(s), tile),
        Math::Fma { .. } => elementwise::fma(a?, b?, c?, tile),
        Math::Clamp { lo, hi, .. } => elementwise::clamp(a?, scalar(lo), scalar(hi), tile),
        Math::Where { .. } => elementwise::select(a?, b?, c?, tile),
        Math::Reduce { f, axis, .. } => reduce::reduce(f, axis, a?, tile, result_tile),
        Math::Softmax { axis, .. } => reduce::softmax(axis, a?, tile),
        Math::Dot { .. } => matrix::dot(a?, b?, tile, result_tile),
        Math::Transpose { .. } => matrix::transpose(a?, tile),
        Math::Cast { .. } => create::cast(a?, tile),
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
    let math = match kind {
        OpKind::Math(math) => math,
        OpKind::Move(Move::ReducingLoad { f, .. }) => {
            let read = |from: &(Dtype, &[u8])| of_bytes(&one, std::slice::from_ref(from));
            let mut values = made_of.iter().map(read);
            let first = values.next()??;
            let total = values.try_fold(first, |sum, next| elementwise::binary(f, sum, next?, &one).ok())?;
            return Some(total.bytes().to_vec());
        }
        OpKind::Move(_) | OpKind::Comm(_) => {
            let [(_, bytes)] = made_of else { return None };
            return (bytes.len() as u64 == dtype.bytes()).then(|| bytes.to_vec());
        }
        OpKind::Control(_) => return None,
    };
    // The part of the tile that the element depends on, and where it is in the result of that part.
    let (math, tile, at) = match math {
        Math::Reduce { f, dst, a, tile, .. } => (Math::Reduce { f, axis: 0, dst, a, tile }, Tile::new(dtype, &[n]), 0),
        Math::Softmax { axis, dst, a, tile } => {
            let extents = whole.shape.len();
            let axis = if axis < 0 { extents.checked_sub(usize::from(axis.unsigned_abs()))? } else { axis as usize };
            let inner: u64 = whole.shape.get(axis + 1..)?.iter().product();
            let at = element / inner.max(1) % n.max(1);
            (Math::Softmax { axis: 0, dst, a, tile }, Tile::new(dtype, &[n]), at)
        }
        Math::Dot { .. } => (math, Tile::new(dtype, &[1, n / 2, 1]), 0),
        Math::Arange { .. } => (math, whole.clone(), element),
        Math::Transpose { .. } => (math, Tile::new(dtype, &[1, 1]), 0),
        _ => (math, one, 0),
    };
    let result = match math {
        Math::Reduce { .. } => Tile::new(dtype, &[]),
        Math::Dot { .. } => Tile::new(dtype, &[1, 1]),
        _ => tile.clone(),
    };
    // Every operand has the same share of the elements.
    let share = made_of.len().checked_div(reads).unwrap_or(0);
    let tiles: Vec<Tile> = (0..reads)
        .map(|i| {
            let dtype = made_of.get(i * share).map_or(dtype, |of| of.0);
            match math {
                Math::Dot { .. } if i == 0 => Tile::new(dtype, &[1, share as u64]),
                Math::Dot { .. } => Tile::new(dtype, &[share as u64, 1]),
                Math::Transpose { .. } => Tile::new(dtype, &[1, 1]),
                _ => Tile::new(dtype, &[share as u64]),
            }
        })
        .collect();
    let mut values = [const { None }; 3];
    for (i, tile) in tiles.iter().enumerate() {
        values[i] = Some(of_bytes(tile, made_of.get(i * share..(i + 1) * share)?)?);
    }
    let value = apply(body, math, values, &tile, &result)?.ok()?;
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
