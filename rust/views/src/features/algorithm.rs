//! What a program computes and sends, and what waits for what.

use super::per;
use ahbm_check::{Walker, walk};
use ahbm_emulator::math_ps;
use ahbm_machine::{Diagnostic, Machine, Node};
use ahbm_program::{AgentId, Body, ChannelId, OpKind, Program};
use std::collections::BTreeMap;

/// What an algorithm does, summed over all of its agents. A *message* goes from one agent to another through a queue; a
/// *chunk* is what goes from one rank to another, by a message or by an access to the other's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Algorithm {
    /// Structural hash, [`Program::shape`].
    pub id: u64,
    /// Ranks with an agent.
    pub ranks: u32,
    /// Operations of the program.
    pub ops: u64,
    /// Messages.
    pub messages: u64,
    /// Chunks.
    pub chunk_count: u64,
    /// Bytes of all chunks.
    pub sent_bytes: u64,
    /// Bytes of the chunks of the rank that moves most.
    pub busiest_bytes: u64,
    /// Most chunks of one rank that are equally deep: that stand at the end of longest chains of equally many chunks.
    pub branch_factor: u64,
    /// Chunks of the longest chain in which each is sent after the one before has arrived.
    pub dependency_depth: u32,
    /// Arithmetic operations on elements; a multiplication with an addition is two.
    pub operations: u64,
    /// Time that the operations take on the machine's engines one after the other, and delays, in picoseconds.
    pub compute_ps: u64,
}

impl Algorithm {
    /// Reads the columns off a structurally sound program.
    ///
    /// # Errors
    /// `AHBM-D201` for a program that gets stuck.
    pub fn of(program: &Program, machine: &Machine) -> Result<Self, Diagnostic> {
        let mut reader = Reader::new(program, machine);
        if !walk(program, &mut reader) {
            let what = format!("{} gets stuck before its end: what waits for what is not known", program.name);
            return Err(Diagnostic::new("AHBM-D201", what).hint("ahbm check says who waits for whom"));
        }
        let Reader { mut found, ranks, .. } = reader;
        found.id = program.shape();
        found.ranks = ranks.len() as u32;
        found.ops = program.ops();
        found.busiest_bytes = ranks.values().map(|rank| rank.bytes).max().unwrap_or(0);
        found.branch_factor = ranks.values().flat_map(|rank| &rank.chunks).copied().max().unwrap_or(0);
        for agent in 0..program.agents.len() as u32 {
            found.compute(program.body(AgentId(agent)), machine);
        }
        Ok(found)
    }

    fn compute(&mut self, body: &Body, machine: &Machine) {
        let bytes: Vec<u64> = body.tiles.iter().map(ahbm_program::Tile::bytes).collect();
        for op in &body.ops {
            self.operations = self.operations.saturating_add(arithmetic(body, op.kind));
            let ps = match op.kind {
                OpKind::Delay { ps } => ps,
                kind => math_ps(machine.costs(), body, &bytes, &kind),
            };
            self.compute_ps = self.compute_ps.saturating_add(ps);
        }
    }

    /// Operations per byte that ranks send each other.
    pub fn arithmetic_intensity(&self) -> f64 {
        per(self.operations as f64, self.sent_bytes)
    }

    /// Nanoseconds of computing per byte that ranks send each other.
    pub fn compute_to_comm_ratio(&self) -> f64 {
        per(self.compute_ps as f64 / 1000.0, self.sent_bytes)
    }
}

/// Operations on elements; moving, filling and converting compute nothing.
fn arithmetic(body: &Body, kind: OpKind) -> u64 {
    let elements = |tile: u32| body.tiles[tile as usize].elements();
    match kind {
        OpKind::Unary { tile, .. }
        | OpKind::Binary { tile, .. }
        | OpKind::BinaryScalar { tile, .. }
        | OpKind::Where { tile, .. }
        | OpKind::Reduce { tile, .. } => elements(tile),
        OpKind::Fma { tile, .. } | OpKind::Clamp { tile, .. } | OpKind::Dot { tile, .. } => {
            elements(tile).saturating_mul(2)
        }
        OpKind::Softmax { tile, .. } => elements(tile).saturating_mul(4),
        _ => 0,
    }
}

/// What a rank moves.
#[derive(Debug, Default)]
struct Moved {
    bytes: u64,
    /// Chunks per depth.
    chunks: Vec<u64>,
}

/// Follows a program. Depths are chunks of the longest chain that somebody has waited for.
struct Reader<'a> {
    program: &'a Program,
    machine: &'a Machine,
    found: Algorithm,
    ranks: BTreeMap<u32, Moved>,
    agents: Vec<u32>,
    /// Per agent, the deepest of what it has put into the memory of others; its signals tell of it.
    puts: Vec<u32>,
    /// Per channel, of every message.
    messages: Vec<Vec<u32>>,
    counters: Vec<Counter>,
}

/// The signals of a counter.
#[derive(Debug, Clone, Default)]
struct Counter {
    /// What they add up to with each, and the deepest so far.
    sums: Vec<(u64, u32)>,
    /// What semaphores took.
    taken: u64,
}

impl Counter {
    fn signal(&mut self, add: u32, depth: u32) {
        let (sum, deepest) = self.sums.last().copied().unwrap_or_default();
        self.sums.push((sum + u64::from(add), deepest.max(depth)));
    }

