//! Transfers and sums as steps of thread blocks, and what must run before what.

use ahbm_plan::blocks::{Action, Block, Dep, Rank, Slot, Step};
use ahbm_plan::{Extents, Space};
use ahbm_program::{AgentId, Program};
use rustc_hash::FxHashMap;

/// Consecutive cells that one step may move: a runtime allows fewer than 72.
const MOST: u32 = 71;

/// Consecutive cells of a rank's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) rank: u32,
    pub(super) slot: Slot,
    pub(super) count: u32,
}

impl Run {
    /// Itself, in runs that one step may move.
    pub(super) fn pieces(self) -> impl Iterator<Item = Self> {
        (0..self.count.div_ceil(MOST)).map(move |k| {
            let slot = Slot { chunk: self.slot.chunk + k * MOST, ..self.slot };
            Self { slot, count: MOST.min(self.count - k * MOST), ..self }
        })
    }
}

/// Writes the steps of all ranks.
pub(super) struct Steps {
    ranks: Vec<Work>,
    /// Rank and thread block of every agent.
    agents: Vec<(u32, u32)>,
    /// Who moves bytes from a rank to another, in the order of its channels.
    movers: FxHashMap<(u32, u32), Vec<AgentId>>,
    channels: u32,
    line: u32,
}

/// The state of a rank so far.
struct Work {
    extents: Extents,
    /// Thread blocks of the execution plan first, then those for queues that find no place there.
    blocks: Vec<Block>,
    /// The thread block at a queue's end: peer, channel, whether it sends.
    ends: FxHashMap<(u32, u32, bool), u32>,
    /// Steps of each thread block that each has waited for: one more than the last.
    awaited: FxHashMap<(u32, u32), u32>,
    memory: FxHashMap<(Space, u64), Cell>,
}

/// Who touched a cell last.
#[derive(Default)]
struct Cell {
    writer: Option<Dep>,
    readers: Vec<Dep>,
}

impl Steps {
    pub(super) fn new(program: &Program, extents: Vec<Extents>) -> Self {
        let mut ranks: Vec<Work> = extents.into_iter().map(Work::new).collect();
        let mut agents = Vec::with_capacity(program.agents.len());
        for agent in &program.agents {
            let blocks = &mut ranks[agent.rank as usize].blocks;
            agents.push((agent.rank, blocks.len() as u32));
            blocks.push(Block::default());
        }
        Self { ranks, agents, movers: FxHashMap::default(), channels: 1, line: 0 }
    }

    /// The place of the steps that follow.
    pub(super) fn at(&mut self, line: u32) {
        self.line = line;
    }

    /// Copies a run to another of the same size: within a rank, or as a message.
    pub(super) fn transfer(&mut self, agent: AgentId, src: Run, dst: Run) {
        if src.rank != dst.rank {
            return self.message(agent, src, dst, Action::Recv, dst.slot);
        }
        if !self.same(&src, &dst) {
            let block = self.home(agent, src.rank);
            self.push(src.rank, block, Action::Copy, [src.slot, dst.slot], src.count);
        }
    }

    /// `to` becomes the sum of `so_far`, on its rank, and `term`.
    pub(super) fn add(&mut self, agent: AgentId, so_far: Run, term: Run, to: Run) {
        if term.rank != to.rank {
            return self.message(agent, term, to, Action::RecvReduceCopy, so_far.slot);
        }
        self.transfer(agent, so_far, to);
        let block = self.home(agent, to.rank);
        self.push(to.rank, block, Action::Reduce, [term.slot, to.slot], to.count);
    }

    /// Fresh scratch of a rank.
    pub(super) fn room(&mut self, rank: u32, count: u32) -> Run {
        let chunks = &mut self.ranks[rank as usize].extents.chunks[2];
        let slot = Slot { space: Space::Scratch, chunk: *chunks };
        *chunks += count;
        Run { rank, slot, count }
    }

    /// True for the same cells.
    pub(super) fn same(&self, a: &Run, b: &Run) -> bool {
        self.cells(a) == self.cells(b)
    }

    /// True when two runs have cells in common.
    pub(super) fn overlap(&self, a: &Run, b: &Run) -> bool {
        let ((rank, space, from, to), (other, there, start, end)) = (self.cells(a), self.cells(b));
        (rank, space) == (other, there) && from < end && start < to
    }

    fn cells(&self, run: &Run) -> (u32, Space, u64, u64) {
        let (space, at) = self.ranks[run.rank as usize].extents.home(run.slot.space, run.slot.chunk.into());
        (run.rank, space, at, at + u64::from(run.count))
    }

    /// The agent's own thread block; `rank` is the agent's.
    fn home(&self, agent: AgentId, rank: u32) -> u32 {
        debug_assert_eq!(self.agents[agent.0 as usize].0, rank);
        self.agents[agent.0 as usize].1
    }

