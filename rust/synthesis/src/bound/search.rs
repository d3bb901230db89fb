//! The tightest cuts of networks of any shape, by maximum flows.
//!
//! Ratios are exact: each is found by Newton's method on integer flows, so the cut that is reported is the tight one. A
//! sink that passed for one ratio passes for every tighter one, so no sink is tried twice: it joins the source, because
//! all cuts around it were examined, and the flow found so far stays.

use super::cut::{Cut, Parts, Ratio, tightest};
use super::work::Work;
use crate::Graph;
use crate::flow::Flow;
use crate::graph::gcd;
use ahbm_engine::interrupt::spend;

/// More than any flow.
const ENDLESS: i64 = i64::MAX / 4;

/// A cut, and whether none is tighter.
pub(super) type Found = (Cut, bool);

/// The set `S` of nodes with the greatest `|S| / capacity out of S`: every node outside needs all of its chunks.
///
/// For a guess `p / q` of the least `capacity / |S|`, a source that offers `p` to every node must be able to push
/// `n p` into each node over links of `q c`.
pub(super) fn all_gather(graph: &Graph, work: &mut Work) -> Found {
    let n = graph.nodes();
    let weakest = weakest(graph, 0..n);
    let mut best = Cut::into(graph, weakest, u64::from(n) - 1);
    let mut flow = work.flow(n as usize + 1);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let offers: Vec<u32> = (0..n).map(|v| flow.arc(n, v, 0)).collect();
    let mut passed = vec![false; n as usize];
    let begin = |flow: &mut Flow, best: &Cut, passed: &[bool]| {
        let divisor = gcd(best.capacity, best.demand);
        let (p, q) = ((best.capacity / divisor) as i64, (best.demand / divisor) as i64);
        for (link, &arc) in arcs.iter().enumerate() {
            flow.set(arc, q * graph.capacity(link as u32) as i64);
        }
        for (&offer, &passed) in offers.iter().zip(passed) {
            flow.set(offer, if passed { ENDLESS } else { p });
        }
        p * i64::from(n)
    };
    let mut wanted = begin(&mut flow, &best, &passed);
    for sink in breadth_first(graph, weakest) {
        while !passed[work.alike[sink as usize] as usize] {
            let pushed = flow.run(n, sink, wanted);
            if !work.took(&mut flow) {
                return (best, false);
            }
            if pushed >= wanted {
                break;
            }
            let members: Vec<bool> = (0..n).map(|v| flow.on_source_side(v)).collect();
            let size = members.iter().filter(|&&m| m).count() as u64;
            best = Cut::out_of(graph, |v| members[v as usize], size);
            wanted = begin(&mut flow, &best, &passed);
        }
        passed[sink as usize] = true;
        passed[work.alike[sink as usize] as usize] = true;
        flow.widen(offers[sink as usize], ENDLESS);
        spend(64);
    }
    (best, true)
}

/// The least cut between the root and a node.
pub(super) fn broadcast(graph: &Graph, root: u32, work: &mut Work) -> Found {
    let n = graph.nodes();
    let leaves = || (0..n).filter(|&v| v != root);
    let mut best = Cut::into(graph, weakest(graph, leaves()), 1);
    let mut flow = work.flow(n as usize);
    for (link, ends) in graph.links().iter().enumerate() {
        flow.arc(ends.from, ends.to, graph.capacity(link as u32) as i64);
    }
    let joins: Vec<u32> = (0..n).map(|v| flow.arc(root, v, 0)).collect();
    for sink in leaves() {
        let like = work.alike[sink as usize];
        // Nodes that change places leave the root where it is.
        if like == sink || like == root {
            let enough = best.capacity as i64;
            let pushed = flow.run(root, sink, enough);
            if !work.took(&mut flow) {
                return (best, false);
            }
            if pushed < enough {
                let members: Vec<bool> = (0..n).map(|v| flow.on_source_side(v)).collect();
                best = Cut::out_of(graph, |v| members[v as usize], 1);
            }
        }
        flow.widen(joins[sink as usize], ENDLESS);
    }
    (best, true)
}

