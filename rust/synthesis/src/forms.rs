//! Closed forms: schedules written down by the arithmetic of ranks rather than searched for.
//!
//! Each is stated once, as an all-gather or as the trees of a broadcast. Sums are the same turned round in time, and an
//! all-reduce is the sum followed by the spreading. Ranks that are not neighbours reach each other over shortest ways
//! ([`ledger`]); at a switch every pair is neighbours.

pub(crate) mod exchange;
mod ledger;
pub(crate) mod rings;
pub(crate) mod trees;

use crate::list::arrange;
use crate::method::{Method, Task};
use crate::request::{Request, Synthesis, refuse};
use crate::schedule::split;
use crate::{Collective, Graph};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ledger::Ledger;

/// Most transfers between ranks.
const TRANSFERS: u64 = 40_000_000;
/// Transfers of a pipelined tree, and pieces of it.
const PIPELINED: u64 = 400_000;
const PIECES: u64 = 512;

/// Most ranks among which `auto` tries a form with relays.
const RELAYED: usize = 64;

/// A block from one rank to another.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: u32,
    to: u32,
    /// Owner of the block times lanes, plus the lane.
    block: u32,
}

/// An all-gather among some of the ranks, in order.
struct Gather {
    /// The rank that owns each block.
    owners: Vec<u32>,
    /// Independent parts of every block, each with its own moves.
    lanes: u32,
    moves: Vec<Move>,
    /// Ranks outside, each with the one that stands in for it: all-reduce only.
    folded: Vec<(u32, u32)>,
}

/// Trees from the root outwards, each for its part of the buffer.
struct Trees {
    lanes: Vec<Vec<(u32, u32)>>,
    height: u32,
}

enum Form {
    Gather(Gather),
    Trees(Trees),
    /// Every rank sends to every other, in turn.
    Pairs,
}

/// A method whose schedule follows from the numbers of the ranks.
pub(crate) struct ClosedForm {
    name: &'static str,
    about: &'static str,
    /// Why it does not do a request, if it does not.
    applies: fn(&Request, &Graph) -> Result<(), &'static str>,
    form: fn(&Request, &Graph) -> Result<Form, &'static str>,
}

/// Refuses collectives in which every chunk has one destination.
fn to_everybody(collective: Collective) -> Result<(), &'static str> {
    use Collective::{AllToAll, Gather, Scatter};
    if matches!(collective, AllToAll | Gather | Scatter) { Err("it sends everybody the same") } else { Ok(()) }
}

/// Refuses collectives in which not all ranks are alike, too.
fn among_equals(collective: Collective) -> Result<(), &'static str> {
    to_everybody(collective)?;
    if matches!(collective, Collective::Broadcast | Collective::Reduce) { Err("it has no root") } else { Ok(()) }
}

impl Method for ClosedForm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn is_closed_form(&self) -> bool {
        true
    }

    fn applies(&self, request: &Request, graph: &Graph) -> Result<(), Diagnostic> {
        (self.applies)(request, graph).map_err(|why| refuse(self.name, request.collective, why))
    }

    /// Need not be finished where the busiest port alone takes as long as the rival.
    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic> {
        let (graph, request, collective) = (task.graph, task.request, task.request.collective);
        let no = |why| refuse(self.name, collective, why);
        let form = (self.form)(request, graph).map_err(no)?;
        let members = request.group(graph);
        if request.method == "auto" && members.len() > RELAYED && form.relays(graph, &members) {
            return Err(no("so many ranks that are not neighbours are worth it only when asked for"));
        }
        let (blocks, lanes) = form.parts(collective);
        let pieces = self.pieces(&form, blocks * lanes, graph, request)?;
        let chunk_bytes = split(request.share_bytes, blocks * lanes * pieces, request.unit);
        let mut ledger = Ledger::new(graph, request.base(graph, self.name, chunk_bytes));
        form.write(&mut ledger, request, pieces);
        let schedule = ledger.finish();
        if task.rival < Ps::MAX && schedule.busiest_ps(graph) >= task.rival {
            return Err(no("another method takes less time than its busiest port"));
        }
        let contended = graph.switch().is_some()
            || !schedule.parcels.is_empty()
            || matches!(collective, Collective::Broadcast | Collective::Reduce)
            || lanes == blocks;
        Ok(Synthesis::of(graph, if contended { arrange(graph, schedule) } else { schedule }))
    }
}

impl ClosedForm {
    /// Chunks of each of the `parts` of a share.
    ///
    /// # Errors
    /// `AHBM-U407` for a buffer too small to be cut as it must be, `AHBM-B401` for too many transfers.
    fn pieces(&self, form: &Form, parts: u32, graph: &Graph, request: &Request) -> Result<u32, Diagnostic> {
        let (name, p) = (self.name, request.group(graph).len() as u64);
        let units = request.share_bytes / request.unit;
        let most = units / u64::from(parts);
        if most == 0 {
            let text = format!("{name} cuts a share into {parts} parts, and it has {units} elements");
            return Err(Diagnostic::new("AHBM-U407", text).hint("ask for more bytes"));
        }
        let pieces = match form {
            Form::Trees(trees) => trees.pieces(graph, request),
            Form::Gather(_) | Form::Pairs => u64::from(request.chunks),
        };
        let pieces = pieces.min(most) as u32;
        let count = form.moves(p) * u64::from(pieces);
        if count > TRANSFERS {
            let text = format!("{name} among {p} ranks makes {count} transfers, more than {TRANSFERS}");
            return Err(Diagnostic::new("AHBM-B401", text).hint("ask for fewer chunks, or use the method greedy"));
        }
        Ok(pieces)
    }
}

