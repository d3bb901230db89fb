//! The bodies of a class's members.

use super::columns::Columns;
use super::{Access, Class, Group, Surroundings, Way};
use crate::{Body, Comm, Map, Mem, Move, Op, OpKind, Set, Shared};
use ahbm_machine::{Coord, Direction};
use std::sync::Arc;

/// Writes one body after the other.
///
/// Operands of a body are distinct, and so numbered by first use. Two formulas may be equal for some members and differ
/// for others: then their operations differ in the numbers of the operands. Members with equal numbers share operations.
pub(super) struct Members<'a> {
    class: &'a Class,
    around: &'a Surroundings<'a>,
    mems: Set<Mem>,
    groups: Set<Box<[u32]>>,
    directions: Set<Direction>,
    numbers: Numbers,
    /// The operations by the numbers of their operands, where these are not those of the class.
    renumbered: Map<Numbers, Shared<Op>>,
    /// The lists of the member before, which often are the next one's too.
    last: (Arc<[Mem]>, Arc<[Direction]>),
}

/// Per memory operand, direction and group of the class: the number that it has in a member's body.
type Numbers = (Vec<u32>, Vec<u16>, Vec<u32>);

impl<'a> Members<'a> {
    pub(super) fn new(class: &'a Class, around: &'a Surroundings<'a>) -> Self {
        Self {
            class,
            around,
            mems: Set::default(),
            groups: Set::default(),
            directions: Set::default(),
            numbers: Numbers::default(),
            renumbered: Map::default(),
            last: Default::default(),
        }
    }

    /// The body of the agent in a lane of the columns; `None` for an address or a peer that it cannot have.
    pub(super) fn body(&mut self, columns: &Columns, lane: usize, at: Coord) -> Option<Body> {
        let class = self.class;
        self.mems.clear();
        self.groups.clear();
        self.directions.clear();
        self.numbers.0.clear();
        self.numbers.1.clear();
        self.numbers.2.clear();
        if class.accesses.len() > class.mems.len() {
            for access in &class.accesses {
                self.mem(columns, lane, access)?;
            }
        }
        for &access in &class.mems {
            let mem = self.mem(columns, lane, &class.accesses[access as usize])?;
            self.numbers.0.push(self.mems.insert_full(mem).0 as u32);
        }
        for way in &class.ways {
            let direction = match *way {
                Way::Named(direction) => direction,
                Way::Peer(parts) => {
                    let part = |part: usize| match parts[part] {
                        Some(term) => u32::try_from(columns.of(term)[lane]).ok().map(Some),
                        None => Some(None),
                    };
                    Direction::Peer { sip: part(0)?, cube: part(1)?, pe: part(2)? }
                }
            };
            let direction = self.around.sfr.canonical(at, direction);
            if direction == (Direction::Peer { sip: None, cube: None, pe: None }) {
                return None;
            }
            self.numbers.1.push(self.directions.insert_full(direction).0 as u16);
        }
        let known = (self.mems.len(), self.directions.len());
        for group in &class.groups {
            let group = self.group(columns, lane, group)?;
            self.numbers.2.push(self.groups.insert_full(group).0 as u32);
        }
        let known = (known, self.groups.len());
        let ops = if known == ((class.mems.len(), class.ways.len()), class.groups.len()) {
            class.body.ops.clone()
        } else {
            self.renumbered()
        };
        if !self.mems.iter().eq(self.last.0.iter()) {
            self.last.0 = self.mems.iter().copied().collect();
        }
        if !self.directions.iter().eq(self.last.1.iter()) {
            self.last.1 = self.directions.iter().copied().collect();
        }
        let (mems, directions) = self.last.clone();
        let groups = self.groups.iter().cloned().collect();
        Some(Body { ops, mems, groups, directions, ..class.body.clone() })
    }

    /// The memory operands of a group: none for SIPs that are not there, or that are there twice.
    fn group(&mut self, columns: &Columns, lane: usize, group: &Group) -> Option<Box<[u32]>> {
        let own = self.mem(columns, lane, &self.class.accesses[group.access as usize])?;
        let mut members = Vec::with_capacity(group.sips.len());
        for &term in &group.sips {
            let sip = u32::try_from(columns.of(term)[lane]).ok().filter(|&sip| sip < self.around.sips)?;
            let buffer = (1 + sip as usize) * self.around.views.len() + usize::from(own.buffer);
            let mem = Mem { buffer: u16::try_from(buffer).ok()?, ..own };
            let member = self.mems.insert_full(mem).0 as u32;
            if members.contains(&member) {
                return None;
            }
            members.push(member);
        }
        Some(members.into())
    }

    fn mem(&self, columns: &Columns, lane: usize, access: &Access) -> Option<Mem> {
        let address = u64::try_from(columns.of(access.address)[lane]).ok()?;
        let end = address.checked_add(access.bytes)?;
        let holds = self.around.views.iter().position(|view| view.address <= address && end <= view.end())?;
        Some(Mem { buffer: holds as u16, offset: address - self.around.views[holds].address })
    }

    /// The operations with the numbers of the body being written.
    fn renumbered(&mut self) -> Shared<Op> {
        if let Some(known) = self.renumbered.get(&self.numbers) {
            return known.clone();
        }
        let rename = |op: &Op| Op { kind: renamed(op.kind, &self.numbers), ..*op };
        let ops: Shared<Op> = self.class.body.ops.iter().map(rename).collect();
        self.renumbered.insert(self.numbers.clone(), ops.clone());
        ops
    }
}

fn renamed(kind: OpKind, (mems, ways, groups): &Numbers) -> OpKind {
    let mem = |mem: u32| mems[mem as usize];
    let way = |dir: u16| ways[usize::from(dir)];
    let several = |group: u32| groups[group as usize];
    match kind {
        OpKind::Move(Move::Load { dst, mem: from, tile }) => OpKind::Move(Move::Load { dst, mem: mem(from), tile }),
        OpKind::Move(Move::Store { src, mem: to, tile, posted }) => {
            OpKind::Move(Move::Store { src, mem: mem(to), tile, posted })
        }
        OpKind::Move(Move::Copy { src, dst, tile, posted }) => {
            OpKind::Move(Move::Copy { src: mem(src), dst: mem(dst), tile, posted })
        }
        OpKind::Move(Move::ReducingLoad { f, dst, group, tile }) => {
            OpKind::Move(Move::ReducingLoad { f, dst, group: several(group), tile })
        }
        OpKind::Move(Move::Multicast { src, group, tile }) => {
            OpKind::Move(Move::Multicast { src, group: several(group), tile })
        }
        OpKind::Comm(Comm::Send { dir, src, tile }) => OpKind::Comm(Comm::Send { dir: way(dir), src, tile }),
        OpKind::Comm(Comm::AwaitSlot { dir }) => OpKind::Comm(Comm::AwaitSlot { dir: way(dir) }),
        OpKind::Comm(Comm::Recv { dir, dst, tile }) => OpKind::Comm(Comm::Recv { dir: way(dir), dst, tile }),
        OpKind::Comm(Comm::PostRecv { dir, dst, tile }) => OpKind::Comm(Comm::PostRecv { dir: way(dir), dst, tile }),
        other => other,
    }
}
