//! A program's data without the program: which bytes of the results are which functions of which bytes of the operands.
//!
//! A replay moves every byte as often as the program does, through buffers of its own. A [`Recipe`] comes from following
//! a replay once without data (`sketch`). It reads each operand where it lies and writes each result where it belongs,
//! block by block, so that what is between stays in the processor's cache. The functions of an element and their order
//! are those of the program, hence every bit is, but for those inside a NaN.
//!
//! Proof that in place is right. An [`Item`] is a formula and the places that get its bytes. Places that are written are
//! disjoint, for those of results are. An item reads (1) places that nobody writes, (2) places that it writes itself,
//! byte for byte, where a block is read before it is written, and (3) copies made before anything was written. So
//! whatever is read is what was there at first, in any order of items and blocks, and on any thread.

mod run;

use super::image::Place;
use super::prepared::Prepared;
use super::sketch::{Formula, Part, Sketch, phase};
use crate::Timeline;
use ahbm_program::{BinaryFn, BufferId, Dtype, Program, Scalar};
use rustc_hash::FxHashMap;

/// Operations of a program that is followed, instructions of a recipe, and copies of results.
const MOST: usize = 1 << 23;
/// Blocks that one formula is computed in.
const REGISTERS: usize = 64;
/// A formula is computed once per item, and may be part of several: at most so many times what the program computes.
const REPEATS: u64 = 2;

/// Bytes of an array and of a buffer that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The first byte in the array.
    pub host: u64,
    /// The buffer.
    pub buffer: BufferId,
    /// The first byte in the buffer.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// How to make the results of a program of its operands, in place. Reads and writes nothing else.
#[derive(Debug)]
pub struct Recipe {
    /// Per array, how many bytes it has at least.
    sizes: Vec<usize>,
    items: Vec<Item>,
    /// Per array, what is written, by first byte.
    writes: Vec<Vec<Write>>,
    /// Copied before anything is written, one behind the other, each at a multiple of 8.
    staged: Vec<Range>,
    /// Bytes of all items.
    bytes: u64,
}

/// Bytes of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Range {
    array: usize,
    at: usize,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    at: usize,
    item: usize,
    /// Which of the item's.
    dest: usize,
}

/// Some bytes that one formula makes.
#[derive(Debug)]
struct Item {
    len: usize,
    /// Leaves the bytes in register 0.
    code: Vec<Step>,
    sources: Vec<Source>,
    dests: Vec<Range>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Clear { to: usize },
    Load { to: usize, source: usize },
    Apply { f: BinaryFn, dtype: Dtype, to: usize, with: With },
    Scalar { f: BinaryFn, swapped: bool, dtype: Dtype, to: usize, scalar: Scalar },
}

#[derive(Debug, Clone, Copy)]
enum With {
    Source(usize),
    Register(usize),
}

/// Where an item reads.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// From a byte on of what nobody writes before an array's write of this number.
    Unwritten { array: usize, before: usize, at: usize },
    /// The item's own destination of this number.
    Own(usize),
    /// From a byte of the copies on.
    Staged(usize),
}

impl Prepared {
    /// The recipe of a program and its timeline for arrays whose `operands` are copied into buffers before, and whose
    /// `results` are copied from buffers after; `None` where the data cannot be followed, or not to any good: functions
    /// of more than one element, functions that may fail, too many pieces. All pieces are inside of their buffers.
    pub fn recipe(
        &self,
        program: &Program,
        timeline: &Timeline,
        operands: &[Vec<Copied>],
        results: &[Vec<Copied>],
    ) -> Option<Recipe> {
        if program.ops() > MOST as u64 || operands.len() != results.len() {
            return None;
        }
        let mut sketch = Sketch::new(program);
        for (array, pieces) in operands.iter().enumerate() {
            for piece in pieces {
                sketch.put_array(array as u32, piece.host, (piece.buffer, piece.offset), piece.bytes);
            }
        }
        self.follow(&self.parts.agents, program, timeline, &mut sketch, &mut None).ok()?;
        Recipe::new(&sketch, operands, results)
    }
}

