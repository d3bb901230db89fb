//! Formulas: integers that depend on an agent's coordinates, computed for many agents at once.
//!
//! A kernel is a function of its rank. [`Formulas`] keeps how its integers come from the rank and the cube, each
//! distinct expression once. Integers are Python's, as long as they fit 64 bits: division rounds down, a remainder has
//! the sign of the divisor (The Python Language Reference, 6.7).

use crate::Set;
use ahbm_machine::Coord;

/// An expression of a [`Formulas`]. Equal expressions are equal terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(u32);

impl Term {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A coordinate that kernels see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// The SIP: the rank.
    Sip,
    /// The cube in its SIP.
    Cube,
}

impl Axis {
    /// An agent's coordinate.
    pub fn of(self, at: Coord) -> i64 {
        i64::from(match self {
            Self::Sip => at.sip,
            Self::Cube => at.cube,
        })
    }
}

/// Functions of two integers; those of one ignore the second. Comparisons are 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Function {
    Add,
    Sub,
    Mul,
    /// `a // b`.
    Quotient,
    /// `a % b`.
    Remainder,
    Shl,
    Shr,
    And,
    Or,
    Xor,
    Abs,
    /// `a.bit_length()`.
    Length,
    /// `a.bit_count()`.
    Ones,
    Lt,
    Le,
    Eq,
}

impl Function {
    /// The result; `None` where Python raises an exception, or where it does not fit 64 bits.
    #[inline]
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::Add => a.checked_add(b),
            Self::Sub => a.checked_sub(b),
            Self::Mul => a.checked_mul(b),
            Self::Quotient => quotient(a, b),
            Self::Remainder => remainder(a, b),
            Self::Shl => {
                let shifted = if a == 0 { 0 } else { a.checked_shl(u32::try_from(b).ok()?)? };
                (b >= 0 && shifted >> b.min(63) == a).then_some(shifted)
            }
            Self::Shr => (b >= 0).then(|| a >> b.min(63)),
            Self::And => Some(a & b),
            Self::Or => Some(a | b),
            Self::Xor => Some(a ^ b),
            Self::Abs => a.checked_abs(),
            Self::Length => Some(i64::from(u64::BITS - a.unsigned_abs().leading_zeros())),
            Self::Ones => Some(i64::from(a.unsigned_abs().count_ones())),
            Self::Lt => Some((a < b).into()),
            Self::Le => Some((a <= b).into()),
            Self::Eq => Some((a == b).into()),
        }
    }
}

/// Small operands, which most are, divide in a fraction of the time.
#[inline]
fn small(a: i64, b: i64) -> Option<(u32, u32)> {
    Some((u32::try_from(a).ok()?, u32::try_from(b).ok().filter(|&b| b > 0)?))
}

#[inline]
fn quotient(a: i64, b: i64) -> Option<i64> {
    if let Some((a, b)) = small(a, b) {
        return Some((a / b).into());
    }
    let rounded = a.checked_div(b)?;
    Some(rounded - i64::from(a % b != 0 && (a < 0) != (b < 0)))
}

#[inline]
fn remainder(a: i64, b: i64) -> Option<i64> {
    if let Some((a, b)) = small(a, b) {
        return Some((a % b).into());
    }
    let rest = a.checked_rem(b)?;
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Axis(Axis),
    Constant(i64),
    Apply(Function, Term, Term),
}

/// Distinct expressions; operands come before what uses them.
#[derive(Debug, Default)]
pub struct Formulas {
    nodes: Set<Node>,
}

impl Formulas {
    /// A coordinate.
    pub fn axis(&mut self, axis: Axis) -> Term {
        self.term(Node::Axis(axis))
    }

    /// A number.
    pub fn constant(&mut self, value: i64) -> Term {
        self.term(Node::Constant(value))
    }

    /// A function of two expressions.
    pub fn apply(&mut self, function: Function, a: Term, b: Term) -> Term {
        self.term(Node::Apply(function, a, b))
    }

    fn term(&mut self, node: Node) -> Term {
        Term(self.nodes.insert_full(node).0 as u32)
    }

    pub(crate) fn node(&self, term: Term) -> Node {
        *self.nodes.get_index(term.index()).expect("a term belongs to its formulas")
    }

    /// Number of distinct expressions.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True before the first expression.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Function::*;

    #[test]
    fn integers_are_those_of_python() {
        for (a, b, divided) in
            [(7, 2, (3, 1)), (-7, 2, (-4, 1)), (7, -2, (-4, -1)), (-7, -2, (3, -1)), (-8, 2, (-4, 0))]
        {
            assert_eq!((Quotient.apply(a, b), Remainder.apply(a, b)), (Some(divided.0), Some(divided.1)), "{a} {b}");
        }
        assert_eq!((Shr.apply(-5, 1), Shr.apply(-1, 100), Shr.apply(5, 64)), (Some(-3), Some(-1), Some(0)));
        assert_eq!((Length.apply(-8, 0), Length.apply(0, 0), Ones.apply(-7, 0)), (Some(4), Some(0), Some(3)));
    }

    #[test]
    fn nothing_wraps() {
        for function in [Quotient, Remainder] {
            assert_eq!(function.apply(1, 0), None);
        }
        assert_eq!(Quotient.apply(i64::MIN, -1), None);
        assert_eq!((Shl.apply(1, -1), Shr.apply(1, -1)), (None, None));
        assert_eq!(
            (Shl.apply(1, 62), Shl.apply(1, 63), Shl.apply(3, 62), Shl.apply(1, 64)),
            (Some(1 << 62), None, None, None)
        );
        assert_eq!((Shl.apply(0, 500), Shl.apply(-1, 63)), (Some(0), Some(i64::MIN)));
        assert_eq!((Add.apply(i64::MAX, 1), Mul.apply(1 << 32, 1 << 32), Abs.apply(i64::MIN, 0)), (None, None, None));
    }
}
