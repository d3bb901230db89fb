//! Who made an element, and who used it.

use super::elements::{given, taken};
use crate::data::liveness::result_tile;
use crate::{Access, NEVER, Timeline};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, BufferId, ChannelId, Comm, Move, OpKind, Program, Tile, ValueId};
use std::ops::Range;

/// A place that an element was at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Spot {
    /// What an operation made, moved or wrote.
    Op {
        /// Whose.
        agent: AgentId,
        /// The operation.
        op: u32,
        /// Index of the element in its tile.
        element: u64,
    },
    /// Memory as it was before the run.
    Before {
        /// The buffer.
        buffer: BufferId,
        /// The bytes.
        bytes: Range<u64>,
    },
}

/// What becomes of something that was written.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// What reads it.
    pub(super) readers: Vec<Spot>,
    /// What is there in the end.
    pub(super) left: Vec<(BufferId, Range<u64>)>,
    /// What replaces the rest.
    pub(super) over: Vec<(AgentId, u32)>,
}

/// Index over a run: who touched which memory in which order, and which messages belong together.
#[derive(Debug)]
pub struct Flow {
    accesses: Vec<Access>,
    /// Whether what is posted is written by an access of its own.
    lands: bool,
    /// Per buffer, its accesses in order.
    by_buffer: Vec<Vec<u32>>,
    /// Per agent, its accesses in the order of its operations, arrivals left out.
    issued: Vec<Vec<u32>>,
    /// Arrivals by agent and operation, sorted.
    landings: Vec<(AgentId, u32, u32)>,
    /// Per channel, the operations that send, and those that receive, in the order of their messages.
    sends: Vec<Vec<u32>>,
    receives: Vec<Vec<u32>>,
    /// Per agent, how many of its operations ran: not all in a deadlock.
    ran: Vec<u32>,
}

impl Flow {
    /// Of the accesses of a replay of `timeline`, and whether posts land ([`crate::Prepared::accesses`]).
    ///
    /// # Errors
    /// `AHBM-D191` for a timeline that was not recorded.
    pub fn new(program: &Program, timeline: &Timeline, accesses: Vec<Access>, lands: bool) -> Result<Self, Diagnostic> {
        if timeline.spans.len() != program.agents.len() {
            return Err(unrecorded());
        }
        let mut by_buffer = vec![Vec::new(); program.buffers.len()];
        let mut issued = vec![Vec::new(); program.agents.len()];
        let mut landings = Vec::new();
        for (position, access) in accesses.iter().enumerate() {
            let position = position as u32;
            if access.landing {
                landings.push((access.agent, access.op, position));
            } else {
                issued[access.agent.0 as usize].push(position);
            }
            let body = program.body(access.agent);
            for (mem, _) in body.touched(body.ops[access.op as usize].kind) {
                let buffer = program.buffer(access.agent, body.mems.buffer(mem));
                let list: &mut Vec<u32> = &mut by_buffer[buffer.0 as usize];
                if list.last() != Some(&position) {
                    list.push(position);
                }
            }
        }
        landings.sort_unstable();
        let ran: Vec<u32> =
            timeline.spans.iter().map(|spans| spans.partition_point(|span| span.end != NEVER) as u32).collect();
        let (mut sends, mut receives) = messages(program, timeline);
        for (number, channel) in program.channels.iter().enumerate() {
            sends[number].retain(|&op| op < ran[channel.sender.0 as usize]);
            receives[number].retain(|&op| op < ran[channel.receiver.0 as usize]);
        }
        Ok(Self { accesses, lands, by_buffer, issued, landings, sends, receives, ran })
    }

    /// Number of accesses to memory.
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Whether no memory was touched.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// The first access after `at`; the end of all without a time.
    pub(super) fn end(&self, at: Option<Ps>) -> u32 {
        at.map_or(self.accesses.len(), |at| self.accesses.partition_point(|access| access.at <= at)) as u32
    }

