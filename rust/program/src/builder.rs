//! Builders: how a source writes a program, and how directions become channels.

use crate::body::alike;
use crate::{
    Agent, AgentId, Body, Buffer, BufferId, Channel, ChannelId, Comm, Map, Op, OpKind, Origins, Program, Set, Shared,
    WireFactor,
};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Direction, Node, PeId, Sfr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How the queues of a launch are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Messages a queue holds; `u32::MAX` gives each queue a slot for every message it will carry.
    pub slots: u32,
    /// Bytes a slot holds; `None` sizes each queue to its largest message, with no more slots than messages.
    pub slot_bytes: Option<u64>,
    /// Slot memory, an index into the machine's tiers.
    pub tier: u32,
    /// Size of a credit message.
    pub credit_bytes: u64,
}

/// Writes a [`Program`].
///
/// A *group* is a set of agents that see each other through one [`Sfr`]: a launch, or one lane of a
/// sharded launch. Directions are resolved within the group when the program is finished.
#[derive(Debug, Default)]
pub struct ProgramBuilder {
    name: String,
    groups: Vec<Group>,
    agents: Vec<Agent>,
    group_of: Vec<u32>,
    bodies: Set<Arc<Body>>,
    ops: Set<Shared<Op>>,
    buffers: Vec<Buffer>,
    buffer_table: Vec<BufferId>,
    buffer_lists: Map<Box<[BufferId]>, u32>,
    /// Connections that no neighbour table knows, from either end.
    sends_to: Map<(AgentId, Direction), (AgentId, Direction)>,
    receives_from: Map<(AgentId, Direction), (AgentId, Direction)>,
    counters: u32,
    flags: BTreeSet<u32>,
    barriers: Vec<u32>,
    wire: Option<WireFactor>,
    /// Origins, to be filled while bodies are written.
    pub origins: Origins,
}

#[derive(Debug)]
struct Group {
    sfr: Sfr,
    members: Map<Coord, AgentId>,
}

impl ProgramBuilder {
    /// An empty program.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Opens a group of agents that share a neighbour table; returns its index.
    pub fn group(&mut self, sfr: Sfr) -> u32 {
        self.groups.push(Group { sfr, members: Map::default() });
        self.groups.len() as u32 - 1
    }

    /// The neighbour table of a group.
    pub fn sfr(&self, group: u32) -> &Sfr {
        &self.groups[group as usize].sfr
    }

