//! Replaying effects: who goes next, who waits for whom, what each operation does.

use super::error::{self, Fault};
use super::image::{Image, Place};
use super::liveness::Liveness;
use super::observer::{Observer, observe};
use super::queue::{Message, Queue};
use crate::{NEVER, Timeline};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, ChannelId, Comm, Control, Move, OpKind, Program, Tile, ValueId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Elementary steps of an operation without elements ([`spend`]).
const STEPS: u64 = 32;

/// # Errors
/// `AHBM-D191` for a timeline that does not say when the operations of `program` ran.
pub(super) fn recorded(program: &Program, timeline: &Timeline) -> Result<(), Diagnostic> {
    let spans = timeline.spans.iter().map(Vec::len);
    if spans.eq((0..program.agents.len()).map(|a| program.body(AgentId(a as u32)).ops.len())) {
        return Ok(());
    }
    Err(Diagnostic::new("AHBM-D191", "the order of accesses depends on times, and the timeline was not recorded")
        .hint("record spans in the timing pass of the same program"))
}

/// One value slot of an agent.
#[derive(Debug, Clone)]
pub(super) enum Slot<V> {
    Empty,
    Value(V),
    /// A receive posted by operation `op`.
    Posted {
        channel: ChannelId,
        ticket: u64,
        op: u32,
    },
}

#[derive(Debug)]
struct State<V> {
    slots: Vec<Slot<V>>,
    /// The operation to run next.
    next: usize,
    /// Receives from any direction so far.
    choices: usize,
    /// Transfers posted so far.
    posted: usize,
    waits: Option<Wait>,
}

/// The event a parked agent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Message(ChannelId),
    Counter(u32),
    Barrier(u32),
}

/// Whether an operation ran.
enum Step {
    Done,
    Wait(Wait),
}

/// The next event; at one time, arrivals go before the operations of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Something posted lands.
    Landing(u32),
    Agent(u32),
}

/// A posted transfer.
struct Flight<V> {
    by: (AgentId, usize),
    to: Place,
    value: V,
}

pub(super) struct Replay<'p, 'm, I: Image<'p>> {
    pub(super) program: &'p Program,
    /// Per body.
    pub(super) liveness: &'p [Liveness],
    /// As of [`super::parts::Parts`].
    ordered: bool,
    timeline: &'p Timeline,
    pub(super) image: &'m mut I,
    observer: &'m mut Observer,
    /// The time of the latest effect.
    now: Ps,
    agents: Vec<State<I::Value>>,
    queues: Vec<Queue<I::Value>>,
    counters: Vec<u64>,
    /// Agents parked at each counter, and at each barrier.
    at_counter: Vec<Vec<AgentId>>,
    at_barrier: Vec<Vec<AgentId>>,
    ready: BinaryHeap<Reverse<(Ps, Turn)>>,
    /// Agents that have filled the slots of a channel: others go first, so that no more messages are held than the
    /// machine holds. Where order is that of times, it sees to that.
    ahead: Vec<AgentId>,
    /// Transfers on their way by number. `departed` counts all there ever were.
    flights: FxHashMap<u32, Flight<I::Value>>,
    departed: u32,
}

