//! Copies: ranks that are the same up to a renumbering, as the data-parallel replicas of a model are.
//!
//! A job of n copies that do the same has n times the nodes of one. Where renumberings of the ranks leave the job as it
//! is, one rank of those that they take to each other stands for all, and only its nodes, calls and messages are kept.

use crate::workload::Workload;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

/// A renumbering of ranks: in every block of ranks, each moves on by `shift`, the last to the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// Ranks of a block.
    block: u32,
    /// By how many ranks each moves on.
    shift: u32,
}

impl Turn {
    /// Nothing moves.
    const NONE: Self = Self { block: 1, shift: 1 };

    fn count(self) -> u32 {
        self.block / self.shift
    }

    fn lead(self, rank: u32) -> u32 {
        rank - rank % self.block + rank % self.block % self.shift
    }

    fn copy(self, rank: u32, nth: u32) -> u32 {
        let within = u64::from(rank % self.block) + u64::from(nth) * u64::from(self.shift);
        rank - rank % self.block + (within % u64::from(self.block)) as u32
    }
}

/// Renumberings that leave a job as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// The block of each divides the shift of the one before, so that each turns what no other does.
    turns: [Turn; MOST],
}

/// More ways in which ranks of a job are alike are not looked for: tensor- and data-parallel ones, and one more.
const MOST: usize = 3;

impl Copies {
    /// How many copies there are of a rank.
    pub fn count(self) -> u32 {
        self.turns.iter().map(|turn| turn.count()).product()
    }

    /// The lowest rank of which a rank is a copy.
    pub fn lead(self, rank: u32) -> u32 {
        self.turns.iter().fold(rank, |rank, turn| turn.lead(rank))
    }

    /// Whether a rank is the lowest of its copies.
    pub fn leads(self, rank: u32) -> bool {
        self.lead(rank) == rank
    }

    /// The number of the lead of a rank among those that lead.
    pub(crate) fn index(self, rank: u32) -> usize {
        let within = |rank, turn: &Turn| rank / turn.block * turn.shift + rank % turn.block % turn.shift;
        self.turns.iter().fold(rank, within) as usize
    }

    /// A copy of a rank, `nth` below [`Copies::count`]; the rank itself where that is 0.
    pub fn copy(self, rank: u32, nth: u32) -> u32 {
        let step = |(rank, nth): (u32, u32), turn: &Turn| (turn.copy(rank, nth % turn.count()), nth / turn.count());
        self.turns.iter().fold((rank, nth), step).0
    }

    /// The numbers of copies of ranks whose order does not count that are distinct; the first is 0, the ranks themselves.
    pub fn of(self, ranks: &[u32]) -> Vec<u32> {
        let sorted = |moved: &dyn Fn(u32) -> u32| {
            let mut moved: Vec<u32> = ranks.iter().map(|&rank| moved(rank)).collect();
            moved.sort_unstable();
            moved
        };
        let own = sorted(&|rank| rank);
        let (mut numbers, mut stride, mut moving) = (vec![0], 1, 0);
        for turn in self.turns {
            let count = turn.count();
            let back = |nth: &u32| count.is_multiple_of(*nth) && sorted(&|rank| turn.copy(rank, *nth)) == own;
            let period = (1..count).find(back).unwrap_or(count);
            numbers = (0..period).flat_map(|nth| numbers.iter().map(move |low| low + stride * nth)).collect();
            stride *= count;
            moving += u32::from(period > 1);
        }
        if moving > 1 {
            let mut seen = FxHashSet::default();
            numbers.retain(|&nth| seen.insert(sorted(&|rank| self.copy(rank, nth))));
        }
        numbers
    }
}