    /// When an element was at a spot: the end of the operation, or its arrival.
    pub(super) fn time(&self, program: &Program, timeline: &Timeline, spot: &Spot) -> Ps {
        let &Spot::Op { agent, op, .. } = spot else { return 0 };
        let body = program.body(agent);
        let kind = body.ops[op as usize].kind;
        if let Some(position) = self.written_at(agent, op).filter(|_| body.touched(kind).any(|(_, writes)| writes)) {
            return self.accesses[position as usize].at;
        }
        // A posted receive is over when it is awaited.
        let op = match kind {
            OpKind::Comm(Comm::PostRecv { dst, .. }) => (op as usize + 1..body.ops.len())
                .find(|&later| body.ops[later].kind == OpKind::Comm(Comm::Await { value: dst }))
                .unwrap_or(op as usize),
            _ => op as usize,
        };
        // What was posted before a deadlock may have arrived and never be awaited.
        timeline.spans[agent.0 as usize][op].end.min(timeline.latency)
    }

    /// Position of the access in which an operation reads memory.
    fn read_at(&self, agent: AgentId, op: u32) -> Option<u32> {
        let list = &self.issued[agent.0 as usize];
        let place = list.binary_search_by_key(&op, |&position| self.accesses[position as usize].op).ok()?;
        Some(list[place])
    }

    /// Position of the access in which an operation writes memory; `None` when it is still to come.
    fn written_at(&self, agent: AgentId, op: u32) -> Option<u32> {
        let from = self.landings.partition_point(|&(a, o, _)| (a, o) < (agent, op));
        match self.landings.get(from) {
            Some(&(a, o, position)) if (a, o) == (agent, op) => Some(position),
            _ => self.read_at(agent, op),
        }
    }

    /// Whether an access writes, when its operation writes at all.
    fn writes(&self, program: &Program, access: &Access) -> bool {
        access.landing || !self.lands || !posts(program.body(access.agent).ops[access.op as usize].kind)
    }

    /// The bytes of a buffer that an operation reads, or writes.
    fn ranges(&self, program: &Program, agent: AgentId, op: u32, buffer: BufferId, written: bool) -> Vec<Range<u64>> {
        let body = program.body(agent);
        let kind = body.ops[op as usize].kind;
        let bytes = kind.operands().tile.map_or(0, |tile| body.tiles[tile as usize].bytes());
        let here = body
            .touched(kind)
            .filter(|&(mem, writes)| writes == written && program.buffer(agent, body.mems.buffer(mem)) == buffer);
        here.map(|(mem, _)| {
            let start = body.mems.at(mem).offset;
            start..start.saturating_add(bytes)
        })
        .collect()
    }

