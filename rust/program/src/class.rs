//! Classes: agents that take the same path through a kernel.
//!
//! A [`Class`] is what one call of a kernel recorded: its operations, the conditions under which another agent's call
//! records the same ones, and the formulas behind its addresses and peers. [`Class::split`] tells the agents that fulfil
//! the conditions from the others, and gives each of them its own [`Body`]. The bodies share the operations.

mod columns;
mod member;
mod operands;
#[cfg(test)]
mod tests;

use crate::Body;
use crate::formula::{Formulas, Term};
use ahbm_machine::{Coord, Direction, Sfr};
use columns::{Columns, LANES};
use member::Members;
use std::collections::BTreeMap;

/// A condition of membership: the formula has this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    /// A formula of its coordinates.
    pub term: Term,
    /// The value that the recorded call saw.
    pub value: i64,
}

/// A range of virtual addresses that a kernel may touch; its index is the buffer's index in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// First byte.
    pub address: u64,
    /// Size.
    pub bytes: u64,
}

impl View {
    /// The byte behind the last one.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// Bytes that a kernel touches or names; they must lie in one view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// Virtual address of the first byte.
    pub address: Term,
    /// Number of bytes.
    pub bytes: u64,
}

/// A direction that a kernel names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The same for all members.
    Named(Direction),
    /// A PE by address: SIP, cube and PE; `None` means "same as mine".
    Peer([Option<Term>; 3]),
}

/// The same bytes at several SIPs, in which an operation inside the network takes part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// The bytes, by number of the access.
    pub access: u32,
    /// The SIPs, in order.
    pub sips: Box<[Term]>,
}

/// One recorded call of a kernel, with formulas where its numbers depend on the place.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// The operations; their memory operands index `mems`, their groups `groups` and their directions `ways`. The lists
    /// of the body for them are empty.
    pub body: Body,
    /// In the order in which the call asked.
    pub conditions: Vec<Condition>,
    /// Distinct ranges of memory that the call named.
    pub accesses: Vec<Access>,
    /// The accesses of the operations, in order of first use.
    pub mems: Vec<u32>,
    /// The groups of the operations, in order of first use.
    pub groups: Vec<Group>,
    /// The directions of the operations, in order of first use.
    pub ways: Vec<Way>,
}

/// The surroundings of the agents of a launch.
pub struct Surroundings<'a> {
    /// Where a kernel finds its buffers: view `k` is buffer `k` of its body. That of SIP `s` in a group is buffer
    /// `(1 + s) * views + k`.
    pub views: &'a [View],
    /// SIPs of the launch.
    pub sips: u32,
    /// Spells directions.
    pub sfr: &'a Sfr,
    /// The coordinates of an agent.
    pub coord: &'a dyn Fn(u32) -> Coord,
}

/// Agents that were found to differ from the members of a class in the same way.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    /// How many conditions of the class they fulfil; they do not fulfil the next one, or what follows the last one.
    pub fulfil: usize,
    /// The agents, in ascending order.
    pub agents: Vec<u32>,
}

/// The agents of a group, members or not.
#[derive(Debug, Default)]
pub struct Split {
    /// The members of the class in ascending order, and the body of each.
    pub members: Vec<(u32, Body)>,
    /// Everybody else.
    pub rest: Vec<Rest>,
}

impl Class {
    /// Finds the members among `agents` (ascending), which are known to fulfil the first `known` conditions.
    ///
    /// An agent is no member where a formula cannot be computed for it, or where an address lies outside the views or a
    /// peer is no other PE: the kernel raises an error there.
    pub fn split(&self, formulas: &Formulas, around: &Surroundings<'_>, agents: &[u32], known: usize) -> Split {
        let conditions = &self.conditions[known..];
        let parts = |way: &Way| if let Way::Peer(parts) = *way { parts } else { [None; 3] };
        let sips = self.groups.iter().flat_map(|group| group.sips.iter().copied());
        let addresses = self.accesses.iter().map(|access| access.address);
        let tables = addresses.chain(sips).chain(self.ways.iter().flat_map(parts).flatten());
        let mut columns = Columns::new(formulas, conditions.iter().map(|condition| condition.term).chain(tables));
        let mut members = Members::new(self, around);
        let mut split = Split::default();
        let mut rest: BTreeMap<(usize, Option<i64>), Vec<u32>> = BTreeMap::new();
        for block in agents.chunks(LANES) {
            columns.place(block, around.coord);
            let mut alive = u64::MAX >> (LANES - block.len());
            let mut leave = |mask: u64, fulfil: usize, value: &dyn Fn(usize) -> Option<i64>| {
                for lane in lanes(mask) {
                    rest.entry((fulfil, value(lane))).or_default().push(block[lane]);
                }
            };
            for (number, condition) in conditions.iter().enumerate() {
                let failed = columns.compute(number) & alive;
                leave(failed, known + number, &|_| None);
                alive &= !failed;
                let column = columns.of(condition.term);
                let equal = (0..LANES).fold(0, |mask, lane| mask | u64::from(column[lane] == condition.value) << lane);
                leave(alive & !equal, known + number, &|lane| Some(column[lane]));
                alive &= equal;
                if alive == 0 {
                    break;
                }
            }
            if alive == 0 {
                continue;
            }
            let failed = columns.compute_all() & alive;
            leave(failed, self.conditions.len(), &|_| None);
            members.block(&columns);
            for lane in lanes(alive & !failed) {
                match members.body(&columns, lane, (around.coord)(block[lane])) {
                    Some(body) => split.members.push((block[lane], body)),
                    None => leave(1 << lane, self.conditions.len(), &|_| None),
                }
            }
        }
        split.rest = rest.into_iter().map(|((fulfil, _), agents)| Rest { fulfil, agents }).collect();
        split
    }
}

/// The lanes of a mask, in ascending order.
fn lanes(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(lane)
    })
}
