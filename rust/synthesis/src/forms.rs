//! Closed forms: schedules written down by the arithmetic of ranks rather than searched for.
//!
//! Each is stated once, as an all-gather or as the trees of a broadcast. Sums are the same turned round in time, and an
//! all-reduce is the sum followed by the spreading. Ranks that are not neighbours reach each other over shortest ways
//! ([`ledger`]); at a switch every pair is neighbours.

mod exchange;
mod ledger;
mod rings;
mod trees;

use crate::list::arrange;
use crate::schedule::{Schedule, split};
use crate::synthesize::{Request, refuse};
use crate::{Collective, Graph};
use ahbm_machine::{Diagnostic, Ps};
use ledger::Ledger;

/// Their names.
pub(crate) const FORMS: [&str; 8] =
    ["ring", "one_way_ring", "dimensions", "halving_doubling", "swing", "direct", "binomial", "double_binary"];

/// Most transfers between ranks.
const TRANSFERS: u64 = 40_000_000;
/// Transfers of a pipelined tree, and pieces of it.
const PIPELINED: u64 = 400_000;
const PIECES: u64 = 512;

/// Most ranks among which `auto` tries a form with relays.
const RELAYED: u32 = 64;

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

/// The schedule of a closed form.
///
/// # Errors
/// `AHBM-U406` where it does not apply, or where its busiest port alone takes as long as a `rival`, `AHBM-U407` for a
/// buffer too small to be cut as it must be, `AHBM-B401` for too many transfers.
pub(crate) fn form(graph: &Graph, request: &Request, name: &'static str, rival: Ps) -> Result<Schedule, Diagnostic> {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather as ToRoot, Reduce, ReduceScatter, Scatter};
    let collective = request.collective;
    let members = request.group(graph);
    let p = members.len() as u32;
    let rooted = matches!(collective, Broadcast | Reduce);
    let form = match (name, collective) {
        ("direct", AllToAll | Scatter | ToRoot) => Form::Pairs,
        (_, AllToAll | Scatter | ToRoot) => return Err(refuse(name, collective, "it sends everybody the same")),
        ("direct", Broadcast | Reduce) => Form::Trees(trees::star(p, request.root)),
        ("ring" | "one_way_ring", _) => {
            let cycle = rings::cycle(graph, &members);
            let ways = if name == "ring" && p > 2 && graph.switch().is_none() { 2 } else { 1 };
            if rooted {
                Form::Trees(trees::chains(&cycle, request.root, ways))
            } else {
                Form::Gather(rings::around(&cycle, ways))
            }
        }
        ("binomial", Broadcast | Reduce | AllReduce) => Form::Trees(trees::binomial(p, request.root)),
        ("double_binary", Broadcast | Reduce) => Form::Trees(trees::double_binary_from(p, request.root)),
        ("double_binary", AllReduce) => Form::Trees(trees::double_binary(p)),
        (_, Broadcast | Reduce) => return Err(refuse(name, collective, "it has no root")),
        ("direct", _) => Form::Gather(rings::rotations(p)),
        ("dimensions" | "swing", _) => {
            let Some(grid) = graph.grid().filter(|_| p == graph.nodes()) else {
                return Err(refuse(name, collective, "it is for whole grids, tori and hypercubes"));
            };
            if name == "dimensions" {
                Form::Gather(rings::dimensions(grid))
            } else {
                let found = exchange::swing(grid);
                Form::Gather(found.ok_or_else(|| refuse(name, collective, "extents of a torus must be powers of two"))?)
            }
        }
        ("halving_doubling", _) => {
            if !p.is_power_of_two() && collective != AllReduce {
                return Err(refuse(name, collective, "the number of ranks must be a power of two"));
            }
            Form::Gather(exchange::halving_doubling(p))
        }
        (_, AllGather | ReduceScatter | AllReduce) => {
            return Err(refuse(name, collective, "trees carry one buffer to all"));
        }
    };
    if request.method == "auto" && p > RELAYED && form.relays(graph, &members) {
        return Err(refuse(name, collective, "so many ranks that are not neighbours are worth it only when asked for"));
    }
    let (blocks, lanes) = match &form {
        Form::Gather(gather) => (if collective == AllReduce { gather.owners.len() as u32 } else { 1 }, gather.lanes),
        Form::Trees(trees) => (1, trees.lanes.len() as u32),
        Form::Pairs => (1, 1),
    };
    let units = request.share_bytes / request.unit;
    let most = units / u64::from(blocks * lanes);
    if most == 0 {
        let text = format!("{name} cuts a share into {} parts, and it has {units} elements", blocks * lanes);
        return Err(Diagnostic::new("AHBM-U407", text).hint("ask for more bytes"));
    }
    let pieces = match &form {
        Form::Trees(trees) => trees.pieces(graph, request),
        _ => u64::from(request.chunks),
    };
    let pieces = pieces.min(most) as u32;
    let count = match &form {
        Form::Gather(gather) => gather.moves.len() as u64,
        Form::Trees(trees) => trees.lanes.iter().map(|l| l.len() as u64).sum(),
        Form::Pairs => u64::from(p) * u64::from(p),
    };
    if count * u64::from(pieces) > TRANSFERS {
        let text =
            format!("{name} among {p} ranks makes {} transfers, more than {TRANSFERS}", count * u64::from(pieces));
        return Err(Diagnostic::new("AHBM-B401", text).hint("ask for fewer chunks, or use the method greedy"));
    }
    let chunk_bytes = split(request.share_bytes, blocks * lanes * pieces, request.unit);
    let mut ledger = Ledger::new(graph, request.base(graph, name, chunk_bytes));
    match form {
        Form::Gather(gather) => gather.write(&mut ledger, collective, pieces),
        Form::Trees(trees) => trees.write(&mut ledger, collective, pieces),
        Form::Pairs => pairs(&mut ledger, request, p, pieces),
    }
    let schedule = ledger.finish();
    if rival < Ps::MAX && schedule.busiest_ps(graph) >= rival {
        return Err(refuse(name, collective, "another method takes less time than its busiest port"));
    }
    let contended = graph.switch().is_some()
        || !schedule.parcels.is_empty()
        || matches!(collective, Broadcast | Reduce)
        || lanes == blocks;
    Ok(if contended { arrange(graph, schedule) } else { schedule })
}

impl Form {
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
fn pairs(ledger: &mut Ledger<'_>, request: &Request, p: u32, pieces: u32) {
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
