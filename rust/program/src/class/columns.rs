//! Formulas computed for a block of agents at once.

use crate::formula::{Axis, Formulas, Function, Node, Term};
use ahbm_machine::Coord;

/// Agents of a block: as many as a mask has bits.
pub(super) const LANES: usize = 64;

type Column = [i64; LANES];

/// The values of some formulas for the agents of a block, computed in the order in which they are asked for.
pub(super) struct Columns {
    columns: Vec<Column>,
    steps: Vec<Step>,
    /// Per term that was asked for: the steps that are needed up to it.
    ends: Vec<usize>,
    /// Per term of the formulas: its column.
    place: Vec<u32>,
    axes: Vec<(Axis, usize)>,
    done: usize,
}

struct Step {
    function: Function,
    operands: [u32; 2],
    result: u32,
}

const NOWHERE: u32 = u32::MAX;

impl Columns {
    /// Columns for `terms`, in this order.
    pub(super) fn new(formulas: &Formulas, terms: impl Iterator<Item = Term>) -> Self {
        let mut this = Self {
            columns: Vec::new(),
            steps: Vec::new(),
            ends: Vec::new(),
            place: vec![NOWHERE; formulas.len()],
            axes: Vec::new(),
            done: 0,
        };
        let mut waiting = Vec::new();
        for term in terms {
            waiting.push(term);
            while let Some(&term) = waiting.last() {
                if this.place[term.index()] != NOWHERE {
                    waiting.pop();
                    continue;
                }
                let node = formulas.node(term);
                if let Node::Apply(_, a, b) = node {
                    let before = waiting.len();
                    waiting.extend([a, b].into_iter().filter(|operand| this.place[operand.index()] == NOWHERE));
                    if waiting.len() > before {
                        continue;
                    }
                }
                waiting.pop();
                this.push(term, node);
            }
            this.ends.push(this.steps.len());
        }
        this
    }

    fn push(&mut self, term: Term, node: Node) {
        let result = self.columns.len() as u32;
        let mut column = [0; LANES];
        match node {
            Node::Axis(axis) => self.axes.push((axis, result as usize)),
            Node::Constant(value) => column = [value; LANES],
            Node::Apply(function, a, b) => {
                let operands = [a, b].map(|operand| self.place[operand.index()]);
                self.steps.push(Step { function, operands, result });
            }
        }
        self.columns.push(column);
        self.place[term.index()] = result;
    }

    /// Takes the coordinates of a block's agents; nothing is computed for them yet. Lanes behind the last agent repeat
    /// it.
    pub(super) fn place(&mut self, block: &[u32], coord: &dyn Fn(u32) -> Coord) {
        self.done = 0;
        for lane in 0..LANES {
            let Some(&agent) = block.get(lane).or(block.last()) else { return };
            let at = coord(agent);
            for &(axis, column) in &self.axes {
                self.columns[column][lane] = axis.of(at);
            }
        }
    }

    /// Computes what the term with this number needs; returns the lanes in which that fails.
    pub(super) fn compute(&mut self, number: usize) -> u64 {
        self.run(self.ends[number])
    }

    /// Computes the rest.
    pub(super) fn compute_all(&mut self) -> u64 {
        self.run(self.steps.len())
    }

    fn run(&mut self, end: usize) -> u64 {
        let mut failed = 0;
        for step in &self.steps[self.done..end] {
            let (before, result) = self.columns.split_at_mut(step.result as usize);
            let [a, b] = step.operands.map(|operand| &before[operand as usize]);
            failed |= apply(step.function, a, b, &mut result[0]);
        }
        self.done = end;
        failed
    }

    /// A term's values.
    #[inline]
    pub(super) fn of(&self, term: Term) -> &Column {
        &self.columns[self.place[term.index()] as usize]
    }
}

/// One loop per function, so that the loop has no choice to make.
fn apply(function: Function, a: &Column, b: &Column, result: &mut Column) -> u64 {
    macro_rules! each {
        ($($name:ident),+) => {
            match function {
                $(Function::$name => {
                    let mut failed = 0;
                    for lane in 0..LANES {
                        match Function::$name.apply(a[lane], b[lane]) {
                            Some(value) => result[lane] = value,
                            None => failed |= 1 << lane,
                        }
                    }
                    failed
                })+
            }
        };
    }
    each!(Add, Sub, Mul, Quotient, Remainder, Shl, Shr, And, Or, Xor, Abs, Length, Ones, Lt, Le, Eq)
}
