//! What every schedule comes down to: items with their owners and takers, and moves of items between ranks.

use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::Places;
use ahbm_plan::{Budget, Collective, Goal, Limit, Plan, Transfer, Transfers};
use ahbm_program::{Locus, Origin};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A piece of data that travels under one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// The ranks whose operand it is part of, in ascending order; several are reduced.
    pub(super) owners: Vec<u32>,
    /// The ranks that are to have it, in ascending order.
    pub(super) takers: Vec<u32>,
}

/// An item from one rank to another; from a rank to itself, a copy of what it has, which it may send later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) item: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The receiver adds it to its own.
    pub(super) adds: bool,
    /// The sender's last copy of the item is sent.
    pub(super) copied: bool,
    /// When it is expected to arrive, in any unit.
    pub(super) at: u64,
    /// Where it was written: an index into the places.
    pub(super) place: u32,
}

/// A schedule.
#[derive(Debug, Clone)]
pub(super) struct Moves {
    pub(super) name: String,
    pub(super) ranks: u32,
    pub(super) items: Vec<Item>,
    /// In an order that respects every dependence.
    pub(super) list: Vec<Move>,
    /// Lines or pointers in the file.
    pub(super) places: Vec<Locus>,
    /// The collective, where the file names it.
    pub(super) named: Option<Collective>,
    /// What is odd about the file.
    pub(super) warnings: Vec<Diagnostic>,
}

impl Moves {
    /// The plan.
    pub(super) fn into_plan(self, file: &str, budget: &Budget) -> Result<Plan, Diagnostic> {
        budget.check(Limit::Ranks, self.ranks.into())?;
        budget.check(Limit::Steps, 2 * self.list.len() as u64)?;
        let unknown = |what: String| Diagnostic::new("AHBM-U295", what).site("schedule", file);
        let (goal, blocks) = self.goal().ok_or_else(|| {
            unknown(format!("{}: no collective gives these pieces to these ranks", self.name))
                .hint("pieces of one collective, the same number of each rank")
        })?;
        let relation = Goal::relation(goal).filter(|_| goal.collective().is_some());
        let count = match (goal.collective(), relation) {
            (Some(Collective::AllToAll), _) => u64::from(self.ranks) * u64::from(self.ranks),
            (_, Some(relation)) if relation.is_chunked() => self.ranks.into(),
            _ => 1,
        };
        let mut filled: FxHashMap<u32, u32> = FxHashMap::default();
        let mut numbers = Vec::with_capacity(self.items.len());
        for &block in &blocks {
            let next = filled.entry(block).or_default();
            numbers.push((block, *next));
            *next += 1;
        }
        let pieces = filled.values().copied().max().unwrap_or(0);
        budget.check(Limit::Steps, u64::from(pieces).saturating_mul(count))?;
        if let Some((&block, &few)) = filled.iter().filter(|(_, few)| **few != pieces).min() {
            return Err(unknown(format!("block {block} has {few} pieces, others have {pieces}")));
        }
        let number = |item: u32| {
            let (block, index) = numbers[item as usize];
            block * pieces + index
        };
        // Copies are numbered behind all pieces.
        let registers = count as u32 * pieces;
        let (mut parcels, mut copies) = (Vec::new(), FxHashMap::default());
        let mut list = Vec::with_capacity(self.list.len());
        for &Move { item, from, to, adds, copied, at, .. } in &self.list {
            let (mut source, mut target) = (number(item), number(item));
            if from == to {
                target = registers + parcels.len() as u32;
                parcels.push(source);
                copies.insert((item, from), target);
            } else if copied {
                source = copies.get(&(item, from)).copied().unwrap_or(source);
            }
            list.push(Transfer { from, to, channel: 0, source, target, adds, at });
        }
        let mut plan = Plan::from_transfers(&Transfers {
            name: self.name.clone(),
            goal,
            ranks: self.ranks,
            relays: 0,
            one_port: false,
            pieces: &vec![1; pieces as usize],
            parcels: &parcels,
            list: &list,
        })?;
        self.place(&mut plan, file);
        plan.warnings = self.warnings;
        Ok(plan)
    }

