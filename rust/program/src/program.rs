//! Programs: agents, the channels between them and the buffers they touch. Immutable once built.

use crate::{Body, Op, Origins};
use ahbm_machine::{CallCosts, Coord, Direction, Machine, Node, PeId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Index into [`Program::agents`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(pub u32);

/// Index into [`Program::channels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

impl ChannelId {
    /// Marks a direction that is not used on this side.
    pub const NONE: ChannelId = ChannelId(u32::MAX);
}

/// Index into [`Program::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// One sequential actor: a PE kernel or an imported thread block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agent {
    /// Coordinates as the agent sees them.
    pub coord: Coord,
    /// The physical PE it runs on.
    pub place: PeId,
    /// Index into [`Program::bodies`].
    pub body: u32,
    /// Start of its entries in [`Program::channel_table`]: per direction of the body, the channel it
    /// sends on and the channel it receives on.
    pub channels: u32,
    /// Start of its entries in [`Program::buffer_table`].
    pub buffers: u32,
    /// The collective member (rank) this agent works for.
    pub rank: u32,
    /// Place of its call in [`Program::costs`] and one; 0 for the costs of the machine as it is.
    pub costs: u16,
}

impl Agent {
    /// Its PE, `sip 3 cube 0 pe 1`, and its rank where that is not its SIP. Lanes of a sharded launch all have the same
    /// virtual coordinates, so that is where it physically is.
    pub fn name(&self, machine: &Machine) -> String {
        let at = machine.coord(self.place);
        if self.rank == at.sip { at.to_string() } else { format!("rank {} at {at}", self.rank) }
    }
}

/// A FIFO of slots at the receiver, with credits returned to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Who sends.
    pub sender: AgentId,
    /// Who receives.
    pub receiver: AgentId,
    /// The direction as the sender names it.
    pub sender_direction: Direction,
    /// The direction as the receiver names it; with the receiver, the channel's identity.
    pub receiver_direction: Direction,
    /// Capacity in messages.
    pub slots: u32,
    /// Capacity of one slot.
    pub slot_bytes: u64,
    /// Slot memory, an index into the machine's tiers.
    pub tier: u32,
    /// Size of a credit message.
    pub credit_bytes: u64,
    /// The cost of a message on the wire and in its slot.
    pub wire: WireFactor,
}

/// Bytes on the wire per byte of payload, as a fraction: flags that travel with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WireFactor {
    num: u32,
    den: u32,
}

impl WireFactor {
    /// Payload only.
    pub const ONE: Self = Self::new(1, 1);

    /// `num / den`; zero in either place counts as one.
    pub const fn new(num: u32, den: u32) -> Self {
        Self { num: if num == 0 { 1 } else { num }, den: if den == 0 { 1 } else { den } }
    }

    /// Numerator and denominator.
    pub const fn parts(self) -> (u32, u32) {
        (self.num, self.den)
    }

    /// Bytes that travel for `payload` bytes, rounded up.
    #[inline]
    pub const fn bytes(self, payload: u64) -> u64 {
        if self.num == self.den {
            return payload;
        }
        let wide = (payload as u128 * self.num as u128).div_ceil(self.den as u128);
        if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
    }
}

/// A piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Its place.
    pub node: Node,
    /// Size.
    pub bytes: u64,
}

/// When an agent of a job starts and whom it tells that it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// The counter that is no longer zero once the agent may start.
    pub start: u32,
    /// The counter that its end adds one to.
    pub end: u32,
}

/// The purpose of an agent of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// It is a host of this SIP.
    Host(u32),
    /// It starts a launch.
    Starter,
    /// It runs in a launch.
    Launched(Gate),
}

