//! Plans from transfers: what crosses which queue in which order, as thread blocks.
//!
//! Every queue has a thread block at either end, which keeps the order of sending. A register is what a rank holds of a
//! piece: the operand until something is written, then the result where the rank is to have it and scratch elsewhere.
//! Steps wait for what they read, for the readers of what they overwrite, and, where several messages are added to one
//! register, for each other in the order of arrival: so the order of additions is part of the plan, and no message that
//! has arrived waits for one that has not.

use super::{Action, Block, Dep, Places, Plan, Rank, Slot, Step};
use crate::collective::{Content, Extent, Relation};
use crate::{Goal, Protocol, Space};
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashMap;

/// A piece over a queue; from a rank to itself, a copy that the rank keeps as a parcel which nothing was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Tells queues between the same ranks apart.
    pub channel: u32,
    /// The piece at the sender: its block times the pieces of a block, plus its place in the block; or, behind all
    /// pieces, a parcel that passes.
    pub source: u32,
    /// The piece, or the parcel, at the receiver.
    pub target: u32,
    /// The receiver adds it to its own instead of keeping it.
    pub adds: bool,
    /// When it is expected to arrive; what is added to one register is added in this order.
    pub at: u64,
}

/// The input from which a plan is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfers<'a> {
    /// Name of the plan.
    pub name: String,
    /// The computation that the plan performs. Its buffers consist of one block per rank where the collective has
    /// blocks, of one block otherwise; a block of all-to-all is numbered by source times ranks plus destination.
    pub goal: Goal,
    /// Number of ranks that take part.
    pub ranks: u32,
    /// Ranks behind them that only pass on what others send.
    pub relays: u32,
    /// All messages of a rank leave by one port, in order of the list; else each queue keeps an order of its own.
    pub one_port: bool,
    /// Sizes of the pieces of a block, in chunks.
    pub pieces: &'a [u32],
    /// Parcels: pieces that ranks pass on apart from their own, one number each.
    pub parcels: &'a [u32],
    /// The transfers. Each reads the register of the sender as those before it have left it.
    pub list: &'a [Transfer],
}

impl Transfer {
    fn is_copy(&self) -> bool {
        self.from == self.to
    }
}

impl Plan {
    /// The plan of the transfers: in place, except for all-to-all; out of place, too, where every result is written.
    ///
    /// # Errors
    /// `AHBM-U293` for more chunks than a plan can number, and collectives that transfers do not describe.
    pub fn from_transfers(given: &Transfers<'_>) -> Result<Self, Diagnostic> {
        let draft = Draft::new(given)?;
        let content = draft.relation.content;
        let exchange = content == Content::Exchanged;
        // A piece that is only passed on stands where it is in place, and nothing writes it there.
        let writes_all = exchange || content == Content::Reduced;
        Ok(Self {
            name: given.name.clone(),
            file: "synthesized".into(),
            places: Places::Nowhere,
            goal: given.goal,
            in_place: !exchange,
            out_of_place: writes_all,
            protocol: Protocol::Simple,
            channels: given.list.iter().map(|t| t.channel + 1).max().unwrap_or(1),
            chunks: draft.chunks,
            min_bytes: None,
            max_bytes: None,
            ranks: draft.ranks(),
            relays: given.relays,
            warnings: Vec::new(),
        })
    }
}

/// The step that sends, or receives, a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Op(u32);

impl Op {
    fn send(transfer: u32) -> Self {
        Self(2 * transfer)
    }

    fn recv(transfer: u32) -> Self {
        Self(2 * transfer + 1)
    }

    /// The step that writes what a transfer brings; a copy has one step.
    fn write(given: &Transfers<'_>, transfer: u32) -> Self {
        if given.list[transfer as usize].is_copy() { Self::send(transfer) } else { Self::recv(transfer) }
    }
}

/// The state of a piece at a rank.
#[derive(Debug, Default)]
struct Register {
    /// The transfer that wrote it last.
    written: Option<u32>,
    /// The transfers that have read it since.
    readers: Vec<u32>,
    /// The transfers that have been added since it was read or written.
    parts: Vec<u32>,
}

struct Draft<'a> {
    given: &'a Transfers<'a>,
    relation: Relation,
    /// First chunk of every piece of a block.
    offsets: Vec<u32>,
    /// Chunks of a block, and of the larger of input and output.
    block: u32,
    chunks: u32,
    /// Per op, what it waits for: a range of `pool`.
    waits: Vec<(u32, u32)>,
    pool: Vec<Op>,
    /// Per op, whether the memory it reads has been written before.
    worked: Vec<bool>,
}

