//! Launches whose ranks start and end each on its own, as one program.
//!
//! Of parts that do the same, one can stand for the others ([`Stands`]): only its agents are in the program, and what
//! they send to a part that another stands for reaches the one that stands for it.

use super::{ABSENT, Writer};
use crate::{Agent, AgentId, Buffer, BufferId, Channel, ChannelId, Control, Duty, Gate, Locus, Origin, Program};
use ahbm_machine::{Coord, Machine, Node, PeId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A launch whose ranks start and end each on its own.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// The program that runs.
    pub program: &'a Program,
    /// The SIPs that the program was made for, ascending.
    pub home: &'a [u32],
    /// The SIPs that take their places, ascending.
    pub there: &'a [u32],
    /// Those SIPs in the order of the launch's parts.
    pub sips: &'a [u32],
}

impl Share<'_> {
    /// The place in the launch that a place of its program is. Asked for every flow: lists of SIPs are not compared.
    pub fn place(&self, machine: &Machine, pe: PeId) -> PeId {
        if std::ptr::eq(self.home, self.there) {
            return pe;
        }
        let at = machine.coord(pe);
        let sip = self.sip(at.sip);
        if sip == at.sip { pe } else { machine.pe(Coord { sip, ..at }).unwrap_or(pe) }
    }

    /// The end of a transfer in the launch that an end in its program is.
    pub fn node(&self, machine: &Machine, node: Node) -> Node {
        match node {
            Node::Pe(pe) => Node::Pe(self.place(machine, pe)),
            Node::Hbm(pe) => Node::Hbm(self.place(machine, pe)),
            Node::Sram(pe) => Node::Sram(self.place(machine, pe)),
            Node::Io(sip) => Node::Io(self.sip(sip)),
        }
    }

    fn sip(&self, sip: u32) -> u32 {
        self.home.binary_search(&sip).map_or(sip, |member| self.there[member])
    }
}

/// A part of a launch: what one rank does in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The counter that is no longer zero once the part may start.
    pub start: u32,
    /// The counter that every agent of the part adds one to at its end.
    pub end: u32,
    /// The agents of the part.
    pub agents: u32,
}

/// Launches as one program that nobody has started.
#[derive(Debug, Clone, Default)]
pub struct Assembly {
    /// The program. Its first counters are those of the parts.
    pub program: Program,
    /// Per launch its parts, in the order of its SIPs; those that another stands for are that one.
    pub parts: Vec<Box<[Part]>>,
    /// Per launch, where its program's own counters begin.
    pub counters: Vec<u32>,
    /// Per channel, the place of the agent that its messages go to; of the receiver another may stand for.
    pub towards: Vec<PeId>,
}

/// Which parts of launches stand for which.
pub trait Stands {
    /// The launch and the part that stands for a part of a launch; it stands for itself.
    fn part(&self, launch: u32, part: u32) -> (u32, u32);
    /// One of the launches that make one together, the same for all of them.
    fn launch(&self, launch: u32) -> u32;
}

/// Every part stands for itself.
#[derive(Debug, Clone, Copy)]
pub struct Themselves;

impl Stands for Themselves {
    fn part(&self, launch: u32, part: u32) -> (u32, u32) {
        (launch, part)
    }

    fn launch(&self, launch: u32) -> u32 {
        launch
    }
}

/// What is the same in all launches of a program.
struct Shape {
    /// Per agent its SIP's position in `home`; none outside of it.
    member: Vec<Option<u32>>,
    /// Per agent, how many agents of the same member come before it.
    number: Vec<u32>,
    /// Per member its agents.
    agents: Vec<Vec<u32>>,
    /// Per channel, the agents that name it and the places of the channel in their tables.
    named: Vec<Vec<(u32, u32)>>,
    /// Per body, whether an agent that is there has it.
    used: Vec<bool>,
}

impl Shape {
    fn new(machine: &Machine, share: &Share<'_>) -> Self {
        let program = share.program;
        let mut agents = vec![Vec::new(); share.home.len().max(1)];
        let (mut member, mut number) = (Vec::new(), Vec::new());
        let mut named = vec![Vec::new(); program.channels.len()];
        for (index, agent) in (0..).zip(&program.agents) {
            let own = share.home.binary_search(&machine.coord(agent.place).sip).ok().map(|at| at as u32);
            let list = &mut agents[own.unwrap_or(0) as usize];
            member.push(own);
            number.push(list.len() as u32);
            list.push(index);
            let first = agent.channels as usize;
            for (place, id) in (0..).zip(&program.channel_table[first..first + directions(program, agent)]) {
                if *id != ChannelId::NONE {
                    named[id.0 as usize].push((index, place));
                }
            }
        }
        Self { member, number, agents, named, used: vec![false; program.bodies.len()] }
    }
}

