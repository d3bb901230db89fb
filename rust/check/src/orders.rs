//! In which order a program adds contributions, read off its operations.
//!
//! The values of a sum are trees: a leaf is a contribution, any other node one addition. Addition commutes, bit for
//! bit, so a tree's two sides have no order; the side with the smallest party is written first.

use crate::nodes::Addition;
use crate::support::{Step, Subject};
use crate::values::Values;
use crate::walk::{Walker, walk};
use ahbm_emulator::Prepared;
use ahbm_findings::Diagnostic;
use ahbm_plan::Expectation;
use ahbm_program::{AgentId, BinaryFn, BufferId, ChannelId, Comm, Dtype, Math, Move, OpKind, Program};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::ops::Range;

/// A part of a party's array, and the bytes of memory that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Whose array.
    pub party: u32,
    /// The buffer.
    pub buffer: BufferId,
    /// The bytes in the buffer.
    pub bytes: Range<u64>,
    /// The element of the array that the first byte belongs to.
    pub first: u64,
}

/// Neighbouring elements of a party's result that are added up in one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Whose result.
    pub party: u32,
    /// The elements of the party's array.
    pub elements: Range<u64>,
    /// Index of the order.
    pub order: u32,
}

/// The orders of a program's additions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// Fully bracketed, by party, the outermost brackets left out: `((0+1)+2)+3`.
    pub orders: Vec<String>,
    /// In the order of the results.
    pub stretches: Vec<Stretch>,
}

/// The orders in which `results` add up all `operands` once, for elements of `dtype`.
///
/// `None` when the operations alone do not say: the program does more than move and add elements of `dtype`, its data
/// depend on times (agents share memory, or take messages from any direction), or a result is no sum of the same
/// element of each of the parties `0..parties`.
pub fn orders(program: &Program, dtype: Dtype, operands: &[Part], results: &[Part], parties: u32) -> Option<Orders> {
    if !program.bodies.iter().all(|body| body.ops.iter().all(|op| adds(op.kind)))
        || program.bodies.iter().flat_map(|body| body.tiles.iter()).any(|tile| tile.dtype != dtype)
        || Prepared::of(program).ok()?.depends_on_times(program)
    {
        return None;
    }
    let size = dtype.bytes();
    let known = |part: &&Part| (part.buffer.0 as usize) < program.buffers.len();
    let mut expectation = Expectation::of(dtype);
    for Part { party, buffer, bytes, first } in operands.iter().filter(known) {
        expectation.hold(*buffer, bytes.start / size..bytes.end / size, *party, *first);
    }
    let mut run = Run(Values::new(Subject::once(program), &expectation), Ok(()));
    if !walk(program, &mut run) || run.1.is_err() {
        return None;
    }
    let values = run.0;
    let sums = Sums::of(&values, parties);
    let mut found = Orders::default();
    // By tree, the index of its order.
    let mut listed: FxHashMap<u32, u32> = FxHashMap::default();
    for Part { party, buffer, bytes, first } in results.iter().filter(known) {
        let mut at = bytes.start;
        for run in values.found(*buffer, bytes.clone()) {
            let element = first + (run.start - bytes.start) / size;
            let tree = sums.trees[run.node as usize]?;
            if run.start != at || run.unit != size || run.index != element as i64 {
                return None;
            }
            let order = match listed.get(&tree) {
                Some(&order) => order,
                None => {
                    found.orders.push(sums.told(tree, parties)?);
                    listed.insert(tree, found.orders.len() as u32 - 1);
                    found.orders.len() as u32 - 1
                }
            };
            at = run.end;
            found.stretches.push(Stretch {
                party: *party,
                elements: element..first + (at - bytes.start) / size,
                order,
            });
        }
        if at != bytes.end {
            return None;
        }
    }
    Some(found)
}

/// Whether an operation moves or adds elements, creates them, or touches none.
fn adds(kind: OpKind) -> bool {
    match kind {
        OpKind::Math(Math::Binary { f, .. }) | OpKind::Move(Move::ReducingLoad { f, .. }) => f == BinaryFn::Add,
        OpKind::Math(Math::Fill { .. }) | OpKind::Move(_) | OpKind::Control(_) => true,
        OpKind::Math(_) | OpKind::Comm(Comm::RecvAny { .. }) => false,
        OpKind::Comm(_) => true,
    }
}

/// Values, and whether all effects on them so far were sound.
struct Run<'p>(Values<'p>, Result<(), Diagnostic>);

impl Walker for Run<'_> {
    fn done(&mut self, agent: AgentId, op: u32, message: Option<(ChannelId, u64)>) {
        if self.1.is_ok() {
            self.1 = self.0.done(&Step { agent, op, call: 0, message });
        }
    }
    fn met(&mut self, _: &[AgentId]) {}
}

/// A tree of additions.
struct Sum {
    /// The smallest party in it.
    least: u32,
    /// Leaves.
    leaves: u32,
    /// The side with the smallest party, and the other; `None` for a contribution.
    sides: Option<(u32, u32)>,
}

/// All different trees.
struct Sums {
    list: Vec<Sum>,
    /// By node of the values: its tree; `None` for what is no sum of equal elements, or of more than all parties.
    trees: Vec<Option<u32>>,
}

impl Sums {
    fn of(values: &Values<'_>, parties: u32) -> Self {
        let (mut list, mut trees): (Vec<Sum>, Vec<Option<u32>>) = (Vec::new(), Vec::new());
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for sides in values.additions() {
            // Of two parts that come before it.
            let tree = match sides {
                Addition::Of(a, b) => trees[a as usize].zip(trees[b as usize]).and_then(|(a, b)| {
                    let (one, other) = (&list[a as usize], &list[b as usize]);
                    let (least, leaves) = (one.least.min(other.least), one.leaves + other.leaves);
                    let sides = if one.least == least { (a, b) } else { (b, a) };
                    (leaves <= parties).then(|| {
                        *known.entry(sides).or_insert_with(|| {
                            list.push(Sum { least, leaves, sides: Some(sides) });
                            list.len() as u32 - 1
                        })
                    })
                }),
                Addition::Contribution(party) => {
                    list.push(Sum { least: party, leaves: 1, sides: None });
                    Some(list.len() as u32 - 1)
                }
                Addition::None => None,
            };
            trees.push(tree);
        }
        Self { list, trees }
    }

    /// A tree in brackets; `None` unless every party is in it once.
    fn told(&self, tree: u32, parties: u32) -> Option<String> {
        enum Next {
            Tree(u32),
            Text(char),
        }
        let (mut text, mut seen) = (String::new(), vec![false; parties as usize]);
        let mut due = vec![Next::Tree(tree)];
        while let Some(next) = due.pop() {
            match next {
                Next::Text(sign) => text.push(sign),
                Next::Tree(tree) => match self.list[tree as usize] {
                    Sum { sides: Some((a, b)), .. } => {
                        due.extend([Next::Text(')'), Next::Tree(b), Next::Text('+'), Next::Tree(a), Next::Text('(')]);
                    }
                    Sum { least, .. } => {
                        if std::mem::replace(seen.get_mut(least as usize)?, true) {
                            return None;
                        }
                        let _ = write!(text, "{least}");
                    }
                },
            }
        }
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&text);
        seen.iter().all(|&there| there).then(|| inner.to_owned())
    }
}
