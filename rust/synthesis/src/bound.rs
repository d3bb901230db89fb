//! Lower bounds with their witnesses.
//!
//! A bound is the least time any schedule can take because of one *cut*: a set of NPUs that too few links leave, or a
//! partition of the NPUs between whose parts too few links run; or because of the longest way. `regular` has the closed
//! forms of networks whose shape is declared, `search` and `strength` find the cuts of all others.

mod among;
mod cut;
mod far;
mod regular;
mod search;
mod strength;
mod work;

pub use cut::{Cut, Parts};

use crate::{Collective, Graph};
use ahbm_machine::Ps;
use cut::tightest;
use far::farthest;
use work::Work;

/// The least time a collective can take.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The larger of the two terms below.
    pub ps: Ps,
    /// Data over the tight cut, and the latency of a link after it.
    pub bandwidth_ps: Ps,
    /// The longest shortest way, of no data: chunks may be as small as one likes.
    pub latency_ps: Ps,
    /// The cut behind `bandwidth_ps`.
    pub cut: Cut,
    /// Links on the longest shortest way; `None` where links differ, so that rounds mean nothing.
    pub hops: Option<u64>,
    /// No cut is tighter and no way longer. False where a search ended before it had seen all of them, or where it
    /// looks at some only: among a group of nodes, and for an all-to-all, or an all-reduce over links that differ by
    /// direction, that no routing is known to match.
    pub tightest: bool,
}

impl Bound {
    /// Least number of rounds in which every link carries one of `chunks` equal chunks of a share; `None` where links
    /// differ.
    pub fn rounds(&self, chunks: u64) -> Option<u64> {
        self.hops.map(|hops| (chunks * self.cut.demand).div_ceil(self.cut.capacity).max(hops))
    }
}

/// Bounds `collective` of buffers of `bytes` per NPU (its own share of the result where every NPU has one), cut in
/// whatever way, with the given root where it has one.
pub fn bound(graph: &Graph, collective: Collective, bytes: u64, root: u32) -> Bound {
    let closed = graph.regular().and_then(|shape| shape.bound(graph.nodes(), collective, bytes, root));
    closed.unwrap_or_else(|| searched(graph, collective, bytes, root, &mut Work::on(graph)))
}

fn searched(graph: &Graph, collective: Collective, bytes: u64, root: u32, work: &mut Work) -> Bound {
    let (cut, tightest) = match collective {
        Collective::AllGather => search::all_gather(graph, work),
        Collective::ReduceScatter => turned(graph, |graph| search::all_gather(graph, work)),
        Collective::AllReduce if graph.symmetric() => strength::strength(graph, work),
        Collective::AllReduce => reduced_one_way(graph, work),
        Collective::Broadcast => search::broadcast(graph, root, work),
        Collective::Reduce => turned(graph, |graph| search::broadcast(graph, root, work)),
        Collective::Scatter => search::scatter(graph, root, work),
        Collective::Gather => turned(graph, |graph| search::scatter(graph, root, work)),
        Collective::AllToAll => search::exchange(graph, work),
    };
    let all: Vec<u32> = (0..graph.nodes()).collect();
    of_cut(graph, &all, collective, bytes, root, (cut, tightest), work)
}

/// What a search finds with every link turned round.
fn turned(graph: &Graph, search: impl FnOnce(&Graph) -> search::Found) -> search::Found {
    let (cut, tightest) = search(&graph.reversed());
    (cut.turned(graph.nodes()), tightest)
}

/// An all-reduce where the directions of links differ: the partitions add both directions, but every set of nodes has
/// to send the sum of its data out, and to take in that of the others. (Where the directions are equal, a set and the
/// others are a partition that says as much.)
///
/// No routing is known that matches these cuts on every such network. Where a reduce-scatter and then an all-gather,
/// each as long as its own tight cut, take no longer, they are matched.
fn reduced_one_way(graph: &Graph, work: &mut Work) -> search::Found {
    let found = [
        strength::strength(graph, work),
        search::broadcast(graph, 0, work),
        turned(graph, |graph| search::broadcast(graph, 0, work)),
    ];
    let seen = found.iter().all(|(_, seen)| *seen);
    let cut = tightest(found.into_iter().map(|(cut, _)| cut));
    let halves = [search::all_gather(graph, work), turned(graph, |graph| search::all_gather(graph, work))];
    let matched = halves.iter().all(|(_, seen)| *seen) && {
        let cost = |cut: &Cut| cut.demand as f64 / cut.capacity as f64;
        let both: f64 = halves.iter().map(|(half, _)| cost(half)).sum();
        both / f64::from(graph.nodes()) <= cost(&cut) * (1.0 + 1e-12)
    };
    (cut, seen && matched)
}

/// The same among some of the nodes, the others relaying: what enters or leaves each of them and each group of them, and
/// their distances. A bound, though not always the tightest.
pub(crate) fn bound_among(graph: &Graph, members: &[u32], collective: Collective, bytes: u64, root: u32) -> Bound {
    let ranks = members.len() as u32;
    if let Some(shape) = graph.regular().filter(|_| members.iter().copied().eq(0..ranks))
        && let Some(bound) = shape.bound(ranks, collective, bytes, root)
    {
        return bound;
    }
    let cut = among::cut(graph, members, collective, root);
    of_cut(graph, members, collective, bytes, root, (cut, false), &mut Work::on(graph))
}

#[allow(clippy::too_many_arguments)] // What a bound depends on.
fn of_cut(
    graph: &Graph,
    members: &[u32],
    collective: Collective,
    bytes: u64,
    root: u32,
    (cut, tightest): search::Found,
    work: &mut Work,
) -> Bound {
    // Every byte over the cut must leave one latency before the end.
    let bandwidth_ps = cut.fluid_ps(bytes, graph.unit_gbs()) + graph.min_latency_ps();
    let far = match collective {
        Collective::Broadcast | Collective::Scatter => farthest(graph, &[root], members, work),
        Collective::Reduce | Collective::Gather => farthest(&graph.reversed(), &[root], members, work),
        _ => farthest(graph, members, members, work),
    };
    let (ps, tightest) = (bandwidth_ps.max(far.ps), tightest && far.exact);
    Bound { ps, bandwidth_ps, latency_ps: far.ps, cut, hops: far.hops, tightest }
}

/// The bound of a message from one node to another, without its data.
pub(crate) fn bound_between(graph: &Graph, from: u32, to: u32) -> Bound {
    if let Some(bound) = graph.regular().and_then(|shape| shape.between(from, to)) {
        return bound;
    }
    let (latency_ps, bandwidth_ps) = (graph.distances().from(from)[to as usize], graph.min_latency_ps());
    let hops = graph.uniform().then(|| u64::from(graph.hops(from)[to as usize]));
    let (ps, cut) = (latency_ps.max(bandwidth_ps), search::between(graph, from, to));
    Bound { ps, bandwidth_ps, latency_ps, cut, hops, tightest: true }
}

/// What leaves one node, or enters it: its own links alone count.
pub(crate) fn bound_around(graph: &Graph, node: u32, enters: bool) -> Bound {
    let cut = if enters { Cut::into(graph, node, 1) } else { Cut::from(graph, node, 1) };
    let latency_ps = graph.min_latency_ps();
    let hops = graph.uniform().then_some(1);
    Bound { ps: latency_ps, bandwidth_ps: latency_ps, latency_ps, cut, hops, tightest: false }
}

#[cfg(test)]
mod tests;
