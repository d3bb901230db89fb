//! The steps of one agent, and the homes of its values.

use super::queues::Blocks;
use super::scratch::Scratch;
use super::script::{Act, Run, Script};
use super::{Captured, origin};
use crate::blocks::{Action, Slot};
use crate::{BlockId, Budget, Limit, PlanBuilder, Space, StepId, StepSpec};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Origin, OriginId};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Operations that are looked at to find where a value will be stored or added: more would take time, not make plans
/// better.
const AHEAD: usize = 512;

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In the array.
    Array(Run),
    /// In scratch, from this chunk on.
    Scratch(u32),
}

/// Writes the steps of one agent.
pub(super) struct Writer<'a> {
    given: &'a Captured<'a>,
    budget: &'a Budget,
    rank: u32,
    script: &'a Script,
    /// The space of the array, and the bytes of a chunk.
    whole: Space,
    chunk: u64,
    blocks: Blocks,
    homes: Vec<Option<Home>>,
    /// The values without a home whose message is taken by the sum that reads them.
    messages: FxHashMap<usize, (BlockId, OriginId)>,
    scratch: Scratch,
    /// First byte and value of those that are at home in the array, and the size of the largest.
    resident: BTreeSet<(u64, usize)>,
    widest: u64,
    /// The step before, and the thread block of the last one that is not about a posted receive.
    before: Option<StepId>,
    here: Option<BlockId>,
    /// Posted receives by value, and those that have been waited for since the step before.
    posted: FxHashMap<usize, StepId>,
    awaited: Vec<StepId>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        given: &'a Captured<'a>,
        agent: AgentId,
        script: &'a Script,
        (whole, chunk): (Space, u64),
        blocks: Blocks,
        budget: &'a Budget,
    ) -> Self {
        Self {
            given,
            budget,
            rank: given.program.agents[agent.0 as usize].rank,
            script,
            whole,
            chunk,
            here: blocks.first,
            blocks,
            homes: vec![None; script.values.len()],
            messages: FxHashMap::default(),
            scratch: Scratch::default(),
            resident: BTreeSet::new(),
            widest: 0,
            before: None,
            posted: FxHashMap::default(),
            awaited: Vec::new(),
        }
    }

    /// All steps; returns the chunks of scratch that they need.
    pub(super) fn write(mut self, plan: &mut PlanBuilder) -> Result<u32, Diagnostic> {
        let script = self.script;
        for (now, &(act, origin)) in script.acts.iter().enumerate() {
            self.act(plan, now, act, origin)?;
            match act {
                Act::Store { value, .. } | Act::Send { value, .. } | Act::Await { value } => self.part(value, now),
                Act::Sum { value, a, b } => [a, b, value].into_iter().for_each(|value| self.part(value, now)),
                Act::Load { value, .. } | Act::Recv { value, .. } => self.part(value, now),
                // Its message arrives whether or not anybody waits.
                Act::Post { .. } => {}
            }
            self.budget.check(Limit::Cells, self.scratch.chunks)?;
        }
        Ok(u32::try_from(self.scratch.chunks).unwrap_or(u32::MAX))
    }

    fn act(&mut self, plan: &mut PlanBuilder, now: usize, act: Act, origin: OriginId) -> Result<(), Diagnostic> {
        match act {
            Act::Load { value, at } => self.settle(value, Home::Array(at)),
            Act::Store { value, at } => self.store(plan, now, value, at, origin)?,
            Act::Send { channel, value } => {
                let src = self.slot(value);
                self.here = Some(self.blocks.sends[&channel]);
                self.local(plan, Action::Send, [src, src], value, origin)?;
            }
            Act::Recv { channel, value } => {
                let block = self.blocks.receives[&channel];
                if self.is_added(now, value) {
                    self.messages.insert(value, (block, origin));
                    return Ok(());
                }
                let home = self.stored(now, value).map_or_else(|| self.room(value), Home::Array);
                self.settle(value, home);
                let dst = self.slot(value);
                self.receive(plan, block, Action::Recv, [dst, dst], value, self.origin(origin))?;
            }
            Act::Post { channel, value } => {
                let home = self.room(value);
                self.settle(value, home);
                let (dst, block) = (self.slot(value), self.blocks.receives[&channel]);
                let after = self.before.into_iter().chain(self.awaited.iter().copied()).collect();
                let spec = StepSpec { count: self.count(value), after, ..StepSpec::new(Action::Recv, dst, dst) };
                let step = plan.step(block, &spec, self.origin(origin))?;
                self.posted.insert(value, step);
            }
            Act::Await { value } => self.awaited.extend(self.posted.get(&value)),
            Act::Sum { value, a, b } => self.sum(plan, now, value, [a, b], origin)?,
        }
        Ok(())
    }

    fn sum(
        &mut self,
        plan: &mut PlanBuilder,
        now: usize,
        value: usize,
        [a, b]: [usize; 2],
        origin: OriginId,
    ) -> Result<(), Diagnostic> {
        let (a, b) = if self.messages.contains_key(&a) { (b, a) } else { (a, b) };
        // Scratch of an operand that nobody else reads is the sum's.
        let inherited = [a, b].into_iter().find_map(|of| match self.homes[of] {
            Some(home @ Home::Scratch(_)) if !self.script.values[of].lives(now) => Some(home),
            _ => None,
        });
        let stored = self.stored_sum(now, value, [a, b]).map(Home::Array);
        let home = stored.or(inherited).unwrap_or_else(|| self.room(value));
        let dst = self.slot_of(home);
        if let Some((block, sent)) = self.messages.remove(&b) {
            let src = self.slot(a);
            let both = Origin::fused(self.origin(sent), [self.origin(origin)]);
            self.receive(plan, block, Action::RecvReduceCopy, [src, dst], value, both)?;
        } else {
            let [mut first, mut second] = [a, b].map(|of| self.slot(of));
            if second == dst {
                (first, second) = (second, first);
            }
            // Runtimes do reductions into one place at once: what is there when they begin is no operand of the second.
            let count = self.count(value);
            let twice = (first == second && first == dst).then(|| self.scratch.take(count));
            if let Some(chunk) = twice {
                second = Slot { space: Space::Scratch, chunk };
                self.local(plan, Action::Copy, [first, second], value, origin)?;
            } else if first != dst {
                self.local(plan, Action::Copy, [first, dst], value, origin)?;
            }
            self.local(plan, Action::Reduce, [second, dst], value, origin)?;
            if let Some(chunk) = twice {
                self.scratch.give(chunk, count);
            }
        }
        for of in [a, b] {
            if self.homes[of] == Some(home) {
                self.leave(of);
            }
        }
        self.settle(value, home);
        Ok(())
    }

    fn store(
        &mut self,
        plan: &mut PlanBuilder,
        now: usize,
        value: usize,
        at: Run,
        origin: OriginId,
    ) -> Result<(), Diagnostic> {
        if self.homes[value] == Some(Home::Array(at)) {
            return Ok(());
        }
        // What is overwritten and read later moves away first, the value itself if it stands there in part.
        for other in self.residents(at) {
            if other == value || self.script.values[other].lives(now) {
                let src = self.slot(other);
                self.leave(other);
                let home = self.room(other);
                self.settle(other, home);
                let dst = self.slot(other);
                self.local(plan, Action::Copy, [src, dst], other, origin)?;
            }
        }
        let (src, dst) = (self.slot(value), self.slot_of(Home::Array(at)));
        self.local(plan, Action::Copy, [src, dst], value, origin)?;
        if matches!(self.homes[value], Some(Home::Scratch(_))) {
            self.part_from(value);
            self.settle(value, Home::Array(at));
        }
        Ok(())
    }

    /// Whether a message is read by one sum alone, before anything else happens between ranks: then the step that takes
    /// it also adds it.
    fn is_added(&self, now: usize, value: usize) -> bool {
        let &[at] = &self.script.values[value].uses[..] else { return false };
        let local = |(act, _): &(Act, OriginId)| matches!(act, Act::Load { .. } | Act::Store { .. } | Act::Sum { .. });
        at - now <= AHEAD
            && matches!(self.script.acts[at].0, Act::Sum { .. })
            && self.script.acts[now + 1..at].iter().all(local)
    }

    /// Where a value that is made now will be stored, if it can be at home there from now on: nothing reads or writes
    /// the place before, and nothing that is read later stands there.
    fn stored(&self, now: usize, value: usize) -> Option<Run> {
        let acts = &self.script.acts;
        let uses = &self.script.values[value].uses;
        let (store, at) = uses.iter().find_map(|&at| match acts[at].0 {
            Act::Store { at: run, .. } => Some((at, run)),
            _ => None,
        })?;
        if store - now > AHEAD {
            return None;
        }
        let touches = |(act, _): &(Act, OriginId)| match act {
            Act::Load { at: other, .. } | Act::Store { at: other, .. } => at.overlaps(*other),
            _ => false,
        };
        let taken = acts[now + 1..store].iter().any(touches)
            || self.residents(at).iter().any(|&other| self.script.values[other].lives(now));
        (!taken).then_some(at)
    }

    /// As [`Self::stored`], for a sum: its operands may stand there, but not beside it.
    fn stored_sum(&self, now: usize, value: usize, operands: [usize; 2]) -> Option<Run> {
        let beside = |at: Run| {
            operands.iter().any(|&of| matches!(self.homes[of], Some(Home::Array(run)) if run != at && run.overlaps(at)))
        };
        self.stored(now, value).filter(|&at| !beside(at))
    }

    /// Scratch for a value.
    fn room(&mut self, value: usize) -> Home {
        let count = self.count(value);
        Home::Scratch(self.scratch.take(count))
    }

    /// Gives a value its home.
    fn settle(&mut self, value: usize, home: Home) {
        if let Home::Array(run) = home {
            self.resident.insert((run.first, value));
            self.widest = self.widest.max(run.bytes);
        }
        self.homes[value] = Some(home);
    }

    /// Takes a value's home from it, which is not free.
    fn leave(&mut self, value: usize) {
        if let Some(Home::Array(run)) = self.homes[value].take() {
            self.resident.remove(&(run.first, value));
        }
    }

    /// As [`Self::leave`], and gives its scratch back.
    fn part_from(&mut self, value: usize) {
        if let Some(Home::Scratch(first)) = self.homes[value] {
            self.scratch.give(first, self.count(value));
        }
        self.leave(value);
    }

    /// Parts from a value that nothing reads any more.
    fn part(&mut self, value: usize, now: usize) {
        if !self.script.values[value].lives(now) {
            self.part_from(value);
        }
    }

    /// The values at home in some of these bytes of the array.
    fn residents(&self, at: Run) -> Vec<usize> {
        let from = at.first.saturating_sub(self.widest);
        let near = self.resident.range((from, 0)..(at.first + at.bytes, 0));
        let here =
            |&&(_, value): &&(u64, usize)| matches!(self.homes[value], Some(Home::Array(run)) if run.overlaps(at));
        near.filter(here).map(|&(_, value)| value).collect()
    }

    fn slot_of(&self, home: Home) -> Slot {
        match home {
            Home::Array(run) => Slot { space: self.whole, chunk: (run.first / self.chunk) as u32 },
            Home::Scratch(chunk) => Slot { space: Space::Scratch, chunk },
        }
    }

    fn slot(&self, value: usize) -> Slot {
        self.homes[value].map_or(Slot { space: Space::Scratch, chunk: u32::MAX }, |home| self.slot_of(home))
    }

    fn count(&self, value: usize) -> u32 {
        (self.script.values[value].bytes / self.chunk) as u32
    }

    fn origin(&self, id: OriginId) -> Origin {
        origin(self.given, id)
    }

    /// A step that takes a message.
    fn receive(
        &mut self,
        plan: &mut PlanBuilder,
        block: BlockId,
        action: Action,
        slots: [Slot; 2],
        value: usize,
        at: Origin,
    ) -> Result<(), Diagnostic> {
        if !self.blocks.posted.contains(&block) {
            self.here = Some(block);
        }
        self.step(plan, block, action, slots, value, at)
    }

    /// A step of the thread block of the step before.
    fn local(
        &mut self,
        plan: &mut PlanBuilder,
        action: Action,
        slots: [Slot; 2],
        value: usize,
        at: OriginId,
    ) -> Result<(), Diagnostic> {
        let at = self.origin(at);
        let block = match self.here {
            Some(block) => block,
            None => plan.block(self.rank, None, None, 0, at.clone())?,
        };
        self.here = Some(block);
        self.step(plan, block, action, slots, value, at)
    }

    /// The next step, behind the one before.
    fn step(
        &mut self,
        plan: &mut PlanBuilder,
        block: BlockId,
        action: Action,
        [src, dst]: [Slot; 2],
        value: usize,
        at: Origin,
    ) -> Result<(), Diagnostic> {
        let after = self.before.into_iter().chain(self.awaited.drain(..)).collect();
        let spec = StepSpec { count: self.count(value), after, ..StepSpec::new(action, src, dst) };
        self.before = Some(plan.step(block, &spec, at)?);
        Ok(())
    }
}
