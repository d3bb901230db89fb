//! A replayed job with the operations of its calls in their places: one graph of computations, memory and messages for
//! every rank.
//!
//! An operation follows the one before it of its agent. What waits for a counter follows the signals that it waited
//! for: a signal of another rank, and what a one-sided transfer brings, come in messages of their own. A message between
//! two engines of one rank is a dependency. The order in which the replay issued nodes stays, by dependencies.
//!
//! A message of a job ends in the receiver's memory, and waits there for the engine that writes. Where memory takes no
//! time of its own, the store that keeps what was received is that wait, and not a duration of its own.

use crate::{Span, Timeline};
use ahbm_findings::Diagnostic;
use ahbm_machine::{DmaChannels, LinkId, Machine, Node as Place, PeId, Ps};
use ahbm_program::{AgentId, Body, Comm, Control, Duty, Locus, Move, OpKind, Program};
use ahbm_workload::{Gather, Groups, Kernel, Linked, MessageSpec, NodeBuilder, RankBuilder, Work, Workload};
use rustc_hash::FxHashMap;

/// A replayed job as a job without calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The job. Nodes state how long they took, waiting included.
    pub workload: Workload,
    /// Per rank and node, when it started.
    pub starts: Vec<Vec<Ps>>,
    /// The first rank whose calls waited for each other's messages: no dependency keeps their order.
    pub contended: Option<u32>,
}

/// A node of a rank, by rank and position in the order of making.
type At = (u32, u32);

struct Draft {
    name: Box<str>,
    doing: Doing,
    span: Span,
    after: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Doing {
    Nothing,
    Compute,
    Memory { store: bool, bytes: u64 },
    Send { to: u32, bytes: u64, tag: u32 },
    Recv { from: u32, bytes: u64, tag: u32 },
}

/// A signal of a counter: when, how much, by which node, and what the same agent has put before.
struct Signal {
    time: Ps,
    add: u64,
    by: At,
    agent: u32,
    puts: u32,
}

/// A node that waits for a counter, and what it takes from it.
struct Wait {
    time: Ps,
    by: At,
    agent: u32,
    need: u64,
    takes: bool,
}

struct Merge<'a> {
    program: &'a Program,
    machine: &'a Machine,
    job: &'a Linked,
    ranks: Vec<Vec<Draft>>,
    sends: Vec<Vec<At>>,
    receives: Vec<Vec<At>>,
    signals: Vec<Vec<Signal>>,
    waits: Vec<Vec<Wait>>,
    /// Per barrier its participants as they come: node, and the node before it.
    barriers: Vec<Vec<(Ps, At)>>,
    /// Per agent, what it has put to other ranks: the nodes that receive it.
    puts: Vec<Vec<At>>,
    tags: u32,
    /// What calls moved: when, between which PEs, how much, and the counter that starts the sender's part of the call.
    moved: Vec<Moved>,
}

/// A PE, and the link of its DMA channels.
type Channels = (PeId, Option<LinkId>);

struct Moved {
    time: Ps,
    from: PeId,
    to: PeId,
    bytes: u64,
    part: u32,
}

/// `program` is that of the replay, and `timeline` its run, recorded.
///
/// # Errors
/// `AHBM-U294` a barrier between agents of several ranks, which no message expresses; `AHBM-F136` as the graphs of jobs.
pub(super) fn merged(
    job: &Linked,
    program: &Program,
    machine: &Machine,
    timeline: &Timeline,
) -> Result<Merged, Vec<Diagnostic>> {
    let mut merge = Merge {
        program,
        machine,
        job,
        ranks: job.workload.ranks.iter().map(|_| Vec::new()).collect(),
        sends: vec![Vec::new(); program.channels.len()],
        receives: vec![Vec::new(); program.channels.len()],
        signals: (0..program.counters).map(|_| Vec::new()).collect(),
        waits: (0..program.counters).map(|_| Vec::new()).collect(),
        barriers: vec![Vec::new(); program.barriers.len()],
        puts: vec![Vec::new(); program.agents.len()],
        tags: program.channels.len() as u32,
        moved: Vec::new(),
    };
    for (agent, spans) in (0..).map(AgentId).zip(&timeline.spans) {
        let choices = timeline.choices.get(agent.0 as usize).map_or(&[][..], Vec::as_slice);
        merge.agent(agent, spans, choices.iter().copied(), timeline.ends[agent.0 as usize]);
    }
    merge.inside();
    merge.counters();
    merge.meet().map_err(|finding| vec![finding])?;
    merge.finish()
}