    /// What stood in some bytes before access number `before`: whatever wrote them last, in the order of the bytes.
    pub(super) fn stood(&self, program: &Program, buffer: BufferId, bytes: Range<u64>, before: u32) -> Vec<Spot> {
        let list = &self.by_buffer[buffer.0 as usize];
        let mut open = vec![bytes];
        let mut found: Vec<(u64, Spot)> = Vec::new();
        for &position in list[..list.partition_point(|&p| p < before)].iter().rev() {
            if open.is_empty() {
                break;
            }
            spend(8);
            let access = &self.accesses[position as usize];
            if !self.writes(program, access) {
                continue;
            }
            for range in self.ranges(program, access.agent, access.op, buffer, true) {
                let mut rest = Vec::with_capacity(open.len());
                for part in open {
                    let (low, high) = (part.start.max(range.start), part.end.min(range.end));
                    if low >= high {
                        rest.push(part);
                        continue;
                    }
                    found.extend(self.elements(program, access, &range, low..high));
                    rest.extend([part.start..low, high..part.end].into_iter().filter(|r| r.start < r.end));
                }
                open = rest;
            }
        }
        found.extend(open.into_iter().map(|bytes| (bytes.start, Spot::Before { buffer, bytes })));
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, spot)| spot).collect()
    }

    /// The elements of an operation's tile, which lies at `whole`, in some of its bytes.
    fn elements(
        &self,
        program: &Program,
        access: &Access,
        whole: &Range<u64>,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = (u64, Spot)> + use<> {
        let body = program.body(access.agent);
        let tile = body.ops[access.op as usize].kind.operands().tile;
        let unit = tile.map_or(1, |tile| body.tiles[tile as usize].dtype.bytes());
        let (agent, op, start) = (access.agent, access.op, whole.start);
        let (first, last) = ((bytes.start - start) / unit, (bytes.end - start).div_ceil(unit));
        (first..last).map(move |element| (start + element * unit, Spot::Op { agent, op, element }))
    }

    /// What a spot's element was made of, in the order of the operands.
    pub(super) fn sources(&self, program: &Program, spot: &Spot) -> Vec<Spot> {
        let &Spot::Op { agent, op, element } = spot else { return Vec::new() };
        let body = program.body(agent);
        let kind = body.ops[op as usize].kind;
        match kind {
            OpKind::Move(Move::Load { .. } | Move::Copy { .. } | Move::ReducingLoad { .. }) => {
                let Some(before) = self.read_at(agent, op) else { return Vec::new() };
                let unit = kind.operands().tile.map_or(1, |tile| body.tiles[tile as usize].dtype.bytes());
                let read = body.touched(kind).filter(|(_, writes)| !writes);
                read.flat_map(|(mem, _)| {
                    let mem = body.mems.at(mem);
                    let start = mem.offset + element * unit;
                    self.stood(program, program.buffer(agent, mem.buffer), start..start + unit, before)
                })
                .collect()
            }
            OpKind::Comm(Comm::Recv { .. } | Comm::RecvAny { .. } | Comm::PostRecv { .. }) => {
                let sent = self.sender(program, agent, op);
                sent.map(|(agent, op)| Spot::Op { agent, op, element }).into_iter().collect()
            }
            _ => {
                let reads = kind.operands().reads.into_iter().enumerate();
                reads
                    .filter_map(|(i, value)| Some((i, defined(program, agent, op, value?)?)))
                    .flat_map(|(i, (def, from))| {
                        let elements = taken(body, kind, i, &from, element);
                        elements.into_iter().map(move |element| Spot::Op { agent, op: def, element })
                    })
                    .collect()
            }
        }
    }

    /// What used the value that a spot defines, or the message that it sent.
    pub(super) fn users(&self, program: &Program, spot: &Spot) -> Vec<Spot> {
        let &Spot::Op { agent, op, element } = spot else { return Vec::new() };
        let body = program.body(agent);
        if let OpKind::Comm(Comm::Send { dir, .. }) = body.ops[op as usize].kind {
            let channel = program.tx(agent, dir);
            let number = self.sends[channel.0 as usize].binary_search(&op);
            let taken = number.ok().and_then(|number| self.receives[channel.0 as usize].get(number));
            let agent = program.channels[channel.0 as usize].receiver;
            return taken.map(|&op| Spot::Op { agent, op, element }).into_iter().collect();
        }
        let (Some(value), Some(from)) =
            (body.ops[op as usize].defines(), result_tile(body, body.ops[op as usize].kind))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let ran = self.ran[agent.0 as usize] as usize;
        for (later, next) in body.ops.iter().enumerate().take(ran).skip(op as usize + 1) {
            spend(4);
            for (i, read) in next.kind.operands().reads.into_iter().enumerate() {
                if read == Some(value) {
                    let to = result_tile(body, next.kind).unwrap_or_else(|| from.clone());
                    let elements = given(body, next.kind, i, &from, &to, element);
                    found.extend(elements.into_iter().map(|element| Spot::Op { agent, op: later as u32, element }));
                }
            }
            if next.defines() == Some(value) {
                break;
            }
        }
        found.dedup();
        found
    }

    /// What became of what a spot wrote into memory; `None` for an operation that writes none.
    pub(super) fn reads(&self, program: &Program, spot: &Spot) -> Option<Read> {
        let mut read = Read::default();
        let (agent, op, element) = match *spot {
            Spot::Before { buffer, ref bytes } => {
                self.follow(program, buffer, bytes.clone(), 0, &mut read);
                return Some(read);
            }
            Spot::Op { agent, op, element } => (agent, op, element),
        };
        let body = program.body(agent);
        let kind = body.ops[op as usize].kind;
        let mut written = body.touched(kind).filter(|&(_, writes)| writes).peekable();
        written.peek()?;
        let after = self.written_at(agent, op)? + 1;
        let unit = kind.operands().tile.map_or(1, |tile| body.tiles[tile as usize].dtype.bytes());
        for (mem, _) in written {
            let mem = body.mems.at(mem);
            let start = mem.offset + element * unit;
            self.follow(program, program.buffer(agent, mem.buffer), start..start + unit, after, &mut read);
        }
        Some(read)
    }

    fn follow(&self, program: &Program, buffer: BufferId, bytes: Range<u64>, from: u32, read: &mut Read) {
        let list = &self.by_buffer[buffer.0 as usize];
        let mut open = vec![bytes];
        for &position in &list[list.partition_point(|&p| p < from)..] {
            if open.is_empty() {
                return;
            }
            spend(8);
            let access = &self.accesses[position as usize];
            if !access.landing {
                for range in self.ranges(program, access.agent, access.op, buffer, false) {
                    for part in &open {
                        let (low, high) = (part.start.max(range.start), part.end.min(range.end));
                        if low < high {
                            let spots = self.elements(program, access, &range, low..high);
                            read.readers.extend(spots.map(|(_, spot)| spot));
                        }
                    }
                }
            }
            if !self.writes(program, access) {
                continue;
            }
            for range in self.ranges(program, access.agent, access.op, buffer, true) {
                let meets = |part: &Range<u64>| part.start < range.end && range.start < part.end;
                if open.iter().any(meets) {
                    read.over.push((access.agent, access.op));
                    let cut =
                        |part: Range<u64>| [part.start..part.end.min(range.start), part.start.max(range.end)..part.end];
                    open = open.into_iter().flat_map(cut).filter(|r| r.start < r.end).collect();
                }
            }
        }
        read.left.extend(open.into_iter().map(|bytes| (buffer, bytes)));
    }

    /// The operation that sent what an operation received.
    fn sender(&self, program: &Program, agent: AgentId, op: u32) -> Option<(AgentId, u32)> {
        let channel = match program.body(agent).ops[op as usize].kind {
            OpKind::Comm(Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. }) => program.rx(agent, dir),
            // Of the channels that lead here, the one that has this receive.
            _ => (0..program.channels.len() as u32).map(ChannelId).find(|&channel| {
                program.channels[channel.0 as usize].receiver == agent
                    && self.receives[channel.0 as usize].binary_search(&op).is_ok()
            })?,
        };
        let number = self.receives[channel.0 as usize].binary_search(&op).ok()?;
        let sent = self.sends[channel.0 as usize].get(number)?;
        Some((program.channels[channel.0 as usize].sender, *sent))
    }
}