impl Workload {
    /// The renumberings with the most copies; none where no two ranks are copies of each other.
    ///
    /// What they must keep: graphs, the groups that ranks call and the order of the members of each, and peers. The order
    /// may turn where the calls of the group ask for the same of every member; a root moves nowhere. Peers of ranks that
    /// lead do, too.
    pub fn copies(&self) -> Option<Copies> {
        let ranks = self.ranks.len() as u32;
        let divisors = |of: u32| (1..=of).filter(move |by| of.is_multiple_of(*by));
        let run = |from: usize| self.ranks[from..].iter().take_while(|r| r.graph == self.ranks[from].graph).count();
        // Blocks end where graphs change.
        let mut common = 0;
        let mut at = 0;
        while at < self.ranks.len() {
            let length = run(at);
            common = gcd(common, length as u32);
            at += length;
        }
        let even = self.even_slots()?;
        let turn =
            |block: u32| divisors(block).filter(move |&shift| shift < block).map(move |shift| Turn { block, shift });
        let mut turns: Vec<Turn> =
            divisors(common.max(1)).filter(|block| ranks.is_multiple_of(*block)).flat_map(turn).collect();
        turns.sort_by_key(|turn| (std::cmp::Reverse(turn.count()), turn.block));
        let mut found: Vec<Turn> = Vec::new();
        for turn in turns {
            let apart = |known: &Turn| known.shift.is_multiple_of(turn.block) || turn.shift.is_multiple_of(known.block);
            if found.len() < MOST && found.iter().all(apart) && self.allows(turn, &even) {
                found.push(turn);
                found.sort_by_key(|turn| std::cmp::Reverse(turn.block));
            }
        }
        let mut copies = Copies { turns: [Turn::NONE; MOST] };
        copies.turns.iter_mut().zip(&found).for_each(|(own, turn)| *own = *turn);
        (copies.count() > 1).then_some(copies)
    }

    fn allows(&self, copies: Turn, even: &[Vec<bool>]) -> bool {
        let mut images: FxHashMap<u32, u32> = FxHashMap::default();
        (0..self.ranks.len() as u32).all(|rank| {
            let (own, other) = (&self.ranks[rank as usize], &self.ranks[copies.copy(rank, 1) as usize]);
            let even = &even[own.graph as usize];
            let mut same = |(slot, (&one, &copy)): (usize, (&u32, &u32))| match images.entry(one) {
                Entry::Occupied(known) => *known.get() == copy,
                Entry::Vacant(new) => {
                    new.insert(copy);
                    self.turned(one, copy, copies, even.get(slot).copied().unwrap_or(true))
                }
            };
            own.graph == other.graph
                && own.groups.len() == other.groups.len()
                && own.groups.iter().zip(&other.groups).enumerate().all(&mut same)
                && own.peers.len() == other.peers.len()
                && own.peers.iter().zip(&other.peers).all(|(&peer, &its)| copies.copy(peer, 1) == its)
                && (copies.lead(rank) != rank || own.peers.iter().all(|&peer| copies.lead(peer) == peer))
        })
    }

    /// Whether a group is the copy of another one, its order turned at most, where that is `even`.
    fn turned(&self, one: u32, copy: u32, copies: Turn, even: bool) -> bool {
        let [own, its] = [one, copy].map(|group| &self.groups[group as usize].ranks);
        let moved = || own.iter().map(|&rank| copies.copy(rank, 1));
        let Some(first) = moved().next() else { return its.is_empty() };
        if own.len() != its.len() {
            return false;
        }
        if moved().eq(its.iter().copied()) {
            // What was made for ascending ranks must fit.
            return own.is_sorted() && its.is_sorted();
        }
        let at = its.iter().position(|&rank| rank == first);
        let turned = |at: usize| moved().eq(its[at..].iter().chain(&its[..at]).copied());
        even && one == copy && own.is_sorted() && at.is_some_and(turned)
    }

    /// Per graph and slot of a group, whether its calls ask for the same of every member; none where one has a root.
    fn even_slots(&self) -> Option<Vec<Vec<bool>>> {
        let of = |graph: &crate::Graph| {
            let mut even: Vec<bool> = Vec::new();
            for at in 0..graph.nodes().len() as u32 {
                let Some(spec) = graph.spec(at) else { continue };
                if spec.root.is_some() {
                    return None;
                }
                let slot = spec.group as usize;
                even.resize(even.len().max(slot + 1), true);
                even[slot] &= spec.sends.is_none() && spec.receives.is_none() && spec.through.is_none();
            }
            Some(even)
        };
        self.graphs.iter().map(of).collect()
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