impl Form {
    /// Parts that a share is cut into before it is cut into pieces: blocks, and lanes of a block.
    fn parts(&self, collective: Collective) -> (u32, u32) {
        match self {
            Self::Gather(gather) if collective == Collective::AllReduce => (gather.owners.len() as u32, gather.lanes),
            Self::Gather(gather) => (1, gather.lanes),
            Self::Trees(trees) => (1, trees.lanes.len() as u32),
            Self::Pairs => (1, 1),
        }
    }

    /// Messages between `p` ranks for every piece.
    fn moves(&self, p: u64) -> u64 {
        match self {
            Self::Gather(gather) => gather.moves.len() as u64,
            Self::Trees(trees) => trees.lanes.iter().map(|l| l.len() as u64).sum(),
            Self::Pairs => p * p,
        }
    }

    fn write(&self, ledger: &mut Ledger<'_>, request: &Request, pieces: u32) {
        match self {
            Self::Gather(gather) => gather.write(ledger, request.collective, pieces),
            Self::Trees(trees) => trees.write(ledger, request.collective, pieces),
            Self::Pairs => pairs(ledger, request, pieces),
        }
    }

    /// True where messages go between ranks that are not neighbours.
    fn relays(&self, graph: &Graph, members: &[u32]) -> bool {
        let apart = |from: u32, to: u32| graph.between(members[from as usize], members[to as usize]).is_none();
        match self {
            Self::Gather(gather) => {
                let mut pairs = gather.moves.iter().map(|m| (m.from, m.to)).chain(gather.folded.iter().copied());
                pairs.any(|(a, b)| apart(a, b) || apart(b, a))
            }
            Self::Trees(trees) => trees.lanes.iter().flatten().any(|&(a, b)| apart(a, b) || apart(b, a)),
            Self::Pairs => (0..members.len() as u32).any(|a| (0..a).any(|b| apart(a, b) || apart(b, a))),
        }
    }
}

impl Gather {
    fn write(&self, ledger: &mut Ledger<'_>, collective: Collective, pieces: u32) {
        let chunks = |block: u32| (0..pieces).map(move |piece| block * pieces + piece);
        let all = self.owners.len() as u32 * self.lanes;
        if collective != Collective::AllGather {
            for &(outside, inside) in &self.folded {
                (0..all).flat_map(chunks).for_each(|chunk| ledger.send(outside, inside, chunk, true));
            }
            for step in self.moves.iter().rev() {
                chunks(step.block).for_each(|chunk| ledger.send(step.to, step.from, chunk, true));
            }
        }
        if collective != Collective::ReduceScatter {
            for step in &self.moves {
                chunks(step.block).for_each(|chunk| ledger.send(step.from, step.to, chunk, false));
            }
            for &(outside, inside) in &self.folded {
                (0..all).flat_map(chunks).for_each(|chunk| ledger.send(inside, outside, chunk, false));
            }
        }
    }
}

impl Trees {
    /// Pieces of a lane so that the pipeline is filled soon and does not pay the latency too often.
    fn pieces(&self, graph: &Graph, request: &Request) -> u64 {
        let latency = graph.links().iter().map(|l| l.latency_ps).max().unwrap_or(0);
        let lanes = self.lanes.len() as u64;
        let busy = graph.links().iter().map(|l| l.rate.ps(request.share_bytes / lanes)).max().unwrap_or(0);
        let edges: u64 = self.lanes.iter().map(|l| l.len() as u64).sum();
        let best = (f64::from(self.height.saturating_sub(1)) * busy as f64 / latency.max(1) as f64).sqrt() as u64;
        best.clamp(1, PIECES).min(PIPELINED / (2 * edges).max(1)).max(u64::from(request.chunks))
    }

    fn write(&self, ledger: &mut Ledger<'_>, collective: Collective, pieces: u32) {
        for piece in 0..pieces {
            for adds in [true, false] {
                let wanted = if adds { collective.reduces() } else { collective != Collective::Reduce };
                for (lane, edges) in self.lanes.iter().enumerate().filter(|_| wanted) {
                    let chunk = lane as u32 * pieces + piece;
                    if adds {
                        edges.iter().rev().for_each(|&(from, to)| ledger.send(to, from, chunk, true));
                    } else {
                        edges.iter().for_each(|&(from, to)| ledger.send(from, to, chunk, false));
                    }
                }
            }
        }
    }
}

/// Scatter, gather and all-to-all: in turn `k` every rank sends to the `k`-th after it.
fn pairs(ledger: &mut Ledger<'_>, request: &Request, pieces: u32) {
    let p = ledger.ranks();
    for turn in 1..p {
        for rank in 0..p {
            let to = (rank + turn) % p;
            let share = match request.collective {
                Collective::Scatter if rank == request.root => to,
                Collective::Gather if to == request.root => rank,
                Collective::AllToAll => rank * p + to,
                _ => continue,
            };
            (0..pieces).for_each(|piece| ledger.send(rank, to, share * pieces + piece, false));
        }
    }
}
