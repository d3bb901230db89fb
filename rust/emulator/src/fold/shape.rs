//! What is the same wherever a program runs: who does what, and who talks to whom.

use super::body;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Node, PeId, Rate};
use ahbm_program::{AgentId, Body, ChannelId, Move, OpKind, Program};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::hash_map::Entry;

/// A way that bytes of an agent take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) from: Node,
    pub(super) to: Node,
    /// It uses the DMA channel that reads.
    pub(super) reads: bool,
    /// The channel whose messages they are.
    pub(super) channel: Option<ChannelId>,
}

/// The other end of an agent's channel: the agent, and the place of the channel in that one's table.
pub(super) type End = Option<(u32, u32)>;

/// An agent of a program.
#[derive(Debug)]
pub(super) struct Actor {
    /// Position of its SIP in the group, and how many agents of that SIP come before it.
    pub(super) member: u32,
    pub(super) number: u32,
    /// The PE that it runs on, where the program was made for.
    pub(super) place: PeId,
    /// Equal numbers are equal work at equal places of a SIP, with ways of equal length and speed.
    pub(super) kind: u32,
    /// Per entry of its table of channels, sending and receiving in turn, the other end.
    pub(super) ends: Box<[End]>,
    /// The members whose memory it names, in the order of its buffers.
    pub(super) owners: Box<[u32]>,
    /// Channels in the order of its table, then transfers in the order of its operations.
    pub(super) flows: Box<[Flow]>,
}

/// A program for a group.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) actors: Vec<Actor>,
    /// Per member its agents.
    pub(super) agents: Vec<Vec<u32>>,
    /// Its agents share counters or barriers: those of one launch cannot stand for each other.
    pub(super) counts: bool,
}

/// A kind of agent in full.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    body: u32,
    cube: u32,
    pe: u32,
    /// Per entry of the table of channels what the channel is; per buffer what and where it is; per flow its cost.
    facts: Vec<u64>,
}

impl Shape {
    /// The shape of a program that was made for the SIPs `home`; none where one of its agents cannot stand for another.
    pub(super) fn new(machine: &Machine, program: &Program, home: &[u32]) -> Option<Self> {
        let bodies = kinds(program)?;
        let mut kinds: IndexSet<Kind, FxBuildHasher> = IndexSet::default();
        let mut agents = vec![Vec::new(); home.len()];
        let table = |agent: usize| {
            let own = &program.agents[agent];
            let count = 2 * program.bodies[own.body as usize].directions.len();
            &program.channel_table[own.channels as usize..own.channels as usize + count]
        };
        // Per channel its places in the tables of sender and receiver.
        let mut places = vec![[u32::MAX; 2]; program.channels.len()];
        for agent in 0..program.agents.len() {
            for (place, id) in (0..).zip(table(agent)).filter(|(_, id)| **id != ChannelId::NONE) {
                let known = &mut places[id.0 as usize][place as usize % 2];
                if *known != u32::MAX {
                    return None;
                }
                *known = place;
            }
        }
        let mut ways_of: FxHashMap<u32, Ways> = FxHashMap::default();
        let mut actors = Vec::with_capacity(program.agents.len());
        for (index, agent) in program.agents.iter().enumerate() {
            let at = machine.coord(agent.place);
            let member = home.binary_search(&at.sip).ok()? as u32;
            let (mut facts, mut flows) = (Vec::new(), Vec::new());
            let mut ends = Vec::new();
            for (place, &id) in table(index).iter().enumerate() {
                if id == ChannelId::NONE {
                    ends.push(None);
                    facts.push(u64::MAX);
                    continue;
                }
                let channel = &program.channels[id.0 as usize];
                let other = if place % 2 == 0 { channel.receiver } else { channel.sender };
                ends.push(Some((other.0, places[id.0 as usize][1 - place % 2])));
                let (num, den) = channel.wire.parts();
                facts.extend([channel.slots, channel.tier, num, den].map(u64::from));
                facts.push(channel.credit_bytes);
                if place % 2 == 0 {
                    let (from, to) = (Node::Pe(agent.place), Node::Pe(program.agents[other.0 as usize].place));
                    flows.push(Flow { from, to, reads: false, channel: Some(id) });
                    // Credits come back.
                    cost(machine, (to, from), &mut facts).ok()?;
                }
            }
            let owners = owners(machine, program, index, home, &mut facts)?;
            let kind = bodies[agent.body as usize];
            let ways = ways_of.entry(kind).or_insert_with(|| ways(&program.bodies[kind as usize]));
            transfers(program, index, ways, &mut flows);
            for flow in &flows {
                cost(machine, (flow.from, flow.to), &mut facts).ok()?;
                // What is read at a distance is asked for.
                cost(machine, (Node::Pe(agent.place), flow.from), &mut facts).ok()?;
            }
            let kind = Kind { body: kind, cube: at.cube, pe: at.pe, facts };
            let own = &mut agents[member as usize];
            actors.push(Actor {
                member,
                number: own.len() as u32,
                place: agent.place,
                kind: kinds.insert_full(kind).0 as u32,
                ends: ends.into(),
                owners,
                flows: flows.into(),
            });
            own.push(index as u32);
        }
        Some(Self { actors, agents, counts: program.counters > 0 || !program.barriers.is_empty() })
    }
}

