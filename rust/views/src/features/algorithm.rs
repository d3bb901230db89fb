//! What a program computes and sends, and what waits for what.

use super::per;
use super::ways::{WayId, Ways};
use ahbm_check::{Walker, needed_slots, walk};
use ahbm_emulator::math_ps;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Node, Ps};
use ahbm_program::{AgentId, Body, ChannelId, Comm, Control, Math, Move, Op, OpKind, Program};
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
    pub compute_ps: Ps,
    /// Messages that a queue must hold for the program to end; 0 without queues.
    pub queue_depth: u32,
    /// Bytes of the chunks between SIPs of different parts.
    pub cut_bytes: u64,
    /// Time of the longest chain of operations and messages, each on links of its own.
    pub path_ps: Ps,
    /// How long the busiest link or DMA channel is busy.
    pub link_ps: Ps,
    /// Time of chunks that go depth by depth: of each depth the slowest chunk and its busiest link or DMA
    /// channel.
    pub rounds_ps: Ps,
}

impl Algorithm {
    /// Reads the columns off a structurally sound program. `parts`: the part of each SIP that is on one side of a cut;
    /// without any, nothing crosses it.
    ///
    /// # Errors
    /// `AHBM-D201` for a program that gets stuck, and as [`Machine::route`].
    pub fn of(program: &Program, machine: &Machine, parts: &[u32]) -> Result<Self, Diagnostic> {
        let mut reader = Reader::new(program, machine, parts)?;
        if !walk(program, &mut reader) {
            return Err(stuck(program));
        }
        let Reader { mut found, ranks, agents, puts, ways, failed, .. } = reader;
        if let Some(failed) = failed {
            return Err(failed);
        }
        found.path_ps = agents.iter().chain(&puts).map(|front| front.ps).max().unwrap_or(0);
        (found.link_ps, found.rounds_ps) = (ways.link_ps(), ways.rounds_ps());
        found.queue_depth = needed_slots(program).unwrap_or(0);
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
                OpKind::Control(Control::Delay { ps }) => ps,
                OpKind::Math(math) => math_ps(machine.costs(), body, &bytes, math),
                _ => 0,
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
    let OpKind::Math(math) = kind else { return 0 };
    let per_element = match math {
        Math::Fill { .. } | Math::Arange { .. } | Math::Transpose { .. } | Math::Cast { .. } => return 0,
        Math::Fma { .. } | Math::Clamp { .. } | Math::Dot { .. } => 2,
        Math::Softmax { .. } => 4,
        _ => 1,
    };
    body.tiles[math.tile() as usize].elements().saturating_mul(per_element)
}

/// The SIP of an agent.
fn sip_of(program: &Program, machine: &Machine, agent: AgentId) -> u32 {
    machine.coord(program.agents[agent.0 as usize].place).sip
}

/// An operand's node and its SIP.
fn node_of(program: &Program, machine: &Machine, agent: AgentId, body: &Body, mem: u32) -> (Node, u32) {
    let buffer = program.buffer(agent, body.mems.buffer(mem));
    let node = program.buffers[buffer.0 as usize].node;
    match node {
        Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => (node, machine.coord(pe).sip),
        Node::Io(sip) => (node, sip),
    }
}

/// Whether an operand is in the memory of another SIP than the agent's.
pub(crate) fn is_far(program: &Program, machine: &Machine, agent: AgentId, body: &Body, mem: u32) -> bool {
    node_of(program, machine, agent, body, mem).1 != sip_of(program, machine, agent)
}

/// The finding of a program that gets stuck.
pub(crate) fn stuck(program: &Program) -> Diagnostic {
    let what = format!("{} gets stuck before its end: what waits for what is not known", program.name);
    Diagnostic::new("AHBM-D201", what).hint("ahbm check says who waits for whom")
}

/// What a rank moves.
#[derive(Debug, Default)]
struct Moved {
    bytes: u64,
    /// Chunks per depth.
    chunks: Vec<u64>,
}

/// What has happened so far where somebody stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Front {
    /// Chunks of the longest chain that was waited for.
    depth: u32,
    /// When it was waited for, every transfer on links of its own.
    ps: Ps,
}

impl Front {
    /// What has happened when both have.
    fn and(self, other: Self) -> Self {
        Self { depth: self.depth.max(other.depth), ps: self.ps.max(other.ps) }
    }
}

/// Follows a program.
struct Reader<'a> {
    program: &'a Program,
    machine: &'a Machine,
    parts: &'a [u32],
    found: Algorithm,
    ranks: BTreeMap<u32, Moved>,
    agents: Vec<Front>,
    /// Per agent, the latest of what it has put into the memory of others; its signals tell of it.
    puts: Vec<Front>,
    /// Per channel, its way, and when each message has arrived and the time to read it.
    messages: Vec<(WayId, Vec<(Front, Ps)>)>,
    counters: Vec<Counter>,
    ways: Ways<'a>,
    /// Per body, the bytes of its tiles.
    tiles: Vec<Vec<u64>>,
    failed: Option<Diagnostic>,
}

