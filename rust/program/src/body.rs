//! Bodies: the operations of an agent, position-independent so that equal agents share one.

use crate::{Map, Mem, Mems, Op, OpKind, OriginId, Set, Shared, Tile, ValueId};
use ahbm_machine::Direction;
use std::sync::Arc;

/// The operations of an agent, in order. Directions, buffers and tiles are named by index, so agents that
/// differ only in place share one body. Bodies that differ share the lists in which they do not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Body {
    /// Operations in issue order.
    pub ops: Shared<Op>,
    /// Origin of every operation, parallel to `ops`.
    pub origins: Shared<OriginId>,
    /// Distinct tiles.
    pub tiles: Arc<[Tile]>,
    /// Distinct memory operands.
    pub mems: Mems,
    /// Distinct groups of memory operands, in which operations inside the network take part together.
    pub groups: Box<[Box<[u32]>]>,
    /// Distinct directions.
    pub directions: Arc<[Direction]>,
    /// Distinct scalars.
    pub scalars: Arc<[Scalar]>,
    /// Number of value slots.
    pub values: u32,
}

impl Body {
    /// The memory operands of an operation of this body, in order, and whether it writes them.
    pub fn touched(&self, kind: OpKind) -> impl Iterator<Item = (u32, bool)> + '_ {
        let operands = kind.operands();
        let group = |group: Option<u32>| group.map_or(&[][..], |group| &*self.groups[group as usize]).iter().copied();
        let read = operands.mem_read.into_iter().chain(group(operands.group_read));
        let written = operands.mem_written.into_iter().chain(group(operands.group_written));
        read.map(|mem| (mem, false)).chain(written.map(|mem| (mem, true)))
    }
}

/// Per body, the first one with the same operations, tiles and sizes of tables: what is true of one's operations, as
/// long as it asks for no memory operand and no direction, is true of the other's.
pub(crate) fn alike<'a>(bodies: impl Iterator<Item = &'a Body>) -> Vec<u32> {
    let mut known: Map<_, u32> = Map::default();
    let sizes = |body: &Body| {
        [body.mems.len(), body.groups.len(), body.directions.len(), body.scalars.len(), body.values as usize]
    };
    let key = |body: &'a Body| (&body.ops, &body.tiles, &body.groups, sizes(body));
    bodies.zip(0..).map(|(body, index)| *known.entry(key(body)).or_insert(index)).collect()
}

/// A scalar operand, kept exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A floating-point number by its bits.
    Float(u64),
    /// An integer.
    Int(i128),
}

impl Scalar {
    /// From a float.
    pub fn float(x: f64) -> Self {
        Self::Float(x.to_bits())
    }

    /// The nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(bits) => f64::from_bits(bits),
            Self::Int(n) => n as f64,
        }
    }
}

/// Writes a [`Body`].
#[derive(Debug, Default)]
pub struct BodyBuilder {
    ops: Vec<Op>,
    origins: Vec<OriginId>,
    tiles: Set<Tile>,
    mems: Set<Mem>,
    groups: Set<Box<[u32]>>,
    directions: Set<Direction>,
    scalars: Set<Scalar>,
    values: u32,
    free: Vec<ValueId>,
}

impl BodyBuilder {
    /// An empty body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an operation that took `calls` kernel calls to issue.
    pub fn push(&mut self, kind: impl Into<OpKind>, calls: u16, origin: OriginId) {
        self.ops.push(Op { kind: kind.into(), calls });
        self.origins.push(origin);
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True before the first operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// A value slot, reusing a dead one.
    pub fn value(&mut self) -> ValueId {
        self.free.pop().unwrap_or_else(|| {
            self.values += 1;
            ValueId(self.values - 1)
        })
    }

    /// Declares a value dead: no later operation reads it, its slot may be reused.
    pub fn release(&mut self, value: ValueId) {
        self.free.push(value);
    }

    /// Interns a tile.
    pub fn tile(&mut self, tile: Tile) -> u32 {
        self.tiles.insert_full(tile).0 as u32
    }

    /// The tile behind an index.
    pub fn tile_at(&self, index: u32) -> &Tile {
        &self.tiles[index as usize]
    }

    /// Interns a memory operand.
    pub fn mem(&mut self, mem: Mem) -> u32 {
        self.mems.insert_full(mem).0 as u32
    }

    /// Interns a group of memory operands.
    pub fn group(&mut self, mems: &[u32]) -> u32 {
        self.groups.insert_full(mems.into()).0 as u32
    }

    /// Interns a direction.
    pub fn direction(&mut self, direction: Direction) -> u16 {
        self.directions.insert_full(direction).0 as u16
    }

    /// Interns a scalar.
    pub fn scalar(&mut self, scalar: Scalar) -> u32 {
        self.scalars.insert_full(scalar).0 as u32
    }

    /// The finished body.
    pub fn finish(self) -> Body {
        Body {
            ops: self.ops.into(),
            origins: self.origins.into(),
            tiles: self.tiles.into_iter().collect(),
            mems: self.mems.into_iter().collect(),
            groups: self.groups.into_iter().collect(),
            directions: self.directions.into_iter().collect(),
            scalars: self.scalars.into_iter().collect(),
            values: self.values,
        }
    }
}