impl<'a> Draft<'a> {
    fn new(given: &'a Transfers<'a>) -> Result<Self, Diagnostic> {
        let Some(relation) = given.goal.collective().and_then(|_| given.goal.relation()) else {
            let text = format!("{} is not described by transfers of pieces", given.goal.name());
            return Err(Diagnostic::new("AHBM-U293", text));
        };
        let exchange = relation.content == Content::Exchanged;
        let mut offsets = Vec::with_capacity(given.pieces.len());
        let mut block = 0u64;
        for &size in given.pieces {
            offsets.push(u32::try_from(block).unwrap_or(u32::MAX));
            block += u64::from(size);
        }
        let blocks = if relation.is_chunked() { given.ranks } else { 1 };
        let chunks = (block * u64::from(blocks)) as u32;
        // A rank of an all-to-all relays at most everybody's blocks.
        let relayed = if exchange { given.ranks } else { 1 };
        if u32::try_from(u128::from(block) * u128::from(blocks) * u128::from(relayed)).is_err() {
            let text = format!("{blocks} blocks of {block} chunks are more than a plan can number");
            return Err(Diagnostic::new("AHBM-U293", text).hint("choose a size that splits into equal pieces"));
        }
        let ops = 2 * given.list.len();
        let mut draft = Self {
            given,
            relation,
            offsets,
            block: block as u32,
            chunks,
            waits: vec![(0, 0); ops],
            pool: Vec::new(),
            worked: vec![false; ops],
        };
        draft.follow();
        Ok(draft)
    }

    /// Number of pieces with a register of their own.
    fn registers(&self) -> u32 {
        let blocks = match self.relation.content {
            Content::Exchanged => self.given.ranks * self.given.ranks,
            _ if self.relation.is_chunked() => self.given.ranks,
            _ => 1,
        };
        blocks * self.given.pieces.len() as u32
    }

    /// All ranks.
    fn total(&self) -> usize {
        (self.given.ranks + self.given.relays) as usize
    }

    /// Chunks of a piece or parcel.
    fn size(&self, piece: u32) -> u32 {
        let passing = piece.checked_sub(self.registers());
        let piece = passing.map_or(piece, |parcel| self.given.parcels[parcel as usize]);
        self.given.pieces[piece as usize % self.given.pieces.len()]
    }

    /// Finds out what every op waits for.
    fn follow(&mut self) {
        let registers = self.registers() as usize;
        let mut held: Vec<Register> = Vec::new();
        held.resize_with(registers * self.total(), Register::default);
        let mut sent: Vec<Option<u32>> = vec![None; self.total()];
        let mut passing: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut at = |held: &mut Vec<Register>, rank: u32, piece: u32| {
            if (piece as usize) < registers {
                return rank as usize * registers + piece as usize;
            }
            *passing.entry((rank, piece)).or_insert_with(|| {
                held.push(Register::default());
                held.len() - 1
            })
        };
        for (index, transfer) in (0u32..).zip(self.given.list) {
            let source = at(&mut held, transfer.from, transfer.source);
            self.settle(&mut held[source]);
            let register = &mut held[source];
            let before = sent[transfer.from as usize].replace(index).filter(|_| self.given.one_port);
            self.wait(
                Op::send(index),
                before.map(Op::send).into_iter().chain(register.written.map(|by| Op::write(self.given, by))),
            );
            self.worked[Op::send(index).0 as usize] = register.written.is_some();
            register.readers.push(index);
            let target = at(&mut held, transfer.to, transfer.target);
            if transfer.is_copy() {
                held[target].written = Some(index);
            } else if transfer.adds {
                held[target].parts.push(index);
            } else {
                self.settle(&mut held[target]);
                self.write(&mut held[target], index);
            }
        }
        for register in &mut held {
            self.settle(register);
        }
    }

    /// Orders what is to be added to a register.
    fn settle(&mut self, register: &mut Register) {
        let mut parts = std::mem::take(&mut register.parts);
        parts.sort_by_key(|&index| (self.given.list[index as usize].at, index));
        for index in parts {
            self.write(register, index);
        }
    }

