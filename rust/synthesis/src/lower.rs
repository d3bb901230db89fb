//! From a schedule to a program.
//!
//! Every port has a sending agent and every link a receiving one. The sending agent works through the port's transfers
//! in the order of the schedule, waiting for each until its NPU's register is complete; the receiving agent puts what
//! arrives where it belongs. Sums are formed by one more agent per NPU, in the order in which they become complete: a
//! message that is to be added waits in scratch memory, so that the order of additions never depends on a race.
//!
//! # Why this is not the lowering of the schedule's plan
//!
//! A plan ([`Schedule::to_plan`]) has a thread block at either end of a queue, and its receivers add what arrives
//! themselves. Its lowering could place one agent per port as this one does. That was measured on 9 networks of 4 to 16
//! NPUs, with all collectives and methods: 384 schedules, each with shares of 6 kB and 1 MB.
//!
//! | machine | equal times | plan / this | operations of plan / this |
//! |---|---|---|---|
//! | PEs cost nothing, one for every port and one more | 384 and 384 of 384 | 1 | 0.85 |
//! | PEs cost nothing, one per NPU | 289 and 268 of 384 | 0.83 to 1.52 | 0.85 |
//! | the default PEs and memories, 2 or 8 per corner | 0 of 384 | 0.55 to 2.49 | 0.84 |
//!
//! Both are right, and both take the schedule's time where it is the network's alone. Elsewhere they are two
//! implementations. A call of a synthesized algorithm runs the plan, so the plan's lowering is the one to keep: it does
//! the same with fewer operations, and what `Schedule.program` takes would be what calls take. This one stays as long as
//! `Schedule.program` promises its times on machines whose PEs cost something; a test asks both where PEs cost nothing.

use crate::{Collective, Graph, Schedule};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Direction, Machine, Node, PeId, Ps};
use ahbm_program::{
    BinaryFn, BodyBuilder, BufferId, ChannelSettings, Comm, Control, Dtype, Locus, Math, Mem, Move, OpKind, Origin,
    OriginId, Program, ProgramBuilder, Scalar, Tile, ValueId,
};
use std::collections::BTreeMap;

/// A lowered schedule.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The program.
    pub program: Program,
    /// Per NPU, the buffer the collective works on in place.
    pub buffers: Vec<BufferId>,
    /// Per NPU, where the result is: another buffer only for all-to-all.
    pub results: Vec<BufferId>,
}

/// How data are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Element type.
    pub dtype: Dtype,
    /// How elements of two NPUs are combined.
    pub op: BinaryFn,
    /// The result is divided by the number of NPUs that take part.
    pub average: bool,
}

/// PEs an NPU needs so that each of its ports has a DMA engine: one per port out, one for what arrives.
pub fn engines(graph: &Graph) -> u32 {
    (0..graph.nodes()).map(|v| ports(graph, v)).max().unwrap_or(0) + 1
}

/// PEs an NPU needs so that, in a plan, each end of a link has a DMA engine; at a switch one, which keeps what leaves
/// by the port in order.
pub fn ends(graph: &Graph) -> u32 {
    if graph.switch().is_some() {
        return 1;
    }
    (0..graph.nodes()).map(|v| (graph.out(v).len() + graph.incoming(v).len()) as u32).max().unwrap_or(0)
}

/// Ports an NPU sends by.
fn ports(graph: &Graph, node: u32) -> u32 {
    if graph.switch().is_some() { 1 } else { graph.out(node).len() as u32 }
}

/// Slots of a queue so that no link waits for credits: a slot is free again two latencies after its message left; at a
/// switch, where messages wait on the way, there is one for each.
fn slots(schedule: &Schedule, graph: &Graph) -> u32 {
    if graph.switch().is_some() {
        let mut messages = vec![0; graph.links().len()];
        schedule.transfers.iter().for_each(|t| messages[t.link as usize] += 1);
        return messages.into_iter().max().unwrap_or(0).max(1);
    }
    let least = schedule.chunk_bytes.iter().copied().min().unwrap_or(0);
    let latency = graph.links().iter().map(|l| l.latency_ps).max().unwrap_or(0);
    let busy = graph.links().iter().map(|l| l.rate.ps(least)).min().unwrap_or(0).max(1);
    let messages = schedule.transfers.len() as u64;
    u32::try_from((2 + (2 * latency).div_ceil(busy)).min(messages.max(1))).unwrap_or(u32::MAX)
}

/// The place of a chunk of an NPU: an index into its buffers, and an offset.
type Place = (u16, u64);