impl Recipe {
    /// Per array, how many bytes it has at least.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    fn new(sketch: &Sketch, operands: &[Vec<Copied>], results: &[Vec<Copied>]) -> Option<Self> {
        let end = |piece: &Copied| (piece.host + piece.bytes) as usize;
        let size =
            |(array, pieces): (usize, &Vec<Copied>)| pieces.iter().chain(&results[array]).map(end).max().unwrap_or(0);
        let mut recipe = Self {
            sizes: operands.iter().enumerate().map(size).collect(),
            items: Vec::new(),
            writes: vec![Vec::new(); operands.len()],
            staged: Vec::new(),
            bytes: 0,
        };
        let mut work = 0u64;
        for (formula, at, dests) in shared(sketch, results)? {
            let len = dests[0].len;
            work = work.saturating_add(sketch.weights[formula as usize].saturating_mul(len as u64));
            let mut item = Item { len, code: Vec::new(), sources: Vec::new(), dests };
            let mut ranges = Vec::new();
            item.compute(sketch, formula, at, 0, &mut ranges)?;
            item.sources = vec![Source::Own(0); ranges.len()];
            for (dest, range) in item.dests.iter().enumerate() {
                recipe.writes[range.array].push(Write { at: range.at, item: recipe.items.len(), dest });
            }
            recipe.bytes += (item.len * (item.dests.len() + ranges.len())) as u64;
            recipe.items.push(item);
            recipe.staged.extend(ranges);
        }
        if work > sketch.made.saturating_mul(REPEATS) {
            return None;
        }
        for writes in &mut recipe.writes {
            writes.sort_unstable_by_key(|write| write.at);
        }
        recipe.place()?;
        Some(recipe)
    }

    /// Finds out where the items read; until now `staged` has what they do, one item after the other.
    fn place(&mut self) -> Option<()> {
        let (items, writes) = (&self.items, &self.writes);
        let len = |write: &Write| items[write.item].len;
        if writes.iter().any(|list| list.windows(2).any(|pair| pair[0].at + len(&pair[0]) > pair[1].at)) {
            return None;
        }
        let mut reads = std::mem::take(&mut self.staged).into_iter();
        let mut copies: FxHashMap<Range, usize> = FxHashMap::default();
        let (mut staged, mut room, mut found) = (Vec::new(), 0, Vec::new());
        for (number, item) in items.iter().enumerate() {
            for read in reads.by_ref().take(item.sources.len()) {
                let list = &writes[read.array];
                let before = list.partition_point(|write| write.at + len(write) <= read.at);
                let next = list.get(before);
                found.push(match next {
                    Some(write) if write.item == number && write.at == read.at => Source::Own(write.dest),
                    Some(write) if write.at < read.at + read.len => {
                        Source::Staged(*copies.entry(read).or_insert_with(|| {
                            let at = room;
                            staged.push(read);
                            room += read.len.next_multiple_of(8);
                            at
                        }))
                    }
                    _ => {
                        let from = before.checked_sub(1).map_or(0, |last| list[last].at + len(&list[last]));
                        Source::Unwritten { array: read.array, before, at: read.at - from }
                    }
                });
            }
        }
        let mut found = found.into_iter();
        for item in &mut self.items {
            item.sources.fill_with(|| found.next().unwrap_or(Source::Own(0)));
        }
        self.staged = staged;
        Some(())
    }
}

