//! The effects of operations: memory, values and messages made of contributions.
//!
//! Memory and values are runs of elements. The contents of a run is a *node* and an index: node `n` at index `i`
//! stands for `n` shifted by `i, i + 1, …`, so that an input of any length is one run. A node is nothing, the input
//! of a rank, memory nobody wrote, the union of two nodes, or a function of nodes that is no union: what such a
//! function computes is told apart from everything else, but not understood. Every node has a [`Print`]; the graph
//! of nodes is walked only to explain a result that is wrong.

use crate::nodes::{Addition, By, Contents, EMPTY, Node, Nodes, Piece, Scale, Value, length};
use crate::print::Print;
use crate::support::{Step, Subject, bytes};
use ahbm_findings::Diagnostic;
use ahbm_plan::{Contribution, Expectation, Held};
use ahbm_program::{AgentId, BinaryFn, Body, BufferId, Comm, Dtype, Math, Move, OpKind, Scalar, ValueId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Reads of undefined memory that are listed.
const LISTED: usize = 8;

/// A run of elements in memory.
#[derive(Debug, Clone, Copy)]
struct Stored {
    end: u64,
    /// Bytes of an element.
    unit: u64,
    node: Node,
    index: i64,
    writer: Option<Step>,
}

/// A run of elements after a run of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// First and last byte.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) unit: u64,
    /// Print of the first element.
    pub(crate) print: Print,
    /// Every element is the same.
    pub(crate) flat: bool,
    pub(crate) writer: Option<Step>,
    /// The first operation on the way that contributions cannot follow.
    pub(crate) function: Option<Step>,
    /// The functions that united its contributions.
    pub(crate) by: By,
    /// The first cast on the way to a type that does not hold every element of the request.
    pub(crate) narrowed: Option<Step>,
    pub(crate) scale: Scale,
    pub(crate) node: Node,
    /// Index of the first element.
    pub(crate) index: i64,
}

pub(crate) struct Values<'p> {
    subject: Subject<'p>,
    nodes: Nodes,
    /// The type of the request's elements, if it is known.
    dtype: Option<Dtype>,
    /// By rank and call.
    inputs: FxHashMap<(u32, u32), Node>,
    memory: Vec<BTreeMap<u64, Stored>>,
    slots: Vec<Vec<Value>>,
    /// By channel and number: the value, and who sent it.
    messages: Vec<Vec<(Value, Step)>>,
    /// Operations that read undefined memory: the first few with their first bytes, and how many there are.
    undefined: Vec<(Step, BufferId, Range<u64>)>,
    undefined_count: u64,
}

