//! Plans that are written step by step, every step with the place its author wrote it at.
//!
//! ```
//! use ahbm_plan::{Budget, Collective, PlanBuilder, Space, StepSpec};
//! use ahbm_plan::blocks::{Action, Slot};
//! use ahbm_program::{Locus, Origin};
//!
//! // Rank 0 sends its buffer to rank 1.
//! let at = |line| Origin { file: "pair.py".into(), locus: Locus::Line(line) };
//! let goal = Collective::Broadcast.into();
//! let mut plan = PlanBuilder::new("pair", goal, 2, 1, Budget::default(), at(1))?;
//! let sender = plan.block(0, Some(1), None, 0, at(2))?;
//! let receiver = plan.block(1, None, Some(0), 0, at(3))?;
//! let chunk = Slot { space: Space::Input, chunk: 0 };
//! plan.step(sender, &StepSpec::new(Action::Send, chunk, chunk), at(4))?;
//! plan.step(receiver, &StepSpec::new(Action::Recv, chunk, chunk), at(5))?;
//! let plan = plan.finish().expect("a plan that can be followed");
//! assert_eq!((plan.blocks(), plan.steps()), (2, 2));
//! # Ok::<(), ahbm_findings::Diagnostic>(())
//! ```

use crate::blocks::{Action, Block, Dep, Places, Plan, Precopy, Rank, Slot, Step};
use crate::{Budget, Goal, Limit, Protocol};
use ahbm_findings::Diagnostic;
use ahbm_program::Origin;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// A thread block of a [`PlanBuilder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId(u32);

/// A step of a [`PlanBuilder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepId(u32);

impl From<BlockId> for u32 {
    fn from(id: BlockId) -> Self {
        id.0
    }
}

impl From<u32> for BlockId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

impl From<StepId> for u32 {
    fn from(id: StepId) -> Self {
        id.0
    }
}

impl From<u32> for StepId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

/// The action of a step, and the steps after which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSpec {
    /// The action of the step.
    pub action: Action,
    /// The slot that it reads.
    pub src: Slot,
    /// The slot that it writes.
    pub dst: Slot,
    /// Consecutive chunks.
    pub count: u32,
    /// Steps of the rank that have run before; those of its own thread block have anyway.
    pub after: Vec<StepId>,
}

impl StepSpec {
    /// One chunk, after the steps before it.
    pub fn new(action: Action, src: Slot, dst: Slot) -> Self {
        Self { action, src, dst, count: 1, after: Vec::new() }
    }
}

/// Writes a [`Plan`]. Ranks, thread blocks and steps are bounded by a budget, as those of a file are.
#[derive(Debug, Clone)]
pub struct PlanBuilder {
    plan: Plan,
    budget: Budget,
    places: IndexSet<Origin, FxBuildHasher>,
    /// Rank and index of every thread block.
    blocks: Vec<(u32, u32)>,
    /// Rank and place of every step.
    steps: Vec<(u32, Dep)>,
    /// Steps so far, those that only wait included.
    written: u64,
}

impl PlanBuilder {
    /// An empty plan for `ranks` ranks, whose larger buffer has `chunks` chunks. It runs out of place, by the protocol
    /// Simple, until it is told otherwise.
    ///
    /// # Errors
    /// `AHBM-C120` without ranks or for a root outside of them, `AHBM-F119` without chunks, `AHBM-B206`.
    pub fn new(
        name: &str,
        goal: Goal,
        ranks: u32,
        chunks: u32,
        budget: Budget,
        at: Origin,
    ) -> Result<Self, Diagnostic> {
        budget.check(Limit::Ranks, ranks.into())?;
        let root = goal.parameter().filter(|(name, _)| *name == "root").map_or(0, |(_, root)| root);
        if root >= ranks {
            return Err(Diagnostic::new("AHBM-C120", format!("root {root} of {ranks} ranks")));
        }
        if chunks == 0 {
            return Err(Diagnostic::new("AHBM-F119", "a plan of no chunks"));
        }
        let plan = Plan {
            name: name.to_owned(),
            file: at.file.clone(),
            places: Places::Nowhere,
            goal,
            in_place: false,
            out_of_place: true,
            protocol: Protocol::Simple,
            channels: 1,
            chunks,
            min_bytes: None,
            max_bytes: None,
            ranks: vec![Rank::default(); ranks as usize],
            relays: 0,
            warnings: Vec::new(),
        };
        let mut places = IndexSet::default();
        places.insert(at);
        Ok(Self { plan, budget, places, blocks: Vec::new(), steps: Vec::new(), written: 0 })
    }

    /// Input and output are one memory.
    pub fn in_place(&mut self) {
        (self.plan.in_place, self.plan.out_of_place) = (true, false);
    }

    /// How messages travel.
    pub fn protocol(&mut self, protocol: Protocol) {
        self.plan.protocol = protocol;
    }

