//! What operations do: cells, values and messages made of contributions.
//!
//! A multiset is a node of a graph: nothing, a contribution, or the union of two nodes. Its *print*, the sum of
//! a 128-bit hash per contribution, does not depend on how it was put together, so that two multisets are equal
//! when their prints are; the graph is walked only to explain a result that is wrong.

use super::expectation::{Contribution, Expectation};
use super::support::{self, Cells};
use ahbm_machine::Diagnostic;
use ahbm_program::{AgentId, OpKind, Program, ValueId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// A node of the graph of multisets.
type Node = u32;

/// The empty multiset.
const EMPTY: Node = 0;
/// What is in memory that nobody wrote.
pub(super) const UNDEFINED: Node = 1;
/// Reads of undefined memory that are listed.
const LISTED: usize = 8;

/// What went into a cell, and how often.
#[derive(Debug, Clone, Default)]
pub(super) struct Contents {
    pub(super) counts: FxHashMap<Contribution, u64>,
    /// Memory that nobody wrote went into it.
    pub(super) undefined: bool,
}

/// A message in a queue.
#[derive(Debug, Clone)]
struct Message {
    value: Rc<[Node]>,
    /// The operation that sent it.
    sender: (AgentId, usize),
}

pub(super) struct Values<'p> {
    pub(super) program: &'p Program,
    pub(super) cells: &'p Cells,
    prints: Vec<u128>,
    /// Of every node: a contribution, or the two nodes it unites.
    made_of: Vec<(u32, u32)>,
    /// Nodes from here on are unions.
    first_union: usize,
    memory: Vec<Node>,
    /// Who wrote each cell last.
    writers: Vec<Option<(AgentId, u32)>>,
    slots: Vec<Vec<Rc<[Node]>>>,
    queues: Vec<VecDeque<Message>>,
    /// Operations that read undefined memory: the first few, the first cell of each, and how many there are.
    undefined: Vec<(AgentId, usize, usize)>,
    undefined_count: u64,
}

impl<'p> Values<'p> {
    pub(super) fn new(program: &'p Program, cells: &'p Cells, expectation: &Expectation) -> Self {
        let nothing: Rc<[Node]> = Rc::from([]);
        let slots =
            |a: &ahbm_program::Agent| vec![Rc::clone(&nothing); program.bodies[a.body as usize].values as usize];
        let mut values = Self {
            program,
            cells,
            prints: vec![0, print((u32::MAX, u32::MAX))],
            made_of: vec![(0, 0), (0, 0)],
            first_union: 0,
            memory: vec![UNDEFINED; cells.len()],
            writers: vec![None; cells.len()],
            slots: program.agents.iter().map(slots).collect(),
            queues: vec![VecDeque::new(); program.channels.len()],
            undefined: Vec::new(),
            undefined_count: 0,
        };
        for &(cell, contribution) in &expectation.initial {
            if let Some(at) = cells.at(cell.buffer, cell.element) {
                values.memory[at] = values.prints.len() as Node;
                values.prints.push(print(contribution));
                values.made_of.push(contribution);
            }
        }
        values.first_union = values.prints.len();
        values
    }

    pub(super) fn print(&self, cell: usize) -> u128 {
        self.prints[self.memory[cell] as usize]
    }

    /// Who wrote a cell last.
    pub(super) fn writer(&self, cell: usize) -> Option<(AgentId, usize)> {
        self.writers[cell].map(|(agent, op)| (agent, op as usize))
    }

    /// What a cell is made of.
    pub(super) fn contents(&self, cell: usize) -> Contents {
        let mut contents = Contents::default();
        // Nodes are made of earlier ones, so every node is complete when its turn comes.
        let mut due = std::collections::BTreeMap::from([(self.memory[cell], 1u64)]);
        while let Some((node, times)) = due.pop_last() {
            let (a, b) = self.made_of[node as usize];
            match node {
                EMPTY => {}
                UNDEFINED => contents.undefined = true,
                _ if (node as usize) < self.first_union => {
                    let count = contents.counts.entry((a, b)).or_default();
                    *count = count.saturating_add(times);
                }
                _ => {
                    for part in [a, b] {
                        let count = due.entry(part).or_default();
                        *count = count.saturating_add(times);
                    }
                }
            }
        }
        contents
    }

    /// A warning that names reads of memory that nobody wrote.
    pub(super) fn undefined_reads(&self, expectation: &Expectation) -> Option<Diagnostic> {
        let &(_, _, cell) = self.undefined.first()?;
        let (buffer, element) = self.cells.place(cell);
        let name = expectation.buffer_name(buffer);
        let count = self.undefined_count;
        let what =
            format!("{count} operations read memory that nothing was written to, first element {element} of {name}");
        let finding = Diagnostic::new("AHBM-V402", what);
        Some(self.undefined.iter().fold(finding, |f, &(agent, op, _)| support::site(self.program, f, agent, op)))
    }

