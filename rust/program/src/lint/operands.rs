//! The things an operation refers to.

use crate::{Comm, Math, Move, OpKind, ValueId};

/// The operands of an operation, by kind. Unused places are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operands {
    /// Values read, in operand order. [`Comm::Await`] reads none.
    pub reads: [Option<ValueId>; 3],
    /// Memory operand read, an index into [`crate::Body::mems`].
    pub mem_read: Option<u32>,
    /// Memory operand written, an index into [`crate::Body::mems`].
    pub mem_written: Option<u32>,
    /// Group of memory operands read, an index into [`crate::Body::groups`].
    pub group_read: Option<u32>,
    /// Group of memory operands written, an index into [`crate::Body::groups`].
    pub group_written: Option<u32>,
    /// Scalars, indices into [`crate::Body::scalars`].
    pub scalars: [Option<u32>; 2],
    /// Tile, an index into [`crate::Body::tiles`].
    pub tile: Option<u32>,
}

impl OpKind {
    /// The things the operation refers to.
    pub fn operands(&self) -> Operands {
        let none = Operands::default();
        let reads = |a: ValueId, tile: u32| Operands { reads: [Some(a), None, None], tile: Some(tile), ..none };
        let reads2 =
            |a: ValueId, b: ValueId, tile: u32| Operands { reads: [Some(a), Some(b), None], tile: Some(tile), ..none };
        match *self {
            OpKind::Move(Move::Load { mem, tile, .. }) => Operands { mem_read: Some(mem), tile: Some(tile), ..none },
            OpKind::Move(Move::Store { src, mem, tile, .. }) => Operands { mem_written: Some(mem), ..reads(src, tile) },
            OpKind::Move(Move::ReducingLoad { group, tile, .. }) => {
                Operands { group_read: Some(group), tile: Some(tile), ..none }
            }
            OpKind::Move(Move::Multicast { src, group, tile }) => {
                Operands { group_written: Some(group), ..reads(src, tile) }
            }
            OpKind::Move(Move::Copy { src, dst, tile, .. }) => {
                Operands { mem_read: Some(src), mem_written: Some(dst), tile: Some(tile), ..none }
            }
            OpKind::Math(Math::Fill { scalar, tile, .. } | Math::Arange { start: scalar, tile, .. }) => {
                Operands { scalars: [Some(scalar), None], tile: Some(tile), ..none }
            }
            OpKind::Math(
                Math::Unary { a, tile, .. }
                | Math::Reduce { a, tile, .. }
                | Math::Softmax { a, tile, .. }
                | Math::Transpose { a, tile, .. }
                | Math::Cast { a, tile, .. },
            )
            | OpKind::Comm(Comm::Send { src: a, tile, .. }) => reads(a, tile),
            OpKind::Math(Math::Binary { a, b, tile, .. } | Math::Dot { a, b, tile, .. }) => reads2(a, b, tile),
            OpKind::Math(Math::BinaryScalar { a, scalar, tile, .. }) => {
                Operands { scalars: [Some(scalar), None], ..reads(a, tile) }
            }
            OpKind::Math(Math::Clamp { a, lo, hi, tile, .. }) => {
                Operands { scalars: [Some(lo), Some(hi)], ..reads(a, tile) }
            }
            OpKind::Math(Math::Fma { a, b, c, tile, .. } | Math::Where { cond: a, a: b, b: c, tile, .. }) => {
                Operands { reads: [Some(a), Some(b), Some(c)], tile: Some(tile), ..none }
            }
            OpKind::Comm(Comm::Recv { tile, .. } | Comm::RecvAny { tile, .. } | Comm::PostRecv { tile, .. }) => {
                Operands { tile: Some(tile), ..none }
            }
            OpKind::Comm(Comm::Await { .. } | Comm::AwaitSlot { .. }) | OpKind::Control(_) => none,
        }
    }
}