    /// The rank has at least so many chunks of input, output and scratch.
    ///
    /// # Errors
    /// `AHBM-C120` for a rank that does not exist.
    pub fn declare(&mut self, rank: u32, chunks: [u32; 3]) -> Result<(), Diagnostic> {
        let declared = &mut self.rank(rank)?.declared;
        for (declared, chunks) in declared.iter_mut().zip(chunks) {
            *declared = chunks.max(*declared);
        }
        Ok(())
    }

    /// A thread block of `rank`, which may send to one rank and receive from one, over queues of a channel.
    ///
    /// # Errors
    /// `AHBM-C120` for a rank that does not exist, `AHBM-B204`.
    pub fn block(
        &mut self,
        rank: u32,
        send: Option<u32>,
        recv: Option<u32>,
        channel: u32,
        at: Origin,
    ) -> Result<BlockId, Diagnostic> {
        self.admit(1)?;
        let line = self.place(at);
        let blocks = &mut self.rank(rank)?.blocks;
        blocks.push(Block { send, recv, channel, steps: Vec::new(), line });
        let index = blocks.len() as u32 - 1;
        self.plan.channels = self.plan.channels.max(channel.saturating_add(1));
        self.blocks.push((rank, index));
        Ok(BlockId(self.blocks.len() as u32 - 1))
    }

    /// The next step of a thread block.
    ///
    /// # Errors
    /// `AHBM-C204` for a thread block that does not exist, `AHBM-F115` for a step to be waited for that does not exist
    /// or is another rank's, `AHBM-B204`.
    pub fn step(&mut self, block: BlockId, spec: &StepSpec, at: Origin) -> Result<StepId, Diagnostic> {
        let Some(&(rank, index)) = self.blocks.get(block.0 as usize) else {
            return Err(Diagnostic::new("AHBM-C204", format!("there is no thread block {}", block.0)));
        };
        let mut waits = Vec::with_capacity(spec.after.len());
        for id in &spec.after {
            match self.steps.get(id.0 as usize) {
                Some(&(whose, dep)) if whose == rank => waits.push(dep),
                Some(&(whose, _)) => {
                    let text = format!("a step of rank {rank} waits for step {}, which is rank {whose}'s", id.0);
                    let finding = Diagnostic::new("AHBM-F115", text).site("step", at.to_string());
                    return Err(finding.hint("what another rank does is waited for by receiving from it"));
                }
                None => {
                    let text = format!("waits for step {}, which does not exist", id.0);
                    return Err(Diagnostic::new("AHBM-F115", text).site("step", at.to_string()));
                }
            }
        }
        waits.retain(|dep| dep.block != index);
        self.admit(waits.len().max(1) as u64)?;
        let line = self.place(at);
        let blocks = &mut self.plan.ranks[rank as usize].blocks;
        waits.iter().for_each(|dep| blocks[dep.block as usize].steps[dep.step as usize].posts = true);
        let last = waits.pop();
        let StepSpec { action, src, dst, count, .. } = *spec;
        let step = |action, wait| Step { action, src, dst, count, wait, posts: false, line };
        let steps = &mut blocks[index as usize].steps;
        // A step waits for one other; those before it do nothing else.
        steps.extend(waits.into_iter().map(|dep| step(Action::Nop, Some(dep))));
        steps.push(step(action, last));
        let dep = Dep { block: index, step: steps.len() as u32 - 1 };
        self.steps.push((rank, dep));
        Ok(StepId(self.steps.len() as u32 - 1))
    }

    /// A copy from input to output that no thread block does: before all of them start, or after all have ended. In
    /// place nothing happens.
    ///
    /// # Errors
    /// `AHBM-C120` for a rank that does not exist, `AHBM-B204`.
    pub fn copy(
        &mut self,
        rank: u32,
        [input, output, count]: [u32; 3],
        after: bool,
        at: Origin,
    ) -> Result<(), Diagnostic> {
        self.admit(1)?;
        let line = self.place(at);
        let rank = self.rank(rank)?;
        let list = if after { &mut rank.after } else { &mut rank.before };
        list.push(Precopy { input, output, count, line });
        Ok(())
    }

    /// The plan.
    ///
    /// # Errors
    /// The errors of [`Plan::verify`].
    pub fn finish(mut self) -> Result<Plan, Vec<Diagnostic>> {
        self.plan.places = Places::Listed(self.places.into_iter().collect());
        self.plan.verify(&self.budget)?;
        Ok(self.plan)
    }

    fn rank(&mut self, rank: u32) -> Result<&mut Rank, Diagnostic> {
        let ranks = self.plan.ranks.len();
        let missing = || Diagnostic::new("AHBM-C120", format!("rank {rank} of {ranks} ranks"));
        self.plan.ranks.get_mut(rank as usize).ok_or_else(missing)
    }

    fn place(&mut self, at: Origin) -> u32 {
        self.places.insert_full(at).0 as u32
    }

    /// Counts thread blocks, steps and copies.
    fn admit(&mut self, more: u64) -> Result<(), Diagnostic> {
        self.written += more;
        self.budget.check(Limit::Steps, self.written)
    }
}