/// Entries of an agent in the table of channels.
fn directions(program: &Program, agent: &Agent) -> usize {
    2 * program.bodies[agent.body as usize].directions.len()
}

/// A launch on its way into the program.
struct Launch {
    shape: usize,
    /// Per member of the program's group, its part.
    part_of: Vec<u32>,
    /// Per agent its number in the program; [`ABSENT`] where another stands for it.
    agents: Box<[u32]>,
}

impl Launch {
    fn part(&self, shape: &Shape, agent: u32) -> u32 {
        // An agent on a SIP without a part belongs to the first part.
        shape.member[agent as usize].map_or(0, |member| self.part_of[member as usize])
    }
}

/// Places launches beside each other on one machine. An agent on a SIP without a part belongs to the first part.
pub fn assemble(name: &str, machine: &Machine, launches: &[Share<'_>], stands: &impl Stands) -> Assembly {
    let mut assembler = Assembler { machine, launches, stands, shapes: Vec::new(), list: Vec::new() };
    let mut writer = Writer::new(name);
    let parts = assembler.count(&mut writer);
    let mut counters = vec![0; launches.len()];
    let mut made: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
    for (launch, share) in (0..).zip(launches) {
        let one = stands.launch(launch);
        let first = *made.entry(one).or_insert_with(|| writer.counters(share.program));
        counters[launch as usize] = first.0;
        if !assembler.list[launch as usize].agents.is_empty() {
            let used = &assembler.shapes[assembler.list[launch as usize].shape].used;
            let bodies = writer.bodies(one, share.program, first, |body| used[body as usize]);
            assembler.agents(launch, &mut writer.program, &bodies, &parts[launch as usize]);
        }
    }
    let towards = assembler.channels(&mut writer.program);
    Assembly { program: writer.program, parts, counters, towards }
}

struct Assembler<'a, S> {
    machine: &'a Machine,
    launches: &'a [Share<'a>],
    stands: &'a S,
    shapes: Vec<Shape>,
    list: Vec<Launch>,
}

