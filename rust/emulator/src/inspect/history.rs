//! The history of an element, backwards to what it was made of and forwards to what it became.

use super::flow::{Flow, Spot};
use crate::data::liveness::result_tile;
use crate::data::math::element;
use crate::{Memory, Timeline};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, BufferId, Dtype, Program};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A spot, and those that its element was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The spot.
    pub spot: Spot,
    /// When the element was there.
    pub at: Ps,
    /// In the order of the operands; indices into [`Origin::nodes`], less than its own.
    pub of: Vec<u32>,
    /// The element's type; `None` before the run.
    pub dtype: Option<Dtype>,
    /// The element; empty where writers of other sizes made it.
    pub bytes: Vec<u8>,
}

/// What some bytes of memory were made of: every spot once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Each behind those that it was made of.
    pub nodes: Vec<Source>,
    /// What stood in the bytes, in their order.
    pub roots: Vec<u32>,
}

/// A spot, and those that its element went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The spot.
    pub spot: Spot,
    /// When the element was there.
    pub at: Ps,
    /// Indices into [`Fate::nodes`].
    pub to: Vec<u32>,
    /// Memory that had it in the end.
    pub left: Vec<(BufferId, Range<u64>)>,
    /// What replaced it in memory.
    pub over: Vec<(AgentId, u32)>,
}

/// Where some bytes of memory went that stood there before the run: every spot once, the first of which is these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// In the order in which they were found.
    pub nodes: Vec<Use>,
}

impl Flow {
    /// What stands in some bytes of memory at a time (`None`: in the end), and what it was made of. `inputs` is the memory
    /// as it was before the run.
    ///
    /// # Errors
    /// `AHBM-B124` for more than `most` spots, `AHBM-B301` for inputs that the host cannot hold.
    pub fn origin(
        &self,
        program: &Program,
        timeline: &Timeline,
        inputs: &Memory,
        (buffer, bytes): (BufferId, Range<u64>),
        at: Option<Ps>,
        most: usize,
    ) -> Result<Origin, Diagnostic> {
        let roots = self.stood(program, buffer, bytes, self.end(at));
        let mut known: FxHashMap<Spot, u32> = FxHashMap::default();
        let mut nodes: Vec<Source> = Vec::new();
        // A spot with its sources found is left only when all of these are.
        let mut open: Vec<(Spot, Option<Vec<Spot>>)> = roots.iter().rev().map(|spot| (spot.clone(), None)).collect();
        while let Some((spot, sources)) = open.pop() {
            if known.contains_key(&spot) {
                continue;
            }
            let Some(sources) = sources else {
                if nodes.len() + open.len() >= most {
                    return Err(too_long(most));
                }
                let sources = self.sources(program, &spot);
                let missing: Vec<Spot> = sources.iter().filter(|s| !known.contains_key(s)).rev().cloned().collect();
                open.push((spot, Some(sources)));
                open.extend(missing.into_iter().map(|spot| (spot, None)));
                continue;
            };
            let of: Vec<u32> = sources.iter().filter_map(|source| known.get(source).copied()).collect();
            let at = self.time(program, timeline, &spot);
            let (dtype, bytes) = value(program, inputs, &spot, &of, &nodes)?;
            known.insert(spot.clone(), nodes.len() as u32);
            nodes.push(Source { spot, at, of, dtype, bytes });
        }
        let roots = roots.iter().filter_map(|spot| known.get(spot).copied()).collect();
        Ok(Origin { nodes, roots })
    }

    /// Where some bytes of memory went that stood there before the run.
    ///
    /// # Errors
    /// `AHBM-B124` for more than `most` spots.
    pub fn fate(
        &self,
        program: &Program,
        timeline: &Timeline,
        (buffer, bytes): (BufferId, Range<u64>),
        most: usize,
    ) -> Result<Fate, Diagnostic> {
        let first = Spot::Before { buffer, bytes };
        let mut spots = vec![first.clone()];
        let mut known: FxHashMap<Spot, u32> = FxHashMap::from_iter([(first, 0)]);
        let mut nodes = Vec::new();
        while let Some(spot) = spots.get(nodes.len()).cloned() {
            let read = self.reads(program, &spot).unwrap_or_default();
            let mut next = read.readers;
            next.extend(self.users(program, &spot));
            let mut to = Vec::with_capacity(next.len());
            for spot in next {
                let number = *known.entry(spot.clone()).or_insert_with(|| {
                    spots.push(spot);
                    spots.len() as u32 - 1
                });
                if !to.contains(&number) {
                    to.push(number);
                }
            }
            if spots.len() > most {
                return Err(too_long(most));
            }
            let at = self.time(program, timeline, &spot);
            nodes.push(Use { spot, at, to, left: read.left, over: read.over });
        }
        Ok(Fate { nodes })
    }
}

/// The element at a spot, made of the nodes `of`.
fn value(
    program: &Program,
    inputs: &Memory,
    spot: &Spot,
    of: &[u32],
    nodes: &[Source],
) -> Result<(Option<Dtype>, Vec<u8>), Diagnostic> {
    match spot {
        Spot::Before { buffer, bytes } => {
            inputs.reserve(*buffer)?;
            let bytes = inputs.bytes(*buffer).get(bytes.start as usize..bytes.end as usize);
            Ok((None, bytes.unwrap_or_default().to_vec()))
        }
        &Spot::Op { agent, op, element: number } => {
            let body = program.body(agent);
            let kind = body.ops[op as usize].kind;
            let dtype = result_tile(body, kind).map(|tile| tile.dtype);
            let made_of: Vec<(Dtype, &[u8])> = of
                .iter()
                .map(|&node| &nodes[node as usize])
                .map(|node| (node.dtype.or(dtype).unwrap_or(Dtype::U8), &*node.bytes))
                .collect();
            Ok((dtype, element(body, kind, number, &made_of).unwrap_or_default()))
        }
    }
}

fn too_long(most: usize) -> Diagnostic {
    Diagnostic::new("AHBM-B124", format!("the history of this element has more than {most} steps"))
        .hint("ask for an earlier time, or for a smaller run of the same algorithm")
}