const MAIN: u16 = 0;
const SCRATCH: u16 = 1;
const OUT: u16 = 2;

/// The condition for reading a register.
#[derive(Clone)]
enum Register {
    /// As it was at the start.
    Initial,
    /// As it was at the start, at an NPU that takes no part.
    Empty,
    /// The link's message of this number.
    Message(u32, u32),
    /// Messages to be added.
    Parts(Parts),
    /// The NPU's sum of this number.
    Sum(u32),
}

/// The parts by which a register is to be increased.
#[derive(Clone, Default)]
struct Parts {
    /// The message (link, number) that is in the register already, where that is not the NPU's own data.
    base: Option<(u32, u32)>,
    /// Messages waiting in scratch memory: link, number, offset.
    messages: Vec<(u32, u32, u64)>,
    /// When the last one arrives; sums are formed in this order.
    at: Ps,
}

/// A sum to be formed.
struct Sum {
    chunk: u32,
    parts: Parts,
}

/// The operations of one agent in the making.
struct Agent {
    body: BodyBuilder,
    /// Per counter waited for, the highest value reached.
    reached: Vec<(u32, u32)>,
}

impl Agent {
    fn new() -> Self {
        Self { body: BodyBuilder::new(), reached: Vec::new() }
    }

    fn push(&mut self, kind: impl Into<OpKind>) {
        self.body.push(kind, 0, OriginId(0));
    }

    fn wait(&mut self, counter: u32, at_least: u32) {
        let at = self.reached.iter().position(|r| r.0 == counter).unwrap_or_else(|| {
            self.reached.push((counter, 0));
            self.reached.len() - 1
        });
        if self.reached[at].1 < at_least {
            self.reached[at].1 = at_least;
            self.push(Control::WaitCounter { counter, at_least });
        }
    }

    fn load(&mut self, (buffer, offset): Place, tile: u32) -> ValueId {
        let (dst, mem) = (self.body.value(), self.body.mem(Mem { buffer, offset }));
        self.push(Move::Load { dst, mem, tile });
        dst
    }

    fn store(&mut self, src: ValueId, (buffer, offset): Place, tile: u32) {
        let mem = self.body.mem(Mem { buffer, offset });
        self.push(Move::Store { src, mem, tile, posted: false });
    }
}

/// Sorts sums; returns each one's place by its former index.
fn in_order_of_time(sums: &mut [Sum]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sums.len() as u32).collect();
    order.sort_by_key(|&i| sums[i as usize].parts.at);
    let mut rank = vec![0; sums.len()];
    for (place, &index) in order.iter().enumerate() {
        rank[index as usize] = place as u32;
    }
    sums.sort_by_key(|s| s.parts.at);
    rank
}

struct Lowering<'a> {
    schedule: &'a Schedule,
    ranks: u32,
    /// Per NPU, true when it takes part.
    takes_part: Vec<bool>,
    elements: Elements,
    /// Offset of each chunk within its share, and bytes of a share.
    offsets: Vec<u64>,
    share: u64,
    /// Per NPU, bytes of scratch memory in use.
    scratch: Vec<u64>,
    /// The places at which an NPU keeps the data that it relays.
    relayed: BTreeMap<(u32, u32), u64>,
    senders: Vec<Agent>,
    receivers: Vec<Agent>,
    sums: Vec<Vec<Sum>>,
}

/// Lowers a schedule for the machine its graph was made of. The matching network model is any that charges a message
/// of a link its bytes and its latency; where a PE's engines or memories cost time too, so does the program.
///
/// # Errors
/// The errors of the program's builder.
pub fn lower(
    schedule: &Schedule,
    graph: &Graph,
    machine: &Machine,
    elements: Elements,
) -> Result<Lowered, Vec<Diagnostic>> {
    let n = graph.nodes();
    let mut offsets = Vec::with_capacity(schedule.chunk_bytes.len());
    let mut share = 0;
    for bytes in &schedule.chunk_bytes {
        offsets.push(share);
        share += bytes;
    }
    let mut takes_part = vec![false; n as usize];
    for &member in &schedule.members {
        takes_part[member as usize] = true;
    }
    let mut lowering = Lowering {
        schedule,
        ranks: schedule.members.len() as u32,
        takes_part,
        elements,
        offsets,
        share,
        scratch: vec![0; n as usize],
        relayed: BTreeMap::new(),
        senders: (0..graph.ports()).map(|_| Agent::new()).collect(),
        receivers: graph.links().iter().map(|_| Agent::new()).collect(),
        sums: (0..n).map(|_| Vec::new()).collect(),
    };
    lowering.transfers(graph);
    lowering.finish(graph, machine)
}

