//! Lower bounds with their witnesses.
//!
//! A bound is the least time any schedule can take because of one *cut*: a set of NPUs that too few links leave, or a
//! partition of the NPUs between whose parts too few links run. Ratios are exact: each is found by Newton's method on
//! integer maximum flows, so the cut that is reported is the tight one.

use crate::flow::Flow;
use crate::graph::gcd;
use crate::{Collective, Graph};
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;

/// A set of NPUs, or a partition of them, and what crosses its borders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The parts; a single part stands for itself against all other NPUs.
    pub parts: Vec<Vec<u32>>,
    /// Capacity of the links that cross, in units of the graph: out of the part, or between all parts, both ways.
    pub capacity: u64,
    /// Number of links that cross.
    pub links: u32,
    /// How many buffers' worth of data must cross: `demand / capacity` is what the cut costs per byte and unit.
    pub demand: u64,
}

impl Cut {
    /// Time that `bytes` times the demand take over the cut, its capacity counted in `unit_gbs`.
    pub fn fluid_ps(&self, bytes: u64, unit_gbs: f64) -> Ps {
        (bytes as f64 * 1000.0 * self.demand as f64 / (self.capacity as f64 * unit_gbs)) as Ps
    }
}

/// The least time a collective can take.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The larger of the two terms below.
    pub ps: Ps,
    /// Data over the tight cut, and the latency of a link after it.
    pub bandwidth_ps: Ps,
    /// The longest shortest way of one chunk.
    pub latency_ps: Ps,
    /// The cut behind `bandwidth_ps`.
    pub cut: Cut,
    /// Links on the longest shortest way.
    pub hops: u64,
    /// Links are equal, so that rounds mean something.
    pub uniform: bool,
}

impl Bound {
    /// Least number of rounds in which every link carries one of `chunks` equal chunks of a share; `None` where links
    /// differ.
    pub fn rounds(&self, chunks: u64) -> Option<u64> {
        self.uniform.then(|| (chunks * self.cut.demand).div_ceil(self.cut.capacity).max(self.hops))
    }
}

/// Bounds `collective` of buffers of `bytes` per NPU (its own share of the result where every NPU has one), each cut
/// into `chunks`, with the given root where it has one.
pub fn bound(graph: &Graph, collective: Collective, bytes: u64, chunks: u32, root: u32) -> Bound {
    let cut = match collective {
        _ if graph.switch().is_some() => star(graph, collective),
        Collective::AllGather => all_gather(graph),
        Collective::ReduceScatter => all_gather(&graph.reversed()),
        Collective::AllReduce => strength(graph),
        Collective::Broadcast => root_cut(graph, root, false),
        Collective::Reduce => root_cut(&graph.reversed(), root, false),
        Collective::Scatter => root_cut(graph, root, true),
        Collective::Gather => root_cut(&graph.reversed(), root, true),
        Collective::AllToAll => exchange(graph),
    };
    // Every byte over the cut must leave one latency before the end.
    let bandwidth_ps = cut.fluid_ps(bytes, graph.unit_gbs()) + graph.min_latency_ps();
    // Methods may cut what goes to many into smaller chunks than asked; there, latency alone is certain.
    let chunk = match collective {
        Collective::AllToAll | Collective::Scatter | Collective::Gather => bytes / u64::from(chunks.max(1)),
        _ => 0,
    };
    let far = |graph: &Graph, root: u32| graph.distances_ps(root, chunk).into_iter().max().unwrap_or(0);
    let latency_ps = match collective {
        Collective::Broadcast | Collective::Scatter => far(graph, root),
        Collective::Reduce | Collective::Gather => far(&graph.reversed(), root),
        _ => eccentricity(graph, |root| far(graph, root)),
    };
    let hops = |graph: &Graph, root: u32| u64::from(graph.hops(root).into_iter().max().unwrap_or(0));
    let hops = match collective {
        Collective::Broadcast | Collective::Scatter => hops(graph, root),
        Collective::Reduce | Collective::Gather => hops(&graph.reversed(), root),
        _ => eccentricity(graph, |root| hops(graph, root)),
    };
    Bound { ps: bandwidth_ps.max(latency_ps), bandwidth_ps, latency_ps, cut, hops, uniform: graph.uniform() }
}