/// Per body the first one that costs the same; none where a body stands for no other.
fn kinds(program: &Program) -> Option<Vec<u32>> {
    let mut known: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    // Bodies of one class of agents share their operations, and are compared without a look at them.
    let mut shared: FxHashMap<_, u32> = FxHashMap::default();
    let mut kinds = Vec::with_capacity(program.bodies.len());
    for (index, body) in (0..).zip(&program.bodies) {
        let first = match shared.entry((&body.ops, &body.tiles, body.directions.len(), body.mems.by_buffer())) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(place) => {
                let alike = known.entry(body::digest(body)?).or_default();
                let same = |&&other: &&u32| body::alike(&program.bodies[other as usize], body);
                *place.insert(alike.iter().find(same).copied().unwrap_or_else(|| {
                    alike.push(index);
                    index
                }))
            }
        };
        kinds.push(first);
    }
    Some(kinds)
}

/// The members whose memory an agent's buffers are; what else is known of a buffer becomes a fact.
fn owners(
    machine: &Machine,
    program: &Program,
    agent: usize,
    home: &[u32],
    facts: &mut Vec<u64>,
) -> Option<Box<[u32]>> {
    let body = program.body(AgentId(agent as u32));
    let mut owner = |index: u16| {
        let node = program.buffers[program.buffer(AgentId(agent as u32), index).0 as usize].node;
        let (what, sip, cube, pe) = match node {
            Node::Pe(pe) => (0, machine.coord(pe).sip, machine.coord(pe).cube, machine.coord(pe).pe),
            Node::Hbm(pe) => (1, machine.coord(pe).sip, machine.coord(pe).cube, machine.coord(pe).pe),
            Node::Sram(pe) => (2, machine.coord(pe).sip, machine.coord(pe).cube, 0),
            Node::Io(sip) => (3, sip, 0, 0),
        };
        let own = sip == machine.coord(program.agents[agent].place).sip;
        facts.extend([what, u64::from(cube), u64::from(pe), u64::from(own)]);
        home.binary_search(&sip).ok().map(|member| member as u32)
    };
    (0..body.mems.buffers()).map(|index| owner(index as u16)).collect()
}

/// From which buffer to which other one the operations of a body move bytes, each way once; none for the agent itself.
type Ways = Vec<(Option<u16>, Option<u16>)>;

fn ways(body: &Body) -> Ways {
    let mut known: IndexSet<(Option<u16>, Option<u16>), FxBuildHasher> = IndexSet::default();
    let buffer = |mem: u32| Some(body.mems.buffer(mem));
    for op in &body.ops {
        known.insert(match op.kind {
            OpKind::Move(Move::Load { mem, .. }) => (buffer(mem), None),
            OpKind::Move(Move::Store { mem, .. }) => (None, buffer(mem)),
            OpKind::Move(Move::Copy { src, dst, .. }) => (buffer(src), buffer(dst)),
            _ => continue,
        });
    }
    known.into_iter().collect()
}

/// The transfers of an agent's operations, each way once.
fn transfers(program: &Program, agent: usize, ways: &Ways, flows: &mut Vec<Flow>) {
    let own = Node::Pe(program.agents[agent].place);
    let node = |buffer: Option<u16>| match buffer {
        Some(buffer) => program.buffers[program.buffer(AgentId(agent as u32), buffer).0 as usize].node,
        None => own,
    };
    let nodes: IndexSet<(Node, Node), FxBuildHasher> = ways.iter().map(|&(from, to)| (node(from), node(to))).collect();
    flows.extend(nodes.into_iter().map(|(from, to)| Flow { from, to, reads: from != own, channel: None }));
}

/// Latencies and bandwidths along a way.
fn cost(machine: &Machine, (from, to): (Node, Node), facts: &mut Vec<u64>) -> Result<(), Diagnostic> {
    let route = machine.route(from, to)?;
    facts.extend([route.head_ps, route.hops.len() as u64]);
    // Rates are told apart by the time of so many bytes.
    let time = |rate: Rate| rate.ps(1 << 32);
    route.hops.iter().for_each(|hop| facts.extend([hop.after_ps, time(machine.link_rate(hop.link))]));
    Ok(())
}