/// The program: the waist between sources and views.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Name for people.
    pub name: String,
    /// Agents in launch order.
    pub agents: Vec<Agent>,
    /// Distinct bodies.
    pub bodies: Vec<Arc<Body>>,
    /// Channels, ordered by first use.
    pub channels: Vec<Channel>,
    /// Per agent and direction: sending channel, receiving channel.
    pub channel_table: Vec<ChannelId>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Per agent: its buffers.
    pub buffer_table: Vec<BufferId>,
    /// Number of counters.
    pub counters: u32,
    /// The counters that are flags of data, and no signals of the author's: that nobody waits for one is no fault. They
    /// influence no run.
    pub flags: BTreeSet<u32>,
    /// Participants of each barrier.
    pub barriers: Vec<u32>,
    /// The costs of calls that are not those of the machine as it is; one list for all programs of a job.
    pub costs: Arc<[CallCosts]>,
    /// Per agent of a job; empty where all agents start at once. See [`mod@crate::job`].
    pub duties: Vec<Duty>,
    /// Distinct origins.
    pub origins: Origins,
}

impl Program {
    /// The body of an agent.
    pub fn body(&self, agent: AgentId) -> &Body {
        &self.bodies[self.agents[agent.0 as usize].body as usize]
    }

    /// The channel an agent sends on in a direction of its body.
    #[inline]
    pub fn tx(&self, agent: AgentId, dir: u16) -> ChannelId {
        self.channel_table[self.agents[agent.0 as usize].channels as usize + 2 * dir as usize]
    }

    /// The channel an agent receives on in a direction of its body.
    #[inline]
    pub fn rx(&self, agent: AgentId, dir: u16) -> ChannelId {
        self.channel_table[self.agents[agent.0 as usize].channels as usize + 2 * dir as usize + 1]
    }

    /// A buffer of an agent by the index its body uses.
    #[inline]
    pub fn buffer(&self, agent: AgentId, index: u16) -> BufferId {
        self.buffer_table[self.agents[agent.0 as usize].buffers as usize + index as usize]
    }

    /// The condition an agent's start waits for.
    #[inline]
    pub fn gate(&self, agent: AgentId) -> Option<Gate> {
        match self.duties.get(agent.0 as usize) {
            Some(&Duty::Launched(gate)) => Some(gate),
            _ => None,
        }
    }

    /// Total number of operations over all agents.
    pub fn ops(&self) -> u64 {
        self.agents.iter().map(|a| self.bodies[a.body as usize].ops.len() as u64).sum()
    }

    /// Bytes of the buffers and queue slots at the PE that has most; a queue's slots are at its receiver.
    pub fn memory_bytes(&self) -> u64 {
        let pes = self.agents.iter().map(|agent| agent.place.0);
        let most = pes.chain(self.buffers.iter().filter_map(|buffer| buffer.node.pe()).map(|pe| pe.0)).max();
        let mut held = vec![0u64; most.map_or(0, |pe| pe as usize + 1)];
        let mut add = |pe: PeId, bytes: u64| held[pe.0 as usize] = held[pe.0 as usize].saturating_add(bytes);
        for buffer in &self.buffers {
            if let Some(pe) = buffer.node.pe() {
                add(pe, buffer.bytes);
            }
        }
        for channel in &self.channels {
            let slots = channel.slot_bytes.saturating_mul(channel.slots.into());
            add(self.agents[channel.receiver.0 as usize].place, slots);
        }
        held.into_iter().max().unwrap_or(0)
    }

    /// The origin of an operation, empty when it has none.
    pub fn origin_text(&self, agent: AgentId, op: usize) -> String {
        self.body(agent).origins.get(op).map(|&o| self.origins.text(o)).unwrap_or_default()
    }

    /// As [`Self::origin_text`], the same in every iteration of a loop.
    pub fn line_text(&self, agent: AgentId, op: usize) -> String {
        let origin = self.body(agent).origins.get(op).and_then(|&id| self.origins.get(id));
        origin.map(|origin| origin.line().to_string()).unwrap_or_default()
    }

    /// An operation in words, e.g. `send(dir="E") f16[512]`.
    pub fn describe(&self, agent: AgentId, op: usize) -> String {
        let body = self.body(agent);
        body.ops.get(op).map_or_else(|| "end".into(), |op: &Op| op.describe(body))
    }
}