/// The signals of a counter.
#[derive(Debug, Clone, Default)]
struct Counter {
    /// What they add up to with each, and the latest so far.
    sums: Vec<(u64, Front)>,
    /// What semaphores took.
    taken: u64,
}

impl Counter {
    fn signal(&mut self, add: u32, told: Front) {
        let (sum, latest) = self.sums.last().copied().unwrap_or_default();
        self.sums.push((sum + u64::from(add), latest.and(told)));
    }

    /// The latest of the signals without which the counter would not have reached a value.
    fn reached(&self, value: u64) -> Front {
        let at = self.sums.partition_point(|(sum, _)| *sum < value);
        self.sums.get(at).filter(|_| value > 0).map_or_else(Front::default, |(_, front)| *front)
    }
}

impl<'a> Reader<'a> {
    fn new(program: &'a Program, machine: &'a Machine, parts: &'a [u32]) -> Result<Self, Diagnostic> {
        let agents = program.agents.len();
        let mut ways = Ways::on(machine);
        let place = |agent: AgentId| Node::Pe(program.agents[agent.0 as usize].place);
        let messages = program
            .channels
            .iter()
            .map(|ends| Ok((ways.find(place(ends.sender), place(ends.receiver))?, Vec::new())))
            .collect::<Result<_, Diagnostic>>()?;
        Ok(Self {
            program,
            machine,
            parts,
            found: Algorithm::default(),
            ranks: program.agents.iter().map(|agent| (agent.rank, Moved::default())).collect(),
            agents: vec![Front::default(); agents],
            puts: vec![Front::default(); agents],
            messages,
            counters: vec![Counter::default(); program.counters as usize],
            ways,
            tiles: program
                .bodies
                .iter()
                .map(|body| body.tiles.iter().map(ahbm_program::Tile::bytes).collect())
                .collect(),
            failed: None,
        })
    }

    /// Counts a chunk that an agent moves between its SIP and another; its depth.
    fn moves(&mut self, agent: AgentId, sip: u32, bytes: u64) -> u32 {
        let depth = self.agents[agent.0 as usize].depth + 1;
        let moved = self.ranks.entry(self.program.agents[agent.0 as usize].rank).or_default();
        moved.bytes = moved.bytes.saturating_add(bytes);
        if moved.chunks.len() <= depth as usize {
            moved.chunks.resize(depth as usize + 1, 0);
        }
        moved.chunks[depth as usize] += 1;
        let part = |sip: u32| self.parts.get(sip as usize);
        let crosses = part(sip) != part(sip_of(self.program, self.machine, agent));
        let found = &mut self.found;
        found.chunk_count += 1;
        found.sent_bytes = found.sent_bytes.saturating_add(bytes);
        found.cut_bytes = found.cut_bytes.saturating_add(if crosses { bytes } else { 0 });
        found.dependency_depth = found.dependency_depth.max(depth);
        depth
    }

    /// An access to memory: each operand of another rank is a chunk.
    fn touches(&mut self, agent: AgentId, body: &Body, kind: OpKind, bytes: u64, posted: bool) {
        let (here, pe) = (sip_of(self.program, self.machine, agent), self.program.agents[agent.0 as usize].place);
        let own = Node::Pe(pe);
        let (start, setup) = (self.agents[agent.0 as usize], self.machine.costs().dma_setup_ps);
        let (mut source, mut far) = (None, false);
        let operands: Vec<(u32, bool)> = body.touched(kind).collect();
        let is_copy = matches!(kind, OpKind::Move(Move::Copy { .. }));
        for (mem, written) in operands {
            let (node, sip) = node_of(self.program, self.machine, agent, body, mem);
            let depth = if sip == here { start.depth } else { self.moves(agent, sip, bytes) };
            let (from, to) = match (written, source) {
                // A copy is one transfer, from what it reads to what it writes.
                (false, _) if is_copy => {
                    far |= sip != here;
                    source = Some((node, depth));
                    continue;
                }
                (true, Some((source, _))) => (source, node),
                (true, None) => (own, node),
                (false, _) => (node, own),
            };
            let depth = source.map_or(depth, |(_, other): (Node, u32)| other.max(depth));
            let way = match self.ways.find(from, to) {
                Ok(way) => way,
                Err(error) => {
                    self.failed.get_or_insert(error);
                    return;
                }
            };
            self.ways.carry(way, (pe, from != own), bytes, depth, setup);
            let end = Front { depth, ps: start.ps + setup + self.ways.ps(way, bytes) };
            let put = &mut self.puts[agent.0 as usize];
            *put = put.and(end);
            let left = if posted { start.ps + self.ways.serial_ps(way, bytes) } else { end.ps };
            let known = &mut self.agents[agent.0 as usize];
            known.ps = known.ps.max(left);
            far |= sip != here;
        }
        if far && !posted {
            let depth = self.puts[agent.0 as usize].depth;
            self.arrive(agent, Front { depth, ps: 0 });
        }
    }

    fn arrive(&mut self, agent: AgentId, front: Front) {
        let known = &mut self.agents[agent.0 as usize];
        *known = known.and(front);
    }