    /// Gives every step the place of its move. The steps of a queue are its moves in order.
    fn place(&self, plan: &mut Plan, file: &str) {
        let file: Arc<str> = file.into();
        let whole = std::iter::once(Locus::Whole);
        let places = whole.chain(self.places.iter().cloned());
        plan.places = Places::Listed(places.map(|locus| Origin { file: Arc::clone(&file), locus }).collect());
        plan.file = file;
        let mut queues: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for one in &self.list {
            queues.entry((one.from, one.to)).or_default().push(1 + one.place);
        }
        for (rank, work) in (0u32..).zip(&mut plan.ranks) {
            for block in &mut work.blocks {
                let ends = block.send.map(|to| (rank, to)).or(block.recv.map(|from| (from, rank)));
                let Some(places) = ends.and_then(|ends| queues.get(&ends)) else { continue };
                block.line = places[0];
                let mut next = places.iter();
                for step in &mut block.steps {
                    step.line = next.as_slice().first().copied().unwrap_or(0);
                    if step.action.sends() || step.action.receives() {
                        next.next();
                    }
                }
            }
        }
    }

    /// The collective, and the block of every item.
    fn goal(&self) -> Option<(Goal, Vec<u32>)> {
        let n = self.ranks;
        let all = |ranks: &[u32]| ranks.len() == n as usize;
        let owner = |item: &Item| item.owners[0];
        if self.items.is_empty() || self.items.iter().any(|item| item.owners.is_empty() || item.takers.is_empty()) {
            return None;
        }
        let found = |collective, root, block: &dyn Fn(&Item) -> u32| {
            let blocks = self.items.iter().map(block).collect();
            let fits = self.named.is_none_or(|named| named == collective);
            fits.then_some((Goal::new(collective, root), blocks))
        };
        let only = |item: &Item, besides: Option<u32>| {
            let mut rest = item.takers.iter().copied().filter(|&rank| Some(rank) != besides);
            rest.next().filter(|_| rest.next().is_none())
        };
        let to_all = self.items.iter().all(|item| all(&item.takers));
        if n > 1 && self.items.iter().all(|item| all(&item.owners)) {
            let taker = |item: &Item| if item.takers.len() == 1 { item.takers[0] } else { u32::MAX };
            let first = taker(&self.items[0]);
            if to_all {
                return found(Collective::AllReduce, 0, &|_| 0);
            }
            if self.items.iter().any(|item| taker(item) == u32::MAX) {
                return None;
            }
            if self.items.iter().all(|item| taker(item) == first) && self.covers(taker) != Some(n) {
                return found(Collective::Reduce, first, &|_| 0);
            }
            return (self.covers(taker) == Some(n)).then(|| found(Collective::ReduceScatter, 0, &taker))?;
        }
        if self.items.iter().any(|item| item.owners.len() != 1) {
            return None;
        }
        let first = owner(&self.items[0]);
        let one_source = self.items.iter().all(|item| owner(item) == first);
        let spreads = self.items.iter().all(|item| {
            let others = item.takers.iter().filter(|&&rank| rank != owner(item)).count();
            others + 1 == n as usize
        });
        if spreads && self.named != Some(Collective::AllToAll) && (n > 2 || to_all || self.named.is_some()) {
            if self.covers(owner) == Some(n) {
                return found(Collective::AllGather, 0, &owner);
            }
            if one_source {
                return found(Collective::Broadcast, first, &|_| 0);
            }
        }
        // A piece that stays where it is belongs to its owner.
        let taker = |item: &Item| only(item, Some(owner(item))).or_else(|| only(item, None)).unwrap_or(u32::MAX);
        if self.items.iter().any(|item| taker(item) == u32::MAX || item.takers.len() > 2) {
            return None;
        }
        let goes_to = self.items.iter().map(taker).find(|&to| to != first).unwrap_or(first);
        if one_source {
            return found(Collective::Scatter, first, &taker);
        }
        if self.items.iter().all(|item| taker(item) == goes_to || owner(item) == goes_to) && self.to_one(goes_to) {
            return found(Collective::Gather, goes_to, &owner);
        }
        found(Collective::AllToAll, 0, &|item| owner(item) * n + taker(item))
    }

    /// Whether everything goes to one rank.
    fn to_one(&self, root: u32) -> bool {
        self.items.iter().all(|item| item.takers.iter().all(|&rank| rank == root || item.owners == [rank]))
            && self.items.iter().all(|item| item.takers.contains(&root))
    }

    /// How many ranks an item belongs to, by `of`.
    fn covers(&self, of: impl Fn(&Item) -> u32) -> Option<u32> {
        let mut seen: Vec<u32> = self.items.iter().map(of).collect();
        seen.sort_unstable();
        seen.dedup();
        u32::try_from(seen.len()).ok()
    }
}
