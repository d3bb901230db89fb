//! Execution plans as thread-block plans: whoever moves bytes between two ranks, a message carries them.
//!
//! The plan runs once, in one order, on one 8-byte cell per part that an operation splits a chunk into. Every
//! transfer between ranks becomes a message: a send where the bytes are, a receive where they go, on a queue of the
//! thread block that moved them. Signals, waits, packets, semaphores and barriers do nothing but order accesses; what
//! remains of them are dependencies between steps that touch the same chunks. In the order of that run every message
//! can be received at once, so one slot per queue is enough.
//!
//! A loop runs once over all its bytes: thread-block plans repeat all their steps slice by slice instead.

use super::steps::{Run, Steps};
use crate::walk::sequence;
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Places, Slot};
use ahbm_plan::execution::{ExecutionPlan, Launch};
use ahbm_plan::{Budget, Goal, Limit, Lowered, Plan, Space};
use ahbm_program::{AgentId, BinaryFn, Body, Control, Math, Move, OpKind, Origin, OriginId, Program, ValueId};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// The thread-block plan that moves and adds the same bytes.
///
/// It means the same only where every conflicting pair of accesses is ordered: check the plan first.
///
/// # Errors
/// `AHBM-U292` reductions other than sums, a custom collective in place and a plan that gets stuck, with the
/// place; otherwise as [`ExecutionPlan::lower_for_check`] and [`Plan::verify`].
pub(super) fn to_blocks(plan: &ExecutionPlan, budget: &Budget) -> Result<Plan, Vec<Diagnostic>> {
    let whole = |what: &str| vec![cannot_express(what).site("plan", &*plan.file)];
    if plan.in_place && plan.goal == Goal::Custom {
        return Err(whole("a custom collective in place"));
    }
    let lowered = plan.lower_for_check(1, Launch::ODD, budget)?;
    let cells = (lowered.chunk_bytes / CELL) as u32;
    let told = |error: Diagnostic| vec![error.site("plan", &*plan.file)];
    let order = sequence(&lowered.program).ok_or_else(|| whole("a plan that gets stuck"))?;
    let areas = plan.scratch_for_check(1).map_err(told)?;
    let areas: Vec<u64> = areas.into_iter().map(|bytes| bytes / CELL).collect();
    let extents = plan.extents().iter().map(|rank| rank.times(cells)).collect::<Option<Vec<_>>>();
    let mut extents = extents.ok_or_else(|| whole("more than 4,294,967,295 chunks"))?;
    for (extents, (buffers, area)) in extents.iter_mut().zip(lowered.ranks.iter().zip(&areas)) {
        // Packets have memory of their own behind the plain scratch; flags have none.
        let packets = buffers.scratch.bytes / CELL > *area;
        let chunks = area.saturating_mul(1 + u64::from(packets));
        extents.chunks[2] = u32::try_from(chunks).map_err(|_| whole("more than 4,294,967,295 chunks"))?;
    }
    let chunks = plan.chunks.max(1).checked_mul(cells).ok_or_else(|| whole("more than 4,294,967,295 chunks"))?;
    let mut translation = Translation {
        lowered: &lowered,
        homes: homes(&lowered),
        areas,
        steps: Steps::new(&lowered.program, extents),
        values: FxHashMap::default(),
        places: IndexSet::default(),
    };
    for (agent, op) in order {
        translation.op(agent, op as usize).map_err(|error| vec![error])?;
    }
    let places = translation.places.into_iter().filter_map(|id| lowered.program.origins.get(id).cloned());
    let places: Vec<Origin> = places.collect();
    let (ranks, channels) = translation.steps.finish();
    let made = Plan {
        name: plan.name.clone(),
        file: plan.file.clone(),
        places: Places::Listed(places),
        goal: plan.goal,
        in_place: plan.in_place,
        out_of_place: !plan.in_place,
        protocol: plan.protocol,
        channels,
        chunks,
        min_bytes: Some(plan.min_bytes),
        max_bytes: Some(if plan.max_bytes == u64::MAX { 0 } else { plan.max_bytes }),
        ranks,
        relays: 0,
        warnings: Vec::new(),
    };
    budget.check(Limit::Steps, made.steps()).map_err(told)?;
    made.verify(budget)?;
    Ok(made)
}

