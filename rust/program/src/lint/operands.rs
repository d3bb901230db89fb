//! The things an operation refers to.

use crate::{OpKind, ValueId};

/// The operands of an operation, by kind. Unused places are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operands {
    /// Values read, in operand order. [`OpKind::Await`] reads none.
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
            Self::Load { mem, tile, .. } => Operands { mem_read: Some(mem), tile: Some(tile), ..none },
            Self::Store { src, mem, tile, .. } => Operands { mem_written: Some(mem), ..reads(src, tile) },
            Self::ReducingLoad { group, tile, .. } => Operands { group_read: Some(group), tile: Some(tile), ..none },
            Self::Multicast { src, group, tile } => Operands { group_written: Some(group), ..reads(src, tile) },
            Self::Copy { src, dst, tile, .. } => {
                Operands { mem_read: Some(src), mem_written: Some(dst), tile: Some(tile), ..none }
            }
            Self::Fill { scalar, tile, .. } | Self::Arange { start: scalar, tile, .. } => {
                Operands { scalars: [Some(scalar), None], tile: Some(tile), ..none }
            }
            Self::Unary { a, tile, .. }
            | Self::Reduce { a, tile, .. }
            | Self::Softmax { a, tile, .. }
            | Self::Transpose { a, tile, .. }
            | Self::Cast { a, tile, .. }
            | Self::Send { src: a, tile, .. } => reads(a, tile),
            Self::Binary { a, b, tile, .. } | Self::Dot { a, b, tile, .. } => reads2(a, b, tile),
            Self::BinaryScalar { a, scalar, tile, .. } => Operands { scalars: [Some(scalar), None], ..reads(a, tile) },
            Self::Clamp { a, lo, hi, tile, .. } => Operands { scalars: [Some(lo), Some(hi)], ..reads(a, tile) },
            Self::Fma { a, b, c, tile, .. } | Self::Where { cond: a, a: b, b: c, tile, .. } => {
                Operands { reads: [Some(a), Some(b), Some(c)], tile: Some(tile), ..none }
            }
            Self::Recv { tile, .. } | Self::RecvAny { tile, .. } | Self::PostRecv { tile, .. } => {
                Operands { tile: Some(tile), ..none }
            }
            Self::Await { .. }
            | Self::AwaitSlot { .. }
            | Self::Signal { .. }
            | Self::Fence
            | Self::WaitCounter { .. }
            | Self::Acquire { .. }
            | Self::Barrier { .. }
            | Self::Delay { .. } => none,
        }
    }
}