    /// The deepest of the signals without which the counter would not have reached a value.
    fn depth(&self, value: u64) -> u32 {
        let at = self.sums.partition_point(|(sum, _)| *sum < value);
        self.sums.get(at).filter(|_| value > 0).map_or(0, |(_, depth)| *depth)
    }
}

impl<'a> Reader<'a> {
    fn new(program: &'a Program, machine: &'a Machine) -> Self {
        let agents = program.agents.len();
        Self {
            program,
            machine,
            found: Algorithm::default(),
            ranks: program.agents.iter().map(|agent| (agent.rank, Moved::default())).collect(),
            agents: vec![0; agents],
            puts: vec![0; agents],
            messages: vec![Vec::new(); program.channels.len()],
            counters: vec![Counter::default(); program.counters as usize],
        }
    }

    /// Counts a chunk that an agent moves; its depth.
    fn moves(&mut self, agent: AgentId, bytes: u64) -> u32 {
        let depth = self.agents[agent.0 as usize] + 1;
        let moved = self.ranks.entry(self.program.agents[agent.0 as usize].rank).or_default();
        moved.bytes = moved.bytes.saturating_add(bytes);
        if moved.chunks.len() <= depth as usize {
            moved.chunks.resize(depth as usize + 1, 0);
        }
        moved.chunks[depth as usize] += 1;
        let found = &mut self.found;
        found.chunk_count += 1;
        found.sent_bytes = found.sent_bytes.saturating_add(bytes);
        found.dependency_depth = found.dependency_depth.max(depth);
        depth
    }

    /// Whether an operand is in the memory of another SIP than the agent's.
    fn is_far(&self, agent: AgentId, body: &Body, mem: u32) -> bool {
        let buffer = self.program.buffer(agent, body.mems[mem as usize].buffer);
        let sip = match self.program.buffers[buffer.0 as usize].node {
            Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => self.machine.coord(pe).sip,
            Node::Io(sip) => sip,
        };
        sip != self.machine.coord(self.program.agents[agent.0 as usize].place).sip
    }

    /// An access to memory: each operand of another rank is a chunk.
    fn touches(&mut self, agent: AgentId, body: &Body, kind: OpKind, tile: u32, posted: bool) {
        let far = body.touched(kind).filter(|&(mem, _)| self.is_far(agent, body, mem)).count();
        for _ in 0..far {
            let depth = self.moves(agent, body.tiles[tile as usize].bytes());
            let put = &mut self.puts[agent.0 as usize];
            *put = depth.max(*put);
        }
        if far > 0 && !posted {
            self.arrive(agent, self.puts[agent.0 as usize]);
        }
    }

    fn arrive(&mut self, agent: AgentId, depth: u32) {
        let known = &mut self.agents[agent.0 as usize];
        *known = depth.max(*known);
    }
}

impl Walker for Reader<'_> {
    fn done(&mut self, agent: AgentId, op: u32, message: Option<(ChannelId, u64)>) {
        let body = self.program.body(agent);
        let kind = body.ops[op as usize].kind;
        match kind {
            OpKind::Send { tile, .. } => {
                let Some((channel, _)) = message else { return };
                let ends = &self.program.channels[channel.0 as usize];
                let rank = |agent: AgentId| self.program.agents[agent.0 as usize].rank;
                self.found.messages += 1;
                let depth = if rank(ends.sender) == rank(ends.receiver) {
                    self.agents[agent.0 as usize]
                } else {
                    self.moves(agent, body.tiles[tile as usize].bytes())
                };
                self.messages[channel.0 as usize].push(depth);
            }
            OpKind::Recv { .. } | OpKind::RecvAny { .. } | OpKind::Await { .. } => {
                let Some((channel, number)) = message else { return };
                let depth = self.messages[channel.0 as usize][number as usize];
                self.arrive(agent, depth);
            }
            OpKind::Load { tile, .. } | OpKind::ReducingLoad { tile, .. } => {
                self.touches(agent, body, kind, tile, false);
            }
            OpKind::Store { tile, posted, .. } | OpKind::Copy { tile, posted, .. } => {
                self.touches(agent, body, kind, tile, posted);
            }
            OpKind::Multicast { tile, .. } => self.touches(agent, body, kind, tile, true),
            OpKind::Fence => self.arrive(agent, self.puts[agent.0 as usize]),
            OpKind::Signal { counter, add, .. } => {
                let told = self.agents[agent.0 as usize].max(self.puts[agent.0 as usize]);
                self.counters[counter as usize].signal(add, told);
            }
            OpKind::WaitCounter { counter, at_least } => {
                self.arrive(agent, self.counters[counter as usize].depth(at_least.into()));
            }
            OpKind::Acquire { counter, amount } => {
                let counter = &mut self.counters[counter as usize];
                counter.taken += u64::from(amount);
                let depth = counter.depth(counter.taken);
                self.arrive(agent, depth);
            }
            _ => {}
        }
    }

    fn met(&mut self, participants: &[AgentId]) {
        let deepest = participants.iter().map(|agent| self.agents[agent.0 as usize]).max().unwrap_or(0);
        participants.iter().for_each(|&agent| self.arrive(agent, deepest));
    }
}