impl Item {
    /// Steps that leave a formula's bytes in register `to`; what they read is appended to `reads`.
    fn compute(&mut self, sketch: &Sketch, formula: u32, at: i64, to: usize, reads: &mut Vec<Range>) -> Option<()> {
        if to >= REGISTERS || self.code.len() > MOST {
            return None;
        }
        // Down the first operands and back up, for a sum of a thousand ranks is a thousand formulas deep.
        let (mut spine, mut formula) = (Vec::new(), formula);
        loop {
            match sketch.formula(formula) {
                Formula::Zeros => self.code.push(Step::Clear { to }),
                Formula::Array(array) => {
                    let source = self.source(array, at, reads);
                    self.code.push(Step::Load { to, source });
                }
                inner @ (Formula::Binary { a, dtype, phase: of, .. } | Formula::Scalar { a, dtype, phase: of, .. }) => {
                    // A result may have a part of an element.
                    if phase(at, dtype) != of || !(self.len as u64).is_multiple_of(dtype.bytes()) {
                        return None;
                    }
                    spine.push(inner);
                    formula = a;
                    continue;
                }
            }
            break;
        }
        for inner in spine.into_iter().rev() {
            match inner {
                Formula::Scalar { f, swapped, dtype, scalar, .. } => {
                    self.code.push(Step::Scalar { f, swapped, dtype, to, scalar });
                }
                Formula::Binary { f, dtype, b, shift, .. } => {
                    let with = if let Formula::Array(array) = sketch.formula(b) {
                        With::Source(self.source(array, at + shift, reads))
                    } else {
                        self.compute(sketch, b, at + shift, to + 1, reads)?;
                        With::Register(to + 1)
                    };
                    self.code.push(Step::Apply { f, dtype, to, with });
                }
                Formula::Zeros | Formula::Array(_) => {}
            }
            if self.code.len() > MOST {
                return None;
            }
        }
        Some(())
    }

    fn source(&self, array: u32, at: i64, reads: &mut Vec<Range>) -> usize {
        reads.push(Range { array: array as usize, at: at as usize, len: self.len });
        reads.len() - 1
    }

    fn registers(&self) -> usize {
        let last = |step: &Step| match *step {
            Step::Clear { to } | Step::Load { to, .. } | Step::Apply { to, .. } | Step::Scalar { to, .. } => to,
        };
        self.code.iter().map(last).max().unwrap_or(0) + 1
    }
}

/// What makes the results: formulas, their first bytes, and the places of equal length that get the same bytes. Leaves
/// out what stays where it is.
fn shared(sketch: &Sketch, results: &[Vec<Copied>]) -> Option<Vec<(u32, i64, Vec<Range>)>> {
    let mut wanted: Vec<(Part, Range)> = Vec::new();
    for (array, pieces) in results.iter().enumerate() {
        for piece in pieces {
            let mut host = piece.host as usize;
            let from: Place = (piece.buffer, piece.offset);
            for part in sketch.parts(from, piece.bytes) {
                let len = part.len as usize;
                let stays = sketch.formula(part.formula) == Formula::Array(array as u32) && part.at == host as i64;
                if !stays && len > 0 {
                    wanted.push((part, Range { array, at: host, len }));
                }
                host += len;
            }
        }
    }
    wanted.sort_unstable_by_key(|(part, range)| (part.formula, part.at, *range));
    let (mut found, mut copies) = (Vec::new(), 0);
    for same in wanted.chunk_by(|a, b| a.0.formula == b.0.formula) {
        let end = |part: &Part| part.at + part.len as i64;
        let mut edges: Vec<i64> = same.iter().flat_map(|(part, _)| [part.at, end(part)]).collect();
        edges.sort_unstable();
        edges.dedup();
        let (mut next, mut open) = (same.iter().peekable(), Vec::new());
        for pair in edges.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            open.retain(|&(part, _): &&(Part, Range)| end(part) > from);
            while let Some(begins) = next.next_if(|(part, _)| part.at == from) {
                open.push(begins);
            }
            copies += open.len();
            if copies > MOST {
                return None;
            }
            let dest = |&&(part, range): &&(Part, Range)| Range {
                at: range.at + (from - part.at) as usize,
                len: (to - from) as usize,
                ..range
            };
            if !open.is_empty() {
                found.push((same[0].0.formula, from, open.iter().map(dest).collect()));
            }
        }
    }
    Some(found)
}