/// The same among some of the nodes, the others relaying: what enters or leaves each of them, and their distances. A
/// bound, though not always the tightest.
pub(crate) fn bound_among(
    graph: &Graph,
    members: &[u32],
    collective: Collective,
    bytes: u64,
    chunks: u32,
    root: u32,
) -> Bound {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let others = members.len() as u64 - 1;
    let into = |v: u32, demand: u64| ingress(graph, v, demand);
    let out = |v: u32, demand: u64| {
        if graph.switch().is_some() {
            return Cut { demand, ..star(graph, Broadcast) };
        }
        part(graph, &(0..graph.nodes()).map(|w| w == v).collect::<Vec<_>>(), demand)
    };
    let into = |v: u32, demand: u64| if graph.switch().is_some() { out(v, demand) } else { into(v, demand) };
    let leaves = members.iter().copied().filter(|&v| v != root);
    let cut = match collective {
        AllGather => tightest(members.iter().map(|&v| into(v, others))),
        ReduceScatter => tightest(members.iter().map(|&v| out(v, others))),
        AllToAll => tightest(members.iter().flat_map(|&v| [into(v, others), out(v, others)])),
        // Everything leaves each of them, and the result enters it.
        AllReduce => tightest(members.iter().flat_map(|&v| [into(v, 1), out(v, 1)])),
        Broadcast => tightest(leaves.map(|v| into(v, 1)).chain([out(root, 1)])),
        Reduce => tightest(leaves.map(|v| out(v, 1)).chain([into(root, 1)])),
        Scatter => out(root, others),
        Gather => into(root, others),
    };
    let bandwidth_ps = cut.fluid_ps(bytes, graph.unit_gbs()) + graph.min_latency_ps();
    let chunk = match collective {
        AllToAll | Scatter | Gather => bytes / u64::from(chunks.max(1)),
        _ => 0,
    };
    let back = graph.reversed();
    let (mut latency_ps, mut hops) = (0, 0);
    for &from in members.iter().filter(|&&v| v == root || !matches!(collective, Broadcast | Reduce | Scatter | Gather))
    {
        let graph = if matches!(collective, Reduce | Gather) { &back } else { graph };
        let (ps, links) = (graph.distances_ps(from, chunk), graph.hops(from));
        latency_ps = members.iter().map(|&v| ps[v as usize]).fold(latency_ps, Ps::max);
        hops = members.iter().map(|&v| u64::from(links[v as usize])).fold(hops, u64::max);
    }
    Bound { ps: bandwidth_ps.max(latency_ps), bandwidth_ps, latency_ps, cut, hops, uniform: graph.uniform() }
}

/// The largest of `of` over the nodes; over a sample on graphs so large that all would take longer than the synthesis.
fn eccentricity(graph: &Graph, of: impl Fn(u32) -> u64) -> u64 {
    let step = (graph.nodes() / 64).max(1);
    (0..graph.nodes()).step_by(step as usize).map(of).max().unwrap_or(0)
}

fn part(graph: &Graph, members: &[bool], demand: u64) -> Cut {
    spend(8 * graph.links().len() as u64);
    let crossing = |l: &&(usize, &crate::Link)| members[l.1.from as usize] && !members[l.1.to as usize];
    let all: Vec<(usize, &crate::Link)> = graph.links().iter().enumerate().collect();
    let links: Vec<u32> = all.iter().filter(crossing).map(|l| l.0 as u32).collect();
    Cut {
        parts: vec![(0..graph.nodes()).filter(|&v| members[v as usize]).collect()],
        capacity: links.iter().map(|&l| graph.capacity(l)).sum(),
        links: links.len() as u32,
        demand,
    }
}

/// `a` allows less than `b`.
fn tighter(a: &Cut, b: &Cut) -> bool {
    u128::from(a.demand) * u128::from(b.capacity) > u128::from(b.demand) * u128::from(a.capacity)
}

fn tightest(cuts: impl Iterator<Item = Cut>) -> Cut {
    let none = Cut { parts: Vec::new(), capacity: 1, links: 0, demand: 0 };
    cuts.fold(none, |best, cut| if tighter(&cut, &best) { cut } else { best })
}

/// The ingress of one node: everything from the others enters it.
fn ingress(graph: &Graph, node: u32, demand: u64) -> Cut {
    let members: Vec<bool> = (0..graph.nodes()).map(|v| v != node).collect();
    part(graph, &members, demand)
}