impl Lowering<'_> {
    /// The place at which an NPU keeps a chunk.
    fn place(&mut self, node: u32, chunk: u32) -> Place {
        let chunk = self.schedule.meaning(node, chunk);
        let pieces = self.offsets.len() as u32;
        let (share, piece) = (chunk / pieces, (chunk % pieces) as usize);
        if chunk < self.schedule.chunks() {
            let inside = self.offsets[piece];
            if self.schedule.collective != Collective::AllToAll {
                if self.takes_part[node as usize] {
                    return (MAIN, u64::from(share) * self.share + inside);
                }
            } else if self.schedule.members[(share / self.ranks) as usize] == node {
                return (MAIN, u64::from(share % self.ranks) * self.share + inside);
            } else if self.schedule.members[(share % self.ranks) as usize] == node {
                return (OUT, u64::from(share / self.ranks) * self.share + inside);
            }
        }
        let free = &mut self.scratch[node as usize];
        let offset = *self.relayed.entry((node, chunk)).or_insert_with(|| {
            *free += self.schedule.bytes(chunk);
            *free - self.schedule.bytes(chunk)
        });
        (SCRATCH, offset)
    }

    fn tile(&self, chunk: u32) -> Tile {
        let dtype = self.elements.dtype;
        Tile::new(dtype, &[self.schedule.bytes(chunk) / dtype.bytes()])
    }

    /// The condition that each transfer waits for and the place of the data that it brings, and the sums of every NPU
    /// in order of time.
    fn dependences(&mut self, graph: &Graph) -> Vec<(Register, Option<u64>)> {
        let (n, chunks) = (graph.nodes(), self.schedule.chunks());
        let arrivals = self.schedule.times(graph, true).arrivals;
        let mut registers = vec![Register::Empty; self.schedule.registers(n)];
        for &node in &self.schedule.members {
            let first = node as usize * chunks as usize;
            registers[first..first + chunks as usize].fill(Register::Initial);
        }
        let mut numbers = vec![0u32; graph.links().len()];
        let mut found = Vec::with_capacity(self.schedule.transfers.len());
        for (&transfer, &at) in self.schedule.transfers.iter().zip(&arrivals) {
            spend(32);
            let (link, chunk) = (transfer.link, transfer.chunk());
            let ends = graph.link(link);
            let source = &mut registers[self.schedule.register(n, chunks, ends.from, chunk)];
            if let Register::Parts(parts) = source {
                let sums = &mut self.sums[ends.from as usize];
                sums.push(Sum { chunk, parts: std::mem::take(parts) });
                *source = Register::Sum(sums.len() as u32 - 1);
            }
            let waits = source.clone();
            let number = numbers[link as usize];
            numbers[link as usize] += 1;
            let target = &mut registers[self.schedule.register(n, chunks, ends.to, chunk)];
            if !transfer.adds() || matches!(target, Register::Empty) {
                *target = Register::Message(link, number);
                found.push((waits, None));
                continue;
            }
            let offset = self.scratch[ends.to as usize];
            self.scratch[ends.to as usize] += self.schedule.bytes(chunk);
            let base = if let Register::Message(link, number) = *target { Some((link, number)) } else { None };
            if !matches!(target, Register::Parts(_)) {
                *target = Register::Parts(Parts { base, ..Parts::default() });
            }
            if let Register::Parts(parts) = target {
                parts.messages.push((link, number, offset));
                parts.at = at.max(parts.at);
            }
            found.push((waits, Some(offset)));
        }
        for chunk in 0..chunks {
            for node in self.schedule.takers(chunk) {
                let register = &mut registers[self.schedule.register(n, chunks, node, chunk)];
                if let Register::Parts(parts) = register {
                    self.sums[node as usize].push(Sum { chunk, parts: std::mem::take(parts) });
                }
            }
        }
        let ranks: Vec<Vec<u32>> = self.sums.iter_mut().map(|sums| in_order_of_time(sums)).collect();
        for ((waits, _), transfer) in found.iter_mut().zip(&self.schedule.transfers) {
            if let Register::Sum(index) = waits {
                *index = ranks[graph.link(transfer.link).from as usize][*index as usize];
            }
        }
        found
    }

    fn transfers(&mut self, graph: &Graph) {
        let links = graph.links().len() as u32;
        for (&transfer, (waits, offset)) in self.schedule.transfers.iter().zip(self.dependences(graph)) {
            spend(128);
            let (link, chunk) = (transfer.link, transfer.chunk());
            let ends = graph.link(link);
            let direction = |rank| Direction::Tag { rank, channel: link };
            let tile = self.tile(chunk);
            let from = self.place(ends.from, chunk);
            let sender = &mut self.senders[graph.port(link) as usize];
            match waits {
                Register::Message(link, number) => sender.wait(link, number + 1),
                Register::Sum(number) => sender.wait(links + ends.from, number + 1),
                Register::Initial | Register::Empty | Register::Parts(_) => {}
            }
            let kept = sender.body.tile(tile.clone());
            let value = sender.load(from, kept);
            let dir = sender.body.direction(direction(ends.to));
            sender.push(Comm::Send { dir, src: value, tile: kept });
            sender.body.release(value);

            let to = match offset {
                Some(offset) => (SCRATCH, offset),
                None => self.place(ends.to, chunk),
            };
            let receiver = &mut self.receivers[link as usize];
            let tile = receiver.body.tile(tile);
            let value = receiver.body.value();
            let dir = receiver.body.direction(direction(ends.from));
            receiver.push(Comm::Recv { dir, dst: value, tile });
            receiver.store(value, to, tile);
            receiver.push(Control::Signal { counter: link, add: 1, posted: false });
            receiver.body.release(value);
        }
    }

    /// The agent that forms an NPU's sums.
    fn collector(&mut self, node: u32, links: u32) -> Agent {
        let mut agent = Agent::new();
        let rank = self.schedule.members.iter().position(|&m| m == node);
        if self.schedule.collective == Collective::AllToAll
            && let Some(rank) = rank
        {
            let share = self.share;
            let mem = |buffer| Mem { buffer, offset: rank as u64 * share };
            let (src, dst) = (agent.body.mem(mem(MAIN)), agent.body.mem(mem(OUT)));
            let dtype = self.elements.dtype;
            let tile = agent.body.tile(Tile::new(dtype, &[share / dtype.bytes()]));
            agent.push(Move::Copy { src, dst, tile, posted: false });
        }
        for sum in std::mem::take(&mut self.sums[node as usize]) {
            let messages = sum.parts.messages.iter().map(|&(link, number, _)| (link, number));
            for (link, number) in messages.chain(sum.parts.base) {
                agent.wait(link, number + 1);
            }
            let place = self.place(node, sum.chunk);
            let tile = agent.body.tile(self.tile(sum.chunk));
            let mut total = agent.load(place, tile);
            for &(_, _, offset) in &sum.parts.messages {
                let part = agent.load((SCRATCH, offset), tile);
                let dst = agent.body.value();
                agent.push(Math::Binary { f: self.elements.op, dst, a: total, b: part, tile });
                agent.body.release(total);
                agent.body.release(part);
                total = dst;
            }
            agent.store(total, place, tile);
            agent.body.release(total);
            agent.push(Control::Signal { counter: links + node, add: 1, posted: false });
        }
        agent
    }

    /// Lets the collectors divide what their NPUs end with, once all has arrived and nothing is left to be sent.
    fn average(&mut self, graph: &Graph, collectors: &mut [Agent]) {
        let links = graph.links().len() as u32;
        let mut messages = vec![0; links as usize];
        self.schedule.transfers.iter().for_each(|t| messages[t.link as usize] += 1);
        let sent = |node: u32| links + graph.nodes() + node;
        let mut busy = vec![0; graph.nodes() as usize];
        let mut seen = vec![false; graph.ports() as usize];
        for (index, link) in (0..).zip(graph.links()) {
            let port = graph.port(index) as usize;
            if !std::mem::replace(&mut seen[port], true) && !self.senders[port].body.is_empty() {
                self.senders[port].push(Control::Signal { counter: sent(link.from), add: 1, posted: false });
                busy[link.from as usize] += 1;
            }
        }
        let mut results = vec![Vec::new(); graph.nodes() as usize];
        for chunk in 0..self.schedule.chunks() {
            self.schedule.takers(chunk).into_iter().for_each(|node| results[node as usize].push(chunk));
        }
        for ((node, chunks), agent) in (0..).zip(results).zip(collectors) {
            if chunks.is_empty() {
                continue;
            }
            for &link in graph.incoming(node) {
                agent.wait(link, messages[link as usize]);
            }
            agent.wait(sent(node), busy[node as usize]);
            let scalar = agent.body.scalar(Scalar::Int(self.ranks.into()));
            for chunk in chunks {
                let (place, tile) = (self.place(node, chunk), agent.body.tile(self.tile(chunk)));
                let (sum, dst) = (agent.load(place, tile), agent.body.value());
                agent.push(Math::BinaryScalar { f: BinaryFn::Div, swapped: false, dst, a: sum, scalar, tile });
                agent.store(dst, place, tile);
                agent.body.release(sum);
                agent.body.release(dst);
            }
        }
    }

    fn finish(mut self, graph: &Graph, machine: &Machine) -> Result<Lowered, Vec<Diagnostic>> {
        let links = graph.links().len() as u32;
        let slots = slots(self.schedule, graph);
        let n = graph.nodes();
        let mut collectors: Vec<Agent> = (0..n).map(|node| self.collector(node, links)).collect();
        if self.elements.average {
            self.average(graph, &mut collectors);
        }
        let mut builder =
            ProgramBuilder::new(format!("{} by {}", self.schedule.collective.name(), self.schedule.method));
        builder.origins.intern(Origin { file: "synthesized".into(), locus: Locus::Whole });
        // Messages that have arrived, per link; sums that are formed and ports that are done sending, per NPU.
        for _ in 0..links + 2 * n {
            builder.counter();
        }
        let pes = machine.sfr().pes;
        let place = |node: u32, engine: usize| -> Result<(Coord, PeId), Vec<Diagnostic>> {
            let coord = Coord { sip: node, cube: 0, pe: engine as u32 % pes };
            let missing =
                || vec![Diagnostic::new("AHBM-U409", format!("{coord} of the schedule is not on the machine"))];
            Ok((coord, machine.pe(coord).ok_or_else(missing)?))
        };
        let exchanges = self.schedule.collective == Collective::AllToAll;
        let total = u64::from(if exchanges { self.ranks } else { self.schedule.shares }) * self.share;
        let mut tables = Vec::new();
        for node in 0..n {
            let home = Node::Hbm(place(node, ports(graph, node) as usize)?.1);
            let own = if self.takes_part[node as usize] { total } else { 0 };
            let main = builder.buffer(home, own);
            let scratch = builder.buffer(home, self.scratch[node as usize]);
            let out = if exchanges { builder.buffer(home, own) } else { main };
            tables.push([main, scratch, out]);
        }
        let mut senders = vec![None; graph.ports() as usize];
        let mut receivers = vec![None; links as usize];
        let mut agents = Vec::new();
        let mut engines = vec![0; n as usize];
        let mut port_seen = vec![false; graph.ports() as usize];
        for (index, link) in graph.links().iter().enumerate() {
            let port = graph.port(index as u32) as usize;
            if !std::mem::replace(&mut port_seen[port], true) {
                let sender = std::mem::replace(&mut self.senders[port], Agent::new());
                agents.push((link.from, engines[link.from as usize], sender, Some((port, true))));
                engines[link.from as usize] += 1;
            }
            let receiver = std::mem::replace(&mut self.receivers[index], Agent::new());
            agents.push((link.to, ports(graph, link.to) as usize, receiver, Some((index, false))));
        }
        for (node, collector) in collectors.into_iter().enumerate() {
            agents.push((node as u32, ports(graph, node as u32) as usize, collector, None));
        }
        for (node, engine, agent, role) in agents {
            if agent.body.is_empty() {
                continue;
            }
            let (coord, pe) = place(node, engine)?;
            let body = builder.body(agent.body.finish());
            let id = builder.thread_block(node, coord, pe, body, &tables[node as usize]);
            match role {
                Some((port, true)) => senders[port] = Some(id),
                Some((link, false)) => receivers[link] = Some(id),
                None => {}
            }
        }
        for (link, receiver) in receivers.into_iter().enumerate() {
            let (known, channel) = (graph.link(link as u32), link as u32);
            if let (Some(receiver), Some(sender)) = (receiver, senders[graph.port(channel) as usize]) {
                let (away, back) =
                    (Direction::Tag { rank: known.to, channel }, Direction::Tag { rank: known.from, channel });
                builder.connect((sender, away), (receiver, back));
            }
        }
        // Whole chunks wait in slots: in the largest memory, where the machine has a tier of that name.
        let tier = machine.costs().tiers.get_index_of("hbm").unwrap_or(0) as u32;
        let program = builder.finish(ChannelSettings { slots, slot_bytes: None, tier, credit_bytes: 0 })?;
        Ok(Lowered {
            program,
            buffers: tables.iter().map(|t| t[0]).collect(),
            results: tables.iter().map(|t| t[2]).collect(),
        })
    }
}
