//! What an agent does, with every value named once.

use super::{Captured, gcd};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, BinaryFn, Body, ChannelId, Comm, Control, Math, Move, OpKind, OriginId, ValueId};

/// Bytes of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) bytes: u64,
}

impl Run {
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first < other.first + other.bytes && other.first < self.first + self.bytes
    }
}

/// An operation on values, which are counted from 0 in order of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Load { value: usize, at: Run },
    Store { value: usize, at: Run },
    Sum { value: usize, a: usize, b: usize },
    Send { channel: ChannelId, value: usize },
    Recv { channel: ChannelId, value: usize },
    Post { channel: ChannelId, value: usize },
    Await { value: usize },
}

/// A value.
#[derive(Debug, Clone, Default)]
pub(super) struct Value {
    pub(super) bytes: u64,
    /// The operations that read it, in order.
    pub(super) uses: Vec<usize>,
}

impl Value {
    /// True when an operation behind `now` reads it.
    pub(super) fn lives(&self, now: usize) -> bool {
        self.uses.last().is_some_and(|&last| last > now)
    }
}

/// The operations of an agent.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) acts: Vec<(Act, OriginId)>,
    pub(super) values: Vec<Value>,
    /// The greatest number that divides every offset and size, in bytes; 0 of nothing.
    pub(super) granule: u64,
}

/// Follows the slots of a body.
struct Reader<'a> {
    given: &'a Captured<'a>,
    agent: AgentId,
    body: &'a Body,
    /// Per slot, the value that is in it.
    slots: Vec<usize>,
    script: Script,
}

impl Script {
    pub(super) fn of(given: &Captured<'_>, agent: AgentId) -> Result<Self, Box<Diagnostic>> {
        let body = given.program.body(agent);
        let slots = vec![usize::MAX; body.values as usize];
        let mut reader = Reader { given, agent, body, slots, script: Self::default() };
        for (index, op) in body.ops.iter().enumerate() {
            reader.op(index, op.kind).map_err(|why| Box::new(reader.refusal(index, why)))?;
        }
        Ok(reader.script)
    }
}

impl Reader<'_> {
    fn op(&mut self, index: usize, kind: OpKind) -> Result<(), &'static str> {
        let program = self.given.program;
        let act = match kind {
            OpKind::Move(Move::Load { dst, mem, tile }) => {
                let at = self.run(mem, tile)?;
                Act::Load { value: self.define(dst, at.bytes), at }
            }
            OpKind::Move(Move::Store { src, mem, tile, .. }) => {
                let at = self.run(mem, tile)?;
                Act::Store { value: self.read(src, at.bytes)?, at }
            }
            OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a, b, tile }) => {
                let bytes = self.bytes(tile)?;
                let (a, b) = (self.read(a, bytes)?, self.read(b, bytes)?);
                Act::Sum { value: self.define(dst, bytes), a, b }
            }
            OpKind::Comm(Comm::Send { dir, src, tile }) => {
                let bytes = self.bytes(tile)?;
                let channel = self.between_ranks(program.tx(self.agent, dir))?;
                Act::Send { channel, value: self.read(src, bytes)? }
            }
            OpKind::Comm(Comm::Recv { dir, dst, tile }) => {
                let bytes = self.bytes(tile)?;
                let channel = self.between_ranks(program.rx(self.agent, dir))?;
                Act::Recv { channel, value: self.define(dst, bytes) }
            }
            OpKind::Comm(Comm::PostRecv { dir, dst, tile }) => {
                let bytes = self.bytes(tile)?;
                let channel = self.between_ranks(program.rx(self.agent, dir))?;
                Act::Post { channel, value: self.define(dst, bytes) }
            }
            OpKind::Comm(Comm::Await { value }) => Act::Await { value: self.known(value)? },
            // Calls that no operation follows.
            OpKind::Control(Control::Delay { ps: 0 }) => return Ok(()),
            OpKind::Math(Math::Fill { .. } | Math::Arange { .. }) => return Err("a plan has no numbers of its own"),
            OpKind::Math(Math::Binary { .. }) => return Err("a plan leaves its operator to the run: kernels add"),
            OpKind::Math(Math::Cast { .. }) => return Err("a plan has one element type"),
            OpKind::Comm(Comm::RecvAny { .. }) => return Err("a plan says whose message is next"),
            _ => return Err("a plan moves chunks and reduces them, nothing else"),
        };
        let position = self.script.acts.len();
        let mut uses = |value: usize| self.script.values[value].uses.push(position);
        match act {
            Act::Store { value, .. } | Act::Send { value, .. } | Act::Await { value } => uses(value),
            Act::Sum { a, b, .. } => {
                uses(a);
                uses(b);
            }
            Act::Load { .. } | Act::Recv { .. } | Act::Post { .. } => {}
        }
        self.script.acts.push((act, self.body.origins[index]));
        Ok(())
    }

    fn bytes(&mut self, tile: u32) -> Result<u64, &'static str> {
        let tile = &self.body.tiles[tile as usize];
        if tile.dtype != self.given.dtype {
            return Err("a plan has one element type");
        }
        match tile.bytes() {
            0 => Err("a plan has no chunks without elements"),
            bytes => {
                self.script.granule = gcd(bytes, self.script.granule);
                Ok(bytes)
            }
        }
    }

    fn run(&mut self, mem: u32, tile: u32) -> Result<Run, &'static str> {
        let bytes = self.bytes(tile)?;
        let mem = self.body.mems.at(mem);
        if mem.buffer != 0 {
            return Err("a plan's rank has one array");
        }
        self.script.granule = gcd(self.script.granule, mem.offset);
        Ok(Run { first: mem.offset, bytes })
    }

    fn define(&mut self, slot: ValueId, bytes: u64) -> usize {
        self.script.values.push(Value { bytes, uses: Vec::new() });
        let value = self.script.values.len() - 1;
        self.slots[slot.0 as usize] = value;
        value
    }

    fn read(&self, slot: ValueId, bytes: u64) -> Result<usize, &'static str> {
        let value = self.known(slot)?;
        if self.script.values[value].bytes == bytes { Ok(value) } else { Err("a plan repeats no elements") }
    }

    fn known(&self, slot: ValueId) -> Result<usize, &'static str> {
        let value = self.slots[slot.0 as usize];
        if value == usize::MAX { Err("nothing has made what it reads") } else { Ok(value) }
    }

    fn between_ranks(&self, channel: ChannelId) -> Result<ChannelId, &'static str> {
        let program = self.given.program;
        let ends = &program.channels[channel.0 as usize];
        let rank = |agent: AgentId| program.agents[agent.0 as usize].rank;
        if rank(ends.sender) == rank(ends.receiver) { Err("a plan's rank sends itself nothing") } else { Ok(channel) }
    }

    fn refusal(&self, index: usize, why: &str) -> Diagnostic {
        let program = self.given.program;
        let what = program.describe(self.agent, index);
        let rank = program.agents[self.agent.0 as usize].rank;
        Diagnostic::new("AHBM-U294", format!("{what} of {}: {why}", self.given.name))
            .site(format!("rank {rank}: {what}"), program.line_text(self.agent, index))
            .hint("ahbm run --et writes a trace of any kernel's run")
    }
}
