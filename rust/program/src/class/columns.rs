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

/// One loop per function, so that the loop has no choice to make; where no lane can fail, one without a branch.
fn apply(function: Function, a: &Column, b: &Column, result: &mut Column) -> u64 {
    if quick(function, a, b, result) {
        return 0;
    }
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

/// Whether all lanes are computed. Those that could leave 64 bits are not, nor is a division by numbers that differ, nor
/// one of numbers that are not small.
fn quick(function: Function, a: &Column, b: &Column, result: &mut Column) -> bool {
    /// Numbers whose product has 64 bits, and whose quotient as floats is rounded to no other whole number: it is at
    /// least 1 / b away from the next one, and a float is off by 2^-53 of it.
    const SMALL: std::ops::Range<i64> = 0..1 << 31;
    let small = |column: &Column| SMALL.contains(&column.iter().fold(0, |bits, &x| bits | x));
    macro_rules! all {
        ($each:expr) => {{
            for (result, (&a, &b)) in result.iter_mut().zip(a.iter().zip(b)) {
                *result = $each(a, b);
            }
        }};
    }
    match function {
        Function::Add | Function::Sub => {
            let lanes = result.iter_mut().zip(a.iter().zip(b));
            let beyond = lanes.fold(0, |beyond, (sum, (&a, &b))| {
                *sum = if function == Function::Add { a.wrapping_add(b) } else { a.wrapping_sub(b) };
                // The operands' signs that a sum, or a difference, cannot have left.
                beyond | (a ^ *sum) & if function == Function::Add { b ^ *sum } else { a ^ b }
            });
            beyond >= 0
        }
        Function::Mul if small(a) && small(b) => {
            all!(|a: i64, b: i64| a.wrapping_mul(b));
            true
        }
        Function::Quotient | Function::Remainder => {
            let by = b[0];
            if !SMALL.contains(&by) || by == 0 || b.iter().any(|&b| b != by) || !small(a) {
                return false;
            }
            let divisor = by as f64;
            let divided = |a: i64| (f64::from(a as i32) / divisor) as i32;
            if function == Function::Quotient {
                all!(|a, _| i64::from(divided(a)));
            } else {
                all!(|a: i64, _| i64::from(a as i32 - divided(a) * by as i32));
            }
            true
        }
        Function::Lt => {
            all!(|a, b| i64::from(a < b));
            true
        }
        Function::Le => {
            all!(|a, b| i64::from(a <= b));
            true
        }
        Function::Eq => {
            all!(|a, b| i64::from(a == b));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_computed_as_lanes_are() {
        use Function::*;
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let edges = [0, 1, -1, 7, 1 << 31, (1 << 31) - 1, 1 << 32, i64::MAX, i64::MIN, 1 << 53];
        let mut quickly = 0;
        for case in 0..2000 {
            let mut column = |kind: u64| -> Column {
                let one = random(1 << 31) as i64;
                std::array::from_fn(|_| match kind {
                    0 => random(1 << 31) as i64,
                    1 => one,
                    2 => edges[random(10) as usize].wrapping_add(random(3) as i64 - 1),
                    _ => random(u64::MAX) as i64,
                })
            };
            let (a, b) = (column(case % 4), column(case / 4 % 4));
            for function in [Add, Sub, Mul, Quotient, Remainder, Lt, Le, Eq] {
                let mut found = [0; LANES];
                quickly += usize::from(quick(function, &a, &b, &mut found));
                let failed = apply(function, &a, &b, &mut found);
                for (lane, ((&a, &b), &found)) in a.iter().zip(&b).zip(&found).enumerate() {
                    let wanted = function.apply(a, b);
                    assert_eq!(wanted.is_none(), failed >> lane & 1 == 1, "{function:?} {a} {b}");
                    assert!(wanted.is_none_or(|wanted| wanted == found), "{function:?} {a} {b}");
                }
            }
        }
        assert!(quickly > 4000, "{quickly}");
    }
}