impl<'p, 'm, I: Image<'p>> Replay<'p, 'm, I> {
    pub(super) fn new(
        program: &'p Program,
        timeline: &'p Timeline,
        image: &'m mut I,
        (liveness, ordered): (&'p [Liveness], bool),
        observer: &'m mut Observer,
    ) -> Result<Self, Diagnostic> {
        if ordered || timeline.stuck.is_some() {
            recorded(program, timeline)?;
        }
        let agents = program.agents.iter().map(|agent| State {
            slots: vec![Slot::Empty; program.bodies[agent.body as usize].values as usize],
            next: 0,
            choices: 0,
            posted: 0,
            waits: None,
        });
        Ok(Self {
            agents: agents.collect(),
            queues: program.channels.iter().map(|_| Queue::default()).collect(),
            counters: vec![0; program.counters as usize],
            at_counter: vec![Vec::new(); program.counters as usize],
            at_barrier: vec![Vec::new(); program.barriers.len()],
            ready: BinaryHeap::with_capacity(program.agents.len()),
            ahead: Vec::new(),
            flights: FxHashMap::default(),
            departed: 0,
            program,
            liveness,
            ordered,
            timeline,
            image,
            observer,
            now: 0,
        })
    }

    pub(super) fn run(&mut self, part: &[AgentId]) -> Result<(), Diagnostic> {
        part.iter().for_each(|&agent| self.schedule(agent));
        while let Some(Reverse((due, turn))) =
            self.ready.pop().or_else(|| self.ahead.pop().map(|agent| Reverse((self.now, Turn::Agent(agent.0)))))
        {
            self.now = self.now.max(due);
            match turn {
                Turn::Agent(agent) => self.advance(AgentId(agent))?,
                Turn::Landing(flight) => {
                    if let Some(Flight { by, to, value }) = self.flights.remove(&flight) {
                        self.image.write(to, &value);
                        observe(self.observer, self.program, self.now, by, true);
                    }
                }
            }
        }
        self.finished(part)
    }

    /// The time of an agent's next effect; `None` at its end.
    fn due(&self, agent: AgentId) -> Option<Ps> {
        let next = self.agents[agent.0 as usize].next;
        if next >= self.program.body(agent).ops.len() {
            return None;
        }
        if self.timeline.stuck.is_some() && self.timeline.spans[agent.0 as usize][next].end == NEVER {
            return None;
        }
        Some(if self.ordered { self.timeline.spans[agent.0 as usize][next].end } else { 0 })
    }

    fn schedule(&mut self, agent: AgentId) {
        match self.due(agent) {
            Some(due) => self.ready.push(Reverse((due, Turn::Agent(agent.0)))),
            None => self.agents[agent.0 as usize].slots = Vec::new(),
        }
    }

    /// Runs an agent until it waits, ends, or another agent's effect comes first.
    fn advance(&mut self, agent: AgentId) -> Result<(), Diagnostic> {
        loop {
            let op = self.agents[agent.0 as usize].next;
            if let Step::Wait(wait) = self.step(agent, op)? {
                self.agents[agent.0 as usize].waits = Some(wait);
                match wait {
                    Wait::Message(_) => {}
                    Wait::Counter(counter) => self.at_counter[counter as usize].push(agent),
                    Wait::Barrier(id) => self.at_barrier[id as usize].push(agent),
                }
                return Ok(());
            }
            observe(self.observer, self.program, self.now, (agent, op), false);
            self.agents[agent.0 as usize].next += 1;
            let Some(due) = self.due(agent) else {
                self.agents[agent.0 as usize].slots = Vec::new();
                return Ok(());
            };
            if !self.ordered && self.is_ahead(agent, op) {
                self.ahead.push(agent);
                return Ok(());
            }
            let key = Reverse((due, Turn::Agent(agent.0)));
            // In a max-heap of reversed keys, a larger key comes first.
            if self.ready.peek().is_some_and(|first| *first > key) {
                self.ready.push(key);
                return Ok(());
            }
            self.now = self.now.max(due);
        }
    }

    /// Whether the operation was a send that filled its channel's slots, beside those of receives that wait.
    fn is_ahead(&self, agent: AgentId, op: usize) -> bool {
        let OpKind::Comm(Comm::Send { dir, .. }) = self.program.body(agent).ops[op].kind else { return false };
        let channel = self.program.tx(agent, dir);
        let slots = self.program.channels[channel.0 as usize].slots;
        self.queues[channel.0 as usize].held() >= slots.max(1) as usize
    }

    fn wake(&mut self, agent: AgentId) {
        self.agents[agent.0 as usize].waits = None;
        self.schedule(agent);
    }

    fn step(&mut self, agent: AgentId, op: usize) -> Result<Step, Diagnostic> {
        let body = self.program.body(agent);
        let tile = |t: u32| &body.tiles[t as usize];
        let elements =
            body.ops[op].kind.operands().tile.and_then(|t| body.tiles.get(t as usize)).map_or(0, Tile::elements);
        spend(elements.saturating_add(STEPS));
        let wait = match body.ops[op].kind {
            OpKind::Move(Move::Store { src, mem, posted, .. }) => {
                let expected = body.ops[op].kind.operands().tile.map_or(tile(0), tile);
                let value = self.sized(agent, op, src, expected)?;
                let to = self.place(agent, mem)?;
                if posted {
                    self.post(agent, op, &[to], value)?;
                } else {
                    self.image.write(to, &value);
                }
                None
            }
            OpKind::Move(Move::ReducingLoad { f, dst, group, tile: t }) => {
                let mut total = None;
                for &mem in &*body.groups[group as usize] {
                    let value = self.read(agent, op, self.place(agent, mem)?, tile(t))?;
                    total = Some(match total {
                        None => value,
                        Some(so_far) => self
                            .image
                            .binary(f, so_far, value, tile(t))
                            .map_err(|fault| fault.at(self.program, agent, op))?,
                    });
                }
                self.define(agent, dst, total.map_or(Slot::Empty, Slot::Value));
                None
            }
            OpKind::Move(Move::Multicast { src, group, tile: t }) => {
                let value = self.sized(agent, op, src, tile(t))?;
                let members = body.groups[group as usize].iter();
                let to = members.map(|&mem| self.place(agent, mem)).collect::<Result<Vec<_>, _>>()?;
                self.post(agent, op, &to, value)?;
                None
            }
            OpKind::Move(Move::Copy { src, dst, tile: t, posted }) => {
                let (from, to) = (self.place(agent, src)?, self.place(agent, dst)?);
                if posted {
                    let value = self.read(agent, op, from, tile(t))?;
                    self.post(agent, op, &[to], value)?;
                } else {
                    self.image.copy(from, to, tile(t).bytes());
                }
                None
            }
            OpKind::Comm(Comm::Send { dir, src, tile: t }) => {
                let value = self.sized(agent, op, src, tile(t))?;
                let channel = self.program.tx(agent, dir);
                self.queues[channel.0 as usize].send(Message { value, op: op as u32 });
                let receiver = self.program.channels[channel.0 as usize].receiver;
                if self.agents[receiver.0 as usize].waits == Some(Wait::Message(channel)) {
                    self.wake(receiver);
                }
                None
            }
            OpKind::Comm(Comm::Recv { dir, dst, tile: t }) => {
                let channel = self.program.rx(agent, dir);
                self.receive(agent, op, channel, dst, tile(t))?
            }
            OpKind::Comm(Comm::RecvAny { dst, tile: t }) => {
                let channel = self.choice(agent, op)?;
                let wait = self.receive(agent, op, channel, dst, tile(t))?;
                self.agents[agent.0 as usize].choices += usize::from(wait.is_none());
                wait
            }
            OpKind::Comm(Comm::PostRecv { dir, dst, .. }) => {
                let channel = self.program.rx(agent, dir);
                let ticket = self.queues[channel.0 as usize].post();
                self.define(agent, dst, Slot::Posted { channel, ticket, op: op as u32 });
                None
            }
            OpKind::Comm(Comm::Await { value }) => self.await_value(agent, op, value)?,
            OpKind::Control(Control::Signal { counter, add, .. }) => {
                self.counters[counter as usize] = self.counters[counter as usize].saturating_add(add.into());
                for waiter in std::mem::take(&mut self.at_counter[counter as usize]) {
                    self.wake(waiter);
                }
                None
            }
            OpKind::Control(Control::WaitCounter { counter, at_least }) => {
                (self.counters[counter as usize] < at_least.into()).then_some(Wait::Counter(counter))
            }
            OpKind::Control(Control::Acquire { counter, amount }) => {
                let value = &mut self.counters[counter as usize];
                match value.checked_sub(amount.into()) {
                    Some(rest) => {
                        *value = rest;
                        None
                    }
                    None => Some(Wait::Counter(counter)),
                }
            }
            OpKind::Control(Control::Barrier { id }) => self.arrive(id),
            OpKind::Comm(Comm::AwaitSlot { .. }) | OpKind::Control(Control::Fence | Control::Delay { .. }) => None,
            OpKind::Move(Move::Load { dst, mem, tile: t }) => {
                let from = self.place(agent, mem)?;
                let value = self.read(agent, op, from, tile(t))?;
                self.define(agent, dst, Slot::Value(value));
                None
            }
            OpKind::Math(math) => {
                self.compute(agent, op, math)?;
                None
            }
        };
        Ok(wait.map_or(Step::Done, Step::Wait))
    }

    pub(super) fn define(&mut self, agent: AgentId, dst: ValueId, slot: Slot<I::Value>) {
        self.agents[agent.0 as usize].slots[dst.0 as usize] = slot;
    }

    /// Operand `i` of an operation: handed over at its last use, shared before.
    pub(super) fn operand(
        &mut self,
        agent: AgentId,
        op: usize,
        i: usize,
        value: ValueId,
    ) -> Result<I::Value, Diagnostic> {
        let program = self.program;
        let last = self.liveness[program.agents[agent.0 as usize].body as usize].last_use[op] >> i & 1 == 1;
        let slot = &mut self.agents[agent.0 as usize].slots[value.0 as usize];
        match slot {
            Slot::Value(found) if !last => return Ok(found.clone()),
            Slot::Value(_) => {
                if let Slot::Value(found) = std::mem::replace(slot, Slot::Empty) {
                    return Ok(found);
                }
            }
            _ => {}
        }
        let message = format!("value %{} is read before it is defined", value.0);
        Err(error::at(program, "AHBM-V306", message, agent, op))
    }

    /// The first operand, which must have the dtype and size of the operation's tile.
    fn sized(&mut self, agent: AgentId, op: usize, value: ValueId, tile: &'p Tile) -> Result<I::Value, Diagnostic> {
        let value = self.operand(agent, op, 0, value)?;
        let found = I::tile(&value);
        if found.dtype != tile.dtype || found.bytes() != tile.bytes() {
            let fault = Fault::Operand { found: found.clone(), expected: tile.clone() };
            return Err(fault.at(self.program, agent, op));
        }
        Ok(value)
    }

    fn read(&self, agent: AgentId, op: usize, from: Place, tile: &'p Tile) -> Result<I::Value, Diagnostic> {
        self.image.read(from, tile).map_err(|fault| fault.at(self.program, agent, op))
    }

    /// Writes what an agent has posted when it arrives; at once where no order matters.
    fn post(&mut self, agent: AgentId, op: usize, to: &[Place], value: I::Value) -> Result<(), Diagnostic> {
        if !self.ordered {
            to.iter().for_each(|&to| self.image.write(to, &value));
            return Ok(());
        }
        let number = self.agents[agent.0 as usize].posted;
        self.agents[agent.0 as usize].posted += 1;
        let Some(&arrival) = self.timeline.arrivals.get(agent.0 as usize).and_then(|list| list.get(number)) else {
            let message = "the timeline does not say when this arrived";
            return Err(error::at(self.program, "AHBM-D191", message.into(), agent, op)
                .hint("record spans in the timing pass of the same program"));
        };
        for &to in to {
            self.ready.push(Reverse((arrival, Turn::Landing(self.departed))));
            self.flights.insert(self.departed, Flight { by: (agent, op), to, value: value.clone() });
            self.departed += 1;
        }
        Ok(())
    }

    /// Buffer and offset of a memory operand, with the buffer's memory made sure of.
    fn place(&self, agent: AgentId, mem: u32) -> Result<Place, Diagnostic> {
        let mem = self.program.body(agent).mems.at(mem);
        let buffer = self.program.buffer(agent, mem.buffer);
        self.image.reserve(buffer)?;
        Ok((buffer, mem.offset))
    }

    fn receive(
        &mut self,
        agent: AgentId,
        op: usize,
        channel: ChannelId,
        dst: ValueId,
        tile: &'p Tile,
    ) -> Result<Option<Wait>, Diagnostic> {
        let Some(message) = self.queues[channel.0 as usize].receive() else {
            return Ok(Some(Wait::Message(channel)));
        };
        self.accept(agent, op, channel, message, dst, tile)?;
        Ok(None)
    }

    fn accept(
        &mut self,
        agent: AgentId,
        op: usize,
        channel: ChannelId,
        message: Message<I::Value>,
        dst: ValueId,
        tile: &'p Tile,
    ) -> Result<(), Diagnostic> {
        let sent = I::tile(&message.value);
        if sent.dtype != tile.dtype || sent.bytes() != tile.bytes() {
            let sender = self.program.channels[channel.0 as usize].sender;
            let found = Diagnostic::new("AHBM-V304", format!("a message of {sent} arrives at a receive of {tile}"));
            let found = error::site(self.program, found, sender, message.op as usize);
            return Err(error::site(self.program, found, agent, op).hint(
                "a queue is first in, first out: give the k-th send and the k-th recv of a direction one shape and dtype",
            ));
        }
        self.define(agent, dst, Slot::Value(I::reshaped(message.value, tile)));
        Ok(())
    }

    /// The channel pass 1 chose for a receive from any direction.
    fn choice(&self, agent: AgentId, op: usize) -> Result<ChannelId, Diagnostic> {
        let chosen = self.timeline.choices.get(agent.0 as usize);
        let chosen = chosen.and_then(|c| c.get(self.agents[agent.0 as usize].choices)).copied();
        match chosen {
            Some(c) if self.program.channels.get(c.0 as usize).is_some_and(|c| c.receiver == agent) => Ok(c),
            _ => {
                let message = "the timeline does not say which queue this receive took its message from";
                Err(error::at(self.program, "AHBM-D191", message.into(), agent, op)
                    .hint("use the timeline of the same program"))
            }
        }
    }

    /// Completes a posted receive. Waiting once more for a value that is there is allowed.
    fn await_value(&mut self, agent: AgentId, op: usize, value: ValueId) -> Result<Option<Wait>, Diagnostic> {
        let (channel, ticket, posted) = match self.agents[agent.0 as usize].slots[value.0 as usize] {
            Slot::Posted { channel, ticket, op } => (channel, ticket, op as usize),
            Slot::Value(_) => return Ok(None),
            Slot::Empty => {
                let message = format!("no receive was posted for value %{}", value.0);
                return Err(error::at(self.program, "AHBM-V302", message, agent, op));
            }
        };
        let Some(message) = self.queues[channel.0 as usize].take(ticket) else {
            return Ok(Some(Wait::Message(channel)));
        };
        let body = self.program.body(agent);
        if let OpKind::Comm(Comm::PostRecv { tile, .. }) = body.ops[posted].kind {
            self.accept(agent, posted, channel, message, value, &body.tiles[tile as usize])?;
        }
        Ok(None)
    }

    /// Arrives at a barrier; the last to arrive releases the others.
    fn arrive(&mut self, id: u32) -> Option<Wait> {
        let waiting = self.at_barrier[id as usize].len() as u32;
        if waiting + 1 < self.program.barriers[id as usize] {
            return Some(Wait::Barrier(id));
        }
        for other in std::mem::take(&mut self.at_barrier[id as usize]) {
            self.agents[other.0 as usize].next += 1;
            self.wake(other);
        }
        None
    }

    /// Leftover work is an error that lists the waiters.
    fn finished(&self, part: &[AgentId]) -> Result<(), Diagnostic> {
        let waiting: Vec<AgentId> = part.iter().copied().filter(|&agent| self.due(agent).is_some()).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut found =
            Diagnostic::new("AHBM-D190", format!("the data pass stands still with {} agents waiting", waiting.len()))
                .hint(
                    "the timeline was not produced from this program, or the timing pass is at fault; please report it",
                );
        for &agent in waiting.iter().take(8) {
            found = error::site(self.program, found, agent, self.agents[agent.0 as usize].next);
        }
        Err(found)
    }
}
