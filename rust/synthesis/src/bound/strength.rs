//! The tightest partition for an all-reduce.

use super::cut::{Cut, Ratio, tightest};
use super::search::{Found, breadth_first};
use super::work::Work;
use crate::Graph;
use crate::graph::gcd;

/// More than any flow.
const ENDLESS: i64 = i64::MAX / 4;

/// The partition `P` with the greatest `2 (|P| - 1) / capacity between its parts`: every element of an all-reduce
/// crosses its borders `|P| - 1` times on the way in and as often on the way out (Tutte, Nash-Williams; Cunningham's
/// *strength* where both directions of a link are equal).
pub(super) fn strength(graph: &Graph, work: &mut Work) -> Found {
    let n = graph.nodes();
    let singles = Cut::between(graph, &(0..n).collect::<Vec<_>>());
    let ratios = (0..n).map(|v| {
        let links = graph.out(v).iter().chain(graph.incoming(v));
        (v, Ratio { demand: 2, capacity: links.map(|&l| graph.capacity(l)).sum() })
    });
    // The first of the tightest, between one node and the others.
    let alone = ratios.reduce(|best, next| if next.1.above(best.1) { next } else { best }).map_or(0, |(v, _)| v);
    let alone = Cut::between(graph, &(0..n).map(|v| u32::from(v != alone)).collect::<Vec<_>>());
    let mut best = tightest([singles, alone].into_iter());
    loop {
        match violated(graph, &best, work) {
            Some(Some(cut)) if cut.tighter(&best) => best = cut,
            Some(_) => return (best, true),
            None => return (best, false),
        }
    }
}

/// A partition that is tighter than `best`, if there is one; `None` when there is no more work to do.
///
/// With `best = d / c`, every link gets its `d c` units of load to two nodes, to the one or the other. Nodes come one by
/// one, and `x(v)` is the least with which `x(S)` is `2 c` more than the load of the links inside `S`, for all sets `S`
/// of nodes seen so far: the greedy algorithm on a Dilworth truncation. A new node takes the load of all its links to
/// nodes seen before, then passes on what others have room for; what it keeps, and `2 c` of room, is its `x`. Sets
/// without more room than that are tight, and overlapping tight sets unite to the blocks of the partition. The load of
/// a link passes to its other end over the arcs of a flow, which stays from node to node.
fn violated(graph: &Graph, best: &Cut, work: &mut Work) -> Option<Option<Cut>> {
    let n = graph.nodes();
    let divisor = gcd(best.capacity, best.demand);
    let (d, c) = ((best.demand / divisor) as i64, (best.capacity / divisor) as i64);
    let mut flow = work.flow(n as usize + 1);
    let arcs: Vec<u32> = graph.links().iter().map(|l| flow.arc(l.from, l.to, 0)).collect();
    let room: Vec<u32> = (0..n).map(|v| flow.arc(v, n, 0)).collect();
    let mut block: Vec<u32> = (0..n).collect();
    let mut seen = vec![false; n as usize];
    for node in breadth_first(graph, 0) {
        seen[node as usize] = true;
        // An arc has the load of its start, which may pass to its end; its residual has that of its end.
        for &link in graph.out(node).iter().chain(graph.incoming(node)) {
            let ends = graph.link(link);
            if seen[ends.from as usize] && seen[ends.to as usize] {
                let own = d * graph.capacity(link) as i64;
                flow.assign(arcs[link as usize], if ends.from == node { (own, 0) } else { (0, own) });
            }
        }
        flow.run(node, n, ENDLESS);
        if !work.took(&mut flow) {
            return None;
        }
        let mut united = vec![false; n as usize];
        for v in (0..n).filter(|&v| seen[v as usize] && (v == node || flow.on_source_side(v))) {
            united[block[v as usize] as usize] = true;
        }
        for b in &mut block {
            if united[*b as usize] {
                *b = node;
            }
        }
        flow.assign(room[node as usize], (2 * c, 0));
    }
    let left: i64 = room.iter().map(|&arc| flow.left(arc)).sum();
    Some((left > 2 * c).then(|| Cut::between(graph, &block)))
}