    /// The effect of an operation on data.
    pub(super) fn done(&mut self, agent: AgentId, op: usize) -> Result<(), Diagnostic> {
        let program = self.program;
        let body = program.body(agent);
        match body.ops[op].kind {
            OpKind::Load { dst, mem, tile } => {
                let from = self.cells.operand(program, agent, mem, tile);
                self.note_undefined(agent, op, from.clone());
                let value = Rc::from(&self.memory[from]);
                self.define(agent, dst, value);
            }
            OpKind::Store { src, mem, tile } => {
                let to = self.cells.operand(program, agent, mem, tile);
                let value = self.sized(agent, op, src, to.len())?;
                self.writers[to.clone()].fill(Some((agent, op as u32)));
                self.memory[to].copy_from_slice(&value);
            }
            OpKind::Copy { src, dst, tile } => {
                let from = self.cells.operand(program, agent, src, tile);
                let to = self.cells.operand(program, agent, dst, tile);
                self.note_undefined(agent, op, from.clone());
                self.writers[to.clone()].fill(Some((agent, op as u32)));
                self.memory.copy_within(from, to.start);
            }
            OpKind::Fill { dst, tile, .. } => {
                let value = vec![EMPTY; body.tiles[tile as usize].elements() as usize].into();
                self.define(agent, dst, value);
            }
            OpKind::Cast { dst, a, tile } => {
                let value = self.sized(agent, op, a, body.tiles[tile as usize].elements() as usize)?;
                self.define(agent, dst, value);
            }
            OpKind::Binary { dst, a, b, tile, .. } => {
                let elements = body.tiles[tile as usize].elements() as usize;
                let (a, b) = (self.sized(agent, op, a, elements)?, self.sized(agent, op, b, elements)?);
                let value = a.iter().zip(b.iter()).map(|(&a, &b)| self.unite(a, b)).collect();
                self.define(agent, dst, value);
            }
            OpKind::Send { dir, src, tile } => {
                let value = self.sized(agent, op, src, body.tiles[tile as usize].elements() as usize)?;
                self.queues[program.tx(agent, dir).0 as usize].push_back(Message { value, sender: (agent, op) });
            }
            OpKind::Recv { dir, dst, tile } => {
                let Some(Message { value, sender }) = self.queues[program.rx(agent, dir).0 as usize].pop_front() else {
                    unreachable!("a receive takes effect after its send");
                };
                self.define(agent, dst, value);
                self.sized(agent, op, dst, body.tiles[tile as usize].elements() as usize)
                    .map_err(|finding| support::site(program, finding, sender.0, sender.1))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn define(&mut self, agent: AgentId, dst: ValueId, value: Rc<[Node]>) {
        self.slots[agent.0 as usize][dst.0 as usize] = value;
    }

    fn sized(&self, agent: AgentId, op: usize, value: ValueId, elements: usize) -> Result<Rc<[Node]>, Diagnostic> {
        let value = &self.slots[agent.0 as usize][value.0 as usize];
        if value.len() == elements {
            return Ok(Rc::clone(value));
        }
        let message = format!("a value of {} elements where {elements} are asked for", value.len());
        Err(support::site(self.program, Diagnostic::new("AHBM-V407", message), agent, op)
            .hint("the k-th send and the k-th receive of a queue move the same number of elements"))
    }

    fn unite(&mut self, a: Node, b: Node) -> Node {
        match (a, b) {
            (EMPTY, other) | (other, EMPTY) => other,
            _ => {
                self.prints.push(self.prints[a as usize].wrapping_add(self.prints[b as usize]));
                self.made_of.push((a, b));
                self.prints.len() as Node - 1
            }
        }
    }

    fn note_undefined(&mut self, agent: AgentId, op: usize, from: std::ops::Range<usize>) {
        let start = from.start;
        if let Some(at) = self.memory[from].iter().position(|&node| node == UNDEFINED) {
            self.undefined_count += 1;
            if self.undefined.len() < LISTED {
                self.undefined.push((agent, op, start + at));
            }
        }
    }
}

/// The print of a single contribution.
pub(super) fn print((rank, index): Contribution) -> u128 {
    splitmix(u64::from(rank) << 32 | u64::from(index))
}

/// Two rounds of a 64-bit mixer, one per half.
fn splitmix(x: u64) -> u128 {
    let mix = |seed: u64| {
        let mut z = x.wrapping_add(seed);
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xBF58_476D_1CE4_E5B9] {
            z = (z ^ z >> 30).wrapping_mul(factor);
            z ^= z >> 27;
        }
        z ^ z >> 31
    };
    u128::from(mix(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(mix(0x2545_F491_4F6C_DD1D))
}