/// At a switch between equal ports: those of one NPU; all that send, for an all-reduce.
///
/// A switch that reduces changes the all-reduce alone: each NPU's buffer leaves it once, and the result enters it once.
/// Elsewhere one NPU has to send or receive that much whatever the switch does.
fn star(graph: &Graph, collective: Collective) -> Cut {
    let n = graph.nodes();
    let port = graph.capacity(0);
    let reduces = graph.switch().is_some_and(|switch| switch.reduces);
    if collective == Collective::AllReduce && !reduces {
        let parts = (0..n).map(|v| vec![v]).collect();
        return Cut { parts, capacity: u64::from(n) * port, links: n, demand: 2 * (u64::from(n) - 1) };
    }
    let once = matches!(collective, Collective::Broadcast | Collective::Reduce | Collective::AllReduce);
    let demand = if once { 1 } else { u64::from(n) - 1 };
    Cut { parts: vec![vec![0]], capacity: port, links: 1, demand }
}

/// The set `S` of nodes with the greatest `|S| / capacity out of S`: every node outside needs all of its chunks.
///
/// For a guess `p / q` of the least `capacity / |S|`, a source that offers `p` to every node must be able to push
/// `n p` into each node over links of `q c`. Nodes that passed are merged with the source: a cut that misses them
/// was already examined.
fn all_gather(graph: &Graph) -> Cut {
    let n = graph.nodes();
    let demand = u64::from(n) - 1;
    let weakest = (0..n).min_by_key(|&v| graph.incoming(v).iter().map(|&l| graph.capacity(l)).sum::<u64>());
    let mut best = ingress(graph, weakest.unwrap_or(0), demand);
    let order = breadth_first(graph, weakest.unwrap_or(0));
    let mut flow = Flow::new(n as usize + 1);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let offers: Vec<u32> = (0..n).map(|v| flow.arc(n, v, 0)).collect();
    loop {
        let divisor = gcd(best.capacity, best.demand);
        let (p, q) = ((best.capacity / divisor) as i64, (best.demand / divisor) as i64);
        let merged = p * i64::from(n);
        let mut found = None;
        for (done, &sink) in order.iter().enumerate() {
            for (link, &arc) in arcs.iter().enumerate() {
                flow.set(arc, q * graph.capacity(link as u32) as i64);
            }
            for (place, &node) in order.iter().enumerate() {
                flow.set(offers[node as usize], if place < done { merged } else { p });
            }
            if flow.run(n, sink, merged) < merged {
                let members: Vec<bool> = (0..n).map(|v| flow.on_source_side(v)).collect();
                let size = members.iter().filter(|&&m| m).count() as u64;
                found = Some(part(graph, &members, size));
                break;
            }
        }
        match found {
            Some(cut) if tighter(&cut, &best) => best = cut,
            _ => return best,
        }
    }
}

fn breadth_first(graph: &Graph, root: u32) -> Vec<u32> {
    let mut order = vec![root];
    let mut seen = vec![false; graph.nodes() as usize];
    seen[root as usize] = true;
    let mut at = 0;
    while at < order.len() {
        for &link in graph.out(order[at]) {
            let to = graph.link(link).to;
            if !std::mem::replace(&mut seen[to as usize], true) {
                order.push(to);
            }
        }
        at += 1;
    }
    order
}

/// The least cut between the root and a node (broadcast), or what leaves the root and each sweep from it (scatter).
fn root_cut(graph: &Graph, root: u32, own_chunks: bool) -> Cut {
    let n = graph.nodes();
    if own_chunks {
        // Sets around the root in order of distance: all chunks of the others leave them.
        let order = breadth_first(graph, root);
        let mut members = vec![false; n as usize];
        return tightest(order[..n as usize - 1].iter().enumerate().map(|(inside, &node)| {
            members[node as usize] = true;
            part(graph, &members, u64::from(n) - 1 - inside as u64)
        }));
    }
    let mut flow = Flow::new(n as usize);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let entering = |v: u32| graph.incoming(v).iter().map(|&l| graph.capacity(l)).sum::<u64>();
    let weakest = (0..n).filter(|&v| v != root).min_by_key(|&v| entering(v)).unwrap_or(0);
    let mut best = ingress(graph, weakest, 1);
    for sink in (0..n).filter(|&v| v != root) {
        for (link, &arc) in arcs.iter().enumerate() {
            flow.set(arc, graph.capacity(link as u32) as i64);
        }
        if flow.run(root, sink, best.capacity as i64) < best.capacity as i64 {
            let members: Vec<bool> = (0..n).map(|v| flow.on_source_side(v)).collect();
            best = part(graph, &members, 1);
        }
    }
    best
}