impl Merge<'_> {
    fn push(&mut self, rank: u32, name: impl Into<Box<str>>, doing: Doing, span: Span, after: Vec<u32>) -> At {
        let drafts = &mut self.ranks[rank as usize];
        drafts.push(Draft { name: name.into(), doing, span, after });
        (rank, drafts.len() as u32 - 1)
    }

    fn agent(
        &mut self,
        agent: AgentId,
        spans: &[Span],
        mut choices: impl Iterator<Item = ahbm_program::ChannelId>,
        end: Ps,
    ) {
        let program = self.program;
        let body = program.body(agent);
        let rank = self.rank(agent);
        let gate = program.gate(agent);
        let mut last = None;
        let mut posted = FxHashMap::default();
        let mut received = false;
        if let Some(gate) = gate {
            let start = spans.first().map_or(end, |span| span.start);
            let by = self.push(rank, "start", Doing::Nothing, Span { start, end: start }, Vec::new());
            self.waits[gate.start as usize].push(Wait { time: start, by, agent: agent.0, need: 1, takes: false });
            last = Some(by.1);
        }
        for (index, (op, &span)) in body.ops.iter().zip(spans).enumerate() {
            let bytes = |tile: u32| body.tiles[tile as usize].bytes();
            let mut channel = None;
            let doing = match op.kind {
                OpKind::Comm(Comm::Send { dir, tile, .. }) => {
                    let id = program.tx(agent, dir);
                    channel = Some(id);
                    self.moves(
                        agent,
                        program.agents[program.channels[id.0 as usize].receiver.0 as usize].place,
                        bytes(tile),
                        span.start,
                    );
                    match self.rank(program.channels[id.0 as usize].receiver) {
                        to if to == rank => Doing::Memory { store: true, bytes: bytes(tile) },
                        to => Doing::Send { to, bytes: bytes(tile), tag: id.0 },
                    }
                }
                OpKind::Comm(Comm::Recv { tile, .. } | Comm::PostRecv { tile, .. } | Comm::RecvAny { tile, .. }) => {
                    let id = match op.kind.direction() {
                        Some(dir) => Some(program.rx(agent, dir)),
                        None => choices.next(),
                    };
                    channel = id;
                    match id.map(|id| (id, self.rank(program.channels[id.0 as usize].sender))) {
                        Some((id, from)) if from != rank => Doing::Recv { from, bytes: bytes(tile), tag: id.0 },
                        _ => Doing::Nothing,
                    }
                }
                // Without a duration, a reader would charge its own.
                OpKind::Move(Move::Load { .. } | Move::ReducingLoad { .. }) if span.end == span.start => Doing::Nothing,
                OpKind::Move(Move::Load { tile, .. } | Move::ReducingLoad { tile, .. }) => {
                    Doing::Memory { store: false, bytes: bytes(tile) }
                }
                OpKind::Move(Move::Store { tile, .. } | Move::Multicast { tile, .. } | Move::Copy { tile, .. }) => {
                    match self.put(agent, body, op.kind) {
                        Some(to) => {
                            self.tags += 1;
                            Doing::Send { to, bytes: bytes(tile), tag: self.tags - 1 }
                        }
                        None if span.end == span.start => Doing::Nothing,
                        None if std::mem::take(&mut received) && self.is_free(agent, body, op.kind) => Doing::Nothing,
                        None => Doing::Memory { store: true, bytes: bytes(tile) },
                    }
                }
                OpKind::Math(_) | OpKind::Control(Control::Delay { .. }) if span.end > span.start => Doing::Compute,
                OpKind::Comm(Comm::AwaitSlot { .. } | Comm::Await { .. }) | OpKind::Control(_) | OpKind::Math(_) => {
                    Doing::Nothing
                }
            };
            received |= matches!(doing, Doing::Recv { .. });
            let name = self.name(agent, index);
            let by = self.push(rank, name, doing, span, last.into_iter().collect());
            match (op.kind, channel) {
                (OpKind::Comm(Comm::Send { .. }), Some(id)) => self.sends[id.0 as usize].push(by),
                (_, Some(id)) => self.receives[id.0 as usize].push(by),
                _ => {}
            }
            match op.kind {
                OpKind::Comm(Comm::PostRecv { dst, .. }) => {
                    posted.insert(dst, by.1);
                    continue;
                }
                OpKind::Comm(Comm::Await { value }) => {
                    self.ranks[rank as usize][by.1 as usize].after.extend(posted.get(&value));
                }
                OpKind::Control(Control::Signal { counter, add, .. }) => {
                    self.signal(agent, counter, add.into(), by, span.end)
                }
                OpKind::Control(
                    Control::WaitCounter { counter, at_least: need } | Control::Acquire { counter, amount: need },
                ) => {
                    let takes = matches!(op.kind, OpKind::Control(Control::Acquire { .. }));
                    let wait = Wait { time: span.end, by, agent: agent.0, need: need.into(), takes };
                    self.waits[counter as usize].push(wait);
                }
                OpKind::Control(Control::Barrier { id }) => self.barriers[id as usize].push((span.end, by)),
                OpKind::Move(Move::Store { .. } | Move::Copy { .. }) => {
                    if let Doing::Send { to, bytes, tag } = doing {
                        let arrival = Doing::Recv { from: rank, bytes, tag };
                        let at = self.push(to, "put", arrival, Span { start: span.end, end: span.end }, Vec::new());
                        self.puts[agent.0 as usize].push(at);
                    }
                }
                _ => {}
            }
            last = Some(by.1);
        }
        if let Some(gate) = gate {
            let by = self.push(rank, "end", Doing::Nothing, Span { start: end, end }, last.into_iter().collect());
            self.signal(agent, gate.end, 1, by, end);
        }
    }

    fn signal(&mut self, agent: AgentId, counter: u32, add: u64, by: At, time: Ps) {
        let puts = self.puts[agent.0 as usize].len() as u32;
        self.signals[counter as usize].push(Signal { time, add, by, agent: agent.0, puts });
    }

    /// The rank of an agent: its SIP.
    fn rank(&self, agent: AgentId) -> u32 {
        match self.program.duties.get(agent.0 as usize) {
            Some(Duty::Host(sip)) => *sip,
            _ => self.machine.coord(self.program.agents[agent.0 as usize].place).sip,
        }
    }

    /// The other rank into whose memory an operation writes what its own rank has.
    fn put(&self, agent: AgentId, body: &Body, kind: OpKind) -> Option<u32> {
        let operands: Vec<(u32, bool)> = match kind {
            OpKind::Move(Move::Store { .. } | Move::Copy { .. }) => body.touched(kind).collect(),
            _ => return None,
        };
        let own = self.rank(agent);
        let mut to = None;
        for (mem, written) in operands {
            let buffer = self.program.buffer(agent, body.mems.buffer(mem));
            let sip = match self.program.buffers[buffer.0 as usize].node {
                Place::Pe(pe) | Place::Hbm(pe) | Place::Sram(pe) => self.machine.coord(pe).sip,
                Place::Io(sip) => sip,
            };
            match written {
                true if sip != own => to = Some(sip),
                false if sip != own => return None,
                _ => {}
            }
        }
        to
    }

    fn moves(&mut self, agent: AgentId, to: PeId, bytes: u64, time: Ps) {
        if let Some(gate) = self.program.gate(agent) {
            let from = self.program.agents[agent.0 as usize].place;
            self.moved.push(Moved { time, from, to, bytes, part: gate.start });
        }
    }

    /// Whether reading and writing what an operation touches takes no time but that of waiting.
    fn is_free(&self, agent: AgentId, body: &Body, kind: OpKind) -> bool {
        let (costs, pe) = (self.machine.costs(), Place::Pe(self.program.agents[agent.0 as usize].place));
        let at_once = |(mem, _): (u32, bool)| {
            let buffer = self.program.buffer(agent, body.mems.buffer(mem));
            let way = self.machine.route(pe, self.program.buffers[buffer.0 as usize].node);
            way.is_ok_and(|way| way.hops.is_empty() && way.head_ps == 0)
        };
        costs.dispatch_ps == 0 && costs.dma_setup_ps == 0 && body.touched(kind).all(at_once)
    }

    /// The first rank a message of which waited for one of another call: at the engine that sends it, or at a link.
    fn contended(&mut self) -> Option<u32> {
        self.moved.sort_by_key(|moved| moved.time);
        // Per pool of DMA channels, each of them.
        let mut engines: FxHashMap<Channels, Vec<(Ps, u32)>> = FxHashMap::default();
        let channels = match self.machine.costs().dma_channels {
            DmaChannels::Any(count) => count as usize,
            DmaChannels::PerLink => 1,
        };
        let mut links: FxHashMap<LinkId, (Ps, u32)> = FxHashMap::default();
        self.moved.iter().find_map(|moved| {
            let way = self.machine.route(Place::Pe(moved.from), Place::Pe(moved.to)).ok()?;
            let slowest = way.hops.iter().map(|hop| self.machine.link_rate(hop.link).ps(moved.bytes)).max();
            let mut waits = false;
            let mut hold = |(until, part): &mut (Ps, u32)| {
                waits |= *until > moved.time && *part != moved.part;
                *until = moved.time.max(*until) + slowest.unwrap_or(0);
                *part = moved.part;
            };
            let pool = engines
                .entry((moved.from, self.machine.dma_link(way.links())))
                .or_insert_with(|| vec![(0, 0); channels]);
            hold(pool.iter_mut().min_by_key(|channel| channel.0).expect("a pool has a channel"));
            way.hops.iter().for_each(|hop| hold(links.entry(hop.link).or_default()));
            waits.then(|| self.machine.coord(moved.from).sip)
        })
    }

    /// What an operation is called; one of a host as its node.
    fn name(&self, agent: AgentId, index: usize) -> Box<str> {
        if let Some(&Duty::Host(rank)) = self.program.duties.get(agent.0 as usize) {
            let origin = self.program.origins.get(self.program.body(agent).origins[index]);
            if let Some(&Locus::Node(id)) = origin.map(|origin| &origin.locus) {
                let graph = self.job.workload.graph(rank);
                if let Ok(at) = graph.nodes().binary_search_by_key(&id, |node| node.id) {
                    return graph.name(at as u32).into();
                }
            }
        }
        self.program.describe(agent, index).into()
    }

    fn depend(&mut self, (rank, at): At, on: u32) {
        self.ranks[rank as usize][at as usize].after.push(on);
    }

    /// Messages between engines of one rank: the k-th of a channel is the k-th.
    fn inside(&mut self) {
        for (sends, receives) in std::mem::take(&mut self.sends).into_iter().zip(std::mem::take(&mut self.receives)) {
            for (send, receive) in sends.into_iter().zip(receives) {
                if send.0 == receive.0 {
                    self.depend(receive, send.1);
                }
            }
        }
    }

    /// What waits for a counter follows the signals that were there first.
    fn counters(&mut self) {
        for counter in 0..self.signals.len() {
            let mut signals = std::mem::take(&mut self.signals[counter]);
            let mut waits = std::mem::take(&mut self.waits[counter]);
            signals.sort_by_key(|signal| signal.time);
            waits.sort_by_key(|wait| wait.time);
            let mut taken = 0;
            // Per agent, the signals that an earlier wait of it follows.
            let mut known: FxHashMap<u32, usize> = FxHashMap::default();
            for wait in waits {
                let need = taken + wait.need;
                taken += if wait.takes { wait.need } else { 0 };
                let mut sum = 0;
                let last = signals.iter().position(|signal| {
                    sum += signal.add;
                    sum >= need
                });
                let end = last.map_or(signals.len(), |last| last + 1);
                let from = known.entry(wait.agent).or_default();
                for signal in signals.get(*from..end).unwrap_or_default() {
                    self.follow(wait.by, signal);
                }
                *from = end.max(*from);
            }
        }
    }

    fn follow(&mut self, waits: At, signal: &Signal) {
        if signal.by.0 == waits.0 {
            return self.depend(waits, signal.by.1);
        }
        let tag = self.tags;
        self.tags += 1;
        let span = Span { start: signal.time, end: signal.time };
        self.push(signal.by.0, "signal", Doing::Send { to: waits.0, bytes: 0, tag }, span, vec![signal.by.1]);
        let before = &self.puts[signal.agent as usize][..signal.puts as usize];
        let after = before.iter().filter(|(rank, _)| *rank == waits.0).map(|(_, at)| *at).collect();
        let (_, at) = self.push(waits.0, "signal", Doing::Recv { from: signal.by.0, bytes: 0, tag }, span, after);
        self.depend(waits, at);
    }

    /// Every participant of a barrier follows what the others had done before it.
    fn meet(&mut self) -> Result<(), Diagnostic> {
        for (barrier, mut there) in std::mem::take(&mut self.barriers).into_iter().enumerate() {
            there.sort_by_key(|(time, _)| *time);
            for round in there.chunks(self.program.barriers[barrier].max(1) as usize) {
                let rank = round[0].1.0;
                if round.iter().any(|(_, at)| at.0 != rank) {
                    let what = format!("barrier {barrier} is one of several ranks, which a trace has no node for");
                    return Err(Diagnostic::new("AHBM-U294", what));
                }
                let of = |at: u32| self.ranks[rank as usize][at as usize].after.clone();
                let before: Vec<u32> = round.iter().flat_map(|(_, at)| of(at.1)).collect();
                for (_, at) in round {
                    self.ranks[rank as usize][at.1 as usize].after = before.clone();
                }
            }
        }
        Ok(())
    }

    /// The graphs; ids are in the order of time.
    fn finish(mut self) -> Result<Merged, Vec<Diagnostic>> {
        let contended = self.contended();
        let workload = &self.job.workload;
        let mut gather = Gather::new(&workload.name, workload.ranks.len() as u32, Groups::default());
        let mut starts = Vec::with_capacity(self.ranks.len());
        for (rank, drafts) in (0..).zip(self.ranks) {
            let mut order: Vec<u32> = (0..drafts.len() as u32).collect();
            order.sort_by_key(|&at| drafts[at as usize].span.start);
            let mut id = vec![0u64; drafts.len()];
            order.iter().zip(0..).for_each(|(&at, number)| id[at as usize] = number);
            starts.push(order.iter().map(|&at| drafts[at as usize].span.start).collect());
            let mut builder = RankBuilder::new(rank, &*workload.ranks[rank as usize].file);
            for (at, draft) in drafts.into_iter().enumerate() {
                let after: Vec<u64> = draft.after.iter().map(|&on| id[on as usize]).collect();
                let work = match draft.doing {
                    Doing::Nothing => Work::Nothing,
                    Doing::Compute => Work::Compute(Kernel::default()),
                    Doing::Memory { store, bytes } => Work::Memory { store, bytes },
                    Doing::Send { to, bytes, tag } => Work::Send(message(&mut builder, to, bytes, tag)),
                    Doing::Recv { from, bytes, tag } => Work::Recv(message(&mut builder, from, bytes, tag)),
                };
                let node = NodeBuilder::new(id[at], draft.name).work(work).ps(draft.span.end - draft.span.start);
                builder.push(node.after(&after));
            }
            gather.add(builder.finish(false)?);
        }
        Ok(Merged { workload: gather.finish(), starts, contended })
    }
}

fn message(builder: &mut RankBuilder, other: u32, bytes: u64, tag: u32) -> MessageSpec {
    MessageSpec { peer: builder.peer(other), group: None, bytes, tag }
}
