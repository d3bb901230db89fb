//! Least latencies.

use super::Graph;
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// Least latencies from one node after the other: Dijkstra's algorithm with a queue for each latency of a link. Nodes are
/// left in order of time, so what comes over links of one latency comes in order, too, and only the first ones of the
/// queues are compared.
pub(crate) struct Distances<'a> {
    graph: &'a Graph,
    /// Latencies of links, each once.
    latencies: Vec<Ps>,
    /// Per link in the order of [`Graph::out`], node by node, where it leads, and its latency's number: that of its queue.
    ways: Vec<(u32, u32)>,
    queues: Vec<VecDeque<(Ps, u32)>>,
}

impl<'a> Distances<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let latencies: BTreeSet<Ps> = graph.links.iter().map(|link| link.latency_ps).collect();
        let latencies: Vec<Ps> = latencies.into_iter().collect();
        let of = |latency: Ps| latencies.partition_point(|&other| other < latency) as u32;
        let links = graph.out.links.iter().map(|&link| &graph.links[link as usize]);
        let ways = links.map(|link| (link.to, of(link.latency_ps))).collect();
        // The last one is for the root.
        let queues = vec![VecDeque::new(); latencies.len() + 1];
        Self { graph, latencies, ways, queues }
    }

    /// Least latency from `root` to every node.
    pub(crate) fn from(&mut self, root: u32) -> Vec<Ps> {
        let mut best = vec![Ps::MAX; self.graph.nodes as usize];
        best[root as usize] = 0;
        let last = self.queues.len() - 1;
        self.queues[last].push_back((0, root));
        let mut first = BinaryHeap::from([Reverse((0, last as u32))]);
        spend(32 * u64::from(self.graph.nodes));
        while let Some(Reverse((_, queue))) = first.pop() {
            let own = &mut self.queues[queue as usize];
            let Some((at, node)) = own.pop_front() else { continue };
            first.extend(own.front().map(|&(next, _)| Reverse((next, queue))));
            if at > best[node as usize] {
                continue;
            }
            for &(to, queue) in &self.ways[self.graph.out.range(node)] {
                let next = at + self.latencies[queue as usize];
                if next < best[to as usize] {
                    best[to as usize] = next;
                    let own = &mut self.queues[queue as usize];
                    if own.is_empty() {
                        first.push(Reverse((next, queue)));
                    }
                    own.push_back((next, to));
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use ahbm_machine::Rate;

    /// Against rounds over all links until nothing gets nearer.
    #[test]
    fn distances_are_those_of_rounds_over_all_links() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for case in 0..60 {
            let nodes = 2 + random(12) as u32;
            let ring = (0..nodes).map(|node| (node, (node + 1) % nodes));
            let more: Vec<(u32, u32)> =
                (0..case).map(|_| (random(nodes.into()) as u32, random(nodes.into()) as u32)).collect();
            let links: Vec<Link> = ring
                .chain(more)
                .filter(|(from, to)| from != to)
                .map(|(from, to)| Link {
                    from,
                    to,
                    latency_ps: random(1 + case % 7),
                    rate: Rate::from_gbs(1.0).unwrap(),
                })
                .collect();
            let graph = Graph::new(nodes, links).unwrap();
            let mut distances = Distances::new(&graph);
            for root in 0..nodes {
                let mut wanted = vec![Ps::MAX; nodes as usize];
                wanted[root as usize] = 0;
                for _ in 0..nodes {
                    for link in graph.links() {
                        let by = wanted[link.from as usize].saturating_add(link.latency_ps);
                        wanted[link.to as usize] = wanted[link.to as usize].min(by);
                    }
                }
                assert_eq!(distances.from(root), wanted);
            }
        }
    }
}