    /// A piece of memory.
    pub fn buffer(&mut self, node: Node, bytes: u64) -> BufferId {
        self.buffers.push(Buffer { node, bytes });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// A counter, initially zero.
    pub fn counter(&mut self) -> u32 {
        self.counters += 1;
        self.counters - 1
    }

    /// A counter that says that data are there, and that nobody need wait for: see [`Program::flags`].
    pub fn flag(&mut self) -> u32 {
        let counter = self.counter();
        self.flags.insert(counter);
        counter
    }

    /// A barrier of `participants` agents.
    pub fn barrier(&mut self, participants: u32) -> u32 {
        self.barriers.push(participants);
        self.barriers.len() as u32 - 1
    }

    /// Sets what every message of the program costs on the wire; payload only by default.
    pub fn wire(&mut self, factor: WireFactor) {
        self.wire = Some(factor);
    }

    /// Interns a body, so that equal agents share it; bodies with equal operations share those.
    pub fn body(&mut self, mut body: Body) -> u32 {
        let (known, _) = self.ops.insert_full(body.ops);
        body.ops = self.ops[known].clone();
        self.bodies.insert_full(Arc::new(body)).0 as u32
    }

    /// The body behind an id that [`ProgramBuilder::body`] gave.
    pub fn body_at(&self, id: u32) -> Option<&Body> {
        self.bodies.get_index(id as usize).map(|body| &**body)
    }

    /// Adds an agent. `buffers` is what the body's memory operands index.
    ///
    /// # Errors
    /// `AHBM-L106` when the group already has an agent at `coord`.
    pub fn agent(
        &mut self,
        group: u32,
        coord: Coord,
        place: PeId,
        body: u32,
        buffers: &[BufferId],
    ) -> Result<AgentId, Diagnostic> {
        let id = AgentId(self.agents.len() as u32);
        if self.groups[group as usize].members.insert(coord, id).is_some() {
            return Err(Diagnostic::new("AHBM-L106", format!("two agents of one launch stand at {coord}")));
        }
        self.group_of.push(group);
        Ok(self.push_agent(coord, place, coord.sip, body, buffers))
    }

    /// Adds a thread block of `rank`: an agent of no group, whose directions [`ProgramBuilder::connect`] resolves.
    /// Several may stand at one coordinate.
    pub fn thread_block(&mut self, rank: u32, coord: Coord, place: PeId, body: u32, buffers: &[BufferId]) -> AgentId {
        self.group_of.push(NO_GROUP);
        self.push_agent(coord, place, rank, body, buffers)
    }

    /// Joins two thread blocks: what `sender` sends in its direction, `receiver` receives in its own.
    pub fn connect(&mut self, sender: (AgentId, Direction), receiver: (AgentId, Direction)) {
        self.sends_to.insert(sender, receiver);
        self.receives_from.insert(receiver, sender);
    }

    fn push_agent(&mut self, coord: Coord, place: PeId, rank: u32, body: u32, buffers: &[BufferId]) -> AgentId {
        let id = AgentId(self.agents.len() as u32);
        let table = match self.buffer_lists.get(buffers) {
            Some(&start) => start,
            None => {
                let start = self.buffer_table.len() as u32;
                self.buffer_table.extend_from_slice(buffers);
                self.buffer_lists.insert(buffers.into(), start);
                start
            }
        };
        self.agents.push(Agent { coord, place, body, channels: 0, buffers: table, rank, costs: 0 });
        id
    }

    /// Resolves every direction into a channel and closes the program.
    ///
    /// # Errors
    /// All findings at once: `AHBM-L101` a direction with no neighbour, `AHBM-L102` a neighbour on which
    /// no kernel runs.
    pub fn finish(mut self, settings: ChannelSettings) -> Result<Program, Vec<Diagnostic>> {
        let mut channels: Map<(AgentId, Direction), Channel> = Map::default();
        let mut table = Vec::new();
        let mut findings = Vec::new();
        let wire = self.wire.unwrap_or(WireFactor::ONE);
        let alike = alike(self.bodies.iter().map(|body| &**body));
        let first = |(body, index): (&Arc<Body>, u32)| (alike[index as usize] == index).then(|| DirectionUse::of(body));
        let uses: Vec<Option<DirectionUse>> = self.bodies.iter().zip(0..).map(first).collect();
        for index in 0..self.agents.len() {
            let body = Arc::clone(&self.bodies[self.agents[index].body as usize]);
            self.agents[index].channels = table.len() as u32;
            let base = table.len();
            table.resize(base + 2 * body.directions.len(), ChannelId::NONE);
            let used = uses[alike[self.agents[index].body as usize] as usize].as_ref();
            let used = used.expect("the first of those that are alike");
            let me = AgentId(index as u32);
            for (d, &direction) in body.directions.iter().enumerate() {
                let mine = (me, self.canonical(me, direction));
                for (way, &traffic) in [used.sent[d], used.received[d]].iter().enumerate() {
                    let Some(traffic) = traffic else { continue };
                    let (sender, receiver) = match (self.peer(me, direction, way == 0), way) {
                        (Ok(peer), 0) => (mine, peer),
                        (Ok(peer), _) => (peer, mine),
                        (Err(why), _) => {
                            findings.push(self.no_peer(me, &body, d as u16, why));
                            break;
                        }
                    };
                    table[base + 2 * d + way] = open(&mut channels, sender, receiver, traffic, (&settings, wire));
                }
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        Ok(Program {
            name: self.name,
            agents: self.agents,
            bodies: self.bodies.into_iter().collect(),
            channels: channels.into_values().collect(),
            channel_table: table,
            buffers: self.buffers,
            buffer_table: self.buffer_table,
            counters: self.counters,
            flags: self.flags,
            barriers: self.barriers,
            costs: Arc::default(),
            duties: Vec::new(),
            origins: self.origins,
        })
    }

    fn canonical(&self, agent: AgentId, direction: Direction) -> Direction {
        match self.groups.get(self.group_of[agent.0 as usize] as usize) {
            Some(group) => group.sfr.canonical(self.agents[agent.0 as usize].coord, direction),
            None => direction,
        }
    }

    fn peer(&self, agent: AgentId, direction: Direction, sends: bool) -> Result<(AgentId, Direction), Missing> {
        let Some(group) = self.groups.get(self.group_of[agent.0 as usize] as usize) else {
            let connections = if sends { &self.sends_to } else { &self.receives_from };
            return connections.get(&(agent, direction)).copied().ok_or(Missing::Connection);
        };
        let at = self.agents[agent.0 as usize].coord;
        let (coord, back) = group.sfr.neighbor(at, direction).ok_or(Missing::Neighbor)?;
        let peer = group.members.get(&coord).ok_or(Missing::Kernel(coord))?;
        Ok((*peer, back))
    }

    fn no_peer(&self, agent: AgentId, body: &Body, dir: u16, why: Missing) -> Diagnostic {
        let at = self.agents[agent.0 as usize].coord;
        let direction = body.directions[dir as usize];
        let op = body.ops.iter().position(|op| op.kind.direction() == Some(dir)).unwrap_or(0);
        let origin = body.origins.get(op).map(|&o| self.origins.text(o)).unwrap_or_default();
        let what = body.ops.get(op).map(|o| o.describe(body)).unwrap_or_default();
        match why {
            Missing::Connection => Diagnostic::new("AHBM-L113", format!("rank {} has nobody on the other side of {direction}", self.agents[agent.0 as usize].rank))
                .site(format!("rank {}: {what}", self.agents[agent.0 as usize].rank), origin)
                .hint("every send of a plan needs a thread block of the peer that receives on the same channel, and the reverse"),
            Missing::Neighbor => Diagnostic::new("AHBM-L101", format!("{at} has no neighbour in direction {direction}"))
                .site(format!("{at}: {what}"), origin)
                .hint("the cube mesh does not wrap and open SIP grids end; guard the call by position, or use a topology with this link"),
            Missing::Kernel(coord) => {
                Diagnostic::new("AHBM-L102", format!("{at} uses direction {direction} to {coord}, where no kernel runs"))
                    .site(format!("{at}: {what}"), origin)
                    .hint("a launch runs on the PEs that hold a shard of the tensor; place a shard there or pick another peer")
            }
        }
    }
}

/// Group index of agents outside every group.
const NO_GROUP: u32 = u32::MAX;

enum Missing {
    Neighbor,
    Connection,
    Kernel(Coord),
}

/// The traffic of a body in one direction, one way.
#[derive(Clone, Copy)]
struct Traffic {
    messages: u32,
    /// Largest message.
    bytes: u64,
}

/// Traffic per direction and way; `None` where the body does not use it.
struct DirectionUse {
    sent: Vec<Option<Traffic>>,
    received: Vec<Option<Traffic>>,
}

impl DirectionUse {
    fn of(body: &Body) -> Self {
        let mut used = Self { sent: vec![None; body.directions.len()], received: vec![None; body.directions.len()] };
        for op in &body.ops {
            let (side, dir, tile) = match op.kind {
                OpKind::Comm(Comm::Send { dir, tile, .. }) => (&mut used.sent, dir, tile),
                OpKind::Comm(Comm::Recv { dir, tile, .. } | Comm::PostRecv { dir, tile, .. }) => {
                    (&mut used.received, dir, tile)
                }
                _ => continue,
            };
            let traffic = side[dir as usize].get_or_insert(Traffic { messages: 0, bytes: 0 });
            traffic.messages += 1;
            traffic.bytes = traffic.bytes.max(body.tiles[tile as usize].bytes());
        }
        used
    }
}

fn open(
    channels: &mut Map<(AgentId, Direction), Channel>,
    sender: (AgentId, Direction),
    receiver: (AgentId, Direction),
    traffic: Traffic,
    (settings, wire): (&ChannelSettings, WireFactor),
) -> ChannelId {
    let entry = channels.entry(receiver);
    let index = entry.index() as u32;
    let channel = entry.or_insert(Channel {
        sender: sender.0,
        receiver: receiver.0,
        sender_direction: sender.1,
        receiver_direction: receiver.1,
        slots: 0,
        slot_bytes: settings.slot_bytes.unwrap_or(0),
        tier: settings.tier,
        credit_bytes: settings.credit_bytes,
        wire,
    });
    channel.slots = match settings.slot_bytes {
        Some(_) if settings.slots != u32::MAX => settings.slots,
        // A slot that no message will ever need takes memory for nothing.
        _ => channel.slots.max(settings.slots.min(traffic.messages)),
    };
    if settings.slot_bytes.is_none() {
        channel.slot_bytes = channel.slot_bytes.max(traffic.bytes);
    }
    ChannelId(index)
}