    fn write(&mut self, register: &mut Register, index: u32) {
        let op = Op::recv(index);
        let given = self.given;
        self.worked[op.0 as usize] = register.written.is_some();
        let written = register.written.filter(|_| register.readers.is_empty());
        self.wait(op, register.readers.drain(..).map(Op::send).chain(written.map(|by| Op::write(given, by))));
        register.written = Some(index);
    }

    fn wait(&mut self, op: Op, others: impl IntoIterator<Item = Op>) {
        let first = self.pool.len() as u32;
        self.pool.extend(others);
        self.waits[op.0 as usize] = (first, self.pool.len() as u32);
    }

    /// The thread blocks: of every rank first those that send or copy, then those that receive, by peer and channel.
    fn ranks(&self) -> Vec<Rank> {
        let n = self.total();
        let mut queues: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
        let mut keys = Vec::new();
        let mut contents: Vec<Vec<u32>> = Vec::new();
        for (index, t) in (0u32..).zip(self.given.list) {
            let queue = *queues.entry((t.from, t.to, t.channel)).or_insert_with(|| {
                keys.push((t.from, t.to, t.channel));
                contents.push(Vec::new());
                contents.len() as u32 - 1
            });
            contents[queue as usize].push(index);
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&queue| keys[queue]);
        let mut blocks: Vec<Vec<Draught>> = vec![Vec::new(); n];
        for &queue in &order {
            let ops = contents[queue].iter().map(|&t| Op::send(t)).collect();
            let send = Some(keys[queue].1).filter(|&to| to != keys[queue].0);
            blocks[keys[queue].0 as usize].push(Draught { send, recv: None, queue, ops });
        }
        for &queue in order.iter().filter(|&&queue| keys[queue].0 != keys[queue].1) {
            let ops = contents[queue].iter().map(|&t| Op::recv(t)).collect();
            blocks[keys[queue].1 as usize].push(Draught { send: None, recv: Some(keys[queue].0), queue, ops });
        }
        let mut places = Placement { draft: self, scratch: vec![0; n], kept: FxHashMap::default() };
        let steps = Steps::of(self, &blocks);
        let mut ranks: Vec<Rank> = Vec::with_capacity(n);
        for drafted in &blocks {
            let blocks = drafted.iter().map(|block| {
                let mut list = Vec::with_capacity(block.ops.len());
                block.ops.iter().for_each(|&op| steps.write(op, &mut places, &mut list));
                let channel = keys[block.queue].2;
                Block { send: block.send, recv: block.recv, channel, steps: list, line: 0 }
            });
            ranks.push(Rank { blocks: blocks.collect(), ..Rank::default() });
        }
        for (id, rank) in (0u32..).zip(&mut ranks) {
            if id >= self.given.ranks {
                rank.declared = [0, 0, places.scratch[id as usize]];
                continue;
            }
            if self.relation.content == Content::Exchanged {
                rank.blocks.push(self.keep(id));
            }
            let [input, output] =
                [self.relation.operand, self.relation.result].map(|extent| extent.of(self.chunks, self.block));
            rank.declared = [input, output, places.scratch[id as usize]];
        }
        ranks
    }

    /// The thread block that copies what a rank has for itself.
    fn keep(&self, rank: u32) -> Block {
        let slot = |space| Slot { space, chunk: rank * self.block };
        let (src, dst) = (slot(Space::Input), slot(Space::Output));
        let step = Step { action: Action::Copy, src, dst, count: self.block, wait: None, posts: false, line: 0 };
        Block { steps: vec![step], ..Block::default() }
    }
}

/// A thread block in the making.
#[derive(Debug, Clone)]
struct Draught {
    send: Option<u32>,
    recv: Option<u32>,
    queue: usize,
    ops: Vec<Op>,
}

/// The places of registers.
struct Placement<'a> {
    draft: &'a Draft<'a>,
    /// Per rank, chunks of scratch in use.
    scratch: Vec<u32>,
    /// Registers in scratch, by rank and piece.
    kept: FxHashMap<(u32, u32), u32>,
}

