//! What the statements of a program said.

use super::refusal::{Kind, Refusal};
use super::values::{Given, Value, Values};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::Action;
use ahbm_plan::{Budget, Limit};
use rustc_hash::FxHashMap;

/// The input of a rank.
pub const INPUT: u32 = 0;
/// The output of a rank.
pub const OUTPUT: u32 = 1;
/// No operation.
pub const NONE: u32 = u32::MAX;

/// Consecutive slots of a buffer. Buffers from 2 on are slices of scratch, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The rank.
    pub rank: u32,
    /// The buffer.
    pub buffer: u32,
    /// First slot.
    pub index: u32,
    /// Number of slots.
    pub size: u32,
}

impl Place {
    /// True when both have a slot in common.
    pub fn meets(self, other: Self) -> bool {
        let end = |place: Self| u64::from(place.index) + u64::from(place.size);
        (self.rank, self.buffer) == (other.rank, other.buffer)
            && u64::from(self.index) < end(other)
            && u64::from(other.index) < end(self)
    }
}

/// How a transfer is to be done: numbers of thread blocks and a channel, -1 where the program leaves them open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Thread block at the sender, or of a local operation.
    pub send_tb: i64,
    /// Thread block at the receiver.
    pub recv_tb: i64,
    /// Channel.
    pub channel: i64,
    /// The statement, as the caller counts them.
    pub origin: u32,
}

/// What is in a list of slots before the program starts.
#[derive(Debug, Clone)]
pub enum Start {
    /// These chunks; the list keeps its length.
    List(Vec<Option<Given>>),
    /// The slots of another buffer of the rank, which is one memory with it.
    Same(u32),
    /// These chunks; the list grows when something is written behind its end.
    Slice(Vec<Option<Given>>),
}

/// An operation: one end of a transfer, or a local one.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    /// The action; `None` for the start of a slot of the input.
    pub action: Option<Action>,
    /// The rank that does it.
    pub rank: u32,
    /// Where the data come from, at the sender.
    pub src: Place,
    /// Where they go, at the receiver.
    pub dst: Place,
    /// Thread block, or -1.
    pub tb: i64,
    /// Channel, or -1.
    pub channel: i64,
    /// The statement.
    pub origin: u32,
    /// The receive that belongs to a send.
    pub to: u32,
    /// The send that belongs to a receive.
    pub from: u32,
    /// The statement of the send that was fused into a receive.
    pub also: u32,
}

#[derive(Debug, Clone)]
struct Cell {
    writer: u32,
    readers: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Buffer {
    /// Index of its values; two buffers that are one memory share them.
    store: usize,
    grows: bool,
    cells: Vec<Cell>,
}

/// The buffers of a rank.
#[derive(Debug, Clone, Default)]
struct Buffers {
    fixed: [Option<Buffer>; 2],
    named: FxHashMap<u32, Buffer>,
}

impl Buffers {
    fn get(&self, buffer: u32) -> Option<&Buffer> {
        self.fixed.get(buffer as usize).map_or_else(|| self.named.get(&buffer), Option::as_ref)
    }

