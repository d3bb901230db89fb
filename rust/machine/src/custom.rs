//! Custom SIP networks: a declared edge list. Neighbours use their link, all others a shortest path by latency.

use crate::{Ps, Rate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

/// A declared directed link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CustomEdge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) wire: Wire,
    pub(crate) latency_ps: Ps,
}

/// What an edge is, which says what it carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    /// A link of a bandwidth of its own.
    Own(Rate),
    /// A link inside a node.
    Link,
    /// The way between a SIP and the spine.
    Way,
    /// The way between a node and the spine.
    Spine,
}

/// An edge list and, per source, the tree of shortest paths. A tree is computed when it is first asked
/// for; it is a function of the edges alone, so it makes no difference who asks first.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    /// Sorted by (from, to).
    pub(crate) edges: Arc<[CustomEdge]>,
    /// `first[s]..first[s + 1]` are the edges that leave SIP s.
    first: Arc<[u32]>,
    trees: Arc<[OnceLock<Box<[u32]>>]>,
    /// SIPs, and those of a node, where ways are those of nodes: over a switch, or out, over the spine, and in.
    nodes: Option<(u32, u32)>,
}

const NONE: u32 = u32::MAX;

impl Custom {
    /// `edges` must be sorted by (from, to) and stay within `sips`.
    pub(crate) fn new(sips: u32, edges: Vec<CustomEdge>) -> Self {
        let first = (0..=sips).map(|sip| edges.partition_point(|e| e.from < sip) as u32).collect();
        let trees = (0..sips).map(|_| OnceLock::new()).collect();
        Self { edges: edges.into(), first, trees, nodes: None }
    }

    /// As [`Self::new`], of `sips` SIPs in nodes of `size`, numbered as `topology: nodes` does: the ways need no search
    /// where that over the switch of a node is the quicker one inside it.
    pub(crate) fn of_nodes(vertices: u32, edges: Vec<CustomEdge>, sips: u32, size: u32) -> Self {
        let made = Self::new(vertices, edges);
        let took =
            |way: Option<Vec<u32>>| way.map(|way| way.iter().map(|&at| made.edges[at as usize].latency_ps).sum::<Ps>());
        let way = |vertices: &[u32]| made.along(vertices);
        let nodes = sips / size.max(1);
        let own = took(way(&[0, sips, 1]));
        let out = took(way(&[0, sips + nodes, sips + 3 * nodes, sips + 2 * nodes, 1]));
        let plain = nodes > 1 && size > 1 && matches!((own, out), (Some(own), Some(out)) if own <= out);
        Self { nodes: plain.then_some((sips, size)), ..made }
    }

    /// The edges along these vertices.
    fn along(&self, vertices: &[u32]) -> Option<Vec<u32>> {
        vertices.windows(2).map(|pair| self.direct(pair[0], pair[1])).collect()
    }

    /// SIPs and relays.
    pub(crate) fn vertices(&self) -> u32 {
        self.trees.len() as u32
    }

    /// The edge that joins two vertices, if there is one.
    pub(crate) fn direct(&self, from: u32, to: u32) -> Option<u32> {
        self.edges.binary_search_by_key(&(from, to), |e| (e.from, e.to)).ok().map(|index| index as u32)
    }

    /// Edge indices from one SIP to another: the edge that joins them, else the way of least latency; `None` when there
    /// is no way.
    pub(crate) fn path(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        if let Some(edge) = self.direct(from, to) {
            return Some(vec![edge]);
        }
        if let Some((sips, size)) = self.nodes.filter(|&(sips, _)| from.max(to) < sips && from != to) {
            let (nodes, a, b) = (sips / size, from / size, to / size);
            return match a == b {
                true => self.along(&[from, sips + a, to]),
                false => self.along(&[from, sips + nodes + a, sips + 3 * nodes, sips + 2 * nodes + b, to]),
            };
        }
        let tree = self.trees.get(from as usize)?.get_or_init(|| self.tree(from));
        let mut path = Vec::new();
        let mut at = to;
        while at != from {
            let edge = *tree.get(at as usize)?;
            path.push(edge);
            at = self.edges.get(edge as usize)?.from;
        }
        path.reverse();
        Some(path)
    }

    /// For each SIP the edge that enters it on the best way from `source`: least latency, then fewest
    /// links, then the lowest edge index.
    fn tree(&self, source: u32) -> Box<[u32]> {
        let sips = self.trees.len();
        let mut best = vec![(Ps::MAX, u32::MAX); sips];
        let mut entry = vec![NONE; sips];
        let mut queue = BinaryHeap::from([Reverse(((0, 0), source))]);
        best[source as usize] = (0, 0);
        while let Some(Reverse((cost, sip))) = queue.pop() {
            if cost > best[sip as usize] {
                continue;
            }
            for index in self.first[sip as usize]..self.first[sip as usize + 1] {
                let edge = &self.edges[index as usize];
                let next = (cost.0 + edge.latency_ps, cost.1 + 1);
                let to = edge.to as usize;
                if next < best[to] || (next == best[to] && index < entry[to]) {
                    if next < best[to] {
                        queue.push(Reverse((next, edge.to)));
                    }
                    best[to] = next;
                    entry[to] = index;
                }
            }
        }
        // Ways back to the source would never end.
        entry[source as usize] = NONE;
        entry.into()
    }
}