impl Placement<'_> {
    /// The place of a piece at a rank, before or after the piece has been written.
    fn of(&mut self, rank: u32, piece: u32, written: bool) -> Slot {
        let given = self.draft.given;
        let pieces = given.pieces.len() as u32;
        let (block, inside) = (piece / pieces, self.draft.offsets[(piece % pieces) as usize]);
        let at = |block: u32| block * self.draft.block + inside;
        let relation = &self.draft.relation;
        let (input, output, takes) = if relation.content == Content::Exchanged {
            let (from, to) = (block / given.ranks, block % given.ranks);
            (at(to), at(from), rank == to)
        } else {
            let within = |extent: Extent| extent.of(at(block), inside);
            let own = relation.result == Extent::Whole || rank == block;
            (within(relation.operand), within(relation.result), own && relation.takers.contains(rank))
        };
        if !written {
            Slot { space: Space::Input, chunk: input }
        } else if takes && rank < given.ranks && piece < self.draft.registers() {
            Slot { space: Space::Output, chunk: output }
        } else {
            let (free, size) = (&mut self.scratch[rank as usize], self.draft.size(piece));
            let chunk = *self.kept.entry((rank, piece)).or_insert_with(|| {
                *free += size;
                *free - size
            });
            Slot { space: Space::Scratch, chunk }
        }
    }
}

/// The steps that ops become.
struct Steps<'a> {
    draft: &'a Draft<'a>,
    /// Per op, the step.
    at: Vec<Dep>,
    /// Per op, what of its waits is not implied: a range of `needed`.
    waits: Vec<(u32, u32)>,
    needed: Vec<Op>,
    /// Per op, whether another waits for it.
    posts: Vec<bool>,
}

impl<'a> Steps<'a> {
    fn of(draft: &'a Draft<'a>, ranks: &[Vec<Draught>]) -> Self {
        let ops = draft.waits.len();
        // First the block and the position among its ops; then waits; then the step, once the waits are known.
        let mut at = vec![Dep { block: 0, step: 0 }; ops];
        for (block, drafted) in ranks.iter().flat_map(|blocks| (0u32..).zip(blocks)) {
            for (step, op) in (0u32..).zip(&drafted.ops) {
                at[op.0 as usize] = Dep { block, step };
            }
        }
        let (mut waits, mut needed, mut posts) = (vec![(0, 0); ops], Vec::new(), vec![false; ops]);
        let mut steps = at.clone();
        for (block, drafted) in ranks.iter().flat_map(|blocks| (0u32..).zip(blocks)) {
            // Per thread block, the first position that has not been waited for.
            let mut reached: FxHashMap<u32, u32> = FxHashMap::default();
            let mut next = 0;
            for op in &drafted.ops {
                let first = needed.len() as u32;
                let (from, to) = draft.waits[op.0 as usize];
                for &other in &draft.pool[from as usize..to as usize] {
                    let there = at[other.0 as usize];
                    let known = reached.entry(there.block).or_default();
                    if there.block != block && there.step >= *known {
                        *known = there.step + 1;
                        posts[other.0 as usize] = true;
                        needed.push(other);
                    }
                }
                let count = needed.len() as u32 - first;
                waits[op.0 as usize] = (first, first + count);
                next += count.max(1);
                steps[op.0 as usize].step = next - 1;
            }
        }
        Self { draft, at: steps, waits, needed, posts }
    }

    /// Adds the step of an op; before it, steps that only wait, where it waits for more than one other.
    fn write(&self, op: Op, places: &mut Placement<'_>, list: &mut Vec<Step>) {
        let given = self.draft.given;
        let index = (op.0 / 2) as usize;
        let transfer = &given.list[index];
        let [sent, received] = [Op::send(index as u32), Op::recv(index as u32)];
        let worked = |op: Op| self.draft.worked[op.0 as usize];
        let dst = places.of(transfer.to, transfer.target, true);
        let (action, src) = if op == sent {
            let action = if transfer.is_copy() { Action::Copy } else { Action::Send };
            (action, places.of(transfer.from, transfer.source, worked(sent)))
        } else if transfer.adds && (transfer.to < given.ranks || worked(received)) {
            (Action::RecvReduceCopy, places.of(transfer.to, transfer.target, worked(received)))
        } else {
            (Action::Recv, dst)
        };
        let count = self.draft.size(transfer.source);
        let last = Step { action, src, dst, count, wait: None, posts: self.posts[op.0 as usize], line: 0 };
        let (from, to) = self.waits[op.0 as usize];
        let deps = self.needed[from as usize..to as usize].iter().map(|other| self.at[other.0 as usize]);
        let first = list.len();
        list.extend(deps.map(|dep| Step { action: Action::Nop, wait: Some(dep), posts: false, ..last }));
        match list[first..].last_mut() {
            Some(step) => *step = Step { wait: step.wait, ..last },
            None => list.push(last),
        }
    }
}