    fn get_mut(&mut self, buffer: u32) -> Option<&mut Buffer> {
        match self.fixed.get_mut(buffer as usize) {
            Some(fixed) => fixed.as_mut(),
            None => self.named.get_mut(&buffer),
        }
    }
}

/// A program while it is written.
#[derive(Debug, Clone)]
pub struct Recording {
    budget: Budget,
    values: Values,
    stores: Vec<Vec<Value>>,
    buffers: Vec<Buffers>,
    /// Slices of scratch by rank, in the order in which they were made.
    slices: Vec<Vec<u32>>,
    slots: u64,
    pub(super) ops: Vec<Op>,
    /// (earlier, later), by later; every later operation has a higher number.
    pub(super) edges: Vec<(u32, u32)>,
    before: Vec<u32>,
}

impl Recording {
    /// A program for so many ranks, without buffers.
    ///
    /// # Errors
    /// `AHBM-B206` too many ranks.
    pub fn new(ranks: u32, budget: Budget) -> Result<Self, Diagnostic> {
        budget.check(Limit::Ranks, ranks.into())?;
        Ok(Self {
            budget,
            values: Values::default(),
            stores: Vec::new(),
            buffers: vec![Buffers::default(); ranks as usize],
            slices: vec![Vec::new(); ranks as usize],
            slots: 0,
            ops: Vec::new(),
            edges: Vec::new(),
            before: Vec::new(),
        })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Number of operations; it grows with every statement that does something.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True before the first operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Gives a rank a buffer.
    ///
    /// # Errors
    /// `AHBM-B204` too many slots.
    pub fn add_buffer(&mut self, rank: u32, buffer: u32, start: Start) -> Result<(), Diagnostic> {
        let (list, grows) = match start {
            Start::List(list) => (list, false),
            Start::Slice(list) => (list, true),
            Start::Same(other) => {
                let twin = self.buffer(rank, other).map(|twin| (twin.store, twin.grows));
                let (store, grows) = twin.expect("a buffer that exists is shared");
                self.put(rank, buffer, Buffer { store, grows, cells: Vec::new() });
                return Ok(());
            }
        };
        self.admit(list.len() as u64)?;
        let values = list.into_iter().map(|chunk| chunk.map_or(Value::NONE, |chunk| self.values.given(chunk)));
        let values = values.collect();
        self.stores.push(values);
        self.put(rank, buffer, Buffer { store: self.stores.len() - 1, grows, cells: Vec::new() });
        Ok(())
    }

    /// The slot holds an input of the program.
    pub fn start(&mut self, rank: u32, buffer: u32, index: u32, origin: u32) {
        let place = Place { rank, buffer, index, size: 1 };
        let op = self.push(None, rank, place, place, [-1, -1], origin);
        if let Some(buffer) = self.buffer_mut(rank, buffer) {
            cell(buffer, index).writer = op;
        }
    }

    /// A slice of scratch of that name, if the rank has none yet.
    pub fn ensure_slice(&mut self, rank: u32, buffer: u32) {
        if self.buffer(rank, buffer).is_none() {
            self.stores.push(Vec::new());
            self.put(rank, buffer, Buffer { store: self.stores.len() - 1, grows: true, cells: Vec::new() });
        }
    }

    /// Slots of a buffer; `None` if the rank has no such buffer.
    pub fn length(&self, rank: u32, buffer: u32) -> Option<u32> {
        self.buffer(rank, buffer).map(|buffer| self.stores[buffer.store].len() as u32)
    }

    /// Slices of scratch of a rank, in the order in which they were made.
    pub fn slices(&self, rank: u32) -> &[u32] {
        &self.slices[rank as usize]
    }

    /// The chunk in a slot; `None` outside the buffer.
    pub fn value(&self, rank: u32, buffer: u32, index: u32) -> Option<Value> {
        let buffer = self.buffer(rank, buffer)?;
        self.stores[buffer.store].get(index as usize).copied()
    }

    /// The chunks that occurred.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Copies `src` to `dst`.
    ///
    /// # Errors
    /// A [`Refusal`] with `AHBM-A203` outside a buffer, `AHBM-A204` for a slot that was never written, `AHBM-A206` for
    /// places that overlap, `AHBM-B204` for too many slots or operations.
    pub fn copy(&mut self, src: Place, dst: Place, how: &Transfer) -> Result<(), Box<Refusal>> {
        self.admissible("copied", src, dst)?;
        for i in 0..src.size {
            let value = self.value(src.rank, src.buffer, src.index + i).unwrap_or(Value::NONE);
            self.set(dst.rank, dst.buffer, dst.index + i, value)?;
        }
        self.transfer(src, dst, how, [Action::Recv, Action::Copy]);
        Ok(())
    }

    /// Reduces `src` into `dst`.
    ///
    /// # Errors
    /// Those of [`Self::copy`]; `AHBM-A204` also where there is nothing to reduce into.
    pub fn reduce(&mut self, dst: Place, src: Place, how: &Transfer) -> Result<(), Box<Refusal>> {
        self.admissible("reduced", src, dst)?;
        self.written(dst)?;
        for i in 0..src.size {
            let value = self.value(src.rank, src.buffer, src.index + i).unwrap_or(Value::NONE);
            let into = self.value(dst.rank, dst.buffer, dst.index + i).unwrap_or(Value::NONE);
            let sum = self.values.sum(into, value, dst.rank);
            self.set(dst.rank, dst.buffer, dst.index + i, sum)?;
        }
        self.transfer(src, dst, how, [Action::RecvReduceCopy, Action::Reduce]);
        Ok(())
    }

    fn transfer(&mut self, src: Place, dst: Place, how: &Transfer, [remote, local]: [Action; 2]) {
        let Transfer { send_tb, recv_tb, channel, origin } = *how;
        if src.rank == dst.rank {
            let op = self.push(Some(local), src.rank, src, dst, [send_tb, channel], origin);
            self.reads(src, op);
            self.writes(dst, op);
            self.connect(op);
            return;
        }
        let send = self.push(Some(Action::Send), src.rank, src, dst, [send_tb, channel], origin);
        self.reads(src, send);
        self.connect(send);
        let recv = self.push(Some(remote), dst.rank, src, dst, [recv_tb, channel], origin);
        self.writes(dst, recv);
        self.connect(recv);
        self.ops[send as usize].to = recv;
        self.ops[recv as usize].from = send;
    }

    /// What is wrong before anything changes.
    fn admissible(&mut self, verb: &str, src: Place, dst: Place) -> Result<(), Box<Refusal>> {
        self.budget.check(Limit::Steps, self.ops.len() as u64 + 2)?;
        if src.size != dst.size {
            let message = format!("{} chunks are {verb} into {}", src.size, dst.size);
            return Err(Refusal::new(Kind::Assertion, Diagnostic::new("AHBM-A206", message)));
        }
        if src.meets(dst) {
            let message = format!("a chunk is {verb} into slots that it occupies itself");
            return Err(Refusal::new(Kind::Assertion, Diagnostic::new("AHBM-A206", message)));
        }
        self.written(src)?;
        let buffer = self.buffer(dst.rank, dst.buffer);
        let (length, grows) = buffer.map_or((0, true), |buffer| (self.stores[buffer.store].len() as u64, buffer.grows));
        let end = u64::from(dst.index) + u64::from(dst.size);
        if end > length {
            if !grows {
                let message =
                    format!("slots [{}, {end}) of a buffer that has {length} on rank {}", dst.index, dst.rank);
                return Err(Refusal::new(Kind::Index, Diagnostic::new("AHBM-A203", message)));
            }
            self.admit(end - length)?;
        }
        Ok(())
    }

    /// Every slot of `place` was written, or holds an input.
    fn written(&self, place: Place) -> Result<(), Box<Refusal>> {
        let buffer = self.buffer(place.rank, place.buffer);
        let length = buffer.map_or(0, |buffer| self.stores[buffer.store].len() as u64);
        let end = u64::from(place.index) + u64::from(place.size);
        if end > length {
            let message =
                format!("slots [{}, {end}) of a buffer that has {length} on rank {}", place.index, place.rank);
            return Err(Refusal::new(Kind::Index, Diagnostic::new("AHBM-A203", message)));
        }
        let cells = buffer.map_or(&[][..], |buffer| &buffer.cells);
        let known = |i: &u32| cells.get(*i as usize).is_some_and(|cell| cell.writer != NONE);
        match (place.index..place.index + place.size).find(|i| !known(i)) {
            None => Ok(()),
            Some(i) => {
                let message = format!("slot {i} of rank {} is read before anything is written to it", place.rank);
                Err(Refusal::new(Kind::Assertion, Diagnostic::new("AHBM-A204", message)))
            }
        }
    }

    fn set(&mut self, rank: u32, buffer: u32, index: u32, value: Value) -> Result<(), Box<Refusal>> {
        let Some(store) = self.buffer(rank, buffer).map(|buffer| buffer.store) else {
            let message = format!("rank {rank} has no such buffer");
            return Err(Refusal::new(Kind::Key, Diagnostic::new("AHBM-A203", message)));
        };
        let values = &mut self.stores[store];
        if index as usize >= values.len() {
            values.resize(index as usize + 1, Value::NONE);
        }
        values[index as usize] = value;
        Ok(())
    }

    fn reads(&mut self, place: Place, op: u32) {
        let Some(buffer) = self.buffers[place.rank as usize].get_mut(place.buffer) else { return };
        for i in 0..place.size {
            let cell = cell(buffer, place.index + i);
            self.before.push(cell.writer);
            cell.readers.push(op);
        }
    }

    /// A write follows the readers of what it overwrites, or else its writer.
    fn writes(&mut self, place: Place, op: u32) {
        let Some(buffer) = self.buffers[place.rank as usize].get_mut(place.buffer) else { return };
        for i in 0..place.size {
            let cell = cell(buffer, place.index + i);
            if cell.readers.is_empty() {
                self.before.push(cell.writer);
            } else {
                self.before.append(&mut cell.readers);
            }
            cell.writer = op;
        }
    }

    fn connect(&mut self, op: u32) {
        self.before.sort_unstable();
        self.before.dedup();
        self.edges.extend(self.before.drain(..).filter(|&p| p != NONE && p != op).map(|p| (p, op)));
    }

    fn push(
        &mut self,
        action: Option<Action>,
        rank: u32,
        src: Place,
        dst: Place,
        [tb, channel]: [i64; 2],
        origin: u32,
    ) -> u32 {
        self.ops.push(Op { action, rank, src, dst, tb, channel, origin, to: NONE, from: NONE, also: NONE });
        self.ops.len() as u32 - 1
    }

    fn admit(&mut self, more: u64) -> Result<(), Diagnostic> {
        self.slots = self.slots.saturating_add(more);
        self.budget.check(Limit::Steps, self.slots)
    }

    fn put(&mut self, rank: u32, buffer: u32, content: Buffer) {
        let buffers = &mut self.buffers[rank as usize];
        match buffers.fixed.get_mut(buffer as usize) {
            Some(fixed) => *fixed = Some(content),
            None => drop(buffers.named.insert(buffer, content)),
        }
        if buffer > OUTPUT {
            self.slices[rank as usize].push(buffer);
        }
    }

    fn buffer(&self, rank: u32, buffer: u32) -> Option<&Buffer> {
        self.buffers.get(rank as usize)?.get(buffer)
    }

    fn buffer_mut(&mut self, rank: u32, buffer: u32) -> Option<&mut Buffer> {
        self.buffers.get_mut(rank as usize)?.get_mut(buffer)
    }
}

fn cell(buffer: &mut Buffer, index: u32) -> &mut Cell {
    if buffer.cells.len() <= index as usize {
        buffer.cells.resize(index as usize + 1, Cell { writer: NONE, readers: Vec::new() });
    }
    &mut buffer.cells[index as usize]
}