/// The least cut between two nodes.
pub(crate) fn least_cut(graph: &Graph, from: u32, to: u32) -> Cut {
    if graph.switch().is_some() {
        return Cut { parts: vec![vec![from]], ..star(graph, Collective::Broadcast) };
    }
    let mut flow = Flow::new(graph.nodes() as usize);
    for (link, ends) in graph.links().iter().enumerate() {
        flow.arc(ends.from, ends.to, graph.capacity(link as u32) as i64);
    }
    flow.run(from, to, i64::MAX / 4);
    part(graph, &(0..graph.nodes()).map(|v| flow.on_source_side(v)).collect::<Vec<_>>(), 1)
}

/// All to all: cuts around each node and along breadth-first sweeps, and the hops of all pairs over all links.
fn exchange(graph: &Graph) -> Cut {
    let n = graph.nodes();
    let total: u64 = (0..graph.links().len() as u32).map(|l| graph.capacity(l)).sum();
    let hops: u64 = (0..n).flat_map(|root| graph.hops(root)).map(u64::from).sum();
    let links = graph.links().len() as u32;
    let everything = Cut { parts: (0..n).map(|v| vec![v]).collect(), capacity: total, links, demand: hops };
    let corner = (0..n).min_by_key(|&v| graph.out(v).len()).unwrap_or(0);
    let natural: Vec<u32> = (0..n).collect();
    let sweeps = [breadth_first(graph, corner), natural].into_iter().map(|order| {
        let mut members = vec![false; n as usize];
        tightest(order[..n as usize - 1].iter().enumerate().map(|(inside, &node)| {
            members[node as usize] = true;
            part(graph, &members, (inside as u64 + 1) * u64::from(n - 1 - inside as u32))
        }))
    });
    let alone = (0..n).map(|v| ingress(graph, v, u64::from(n) - 1));
    tightest(sweeps.chain(alone).chain([everything]))
}

/// The partition `P` with the greatest `2 (|P| - 1) / capacity between its parts`: every element of an all-reduce
/// crosses its borders `|P| - 1` times on the way in and as often on the way out (Tutte, Nash-Williams; Cunningham's
/// *strength* where both directions of a link are equal).
fn strength(graph: &Graph) -> Cut {
    let n = graph.nodes();
    let whole: u64 = (0..graph.links().len() as u32).map(|l| graph.capacity(l)).sum();
    let singles = Cut {
        parts: (0..n).map(|v| vec![v]).collect(),
        capacity: whole,
        links: graph.links().len() as u32,
        demand: 2 * (u64::from(n) - 1),
    };
    let mut best = tightest([singles].into_iter().chain((0..n).map(|v| around(graph, v))));
    loop {
        let cut = violated(graph, &best);
        match cut {
            Some(cut) if tighter(&cut, &best) => best = cut,
            _ => return best,
        }
    }
}

/// One node against the rest.
fn around(graph: &Graph, node: u32) -> Cut {
    partition(graph, &(0..graph.nodes()).map(|v| u32::from(v != node)).collect::<Vec<_>>())
}

fn partition(graph: &Graph, block: &[u32]) -> Cut {
    let mut parts: Vec<Vec<u32>> = Vec::new();
    let mut number = vec![u32::MAX; block.iter().max().map_or(0, |&m| m as usize + 1)];
    for (node, &block) in block.iter().enumerate() {
        if number[block as usize] == u32::MAX {
            number[block as usize] = parts.len() as u32;
            parts.push(Vec::new());
        }
        parts[number[block as usize] as usize].push(node as u32);
    }
    let crosses = |l: &&u32| block[graph.link(**l).from as usize] != block[graph.link(**l).to as usize];
    let all: Vec<u32> = (0..graph.links().len() as u32).collect();
    let crossing: Vec<u32> = all.iter().filter(crosses).copied().collect();
    Cut {
        capacity: crossing.iter().map(|&l| graph.capacity(l)).sum(),
        links: crossing.len() as u32,
        demand: 2 * (parts.len() as u64 - 1),
        parts,
    }
}