pub(super) fn unrecorded() -> Diagnostic {
    Diagnostic::new("AHBM-D191", "the timeline does not say when each operation of this program ran")
        .hint("record spans in the timing pass of the same program")
}

fn posts(kind: OpKind) -> bool {
    match kind {
        OpKind::Move(Move::Store { posted, .. } | Move::Copy { posted, .. }) => posted,
        OpKind::Move(Move::Multicast { .. }) => true,
        _ => false,
    }
}

/// The operation that defined a value which operation `op` reads, and the value's tile.
fn defined(program: &Program, agent: AgentId, op: u32, value: ValueId) -> Option<(u32, Tile)> {
    let body = program.body(agent);
    let def = (0..op as usize).rev().find(|&earlier| {
        spend(1);
        body.ops[earlier].defines() == Some(value)
    })?;
    Some((def as u32, result_tile(body, body.ops[def].kind)?))
}

/// Per channel, what sends and what receives its messages, in their order.
pub(super) fn messages(program: &Program, timeline: &Timeline) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let (mut sends, mut receives) =
        (vec![Vec::new(); program.channels.len()], vec![Vec::new(); program.channels.len()]);
    for agent in (0..program.agents.len() as u32).map(AgentId) {
        let mut choices = timeline.choices.get(agent.0 as usize).map_or(&[][..], Vec::as_slice).iter();
        let body = program.body(agent);
        spend(body.ops.len() as u64 * 2);
        for (op, kind) in body.ops.iter().map(|op| op.kind).enumerate() {
            let op = op as u32;
            match kind {
                OpKind::Comm(Comm::Send { dir, .. }) => sends[program.tx(agent, dir).0 as usize].push(op),
                OpKind::Comm(Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. }) => {
                    receives[program.rx(agent, dir).0 as usize].push(op);
                }
                OpKind::Comm(Comm::RecvAny { .. }) => {
                    if let Some(list) = choices.next().and_then(|channel| receives.get_mut(channel.0 as usize)) {
                        list.push(op);
                    }
                }
                _ => {}
            }
        }
    }
    (sends, receives)
}