/// Bytes of a cell.
const CELL: u64 = 8;

/// The content of a value.
#[derive(Clone)]
enum Value {
    /// The sum of what is in memory.
    Sum(Vec<Run>),
    /// The run that holds the value.
    Stored(Run),
}

struct Translation<'p> {
    lowered: &'p Lowered,
    /// Rank and space of every buffer; input where input and output share one.
    homes: Vec<(u32, Space)>,
    /// Cells of every rank's plain scratch.
    areas: Vec<u64>,
    steps: Steps,
    values: FxHashMap<(AgentId, ValueId), Value>,
    places: IndexSet<OriginId, FxBuildHasher>,
}

fn homes(lowered: &Lowered) -> Vec<(u32, Space)> {
    let mut homes = vec![(0, Space::Input); lowered.program.buffers.len()];
    for (rank, buffers) in (0u32..).zip(&lowered.ranks) {
        homes[buffers.scratch.buffer.0 as usize] = (rank, Space::Scratch);
        homes[buffers.output.buffer.0 as usize] = (rank, Space::Output);
        homes[buffers.input.buffer.0 as usize] = (rank, Space::Input);
    }
    homes
}

/// Queues and the thread blocks at their ends are what every format is written from.
fn cannot_express(what: &str) -> Diagnostic {
    Diagnostic::new("AHBM-U292", format!("thread blocks that send and receive cannot express {what}"))
}