    /// Sends a run and receives it; `with` is what the receiver adds it to, if it does.
    fn message(&mut self, agent: AgentId, src: Run, dst: Run, receive: Action, with: Slot) {
        let movers = self.movers.entry((src.rank, dst.rank)).or_default();
        let channel = movers.iter().position(|known| *known == agent).unwrap_or_else(|| {
            movers.push(agent);
            movers.len() - 1
        }) as u32;
        self.channels = self.channels.max(channel + 1);
        let index = self.agents[agent.0 as usize].1;
        let sender = self.ranks[src.rank as usize].end(index, dst.rank, channel, true);
        self.push(src.rank, sender, Action::Send, [src.slot, dst.slot], src.count);
        let receiver = self.ranks[dst.rank as usize].end(index, src.rank, channel, false);
        self.push(dst.rank, receiver, receive, [with, dst.slot], dst.count);
    }

    fn push(&mut self, rank: u32, block: u32, action: Action, slots: [Slot; 2], count: u32) {
        self.ranks[rank as usize].push(block, action, slots, count, self.line);
    }

    /// The ranks, and the number of channels.
    pub(super) fn finish(self) -> (Vec<Rank>, u32) {
        (self.ranks.into_iter().map(Work::finish).collect(), self.channels)
    }
}

impl Work {
    fn new(extents: Extents) -> Self {
        let (ends, awaited, memory) = Default::default();
        Self { extents, blocks: Vec::new(), ends, awaited, memory }
    }

    /// The thread block at an end of a queue: the `index`-th of the execution plan while it has room for the peer,
    /// otherwise one of its own.
    fn end(&mut self, index: u32, peer: u32, channel: u32, sends: bool) -> u32 {
        if let Some(&known) = self.ends.get(&(peer, channel, sends)) {
            return known;
        }
        let fits = |block: &Block| {
            let (own, other) = if sends { (block.send, block.recv) } else { (block.recv, block.send) };
            own.is_none() && (other.is_none() || block.channel == channel)
        };
        let found = match self.blocks.get(index as usize) {
            Some(block) if fits(block) => index,
            _ => {
                self.blocks.push(Block::default());
                self.blocks.len() as u32 - 1
            }
        };
        let block = &mut self.blocks[found as usize];
        block.channel = channel;
        *(if sends { &mut block.send } else { &mut block.recv }) = Some(peer);
        self.ends.insert((peer, channel, sends), found);
        found
    }

    fn push(&mut self, block: u32, action: Action, [src, dst]: [Slot; 2], count: u32, line: u32) {
        let mut before = Vec::new();
        let reads = [action.reads().then_some(src), (action == Action::Reduce).then_some(dst)];
        let cells = |slot: Slot, extents: &Extents| {
            let (space, at) = extents.home(slot.space, slot.chunk.into());
            (at..at + u64::from(count)).map(move |cell| (space, cell))
        };
        for slot in reads.into_iter().flatten() {
            for cell in cells(slot, &self.extents) {
                before.extend(self.memory.get(&cell).and_then(|cell| cell.writer));
            }
        }
        for cell in cells(dst, &self.extents).filter(|_| action.writes()) {
            if let Some(cell) = self.memory.get(&cell) {
                before.extend(cell.readers.iter().copied().chain(cell.writer));
            }
        }
        self.step(block, action, [src, dst], count, line, before);
        let this = Dep { block, step: self.blocks[block as usize].steps.len() as u32 - 1 };
        for slot in reads.into_iter().flatten() {
            for cell in cells(slot, &self.extents) {
                let readers = &mut self.memory.entry(cell).or_default().readers;
                readers.retain(|reader| reader.block != block);
                readers.push(this);
            }
        }
        for cell in cells(dst, &self.extents).filter(|_| action.writes()) {
            self.memory.insert(cell, Cell { writer: Some(this), readers: Vec::new() });
        }
    }

    /// A step behind others: the last it waits for itself, for the rest steps before it do.
    fn step(&mut self, block: u32, action: Action, [src, dst]: [Slot; 2], count: u32, line: u32, mut before: Vec<Dep>) {
        before.sort_unstable_by_key(|dep| (dep.block, std::cmp::Reverse(dep.step)));
        before.dedup_by_key(|dep| dep.block);
        before.retain(|dep| {
            let awaited = self.awaited.entry((block, dep.block)).or_default();
            let news = dep.block != block && *awaited <= dep.step;
            *awaited = (*awaited).max(dep.step + 1);
            news
        });
        for dep in &before {
            self.blocks[dep.block as usize].steps[dep.step as usize].posts = true;
        }
        let last = before.pop();
        let steps = &mut self.blocks[block as usize].steps;
        for dep in before {
            steps.push(Step { action: Action::Nop, src, dst, count: 0, wait: Some(dep), posts: false, line });
        }
        steps.push(Step { action, src, dst, count, wait: last, posts: false, line });
    }

    /// Thread blocks that do nothing are left out.
    fn finish(mut self) -> Rank {
        let mut next = 0;
        let number = |block: &Block| {
            let id = next;
            next += u32::from(!block.steps.is_empty());
            id
        };
        let ids: Vec<u32> = self.blocks.iter().map(number).collect();
        self.blocks.retain(|block| !block.steps.is_empty());
        for block in &mut self.blocks {
            block.line = block.steps[0].line;
            for dep in block.steps.iter_mut().filter_map(|step| step.wait.as_mut()) {
                dep.block = ids[dep.block as usize];
            }
        }
        Rank { declared: self.extents.chunks, blocks: self.blocks, ..Rank::default() }
    }
}