impl<S: Stands> Assembler<'_, S> {
    /// Numbers parts and agents.
    fn count(&mut self, writer: &mut Writer) -> Vec<Box<[Part]>> {
        let mut known: FxHashMap<*const Program, usize> = FxHashMap::default();
        let mut parts: Vec<Box<[Part]>> = Vec::with_capacity(self.launches.len());
        let mut next = 0;
        for (launch, share) in (0..).zip(self.launches) {
            let shape = *known.entry(std::ptr::from_ref(share.program)).or_insert_with(|| {
                self.shapes.push(Shape::new(self.machine, share));
                self.shapes.len() - 1
            });
            let counters = &mut writer.program.counters;
            let here = |part: u32| self.stands.part(launch, part) == (launch, part);
            let mut own: Box<[Part]> = (0..share.sips.len() as u32)
                .map(|part| {
                    if !here(part) {
                        return Part::default();
                    }
                    *counters += 2;
                    Part { start: *counters - 2, end: *counters - 1, agents: 0 }
                })
                .collect();
            // Of a SIP that has two parts the first one acts.
            let mut part_of = vec![0; share.there.len()];
            for part in (0..share.sips.len() as u32).rev() {
                if let Ok(member) = share.there.binary_search(&share.sips[part as usize]) {
                    part_of[member] = part;
                }
            }
            let mut made = Launch { shape, part_of, agents: Box::default() };
            if (0..share.sips.len() as u32).any(here) {
                let number = |agent: u32| {
                    let part = made.part(&self.shapes[shape], agent);
                    if !here(part) {
                        return ABSENT;
                    }
                    own[part as usize].agents += 1;
                    next += 1;
                    next - 1
                };
                made.agents = (0..share.program.agents.len() as u32).map(number).collect();
                for (agent, _) in share.program.agents.iter().zip(&made.agents).filter(|(_, id)| **id != ABSENT) {
                    self.shapes[shape].used[agent.body as usize] = true;
                }
            }
            parts.push(own);
            self.list.push(made);
        }
        for launch in 0..self.launches.len() as u32 {
            for part in 0..parts[launch as usize].len() as u32 {
                let (by, its) = self.stands.part(launch, part);
                parts[launch as usize][part as usize] = parts[by as usize][its as usize];
            }
        }
        parts
    }

    /// Adds the agents of a launch and their buffers.
    fn agents(&self, launch: u32, to: &mut Program, bodies: &[u32], parts: &[Part]) {
        let (share, own) = (&self.launches[launch as usize], &self.list[launch as usize]);
        let program = share.program;
        let [buffers, buffer] = [to.buffer_table.len(), to.buffers.len()].map(|n| n as u32);
        for (index, agent) in (0..).zip(&program.agents).filter(|(index, _)| own.agents[*index as usize] != ABSENT) {
            let part = parts[own.part(&self.shapes[own.shape], index) as usize];
            to.agents.push(Agent {
                place: share.place(self.machine, agent.place),
                body: bodies[agent.body as usize],
                channels: to.channel_table.len() as u32,
                buffers: agent.buffers + buffers,
                ..*agent
            });
            to.duties.push(Duty::Launched(Gate { start: part.start, end: part.end }));
            to.channel_table.resize(to.channel_table.len() + directions(program, agent), ChannelId::NONE);
        }
        let moved = |buffer: &Buffer| Buffer { node: share.node(self.machine, buffer.node), ..*buffer };
        to.buffers.extend(program.buffers.iter().map(moved));
        to.buffer_table.extend(program.buffer_table.iter().map(|id| BufferId(id.0 + buffer)));
    }

    /// Adds the channels of all launches whose senders are there; returns where each of them leads.
    fn channels(&self, to: &mut Program) -> Vec<PeId> {
        let mut towards = Vec::new();
        for (launch, (share, own)) in (0..).zip(self.launches.iter().zip(&self.list)) {
            let shape = &self.shapes[own.shape];
            for (channel, named) in share.program.channels.iter().zip(&shape.named) {
                if own.agents.get(channel.sender.0 as usize).is_none_or(|&agent| agent == ABSENT) {
                    continue;
                }
                let id = ChannelId(to.channels.len() as u32);
                let [sender, receiver] = [channel.sender, channel.receiver].map(|agent| self.stand(launch, agent.0));
                to.channels.push(Channel { sender: AgentId(sender), receiver: AgentId(receiver), ..*channel });
                towards.push(share.place(self.machine, share.program.agents[channel.receiver.0 as usize].place));
                for &(agent, place) in named {
                    let table = to.agents[self.stand(launch, agent) as usize].channels;
                    to.channel_table[(table + place) as usize] = id;
                }
            }
        }
        towards
    }

    /// The agent that stands for an agent of a launch.
    fn stand(&self, launch: u32, agent: u32) -> u32 {
        let own = &self.list[launch as usize];
        let shape = &self.shapes[own.shape];
        let (by, part) = self.stands.part(launch, own.part(shape, agent));
        let by = &self.list[by as usize];
        if std::ptr::eq(by, own) && own.agents[agent as usize] != ABSENT {
            return own.agents[agent as usize];
        }
        let member = by.part_of.iter().position(|&own| own == part).unwrap_or(0);
        by.agents[shape.agents[member][shape.number[agent as usize] as usize] as usize]
    }
}

impl Assembly {
    /// Adds a host of a SIP that takes these operations in order: delays, signals and waits, each for a node of the
    /// trace in `file`.
    pub fn host(&mut self, sip: u32, file: &Arc<str>, ops: &[(Control, u64)]) {
        let mut writer = Writer { program: std::mem::take(&mut self.program), ..Writer::default() };
        let origin = |&(_, id): &(Control, u64)| Origin { file: Arc::clone(file), locus: Locus::Node(id) };
        let origins = ops.iter().map(|op| writer.program.origins.intern(origin(op))).collect();
        writer.control(Duty::Host(sip), ops.iter().map(|(kind, _)| *kind), origins);
        self.program = writer.program;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_sips_that_take_part() {
        let overrides = [("system.sips.count".to_string(), "6".to_string())];
        let machine = Machine::from_yaml("", "default", &overrides).unwrap();
        let program = Program::default();
        let place = |sip| machine.pe(Coord { sip, cube: 3, pe: 1 }).unwrap();
        let of = |home: &[u32], there: &[u32], sip| {
            Share { program: &program, home, there, sips: there }.place(&machine, place(sip))
        };
        let home = [0, 2, 5];
        assert_eq!(home.map(|sip| of(&home, &home, sip)), home.map(place));
        assert_eq!(home.map(|sip| of(&home, &[0, 2, 5], sip)), home.map(place));
        assert_eq!(home.map(|sip| of(&home, &[1, 2, 3], sip)), [1, 2, 3].map(place));
    }
}