impl Translation<'_> {
    fn op(&mut self, agent: AgentId, index: usize) -> Result<(), Diagnostic> {
        let program = &self.lowered.program;
        let body = program.body(agent);
        let line = self.places.insert_full(body.origins[index]).0 as u32;
        self.steps.at(line);
        match body.ops[index].kind {
            OpKind::Move(Move::Copy { src, dst, tile, .. }) => {
                if let (Some(src), Some(dst)) = (self.run(agent, src, tile), self.run(agent, dst, tile)) {
                    self.transfer(agent, src, dst);
                }
            }
            OpKind::Move(Move::Load { dst, mem, tile }) => {
                let run = self.run(agent, mem, tile);
                self.values.insert((agent, dst), Value::Sum(run.into_iter().collect()));
            }
            OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a, b, .. }) => {
                let mut sum = self.terms(agent, a);
                sum.extend(self.terms(agent, b));
                self.values.insert((agent, dst), Value::Sum(sum));
            }
            OpKind::Math(Math::Binary { f, .. }) => {
                let what = format!("a reduction by {f:?}, which it leaves to the run");
                return Err(self.refused(agent, index, what));
            }
            OpKind::Move(Move::Store { src, mem, tile, .. }) => {
                if let Some(dst) = self.run(agent, mem, tile) {
                    self.store(agent, index, src, dst);
                }
            }
            // They order what the others do.
            OpKind::Control(
                Control::Signal { .. }
                | Control::Fence
                | Control::WaitCounter { .. }
                | Control::Acquire { .. }
                | Control::Barrier { .. },
            ) => {}
            _ => return Err(self.refused(agent, index, program.describe(agent, index))),
        }
        Ok(())
    }

    fn refused(&self, agent: AgentId, index: usize, what: String) -> Diagnostic {
        let program = &self.lowered.program;
        let rank = program.agents[agent.0 as usize].rank;
        cannot_express(&what).site(format!("rank {rank}"), program.origin_text(agent, index))
    }

    fn terms(&self, agent: AgentId, value: ValueId) -> Vec<Run> {
        match self.values.get(&(agent, value)) {
            Some(Value::Sum(runs)) => runs.clone(),
            Some(Value::Stored(run)) => vec![*run],
            None => Vec::new(),
        }
    }

    /// The cells behind a memory operand; `None` for the flags of packets.
    fn run(&self, agent: AgentId, mem: u32, tile: u32) -> Option<Run> {
        let program = &self.lowered.program;
        let body = program.body(agent);
        self.cells(program, body, agent, mem, (body.tiles[tile as usize].bytes() / CELL) as u32)
    }

    fn cells(&self, program: &Program, body: &Body, agent: AgentId, mem: u32, count: u32) -> Option<Run> {
        let mem = body.mems.at(mem);
        let buffer = program.buffer(agent, mem.buffer);
        let (rank, space) = self.homes[buffer.0 as usize];
        let buffers = &self.lowered.ranks[rank as usize];
        let at = mem.offset / CELL;
        if space == Space::Scratch {
            let area = self.areas[rank as usize];
            return (at < 2 * area).then_some(Run { rank, slot: Slot { space, chunk: at as u32 }, count });
        }
        let within = |start: u64, bytes: u64| {
            (start..=start + bytes).contains(&mem.offset) && mem.offset + u64::from(count) * CELL <= start + bytes
        };
        // One memory may be both: what reaches beyond the smaller is the larger's.
        let input = space == Space::Input && within(buffers.input.offset, buffers.input.bytes);
        let (space, region) = if input { (Space::Input, buffers.input) } else { (Space::Output, buffers.output) };
        Some(Run { rank, slot: Slot { space, chunk: (at - region.offset / CELL) as u32 }, count })
    }

    fn transfer(&mut self, agent: AgentId, src: Run, dst: Run) {
        for (src, dst) in src.pieces().zip(dst.pieces()) {
            self.steps.transfer(agent, src, dst);
        }
    }

    fn store(&mut self, agent: AgentId, index: usize, value: ValueId, dst: Run) {
        let rank = self.lowered.program.agents[agent.0 as usize].rank;
        let stored = match self.values.get(&(agent, value)) {
            None => return,
            Some(Value::Stored(run)) => *run,
            Some(Value::Sum(terms)) => {
                let terms = terms.clone();
                let kept = if let [only] = terms[..] {
                    only
                } else {
                    let at = self.kept(agent, index, value, rank).unwrap_or_else(|| self.steps.room(rank, dst.count));
                    self.sum(agent, &terms, at);
                    at
                };
                self.values.insert((agent, value), Value::Stored(kept));
                kept
            }
        };
        self.transfer(agent, stored, dst);
    }

    /// The place where the rank keeps a value, among the places to which the value is stored from an operation on.
    fn kept(&self, agent: AgentId, index: usize, value: ValueId, rank: u32) -> Option<Run> {
        let body = self.lowered.program.body(agent);
        let stores = body.ops[index..].iter().map_while(|op| match op.kind {
            OpKind::Move(Move::Store { src, mem, tile, .. }) if src == value => Some(self.run(agent, mem, tile)),
            _ => None,
        });
        stores.flatten().find(|run| run.rank == rank)
    }

    /// The sum of at least two runs, somewhere on the rank of the agent.
    fn sum(&mut self, agent: AgentId, terms: &[Run], dst: Run) {
        let exact = terms.iter().position(|term| self.steps.same(term, &dst));
        let others = terms.iter().filter(|term| !self.steps.same(term, &dst) && self.steps.overlap(term, &dst)).count();
        let times = terms.iter().filter(|term| self.steps.same(term, &dst)).count();
        // Terms are added in their order, but for the first two, which may trade places.
        let in_place = matches!(exact, Some(0 | 1)) && times == 1;
        let to = if others > 0 || (exact.is_some() && !in_place) { self.steps.room(dst.rank, dst.count) } else { dst };
        let mut terms = terms.to_vec();
        if (in_place && exact == Some(1)) || (!in_place && terms[0].rank != dst.rank && terms[1].rank == dst.rank) {
            terms.swap(0, 1);
        }
        let pieces: Vec<Vec<Run>> = terms.iter().map(|term| term.pieces().collect()).collect();
        for (k, to) in to.pieces().enumerate() {
            let mut so_far = pieces[0][k];
            if so_far.rank != to.rank {
                self.steps.transfer(agent, so_far, to);
                so_far = to;
            }
            for term in &pieces[1..] {
                self.steps.add(agent, so_far, term[k], to);
                so_far = to;
            }
        }
        self.transfer(agent, to, dst);
    }
}