impl<'p> Values<'p> {
    pub(crate) fn new(subject: Subject<'p>, expectation: &Expectation) -> Self {
        let program = subject.program;
        let nothing: Value = Rc::from([]);
        let slots = |agent: u32| {
            let values = subject.programs().map(|program| program.body(AgentId(agent)).values).max();
            vec![Rc::clone(&nothing); values.unwrap_or(0) as usize]
        };
        let mut values = Self {
            subject,
            nodes: Nodes::new(),
            dtype: expectation.dtype(),
            inputs: FxHashMap::default(),
            memory: Vec::with_capacity(program.buffers.len()),
            slots: (0..program.agents.len() as u32).map(slots).collect(),
            messages: vec![Vec::new(); program.channels.len()],
            undefined: Vec::new(),
            undefined_count: 0,
        };
        let unit = expectation.element();
        for (index, buffer) in program.buffers.iter().enumerate() {
            let print = Print::of(1 << 63 | index as u64);
            let node = values.nodes.unwritten(print);
            let held = Stored { end: buffer.bytes, unit, node, index: 0, writer: None };
            values.memory.push(if buffer.bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(0, held)]) });
        }
        for held in expectation.initial() {
            values.give(held, unit, 0);
        }
        values
    }

    /// Puts a rank's input of a call where it belongs.
    pub(crate) fn give(&mut self, held: &Held, unit: u64, call: u32) {
        let (rank, first) = held.first;
        let node = match self.inputs.get(&(rank, call)) {
            Some(&node) => node,
            None => {
                let node = self.nodes.input(Print::of(rank.into()).of_call(call), rank, call);
                self.inputs.insert((rank, call), node);
                node
            }
        };
        let size = self.subject.program.buffers[held.buffer.0 as usize].bytes;
        let range = held.elements.start.saturating_mul(unit)..held.elements.end.saturating_mul(unit);
        self.overwrite(held.buffer, range.start.min(size)..range.end.min(size), |start, end| {
            vec![(start, Stored { end, unit, node, index: first as i64, writer: None })]
        });
    }

    /// The runs of elements in some bytes of a buffer, in order.
    pub(crate) fn found(&self, buffer: BufferId, range: Range<u64>) -> impl Iterator<Item = Found> + '_ {
        self.read(buffer, range).map(|(start, held)| Found {
            start,
            end: held.end,
            unit: held.unit,
            print: self.nodes.print(held.node, held.index),
            flat: self.nodes.get(held.node).flat,
            writer: held.writer,
            function: self.nodes.get(held.node).function,
            by: self.nodes.get(held.node).by,
            narrowed: self.nodes.get(held.node).narrowed,
            scale: self.nodes.get(held.node).scale,
            node: held.node,
            index: held.index,
        })
    }

    /// All nodes as sums, those that a node is made of before it.
    pub(crate) fn additions(&self) -> impl Iterator<Item = Addition> + '_ {
        self.nodes.additions()
    }

    /// Whether inputs of another call than `call` went into the elements of a run.
    pub(crate) fn mixes(&self, found: &Found, call: u32) -> bool {
        self.nodes.mixes(found.node, call)
    }

    /// The contributions that make up the first element of a run.
    pub(crate) fn contents(&self, found: &Found) -> Contents {
        self.nodes.contents(found.node, found.index)
    }

    /// A warning that names reads of memory that nobody wrote.
    pub(crate) fn undefined_reads(&self, expectation: &Expectation) -> Option<Diagnostic> {
        let (_, buffer, range) = self.undefined.first()?;
        let place = expectation.place(*buffer, range.clone());
        let count = self.undefined_count;
        let what = format!("{count} operations read memory that nothing was written to, first {place}");
        let finding = Diagnostic::new("AHBM-V402", what);
        Some(self.undefined.iter().fold(finding, |f, (step, ..)| self.subject.site(f, step)))
    }

    /// The effect of an operation on data.
    pub(crate) fn done(&mut self, step: &Step) -> Result<(), Diagnostic> {
        let agent = step.agent;
        let body: &'p Body = self.subject.body(agent, step.call);
        let kind = body.ops[step.op as usize].kind;
        let count = |tile: u32| body.tiles[tile as usize].elements();
        match kind {
            OpKind::Move(Move::Load { dst, mem, tile }) => {
                let value = self.load(step, mem, tile);
                self.define(agent, dst, value);
            }
            OpKind::Move(Move::Store { src, mem, tile, .. }) => {
                let value = self.sized(step, src, count(tile))?;
                self.store(step, mem, tile, &value);
            }
            OpKind::Move(Move::ReducingLoad { f, dst, group, tile }) => {
                let members = body.groups[group as usize].iter();
                let values: Vec<Value> = members.map(|&mem| self.load(step, mem, tile)).collect();
                let total = values.into_iter().reduce(|a, b| self.join(f, &a, &b)).unwrap_or_default();
                self.define(agent, dst, total);
            }
            OpKind::Move(Move::Multicast { src, group, tile }) => {
                let value = self.sized(step, src, count(tile))?;
                body.groups[group as usize].iter().for_each(|&mem| self.store(step, mem, tile, &value));
            }
            OpKind::Move(Move::Copy { src, dst, tile, .. }) => {
                let value = self.load(step, src, tile);
                self.store(step, dst, tile, &value);
            }
            OpKind::Math(Math::Fill { dst, tile, scalar }) => {
                let node = match body.scalars[scalar as usize] {
                    s if s == Scalar::Int(0) || s.as_f64() == 0.0 => EMPTY,
                    Scalar::Float(bits) => self.nodes.function(step, [2, bits], [], true),
                    Scalar::Int(n) => self.nodes.function(step, [3, n as u64], [], true),
                };
                self.define(agent, dst, Rc::from([Piece { elements: count(tile), node, index: 0 }]));
            }
            // A scaled contribution is still that contribution.
            OpKind::Math(Math::BinaryScalar {
                f: f @ (BinaryFn::Mul | BinaryFn::Div),
                swapped,
                dst,
                a,
                scalar,
                ..
            }) if f == BinaryFn::Mul || !swapped => {
                let by = body.scalars[scalar as usize].as_f64();
                let factor = if f == BinaryFn::Mul { by } else { 1.0 / by };
                let value = self.value(agent, a);
                let value = value.iter().map(|&p| Piece { node: self.nodes.scale(step, p.node, factor), ..p });
                let value = value.collect();
                self.define(agent, dst, value);
            }
            OpKind::Math(Math::Cast { dst, a, tile }) => {
                let mut value = self.value(agent, a);
                if self.dtype.is_some_and(|dtype| !body.tiles[tile as usize].dtype.holds(dtype)) {
                    value = value.iter().map(|&p| Piece { node: self.nodes.narrow(step, p.node), ..p }).collect();
                }
                self.define(agent, dst, value);
            }
            OpKind::Math(Math::Binary { f, dst, a, b, tile }) if f.reduces() => {
                let (one, other) = (self.value(agent, a), self.value(agent, b));
                let value = if length(&one) == count(tile) && length(&other) == count(tile) {
                    self.join(f, &one, &other)
                } else {
                    self.opaque(step, &[one, other], count(tile))
                };
                self.define(agent, dst, value);
            }
            OpKind::Comm(Comm::Send { src, tile, .. }) => {
                let value = self.sized(step, src, count(tile))?;
                if let Some((channel, _)) = step.message {
                    self.messages[channel.0 as usize].push((value, *step));
                }
            }
            OpKind::Comm(Comm::Recv { dst, tile, .. } | Comm::RecvAny { dst, tile, .. }) => {
                let sender = self.take(step, dst);
                self.sized(step, dst, count(tile)).map_err(|f| match sender {
                    Some(sender) => self.subject.site(f, &sender),
                    None => f,
                })?;
            }
            OpKind::Comm(Comm::Await { value }) => {
                self.take(step, value);
            }
            OpKind::Comm(Comm::PostRecv { .. } | Comm::AwaitSlot { .. }) | OpKind::Control(_) => {}
            OpKind::Math(_) => {
                let operands = kind.operands();
                let read: Vec<Value> = operands.reads.iter().flatten().map(|&v| self.value(agent, v)).collect();
                let elements = self.elements_of(agent, kind, &read);
                let value = self.opaque(step, &read, elements);
                if let Some(dst) = body.ops[step.op as usize].defines() {
                    self.define(agent, dst, value);
                }
            }
        }
        Ok(())
    }

    fn value(&self, agent: AgentId, value: ValueId) -> Value {
        Rc::clone(&self.slots[agent.0 as usize][value.0 as usize])
    }

    fn define(&mut self, agent: AgentId, dst: ValueId, value: Value) {
        self.slots[agent.0 as usize][dst.0 as usize] = value;
    }

    /// Moves a message into a value; who sent it.
    fn take(&mut self, step: &Step, dst: ValueId) -> Option<Step> {
        let message = step.message.and_then(|(channel, number)| {
            let (value, sender) = self.messages[channel.0 as usize].get_mut(number as usize)?;
            Some((std::mem::replace(value, Rc::from([])), *sender))
        });
        let (value, sender) = message.unzip();
        self.define(step.agent, dst, value.unwrap_or_else(|| Rc::from([])));
        sender
    }

    fn sized(&self, step: &Step, value: ValueId, elements: u64) -> Result<Value, Diagnostic> {
        let value = self.value(step.agent, value);
        if length(&value) == elements {
            return Ok(value);
        }
        let message = format!("a value of {} elements where {elements} are asked for", length(&value));
        Err(self
            .subject
            .site(Diagnostic::new("AHBM-V407", message), step)
            .hint("the k-th send and the k-th receive of a queue move the same number of elements"))
    }

    /// The runs in some bytes, cut to them.
    fn read(&self, buffer: BufferId, range: Range<u64>) -> impl Iterator<Item = (u64, Stored)> + '_ {
        let map = &self.memory[buffer.0 as usize];
        let from = map.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        map.range(from..range.end).filter(move |(_, held)| held.end > range.start).map(move |(&at, &held)| {
            let start = at.max(range.start);
            let index = self.nodes.further(held.node, held.index, (start - at) / held.unit);
            (start, Stored { end: held.end.min(range.end), index, ..held })
        })
    }

    /// Replaces the runs in some bytes.
    fn overwrite(&mut self, buffer: BufferId, range: Range<u64>, with: impl FnOnce(u64, u64) -> Vec<(u64, Stored)>) {
        if range.is_empty() {
            return;
        }
        let kept: Vec<(u64, Stored)> = {
            let map = &self.memory[buffer.0 as usize];
            let first = map.range(..range.start).next_back().filter(|(_, held)| held.end > range.start);
            let last = map.range(..range.end).next_back().filter(|(_, held)| held.end > range.end);
            let before = first.map(|(&at, &held)| (at, Stored { end: range.start, ..held }));
            let after = last.map(|(&at, &held)| {
                let index = self.nodes.further(held.node, held.index, (range.end - at) / held.unit);
                (range.end, Stored { index, ..held })
            });
            before.into_iter().chain(after).collect()
        };
        let map = &mut self.memory[buffer.0 as usize];
        let gone: Vec<u64> = map.range(range.clone()).map(|(&at, _)| at).collect();
        for at in gone {
            map.remove(&at);
        }
        map.extend(kept);
        map.extend(with(range.start, range.end));
    }

    fn load(&mut self, step: &Step, mem: u32, tile: u32) -> Value {
        let program = self.subject.launch(step.call);
        let unit = program.body(step.agent).tiles[tile as usize].dtype.bytes();
        let (buffer, range) = bytes(program, step.agent, mem, tile);
        let runs: Vec<(u64, Stored)> = self.read(buffer, range.clone()).collect();
        if let Some((start, held)) = runs.iter().find(|(_, held)| self.nodes.get(held.node).undefined) {
            // Each call repeats what the first does: only the first call that has any counts.
            if self.undefined.first().is_none_or(|(first, ..)| first.call == step.call) {
                self.undefined_count += 1;
                if self.undefined.len() < LISTED {
                    self.undefined.push((*step, buffer, *start..held.end));
                }
            }
        }
        let whole = |(start, held): &(u64, Stored)| {
            self.nodes.get(held.node).flat && (held.end - start).is_multiple_of(unit)
                || held.unit == unit
                    && (start - range.start).is_multiple_of(unit)
                    && (held.end - start).is_multiple_of(unit)
        };
        let pieces = |unit: &dyn Fn(&Stored) -> u64| -> Value {
            let piece =
                |(at, h): &(u64, Stored)| Piece { elements: (h.end - at) / unit(h), node: h.node, index: h.index };
            self.nodes.merged(runs.iter().map(piece))
        };
        if runs.iter().all(whole) {
            return pieces(&|_| unit);
        }
        // Elements of another size, or halves of elements: something made of those bytes.
        let bytewise = pieces(&|_| 1);
        self.opaque(step, &[bytewise], (range.end - range.start) / unit)
    }

    fn store(&mut self, step: &Step, mem: u32, tile: u32, value: &Value) {
        let program = self.subject.launch(step.call);
        let unit = program.body(step.agent).tiles[tile as usize].dtype.bytes();
        let (buffer, range) = bytes(program, step.agent, mem, tile);
        // A run that takes exactly the place of another, as nearly all do, needs no cuts.
        if let [piece] = value[..]
            && let Some(held) = self.memory[buffer.0 as usize].get_mut(&range.start)
            && held.end == range.end
            && range.start + piece.elements * unit == range.end
        {
            *held = Stored { end: range.end, unit, node: piece.node, index: piece.index, writer: Some(*step) };
            return;
        }
        self.overwrite(buffer, range, |mut start, _| {
            let run = |piece: &Piece| {
                let end = start + piece.elements * unit;
                let held = Stored { end, unit, node: piece.node, index: piece.index, writer: Some(*step) };
                (std::mem::replace(&mut start, end), held)
            };
            value.iter().map(run).collect()
        });
    }

    /// The union of two values of one length.
    fn join(&mut self, f: BinaryFn, one: &Value, other: &Value) -> Value {
        let mut pieces = Vec::with_capacity(one.len().max(other.len()));
        let (mut a, mut b) = (one.iter().copied(), other.iter().copied());
        let (mut left, mut right) = (a.next(), b.next());
        while let (Some(x), Some(y)) = (left, right) {
            let elements = x.elements.min(y.elements);
            let (node, index) = self.nodes.unite(f, (x.node, x.index), (y.node, y.index));
            pieces.push(Piece { elements, node, index });
            let rest = |p: Piece, further: i64| Piece { elements: p.elements - elements, index: further, ..p };
            left = if x.elements > elements {
                Some(rest(x, self.nodes.further(x.node, x.index, elements)))
            } else {
                a.next()
            };
            right = if y.elements > elements {
                Some(rest(y, self.nodes.further(y.node, y.index, elements)))
            } else {
                b.next()
            };
        }
        self.nodes.merged(pieces.into_iter())
    }

    /// The result of an operation that is no union of values: known by the operation and its operands alone.
    fn opaque(&mut self, step: &Step, operands: &[Value], elements: u64) -> Value {
        let body = self.subject.body(step.agent, step.call);
        let op = &body.ops[step.op as usize];
        // The function by its words, and its scalars.
        let scalars = op.kind.operands().scalars.into_iter().flatten().map(|s| match body.scalars[s as usize] {
            Scalar::Float(bits) => bits,
            Scalar::Int(n) => n as u64,
        });
        let mut identity: Vec<u64> = op.describe(body).bytes().map(u64::from).chain(scalars).collect();
        for piece in operands.iter().flat_map(|value| value.iter()) {
            identity.push(piece.elements);
            identity.extend(self.nodes.print(piece.node, piece.index).words());
        }
        let made_of = operands.iter().flat_map(|value| value.iter()).map(|piece| piece.node);
        let node = self.nodes.function(step, identity, made_of, false);
        Rc::from([Piece { elements, node, index: 0 }])
    }

    /// Elements of the result of an operation that is no union.
    fn elements_of(&self, agent: AgentId, kind: OpKind, operands: &[Value]) -> u64 {
        let body = self.subject.program.body(agent);
        let shape = |tile: u32| body.tiles[tile as usize].shape.iter().copied();
        match kind {
            OpKind::Math(Math::Reduce { axis, tile, .. }) if axis >= 0 => {
                let kept = shape(tile).enumerate().filter(|&(i, _)| i != axis as usize);
                kept.fold(1, |n, (_, d)| n.saturating_mul(d))
            }
            OpKind::Math(Math::Reduce { .. }) => 1,
            OpKind::Math(Math::Dot { tile, .. }) => {
                shape(tile).enumerate().filter(|&(i, _)| i != 1).map(|(_, d)| d).product()
            }
            _ => match kind.operands().tile {
                Some(tile) => body.tiles[tile as usize].elements(),
                None => operands.first().map_or(0, length),
            },
        }
    }
}

/// The print of a contribution.
pub(crate) fn print((rank, index): Contribution) -> Print {
    Print::of(rank.into()).shifted(index as i64)
}
