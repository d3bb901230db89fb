//! Which elements of its operands an element of a result is made of.

use crate::data::shape::gather;
use ahbm_program::{Body, Math, OpKind, Tile};

/// The elements of operand number `operand`, which has the shape of `from`, that element `element` of a result is made
/// of.
pub(super) fn taken(body: &Body, kind: OpKind, operand: usize, from: &Tile, element: u64) -> Vec<u64> {
    let tile = |t: u32| &body.tiles[t as usize];
    match kind {
        OpKind::Math(Math::Reduce { axis, tile: t, .. }) => match usize::try_from(axis) {
            Err(_) => (0..tile(t).elements()).collect(),
            Ok(axis) => {
                let (n, inner) = along(tile(t), axis);
                let first = element / inner * n * inner + element % inner;
                (0..n).map(|k| first + k * inner).collect()
            }
        },
        OpKind::Math(Math::Softmax { axis, tile: t, .. }) => {
            let extents = tile(t).shape.len();
            let axis = if axis < 0 { extents - usize::from(axis.unsigned_abs()) } else { axis as usize };
            let (n, inner) = along(tile(t), axis);
            let first = element / (n * inner) * n * inner + element % inner;
            (0..n).map(|k| first + k * inner).collect()
        }
        OpKind::Math(Math::Dot { tile: t, .. }) => match *tile(t).shape {
            [_, k, n] if operand == 0 => (0..k).map(|x| element / n * k + x).collect(),
            [_, k, n] => (0..k).map(|x| x * n + element % n).collect(),
            _ => Vec::new(),
        },
        OpKind::Math(Math::Transpose { tile: t, .. }) => match *tile(t).shape {
            [rows, columns] => vec![element % columns * rows + element / columns],
            _ => vec![element],
        },
        _ => match kind.operands().tile.map(tile) {
            Some(to) if from.elements() != to.elements() => {
                let numbers: Vec<u64> = (0..from.elements()).collect();
                let spread = gather(&numbers, &from.shape, &to.shape).unwrap_or_default();
                spread.get(element as usize).copied().into_iter().collect()
            }
            _ => vec![element],
        },
    }
}

/// The elements of a result that are made of element `element` of operand number `operand`.
pub(super) fn given(body: &Body, kind: OpKind, operand: usize, from: &Tile, to: &Tile, element: u64) -> Vec<u64> {
    let moves = matches!(
        kind,
        OpKind::Math(Math::Reduce { .. } | Math::Softmax { .. } | Math::Dot { .. } | Math::Transpose { .. })
    );
    if !moves && from.elements() == to.elements() {
        return vec![element];
    }
    (0..to.elements()).filter(|&result| taken(body, kind, operand, from, result).contains(&element)).collect()
}

/// Extents along and behind an axis.
fn along(tile: &Tile, axis: usize) -> (u64, u64) {
    (tile.shape[axis].max(1), tile.shape[axis + 1..].iter().product::<u64>().max(1))
}