/// The set `S` around the root with the greatest `(n - |S|) / capacity out of S`: the chunks of all others leave it.
///
/// With `best = d / c`, the root offers `c` to every other node over links of `d c`; what does not get through is cut.
pub(super) fn scatter(graph: &Graph, root: u32, work: &mut Work) -> Found {
    let n = graph.nodes();
    let others = u64::from(n) - 1;
    let mut best = sweep(graph, &breadth_first(graph, root), |inside| u64::from(n) - u64::from(inside));
    let mut flow = work.flow(n as usize + 1);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let wants: Vec<u32> = (0..n).map(|v| flow.arc(v, n, 0)).collect();
    loop {
        let divisor = gcd(best.capacity, best.demand);
        let (c, d) = ((best.capacity / divisor) as i64, (best.demand / divisor) as i64);
        for (link, &arc) in arcs.iter().enumerate() {
            flow.set(arc, d * graph.capacity(link as u32) as i64);
        }
        for (node, &want) in wants.iter().enumerate() {
            flow.set(want, if node as u32 == root { 0 } else { c });
        }
        let wanted = c * others as i64;
        let pushed = flow.run(root, n, wanted);
        if !work.took(&mut flow) {
            return (best, false);
        }
        if pushed >= wanted {
            return (best, true);
        }
        let members: Vec<bool> = (0..n).map(|v| flow.on_source_side(v)).collect();
        let outside = members.iter().filter(|&&m| !m).count() as u64;
        best = Cut::out_of(graph, |v| members[v as usize], outside);
    }
}

/// The least cut between two nodes.
pub(super) fn between(graph: &Graph, from: u32, to: u32) -> Cut {
    let mut flow = Flow::new(graph.nodes() as usize);
    for (link, ends) in graph.links().iter().enumerate() {
        flow.arc(ends.from, ends.to, graph.capacity(link as u32) as i64);
    }
    flow.run(from, to, ENDLESS);
    Cut::out_of(graph, |v| flow.on_source_side(v), 1)
}

/// All to all: cuts along sweeps, around each node and around each branch of a tree, and the hops of all pairs over all
/// links. No cut is tighter when messages on shortest ways load no link more than the cut says.
pub(super) fn exchange(graph: &Graph, work: &mut Work) -> Found {
    let n = graph.nodes();
    let other_way = (!graph.symmetric()).then(|| swept(&graph.reversed()).turned(n));
    let best = tightest(std::iter::once(swept(graph)).chain(other_way));
    let each = 6 * (graph.links().len() as u64 + u64::from(n));
    if !work.take(each * u64::from(n)) {
        return (best, false);
    }
    let loads = loads(graph);
    let everything = Cut {
        parts: Parts::Each(n),
        capacity: (0..graph.links().len() as u32).map(|l| graph.capacity(l)).sum(),
        links: graph.links().len() as u32,
        demand: loads.iter().sum(),
    };
    let best = if everything.tighter(&best) { everything } else { best };
    let busiest = (0u32..).zip(&loads).map(|(link, &load)| Ratio { demand: load, capacity: graph.capacity(link) });
    let fits = busiest.into_iter().all(|ratio| !ratio.above(best.ratio()));
    (best, fits)
}

/// The tightest of the cuts of an all-to-all that need no routing, out of sets of nodes that are swept along links.
fn swept(graph: &Graph) -> Cut {
    let n = graph.nodes();
    let crossing = |inside: u32| u64::from(inside) * u64::from(n - inside);
    let corner = (0..n).min_by_key(|&v| graph.out(v).len()).unwrap_or(0);
    let order = breadth_first(graph, corner);
    let sweeps = slabs(graph).into_iter().map(|order| sweep(graph, &order, crossing));
    let alone = [Cut::into(graph, weakest(graph, 0..n), u64::from(n) - 1)];
    tightest(sweeps.chain(alone).chain([sweep(graph, &order, crossing), branch(graph, corner, &order)]))
}

/// The nodes in order of their numbers and, on a grid, slice by slice along each other dimension.
fn slabs(graph: &Graph) -> Vec<Vec<u32>> {
    let mut orders: Vec<Vec<u32>> = vec![(0..graph.nodes()).collect()];
    if let Some(grid) = graph.grid() {
        let mut stride = graph.nodes();
        let last = grid.extents.last().copied().unwrap_or(1);
        stride /= last;
        for &extent in grid.extents.iter().rev().skip(1) {
            stride /= extent;
            let mut order = orders[0].clone();
            order.sort_by_key(|&node| node / stride % extent);
            orders.push(order);
        }
    }
    orders
}

/// Per link, how many messages between two nodes cross it when all take ways of the fewest links, each a branch of its
/// source's tree.
fn loads(graph: &Graph) -> Vec<u64> {
    let n = graph.nodes() as usize;
    let mut loads = vec![0u64; graph.links().len()];
    let (mut entry, mut below) = (vec![u32::MAX; n], vec![0u64; n]);
    for source in 0..graph.nodes() {
        spend(8 * graph.links().len() as u64);
        entry.fill(u32::MAX);
        below.fill(1);
        let order = tree(graph, source, &mut entry);
        for &node in order[1..].iter().rev() {
            let link = entry[node as usize];
            loads[link as usize] += below[node as usize];
            below[graph.link(link).from as usize] += below[node as usize];
        }
    }
    loads
}