    fn takes(&mut self, agent: AgentId, ps: Ps) {
        let known = &mut self.agents[agent.0 as usize];
        known.ps = known.ps.saturating_add(ps);
    }

    /// A message leaves.
    fn sends(&mut self, agent: AgentId, bytes: u64, channel: ChannelId) {
        let ends = &self.program.channels[channel.0 as usize];
        let rank = |agent: AgentId| self.program.agents[agent.0 as usize].rank;
        self.found.messages += 1;
        let costs = self.machine.costs();
        self.takes(agent, costs.ipcq_send_ps);
        let start = self.agents[agent.0 as usize];
        let depth = if rank(ends.sender) == rank(ends.receiver) {
            start.depth
        } else {
            self.moves(agent, sip_of(self.program, self.machine, ends.receiver), bytes)
        };
        let wire = ends.wire.bytes(bytes);
        let slot_ps = costs.tiers.get_index(ends.tier as usize).map_or(0, |(_, tier)| tier.access_ps(wire));
        let beside = costs.dma_setup_ps + slot_ps;
        let way = self.messages[channel.0 as usize].0;
        let pe = self.program.agents[agent.0 as usize].place;
        self.ways.carry(way, (pe, false), wire, depth, beside);
        let ps = start.ps.saturating_add(beside).saturating_add(self.ways.ps(way, wire));
        self.messages[channel.0 as usize].1.push((Front { depth, ps }, slot_ps));
    }

    /// A message is taken.
    fn receives(&mut self, agent: AgentId, channel: ChannelId, number: u64) {
        let (front, slot_ps) = self.messages[channel.0 as usize].1[number as usize];
        self.takes(agent, self.machine.costs().ipcq_recv_ps);
        self.arrive(agent, front);
        self.takes(agent, slot_ps);
    }
}

impl Walker for Reader<'_> {
    fn done(&mut self, agent: AgentId, op: u32, message: Option<(ChannelId, u64)>) {
        let at = self.program.agents[agent.0 as usize].body as usize;
        let body = self.program.body(agent);
        let Op { kind, calls } = body.ops[op as usize];
        let bytes = |tile: u32| self.tiles[at][tile as usize];
        let costs = self.machine.costs();
        let dispatch = costs.dispatch_ps * Ps::from(calls);
        match kind {
            OpKind::Comm(Comm::Send { tile, .. }) => {
                let bytes = bytes(tile);
                self.takes(agent, dispatch);
                let Some((channel, _)) = message else { return };
                self.sends(agent, bytes, channel);
            }
            OpKind::Comm(Comm::Recv { .. } | Comm::RecvAny { .. } | Comm::Await { .. }) => {
                self.takes(agent, dispatch);
                let Some((channel, number)) = message else { return };
                self.receives(agent, channel, number);
            }
            OpKind::Move(Move::Load { tile, .. } | Move::ReducingLoad { tile, .. }) => {
                let bytes = bytes(tile);
                self.takes(agent, dispatch);
                self.touches(agent, body, kind, bytes, false);
            }
            OpKind::Move(Move::Store { tile, posted, .. } | Move::Copy { tile, posted, .. }) => {
                let bytes = bytes(tile);
                self.takes(agent, dispatch);
                self.touches(agent, body, kind, bytes, posted);
            }
            OpKind::Move(Move::Multicast { tile, .. }) => {
                let bytes = bytes(tile);
                self.takes(agent, dispatch);
                self.touches(agent, body, kind, bytes, true);
            }
            OpKind::Control(Control::Fence) => self.arrive(agent, self.puts[agent.0 as usize]),
            OpKind::Control(Control::Signal { counter, add, .. }) => {
                self.takes(agent, dispatch);
                let told = self.agents[agent.0 as usize].and(self.puts[agent.0 as usize]);
                self.counters[counter as usize].signal(add, told);
            }
            OpKind::Control(Control::WaitCounter { counter, at_least }) => {
                self.takes(agent, dispatch);
                self.arrive(agent, self.counters[counter as usize].reached(at_least.into()));
            }
            OpKind::Control(Control::Acquire { counter, amount }) => {
                self.takes(agent, dispatch);
                let counter = &mut self.counters[counter as usize];
                counter.taken += u64::from(amount);
                let front = counter.reached(counter.taken);
                self.arrive(agent, front);
            }
            OpKind::Control(Control::Delay { ps }) => self.takes(agent, dispatch + ps),
            OpKind::Math(math) => self.takes(agent, dispatch + math_ps(costs, body, &self.tiles[at], math)),
            OpKind::Comm(Comm::AwaitSlot { .. } | Comm::PostRecv { .. }) | OpKind::Control(Control::Barrier { .. }) => {
                self.takes(agent, dispatch)
            }
        }
    }

    fn met(&mut self, participants: &[AgentId]) {
        let latest =
            participants.iter().fold(Front::default(), |front, agent| front.and(self.agents[agent.0 as usize]));
        participants.iter().for_each(|&agent| self.arrive(agent, latest));
    }
}
