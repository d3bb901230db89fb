//! The bodies of a class's members.

use super::columns::Columns;
use super::operands::{self, Operands, distinct};
use super::{Access, Class, Group, Surroundings, Way};
use crate::{Body, Comm, Map, Mem, Mems, Move, Op, OpKind, Set, Shared};
use ahbm_machine::{Coord, Direction};
use std::sync::Arc;

/// Writes one body after the other.
///
/// Operands of a body are distinct, and so numbered by first use. Two formulas may be equal for some members and differ
/// for others: then their operations differ in the numbers of the operands. Members with equal numbers share operations.
pub(super) struct Members<'a> {
    class: &'a Class,
    around: &'a Surroundings<'a>,
    /// The operands of the agents of a block.
    block: Operands,
    /// The operands of the body being written, where equal ones may be among them.
    mems: Distinct,
    groups: Set<Box<[u32]>>,
    directions: Set<Direction>,
    numbers: Numbers,
    /// The operations by the numbers of their operands, where these are not those of the class.
    renumbered: Map<Numbers, Shared<Op>>,
    /// The lists of the member before, which often are the next one's too.
    last: (Mems, Arc<[Direction]>),
}

/// Memory operands in order of first use. Thousands of members in turn have a list each, of thousands: the table is never
/// emptied, its entries of lists before count as none.
#[derive(Default)]
struct Distinct {
    list: Vec<Mem>,
    /// The list of an entry, and the place in it. As many as a power of two, and twice as many as there are operands.
    table: Vec<(u32, u32)>,
    current: u32,
}

impl Distinct {
    fn clear(&mut self) {
        self.list.clear();
        self.current = self.current.wrapping_add(1);
        if self.current == 0 {
            self.table.fill((0, 0));
            self.current = 1;
        }
    }

    /// The number of an operand.
    #[inline]
    fn insert(&mut self, mem: Mem) -> u32 {
        if 2 * self.list.len() >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut at = Self::place(mem) & mask;
        loop {
            let (of, number) = self.table[at];
            if of != self.current {
                let number = self.list.len() as u32;
                self.table[at] = (self.current, number);
                self.list.push(mem);
                return number;
            }
            if self.list[number as usize] == mem {
                return number;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn place(mem: Mem) -> usize {
        let mixed = (mem.offset ^ u64::from(mem.buffer) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize
    }

    #[cold]
    fn grow(&mut self) {
        let mask = (2 * self.table.len()).max(64) - 1;
        self.current = self.current.max(1);
        self.table = vec![(0, 0); mask + 1];
        for (&mem, number) in self.list.iter().zip(0..) {
            let mut at = Self::place(mem) & mask;
            while self.table[at].0 == self.current {
                at = (at + 1) & mask;
            }
            self.table[at] = (self.current, number);
        }
    }
}

/// Per memory operand, direction and group of the class: the number that it has in a member's body.
type Numbers = (operands::Numbers, Vec<u16>, Vec<u32>);

impl<'a> Members<'a> {
    pub(super) fn new(class: &'a Class, around: &'a Surroundings<'a>) -> Self {
        Self {
            class,
            around,
            block: Operands::new(class, around.views),
            mems: Distinct::default(),
            groups: Set::default(),
            directions: Set::default(),
            numbers: Numbers::default(),
            renumbered: Map::default(),
            last: Default::default(),
        }
    }

    /// Takes the columns of a block of agents.
    pub(super) fn block(&mut self, columns: &Columns) {
        self.block.read(self.class, columns);
    }

    /// The body of the agent in a lane of the block; `None` for an address or a peer that it cannot have.
    pub(super) fn body(&mut self, columns: &Columns, lane: usize, at: Coord) -> Option<Body> {
        let class = self.class;
        self.mems.clear();
        self.groups.clear();
        self.directions.clear();
        self.numbers.1.clear();
        self.numbers.2.clear();
        if class.accesses.len() > class.mems.len() {
            for access in &class.accesses {
                self.mem(columns, lane, access)?;
            }
        }
        // Groups may name operands besides.
        let told = self.block.of(lane).filter(|_| class.groups.is_empty()).and_then(distinct);
        let seen = told.map(|(runs, numbers)| {
            self.numbers.0 = numbers;
            if runs == self.last.0.runs() { self.last.0.clone() } else { Mems::of(&runs) }
        });
        if seen.is_none() {
            let mut numbers = Vec::with_capacity(class.mems.len());
            for &access in &class.mems {
                let mem = self.mem(columns, lane, &class.accesses[access as usize])?;
                numbers.push(self.mems.insert(mem));
            }
            self.numbers.0 = numbers.into_iter().collect();
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
        for group in &class.groups {
            let group = self.group(columns, lane, group)?;
            self.numbers.2.push(self.groups.insert_full(group).0 as u32);
        }
        let named = seen.as_ref().map_or(self.mems.list.len(), Mems::len);
        let known = (named, self.directions.len(), self.groups.len());
        let ops = if known == (class.mems.len(), class.ways.len(), class.groups.len()) {
            class.body.ops.clone()
        } else {
            self.renumbered()
        };
        let mems = seen.unwrap_or_else(|| self.mems.list[..].into());
        if mems != self.last.0 {
            self.last.0 = mems;
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
            let member = self.mems.insert(mem);
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
    let mem = |mem: u32| mems.of(mem);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_numbered_by_first_use() {
        let mut distinct = Distinct::default();
        for round in 0..300u64 {
            distinct.clear();
            let numbers: Vec<u32> =
                [5, 3, 5, 1 << 40, 3, 9 * round + 10].map(|offset| distinct.insert(Mem { buffer: 0, offset })).into();
            assert_eq!(numbers, [0, 1, 0, 2, 1, 3]);
            let many: Vec<u32> = (0..200).map(|at| distinct.insert(Mem { buffer: 1, offset: at * round })).collect();
            assert_eq!(many[0], 4);
            assert_eq!(many.last(), Some(&if round == 0 { 4 } else { 203 }));
        }
    }
}