/// The branch of the tree from `root` around which the cut is the tightest; `order` is the tree's own.
fn branch(graph: &Graph, root: u32, order: &[u32]) -> Cut {
    let n = graph.nodes() as usize;
    let mut entry = vec![u32::MAX; n];
    tree(graph, root, &mut entry);
    let above = |node: u32| graph.link(entry[node as usize]).from;
    let (mut depth, mut size, mut capacity) = (vec![0u32; n], vec![1u32; n], vec![0i64; n]);
    for &node in &order[1..] {
        depth[node as usize] = depth[above(node) as usize] + 1;
    }
    // A link leaves the branches that hold its start and not its end: those from the start up to where the two meet.
    for (index, link) in graph.links().iter().enumerate() {
        let (mut a, mut b) = (link.from, link.to);
        while a != b {
            if depth[a as usize] >= depth[b as usize] { a = above(a) } else { b = above(b) }
        }
        capacity[link.from as usize] += graph.capacity(index as u32) as i64;
        capacity[a as usize] -= graph.capacity(index as u32) as i64;
    }
    let mut best = (root, Ratio { demand: 0, capacity: 1 });
    for &node in order[1..].iter().rev() {
        let (inside, crossing) = (size[node as usize], capacity[node as usize]);
        let ratio = Ratio { demand: u64::from(inside) * u64::from(n as u32 - inside), capacity: crossing as u64 };
        if ratio.above(best.1) {
            best = (node, ratio);
        }
        size[above(node) as usize] += inside;
        capacity[above(node) as usize] += crossing;
    }
    let mut inside = vec![false; n];
    for &node in order {
        inside[node as usize] = node == best.0 || (node != root && inside[above(node) as usize]);
    }
    Cut::out_of(graph, |v| inside[v as usize], best.1.demand)
}

/// The prefix of `order`, not all of it, out of which the cut is the tightest; the first of those. `demand` is that of a
/// prefix of so many nodes.
fn sweep(graph: &Graph, order: &[u32], demand: impl Fn(u32) -> u64) -> Cut {
    let mut place = vec![0u32; order.len()];
    let mut capacity = 0u64;
    let mut best = (0, Ratio { demand: 0, capacity: 1 });
    for (at, &node) in (0u32..).zip(order) {
        place[node as usize] = at;
    }
    for (inside, &node) in (1u32..).zip(&order[..order.len() - 1]) {
        spend(4 * graph.out(node).len() as u64);
        let later = |other: u32| place[other as usize] >= inside;
        let out: u64 = graph.out(node).iter().filter(|&&l| later(graph.link(l).to)).map(|&l| graph.capacity(l)).sum();
        let into = graph.incoming(node).iter().filter(|&&l| !later(graph.link(l).from));
        capacity = capacity + out - into.map(|&l| graph.capacity(l)).sum::<u64>();
        let ratio = Ratio { demand: demand(inside), capacity };
        if ratio.above(best.1) {
            best = (inside, ratio);
        }
    }
    Cut::out_of(graph, |v| place[v as usize] < best.0, best.1.demand)
}

/// The first of the nodes into which the least comes.
pub(super) fn weakest(graph: &Graph, nodes: impl Iterator<Item = u32>) -> u32 {
    let entering = |v: u32| graph.incoming(v).iter().map(|&l| graph.capacity(l)).sum::<u64>();
    nodes.min_by_key(|&v| entering(v)).unwrap_or(0)
}

pub(super) fn breadth_first(graph: &Graph, root: u32) -> Vec<u32> {
    tree(graph, root, &mut vec![u32::MAX; graph.nodes() as usize])
}

/// The nodes in order of their distance from `root`, and per node the link by which it was met.
fn tree(graph: &Graph, root: u32, entry: &mut [u32]) -> Vec<u32> {
    let mut order = Vec::with_capacity(entry.len());
    order.push(root);
    let mut at = 0;
    while at < order.len() {
        for &link in graph.out(order[at]) {
            let to = graph.link(link).to;
            if to != root && entry[to as usize] == u32::MAX {
                entry[to as usize] = link;
                order.push(to);
            }
        }
        at += 1;
    }
    order
}
