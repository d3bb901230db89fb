//! Distances: the longest shortest way.

use super::work::Work;
use crate::Graph;
use ahbm_machine::Ps;
use std::collections::BTreeMap;

/// The longest shortest way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Far {
    pub(super) ps: Ps,
    /// Links on it, where links are equal.
    pub(super) hops: Option<u64>,
    /// Every source was looked at.
    pub(super) exact: bool,
}

/// Sources that are looked at where all would take longer than is allowed.
const SAMPLE: usize = 64;

/// The longest shortest way from one of `sources` to one of `targets` (empty: all nodes).
///
/// Sources that are alike have alike distances; the first of a class stands for all.
pub(super) fn farthest(graph: &Graph, sources: &[u32], targets: &[u32], work: &mut Work) -> Far {
    let mut met = vec![false; graph.nodes() as usize];
    let exchanged = exchanged(graph, targets);
    let mut is_first = |&&source: &&u32| {
        let source = exchanged.as_ref().map_or(source, |by| by[source as usize]);
        !std::mem::replace(&mut met[work.alike[source as usize] as usize], true)
    };
    let distinct: Vec<u32> = sources.iter().filter(&mut is_first).copied().collect();
    // A heap costs more than a queue.
    let each = 4 * (graph.links().len() as u64 + u64::from(graph.nodes()));
    let exact = work.take(each * distinct.len() as u64);
    let step = if exact { 1 } else { (distinct.len() / SAMPLE).max(1) };
    let alike = graph.uniform().then(|| graph.link(0).latency_ps);
    let mut far = Far { ps: 0, hops: alike.map(|_| 0), exact: exact || step == 1 };
    let mut distances = graph.distances();
    for &source in distinct.iter().step_by(step) {
        let ps = match alike {
            Some(latency_ps) => {
                let hops = u64::from(greatest(&graph.hops(source), targets));
                far.hops = far.hops.max(Some(hops));
                hops * latency_ps
            }
            None => greatest(&distances.from(source), targets),
        };
        far.ps = far.ps.max(ps);
    }
    far
}

/// The ends of a link of a node as numbers within the node, its capacity and its latency.
type Inner = (u32, u32, u64, Ps);

/// Per NPU the one to which an exchange of nodes takes it that leaves the network and the targets as they are: of the
/// first node with the same links and the same targets. None where nodes are not joined by a spine alone.
fn exchanged(graph: &Graph, targets: &[u32]) -> Option<Vec<u32>> {
    let relayed = graph.relayed().filter(|relayed| relayed.size > 1)?;
    let nodes = relayed.npus / relayed.size;
    let within = |vertex: u32| match vertex.checked_sub(relayed.npus) {
        None => vertex % relayed.size,
        // The spine has a number of its own.
        Some(relay) => relayed.size + relay / nodes,
    };
    let mut inner: Vec<(Vec<Inner>, Vec<u32>)> = vec![Default::default(); nodes as usize];
    for (index, link) in (0..).zip(graph.links()) {
        let of = match (relayed.node(link.from), relayed.node(link.to)) {
            (Some(one), Some(other)) if one != other => return None,
            (Some(one), _) | (None, Some(one)) => one,
            (None, None) => continue,
        };
        inner[of as usize].0.push((within(link.from), within(link.to), graph.capacity(index), link.latency_ps));
    }
    for node in targets.iter().filter_map(|&target| Some((relayed.node(target)?, target))) {
        inner[node.0 as usize].1.push(within(node.1));
    }
    let mut first = BTreeMap::new();
    let mut by = Vec::with_capacity(graph.nodes() as usize);
    for (node, (mut links, mut members)) in (0..).zip(inner) {
        links.sort_unstable();
        members.sort_unstable();
        let stand: u32 = *first.entry((links, members)).or_insert(node);
        by.extend((0..relayed.size).map(|at| stand * relayed.size + at));
    }
    by.extend(relayed.npus..graph.nodes());
    Some(by)
}

fn greatest<T: Copy + Ord + Default>(all: &[T], targets: &[u32]) -> T {
    match targets {
        [] => all.iter().copied().max(),
        _ => targets.iter().map(|&target| all[target as usize]).max(),
    }
    .unwrap_or_default()
}