/// A partition that is tighter than `best`, if there is one.
///
/// With `best = d / c`, looks for blocks minimising the sum of `d out(S) - 2 c`, by the greedy algorithm on the
/// Dilworth truncation of that function: `y(v)` is the least of `d out(S) - 2 c - y(S - v)` over the sets `S` of
/// nodes seen so far that hold `v`; overlapping tight sets unite.
fn violated(graph: &Graph, best: &Cut) -> Option<Cut> {
    let n = graph.nodes();
    let divisor = gcd(best.capacity, best.demand);
    let (d, c) = ((best.demand / divisor) as i64, (best.capacity / divisor) as i64);
    let (source, sink) = (n, n + 1);
    let mut flow = Flow::new(n as usize + 2);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let wants: Vec<u32> = (0..n).map(|v| flow.arc(source, v, 0)).collect();
    let costs: Vec<u32> = (0..n).map(|v| flow.arc(v, sink, 0)).collect();
    let mut y = vec![0i64; n as usize];
    let mut block: Vec<u32> = (0..n).collect();
    let mut seen = vec![false; n as usize];
    let order = breadth_first(graph, 0);
    for &node in &order {
        seen[node as usize] = true;
        let mut outside = vec![0i64; n as usize];
        for (link, &arc) in arcs.iter().enumerate() {
            let ends = graph.link(link as u32);
            let capacity = d * graph.capacity(link as u32) as i64;
            let inside = seen[ends.from as usize] && seen[ends.to as usize];
            flow.set(arc, if inside { capacity } else { 0 });
            if !inside && seen[ends.from as usize] {
                outside[ends.from as usize] += capacity;
            }
        }
        let mut offered = 0;
        for v in 0..n as usize {
            let wanted = if v == node as usize { 0 } else { y[v].max(0) };
            offered += wanted;
            flow.set(wants[v], if v == node as usize { i64::MAX / 4 } else { wanted });
            flow.set(costs[v], outside[v] + if v == node as usize { 0 } else { (-y[v]).max(0) });
        }
        let cut = flow.run(source, sink, i64::MAX / 4);
        y[node as usize] = cut - offered - 2 * c;
        let mut united = vec![false; n as usize];
        for v in (0..n).filter(|&v| seen[v as usize] && (v == node || flow.on_source_side(v))) {
            united[block[v as usize] as usize] = true;
        }
        for b in &mut block {
            if united[*b as usize] {
                *b = node;
            }
        }
    }
    (y.iter().sum::<i64>() < -2 * c).then(|| partition(graph, &block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{grid, hypercube};

    fn ratio(cut: &Cut) -> f64 {
        cut.demand as f64 / cut.capacity as f64
    }

    #[test]
    fn all_gather_is_the_closed_form_on_regular_networks() {
        let cases = [(grid(&[8], true), 2), (grid(&[4, 4], false), 2), (grid(&[8, 8], true), 4), (hypercube(6), 6)];
        for (graph, degree) in cases {
            let cut = all_gather(&graph);
            assert_eq!(ratio(&cut), f64::from(graph.nodes() - 1) / f64::from(degree));
        }
    }

    #[test]
    fn a_bridge_is_the_tight_cut() {
        // Two full meshes of four joined by one pair of links.
        let mut pairs = vec![(0, 4)];
        for base in [0, 4] {
            pairs.extend((0..4).flat_map(|a| (a + 1..4).map(move |b| (base + a, base + b))));
        }
        let rate = ahbm_machine::Rate::from_gbs(50.0).unwrap();
        let links = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let links = links.map(|(from, to)| crate::Link { from, to, rate, latency_ps: 0 }).collect();
        let graph = Graph::new(8, links).unwrap();
        let cut = all_gather(&graph);
        assert_eq!((cut.demand, cut.capacity, cut.parts[0].len()), (4, 1, 4));
        let cut = strength(&graph);
        assert_eq!((cut.demand, cut.capacity, cut.parts.len()), (2, 2, 2));
    }

    #[test]
    fn strength_is_the_closed_form_on_grids() {
        // tau = edges / (nodes - 1) in each direction.
        for (graph, tau) in [
            (grid(&[4, 4], false), 24.0 / 15.0),
            (grid(&[8, 8], false), 112.0 / 63.0),
            (grid(&[4, 4, 4], false), 144.0 / 63.0),
            (grid(&[8, 8], true), 128.0 / 63.0),
            (hypercube(6), 192.0 / 63.0),
        ] {
            assert!((1.0 / ratio(&strength(&graph)) - tau).abs() < 1e-12);
        }
    }

    #[test]
    fn rooted_bounds() {
        let graph = grid(&[4, 4], false);
        assert_eq!(ratio(&root_cut(&graph, 5, false)), 0.5);
        assert_eq!(ratio(&root_cut(&graph, 0, true)), 7.5);
        // Middle cut of a 4 x 4 mesh: 64 pairs over 4 links.
        assert_eq!(ratio(&exchange(&graph)), 16.0);
    }
}
